"""FedClassAvg as the FedSSA paper uses it: Jang, Ha, Jung, Yoon, "FedClassAvg: Local Representation Learning for
Personalized Federated Learning on Heterogeneous Neural Networks", ICPP 2022, Algorithm 1.

Extractors stay local and may differ; the headers are averaged over the selected clients, weighted by their numbers of
training images. The average replaces each client's header and local training is held near it by a proximal term. Its
own paper adds a supervised contrastive loss between two views of a batch, here an option. Down and up: the header,
d * C + C floats. With both weights 0 it is LG-FedAvg.

Known disagreements. FedSSA's text knows the proximal term but no replacement (`replace=False`), and not whether the
contrastive loss was on. The term's norm is squared and summed here; the authors' code takes the mean over a tensor's
entries (`reduction=mean`), d * C times weaker, under which 0.1 does next to nothing. Their header is ReLU and Linear,
the optimiser Adam at 1e-4; here the last linear layer and the run's. Their contrastive loss has temperature 100, a
scale of 100 / 0.07, raw features and SimCLR's augmentations; here the usual one, between images and mirror images.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..fields import setting
from ..models import Model
from .base import Client, ClientContext, Look, Message
from .lg_fedavg import LGFedAvg


def proximal_term(model: Model, weight: Tensor, bias: Tensor, rho: float, reduction: str) -> Tensor:
    """rho / 2 * squared distance of the header from (weight, bias), summed or averaged over each tensor's entries."""
    distance = F.mse_loss(model.header.weight, weight, reduction=reduction)
    return rho / 2 * (distance + F.mse_loss(model.header.bias, bias, reduction=reduction))


def proximal_loss(
    model: Model, images: Tensor, labels: Tensor, weight: Tensor, bias: Tensor, rho: float, reduction: str
) -> Tensor:
    """CE + proximal term."""
    return F.cross_entropy(model(images), labels) + proximal_term(model, weight, bias, rho, reduction)


def supervised_contrast(features: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss (Khosla et al. 2020, Eq. 2) of features (n, d), each with another of its class."""
    features = F.normalize(features, dim=1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    similarity = (features @ features.T / temperature).masked_fill(itself, -torch.inf)
    positive = (labels[:, None] == labels) & ~itself  # (n, n)
    log_share = F.log_softmax(similarity, 1).masked_fill(~positive, 0)
    return -(log_share.sum(1) / positive.sum(1)).mean()


def contrastive_loss(
    model: Model, images: Tensor, labels: Tensor,
    weight: Tensor, bias: Tensor, rho: float, reduction: str, contrast: float, temperature: float,
) -> Tensor:  # fmt: skip
    """CE of the images + proximal term + contrast * contrastive loss of the images and their mirror images."""
    features = model.extractor(torch.cat([images, images.flip(-1)]))  # (2n, d)
    loss = F.cross_entropy(model.header(features[: len(labels)]), labels)
    loss = loss + contrast * supervised_contrast(features, labels.repeat(2), temperature)
    return loss + proximal_term(model, weight, bias, rho, reduction)


@dataclass(frozen=True)
class FedClassAvg(LGFedAvg):
    """rho: weight of the proximal term, >= 0. Default 0.1 (the authors' README).
    reduction: of its squared norm, `sum` or `mean`. replace: whether the average replaces the header first.
    contrast: weight of the supervised contrastive loss, >= 0; 0, the default, leaves it out (*chosen*).
    temperature: of that loss, > 0. Default 0.07 (Khosla et al.).
    """

    name = "FedClassAvg"
    paper = "Jang et al., ICPP 2022"
    exchanges = "header"
    look = Look("#fbafe4", "X")

    rho: float = setting(0.1, ge=0)
    reduction: str = setting("sum", choices=("sum", "mean"))
    replace: bool = True
    contrast: float = setting(0.0, ge=0)
    temperature: float = setting(0.07, gt=0)

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        if self.replace:
            client.model.header.load_state_dict(message.tensors)
        named: dict[str, Any] = message.tensors | {"rho": self.rho, "reduction": self.reduction}
        if self.contrast:
            named |= {"contrast": self.contrast, "temperature": self.temperature}
        context.train(contrastive_loss if self.contrast else proximal_loss, **named)
        return Message(client.model.header.state_dict(), client.num_samples)
