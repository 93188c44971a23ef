"""Extractors of the networks that the field compares, each for one kind of samples. They start untrained.

Those for images are torchvision's; their last layer, one linear layer and a ReLU, makes a representation of 500
numbers, as CNN-1..5 have it. Those for what is no image are small, with 200 numbers. So networks for one kind of
samples can be mixed, whatever a method shares.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .errors import FedlibError, require
from .sample import Sample

FEATURES, WIDTH = 500, 200  # of images, and of what is no image


def mlp(sample: Sample) -> nn.Module:
    """Vectors (n, features): two hidden layers of 200 units with ReLU, the 2NN of McMahan et al. (AISTATS 2017)."""
    return nn.Sequential(nn.Linear(sample.size, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())


class MeanOverTime(nn.Module):
    """(n, channels, length) -> (n, channels): for series of any length."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(2)


def cnn_1d(sample: Sample) -> nn.Module:
    """Series (n, channels, length): two convolutions over time of 5 steps with 32 and 64 filters, their mean over time, and
    a linear layer to the representation.
    """
    return nn.Sequential(
        nn.Conv1d(sample.channels, 32, 5, padding="same"), nn.ReLU(),
        nn.Conv1d(32, 64, 5, padding="same"), nn.ReLU(),
        MeanOverTime(),
        nn.Linear(64, WIDTH), nn.ReLU(),
    )  # fmt: skip


class MeanOfWords(nn.Module):
    """Token ids (n, length), int64 -> the mean of their learned vectors (n, width); id 0 is padding and counts for nothing."""

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, width, padding_idx=0)

    def forward(self, ids: Tensor) -> Tensor:
        words = (ids > 0).sum(1, keepdim=True).clamp(min=1)
        return self.vectors(ids).sum(1) / words


def fast_text(sample: Sample) -> nn.Module:
    """Token ids (n, length): the mean of the words' vectors, as in fastText (Joulin et al., EACL 2017), with a ReLU layer
    between it and the header.
    """
    return nn.Sequential(MeanOfWords(sample.vocabulary, 64), nn.Linear(64, WIDTH), nn.ReLU())


class Attention(nn.Module):
    """Token ids (n, length), int64 -> (n, width): learned vectors of words and places, two layers of self-attention and
    the mean over the words; id 0 is padding, which nothing attends to.
    """

    def __init__(self, vocabulary: int, length: int, width: int):
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Parameter(torch.randn(length, width) / 50)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        padding = (ids == 0) & (ids > 0).any(1, keepdim=True)  # a text of nothing but padding is read as it is
        words = self.layers(self.vectors(ids) + self.places, src_key_padding_mask=padding)
        kept = (~padding)[:, :, None].to(words.dtype)
        return (words * kept).sum(1) / kept.sum(1)


def transformer(sample: Sample) -> nn.Module:
    """Token ids (n, length): a small encoder of Vaswani et al. (NeurIPS 2017), two layers of 64 numbers and 4 heads, with a
    ReLU layer between it and the header.
    """
    return nn.Sequential(Attention(sample.vocabulary, sample.shape[0], 64), nn.Linear(64, WIDTH), nn.ReLU())


def of_torchvision(constructor: str, sample: Sample, **named: Any) -> nn.Module:
    """A network of torchvision's for images of any number of channels, whose classifier makes the representation."""
    from torchvision import models

    network = models.get_model(constructor, weights=None, num_classes=FEATURES, **named)
    return nn.Sequential(_of_channels(network, sample.channels), nn.ReLU())


def _of_channels(network: nn.Module, channels: int) -> nn.Module:
    """A network for three channels with its first convolution made anew for others."""
    name, first = next((name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d))
    if channels != first.in_channels:
        size = first.kernel_size, first.stride, first.padding
        parent, _, child = name.rpartition(".")
        made = nn.Conv2d(channels, first.out_channels, *size, bias=first.bias is not None)  # type: ignore[arg-type]
        setattr(network.get_submodule(parent), child, made)
    return network


def small_resnet(stages: int, sample: Sample) -> nn.Module:
    """ResNet-4, -6, -8 and -10: the stem and the first 1 to 4 stages of torchvision's ResNet, one block of two
    convolutions in each.
    """
    from torchvision.models.resnet import BasicBlock, ResNet

    network = ResNet(BasicBlock, [1, 1, 1, 1])
    for stage in range(stages + 1, 5):
        setattr(network, f"layer{stage}", nn.Identity())
    network.fc = nn.Linear(64 * 2 ** (stages - 1), FEATURES)
    return nn.Sequential(_of_channels(network, sample.channels), nn.ReLU())


def patch(architecture: str, sample: Sample) -> int:
    """Pixels of the side of a ViT's patches: 16 or 32 where its name says so; else 4, 8 or 16, as the images are large."""
    side, last = sample.shape[-1], architecture.rpartition("-")[2]
    return int(last) if last.isdigit() else 4 if side < 64 else 8 if side < 128 else 16


def vit(architecture: str, width: int, heads: int, sample: Sample) -> nn.Module:
    """ViT (Dosovitskiy et al., ICLR 2021): 12 layers of `width` numbers, for square images."""
    from torchvision.models import VisionTransformer

    network = VisionTransformer(sample.shape[-1], patch(architecture, sample), 12, heads, width, 4 * width)
    network.heads = nn.Linear(width, FEATURES)  # torchvision's is all zeros, and a ReLU behind it would stay so
    return nn.Sequential(_of_channels(network, sample.channels), nn.ReLU())


def check(architecture: str, sample: Sample) -> None:
    """Raise FedlibError for images that a ViT cannot cut into patches."""
    if architecture.startswith("ViT"):
        _, height, width = sample.shape
        size = patch(architecture, sample)
        allowed = f"a network for images of {height}x{width} pixels; this one needs square ones, of a side that {size} divides"
        require(height == width and not width % size, "architecture", architecture, allowed)


EXTRACTORS: dict[str, Callable[[Sample], nn.Module]] = {
    "MLP": mlp,
    "CNN-1D": cnn_1d,
    "fastText": fast_text,
    "Transformer": transformer,
    **{f"ResNet-{2 * stages + 2}": partial(small_resnet, stages) for stages in (1, 2, 3, 4)},
    **{f"ResNet-{depth}": partial(of_torchvision, f"resnet{depth}") for depth in (18, 34, 50, 101, 152)},
    "GoogLeNet": partial(of_torchvision, "googlenet", aux_logits=False, init_weights=True),
    "MobileNet-V2": partial(of_torchvision, "mobilenet_v2"),
    "MobileNet-V3-S": partial(of_torchvision, "mobilenet_v3_small"),
    "MobileNet-V3-L": partial(of_torchvision, "mobilenet_v3_large"),
    "EfficientNet-B0": partial(of_torchvision, "efficientnet_b0"),
    "EfficientNet-V2-S": partial(of_torchvision, "efficientnet_v2_s"),
    "ViT-T": partial(vit, "ViT-T", 192, 3),
    "ViT-S": partial(vit, "ViT-S", 384, 6),
    "ViT-B-16": partial(vit, "ViT-B-16", 768, 12),
    "ViT-B-32": partial(vit, "ViT-B-32", 768, 12),
}


def load(name: str, network: nn.Module, found: dict[str, Tensor]) -> None:
    """Put the weights of a file into a network: those of one of fedlib's, or of torchvision's own network, whose classifier is for
    other classes. The header, and the last linear layer of the extractor, stay as they are where the file has none of
    their shape. Raises FedlibError where it lacks any other.
    """
    state, lacking = network.state_dict(), []
    linear = [part for part, layer in network.extractor.named_modules() if isinstance(layer, nn.Linear)]  # type: ignore[union-attr]
    own = ("header.", f"extractor.{linear[-1]}." if linear else "header.")
    for part, tensor in state.items():
        spelled = (part, part.removeprefix("extractor."), part.removeprefix("extractor.0."))
        fits = [found[one] for one in spelled if one in found and found[one].shape == tensor.shape]
        if fits:
            state[part] = fits[0]
        elif not part.startswith(own):
            lacking.append(f"{part.removeprefix('extractor.')} {tuple(tensor.shape)}")
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise FedlibError(f"weights of {name}: its file has no {lacking[0]}{more}, as this network needs")
    network.load_state_dict(state)
