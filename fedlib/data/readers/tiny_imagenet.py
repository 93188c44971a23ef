"""Tiny ImageNet (Stanford's CS231n, 2015): 64x64 pictures of 200 classes, 500 of each to train on and 50 to test on, which are
the published validation part, since the test part has no labels. In memory 1.4 GB.
"""

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..dataset import Dataset
from ..info import BUILT_IN, DatasetInfo, provide

URL, FILE = "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "tiny-imagenet-200.zip"
MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
TOP = "tiny-imagenet-200"


def read(root: Path, download: bool) -> Dataset:
    from torchvision.datasets.utils import check_integrity, download_url

    file = root / "tiny-imagenet" / FILE
    if download:
        download_url(URL, str(file.parent), FILE, MD5)
    if not check_integrity(str(file), MD5):
        raise RuntimeError(f"{FILE} is not the published file")
    with zipfile.ZipFile(file) as archive:
        classes = archive.read(f"{TOP}/wnids.txt").decode().split()
        rows = archive.read(f"{TOP}/val/val_annotations.txt").decode().splitlines()
        names = [
            name for name in sorted(archive.namelist()) if name.startswith(f"{TOP}/train/") and name.endswith(".JPEG")
        ]
        train = _pictures(archive, names), _labels([name.split("/")[2] for name in names], classes)
        shown = dict(row.split("\t")[:2] for row in rows)
        names = sorted(shown)
        test = (
            _pictures(archive, [f"{TOP}/val/images/{name}" for name in names]),
            _labels([shown[name] for name in names], classes),
        )
    known = BUILT_IN["tiny-imagenet"]
    return Dataset.from_arrays("tiny-imagenet", *train, *test, 200, mean=known.mean, std=known.std, augment=True)


def _labels(names: list[str], classes: list[str]) -> np.ndarray:
    """A class's number is its place among the sorted names of all."""
    place = {name: number for number, name in enumerate(sorted(classes))}
    return np.array([place[name] for name in names])


def _pictures(archive: zipfile.ZipFile, names: list[str]) -> Tensor:
    """uint8 (n, 3, 64, 64), channels-last in memory; a grey one has three equal channels."""
    from torchvision.io import ImageReadMode, decode_jpeg

    pictures = torch.empty(len(names), 3, 64, 64, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    for place, name in enumerate(names):
        encoded = torch.frombuffer(bytearray(archive.read(name)), dtype=torch.uint8)
        pictures[place] = decode_jpeg(encoded, mode=ImageReadMode.RGB)
    return pictures


# The mean and deviation are those that papers and their code use.
MEAN, STD = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
provide(
    DatasetInfo("tiny-imagenet", 200, 3, 100_000, 10_000, MEAN, STD, MD5[:16], augment=True, size=(64, 64)),
    read,
    "tiny-imagenet",
    checked_files=True,
)
