"""FD (federated distillation): Jeong, Oh, Kim, Park, Bennis, Kim, "Communication-Efficient On-Device Machine Learning:
Federated Distillation and Augmentation under Non-IID Private Data", NeurIPS workshop 2018, Algorithm 1.

Clients upload their mean logit vector for each seen class; client i downloads, for its seen classes, the mean over
the *other* clients, (sum_j F_j - F_i) / (M - 1), and its outputs are pulled towards the vector of each image's class.
Models stay local and need only the classes in common. Down and up: a logit vector a seen class, with its class id.
gamma = 0 is Standalone; an image whose class nobody else reported has CE alone (with one owner a class, every image).

Known disagreements. The distance is unspecified. The best-known library changed it twice: mean squared error of logits
(`mse`, our default), CE with softmax(global logits) (`softmax`), and since 2025 CE with the raw logits as target
(`raw`), which has no lower bound (a negative logit rewards driving its class's probability to 0), diverges, and is
kept to show it. It averages the client's own vector in (`exclude_self=False`), forgets clients not selected this round
(here each client's latest vectors count: the original has everyone in every round) and collects logits while training
(here they are the trained model's). The papers report that FD mostly fails to converge; that code is not public.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import choose, require
from ..training import class_means
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


def fd_loss(model: nn.Module, images: Tensor, labels: Tensor, logits: Tensor, known: Tensor, gamma: float) -> Tensor:
    """CE + gamma * mean squared distance to the global logits; logits: (C, C), known: (C,) 1 where known, else 0."""
    output = model(images)  # (n, C)
    distance = F.mse_loss(output, logits[labels], reduction="none").mean(1) * known[labels]  # (n,)
    return F.cross_entropy(output, labels) + gamma * distance.mean()


def fd_target_loss(
    model: nn.Module, images: Tensor, labels: Tensor, target: Tensor, known: Tensor, gamma: float
) -> Tensor:
    """CE + gamma * CE(output, target); target: (C, C), one row a class, probabilities or raw logits."""
    output = model(images)  # (n, C)
    distance = -(target[labels] * F.log_softmax(output, 1)).sum(1) * known[labels]  # (n,)
    return F.cross_entropy(output, labels) + gamma * distance.mean()


@dataclass(frozen=True)
class FD(Algorithm):
    """gamma: weight of the distance, >= 0; 0 is Standalone. Default 1 (peer libraries'; the paper gives none).
    target: `mse`, `softmax` or `raw`, see above.
    exclude_self: leave the client's own vectors out of what it downloads, as the paper does.
    """

    name = "FD"
    paper = "Jeong et al., NeurIPS workshop 2018"
    exchanges = "mean logits of seen classes"
    uncounted = ("classes",)
    look = Look("#de8f05", "*")

    gamma: float = 1.0
    target: str = "mse"
    exclude_self: bool = True

    def __post_init__(self) -> None:
        require(self.gamma >= 0, "gamma", self.gamma, "at least 0")
        choose("target", self.target, ("mse", "softmax", "raw"))

    def init_server(self, context: ServerContext) -> ServerState:
        zeros = torch.zeros(context.num_classes, context.num_classes, dtype=torch.float64, device=context.device)
        return {"contributions": {}, "sum": zeros, "owners": zeros[0].clone()}

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        total, owners = server["sum"].clone(), server["owners"].clone()
        sent = server["contributions"].get(info.id)
        if self.exclude_self and sent is not None:
            total[sent["classes"]] -= sent["logits"]
            owners[sent["classes"]] -= 1
        classes = info.classes[owners[info.classes] > 0]
        return Message({"classes": classes, "logits": (total[classes] / owners[classes, None]).float()})

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        logits = torch.zeros(context.num_classes, context.num_classes, device=context.device)
        known = torch.zeros(context.num_classes, device=context.device)
        logits[message["classes"]], known[message["classes"]] = message["logits"], 1.0
        if self.target == "mse":
            context.train(fd_loss, logits=logits, known=known, gamma=self.gamma)
        else:
            target = logits.softmax(1) if self.target == "softmax" else logits
            context.train(fd_target_loss, target=target, known=known, gamma=self.gamma)
        means = class_means(client.model, client.pool, client.train, client.classes)
        return Message({"classes": client.classes, "logits": means}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        latest = server["contributions"] | {info.id: message.tensors for info, message in uploads}
        server.update(self.init_server(context), contributions=latest)  # sums start from zero
        for sent in latest.values():
            server["sum"][sent["classes"]] += sent["logits"]
            server["owners"][sent["classes"]] += 1
