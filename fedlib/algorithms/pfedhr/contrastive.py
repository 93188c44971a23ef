"""Self-supervised training on unlabelled images: SimCLR (Chen et al., ICML 2020), with which pFedHR fine-tunes."""

import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import training
from ...randomness import fork_torch

GREY = (0.299, 0.587, 0.114)  # of red, green, blue: Y of YIQ
YIQ = (GREY, (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
JITTER, HUE = 0.4, 0.1  # largest changes, SimCLR's appendix B.9 for CIFAR: strength 0.5 of its 0.8 and 0.2


def view(images: Tensor, mean: Tensor, std: Tensor, stream: np.random.Generator, smallest: float = 0.08) -> Tensor:
    """A random view of each image, by SimCLR's augmentations for small images, batched and without its blur.

    A part of the image of `smallest` to all of its area and 3/4 to 4/3 times as wide as high, back at its size;
    mirrored with probability 0.5; with probability 0.8 brightness, contrast, saturation and hue changed, in this order
    (the original's is random); with probability 0.2 grey. Of one channel only brightness and contrast change. images:
    normalised, (n, 1 or 3, height, width); mean, std: theirs on the 0..255 scale, (channels, 1, 1).
    """
    n, channels = images.shape[:2]
    drawn = torch.from_numpy(stream.random((11, n, 1, 1, 1), dtype=np.float32)).to(images.device)
    area, shape, right, down, mirror, jitter, light, contrast, colour, turn, grey = drawn
    pixels = cropped(
        images.float(), smallest + (1 - smallest) * area, (4 / 3) ** (2 * shape - 1), right, down, mirror < 0.5
    )
    pixels = (pixels * std + mean).div_(255)

    def factor(chance: Tensor) -> Tensor:
        return 1 + torch.where(jitter < 0.8, JITTER * (2 * chance - 1), 0)

    def grey_of(coloured: Tensor) -> Tensor:
        weights = coloured.new_tensor(GREY if channels == 3 else [1.0]).view(-1, 1, 1)
        return (coloured * weights).sum(1, keepdim=True)

    pixels = (pixels * factor(light)).clamp_(0, 1)
    pixels = torch.lerp(grey_of(pixels).mean((2, 3), keepdim=True), pixels, factor(contrast)).clamp_(0, 1)
    if channels == 3:
        pixels = torch.lerp(grey_of(pixels), pixels, factor(colour)).clamp_(0, 1)
        pixels = turned(pixels, torch.where(jitter < 0.8, HUE * (2 * turn - 1), 0).flatten()).clamp_(0, 1)
        pixels = torch.where(grey < 0.2, grey_of(pixels), pixels)
    return pixels.mul_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)


def cropped(images: Tensor, area: Tensor, ratio: Tensor, right: Tensor, down: Tensor, mirrored: Tensor) -> Tensor:
    """A rectangle of each image at the image's size, bilinear: its part of the area, width by height, and place in
    [0, 1], each (n, 1, 1, 1); a side longer than the image's is the image's.
    """
    width, height = ((side.clamp(max=1.0)).flatten() for side in ((area * ratio).sqrt(), (area / ratio).sqrt()))
    theta = torch.zeros(len(images), 2, 3, device=images.device)  # from the result's coordinates in [-1, 1]
    theta[:, 0, 0] = torch.where(mirrored.flatten(), -width, width)
    theta[:, 0, 2] = (1 - width) * (2 * right.flatten() - 1)
    theta[:, 1, 1] = height
    theta[:, 1, 2] = (1 - height) * (2 * down.flatten() - 1)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def turned(pixels: Tensor, turn: Tensor) -> Tensor:
    """The hue of (n, 3, height, width) turned by `turn` (n,) of a circle, as a rotation in YIQ."""
    to_yiq = pixels.new_tensor(YIQ)
    rotation = torch.zeros(len(pixels), 3, 3, device=pixels.device)
    cosine, sine = (2 * math.pi * turn).cos(), (2 * math.pi * turn).sin()
    rotation[:, 0, 0] = 1
    rotation[:, 1, 1] = rotation[:, 2, 2] = cosine
    rotation[:, 1, 2], rotation[:, 2, 1] = -sine, sine
    return torch.einsum("nij,njhw->nihw", to_yiq.inverse() @ rotation @ to_yiq, pixels)


def views(images: Tensor, mean: Tensor, std: Tensor, stream: np.random.Generator, smallest: float = 0.08) -> Tensor:
    """Two views of each image, (2 n, ...): all first ones, then all second ones."""
    return torch.cat([view(images, mean, std, stream, smallest) for _ in range(2)])


def nt_xent(outputs: Tensor, temperature: float) -> Tensor:
    """The normalised temperature-scaled cross-entropy of the outputs (2 n, d) of `views`: each of the 2 n is to find
    the other view of its image among the 2 n - 1 others, by cosine. Eq. 1 of SimCLR, mean over the 2 n.
    """
    unit = F.normalize(outputs, dim=1)
    alike = (unit @ unit.T / temperature).fill_diagonal_(-math.inf)
    return F.cross_entropy(alike, torch.arange(len(unit), device=unit.device).roll(len(unit) // 2))


def contrastive_loss(
    model: nn.Module, images: Tensor, labels: Tensor, temperature: float, head: nn.Module | None = None
) -> Tensor:
    """NT-Xent of the model's logits, or of what a projection `head` makes of them; images: as `views` gives them; the
    labels are not used.
    """
    outputs = model(images)
    return nt_xent(outputs if head is None else head(outputs), temperature)


def train(
    model: nn.Module, width: int, pool: training.Pool, indices: Tensor, settings: training.Settings,
    stream: np.random.Generator, temperature: float = 0.5, smallest: float = 0.08, projection: int = 128,
) -> Tensor:  # fmt: skip
    """Train `model` on the images at `indices` without labels; returns the mean loss.

    projection: width of SimCLR's head, two linear layers with a ReLU between on the model's outputs (`width` of them),
    trained with it and thrown away; 0 for none. SimCLR's inner layer is as wide as its input; here, where that is a
    handful of logits, as its output.
    """
    modules = {"model": model}
    if projection:
        with fork_torch(stream):
            head = nn.Sequential(nn.Linear(width, projection), nn.ReLU(), nn.Linear(projection, projection))
        modules["head"] = head.to(indices.device)
    augment = partial(views, mean=pool.mean, std=pool.std, stream=stream, smallest=smallest)
    named = {"temperature": temperature}
    return training.train(contrastive_loss, modules, pool, indices, settings, stream, named, augment=augment)
