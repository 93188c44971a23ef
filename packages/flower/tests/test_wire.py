"""Bytes on a wire: what goes in comes out, and what nobody of fedlib's sent is one line. That whole runs over these
bytes keep their bits, whatever the method, is in tests/algorithms/test_contract.py.
"""

import dataclasses
import json
import types

import numpy as np
import pytest
import tiny
import torch

from fedlib import FedlibError
from fedlib.algorithms.base import Algorithm
from fedlib.federation import ClientInfo, Message
from fedlib.simulation import Reply, Request
from fedlib_flower import wire
from fedlib_flower.accepts import Sized, Upto


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride()
        assert torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert repr(one) == repr(other)


def test_what_goes_in_comes_out():
    shared = torch.arange(6.0)
    value = {
        "tensors": [torch.tensor(2.5), torch.zeros(0, 10), torch.arange(3), torch.tensor([True, False])],
        "half": (torch.tensor([1.5, float("nan")], dtype=torch.bfloat16), torch.tensor([1e-300], dtype=torch.float64)),
        "strided": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "shared": [shared[:3], shared[:3]],
        3: {"0": None, 0: True, -1: 10**20},
        "numbers": [0.1 + 0.2, float("inf"), -0.0, "\n\x00ü"],
        "empty": [{}, [], (), ""],
    }
    assert_same(wire.from_bytes(wire.to_bytes(value)), value)
    assert repr(wire.from_bytes(wire.to_bytes(float("nan")))) == "nan"
    assert wire.from_bytes(wire.to_bytes(np.int64(4))) == 4
    transposed = torch.arange(6.0).view(2, 3).T
    assert torch.equal(wire.from_bytes(wire.to_bytes(transposed)), transposed)


@pytest.mark.parametrize("value", [object(), {1.5: 0}, {True: 0}, np.zeros(2), b"x"])
def test_what_cannot_travel_is_named(value):
    with pytest.raises(FedlibError, match=f"^a {type(value).__name__} cannot travel: only tensors"):
        wire.to_bytes(value)


CONTENT = wire.to_bytes({"a": torch.ones(4, 10), "b": [1, (2, torch.arange(3))]})
HEADER = 8 + int.from_bytes(CONTENT[:8], "little")


def with_header(**changes) -> bytes:
    """The bytes with some entries of the header replaced."""
    header = json.loads(CONTENT[8:HEADER]) | changes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + CONTENT[HEADER:]


def with_structure(structure) -> bytes:
    return with_header(__metadata__={"fedlib": json.dumps(structure)})


PLACE = json.loads(CONTENT[8:HEADER])["0"]["data_offsets"]
BILLION = {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}
HOSTILE = {
    "longer": CONTENT + b"\0",
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "a header of 2**64": b"\xff" * 8 + CONTENT[8:],
    "a billion elements": with_header(**{"0": BILLION}),
    "a billion elements in no bytes": with_header(**{"0": BILLION | {"data_offsets": PLACE}}),
    "2**62 elements": with_header(**{"0": BILLION | {"shape": [2**62, 2**62], "data_offsets": PLACE}}),
    "another shape": with_header(**{"0": {"dtype": "F32", "shape": [4, 11], "data_offsets": PLACE}}),
    "a dtype that is none": with_header(**{"0": {"dtype": "F31", "shape": [40], "data_offsets": PLACE}}),
    "overlapping tensors": with_header(**{"0": {"dtype": "F32", "shape": [4, 10], "data_offsets": [0, 160]}}),
    "no structure": with_header(__metadata__={}),
    "a structure that is no JSON": with_header(__metadata__={"fedlib": "{"}),
    "deep": with_header(__metadata__={"fedlib": "[" * 10**6}),
    "deep, and ours": with_structure({"list": [json.loads('{"list": [' * 50 + "1" + "]}" * 50)]}),
    "a tensor that is not there": with_structure({"tensor": "7", "channels_last": False}),
    "a tensor that nobody names": with_structure({"tensor": "0", "channels_last": False}),
    "a container that is none": with_structure({"set": [1]}),
    "a key twice": with_structure({"dict": [["a", 1], ["a", 2]]}),
    "a key that is none": with_structure({"dict": [[None, 1]]}),
    "two containers": with_structure({"dict": [], "list": []}),
    "a bare list": with_structure([1]),
    "channels-last of two dimensions": with_structure({"tensor": "0", "channels_last": True}),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_bytes_that_nobody_of_ours_wrote_are_one_line(content):
    with pytest.raises(FedlibError) as error:
        wire.from_bytes(content, "reply of client 3")
    assert str(error.value).startswith("reply of client 3: ") and "\n" not in str(error.value)


def test_every_cut_is_noticed():
    for cut in range(len(CONTENT)):
        with pytest.raises(FedlibError, match=r"\Amessage: .*\Z"):
            wire.from_bytes(CONTENT[:cut])


def test_more_bytes_than_any_message_has_are_not_read(monkeypatch):
    monkeypatch.setattr(wire, "LIMIT", len(CONTENT) - 1)
    with pytest.raises(FedlibError, match=rf"^message: cannot be read \({len(CONTENT)} bytes, at most"):
        wire.from_bytes(CONTENT)


# ------------------------------------------------------------------------------------------ messages and replies

INFO = ClientInfo(3, "tiny", torch.tensor([1, 4]), 20)
OWN = {"header.weight": torch.zeros(10, 5), "header.bias": torch.zeros(10)}
REQUEST = Request(0, 5, 3, Message({"weight": torch.zeros(2, 5)}))
ANSWERS = wire.Bound.to("Mine-run", REQUEST, wire.request_to_bytes(REQUEST))
CONTEXT = types.SimpleNamespace(
    infos={3: INFO}, metrics=(), build=lambda name: types.SimpleNamespace(state_dict=lambda: OWN)
)


@dataclasses.dataclass(frozen=True)
class Mine(Algorithm):
    """Sends back what it was sent, or parts of its model."""

    name = "Mine"
    scores = ("mine_accuracy",)
    reports = ("mu",)
    weighs_samples = True


@dataclasses.dataclass(frozen=True)
class ByClass(Mine):
    def uploads(self, names, info, download, context):
        return Sized.by_class(info, lars=(5,)) | {"counts": Sized((Upto("classes", 2),), torch.int64, least=1, most=20)}


def reply(tensors=None, **fields):
    upload = Message({"weight": torch.ones(2, 5)} if tensors is None else tensors, 20)
    whole = Reply({"accuracy": 0.5, "validation_accuracy": torch.tensor(0.25)}, upload, 0.5, {"mu": 0.1})
    return dataclasses.replace(whole, **fields)


def arrived(value, method=None, answers=ANSWERS, validates=False):
    content = wire.reply_to_bytes(value, answers)
    return wire.reply_from_bytes(content, REQUEST, ANSWERS, method or Mine(), CONTEXT, validates)


def test_a_request_with_its_message_and_a_reply_come_back():
    structure = ((1, "conv", (3, 16)), (2, "relu", ()))
    asked = REQUEST._replace(download=Message({"a": torch.randn(2, 3)}, 7, structure, {"mu": 0.5}))
    assert_same(vars(wire.request_from_bytes(wire.request_to_bytes(asked)).download), vars(asked.download))
    request = wire.request_from_bytes(wire.request_to_bytes(REQUEST))
    assert request[:3] == REQUEST[:3] and torch.equal(request.download["weight"], REQUEST.download["weight"])
    there = arrived(reply())
    assert (
        there.loss == 0.5
        and there.accuracies["accuracy"] == 0.5
        and torch.equal(there.upload["weight"], torch.ones(2, 5))
    )
    without = arrived(
        reply(accuracies={"validation_accuracy": float("nan"), "mine_accuracy": 0.0, "accuracy": 1}, loss=None)
    )
    assert without.loss is None and list(without.accuracies) == ["accuracy", "mine_accuracy", "validation_accuracy"]
    own, first = {"header.bias": torch.ones(10)}, REQUEST._replace(download=Message())
    content = wire.reply_to_bytes(reply(own), ANSWERS)
    assert torch.equal(
        wire.reply_from_bytes(content, first, ANSWERS, Mine(), CONTEXT).upload["header.bias"], torch.ones(10)
    )


def by_class(classes=(1, 4), rows=2, counts=(1, 20), width=5):
    tensors = {"classes": torch.tensor(classes, dtype=torch.int64), "lars": torch.ones(rows, width)}
    return reply(tensors | {"counts": torch.tensor(counts, dtype=torch.int64)})


def test_classes_may_be_fewer_than_the_clients_own():
    assert arrived(by_class([4], 1, [3]), ByClass()).upload["classes"].tolist() == [4]


OTHER_REQUESTS = {
    "another run": (ANSWERS._replace(run="Other"), "run that it answers = 'Other': must be 'Mine-run'"),
    "an earlier round": (ANSWERS._replace(round=1), "round that it answers = 1: must be 0"),
    "another client": (ANSWERS._replace(client=2), "client that it answers = 2: must be 3"),
    "another download": (ANSWERS._replace(request="0" * 64), "request that it answers = '0000"),
    "a truth value": (ANSWERS._replace(round=False), "does not say which request it answers"),
    "nothing": ((), "does not say which request it answers"),
}


@pytest.mark.parametrize(("answers", "line"), OTHER_REQUESTS.values(), ids=OTHER_REQUESTS)
def test_a_reply_to_another_request_is_one_line(answers, line):
    with pytest.raises(FedlibError) as error:
        arrived(reply(), answers=answers)
    assert str(error.value).startswith("reply of client 3: ") and line in str(error.value)


def test_a_client_that_diverged_says_so_itself():
    tensors = {"weight": torch.full((2, 5), float("nan"))}
    assert torch.isnan(arrived(reply(tensors, loss=float("nan"))).upload["weight"]).all()


NAN = torch.tensor([[1.0, 2, 3, float("nan"), 5], [1, 2, 3, 4, 5]])
TENSORS = "its tensors are 'weight, x', must be those of Mine.uploads: weight"
FOREIGN = {
    "NaN": (reply({"weight": NAN}), "weight is not finite, though its loss is"),
    "a shape that would broadcast": (reply({"weight": torch.ones(1, 5)}), "weight has shape (1, 5), must be (2, 5)"),
    "a shape of fewer axes": (reply({"weight": torch.ones(10)}), "weight has shape (10,), must be (2, 5)"),
    "its own model's": (
        reply({"header.bias": torch.ones(10)}),
        "its tensors are 'header.bias', must be those of Mine.uploads",
    ),
    "one tensor more": (reply({"weight": torch.ones(2, 5), "x": torch.ones(1)}), TENSORS),
    "no tensor": (reply({}), "its tensors are 'none', must be those of Mine.uploads: weight"),
    "doubles": (
        reply({"weight": torch.ones(2, 5, dtype=torch.float64)}),
        "weight's dtype = 'torch.float64': must be torch.",
    ),
    "more images": (reply(upload=Message(reply().upload.tensors, 10**9)), "num_samples = 1000000000: must be 20"),
    "no images": (reply(upload=Message(reply().upload.tensors)), "num_samples = 0: must be 20"),
    "an accuracy": (
        reply(accuracies={"accuracy": 1.5, "validation_accuracy": 1.0}),
        "accuracy = 1.5, must be in [0, 1]",
    ),
    "an accuracy of NaN": (
        reply(accuracies={"accuracy": float("nan"), "validation_accuracy": 1.0}),
        "accuracy = nan, must be in [0, 1]",
    ),
    "no accuracy": (reply(accuracies={"validation_accuracy": 1.0}), "accuracy = None: must be given"),
    "another's name": (reply(accuracies={"accuracy": 1.0, "round": 1.0}), "accuracy = 'round' is unknown"),
    "a text": (reply(loss="low"), "loss = 'low', must be a single number"),
    "many losses": (reply(loss=torch.ones(2)), "must be a single number"),
    "a loss of 400 digits": (reply(loss=10**400), ", must be a single number"),
    "a loss beyond float32": (reply(loss=-1e39), "loss = -1e+39: must be a number that float32 holds"),
    "a diagnostic that is none": (
        reply(diagnostics={"nu": 1.0}),
        "diagnostic = 'nu' is unknown: did you mean 'mu'? known are mu",
    ),
    "a diagnostic of NaN": (reply(diagnostics={"mu": float("nan")}), "diagnostic mu = nan: must be a finite number"),
    "no numbers": (reply(diagnostics={"mu": torch.ones(2)}), "must be a single number"),
    "no dictionary": (reply(diagnostics=3), "diagnostics must be single numbers by name"),
    "no tensors": (reply({"weight": 3}), "its tensors must be tensors by name"),
    "a structure": (reply(upload=Message({}, 20, [1])), "structure is a list, must be a tuple of layer records"),
    "a structure nobody sends": (
        reply(upload=Message(reply().upload.tensors, 20, (1,))),
        "structure = 'given': must be none, since Mine sends none",
    ),
    "truth": (reply(inherited=1), "inherited is a int, must be true or false"),
    "an heir": (reply(inherited=True), "inherited = True: must be false"),
    "seconds": (reply(evaluation_seconds=float("nan")), "evaluation_seconds = nan: must be between 0 and"),
}
BY_CLASS = {
    "rows and classes": (by_class(rows=3), "lars has shape (3, 5), must be (2, 5)"),
    "more rows than classes": (by_class([1, 4, 1], 3, [1, 1, 1]), "classes has shape (3,), must be (at most 2,)"),
    "no rows": (by_class([], 0, []), "classes has shape (0,), must be (at most 2,)"),
    "another's class": (by_class([1, 2]), "classes must be of the client's own: [1, 4]"),
    "a class twice": (by_class([4, 4]), "classes must each be there once"),
    "a count of none": (by_class(counts=(0, 1)), "counts = 'beyond them': must be within 1..20"),
}


@pytest.mark.parametrize(
    ("method", "value", "line"),
    [(Mine(), *case) for case in FOREIGN.values()] + [(ByClass(), *case) for case in BY_CLASS.values()],
    ids=[*FOREIGN, *BY_CLASS],
)
def test_a_reply_that_no_client_could_have_sent_is_one_line(method, value, line):
    with pytest.raises(FedlibError) as error:
        arrived(value, method)
    assert str(error.value).startswith("reply of client 3: ") and line in str(error.value)
    assert "\n" not in str(error.value)


def test_no_validation_accuracy_is_of_a_client_without_such_images_alone():
    without = reply(accuracies={"accuracy": 1.0, "validation_accuracy": float("nan")})
    assert np.isnan(arrived(without).accuracies["validation_accuracy"])
    with pytest.raises(FedlibError, match=r"validation_accuracy = nan, must be in \[0, 1\]$"):
        arrived(without, validates=True)


def test_only_a_metric_that_may_be_undefined_on_a_client_is_nan(monkeypatch):
    monkeypatch.setattr(CONTEXT, "metrics", ("auc", "macro_f1"))
    given = {"accuracy": 1.0, "validation_accuracy": 1.0, "auc": float("nan"), "macro_f1": 1.0}
    assert np.isnan(arrived(reply(accuracies=given)).accuracies["auc"])
    with pytest.raises(FedlibError, match=r"macro_f1 = nan, must be in \[0, 1\]$"):
        arrived(reply(accuracies=given | {"macro_f1": float("nan")}))


def test_before_the_first_round_a_reply_has_accuracies_alone():
    first = Request(-1, 5, 3, Message())
    answers = wire.Bound.to("run", first, b"")
    plain = Reply({"accuracy": 0.5, "validation_accuracy": 0.5})
    for value, fits in ((plain, True), (dataclasses.replace(plain, loss=1.0), False), (reply(loss=None), False)):
        content = wire.reply_to_bytes(value, answers)
        if fits:
            assert wire.reply_from_bytes(content, first, answers, Mine(), CONTEXT).accuracies["accuracy"] == 0.5
        else:
            with pytest.raises(
                FedlibError, match=r"must be accuracies alone before round 0, when nothing has been trained$"
            ):
                wire.reply_from_bytes(content, first, answers, Mine(), CONTEXT)


@pytest.mark.parametrize("value", [[], {"tensors": {}}, (1, 2, 3, {}), (1, 2, "3", {})])
def test_another_structure_is_neither_a_request_nor_a_reply(value):
    content = wire.to_bytes(value)
    with pytest.raises(FedlibError, match=r"^request: must (be|have) "):
        wire.request_from_bytes(content)
    with pytest.raises(
        FedlibError, match=r"^reply of client 3: (must have accuracies, diagnostics, |does not say which)"
    ):
        wire.reply_from_bytes(content, REQUEST, ANSWERS, Mine(), CONTEXT)


# ------------------------------------------------------------------------------------------------ clients


def client(architecture="tiny", id=0):
    data = tiny.dataset(num_classes=3, per_class=20)
    return tiny.federation(data, [np.arange(k, 60, 2) for k in range(2)], (architecture,)).clients[id]


def test_a_client_comes_back_as_it_was():
    one, other = client(), client()
    with torch.no_grad():
        for tensor in one.model.state_dict().values():
            tensor.add_(1)
    one.state.update(prototypes=torch.arange(3.0), met=[0, 1])
    wire.client_from_bytes(other, wire.client_to_bytes(one))
    assert other.visited
    assert_same(dict(other.model.state_dict()), dict(one.model.state_dict()))
    assert_same(other.state, one.state)


@pytest.mark.parametrize(
    "content",
    [
        wire.to_bytes({"model": {"header.weight": torch.ones(1)}, "state": {}}),
        wire.to_bytes({"model": {}}),
        wire.to_bytes({"model": [], "state": {}}),
        wire.to_bytes({"model": {}, "state": []}),
    ],
)
def test_another_clients_state_is_refused_and_changes_nothing(content):
    own = client()
    before = {name: tensor.clone() for name, tensor in own.model.state_dict().items()}
    shapes = wire.to_bytes({"model": dict.fromkeys(before, torch.ones(1)), "state": {}})
    for hostile in (content, shapes, wire.client_to_bytes(client("tiny-a"))):
        with pytest.raises(FedlibError, match=r"^state of client 0: "):
            wire.client_from_bytes(own, hostile)
    assert not own.visited
    assert_same(dict(own.model.state_dict()), before)


def test_what_is_nested_more_deeply_than_any_state_is_refused():
    nested: dict = {"x": 1}
    for _ in range(wire.DEPTH + 3):
        nested = {"x": nested}
    with pytest.raises(FedlibError, match="its structure is none that fedlib writes"):
        wire.from_bytes(wire.to_bytes(nested))
    for _ in range(8):
        nested = nested["x"]
    assert wire.from_bytes(wire.to_bytes(nested)) == nested
