"""Messages, replies and client states as bytes and back, without pickle: what a network or a file of another's may carry.

Bytes are one safetensors file: the tensors, and in its metadata, as JSON, the structure that holds them (dictionaries
with text or whole numbers for keys, lists, tuples, texts, numbers, truth values, None). What arrives is checked before
it is used: whole, of the expected kind and shape, finite where it must be. What is not is a `FedlibError` of one line.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..errors import FedlibError
from ..federation import Client, ClientInfo, Message
from ..simulation import Reply, Request

LIMIT = 2**31  # bytes; M4 with its gradients has a hundredth of it
DEPTH = 20  # of nested containers
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


def _numbers(what: str, name: str) -> Callable[[Any], dict[str, Any]]:
    def check(value: Any) -> dict[str, Any]:
        for key, number in value.items() if isinstance(value, dict) else [(name, value)]:
            scalar = isinstance(number, Tensor) and number.ndim == 0
            if not isinstance(key, str) or not (scalar or isinstance(number, float | int)) or value is number:
                raise FedlibError(f"{what}: {name} must be single numbers by name")
        return value

    return check


def _message(what: str, content: Any) -> Message:
    integer = _checked(what, "num_samples", (int,), "a whole number")
    structure = _checked(what, "structure", (tuple, type(None)), "a tuple of layer records, or nothing")
    checks = {"tensors": _tensors(what), "num_samples": integer, "structure": structure}
    return _dataclass(Message, content, what, checks | {"diagnostics": _numbers(what, "diagnostics")})


def message_to_bytes(message: Message) -> bytes:
    return to_bytes(vars(message))


def message_from_bytes(content: bytes, what: str = "message") -> Message:
    return _message(what, from_bytes(content, what))


def request_to_bytes(request: Request) -> bytes:
    return to_bytes((*request[:3], vars(request.download)))


def request_from_bytes(content: bytes) -> Request:
    value = from_bytes(content, "request")
    if type(value) is not tuple or len(value) != 4 or any(type(number) is not int for number in value[:3]):
        raise FedlibError("request: must be round, rounds, client and download")
    return Request(*value[:3], _message("request", value[3]))


def reply_to_bytes(reply: Reply) -> bytes:
    return to_bytes(vars(reply) | {"upload": vars(reply.upload)})


def reply_from_bytes(
    content: bytes, request: Request, info: ClientInfo, own: Mapping[str, Tensor], varying: tuple[str, ...] = ()
) -> Reply:
    """A client's reply to `request`; info: what is known of that client; own: its initial model's state, for shapes;
    varying: endings of names of tensors that may have any shape (`Algorithm.sized_by_data`).

    Raises FedlibError for what no client could have sent: tensors of other shapes than those that it was sent under the
    same names, or than its model's if it sends that; classes that it has none of; numbers that are none. Tensors are
    finite wherever the loss is: a client that diverged says so. What only a method knows, its `aggregate` finds.
    """
    what = f"reply of client {request.client}"
    boolean, number = _checked(what, "inherited", (bool,), "true or false"), (float, int, Tensor)
    reply = _dataclass(
        Reply,
        from_bytes(content, what),
        what,
        {
            "accuracies": _numbers(what, "accuracies"),
            "upload": lambda value: _message(what, value),
            "loss": _checked(what, "loss", (*number, type(None)), "a number, or nothing"),
            "diagnostics": _numbers(what, "diagnostics"),
            "inherited": boolean,
            "evaluation_seconds": _checked(what, "evaluation_seconds", number, "a number"),
        },
    )
    if isinstance(reply.loss, Tensor) and reply.loss.ndim:
        raise FedlibError(f"{what}: loss has shape {tuple(reply.loss.shape)}, must be a single number")
    for name, value in reply.accuracies.items():
        absent = name == "validation_accuracy" and math.isnan(value)  # of a client without such images
        if not (0 <= float(value) <= 1 or absent):
            raise FedlibError(f"{what}: {name} = {float(value)}, must be in [0, 1]")
    if next(iter(reply.accuracies), None) != "accuracy":
        raise FedlibError(f"{what}: its first accuracy must be `accuracy`")
    if reply.upload.num_samples not in (0, info.num_samples):
        raise FedlibError(f"{what}: num_samples = {reply.upload.num_samples}, must be {info.num_samples}")
    diverged = reply.loss is not None and not math.isfinite(reply.loss)
    for name, tensor in reply.upload.tensors.items():
        if not name.endswith(varying):
            _check_tensor(f"{what}: {name}", name, tensor, reply.upload, request.download, info, own)
        if not diverged and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise FedlibError(f"{what}: {name} is not finite, though its loss is")
    return reply


def _check_tensor(
    what: str,
    name: str,
    tensor: Tensor,
    upload: Message,
    download: Message,
    info: ClientInfo,
    own: Mapping[str, Tensor],
) -> None:
    """Raise FedlibError for another shape or dtype than the tensor of this name has in the download or, of a whole
    model, in the client's own; where the upload goes by class, for rows other than one for each seen class.
    """
    by_class = "classes" in upload.tensors
    if name == "classes":
        if tensor.dtype != torch.int64 or tensor.ndim != 1 or not torch.isin(tensor, info.classes.cpu()).all():
            raise FedlibError(f"{what} must be of the client's own: {info.classes.tolist()}")
        if len(tensor.unique()) < len(tensor):
            raise FedlibError(f"{what} must each be there once")
        return
    known = download.tensors.get(name, own[name] if upload.tensors.keys() == own.keys() else None)
    allowed = None if known is None else tuple(known.shape)
    if by_class:
        rest = tuple(tensor.shape[1:]) if allowed is None else allowed[1:]
        allowed = (len(upload.tensors["classes"]), *rest)
    if allowed is not None and tuple(tensor.shape) != allowed:
        raise FedlibError(f"{what} has shape {tuple(tensor.shape)}, must be {allowed}")
    if known is not None and tensor.dtype != known.dtype:
        raise FedlibError(f"{what} is of {tensor.dtype}, must be of {known.dtype}")


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
