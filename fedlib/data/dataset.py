"""A data set in memory: tensors, no loader, no per-sample Python."""

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import FedlibError, check_name, choose, coerce, require
from ..sample import DTYPES, KINDS, Sample
from .info import DatasetInfo

MOST_CLASSES = 2**20  # each has a row of a header's weights, and each token id one of an embedding's
Arrays = np.ndarray | Tensor


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels of one data set, the official training part first.

    images: the samples, whatever their kind (see `KINDS`): images (n, channels, height, width), channels-last in memory,
    vectors (n, features), series (n, channels, length) or token ids (n, length); uint8 or float32, ids int64;
    labels: int64 (n,); num_train: how many of them are the official training part; mean, std: per channel, of bytes as
    numbers in [0, 1], of floats as they are, of ids none; augment: whether training images may be flipped, erased and
    cropped, as some protocols do; vocabulary: how many token ids there are; groups: whose each sample is (a subject, a
    writer, a domain), int64 (n,) in 0..G-1, None where that is not known.
    """

    name: str
    images: Tensor
    labels: Tensor
    num_train: int
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool = False
    kind: str = "image"
    vocabulary: int = 0
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        name, images, labels = self.name, self.images, self.labels
        check_name("dataset's name", name)
        require(isinstance(images, Tensor), f"{name}: images", type(images).__name__, "a tensor; arrays: from_arrays")
        choose(f"{name}: kind", self.kind, KINDS)
        known, dtype = KINDS[self.kind], str(images.dtype).removeprefix("torch.")
        allowed = " or ".join(f"torch.{one}" for one in known.dtypes)
        require(dtype in known.dtypes, f"{name}: images' dtype", str(images.dtype), allowed)
        shape = tuple(images.shape)
        fits = len(shape) == len(known.axes) + 1 and min(shape[1:]) >= 1
        require(fits, f"{name}: images' shape", shape, f"(n, {', '.join(known.axes)})")
        require(isinstance(labels, Tensor), f"{name}: labels", type(labels).__name__, "a tensor; arrays: from_arrays")
        require(labels.dtype == torch.int64, f"{name}: labels' dtype", str(labels.dtype), "torch.int64")
        require(
            labels.shape == shape[:1], f"{name}: labels' shape", tuple(labels.shape), f"({shape[0]},), one an image"
        )
        whole = type(self.num_train) is int and 0 <= self.num_train <= shape[0]
        require(whole, f"{name}: num_train", self.num_train, f"a whole number between 0 and {shape[0]}, the images")
        whole = type(self.num_classes) is int and 1 <= self.num_classes <= MOST_CLASSES
        require(whole, f"{name}: num_classes", self.num_classes, f"a whole number between 1 and {MOST_CLASSES}")
        _within(
            f"{name}: labels", labels, -1, self.num_classes
        )  # -1: an image without a label, which can be public only
        self._check_numbers()
        for field in ("mean", "std"):
            _statistics(name, field, getattr(self, field), self.sample.statistics)
        require(isinstance(self.augment, bool), f"{name}: augment", self.augment, "True or False")
        require(not self.augment or self.kind == "image", f"{name}: augment", True, f"False of {known.plural}")
        if self.groups is not None:
            fits = isinstance(self.groups, Tensor) and self.groups.dtype == torch.int64
            require(fits, f"{name}: groups", type(self.groups).__name__, "an int64 tensor; others: from_arrays")
            require(
                self.groups.shape == labels.shape, f"{name}: groups' shape", tuple(self.groups.shape), f"({shape[0]},)"
            )
            _within(f"{name}: groups", self.groups, 0, max(1, shape[0]))

    def _check_numbers(self) -> None:
        """Raise FedlibError where a float is not finite or a token id is not of the vocabulary."""
        if self.kind == "tokens":
            most = type(self.vocabulary) is int and 1 <= self.vocabulary <= MOST_CLASSES
            allowed = f"a whole number between 1 and {MOST_CLASSES}, the number of token ids"
            require(most, f"{self.name}: vocabulary", self.vocabulary, allowed)
            _within(f"{self.name}: token ids", self.images, 0, self.vocabulary)
            return
        require(self.vocabulary == 0, f"{self.name}: vocabulary", self.vocabulary, "0 but of token ids")
        if self.images.is_floating_point() and self.images.numel():
            finite = bool(torch.stack(self.images.aminmax()).isfinite().all())
            require(finite, f"{self.name}: images", "NaN or infinity", "finite numbers")

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train_images: Arrays,
        train_labels: Arrays,
        test_images: Arrays,
        test_labels: Arrays,
        num_classes: int | None = None,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        augment: bool = False,
        kind: str | None = None,
        vocabulary: int | None = None,
        groups: tuple[Any, Any] | None = None,
    ) -> "Dataset":
        """A data set of your own: samples and labels 0..C-1, an official training and an official test part (which may be
        empty). Errors name what does not fit.

        Samples are images (n, channels, height, width), vectors (n, features), series (n, channels, length) of bytes or
        of floats, or token ids (n, length) of whole numbers; the kind is read off their axes and numbers, and `kind`
        states it where that would be wrong: 3 axes of bytes, ids that are bytes, or samples that look as if their channels
        were last. Bytes are read as numbers in [0, 1]. Floats are kept as float32, ids as int64.

        mean, std: one number per channel (an image's or series' first axis, each of a vector's features), by default
        those of the training part, 1 in place of a deviation of 0; ids have none. augment: whether training images may
        be flipped, erased and cropped, as the released scripts do with the papers' data; otherwise no protocol does it.
        vocabulary: how many ids there are, by default one more than the largest; id 0 is padding.
        groups: whose each training and each test sample is, two arrays of any values (subjects, writers, domains), which
        are numbered in their sorted order; for `partition="groups"`.
        """
        check_name("dataset's name", name)
        augment = coerce(f"{name}: augment", augment, bool)
        given = {"train": _array(name, "train images", train_images), "test": _array(name, "test images", test_images)}
        kind = _kind(name, given["train"]) if kind is None else kind
        choose(f"{name}: kind", kind, KINDS)
        train, test = (
            _checked(name, part, kind, given[part], labels)
            for part, labels in (("train", train_labels), ("test", test_labels))
        )
        shape, channels = tuple(train[0].shape[1:]), train[0].shape[1]
        allowed = f"{channels}, as of the train images"
        require(test[0].shape[1] == channels, f"{name}: test images' {KINDS[kind].axes[0]}", test[0].shape[1], allowed)
        of_test, allowed = tuple(test[0].shape[1:]), f"{shape}, as of a train image"
        require(of_test == shape, f"{name}: shape of a test image", of_test, allowed)
        alike, allowed = test[0].dtype == train[0].dtype, f"{train[0].dtype}, as of the train images"
        require(alike, f"{name}: test images' dtype", str(test[0].dtype), allowed)
        require(len(train[0]) > 0, f"{name}: number of train images", 0, "at least 1")
        images, labels = (torch.cat(pair) for pair in zip(train, test, strict=True))
        classes = int(labels.max()) + 1 if num_classes is None else coerce(f"{name}: num_classes", num_classes, int)
        allowed = f"below {len(labels)}, the number of images, where num_classes is not given"
        require(num_classes is not None or classes <= len(labels), f"{name}: largest label", classes - 1, allowed)
        require(classes <= MOST_CLASSES, f"{name}: num_classes", classes, f"at most {MOST_CLASSES}")
        seen = labels.unique().tolist()  # in order
        if num_classes is None and seen[0] >= 0:
            absent = sorted(set(range(classes)) - set(seen))
            allowed = f"0..C-1, each of some sample, where num_classes is not given; {absent[:3]} are of none"
            require(not absent, f"{name}: labels", seen, allowed)
        for word in _doubts(train, test, classes):
            print(f"{name}: {word}", file=sys.stderr)
        require(seen[0] >= 0 and seen[-1] < classes, f"{name}: labels", seen, f"within 0..{classes - 1}")
        if kind == "tokens":
            ids = int(images.max()) + 1 if vocabulary is None else coerce(f"{name}: vocabulary", vocabulary, int)
            means: tuple[float, ...] = ()
            deviations: tuple[float, ...] = ()
        else:
            ids = 0 if vocabulary is None else vocabulary
            found = _of_training(train[0]) if mean is None or std is None else ((), ())
            means, deviations = (
                _statistics(name, field, own if value is None else value, channels)
                for field, value, own in zip(("mean", "std"), (mean, std), found, strict=True)
            )
        if kind == "image":
            images = images.contiguous(memory_format=torch.channels_last)
        whose = None if groups is None else _groups(name, groups, (len(train[0]), len(test[0])))
        return cls(name, images, labels, len(train[0]), classes, means, deviations, augment, kind, ids, whose)

    @property
    def sample(self) -> Sample:
        """What a sample looks like."""
        dtype = str(self.images.dtype).removeprefix("torch.")
        return Sample(self.kind, tuple(self.images.shape[1:]), dtype, self.vocabulary)

    @property
    def num_groups(self) -> int:
        """How many groups there are, 0 where samples have none."""
        return int(self.groups.max()) + 1 if self.groups is not None and len(self.groups) else 0

    def levels(self) -> Tensor:
        """A number of each sample (n,), float64, by which the partition `feature-shift` orders them: the mean of what is
        stored (an image's brightness, a signal's level), of token ids the number of words.
        """
        rows = self.images.flatten(1)
        return (rows > 0).double().sum(1) if self.kind == "tokens" else rows.mean(1, dtype=torch.float64)

    def like(self, sample: Sample) -> Tensor:
        """The samples as public data beside clients' that are as `sample` says: of images with another number of channels
        the grey values (the mean), repeated. Raises FedlibError where they are of another kind, shape or dtype.
        """
        own = self.sample
        if own.kind == "image" and own != sample and replace(own, shape=(sample.channels, *own.shape[1:])) == sample:
            grey = self.images.float().mean(1, keepdim=True)
            grey = grey if self.images.is_floating_point() else grey.round().to(torch.uint8)
            return grey.expand(-1, sample.channels, -1, -1).contiguous(memory_format=torch.channels_last)
        alike = own == sample or (own.kind == "tokens" and own.shape == sample.shape)
        require(alike, "public_dataset", f"{self.name}, {own}", f"of samples like the clients', {sample}")
        require(
            own.vocabulary <= sample.vocabulary, "vocabulary of public_dataset", own.vocabulary, f"{sample.vocabulary}"
        )
        return self.images

    @cached_property
    def info(self) -> DatasetInfo:
        """What `info` says of it."""
        sample, sizes = self.sample, (self.num_train, len(self.labels) - self.num_train)
        return DatasetInfo(
            self.name, self.num_classes, sample.channels, *sizes, self.mean, self.std, self.fingerprint, self.augment,
            sample.shape[1:], sample.kind, sample.dtype, sample.vocabulary, self.num_groups,
        )  # fmt: skip

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images, labels, groups and the place where the official test part begins (16 hexadecimal digits), as they
        were when it was first asked for (`data.check`).
        """
        digest = hashlib.sha256(f"{self.num_train} {self.num_classes} {tuple(self.images.shape)}".encode())
        rows = self.images.permute(0, 2, 3, 1) if self.kind == "image" else self.images
        for part in (rows, self.labels, *([] if self.groups is None else [self.groups])):
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()[:16]


def _within(field: str, values: Tensor, least: int, below: int) -> None:
    """Raise FedlibError unless all of `values` are within least..below-1."""
    ends = [int(values.min()), int(values.max())] if values.numel() else [least, least]
    allowed = f"within {max(least, 0)}..{below - 1}"
    require(least <= ends[0] <= ends[1] < below, field, ends, allowed)


def _statistics(name: str, field: str, values: Any, channels: int) -> tuple[float, ...]:
    """Mean or std as one finite number a channel; FedlibError where it is not."""
    allowed = f"{channels} numbers, one per channel" + (", above 0" if field == "std" else "")
    try:
        found = tuple(map(float, values))
    except Exception:  # another's __iter__ and __float__ raise what they like
        found = ()
    fits = len(found) == channels and all(map(math.isfinite, found)) and (field == "mean" or min(found, default=1) > 0)
    require(fits and not isinstance(values, str), f"{name}: {field}", values, allowed)
    return found


def _of_training(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and std per channel of the training part: of bytes in [0, 1], to 4 digits after the point; of floats in their
    own unit, to 6 significant ones, 1 where a channel does not vary.
    """
    axes = [axis for axis in range(images.ndim) if axis != 1]
    if images.is_floating_point():
        numbers = images.double()
        found = [numbers.mean(axes).tolist(), numbers.var(axes, correction=0).sqrt().tolist()]
        means, deviations = ([float(f"{value:.6g}") for value in part] for part in found)
        varies = (images.amax(axes) > images.amin(axes)).tolist()
        return means, [value if own and value > 0 else 1.0 for value, own in zip(deviations, varies, strict=True)]
    pixels = images.double() / 255
    means = [round(value, 4) for value in pixels.mean(axes).tolist()]
    return means, [max(round(value, 4), 1e-4) for value in pixels.std(axes).tolist()]


def _kind(name: str, images: Tensor) -> str:
    """The kind of samples by their axes and numbers; FedlibError where that does not tell."""
    whole = not images.is_floating_point() and images.dtype != torch.uint8
    kinds = {2: "tokens" if whole else "vector", 3: "series" if images.is_floating_point() else "", 4: "image"}
    kind = kinds.get(images.ndim, "")
    allowed = (
        "(n, channels, height, width) of images, (n, features), (n, length) of token ids, or (n, channels, length)"
    )
    shape, field = tuple(images.shape), f"{name}: train images' shape"
    require(bool(kind), field, shape, f"{allowed} of series, with kind='series'")
    few = (1, 3, 4)  # channels of pictures
    last = shape[1] > shape[2] if kind == "series" else kind == "image" and shape[3] in few and shape[1] not in few
    axes, order = ", ".join(KINDS[kind].axes), (0, images.ndim - 1, *range(1, images.ndim - 1))
    mend = f"(n, {axes}): x.transpose{order} of an array, x.permute{order} of a tensor; kind={kind!r} where they are so"
    require(not last, field, shape, mend)
    return kind


def _doubts(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], classes: int) -> list[str]:
    """What is likely to be a mistake, a line each, of samples and labels of the two parts."""
    (images, labels), (tested, _) = train, test
    known = {hash(row.tobytes()) for row in images.numpy()} if len(tested) else set()
    found, same = [], sum(hash(row.tobytes()) in known for row in tested.numpy())
    if same > len(tested) / 100:  # some published sets have a few
        found.append(f"{same} of its {len(tested)} test images are training images: what is trained on is tested on")
    if len(labels.unique()) == 1 and (classes == 1 or len(tested)):  # an owner's own images may be of one class
        found.append(f"all its training images are of class {int(labels[0])}: whoever always says so is right")
    return found


def _array(name: str, what: str, values: Any) -> Tensor:
    """Also of a pandas frame or series, by place and not by index, and of arrays that are read-only or reversed."""
    try:
        return torch.as_tensor(values if isinstance(values, Tensor) else np.require(values, requirements=["C", "W"]))
    except Exception:  # torch and others' arrays raise many kinds
        raise FedlibError(f"{name}: {what}: must be an array of numbers") from None


def _checked(name: str, part: str, kind: str, samples: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
    """Samples and labels of the part as the kind stores them and int64 (n,); FedlibError where they are not."""
    truths, known = _array(name, f"{part} labels", labels), KINDS[kind]
    whole = not (samples.is_floating_point() or samples.is_complex() or samples.dtype == torch.bool)
    if samples.is_floating_point():  # an integer is widened to int64 at most
        samples = samples.to(torch.float32)
        require(bool(samples.isfinite().all()), f"{name}: {part} images", "NaN or infinity", "finite as float32")
    elif kind == "tokens" and whole:
        samples = samples.to(torch.int64)
    allowed = " or ".join(f"torch.{one}" for one in known.dtypes)
    stored = samples.dtype in [DTYPES[one] for one in known.dtypes]
    require(stored, f"{name}: {part} images' dtype", str(samples.dtype), f"{allowed}, of {known.plural}")
    fits = samples.ndim == len(known.axes) + 1 and min(samples.shape[1:]) >= 1
    require(fits, f"{name}: {part} images' shape", tuple(samples.shape), f"(n, {', '.join(known.axes)})")
    require(truths.ndim == 1, f"{name}: {part} labels' shape", tuple(truths.shape), "(n,), a whole number an image")
    allowed = f"{len(samples)}, one an image"
    require(len(samples) == len(truths), f"{name}: number of {part} labels", len(truths), allowed)
    whole = not truths.is_complex() and bool((truths == truths.long()).all())  # NaN is not equal to anything
    require(whole, f"{name}: {part} labels", str(truths.dtype), "whole numbers")
    return samples, truths.long()


def _groups(name: str, given: Any, sizes: tuple[int, int]) -> Tensor:
    """Whose each sample is, numbered in the sorted order of their names; FedlibError where there is not one a sample."""
    pair = isinstance(given, tuple | list) and len(given) == 2
    require(pair, f"{name}: groups", type(given).__name__, "a pair of arrays, of the train and of the test samples")
    parts = [np.asarray(part) for part in given]
    for part, found, size in zip(("train", "test"), parts, sizes, strict=True):
        require(found.shape == (size,), f"{name}: {part} groups' shape", found.shape, f"({size},), one a sample")
    every = np.concatenate([part for part in parts if len(part)])
    try:
        return torch.from_numpy(np.unique(every, return_inverse=True)[1].astype(np.int64))
    except TypeError:
        raise FedlibError(f"{name}: groups: must be numbers or texts, not both") from None
