"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019 (arXiv
1912.00818), Algorithms 1 and 2.

The base layers are FedAvg's, the personalisation layers stay with their client. Here the base is the extractor, so all
clients need one, and the header (the last linear layer) is personal; both are trained at once::

    W_base <- sum_j (n_j / sum n) W_base,j

Down and up: the extractor. Evaluated is the client's model after local training. LG-FedAvg is the opposite: there the
header is averaged.

The text's personalisation layers are the last one to four blocks of a network, a choice that is the header's here. Its
gamma_j are the clients' shares of all samples; here, as in FedAvg, of those of the round's clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..training import weighted_mean
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


@dataclass(frozen=True)
class FedPer(Algorithm):
    name = "FedPer"
    paper = "Arivazhagan et al., 2019"
    exchanges = "extractor"
    needs = "architecture"
    look = Look("#003f5c", "<", "--")

    def init_server(self, context: ServerContext) -> ServerState:
        return dict(context.build(context.infos[0].architecture).extractor.state_dict())  # type: ignore[union-attr]

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        client.model.extractor.load_state_dict(message.tensors)
        context.train()
        return Message(client.model.extractor.state_dict(), client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        weights = [message.num_samples for _, message in uploads]
        for name in server:
            server[name] = weighted_mean([message[name] for _, message in uploads], weights)
