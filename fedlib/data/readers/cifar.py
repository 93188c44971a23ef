"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), read by torchvision."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from ..dataset import Dataset
from ..info import BUILT_IN, DatasetInfo, provide


def read(name: str, root: Path, download: bool) -> Dataset:
    from torchvision.datasets import CIFAR10, CIFAR100

    reader = CIFAR10 if name == "cifar10" else CIFAR100
    train, test = (reader(root, train=part, download=download) for part in (True, False))
    images = [torch.from_numpy(part.data).permute(0, 3, 1, 2) for part in (train, test)]
    labels, known = [np.array(part.targets) for part in (train, test)], BUILT_IN[name]
    arrays = images[0], labels[0], images[1], labels[1]
    return Dataset.from_arrays(name, *arrays, known.num_classes, mean=known.mean, std=known.std, augment=True)


# The mean and std are those that papers and their code use.
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
provide(
    DatasetInfo("cifar10", 10, 3, 50000, 10000, CIFAR10_MEAN, CIFAR10_STD, "c67ac8cb06457c00", augment=True),
    partial(read, "cifar10"),
    "cifar-10-batches-py",
)
provide(
    DatasetInfo("cifar100", 100, 3, 50000, 10000, CIFAR100_MEAN, CIFAR100_STD, "49b506bb5efefcb4", augment=True),
    partial(read, "cifar100"),
    "cifar-100-python",
)
