"""A person's own method, network or metric rehearsed from outside, before its real run: a small federation is trained for
two rounds, and once more round by round, the second round by a federation that has only what a checkpoint holds, its
clients side by side in copies of this process where there may be some.

What differs was drawn from no stream of the run's, or is kept where no checkpoint looks. Nothing of the real federation is
touched, and the streams of its run begin afresh. Built-in methods are held by tests. A person's partition and data are made
twice where they are made (`partition.deal_registered`, `data.load`).
"""

import copy
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import border, metrics, models, simulation, training
from .algorithms import Algorithm
from .errors import FedlibError
from .federation import Client, Federation
from .simulation import Outcome

IMAGES = 24, 8, 24  # that a client of the rehearsal has at most, to train, validate and test on
BATCH = 8
CLIENTS = 3  # that take part; more where there are more architectures
HINT = (
    "it draws without a seed (context.generator has one), or keeps something elsewhere than in client.state, client.model's "
    "state and the server's state"
)


def own_parts(algorithm: Algorithm, federation: Federation) -> list[str]:
    """The names of what is a person's own of the method, the networks that it or a client has, and the metrics."""
    method = getattr(algorithm, "method", algorithm)
    named = {*federation.architectures, *map(str, vars(method).values())} & {*models.BUILDERS}
    networks = [name for name in sorted(named) if not models.is_built_in(name)]
    measured = [name for name in federation.metrics if metrics.METRICS[name] not in metrics.BUILT_IN]
    return [algorithm.name] * border.own_method(algorithm) + networks + measured


def rehearse(federation: Federation, algorithm: Algorithm, rounds: int) -> None:
    """Raise FedlibError, naming what differs, where a run of `rounds` rounds would not have the same numbers again, or not
    once it was stopped and resumed. Nothing is done where all parts are fedlib's.
    """
    if not (own := own_parts(algorithm, federation)):
        return
    rounds = max(rounds, 2)
    whole: list[dict[str, str]] = []  # what each of two rounds left
    again: list[dict[str, str]] = []
    try:
        _played(_small(federation), algorithm, rounds, 2, whole)
        stopped = _played(_small(federation), algorithm, rounds, 1, again)
        _compare(f"{algorithm.name}: called twice, begun alike,", whole[0], again[0])
        if len(whole) == 2:
            resumed = _resumed(stopped, _small(federation))
            resumed.federation.visit_seconds = math.inf  # long enough for copies
            setting = training.processes.set(2)
            try:
                _played(resumed.federation, algorithm, rounds, 2, again, resumed)
            finally:
                training.processes.reset(setting)
            _compare(f"{algorithm.name}: stopped after round 0 and resumed,", whole[1], again[1])
    except FedlibError as error:
        raise FedlibError(f"{error} (rehearsing {', '.join(own)} on a few images)") from error.__cause__


def _small(federation: Federation) -> Federation:
    """A federation of its own with a few images a client, of whose members a few take part; its networks begin alike."""
    first = {federation.clients[id].info.architecture: id for id in reversed(federation.members)}
    small = copy.copy(federation)
    small.members = np.array(sorted({*federation.members[:CLIENTS], *first.values()}))
    small.newcomers, small.newcomer_visits, small.last_trained, small.after_visit = small.members[:0], 0, {}, None
    epochs, batch_size = min(federation.settings.epochs, 1), min(federation.settings.batch_size, BATCH)
    small.settings = replace(federation.settings, epochs=epochs, batch_size=batch_size)
    small.clients = [_few(client, client.id in small.members) for client in federation.clients]
    if federation.public is not None:
        small.public = replace(federation.public, indices=_spread(federation.public.indices, 8 * BATCH))
    return small


def _few(client: Client, takes_part: bool) -> Client:
    """The client before its first visit, with a few of its images; with one of each kind where it takes no part."""
    sizes = IMAGES if takes_part else (1, 1, 1)
    held = zip((client.train, client.validation, client.test), sizes, strict=True)
    train, validation, test = (_spread(part, size) for part, size in held)
    info = replace(client.info, classes=client.info.classes.clone())
    if takes_part:
        info = replace(info, classes=client.whole.labels[train].unique(), num_samples=len(train))
    return Client(info, client.whole, train, validation, test, client.build)


def _spread(indices: Tensor, count: int) -> Tensor:
    """At most `count` of them, evenly; a copy."""
    return indices[:: max(1, -(-len(indices) // count))].clone()


def _played(
    federation: Federation,
    algorithm: Algorithm,
    rounds: int,
    until: int,
    left: list[dict[str, str]],
    before: Outcome | None = None,
) -> Outcome:
    """Simulate up to `until` rounds; what each of them leaves is added to `left`, as digests by name."""
    read_only = _read_only(federation, algorithm)

    def after_round(outcome: Outcome) -> None:
        left.append({name: border.digest([value]) for name, value in _left(outcome, algorithm, rounds)})
        for thing, value in _read_only(outcome.federation, algorithm).items():
            if value != read_only[thing]:
                raise FedlibError(f"{algorithm.name}: has changed {thing}, which it may only read")

    return simulation.simulate(
        federation, algorithm, rounds, outcome=before, after_round=after_round,
        enough=lambda outcome: len(outcome.timing_rows) >= until,
    )  # fmt: skip


def _read_only(federation: Federation, algorithm: Algorithm) -> dict[str, str]:
    """What a method may only read."""
    known = [[info.id, info.architecture, info.classes, info.num_samples] for info in federation.infos]
    public = [] if federation.public is None else [federation.public.pool.labels, federation.public.pool.stored]
    values = {
        "attributes of the method": vars(getattr(algorithm, "method", algorithm)),
        "context.settings": repr(federation.settings),
        "what it knows of the clients": known,
        "public images": public,
    }
    return {name: border.digest([value]) for name, value in values.items()}


def _left(outcome: Outcome, algorithm: Algorithm, rounds: int) -> Iterator[tuple[str, Any]]:
    """What a round leaves, by name; `download` and `predict`, asked once more, leave things as they were, and a client that
    is brought back answers as it did. Raises FedlibError where they do not.
    """
    round, federation = outcome.round_rows[-1]["round"], outcome.federation
    back = _resumed(outcome, _small(federation)).federation
    context = federation.server_context(round, rounds)
    for client, other in zip(outcome.clients, back.clients, strict=True):
        if not client.visited:
            continue
        kept = border.digest([client.snapshot()])
        answers = _answers(algorithm, client, context)
        if border.digest([client.snapshot()]) != kept:
            raise FedlibError(
                f"{algorithm.name}.predict: has changed client.model or client.state, which it may only read"
            )
        if border.digest([_answers(algorithm, other, context)]) != border.digest([answers]):
            raise FedlibError(
                f"{algorithm.name}.predict: answers otherwise when the client comes back from a checkpoint: {HINT}"
            )
        server = border.digest([outcome.server])
        sent = [border.download(algorithm, outcome.server, client.info, context) for _ in range(2)]
        if border.digest([outcome.server]) != server:
            raise FedlibError(f"{algorithm.name}.download: has changed the server's state, which it may only read")
        if border.digest(sent[:1]) != border.digest(sent[1:]):
            raise FedlibError(f"{algorithm.name}.download: called twice, begun alike, what it returns differs: {HINT}")
        named = {f"client.model's {name}": value for name, value in client.model.state_dict().items()}
        named |= {f"client.state[{name!r}]": value for name, value in client.state.items()}
        yield from ((f"{name} of client {client.id}", value) for name, value in named.items())
        yield f"what predict answers client {client.id}", answers
    yield from ((f"the server's state[{name!r}]", value) for name, value in outcome.server.items())
    for row in outcome.client_rows + outcome.round_rows + outcome.detail_rows:
        whose = f" of client {row['client']}" if "client" in row else ""
        yield from ((f"{name}{whose}", value) for name, value in row.items() if row["round"] == round)


def _answers(algorithm: Algorithm, client: Client, context: Any) -> dict[str, Tensor]:
    """What `predict` says of a few of the client's test images."""
    what = f"{algorithm.name}.predict of client {client.id}"
    crossing = border.crossing(True, what, context.seed, "predict", context.round, client.id)
    with crossing, training.one_thread(), torch.no_grad(), client.whole.autocast():
        return algorithm.predict(client, client.whole.batch(client.test[:4]))


def _resumed(outcome: Outcome, federation: Federation) -> Outcome:
    """The outcome so far, gone on with by a federation that has only what a checkpoint holds."""
    clients = {client.id: client.snapshot() for client in outcome.clients if client.visited}
    content = io.BytesIO()
    torch.save([outcome.server, clients], content)
    server, snapshots = torch.load(io.BytesIO(content.getvalue()), weights_only=True)
    for id, snapshot in snapshots.items():
        federation.clients[id].restore(snapshot)
    federation.last_trained = dict(outcome.federation.last_trained)
    rows: dict[str, Any] = {name: [*value] for name, value in vars(outcome).items() if name.endswith("_rows")}
    return replace(outcome, federation=federation, server=server, **rows)


def _compare(what: str, one: dict[str, str], other: dict[str, str]) -> None:
    for name in dict.fromkeys([*one, *other]):
        if one.get(name) != other.get(name):
            raise FedlibError(f"{what} {name} differs: {HINT}")
