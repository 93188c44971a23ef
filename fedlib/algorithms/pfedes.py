"""pFedES: Yi, Yu, Wang, Liu, "pFedES: Model Heterogeneous Personalized Federated Learning with Feature Extractor
Sharing", 2023, Algorithm 1.

Clients share a small proxy extractor G that turns an image into an enhanced image of the same shape; their models F
stay local. Step 1 freezes G and trains F on raw and enhanced images (Eq. 5, 6); step 2 freezes F and trains G on the
enhanced ones (Eq. 8, 9); the server averages G (Eq. 10). Down and up: G, 443 floats for three channels. F alone, on
raw images, is evaluated. mu = 0 is Standalone.

A frozen network takes no gradient (no parameter of it needs one), so the two steps cost 8 forward passes of F, not
10. Optimisers are fresh for each step, client and round; the released code keeps the extractor's momentum across
clients and rounds. n in Eq. 10 is the data of the selected clients; with all N clients' data, as printed, the
weights would not sum to 1. The extractor is not drawn in our copy of the paper: 3x3, 8 filters and a ReLU after both
convolutions are the released code's; on normalised images that output cannot be negative, so `linear` is the switch.
The paper tunes mu and E_fe (section 6.1), and its Figure 10 finds the smallest of both best: 0.1 and 5, the defaults.
The released scripts ship 0.5, and E + 10 (heterogeneous) or E (homogeneous).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..fields import setting
from ..models import proxy_extractor
from ..randomness import fork_torch
from ..training import batch_norms, weighted_mean
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


def mixed_loss(model: nn.Module, images: Tensor, labels: Tensor, extractor: nn.Module, mu: float) -> Tensor:
    """Eq. 5: mu * CE on enhanced images + (1 - mu) * CE on raw images, which pass through the model side by side unless
    that would mix them in a batch's statistics.
    """
    if mu == 0:
        return F.cross_entropy(model(images), labels)
    if batch_norms([model]):
        enhanced, raw = model(extractor(images)), model(images)
    else:
        enhanced, raw = model(torch.cat([extractor(images), images])).chunk(2)
    return mu * F.cross_entropy(enhanced, labels) + (1 - mu) * F.cross_entropy(raw, labels)


def enhanced_loss(extractor: nn.Module, images: Tensor, labels: Tensor, model: nn.Module) -> Tensor:
    """Eq. 8: CE of the model on enhanced images."""
    return F.cross_entropy(model(extractor(images)), labels)


@dataclass(frozen=True)
class PFedES(Algorithm):
    """mu: weight of the enhanced images, in [0, 1]; the paper's range is (0, 0.5]. Default 0.1 (best of Figure 10).
    extractor_epochs: E_fe, epochs of step 2, >= 0; 0 is E + extra_epochs. Default 5 (best of Figure 10).
    extra_epochs: k of E_fe = E + k, >= 0, read where extractor_epochs is 0. Default 0; the released heterogeneous
    script has 10.
    output: last activation of the extractor, `relu` (the default, released code) or `linear`.
    """

    name = "pFedES"
    paper = "Yi et al., 2023"
    exchanges = "proxy feature extractor"
    needs = "images"
    look = Look("#d55e00", "d")

    mu: float = setting(0.1, ge=0, le=1)
    extractor_epochs: int = setting(5, ge=0)
    extra_epochs: int = setting(0, ge=0)
    output: str = setting("relu", choices=("relu", "linear"))

    def init_server(self, context: ServerContext) -> ServerState:
        return dict(self._extractor(context).state_dict())

    def _extractor(self, context: ServerContext | ClientContext) -> nn.Module:
        with fork_torch(context.shared_generator("server")):
            extractor = proxy_extractor(context.channels, self.output)
        return extractor.to(context.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        extractor = self._extractor(context)
        extractor.load_state_dict(message.tensors)
        loss = context.train(mixed_loss, extractor=extractor, mu=self.mu)  # Eq. 6
        epochs = self.extractor_epochs or context.settings.epochs + self.extra_epochs
        context.train(enhanced_loss, {"extractor": extractor}, "method", epochs, model=client.model)  # Eq. 9
        return Message(extractor.state_dict(), client.num_samples, diagnostics={"loss": loss})  # the model's

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        weights = [message.num_samples for _, message in uploads]
        for name in server:  # Eq. 10, n over the selected clients
            server[name] = weighted_mean([message[name] for _, message in uploads], weights)
