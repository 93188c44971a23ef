"""FedMD: Li, Wang, "FedMD: Heterogeneous Federated Learning via Model Distillation", NeurIPS workshop
2019, Algorithm 1.

Clients share labelled public images, and agree on what to answer on them. Transfer learning: a client starts with
training on the public images, then on its own. Each round: digest (fit last round's consensus on its public subset by
the mean absolute error of the logits), revisit (train on the client's images), communicate (upload the logits on this
round's public subset, which the server averages). Models stay local and need only the classes in common. Down: the
consensus and the indices of its images; up: logits. The public labels serve the start only.

The exchange is split over two rounds: the consensus digested in round t is on the outputs of the end of round t - 1,
the same numbers as exchanging at the start of round t as long as everyone takes part. Server and clients draw the
subset from one shared stream. The text weights all clients alike; so do we. The authors' code uses Adam at 1e-3 and
stops the start early on the test set; here it is the run's optimiser, for a fixed number of epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import training
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
)


def digest_loss(model: nn.Module, images: Tensor, labels: Tensor, consensus: Tensor) -> Tensor:
    """Mean absolute error of the logits; labels: each image's row of consensus (P, C)."""
    return F.l1_loss(model(images), consensus[labels])


@dataclass(frozen=True)
class FedMD(Algorithm):
    """public_samples: images of each round's public subset, >= 1. Default 5000 (authors' code), or all there are.
    digest_epochs: epochs on the consensus, >= 1. Default 1 (authors' code).
    pretrain_epochs: epochs on the public, then on the own images before the first round; 0 for none. Default 1
    (*chosen* for short runs: the text says to convergence and gives no number, the code has 25). A client that trains
    for long should have more, and none of them counts among its E.
    """

    name = "FedMD"
    paper = "Li and Wang, NeurIPS workshop 2019"
    exchanges = "logits on public images"
    public_data = "labelled"
    uncounted = ("indices",)
    look = Look("#de8f05", "8")

    public_samples: int = setting(5000, ge=1)
    digest_epochs: int = setting(1, ge=1)
    pretrain_epochs: int = setting(1, ge=0)

    def check(self, federation: Federation) -> None:
        super().check(federation)
        if self.pretrain_epochs and federation.public is not None:  # which pretrains on the public images as on the own
            federation.protocol.check_augmentation("the public data set", federation.public.augment)

    def init_client(self, client: Client, context: ClientContext) -> None:
        if self.pretrain_epochs:
            settings = replace(context.settings, epochs=self.pretrain_epochs)
            stream, public = context.generator("pretrain"), context.public
            training.train(
                training.cross_entropy, {"model": client.model}, public.pool, public.indices, settings, stream,
                augment=context.augment,
            )  # fmt: skip
            context.train(purpose="pretrain", epochs=self.pretrain_epochs)

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))  # empty in round 0

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        if message.tensors:  # digest
            pool, indices = context.public.pool.numbered(message["indices"]), message["indices"]
            settings = replace(context.settings, epochs=self.digest_epochs)
            stream = context.generator("public")
            named = {"consensus": message["consensus"]}
            training.train(digest_loss, {"model": client.model}, pool, indices, settings, stream, named)
        context.train()  # revisit
        indices = context.public.sample(self.public_samples, context.shared_generator("server"))
        return Message({"logits": training.outputs(client.model, context.public.pool, indices)}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        server["consensus"] = torch.stack([message["logits"] for _, message in uploads]).mean(0)
        server["indices"] = context.public.sample(self.public_samples, context.shared_generator("server"))
