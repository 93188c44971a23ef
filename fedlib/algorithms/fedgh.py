"""FedGH: Yi, Wang, Liu, Shi, Yu, "FedGH: Heterogeneous Federated Learning with Generalized Global Header", ACM MM
2023, Algorithm 1.

Clients upload the mean representation of each seen class (local averaged representation, LAR); the server trains one
global header on the pairs (LAR, class) by SGD, and the header replaces each client's. Extractors stay local. Down:
the header; up: a LAR and its label a class.

The released code computes these gradients but never applies them (its optimiser holds another network), so its
header stays what it was initialised to; this file trains it, as the paper says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..errors import require
from ..randomness import forked
from ..training import class_means
from .base import Algorithm, Client, ClientInfo, Context, Message, ServerState


@dataclass(frozen=True)
class FedGH(Algorithm):
    """server_lr: eta_theta, the server's learning rate, >= 0; 0 freezes the header. Default 0.01 (section 5.1)."""

    server_lr: float = 0.01

    name, paper, year, exchanges = (
        "FedGH",
        "Yi et al., ACM MM 2023",
        2023,
        "header down, class means of representations up",
    )
    needs = "features"

    def __post_init__(self) -> None:
        require(self.server_lr >= 0, "server_lr", self.server_lr, "at least 0")

    def init_server(self, context: Context) -> ServerState:
        with forked(context.generator("server")):
            header = torch.nn.Linear(context.federation.initial_header().in_features, context.num_classes)
        return {name: tensor.to(context.device) for name, tensor in header.state_dict(prefix="header.").items()}

    def download(self, server: ServerState, info: ClientInfo, context: Context) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message | None, context: Context) -> Message:
        assert message is not None
        client.model.header.load_state_dict({"weight": message["header.weight"], "bias": message["header.bias"]})
        context.train(client)
        lars = class_means(client.model.extractor, client.pool, client.train, client.classes)  # Eq. 3
        return Message({"lars": lars, "classes": client.classes}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Mapping[int, Message], context: Context) -> None:
        weight = server["header.weight"].clone().requires_grad_()
        bias = server["header.bias"].clone().requires_grad_()
        optimiser = torch.optim.SGD([weight, bias], self.server_lr)
        for upload in uploads.values():  # in order of arrival
            for lar, label in zip(
                upload["lars"], upload["classes"], strict=True
            ):  # one SGD step a LAR, one pass (Eq. 5)
                optimiser.zero_grad()
                F.cross_entropy(F.linear(lar, weight, bias), label).backward()
                optimiser.step()
        server.update({"header.weight": weight.detach(), "header.bias": bias.detach()})
