"""A data set in memory: uint8 tensors, no loader, no per-sample Python."""

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import FedlibError, check_name, coerce, require
from .info import DatasetInfo

MOST_CLASSES = 2**20  # each has a row of a header's weights


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of one data set, the official training part first.

    images: uint8 (n, channels, 32, 32), channels-last in memory; labels: int64 (n,);
    num_train: how many of them are the official training part; mean, std: per channel, of images in [0, 1];
    augment: whether training images may be flipped, erased and cropped, as some protocols do.
    """

    name: str
    images: Tensor
    labels: Tensor
    num_train: int
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool = False

    def __post_init__(self) -> None:
        name, images, labels = self.name, self.images, self.labels
        check_name("dataset's name", name)
        require(isinstance(images, Tensor), f"{name}: images", type(images).__name__, "a tensor; arrays: from_arrays")
        require(images.dtype == torch.uint8, f"{name}: images' dtype", str(images.dtype), "torch.uint8")
        shape = tuple(images.shape)
        fits = len(shape) == 4 and shape[1] >= 1 and shape[2:] == (32, 32)
        require(fits, f"{name}: images' shape", shape, "(n, channels, 32, 32)")
        require(isinstance(labels, Tensor), f"{name}: labels", type(labels).__name__, "a tensor; arrays: from_arrays")
        require(labels.dtype == torch.int64, f"{name}: labels' dtype", str(labels.dtype), "torch.int64")
        require(
            labels.shape == shape[:1], f"{name}: labels' shape", tuple(labels.shape), f"({shape[0]},), one an image"
        )
        whole = type(self.num_train) is int and 0 <= self.num_train <= shape[0]
        require(whole, f"{name}: num_train", self.num_train, f"a whole number between 0 and {shape[0]}, the images")
        whole = type(self.num_classes) is int and 1 <= self.num_classes <= MOST_CLASSES
        require(whole, f"{name}: num_classes", self.num_classes, f"a whole number between 1 and {MOST_CLASSES}")
        if len(labels):  # -1: an image without a label, which can be public only
            ends = [int(labels.min()), int(labels.max())]
            require(
                -1 <= ends[0] <= ends[1] < self.num_classes,
                f"{name}: labels",
                ends,
                f"within 0..{self.num_classes - 1}",
            )
        for field in ("mean", "std"):
            _statistics(name, field, getattr(self, field), shape[1])
        require(isinstance(self.augment, bool), f"{name}: augment", self.augment, "True or False")

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
        augment: bool = False,
    ) -> "Dataset":
        """A data set of your own: uint8 images (n, channels, 32, 32) and labels 0..C-1. Errors name what does not
        fit.

        mean, std: one number per channel, of images in [0, 1]; by default those of the training images. augment:
        whether training images may be flipped, erased and cropped, as the released scripts do with the papers' data;
        otherwise no protocol does it.
        """
        check_name("dataset's name", name)
        augment = coerce(f"{name}: augment", augment, bool)
        train, test = (
            _checked(name, "train", train_images, train_labels),
            _checked(name, "test", test_images, test_labels),
        )
        allowed = f"{train[0].shape[1]}, as of the train images"
        require(test[0].shape[1] == train[0].shape[1], f"{name}: test images' channels", test[0].shape[1], allowed)
        require(len(train[0]) > 0, f"{name}: number of train images", 0, "at least 1")
        images, labels = (torch.cat(pair) for pair in zip(train, test, strict=True))
        classes = int(labels.max()) + 1 if num_classes is None else coerce(f"{name}: num_classes", num_classes, int)
        allowed = f"below {len(labels)}, the number of images, where num_classes is not given"
        require(num_classes is not None or classes <= len(labels), f"{name}: largest label", classes - 1, allowed)
        require(classes <= MOST_CLASSES, f"{name}: num_classes", classes, f"at most {MOST_CLASSES}")
        if torch.equal(train[0], test[0]):
            print(f"{name}: its test images are its training images: what is trained on is tested on", file=sys.stderr)
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
        images = images.contiguous(memory_format=torch.channels_last)
        means, deviations = (_statistics(name, *pair, images.shape[1]) for pair in (("mean", mean), ("std", std)))
        return cls(name, images, labels, len(train_images), classes, means, deviations, augment)

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
        return DatasetInfo(self.name, *sizes, self.mean, self.std, self.fingerprint, self.augment)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images, labels and the place where the official test part begins (16 hexadecimal digits)."""
        digest = hashlib.sha256(f"{self.num_train} {self.num_classes} {tuple(self.images.shape)}".encode())
        digest.update(self.images.permute(0, 2, 3, 1).contiguous().numpy().data)
        digest.update(self.labels.numpy().data)
        return digest.hexdigest()[:16]


def _statistics(name: str, field: str, values: Any, channels: int) -> tuple[float, ...]:
    """Mean or std as one finite number a channel; FedlibError where it is not."""
    allowed = f"{channels} numbers, one per channel" + (", above 0" if field == "std" else "")
    try:
        found = tuple(map(float, values))
    except Exception:  # another's __iter__ and __float__ raise what they like
        found = ()
    fits = len(found) == channels and all(map(math.isfinite, found)) and (field == "mean" or min(found) > 0)
    require(fits and not isinstance(values, str), f"{name}: {field}", values, allowed)
    return found


def _checked(name: str, part: str, images: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Images and labels of the part as uint8 (n, channels, 32, 32) and int64 (n,); FedlibError where they are not."""
    made = []
    for what, values in (("images", images), ("labels", labels)):
        try:
            made.append(torch.as_tensor(values))
        except Exception:  # torch raises many kinds
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
