"""Bytes on a wire: what goes in comes out, and what nobody of fedlib's sent is one line. That whole runs over these
bytes keep their bits, whatever the method, is in tests/algorithms/test_exchange.py.
"""

import dataclasses
import json

import numpy as np
import pytest
import tiny
import torch

from fedlib import FedlibError
from fedlib.federation import ClientInfo, Message
from fedlib.flower import wire
from fedlib.simulation import Reply, Request


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
    "nothing": b"",
    "cut in the header": CONTENT[: HEADER // 2],
    "cut in the tensors": CONTENT[:-1],
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
        with pytest.raises(FedlibError):
            wire.from_bytes(CONTENT[:cut])


def test_more_bytes_than_any_message_has_are_not_read(monkeypatch):
    monkeypatch.setattr(wire, "LIMIT", len(CONTENT) - 1)
    with pytest.raises(FedlibError, match=rf"^message: cannot be read \({len(CONTENT)} bytes, at most"):
        wire.from_bytes(CONTENT)


# ------------------------------------------------------------------------------------------ messages and replies

INFO = ClientInfo(3, "tiny", torch.tensor([1, 4]), 20)
OWN = {"header.weight": torch.zeros(10, 5), "header.bias": torch.zeros(10)}
REQUEST = Request(0, 5, 3, Message({"weight": torch.zeros(2, 5)}))


def reply(tensors=None, **fields):
    upload = Message({"weight": torch.ones(2, 5)} if tensors is None else tensors, 20)
    whole = Reply({"accuracy": 0.5, "validation_accuracy": torch.tensor(0.25)}, upload, 0.5, {"mu": 0.1})
    return dataclasses.replace(whole, **fields)


def arrived(value):
    return wire.reply_from_bytes(wire.reply_to_bytes(value), REQUEST, INFO, OWN)


def test_a_message_a_request_and_a_reply_come_back():
    structure = ((1, "conv", (3, 16)), (2, "relu", ()))
    message = Message({"a": torch.randn(2, 3)}, 7, structure, {"mu": torch.tensor(0.5)})
    assert_same(vars(wire.message_from_bytes(wire.message_to_bytes(message))), vars(message))
    request = wire.request_from_bytes(wire.request_to_bytes(REQUEST))
    assert request[:3] == REQUEST[:3] and torch.equal(request.download["weight"], REQUEST.download["weight"])
    there = arrived(reply())
    assert (
        there.loss == 0.5
        and there.accuracies["accuracy"] == 0.5
        and torch.equal(there.upload["weight"], torch.ones(2, 5))
    )
    nothing = arrived(reply({}, loss=None, accuracies={"accuracy": 1.0, "validation_accuracy": float("nan")}))
    assert nothing.loss is None and nothing.upload.tensors == {}


def test_classes_may_be_fewer_than_the_clients_own():
    tensors = {"classes": torch.tensor([4]), "prototypes": torch.ones(1, 5), "header.weight": torch.ones(1, 5)}
    assert arrived(reply(tensors)).upload["classes"].tolist() == [4]


def test_a_client_that_diverged_says_so_itself():
    tensors = {"weight": torch.full((2, 5), float("nan"))}
    assert torch.isnan(arrived(reply(tensors, loss=float("nan"))).upload["weight"]).all()


NAN = torch.tensor([[1.0, 2, 3, float("nan"), 5], [1, 2, 3, 4, 5]])
FOREIGN = {
    "NaN": (reply({"weight": NAN}), "weight is not finite, though its loss is"),
    "a shape that would broadcast": (reply({"weight": torch.ones(1, 5)}), r"weight has shape (1, 5), must be (2, 5)"),
    "its own model's": (
        reply({"header.weight": torch.ones(10, 5), "header.bias": torch.ones(1)}),
        "header.bias has shape (1,), must be (10,)",
    ),
    "rows and classes": (
        reply({"classes": torch.tensor([1, 4]), "lars": torch.ones(3, 9)}),
        "lars has shape (3, 9), must be (2, 9)",
    ),
    "doubles": (reply({"weight": torch.ones(2, 5, dtype=torch.float64)}), "weight is of torch.float64, must be of"),
    "another's class": (reply({"classes": torch.tensor([1, 2])}), "classes must be of the client's own: [1, 4]"),
    "a class twice": (reply({"classes": torch.tensor([4, 4])}), "classes must each be there once"),
    "more images": (reply({}, upload=Message({}, 10**9)), "num_samples = 1000000000, must be 20"),
    "an accuracy": (reply(accuracies={"accuracy": 1.5}), "accuracy = 1.5, must be in [0, 1]"),
    "an accuracy of NaN": (reply(accuracies={"accuracy": float("nan")}), "accuracy = nan, must be in [0, 1]"),
    "no accuracy": (reply(accuracies={}), "its first accuracy must be `accuracy`"),
    "a text": (reply(loss="low"), "loss is a str, must be a number, or nothing"),
    "many losses": (reply(loss=torch.ones(2)), "loss has shape (2,), must be a single number"),
    "no numbers": (reply(diagnostics={"mu": torch.ones(2)}), "diagnostics must be single numbers by name"),
    "no dictionary": (reply(diagnostics=3), "diagnostics must be single numbers by name"),
    "no tensors": (reply({"weight": 3}), "its tensors must be tensors by name"),
    "a structure": (reply(upload=Message({}, 20, [1])), "structure is a list, must be a tuple of layer records"),
    "truth": (reply(inherited=1), "inherited is a int, must be true or false"),
}


@pytest.mark.parametrize(("value", "line"), FOREIGN.values(), ids=FOREIGN)
def test_a_reply_that_no_client_could_have_sent_is_one_line(value, line):
    with pytest.raises(FedlibError) as error:
        arrived(value)
    assert str(error.value).startswith("reply of client 3: ") and line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [[], {"tensors": {}}, (1, 2, 3, {}), (1, 2, "3", {})])
def test_another_structure_is_neither_a_message_nor_a_request_nor_a_reply(value):
    content = wire.to_bytes(value)
    for read in (wire.message_from_bytes, wire.request_from_bytes):
        with pytest.raises(FedlibError, match=r"^(message|request): must (be|have) "):
            read(content)
    with pytest.raises(FedlibError, match=r"^reply of client 3: must have accuracies, diagnostics, "):
        wire.reply_from_bytes(content, REQUEST, INFO, OWN)


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
    for hostile in (content, wire.client_to_bytes(client("tiny-a"))):
        with pytest.raises(FedlibError, match=r"^state of client 0: "):
            wire.client_from_bytes(own, hostile)
    assert not own.visited
    assert_same(dict(own.model.state_dict()), before)
