"""FedMRL: Yi, Yu, Ren, Wang, Liu, Li, "Federated Model Heterogeneous Matryoshka Representation Learning", NeurIPS 2024,
Algorithm 1.

Beside its own model (extractor F_ex, header F_hd, representations of d_2 numbers) a client trains a small model of one
architecture for all (G_ex, G_hd, d_1 numbers), which the server averages, and a projector P of its own. Both extractors'
representations are joined and projected; each header reads as many of the first numbers as it has inputs, one nested in
the other::

    R = P([G_ex(x), F_ex(x)])                       [.,.] joins, P is linear
    loss = m_small * CE(G_hd(R[:d_1]), y) + m_large * CE(F_hd(R[:d_2]), y)

Down and up: the small model, averaged with weights n_k. Evaluated is what the text calls mix-large, F_hd(R[:d_2]), with
the small extractor as the client last trained it.

What the text leaves to choice: m_small = m_large = 1 in the authors' code; the text varies d_1 from 100 to 500 by the last
hidden layer of CNN-5 (`width`; fewer were better), their code has 500, which is CNN-5's own. R has max(d_1, d_2) numbers,
which is d_2 in the text, so that a client's own representation may be the smaller one. Each projector starts from its
client's own random stream, in the authors' code all from one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import models
from ..errors import require
from ..fields import setting
from ..models import Model
from ..randomness import fork_torch
from ..training import weighted_mean
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


def fused(model: Model, small: nn.Module, projector: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """R of images, (n, max(d_1, d_2)); small: the small model's extractor."""
    return projector(torch.cat([small(images), model.extractor(images)], dim=1))


def nested_loss(
    model: Model, shared: Model, projector: nn.Module, images: Tensor, labels: Tensor, m_small: float, m_large: float
) -> Tensor:
    """The weighted sum of both headers' CE, each on the first numbers of R."""
    joined = fused(model, shared.extractor, projector, images)
    small, large = (own.header(joined[:, : own.header.in_features]) for own in (shared, model))
    return m_small * F.cross_entropy(small, labels) + m_large * F.cross_entropy(large, labels)


def narrowed(network: nn.Module, width: int, stream: np.random.Generator | None = None) -> Model:
    """The small network with `width` numbers in its last hidden layer, 0 leaving it as it is; that layer and the header are
    drawn from `stream`, without which they have no values yet.
    """
    assert isinstance(network, Model)
    if not width or (stream is None and network.header.in_features == width):
        return network
    places = [place for place, layer in network.extractor.named_children() if isinstance(layer, nn.Linear)]
    require(len(places) > 0, "FedMRL width", width, "0, since the small network's extractor has no linear layer")
    inputs, outputs = network.extractor.get_submodule(places[-1]).in_features, network.header.out_features
    device = network.header.weight.device
    hidden, header = (
        nn.utils.skip_init(nn.Linear, *sizes, device=device) for sizes in ((inputs, width), (width, outputs))
    )
    if stream is not None:
        with fork_torch(stream):
            hidden.reset_parameters()
            header.reset_parameters()
    setattr(network.extractor, places[-1], hidden)
    network.header = header
    return network


@dataclass(frozen=True)
class FedMRL(Algorithm):
    """m_small, m_large: weights of the two headers' losses, >= 0. Default 1 each (the authors' code).
    shared: architecture of the small model. Default CNN-5 (the text: the smallest of the five).
    width: d_1, >= 0; 0, the default, is that architecture's own, 500 of CNN-5 (the authors' code).
    """

    name = "FedMRL"
    paper = "Yi et al., NeurIPS 2024"
    exchanges = "small shared model"
    look = Look("#17becf", "s")

    m_small: float = setting(1.0, ge=0)
    m_large: float = setting(1.0, ge=0)
    shared: str = setting("CNN-5", choices=models.BUILDERS)
    width: int = setting(0, ge=0, note="0: the small network's own")

    def init_server(self, context: ServerContext) -> ServerState:
        sample, stream = context.sample, context.generator("server")  # not the clients' initial state
        network = models.build(self.shared, context.num_classes, sample, stream)
        network = narrowed(network, self.width, context.generator("method"))
        return dict(network.to(context.device).state_dict())

    def init_client(self, client: Client, context: ClientContext) -> None:
        architectures = (self.shared, client.info.architecture)
        widths = [models.feature_width(name, context.num_classes, context.sample) for name in architectures]
        widths[0] = self.width or widths[0]
        with fork_torch(context.generator("method")):
            projector = nn.Linear(sum(widths), max(widths))
        client.state["projector"] = dict(projector.to(context.device).state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        shared = narrowed(context.build(self.shared), self.width)
        shared.load_state_dict(message.tensors)
        projector = self._projector(client)
        networks = {"model": client.model, "shared": shared, "projector": projector}
        context.train(nested_loss, networks, m_small=self.m_small, m_large=self.m_large)
        client.state["projector"] = dict(projector.state_dict())
        client.state["shared"] = dict(shared.state_dict())
        return Message(shared.state_dict(), client.num_samples)

    def _projector(self, client: Client) -> nn.Module:
        outputs, inputs = client.state["projector"]["weight"].shape
        projector = nn.utils.skip_init(nn.Linear, inputs, outputs, device=client.train.device)
        projector.load_state_dict(client.state["projector"])
        return projector

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        weights = [message.num_samples for _, message in uploads]
        for name in server:
            server[name] = weighted_mean([message[name] for _, message in uploads], weights)

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        small = narrowed(client.build(self.shared), self.width)
        small.load_state_dict(client.state["shared"])
        joined = fused(client.model, small.extractor, partial(F.linear, **client.state["projector"]), images)
        return {"accuracy": client.model.header(joined[:, : client.model.header.in_features])}
