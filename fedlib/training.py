"""The one local training loop, evaluation, and the losses and statistics that several methods share.

A loss is a plain function of a batch and of the named modules and tensors handed to it: `loss(model=..., images=...,
labels=..., **named)` returns a scalar. It closes over nothing made this round, so one step a (method, architecture,
batch shape) can be compiled or recorded once and replayed with other tensors. Nothing here reads a tensor's value on
the host inside the loop.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

EVALUATION_BATCH = 500  # images a forward pass without gradients; results do not depend on it beyond rounding


@dataclass(frozen=True)
class Pool:
    """All images and labels of a data set on the run's device; a batch is indexed, converted and normalised.

    images: uint8 (n, channels, 32, 32), channels-last; labels: int64 (n,); mean, std: (channels, 1, 1) on the 0..255
    scale.
    """

    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor
    precision: str = "fp32"

    def batch(self, indices: Tensor) -> Tensor:
        """Normalised float32 images (len(indices), channels, 32, 32), channels-last."""
        return self.images[indices].to(torch.float32).sub_(self.mean).div_(self.std)

    def numbered(self, indices: Tensor) -> "Pool":
        """This pool with an image's place in `indices` for a label, so that a loss can look up its own target of each
        image: `targets[labels]`.
        """
        places = torch.full_like(self.labels, -1)
        places[indices] = torch.arange(len(indices), device=indices.device)
        return replace(self, labels=places)

    def autocast(self) -> torch.autocast:
        """bf16 arithmetic where the run asked for it, otherwise nothing."""
        return torch.autocast(self.images.device.type, torch.bfloat16, enabled=self.precision == "bf16")


@dataclass(frozen=True)
class Settings:
    """How a local round trains: E epochs in batches of B with plain SGD (all from the run's spec and protocol)."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread: the thread count changes the bits, and parallelism is across runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def cross_entropy(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of the model's logits: the local loss of Standalone, FedAvg, LG-FedAvg, FedGH and FedSSA."""
    return F.cross_entropy(model(images), labels)


def batches(
    pool: Pool, indices: Tensor, settings: Settings, stream: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, labels) of E epochs over `indices`: permutations drawn from `stream` on the CPU; the short last batch
    is kept.
    """
    for _ in range(settings.epochs):
        order = indices[torch.from_numpy(stream.permutation(len(indices))).to(indices.device)]
        for batch in order.split(settings.batch_size):
            yield pool.batch(batch), pool.labels[batch]


def sgd(modules: Mapping[str, nn.Module], settings: Settings) -> torch.optim.Optimizer:
    """A fresh optimiser of all parameters of `modules`."""
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    return torch.optim.SGD(
        parameters, settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay, fused=True
    )


def step(
    loss: Callable[..., Tensor],
    modules: Mapping[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    pool: Pool,
    settings: Settings,
    **batch: object,
) -> Tensor:
    """One step of `optimiser` on `loss(**modules, **batch)`; returns the loss. Each module's gradient is clipped on its
    own.
    """
    optimiser.zero_grad()
    with pool.autocast():
        value = loss(**modules, **batch)
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
) -> Tensor:
    """Train `modules` (handed to `loss` by name) on `indices` with a fresh SGD; returns the mean loss a sample, a
    scalar tensor.

    `named` tensors and modules are handed to `loss` too and are not trained. With a stream `support`, each step also
    gets an independent batch of the same size drawn from it, as `support_images` and `support_labels`.
    """
    named = named or {}
    frozen = [module for module in named.values() if isinstance(module, nn.Module)]
    optimiser = sgd(modules, settings)
    total = torch.zeros((), device=indices.device)
    second = batches(pool, indices, settings, support) if support else None
    for module in frozen:  # gradients flow through a frozen module, none is computed for its parameters
        module.requires_grad_(False)
    for images, labels in batches(pool, indices, settings, stream):
        extra = dict(zip(("support_images", "support_labels"), next(second), strict=True)) if second else {}
        value = step(loss, modules, optimiser, pool, settings, images=images, labels=labels, **named, **extra)
        total += value * len(labels)
    for module in frozen:
        module.requires_grad_(True)
    return total / (settings.epochs * len(indices))


@torch.no_grad()
def outputs(function: Callable[[Tensor], Tensor], pool: Pool, indices: Tensor) -> Tensor:
    """`function` of the normalised images at `indices`, in batches, without gradients: float32 (len(indices), ...)."""
    with pool.autocast():
        return torch.cat([function(pool.batch(batch)).float() for batch in indices.split(EVALUATION_BATCH)])


@torch.no_grad()
def correct(predict: Callable[[Tensor], dict[str, Tensor]], pool: Pool, indices: Tensor) -> dict[str, Tensor]:
    """Whether the largest logit is the label's, a boolean (len(indices),) for each way of predicting."""
    parts = []
    with pool.autocast():
        for batch in indices.split(EVALUATION_BATCH):
            parts.append(
                {name: logits.argmax(1) == pool.labels[batch] for name, logits in predict(pool.batch(batch)).items()}
            )
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


@torch.no_grad()
def class_means(function: Callable[[Tensor], Tensor], pool: Pool, indices: Tensor, classes: Tensor) -> Tensor:
    """Mean of `function` (representations or logits) over the images of each class: float32 (len(classes), width).

    FedProto's prototypes and FedGH's local averaged representations (its Eq. 3) are such means of the trained
    extractor. Sums are float64, so the mean is exact to float32 rounding whatever the order. Every class must occur
    in `indices`.
    """
    values = outputs(function, pool, indices).double()
    member = (pool.labels[indices][None] == classes[:, None]).double()  # (classes, n)
    return (member @ values / member.sum(1, keepdim=True)).float()


def weighted_mean(tensors: list[Tensor], weights: list[float]) -> Tensor:
    """sum_k (w_k / sum w) * tensor_k; the weights are normalised first, so one tensor comes back to the bit."""
    total = sum(weights)
    return torch.stack([tensor * (weight / total) for tensor, weight in zip(tensors, weights, strict=True)]).sum(0)
