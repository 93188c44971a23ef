"""Standalone: each client trains its own model on its own data, the papers' lower bound.

No federation, so no exchange. Clients are sampled as for the other methods, which gives every method the same
training budget.
"""

from dataclasses import dataclass

from .base import Algorithm, Client, Context, Look, Message


@dataclass(frozen=True)
class Standalone(Algorithm):
    name, paper, year, exchanges = "Standalone", "baseline of the FedGH, FedSSA and pFedES papers", 2023, "nothing"
    look = Look("#949494", "o", "--")

    def local_round(self, client: Client, message: Message | None, context: Context) -> None:
        context.train(client)
