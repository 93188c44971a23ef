"""Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
Algorithm 1.

FedAvg trains a global w; beside it each client keeps a personal v_k of the same architecture, which is trained on its
own data and held near the w that came down::

    min over v_k of F_k(v_k) + lambda / 2 * ||v_k - w||^2
    v_k <- v_k - eta * (grad F_k(v_k) + lambda * (v_k - w))

Down and up: w. Evaluated is v_k. All clients need one architecture. lambda = 0 is Standalone, to the bit where
images are not augmented (both trainings draw from one stream); a large lambda is FedAvg.

A round trains two networks for E epochs each, w on batches of a stream of its own; the authors train v_k for s steps, a
number of its own. w is averaged with weights n_k, as in FedAvg; the algorithm has the unweighted mean of the changes,
or any other solver for w. A client's v_k starts from its initial network.
"""

from dataclasses import dataclass

from ..fields import setting
from ..training import proximal_cross_entropy
from .base import Client, ClientContext, Look, Message
from .fedavg import FedAvg


@dataclass(frozen=True)
class Ditto(FedAvg):
    """lam: lambda, how strongly v_k is held near w, >= 0; 0 is Standalone. Default 1 (the authors' runs)."""

    name = "Ditto"
    paper = "Li et al., ICML 2021"
    exchanges = "whole model"
    look = Look("#4b0055", "v", "--")

    lam: float = setting(1.0, ge=0, note="0: this is Standalone")

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        architecture = client.info.architecture
        trained, downloaded = context.build(architecture), context.build(architecture)
        for network in (trained, downloaded):
            network.load_state_dict(message.tensors)
        context.train(modules={"model": trained}, purpose="method")
        context.train(proximal_cross_entropy, reference=downloaded, weight=self.lam)
        return Message(trained.state_dict(), client.num_samples)
