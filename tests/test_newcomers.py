"""Clients that are in no round: what a download gives them, and visits make of that. Each method: test_contract.py."""

import numpy as np
import pytest
import tiny

from fedlib import ALGORITHMS, RunSpec, lab, simulate, study
from fedlib.__main__ import main
from fedlib.algorithms import make
from fedlib.federation import Federation

SMALL = {"dataset": "digits", "num_clients": 5, "participation": 0.4, "rounds": 2, "batch_size": 8, "public_images": 16}


def asked(name: str, **more) -> RunSpec:
    whole = ALGORITHMS[name].needs == "architecture"
    given = {
        "scenario": "CNN-5" if whole else "CNN-5,CNN-4",
        "params": {"clusters": 2} if name == "pFedHR" else {},
        "newcomers": 2,
    }
    return RunSpec(name, **SMALL | given | {"newcomer_visits": 2} | more)


def by_hand(visits: int = 2) -> Federation:
    """Two clients with the tiny network and full batches, of which one is new."""
    return tiny.federation_of(tiny.LABELS, newcomer_visits=visits)


def test_a_newcomer_of_fedavg_by_hand():
    """It begins at what the member has trained, and takes a full-batch step a visit."""
    federation = by_hand()
    (new,), (member,) = federation.newcomers, federation.members
    nets = [tiny.Net(federation.clients[id].model) for id in (new, member)]
    start = tiny.Net(federation.clients[new].model)
    outcome = simulate(federation, make("FedAvg"), 1)
    x, y = tiny.training_data(federation.clients[member])
    nets[1].train(x, y)
    client = federation.clients[new]
    tested = client.test, int(federation.pool.labels[client.test])
    seen, (x, y) = tiny.first_pixels(federation, client.test), tiny.training_data(client)
    expected = [start.logits(seen).argmax(1)[0] == tested[1]]
    for visits in range(3):
        expected.append(nets[1].logits(seen).argmax(1)[0] == tested[1])
        if visits < 2:
            loss = -np.log(tiny.softmax(nets[1].logits(x))[np.arange(len(y)), y]).mean()
            if visits == 0:
                assert outcome.newcomer_rows[2]["loss"] == pytest.approx(loss, rel=1e-5)
            nets[1].train(x, y)
    nets[1].agrees(client.model)
    assert [row["accuracy"] for row in outcome.newcomer_rows] == [float(hit) for hit in expected]
    assert [row["visits"] for row in outcome.newcomer_rows] == [-1, 0, 1, 2]
    assert [row["download_words"] for row in outcome.newcomer_rows] == [0] + 3 * [4 + 6 + 3]
    assert {row["client"] for row in outcome.newcomer_rows} == {new}
    assert {row["client"] for row in outcome.client_rows if row["round"] >= 0} == {member}


def test_each_number_of_visits_begins_at_the_download():
    """Standalone, whose download holds nothing: two visits are two full-batch steps from the first weights, not one more."""
    federation = by_hand(2)
    client = federation.clients[int(federation.newcomers[0])]
    net, (x, y) = tiny.Net(client.model), tiny.training_data(client)
    simulate(federation, make("Standalone"), 1)
    net.train(x, y)
    net.train(x, y)
    net.agrees(client.model)


@pytest.mark.thorough
def test_the_server_learns_nothing_of_newcomers_nor_they_of_each_other():
    servers = []
    for visits in (1, 3):
        outcome = simulate(by_hand(visits), make("FedAvg"), 2)
        servers.append(outcome.server)
    assert tiny.equal_states(*servers)
    spec = asked("FedSSA", newcomers=2, newcomer_visits=1)
    two = lab.federation_of(lab.resolve(spec))
    simulate(two, make("FedSSA"), 2, 0.4)
    one = lab.federation_of(lab.resolve(spec))
    one.newcomers = one.newcomers[1:]
    simulate(one, make("FedSSA"), 2, 0.4)
    id = int(one.newcomers[0])
    assert tiny.equal_states(one.clients[id].model.state_dict(), two.clients[id].model.state_dict())


@pytest.mark.thorough
def test_a_newcomer_of_pfedhr_is_one_of_standalone(small_digits):
    given = {"paper": "FedSSA", "overrides": {"reserve": True}}
    alone, stitched = (lab.run(asked(name, **given), progress=False).newcomers for name in ("Standalone", "pFedHR"))
    assert alone.equals(stitched)


@pytest.mark.thorough
def test_newcomers_come_after_the_last_round_of_a_run_that_ends_early(small_digits):
    ended = lab.run(asked("FedProto", budget_words=1.0, rounds=5), progress=False)
    assert len(ended.rounds) == 2 and len(ended.newcomers) == 8
    patient = lab.run(asked("FedProto", patience=1, lr=0.0, rounds=5), progress=False)
    assert len(patient.rounds) < 6 and len(patient.newcomers) == 8


@pytest.mark.thorough
def test_a_study_has_a_frame_of_newcomers_and_a_run_says_theirs(small_digits, capsys):
    more = {"newcomers": 2, "newcomer_visits": 2, "scenario": "CNN-5", "participation": 1.0, "rounds": 1}
    more |= {"classes_per_client": 5}
    found = study.train(["Standalone", "FedProto"], seeds=(0, 1), jobs=1, **SMALL | more)
    means = found.newcomers.groupby(["method", "visits"], sort=False)["accuracy"].mean()
    assert means.index.tolist() == [(name, visits) for name in ("Standalone", "FedProto") for visits in (-1, 0, 1, 2)]
    own = [one.newcomers.query("visits == 2")["accuracy"].mean() for one in found.records[2:]]
    assert means["FedProto", 2] == pytest.approx(np.mean(own))
    assert len(study.train(["Standalone"], jobs=1, **SMALL | {"rounds": 1}).newcomers) == 0
    said = ["--scenario", "CNN-5", "--num-clients", "5", "--newcomers", "1", "--newcomer-visits", "1", "--rounds", "1"]
    assert main(["run", "FedProto", *said]) == 0
    assert "mean test accuracy of 1 newcomers, %: at the start " in capsys.readouterr().out
