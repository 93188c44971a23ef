"""A person's own code at the border: each of these methods and networks is refused in one line that names it, or gives the
same bits in one process, over a wire, again and resumed. Wrong data, partitions and metrics: `test_refusals.py`.
"""

import collections
import itertools
import random
import re
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from fedlib import Federation, FedlibError, Model, border, check, models, partition, randomness, simulate, simulation
from fedlib.algorithms import ALGORITHMS, Algorithm, make
from fedlib.federation import Message
from fedlib.isolated import Isolated
from fedlib.partition import Dealing
from fedlib.simulation import Reply

# ruff: noqa: NPY002, what draws from NumPy's global generator is tried here

DATA = tiny.dataset(num_classes=3, per_class=20)
ROUNDS = 3
HELD = [np.arange(start, start + 20) for start in (0, 20, 40)]


def federation(architecture: str = "tiny-a", **named: Any) -> Federation:
    return Federation(DATA, HELD, (architecture,), batch_size=8, **named)


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
    """Shared's local round after `change(client, message, context, self)`, with the message that it hands back, if it does."""

    def local_round(self, client, message, context):
        given = change(client, message, context, self)
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


def rehearsed(method: Algorithm, architecture: str = "tiny-a") -> None:
    check.rehearse(federation(architecture), method, ROUNDS)


def said_by(call: Any, *arguments: Any) -> str:
    """The one line with which it is refused."""
    with pytest.raises(FedlibError) as refused:
        call(*arguments)
    line = str(refused.value)
    assert "\n" not in line and len(line) < 1200, line
    return line


# ------------------------------------------------------------------------------ what a step raises, keeps, hands back

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


def test_a_line_names_round_and_client_and_the_error_is_there_to_be_looked_at(monkeypatch):
    wrong = before(lambda client, message, context, self: context.round == 1 and client.id == 2 and message["weigth"])
    with pytest.raises(
        FedlibError, match=r"^Mine.local_round in round 1 of client 2: KeyError: 'weigth' \(test_"
    ) as met:
        simulate(federation(), changed(local_round=wrong), ROUNDS)
    assert isinstance(met.value.__cause__, KeyError)
    monkeypatch.setattr(ALGORITHMS["FedAvg"], "aggregate", raising(ZeroDivisionError("ours")))
    monkeypatch.setattr(models, "BUILT_IN", models.BUILDERS | {})
    with pytest.raises(ZeroDivisionError, match="ours"):  # an error of fedlib's own parts stays what it is
        simulate(federation(), make("FedAvg"), 1)


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
    "server, at first": lambda it: {"init_server": lambda self, context: Shared.init_server(self, context) | {"mine": it}},
    "server": lambda it: {"aggregate": lambda self, server, *given: server.update(mine=it)},
    "client": lambda it: {"local_round": after(lambda client, *_: client.state.update(mine=it))},
    "structure": lambda it: {"download": lambda *given: Message(Shared.download(*given).tensors, structure=(it,))},
    "tensor": lambda it: {"local_round": after(lambda *given: given[-1].tensors.update(mine=it))},
    "detail": lambda it: {"aggregate": lambda *given: Shared.aggregate(*given) | {"mine": it}},
}  # fmt: skip
# In details NumPy's values and tensors are written as Python's.
FINE_IN_DETAILS = ("numpy number", "numpy array", "numpy text", "deep", "named", "defaultdict")
REFUSED = [(place, kind) for place in PLACES for kind in NOT_PLAIN if place != "detail" or kind not in FINE_IN_DETAILS]


@pytest.mark.thorough
@pytest.mark.parametrize(("place", "kind"), REFUSED)
def test_what_is_not_plain_is_named_in_round_0(place, kind):
    line = said_by(simulate, federation(), changed(**PLACES[place](NOT_PLAIN[kind])), ROUNDS)
    assert line.startswith("Mine.") and ("mine" in line or place == "structure")


NO_MESSAGES = [
    None, {"weight": torch.zeros(2)}, Message, Message(None), Message([torch.zeros(2)]), Message({"w": 0.5}),
    Message({"w": np.zeros(2)}), Message({1: torch.zeros(1)}), Message({}, 1.5), Message({}, -1), Message({}, float("nan")),
    Message({}, "3"), Message({}, True), Message({}, 1, [1]),
]  # fmt: skip
DIAGNOSTICS = [
    None, [1], {"mu": "half"}, {"mu": torch.zeros(2)}, {"mu": np.zeros(2)}, {"mu": None}, {"mu": torch.tensor(1j)},
    {"mu": 10**400}, {3: 1.0}, {"round": 1.0}, {"accuracy": 1.0}, {"upload_words": 1},
]  # fmt: skip
LOGITS = torch.zeros(4, 3)  # what two images to validate and two to test on are answered with
HANDED_BACK = {
    "download": NO_MESSAGES,
    "local_round": [*NO_MESSAGES, *(Message(diagnostics=diagnostics) for diagnostics in DIAGNOSTICS)],
    "aggregate": [[1], "x", 3, torch.zeros(2), {1: 2}, {"loss": 3}, {"accuracy": 1}, {"visited": 0}, {"a": {"b": {1}}}],
    "init_server": [None, [], torch.zeros(2), {"a": np.int64(1)}, {(1,): 2}],
    "published_words": [None, -1, 1.5, "many", torch.tensor(1.0)],
    "predict": [
        None, LOGITS, {}, {"mine": LOGITS, "accuracy": LOGITS}, {"accuracy": LOGITS[1:]}, {"accuracy": LOGITS.repeat(1, 2)},
        {"accuracy": LOGITS.argmax(1)}, {"accuracy": LOGITS.long()}, {"accuracy": LOGITS.numpy()}, {"accuracy": LOGITS + 0j},
        {"accuracy": LOGITS, "loss": LOGITS}, {"accuracy": LOGITS, "validation_accuracy": LOGITS},
        {"accuracy": LOGITS, 7: LOGITS}, {"accuracy": LOGITS, "x": LOGITS[:1]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("step", "value"), [(step, value) for step, values in HANDED_BACK.items() for value in values])
def test_what_a_step_hands_back_is_checked(step, value):
    line = said_by(simulate, federation(), changed(**{step: lambda *given: value}), ROUNDS)
    none = step in ("download", "local_round") and not isinstance(value, Message)
    assert line.startswith(f"Mine.{step}") and (": must be a Message, the empty one is Message()" in line) == none, line
    named = value.diagnostics if isinstance(value, Message) and value.diagnostics != {} else None
    assert (": must be a number, as it is a client's" in line) == (isinstance(named, dict) and "mu" in named), line
    assert "diagnostic" in line or named is None


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


# --------------------------------------------------------- changed in place, held on to, drawn: the same bits every way


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
    server["weight"] = server["weight"] + torch.rand(()) + float(np.random.rand()) + random.random()


def noisy(draw: Any) -> Any:
    return before(lambda client, *_: client.model.header.bias.data.add_(draw()))


MENDED = {
    "download in place": before(lambda client, message, *_: message["weight"].add_(1)),
    "its memory": before(lambda client, message, *_: message["weight"].numpy().fill(0)),
    "its names": before(lambda client, message, *_: Message({"weight": message.tensors.pop("weight")})),
    "alias of download": alias_of_download,
    "alias in state": alias_in_state,
    "kept download": after(lambda client, message, upload: client.state.update(before=message["weight"])),
    "kept upload": after(lambda client, message, upload: client.state.update(before=upload["weight"])),
    "left in training": after(lambda client, *_: client.model.train()),
    "with gradients": after(lambda client, message, upload: Message({"weight": client.model.header.weight})),
    "settings left": after(settings_left),
    "global torch": noisy(lambda: torch.randn(3)),
    "global NumPy": noisy(np.random.rand),
    "global Python": noisy(random.random),
    "server in place": server_in_place,
    "server keeps upload": server_keeps_upload,
    "server alias": server_alias,
    "server draws": server_draws,
}
APART = ("download in place", "kept download", "global torch", "server keeps upload", "server draws")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*MENDED, *(f"isolated: {kind}" for kind in APART)])
def test_what_is_changed_held_on_to_or_drawn_gives_the_same_bits_in_every_way(kind, tmp_path):
    start = torch.get_num_threads(), torch.random.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    kind, isolated = kind.removeprefix("isolated: "), kind.startswith("isolated")
    method = changed(**{"aggregate" if kind.startswith("server") else "local_round": MENDED[kind]})
    assert bits(Isolated(method) if isolated else method, tmp_path / "c.pt") != "diverged"
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert torch.get_num_threads() == start[0] and torch.equal(torch.random.get_rng_state(), start[1])
    assert np.random.get_state()[1].tolist() == start[2] and random.getstate() == start[3]


@pytest.mark.thorough
def test_what_is_as_it_should_be_gives_the_same_bits_in_every_way(tmp_path):
    assert bits(Shared(), tmp_path / "c.pt") == bits(changed(), tmp_path / "d.pt") != "diverged"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_no_accuracy(number, tmp_path):
    method = changed(predict=lambda self, client, images: {"accuracy": client.model(images) * number})
    assert bits(method, tmp_path / "c.pt") == "diverged"


def test_draws_differ_from_client_to_client_and_round_to_round():
    drawn = []

    def predict(self, client, images):
        drawn.append(("predict", client.id, float(torch.rand(())), random.random()))
        return Shared.predict(self, client, images)

    local_round = before(lambda client, message, context, self: drawn.append(
        (context.round, client.id, float(torch.rand(())), random.random())))  # fmt: skip
    simulate(federation(), changed(local_round=local_round, predict=predict), 2)
    rounds = [each for each in drawn if each[0] != "predict"]
    assert len(set(rounds)) == 6 and len({each[2] for each in drawn}) >= 12


# -------------------------------------------------------------------------------------------- what the rehearsal finds

counted = itertools.count()
FILE: list[int] = []
KEPT: dict[int, torch.Tensor] = {}


def fresh(shape: tuple[int, ...] = ()) -> torch.Tensor:
    """Drawn without a seed."""
    return torch.from_numpy(np.random.default_rng().random((*shape, 1))).float()[..., 0]


def with_diagnostic(name: str) -> Any:
    return after(lambda client, message, upload: replace(upload, diagnostics={name: next(counted)}))


def put(**attributes: Any) -> Any:
    """Sets them on the client's model, or as the model: `model`, `state`, `mine` of the client."""

    def change(client, *given):
        for name, value in attributes.items():
            setattr(client if name in ("mine", "state", "model") else client.model, name, value)

    return change


def server_changes_infos(self, server, uploads, context):
    for info in context.infos:
        info.classes.add_(1)


def download_changes(self, server, info, context):
    server["asked"] = server.get("asked", 0) + 1
    return Message({"weight": server["weight"]})


def predict_elsewhere(self, client, images):
    client.model.asked = getattr(client.model, "asked", 0) + 1
    return {"accuracy": client.model(images) * (2.0 if client.model.asked % 2 else 3.0)}


def momentum(client, message, context, self):
    if context.round:
        KEPT[client.id] = message["weight"] + 0.9 * KEPT.get(client.id, 0)
        client.model.header.weight.data.add_(KEPT[client.id])
        message["weight"].copy_(KEPT[client.id])


def of_file(client, *given):
    time.sleep(0.05)  # long enough for another copy to take the next client
    FILE.append(1)
    client.model.header.bias.data.add_(len(FILE))


def decaying() -> Any:
    rate = [1.0]

    def local_round(self, client, message, context):
        rate[0] *= 0.9
        context.train(lr=rate[0])
        return Message({"weight": client.model.header.weight.detach()})

    return local_round


def clears_file(*given):
    FILE.clear()
    return Shared.aggregate(*given)


BIAS = "client.model.header.bias.data"
FOUND = [
    # in a client's round
    ({"local_round": noisy(fresh)}, "differs: it draws without a seed"),
    ({"local_round": before(lambda client, *_: client.state.update(count=next(counted)))},
     r"client.state\['count'\] of client 0 differs"),
    ({"local_round": after(lambda *given: Message({"weight": given[-1]["weight"] + fresh()}))},
     r"the server's state\['weight'\] differs"),
    ({"local_round": with_diagnostic("loss")}, "loss of client . differs"),
    ({"local_round": with_diagnostic("mu")}, "mu differs"),
    ({"local_round": before(lambda *given: torch.manual_seed(0))}, "torch.manual_seed was called"),
    ({"local_round": before(lambda client, message, context, self: setattr(self, "weight", message["weight"]))},
     "has changed attributes of the method"),
    ({"local_round": before(lambda client, message, context, self: context.round and object.__setattr__(self, "n", FILE))},
     "has changed attributes of the method"),
    ({"local_round": before(put(mine=1))}, "AttributeError: 'Client' object has no attribute 'mine'"),
    ({"local_round": before(put(state={}))}, "AttributeError"),
    ({"local_round": before(put(more=nn.Linear(2, 2)))}, "client.model has got more.weight"),
    ({"local_round": after(put(header=nn.Identity()))}, "header.weight = None"),
    ({"local_round": after(put(header=nn.Linear(3, 4)))}, r"client.model's header.weight = .*\(4, 3\)"),
    ({"local_round": after(put(model="a network"))}, "client.model = 'a network': must be"),
    ({"local_round": after(lambda client, *_: client.model.double())}, "torch.float64"),
    ({"local_round": before(lambda client, *_: client.model.extractor.requires_grad_(False))},
     "extractor.2.weight = False: must be True"),
    ({"local_round": before(lambda client, *_: client.state.update({3: 1.0}))}, "key of client.state = 3: must be text"),
    ({"local_round": before(lambda client, message, context, self: context.generator("mine"))}, "purpose = 'mine' is unknown"),
    ({"local_round": before(lambda client, message, context, self: context.train(lambda model, images, labels: model(images)))},
     "RuntimeError"),
    ({"local_round": before(lambda client, message, context, self: object.__setattr__(context.settings, "lr", 0.5))},
     "has changed context.settings"),
    ({"local_round": before(momentum)}, "stopped after round 0 and resumed, .* differs"),
    ({"local_round": before(lambda client, message, context, self: context.round and client.model.header.bias.data.add_(fresh()))},
     "resumed, client.model's .* differs"),
    ({"local_round": before(lambda client, *_: client.model.header.bias.data.add_(fresh() * (client.id == 1)))},
     "of client 1 differs"),
    ({"local_round": decaying()}, "of client 0 differs"),
    ({"local_round": before(of_file)}, "of client 0 differs"),
    ({"local_round": after(lambda client, *_: client.train.copy_(client.train.flip(0)))}, "resumed, client.model's .* differs"),
    # what the clients of a round hand each other in memory, seen where Linux copies processes
    *([({"local_round": before(of_file), "aggregate": clears_file}, "resumed, client.model's .* differs")]
      if sys.platform == "linux" else []),
    # the server's
    ({"init_server": lambda self, context: {"weight": fresh((3, 3))}}, "of client . differs"),
    ({"aggregate": lambda self, server, *_: server.update(weight=server["weight"] + fresh())},
     r"the server's state\['weight'\] differs"),
    ({"aggregate": lambda self, server, *_: server.update(n=next(counted))}, r"state\['n'\] differs"),
    ({"aggregate": lambda *given: {"count": next(counted)}}, "count differs"),
    ({"aggregate": server_changes_infos}, "has changed what it knows of the clients"),
    ({"aggregate": lambda self, server, *_: server.update(weight=nn.Parameter(server["weight"]) * 2)},
     r"the server's state\['weight'\] = 'a tensor with a history': must be detached"),
    ({"download": download_changes}, "has changed the server's state"),
    ({"download": lambda self, server, *_: Message({"weight": server["weight"].add_(1)})}, "has changed the server's state"),
    ({"download": lambda self, server, *_: Message({"weight": server["weight"] + fresh()})}, "what it returns differs"),
    # predict's
    ({"predict": lambda self, client, images: {"accuracy": fresh((len(images), 3))}}, "answers otherwise"),
    ({"predict": predict_elsewhere}, "answers otherwise"),
    ({"predict": lambda self, client, images: {"accuracy": client.model.header.bias.data.add_(1) + client.model(images)}},
     "has changed"),
    ({"predict": lambda self, client, images: {"accuracy": client.model(images) * getattr(client.model, "factor", 1.0)},
      "local_round": before(lambda client, message, *_: setattr(client.model, "factor", 2.0 + float(message["weight"].sum())))},
     "when the client comes back from a checkpoint"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "message"), FOUND)
def test_what_no_stream_and_no_checkpoint_knows_of_is_found_and_named(steps, message):
    FILE.clear()
    line = said_by(rehearsed, changed(**steps))
    assert re.search(message, line), line
    assert line.startswith("Mine") or "torch.manual_seed" in line or "purpose" in line


def test_what_is_rehearsed_is_ones_own_and_small_and_leaves_the_federation_as_it_was(monkeypatch):
    simulated, simulate_ = [], simulation.simulate
    monkeypatch.setattr(
        simulation,
        "simulate",
        lambda built, *given, **more: simulated.append(built) or simulate_(built, *given, **more),
    )
    held = [np.arange(start, 300, 3) for start in range(3)]
    built = Federation(tiny.dataset(3, 100), held, ("CNN-1",), batch_size=64)
    check.rehearse(built, make("FedSSA"), 1)
    check.rehearse(built, Isolated(make("FedAvg")), 1)
    assert not simulated
    before = border.digest([[client.train, client.info.num_samples] for client in built.clients])
    check.rehearse(built, changed(), 1)
    check.rehearse(built, Isolated(changed()), 1)
    assert len(simulated) == 6 and all(len(client.train) <= 24 for one in simulated for client in one.clients)
    assert border.digest([[client.train, client.info.num_samples] for client in built.clients]) == before
    assert not any(client.visited for client in built.clients) and built.last_trained == {}


# ------------------------------------------------------------------------------------------------------------ networks


def network(header: Any = None, *layers: nn.Module) -> Model:
    return Model(nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), *layers), header or nn.Linear(4, 3))


class Doing(nn.Module):
    """A layer that does something odd with what passes."""

    def __init__(self, does: Any):
        super().__init__()
        self.does, self.scale = does, nn.Parameter(torch.ones(4))

    def forward(self, values: torch.Tensor) -> Any:
        return self.does(self, values * self.scale)


def doing(does: Any) -> Any:
    return lambda classes, channels: network(None, Doing(does))


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


def drawn_layer() -> nn.Linear:
    layer = nn.Linear(4, 3)
    layer.bias.data.add_(fresh())
    return layer


class WithExtra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"a": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


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
    "integers": (doing(lambda layer, values: values.long()), "architecture = 'mine': RuntimeError"),
    "noise": (doing(lambda layer, values: values + fresh()), "answers otherwise"),
    "counts": (doing(counts), "answers otherwise"),
    "changes itself": (doing(changes_itself), "has changed client.model"),
    "raises in training": (doing(lambda layer, x: x.no_such() if layer.training else x), "AttributeError"),
    "keeps an attribute": (lambda *given: network(None, Remembers(False)), "comes back from a checkpoint"),
    "keeps a buffer": (lambda *given: network(None, Remembers(True)), "comes back from a checkpoint"),
    "one row": (doing(lambda layer, values: values[:1]), r"shape = \(1, 3\): must be \(12, 3\)"),
}
GOOD_NETWORKS = {
    "noise of torch": doing(lambda layer, values: values + torch.randn(values.shape) / 100),
    "noise of NumPy": doing(lambda layer, values: values + float(np.random.rand()) / 100),
    "dropout": lambda *given: network(None, nn.Dropout(0.5)),
    "normalised": lambda *given: network(None, nn.BatchNorm1d(4)),
    "frozen in part": lambda *given: network(None, nn.Linear(4, 4).requires_grad_(False)),
}


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("method", ["Standalone", "FedAvg"])
def test_a_network_that_cannot_be_trusted_is_refused_before_it_trains(kind, method):
    builder, message = NETWORKS[kind]
    models.register("mine", builder)
    line = said_by(rehearsed, make(method), "mine")
    assert re.search(message, line) and line.endswith("(rehearsing mine on a few images)"), line


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


def with_public_images(data: Any = DATA) -> Federation:
    return Federation(data, HELD[:2], ("tiny-a",), public=np.arange(40, 50))


def test_public_images_of_the_same_set_are_all_that_the_public_shows():
    pool = with_public_images().public.pool
    assert (pool.labels >= 0).nonzero().flatten().tolist() == list(range(40, 50))
    assert pool.images.flatten(1).any(1).nonzero().flatten().tolist() == list(range(40, 50))


@pytest.mark.parametrize("what", ["context.public.pool.stored", "context.public.pool.labels", "client.whole.stored"])
def test_what_others_see_too_is_not_changed_by_a_client(what):
    """In any round: all clients, and the server, read these; in place is how a batch is spoilt without a thought."""

    def spoil(client, message, context, self):
        if context.round == 1:
            eval(what)[:5] = 0

    built = with_public_images(tiny.dataset(num_classes=3, per_class=20))
    line = said_by(simulate, built, changed(local_round=before(spoil)), 2)
    others = r"Mine.local_round in round 1 of client \d: has changed images or labels that others see, too: "
    assert re.match(others, line), line


def test_nothing_is_trained_for_no_epochs():
    built = federation()
    context, client = built.client_context(0), built.clients[0]
    before = border.digest([client.model.state_dict()])
    assert context.train(epochs=0) == 0 and context.loss is None
    assert border.digest([client.model.state_dict()]) == before
    trained = context.train()
    assert context.train(epochs=0) == 0 and context.loss is trained


# ------------------------------------------------------------------------------------------ streams, settings, threads


def dealt(deal: Any, seed: int = 0) -> list[list[int]]:
    """What clients are dealt of 60 images by `deal(stream)`, a permutation."""
    partition.register("mine", lambda labels, n, stream: np.array_split(deal(stream), n))
    parts = partition.client_images(np.arange(60) % 3, 48, Dealing(3, 3, "mine"), seed)
    return [np.concatenate(part).tolist() for part in parts]


DRAWING = {
    "torch": lambda stream: torch.randperm(60).numpy(),
    "NumPy": lambda stream: np.random.permutation(60),
    "Python": lambda stream: random.sample(range(60), 60),
    "its stream": lambda stream: stream.permutation(60),
}


@pytest.mark.parametrize("draw", DRAWING.values(), ids=DRAWING)
def test_a_partitions_draws_are_the_seeds(draw):
    assert dealt(draw) == dealt(draw) != dealt(draw, 1)


def test_a_partition_draws_from_the_stream_as_it_always_did():
    partition.register("mine", lambda labels, n, stream: np.array_split(stream.permutation(len(labels)), n))
    stream, once = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(2):  # the next part goes on where the one before ended
        expected = [sorted(part.tolist()) for part in np.array_split(once.permutation(60), 3)]
        assert [part.tolist() for part in partition.deal_registered("mine", np.zeros(60), 3, stream)] == expected


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
        settings_left()
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
