"""FedSSA: Yi, Yu, Shi, Wang, Liu, Cui, Li, "FedSSA: Semantic Similarity-based Aggregation for Efficient
Model-Heterogeneous Personalized Federated Learning", IJCAI 2024, Algorithm 1.

Header rows of one class mean the same for every client, so the server averages them by class over the clients that
hold the class (Eq. 3), and a client fuses the global rows of its seen classes with its own historical rows (Eq. 4),
whose weight mu decays to 0. Extractors stay local; rows of unseen classes stay local too: trained with the rest,
never overwritten, never uploaded. Down and up: header rows of the seen classes.

The header is the last linear layer with its bias. Eq. 4 is global + mu * local, not a convex combination, so seen
rows are inflated by about 1 + mu a round while mu > 0. The first global header is CNN-1's initial one. A class that
no selected client holds keeps its global row.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..errors import require
from .base import Algorithm, Client, ClientInfo, Context, Message, ServerState


@dataclass(frozen=True)
class FedSSA(Algorithm):
    """mu0: weight of the historical header in round 0, in [0, 1]; 0 replaces. Default 0.5 (Figure 3, released
    script).
    stable_rounds: T_stable, rounds until mu is 0, >= 1. Default 20 (Figure 3; *chosen*: the text leaves it to a
    search).
    """

    mu0: float = 0.5
    stable_rounds: int = 20

    name, paper, year, exchanges = "FedSSA", "Yi et al., IJCAI 2024", 2024, "header rows of seen classes"
    needs = "features"

    def __post_init__(self) -> None:
        require(0 <= self.mu0 <= 1, "mu0", self.mu0, "in [0, 1]")
        require(self.stable_rounds >= 1, "stable_rounds", self.stable_rounds, "at least 1")

    def mu(self, round: int) -> float:
        """Eq. 4's coefficient of the historical header in `round` = 0, 1, ..."""
        if round >= self.stable_rounds:
            return 0.0
        return self.mu0 * math.cos(math.pi * round / (2 * self.stable_rounds))

    def init_server(self, context: Context) -> ServerState:
        return dict(context.federation.initial_header().state_dict())  # weight (C, d), bias (C,)

    def download(self, server: ServerState, info: ClientInfo, context: Context) -> Message:
        return Message({"weight": server["weight"][info.classes], "bias": server["bias"][info.classes]})

    def local_round(self, client: Client, message: Message | None, context: Context) -> Message:
        assert message is not None
        header, seen, mu = client.model.header, client.classes, self.mu(context.round)
        with torch.no_grad():  # Eq. 4: theta_k^s <- theta^s + mu * theta_k^s, for the seen classes s
            header.weight[seen] = message["weight"] + mu * header.weight[seen]
            header.bias[seen] = message["bias"] + mu * header.bias[seen]
        context.train(client)  # Eq. 6
        context.record(mu=mu)
        upload = {"weight": header.weight.detach()[seen], "bias": header.bias.detach()[seen], "classes": seen}
        return Message(upload, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Mapping[int, Message], context: Context) -> None:
        owned, weight, bias = (
            torch.cat([upload[name] for upload in uploads.values()]) for name in ("classes", "weight", "bias")
        )
        for s in owned.unique():  # Eq. 3: the unweighted mean over the clients that own the class
            server["weight"][s] = weight[owned == s].mean(0)
            server["bias"][s] = bias[owned == s].mean(0)
