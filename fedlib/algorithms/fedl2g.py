"""FedL2G: Zhang, Liu, Hua, Cao, Yang, "FedL2G: Learning to Guide Local Training in Heterogeneous Federated Learning", 2024
(arXiv 2410.06490), Algorithm 1.

The server holds a guiding vector v^c a class, which clients' outputs are pulled towards. It is no mean of anything: it
is trained so that a step towards it makes a client's own loss smaller on images that the step has not seen. With g(x)
the logits (FedL2G-l) or the representation (FedL2G-f) of an image, S the client's study images and Q its quiz images::

    l_S(theta, v) = CE on S + mean squared error of g(x) and v^y on S          what a client trains by
    theta'(v) = theta - eta * grad_theta l_S(theta, v)                         one step on a batch, which is not kept
    pi = grad_v CE(theta'(v)) on Q
    v^c <- v^c - eta_s * mean of the pi^c of the clients that have c in their batch

With the mean squared error, pi^c = 2 eta / (n m) * sum over the batch's x of class c of J_g(x) grad_theta' CE on Q, where g has m
numbers: it needs first derivatives alone. Here autograd takes it through the step. In the first, warm-up, rounds clients
send pi and do not train; their loss is then the CE on Q.

Down: the guiding vectors of the client's seen classes; up: their pi. Models stay local; FedL2G-f needs representations
of one width. Evaluated is the client's model after local training.

Q is a share of the training images, drawn once a client and kept out of its training (the authors: a batch of 10
images); validation images stay for choosing a round. The text warms up for 50 of its 1000 rounds, here the same share of any
number. The step is plain SGD at the run's rate, in evaluation (no dropout) and in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from .. import training
from ..errors import FedlibError
from ..fields import setting
from ..randomness import fork_torch
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
)


def guided_loss(model: nn.Module, images: Tensor, labels: Tensor, guides: Tensor, space: str) -> Tensor:
    """l_S; guides: (C, m)."""
    logits, g = outputs(model, images, space)
    return F.cross_entropy(logits, labels) + F.mse_loss(g, guides[labels].to(g.dtype))


def outputs(model: Any, images: Tensor, space: str) -> tuple[Tensor, Tensor]:
    """Logits (n, C) and what is guided (n, m): these, or the representations."""
    features = model.extractor(images)
    logits = model.header(features)
    return logits, logits if space == "logits" else features


def quiz(
    model: nn.Module, study: tuple[Tensor, Tensor], quiz: tuple[Tensor, Tensor], guides: Tensor, eta: float, space: str
) -> tuple[Tensor, Tensor]:
    """CE(theta'(v)) on the quiz batch, and pi, its slope at the guides (C, m); study, quiz: images and labels."""
    guides = guides.clone().requires_grad_()
    parameters = dict(model.named_parameters())
    with sdpa_kernel(SDPBackend.MATH):  # the one attention whose gradient can be differentiated again
        loss = guided_loss(model, *study, guides, space)
    slopes = torch.autograd.grad(loss, [*parameters.values()], create_graph=True)
    moved = {name: parameter - eta * slope for (name, parameter), slope in zip(parameters.items(), slopes, strict=True)}
    found = F.cross_entropy(functional_call(model, moved, (quiz[0],)), quiz[1])
    try:
        return found.detach(), torch.autograd.grad(found, guides)[0]
    except RuntimeError as error:  # torch's, of a layer such as MobileNet-V3's hardsigmoid
        if "is not implemented" not in str(error):
            raise
        said = f"needs second derivatives, and a layer of the network has none ({str(error).split(' is not')[0]})"
        raise FedlibError(f"algorithm = 'FedL2G': {said}") from None


@dataclass(frozen=True)
class FedL2G(Algorithm):
    """space: what is guided, `logits` (the default: any networks) or `features`, of one width for all.
    server_lr: eta_s, >= 0; 0, the default, is 0.1 of logits and 100 of features (the authors' scripts).
    warm_up: share of the rounds without training, in [0, 1). Default 0.05 (50 of the text's 1000).
    quiz_share: of a client's training images, in (0, 1). Default 0.1 (*chosen*).
    """

    name = "FedL2G"
    paper = "Zhang et al., 2024"
    exchanges = "guiding vectors of seen classes down, their gradients up"
    uncounted = ("present",)
    look = Look("#8c564b", "^", "--")

    space: str = setting("logits", choices=("logits", "features"))
    server_lr: float = setting(0.0, ge=0, note="0: 0.1 of logits, 100 of features")
    warm_up: float = setting(0.05, ge=0, lt=1)
    quiz_share: float = setting(0.1, gt=0, lt=1)

    def check(self, federation: Federation) -> None:
        super().check(federation)
        if self.space == "features":
            self.check_widths(federation)

    def init_server(self, context: ServerContext) -> ServerState:
        header = context.initial_header()
        width = context.num_classes if self.space == "logits" else header.in_features
        with fork_torch(context.generator("server")):
            return {"guides": torch.randn(context.num_classes, width).to(context.device)}

    def init_client(self, client: Client, context: ClientContext) -> None:
        """A client's quiz and study images; an only one is both."""
        order = torch.from_numpy(context.generator("pretrain").permutation(client.num_samples))
        order = client.train[order.to(client.train.device)]
        held_out = max(1, min(int(self.quiz_share * len(order) + 0.5), len(order) - 1))
        client.state["quiz"], client.state["study"] = order[:held_out], order[held_out:] if len(order) > 1 else order

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message({"guides": server["guides"][info.classes]})

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        settings, pool, augment = context.settings, client.pool, context.augment
        received = message["guides"]
        guides = received.new_zeros(context.num_classes, received.shape[1]).index_copy(0, client.classes, received)
        study, held_out = client.state["study"], client.state["quiz"]
        loss = None
        if context.round >= int(self.warm_up * context.rounds + 0.5):
            stream, named = context.generator("batches"), {"guides": guides, "space": self.space}
            modules = {"model": client.model}
            loss = training.train(guided_loss, modules, pool, study, settings, stream, named, augment=augment)
        stream = context.generator("method")
        settings = replace(settings, epochs=settings.epochs or 1)
        images, labels = next(training.batches(pool, study, settings, stream, augment))
        asked, answers = next(training.batches(pool, held_out, settings, stream))
        both = (_float32(images), labels), (_float32(asked), answers)
        found, gradients = quiz(client.model, *both, guides, settings.lr, self.space)
        present = (labels == client.classes[:, None]).any(1).float()
        diagnostics: dict[str, float | Tensor] = {"loss": found if loss is None else loss, "quiz_loss": found}
        return Message({"gradients": gradients[client.classes], "present": present}, diagnostics=diagnostics)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        guides, classes = server["guides"], torch.cat([info.classes for info, _ in uploads])
        gradients, present = (torch.cat([message[name] for _, message in uploads]) for name in ("gradients", "present"))
        total = torch.zeros_like(guides).index_add(0, classes, gradients * present[:, None])
        owners = torch.zeros_like(guides[:, 0]).index_add(0, classes, present)
        rate = self.server_lr or (0.1 if self.space == "logits" else 100.0)
        server["guides"] = guides - rate * total / owners.clamp(min=1)[:, None]


def _float32(images: Tensor) -> Tensor:
    return images.float() if images.is_floating_point() else images
