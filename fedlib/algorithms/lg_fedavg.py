"""LG-FedAvg as the FedSSA and FedGH papers use it: Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency,
"Think Locally, Act Globally: Federated Learning with Local and Global Representations", 2020.

Extractors stay local and may differ; the header (last linear layer, weight and bias) is averaged over the selected
clients, weighted by their numbers of training images, and replaces each client's header before local training. Down
and up: the header, d * C + C floats.

The authors' code differs: an unweighted mean, a FedAvg-pretrained start and, for CIFAR at its last version, shared
convolutions with local linear layers, the opposite of sharing the header; none of that is what the MHPFL papers
compare with. The first global header is CNN-1's initial one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..training import weighted_mean
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


@dataclass(frozen=True)
class LGFedAvg(Algorithm):
    name = "LG-FedAvg"
    paper = "Liang et al., 2020"
    exchanges = "header"
    needs = "features"
    look = Look("#56b4e9", "h", ":")

    def init_server(self, context: ServerContext) -> ServerState:
        return dict(context.initial_header().state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        client.model.header.load_state_dict(message.tensors)
        context.train()
        return Message(client.model.header.state_dict(), client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        weights = [message.num_samples for _, message in uploads]
        for name in server:  # theta <- sum_k (n_k / n) theta_k
            server[name] = weighted_mean([message[name] for _, message in uploads], weights)
