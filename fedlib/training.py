"""The one local training loop, evaluation, and the losses and statistics that several methods share.

A loss is a plain function of a batch and of the named modules and tensors handed to it: `loss(model=..., images=...,
labels=..., **named)` returns a scalar. It closes over nothing made this round, so each (method, architecture, batch
shape) can be compiled once and run with other tensors. Nothing here reads a tensor's value on
the host inside the loop.
"""

import ctypes
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import devices
from .randomness import exclusive, fork_torch

# Processes that the run in this thread may use, for the clients of a round and for a server that trains networks side by
# side; bits do not depend on it. The lab sets it where a run has cores to itself.
processes: ContextVar[int] = ContextVar("processes", default=1)

THREADS = 1  # of PyTorch within an operation while something trains: their number changes the bits
EVALUATION_BATCH = 500  # images a forward pass without gradients; results do not depend on it beyond rounding


@dataclass(frozen=True)
class Pool:
    """All samples and labels of a data set on the run's device; a batch is indexed, converted and normalised.

    stored: (m, ...) of a `Sample`, images channels-last; labels: int64 (n,); mean, std: (channels, 1, ...) on the
    scale of what is stored; places: where in `stored` the sample of an index lies, int64 (n,), None where m = n and it
    is the index itself.
    """

    stored: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor
    precision: str = "fp32"
    places: Tensor | None = None

    @property
    def images(self) -> Tensor:
        """The samples (n, ...); those that `part` left out are zeros."""
        if self.places is None:
            return self.stored
        black = torch.zeros_like(self.stored[:1])
        return torch.cat([self.stored, black])[self.places]

    def part(self, indices: Tensor, hidden: Tensor) -> "Pool":
        """What somebody sees who holds the images at `indices` and no other, under the same indices. The labels of the
        others, and of those at `hidden`, are -1; a batch with one of the others is an IndexError.
        """
        labels, places = torch.full_like(self.labels, -1), torch.full_like(self.labels, len(indices))
        labels[indices], places[indices] = self.labels[indices], torch.arange(len(indices), device=indices.device)
        labels[hidden] = -1
        own = _in_memory_order(self.images).index_select(0, indices)
        own = own.permute(0, 3, 1, 2) if own.ndim == 4 else own
        return replace(self, stored=own, labels=labels, places=places)

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each stored sample as a row of numbers, an image's height * width * channels, and the mean and std of each
        number in it: a batch is then copied and normalised in whole rows.
        """
        scales = (scale.broadcast_to(self.stored.shape[1:])[None] for scale in (self.mean, self.std))
        images, mean, std = (_in_memory_order(tensor).flatten(1) for tensor in (self.stored, *scales))
        return images, mean, std

    def batch(self, indices: Tensor) -> Tensor:
        """Normalised samples (len(indices), ...), images channels-last: float32, or bfloat16 where the run's arithmetic
        is. Token ids are as they are stored, int64 whatever the arithmetic.
        """
        indices = indices if self.places is None else self.places[indices]
        if self.stored.dtype == torch.int64:
            return self.stored.index_select(0, indices)
        images, mean, std = self._rows
        rows = images.index_select(0, indices).to(torch.float32).sub_(mean).div_(std)
        if self.precision == "bf16":
            rows = rows.to(torch.bfloat16)
        shape = self.stored.shape[1:]
        if len(shape) != 3:
            return rows.view(-1, *shape)
        channels, height, width = shape
        return rows.view(-1, height, width, channels).permute(0, 3, 1, 2)

    def numbered(self, indices: Tensor) -> "Pool":
        """This pool with an image's place in `indices` for a label, so that a loss can look up its own target of each
        image: `targets[labels]`.
        """
        places = torch.full_like(self.labels, -1)
        places[indices] = torch.arange(len(indices), device=indices.device)
        return replace(self, labels=places)

    def autocast(self) -> torch.autocast:
        """bf16 arithmetic where the run asked for it, otherwise nothing. Begins without weights in bf16: within an autocast of the
        caller's, even one that is switched off, torch keeps them, and a step would train with those of the one before it.
        """
        torch.clear_autocast_cache()
        return torch.autocast(self.stored.device.type, torch.bfloat16, enabled=self.precision == "bf16")


def _in_memory_order(samples: Tensor) -> Tensor:
    """Images as (n, height, width, channels), other samples as they are: in the order in which they lie in memory."""
    return samples.permute(0, 2, 3, 1) if samples.ndim == 4 else samples


PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Settings:
    """How a local round trains: E epochs in batches of B (all from the run's spec and protocol).

    epochs: 0.5 is one on half of the images, drawn anew; optimiser: `sgd`, `adam` or one of torch's, see `optimisers`.
    """

    epochs: float
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    optimiser: str = "sgd"


@cache
def keep_memory() -> None:
    """Let this process keep the memory that it frees, for good (glibc; nothing elsewhere). Otherwise each large tensor is
    handed back to the system and fetched again a page at a time, a tenth to a fifth of a step at B = 512.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no mapping of its own for a large tensor
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: nothing is handed back
        mallopt(-2, 64 << 20)  # M_TOP_PAD: fetch 64 MiB at a time


# What multiplies float32 numbers and may round them to TF32 or bfloat16 first, as cuDNN's convolutions do unless told otherwise.
_CUDNN: Any = torch.backends.cudnn  # the type hints of torch do not know its kinds of products, nor oneDNN's
_ONEDNN: Any = torch.backends.mkldnn
PRODUCTS = (torch.backends.cuda.matmul, _CUDNN.conv, _CUDNN.rnn, _ONEDNN.matmul, _ONEDNN.conv, _ONEDNN.rnn)


@contextmanager
def one_thread() -> Iterator[None]:
    """What decides bits and is the process's, for this Python thread alone (others that ask for it wait): one intra-op
    thread, since their number changes the bits and parallelism is across runs; float32 by default, exact products, oneDNN,
    gradients and no autocast, whatever the caller had set. Whatever trains goes through here, so the process keeps its
    memory from then on.
    """
    keep_memory()
    with exclusive, torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        exact = [(product, "fp32_precision", "ieee") for product in PRODUCTS]
        for of, name, value in [(_ONEDNN, "enabled", True), *exact]:
            stack.callback(setattr, of, name, getattr(of, name))
            setattr(of, name, value)
        with suppress(RuntimeError):  # whoever has set the kinds one by one has no precision of all
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(THREADS)
        yield


def cross_entropy(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of the model's logits: the local loss of Standalone, FedAvg, LG-FedAvg, FedGH and FedSSA."""
    return F.cross_entropy(model(images), labels)


def proximal_cross_entropy(
    model: nn.Module, images: Tensor, labels: Tensor, reference: nn.Module, weight: float
) -> Tensor:
    """CE + weight / 2 * ||w - w_reference||^2 over all parameters: the local loss of FedProx and of pFedMe's theta."""
    pairs = zip(model.parameters(), reference.parameters(), strict=True)
    distance = torch.stack([F.mse_loss(own, other, reduction="sum") for own, other in pairs]).sum()
    return F.cross_entropy(model(images), labels) + weight / 2 * distance


class Ahead:
    """A stream's numbers in [0, 1), float64, in the stream's order, drawn at least `count` at a time onto `device`: on a
    GPU one copy an epoch, where a batch's own would be one a step.
    """

    def __init__(self, stream: np.random.Generator, count: int, device: torch.device):
        self.stream, self.count = stream, count
        self.left = torch.empty(0, dtype=devices.widest(device), device=device)

    def random(self, shape: tuple[int, ...]) -> Tensor:
        """As the stream's own, a tensor."""
        wanted = math.prod(shape)
        if len(self.left) < wanted:
            fresh = self.stream.random(max(self.count, wanted - len(self.left)))
            self.left = torch.cat([self.left, torch.from_numpy(fresh).to(self.left.dtype).to(self.left.device)])
        taken, self.left = self.left[:wanted], self.left[wanted:]
        return taken.view(shape)


DRAWS = 8  # of an image, to augment it


def augmented(images: Tensor, stream: np.random.Generator | Ahead) -> Tensor:
    """A batch of normalised images flipped, erased and cropped in that order, as the released scripts do before
    training.

    Each image has its own draws: mirrored left to right with probability 0.5; with probability 0.5 a rectangle of
    0.04 to 0.2 of its area, 0.5 to 2 times as high as wide (log-uniform), set to 0; cut out at a random place after
    padding with 4 zeros on each side. images: (n, channels, height, width), square enough for the rectangle to fit.
    """
    n, channels, height, width = images.shape
    draws = torch.as_tensor(stream.random((DRAWS, n, 1)), device=images.device)
    flip, erase, area, ratio, top, left, down, right = draws
    area, ratio = height * width * (0.04 + 0.16 * area), 0.5 * 4**ratio
    box_height, box_width = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()  # (n, 1)
    top, left = (top * (height - box_height + 1)).floor(), (left * (width - box_width + 1)).floor()
    # Where each pixel of the result comes from in the flipped image; a place outside it is padding.
    rows = torch.arange(height, device=images.device) + (9 * down).long() - 4  # (n, height)
    columns = torch.arange(width, device=images.device) + (9 * right).long() - 4  # (n, width)
    box_rows = (rows >= top) & (rows < top + box_height) & (erase < 0.5)
    box_columns = (columns >= left) & (columns < left + box_width)
    inside_rows, inside_columns = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    kept = inside_rows[:, :, None] & inside_columns[:, None] & ~(box_rows[:, :, None] & box_columns[:, None])
    columns = torch.where(flip < 0.5, width - 1 - columns, columns)
    # All pixels of the batch in a row, with a black one at the end for what is not kept: one copy moves them all.
    pixels = torch.cat([images.permute(0, 2, 3, 1).reshape(-1, channels), images.new_zeros(1, channels)])
    rows = rows + height * torch.arange(n, device=images.device)[:, None]
    places = torch.where(kept, width * rows[:, :, None] + columns[:, None], len(pixels) - 1)  # (n, height, width)
    return pixels.index_select(0, places.flatten()).view(n, height, width, channels).permute(0, 3, 1, 2)


def images_of_epochs(settings: Settings, count: int) -> list[int]:
    """How many of `count` images each of E epochs sees: all of them or, of a part of an epoch, that part, one at least."""
    part = settings.epochs % 1
    return [count] * int(settings.epochs) + ([min(count, max(1, round(part * count)))] if part else [])


def batches(
    pool: Pool,
    indices: Tensor,
    settings: Settings,
    stream: np.random.Generator,
    augment: Callable[[Tensor], Tensor] | None = None,
    normalised: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, labels) of E epochs over `indices`: permutations drawn from `stream` on the CPU; the short last batch
    is kept. `augment`, if any, changes the images of each batch. normalised: whether what trains has batch
    normalisation (see `batch_norms`), which a single image has no statistics for: a last batch of one joins the one
    before it, a batch of B + 1.
    """
    size = settings.batch_size
    for count in images_of_epochs(settings, len(indices)):
        sizes = [min(size, count - start) for start in range(0, max(count, 1), size)]
        if normalised and len(sizes) > 1 and sizes[-1] == 1 < size:
            sizes[-2:] = [size + 1]
        order = indices[torch.from_numpy(stream.permutation(len(indices))).to(indices.device)]
        for batch in order[:count].split(sizes):
            images = pool.batch(batch)
            yield augment(images) if augment else images, pool.labels[batch]


def fresh_optimiser(modules: Mapping[str, nn.Module], settings: Settings) -> torch.optim.Optimizer:
    """A fresh optimiser of all parameters of `modules`: one fused kernel a step, whose state stays on the device."""
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    if settings.optimiser == "adam":
        return torch.optim.Adam(parameters, settings.lr, weight_decay=settings.weight_decay, fused=True)
    if settings.optimiser != "sgd":
        from .optimisers import optimiser

        return optimiser(settings.optimiser, parameters, settings.lr, settings.momentum, settings.weight_decay)
    return torch.optim.SGD(
        parameters, settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay, fused=True
    )


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def batch_norms(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The batch normalisation layers within `modules`."""
    return [part for module in modules for part in module.modules() if isinstance(part, BATCH_NORMS)]


@contextmanager
def training_mode(modules: Mapping[str, nn.Module]) -> Iterator[None]:
    """Dropout and batch normalisation of `modules` as in training; otherwise networks are as in evaluation."""
    for module in modules.values():
        module.train()
    try:
        yield
    finally:
        for module in modules.values():
            module.eval()


@contextmanager
def without_gradients(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Gradients flow through `modules`, none is computed for their parameters."""
    trained = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def step(
    loss: Callable[..., Tensor],
    modules: Mapping[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    pool: Pool,
    settings: Settings,
    **batch: object,
) -> Tensor:
    """One step of `optimiser` on `loss(**modules, **batch)`; returns the loss. Each module's gradient is clipped on its
    own. On a single image (a client's only one, or B = 1) batch normalisation is as in evaluation: it uses its running
    statistics and leaves them, and its weights are trained.
    """
    optimiser.zero_grad()
    images = batch.get("images")
    still = batch_norms(modules.values()) if isinstance(images, Tensor) and len(images) == 1 else []
    modes = [layer.training for layer in still]
    for layer in still:
        layer.eval()
    with devices.naming_layers(modules, images):
        with pool.autocast():
            value = loss(**modules, **batch)
        for layer, mode in zip(still, modes, strict=True):
            layer.train(mode)
        value.backward()
    if settings.clip_norm:
        for module in modules.values():
            nn.utils.clip_grad_norm_(module.parameters(), settings.clip_norm)
    optimiser.step()
    return value.detach()


def kl_divergence(teacher: Tensor, logits: Tensor) -> Tensor:
    """KL(softmax(teacher) || softmax(logits)), mean over the batch; no gradient reaches the teacher's logits."""
    return F.kl_div(F.log_softmax(logits, 1), teacher.detach().softmax(1), reduction="batchmean")


def train(
    loss: Callable[..., Tensor],
    modules: Mapping[str, nn.Module],
    pool: Pool,
    indices: Tensor,
    settings: Settings,
    stream: np.random.Generator,
    named: Mapping[str, object] | None = None,
    support: np.random.Generator | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Train `modules` (handed to `loss` by name) on `indices` with a fresh optimiser; returns the mean loss a sample,
    a scalar tensor.

    `named` tensors and modules are handed to `loss` too and are not trained (dropout and batch normalisation are as in
    evaluation). With a stream `support`, each step also
    gets an independent batch of the same size drawn from it, as `support_images` and `support_labels`. `augment`, if
    any, changes the images of each batch. With 0 epochs nothing is trained and the loss is 0.
    """
    named = named or {}
    frozen = [module for module in named.values() if isinstance(module, nn.Module)]
    optimiser = fresh_optimiser(modules, settings)
    total = torch.zeros((), device=indices.device)
    normalised = bool(batch_norms(modules.values()))
    second = batches(pool, indices, settings, support, augment, normalised) if support else None
    dropout = stream.spawn(1)[0]  # a child, so that `stream` draws as without it
    with fork_torch(dropout), training_mode(modules), without_gradients(frozen):
        for images, labels in batches(pool, indices, settings, stream, augment, normalised):
            extra = dict(zip(("support_images", "support_labels"), next(second), strict=True)) if second else {}
            value = step(loss, modules, optimiser, pool, settings, images=images, labels=labels, **named, **extra)
            total += value * len(labels)
    optimiser.zero_grad()  # a client at rest keeps no gradients, which are as large as its model
    return total / max(1, sum(images_of_epochs(settings, len(indices))))


@torch.no_grad()
def outputs(function: Callable[[Tensor], Tensor], pool: Pool, indices: Tensor) -> Tensor:
    """`function` of the normalised images at `indices`, in batches, without gradients: float32 (len(indices), ...)."""
    with pool.autocast():
        return torch.cat([function(pool.batch(batch)).float() for batch in indices.split(EVALUATION_BATCH)])


@torch.no_grad()
def correct(predict: Callable[[Tensor], dict[str, Tensor]], pool: Pool, indices: Tensor) -> dict[str, Tensor]:
    """Whether the largest logit is the label's, a boolean (len(indices),) for each way of predicting."""
    with pool.autocast():
        parts = [
            {name: logits.argmax(1) == pool.labels[batch] for name, logits in predict(pool.batch(batch)).items()}
            for batch in indices.split(EVALUATION_BATCH)
        ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in dictionaries, lists and tuples within each other."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(item)


@torch.no_grad()
def all_finite(value: Any, device: torch.device) -> Tensor:
    """Whether the floating-point tensors in `value` (in dictionaries, lists and tuples) hold neither NaN nor infinity:
    a boolean scalar on `device`, for which nothing waits here. The least and the largest number of a tensor are finite
    only if all of it is.
    """
    ends = [torch.stack(own.aminmax()) for own in tensors(value) if own.is_floating_point() and own.numel()]
    flags = [pair.isfinite().all().to(device) for pair in ends]
    return torch.stack([torch.ones((), dtype=torch.bool, device=device), *flags]).all()


@torch.no_grad()
def class_means(function: Callable[[Tensor], Tensor], pool: Pool, indices: Tensor, classes: Tensor) -> Tensor:
    """Mean of `function` (representations or logits) over the images of each class: float32 (len(classes), width).

    FedProto's prototypes and FedGH's local averaged representations (its Eq. 3) are such means of the trained
    extractor. Sums are float64, so the mean is exact to float32 rounding whatever the order. Every class must occur
    in `indices`.
    """
    wide = devices.widest(indices.device)
    values = outputs(function, pool, indices).to(wide)
    member = (pool.labels[indices][None] == classes[:, None]).to(wide)  # (classes, n)
    return (member @ values / member.sum(1, keepdim=True)).float()


def by_class(classes: Tensor, num_classes: int, *values: Tensor) -> list[tuple[Tensor, ...]]:
    """Of each class 0, 1, ... the rows of each of `values` (n, ...) whose class it is in `classes` (n,), in their order.
    The host waits for the device once, whatever the number of classes.
    """
    order = classes.argsort(stable=True)
    sizes = (classes == torch.arange(num_classes, device=classes.device)[:, None]).sum(1).tolist()
    return list(zip(*(value[order].split(sizes) for value in values), strict=True))


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """The unweighted mean of tensors of one shape. Whole numbers, such as the number of batches that batch
    normalisation has tracked, keep their dtype: the largest.
    """
    stacked = torch.stack(list(tensors))
    return stacked.mean(0) if stacked.is_floating_point() else stacked.amax(0)


def weighted_mean(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """sum_k (w_k / sum w) * tensor_k; the weights are normalised first, so one tensor comes back to the bit. Whole
    numbers as in `mean`.
    """
    if not tensors[0].is_floating_point():
        return mean(tensors)
    total = sum(weights)
    return torch.stack([tensor * (weight / total) for tensor, weight in zip(tensors, weights, strict=True)]).sum(0)
