"""The papers' networks. Every classifier is a feature `extractor` followed by a `header`, the last linear layer."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from .errors import choose
from .randomness import forked

FEATURES = 500  # d, the width of the representation that the papers' extractors share


class Model(nn.Module):
    """A classifier: images (n, channels, 32, 32) -> extractor -> representations (n, d) -> header -> logits (n, C)."""

    def __init__(self, extractor: nn.Module, header: nn.Linear):
        super().__init__()
        self.extractor = extractor
        self.header = header

    def forward(self, images: Tensor) -> Tensor:
        return self.header(self.extractor(images))


# Convolution 2's filters and FC1's width (FedSSA's Table 3, FedGH's Table 2, pFedES's Table 1). CNN-4 has 4.04 MiB, not
# the 3.81 that the tables print.
CNN_WIDTHS = {"CNN-1": (32, 2000), "CNN-2": (16, 2000), "CNN-3": (32, 1000), "CNN-4": (32, 800), "CNN-5": (32, 500)}


def cnn(architecture: str, num_classes: int, channels: int) -> Model:
    """CNN-1..5: two valid 5x5 convolutions with 2x2 max-pooling, FC1, FC2 (500, the representation), FC3 (the
    header).
    """
    filters, width = CNN_WIDTHS[architecture]
    extractor = nn.Sequential(
        nn.Conv2d(channels, 16, 5), nn.ReLU(), nn.MaxPool2d(2),  # (n, 16, 14, 14)
        nn.Conv2d(16, filters, 5), nn.ReLU(), nn.MaxPool2d(2),  # (n, filters, 5, 5)
        nn.Flatten(),
        nn.Linear(25 * filters, width), nn.ReLU(),
        nn.Linear(width, FEATURES), nn.ReLU(),
    )  # fmt: skip
    return Model(extractor, nn.Linear(FEATURES, num_classes))


def proxy_extractor(channels: int, output: str = "relu") -> nn.Sequential:
    """pFedES's shared extractor: images in, enhanced images of the same shape out, 443 floats at 3 channels.

    Two 3x3 convolutions with padding `same` (its section 4.3), channels -> 8 -> channels; kernel size and the 8 are in
    the released code only. output: `relu` after the second one too, as released, or `linear`.
    """
    last = [nn.ReLU()] if output == "relu" else []
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding="same"), nn.ReLU(), nn.Conv2d(8, channels, 3, padding="same"), *last
    )


Builder = Callable[[int, int], nn.Module]  # (number of classes, channels) -> network
BUILDERS: dict[str, Builder] = {name: partial(cnn, name) for name in CNN_WIDTHS}

# Scenario -> the architectures of clients 0, 1, 2, ... in turn (FedSSA, section 6.2: client id modulo 5).
SCENARIOS: dict[str, tuple[str, ...]] = {"homogeneous": ("CNN-1",), "heterogeneous": tuple(CNN_WIDTHS)}


def register(name: str, builder: Builder) -> None:
    """Make an architecture of your own known as `name`: `builder(num_classes, channels)` returns a `Model`."""
    BUILDERS[name] = builder


def registered() -> set[str]:
    """Names of the architectures registered in this process."""
    return set(BUILDERS) - set(CNN_WIDTHS)


def build(architecture: str, num_classes: int, channels: int, stream: np.random.Generator) -> nn.Module:
    """A freshly initialised network (PyTorch's defaults, drawn from `stream`), channels-last in memory and in
    evaluation mode, which only `training.learning` leaves.
    """
    choose("architecture", architecture, BUILDERS)
    with forked(stream):
        model = BUILDERS[architecture](num_classes, channels)
        return model.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]


def num_floats(model: nn.Module) -> int:
    """Trainable numbers of a network, each 4 bytes."""
    return sum(parameter.numel() for parameter in model.parameters())
