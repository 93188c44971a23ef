"""The round loop: sample clients, download, train locally, aggregate, evaluate, record. Checkpoint and resume to the
same bits.
"""

import hashlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from . import randomness, training
from .algorithms import Algorithm, ServerState
from .errors import coerce, require
from .federation import Client, Context, Federation

CHECKPOINT_SECONDS = 60.0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP arrived and the round was finished; the message says what the same call would do."""

    @classmethod
    def after(cls, round: int, rounds: int, saved: bool) -> "Interrupted":
        then = (
            "the same command resumes from there" if saved else "nothing was saved, since no checkpoint was asked for"
        )
        return cls(f"stopped after round {round + 1} of {rounds}; {then}")


@dataclass
class Outcome:
    """What a simulation hands back: tidy tables, how it ended, and the trained clients themselves.

    rounds: one row a round, -1 being the untrained start; clients: one row a (round, participant); timing: seconds a
    round; detail_rows: what a method noted in a round that is no single number;
    status: `finished`, or `diverged` when a training loss was not finite; seconds: of all sessions of a run that was
    resumed, as far as its checkpoints hold them.
    """

    federation: Federation
    server: ServerState
    status: str = "finished"
    seconds: float = 0.0
    round_rows: list[dict[str, Any]] = field(default_factory=list)
    client_rows: list[dict[str, Any]] = field(default_factory=list)
    timing_rows: list[dict[str, Any]] = field(default_factory=list)
    detail_rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def clients(self) -> list[Client]:
        return self.federation.clients

    @property
    def rounds(self) -> pd.DataFrame:
        return pd.DataFrame(self.round_rows)

    @property
    def client_table(self) -> pd.DataFrame:
        return pd.DataFrame(self.client_rows)

    @property
    def timing(self) -> pd.DataFrame:
        return pd.DataFrame(self.timing_rows)

    def digest(self) -> str:
        """SHA-256 of every visited client's final state and the server's, to compare runs bit by bit."""
        digest = hashlib.sha256()

        def add(value: Any) -> None:
            if isinstance(value, Tensor):
                digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
                digest.update(value.detach().cpu().contiguous().numpy().data)
            elif isinstance(value, dict):
                for name in value:
                    digest.update(str(name).encode())
                    add(value[name])
            elif isinstance(value, list | tuple):
                for item in value:
                    add(item)
            else:
                digest.update(repr(value).encode())

        add(self.server)
        for client in self.clients:
            if client.visited:
                add([client.id, client.snapshot()])
        return digest.hexdigest()


def participants(num_clients: int, participation: float) -> int:
    """K = max(1, floor(C * N + 0.5)) clients a round."""
    require(0 < participation <= 1, "participation", participation, "in (0, 1]")
    return max(1, int(participation * num_clients + 0.5))


def simulate(
    federation: Federation,
    algorithm: Algorithm,
    rounds: int,
    participation: float = 1.0,
    *,
    checkpoint: str | Path | None = None,
    label: str = "",
    progress: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
) -> Outcome:
    """Run `algorithm` on `federation` for `rounds` rounds and hand back the records and the trained clients.

    checkpoint: a file, written when a minute has passed and on SIGINT, SIGTERM or SIGHUP (which only the main thread
    can heed), from which the same call (same `label`) resumes;
    progress: called after each round with that round's row and its timing. Trains under one intra-op thread; of
    several simulations in threads of one process, one trains and the others wait for it.
    """
    require(isinstance(federation, Federation), "federation", federation, "a Federation")
    require(isinstance(algorithm, Algorithm), "algorithm", algorithm, "a method, such as algorithms.make('FedSSA')")
    rounds, participation = coerce("rounds", rounds, int), coerce("participation", participation, float)
    require(rounds >= 1, "rounds", rounds, "at least 1")
    if checkpoint is not None:
        require(isinstance(checkpoint, str | Path), "checkpoint", checkpoint, "the path of a file")
        checkpoint = Path(checkpoint)
        require(not checkpoint.is_dir(), "checkpoint", str(checkpoint), "the path of a file, and this is a folder")
    participants(len(federation.clients), participation)  # a wrong participation is refused before any work
    # The signals come second: a main thread that still waits for another one stops at once.
    with training.one_thread(), _deterministic(federation.device), signals() as stop:
        started = time.perf_counter()
        algorithm.check(federation)
        context = Context(federation, rounds)
        outcome = _load(checkpoint, label, federation)
        if outcome is None:
            outcome = Outcome(federation, algorithm.init_server(context))
            _evaluate_everyone(outcome)
        earlier = outcome.seconds
        accuracies = _latest_accuracies(outcome)
        saved = time.monotonic()
        for round in range(len(outcome.round_rows) - 1, rounds):
            if outcome.status == "diverged":
                break
            context.start(round)
            row, timing = _round(outcome, algorithm, context, participation, accuracies)
            last = round == rounds - 1 or outcome.status == "diverged"
            try:
                if progress:
                    progress(row, timing)
            finally:  # also where a terminal that has gone away takes no more progress
                outcome.seconds = earlier + time.perf_counter() - started
                stopping = bool(stop) and not last
                due = time.monotonic() - saved >= CHECKPOINT_SECONDS and not last
                if checkpoint is not None and (due or stopping):
                    _save(checkpoint, label, outcome)
                    saved = time.monotonic()
            if stopping:
                raise Interrupted.after(round, rounds, checkpoint is not None)
    return outcome


def _round(
    outcome: Outcome, algorithm: Algorithm, context: Context, participation: float, accuracies: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One round; appends its rows to `outcome`."""
    started, evaluating = time.perf_counter(), 0.0
    federation, server = outcome.federation, outcome.server
    sampled = sampled_clients(federation.seed, context.round, len(federation.clients), participation)
    uploads, hits, inherited = {}, {}, 0
    wire = {"download_words": 0, "upload_words": 0, "published_words": 0}
    for client in (federation.clients[id] for id in sampled):
        if not client.visited:
            inherited += federation.inherit(client, context.round)
            algorithm.init_client(client, context)
            client.visited = True
        download = algorithm.download(server, client.info, context)
        upload = algorithm.local_round(client, download, context)
        federation.last_trained[client.info.architecture] = client.id
        if upload is not None:
            uploads[client.id] = upload
        for direction, message in (("download_words", download), ("upload_words", upload)):
            if message is not None:
                wire[direction] += message.words()
                wire["published_words"] += message.words(published_for=algorithm.name)
        began = time.perf_counter()
        hits[client.id] = _hits(algorithm, client)
        evaluating += time.perf_counter() - began
    if federation.protocol.inherit != "none":
        context.record(inherited=inherited)
    if uploads:
        algorithm.aggregate(server, uploads, context)

    recording = time.perf_counter()
    losses = {id: loss.item() for id, loss in context.losses.items()}
    for client in (federation.clients[id] for id in sampled):
        measured = _accuracies(client, hits[client.id])
        for name, value in measured.items():
            accuracies.setdefault(name, np.full(len(federation.clients), np.nan))[client.id] = value
        row = {"round": context.round, "client": client.id, "architecture": client.info.architecture}
        outcome.client_rows.append(row | {"loss": losses.get(client.id, np.nan)} | measured)
    loss = float(np.mean(list(losses.values()))) if losses else np.nan
    if losses and not np.isfinite(loss):
        outcome.status = "diverged"
    outcome.round_rows.append(_round_row(context.round, loss, accuracies, sampled, federation) | wire | context.metrics)
    if context.details:
        outcome.detail_rows.append({"round": context.round} | context.details)
    ended = time.perf_counter()
    timing = {
        "round": context.round,
        "seconds": ended - started,
        "evaluation_seconds": evaluating,
        "recording_seconds": ended - recording,
    }
    outcome.timing_rows.append(timing)
    return outcome.round_rows[-1], timing


def _plain(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    return {"accuracy": model(images)}


def _hits(algorithm: Algorithm, client: Client) -> dict[str, Tensor]:
    """Which of the client's validation and test images (in that order) each way of predicting gets right: one pass."""
    indices = torch.cat([client.validation, client.test])
    return training.correct(lambda images: algorithm.predict(client, images), client.pool, indices)


def _accuracies(client: Client, hits: dict[str, Tensor]) -> dict[str, float]:
    """Fractions of the test images, and of the validation images for the headline way of predicting."""
    cut = len(client.validation)
    measured = {name: hit[cut:].double().mean().item() for name, hit in hits.items()}
    measured["validation_accuracy"] = next(iter(hits.values()))[:cut].double().mean().item()
    return measured


def _round_row(
    round: int, loss: float, accuracies: dict[str, np.ndarray], sampled: np.ndarray, federation: Federation
) -> dict[str, Any]:
    """Means over all clients (the unvisited with their initial model) and over the round's own."""
    row: dict[str, Any] = {
        "round": round,
        "selected": len(sampled),
        "visited": sum(client.visited for client in federation.clients),
        "samples": sum(federation.clients[id].num_samples for id in sampled) * federation.settings.epochs,
        "loss": loss,
        "accuracy": float(np.mean(accuracies["accuracy"])),
        "accuracy_selected": float(np.mean(accuracies["accuracy"][sampled])) if len(sampled) else np.nan,
    }
    for name, values in accuracies.items():  # a method's own way of predicting exists for the visited only
        if name != "accuracy":
            row[name] = float(np.nanmean(values)) if np.isfinite(values).any() else np.nan
    return row


def _evaluate_everyone(outcome: Outcome) -> None:
    """Accuracy of the initial models before round 0: one pass an architecture over the pooled test images of its
    clients.
    """
    federation = outcome.federation
    for architecture in dict.fromkeys(federation.architectures):
        model = federation.build(architecture)
        clients = [client for client in federation.clients if client.info.architecture == architecture]
        if not clients:
            continue
        indices = torch.cat([torch.cat([client.validation, client.test]) for client in clients])
        hits = training.correct(partial(_plain, model), federation.pool, indices)["accuracy"]
        parts = hits.split([len(client.validation) + len(client.test) for client in clients])
        for client, part in zip(clients, parts, strict=True):
            row = {"round": -1, "client": client.id, "architecture": architecture, "loss": np.nan}
            outcome.client_rows.append(row | _accuracies(client, {"accuracy": part}))
    outcome.client_rows.sort(key=lambda row: row["client"])
    accuracies = _latest_accuracies(outcome)
    outcome.round_rows.append(_round_row(-1, np.nan, accuracies, np.array([], dtype=int), federation))


def _latest_accuracies(outcome: Outcome) -> dict[str, np.ndarray]:
    """Each client's last measured accuracies, by name, from the rows so far."""
    latest: dict[str, np.ndarray] = {}
    for row in outcome.client_rows:
        for name, value in row.items():
            if name not in ("round", "client", "architecture", "loss"):
                latest.setdefault(name, np.full(len(outcome.clients), np.nan))[row["client"]] = value
    return latest


@contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Deterministic algorithms on CUDA; the CPU's already are under one thread."""
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


_received: list[int] | None = None  # the signals that the outermost `signals` of the main thread has collected


@contextmanager
def signals() -> Iterator[list[int]]:
    """Collect the first SIGINT, SIGTERM or SIGHUP, so that the round or the writing of a record can end; a second one
    stops at once. Main thread only; an inner block shares the outer one's list.
    """
    global _received
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    if _received is not None:
        yield _received
        return
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt("stopped inside a round; the last checkpoint, if any, is kept")
        received.append(number)
        with suppress(OSError):  # the terminal may be gone
            print("\nfinishing this round, then saving; once more to stop at once", file=sys.stderr)

    numbers = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:  # `nohup` ignores it
        numbers.append(hangup)
    before = {number: signal.signal(number, note) for number in numbers}
    _received = received
    try:
        yield received
    finally:
        _received = None
        for number, handler in before.items():
            signal.signal(number, handler)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file whole or not at all: temporary file, fsync, `os.replace`."""
    write_files({path: [content]})


def write_files(files: Mapping[Path, Sequence[bytes | memoryview]]) -> None:
    """Write files (path -> parts of its content) whole: all as temporary files first, so that a full disk leaves what
    was there, then each in its place. The last one vouches for the others: an old one goes before they change.

    Folders that are missing are made, also those that somebody removed meanwhile.
    """
    suffix = f".{os.getpid()}-{threading.get_ident()}.tmp"
    staged = {path: path.with_name(f".{path.name}{suffix}") for path in files}
    try:
        for path, parts in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(staged[path], "wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
        if len(files) > 1:
            list(files)[-1].unlink(missing_ok=True)
        for path, temporary in staged.items():
            os.replace(temporary, path)
    except BaseException:
        for temporary in staged.values():
            with suppress(OSError):
                temporary.unlink()
        raise


def seal(content: bytes | memoryview) -> list[bytes | memoryview]:
    """`content` behind a line with its SHA-256, the parts of a file that `unseal` reads."""
    return [hashlib.sha256(content).hexdigest().encode() + b"\n", content]


def unseal(content: bytes) -> bytes:
    """What `seal` was given; raises ValueError when a bit of it has changed."""
    digest, line_end, sealed = content[:64], content[64:65], content[65:]
    if line_end != b"\n" or hashlib.sha256(sealed).hexdigest().encode() != digest:
        raise ValueError("its content is not what was written")
    return sealed


def set_aside(path: Path, reason: str) -> Path:
    """Rename a file or folder that cannot be used, never delete it; says so on standard error and returns its new
    place.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.{reason}-{number}")).exists():
        number += 1
    path.rename(aside)
    tqdm.write(f"{path.name}: {reason}, set aside as {aside.name}", file=sys.stderr)  # beside a bar, if there is one
    return aside


def _save(path: Path, label: str, outcome: Outcome) -> None:
    clients = {client.id: client.snapshot() for client in outcome.clients if client.visited}
    buffer = io.BytesIO()
    rows = {"rounds": outcome.round_rows, "clients": outcome.client_rows, "timing": outcome.timing_rows}
    rows["details"] = outcome.detail_rows
    state = {"label": label, "status": outcome.status, "seconds": outcome.seconds}
    torch.save(state | {"server": outcome.server, "clients": clients, "rows": rows}, buffer)
    write_files({path: seal(buffer.getbuffer())})


def _load(path: Path | None, label: str, federation: Federation) -> Outcome | None:
    """The outcome so far, or None; a file that is damaged or of another run is reported and set aside."""
    if path is None or not path.exists():
        return None
    try:
        content = io.BytesIO(unseal(path.read_bytes()))
        state = torch.load(content, map_location=federation.device, weights_only=True)
        foreign = state["label"] != label
    except Exception:  # another digest, or no zip, pickle or tensor: torch raises many kinds
        set_aside(path, "corrupted")
        return None
    if foreign:
        set_aside(path, "foreign")
        return None
    for id, snapshot in state["clients"].items():
        federation.clients[id].restore(snapshot)
    rows = state["rows"]
    federation.last_trained = {row["architecture"]: row["client"] for row in rows["clients"] if row["round"] >= 0}
    tables = [rows[name] for name in ("rounds", "clients", "timing", "details")]
    return Outcome(federation, state["server"], state["status"], state["seconds"], *tables)


def sampled_clients(seed: int, round: int, num_clients: int, participation: float) -> np.ndarray:
    """The clients of a round in order of arrival; the same for every method of one seed."""
    stream = randomness.generator(seed, "sampling", round)
    return stream.choice(num_clients, participants(num_clients, participation), replace=False)
