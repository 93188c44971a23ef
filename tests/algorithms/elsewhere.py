"""Clients elsewhere, and all that goes between them and the server as bytes."""

import dataclasses
from typing import Any

import numpy as np
import tiny
import torch

from fedlib import Federation, lab, simulate, simulation
from fedlib.algorithms.base import Algorithm, Message
from fedlib.simulation import Outcome, Reply, Request


def of_resolved(found: lab.Resolved, **more: Any) -> Outcome:
    """The run here, in this process."""
    return simulate(lab.federation_of(found), found.simulated, found.spec.rounds, found.spec.participation, **more)


class Elsewhere:
    """An exchange with clients that are built anew for every request: what is kept of one between two rounds is the
    bytes of its snapshot, and what reaches it and comes back is bytes.
    """

    def __init__(self, found: lab.Resolved):
        self.run, self.snapshots = found, {}

    def __call__(self, federation: Federation, algorithm: Algorithm, requests: list[Request]) -> list[Reply]:
        return [self.ask(request._replace(download=self.message(request.download))) for request in requests]

    @staticmethod
    def message(sent: Message) -> Message:
        return Message(**tiny.posted(vars(sent)))

    def ask(self, request: Request) -> Reply:
        federation = lab.federation_of(self.run)
        client = federation.clients[request.client]
        if client.id in self.snapshots:
            client.restore(tiny.posted(self.snapshots[client.id]))
        reply = simulation.answer(federation, self.run.algorithm, request)
        assert all(other._model is None and not other.visited for other in federation.clients if other is not client)
        if client.visited:
            self.snapshots[client.id] = tiny.posted(client.snapshot())
        plain = tiny.posted(vars(reply) | {"upload": None})
        return Reply(**plain | {"upload": self.message(reply.upload)})


def with_a_posted_server(algorithm: Algorithm) -> Algorithm:
    """The same method, whose server forgets all but the bytes of its state after each round."""
    own = type(algorithm)

    def aggregate(self, server, uploads, context):
        returned = own.aggregate(self, server, uploads, context)
        state = tiny.posted(server)
        server.clear()
        server.update(state)
        return returned

    return type(own.__name__, (own,), {"aggregate": aggregate})(**dataclasses.asdict(algorithm))


def over_bytes(found: lab.Resolved) -> Outcome:
    """What it is here, once nothing has changed through bytes: no client shared with another or the server."""
    global_states = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    here = of_resolved(found)
    there = Elsewhere(found)
    server = lab.federation_of(found)
    posted = with_a_posted_server(found.algorithm)
    other = simulate(server, posted, found.spec.rounds, found.spec.participation, exchange=there)
    assert not any(client.visited or client._model for client in server.clients)  # the server's side touched none
    parameters = [part for client in here.clients if client.visited for part in client.model.parameters()]
    assert all(part.requires_grad and part.grad is None for part in parameters)  # clients keep no gradients
    rounds = lab.rounds_of(here)
    assert lab.rounds_of(other).to_csv() == rounds.to_csv()
    assert lab.clients_of(other).to_csv() == lab.clients_of(here).to_csv()
    assert other.detail_rows == here.detail_rows
    for id, snapshot in there.snapshots.items():
        server.clients[id].restore(snapshot)
    assert other.digest() == here.digest()
    assert here.status == "finished" and np.isfinite(rounds["loss"].iloc[1:]).all()
    assert len(there.snapshots) == rounds["visited"].iloc[-1] < rounds["selected"].iloc[1:].sum()  # so some come back
    assert torch.equal(torch.random.get_rng_state(), global_states[0])  # every draw is from a stream of its own
    assert np.array_equal(np.random.get_state()[1], global_states[1])  # noqa: NPY002
    return here
