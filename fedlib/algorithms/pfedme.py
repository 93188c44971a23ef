"""pFedMe: Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1.

Each client keeps a personal network theta near the global w: on a batch, K gradient steps on the loss plus
lambda / 2 * ||theta - w||^2, then w <- w - eta * lambda * (w - theta), the gradient step on the Moreau envelope. The
server mixes the mean of the clients' w with its own. Down and up: w. Evaluated is theta after the last batch. With one
batch, K = 1 and beta = 1 it is one FedAvg step at rate eta * lambda * inner_lr.

R, the authors' number of batches per round (20), is here the batches of E epochs, the training budget of every method.
theta starts from w in each round and from the last theta at each batch, as in the authors' code. That code also
decays theta by 1e-3, which the paper does not mention: left to the protocol's weight decay, as the K steps use the
run's optimiser. The mean is weighted by n_k, as in the authors' code. PFLlib ships beta = 0, under which the global
model never changes.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..errors import require
from ..fields import setting
from ..randomness import fork_torch
from ..training import fresh_optimiser, images_of_epochs, proximal_cross_entropy, step, training_mode
from .base import Client, ClientContext, Look, Message, ServerContext, ServerState, Upload
from .fedavg import FedAvg


@dataclass(frozen=True)
class PFedMe(FedAvg):
    """Defaults are those of the authors' code, but for inner_lr.

    lam: lambda, how strongly theta is held near w, >= 0; eta: rate of w, >= 0, eta * lam < 1;
    inner_lr: rate of theta's steps, >= 0; 0 (default) takes the run's lr: the authors' 0.09, for small networks on
    MNIST, is beyond what CNN-1 bears; inner_steps: K, steps per batch, >= 1; beta: weight of the clients' mean in the
    server's update, >= 0 (1 replaces, 0 never changes the global model).
    """

    name = "pFedMe"
    paper = "Dinh et al., NeurIPS 2020"
    exchanges = "whole model"
    look = Look("#ca9161", ">")

    lam: float = setting(15.0, ge=0)
    eta: float = setting(0.005, ge=0)
    inner_lr: float = setting(0.0, ge=0)
    inner_steps: int = setting(5, ge=1)
    beta: float = setting(1.0, ge=0)

    def __post_init__(self) -> None:
        require(self.eta * self.lam < 1, "eta * lam", self.eta * self.lam, "below 1, or w overshoots theta")

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        theta = client.model
        theta.load_state_dict(message.tensors)
        w = copy.deepcopy(theta).requires_grad_(False)
        settings = replace(context.settings, lr=self.inner_lr or context.settings.lr)
        networks = {"model": theta}
        optimiser = fresh_optimiser(networks, settings)
        total = torch.zeros((), device=context.device)
        with fork_torch(context.generator("dropout")), training_mode(networks):
            for images, labels in context.batches():
                batch = {"images": images, "labels": labels, "reference": w, "weight": self.lam}
                for _ in range(self.inner_steps):  # theta ~ argmin loss + lambda / 2 * ||theta - w||^2
                    loss = step(proximal_cross_entropy, networks, optimiser, client.pool, settings, **batch)
                for global_part, personal in zip(w.parameters(), theta.parameters(), strict=True):
                    global_part.lerp_(personal.detach(), self.eta * self.lam)  # w <- w - eta * lambda * (w - theta)
                total += loss * len(labels)
        optimiser.zero_grad()
        for global_part, personal in zip(w.buffers(), theta.buffers(), strict=True):  # batch norm's, where there is one
            global_part.copy_(personal)
        client.state["w"] = dict(w.state_dict())
        loss = total / sum(images_of_epochs(settings, client.num_samples))
        return Message(client.state["w"], client.num_samples, diagnostics={"loss": loss})

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        before = dict(server)
        super().aggregate(server, uploads, context)
        for name in server:  # w <- (1 - beta) * w + beta * mean
            if server[name].is_floating_point():
                server[name] = (1 - self.beta) * before[name] + self.beta * server[name]
