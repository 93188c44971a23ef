"""The round loop: sample clients, download, let them train and evaluate, aggregate, record.

`simulate` is the server's side: an exchange carries its requests to the clients and brings their replies back. `answer`
is a client's side. The default exchange, `in_process`, asks the federation's own clients.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from . import border, devices, metrics, models, randomness, side_by_side, training
from .algorithms import Algorithm, ServerState
from .errors import FedlibError, coerce, require, shown
from .federation import Client, ClientContext, ClientInfo, Federation, Message, ServerContext, Upload


@dataclass
class Outcome:
    """What a simulation hands back: rows of numbers, how it ended, and the trained clients themselves.

    round_rows: one per round, -1 being the untrained start; client_rows: one per round and participant; timing_rows:
    seconds of each round; detail_rows: what the method's server handed back of a round that is no single number;
    newcomer_rows: one per newcomer and number of visits, see `Federation`; over: whether there are no further rounds;
    status: `finished`, or `diverged` when a round left a number that is not finite: a client's training loss, model,
    state, upload or logits (its recorded loss is then NaN), or the server's state; seconds: of all sessions of a run
    that was resumed, as far as its checkpoints hold them. The clients are the trained ones if they are in this process; another
    exchange keeps its own.
    """

    federation: Federation
    server: ServerState
    status: str = "finished"
    seconds: float = 0.0
    round_rows: list[dict[str, Any]] = field(default_factory=list)
    client_rows: list[dict[str, Any]] = field(default_factory=list)
    timing_rows: list[dict[str, Any]] = field(default_factory=list)
    detail_rows: list[dict[str, Any]] = field(default_factory=list)
    newcomer_rows: list[dict[str, Any]] = field(default_factory=list)
    over: bool = False

    @property
    def clients(self) -> list[Client]:
        return self.federation.clients

    def digest(self) -> str:
        """SHA-256 of every visited client's final state and the server's, to compare runs bit by bit."""
        visited = ([client.id, client.snapshot()] for client in self.clients if client.visited)
        return border.digest(chain([self.server], visited))


class Request(NamedTuple):
    """What the server asks of a client: a local round on `download` or, with round -1, how good its initial model is."""

    round: int
    rounds: int
    client: int
    download: Message


@dataclass
class Reply:
    """What a client answers; a number may be a scalar tensor, so that a device is waited for only when a round ends.

    accuracies: fractions of its test images by each way of predicting, the headline `accuracy` first, and
    `validation_accuracy`; upload: without its diagnostics, which stand here; loss: mean training loss, NaN where what
    the round left is not finite, None where nothing was trained; inherited: whether it began with another client's
    model (`Protocol.inherit`).
    """

    accuracies: dict[str, float | Tensor]
    upload: Message = field(default_factory=Message)
    loss: float | Tensor | None = None
    diagnostics: dict[str, float | Tensor] = field(default_factory=dict)
    inherited: bool = False
    evaluation_seconds: float = 0.0


# One reply per request, in order; None of a client without which the round goes on: it has not answered in time, or not
# with what can be used. An exchange whose clients are not trusted may have a method `aggregated` in place of the one here,
# which leaves out whose upload spoils what the server makes of the round.
Exchange = Callable[[Federation, Algorithm, Sequence[Request]], Sequence[Reply | None]]


def participate(client: Client, algorithm: Algorithm, download: Message, context: ClientContext) -> Reply:
    """A client's part of a round: `init_client` at its first visit, the local round, the evaluation of its model.

    A loss is measured before its step: what the step leaves is checked too, and the reply's loss is NaN unless the
    client's model and state, its upload and its logits are finite (see `_hits`).
    """
    own, where = border.is_own(algorithm, [client.info.architecture]), f"in round {context.round} of client {client.id}"
    crossing = partial(border.crossing, own, seed=context.seed, round=context.round, client=client.id)
    download = border.message(f"{algorithm.name}.download", download)
    pools = [client.whole, *([] if context.public_data is None else [context.public_data.pool])]
    seen_by_others = [tensor for pool in pools for tensor in (pool.stored, pool.labels)]
    written = [tensor._version for tensor in seen_by_others]  # torch counts how often a tensor is written in place
    if not client.visited:
        with crossing(f"{algorithm.name}.init_client {where}", step="init_client"):
            algorithm.init_client(client, context)
        client.visited = True
    what = f"{algorithm.name}.local_round {where}"
    with crossing(what, step="local_round"):
        given = algorithm.local_round(client, download, context)
    upload = border.message(what, given)
    border.kept(what, client)
    diagnostics = dict(upload.diagnostics)
    loss = diagnostics.pop("loss", context.loss)
    began = time.perf_counter()
    with crossing(f"{algorithm.name}.predict {where}", step="predict"):
        hits, finite = _hits(algorithm, client, context.num_classes)
        others = _metrics(partial(algorithm.predict, client), client, context.metrics, context.seed, context.round)
    if written != [tensor._version for tensor in seen_by_others]:
        raise FedlibError(f"{what}: has changed images or labels that others see, too: change a copy, x.clone()")
    accuracies = _accuracies(client, hits) | others
    finite = finite & training.all_finite([client.snapshot(), upload.tensors], client.train.device)
    if loss is not None:  # float64 holds every number as it is, and nothing waits for the device
        wide = devices.widest(finite.device)
        loss = torch.where(finite, torch.as_tensor(loss, dtype=wide, device=finite.device), torch.nan)
    elif not finite:
        loss = np.nan
    client.leave()
    sent = replace(upload, diagnostics={})
    return Reply(accuracies, sent, loss, diagnostics, evaluation_seconds=time.perf_counter() - began)


def answer(federation: Federation, algorithm: Algorithm, request: Request) -> Reply:
    """What the client that is asked replies. An exchange between processes calls this where the client is: only this
    client of `federation` is touched, and what it is to remember between rounds is its `snapshot`.
    """
    client = federation.clients[request.client]
    with training.one_thread(), devices.deterministic(federation.device, federation.deterministic):
        if request.round < 0:
            return _evaluate_initial(federation, [client])[0]
        context = federation.client_context(client.id, request.round, request.rounds)
        return participate(client, algorithm, request.download, context)


WORTH_COPIES = 1.0  # seconds of a round's visits, from which on they are made in copies of this process


def in_process(federation: Federation, algorithm: Algorithm, requests: Sequence[Request]) -> list[Reply]:
    """The exchange with the federation's own clients; the only one that knows `Protocol.inherit`, since no other holds all
    the clients' models.

    One after the other in this process, or `training.processes` side by side in copies of it, from which what they have become
    comes back: the same bits. Visits that are done in `WORTH_COPIES` seconds, as far as earlier ones tell, are made here.
    """
    clients = [federation.clients[request.client] for request in requests]
    if all(request.round < 0 for request in requests):
        return _evaluate_initial(federation, clients)
    here = os.getpid()

    def visit(number: int) -> Reply:
        client, request = clients[number], requests[number]
        if os.getpid() != here:
            federation.after_visit = None  # the files of clients are written here alone
        began = time.perf_counter()
        inherited = not client.visited and federation.inherit(client, request.round)
        context = federation.client_context(client.id, request.round, request.rounds)
        reply = participate(client, algorithm, request.download, context)
        federation.visit_seconds = time.perf_counter() - began
        return replace(reply, inherited=inherited)

    def pack(number: int, reply: Reply) -> Any:
        plain = vars(reply) | {"upload": vars(reply.upload)}
        return plain, clients[number].snapshot(), federation.visit_seconds

    def unpack(number: int, packed: Any) -> Reply:
        plain, snapshot, federation.visit_seconds = packed
        clients[number].restore(snapshot)
        return Reply(**plain | {"upload": Message(**plain["upload"])})

    def asked(numbers: range, copies: int = 1) -> Iterator[Reply]:
        with closing(side_by_side.each(visit, numbers, copies, pack=pack, unpack=unpack)) as replies:
            for number, reply in zip(numbers, replies, strict=True):
                client = clients[number]
                federation.last_trained[client.info.architecture] = client.id
                if federation.after_visit is not None:
                    federation.after_visit(client)
                yield reply

    first = range(0 if federation.visit_seconds else 1)
    replies = list(asked(first))
    rest = range(len(first), len(requests))
    alone = federation.device.type != "cpu" or federation.protocol.inherit != "none"  # from who was trained just before
    worth = not alone and len(rest) * federation.visit_seconds >= WORTH_COPIES
    return replies + list(asked(rest, training.processes.get() if worth else 1))


def participants(num_clients: int, participation: float) -> int:
    """K = max(1, floor(C * N + 0.5)) clients per round."""
    require(0 < participation <= 1, "participation", participation, "in (0, 1]")
    return max(1, int(participation * num_clients + 0.5))


def check(
    federation: Federation,
    algorithm: Algorithm,
    rounds: int,
    participation: float,
    exchange: Exchange,
    patience: int = 0,
    enough: Callable[[Outcome], bool] | None = None,
) -> tuple[int, float]:
    """The rounds and the participation as numbers; raises FedlibError where they, or what is to be simulated, do not fit."""
    require(isinstance(federation, Federation), "federation", federation, "a Federation")
    require(isinstance(algorithm, Algorithm), "algorithm", algorithm, "a method, such as algorithms.make('FedSSA')")
    rounds, participation = coerce("rounds", rounds, int), coerce("participation", participation, float)
    require(rounds >= 1, "rounds", rounds, "at least 1")
    inherits = federation.protocol.inherit
    require(exchange is in_process or inherits == "none", "inherit", inherits, "'none', unless clients are in_process")
    visits, waiting = federation.newcomer_visits, len(federation.newcomers) > 0 and not federation.newcomer_visits
    require(exchange is in_process or not visits, "newcomer_visits", visits, "0, unless clients are in_process")
    require(rounds >= 2 or not waiting, "rounds", rounds, "at least 2, of which the last is the newcomers'")
    require(coerce("patience", patience, int) >= 0, "patience", patience, "at least 1, or 0 for all rounds")
    if patience:
        allowed = "0 where clients have no validation images, or newcomers wait for the last round"
        validated = any(len(client.validation) for client in federation.clients)
        require(validated and not waiting, "patience", patience, allowed)
    allowed = "a function of an outcome, or None; None where newcomers wait for the last round"
    require(enough is None or (callable(enough) and not waiting), "enough", enough, allowed)
    participants(len(federation.clients), participation)  # a wrong participation is refused before any work
    return rounds, participation


def simulate(
    federation: Federation,
    algorithm: Algorithm,
    rounds: int,
    participation: float = 1.0,
    *,
    outcome: Outcome | None = None,
    after_round: Callable[[Outcome], None] | None = None,
    exchange: Exchange = in_process,
    patience: int = 0,
    enough: Callable[[Outcome], bool] | None = None,
) -> Outcome:
    """Run `algorithm` on `federation` for `rounds` rounds and hand back the records and the trained clients.

    outcome: of this federation's first rounds, to go on from; after_round: called with the outcome so far after each
    round, ends the simulation by raising (`fedlib.lab.simulate` keeps checkpoints with the two). Trains under one
    intra-op thread, and after `training.processes.set(4)` four clients of a round side by side; of several simulations in threads of
    one process, one trains and the others wait for it.
    exchange: called with the federation, the algorithm and a round's requests, carries them to the clients and returns
    their replies in the same order, None for a client that has not answered: the round goes on without it, and its row
    says how many are `absent`. By default the clients are in this process. Nothing else here touches a client. patience:
    after so many rounds without a better mean validation accuracy of the visited clients there are no more; 0: never.
    enough: called with the outcome so far; where it says so after a round, there are no more.
    """
    rounds, participation = check(federation, algorithm, rounds, participation, exchange, patience, enough)
    with training.one_thread(), devices.deterministic(federation.device, federation.deterministic):
        started = time.perf_counter()
        border.fits(algorithm, federation)
        if outcome is None:
            outcome = Outcome(federation, border.init_server(algorithm, federation.server_context(0, rounds)))
            _evaluate_everyone(outcome, algorithm, rounds, exchange)
        earlier, known = outcome.seconds, _Known.of(outcome)
        outcome.over = _over(outcome, rounds, patience, enough)
        while not outcome.over:
            context = federation.server_context(len(outcome.round_rows) - 1, rounds)
            _round(outcome, algorithm, context, participation, known, exchange)
            outcome.seconds = earlier + time.perf_counter() - started
            outcome.over = _over(outcome, rounds, patience, enough)
            if after_round is not None:
                after_round(outcome)
        if federation.newcomer_visits and outcome.status == "finished" and not outcome.newcomer_rows:
            _visit_newcomers(outcome, algorithm, rounds)
        outcome.seconds = earlier + time.perf_counter() - started
    return outcome


def _over(outcome: Outcome, rounds: int, patience: int = 0, enough: Callable[[Outcome], bool] | None = None) -> bool:
    """Whether there are no further rounds: all are done, one diverged, the last `patience` were none the better for it, or
    what they have spent is `enough`.
    """
    measured = [row["validation_accuracy"] for row in outcome.round_rows[1:]]
    best = max(measured[: len(measured) - patience], default=1.0)
    stalled = 0 < patience < len(measured) and not any(value > best for value in measured[-patience:])
    ended = outcome.status == "diverged" or len(measured) >= rounds or stalled
    return ended or bool(enough and measured and enough(outcome))


def _visit_newcomers(outcome: Outcome, algorithm: Algorithm, rounds: int) -> None:
    """What a method gives clients that it has never trained: how good each newcomer is with its initial network (visits -1),
    with what it makes of the last server's download (0), and after that many visits, E local epochs each, on this one
    download (1, 2, ...). Nothing is uploaded, and no newcomer learns of another.

    Each number of visits is trained afresh, begun alike, as one local round of so many epochs: what a method does once a
    round, such as learning a header first, it does once.
    """
    federation, last = outcome.federation, len(outcome.round_rows) - 2
    context = federation.server_context(last, rounds)
    initial = {row["client"]: row for row in outcome.client_rows if row["round"] < 0}
    for id in map(int, federation.newcomers):
        client = federation.clients[id]
        download = border.download(algorithm, outcome.server, client.info, context)
        row = {"client": id, "architecture": client.info.architecture}
        measured = {name: value for name, value in initial[id].items() if name not in (*row, "round")}
        outcome.newcomer_rows.append(row | {"visits": -1, "download_words": 0} | measured)
        for visits in range(federation.newcomer_visits + 1):
            client.reset()
            federation.inherit(client, last)
            own = federation.client_context(id, last, rounds)
            own.settings = replace(own.settings, epochs=visits * federation.settings.epochs)
            reply = participate(client, algorithm, download, own)
            measured = {"loss": np.nan} | _measured(reply, f"of newcomer {id} after {visits} visits")
            measured |= {} if visits else {"loss": np.nan}
            outcome.newcomer_rows.append(row | {"visits": visits, "download_words": download.words()} | measured)
        if federation.after_visit is not None:
            federation.after_visit(client)


@dataclass
class _Known:
    """What the server knows of the clients: the accuracies last measured, by name (N,), NaN where there are none, and
    who has been visited.
    """

    accuracies: dict[str, np.ndarray]
    visited: set[int]

    @classmethod
    def of(cls, outcome: Outcome) -> "_Known":
        known = cls({}, set())
        for row in outcome.client_rows:
            measured = {name: row[name] for name in row if name not in ("round", "client", "architecture", "loss")}
            known.update(len(outcome.clients), row["client"], measured, row["round"] >= 0)
        return known

    def update(self, num_clients: int, client: int, measured: dict[str, float], visited: bool) -> None:
        for name, value in measured.items():
            self.accuracies.setdefault(name, np.full(num_clients, np.nan))[client] = value
        if visited:
            self.visited.add(client)


def _ask(
    exchange: Exchange, federation: Federation, algorithm: Algorithm, requests: Sequence[Request]
) -> Sequence[Reply | None]:
    replies = exchange(federation, algorithm, requests)
    require(len(replies) == len(requests), "replies of the exchange", len(replies), f"{len(requests)}, one per request")
    return replies


def _round(
    outcome: Outcome,
    algorithm: Algorithm,
    context: ServerContext,
    participation: float,
    known: _Known,
    exchange: Exchange,
) -> None:
    """One round; appends its rows to `outcome`."""
    started, processor = time.perf_counter(), _processor_seconds()
    federation, server, round = outcome.federation, outcome.server, context.round
    sampled = clients_of_round(federation, round, context.rounds, participation)
    infos = [context.infos[id] for id in sampled]
    requests = []
    for info in infos:
        requests.append(Request(round, context.rounds, info.id, border.download(algorithm, server, info, context)))
    asked = zip(infos, _ask(exchange, federation, algorithm, requests), strict=True)
    answers = [(info, reply) for info, reply in asked if reply is not None]
    make = getattr(exchange, "aggregated", aggregated)
    answers, returned = make(algorithm, server, answers, context) if answers else (answers, {})  # of nobody: as it was
    infos, replies = [info for info, _ in answers], [reply for _, reply in answers]
    there = {info.id for info in infos}
    absent = [int(id) for id in sampled if id not in there]
    finite = training.all_finite(server, federation.device)

    recording = time.perf_counter()
    losses = []
    for info, reply in zip(infos, replies, strict=True):
        measured = _measured(reply, f"of client {info.id} in round {round}")
        row = {"round": round, "client": info.id, "architecture": info.architecture, "loss": measured.pop("loss")}
        known.update(len(context.infos), info.id, measured, True)
        losses += [] if reply.loss is None else [row["loss"]]
        outcome.client_rows.append(row | measured)
    loss = float(np.mean(losses)) if losses else np.nan
    if not finite or (losses and not np.isfinite(loss)):
        outcome.status = "diverged"
    images = sum(sum(training.images_of_epochs(federation.settings, info.num_samples)) for info in infos)
    row = _round_row(round, loss, known, infos, images)
    row |= _words(algorithm, context, [request.download for request in requests], [reply.upload for reply in replies])
    recorded = _mean_diagnostics(algorithm, replies)
    if federation.protocol.inherit != "none":
        recorded["inherited"] = sum(reply.inherited for reply in replies)
    details = {}
    if absent:
        recorded["absent"], details["absent_clients"] = len(absent), absent
    for name, value in returned.items():
        (recorded if isinstance(value, int | float) else details)[name] = value
    for name in recorded | details:
        require(name not in row, f"{algorithm.name} diagnostic", name, f"none of the round's own: {', '.join(row)}")
    outcome.round_rows.append(row | recorded)
    if details:
        outcome.detail_rows.append({"round": round} | details)
    ended = time.perf_counter()
    timing = {
        "round": round,
        "seconds": ended - started,
        "processor_seconds": _processor_seconds() - processor,
        "evaluation_seconds": sum(reply.evaluation_seconds for reply in replies),
        "recording_seconds": ended - recording,
    }
    outcome.timing_rows.append(timing)


def _processor_seconds() -> float:
    """Of this process and of the copies of it that have ended."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


Answers = list[tuple[ClientInfo, Reply]]


def aggregated(
    algorithm: Algorithm, server: ServerState, answers: Answers, context: ServerContext
) -> tuple[Answers, dict[str, Any]]:
    """Update the server's state; the answers of the clients that took part in it, here all, and the server's diagnostics."""
    uploads = [Upload(info, reply.upload) for info, reply in answers]
    return answers, border.aggregate(algorithm, server, uploads, context)


def _words(
    algorithm: Algorithm, context: ServerContext, downloads: list[Message], uploads: list[Message]
) -> dict[str, int]:
    """32-bit words of a round's messages, and as the method's paper counts them."""
    return {
        "download_words": sum(message.words() for message in downloads),
        "upload_words": sum(message.words() for message in uploads),
        "published_words": sum(border.published_words(algorithm, each, context) for each in downloads + uploads),
    }


def _mean_diagnostics(algorithm: Algorithm, replies: Sequence[Reply]) -> dict[str, float]:
    """The mean of each of the clients' diagnostics over those that handed it back; the value itself if all are equal."""
    means = {}
    for name in dict.fromkeys(name for reply in replies for name in reply.diagnostics):
        values = [_number(algorithm, name, reply.diagnostics[name]) for reply in replies if name in reply.diagnostics]
        means[name] = values[0] if len(set(values)) == 1 else float(np.mean(values))
    return means


def _number(algorithm: Algorithm, name: str, value: Any) -> float:
    number = border.number(value)
    if number is None:
        raise FedlibError(f"{algorithm.name} diagnostic {name} = {shown(value)}: must be a number, as it is a client's")
    return number


def _plain(what: str, num_classes: int, model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    return border.logits(what, {"accuracy": model(images)}, len(images), num_classes)


def _hits(algorithm: Algorithm, client: Client, num_classes: int) -> tuple[dict[str, Tensor], Tensor]:
    """Which of the client's validation and test images (in that order) each way of predicting gets right, and whether
    each image's largest logit is finite (a scalar): one pass. A logit of -inf rules its class out, as FedProto does.
    """
    largest: list[Tensor] = []

    def predict(images: Tensor) -> dict[str, Tensor]:
        logits = border.logits(f"{algorithm.name}.predict", algorithm.predict(client, images), len(images), num_classes)
        largest.extend(values.amax(1) for values in logits.values())
        return logits

    hits = training.correct(predict, client.whole, torch.cat([client.validation, client.test]))
    return hits, training.all_finite(largest, client.train.device)


def _accuracies(client: Client, hits: dict[str, Tensor]) -> dict[str, float | Tensor]:
    """Fractions of the test images, and of the validation images for the headline way of predicting."""
    cut = len(client.validation)
    wide = devices.widest(client.test.device)
    measured: dict[str, float | Tensor] = {name: hit[cut:].to(wide).mean() for name, hit in hits.items()}
    measured["validation_accuracy"] = next(iter(hits.values()))[:cut].to(wide).mean()
    return measured


def _metrics(
    predict: Callable[[Tensor], dict[str, Tensor]], client: Client, names: Sequence[str], seed: int, round: int
) -> dict[str, float | Tensor]:
    """What a run measures on the client's test images besides accuracy, of the headline way of predicting. What a metric
    draws does not depend on what else is measured.
    """
    if not names:
        return {}
    logits = training.outputs(lambda images: predict(images)["accuracy"], client.whole, client.test)
    found: dict[str, float | Tensor] = {}
    for name in names:
        own = metrics.METRICS[name] not in metrics.BUILT_IN
        with border.crossing(own, f"metric {name}", seed, "metric", round, client.id):
            found |= metrics.of_client([name], logits, client.whole.labels[client.test])
    return found


def _measured(reply: Reply, whose: str) -> dict[str, float]:
    """The reply's accuracies as numbers, and its loss, NaN where it has none. Raises FedlibError for a metric beyond its range,
    unless the client diverged.
    """
    measured = {name: float(value) for name, value in reply.accuracies.items()}
    loss = float("nan") if reply.loss is None else float(reply.loss)
    for name in measured if reply.loss is None or np.isfinite(loss) else ():
        if name in metrics.METRICS:
            metrics.METRICS[name].check(measured[name], whose)
    return measured | {"loss": loss}


def _round_row(round: int, loss: float, known: _Known, infos: Sequence[ClientInfo], images: int) -> dict[str, Any]:
    """Means over the clients visited so far (before the first round: over all), `accuracy_all` over all, the unvisited
    with their initial model, and `accuracy_selected` over the round's own, `infos`; of other metrics alike. images: trained on.
    """
    sampled, visited = [info.id for info in infos], sorted(known.visited)
    row: dict[str, Any] = {
        "round": round,
        "selected": len(sampled),
        "visited": len(visited),
        "samples": images,
        "loss": loss,
    }
    for name, values in known.accuracies.items():
        measured = values[visited] if visited else values
        row[name] = _mean(measured)
        if name in metrics.METRICS:
            row[f"{name}_all"] = _mean(values)
            row[f"{name}_selected"] = _mean(values[sampled])
    return row


def _mean(values: np.ndarray) -> float:
    """The mean of those that are defined, NaN where none is: the area under the curve of a single class, an unvalidated client."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def _evaluate_everyone(outcome: Outcome, algorithm: Algorithm, rounds: int, exchange: Exchange) -> None:
    """Round -1: accuracy of the initial models before round 0."""
    infos, absent = outcome.federation.infos, []
    requests = [Request(-1, rounds, info.id, Message()) for info in infos]
    for info, reply in zip(infos, _ask(exchange, outcome.federation, algorithm, requests), strict=True):
        if reply is None:
            absent.append(info.id)
            continue
        row = {"round": -1, "client": info.id, "architecture": info.architecture, "loss": np.nan}
        outcome.client_rows.append(row | _measured(reply, f"of client {info.id} before round 0"))
    require(len(absent) < len(infos), "clients that have answered before round 0", 0, "at least 1")
    outcome.round_rows.append(_round_row(-1, np.nan, _Known.of(outcome), [], 0))
    if absent:
        outcome.round_rows[-1]["absent"] = len(absent)
        outcome.detail_rows.append({"round": -1, "absent_clients": absent})


def _evaluate_initial(federation: Federation, clients: Sequence[Client]) -> list[Reply]:
    """Replies in round -1: one pass per initial model over the pooled test images of the clients that start from it."""
    apart = federation.protocol.starts == "apart"
    alike: dict[str | int, list[Client]] = {}
    for client in clients:
        alike.setdefault(client.id if apart else client.info.architecture, []).append(client)
    replies: dict[int, Reply] = {}
    for own in alike.values():
        architecture = own[0].info.architecture
        model = own[0].build(architecture)
        indices = torch.cat([torch.cat([client.validation, client.test]) for client in own])
        what, own_network = f"architecture = {architecture!r}", not models.is_built_in(architecture)
        predict = partial(_plain, what, federation.num_classes, model)
        with border.crossing(own_network, what, federation.seed, "network"):
            hits = training.correct(predict, federation.pool, indices)["accuracy"]
        parts = hits.split([len(client.validation) + len(client.test) for client in own])
        for client, part in zip(own, parts, strict=True):
            with border.crossing(own_network, what, federation.seed, "network"):
                others = _metrics(predict, client, federation.metrics, federation.seed, -1)
            replies[client.id] = Reply(_accuracies(client, {"accuracy": part}) | others)
    return [replies[client.id] for client in clients]


def clients_of_round(federation: Federation, round: int, rounds: int, participation: float) -> np.ndarray:
    """The clients of a round in order of arrival: some of the members or, in the last round where newcomers wait for it,
    all of these.
    """
    if len(federation.newcomers) and not federation.newcomer_visits and round == rounds - 1:
        return federation.newcomers
    members = federation.members
    return members[sampled_clients(federation.seed, round, len(members), participation)]


def sampled_clients(seed: int, round: int, num_clients: int, participation: float) -> np.ndarray:
    """The clients of a round in order of arrival; the same for every method of one seed."""
    stream = randomness.generator(seed, "sampling", round)
    return stream.choice(num_clients, participants(num_clients, participation), replace=False)
