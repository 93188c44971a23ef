"""FedSSA: rounds by hand, its equations in closed form, and the switches between what its paper says and what code does."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from headers import headers, rows, still, uploads_of, write
from two_clients import CLASSES, DATA, LR, arrivals, federation, models_of

from fedlib import ALGORITHMS, lab, simulate
from fedlib.algorithms.fedssa import FedSSA
from fedlib.algorithms.standalone import Standalone
from fedlib.federation import Message


def fused(w: tiny.Weights, server: tiny.Weights, seen: list[int], mu: float) -> tiny.Weights:
    """Eq. 4: global + mu * local for the seen rows; the others stay."""
    w = {name: value.copy() for name, value in w.items()}
    for s in seen:
        w["W"][s] = server["W"][s] + mu * w["W"][s]
        w["b"][s] = server["b"][s] + mu * w["b"][s]
    return w


def test_fedssa_by_hand():
    """Two rounds with training: fuse (Eq. 4), step, mean of the owners' rows (Eq. 3)."""
    fed, data = federation()
    start = tiny.weights(fed.build("tiny-a"))
    local, server = [start, start], {"W": start["W"].copy(), "b": start["b"].copy()}
    outcome = simulate(fed, FedSSA(mu0=0.5, stable_rounds=20), 2)
    for mu in (0.5, 0.5 * math.cos(math.pi / 40)):
        local = [
            tiny.descend(fused(w, server, seen, mu), x, y, LR)
            for w, seen, (x, y) in zip(local, CLASSES, data, strict=True)
        ]
        for name in "Wb":
            server[name][0] = local[0][name][0]
            server[name][1] = (local[0][name][1] + local[1][name][1]) / 2
            server[name][2] = local[1][name][2]
    np.testing.assert_allclose(outcome.server["weight"], server["W"], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(outcome.server["bias"], server["b"], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)


@pytest.mark.parametrize(("participation", "seed"), [(1.0, 0), (0.5, 0), (0.5, 3)])
def test_fedssa_with_lr_0_follows_its_equations(participation, seed):
    """Four heterogeneous clients, six rounds, T_stable = 4: every row of every header, weights and biases."""
    data, classes = tiny.dataset(num_classes=5, per_class=20), [[0, 1], [1, 2], [0, 2, 3], [3]]  # class 4: nobody's
    partition = tiny.holding(data, classes, [3] * 4)
    fed = tiny.federation(data, partition, ("tiny-a", "tiny-b"), lr=0.0, seed=seed)
    names = {"W": "weight", "b": "bias"}

    def header(module) -> tiny.Weights:
        return {name: getattr(module, key).detach().numpy().astype(np.float64) for name, key in names.items()}

    rounds, mu0, stable = 6, 0.8, 4
    local = [header(client.model.header) for client in fed.clients]
    unseen = [{name: value.copy() for name, value in state.items()} for state in local]
    server = {name: value.copy() for name, value in local[0].items()}  # CNN-1's place: the first architecture's
    initial = {name: value.copy() for name, value in server.items()}
    outcome = simulate(fed, FedSSA(mu0=mu0, stable_rounds=stable), rounds, participation)

    kept_rows, selected = 0, arrivals(rounds, 4, participation, seed)
    for t, chosen in enumerate(selected):
        mu = mu0 * math.cos(math.pi * t / (2 * stable)) if t <= stable else 0.0
        for k in chosen:
            local[k] = fused(local[k], server, classes[k], mu)
        for s in range(5):
            owners = [k for k in chosen if s in classes[k]]
            kept_rows += not owners
            for name in names:
                if owners:  # Eq. 3: the unweighted mean over the selected owners
                    server[name][s] = sum(local[k][name][s] for k in owners) / len(owners)
    for name, key in names.items():
        np.testing.assert_allclose(outcome.server[key], server[name], rtol=1e-5, err_msg=f"server {key}")
        assert np.array_equal(outcome.server[key][4], initial[name][4])  # never owned
        for client, expected, before in zip(outcome.clients, local, unseen, strict=True):
            result = header(client.model.header)[name]
            np.testing.assert_allclose(result, expected[name], rtol=1e-5, err_msg=f"client {client.id} {key}")
            rows = [s for s in range(5) if s not in classes[client.id]]
            assert np.array_equal(result[rows], before[name][rows])  # unseen rows: to the bit
    assert kept_rows >= (rounds if participation == 1 else rounds + 2)  # also classes that had an owner before
    assert selected == [
        lab.clients_of(outcome).query(f"round == {t}")["client"].tolist() for t in range(rounds)
    ]  # the order of arrival


def test_stable_rounds_are_in_proportion_to_the_rounds_unless_given():
    """Figure 3's 20 of 500: 4 of 100 and, since 30 * 20 / 500 = 1.2 and 38 * 20 / 500 = 1.52, 1 of 30 and 2 of 38."""
    stable = {1: 1, 10: 1, 30: 1, 38: 2, 100: 4, 500: 20}
    for rounds, expected in stable.items():
        assert [FedSSA().mu(t, rounds) > 0 for t in range(50)] == [t < expected for t in range(50)], rounds
        assert FedSSA(stable_rounds=45).mu(44, rounds) == pytest.approx(0.5 * math.sin(math.pi / 90))
    # T = 100: 0.5 cos of 0, 22.5, 45 and 67.5 degrees
    np.testing.assert_allclose(
        [FedSSA().mu(t, 100) for t in range(5)], [0.5, 0.46193977, 0.35355339, 0.19134172, 0], rtol=1e-7
    )
    figure3 = FedSSA(mu0=0.5, stable_rounds=20).mu  # one argument: what the figure draws
    assert [figure3(t) for t in range(30)] == [FedSSA().mu(t, 500) for t in range(30)]
    fed, _ = federation()
    recorded = lab.rounds_of(simulate(fed, FedSSA(mu0=0.6), 38, 0.5)).set_index("round")["mu"]
    np.testing.assert_allclose(recorded.loc[0:3], [0.6, 0.6 / math.sqrt(2), 0, 0], rtol=1e-7)


def test_fedssa_without_shared_classes_and_mu0_0_is_standalone_to_the_bit():
    """Ten clients on CIFAR-100: every class has one owner, who gets back what it sent."""

    def fresh():
        return tiny.federation(DATA, tiny.holding(DATA, [[0], [1, 2]], [6, 6]), batch_size=4)

    one, other = (models_of(simulate(fresh(), m, 3)) for m in (FedSSA(mu0=0.0), Standalone()))
    assert all(tiny.equal_states(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def fusion_round(round: int, **switches: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, Message]:
    """Global header, client 1's (classes 1 and 2) before, after a round without learning, and its upload."""
    built = still()
    client, method = built.clients[1], FedSSA(**switches)
    shared, own = headers(2)
    write(client.model.header, own)
    server = {"weight": torch.tensor(shared[:, :2]).float(), "bias": torch.tensor(shared[:, 2]).float()}
    upload = tiny.visit(method, client, method.download(server, client.info, tiny.context(built, round)), built, round)
    return shared, own, rows(client.model.header.state_dict()), upload


@pytest.mark.parametrize("round", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("fusion", ["literal", "convex"])
@pytest.mark.parametrize("replace", ["seen", "all"])
def test_fedssa_fusion(round: int, fusion: str, replace: str) -> None:
    shared, own, after, upload = fusion_round(round, mu0=0.8, stable_rounds=4, fusion=fusion, replace=replace)
    mu = 0.8 * math.cos(math.pi * round / 8) if round < 4 else 0.0
    expected = own.copy()
    touched = [1, 2] if replace == "seen" else [0, 1, 2, 3]
    weight = 1 if fusion == "literal" else 1 - mu
    expected[touched] = weight * shared[touched] + mu * own[touched]
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert upload["classes"].tolist() == [1, 2]
    np.testing.assert_allclose(rows(upload), expected[[1, 2]], atol=1e-6)


def test_fedssa_words_of_each_setting() -> None:
    built = still()
    expected = {  # (down, up): a row is 2 weights and a bias; class ids are the rest
        ("by_class", "seen"): (6, 8),
        ("by_class", "all"): (12, 8),
        ("whole", "all"): (12, 12),
        ("whole", "seen"): (6, 12),
    }
    for (aggregation, replace), wanted in expected.items():
        method, now = FedSSA(aggregation=aggregation, replace=replace), tiny.context(built)
        down = method.download(method.init_server(now), built.clients[1].info, now)
        up = tiny.visit(method, built.clients[1], down, built)
        assert (down.words(), up.words()) == wanted
        # The paper counts the whole header each way (section 6.2, Algorithm 1): 4 rows of 3.
        assert [method.published_words(message, now) for message in (down, up)] == [12, 12]


@pytest.mark.parametrize("aggregation", ["by_class", "whole"])
@pytest.mark.parametrize("rounds", [1, 2, 60])
def test_fedssa_over_all_owners_looks_at_who_uploads_only(aggregation: str, rounds: int) -> None:
    """The sums are those of each owner's last rows, the first ones of who never sent any; no list of all clients is read."""
    built, method = still(), FedSSA(aggregate_over="all", aggregation=aggregation)
    server = method.init_server(tiny.context(built))
    now = dataclasses.replace(tiny.context(built), infos=None)  # type: ignore[arg-type]
    latest, start = dict.fromkeys(range(3), rows(server)), rows(server)
    stream = np.random.default_rng(0)
    for _ in range(rounds):
        sent = {int(stream.integers(3)): stream.normal(size=start.shape) * 10.0 ** stream.integers(-3, 4)}
        method.aggregate(server, uploads_of(method, sent, built), now)
        latest |= sent
    owners = [client.classes.tolist() if aggregation == "by_class" else range(4) for client in built.clients]
    for s in range(4):
        own = [latest[k][s] for k in range(3) if s in owners[k]]
        np.testing.assert_allclose(rows(server)[s], np.mean(own, 0) if own else start[s], rtol=1e-6, atol=1e-9)


def test_fedssa_ablations() -> None:
    """Case 4 A, all of equal size, is LG-FedAvg; 5 B leaves unseen rows to the client, 5 A does not."""
    labels = ([0, 1], [1, 2], [2, 0])
    digests = {}
    for name, method in (
        ("4 A", FedSSA(aggregation="whole", replace="all", mu0=0)),
        ("LG-FedAvg", ALGORITHMS["LG-FedAvg"]()),
        ("5 A", FedSSA(replace="all", mu0=0)),
        ("5 B", FedSSA(mu0=0)),
        ("5 C", FedSSA()),
        ("4 B", FedSSA(aggregation="whole", replace="all")),
    ):
        outcome = simulate(tiny.federation_of(labels), method, 3)
        digests[name] = [client.model.header.weight.detach() for client in outcome.clients]
    flat = {name: torch.cat(values).flatten() for name, values in digests.items()}
    assert torch.allclose(flat["4 A"], flat["LG-FedAvg"], atol=1e-6)
    names = [name for name in flat if name != "LG-FedAvg"]
    for i, one in enumerate(names):
        for other in names[:i]:
            assert not torch.allclose(flat[one], flat[other], atol=1e-4), (one, other)
