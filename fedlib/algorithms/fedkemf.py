"""FedKEMF: Yu, Qian, Jannesari, "Resource-Aware Federated Learning using Knowledge Extraction and Multi-Model Fusion",
2022.

Each client trains its own model together with a small knowledge network of one architecture for all, by deep mutual
learning: each has CE and learns from the other's outputs. The clients' knowledge networks are an ensemble whose mean
softmax the server distils, on public images, into the global knowledge network as it was last round; weights are not
averaged. Models stay local and need only the classes in common. Down and up: the knowledge network. The client's own
model is evaluated.

Known disagreements. Deep mutual learning and ensemble distillation are KL divergences (`distance=kl`, our default).
The authors' code uses mean squared errors: of the two networks' raw logits on the clients, with neither side detached
(weight 2 here), and of the teacher's probabilities against softmax(student / T), times T^2 with T = 20, on the server
(`distance=mse`). pFedHR's Table 1 calls the method unlabelled, as it is by default; the authors' code uses the labels
of 5000 images, drawn from the clients' own training set (`label_weight=0.5`), a cosine rate and ResNet-20.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import models, training
from ..fields import setting
from .base import (
    Algorithm,
    Client,
    ClientContext,
    ClientInfo,
    Federation,
    Look,
    Message,
    ServerContext,
    ServerState,
    Upload,
    check_public_labels,
)


def mutual_loss(
    model: nn.Module, knowledge: nn.Module, images: Tensor, labels: Tensor, weight: float, distance: str
) -> Tensor:
    """CE of both + weight * (KL of each from the other, which is detached, or MSE of their logits)."""
    logits, known = model(images), knowledge(images)
    if distance == "kl":
        gap = training.kl_divergence(known, logits) + training.kl_divergence(logits, known)
    else:
        gap = F.mse_loss(logits, known)
    return F.cross_entropy(logits, labels) + F.cross_entropy(known, labels) + weight * gap


def distil_loss(
    student: nn.Module, images: Tensor, labels: Tensor,
    teacher: Tensor, classes: Tensor, label_weight: float, temperature: float,
) -> Tensor:  # fmt: skip
    """(1 - w) * distance + w * CE; labels: each image's row of teacher (P, C, probabilities) and of classes (P,).

    The distance is KL(teacher || student), or T^2 * MSE(teacher, softmax(student / T)) at a temperature T > 0.
    """
    logits, target = student(images), teacher[labels]
    if temperature:
        distance = temperature**2 * F.mse_loss((logits / temperature).softmax(1), target)
    else:
        distance = F.kl_div(F.log_softmax(logits, 1), target, reduction="batchmean")
    loss = (1 - label_weight) * distance
    return loss + label_weight * F.cross_entropy(logits, classes[labels]) if label_weight else loss


@dataclass(frozen=True)
class FedKEMF(Algorithm):
    """knowledge: architecture of the knowledge network. Default CNN-5 (*chosen*: the papers' small shared model).
    weight: of the mutual term, >= 0; 0 is Standalone. Default 1.
    distance: `kl` or `mse`, see above. temperature: T of the server's `mse`, > 0. Default 20 (authors' code).
    server_epochs: epochs on the public images, >= 0; 0, the default, is E (authors' code).
    public_samples: of them a round, >= 1. Default 5000 (authors' code), or all there are.
    label_weight: w, weight of the public labels, in [0, 1). Default 0: unlabelled.
    """

    name = "FedKEMF"
    paper = "Yu et al., 2022"
    exchanges = "small knowledge network"
    public_data = "unlabelled"
    look = Look("#cdbb00", "P")

    knowledge: str = setting("CNN-5", choices=models.BUILDERS)
    weight: float = setting(1.0, ge=0)
    distance: str = setting("kl", choices=("kl", "mse"))
    temperature: float = setting(20.0, gt=0)
    server_epochs: int = setting(0, ge=0, note="0: E")
    public_samples: int = setting(5000, ge=1)
    label_weight: float = setting(0.0, ge=0, lt=1)

    def check(self, federation: Federation) -> None:
        super().check(federation)
        if self.label_weight and federation.public is not None:
            check_public_labels(self.name, federation.public, federation.num_classes)

    def init_server(self, context: ServerContext) -> ServerState:
        sample, stream = context.sample, context.generator("server")  # not the clients' initial state,
        network = models.build(self.knowledge, context.num_classes, sample, stream)  # or equals would stay equal
        return dict(network.to(context.device).state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        knowledge = context.build(self.knowledge)
        knowledge.load_state_dict(message.tensors)
        networks = {"model": client.model, "knowledge": knowledge}
        context.train(mutual_loss, networks, weight=self.weight, distance=self.distance)
        return Message(knowledge.state_dict(), client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        stream, pool = context.generator("server"), context.public.pool
        indices = context.public.sample(self.public_samples, stream)
        teacher = torch.zeros(len(indices), context.num_classes, device=context.device)
        network = context.build(self.knowledge)
        for _, message in uploads:  # the mean of the softmax outputs
            network.load_state_dict(message.tensors)
            teacher += training.outputs(network, pool, indices).softmax(1) / len(uploads)
        network.load_state_dict(server)
        named = {
            "teacher": teacher,
            "classes": pool.labels[indices],
            "label_weight": self.label_weight,
            "temperature": self.temperature if self.distance == "mse" else 0.0,
        }
        settings = replace(context.settings, epochs=self.server_epochs or context.settings.epochs)
        training.train(distil_loss, {"student": network}, pool.numbered(indices), indices, settings, stream, named)
        server.update(network.state_dict())
