"""FEMNIST's archive: small files of the same format."""

import hashlib
import io
import sys
import tarfile
from dataclasses import replace

import h5py
import numpy as np
import pytest

from fedlib import FedlibError, data
from fedlib.data.readers import femnist

WRITERS = {"f0001_41": {"train": [3, 61], "test": [0]}, "f0000_14": {"train": [5], "test": [7, 7]}}


def pixels(labels: list[int]) -> np.ndarray:
    """Paper is 1 and ink 0; the ink of a character's stroke is in the row of its class."""
    made = np.ones((len(labels), 28, 28), np.float32)
    for image, label in zip(made, labels, strict=True):
        image[label % 28, 4:8] = [0, 0.2, 0.5, 0.9]
    return made


@pytest.fixture(autouse=True)
def file(root, monkeypatch):
    place = root / "femnist" / femnist.FILE
    place.parent.mkdir(parents=True)
    with tarfile.open(place, "w:bz2") as archive:
        for part in ("train", "test"):
            content = io.BytesIO()
            with h5py.File(content, "w") as made:
                for writer, parts in WRITERS.items():
                    group = made.create_group(f"examples/{writer}")
                    group["pixels"], group["label"] = pixels(parts[part]), np.array(parts[part], np.int32)
            item = tarfile.TarInfo(f"fed_emnist_{part}.h5")
            item.size = len(content.getvalue())
            content.seek(0)
            archive.addfile(item, content)
    monkeypatch.setattr(femnist, "SHA256", hashlib.sha256(place.read_bytes()).hexdigest())
    small = replace(data.BUILT_IN["femnist"], num_train=3, num_test=3, groups=2)
    monkeypatch.setitem(data.BUILT_IN, "femnist", small)
    return place


def test_characters_and_their_writers():
    made = data.load("femnist")
    assert made.images.shape == (6, 1, 28, 28) and made.sample == data.info("femnist").sample
    assert made.labels.tolist() == [5, 3, 61, 7, 7, 0] and made.num_train == 3  # by the writers' names
    assert made.groups.tolist() == [0, 1, 1, 0, 0, 1]
    assert made.images[0, 0, 5, 3:9].tolist() == [0, 255, 204, 128, 26, 0]  # ink is bright: 255 * 0.5 = 127.5, to even


def test_another_file_is_refused(file):
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(FedlibError, match=r"fed_emnist\.tar\.bz2 is not the published file"):
        data.load("femnist")


def test_without_h5py_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(FedlibError, match=r"pip install h5py"):
        data.load("femnist")
