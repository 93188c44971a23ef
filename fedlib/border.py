"""Where a person's own code meets the simulation: what it hands over is checked, so that it cannot spoil a run.

Messages and what a client keeps are copied: in one process, as over a wire, nobody holds another's memory. What is kept
or sent must be plain, since a checkpoint and a wire bring back nothing else. A method of one's own does everything twice
in round 0, begun alike: what differs was drawn from no stream of the run's, or is kept where no checkpoint looks. What
does not hold is a FedlibError of one line.
"""

import copy
import hashlib
import numbers
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import algorithms, metrics, models, randomness, training
from .algorithms import Algorithm, ServerState
from .errors import FedlibError, others_code, require, shown
from .federation import Client, ClientContext, ClientInfo, Federation, Message, ServerContext, SharedContext, Upload

DEPTH = 20  # of containers in each other, as on the wire
PLAIN = "tensors, numbers, texts, true, false, None, and dicts, lists and tuples of them"
STEPS = (
    "check", "init_server", "download", "init_client", "local_round", "aggregate", "predict", "network", "words", "metric",
)  # fmt: skip


def is_own(algorithm: Algorithm, architectures: Collection[str] = ()) -> bool:
    """Whether a method, or one of these networks, is a person's own."""
    return own_method(algorithm) or not all(map(models.is_built_in, architectures))


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


# ------------------------------------------------------------------------------------------------- twice, begun alike


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


def _same(what: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other or digest([one[name]]) != digest([other[name]]):
            raise FedlibError(
                f"{what}: called twice, begun alike, {name} differs: it draws without a seed (context.generator has one), "
                "or keeps something elsewhere than in client.state, client.model and the server's state"
            )


def _unchanged(what: str, thing: str, before: str, after: str) -> None:
    if before != after:
        raise FedlibError(f"{what}: has changed {thing}, which it may only read")


def _attributes(algorithm: Algorithm) -> str:
    return digest([vars(algorithm)])


def rehearsing(algorithm: Algorithm, context: SharedContext) -> bool:
    """Whether a step is made twice: in round 0 of a method of one's own."""
    return context.round == 0 and own_method(algorithm)


def of_server(
    algorithm: Algorithm, step: str, call: Callable[[ServerState], Any], server: ServerState, context: ServerContext
) -> Any:
    """`call(server)`, a step of the server's. In round 0 of a method of one's own it is made twice, first on a copy."""
    what = f"{algorithm.name}.{step} in round {context.round}"

    def made(state: ServerState) -> Any:
        with crossing(own_method(algorithm), what, context.seed, step, context.round):
            return call(state)

    if not rehearsing(algorithm, context):
        return made(server)
    attributes = _attributes(algorithm)
    read = [[info.id, info.architecture, info.classes, info.num_samples] for info in context.infos]
    public = [] if context.public_data is None else [context.public_data.pool.labels, context.public_data.pool.stored]
    before, rehearsal = digest([read, public]), copied(server, what)
    start = digest([server]) if step == "download" else ""
    outcomes = [{"what it returns": made(state), "the server's state": state} for state in (rehearsal, server)]
    _unchanged(what, "attributes of the method", attributes, _attributes(algorithm))
    _unchanged(what, "what it knows of the clients, or public images", before, digest([read, public]))
    if step == "download":
        _unchanged(what, "the server's state", start, digest([server]))
    _same(what, *outcomes)
    return outcomes[1]["what it returns"]


def init_server(algorithm: Algorithm, context: ServerContext) -> ServerState:
    """The server's state before round 0."""

    def made(_: ServerState) -> ServerState:
        state = algorithm.init_server(context)
        _check_server(f"{algorithm.name}.init_server", state)
        return state

    return of_server(algorithm, "init_server", made, {}, context)


def download(algorithm: Algorithm, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
    """What the client described by `info` is sent, without diagnostics."""

    def made(state: ServerState) -> Message:
        given = algorithm.download(state, info, context)
        what = f"{algorithm.name}.download"
        _check_message(what, given)
        return replace(message(what, given) if rehearsing(algorithm, context) else given, diagnostics={})

    return of_server(algorithm, "download", made, server, context)


def aggregate(
    algorithm: Algorithm, server: ServerState, uploads: Sequence[Upload], context: ServerContext
) -> dict[str, Any]:
    """What the server hands back of a round, see `details`; `server` is what it was made."""
    what, twice = f"{algorithm.name}.aggregate", rehearsing(algorithm, context)

    def made(state: ServerState) -> dict[str, Any]:
        received = [Upload(info, message(what, given)) for info, given in uploads] if twice else uploads
        returned = details(what, algorithm.aggregate(state, received, context))
        _check_server(what, state)
        return returned

    return of_server(algorithm, "aggregate", made, server, context)


def _check_server(what: str, state: Any) -> None:
    require(isinstance(state, dict), f"{what}: the server's state", state, "a dictionary")
    copied(state, f"{what}: the server's state", clone=False)


def published_words(algorithm: Algorithm, given: Message, context: ServerContext) -> int:
    """`algorithm.published_words`, a whole number."""
    what = f"{algorithm.name}.published_words"
    with crossing(own_method(algorithm), what, context.seed, "words", context.round):
        words = algorithm.published_words(given, context)
    whole = isinstance(words, numbers.Integral) and int(words) >= 0
    require(whole, what, words, "a whole number, at least 0")
    return int(words)


def rehearsed(
    visit: Callable[[Client, Algorithm, Message, ClientContext], Any],
    evaluate: Callable[[Client], Any],
    client: Client,
    algorithm: Algorithm,
    download: Message,
    context: ClientContext,
) -> Any:
    """A client's `visit`, made twice, first by a twin; and what the client keeps, put away and brought back, answers its
    images as it did (`evaluate`).
    """
    what = f"{algorithm.name}.local_round in round {context.round} of client {client.id}"
    twin = replace(client, _model=copy.deepcopy(client.model), _state=copied(client.state, what), _pool=None)
    outcomes, attributes = [], _attributes(algorithm)
    for one in (twin, client):
        reply = visit(one, algorithm, download, replace(context, client=one))
        left: dict[str, Any] = {f"client.model's {name}": value for name, value in one.model.state_dict().items()}
        left |= {f"client.state[{name!r}]": value for name, value in one.state.items()}
        left |= {f"the upload's {name}": value for name, value in reply.upload.tensors.items()}
        left |= {"what predict answers": evaluate(one), "the loss": number(reply.loss)}
        left |= {f"diagnostic {name}": number(value) for name, value in reply.diagnostics.items()}
        outcomes.append((reply, left | {"the upload": [reply.upload.num_samples, reply.upload.structure]}))
    _unchanged(what, "attributes of the method", attributes, _attributes(algorithm))
    (_, first), (reply, second) = outcomes
    _same(what, first, second)
    twin.restore(copied(client.snapshot(), what))
    if digest([evaluate(twin)]) != digest([second["what predict answers"]]):
        raise FedlibError(
            f"{algorithm.name}.predict of client {client.id}: answers otherwise when the client comes back from a checkpoint: "
            "it reads something that is kept elsewhere than in client.state and client.model's state"
        )
    return reply


def fits(algorithm: Algorithm, federation: Federation) -> None:
    """`algorithm.check`; and each network of a person's own answers with logits (n, C), and twice alike."""
    own = is_own(algorithm, federation.architectures)
    with crossing(own, f"{algorithm.name}.check", federation.seed, "check"):
        algorithm.check(federation)
    for name in dict.fromkeys(client.info.architecture for client in federation.clients):
        if not models.is_built_in(name):
            _check_network(name, federation)


def _check_network(name: str, federation: Federation) -> None:
    what, (first, *_) = f"architecture = {name!r}", (one for one in federation.clients if one.info.architecture == name)
    model = federation.build(name)
    start, outcomes = digest([model.state_dict()]), []

    def answered(network: nn.Module) -> dict[str, Tensor]:
        with crossing(True, what, federation.seed, "network"), torch.no_grad(), federation.pool.autocast():
            images = federation.pool.batch(first.train[:2])
            return logits(what, {"accuracy": network(images)}, len(images), federation.num_classes)

    for _ in range(2):
        trained = copy.deepcopy(model)
        with training.training_mode({"model": trained}):
            outcomes.append({"its answer in training": answered(trained) if len(first.train) > 1 else {}})
        outcomes[-1]["its answer"] = answered(model)
    _unchanged(what, "its own weights in evaluation", start, digest([model.state_dict()]))
    _same(what, *outcomes)
