"""Per-FedAvg: Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach", NeurIPS 2020, Algorithm 1, first-order variant (FO).

FedAvg on the loss after adaptation, f(w - alpha * grad f(w)): the server's w is not good everywhere but one gradient
step away from it. Each local step takes two independent batches, one to adapt on and one to judge by; the first-order
variant leaves out the Hessian. Down and up: w. Evaluated is the adapted network, one step at rate alpha from the
client's w on one of its training batches. alpha = 0 is FedAvg at rate beta, to the bit
where images are not augmented (both batches of a step draw from one stream).

Known disagreements. pFedMe's copy takes 20 pairs of batches per round and PFLlib the halves of a double batch; here the
first batches are a second pass over the data, so the number of steps is FedAvg's. That copy adapts on a test batch
before testing, which uses its labels; PFLlib, and this file, adapt on a training batch. That copy's rates are alpha =
0.005, beta = 0.001; PFLlib forces beta to the run's rate.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ..fields import setting
from .base import Client, ClientContext, Look, Message
from .fedavg import FedAvg


def adapted(model: nn.Module, images: Tensor, labels: Tensor, alpha: float) -> dict[str, Tensor]:
    """w - alpha * grad f(w) by name; the gradient is a constant, which makes the method first-order."""
    parameters = dict(model.named_parameters())
    gradients: Iterable[Tensor] = torch.autograd.grad(F.cross_entropy(model(images), labels), [*parameters.values()])
    return {
        name: parameter - alpha * gradient
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }


def meta_loss(
    model: nn.Module, images: Tensor, labels: Tensor, support_images: Tensor, support_labels: Tensor, alpha: float
) -> Tensor:
    """Algorithm 1: the loss of the network adapted on the support batch; its gradient, taken at the
    adapted weights, is that of w.
    """
    weights = adapted(model, support_images, support_labels, alpha)
    return F.cross_entropy(functional_call(model, weights, (images,)), labels)


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    """alpha: rate of the adaptation step, >= 0; 0 is FedAvg. Default 0.005 (pFedMe's copy);
    beta: rate of the local steps, >= 0; 0 takes the run's lr (default, as in PFLlib, so that all methods share it).
    """

    name = "Per-FedAvg"
    paper = "Fallah et al., NeurIPS 2020"
    exchanges = "whole model"
    look = Look("#cdbb00", "<")

    alpha: float = setting(0.005, ge=0, note="0: this is FedAvg")
    beta: float = setting(0.0, ge=0, note="0: the run's learning rate")

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        model = client.model
        model.load_state_dict(message.tensors)
        context.train(meta_loss, support="method", lr=self.beta or None, alpha=self.alpha)
        client.state["w"] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for images, labels in islice(context.batches("pretrain"), 1):  # none where nothing is to be trained
            with client.pool.autocast():
                weights = adapted(model, images, labels, self.alpha)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(weights[name])
        return Message(client.state["w"], client.num_samples)
