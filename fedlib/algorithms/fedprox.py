"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020,
Algorithm 2.

FedAvg whose local loss pulls the weights towards the downloaded ones (Eq. 2), so that clients with different data
drift apart less. Everything else is FedAvg's: down and up the whole model, one architecture, evaluated after local
training. mu = 0 is FedAvg, to the bit.

Known disagreements. The authors draw clients with probability n_k / n and average them equally, and let each do a
different amount of work; here clients are sampled evenly, weighted by n_k and train E epochs, as for every method of
these tables. pFedHR's paper gives no mu; peers ship mu = 0, which is FedAvg under another name.
"""

import copy
from dataclasses import dataclass

from ..fields import setting
from ..training import proximal_cross_entropy
from .base import Client, ClientContext, Look, Message
from .fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """mu: weight of the proximal term, >= 0; 0 is FedAvg. Default 0.01 (*chosen* from the authors' grid 0.001, 0.01,
    0.1, 1).
    """

    name = "FedProx"
    paper = "Li et al., MLSys 2020"
    exchanges = "whole model"
    look = Look("#de8f05", "X")

    mu: float = setting(0.01, ge=0, note="0: this is FedAvg")

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        client.model.load_state_dict(message.tensors)
        downloaded = copy.deepcopy(client.model)
        context.train(proximal_cross_entropy, reference=downloaded, weight=self.mu)  # Eq. 2
        return Message(client.model.state_dict(), client.num_samples)
