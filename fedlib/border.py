"""Where a person's own code meets the simulation: what it hands over is checked, so that it cannot spoil a run.

Messages and what a client keeps are copied: in one process, as over a wire, nobody holds another's memory. What is kept
or sent must be plain, since a checkpoint and a wire bring back nothing else. What does not hold is a FedlibError of one line;
what no message shows is found by a rehearsal (`check`).
"""

import hashlib
import numbers
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import algorithms, metrics, models, randomness, training
from .algorithms import Algorithm, ServerState
from .errors import FedlibError, others_code, require, shown
from .federation import Client, ClientInfo, Federation, Message, ServerContext, Upload

DEPTH = 20  # of containers in each other, as on the wire
PLAIN = "tensors, numbers, texts, true, false, None, and dicts, lists and tuples of them"
STEPS = (
    "check", "init_server", "download", "init_client", "local_round", "aggregate", "predict", "network", "words", "metric",
)  # fmt: skip


def is_own(algorithm: Algorithm, architectures: Collection[str] = ()) -> bool:
    """Whether a method, or one of these networks, is a person's own."""
    return own_method(algorithm) or not all(map(models.is_built_in, architectures))


def fits(algorithm: Algorithm, federation: Federation) -> None:
    """Raise FedlibError where the method cannot be trained on this federation: `algorithm.check`."""
    own = is_own(algorithm, federation.architectures)
    with crossing(own, f"{algorithm.name}.check", federation.seed, "check"):
        algorithm.check(federation)


def own_method(algorithm: Algorithm) -> bool:
    """Whether a method, or the one that it runs isolated, is a person's own."""
    method = getattr(algorithm, "method", None)
    return type(method if isinstance(method, Algorithm) else algorithm) not in algorithms.BUILT_IN


@contextmanager
def crossing(own: bool, what: str, seed: int, step: str, round: int = 0, client: int | None = None) -> Iterator[None]:
    """Around a call of a person's own code: what it draws from global generators is of a stream of (seed, step, round,
    client), an error of its is a FedlibError that says `what` it is, and the process's settings stay as they were.
    """
    if not own:
        yield
        return
    stream = randomness.generator(seed, "own", round, client).spawn(len(STEPS))[STEPS.index(step)]
    try:
        with others_code(what), randomness.fork_everything(stream):
            yield
    finally:
        torch.set_num_threads(training.THREADS)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)


# ----------------------------------------------------------------------------------------------- what is handed over


def copied(value: Any, where: str, clone: bool = True, depth: int = 0) -> Any:
    """`value` with tensors of its own, without gradients (`clone` False: only looked at). Raises FedlibError, naming the
    key, where it is not plain.
    """
    if isinstance(value, Tensor):
        require(value.layout == torch.strided and not value.is_meta, where, str(value.layout), "a dense tensor")
        require(clone or value.grad_fn is None, where, "a tensor with a history", "detached, since that is not kept")
        return value.detach().clone() if clone else value
    if type(value) in (type(None), bool, int, float, str):
        return value
    require(depth < DEPTH, where, type(value).__name__, f"at most {DEPTH} containers in each other")
    if type(value) in (list, tuple):
        return type(value)(copied(item, f"{where}[{place}]", clone, depth + 1) for place, item in enumerate(value))
    if type(value).__name__ in ("dict", "OrderedDict") and isinstance(value, dict):
        _check_keys(value, where)
        return {key: copied(item, f"{where}[{key!r}]", clone, depth + 1) for key, item in value.items()}
    hint = "; of NumPy's numbers, x.item()" if isinstance(value, np.generic) else ""
    raise FedlibError(f"{where}: a {type(value).__name__} cannot be kept or sent, only {PLAIN}{hint}")


def _check_keys(value: Mapping[Any, Any], where: str) -> None:
    for key in value:
        require(type(key) in (str, int), f"{where}: key", key, "a text or a whole number")


def message(what: str, given: Any) -> Message:
    """A message as it arrives, a copy. Raises FedlibError, saying `what` made it, where it is none that could travel."""
    _check_message(what, given)
    require(type(given.tensors).__name__ in ("dict", "OrderedDict"), f"{what}: tensors", given.tensors, "a dictionary")
    for name, tensor in given.tensors.items():
        require(type(name) is str, f"{what}: name of a tensor", name, "text")
        require(isinstance(tensor, Tensor), f"{what}: {name}", tensor, "a tensor")
    count = given.num_samples
    whole = isinstance(count, numbers.Integral) and not isinstance(count, bool) and int(count) >= 0
    require(whole, f"{what}: num_samples", count, "a whole number, at least 0")
    structure, diagnostics = given.structure, given.diagnostics
    require(structure is None or type(structure) is tuple, f"{what}: structure", structure, "a tuple, or None")
    require(isinstance(diagnostics, dict), f"{what}: diagnostics", diagnostics, "a dictionary of names and numbers")
    for name, value in diagnostics.items():
        _check_column(f"{what}: diagnostic", name, "accuracy")
        scalar = value.ndim == 0 and not value.is_complex() if isinstance(value, Tensor) else number(value) is not None
        require(scalar, f"{what}: diagnostic {name}", value, "a number, as it is a client's")
    structure = copied(structure, f"{what}: structure")
    return Message(copied(given.tensors, what), int(count), structure, dict(diagnostics))


def _check_message(what: str, given: Any) -> None:
    if not isinstance(given, Message):
        raise FedlibError(f"{what} = {shown(given)}: must be a Message, the empty one is Message()")


def _check_column(field: str, name: Any, *others: str) -> None:
    """Raise FedlibError unless something that a method hands back may be called `name`, and is none of `others` either."""
    taken = [*metrics.TAKEN, *(name for name in metrics.METRICS if name != "accuracy"), *others]
    require(type(name) is str and name not in taken, field, name, f"a text, and none of {', '.join(taken)}")


def number(value: Any) -> float | None:
    """A single number as Python's own, which a checkpoint can hold; None for anything else."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    if isinstance(value, numbers.Integral):
        return int(value) if abs(int(value)) < 2**63 else None
    try:
        return float(value) if isinstance(value, numbers.Real) else None
    except OverflowError:
        return None


def details(what: str, returned: Any) -> dict[str, Any]:
    """The server's diagnostics: single numbers, and what a line of details.jsonl can hold. Raises FedlibError, naming the
    key, for anything else.
    """
    require(returned is None or isinstance(returned, dict), what, returned, "None, or a dictionary of diagnostics")
    found = {}
    for name, value in (returned or {}).items():
        _check_column(f"{what}: diagnostic", name, "accuracy", "loss")
        single = number(value)
        found[name] = _detail(value, f"{what}: diagnostic {name}") if single is None else single
    return found


def _detail(value: Any, where: str, depth: int = 0) -> Any:
    """NumPy's numbers and arrays, and tensors, as Python's own."""
    if isinstance(value, Tensor):
        return copied(value, where).tolist()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    require(depth < DEPTH, where, type(value).__name__, f"at most {DEPTH} containers in each other")
    if isinstance(value, list | tuple):
        return [_detail(item, f"{where}[{place}]", depth + 1) for place, item in enumerate(value)]
    if isinstance(value, dict):
        _check_keys(value, where)
        return {key: _detail(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}
    return copied(value, where)


def kept(what: str, client: Client) -> None:
    """After a visit: what the client keeps becomes its own. Raises FedlibError where its state is not plain, or its model
    not as it was built: only such a one comes back from a checkpoint.
    """
    for name in list(client.state):
        require(type(name) is str, f"{what}: key of client.state", name, "text")
        client.state[name] = copied(client.state[name], f"{what}: client.state[{name!r}]")
    require(isinstance(client.model, nn.Module), f"{what}: client.model", client.model, "a network")
    found, built = models.layout(client.model), client.build.layout(client.info.architecture)
    for name in dict.fromkeys([*found, *built]):
        if name not in built:
            raise FedlibError(
                f"{what}: client.model has got {name}: what a client keeps besides goes into client.state"
            )
        require(name in found, f"{what}: client.model's {name}", None, "as its architecture has it")
        require(
            found[name][:2] == built[name][:2], f"{what}: client.model's {name}", found[name][:2], f"{built[name][:2]}"
        )
        allowed = f"{built[name][2]} again at the end of a visit, since it is not kept"
        require(found[name][2] == built[name][2], f"{what}: requires_grad of {name}", found[name][2], allowed)
    client.model.eval()


def logits(what: str, answered: Any, count: int, num_classes: int) -> dict[str, Tensor]:
    """What `predict` answered for `count` images. Raises FedlibError unless these are logits (n, C) by name."""
    fits = isinstance(answered, dict) and next(iter(answered), None) == "accuracy"
    require(fits, what, answered, "a dictionary of logits by name, `accuracy` first")
    for name, values in answered.items():
        _check_column(f"{what}: name", name, "loss")
        require(isinstance(values, Tensor), f"{what}: {name}", values, "a tensor of logits")
        allowed = f"{(count, num_classes)}, an image a row and a class a column"
        require(values.shape == (count, num_classes), f"{what}: {name}'s shape", tuple(values.shape), allowed)
        require(values.is_floating_point(), f"{what}: {name}'s dtype", str(values.dtype), "floating-point")
    return answered


# --------------------------------------------------------------------------------------------------- steps and bits


def digest(values: Iterable[Any]) -> str:
    """SHA-256 of tensors, numbers, texts and containers of them, to compare them bit by bit."""
    sha = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, Tensor):
            sha.update(f"{value.dtype}{tuple(value.shape)}".encode())
            sha.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, Message):
            add(vars(value))
        elif isinstance(value, dict):
            for name in value:
                sha.update(str(name).encode())
                add(value[name])
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)
        else:
            sha.update(repr(value).encode())

    for value in values:
        add(value)
    return sha.hexdigest()


def init_server(algorithm: Algorithm, context: ServerContext) -> ServerState:
    """The server's state before round 0."""
    with _of_server(algorithm, "init_server", context) as what:
        state = algorithm.init_server(context)
    _check_server(what, state)
    return state


def download(algorithm: Algorithm, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
    """What the client described by `info` is sent, without diagnostics; copied where it arrives."""
    with _of_server(algorithm, "download", context) as what:
        given = algorithm.download(server, info, context)
    _check_message(what, given)
    return replace(given, diagnostics={})


def aggregate(
    algorithm: Algorithm, server: ServerState, uploads: Sequence[Upload], context: ServerContext
) -> dict[str, Any]:
    """What the server hands back of a round, see `details`; `server` is what it was made."""
    with _of_server(algorithm, "aggregate", context) as what:
        returned = details(what, algorithm.aggregate(server, uploads, context))
    _check_server(what, server)
    return returned


def published_words(algorithm: Algorithm, given: Message, context: ServerContext) -> int:
    """`algorithm.published_words`, a whole number."""
    with _of_server(algorithm, "words", context, "published_words") as what:
        words = algorithm.published_words(given, context)
    whole = isinstance(words, numbers.Integral) and int(words) >= 0
    require(whole, what, words, "a whole number, at least 0")
    return int(words)


@contextmanager
def _of_server(algorithm: Algorithm, step: str, context: ServerContext, called: str = "") -> Iterator[str]:
    """Around a step of the server's, `crossing`; what it is called."""
    what = f"{algorithm.name}.{called or step} in round {context.round}"
    with crossing(own_method(algorithm), what, context.seed, step, context.round):
        yield what


def _check_server(what: str, state: Any) -> None:
    require(isinstance(state, dict), f"{what}: the server's state", state, "a dictionary")
    copied(state, f"{what}: the server's state", clone=False)
