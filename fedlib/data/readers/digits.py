"""scikit-learn's 1 797 real digits and what is made of them: stand-ins, embedded in the installation.

`digits` are enlarged to 32x32x3; `digits100` shows two side by side, 100 classes; `digits-inverted`, `digits-noisy` and
`digits-rotated` stand for public data of another set.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ..dataset import Dataset
from ..info import DatasetInfo, provide


def _split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's digits, 8x8 in 0..16, split 5:1 once by class: train images, test images, their labels.

    The file is read without importing scikit-learn, which takes longer than everything else a worker loads but torch.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.origin is not None
    table = np.loadtxt(Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    images, labels = table[:, :64].reshape(-1, 8, 8), table[:, 64].astype(np.int64)
    stream = np.random.default_rng(0)
    by_class = [stream.permutation(np.flatnonzero(labels == label)) for label in range(10)]
    test = np.concatenate([own[: round(len(own) / 6)] for own in by_class])
    train = np.setdiff1d(np.arange(len(labels)), test)
    return images[train], images[test], labels[train], labels[test]


def _as_images(eights: np.ndarray, height: int, width: int) -> np.ndarray:
    """Repeat pixels `height` and `width` times, stretch 0..16 to 0..255, and copy the channel three times."""
    grey = np.repeat(np.repeat(eights, height, axis=1), width, axis=2) * 255 / 16
    return np.repeat(grey.round().astype(np.uint8)[:, None], 3, axis=1)


def read_digits(root: Path, download: bool) -> Dataset:
    train, test, train_labels, test_labels = _split()
    arrays = _as_images(train, 4, 4), train_labels, _as_images(test, 4, 4), test_labels
    return Dataset.from_arrays("digits", *arrays, 10, augment=True)  # the protocols of the sets that they stand in for


def read_changed(name: str, change: Callable[[np.ndarray], np.ndarray], root: Path, download: bool) -> Dataset:
    """The digits in their order, each image changed: another domain with the same classes.

    Image i shows what the digits' image i shows. The public part of a data set depends on labels and seed alone, so as
    public data beside the digits these are changes of the very images that no client holds.
    """
    digits = read_digits(root, download)
    images = change(digits.images[:, 0].numpy())  # (n, 32, 32), grey
    parts = np.split(np.repeat(images[:, None], 3, axis=1), [digits.num_train])
    labels = np.split(digits.labels.numpy(), [digits.num_train])
    return Dataset.from_arrays(name, parts[0], labels[0], parts[1], labels[1], 10, augment=True)


def _noisy(images: np.ndarray) -> np.ndarray:
    """Gaussian noise with a quarter of the grey scale for standard deviation, the same at each load."""
    noise = np.random.default_rng(0).normal(0, 64, images.shape)
    return (images + noise).round().clip(0, 255).astype(np.uint8)


def read_pairs(root: Path, download: bool) -> Dataset:
    """Two digits side by side, class = 10 * left + right: 20 train and 5 test images per class, from their own parts."""
    train, test, train_labels, test_labels = _split()
    stream = np.random.default_rng(0)

    def pairs(images: np.ndarray, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        by_label = [np.flatnonzero(labels == label) for label in range(10)]
        left = np.concatenate([stream.choice(by_label[c // 10], count) for c in range(100)])
        right = np.concatenate([stream.choice(by_label[c % 10], count) for c in range(100)])
        return _as_images(np.concatenate([images[left], images[right]], axis=2), 4, 2), np.repeat(np.arange(100), count)

    arrays = *pairs(train, train_labels, 20), *pairs(test, test_labels, 5)
    return Dataset.from_arrays("digits100", *arrays, 100, augment=True)


def _rotated(images: np.ndarray) -> np.ndarray:
    return np.rot90(images, axes=(1, 2)).copy()


def _inverted(images: np.ndarray) -> np.ndarray:
    return 255 - images


provide(
    DatasetInfo("digits", 10, 3, 1498, 299, (0.3056,) * 3, (0.3761,) * 3, "66cec62343d0ddcc", augment=True), read_digits
)
provide(
    DatasetInfo("digits100", 100, 3, 2000, 500, (0.306,) * 3, (0.3759,) * 3, "1fd6aded1a711b04", augment=True),
    read_pairs,
)
for _name, _change, _mean, _std, _fingerprint in (
    ("digits-inverted", _inverted, 0.6944, 0.3761, "d0be0a796a650922"),
    ("digits-noisy", _noisy, 0.345, 0.3546, "e63b17f7ed68aa52"),
    ("digits-rotated", _rotated, 0.3056, 0.3761, "2f28d9e4f3256e0b"),
):
    provide(
        DatasetInfo(_name, 10, 3, 1498, 299, (_mean,) * 3, (_std,) * 3, _fingerprint, augment=True),
        partial(read_changed, _name, _change),
    )
