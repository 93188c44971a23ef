"""FedBABU: Oh, Kim, Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022,
Algorithm 1.

The header is what makes clients differ, so none is trained in the federation: all have one, drawn at random and left as
it is, and FedAvg trains the extractor (the "body") for it. For evaluation a client tunes its model on its own data::

    phi_k <- E epochs on CE(h_0(phi_k(x)), y), h_0 fixed
    phi <- sum_k (n_k / n) phi_k
    personal model: (phi_k, h_0) after tau_f more epochs

Down: the extractor and h_0; up: the extractor, before it is tuned. All clients need one. Evaluated is the personal model, tuned
afresh in each of the client's rounds from the extractor that it has just trained; the authors tune what came down, after
the last round.
"""

from dataclasses import dataclass

from ..fields import setting
from .base import Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState
from .fedper import FedPer
from .fedrep import split_loss


@dataclass(frozen=True)
class FedBABU(FedPer):
    """tune_epochs: tau_f, >= 0. Default 5 (the text).
    tuned: what is tuned, the `header` (the default; what the abstract says) or the `model` (one of the text's other choices).
    """

    name = "FedBABU"
    paper = "Oh et al., ICLR 2022"
    exchanges = "extractor, for a header that nobody trains"
    look = Look("#b22222", "h", "--")

    tune_epochs: int = setting(5, ge=0)
    tuned: str = setting("header", choices=("header", "model"))

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        header = context.initial_header().state_dict(prefix="header.")  # the same in each round
        return Message({f"extractor.{name}": tensor for name, tensor in server.items()} | header)

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        model = client.model
        model.load_state_dict(message.tensors)
        loss = context.train(split_loss, {"extractor": model.extractor}, header=model.header)
        trained = {name: tensor.clone() for name, tensor in model.extractor.state_dict().items()}
        if self.tuned == "header":
            context.train(split_loss, {"header": model.header}, "method", self.tune_epochs, extractor=model.extractor)
        else:
            context.train(purpose="method", epochs=self.tune_epochs)
        return Message(trained, client.num_samples, diagnostics={"loss": loss})  # of the federated training
