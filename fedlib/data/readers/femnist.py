"""FEMNIST (Caldas et al., 2018) as TensorFlow Federated publishes it: 62 digits and letters by 3400 writers, 28x28.

Each writer's samples are in part for training and in part for testing, which are the official parts; groups are the
writers. Pixels become bytes, ink bright on dark as in MNIST. In memory 600 MB. Read by h5py (`pip install
h5py`).
"""

import hashlib
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ...errors import FedlibError
from ..dataset import Dataset
from ..info import BUILT_IN, DatasetInfo, provide

URL, FILE = "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2", "fed_emnist.tar.bz2"
SHA256 = "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0"


def read(root: Path, download: bool) -> Dataset:
    try:
        import h5py
    except ImportError:
        raise FedlibError("its files are in the format HDF5: pip install h5py") from None
    folder = root / "femnist"
    if download:
        from torchvision.datasets.utils import download_url

        download_url(URL, str(folder), FILE)
    with (folder / FILE).open("rb") as packed:
        if hashlib.file_digest(packed, "sha256").hexdigest() != SHA256:
            raise RuntimeError(f"{FILE} is not the published file")
    parts = {}
    with TemporaryDirectory(dir=folder) as place, tarfile.open(folder / FILE) as archive:
        archive.extractall(place, filter="data")
        for part in ("train", "test"):
            with h5py.File(next(Path(place).rglob(f"fed_emnist_{part}.h5"))) as file:
                parts[part] = _writers(file["examples"])
    known = BUILT_IN["femnist"]
    train, test = parts["train"], parts["test"]
    return Dataset.from_arrays(
        "femnist", *train[:2], *test[:2], 62, mean=known.mean, std=known.std, groups=(train[2], test[2])
    )


def _writers(examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[no-untyped-def]  # h5py has no types
    """The writers' images, uint8 (n, 1, 28, 28), labels (n,) and writers (n,), by their names."""
    names = sorted(examples)
    images = [((1 - examples[name]["pixels"][:]) * 255).round().astype(np.uint8)[:, None] for name in names]
    labels = [examples[name]["label"][:].astype(np.int64) for name in names]
    return np.concatenate(images), np.concatenate(labels), np.repeat(names, list(map(len, labels)))


# The mean and deviation are those of EMNIST's by-class part.
provide(
    DatasetInfo("femnist", 62, 1, 671_585, 77_483, (0.1736,), (0.3317,), SHA256[:16], size=(28, 28), groups=3400),
    read,
    "femnist",
    checked_files=True,
)
