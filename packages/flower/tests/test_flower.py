"""A federation whose sides share nothing but bytes, without Flower: here the post is a dictionary. Processes, TLS and kills
are in test_flower_loopback.py.
"""

import dataclasses
import json
import subprocess
import sys
import time
import types

import pandas as pd
import pytest
import torch
from united import outcome_of, rows, simulated_run, tables

from fedlib import FedlibError, RunSpec, lab
from fedlib.simulation import sampled_clients
from fedlib_flower import here, node, resident, server, shares, wire

NODES = 3
SPEC = RunSpec("FedSSA", dataset="digits", num_clients=5, participation=0.6, rounds=3, batch_size=32)
METHODS = {
    "FedSSA": {},
    "FedGH": {},
    "pFedES": {},
    "FedMD": {"public_images": 16},
    "pFedHR": {"public_images": 16, "params": {"clusters": 2}, "scenario": "heterogeneous"},
}


class Bag(here.Here):
    """Nodes in this process. `lost` and `late`: (node, round) -> how often what is sent there is lost, or never answered;
    `change`: called with each reply; `after`: called with these nodes, the name of each message and its requests.
    """

    def __init__(self, folder, lost=(), late=(), change=None, after=None):
        super().__init__(folder, NODES)
        self.change, self.after = change, after
        self.lost, self.late = dict(lost), dict(late)
        self.there, self.asked_of = set(range(NODES)), []

    def nodes(self):
        return self.there

    def ask(self, number, run, session, requests):
        round = wire.request_from_bytes(next(iter(requests.values()))).round
        place = (number, round)
        self.asked_of.append(place)
        name = f"{len(self.asked_of)} of {place}"
        if self.late.get(place, 0) > 0:
            self.late[place] -= 1
        elif self.lost.get(place, 0) > 0:
            self.lost[place] -= 1
            self.sent[name] = None
        else:
            name = super().ask(number, run, session, requests)
            if self.change and not isinstance(self.sent[name], str):
                self.sent[name] = {id: self.change(reply) for id, reply in self.sent[name].items()}
        if self.after:
            self.after(self, name, requests)
        return name


@pytest.fixture
def dealt(small_digits, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "PAUSE", 0.0)
    return shares.deal(SPEC, tmp_path, NODES)


def serve(folder, run, patience=60.0, out="out", post=None, **bag):
    post = post or Bag(folder, **bag)
    server.serve(post, folder / "server" / run.key, folder / out, patience)
    return post


@pytest.mark.thorough("FedSSA")
@pytest.mark.parametrize("name", METHODS)
def test_apart_and_in_one_process_are_the_same_bytes(name, small_digits, tmp_path):
    spec = dataclasses.replace(SPEC, algorithm=name, rounds=2, **METHODS[name])
    run = shares.deal(spec, tmp_path, NODES)
    serve(tmp_path, run)
    assert tables(tmp_path / "out") == simulated_run(run)
    assert not (tmp_path / "out/checkpoint.pt").exists()


@pytest.mark.thorough(None)
def test_a_record_of_the_store_has_these_bytes_too(dealt, tmp_path):
    serve(tmp_path, dealt)
    stored = lab.run(SPEC, progress=False).path
    assert tables(tmp_path / "out") == tables(stored)
    assert (
        json.loads((tmp_path / "out/spec.json").read_text())["spec"]
        == json.loads((stored / "spec.json").read_text())["spec"]
    )


@pytest.mark.thorough
def test_a_budget_ends_a_run_over_nodes_as_it_does_in_one_process(small_digits, tmp_path):
    run = shares.deal(dataclasses.replace(SPEC, budget_words=1.0), tmp_path, NODES)
    serve(tmp_path, run)
    assert tables(tmp_path / "out") == tables(lab.run(run.spec, progress=False).path)
    assert len(rows(tmp_path / "out/rounds.csv")) == 2


# ------------------------------------------------------------------------------------------------ who has what


def test_each_side_has_its_own_images_alone(dealt, small_digits, tmp_path):
    whole = lab.federation_of(dealt)
    images = {bytes(small_digits.images[k].contiguous().numpy()) for k in range(len(small_digits.labels))}
    seen = []
    for number in range(NODES):
        share, _ = shares.read(tmp_path / f"node-{number}", dealt.key)
        federation = shares.federation_from(share, dealt)
        assert [client["id"] for client in share["clients"]] == list(range(number, 5, NODES))
        for own, other in zip(federation.clients, whole.clients, strict=True):
            held = bytes(federation.pool.images[torch.cat([own.train, own.validation, own.test])].numpy())
            if own.id % NODES == number:
                for part in ("train", "validation", "test"):
                    mine, theirs = getattr(own, part), getattr(other, part)
                    assert torch.equal(federation.pool.batch(mine), whole.pool.batch(theirs))
                    assert torch.equal(federation.pool.labels[mine], whole.pool.labels[theirs])
                    seen += [bytes(image.contiguous().numpy()) for image in federation.pool.images[mine]]
            else:
                assert not any(held)
    assert set(seen) <= images and len(seen) == sum(
        len(part) for client in whole.clients for part in (client.train, client.validation, client.test)
    )

    share, _ = shares.read(tmp_path / "server", dealt.key)
    federation = shares.federation_from(share, dealt)
    assert not federation.pool.images.any() and share["public"] is None
    assert all("images" not in client for client in share["clients"])
    for own, other in zip(federation.infos, whole.infos, strict=True):
        assert (own.id, own.architecture, own.num_samples) == (other.id, other.architecture, other.num_samples)
        assert torch.equal(own.classes, other.classes)


def test_public_images_are_everybody_s(small_digits, tmp_path):
    for labels in (True, False):
        spec = dataclasses.replace(SPEC, algorithm="FCCL", public_images=16, public_labels=labels)
        run = shares.deal(spec, tmp_path, NODES)
        public = lab.federation_of(run).public
        for side in ("server", "node-0"):
            share, _ = shares.read(tmp_path / side, run.key)
            other = shares.federation_from(share, run).public
            assert other.labelled == labels == public.labelled and other.augment and public.augment
            assert torch.equal(other.pool.batch(other.indices), public.pool.batch(public.indices))
            assert torch.equal(other.pool.labels[other.indices], public.pool.labels[public.indices])


def test_copying_models_between_clients_is_refused_in_one_line(small_digits, tmp_path):
    spec = dataclasses.replace(SPEC, overrides={"inherit": "first_visit"})
    with pytest.raises(FedlibError, match=r"^inherit = 'first_visit': must be 'none', unless clients are in_process"):
        shares.deal(spec, tmp_path, NODES)
    with pytest.raises(FedlibError, match=r"^nodes = 6: must be between 1 and 5, the number of clients$"):
        shares.deal(SPEC, tmp_path, 6)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("run", ["Other", "../node-1", "", "."])
def test_a_run_that_a_side_has_no_share_of_is_one_line(dealt, tmp_path, run):
    with pytest.raises(FedlibError, match=r"has no share of it, or a damaged one$"):
        node.answer(tmp_path / "node-0", run, 0, {})


# --------------------------------------------------------------------------------- nodes that are slow, gone or wrong


@pytest.mark.thorough
def test_a_node_that_never_answers_is_left_out_and_named(dealt, tmp_path, capsys):
    home = int(sampled_clients(dealt.spec.seed, 1, 5, 0.6)[0]) % NODES
    post = serve(tmp_path, dealt, 3.0, late={(home, 1): 100})
    rounds = rows(tmp_path / "out/rounds.csv")
    asked = [number for number, round in post.asked_of if round == 1]
    assert asked.count(home) > 1  # it was asked again before it was left out
    lost = [row for row in rows(tmp_path / "out/messages.csv") if row["seconds"] == ""]
    assert lost and all(row["round"] == "1" and int(row["client"]) % NODES == int(row["node"]) == home for row in lost)
    assert [row["absent"] for row in rounds] == ["", "", f"{float(len(lost))}", ""]
    assert int(rounds[2]["selected"]) == 3 - len(lost) and int(rounds[3]["selected"]) == 3
    said = capsys.readouterr().err
    assert f"round 1: client {lost[0]['client']}: has not answered within 3 s; the round goes on without it" in said
    assert {row["reason"] for row in lost} == {"has not answered within 3 s"}
    details = [json.loads(line) for line in (tmp_path / "out/details.jsonl").read_text().splitlines()]
    assert details[0]["absent_clients"] == [int(row["client"]) for row in lost]


def a_clock(monkeypatch):
    """A clock that goes on only while the server sleeps."""
    now = [0.0]
    sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)  # noqa: E731
    stand_in = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, time_ns=time.time_ns)
    monkeypatch.setattr(server, "time", stand_in)
    return now


class Leaving(Bag):
    """A node that goes in round 1, while it has the message, and comes back for round 4."""

    def nodes(self):
        return self.there - ({1} if any(place == (1, 1) for place in self.asked_of) and not self.back else set())

    def ask(self, number, run, session, requests):
        round = wire.request_from_bytes(next(iter(requests.values()))).round
        self.back = round >= 3  # by then the others are asked in round 3
        return super().ask(number, run, session, requests)

    back = False


@pytest.mark.thorough
def test_a_node_that_has_gone_costs_one_patience_in_all(small_digits, tmp_path, monkeypatch):
    run = shares.deal(dataclasses.replace(SPEC, participation=1.0, rounds=5), tmp_path, NODES)
    now = a_clock(monkeypatch)
    post = Leaving(tmp_path, late={(1, 1): 9})
    serve(tmp_path, run, post=post)
    absent = [row["absent"] for row in rows(tmp_path / "out/rounds.csv")]
    assert [bool(value) and float(value) > 0 for value in absent] == [False, False, True, True, False, False]
    assert 60 < now[0] < 70


@pytest.mark.thorough
def test_a_round_in_which_no_node_answers_ends_the_run_in_one_line(small_digits, tmp_path):
    dealt = shares.deal(dataclasses.replace(SPEC, participation=1.0), tmp_path, NODES)
    late = {(number, 1): 100 for number in range(NODES)}
    with pytest.raises(
        FedlibError, match=r"^round 1: none of the clients can be used \(client [0-4]: has not answered"
    ):
        serve(tmp_path, dealt, 0.2, late=late)
    assert (tmp_path / "out/checkpoint.pt").exists()
    whole = (tmp_path / "out/messages.csv").read_text()
    (tmp_path / "out/messages.csv").write_text("client\n1\n")
    with pytest.raises(FedlibError, match=r"messages\.csv: is damaged: KeyError"):
        serve(tmp_path, dealt)
    (tmp_path / "out/messages.csv").write_text(whole)
    serve(tmp_path, dealt)  # goes on from round 1
    assert tables(tmp_path / "out") == simulated_run(dealt)
    assert not any(row["reason"] for row in rows(tmp_path / "out/messages.csv"))


@pytest.mark.thorough
def test_a_node_whose_messages_are_lost_is_asked_again(dealt, tmp_path):
    post = serve(tmp_path, dealt, lost={(number, round): 2 for number in range(NODES) for round in (-1, 0, 1, 2)})
    assert post.asked_of.count((0, -1)) == 3
    assert tables(tmp_path / "out") == simulated_run(dealt)


def test_a_run_begins_when_all_clients_are_there_and_asks_no_node_without_any_over_and_over(dealt, tmp_path):
    """Each question starts a process there."""
    post, asked = Bag(tmp_path), []
    post.there = {0, 1, 7}
    clients_of = post.clients_of

    def counted(nodes, run, seconds):
        asked.extend(nodes)
        return clients_of(nodes, run, seconds)

    post.clients_of = counted
    with pytest.raises(FedlibError, match=r"^clients 2: no node has them for run FedSSA-digits-[0-9a-f]+ after 0.5 s$"):
        serve(tmp_path, dealt, 0.5, post=post)
    assert asked.count(0) == asked.count(1) == 1 and 1 < asked.count(7) <= server.AGAIN + 1


def test_what_a_node_finds_wrong_ends_the_run_with_its_line(dealt, tmp_path):
    file = tmp_path / "node-2" / dealt.key / shares.SHARE
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(FedlibError, match=rf"^node 2 with clients 2: {file}: cannot be read") as error:
        serve(tmp_path, dealt)
    assert "\n" not in str(error.value) and (tmp_path / "out" / server.ERROR).read_text() == f"{error.value}\n"


@pytest.mark.thorough
def test_a_node_that_hangs_costs_one_patience_in_all_and_is_back_when_it_answers(small_digits, tmp_path, monkeypatch):
    """It is there all the time, and answers nothing from round 1 on; in round 3 it answers again, too late."""
    run = shares.deal(dataclasses.replace(SPEC, participation=1.0, rounds=6), tmp_path, NODES)
    clock = a_clock(monkeypatch)
    kept = set()

    def noted(post, name, requests):
        if post.asked_of[-1] == (1, 3):
            kept.add(name)

    post = Bag(tmp_path, late={(1, round): 9 for round in (1, 2)}, after=noted)
    answers, held = post.answers, {}

    def slow(names):
        """What node 1 answers in round 3 comes when round 4 has begun."""
        found = answers(names)
        held.update({name: found.pop(name) for name in list(found) if name in kept})
        if post.asked_of[-1][1] >= 4:
            found |= {name: held.pop(name) for name in names if name in held}
        return found

    post.answers = slow
    serve(tmp_path, run, post=post)
    absent = [bool(row["absent"]) and float(row["absent"]) > 0 for row in rows(tmp_path / "out/rounds.csv")]
    assert absent[1:5] == [False, True, True, True] and absent[-1] is False
    assert 60 < clock[0] < 70


@pytest.mark.thorough
def test_a_dead_node_at_which_alone_a_round_s_clients_are_lets_the_round_pass(small_digits, tmp_path, monkeypatch):
    run = shares.deal(dataclasses.replace(SPEC, participation=0.2, rounds=12), tmp_path, NODES)
    clock = a_clock(monkeypatch)
    serve(tmp_path, run, late={(0, round): 9 for round in range(12)})
    found = rows(tmp_path / "out/rounds.csv")[1:]
    sampled = [int(sampled_clients(run.spec.seed, round, 5, 0.2)[0]) for round in range(12)]
    assert sum(client % NODES == 0 for client in sampled) > 2
    for row, client in zip(found, sampled, strict=True):
        assert (row["selected"], row["absent"]) == (("0", "1.0") if client % NODES == 0 else ("1", ""))
    assert 60 < clock[0] < 70


def spoilt(reply, number):
    """A reply whose every number is another one."""
    value = wire.from_bytes(reply)
    for tensor in value["upload"]["tensors"].values():
        if tensor.is_floating_point():
            tensor.fill_(number)
    return wire.to_bytes(value)


def hostile_from(round, client, change):
    """Changes the replies of one client from a round on."""

    def changed(reply):
        answers = wire.from_bytes(reply)["answers"]
        return change(reply) if answers[2] == client and answers[1] >= round else reply

    return changed


@pytest.mark.thorough
def test_a_first_reply_that_cannot_be_used_is_an_absent_client_that_takes_part_afterwards(dealt, tmp_path):
    def changed(reply):
        return reply[:-1] if wire.from_bytes(reply)["answers"][1:3] == (-1, 2) else reply

    serve(tmp_path, dealt, change=changed)
    (told,) = [row for row in rows(tmp_path / "out/messages.csv") if row["reason"]]
    assert (told["round"], told["client"]) == ("-1", "2") and "cannot be read" in told["reason"]
    assert [row["absent"] for row in rows(tmp_path / "out/rounds.csv")] == ["1.0", "", "", ""]
    details = [json.loads(text) for text in (tmp_path / "out/details.jsonl").read_text().splitlines()]
    assert details[0] == {"round": -1, "absent_clients": [2]}
    whole = outcome_of(dealt)
    expected = lab.clients_of(whole).query("round >= 0 or client != 2")
    assert (tmp_path / "out/clients.csv").read_text() == expected.to_csv(index=False, lineterminator="\n")
    accuracies = [expected.query("round < 0")["accuracy"].mean(), *lab.rounds_of(whole)["accuracy"][1:]]
    assert pd.read_csv(tmp_path / "out/rounds.csv")["accuracy"].tolist() == pytest.approx(accuracies, abs=1e-12)


@pytest.mark.parametrize(("first", "last"), [(-1, "-1"), pytest.param(0, r"\d", marks=pytest.mark.slow)])
def test_a_run_none_of_whose_replies_can_be_used_ends_in_one_line(dealt, tmp_path, first, last):
    line = rf"^round {last}: none of the clients can be used \(client \d: cannot be read"
    with pytest.raises(FedlibError, match=line) as error:
        serve(
            tmp_path, dealt, change=lambda reply: reply[: None if wire.from_bytes(reply)["answers"][1] < first else -1]
        )
    assert "\n" not in str(error.value)
    assert len([row for row in rows(tmp_path / "out/messages.csv") if "cannot be read" in row["reason"]]) >= 5


@pytest.mark.thorough
def test_a_node_that_is_silent_before_round_0_begins_when_it_answers(small_digits, tmp_path, monkeypatch):
    """Until then it does not know that what it has of an earlier run is not this one's."""
    run = shares.deal(dataclasses.replace(SPEC, participation=1.0), tmp_path, NODES)
    clock = a_clock(monkeypatch)
    found = {}
    for out in ("first", "again"):  # the second finds states of the first
        clock[0] = 0.0
        post = Bag(tmp_path, late={(1, -1): server.AGAIN})
        serve(tmp_path, run, out=out, post=post)
        assert 60 <= clock[0] < 70 and post.asked_of.count((1, 0)) == 0
        told = [(row["round"], row["client"], row["reason"]) for row in rows(tmp_path / out / "messages.csv")]
        why = "has not answered within 60 s", "has answered only now as before round 0"
        assert [row for row in told if row[2]] == [(str(k - 1), id, why[k]) for k in (0, 1) for id in ("1", "4")]
        assert [row["absent"] for row in rows(tmp_path / out / "rounds.csv")] == ["2.0", "2.0", "", ""]
        found[out] = tables(tmp_path / out)
    assert found["first"] == found["again"]


@pytest.mark.thorough
def test_an_error_of_a_node_s_in_a_round_is_the_reason_of_its_absence(dealt, tmp_path):
    home = int(sampled_clients(dealt.spec.seed, 1, 5, 0.6)[0]) % NODES

    def damaged(post, name, requests):
        if post.asked_of[-1] == (home, 1):
            post.sent[name] = "its disk is full\nand so on"

    serve(tmp_path, dealt, after=damaged)
    told = {row["reason"] for row in rows(tmp_path / "out/messages.csv")} - {""}
    assert told == {"its node says: its disk is full and so on"}


@pytest.mark.thorough
def test_uploads_of_the_right_form_that_spoil_the_round_are_left_out(small_digits, tmp_path):
    """The sum of two numbers near float32's largest is infinite: with both of them the server would hold no number."""
    spec = dataclasses.replace(SPEC, algorithm="FML", participation=1.0, rounds=2)
    run = shares.deal(spec, tmp_path, NODES)
    first = hostile_from(1, 0, lambda reply: spoilt(reply, 3.1e38))
    second = hostile_from(1, 3, lambda reply: spoilt(reply, 3e38))
    serve(tmp_path, run, change=lambda reply: second(first(reply)))
    told = {row["client"]: row["reason"] for row in rows(tmp_path / "out/messages.csv") if row["reason"]}
    assert told == {"0": "its upload spoils the round: it leaves numbers that are not finite"}
    assert rows(tmp_path / "out/rounds.csv")[-1]["selected"] == "4"


@pytest.mark.thorough
def test_one_client_that_says_it_has_diverged_is_left_out_and_all_of_them_are_the_run(small_digits, tmp_path):
    run = shares.deal(dataclasses.replace(SPEC, participation=1.0, rounds=2), tmp_path, NODES)

    def diverged(reply):
        return wire.to_bytes(wire.from_bytes(reply) | {"loss": float("nan")})

    serve(tmp_path, run, change=hostile_from(1, 4, diverged))
    told = {row["client"]: row["reason"] for row in rows(tmp_path / "out/messages.csv") if row["reason"]}
    assert told == {"4": "says that it has diverged: its loss is not finite"}
    alone = shares.deal(dataclasses.replace(SPEC, participation=0.2, rounds=3), tmp_path, NODES)
    asked = int(sampled_clients(SPEC.seed, 1, 5, 0.2)[0])
    serve(tmp_path, alone, change=hostile_from(1, asked, diverged), out="alone")
    assert [row["round"] for row in rows(tmp_path / "alone/rounds.csv")] == [
        "-1",
        "0",
        "1",
        "2",
    ]  # nor is one all of them
    assert json.loads((tmp_path / "alone/spec.json").read_text())["status"] == "finished"
    wild = shares.deal(dataclasses.replace(SPEC, lr=1e38, batch_size=1000), tmp_path, NODES)
    serve(tmp_path, wild, out="wild")
    assert tables(tmp_path / "wild") == simulated_run(wild)
    assert json.loads((tmp_path / "wild/spec.json").read_text())["status"] == "diverged"


# --------------------------------------------------------------------------------------- killed and started again


class Killed(Exception):
    pass


@pytest.mark.thorough
@pytest.mark.parametrize("round", [0, 1, 2])
def test_a_server_that_is_killed_goes_on_to_the_same_bytes(dealt, tmp_path, round):
    """One node has done its part of the round by then and others have not."""

    def killed(post, name, requests):
        if post.asked_of[-1][1] == round:
            raise Killed

    with pytest.raises(Killed):
        serve(tmp_path, dealt, after=killed)
    serve(tmp_path, dealt)
    assert tables(tmp_path / "out") == simulated_run(dealt)
    sent = [(row["round"], row["client"]) for row in rows(tmp_path / "out/messages.csv")]
    assert len(sent) == len(set(sent)) == 5 + 3 * 3


def conversation(dealt, tmp_path):
    """All that client 0's node was sent in a run, by round, and what it answered."""
    sent = {}

    def noted(post, name, requests):
        if "0" in requests:
            sent[wire.request_from_bytes(requests["0"]).round] = {"0": requests["0"]}, post.sent[name]["0"]

    serve(tmp_path, dealt, after=noted)
    return sent


@pytest.mark.thorough
def test_a_node_answers_alike_however_often_and_after_a_kill(small_digits, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "PAUSE", 0.0)
    run = shares.deal(dataclasses.replace(SPEC, participation=1.0, rounds=4), tmp_path, NODES)
    sent = conversation(run, tmp_path)
    session, side = 2**62, tmp_path / "node-0"
    states = side / run.key / "states"
    assert node.answer(side, run.key, session, sent[3][0])["0"] == sent[3][1]  # as kept, by a later session

    (states / "0.reply").unlink()  # killed before the reply was kept: computed again from the state before
    assert content_of(node.answer(side, run.key, session, sent[3][0])["0"]) == content_of(sent[3][1])

    # Further back than the round that a server can be in, its states are gone, which is said; a new run needs none.
    with pytest.raises(
        FedlibError, match=r"^client = 0: its state before round 1 is gone, since it has been asked for"
    ):
        node.answer(side, run.key, session + 1, sent[1][0])
    for round in (-1, 0, 1, 2, 3):
        assert content_of(node.answer(side, run.key, session + 2, sent[round][0])["0"]) == content_of(sent[round][1])

    # What comes late, from a round or a server that is over, changes nothing.
    before = {path.name: path.read_bytes() for path in states.iterdir()}
    for late, round in ((session + 2, 2), (session + 1, 3), (0, -1)):
        with pytest.raises(FedlibError, match=rf"^client = 0: round {round} has been overtaken by round 3$"):
            node.answer(side, run.key, late, sent[round][0])
    assert {path.name: path.read_bytes() for path in states.iterdir()} == before
    assert sorted(path.name for path in states.glob("0-*")) == ["0-2", "0-3"]


@pytest.mark.thorough
def test_a_node_s_process_that_stays_answers_for_it_and_ends_with_its_owner(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "PAUSE", 0.0)
    run = shares.deal(dataclasses.replace(SPEC, participation=1.0, rounds=1), tmp_path / "one", NODES)
    sent, side = conversation(run, tmp_path / "one"), tmp_path / "other" / "node-0"
    shares.deal(run.spec, tmp_path / "other", NODES)
    (side / resident.SOCKET).touch()  # what a killed one leaves
    with subprocess.Popen(["sleep", "600"]) as owner:
        command = [sys.executable, "-m", "fedlib_flower.resident", str(side), str(owner.pid)]
        with subprocess.Popen(command) as staying:
            try:
                while (connection := resident._connect(side)) is None:
                    assert staying.poll() is None
                    time.sleep(0.05)
                connection.close()  # somebody who goes away is no harm
                with pytest.raises(FedlibError, match=r"^run = 'Nobody': .*node-0 has no share of it"):
                    resident.ask(side, "Nobody", 1, sent[0][0])
                for round in (-1, -1, 0):
                    reply = resident.ask(side, run.key, 1, sent[round][0])["0"]
                    assert content_of(reply) == content_of(sent[round][1])
                owner.kill()
                assert staying.wait(60) == 0
            finally:
                owner.kill()
                staying.kill()


def content_of(reply):
    """A reply without its seconds."""
    value = wire.from_bytes(reply)
    return (
        value["accuracies"]
        | {"loss": value["loss"]}
        | {name: tensor.tolist() for name, tensor in value["upload"]["tensors"].items()}
    )


def test_a_client_of_another_node_and_a_state_with_a_flipped_bit_are_refused(dealt, tmp_path):
    sent = conversation(dealt, tmp_path)
    with pytest.raises(FedlibError, match=r"^client = 0: must be one of this node's, \[1, 4\]$"):
        node.answer(tmp_path / "node-1", dealt.key, 2**62, sent[-1][0])
    last = max(sent)
    side = tmp_path / "node-0"
    states = side / dealt.key / "states"
    (states / "0.reply").unlink()
    for path in states.glob("0-*"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(FedlibError, match=r"^state of client 0 after round \d: is damaged"):
        node.answer(side, dealt.key, 2**62, sent[last][0])
