"""A person's own code at the border: each of these methods, networks, partitions and data sets is refused in one line that
names it, or gives the same bits in one process, over a wire, again and resumed.
"""

import collections
import io
import itertools
import random
import re
import threading
import time
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
    data,
    models,
    partition,
    randomness,
    simulate,
    simulation,
)
from fedlib.algorithms import ALGORITHMS, Algorithm, make
from fedlib.federation import Message
from fedlib.flower import wire
from fedlib.isolated import Isolated
from fedlib.lab import checkpoint
from fedlib.partition import Dealing

DATA = tiny.dataset(num_classes=3, per_class=20)
ROUNDS = 3


def federation(architecture: str = "tiny-a") -> Federation:
    return Federation(DATA, [np.arange(start, start + 20) for start in (0, 20, 40)], (architecture,), batch_size=8)


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


# --------------------------------------------------------------------------------------------------- what is to hold


def over_bytes(server: Federation, algorithm: Algorithm, requests: list[Any]) -> list[Any]:
    """An exchange through bytes, with clients that are put away as bytes between their rounds."""
    replies = []
    for request in requests:
        client, asked = server.clients[request.client], wire.request_to_bytes(request)
        answers, arrived = wire.Bound.to("run", request, asked), wire.request_from_bytes(asked)
        reply = wire.reply_to_bytes(simulation.answer(server, algorithm, arrived), answers)
        if client.visited:
            kept = wire.client_to_bytes(client)
            client.reset()
            wire.client_from_bytes(client, kept)
        context = server.server_context(request.round, request.rounds)
        replies.append(wire.reply_from_bytes(reply, request, answers, algorithm, context))
    return replies


def resumed(method: Algorithm, path: Any, architecture: str) -> Any:
    """Stopped after its first round, and gone on with by another process's federation."""

    def stop(row, timing):
        if row["round"] == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.simulate(federation(architecture), method, ROUNDS, checkpoint=path, every=0, progress=stop)
    return checkpoint.simulate(federation(architecture), method, ROUNDS, checkpoint=path)


def bits(method: Algorithm, path: Any, architecture: str = "tiny-a") -> str:
    """The one digest of all ways to run a method; `diverged` where it did."""
    outcomes = [
        simulate(federation(architecture), method, ROUNDS),
        simulate(federation(architecture), method, ROUNDS, exchange=over_bytes),
        simulate(federation(architecture), method, ROUNDS),
    ]
    if outcomes[0].status == "diverged":
        return "diverged"
    outcomes.append(resumed(method, path, architecture))
    tables = {str((one.round_rows, one.client_rows, one.detail_rows)) for one in outcomes}
    digests = {one.digest() for one in outcomes}
    assert len(digests) == len(tables) == 1, "in one process, over a wire, again and resumed differ"
    return digests.pop()


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
    "numpy number": np.float64(0.5), "numpy integer": np.int64(3), "numpy array": np.zeros(2), "numpy text": np.str_("a"),
    "set": {1, 2}, "defaultdict": collections.defaultdict(int), "counter": collections.Counter("ab"), "named": Pair(1, 2),
    "module": nn.Linear(2, 2), "function": len, "lambda": lambda: 1, "bytes": b"x", "object": object(), "complex": 1j,
    "generator": (one for one in "ab"), "sparse": torch.eye(2).to_sparse(), "meta": torch.zeros(2, device="meta"),
    "key": {(1, 2): 3}, "key of none": {None: 1}, "deep": {"a": [1, {"b": np.float32(1)}]}, "ring": ring,
    "size": torch.Size([1]), "dtype": torch.float32, "file": io.BytesIO(), "class": int, "range": range(3),
    "true as a key": {True: 1}, "numpy key": {np.int64(1): 1}, "path": __file__.encode(), "time": time.gmtime(0),
}  # fmt: skip


def with_value(where: str, value: Any) -> Algorithm:
    """The method with `value` at one place of what it hands over."""

    def init_server(self, context):
        return Shared.init_server(self, context) | ({"mine": value} if where == "server, at first" else {})

    def download(self, server, info, context):
        message = Shared.download(self, server, info, context)
        return replace(message, structure=(value,)) if where == "structure" else message

    def local_round(self, client, message, context):
        upload = Shared.local_round(self, client, message, context)
        if where == "client":
            client.state["mine"] = value
        if where == "tensor":
            upload.tensors["mine"] = value
        return upload

    def aggregate(self, server, uploads, context):
        returned = Shared.aggregate(self, server, uploads, context)
        if where == "server":
            server["mine"] = value
        return returned | ({"mine": value} if where == "detail" else {})

    return changed(init_server=init_server, download=download, local_round=local_round, aggregate=aggregate)


PLACES = ("server, at first", "server", "client", "structure", "tensor", "detail")
# In details NumPy's values and tensors are written as Python's.
FINE_IN_DETAILS = (
    "numpy number",
    "numpy integer",
    "numpy array",
    "numpy text",
    "deep",
    "size",
    "named",
    "defaultdict",
    "counter",
    "time",
)
FINE = [*(("detail", kind) for kind in FINE_IN_DETAILS)]
REFUSED = [pair for pair in itertools.product(PLACES, NOT_PLAIN) if pair not in FINE]


@pytest.mark.thorough
@pytest.mark.parametrize(("place", "kind"), REFUSED)
def test_what_is_not_plain_is_named_in_round_0(place, kind):
    line = said_by(simulate, federation(), with_value(place, NOT_PLAIN[kind]), ROUNDS)
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
    method = with_value("detail", value)
    assert bits(method, tmp_path / "c.pt") != "diverged"
    outcome = simulate(federation(), method, 1)
    assert ({**outcome.round_rows[-1], **outcome.detail_rows[-1]})["mine"] == written


MESSAGES = {
    "None": None, "a dictionary": {"weight": torch.zeros(2)}, "a tensor": torch.zeros(2), "a class": Message,
    "tensors None": Message(None), "tensors a list": Message([torch.zeros(2)]), "a number": Message({"w": 0.5}),
    "an array": Message({"w": np.zeros(2)}), "a module": Message({"w": nn.Linear(1, 1)}), "name": Message({1: torch.zeros(1)}),
    "samples": Message({}, 1.5), "negative": Message({}, -1), "NaN": Message({}, float("nan")), "text": Message({}, "3"),
    "true": Message({}, True), "structure": Message({}, 1, [1]), "dictionary": Message({}, 1, {"a": 1}),
}  # fmt: skip
DIAGNOSTICS = {
    "None": None, "list": [1], "text": {"mu": "half"}, "vector": {"mu": torch.zeros(2)}, "array": {"mu": np.zeros(2)},
    "nothing": {"mu": None}, "complex": {"mu": torch.tensor(1j)}, "huge": {"mu": 10**400}, "name": {3: 1.0},
    "round": {"round": 1.0}, "client": {"client": 1}, "accuracy": {"accuracy": 1.0}, "words": {"upload_words": 1},
}  # fmt: skip


@pytest.mark.parametrize(("step", "kind"), list(itertools.product(("download", "local_round"), MESSAGES)))
def test_what_is_no_message_is_named(step, kind):
    line = said_by(simulate, federation(), changed(**{step: lambda *given: MESSAGES[kind]}), ROUNDS)
    assert line.startswith(f"Mine.{step}")


@pytest.mark.parametrize("kind", DIAGNOSTICS)
def test_a_clients_diagnostics_are_numbers_by_name(kind):
    def local_round(self, client, message, context):
        return replace(Shared.local_round(self, client, message, context), diagnostics=DIAGNOSTICS[kind])

    line = said_by(simulate, federation(), changed(local_round=local_round), ROUNDS)
    assert line.startswith("Mine.local_round in round 0 of client") and "diagnostic" in line


@pytest.mark.parametrize(
    "returned",
    [[1], "x", 3, torch.zeros(2), {1: 2}, {"loss": 3}, {"accuracy": 1}, {"visited": 0}, {None: 1}, {"a": {"b": {1}}}],
    ids=str,
)
def test_what_aggregate_hands_back_is_named(returned):
    def aggregate(self, server, uploads, context):
        return returned

    assert "Mine" in said_by(simulate, federation(), changed(aggregate=aggregate), ROUNDS)


@pytest.mark.parametrize("state", [None, [], torch.zeros(2), {"a": np.int64(1)}, {(1,): 2}, "x"], ids=str)
def test_a_servers_state_is_a_plain_dictionary(state):
    line = said_by(simulate, federation(), changed(init_server=lambda self, context: state), ROUNDS)
    assert line.startswith("Mine.init_server")


@pytest.mark.parametrize("words", [None, -1, 1.5, "many", torch.tensor(1.0), float("nan")], ids=str)
def test_published_words_are_a_whole_number(words):
    line = said_by(simulate, federation(), changed(published_words=lambda self, message, context: words), ROUNDS)
    assert line.startswith("Mine.published_words")


# ------------------------------------------------------------------------------------------------------------- predict

ANSWERED = {
    "nothing": lambda logits: None, "a tensor": lambda logits: logits, "empty": lambda logits: {},
    "another first": lambda logits: {"mine": logits, "accuracy": logits}, "one row": lambda logits: {"accuracy": logits[:1]},
    "a row less": lambda logits: {"accuracy": logits[1:]}, "a column more": lambda logits: {"accuracy": logits.repeat(1, 2)},
    "a column less": lambda logits: {"accuracy": logits[:, 1:]}, "classes": lambda logits: {"accuracy": logits.argmax(1)},
    "integers": lambda logits: {"accuracy": logits.long()}, "an array": lambda logits: {"accuracy": logits.numpy()},
    "a list": lambda logits: {"accuracy": logits.tolist()}, "transposed": lambda logits: {"accuracy": logits.T},
    "loss": lambda logits: {"accuracy": logits, "loss": logits}, "round": lambda logits: {"accuracy": logits, "round": logits},
    "validation": lambda logits: {"accuracy": logits, "validation_accuracy": logits},
    "a name": lambda logits: {"accuracy": logits, 7: logits}, "booleans": lambda logits: {"accuracy": logits > 0},
    "complex": lambda logits: {"accuracy": logits + 0j}, "second short": lambda logits: {"accuracy": logits, "x": logits[:1]},
}  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERED)
def test_what_predict_answers_is_logits_an_image_a_row(kind):
    def predict(self, client, images):
        return ANSWERED[kind](client.model(images))

    line = said_by(simulate, federation(), changed(predict=predict), ROUNDS)
    assert line.startswith("Mine.predict")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_no_accuracy(number, tmp_path):
    def predict(self, client, images):
        return {"accuracy": client.model(images) * number}

    assert bits(changed(predict=predict), tmp_path / "c.pt") == "diverged"


# ------------------------------------------------------------------- changed in place, held on to, drawn, kept elsewhere


def in_place_download(self, client, message, context):
    message["weight"].add_(1)
    return Shared.local_round(self, client, message, context)


def in_place_data(self, client, message, context):
    message["weight"].data.add_(1)
    return Shared.local_round(self, client, message, context)


def in_place_numpy(self, client, message, context):
    message["weight"].numpy()[:] = 0
    return Shared.local_round(self, client, message, context)


def replaced_names(self, client, message, context):
    given = message.tensors.pop("weight")
    return Shared.local_round(self, client, Message({"weight": given}), context)


def alias_of_download(self, client, message, context):
    client.model.header.weight.data = message["weight"]
    context.train()
    return Message({"weight": client.model.header.weight.detach()})


def alias_in_state(self, client, message, context):
    client.state["before"] = client.model.header.weight.data
    context.train()
    return Message({"weight": client.model.header.weight.detach() + client.state["before"]})


def kept_download(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.state["before"] = message["weight"]
    return upload


def kept_upload(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.state["before"] = upload["weight"]
    return upload


def left_in_training(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.model.train()
    return upload


def with_gradients(self, client, message, context):
    Shared.local_round(self, client, message, context)
    return Message({"weight": client.model.header.weight})


def settings_changed(self, client, message, context):
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    upload = message
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    return Shared.local_round(self, client, upload, context)


def settings_left(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    return upload


def global_torch(self, client, message, context):
    client.model.header.bias.data.add_(torch.randn(3))
    return Shared.local_round(self, client, message, context)


def global_numpy(self, client, message, context):
    client.model.header.bias.data.add_(float(np.random.rand()))  # noqa: NPY002
    return Shared.local_round(self, client, message, context)


def global_python(self, client, message, context):
    client.model.header.bias.data.add_(random.random())
    return Shared.local_round(self, client, message, context)


def a_new_layer(self, client, message, context):
    layer = nn.Linear(3, 3)
    client.model.header.weight.data.add_(layer.weight.detach())
    return Shared.local_round(self, client, message, context)


def dropout(self, client, message, context):
    message = Message({"weight": nn.functional.dropout(message["weight"], 0.5)})
    return Shared.local_round(self, client, message, context)


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
    "local_round": (
        in_place_download, in_place_data, in_place_numpy, replaced_names, alias_of_download, alias_in_state, kept_download,
        kept_upload, left_in_training, with_gradients, settings_changed, settings_left, global_torch, global_numpy,
        global_python, a_new_layer, dropout,
    ),
    "aggregate": (server_in_place, server_keeps_upload, server_alias, server_draws),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("step", "function"), [pytest.param(s, f, id=f.__name__) for s, every in MENDED.items() for f in every]
)
def test_what_is_changed_held_on_to_or_drawn_gives_the_same_bits_in_every_way(step, function, tmp_path):
    before = torch.get_num_threads(), torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    python = random.getstate()
    assert bits(changed(**{step: function}), tmp_path / "c.pt") != "diverged"
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert torch.get_num_threads() == before[0] and torch.equal(torch.random.get_rng_state(), before[1])
    assert np.random.get_state()[1].tolist() == before[2] and random.getstate() == python  # noqa: NPY002


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
memory: dict[int, Any] = {}


def unseeded(self, client, message, context):
    client.model.header.bias.data.add_(float(np.random.default_rng().random()))
    return Shared.local_round(self, client, message, context)


def of_the_clock(self, client, message, context):
    client.model.header.bias.data.add_(time.perf_counter() % 1)
    return Shared.local_round(self, client, message, context)


def counting(self, client, message, context):
    client.state["count"] = next(counted)
    return Shared.local_round(self, client, message, context)


def elsewhere(self, client, message, context):
    message = Message({"weight": message["weight"] + memory.get(client.id, 0.0)})
    memory[client.id] = memory.get(client.id, 0.0) + 1.0
    return Shared.local_round(self, client, message, context)


def drawn_upload(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    return Message(
        {"weight": upload["weight"] + torch.rand((), generator=torch.Generator().manual_seed(next(counted)))}
    )


def drawn_loss(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    return replace(upload, diagnostics={"loss": next(counted)})


def drawn_diagnostic(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    return replace(upload, diagnostics={"mu": next(counted)})


def seeded(self, client, message, context):
    torch.manual_seed(0)
    return Shared.local_round(self, client, message, context)


def on_self(self, client, message, context):
    self.weight = message["weight"]
    return Shared.local_round(self, client, message, context)


def on_client(self, client, message, context):
    client.mine = message["weight"]
    return Shared.local_round(self, client, message, context)


def another_state(self, client, message, context):
    client.state = {"before": message["weight"]}
    return Shared.local_round(self, client, message, context)


def a_module(self, client, message, context):
    client.model.mine = nn.Linear(2, 2)
    return Shared.local_round(self, client, message, context)


def a_buffer(self, client, message, context):
    client.model.register_buffer("mine", torch.zeros(2))
    return Shared.local_round(self, client, message, context)


def no_header(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.model.header = nn.Identity()
    return upload


def wider(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.model.header = nn.Linear(3, 4)
    return upload


def doubles(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.model.double()
    return upload


def no_network(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.model = "a network"
    return upload


def frozen(self, client, message, context):
    client.model.extractor.requires_grad_(False)
    return Shared.local_round(self, client, message, context)


def another_network(self, client, message, context):
    upload = Shared.local_round(self, client, message, context)
    client.model = tiny.ARCHITECTURES["tiny-b"](3, 1)
    return upload


def state_key(self, client, message, context):
    client.state[3] = 1.0
    return Shared.local_round(self, client, message, context)


def others_images(self, client, message, context):
    client.pool.batch(torch.arange(60))
    return Shared.local_round(self, client, message, context)


def labels_of_the_tests(self, client, message, context):
    nn.functional.cross_entropy(client.model(client.pool.batch(client.test)), client.pool.labels[client.test])
    return Shared.local_round(self, client, message, context)


def all_labels(self, client, message, context):
    client.pool.labels.bincount()
    return Shared.local_round(self, client, message, context)


def no_upload(self, client, message, context):
    Shared.local_round(self, client, message, context)


def unknown_name(self, client, message, context):
    return Message({"weight": message["weigth"]})


def no_epochs(self, client, message, context):
    context.train(epochs=-1)
    return Message()


def another_purpose(self, client, message, context):
    context.generator("mine")
    return Message()


def a_wrong_loss(self, client, message, context):
    context.train(lambda model, images, labels: model(images))
    return Message()


def a_loss_of_none(self, client, message, context):
    context.train(lambda model, images, labels: None)
    return Message()


def server_unseeded(self, server, uploads, context):
    server["weight"] = server["weight"] + float(np.random.default_rng().random())


def server_counts(self, server, uploads, context):
    return {"count": next(counted)}


def server_shape(self, server, uploads, context):
    server["weight"] = torch.zeros(7)


def server_changes_infos(self, server, uploads, context):
    for info in context.infos:
        info.classes.add_(1)


def server_not_detached(self, server, uploads, context):
    server["weight"] = nn.Parameter(server["weight"]) * 2


def server_forgets(self, server, uploads, context):
    server.clear()


def download_changes(self, server, info, context):
    server["asked"] = server.get("asked", 0) + 1
    return Message({"weight": server["weight"]})


def download_in_place(self, server, info, context):
    return Message({"weight": server["weight"].add_(1)})


def download_draws(self, server, info, context):
    return Message({"weight": server["weight"] + float(np.random.default_rng().random())})


def server_drawn_at_first(self, context):
    return {"weight": torch.from_numpy(np.random.default_rng().random((3, 3))).float()}


def predict_draws(self, client, images):
    return {"accuracy": torch.from_numpy(np.random.default_rng().random((len(images), 3)))}


def predict_elsewhere(self, client, images):
    client.model.asked = getattr(client.model, "asked", 0) + 1
    return {"accuracy": client.model(images) * (2.0 if client.model.asked % 2 else 3.0)}


def keeps_a_number_on_the_model(self, client, message, context):
    client.model.factor = 2.0 + float(message["weight"].sum())
    return Shared.local_round(self, client, message, context)


def predict_by_the_model(self, client, images):
    return {"accuracy": client.model(images) * getattr(client.model, "factor", 1.0)}


FOUND = {
    "local_round": {
        unseeded: "differs: it draws without a seed", of_the_clock: "differs", counting: r"client.state\['count'\] differs",
        elsewhere: "or keeps something elsewhere", drawn_upload: "the upload's weight differs", drawn_loss: "the loss differs",
        drawn_diagnostic: "diagnostic mu differs", seeded: "torch.manual_seed was called", on_self: "has changed attributes of the method",
        on_client: "AttributeError: 'Client' object has no attribute 'mine'", another_state: "AttributeError",
        a_module: "client.model has got mine.weight", a_buffer: "client.model has got mine", no_header: "header.weight",
        wider: "header.weight", doubles: "torch.float64", no_network: "client.model = 'a network': must be a network",
        frozen: "requires_grad of extractor.2.weight = False: must be True again", another_network: "client.model",
        state_key: "key of client.state = 3: must be text", others_images: "IndexError", labels_of_the_tests: "IndexError",
        all_labels: "RuntimeError", no_upload: "must be a Message", unknown_name: "KeyError: 'weigth'",
        no_epochs: "epochs = -1: must be at least 0", another_purpose: "purpose = 'mine' is unknown", a_wrong_loss: "RuntimeError",
        a_loss_of_none: "AttributeError",
    },
    "aggregate": {
        server_unseeded: "the server's state differs", server_counts: "what it returns differs",
        server_shape: "RuntimeError", server_changes_infos: "has changed what it knows of the clients",
        server_not_detached: r"the server's state\['weight'\] = 'a tensor with a history': must be detached",
        server_forgets: "KeyError: 'weight'",
    },
    "download": {
        download_changes: "has changed the server's state", download_in_place: "has changed the server's state",
        download_draws: "what it returns differs",
    },
    "init_server": {server_drawn_at_first: "what it returns differs"},
    "predict": {predict_draws: "what predict answers differs", predict_elsewhere: "differs|answers otherwise"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("step", "function"), [pytest.param(s, f, id=f.__name__) for s, every in FOUND.items() for f in every]
)
def test_what_no_stream_and_no_checkpoint_knows_of_is_found_and_named(step, function, monkeypatch):
    memory.clear()
    line = said_by(simulate, federation(), changed(**{step: function}), ROUNDS)
    assert re.search(FOUND[step][function], line), line
    assert line.startswith("Mine.") or "torch.manual_seed" in line or "epochs" in line or "purpose" in line


def test_what_is_kept_on_the_model_beside_its_state_is_found():
    method = changed(local_round=keeps_a_number_on_the_model, predict=predict_by_the_model)
    assert "when the client comes back from a checkpoint" in said_by(simulate, federation(), method, ROUNDS)


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


def test_nothing_is_trained_for_no_epochs():
    client = federation().clients[0]
    context, before = federation().client_context(0), border.digest([client.model.state_dict()])
    context = replace(context, client=client)
    assert context.train(epochs=0) == 0 and context.loss is None
    assert border.digest([client.model.state_dict()]) == before


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


LAYER = nn.Linear(4, 3)
NETWORKS = {
    "None": (lambda *given: None, "a function that returns a fedlib.Model"),
    "a function": (lambda *given: torch.relu, "a function that returns a fedlib.Model"),
    "a class": (lambda *given: nn.Linear, "a function that returns a fedlib.Model"),
    "raises": (lambda *given: 1 / 0, "its builder: ZeroDivisionError"),
    "exits": (lambda *given: exit(1), "its builder: SystemExit"),
    "an argument": (lambda classes: network(), "its builder: TypeError"),
    "shared weights": (lambda *given: network(LAYER), "share weights"),
    "drawn": (lambda *given: network(drawn_layer()), "different weights"),
    "of the clock": (lambda *given: network(filled(time.perf_counter())), "different weights"),
    "seeded": (lambda *given: (torch.manual_seed(0), network())[1], "torch.manual_seed was called"),
    "a class more": (lambda *given: network(nn.Linear(4, 4)), r"shape = \(2, 4\): must be \(2, 3\)"),
    "a class less": (lambda *given: network(nn.Linear(4, 2)), r"shape = \(2, 2\): must be \(2, 3\)"),
    "another width": (lambda *given: network(nn.Linear(5, 3)), "RuntimeError: mat1 and mat2"),
    "channels": (lambda *given: network(extractor=nn.Conv2d(3, 4, 3)), "RuntimeError"),
    "doubles": (lambda *given: network().double(), "RuntimeError"),
    "lazy": (lambda *given: network(nn.LazyLinear(3)), "must be a tensor with a shape"),
    "extra state": (lambda *given: network(WithExtra(4, 3)), "must be a tensor with a shape"),
    "a pair": (doing(lambda layer, values: (values, values)), "TypeError"),
    "integers": (lambda *given: network(extractor=Rounded()), "architecture = 'mine'"),
    "no method": (lambda *given: nn.Module(), "NotImplementedError"),
    "noise": (doing(lambda layer, values: values + float(np.random.default_rng().random())), "called twice"),
    "counts": (doing(counts), "called twice"),
    "changes itself": (doing(changes_itself), "has changed its own weights"),
    "raises in training": (
        doing(lambda layer, values: values.no_such() if layer.training else values),
        "AttributeError",
    ),
    "one row": (doing(lambda layer, values: values[:1]), r"shape = \(1, 3\): must be \(2, 3\)"),
}  # fmt: skip


def drawn_layer() -> nn.Linear:
    layer = nn.Linear(4, 3)
    layer.bias.data.fill_(float(np.random.default_rng().random()))
    return layer


def filled(value: float) -> nn.Linear:
    layer = nn.Linear(4, 3)
    layer.bias.data.fill_(value % 1)
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
    line = said_by(lambda: simulate(federation("mine"), make(method), ROUNDS))
    assert (re.search(message, line) and "mine" in line) or "torch.manual_seed" in line, line


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
    "exits": lambda labels, n, stream: exit(), "a number": lambda labels, n, stream: 3, "text": lambda *given: "abc",
    "a dictionary": lambda *given: {0: [1, 2]}, "too few": lambda labels, n, stream: [np.arange(9)],
    "too many": lambda labels, n, stream: np.split(np.arange(60), 6), "floats": lambda *given: [np.arange(3.0)] * 3,
    "booleans": lambda *given: [np.ones(60, bool)] * 3, "twice": lambda *given: [np.arange(9)] * 3,
    "within twice": lambda *given: [np.zeros(9, int), np.arange(9, 18), np.arange(18, 27)],
    "negative": lambda *given: [np.arange(-9, 0), np.arange(9), np.arange(9, 18)],
    "beyond": lambda *given: [np.arange(55, 65), np.arange(9), np.arange(9, 18)],
    "two dimensions": lambda *given: [np.arange(18).reshape(9, 2), np.arange(18, 27), np.arange(27, 36)],
    "ragged": lambda *given: [[[1, 2], [3]], [4, 5, 6], [7, 8, 9]], "nothing": lambda *given: [[], [], []],
    "of texts": lambda *given: [["a"], ["b"], ["c"]], "of None": lambda *given: [None, None, None],
    "an argument": lambda labels: None, "of objects": lambda *given: [object()] * 3,
    "unseeded": lambda labels, n, stream: np.array_split(np.random.default_rng().permutation(60), n),
    "of the clock": lambda labels, n, stream: np.array_split(np.roll(np.arange(60), time.perf_counter_ns() % 59 + 1), n),
    "counting": lambda labels, n, stream: np.array_split(np.roll(np.arange(60), next(counted)), n),
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


def by_torch(labels, num_clients, stream):
    return np.array_split(torch.randperm(60).numpy(), num_clients)


def by_numpy(labels, num_clients, stream):
    return np.array_split(np.random.permutation(60), num_clients)  # noqa: NPY002


def by_python(labels, num_clients, stream):
    return np.array_split(random.sample(range(60), 60), num_clients)


def by_stream_and_spoilt_labels(labels, num_clients, stream):
    labels[:] = 0
    return np.array_split(stream.permutation(60), num_clients)


@pytest.mark.parametrize("dealer", [by_torch, by_numpy, by_python, by_stream_and_spoilt_labels])
def test_a_partitions_draws_are_the_seeds(dealer):
    one, again, other = (border.digest([list(map(list, dealt(dealer, seed)))]) for seed in (0, 0, 1))
    assert one == again != other and LABELS.tolist() == (np.arange(60) % 3).tolist()


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
    "arrays": lambda: (IMAGES, TRUTHS), "a class": lambda: Dataset, "not there": lambda: np.load("/no/such/file"),
    "unseeded": lambda: Dataset.from_arrays("x", fresh_images(), TRUTHS, IMAGES[:1], TRUTHS[:1]),
    "another": lambda: Dataset.from_arrays("x", IMAGES, (TRUTHS + next(counted)) % 3, IMAGES[:1], TRUTHS[:1]),
}  # fmt: skip


def fresh_images() -> np.ndarray:
    return np.random.default_rng().integers(0, 255, IMAGES.shape, dtype=np.uint8)


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


@pytest.mark.parametrize("field", ["mean", "std"])
def test_statistics_of_arrays_are_checked(field):
    for value in PARTS[field][:1] + PARTS[field][2:]:  # None: those of the images
        line = said_by(
            lambda value=value: Dataset.from_arrays("x", IMAGES, TRUTHS, IMAGES[:1], TRUTHS[:1], **{field: value})
        )
        assert line.startswith(f"x: {field} = ") and "one per channel" in line


def test_data_that_test_on_what_is_trained_on_or_have_classes_without_end(capsys):
    Dataset.from_arrays("x", IMAGES, TRUTHS, IMAGES[:5], TRUTHS[:5])
    assert not capsys.readouterr().err
    Dataset.from_arrays("x", IMAGES, TRUTHS, IMAGES.copy(), TRUTHS)
    assert capsys.readouterr().err.startswith("x: its test images are its training images")
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
    "function", [in_place_download, kept_download, global_torch, server_keeps_upload, server_draws]
)
def test_isolated_clients_and_their_servers_are_apart_too(function, tmp_path):
    step = "aggregate" if function.__name__.startswith("server") else "local_round"
    method = changed(**{step: function})
    assert bits(Isolated(method), tmp_path / "c.pt") != "diverged"


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
