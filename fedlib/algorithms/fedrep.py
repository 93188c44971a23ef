"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", ICML 2021, Algorithm 1.

As in FedPer the extractor (phi) is averaged and the header (h) stays, so all clients need one extractor; but they are
trained one after the other, the header first and for longer, so that the extractor is trained for headers that fit it::

    h_k <- tau_h epochs on CE(h_k(phi(x)), y), phi as it came down
    phi_k <- epochs on CE(h_k(phi_k(x)), y), h_k as it is now
    phi <- mean of the round's phi_k, unweighted

Down and up: the extractor. Evaluated is the client's model after local training.

tau_h is in the text a number of updates; in its experiments, and here, of epochs: 10 of the header and 1 or 5 of the
extractor, which here has the run's E. So a round computes more than another method's of E epochs. The extractor is in
evaluation while the header is trained (no dropout, batch normalisation at rest).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..fields import setting
from ..training import mean
from .base import Client, ClientContext, Look, Message, ServerContext, ServerState, Upload
from .fedper import FedPer


def split_loss(header: nn.Module, extractor: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """CE of the two parts of a model; which of them is trained is the caller's choice."""
    return F.cross_entropy(header(extractor(images)), labels)


@dataclass(frozen=True)
class FedRep(FedPer):
    """head_epochs: tau_h, epochs of the header alone, >= 0. Default 10 (the text's experiments)."""

    name = "FedRep"
    paper = "Collins et al., ICML 2021"
    exchanges = "extractor"
    look = Look("#00452f", ">", "--")

    head_epochs: int = setting(10, ge=0)

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        extractor, header = client.model.extractor, client.model.header
        extractor.load_state_dict(message.tensors)
        context.train(split_loss, {"header": header}, "method", self.head_epochs, extractor=extractor)
        context.train(split_loss, {"extractor": extractor}, header=header)
        return Message(extractor.state_dict(), client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        for name in server:
            server[name] = mean([message[name] for _, message in uploads])
