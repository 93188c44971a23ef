"""A client's round of each shape of local step against the loop that one would write in plain PyTorch.

fedlib's is the method's own `local_round`: from uint8 images and the downloaded message to the upload. The plain one has
its images in memory, normalised, NCHW, and PyTorch's default SGD. Before timing, both train on the same batch (without
noise) and must agree on the weights. Prints the ratio of images a second, fedlib's over the plain loop's, in turns in
one process and one thread (each >= 0.95 and their median >= 1 expected).

    python tests/benchmarks/bench_steps.py [--short]
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import describe, in_turns, options, random_images, spread
from torch import Tensor, nn
from torch.func import functional_call

from fedlib import Federation, models
from fedlib.algorithms import Algorithm, make
from fedlib.federation import Message
from fedlib.protocol import Protocol
from fedlib.randomness import generator

BATCH, LR = 64, 0.01
Round = Callable[[Any, Any, dict[str, Tensor], "Images"], None]  # method, model, downloaded tensors, images


@dataclasses.dataclass
class Images:
    """The plain loop's training images, normalised and NCHW, and their labels."""

    images: Tensor
    labels: Tensor

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in torch.randperm(len(self.labels)).split(BATCH):
            yield self.images[batch], self.labels[batch]


def sgd(*modules: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([parameter for module in modules for parameter in module.parameters()], LR)


def kl(teacher: Tensor, logits: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(logits, 1), F.softmax(teacher.detach(), 1), reduction="batchmean")


# ------------------------------------------------------------------------------------------------ the plain rounds


def standalone(method: Any, model: Any, download: dict[str, Tensor], data: Images) -> None:
    optimiser = sgd(model)
    for images, labels in data.batches():
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()


def fedprox(method: Any, model: Any, download: dict[str, Tensor], data: Images) -> None:
    model.load_state_dict(download)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimiser = sgd(model)
    for images, labels in data.batches():
        optimiser.zero_grad()
        distance = sum(((own - other) ** 2).sum() for own, other in zip(model.parameters(), start, strict=True))
        (F.cross_entropy(model(images), labels) + method.mu / 2 * distance).backward()
        optimiser.step()


def fedproto(method: Any, model: Any, download: dict[str, Tensor], data: Images) -> None:
    prototypes = download["prototypes"]  # of all classes
    optimiser = sgd(model)
    for images, labels in data.batches():
        optimiser.zero_grad()
        features = model.extractor(images)
        loss = F.cross_entropy(model.header(features), labels) + method.lam * F.mse_loss(features, prototypes[labels])
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        features = torch.cat([model.extractor(images) for images in data.images.split(BATCH)])
        torch.stack([features[data.labels == label].mean(0) for label in data.labels.unique()])


@cache
def partner(architecture: str) -> nn.Module:
    """A network that is built once and loaded each round."""
    return models.BUILDERS[architecture](10, 3)


def fml(method: Any, model: Any, download: dict[str, Tensor], data: Images) -> None:
    shared = partner(method.shared)
    shared.load_state_dict(download)
    optimiser = sgd(model, shared)
    for images, labels in data.batches():
        optimiser.zero_grad()
        own, other = model(images), shared(images)
        loss = method.alpha * F.cross_entropy(own, labels) + (1 - method.alpha) * kl(other, own)
        loss = loss + method.beta * F.cross_entropy(other, labels) + (1 - method.beta) * kl(own, other)
        loss.backward()
        optimiser.step()


def pfedes(method: Any, model: Any, download: dict[str, Tensor], data: Images) -> None:
    extractor = models.proxy_extractor(3)
    extractor.load_state_dict(download)
    extractor.requires_grad_(False)
    optimiser = sgd(model)
    for images, labels in data.batches():
        optimiser.zero_grad()
        loss = method.mu * F.cross_entropy(model(extractor(images)), labels)
        loss = loss + (1 - method.mu) * F.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
    extractor.requires_grad_(True)
    model.requires_grad_(False)
    optimiser = sgd(extractor)
    for images, labels in data.batches():
        optimiser.zero_grad()
        F.cross_entropy(model(extractor(images)), labels).backward()
        optimiser.step()
    model.requires_grad_(True)


def pfedbayes(method: Any, model: Any, download: dict[str, Tensor], data: Images) -> None:
    names = [name for name, _ in model.named_parameters()]
    mu = list(model.parameters())
    rho = [torch.full_like(mean, method.rho0).requires_grad_() for mean in mu]
    prior_mu = [download[f"mu.{name}"].clone().requires_grad_() for name in names]
    prior_rho = [download[f"rho.{i}"].clone().requires_grad_() for i in range(len(names))]
    optimiser, of_prior = torch.optim.SGD(mu + rho, LR), torch.optim.SGD(prior_mu + prior_rho, LR)

    def divergence(q_mu: list[Tensor], q_rho: list[Tensor], p_mu: list[Tensor], p_rho: list[Tensor]) -> Tensor:
        total = torch.zeros(())
        for m1, r1, m2, r2 in zip(q_mu, q_rho, p_mu, p_rho, strict=True):
            s1, s2 = F.softplus(r1), F.softplus(r2)
            total = total + (torch.log(s2 / s1) + (s1**2 + (m1 - m2) ** 2) / (2 * s2**2) - 0.5).sum()
        return total

    def fixed(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor.detach() for tensor in tensors]

    weight = method.zeta / len(data.labels)
    for images, labels in data.batches():
        optimiser.zero_grad()
        drawn = [m + F.softplus(r) * method.noise * torch.randn_like(m) for m, r in zip(mu, rho, strict=True)]
        logits = functional_call(model, dict(zip(names, drawn, strict=True)), (images,))
        loss = F.cross_entropy(logits, labels) + weight * divergence(mu, rho, fixed(prior_mu), fixed(prior_rho))
        loss.backward()
        optimiser.step()
        of_prior.zero_grad()
        (weight * divergence(fixed(mu), fixed(rho), prior_mu, prior_rho)).backward()
        of_prior.step()


def fedclassavg(method: Any, model: Any, download: dict[str, Tensor], data: Images) -> None:
    model.header.load_state_dict(download)
    optimiser = sgd(model)
    for images, labels in data.batches():
        optimiser.zero_grad()
        features = model.extractor(torch.cat([images, images.flip(-1)]))
        distance = ((model.header.weight - download["weight"]) ** 2).sum()
        distance = distance + ((model.header.bias - download["bias"]) ** 2).sum()
        loss = F.cross_entropy(model.header(features[: len(labels)]), labels) + method.rho / 2 * distance
        features, twice = F.normalize(features, dim=1), labels.repeat(2)
        logits = features @ features.T / method.temperature
        logits = logits - logits.max(1, keepdim=True).values.detach()
        others = 1 - torch.eye(len(twice))
        positive = (twice[:, None] == twice).float() * others
        log_share = logits - (logits.exp() * others).sum(1, keepdim=True).log()
        loss = loss - method.contrast * ((positive * log_share).sum(1) / positive.sum(1)).mean()
        loss.backward()
        optimiser.step()


EVERY, FIRST = tuple(models.CNN_WIDTHS), ("CNN-1",)
SHAPES: list[tuple[str, Algorithm, Round, tuple[str, ...]]] = [
    ("CE", make("Standalone"), standalone, EVERY),
    ("CE, proximal term", make("FedProx"), fedprox, FIRST),
    ("CE, representation term", make("FedProto"), fedproto, EVERY),
    ("two networks", make("FML"), fml, EVERY),
    ("alternating extractor", make("pFedES"), pfedes, EVERY),
    ("reparameterised", make("pFedBayes"), pfedbayes, FIRST),
    ("two views", make("FedClassAvg", {"contrast": 1.0}), fedclassavg, EVERY),
]


def rounds(method: Algorithm, plain: Round, architecture: str, count: int) -> tuple[Any, Any, Any, Any]:
    """A round of fedlib, one of the plain loop, and the two models, from the same start."""
    data = random_images(count + 2)
    parts = [tuple(np.split(np.arange(count + 2), [count, count + 1]))]
    federation = Federation(data, parts, [architecture], protocol=Protocol(lr=LR), batch_size=BATCH)
    server, context, client = federation.server_context(), federation.client_context(0), federation.clients[0]
    method.init_client(client, context)
    message = method.download(method.init_server(server), client.info, server)
    if method.name == "FedProto":  # not those of the first round, which are empty
        prototypes = torch.from_numpy(generator(0, "method").random((10, models.FEATURES), dtype=np.float32))
        message = Message({"classes": torch.arange(10), "prototypes": prototypes})
    model: Any = models.BUILDERS[architecture](10, 3)
    model.load_state_dict(client.model.state_dict())
    images = Images(client.pool.batch(client.train).contiguous(), client.pool.labels[client.train])
    download = {name: tensor.contiguous() for name, tensor in message.tensors.items()}

    def ours() -> None:
        method.local_round(client, message, context)

    def theirs() -> None:
        plain(method, model, download, images)

    return ours, theirs, client.model, model


def check(method: Algorithm, plain: Round, architecture: str) -> None:
    """After a round of one batch, both have the same weights, up to rounding."""
    quiet = dataclasses.replace(method, noise=0.0) if method.name == "pFedBayes" else method
    ours, theirs, model, other = rounds(quiet, plain, architecture, BATCH)
    ours(), theirs()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-4, atol=1e-6)


def main() -> None:
    short = options(__doc__).parse_args().short
    repeats, batches = (3, 2) if short else (11, 8)
    torch.set_num_threads(1)
    print(describe())
    print(f"{repeats} pairs of {batches} batches of {BATCH}; images a second, fedlib / plain; median (middle half)")
    medians = []
    for shape, method, plain, architectures in SHAPES:
        for architecture in architectures[-1:] if short else architectures:
            check(method, plain, architecture)
            fedlib_seconds, plain_seconds = in_turns(*rounds(method, plain, architecture, BATCH * batches)[:2], repeats)
            ratio = plain_seconds / fedlib_seconds
            medians.append(np.median(ratio))
            speed = BATCH * batches / np.median(fedlib_seconds)
            print(f"  {shape:<24}{method.name:<12}{architecture}: {spread(ratio)}   fedlib {speed:.0f} images/s")
    print(f"  smallest {min(medians):.3f}, median {np.median(medians):.3f}")


if __name__ == "__main__":
    main()
