"""Messages, replies and client states as bytes and back, without pickle: what a network or a file of another's may carry.

Bytes are one safetensors file: the tensors, and in its metadata, as JSON, the structure that holds them (dictionaries
with text or whole numbers for keys, lists, tuples, texts, numbers, truth values, None). What arrives is checked before
it is used: whole, of the expected kind and shape, finite where it must be. What is not is a `FedlibError` of one line.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedlib import border, metrics
from fedlib.algorithms.base import Algorithm, Client, ClientInfo, Message, ServerContext
from fedlib.errors import FedlibError, choose, require, shown
from fedlib.simulation import Reply, Request

from . import accepts
from .accepts import Asked, Sized, Upto

LIMIT = 2**31  # bytes; M4 with its gradients has a hundredth of it
DEPTH = 20  # of nested containers
LARGEST = torch.finfo(torch.float32).max  # of a loss or a diagnostic, so that a sum of many is finite, too
LONGEST = 10**9  # seconds
_PLAIN = (type(None), bool, int, float, str)

Kind = TypeVar("Kind")


def to_bytes(value: Any) -> bytes:
    """`value` as bytes: tensors (of any device and layout), numbers, texts and containers of them. Raises FedlibError
    for anything else.
    """
    tensors: dict[str, Tensor] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Tensor):
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().contiguous().clone()
            last = value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last)
            return {"tensor": name, "channels_last": last and not value.is_contiguous()}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [plain(item) for item in value]}
        if isinstance(value, Mapping) and all(type(key) in (str, int) for key in value):
            return {"dict": [[key, plain(item)] for key, item in value.items()]}
        raise FedlibError(
            f"a {type(value).__name__} cannot travel: only tensors, numbers, texts and containers of them"
        )

    structure = json.dumps(plain(value))
    return safetensors.torch.save(tensors, {"fedlib": structure})


def from_bytes(content: bytes, what: str = "message") -> Any:
    """What `to_bytes` was given, tensors on the CPU. Raises FedlibError, naming `what` it should be, when the bytes are
    cut off, changed or none of fedlib's.
    """
    try:
        if len(content) > LIMIT:
            raise ValueError(f"{len(content)} bytes, at most {LIMIT}")
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size]) if size <= len(content) else {}
        structure = json.loads(header["__metadata__"]["fedlib"])
        tensors = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise FedlibError(f"{what}: cannot be read ({error})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else "cut off, or none of fedlib's"
        raise FedlibError(f"{what}: cannot be read ({reason})") from None
    used: set[str] = set()

    def rebuilt(value: Any, depth: int = 0) -> Any:
        if type(value) in _PLAIN:
            return value
        if depth > DEPTH or not isinstance(value, dict):
            raise ValueError
        if set(value) == {"tensor", "channels_last"}:
            used.add(value["tensor"])
            tensor = tensors[value["tensor"]]
            return tensor.contiguous(memory_format=torch.channels_last) if value["channels_last"] else tensor
        ((kind, items),) = value.items()
        if kind == "dict":
            keys = [key for key, _ in items]
            if len(set(keys)) < len(keys) or not all(type(key) in (str, int) for key in keys):
                raise ValueError
            return {key: rebuilt(item, depth + 1) for key, item in items}
        return {"list": list, "tuple": tuple}[kind](rebuilt(item, depth + 1) for item in items)

    try:
        value = rebuilt(structure)
        if used != set(tensors):
            raise ValueError
    except (ValueError, KeyError, TypeError, RuntimeError, RecursionError):
        raise FedlibError(f"{what}: its structure is none that fedlib writes") from None
    return value


def _dataclass(kind: type[Kind], content: Any, what: str, convert: Mapping[str, Callable[[Any], Any]]) -> Kind:
    """`content`, the values of a dataclass by field, as `kind`; each field in `convert` is checked by a function."""
    names = {item.name for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if not isinstance(content, dict) or set(content) != names:
        raise FedlibError(f"{what}: must have {', '.join(sorted(names))} and nothing else")
    return kind(**{name: convert[name](value) if name in convert else value for name, value in content.items()})


def _checked(what: str, name: str, kinds: tuple[type, ...], allowed: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) not in kinds:
            raise FedlibError(f"{what}: {name} is a {type(value).__name__}, must be {allowed}")
        return value

    return check


def _tensors(what: str) -> Callable[[Any], dict[str, Tensor]]:
    def check(value: Any) -> dict[str, Tensor]:
        named = isinstance(value, dict) and all(isinstance(name, str) for name in value)
        if not (named and all(isinstance(tensor, Tensor) for tensor in value.values())):
            raise FedlibError(f"{what}: its tensors must be tensors by name")
        return value

    return check


def _number(what: str, name: str, value: Any) -> float:
    """A single number, or the single one of a tensor, as Python's own."""
    single = isinstance(value, float | int) or (
        isinstance(value, Tensor) and value.ndim == 0 and not value.is_complex()
    )
    number = border.number(value) if single else None
    if number is None:
        raise FedlibError(f"{what}: {name} = {shown(value)}, must be a single number")
    return number


def _numbers(what: str, name: str) -> Callable[[Any], dict[str, float]]:
    def check(value: Any) -> dict[str, float]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise FedlibError(f"{what}: {name} must be single numbers by name")
        return {key: _number(what, shown(key), number) for key, number in value.items()}

    return check


def _message(what: str, content: Any) -> Message:
    integer = _checked(what, "num_samples", (int,), "a whole number")
    structure = _checked(what, "structure", (tuple, type(None)), "a tuple of layer records, or nothing")
    checks = {"tensors": _tensors(what), "num_samples": integer, "structure": structure}
    return _dataclass(Message, content, what, checks | {"diagnostics": _numbers(what, "diagnostics")})


def request_to_bytes(request: Request) -> bytes:
    return to_bytes((*request[:3], vars(request.download)))


def request_from_bytes(content: bytes) -> Request:
    value = from_bytes(content, "request")
    if type(value) is not tuple or len(value) != 4 or any(type(number) is not int for number in value[:3]):
        raise FedlibError("request: must be round, rounds, client and download")
    return Request(*value[:3], _message("request", value[3]))


class Bound(NamedTuple):
    """What a reply answers: the run's key, round and client, and the SHA-256 of the request's bytes."""

    run: str
    round: int
    client: int
    request: str

    @classmethod
    def to(cls, run: str, request: Request, content: bytes) -> "Bound":
        return cls(run, request.round, request.client, hashlib.sha256(content).hexdigest())


def reply_to_bytes(reply: Reply, answers: Bound) -> bytes:
    return to_bytes(vars(reply) | {"upload": vars(reply.upload), "answers": tuple(answers)})


def reply_from_bytes(
    content: bytes,
    request: Request,
    answers: Bound,
    algorithm: Algorithm,
    context: ServerContext,
    validates: bool = False,
) -> Reply:
    """A client's reply to `request`, which `answers` describes; validates: whether clients have validation images.

    Raises FedlibError for what no client of this method could have sent: a reply to another request; another tensor, shape,
    dtype or number than `accepts` has; classes that it has none of; accuracies and diagnostics that are none,
    or have other names. Tensors are finite wherever the loss is: a client that diverged says so.
    """
    what, info = f"reply of client {request.client}", context.infos[request.client]
    value = from_bytes(content, what)
    if isinstance(value, dict):
        _check_bound(what, value.pop("answers", None), answers)
    reply = _dataclass(
        Reply,
        value,
        what,
        {
            "accuracies": _numbers(what, "accuracies"),
            "upload": lambda value: _message(what, value),
            "loss": lambda value: None if value is None else _number(what, "loss", value),
            "diagnostics": _numbers(what, "diagnostics"),
            "inherited": _checked(what, "inherited", (bool,), "true or false"),
            "evaluation_seconds": lambda value: _number(what, "evaluation_seconds", value),
        },
    )
    require(not reply.inherited, f"{what}: inherited", True, "false: no client has another's model")
    seconds = reply.evaluation_seconds
    require(0 <= seconds <= LONGEST, f"{what}: evaluation_seconds", seconds, f"between 0 and {LONGEST}")
    loss, diagnostics = cast(float | None, reply.loss), cast(dict[str, float], reply.diagnostics)
    diverged = loss is not None and not math.isfinite(loss)
    measured = cast(dict[str, float], reply.accuracies)
    reply.accuracies = dict(_accuracies(what, measured, request.round, algorithm, context, validates))
    if request.round < 0:
        if reply.loss is not None or reply.diagnostics or reply.upload != Message():
            raise FedlibError(f"{what}: must be accuracies alone before round 0, when nothing has been trained")
        return reply
    require(diverged or abs(loss or 0.0) <= LARGEST, f"{what}: loss", loss, "a number that float32 holds")
    for name, number in diagnostics.items():
        choose(f"{what}: diagnostic", name, accepts.stated(algorithm, "reports") or ["none of this method"])
        finite = diverged or abs(number) <= LARGEST
        require(finite, f"{what}: diagnostic {name}", number, "a finite number that float32 holds")
    _check_upload(what, reply.upload, diverged, request, algorithm, context)
    counts = (info.num_samples,) if accepts.stated(algorithm, "weighs_samples") else (0, info.num_samples)
    require(reply.upload.num_samples in counts, f"{what}: num_samples", reply.upload.num_samples, f"{info.num_samples}")
    return reply


def _check_bound(what: str, found: Any, answers: Bound) -> None:
    known = type(found) is tuple and len(found) == len(answers) and [*map(type, found)] == [*map(type, answers)]
    if not known:
        raise FedlibError(f"{what}: does not say which request it answers")
    for name, value, expected in zip(Bound._fields, found, answers, strict=True):
        require(value == expected, f"{what}: {name} that it answers", value, repr(expected))


def _accuracies(
    what: str, found: dict[str, float], round: int, algorithm: Algorithm, context: ServerContext, validates: bool
) -> dict[str, float]:
    """The accuracies in the order in which a client measures them."""
    scores = accepts.stated(algorithm, "scores") if round >= 0 else ()
    needed = ("accuracy", "validation_accuracy", *context.metrics)
    for name in found:
        choose(f"{what}: accuracy", name, [*needed, *scores])
    for name in needed:
        require(name in found, f"{what}: {name}", None, "given")
    for name, value in found.items():
        metric = metrics.METRICS.get(name) if name in context.metrics else None
        low, high = (metric.low, metric.high) if metric else (0, 1)
        may_be = not validates if name == "validation_accuracy" else metric is not None and metric.undefined
        absent = math.isnan(value) and may_be
        if not (low <= value <= high or absent):
            raise FedlibError(f"{what}: {name} = {value}, must be in [{low:g}, {high:g}]")
    return {name: found[name] for name in ("accuracy", *scores, *needed[1:]) if name in found}


def _check_upload(
    what: str, upload: Message, diverged: bool, request: Request, algorithm: Algorithm, context: ServerContext
) -> None:
    info = context.infos[request.client]
    require(
        not upload.diagnostics, f"{what}: diagnostics of its upload", upload.diagnostics, "none, they stand beside it"
    )
    structured = upload.structure is None or accepts.stated(algorithm, "sends_structure")
    require(structured, f"{what}: structure", "given", f"none, since {algorithm.name} sends none")
    sized = accepts.uploads(algorithm, Asked(list(upload.tensors), info, request.download, context))
    if set(sized) != set(upload.tensors):
        names, declared = (", ".join(sorted(each)) or "none" for each in (upload.tensors, sized))
        raise FedlibError(
            f"{what}: its tensors are {shown(names)}, must be those of {algorithm.name}.uploads: {declared}"
        )
    lengths: dict[str, int] = {}
    for name, each in sized.items():
        tensor = upload.tensors[name]
        require(tensor.dtype == each.dtype, f"{what}: {name}'s dtype", str(tensor.dtype), str(each.dtype))
        fits = len(tensor.shape) == len(each.shape) and all(
            1 <= length <= wanted.most and lengths.setdefault(wanted.name, length) == length
            if isinstance(wanted, Upto)
            else length == wanted
            for length, wanted in zip(tensor.shape, each.shape, strict=True)
        )
        if not fits:
            raise FedlibError(f"{what}: {name} has shape {tuple(tensor.shape)}, must be {_shape(each, lengths)}")
        if not diverged and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise FedlibError(f"{what}: {name} is not finite, though its loss is")
        if each.least > -math.inf or each.most < math.inf:
            within = bool(((tensor >= each.least) & (tensor <= each.most)).all())
            require(within, f"{what}: {name}", "beyond them", f"within {each.least:g}..{each.most:g}")
        if name == "classes":
            _check_classes(f"{what}: {name}", tensor, info)


def _shape(sized: Sized, lengths: Mapping[str, int]) -> str:
    """In words: a length that another tensor has given as that, or at most so many."""
    shown = [
        length if isinstance(length, int) else lengths.get(length.name, f"at most {length.most}")
        for length in sized.shape
    ]
    return f"({', '.join(map(str, shown))}{',' * (len(shown) == 1)})"


def _check_classes(what: str, tensor: Tensor, info: ClientInfo) -> None:
    if not torch.isin(tensor, info.classes.cpu()).all():
        raise FedlibError(f"{what} must be of the client's own: {info.classes.tolist()}")
    if len(tensor.unique()) < len(tensor):
        raise FedlibError(f"{what} must each be there once")


def client_to_bytes(client: Client) -> bytes:
    """What a client is to remember between two rounds."""
    return to_bytes(client.snapshot())


def client_from_bytes(client: Client, content: bytes) -> None:
    """Make `client` what it was; raises FedlibError, and changes nothing, where the bytes are of another client's
    model.
    """
    what = f"state of client {client.id}"
    snapshot = from_bytes(content, what)
    if not isinstance(snapshot, dict) or set(snapshot) != {"model", "state"} or not isinstance(snapshot["state"], dict):
        raise FedlibError(f"{what}: must have a model and a state")
    stored, known = _tensors(what)(snapshot["model"]), client.build(client.info.architecture).state_dict()
    if {name: tensor.shape for name, tensor in stored.items()} != {name: known[name].shape for name in known}:
        raise FedlibError(f"{what}: its model must be {client.info.architecture}, of the same names and shapes")
    client.restore(snapshot)
