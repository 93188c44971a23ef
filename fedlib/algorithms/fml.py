"""FML: Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu, "Federated Mutual Learning", 2020 (arXiv 2006.16765).

A client trains its own model and a copy of the shared small model (the "meme") side by side; each fits the labels and
the other's predictions:

    L_model  = alpha * CE + (1 - alpha) * KL(shared || model)
    L_shared = beta * CE + (1 - beta) * KL(model || shared)

The partner is a constant in each loss (detached) and the KL is a mean over the batch, not over batch and classes. The
server takes the unweighted mean of the shared models, as the authors' code does. Down and up: the shared model.
Evaluated is the client's own. alpha = 1 is Standalone, to the bit.

With `score_shared` the shared model is scored on the client's test images, too: `shared_accuracy`, as the client has
just trained it, and `received_accuracy`, as it came from the server. No weight depends on it.

The shared model is CNN-5, which FedGH's and FedSSA's texts say for heterogeneous clients; they say nothing for
homogeneous ones (all CNN-1), where it is CNN-5 too. It has an initial state of its own, or else a CNN-5 client's two
networks would start, and stay, equal. Known disagreements: HtFLlib divides the KL by C as well, does not detach and
ships alpha = beta = 1 (no mutual learning); the authors' main.py has fork and merge commented out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from .. import models
from ..fields import later, setting
from ..training import kl_divergence, mean
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload

SCORES = ("shared_accuracy", "received_accuracy")  # of the shared model, see `keep_shared`


def mutual_loss(
    model: nn.Module, shared: nn.Module, images: Tensor, labels: Tensor, alpha: float, beta: float
) -> Tensor:
    """L_model + L_shared; with the partners detached, each network gets the gradient of its own loss only."""
    logits, shared_logits = model(images), shared(images)
    loss_model = alpha * F.cross_entropy(logits, labels) + (1 - alpha) * kl_divergence(shared_logits, logits)
    loss_shared = beta * F.cross_entropy(shared_logits, labels) + (1 - beta) * kl_divergence(logits, shared_logits)
    return loss_model + loss_shared


def keep_shared(client: Client, trained: Mapping[str, Tensor], received: Mapping[str, Tensor]) -> None:
    """Keep the shared model's weights, by the name of its accuracy, for `shared_logits`."""
    client.state["scored"] = dict(zip(SCORES, (dict(trained), dict(received)), strict=True))


def shared_logits(client: Client, architecture: str, images: Tensor) -> dict[str, Tensor]:
    """Logits (n, C) of what `keep_shared` kept of the shared model, which is an `architecture`; none where it kept nothing."""
    found = {}
    for name, weights in client.state.get("scored", {}).items():
        network = client.build(architecture)
        network.load_state_dict(weights)
        found[name] = network(images)
    return found


@dataclass(frozen=True)
class FML(Algorithm):
    """alpha, beta: weight of the labels against the partner for the client's and the shared model, in [0, 1]. Default
    0.5 (the authors' code);
    shared: architecture of the shared model. Default CNN-5 (FedGH, section 5.2.2);
    score_shared: score the shared model, too (see above). Default false.
    """

    name = "FML"
    paper = "Shen et al., 2020"
    exchanges = "small shared model"
    look = Look("#cdbb00", "v")

    alpha: float = setting(0.5, ge=0, le=1)
    beta: float = setting(0.5, ge=0, le=1)
    shared: str = setting("CNN-5", choices=models.BUILDERS)
    score_shared: bool = later(False, neutral=False)

    def init_server(self, context: ServerContext) -> ServerState:
        sample, stream = context.sample, context.generator("server")
        network = models.build(self.shared, context.num_classes, sample, stream)
        return dict(network.to(context.device).state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        shared = context.build(self.shared)
        shared.load_state_dict(message.tensors)
        networks = {"model": client.model, "shared": shared}
        context.train(mutual_loss, networks, alpha=self.alpha, beta=self.beta)
        if self.score_shared:
            keep_shared(client, shared.state_dict(), message.tensors)
        return Message(shared.state_dict())

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        for name in server:
            server[name] = mean([message[name] for _, message in uploads])

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        return super().predict(client, images) | shared_logits(client, self.shared, images)
