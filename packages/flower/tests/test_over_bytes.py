"""Every method over the wire: clients that are built anew for every request, and only bytes between them and the server."""

import numpy as np
import pytest
import torch

from fedlib import ALGORITHMS, Dataset, RunSpec, data, lab, simulate, simulation
from fedlib.sample import Sample
from fedlib_flower import shares, wire

CLIENTS, ROUNDS, PARTICIPATION = 5, 3, 0.4  # 2 clients a round, so that some come back and some never come
SWITCHED = {
    "FML": {"score_shared": True},
    "FedKD": {"score_shared": True},
    "FedProto": {"weighted": True},
    "FedSSA": {"aggregation": "whole"},
    "pFedHR": {"public_only": True},
    "FedL2G": {"space": "features", "warm_up": 0.5},
}


def resolved(name, params=None, **fields):
    scenario = "homogeneous" if ALGORITHMS[name].needs == "architecture" else "heterogeneous"
    params = ({"clusters": 2} if name == "pFedHR" else {}) | (params or {})
    known = {"dataset": "digits", "scenario": scenario, "num_clients": CLIENTS, "public_images": 16}
    return lab.resolve(RunSpec(name, params=params, **known | fields))


class Elsewhere:
    """An exchange that keeps of a client between two rounds the bytes of its state, and sends and gets bytes alone."""

    def __init__(self, run):
        self.run, self.states = run, {}

    def __call__(self, federation, algorithm, requests):
        context = federation.server_context(requests[0].round, requests[0].rounds)
        replies = []
        for request in requests:
            asked = wire.request_to_bytes(request)
            answers = wire.Bound.to(self.run.key, request, asked)
            replies.append(wire.reply_from_bytes(self.ask(asked, answers), request, answers, algorithm, context))
        return replies

    def ask(self, content, answers):
        request, federation = wire.request_from_bytes(content), lab.federation_of(self.run)
        client = federation.clients[request.client]
        if client.id in self.states:
            wire.client_from_bytes(client, self.states[client.id])
        reply = simulation.answer(federation, self.run.simulated, request)
        if client.visited:
            self.states[client.id] = wire.client_to_bytes(client)
        return wire.reply_to_bytes(reply, answers)


def compared(run):
    here, there = simulate(lab.federation_of(run), run.simulated, ROUNDS, PARTICIPATION), Elsewhere(run)
    server = lab.federation_of(run)
    other = simulate(server, run.simulated, ROUNDS, PARTICIPATION, exchange=there)
    assert lab.rounds_of(other).to_csv() == lab.rounds_of(here).to_csv()
    assert lab.clients_of(other).to_csv() == lab.clients_of(here).to_csv()
    assert other.detail_rows == here.detail_rows
    for id, content in there.states.items():
        wire.client_from_bytes(server.clients[id], content)
    assert other.digest() == here.digest()


@pytest.mark.thorough("FedSSA", "FedGH")
@pytest.mark.parametrize(("name", "params"), [*((name, {}) for name in ALGORITHMS), *SWITCHED.items()], ids=str)
def test_every_method_keeps_its_bits(name, params, small_digits):
    """None is refused by what `accepts` says of it."""
    compared(resolved(name, params))


def test_a_method_that_runs_isolated_does_too(small_digits):
    compared(resolved("FedSSA", isolated=True))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_client_elsewhere_says_that_it_diverged(name, small_digits):
    run = resolved(name, lr=1e38, batch_size=1000)
    outcome = simulate(lab.federation_of(run), run.algorithm, 1, PARTICIPATION, exchange=Elsewhere(run))
    assert outcome.status == "diverged"


SAMPLES = {
    "MLP": Sample("vector", (561,), "float32"),
    "CNN-1D": Sample("series", (9, 128), "float32"),
    "fastText": Sample("tokens", (16,), "int64", 50),
    "CNN-5": Sample("image", (1, 28, 28), "float32"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_share_holds_the_samples_as_they_are(name, tmp_path):
    sample = SAMPLES[name]
    values, labels = sample.random(60, np.random.default_rng(0)), np.arange(60) % 4
    arrays = values[:50], labels[:50], values[50:], labels[50:]
    data.register("shaped", lambda: Dataset.from_arrays("shaped", *arrays, 4, kind=sample.kind))
    run = shares.deal(RunSpec("FedGH", dataset="shaped", scenario=name, num_clients=3), tmp_path, 2, "smoke")
    whole = lab.federation_of(run)
    for node, held in enumerate(([0, 2], [1])):
        found = shares.federation_from(*shares.read(tmp_path / f"node-{node}", run.key))
        for id in held:
            own, mine = found.clients[id], whole.clients[id]
            assert torch.equal(own.pool.batch(own.train), mine.pool.batch(mine.train))
    server = shares.federation_from(*shares.read(tmp_path / "server", run.key))
    assert server.sample == whole.sample and not server.pool.images.any()
