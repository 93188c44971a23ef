"""The round loop: sampling, who is evaluated when, and what is recorded."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from fedlib import (
    Federation,
    FedlibError,
    RunSpec,
    lab,
    models,
    randomness,
    run,
    simulate,
    simulation,
)
from fedlib.algorithms import Algorithm, make
from fedlib.federation import Message
from fedlib.partition import BUILT_IN
from fedlib.randomness import generator

DATA = tiny.dataset(num_classes=3, per_class=20)


def ten_clients(seed: int = 0, architectures=("tiny-a", "tiny-b")) -> Federation:
    return tiny.federation(DATA, [np.arange(k, 60, 10) for k in range(10)], architectures, seed=seed)


@pytest.mark.parametrize(
    ("num_clients", "participation", "selected"),
    [(10, 1.0, 10), (100, 0.1, 10), (50, 0.2, 10), (10, 0.25, 3), (10, 0.24, 2), (10, 0.01, 1), (1, 1.0, 1)],
)
def test_participants_round_half_up(num_clients, participation, selected):
    assert simulation.participants(num_clients, participation) == selected


def test_words_are_counted_without_those_that_the_papers_leave_out():
    message = Message({"rows": torch.zeros(2, 5), "classes": torch.zeros(2, dtype=torch.long)})
    assert message.words() == 12 and message.words({"classes"}) == 10


def test_training_takes_another_rate_and_a_second_stream(monkeypatch):
    """What a method hands to `context.train`, and each stream under the purpose that it names."""
    taken = {}

    def train(loss, modules, pool, indices, settings, stream, named, second, augment):
        taken.update(lr=settings.lr, first=stream.random(), second=second.random())
        return torch.zeros(())

    monkeypatch.setattr("fedlib.training.train", train)
    context = ten_clients().client_context(3, round=2)
    context.train(support="method", lr=0.125)
    drawn = {purpose: generator(0, purpose, 2, 3).random() for purpose in ("batches", "method")}
    assert taken == {"lr": 0.125, "first": drawn["batches"], "second": drawn["method"]}
    monkeypatch.setattr("fedlib.training.train", lambda loss, modules, pool, indices, settings, *rest: settings.lr)
    assert context.train() == context.settings.lr


def test_augmentation_draws_from_its_own_stream(monkeypatch):
    federation = ten_clients()
    monkeypatch.setattr("fedlib.training.Ahead", lambda stream, count, device: stream)
    context = dataclasses.replace(federation.client_context(3, round=2), augmentation="released")
    assert context.augment.keywords["stream"].random() == generator(0, "augmentation", 2, 3).random()


def test_every_method_of_a_seed_sees_the_same_clients():
    tables = [lab.clients_of(simulate(ten_clients(), make(name), 4, 0.3)) for name in ("Standalone", "FedSSA")]
    visits = [table.query("round >= 0")[["round", "client"]].reset_index(drop=True) for table in tables]
    assert visits[0].equals(visits[1])
    for t in range(4):
        chosen = visits[0].query("round == @t")["client"].tolist()
        assert len(set(chosen)) == 3 and chosen == simulation.sampled_clients(0, t, 10, 0.3).tolist()
    assert len({tuple(group["client"]) for _, group in visits[0].groupby("round")}) > 1
    other = lab.clients_of(simulate(ten_clients(seed=1), make("Standalone"), 4, 0.3)).query("round >= 0")
    assert other["client"].tolist() != visits[0]["client"].tolist()


def test_rows_and_means():
    """Everyone once before round 0, then participants; the headline is of the visited, and all have a mean of their own."""
    fed = ten_clients()
    outcome = simulate(fed, make("Standalone"), 3, 0.3)
    rounds, clients = lab.rounds_of(outcome), lab.clients_of(outcome)
    assert rounds["round"].tolist() == [-1, 0, 1, 2]
    assert clients.query("round == -1")["client"].tolist() == list(range(10))
    initial = {name: fed.build(name) for name in ("tiny-a", "tiny-b")}
    for client in fed.clients:  # accuracy is of the client's own test images
        images = fed.pool.batch(client.test)
        expected = (initial[client.info.architecture](images).argmax(1) == fed.pool.labels[client.test]).double().mean()
        assert clients.query("round == -1").set_index("client").loc[client.id, "accuracy"] == expected.item()
    latest: dict[int, float] = {}
    visited: set[int] = set()
    for t in (-1, 0, 1, 2):
        part = clients.query("round == @t")
        latest |= dict(zip(part["client"], part["accuracy"], strict=True))
        row = rounds.set_index("round").loc[t]
        visited |= set(part["client"]) if t >= 0 else set()
        assert row["accuracy_all"] == pytest.approx(np.mean(list(latest.values())), abs=1e-12)
        own = [latest[client] for client in visited or latest]
        assert row["accuracy"] == pytest.approx(np.mean(own), abs=1e-12)
        if t >= 0:
            assert row["accuracy_selected"] == pytest.approx(part["accuracy"].mean(), abs=1e-12)
            assert row["loss"] == pytest.approx(part["loss"].mean())
            assert row["selected"] == 3
            assert row["visited"] == clients.query("0 <= round <= @t")["client"].nunique()
    trained = {client.id: client for client in outcome.clients}
    for id, accuracy in latest.items():
        client = trained[id]
        images = fed.pool.batch(client.test)
        assert accuracy == (client.model(images).argmax(1) == fed.pool.labels[client.test]).double().mean().item()


def test_seen_classes_are_those_of_the_training_images():
    partition = tiny.holding(DATA, [[0, 2], [1]], [4, 4])
    fed = tiny.federation(DATA, partition)
    assert [client.classes.tolist() for client in fed.clients] == [[0, 2], [1]]
    assert [client.num_samples for client in fed.clients] == [8, 4]
    triple = (np.array([0, 1]), np.array([2]), np.array([3]))
    unseen = tiny.federation(DATA, [triple]).clients[0]
    assert unseen.classes.tolist() == sorted(set(DATA.labels[:2].tolist()))


def test_clients_are_built_on_their_first_visit():
    fed = ten_clients()
    assert all(client._model is None for client in fed.clients)
    outcome = simulate(fed, make("FedSSA"), 1, 0.2)
    assert [client.id for client in outcome.clients if client._model is not None] == sorted(
        lab.clients_of(outcome).query("round == 0")["client"]
    )


def test_the_record_on_disk_holds_every_digit(small_digits):
    spec = RunSpec(algorithm="FedProto", num_clients=5, participation=0.4, rounds=3)
    record, resolved = run(spec, progress=False), lab.resolve(spec)
    outcome = simulate(lab.federation_of(resolved), resolved.algorithm, 3, 0.4)
    pd.testing.assert_frame_equal(record.rounds, lab.rounds_of(outcome), check_exact=True)
    pd.testing.assert_frame_equal(record.clients, lab.clients_of(outcome), check_exact=True)
    assert record.digest == outcome.digest()
    assert record.spec == resolved.spec and record.status == "finished" and not record.stale
    assert lab.read(record.path).final()["client"].tolist() == [0, 1, 2, 3, 4]


def test_what_belongs_to_the_key():
    """Spelling, the scale that filled a field and what is kept do not; everything that decides numbers does."""

    def key(**fields):
        return lab.resolve(RunSpec(**({"algorithm": "FedSSA"} | fields))).key

    same = [
        {"dataset": "digits"},
        {"num_clients": "10", "rounds": 3.0},
        {"params": {"mu0": "0.5"}},
        {"lr": 0.01},
        {"overrides": {"lr": 0.01}},
        {"keep": "clients"},
        {"classes_per_client": 2},
        {"alpha": 0.1},
        {"device": "cpu"},
    ]
    others = [
        {"algorithm": "FedGH"},
        {"dataset": "digits100"},
        {"scenario": "homogeneous"},
        {"num_clients": 11},
        {"participation": 0.5},
        {"partition": "iid"},
        {"partition": "dirichlet"},
        {"partition": "dirichlet", "alpha": 0.1},
        {"classes_per_client": 3},
        {"rounds": 5},
        {"local_epochs": 2},
        {"batch_size": 17},
        {"lr": 0.02},
        {"overrides": {"momentum": 0.8}},
        {"paper": "FedGH"},  # another weight decay
        {"protocol": "paper"},
        {"seed": 1},
        {"precision": "bf16"},
        {"params": {"mu0": 0.4}},
    ]
    assert {key(**fields) for fields in same} == {key()}
    assert len({key(), *(key(**fields) for fields in others)}) == len(others) + 1


@pytest.mark.thorough
@pytest.mark.parametrize("partition", [name for name in BUILT_IN if name != "groups"])  # digits are nobody's
@pytest.mark.parametrize("scenario", models.SCENARIOS)
def test_partitions_and_scenarios_train(partition, scenario, small_digits):
    spec = RunSpec(
        algorithm="Standalone", partition=partition, scenario=scenario, num_clients=5, participation=0.4, rounds=1
    )
    record = run(spec, progress=False)
    table, turns = record.clients.query("round == -1"), models.SCENARIOS[scenario]
    assert table["architecture"].tolist() == [turns[id % len(turns)] for id in range(5)]
    assert record.rounds["loss"].iloc[-1] > 0


def test_training_learns(small_digits):
    record = run(RunSpec(algorithm="Standalone", num_clients=5, rounds=5, lr=0.05), progress=False)
    assert record.rounds["loss"].iloc[-1] < record.rounds["loss"].iloc[1]
    assert record.rounds["accuracy"].iloc[-1] > 0.5 > record.rounds["accuracy"].iloc[0]


def test_every_client_round_and_purpose_has_a_stream_of_its_own():
    built = tiny.federation_of([[0, 1], [1, 2], [2, 0]])
    drawn = {
        (client, round, purpose): built.client_context(client, round, 3).generator(purpose).integers(2**62)
        for client in range(3)
        for round in range(3)
        for purpose in ("batches", "augmentation", "dropout", "method")
    }
    drawn |= {
        ("server", round): built.server_context(round, 3).generator("batches").integers(2**62) for round in range(3)
    }
    assert len(set(drawn.values())) == len(drawn) == 39
    for (client, round, purpose), value in list(drawn.items())[:36]:
        assert randomness.generator(built.seed, purpose, round, client).integers(2**62) == value
    shared = [built.client_context(client, 1, 3).shared_generator("server").integers(2**62) for client in range(3)]
    assert {*shared} == {built.server_context(1, 3).generator("server").integers(2**62)}


@dataclass(frozen=True)
class Breaking(Algorithm):
    """Its `where` ends as NaN in round 1: a client's loss, its model where no loss is reported, or the server's state."""

    name = "Breaking"
    where: str = "loss"

    def init_server(self, context):
        return {"kept": torch.zeros(2)}

    def local_round(self, client, message, context):
        if self.where == "model":
            for weights in client.model.parameters() if context.round == 1 else ():
                weights.data.fill_(float("nan"))
            return Message()
        broken = self.where == "loss" and context.round == 1
        return Message(diagnostics={"loss": float("nan") if broken else 1.0})

    def aggregate(self, server, uploads, context):
        if self.where == "server" and context.round == 1:
            server["kept"] = torch.full((2,), float("nan"))


@pytest.mark.parametrize("where", ["loss", "model", "server"])
def test_a_run_ends_in_the_round_in_which_it_diverges(where):
    outcome = simulate(ten_clients(), Breaking(where=where), 4)
    assert outcome.status == "diverged"
    assert [row["round"] for row in outcome.round_rows] == [-1, 0, 1]


def test_samples_are_images_times_epochs():
    built = tiny.federation(DATA, [np.arange(k, 60, 10) for k in range(10)], epochs=3)
    outcome = simulate(built, make("Standalone"), 2, 0.3)
    trained = outcome.round_rows[1:]
    assert [row["samples"] for row in trained] == [
        3 * sum(built.clients[id].num_samples for id in simulation.sampled_clients(0, round, 10, 0.3))
        for round in range(2)
    ]


@pytest.mark.parametrize(
    ("rounds", "participation", "message"),
    [
        (0, 1.0, "rounds = 0: must be at least 1"),
        (1, 0, r"participation = 0.0: must be in \(0, 1\]"),
        (1, 1.01, r"participation = 1.01: must be in \(0, 1\]"),
    ],
)
def test_rounds_and_parts_that_cannot_be_are_refused(rounds, participation, message):
    with pytest.raises(FedlibError, match=message):
        simulate(ten_clients(), make("Standalone"), rounds, participation)
