"""SVHN's cropped digits (Netzer et al., 2011), read by torchvision."""

from pathlib import Path

from ..dataset import Dataset
from ..info import BUILT_IN, DatasetInfo, provide


def read(root: Path, download: bool) -> Dataset:
    from torchvision.datasets import SVHN

    train, test = (SVHN(root / "svhn", split=split, download=download) for split in ("train", "test"))
    known = BUILT_IN["svhn"]
    arrays = train.data, train.labels, test.data, test.labels
    return Dataset.from_arrays("svhn", *arrays, known.num_classes, mean=known.mean, std=known.std, augment=True)


# The mean and std are those that papers and their code use.
MEAN, STD = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)
provide(
    DatasetInfo("svhn", 10, 3, 73257, 26032, MEAN, STD, "66c506022df4460a", augment=True),
    read,
    "svhn",
    checked_files=True,  # torchvision compares them with their MD5s
)
