"""FCCL: Huang, Ye, Du, "Learn from Others and Be Yourself in Heterogeneous Federated Learning", CVPR 2022, Algorithm 1.

Clients share unlabelled public images. Collaborative step: the cross-correlation M of a client's logits with the
clients' mean logits, both standardised over the batch, is driven to 1 on the diagonal (same class) and -1 off it.
Local step: CE on the client's images, plus KL to the model as it was pretrained on them (intra) and as it was at the
end of its last round (inter). Models stay local and need only the classes in common. Down: the mean logits and the
indices of their images; up: logits on this round's public subset.

The exchange is split over two rounds as in FedMD, so the mean holds each client's logits at the end of its last
round, the own ones too; the authors' first code has that mixture (others' current logits, own previous ones), their
second the plain mean. Standardising divides by sqrt(variance + 1e-5): a class whose logits do not vary over the batch
gives zeros, not NaN as in the authors' code. Their Adam at 1e-3 is the run's optimiser at that rate for the
collaborative step: sums over M's entries, not means, blow up the logits under SGD at 0.01 with 100 classes. The local
step has the run's rate.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import training
from ..fields import setting
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


def standardise(logits: Tensor) -> Tensor:
    """(n, C), each column with mean 0 and variance 1 over the batch; 0 where it does not vary."""
    logits = logits.float() - logits.float().mean(0)
    return logits / (logits.square().mean(0) + 1e-5).sqrt()


def correlation_loss(
    model: nn.Module, images: Tensor, labels: Tensor, consensus: Tensor, off_diagonal: float
) -> Tensor:
    """sum_i (M_ii - 1)^2 + lambda * sum_{i != j} (M_ij + 1)^2; labels: each image's row of consensus (P, C)."""
    correlation = standardise(model(images)).T @ standardise(consensus[labels]) / len(images)  # M, (C, C)
    diagonal = correlation.diagonal()
    off = (correlation + 1).square().sum() - (diagonal + 1).square().sum()
    return (diagonal - 1).square().sum() + off_diagonal * off


def local_loss(
    model: nn.Module, images: Tensor, labels: Tensor,
    pretrained: nn.Module, previous: nn.Module, intra: float, inter: float,
) -> Tensor:  # fmt: skip
    """CE + intra * KL(pretrained || model) + inter * KL(previous || model)."""
    output = model(images)
    from_pretrained = intra * training.kl_divergence(pretrained(images), output)
    loss = F.cross_entropy(output, labels) + from_pretrained
    return loss + inter * training.kl_divergence(previous(images), output)


@dataclass(frozen=True)
class FCCL(Algorithm):
    """off_diagonal: lambda, >= 0. Default 0.0051 (authors' code).
    intra, inter: weights of the two KL terms, >= 0. Default 1 and 1 (authors' code).
    public_samples, public_epochs: images of each round's public subset and epochs on it, >= 1. Default 5000 and 1
    (authors' code), or all there are.
    public_lr: rate of the collaborative step, >= 0. Default 0.001 (authors' code, with Adam).
    pretrain_epochs: epochs on the own images before the first round, >= 1. Default 1 (*chosen* for short runs: the
    code has 50, the text no number). None of them counts among E.
    """

    name = "FCCL"
    paper = "Huang et al., CVPR 2022"
    exchanges = "logits on public images"
    public_data = "unlabelled"
    uncounted = ("indices",)
    look = Look("#fbafe4", "H")

    off_diagonal: float = setting(0.0051, ge=0)
    intra: float = setting(1.0, ge=0)
    inter: float = setting(1.0, ge=0)
    public_samples: int = setting(5000, ge=1)
    public_epochs: int = setting(1, ge=1)
    public_lr: float = setting(0.001, ge=0)
    pretrain_epochs: int = setting(1, ge=1)

    def init_client(self, client: Client, context: ClientContext) -> None:
        context.train(purpose="pretrain", epochs=self.pretrain_epochs)
        client.state["pretrained"] = copy.deepcopy(client.model.state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))  # empty in round 0

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        pretrained, previous = context.build(client.info.architecture), copy.deepcopy(client.model)
        pretrained.load_state_dict(client.state["pretrained"])
        if message.tensors:
            pool, indices = context.public.pool.numbered(message["indices"]), message["indices"]
            settings = replace(context.settings, epochs=self.public_epochs, lr=self.public_lr)
            stream = context.generator("public")
            named = {"consensus": message["consensus"], "off_diagonal": self.off_diagonal}
            training.train(correlation_loss, {"model": client.model}, pool, indices, settings, stream, named)
        context.train(local_loss, pretrained=pretrained, previous=previous, intra=self.intra, inter=self.inter)
        indices = context.public.sample(self.public_samples, context.shared_generator("server"))
        return Message({"logits": training.outputs(client.model, context.public.pool, indices)}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        server["consensus"] = torch.stack([message["logits"] for _, message in uploads]).mean(0)
        server["indices"] = context.public.sample(self.public_samples, context.shared_generator("server"))
