"""What a round costs: 32-bit words on the wire, measured from the messages, and floating-point operations."""

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor

from . import models
from .errors import choose
from .randomness import generator

BYTES_PER_WORD = 4  # float32 and 32-bit class ids alike, as the papers count

# Message fields that the published counting leaves out, by method; FedGH's Table 3 then comes out to the last digit.
UNPUBLISHED_FIELDS: dict[str, tuple[str, ...]] = {
    "FedGH": ("header.bias",),  # the header goes down as d * C floats
    "FedProto": ("classes",),
    "FD": ("classes",),
    "FedSSA": ("classes",),
    "FedMD": ("indices",),
    "FCCL": ("indices",),
}


def words(tensors: Mapping[str, Tensor], published_for: str | None = None) -> int:
    """Number of 32-bit words in a message's tensors; `published_for` a method leaves out what its paper does not
    count.
    """
    skipped = UNPUBLISHED_FIELDS.get(published_for or "", ())
    return sum(tensor.numel() for name, tensor in tensors.items() if name not in skipped)


def kilobytes(number_of_words: float) -> float:
    """Words to KB of 1024 bytes, the unit of FedGH's Table 3."""
    return number_of_words * BYTES_PER_WORD / 1024


@cache
def training_flops(architecture: str, num_classes: int, channels: int, batch_size: int = 64) -> int:
    """FLOPs of one plain training step (forward and backward, 2 per multiply-add) a sample, counted by PyTorch on a
    real step.
    """
    from torch.utils.flop_counter import FlopCounterMode

    choose("architecture", architecture, models.BUILDERS)
    model = models.build(architecture, num_classes, channels, generator(0, "init"))
    images = torch.zeros(batch_size, channels, 32, 32).contiguous(memory_format=torch.channels_last)
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.cross_entropy(model(images), torch.zeros(batch_size, dtype=torch.long)).backward()
    return counter.get_total_flops() // batch_size
