"""LG-FedAvg as the FedSSA and FedGH papers use it: Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency,
"Think Locally, Act Globally: Federated Learning with Local and Global Representations", 2020.

Extractors stay local and may differ; the header (last linear layer, weight and bias) is averaged over the selected
clients, weighted by their numbers of training images, and replaces each client's header before local training. Down
and up: the header, d * C + C floats.

The authors' code differs: an unweighted mean, a FedAvg-pretrained start and, for CIFAR at its last version, shared
convolutions with local linear layers, the opposite of sharing the header; none of that is what the MHPFL papers
compare with. The first global header is CNN-1's initial one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..training import weighted_mean
from .base import Algorithm, Client, ClientInfo, Context, Look, Message, ServerState


@dataclass(frozen=True)
class LGFedAvg(Algorithm):
    name, paper, year, exchanges = "LG-FedAvg", "Liang et al., 2020", 2020, "header"
    needs = "features"
    look = Look("#56b4e9", "h", ":")

    def init_server(self, context: Context) -> ServerState:
        return dict(context.federation.initial_header().state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: Context) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message | None, context: Context) -> Message:
        assert message is not None
        client.model.header.load_state_dict(message.tensors)
        context.train(client)
        return Message(client.model.header.state_dict(), client.num_samples)

    def aggregate(self, server: ServerState, uploads: Mapping[int, Message], context: Context) -> None:
        weights = [float(upload.num_samples or 0) for upload in uploads.values()]
        for name in server:  # theta <- sum_k (n_k / n) theta_k
            server[name] = weighted_mean([upload[name] for upload in uploads.values()], weights)
