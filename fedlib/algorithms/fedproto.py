"""FedProto: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous
Clients", AAAI 2022, Algorithm 1.

Clients upload the mean representation (prototype) of each seen class; the server averages them by class; local
training pulls representations towards the global prototype of their class. Models stay local and only the
representation's width must be equal. Down and up: prototypes of the client's seen classes with their class ids.

Known disagreements. The paper weights owners by their share of the class's images, ``|D_ij| / N_j`` (Eq. 6,
`weighted=True`, weights that sum to 1); its code, and our default, take the unweighted mean. The paper's distance is
unspecified up to scale; its code, and this file, use the mean squared error over batch and features (the squared L2
distance is d times larger). A sample whose class has no global prototype yet has zero distance. A class that no
selected client holds this round keeps its prototype: forgetting it, as some libraries do, would make the loss depend
on who was sampled last. Both ways of predicting are recorded: `accuracy` of the classifier and `prototype_accuracy` of
the nearest global prototype among the client's own classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..fields import setting
from ..models import Model
from ..training import by_class, class_means
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


def prototype_loss(
    model: Model, images: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor, weight: float
) -> Tensor:
    """Eq. 8: CE + lambda * distance to the global prototype; prototypes: (C, d), known: (C,) 1 where there is one,
    else 0.
    """
    features = model.extractor(images)  # (n, d)
    distance = F.mse_loss(features, prototypes[labels], reduction="none").mean(1) * known[labels]  # (n,)
    return F.cross_entropy(model.header(features), labels) + weight * distance.mean()


def global_prototypes(message: Message, context: ClientContext) -> tuple[Tensor, Tensor]:
    """Those that came down, in their classes' rows (C, d), and known (C,): 1 of a class that has one, else 0."""
    prototypes = torch.zeros(context.num_classes, context.client.model.header.in_features, device=context.device)
    known = torch.zeros(context.num_classes, device=context.device)
    prototypes[message["classes"]], known[message["classes"]] = message["prototypes"], 1.0
    return prototypes, known


def by_classifier_and_nearest_prototype(client: Client, images: Tensor) -> dict[str, Tensor]:
    """Logits (n, C) of the classifier and, where `client.state` has prototypes, less the distances from those."""
    features = client.model.extractor(images)
    prediction = {"accuracy": client.model.header(features)}
    if len(client.state.get("classes", ())):
        nearest = torch.full_like(prediction["accuracy"], -torch.inf)
        nearest[:, client.state["classes"]] = -torch.cdist(features.float(), client.state["prototypes"]).to(
            nearest.dtype
        )
        prediction["prototype_accuracy"] = nearest
    return prediction


@dataclass(frozen=True)
class FedProto(Algorithm):
    """lam: weight of the prototype term, >= 0; 0 is Standalone. Default 1 as in the authors' code (their README: 0.1
    on CIFAR-10).
    weighted: average owners by their numbers of images of the class (Eq. 6), which then go up with the prototypes,
    instead of all alike. Default false (authors' code).
    """

    name = "FedProto"
    paper = "Tan et al., AAAI 2022"
    exchanges = "prototypes of seen classes"
    needs = "features"
    uncounted = ("classes", "counts")
    look = Look("#029e73", "^", "-.")

    lam: float = setting(1.0, ge=0)
    weighted: bool = False

    def init_server(self, context: ServerContext) -> ServerState:
        width = context.initial_header().in_features
        return {
            "prototypes": torch.zeros(context.num_classes, width, device=context.device),
            "known": torch.zeros(context.num_classes, device=context.device),
        }

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        classes = info.classes[server["known"][info.classes] > 0]
        return Message({"classes": classes, "prototypes": server["prototypes"][classes]})

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        prototypes, known = global_prototypes(message, context)
        context.train(prototype_loss, prototypes=prototypes, known=known, weight=self.lam)
        client.state.update(classes=message["classes"], prototypes=message["prototypes"])
        means = class_means(client.model.extractor, client.pool, client.train, client.classes)  # Eq. 3
        upload = {"classes": client.classes, "prototypes": means}
        if self.weighted:
            upload["counts"] = client.pool.labels[client.train].bincount()[client.classes]  # |D_ij|
        return Message(upload, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        classes, prototypes = (
            torch.cat([message[name] for _, message in uploads]) for name in ("classes", "prototypes")
        )
        counts = torch.ones(len(classes), device=context.device)
        if self.weighted:
            counts = torch.cat([message["counts"] for _, message in uploads]).float()
        for s, (owned, means) in enumerate(by_class(classes, context.num_classes, counts, prototypes)):
            if len(owned):  # Eq. 6, or with equal weights; owned: |D_ij| of the owners i, N_j is their sum
                server["prototypes"][s], server["known"][s] = (owned[:, None] * means).sum(0) / owned.sum(), 1.0

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        return by_classifier_and_nearest_prototype(client, images)
