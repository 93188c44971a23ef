"""FedAvg: McMahan, Moore, Ramage, Hampson, Agueera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Algorithm 1.

The server averages whole models, weighted by the clients' numbers of training images. All clients need one
architecture. Down and up: the whole model. Evaluated is the client's model after local training, which is the only
reading under which the papers' tables make sense. With one client it is Standalone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..training import weighted_mean
from .base import Algorithm, Client, ClientInfo, Context, Look, Message, ServerState


@dataclass(frozen=True)
class FedAvg(Algorithm):
    name, paper, year, exchanges = "FedAvg", "McMahan et al., AISTATS 2017", 2017, "whole model"
    needs = "architecture"
    look = Look("#d55e00", "P")

    def init_server(self, context: Context) -> ServerState:
        return dict(context.build(context.federation.architectures[0]).state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: Context) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message | None, context: Context) -> Message:
        assert message is not None
        client.model.load_state_dict(message.tensors)
        context.train(client)
        return Message(client.model.state_dict(), client.num_samples)

    def aggregate(self, server: ServerState, uploads: Mapping[int, Message], context: Context) -> None:
        weights = [float(upload.num_samples or 0) for upload in uploads.values()]
        for name in server:  # w <- sum_k (n_k / n) w_k over the selected clients
            server[name] = weighted_mean([upload[name] for upload in uploads.values()], weights)
