"""FedGen: Zhu, Hong, Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", ICML 2021,
Algorithm 1 in the variant of its section 3.3, which shares the prediction layer alone.

The server learns a generator G of representations, without data: what it makes for a label y has to be classified as y by
the mean logits g of the round's headers (Eq. 4). Clients average their headers and train them also on what G makes::

    Eq. 4: min over G of E[CE(sum_k g(z; h_k) / K, y)] + diversity,  z = G(y, e), e ~ N(0, I), y ~ p
    Eq. 5: min over the client's model of CE + weight * E[CE(h_k(z), y)],  as many z as images in a batch
    p(y): share of the label y among the training images of the round's clients; uniform at first

Down: the header, G and p; up: the header and the client's numbers of images by class. Extractors stay local and may
differ, only the representation's width must be equal. Evaluated is the client's model after local training. G is two
linear layers with a ReLU between them, on the noise and the label in one-hot form. Each client's copy of G is left as it is, and only
its header gets the second term's gradient.

The diversity loss is in the text a reference (Mao et al., CVPR 2019): for two noises of one label, the reciprocal of
the distance of what G makes of them over the noises' own, here of mean absolute differences. The headers' mean is
unweighted (line 13). The text says neither how many steps G takes a round nor at which rate: those of the authors' code,
which also weights the teachers by their numbers of images of y, has batch normalisation in G, lets both terms decay,
adds a divergence to Eq. 5 and leaves out the second term in round 0; none of it is in the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import models
from ..fields import setting
from ..models import Model
from ..randomness import fork_torch
from ..training import fresh_optimiser, mean
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


class Generator(nn.Module):
    """Representations (n, d) of labels (n,) and noise (n, noise)."""

    def __init__(self, num_classes: int, noise: int, hidden: int, width: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(noise + num_classes, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.num_classes, self.noise = num_classes, noise

    def forward(self, labels: Tensor, noise: Tensor) -> Tensor:
        one_hot = labels[:, None] == torch.arange(self.num_classes, device=labels.device)
        return self.layers(torch.cat([noise, one_hot.to(noise.dtype)], dim=1))

    def sample(self, prior: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Labels (count,) by the prior p (C,) and a noise each, from torch's generator."""
        up_to = (
            torch.ones(len(prior), len(prior), device=prior.device).tril().mul(prior).sum(1)
        )  # cumsum is not deterministic
        drawn = torch.rand(count, 1, device=prior.device) * up_to[-1]
        labels = (drawn >= up_to).sum(1).clamp(max=len(prior) - 1)
        return labels, torch.randn(count, self.noise, device=prior.device)


def ensemble_loss(
    generator: nn.Module, header: dict[str, Tensor], labels: Tensor, noise: Tensor, other: Tensor, diversity: float
) -> Tensor:
    """Eq. 4; header: the mean of the round's headers, whose logits are the mean of theirs, since they are linear;
    noise, other: two for each label.
    """
    made = generator(labels, noise)
    loss = F.cross_entropy(F.linear(made, header["weight"], header["bias"]), labels)
    if diversity:
        apart = (made - generator(labels, other)).abs().mean()
        loss = loss + diversity * (noise - other).abs().mean() / (apart + 1e-5)
    return loss


def regularised_loss(
    model: Model, images: Tensor, labels: Tensor, generator: Generator, prior: Tensor, weight: float
) -> Tensor:
    """Eq. 5."""
    drawn, noise = generator.sample(prior, len(labels))
    made = generator(drawn, noise).detach()
    return F.cross_entropy(model(images), labels) + weight * F.cross_entropy(model.header(made), drawn)


@dataclass(frozen=True)
class FedGen(Algorithm):
    """weight: of Eq. 5's second term, >= 0; 0 leaves unweighted LG-FedAvg. Default 1 (Eq. 5).
    diversity: weight of the diversity loss, >= 0. Default 1 (the authors' code).
    noise, hidden: numbers of G's noise and of its hidden layer, >= 1. Default 32 and 256 (the authors' code for MNIST).
    generator_steps: of G a round, >= 0. Default 50; generator_lr: their rate (Adam), >= 0. Default 0.0003;
    generator_batch: labels a step, >= 1. Default 128 (all three the authors' code).
    """

    name = "FedGen"
    paper = "Zhu et al., ICML 2021"
    exchanges = "header, and a generator of representations down"
    needs = "features"
    look = Look("#5c5c00", "h", "--")

    weight: float = setting(1.0, ge=0)
    diversity: float = setting(1.0, ge=0)
    noise: int = setting(32, ge=1)
    hidden: int = setting(256, ge=1)
    generator_steps: int = setting(50, ge=0)
    generator_lr: float = setting(3e-4, ge=0)
    generator_batch: int = setting(128, ge=1)

    def init_server(self, context: ServerContext) -> ServerState:
        return {
            **context.initial_header().state_dict(prefix="header."),
            **self._generator(context).state_dict(prefix="generator."),
            "prior": torch.full((context.num_classes,), 1 / context.num_classes, device=context.device),
        }

    def _generator(self, context: ServerContext | ClientContext, state: dict[str, Tensor] | None = None) -> Generator:
        """A new one or, of what a server or a message holds, G as it is."""
        width = models.feature_width(context.first_architecture, context.num_classes, context.sample)
        with fork_torch(context.shared_generator("server")):
            generator = Generator(context.num_classes, self.noise, self.hidden, width)
        generator = generator.to(context.device)
        if state is not None:
            generator.load_state_dict(_part(state, "generator."))
        return generator

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        client.model.header.load_state_dict(_part(message.tensors, "header."))
        generator = self._generator(context, message.tensors)
        context.train(regularised_loss, generator=generator, prior=message["prior"], weight=self.weight)
        labels, classes = client.pool.labels[client.train], torch.arange(context.num_classes, device=context.device)
        counts = (labels == classes[:, None]).sum(1)
        return Message(dict(client.model.header.state_dict()) | {"counts": counts}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        header = {name: mean([message[name] for _, message in uploads]) for name in ("weight", "bias")}
        server.update({f"header.{name}": tensor for name, tensor in header.items()})
        counts = torch.stack([message["counts"] for _, message in uploads]).sum(0)
        server["prior"] = counts / counts.sum()
        generator = self._generator(context, server)
        settings = replace(context.settings, optimiser="adam", lr=self.generator_lr, weight_decay=0.0)
        optimiser = fresh_optimiser({"generator": generator}, settings)
        with fork_torch(context.generator("method")):
            for _ in range(self.generator_steps):
                labels, noise = generator.sample(server["prior"], self.generator_batch)
                optimiser.zero_grad()
                ensemble_loss(generator, header, labels, noise, torch.randn_like(noise), self.diversity).backward()
                optimiser.step()
        server.update(generator.state_dict(prefix="generator."))


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
