"""What one sample of a data set looks like, without any data: its kind, shape and numbers. Networks are built for it."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .errors import choose, require


class Kind(NamedTuple):
    """What belongs to a kind of data: the axes of a sample, the numbers it may be stored as, and its words in messages.

    Of all kinds but tokens a sample is normalised per channel, its first axis: a pixel's colours, a sensor, a feature.
    """

    axes: tuple[str, ...]
    dtypes: tuple[str, ...]
    plural: str


KINDS = {
    "image": Kind(("channels", "height", "width"), ("uint8", "float32"), "images"),
    "vector": Kind(("features",), ("uint8", "float32"), "vectors"),
    "series": Kind(("channels", "length"), ("uint8", "float32"), "series"),
    "tokens": Kind(("length",), ("int64",), "token ids"),  # whole numbers, which nothing normalises or casts
}
DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}


@dataclass(frozen=True)
class Sample:
    """One sample: kind, see KINDS; shape, without the axis of the samples; dtype as stored; vocabulary: of tokens, how
    many ids there are, 0..vocabulary-1 (0: padding). uint8 is read as numbers in [0, 1], float32 as it is.
    """

    kind: str = "image"
    shape: tuple[int, ...] = (3, 32, 32)
    dtype: str = "uint8"
    vocabulary: int = 0

    def __post_init__(self) -> None:
        choose("kind", self.kind, KINDS)
        known = KINDS[self.kind]
        fits = len(self.shape) == len(known.axes) and min(self.shape) >= 1
        require(fits, f"shape of {known.plural}", self.shape, f"({', '.join(known.axes)})")
        choose(f"dtype of {known.plural}", self.dtype, known.dtypes)
        require(self.vocabulary >= (self.kind == "tokens"), "vocabulary", self.vocabulary, "the number of token ids")

    @classmethod
    def of(cls, given: "Sample | int") -> "Sample":
        """The sample itself; a number stands for 32x32 images of so many channels."""
        return given if isinstance(given, Sample) else cls(shape=(given, 32, 32))

    def __str__(self) -> str:
        ids = f", {self.vocabulary} different" if self.vocabulary else ""
        return f"{KINDS[self.kind].plural} ({', '.join(map(str, self.shape))}{',' * (len(self.shape) == 1)}){ids}"

    @property
    def channels(self) -> int:
        """The length of the first axis: channels, or a vector's features, or a text's tokens."""
        return self.shape[0]

    @property
    def size(self) -> int:
        """How many numbers a sample is."""
        return math.prod(self.shape)

    @property
    def statistics(self) -> int:
        """How many means and deviations normalise it: one per channel; none of tokens."""
        return 0 if self.kind == "tokens" else self.channels

    @property
    def scale(self) -> int:
        """What stored numbers are divided by: 255 where they are bytes."""
        return 255 if self.dtype == "uint8" else 1

    def shaped(self, values: tuple[float, ...], device: torch.device | None = None) -> Tensor:
        """Means or deviations on the scale of the stored numbers, so that they broadcast over a sample."""
        tensor = torch.tensor(values, dtype=torch.float32, device=device)
        return tensor.view(-1, *[1] * (len(self.shape) - 1)) * self.scale

    def zeros(self, count: int) -> Tensor:
        """`count` samples of nothing: (count, ...)."""
        samples = torch.zeros(count, *self.shape, dtype=DTYPES[self.dtype])
        return samples.contiguous(memory_format=torch.channels_last) if samples.ndim == 4 else samples

    def random(self, count: int, stream: np.random.Generator) -> np.ndarray:
        """`count` samples of random numbers: bytes, normal ones or ids."""
        shape = (count, *self.shape)
        if self.dtype == "float32":
            return stream.standard_normal(shape, dtype=np.float32)
        return stream.integers(0, self.vocabulary or 256, shape, dtype=self.dtype)
