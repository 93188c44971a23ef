"""A member that means harm: replies of every kind that no client could have sent, one at a time, against every method.

None ends the run with an error or ends it at all, and none stores a wrong number: what is refused is an absent client with
its reason in messages.csv, and what has the right form changes nothing but that client's own numbers. Clients' honest
replies are computed once a method; only the server's part is done again for each hostile one.
"""

import dataclasses
import json
import math

import pytest
import torch
from united import rows

from fedlib import ALGORITHMS, RunSpec
from fedlib_flower import here, server, shares, wire

NODES, CLIENTS = 2, 4


def change(**fields):
    return lambda value, other: wire.to_bytes(value | fields)


def uploaded(edit):
    """The reply with another upload; nothing where `edit` has nothing to change."""

    def changed(value, other):
        upload = value["upload"] | {"tensors": dict(value["upload"]["tensors"])}
        return None if edit(upload) is False else wire.to_bytes(value | {"upload": upload})

    return changed


def tensors(edit, every=False):
    """The reply with its first tensor of floats, or every one, changed."""

    def changed(upload):
        found = [name for name, tensor in upload["tensors"].items() if tensor.is_floating_point() and tensor.numel()]
        for name in found if every else found[:1]:
            upload["tensors"][name] = edit(upload["tensors"][name])
        return bool(found)

    return uploaded(changed)


def named(name, edit):
    """The reply with the tensor of this name changed."""

    def changed(upload):
        if name not in upload["tensors"]:
            return False
        upload["tensors"][name] = edit(upload["tensors"][name])
        return True

    return uploaded(changed)


def with_number(number):
    def edit(tensor):
        edited = tensor.clone()
        edited[(0,) * tensor.ndim] = number
        return edited

    return edit


def answers(**fields):
    def changed(value, other):
        return wire.to_bytes(value | {"answers": tuple(wire.Bound(*value["answers"])._replace(**fields))})

    return changed


def accuracies(**fields):
    return lambda value, other: wire.to_bytes(value | {"accuracies": value["accuracies"] | fields})


def none_counted(value, other):
    """No image of any class, where a method's counts are of the seen classes alone."""
    counts = value["upload"]["tensors"].get("counts")
    return None if counts is None or (counts == 0).any() else named("counts", torch.zeros_like)(value, other)


def of_nothing(value, other):
    """No validation accuracy, of a client that has validation images."""
    return (
        None
        if value["accuracies"]["validation_accuracy"].isnan()
        else accuracies(validation_accuracy=NAN)(value, other)
    )


def without(name):
    def changed(value, other):
        return wire.to_bytes(value | {"accuracies": {k: v for k, v in value["accuracies"].items() if k != name}})

    return changed


def fewer(upload):
    return upload["tensors"].pop(next(iter(upload["tensors"]))) is not None if upload["tensors"] else False


def renamed(upload):
    if not upload["tensors"]:
        return False
    upload["tensors"]["another"] = upload["tensors"].pop(next(iter(upload["tensors"])))
    return True


def added(name, tensor):
    return uploaded(lambda upload: upload["tensors"].update({name: tensor}))


def put(**fields):
    return uploaded(lambda upload: upload.update(fields))


def raw(function):
    return lambda value, other: function(wire.to_bytes(value))


INF, NAN = math.inf, math.nan
REFUSED = {
    # bytes
    "nothing": raw(lambda content: b""),
    "cut in the header": raw(lambda content: content[:40]),
    "cut at the end": raw(lambda content: content[:-1]),
    "longer": raw(lambda content: content + b"\0"),
    "a pickle": raw(lambda content: b"\x80\x04cos\nsystem\n(S'true'\ntR."),
    "a header of 2**64": raw(lambda content: b"\xff" * 8 + content[8:]),
    "noise": raw(lambda content: bytes(range(256)) * 20),
    "a deep header": raw(lambda content: (10**6).to_bytes(8, "little") + b"[" * 10**6),
    # structure
    "a list": lambda value, other: wire.to_bytes([value]),
    "a number": lambda value, other: wire.to_bytes(3),
    "a field less": lambda value, other: wire.to_bytes({k: v for k, v in value.items() if k != "loss"}),
    "a field more": change(extra=1),
    "an upload that is a list": change(upload=[]),
    "an upload without tensors": change(upload={"num_samples": 3}),
    "tensors that are numbers": put(tensors={"weight": 3}),
    "tensors by number": put(tensors={0: torch.ones(1)}),
    "diagnostics in the upload": put(diagnostics={"mu": 1.0}),
    "a structure": put(structure=((1, "conv"),)),
    "a structure that is a list": put(structure=[1]),
    "inherited": change(inherited=True),
    "inherited, a number": change(inherited=1),
    # ids and replays
    "no request": lambda value, other: wire.to_bytes({k: v for k, v in value.items() if k != "answers"}),
    "a request that is a text": change(answers="this one"),
    "another run": answers(run="Other"),
    "another round": answers(round=0),
    "a round that is true": answers(round=True),
    "another client": answers(client=0),
    "a client that is none": answers(client=10**9),
    "another download": answers(request="0" * 64),
    "the last round's reply again": lambda value, other: other["replay"],
    "another client's reply": lambda value, other: other["neighbour"],
    "round -1's reply again": lambda value, other: other["first"],
    # losses
    "a loss that is a text": change(loss="low"),
    "many losses": change(loss=torch.ones(2)),
    "a complex loss": change(loss=torch.tensor(1j)),
    "a loss of 400 digits": change(loss=10**400),
    "a loss beyond float32": change(loss=1e300),
    "a loss far below 0": change(loss=-1e300),
    "a loss of NaN": change(loss=NAN),
    "an infinite loss": change(loss=INF),
    "a list of losses": change(loss=[1.0]),
    # accuracies
    "an accuracy of 2": accuracies(accuracy=2.0),
    "an accuracy below 0": accuracies(accuracy=-0.01),
    "an accuracy of NaN": accuracies(accuracy=NAN),
    "an infinite accuracy": accuracies(accuracy=INF),
    "an accuracy of 400 digits": accuracies(accuracy=10**400),
    "an accuracy that is a text": accuracies(accuracy="high"),
    "many accuracies": accuracies(accuracy=torch.ones(3)),
    "a validation accuracy of NaN": of_nothing,
    "a validation accuracy of -1": accuracies(validation_accuracy=-1.0),
    "no accuracy": without("accuracy"),
    "no validation accuracy": without("validation_accuracy"),
    "no accuracies": change(accuracies={}),
    "an accuracy called round": accuracies(round=1.0),
    "an accuracy called client": accuracies(client=1.0),
    "an accuracy called loss": accuracies(loss=0.0),
    "an accuracy called accuracy_all": accuracies(accuracy_all=1.0),
    "an accuracy of nobody's": accuracies(mine=1.0),
    "an accuracy of two lines": accuracies(**{"a\nb": 1.0}),
    "accuracies by number": change(accuracies={0: 1.0}),
    # diagnostics
    "a diagnostic of nobody's": change(diagnostics={"mine": 1.0}),
    "a diagnostic called accuracy": change(diagnostics={"accuracy": 1.0}),
    "a diagnostic called absent": change(diagnostics={"absent": 0.0}),
    "a thousand diagnostics": change(diagnostics={f"d{k}": 0.0 for k in range(1000)}),
    "mu of NaN": change(diagnostics={"mu": NAN}),
    "taught, a list": change(diagnostics={"taught": [1]}),
    "diagnostics that are a text": change(diagnostics="all well"),
    # counts
    "more images": put(num_samples=10**9),
    "images below 0": put(num_samples=-1),
    "images of 400 digits": put(num_samples=10**400),
    "half an image": put(num_samples=1.5),
    "images that are true": put(num_samples=True),
    "no number of images": put(num_samples=None),
    "counts of 0": none_counted,
    "counts below 0": named("counts", lambda tensor: -tensor),
    "counts of millions": named("counts", lambda tensor: tensor * 10**6),
    # seconds
    "seconds of NaN": change(evaluation_seconds=NAN),
    "seconds below 0": change(evaluation_seconds=-1.0),
    "seconds beyond a life": change(evaluation_seconds=1e300),
    "seconds that are a text": change(evaluation_seconds="long"),
    # names and sizes
    "a tensor more": added("another", torch.ones(3)),
    "40 MB more": added("another", torch.zeros(10**7)),
    "a tensor more, of two lines": added("a\nb", torch.ones(1)),
    "a tensor more, of no numbers": added("", torch.zeros(0)),
    "a tensor less": uploaded(fewer),
    "a tensor under another name": uploaded(renamed),
    "one more row": tensors(lambda tensor: torch.cat([torch.atleast_1d(tensor), torch.atleast_1d(tensor)[:1]])),
    "no rows": tensors(lambda tensor: torch.atleast_1d(tensor)[:0]),
    "an axis more": tensors(lambda tensor: tensor[None]),
    "flat": tensors(lambda tensor: tensor.reshape(-1) if tensor.ndim > 1 else tensor.reshape(-1, 1)),
    "one number": tensors(lambda tensor: torch.tensor(1.0)),
    "a shape that would broadcast": tensors(lambda tensor: tensor.new_ones([1] * (tensor.ndim + 1))),
    "a million rows": tensors(lambda tensor: tensor.new_zeros((10**6, 3))),
    # dtypes
    "doubles": tensors(torch.Tensor.double, every=True),
    "halves": tensors(torch.Tensor.half, every=True),
    "whole numbers": tensors(torch.Tensor.int),
    "truth values": tensors(torch.Tensor.bool),
    "complex numbers": tensors(lambda tensor: tensor.to(torch.complex64)),
    # numbers
    "one NaN": tensors(with_number(NAN)),
    "one infinity": tensors(with_number(INF)),
    "minus infinity everywhere": tensors(lambda tensor: torch.full_like(tensor, -INF), every=True),
    # classes
    "a class that is none": named("classes", lambda tensor: tensor + 10**6),
    "classes below 0": named("classes", lambda tensor: tensor - 100),
    "a class of 2**62": named("classes", lambda tensor: torch.full_like(tensor, 2**62)),
    "a class twice": named("classes", lambda tensor: tensor[:1].repeat(len(tensor)) if len(tensor) > 1 else tensor + 1),
    "classes that are floats": named("classes", torch.Tensor.float),
    "no classes": named("classes", lambda tensor: tensor[:0]),
    "another's class": named("classes", lambda tensor: (tensor + 1) % 10),
}
# What has the right form is believed: nobody but the client could know better.
BELIEVED = {
    "no loss": change(loss=None),
    "another order": lambda value, other: wire.to_bytes(
        value | {"accuracies": dict(reversed(value["accuracies"].items()))}
    ),
    "better than it is": accuracies(accuracy=1.0),
    "classes in another order": named("classes", lambda tensor: tensor.flip(0)),
    "zeros": tensors(torch.zeros_like, every=True),
    "large numbers": tensors(lambda tensor: torch.full_like(tensor, 3e38), every=True),
}
SAMPLE = (
    "a pickle",
    "the last round's reply again",
    "a loss of NaN",
    "an accuracy called round",
    "40 MB more",
    "one NaN",
)
SPECS = {
    "FedProto": {"params": {"weighted": True}},  # which sends counts
    "pFedHR": {"params": {"clusters": 2, "max_candidates": 1, "cka_samples": 4}, "scenario": "heterogeneous"},
}


class Recorded(here.Here):
    """Nodes whose honest replies are computed once for each request; the reply of one client in one round is changed."""

    def __init__(self, folder, victim, round):
        super().__init__(folder, NODES)
        self.victim, self.round, self.known, self.change = victim, round, {}, None
        self.seen = {}  # (round, client) -> its honest reply

    def ask(self, number, run, session, requests):
        self.asked += 1
        asked = {name: wire.request_from_bytes(content) for name, content in requests.items()}
        bound = {name: wire.Bound.to(run, asked[name], requests[name]) for name in requests}
        missing = {name: content for name, content in requests.items() if bound[name] not in self.known}
        if missing:
            honest = here.answer(self.folder / f"node-{number}", run, session, missing)
            self.known |= {bound[name]: reply for name, reply in honest.items()}
        replies = {}
        for name, request in asked.items():
            reply = self.seen[request.round, request.client] = self.known[bound[name]]
            if (request.round, request.client) == (self.round, self.victim) and self.change:
                reply = self.change(wire.from_bytes(reply), self.other())
            replies[name] = reply
        self.sent[str(self.asked)] = replies
        return str(self.asked)

    def other(self):
        """Honest replies to other requests; before round 0 there are none of the client's own."""
        before = max(self.round - 1, -1)
        neighbour = next(
            reply for (round, client), reply in self.seen.items() if round == before and client != self.victim
        )
        own = {"replay": self.seen[before, self.victim], "first": self.seen[-1, self.victim]}
        return {"neighbour": neighbour} | (own if self.round >= 0 else dict.fromkeys(own))


def outcome_of(post, run, out):
    server.serve(post, post.folder / "server" / run.key, out, 60.0)
    return {name: rows(out / f"{name}.csv") for name in ("rounds", "clients", "messages")}


def check_finite(found, honest):
    """No column more than an honest run has, and no number that is missing where it has one, or is none."""
    for name in ("rounds", "clients"):
        assert set(found[name][0]) <= set(honest[name][0]) | {"absent"}
        plain = {tuple(row[key] for key in ("round", "client") if key in row): row for row in honest[name]}
        for row in found[name]:
            other = plain[tuple(row[key] for key in ("round", "client") if key in row)]
            for key, text in row.items():
                if key not in ("absent", "architecture", "loss") and other.get(key):
                    assert text and math.isfinite(float(text)), (name, key, text)
            for key in row:
                if "accuracy" in key and row[key]:
                    assert 0 <= float(row[key]) <= 1


def attack(name, cases, folder, monkeypatch, capsys, round=1):
    monkeypatch.setattr(server, "PAUSE", 0.0)
    public = {"public_images": 16} if ALGORITHMS[name].public_data != "none" else {}
    scenario = {"scenario": "homogeneous"} if ALGORITHMS[name].needs == "architecture" else {}
    spec = RunSpec(
        name, dataset="digits", num_clients=CLIENTS, participation=1.0, rounds=2, batch_size=64, **public, **scenario
    )
    run = shares.deal(dataclasses.replace(spec, **SPECS.get(name, {})), folder, NODES)
    post = Recorded(folder, 2, round)
    honest = outcome_of(post, run, folder / "honest")
    tried = 0
    for number, (case, change) in enumerate(cases.items()):
        post.change = change
        if change(wire.from_bytes(post.seen[round, 2]), post.other()) is None:
            continue  # this method sends nothing of the kind
        tried += 1
        out = folder / f"out-{number}"
        found = outcome_of(post, run, out)
        status = json.loads((out / "spec.json").read_text())["status"]
        assert status == "finished", case
        victim = f"{round}", "2"
        (own,) = [row for row in found["rounds"] if row["round"] == victim[0]]
        (message,) = [row for row in found["messages"] if (row["round"], row["client"]) == victim]
        if case in REFUSED:
            assert message["reason"] and "\n" not in message["reason"], case
            assert (own["absent"], own["selected"]) == ("1.0", "0" if round < 0 else "3"), case
            assert not any(row["absent"] for row in found["rounds"] if row is not own), case
            said = f"round {round}: client 2: {message['reason']}; the round goes on without it\n"
            assert said in capsys.readouterr().err, case
            others = [row for row in honest["clients"] if (row["round"], row["client"]) != victim]
            assert found["clients"] == others, case
        else:
            assert (
                message["reason"] == "" or "spoils the round" in message["reason"] or "within" in message["reason"]
            ), case
        check_finite(found, honest)
    return tried


@pytest.mark.thorough("FedSSA")
@pytest.mark.parametrize("name", ["FedSSA", "FedProto"])
def test_a_few_hostile_replies(name, small_digits, tmp_path, monkeypatch, capsys):
    assert len(REFUSED) >= 100
    cases = {case: REFUSED[case] for case in SAMPLE}
    assert attack(name, cases, tmp_path, monkeypatch, capsys) == len(SAMPLE)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_hostile_reply_to_every_method(name, small_digits, tmp_path, monkeypatch, capsys):
    assert attack(name, REFUSED | BELIEVED, tmp_path, monkeypatch, capsys) >= 80


@pytest.mark.nightly
def test_every_hostile_reply_before_round_0(small_digits, tmp_path, monkeypatch, capsys):
    """Where every method's clients say the same: how good their initial models are."""
    assert attack("FedSSA", REFUSED, tmp_path, monkeypatch, capsys, round=-1) >= 75
