"""MNIST (LeCun et al.), read by torchvision; 28x28 with a border of zeros around."""

from pathlib import Path

from torch.nn.functional import pad

from ..dataset import Dataset
from ..info import BUILT_IN, DatasetInfo, provide


def read(root: Path, download: bool) -> Dataset:
    from torchvision.datasets import MNIST

    train, test = (MNIST(root, train=part, download=download) for part in (True, False))
    images = [pad(part.data[:, None], (2, 2, 2, 2)) for part in (train, test)]  # 28x28 -> 32x32
    known = BUILT_IN["mnist"]
    arrays = images[0], train.targets, images[1], test.targets
    return Dataset.from_arrays("mnist", *arrays, known.num_classes, mean=known.mean, std=known.std, augment=True)


# The mean and std are those that papers and their code use.
provide(
    DatasetInfo("mnist", 10, 1, 60000, 10000, (0.1307,), (0.3081,), "9d660eab0816ba12", augment=True), read, "MNIST"
)
