"""Data sets as uint8 tensors in memory: no loader, no per-sample Python, no download behind the user's back.

`digits` and `digits100` are embedded (scikit-learn's 1 797 real digits), and so are `digits-inverted`, `digits-noisy`
and `digits-rotated`, which stand for public data of another set; `cifar10`, `cifar100`, `mnist` and `svhn`
are read by torchvision from `FEDLIB_DATA` (default `~/.cache/fedlib/data`) and downloaded on first use where there is
a network. What a plan, a label or a key needs of them is in `info`, which reads no image.
"""

import hashlib
import importlib.util
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from .errors import FedlibError, check_name, choose, coerce, folder_from, require

# Stand-ins: never set beside a paper's number as if comparable.
EMBEDDED = ("digits", "digits100", "digits-inverted", "digits-noisy", "digits-rotated")


@dataclass(frozen=True)
class DatasetInfo:
    """What can be known of a data set without reading its images.

    num_train, num_test: images of the official parts; mean, std: per channel, of images in [0, 1]; fingerprint: of the
    content, see `Dataset.fingerprint` (SVHN's is that of the published MD5s of its files).
    """

    name: str
    num_classes: int
    channels: int
    num_train: int
    num_test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str

    @property
    def num_images(self) -> int:
        return self.num_train + self.num_test

    @property
    def embedded(self) -> bool:
        """Whether it is one of the stand-ins that come with the installation."""
        return self.name in EMBEDDED


# The real sets' mean and std are those that papers and their code use. Every line is checked when its set is loaded.
BUILT_IN: dict[str, DatasetInfo] = {
    item.name: item
    for item in (
        DatasetInfo("digits", 10, 3, 1498, 299, (0.3056,) * 3, (0.3761,) * 3, "66cec62343d0ddcc"),
        DatasetInfo("digits100", 100, 3, 2000, 500, (0.306,) * 3, (0.3759,) * 3, "1fd6aded1a711b04"),
        DatasetInfo("digits-inverted", 10, 3, 1498, 299, (0.6944,) * 3, (0.3761,) * 3, "d0be0a796a650922"),
        DatasetInfo("digits-noisy", 10, 3, 1498, 299, (0.345,) * 3, (0.3546,) * 3, "e63b17f7ed68aa52"),
        DatasetInfo("digits-rotated", 10, 3, 1498, 299, (0.3056,) * 3, (0.3761,) * 3, "2f28d9e4f3256e0b"),
        DatasetInfo(
            *("cifar10", 10, 3, 50000, 10000),
            *((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), "c67ac8cb06457c00"),
        ),
        DatasetInfo(
            *("cifar100", 100, 3, 50000, 10000),
            *((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), "49b506bb5efefcb4"),
        ),
        DatasetInfo("mnist", 10, 1, 60000, 10000, (0.1307,), (0.3081,), "9d660eab0816ba12"),
        DatasetInfo(
            *("svhn", 10, 3, 73257, 26032),
            *((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), "66c506022df4460a"),
        ),
    )
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of one data set, the official training part first.

    images: uint8 (n, channels, 32, 32), channels-last in memory; labels: int64 (n,);
    num_train: how many of them are the official training part; mean, std: per channel, of images in [0, 1].
    """

    name: str
    images: Tensor
    labels: Tensor
    num_train: int
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train_images: np.ndarray | Tensor,
        train_labels: np.ndarray | Tensor,
        test_images: np.ndarray | Tensor,
        test_labels: np.ndarray | Tensor,
        num_classes: int | None = None,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> "Dataset":
        """A data set of your own: uint8 images (n, channels, 32, 32) and labels 0..C-1. Errors name what does not
        fit.

        mean, std: one number per channel, of images in [0, 1]; by default those of the training images.
        """
        train, test = (
            _checked(name, "train", train_images, train_labels),
            _checked(name, "test", test_images, test_labels),
        )
        allowed = f"{train[0].shape[1]}, as of the train images"
        require(test[0].shape[1] == train[0].shape[1], f"{name}: test images' channels", test[0].shape[1], allowed)
        require(len(train[0]) > 0, f"{name}: number of train images", 0, "at least 1")
        images, labels = (torch.cat(pair) for pair in zip(train, test, strict=True))
        classes = int(labels.max()) + 1 if num_classes is None else coerce(f"{name}: num_classes", num_classes, int)
        require(
            int(labels.min()) >= 0 and int(labels.max()) < classes,
            f"{name}: labels",
            labels.unique().tolist(),
            f"within 0..{classes - 1}",
        )
        if mean is None or std is None:
            pixels = images[: len(train_images)].double() / 255
            mean = [round(value, 4) for value in pixels.mean(dim=(0, 2, 3)).tolist()] if mean is None else mean
            std = [max(round(value, 4), 1e-4) for value in pixels.std(dim=(0, 2, 3)).tolist()] if std is None else std
        for field, values in (("mean", mean), ("std", std)):
            allowed = f"{images.shape[1]} numbers, one per channel" + (", above 0" if field == "std" else "")
            fits = len(values) == images.shape[1] and (field == "mean" or min(values) > 0)
            require(fits, f"{name}: {field}", tuple(values), allowed)
        images = images.contiguous(memory_format=torch.channels_last)
        return cls(name, images, labels, len(train_images), classes, tuple(map(float, mean)), tuple(map(float, std)))

    def with_channels(self, channels: int) -> Tensor:
        """The images with another number of channels: as they are, or their grey values (the mean) repeated."""
        if self.images.shape[1] == channels:
            return self.images
        grey = self.images.float().mean(1, keepdim=True).round().to(torch.uint8)
        return grey.expand(-1, channels, -1, -1).contiguous(memory_format=torch.channels_last)

    @cached_property
    def info(self) -> DatasetInfo:
        """What `info` says of it."""
        sizes = (self.num_classes, self.images.shape[1], self.num_train, len(self.labels) - self.num_train)
        return DatasetInfo(self.name, *sizes, self.mean, self.std, self.fingerprint)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images, labels and the place where the official test part begins (16 hexadecimal digits)."""
        digest = hashlib.sha256(f"{self.num_train} {self.num_classes} {tuple(self.images.shape)}".encode())
        digest.update(self.images.permute(0, 2, 3, 1).contiguous().numpy().data)
        digest.update(self.labels.numpy().data)
        return digest.hexdigest()[:16]


def _checked(name: str, part: str, images: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Images and labels of the part as uint8 (n, channels, 32, 32) and int64 (n,); FedlibError where they are not."""
    made = []
    for what, values in (("images", images), ("labels", labels)):
        try:
            made.append(torch.as_tensor(values))
        except (TypeError, ValueError, RuntimeError):
            raise FedlibError(f"{name}: {part} {what}: must be an array of numbers") from None
    pictures, truths = made
    require(pictures.dtype == torch.uint8, f"{name}: {part} images' dtype", str(pictures.dtype), "torch.uint8")
    fits = pictures.ndim == 4 and pictures.shape[1] >= 1 and pictures.shape[2:] == (32, 32)
    require(fits, f"{name}: {part} images' shape", tuple(pictures.shape), "(n, channels, 32, 32)")
    require(truths.ndim == 1, f"{name}: {part} labels' shape", tuple(truths.shape), "(n,), a whole number an image")
    allowed = f"{len(pictures)}, one an image"
    require(len(pictures) == len(truths), f"{name}: number of {part} labels", len(truths), allowed)
    whole = not truths.is_complex() and bool((truths == truths.long()).all())  # NaN is not equal to anything
    require(whole, f"{name}: {part} labels", str(truths.dtype), "whole numbers")
    return pictures, truths.long()


def root() -> Path:
    """Where the real data sets live (torchvision's layout): FEDLIB_DATA, else ~/.cache/fedlib/data."""
    return folder_from("FEDLIB_DATA", "~/.cache/fedlib/data")


def _digits_split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
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


def _digits() -> Dataset:
    train, test, train_labels, test_labels = _digits_split()
    return Dataset.from_arrays("digits", _as_images(train, 4, 4), train_labels, _as_images(test, 4, 4), test_labels, 10)


def _changed_digits(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Dataset:
    """The digits in their order, each image changed: another domain with the same classes.

    Image i shows what the digits' image i shows. The public part of a data set depends on labels and seed alone, so as
    public data beside the digits these are changes of the very images that no client holds.
    """
    digits = _digits()
    images = change(digits.images[:, 0].numpy())  # (n, 32, 32), grey
    parts = np.split(np.repeat(images[:, None], 3, axis=1), [digits.num_train])
    labels = np.split(digits.labels.numpy(), [digits.num_train])
    return Dataset.from_arrays(name, parts[0], labels[0], parts[1], labels[1], 10)


def _noisy(images: np.ndarray) -> np.ndarray:
    """Gaussian noise with a quarter of the grey scale for standard deviation, the same at each load."""
    noise = np.random.default_rng(0).normal(0, 64, images.shape)
    return (images + noise).round().clip(0, 255).astype(np.uint8)


def _digits100() -> Dataset:
    """Two digits side by side, class = 10 * left + right: 20 train and 5 test images a class, from their own parts."""
    train, test, train_labels, test_labels = _digits_split()
    stream = np.random.default_rng(0)

    def pairs(images: np.ndarray, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        by_label = [np.flatnonzero(labels == label) for label in range(10)]
        left = np.concatenate([stream.choice(by_label[c // 10], count) for c in range(100)])
        right = np.concatenate([stream.choice(by_label[c % 10], count) for c in range(100)])
        return _as_images(np.concatenate([images[left], images[right]], axis=2), 4, 2), np.repeat(np.arange(100), count)

    return Dataset.from_arrays("digits100", *pairs(train, train_labels, 20), *pairs(test, test_labels, 5), 100)


def _cifar(name: str, download: bool) -> Dataset:
    from torchvision.datasets import CIFAR10, CIFAR100

    reader = CIFAR10 if name == "cifar10" else CIFAR100
    parts = [reader(root(), train=train, download=download) for train in (True, False)]
    images = [torch.from_numpy(part.data).permute(0, 3, 1, 2) for part in parts]
    known, labels = BUILT_IN[name], [np.array(part.targets) for part in parts]
    return Dataset.from_arrays(
        name, images[0], labels[0], images[1], labels[1], known.num_classes, mean=known.mean, std=known.std
    )


def _mnist(name: str, download: bool) -> Dataset:
    from torchvision.datasets import MNIST

    parts = [MNIST(root(), train=train, download=download) for train in (True, False)]
    images = [torch.nn.functional.pad(part.data[:, None], (2, 2, 2, 2)) for part in parts]  # 28x28 -> 32x32
    known, labels = BUILT_IN[name], [part.targets for part in parts]
    return Dataset.from_arrays(
        name, images[0], labels[0], images[1], labels[1], known.num_classes, mean=known.mean, std=known.std
    )


def _svhn(name: str, download: bool) -> Dataset:
    from torchvision.datasets import SVHN

    parts = [SVHN(root() / "svhn", split=split, download=download) for split in ("train", "test")]
    known, images, labels = BUILT_IN[name], [part.data for part in parts], [part.labels for part in parts]
    return Dataset.from_arrays(
        name, images[0], labels[0], images[1], labels[1], known.num_classes, mean=known.mean, std=known.std
    )


_READERS: dict[str, Callable[[str, bool], Dataset]] = {
    "cifar10": _cifar,
    "cifar100": _cifar,
    "mnist": _mnist,
    "svhn": _svhn,
}
_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python", "mnist": "MNIST", "svhn": "svhn"}
_LOADERS: dict[str, Callable[[], Dataset]] = {
    "digits": _digits,
    "digits100": _digits100,
    "digits-inverted": partial(_changed_digits, "digits-inverted", lambda images: 255 - images),
    "digits-noisy": partial(_changed_digits, "digits-noisy", _noisy),
    "digits-rotated": partial(_changed_digits, "digits-rotated", lambda images: np.rot90(images, axes=(1, 2)).copy()),
}
_SHIPPED = {**_LOADERS, **_READERS}


def names() -> list[str]:
    """Every data set that `load` knows, the embedded ones first."""
    return list(dict.fromkeys([*_LOADERS, *_READERS]))


def register(name: str, loader: Callable[[], Dataset]) -> None:
    """Make a data set of your own known to `load` (and so to `RunSpec`) under `name`; registering again replaces it.

    loader: called without arguments, returns the same `Dataset` each time. Raises FedlibError for a name that no file
    can have.
    """
    check_name("dataset", name)
    require(callable(loader), f"loader of {name}", loader, "a function without arguments that returns a Dataset")
    _LOADERS[name] = loader
    load.cache_clear()


def registered() -> set[str]:
    """Names of the data sets registered in this process, also under the name of a built-in one."""
    return {name for name in names() if _LOADERS.get(name, _READERS.get(name)) is not _SHIPPED.get(name)}


def info(name: str) -> DatasetInfo:
    """Classes, channels, sizes and fingerprint of the data set called `name`: known beforehand of a built-in one, so
    that nothing is read or downloaded; one registered in this process is loaded. Raises FedlibError for unknown names.
    """
    choose("dataset", name, names())
    return replace(load(name).info, name=name) if name in registered() else BUILT_IN[name]


def available(name: str) -> bool:
    """Whether `name` can be loaded without a download."""
    return name in _LOADERS or any(path.is_file() for path in (root() / _FOLDERS[name]).rglob("*"))


@lru_cache(maxsize=4)  # public data crossed among three sets are read once, and stay within 600 MB
def load(name: str) -> Dataset:
    """The data set called `name`, downloaded by torchvision if it is not there.

    Raises FedlibError when the name is unknown, a file is corrupted or not the published one, or the download fails:
    the line says what to do.
    """
    choose("dataset", name, names())
    if name in registered():
        loaded = _LOADERS[name]()
        require(isinstance(loaded, Dataset), f"loader of {name}", type(loaded).__name__, "a function returning Dataset")
        return loaded
    if name in _LOADERS:
        return _genuine(_LOADERS[name]())
    folder, present = root() / _FOLDERS[name], available(name)
    try:
        return _genuine(_READERS[name](name, False) if present else _download(name))
    except Exception as error:  # torchvision raises RuntimeError, OSError, pickle and zip errors alike
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        if present:
            raise FedlibError(
                f"dataset = {name!r}: the files in {folder} are incomplete or corrupted ({reason}); "
                f"delete that folder and run `python -m fedlib data {name}`"
            ) from error
        raise FedlibError(
            f"dataset = {name!r}: not found in {root()} and not downloaded ({reason}); run "
            f"`python -m fedlib data {name}` where there is a network, or copy torchvision's {folder.name} folder "
            f"there (FEDLIB_DATA names another place)"
        ) from error


def _genuine(dataset: Dataset) -> Dataset:
    """`dataset`, if it is what `BUILT_IN` says; SVHN's files have been compared with their MD5s by torchvision."""
    expected, found = BUILT_IN[dataset.name], dataset.info
    if dataset.name == "svhn":
        found = replace(found, fingerprint=expected.fingerprint)
    for field in fields(DatasetInfo):
        value, known = getattr(found, field.name), getattr(expected, field.name)
        if value != known:
            raise FedlibError(f"{dataset.name}: {field.name} is {value}, that of the published data is {known}")
    return dataset


def _download(name: str) -> Dataset:
    root().mkdir(parents=True, exist_ok=True)
    timeout = socket.getdefaulttimeout()
    with FileLock(root() / f".{name}.lock"):  # two processes that miss the same data set download it once
        try:
            socket.setdefaulttimeout(30)  # a host that never answers must not hang a run
            return _READERS[name](name, True)
        finally:
            socket.setdefaulttimeout(timeout)
