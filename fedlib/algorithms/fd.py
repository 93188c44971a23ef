"""FD (federated distillation): Jeong, Oh, Kim, Park, Bennis, Kim, "Communication-Efficient On-Device Machine Learning:
Federated Distillation and Augmentation under Non-IID Private Data", NeurIPS workshop 2018, Algorithm 1.

Clients upload their mean output, a softmax, for each seen class; client i downloads, for its seen classes, the mean
over the *other* clients, (sum_j F_j - F_i) / (M - 1), and on each image the distance of its output from the vector of
the image's class is added to the loss. Loss and distance are both cross-entropies of softmax outputs. Models stay
local and need only the classes in common. Down and up: an output a seen class, with its class id. gamma = 0 is
Standalone; an image whose class nobody else reported has CE alone (with one owner a class, every image).

Known disagreements. The best-known library has changed its distance twice: mean squared error of raw logits
(`distance=mse, outputs=logits`), CE with softmax(mean logits), and since 2025 CE with raw mean logits as target
(`distance=cross_entropy, outputs=logits`), which has no lower bound (a negative logit rewards driving its class's
probability to 0), diverges, and is kept to show it. It averages the client's own vector in (`exclude_self=False`),
forgets clients not selected this round (here each client's latest vectors count: the original has everyone in every
round) and collects outputs while training (here they are the trained model's). The papers report that FD mostly fails
to converge; that code is not public. The distance is as a published summary of the paper has it, "a cross-entropy
distillation regularizer" (sciencestack.ai/paper/1811.11479); the paper's own text was not at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..devices import widest
from ..fields import setting
from ..training import class_means
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


def fd_loss(
    model: nn.Module, images: Tensor, labels: Tensor,
    targets: Tensor, known: Tensor, gamma: float, distance: str, outputs: str,
) -> Tensor:  # fmt: skip
    """CE + gamma * distance from the image's class's row of targets (C, C); known: (C,) 1 where there is one, else 0.

    The distance is sum_c -target_c log softmax(output)_c, or the mean over classes of the squared difference.
    """
    logits = model(images)  # (n, C)
    if distance == "cross_entropy":
        apart = -(targets[labels] * F.log_softmax(logits, 1)).sum(1)  # (n,)
    else:
        apart = F.mse_loss(shown(logits, outputs), targets[labels], reduction="none").mean(1)
    return F.cross_entropy(logits, labels) + gamma * (apart * known[labels]).mean()


def shown(logits: Tensor, outputs: str) -> Tensor:
    """What is averaged and compared of logits (n, C): their softmax, or they themselves."""
    return logits.softmax(1) if outputs == "softmax" else logits


@dataclass(frozen=True)
class FD(Algorithm):
    """gamma: weight of the distance, >= 0; 0 is Standalone. Default 1 (peer libraries'; the paper gives none).
    distance: `cross_entropy` (the paper) or `mse`, see above.
    outputs: what is averaged and compared, `softmax` outputs (the paper) or raw `logits`.
    exclude_self: leave the client's own vectors out of what it downloads. Default true (Algorithm 1).
    """

    name = "FD"
    paper = "Jeong et al., NeurIPS workshop 2018"
    exchanges = "mean outputs of seen classes"
    uncounted = ("classes",)
    look = Look("#de8f05", "*")

    gamma: float = setting(1.0, ge=0)
    distance: str = setting("cross_entropy", choices=("cross_entropy", "mse"))
    outputs: str = setting("softmax", choices=("softmax", "logits"))
    exclude_self: bool = True

    def init_server(self, context: ServerContext) -> ServerState:
        zeros = torch.zeros(
            context.num_classes, context.num_classes, dtype=widest(context.device), device=context.device
        )
        return {"contributions": {}, "sum": zeros, "owners": zeros[0].clone()}

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        total, owners = server["sum"].clone(), server["owners"].clone()
        sent = server["contributions"].get(info.id)
        if self.exclude_self and sent is not None:
            total[sent["classes"]] -= sent["outputs"]
            owners[sent["classes"]] -= 1
        classes = info.classes[owners[info.classes] > 0]
        return Message({"classes": classes, "outputs": (total[classes] / owners[classes, None]).float()})

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        targets = torch.zeros(context.num_classes, context.num_classes, device=context.device)
        known = torch.zeros(context.num_classes, device=context.device)
        targets[message["classes"]], known[message["classes"]] = message["outputs"], 1.0
        named: dict[str, Any] = {"gamma": self.gamma, "distance": self.distance, "outputs": self.outputs}
        context.train(fd_loss, targets=targets, known=known, **named)

        def outputs(images: Tensor) -> Tensor:
            return shown(client.model(images), self.outputs)

        means = class_means(outputs, client.pool, client.train, client.classes)
        return Message({"classes": client.classes, "outputs": means}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        for info, message in uploads:  # its latest vectors in the place of those before
            before = server["contributions"].get(info.id)
            if before is not None:
                server["sum"][before["classes"]] -= before["outputs"]
                server["owners"][before["classes"]] -= 1
            server["sum"][message["classes"]] += message["outputs"]
            server["owners"][message["classes"]] += 1
            server["contributions"][info.id] = message.tensors
