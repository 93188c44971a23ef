"""FedSSA: Yi, Yu, Shi, Wang, Liu, Cui, Li, "FedSSA: Semantic Similarity-based Aggregation for Efficient
Model-Heterogeneous Personalized Federated Learning", IJCAI 2024, Algorithm 1.

Header rows of one class mean the same for every client, so the server averages them by class over the clients that
hold the class (Eq. 3), and a client fuses the global rows of its seen classes with its own historical rows (Eq. 4),
whose weight mu decays to 0. Extractors stay local; rows of unseen classes stay local too: trained with the rest,
never overwritten, never uploaded. Down and up: header rows of the seen classes.

The header is the last linear layer with its bias. Eq. 4 is global + mu * local, not a convex combination, so seen
rows are inflated by about 1 + mu a round while mu > 0. The first global header is CNN-1's initial one (in another
scenario, that of the first architecture). A class that no selected client holds keeps its global row.

The method needs seen rows alone, but its authors count more: "we still upload the entire processed header", whose
unseen rows are zeros (sections 4.3, 6.2), and the server broadcasts the global header (Algorithm 1). So the published
words per client and round are those of two headers, C * (d + 1) each, as many as LG-FedAvg's. (Section 6.1 gives a
header's size as C x 500, without the bias that the code sends.)

The released code averages over all N owners of a class (`aggregate_over=all`): what a client last uploaded, and the
initial rows for one that never did (those of the first header: the server knows no other). The ablations are settings:

===========  ===========  =======  ===  ==================================================
table, case  aggregation  replace  mu0  what it is
===========  ===========  =======  ===  ==================================================
4 A          whole        all      0    LG-FedAvg (unweighted)
4 B          whole        all      mu0  LG-FedAvg with fusion
5 A          by_class     all      0    aggregation by class, the whole header is replaced
5 B          by_class     seen     0    aggregation by class, seen rows are replaced
4 C, 5 C     by_class     seen     mu0  FedSSA
===========  ===========  =======  ===  ==================================================
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..devices import widest
from ..fields import setting
from ..training import by_class
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


@dataclass(frozen=True)
class FedSSA(Algorithm):
    """mu0: weight of the historical header in round 0, in [0, 1]; 0 replaces. Default 0.5 (Figure 3, released
    script).
    stable_rounds: T_stable, rounds until mu is 0, >= 0; 0, the default, is Figure 3's 20 of the 500 rounds that the
    text trains at most, in proportion: 4 of 100, and at least 1 (*chosen*: the text leaves it to a search).
    fusion: `literal`, the default, is Eq. 4; `convex` weights the global rows by 1 - mu, so that nothing is inflated.
    aggregate_over: the `selected` owners of a class (the default, Algorithm 1) or `all` of them (released code).
    aggregation: clients upload their seen rows (`by_class`, the default, Algorithm 1) or the `whole` header.
    replace: rows that are downloaded and fused, those of the `seen` classes (the default, Eq. 4) or `all`.
    """

    name = "FedSSA"
    paper = "Yi et al., IJCAI 2024"
    exchanges = "header rows of seen classes"
    needs = "features"
    look = Look("#0173b2", "s")

    mu0: float = setting(0.5, ge=0, le=1)
    stable_rounds: int = setting(0, ge=0, note="0: in proportion to the rounds")
    fusion: str = setting("literal", choices=("literal", "convex"))
    aggregate_over: str = setting("selected", choices=("selected", "all"))
    aggregation: str = setting("by_class", choices=("by_class", "whole"))
    replace: str = setting("seen", choices=("seen", "all"))

    def mu(self, round: int, rounds: int = 500) -> float:
        """Eq. 4's coefficient of the historical header in `round` = 0, 1, ... of `rounds`, which count only where
        `stable_rounds` is 0.
        """
        stable = self.stable_rounds or max(1, int(rounds * 20 / 500 + 0.5))  # T_stable
        return self.mu0 * math.cos(math.pi * round / (2 * stable)) if round < stable else 0.0

    def init_server(self, context: ServerContext) -> ServerState:
        server: ServerState = dict(context.initial_header().state_dict())  # weight (C, d), bias (C,)
        if self.aggregate_over == "all":  # the sum of each class's owners' rows; who never uploaded has the first ones
            owners = torch.zeros(context.num_classes, dtype=widest(context.device), device=context.device)
            for info in context.infos:
                owners[info.classes if self.aggregation == "by_class" else slice(None)] += 1
            first = _rows(server)
            server |= {"first": first, "latest": {}, "sum": first * owners[:, None], "owners": owners}
        return server

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        rows = info.classes if self.replace == "seen" else slice(None)
        return Message({"weight": server["weight"][rows], "bias": server["bias"][rows]})

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        header, mu = client.model.header, self.mu(context.round, context.rounds)
        rows = client.classes if self.replace == "seen" else slice(None)
        share = 1.0 if self.fusion == "literal" else 1 - mu
        with torch.no_grad():  # Eq. 4: theta_k^s <- theta^s + mu * theta_k^s, for the seen classes s
            header.weight[rows] = share * message["weight"] + mu * header.weight[rows]
            header.bias[rows] = share * message["bias"] + mu * header.bias[rows]
        context.train()  # Eq. 6
        return Message(self._upload(header, client.classes), client.num_samples, diagnostics={"mu": mu})

    def _upload(self, header: torch.nn.Linear, seen: Tensor) -> dict[str, Tensor]:
        weight, bias = header.weight.detach().clone(), header.bias.detach().clone()
        if self.aggregation == "whole":
            return {"weight": weight, "bias": bias}
        return {"weight": weight[seen], "bias": bias[seen], "classes": seen}

    def published_words(self, message: Message, context: ServerContext) -> int:
        return context.num_classes * (message["weight"].shape[1] + 1)  # a whole header, section 6.2 and Algorithm 1

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        if self.aggregate_over == "all":
            self._aggregate_over_all(server, uploads, context)
            return
        every = torch.arange(context.num_classes, device=context.device)  # a whole header has the rows of every class
        headers = [message.tensors for _, message in uploads]
        classes = torch.cat([header.get("classes", every) for header in headers])
        weight, bias = (torch.cat([header[name] for header in headers]) for name in ("weight", "bias"))
        for s, (weights, biases) in enumerate(by_class(classes, context.num_classes, weight, bias)):
            if len(biases):  # Eq. 3: the unweighted mean over the clients that own the class
                server["weight"][s], server["bias"][s] = weights.mean(0), biases.mean(0)

    def _aggregate_over_all(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        """The released code's mean, over all owners of a class: each upload takes the place of the client's last one."""
        every = torch.arange(context.num_classes, device=context.device)
        for info, message in uploads:
            classes, before = message.tensors.get("classes", every), server["latest"].get(info.id)
            server["sum"][classes] += _rows(message.tensors) - (_rows(before) if before else server["first"][classes])
            server["latest"][info.id] = message.tensors
        s = server["owners"] > 0
        mean = (server["sum"][s] / server["owners"][s, None]).to(server["weight"].dtype)
        server["weight"][s], server["bias"][s] = mean[:, :-1], mean[:, -1]


def _rows(header: Mapping[str, Tensor]) -> Tensor:
    """Rows of a header, float64 (n, d + 1): the weights of a class and its bias."""
    return torch.cat([header["weight"], header["bias"][:, None]], 1).to(widest(header["weight"].device))
