"""FedTGP: Zhang, Liu, Hua, Cao, "FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning
for Data and Model Heterogeneity in Federated Learning", AAAI 2024, Algorithm 1.

As in FedProto, clients upload the mean representation (prototype) P_i^c of each seen class. The server does not average
them: it trains a prototype a class, so that it is near the clients' prototypes of its class and far from the others'.
phi is the Euclidean distance, v^c a trainable vector, F two linear layers with a ReLU between them::

    P^c = F(v^c)
    delta = min(max over c != c' of phi(Q^c, Q^c'), tau)        Eq. 9, Q^c the mean of the round's uploads of class c
    L = -log(e^-(phi(P_i^c, P^c) + delta) / (e^-(phi(P_i^c, P^c) + delta) + sum over c' != c of e^-phi(P_i^c, P^c')))   Eq. 10
    L_i = CE + lambda * phi(f, P^y)                             Eq. 11, what a client trains by

Down: the prototypes of all classes; up: those of the client's seen classes, with their class ids. Models stay local
and only the representation's width must be equal.

Where this file differs. Eq. 11 has the distance of the client's class means; here, as in the authors' code, it is the
mean distance of the images (no less, by the triangle inequality). Algorithm 1 sends the untrained prototypes in round
0; here a class has none before somebody has uploaded one, and its images no distance. The text says S server epochs,
but neither their rate nor batches: the clients' printed rate, and B. The authors' code takes for delta the largest of
the classes' distances to their nearest class, in place of the largest of all; it has the mean squared error in Eq. 11's
place, and lambda = 10 with it (`distance=mse`). They predict by the nearest prototype, which is recorded as
`prototype_accuracy` beside the classifier's `accuracy`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..fields import setting
from ..models import Model
from ..randomness import fork_torch
from ..training import class_means
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload
from .fedproto import by_classifier_and_nearest_prototype, global_prototypes


class TrainablePrototypes(nn.Module):
    """P^c = F(v^c) of all classes: (C, d)."""

    def __init__(self, num_classes: int, width: int):
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(num_classes, width))
        self.processor = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self) -> Tensor:
        return self.processor(self.vectors)


def distances(one: Tensor, other: Tensor) -> Tensor:
    """phi of each row of `one` (n, d) from each of `other` (m, d): (n, m)."""
    return torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")


def adaptive_margin(prototypes: Tensor, classes: Tensor, num_classes: int, tau: float) -> Tensor:
    """Eq. 9 of a round's uploads, prototypes (n, d) of classes (n,); 0 where they are all of one class."""
    member = (classes == torch.arange(num_classes, device=classes.device)[:, None]).to(prototypes.dtype)  # (C, n)
    counts = member.sum(1)
    centres = member @ prototypes / counts.clamp(min=1)[:, None]  # Q
    both = (counts > 0)[:, None] & (counts > 0)
    return (distances(centres, centres) * both).amax().clamp(max=tau)


def contrastive_loss(trained: Tensor, prototypes: Tensor, classes: Tensor, margin: Tensor) -> Tensor:
    """Eq. 10, a mean over the uploads; trained (C, d), prototypes (n, d), classes (n,)."""
    own = classes[:, None] == torch.arange(len(trained), device=classes.device)
    return F.cross_entropy(-(distances(prototypes, trained) + margin * own), classes)


def guided_loss(
    model: Model, images: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor, weight: float, distance: str
) -> Tensor:
    """Eq. 11; prototypes: (C, d), known: (C,) 1 where there is one, else 0."""
    features = model.extractor(images)  # (n, d)
    apart = features - prototypes[labels]
    phi = apart.norm(dim=1) if distance == "euclidean" else apart.square().mean(1)
    return F.cross_entropy(model.header(features), labels) + weight * (phi * known[labels]).mean()


@dataclass(frozen=True)
class FedTGP(Algorithm):
    """lam: weight of the distance, >= 0; 0 is Standalone. Default 0.1 (the text).
    tau: largest margin, >= 0. Default 100 (the text).
    server_epochs: S, >= 1. Default 100 (the text). server_lr: their rate, >= 0. Default 0.01 (the text's eta).
    distance: of Eq. 11, `euclidean` (the default, the text) or `mse` (the authors' code).
    """

    name = "FedTGP"
    paper = "Zhang et al., AAAI 2024"
    exchanges = "trained prototypes down, class means of representations up"
    needs = "features"
    uncounted = ("classes",)
    look = Look("#6a3d9a", "D")

    lam: float = setting(0.1, ge=0)
    tau: float = setting(100.0, ge=0)
    server_epochs: int = setting(100, ge=1)
    server_lr: float = setting(0.01, ge=0)
    distance: str = setting("euclidean", choices=("euclidean", "mse"))

    def init_server(self, context: ServerContext) -> ServerState:
        trained = self._trainable(context)
        return {
            "trainable": dict(trained.state_dict()),
            "prototypes": trained().detach(),
            "known": torch.zeros(context.num_classes, device=context.device),
        }

    def _trainable(self, context: ServerContext) -> TrainablePrototypes:
        with fork_torch(context.generator("server")):
            trained = TrainablePrototypes(context.num_classes, context.initial_header().in_features)
        return trained.to(context.device)

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        classes = torch.arange(context.num_classes, device=context.device)[server["known"] > 0]
        return Message({"classes": classes, "prototypes": server["prototypes"][classes]})

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        prototypes, known = global_prototypes(message, context)
        named: dict[str, Any] = {"prototypes": prototypes, "known": known}
        context.train(guided_loss, **named, weight=self.lam, distance=self.distance)
        client.state.update(classes=message["classes"], prototypes=message["prototypes"])
        means = class_means(client.model.extractor, client.pool, client.train, client.classes)  # Eq. 2
        return Message({"classes": client.classes, "prototypes": means}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        ordered = sorted(uploads, key=lambda upload: upload.info.id)  # the order of arrival decides nothing
        prototypes, classes = (
            torch.cat([message[name] for _, message in ordered]) for name in ("prototypes", "classes")
        )
        margin = adaptive_margin(prototypes, classes, context.num_classes, self.tau)
        trained = self._trainable(context)
        trained.load_state_dict(server["trainable"])
        optimiser = torch.optim.SGD(trained.parameters(), self.server_lr)
        stream = context.generator("server")
        orders = np.stack([stream.permutation(len(classes)) for _ in range(self.server_epochs)])
        for order in torch.from_numpy(orders).to(context.device):
            for batch in order.split(context.settings.batch_size):
                optimiser.zero_grad()
                contrastive_loss(trained(), prototypes[batch], classes[batch], margin).backward()
                optimiser.step()
        server["trainable"] = dict(trained.state_dict())
        server["prototypes"] = trained().detach()
        server["known"] = server["known"].index_fill(0, classes, 1.0)

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        return by_classifier_and_nearest_prototype(client, images)
