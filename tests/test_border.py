"""A person's own code at the border: each of these methods, networks, partitions and data sets is refused in one line that
names it, or gives the same bits in one process, over a wire, again and resumed.
"""

import collections
import itertools
import random
import re
import sys
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from fedlib import (
    Dataset,
    Federation,
    FedlibError,
    Model,
    border,
    check,
    data,
    metrics,
    models,
    partition,
    randomness,
    simulate,
    simulation,
)
from fedlib.algorithms import ALGORITHMS, Algorithm, make
from fedlib.federation import Message
from fedlib.isolated import Isolated
from fedlib.partition import Dealing
from fedlib.simulation import Reply

DATA = tiny.dataset(num_classes=3, per_class=20)
ROUNDS = 3
HELD = [np.arange(start, start + 20) for start in (0, 20, 40)]


def federation(architecture: str = "tiny-a") -> Federation:
    return Federation(DATA, HELD, (architecture,), batch_size=8)


@dataclass(frozen=True)
class Shared(Algorithm):
    """A method that is as it should be: the mean of the headers, and what a client had before."""

    name = "Shared"

    def init_server(self, context):
        return {"weight": context.initial_header().weight.detach()}

    def download(self, server, info, context):
        return Message({"weight": server["weight"]})

    def init_client(self, client, context):
        client.state["before"] = client.model.header.weight.detach()

    def local_round(self, client, message, context):
        with torch.no_grad():
            client.model.header.weight.copy_((message["weight"] + client.state["before"]) / 2)
        context.train()
        client.state["before"] = client.model.header.weight.detach().clone()
        return Message({"weight": client.model.header.weight.detach()}, client.num_samples)

    def aggregate(self, server, uploads, context):
        server["weight"] = torch.stack([message["weight"] for _, message in uploads]).mean(0)
        return {"norm": server["weight"].norm(), "sizes": [info.num_samples for info, _ in uploads]}


def changed(**steps: Any) -> Algorithm:
    return type("Mine", (Shared,), {"name": "Mine", **steps})()


def before(change: Any) -> Any:
    """Shared's local round after `change(client, message)`, with the message that it hands back, if it does."""

    def local_round(self, client, message, context):
        given = change(client, message)
        return Shared.local_round(self, client, given if isinstance(given, Message) else message, context)

    return local_round


def after(change: Any) -> Any:
    """Shared's local round, and then `change(client, message, upload)`, whose message, if it hands one back, is uploaded."""

    def local_round(self, client, message, context):
        upload = Shared.local_round(self, client, message, context)
        given = change(client, message, upload)
        return given if isinstance(given, Message) else upload

    return local_round


# --------------------------------------------------------------------------------------------------- what is to hold


def over_bytes(server: Federation, algorithm: Algorithm, requests: list[Any]) -> list[Any]:
    """An exchange through bytes, with clients that are put away as bytes between their rounds."""
    replies = []
    for request in requests:
        client, sent = server.clients[request.client], Message(**tiny.posted(vars(request.download)))
        reply = simulation.answer(server, algorithm, request._replace(download=sent))
        upload = Message(**tiny.posted(vars(reply.upload)))
        replies.append(Reply(**tiny.posted(vars(reply) | {"upload": None}) | {"upload": upload}))
        if client.visited:
            kept = tiny.posted(client.snapshot())
            client.reset()
            client.restore(kept)
    return replies


def bits(method: Algorithm, path: Any, architecture: str = "tiny-a") -> str:
    """The one digest of all ways to run a method; `diverged` where it did."""
    outcomes = [
        simulate(federation(architecture), method, ROUNDS),
        simulate(federation(architecture), method, ROUNDS, exchange=over_bytes),
        simulate(federation(architecture), method, ROUNDS),
    ]
    if outcomes[0].status == "diverged":
        return "diverged"
    outcomes.append(tiny.stopped_and_resumed(lambda: federation(architecture), method, ROUNDS, path))
    tables = {str((one.round_rows, one.client_rows, one.detail_rows)) for one in outcomes}
    digests = {one.digest() for one in outcomes}
    assert len(digests) == len(tables) == 1, "in one process, over a wire, again and resumed differ"
    return digests.pop()


def rehearsed(method: Algorithm, architecture: str = "tiny-a", metrics: str = "") -> None:
    built = Federation(DATA, HELD, (architecture,), batch_size=8, metrics=metrics)
    check.rehearse(built, method, ROUNDS)


def said_by(call: Any, *arguments: Any) -> str:
    """The one line with which it is refused."""
    with pytest.raises(FedlibError) as refused:
        call(*arguments)
    line = str(refused.value)
    assert "\n" not in line and len(line) < 1200, line
    return line


@pytest.mark.thorough
def test_what_is_as_it_should_be_gives_the_same_bits_in_every_way(tmp_path):
    assert bits(Shared(), tmp_path / "c.pt") == bits(changed(), tmp_path / "d.pt") != "diverged"


# ---------------------------------------------------------------------------------------------- whatever a step raises

ODD = type("Odd", (Exception,), {"__str__": lambda self: 1 / 0})
RAISED = {
    "ValueError": ValueError("so\nand so"), "KeyError": KeyError("weight"), "SystemExit": SystemExit(3), "Odd": ODD(),
    "StopIteration": StopIteration(), "MemoryError": MemoryError(), "FileNotFoundError": OSError(2, "No such file"),
    "AssertionError": AssertionError(), "GeneratorExit": GeneratorExit(), "RecursionError": RecursionError("x" * 5000),
}  # fmt: skip
STEPS = ("check", "init_server", "download", "init_client", "local_round", "aggregate", "predict", "published_words")


def raising(error: BaseException) -> Any:
    def step(self, *arguments, **named):
        raise error

    return step


@pytest.mark.thorough
@pytest.mark.parametrize(("step", "error"), list(itertools.product(STEPS, RAISED)))
def test_what_a_step_raises_is_a_line_that_names_it(step, error):
    line = said_by(simulate, federation(), changed(**{step: raising(RAISED[error])}), ROUNDS)
    assert re.match(rf"^Mine\.{step}.*: {error}", line) and "test_border.py, line" in line


def test_a_line_names_round_and_client_and_the_error_is_there_to_be_looked_at():
    def local_round(self, client, message, context):
        if context.round == 1 and client.id == 2:
            raise KeyError("weigth")
        return Shared.local_round(self, client, message, context)

    with pytest.raises(
        FedlibError, match=r"^Mine.local_round in round 1 of client 2: KeyError: 'weigth' \(test_"
    ) as met:
        simulate(federation(), changed(local_round=local_round), ROUNDS)
    assert isinstance(met.value.__cause__, KeyError)


def test_an_error_of_fedlibs_own_parts_stays_what_it_is(monkeypatch):
    def aggregate(self, server, uploads, context):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(ALGORITHMS["FedAvg"], "aggregate", aggregate)
    monkeypatch.setattr(models, "BUILT_IN", models.BUILDERS | {})
    with pytest.raises(ZeroDivisionError, match="ours"):
        simulate(federation(), make("FedAvg"), 1)


# ------------------------------------------------------------------------------------------------- what is handed over

ring: list[Any] = []
ring.append(ring)
Pair = collections.namedtuple("Pair", "a b")
NOT_PLAIN = {
    "numpy number": np.float64(0.5), "numpy array": np.zeros(2), "numpy text": np.str_("a"), "set": {1, 2},
    "defaultdict": collections.defaultdict(int), "named": Pair(1, 2), "module": nn.Linear(2, 2), "function": len,
    "bytes": b"x", "object": object(), "complex": 1j, "generator": (one for one in "ab"), "class": int,
    "sparse": torch.eye(2).to_sparse(), "meta": torch.zeros(2, device="meta"), "key": {(1, 2): 3},
    "deep": {"a": [1, {"b": np.float32(1)}]}, "ring": ring, "true as a key": {True: 1}, "numpy key": {np.int64(1): 1},
}  # fmt: skip
PLACES = {
    "server, at first": lambda value: {
        "init_server": lambda self, context: Shared.init_server(self, context) | {"mine": value}
    },
    "server": lambda value: {"aggregate": lambda self, server, *given: server.update(mine=value)},
    "client": lambda value: {"local_round": after(lambda client, *_: client.state.update(mine=value))},
    "structure": lambda value: {
        "download": lambda *given: Message(Shared.download(*given).tensors, structure=(value,))
    },
    "tensor": lambda value: {"local_round": after(lambda *given: given[-1].tensors.update(mine=value))},
    "detail": lambda value: {"aggregate": lambda *given: Shared.aggregate(*given) | {"mine": value}},
}
# In details NumPy's values and tensors are written as Python's.
FINE_IN_DETAILS = ("numpy number", "numpy array", "numpy text", "deep", "named", "defaultdict")
REFUSED = [(place, kind) for place in PLACES for kind in NOT_PLAIN if place != "detail" or kind not in FINE_IN_DETAILS]


@pytest.mark.thorough
@pytest.mark.parametrize(("place", "kind"), REFUSED)
def test_what_is_not_plain_is_named_in_round_0(place, kind):
    line = said_by(simulate, federation(), changed(**PLACES[place](NOT_PLAIN[kind])), ROUNDS)
    assert line.startswith("Mine.") and ("mine" in line or place == "structure")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.float64(0.5), 0.5), ([np.int64(3), np.float32(1)], [3, 1.0]), (np.eye(2), [[1.0, 0.0], [0.0, 1.0]]),
        ({"a": torch.ones(2), 3: np.array(True)}, {"a": [1.0, 1.0], 3: True}), ((1, None, "x"), [1, None, "x"]),
        (np.str_("a"), "a"),
    ],
)  # fmt: skip
def test_details_of_numpy_are_written_as_pythons_own(value, written, tmp_path):
    method = changed(**PLACES["detail"](value))
    assert bits(method, tmp_path / "c.pt") != "diverged"
    outcome = simulate(federation(), method, 1)
    assert ({**outcome.round_rows[-1], **outcome.detail_rows[-1]})["mine"] == written


NO_MESSAGES = [
    None, {"weight": torch.zeros(2)}, Message, Message(None), Message([torch.zeros(2)]), Message({"w": 0.5}),
    Message({"w": np.zeros(2)}), Message({1: torch.zeros(1)}), Message({}, 1.5), Message({}, -1), Message({}, float("nan")),
    Message({}, "3"), Message({}, True), Message({}, 1, [1]),
]  # fmt: skip
HANDED_BACK = {
    "download": NO_MESSAGES, "local_round": NO_MESSAGES,
    "aggregate": [[1], "x", 3, torch.zeros(2), {1: 2}, {"loss": 3}, {"accuracy": 1}, {"visited": 0}, {"a": {"b": {1}}}],
    "init_server": [None, [], torch.zeros(2), {"a": np.int64(1)}, {(1,): 2}],
    "published_words": [None, -1, 1.5, "many", torch.tensor(1.0)],
}  # fmt: skip


@pytest.mark.parametrize(("step", "value"), [(step, value) for step, values in HANDED_BACK.items() for value in values])
def test_what_a_step_hands_back_is_checked(step, value):
    line = said_by(simulate, federation(), changed(**{step: lambda *given: value}), ROUNDS)
    none = step in ("download", "local_round") and not isinstance(value, Message)
    assert line.startswith(f"Mine.{step}") and (": must be a Message, the empty one is Message()" in line) == none, line


@pytest.mark.parametrize(
    "diagnostics",
    [
        None, [1], {"mu": "half"}, {"mu": torch.zeros(2)}, {"mu": np.zeros(2)}, {"mu": None}, {"mu": torch.tensor(1j)},
        {"mu": 10**400}, {3: 1.0}, {"round": 1.0}, {"accuracy": 1.0}, {"upload_words": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_clients_diagnostics_are_numbers_by_name(diagnostics):
    given = after(lambda client, message, upload: replace(upload, diagnostics=diagnostics))
    line = said_by(simulate, federation(), changed(local_round=given), ROUNDS)
    assert line.startswith("Mine.local_round in round 0 of client") and "diagnostic" in line
    assert (": must be a number, as it is a client's" in line) == ("mu" in (diagnostics or ())), line


# ------------------------------------------------------------------------------------------------------------- predict

ANSWERED = {
    "nothing": lambda logits: None, "a tensor": lambda logits: logits, "empty": lambda logits: {},
    "another first": lambda logits: {"mine": logits, "accuracy": logits}, "a row less": lambda logits: {"accuracy": logits[1:]},
    "a column more": lambda logits: {"accuracy": logits.repeat(1, 2)}, "classes": lambda logits: {"accuracy": logits.argmax(1)},
    "integers": lambda logits: {"accuracy": logits.long()}, "an array": lambda logits: {"accuracy": logits.numpy()},
    "complex": lambda logits: {"accuracy": logits + 0j}, "loss": lambda logits: {"accuracy": logits, "loss": logits},
    "validation": lambda logits: {"accuracy": logits, "validation_accuracy": logits},
    "a name": lambda logits: {"accuracy": logits, 7: logits}, "second short": lambda logits: {"accuracy": logits, "x": logits[:1]},
}  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERED)
def test_what_predict_answers_is_logits_an_image_a_row(kind):
    method = changed(predict=lambda self, client, images: ANSWERED[kind](client.model(images)))
    assert said_by(simulate, federation(), method, ROUNDS).startswith("Mine.predict")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_no_accuracy(number, tmp_path):
    method = changed(predict=lambda self, client, images: {"accuracy": client.model(images) * number})
    assert bits(method, tmp_path / "c.pt") == "diverged"


# ------------------------------------------------------------------- changed in place, held on to, drawn, kept elsewhere


def alias_of_download(self, client, message, context):
    client.model.header.weight.data = message["weight"]
    context.train()
    return Message({"weight": client.model.header.weight.detach()})


def alias_in_state(self, client, message, context):
    client.state["before"] = client.model.header.weight.data
    context.train()
    return Message({"weight": client.model.header.weight.detach() + client.state["before"]})


def settings_left(*given):
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)


def server_in_place(self, server, uploads, context):
    for _, message in uploads:
        message["weight"].mul_(2)
        server["weight"].add_(message["weight"])


def server_keeps_upload(self, server, uploads, context):
    server["latest"] = {info.id: message["weight"] for info, message in uploads}
    server["weight"] = sum(server["latest"].values()) / 3


def server_alias(self, server, uploads, context):
    server["weight"] = uploads[0].message["weight"]
    server["other"] = server["weight"]


def server_draws(self, server, uploads, context):
    server["weight"] = server["weight"] + torch.rand(()) + float(np.random.rand()) + random.random()  # noqa: NPY002


MENDED = {
    "download in place": before(lambda client, message: message["weight"].add_(1)),
    "its memory": before(lambda client, message: message["weight"].numpy().fill(0)),
    "its names": before(lambda client, message: Message({"weight": message.tensors.pop("weight")})),
    "alias of download": alias_of_download,
    "alias in state": alias_in_state,
    "kept download": after(lambda client, message, upload: client.state.update(before=message["weight"])),
    "kept upload": after(lambda client, message, upload: client.state.update(before=upload["weight"])),
    "left in training": after(lambda client, *_: client.model.train()),
    "with gradients": after(lambda client, message, upload: Message({"weight": client.model.header.weight})),
    "settings left": after(settings_left),
    "global torch": before(lambda client, *_: client.model.header.bias.data.add_(torch.randn(3))),
    "global NumPy": before(lambda client, *_: client.model.header.bias.data.add_(np.random.rand())),  # noqa: NPY002
    "global Python": before(lambda client, *_: client.model.header.bias.data.add_(random.random())),
    "server in place": server_in_place,
    "server keeps upload": server_keeps_upload,
    "server alias": server_alias,
    "server draws": server_draws,
}


def mended(kind: str) -> Algorithm:
    return changed(**{"aggregate" if kind.startswith("server") else "local_round": MENDED[kind]})


@pytest.mark.thorough
@pytest.mark.parametrize("kind", MENDED)
def test_what_is_changed_held_on_to_or_drawn_gives_the_same_bits_in_every_way(kind, tmp_path):
    start = torch.get_num_threads(), torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    python = random.getstate()
    assert bits(mended(kind), tmp_path / "c.pt") != "diverged"
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert torch.get_num_threads() == start[0] and torch.equal(torch.random.get_rng_state(), start[1])
    assert np.random.get_state()[1].tolist() == start[2] and random.getstate() == python  # noqa: NPY002


def test_draws_differ_from_client_to_client_and_round_to_round():
    drawn = []

    def local_round(self, client, message, context):
        drawn.append((context.round, client.id, float(torch.rand(())), random.random()))
        return Shared.local_round(self, client, message, context)

    def predict(self, client, images):
        drawn.append(("predict", client.id, float(torch.rand(())), random.random()))
        return Shared.predict(self, client, images)

    simulate(federation(), changed(local_round=local_round, predict=predict), 2)
    rounds = [each for each in drawn if each[0] != "predict"]
    assert len(set(rounds)) == 6 and len({each[2] for each in drawn}) >= 12


counted = itertools.count()


def with_diagnostic(name: str) -> Any:
    return after(lambda client, message, upload: replace(upload, diagnostics={name: next(counted)}))


def on_self(self, client, message, context):
    self.weight = message["weight"]
    return Shared.local_round(self, client, message, context)


def another_purpose(self, client, message, context):
    context.generator("mine")


def a_wrong_loss(self, client, message, context):
    context.train(lambda model, images, labels: model(images))


def server_unseeded(self, server, uploads, context):
    server["weight"] = server["weight"] + fresh(())


def server_changes_infos(self, server, uploads, context):
    for info in context.infos:
        info.classes.add_(1)


def server_not_detached(self, server, uploads, context):
    server["weight"] = nn.Parameter(server["weight"]) * 2


def download_changes(self, server, info, context):
    server["asked"] = server.get("asked", 0) + 1
    return Message({"weight": server["weight"]})


def predict_elsewhere(self, client, images):
    client.model.asked = getattr(client.model, "asked", 0) + 1
    return {"accuracy": client.model(images) * (2.0 if client.model.asked % 2 else 3.0)}


def file_changes(self, client, message, context):
    FILE.append(1)
    client.model.header.bias.data.add_(len(FILE))
    return Shared.local_round(self, client, message, context)


def from_round_1(change: Any) -> Any:
    """Shared's local round after `change(client, message)`, but not in round 0."""

    def local_round(self, client, message, context):
        if context.round:
            change(client, message)
        return Shared.local_round(self, client, message, context)

    return local_round


def momentum(client, message):
    KEPT[client.id] = message["weight"] + 0.9 * KEPT.get(client.id, 0)
    client.model.header.weight.data.add_(KEPT[client.id])
    message["weight"].copy_(KEPT[client.id])


def counted_up(self, client, message, context):
    if context.round:
        object.__setattr__(self, "rounds", getattr(self, "rounds", 0) + 1)
    return Shared.local_round(self, client, message, context)


def decaying() -> Any:
    rate = [1.0]

    def local_round(self, client, message, context):
        rate[0] *= 0.9
        context.train(lr=rate[0])
        return Message({"weight": client.model.header.weight.detach()})

    return local_round


def settings_changed(self, client, message, context):
    object.__setattr__(context.settings, "lr", 0.5)
    return Shared.local_round(self, client, message, context)


FILE: list[int] = []
KEPT: dict[int, torch.Tensor] = {}


def fresh(shape: tuple[int, ...]) -> torch.Tensor:
    """Drawn without a seed."""
    return torch.from_numpy(np.random.default_rng().random((*shape, 1))).float()[..., 0]


FOUND = [
    ("local_round", before(lambda client, *_: client.model.header.bias.data.add_(fresh(()))), "differs: it draws without a seed"),
    ("local_round", before(lambda client, *_: client.state.update(count=next(counted))), r"client.state\['count'\] of client 0 differs"),
    ("local_round", after(lambda *given: Message({"weight": given[-1]["weight"] + fresh(())})), r"the server's state\['weight'\] differs"),
    ("local_round", with_diagnostic("loss"), "loss of client . differs"),
    ("local_round", with_diagnostic("mu"), "mu differs"),
    ("local_round", before(lambda client, message: torch.manual_seed(0)), "torch.manual_seed was called"),
    ("local_round", on_self, "has changed attributes of the method"),
    ("local_round", before(lambda client, *_: setattr(client, "mine", 1)), "AttributeError: 'Client' object has no attribute 'mine'"),
    ("local_round", before(lambda client, *_: setattr(client, "state", {})), "AttributeError"),
    ("local_round", before(lambda client, *_: setattr(client.model, "mine", nn.Linear(2, 2))), "client.model has got mine.weight"),
    ("local_round", after(lambda client, *_: setattr(client.model, "header", nn.Identity())), "header.weight = None"),
    ("local_round", after(lambda client, *_: setattr(client.model, "header", nn.Linear(3, 4))), "header.weight"),
    ("local_round", after(lambda client, *_: client.model.double()), "torch.float64"),
    ("local_round", after(lambda client, *_: setattr(client, "model", "a network")), "client.model = 'a network': must be"),
    ("local_round", before(lambda client, *_: client.model.extractor.requires_grad_(False)), "extractor.2.weight = False: must be True"),
    ("local_round", before(lambda client, *_: client.state.update({3: 1.0})), "key of client.state = 3: must be text"),
    ("local_round", another_purpose, "purpose = 'mine' is unknown"),
    ("local_round", a_wrong_loss, "RuntimeError"),
    ("aggregate", server_unseeded, r"the server's state\['weight'\] differs"),
    ("aggregate", lambda *given: {"count": next(counted)}, "count differs"),
    ("aggregate", server_changes_infos, "has changed what it knows of the clients"),
    ("aggregate", server_not_detached, r"the server's state\['weight'\] = 'a tensor with a history': must be detached"),
    ("download", download_changes, "has changed the server's state"),
    ("download", lambda self, server, info, context: Message({"weight": server["weight"].add_(1)}), "has changed the server's state"),
    ("download", lambda self, server, info, context: Message({"weight": server["weight"] + fresh(())}), "what it returns differs"),
    ("init_server", lambda self, context: {"weight": fresh((3, 3))}, "of client . differs"),
    ("predict", lambda self, client, images: {"accuracy": fresh((len(images), 3))}, "answers otherwise"),
    ("predict", predict_elsewhere, "answers otherwise"),
    ("predict", lambda self, client, images: {"accuracy": client.model.header.bias.data.add_(1) + client.model(images)}, "has changed"),
    ("local_round", from_round_1(momentum), "stopped after round 0 and resumed, .* differs"),
    ("local_round", counted_up, "attributes of the method"),
    ("local_round", from_round_1(lambda client, *_: client.model.header.bias.data.add_(fresh(()))), "resumed, client.model's .* differs"),
    ("local_round", before(lambda client, *_: client.model.header.bias.data.add_(fresh(()) * (client.id == 1))), "of client 1 differs"),
    ("local_round", decaying(), "of client 0 differs"),
    ("local_round", file_changes, "of client 0 differs"),
    ("local_round", after(lambda client, *_: client.train.copy_(client.train.flip(0))), "resumed, client.model's .* differs"),
    ("local_round", settings_changed, "has changed context.settings"),
    ("aggregate", lambda self, server, uploads, context: context.settings and server.update(n=next(counted)), r"state\['n'\] differs"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "function", "message"), FOUND)
def test_what_no_stream_and_no_checkpoint_knows_of_is_found_and_named(step, function, message):
    line = said_by(rehearsed, changed(**{step: function}))
    assert re.search(message, line), line
    assert line.startswith("Mine") or "torch.manual_seed" in line or "purpose" in line


def test_what_is_kept_on_the_model_beside_its_state_is_found():
    def predict(self, client, images):
        return {"accuracy": client.model(images) * getattr(client.model, "factor", 1.0)}

    factor = before(lambda client, message: setattr(client.model, "factor", 2.0 + float(message["weight"].sum())))
    line = said_by(rehearsed, changed(local_round=factor, predict=predict))
    assert "when the client comes back from a checkpoint" in line


@pytest.mark.skipif(sys.platform != "linux", reason="copies of a process on Linux alone")
def test_what_the_clients_of_a_round_hand_each_other_in_memory_is_found():
    def local_round(self, client, message, context):
        client.model.header.bias.data.add_(len(FILE))
        FILE.append(client.id)
        return Shared.local_round(self, client, message, context)

    def aggregate(self, server, uploads, context):
        FILE.clear()
        return Shared.aggregate(self, server, uploads, context)

    FILE.clear()
    line = said_by(rehearsed, changed(local_round=local_round, aggregate=aggregate))
    assert re.search("stopped after round 0 and resumed, client.model's .* differs", line), line


# ------------------------------------------------------------------------------------------------- what a client sees


def test_a_client_sees_its_own_images_and_no_label_of_its_test_images():
    built = federation()
    for client in built.clients:
        held = torch.cat([client.train, client.validation, client.test])
        known = torch.cat([client.train, client.validation])
        others = torch.tensor(sorted({*range(60)} - {*held.tolist()}))
        assert torch.equal(client.pool.batch(held), built.pool.batch(held))
        assert torch.equal(client.pool.images[held], built.pool.images[held]) and not client.pool.images[others].any()
        assert torch.equal(client.pool.labels[known], built.pool.labels[known])
        assert (client.pool.labels[client.test] == -1).all() and (client.pool.labels[others] == -1).all()
        with pytest.raises(IndexError):
            client.pool.batch(others[:1])


def test_who_reads_labels_that_it_has_not_learns_nothing():
    def predict(self, client, images):
        labels = client.pool.labels[client.test]
        known = nn.functional.one_hot(labels.clamp(min=0), 3).float()
        return {"accuracy": known[:1].expand(len(images), -1)}

    outcome = simulate(federation(), changed(predict=predict), 1)
    assert [row["accuracy"] for row in outcome.client_rows if row["round"] == 0] == [
        (federation().pool.labels[client.test] == 0).double().mean().item() for client in federation().clients
    ]


def test_public_images_of_the_same_set_are_all_that_the_public_shows():
    built = Federation(DATA, [np.arange(20), np.arange(20, 40)], ("tiny-a",), public=np.arange(40, 50))
    assert (built.public.pool.labels >= 0).nonzero().flatten().tolist() == list(range(40, 50))
    assert built.public.pool.images.flatten(1).any(1).nonzero().flatten().tolist() == list(range(40, 50))


@pytest.mark.parametrize("what", ["context.public.pool.stored", "context.public.pool.labels", "client.whole.stored"])
def test_what_others_see_too_is_not_changed_by_a_client(what):
    """In any round: all clients, and the server, read these; in place is how a batch is spoilt without a thought."""

    def local_round(self, client, message, context):
        if context.round == 1:
            tensor = {"context": context, "client": client}[what.split(".")[0]]
            for name in what.split(".")[1:]:
                tensor = getattr(tensor, name)
            tensor[:5] = 0
        return Shared.local_round(self, client, message, context)

    own = tiny.dataset(num_classes=3, per_class=20)
    built = Federation(own, [np.arange(20), np.arange(20, 40)], ("tiny-a",), public=np.arange(40, 50))
    line = said_by(simulate, built, changed(local_round=local_round), 2)
    assert re.match(
        r"Mine.local_round in round 1 of client \d: has changed images or labels that others see, too: ", line
    )


def test_nothing_is_trained_for_no_epochs():
    built = federation()
    context, client = built.client_context(0), built.clients[0]
    before = border.digest([client.model.state_dict()])
    assert context.train(epochs=0) == 0 and context.loss is None
    assert border.digest([client.model.state_dict()]) == before
    trained = context.train()
    assert context.train(epochs=0) == 0 and context.loss is trained
    with pytest.raises(FedlibError, match="epochs = -1: must be at least 0"):
        context.train(epochs=-1)


# ------------------------------------------------------------------------------------------------------------ networks


def network(header: Any = None, extractor: Any = None) -> Model:
    return Model(extractor or nn.Sequential(nn.AvgPool2d(16), nn.Flatten()), header or nn.Linear(4, 3))


class Doing(nn.Module):
    """A layer that does something odd with what passes."""

    def __init__(self, does: Any):
        super().__init__()
        self.does, self.scale = does, nn.Parameter(torch.ones(4))

    def forward(self, values: torch.Tensor) -> Any:
        return self.does(self, values * self.scale)


def doing(does: Any) -> Any:
    return lambda classes, channels: network(extractor=nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), Doing(does)))


def counts(layer: Doing, values: torch.Tensor) -> torch.Tensor:
    layer.asked = getattr(layer, "asked", 0) + 1
    return values + layer.asked


def changes_itself(layer: Doing, values: torch.Tensor) -> torch.Tensor:
    layer.scale.data.mul_(1.1)
    return values


class Remembers(nn.Module):
    """Keeps a mean of what passed in training where no state_dict looks: an attribute, or a buffer that is not kept."""

    def __init__(self, buffer: bool):
        super().__init__()
        self.register_buffer("mu", torch.zeros(4), persistent=False)
        self.buffer, self.plain = buffer, 0.0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.training and self.buffer:
            self.mu = 0.9 * self.mu + 0.1 * values.detach().mean(0)
        elif self.training:
            self.plain = 0.9 * self.plain + 0.1 * float(values.mean())
        return values - self.mu - self.plain


def remembering(buffer: bool) -> Any:
    return lambda *given: network(extractor=nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), Remembers(buffer)))


LAYER = nn.Linear(4, 3)
NETWORKS = {
    "None": (lambda *given: None, "a function that returns a fedlib.Model"),
    "raises": (lambda *given: 1 / 0, "its builder: ZeroDivisionError"),
    "an argument": (lambda classes: network(), "its builder: TypeError"),
    "shared weights": (lambda *given: network(LAYER), "share weights"),
    "drawn": (lambda *given: network(drawn_layer()), "different weights"),
    "seeded": (lambda *given: (torch.manual_seed(0), network())[1], "torch.manual_seed was called"),
    "a class more": (lambda *given: network(nn.Linear(4, 4)), r"shape = \(12, 4\): must be \(12, 3\)"),
    "another width": (lambda *given: network(nn.Linear(5, 3)), "RuntimeError: mat1 and mat2"),
    "lazy": (lambda *given: network(nn.LazyLinear(3)), "must be a tensor with a shape"),
    "extra state": (lambda *given: network(WithExtra(4, 3)), "must be a tensor with a shape"),
    "a pair": (doing(lambda layer, values: (values, values)), "TypeError"),
    "integers": (lambda *given: network(extractor=Rounded()), "architecture = 'mine'"),
    "noise": (doing(lambda layer, values: values + float(np.random.default_rng().random())), "answers otherwise"),
    "counts": (doing(counts), "answers otherwise"),
    "changes itself": (doing(changes_itself), "has changed client.model"),
    "raises in training": (
        doing(lambda layer, values: values.no_such() if layer.training else values),
        "AttributeError",
    ),
    "keeps an attribute": (remembering(False), "comes back from a checkpoint"),
    "keeps a buffer": (remembering(True), "comes back from a checkpoint"),
    "one row": (doing(lambda layer, values: values[:1]), r"shape = \(1, 3\): must be \(12, 3\)"),
}  # fmt: skip


def drawn_layer() -> nn.Linear:
    layer = nn.Linear(4, 3)
    layer.bias.data.add_(fresh(()))
    return layer


class WithExtra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"a": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


class Rounded(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3)).long().repeat(1, 4)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("method", ["Standalone", "FedAvg"])
def test_a_network_that_cannot_be_trusted_is_refused_before_it_trains(kind, method):
    builder, message = NETWORKS[kind]
    models.register("mine", builder)
    line = said_by(rehearsed, make(method), "mine")
    assert (re.search(message, line) and "mine" in line) or "torch.manual_seed" in line, line


METRICS = {
    "unseeded": (lambda logits, labels: fresh(()), "metric_of_mine of client . differs"),
    "counts": (lambda logits, labels: next(counted) / 1e9, "metric_of_mine of client . differs"),
    "beyond": (lambda logits, labels: torch.tensor(57.0), r"must be between 0 and 1"),
    "undefined": (lambda logits, labels: torch.tensor(torch.nan), r"must be between 0 and 1"),
    "None": (lambda logits, labels: None, "a single number"), "complex": (lambda logits, labels: 1j, "a single number"),
}  # fmt: skip


@pytest.mark.parametrize("kind", METRICS)
def test_a_metric_that_cannot_be_trusted_is_refused(kind, monkeypatch):
    measure, message = METRICS[kind]
    monkeypatch.setitem(metrics.METRICS, "metric_of_mine", metrics.Metric("metric_of_mine", of_client=measure))
    line = said_by(rehearsed, make("FedAvg"), "CNN-1", "metric_of_mine")
    assert "metric_of_mine" in line and re.search(message, line), line


def test_what_is_rehearsed_is_ones_own_and_small_and_leaves_the_federation_as_it_was(monkeypatch):
    simulated, simulate_ = [], simulation.simulate
    monkeypatch.setattr(
        simulation,
        "simulate",
        lambda built, *given, **more: simulated.append(built) or simulate_(built, *given, **more),
    )
    built = Federation(
        tiny.dataset(3, 100), [np.arange(start, 300, 3) for start in range(3)], ("CNN-1",), batch_size=64
    )
    check.rehearse(built, make("FedSSA"), 1)
    check.rehearse(built, Isolated(make("FedAvg")), 1)
    assert not simulated
    before = border.digest([[client.train, client.info.num_samples] for client in built.clients])
    check.rehearse(built, changed(), 1)
    check.rehearse(built, Isolated(changed()), 1)
    assert len(simulated) == 6 and all(len(client.train) <= 24 for one in simulated for client in one.clients)
    assert border.digest([[client.train, client.info.num_samples] for client in built.clients]) == before
    assert not any(client.visited for client in built.clients) and built.last_trained == {}


GOOD_NETWORKS = {
    "noise of torch": doing(lambda layer, values: values + torch.randn(values.shape) / 100),
    "noise of NumPy": doing(lambda layer, values: values + float(np.random.rand()) / 100),  # noqa: NPY002
    "dropout": lambda *given: network(extractor=nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Dropout(0.5))),
    "normalised": lambda *given: network(extractor=nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.BatchNorm1d(4))),
    "frozen in part": lambda *given: network(extractor=frozen_extractor()),
}  # fmt: skip


def frozen_extractor() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(4, 4).requires_grad_(False))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", GOOD_NETWORKS)
def test_a_network_of_ones_own_gives_the_same_bits_in_every_way(kind, tmp_path):
    models.register("mine", GOOD_NETWORKS[kind])
    assert bits(make("FedGH"), tmp_path / "c.pt", "mine") != "diverged"
    assert bits(make("FedAvg"), tmp_path / "d.pt", "mine") != "diverged"


def test_layers_that_a_builder_froze_stay_frozen():
    models.register("mine", GOOD_NETWORKS["frozen in part"])
    built = federation("mine")
    before = built.build("mine").extractor[2].weight
    simulate(built, make("pFedES"), 2)
    assert all(torch.equal(client.model.extractor[2].weight, before) for client in built.clients)


# ---------------------------------------------------------------------------------------------- partitions and data

LABELS = np.arange(60) % 3
DEALERS = {
    "None": lambda labels, n, stream: None, "raises": lambda labels, n, stream: 1 / 0,
    "a dictionary": lambda *given: {0: [1, 2]}, "too few": lambda labels, n, stream: [np.arange(9)],
    "too many": lambda labels, n, stream: np.split(np.arange(60), 6), "floats": lambda *given: [np.arange(3.0)] * 3,
    "booleans": lambda *given: [np.ones(60, bool)] * 3, "twice": lambda *given: [np.arange(9)] * 3,
    "within twice": lambda *given: [np.zeros(9, int), np.arange(9, 18), np.arange(18, 27)],
    "negative": lambda *given: [np.arange(-9, 0), np.arange(9), np.arange(9, 18)],
    "beyond": lambda *given: [np.arange(55, 65), np.arange(9), np.arange(9, 18)],
    "two dimensions": lambda *given: [np.arange(18).reshape(9, 2), np.arange(18, 27), np.arange(27, 36)],
    "ragged": lambda *given: [[[1, 2], [3]], [4, 5, 6], [7, 8, 9]], "nothing": lambda *given: [[], [], []],
    "of texts": lambda *given: [["a"], ["b"], ["c"]], "of objects": lambda *given: [object()] * 3,
    "unseeded": lambda labels, n, stream: np.array_split(np.random.default_rng().permutation(60), n),
    "an iterator that ends": lambda *given: iter(()), "huge": lambda *given: [[10**30], [1], [2]],
    "torch, seeded": lambda labels, n, stream: np.array_split((torch.manual_seed(3), np.arange(60))[1], n),
}  # fmt: skip


def dealt(dealer: Any, seed: int = 0) -> Any:
    partition.register("mine", dealer)
    return partition.client_images(LABELS, 48, Dealing(3, 3, "mine"), seed)


@pytest.mark.parametrize("kind", DEALERS)
def test_a_partition_that_cannot_be_trusted_is_refused(kind):
    line = said_by(dealt, DEALERS[kind])
    assert "partition mine" in line or "num_clients" in line or "torch.manual_seed" in line, line


DRAWING = {
    "torch": lambda: torch.randperm(60).numpy(),
    "NumPy": lambda: np.random.permutation(60),  # noqa: NPY002
    "Python": lambda: random.sample(range(60), 60),
}


@pytest.mark.parametrize("draw", DRAWING.values(), ids=DRAWING)
def test_a_partitions_draws_are_the_seeds(draw):
    def dealer(labels, num_clients, stream):
        return np.array_split(draw(), num_clients)

    one, again, other = (border.digest([list(map(list, dealt(dealer, seed)))]) for seed in (0, 0, 1))
    assert one == again != other


def test_a_partition_draws_from_the_stream_as_it_always_did():
    def dealer(labels, num_clients, stream):
        return np.array_split(stream.permutation(len(labels)), num_clients)

    partition.register("mine", dealer)
    stream, once = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(2):  # the next part goes on where the one before ended
        expected = [sorted(part.tolist()) for part in np.array_split(once.permutation(60), 3)]
        assert [part.tolist() for part in partition.deal_registered("mine", LABELS, 3, stream)] == expected


IMAGES = np.random.default_rng(0).integers(0, 255, (6, 1, 32, 32), dtype=np.uint8)
TRUTHS = np.arange(6) % 3
LOADERS = {
    "None": lambda: None, "raises": lambda: 1 / 0, "exits": lambda: exit(2), "an argument": lambda name: DATA,
    "arrays": lambda: (IMAGES, TRUTHS), "a class": lambda: Dataset,
    "unseeded": lambda: Dataset.from_arrays("x", np.random.default_rng().permutation(IMAGES), TRUTHS, IMAGES[:1], TRUTHS[:1]),
    "another": lambda: Dataset.from_arrays("x", IMAGES, (TRUTHS + next(counted)) % 3, IMAGES[:1], TRUTHS[:1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOADERS)
def test_a_data_set_that_cannot_be_trusted_is_refused(kind):
    data.register("mine", LOADERS[kind])
    for call in (data.load, data.info):
        assert said_by(call, "mine").startswith("loader of mine")


PARTS = {
    "name": (5, None, "", "a b", "../x", "x" * 99, ["x"]),
    "images": (None, IMAGES, torch.zeros(6, 1, 32, 32).long(), torch.zeros(6, 32, 32).byte(), torch.zeros(6, 0, 8, 8), "x"),
    "kind": ("picture", None, "vector", "series"), "groups": (TRUTHS, torch.zeros(5).long(), torch.full((6,), -1)),
    "vocabulary": (5, None),
    "labels": (None, TRUTHS, torch.zeros(5).long(), torch.zeros(6), torch.full((6,), 3), torch.full((6,), -2), 7),
    "num_train": (-1, 7, 3.5, None, "3", True), "num_classes": (0, -1, 2, 2.5, None, 2**40, "3"),
    "mean": (0.5, None, (), (0.1, 0.2), (float("nan"),), (float("inf"),), "a", ("a",), (None,), torch.zeros(3), (10**400,)),
    "std": (0.5, None, (), (0.0,), (-1.0,), (float("nan"),), ("a",), {}), "augment": (None, 1, "yes", [True]),
}  # fmt: skip
WHOLE = {
    "name": "x", "images": torch.from_numpy(IMAGES), "labels": torch.from_numpy(TRUTHS), "num_train": 4, "num_classes": 3,
    "mean": (0.5,), "std": (0.5,), "augment": False,
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in PARTS.items() for value in values])
def test_a_data_set_built_by_hand_is_checked(field, value):
    assert Dataset(**WHOLE).num_classes == 3
    line = said_by(lambda: Dataset(**WHOLE | {field: value}))
    assert {"name": "dataset's name", "num_classes": "x: ", "kind": "x: "}.get(field, f"x: {field}") in line


def test_data_that_test_on_what_is_trained_on_or_have_classes_without_end(capsys):
    Dataset.from_arrays("x", IMAGES[:3], TRUTHS[:3], IMAGES[3:], TRUTHS[3:])
    Dataset.from_arrays("x", IMAGES, TRUTHS * 0, IMAGES[:0], TRUTHS[:0], 3)  # an owner's own
    data.load("digits")  # of whose 299 one is
    assert not capsys.readouterr().err
    Dataset.from_arrays("x", IMAGES[:4], TRUTHS[:4], IMAGES[3:].copy(), TRUTHS[3:])
    Dataset.from_arrays("x", IMAGES[:3], TRUTHS[:3] * 0, IMAGES[3:], TRUTHS[3:])
    told = "x: 1 of its 3 test images are training images: what is trained on is tested on\n"
    assert (
        capsys.readouterr().err == told + "x: all its training images are of class 0: whoever always says so is right\n"
    )
    far = np.array([0, 1, 2, 0, 1, 10**9])
    assert "largest label = 1000000000" in said_by(Dataset.from_arrays, "x", IMAGES, far, IMAGES[:1], TRUTHS[:1])
    assert "num_classes" in said_by(Dataset.from_arrays, "x", IMAGES, far, IMAGES[:1], TRUTHS[:1], 10**9 + 1)
    unknown = Dataset(**WHOLE | {"labels": torch.full((6,), -1)})
    assert "labels of x = -1" in said_by(Federation, unknown, [np.arange(3), np.arange(3, 6)], ("tiny-a",))
    assert "public_labels = 'some'" in said_by(
        lambda: Federation(DATA, [np.arange(9)], ("tiny-a",), public=[50], public_labels="some")
    )


# ------------------------------------------------------------------------------------------------------- isolated runs


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind", ["download in place", "kept download", "global torch", "server keeps upload", "server draws"]
)
def test_isolated_clients_and_their_servers_are_apart_too(kind, tmp_path):
    assert bits(Isolated(mended(kind)), tmp_path / "c.pt") != "diverged"


def test_after_a_visit_a_model_is_in_evaluation_and_the_clients_state_is_its_own():
    client, given = federation().clients[0], torch.ones(2)
    client.state["mine"] = given
    client.model.train()
    border.kept("a visit", client)
    given.zero_()
    assert not client.model.training and client.state["mine"].tolist() == [1, 1]


def test_after_a_step_of_ones_own_torchs_settings_are_as_they_were():
    python = random.getstate()
    with border.crossing(True, "a step", 0, "aggregate"):
        random.random()
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
    assert (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()) == (1, torch.float32, True)
    assert random.getstate() == python


def test_another_thread_waits_for_torchs_generator():
    entered = threading.Event()

    def other():
        with randomness.fork_torch(np.random.default_rng(1)):
            entered.set()

    waiting = threading.Thread(target=other)
    with randomness.fork_torch(np.random.default_rng(0)):
        waiting.start()
        assert not entered.wait(0.2)
    waiting.join(60)
    assert entered.is_set()
