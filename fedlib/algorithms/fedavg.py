"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Algorithm 1.

The server averages whole models, weighted by the clients' numbers of training images. All clients need one
architecture. Down and up: the whole model. Evaluated is the client's model after local training, which is the only
reading under which the papers' tables make sense. With one client it is Standalone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..training import weighted_mean
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


@dataclass(frozen=True)
class FedAvg(Algorithm):
    name = "FedAvg"
    paper = "McMahan et al., AISTATS 2017"
    exchanges = "whole model"
    needs = "architecture"
    look = Look("#d55e00", "P")

    def init_server(self, context: ServerContext) -> ServerState:
        return dict(context.build(context.infos[0].architecture).state_dict())

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        return Message(dict(server))

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        client.model.load_state_dict(message.tensors)
        context.train()
        return Message(client.model.state_dict(), client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        weights = [message.num_samples for _, message in uploads]
        for name in server:  # w <- sum_k (n_k / n) w_k over the selected clients
            server[name] = weighted_mean([message[name] for _, message in uploads], weights)
