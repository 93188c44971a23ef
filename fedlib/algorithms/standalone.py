"""Standalone: each client trains its own model on its own data, the papers' lower bound.

No federation, so no exchange. Clients are sampled as for the other methods, which gives every method the same
training budget.
"""

from dataclasses import dataclass

from .base import Algorithm, Client, ClientContext, Look, Message


@dataclass(frozen=True)
class Standalone(Algorithm):
    name = "Standalone"
    paper = "baseline of the FedGH, FedSSA and pFedES papers"
    exchanges = "nothing"
    look = Look("#949494", "o", "--")

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        context.train()
        return Message()
