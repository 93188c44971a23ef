"""Checkpoints: a simulation that can be stopped and resumed with the same bits."""

import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from .. import simulation, training
from ..algorithms import Algorithm
from ..errors import require
from ..federation import Federation
from ..simulation import Exchange, Outcome, in_process
from . import clientfiles, files
from .clientfiles import ClientFiles
from .progress import in_notebook

CHECKPOINT_SECONDS = 60.0
LARGEST = 2**36  # bytes of a checkpoint: of some methods the server keeps every client's model


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP ended the work; the message says what was kept and what the same call would do."""

    def _render_traceback_(self) -> list[str]:  # what a notebook shows, in place of the lines through this package
        return [str(self)]


def simulate(
    federation: Federation,
    algorithm: Algorithm,
    rounds: int,
    participation: float = 1.0,
    *,
    checkpoint: str | Path | None = None,
    label: str = "",
    progress: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
    every: float | None = None,
    exchange: Exchange = in_process,
    patience: int = 0,
    enough: Callable[[Outcome], bool] | None = None,
) -> Outcome:
    """`fedlib.simulate`, with checkpoints.

    checkpoint: a file, written when `every` seconds have passed (a minute; 0: after each round) and on SIGINT, SIGTERM
    or SIGHUP (which only the main thread can heed), from which the same call (same `label`) resumes. With it, clients
    beyond a memory limit (`clientfiles.memory`) are kept in files in the folder `<checkpoint>.clients`, which stays until
    it is deleted, and are read when they are used. progress: called after each round with that round's row and
    its timing. patience, enough: as in `fedlib.simulate`. Raises `Interrupted` where a signal ended it.
    """
    if checkpoint is not None:
        require(isinstance(checkpoint, str | Path), "checkpoint", checkpoint, "the path of a file")
        checkpoint = Path(checkpoint)
        require(not checkpoint.is_dir(), "checkpoint", str(checkpoint), "the path of a file, and this is a folder")
    # The signals come second: a main thread that still waits for another one stops at once.
    with training.one_thread(), signals() as stop:
        before, clients = None, None
        if checkpoint is not None:
            clients = ClientFiles(checkpoint, federation)
            before = load(checkpoint, label, federation, clients)
            clients.attach()
        saved = time.monotonic()

        def after_round(outcome: Outcome) -> None:
            nonlocal saved
            row, timing = outcome.round_rows[-1], outcome.timing_rows[-1]
            last = outcome.over and not federation.newcomer_visits
            try:
                if progress:
                    progress(row, timing)
            finally:  # also where a terminal that has gone away takes no more progress
                stopping = bool(stop) and not last
                interval = CHECKPOINT_SECONDS if every is None else every
                due = time.monotonic() - saved >= interval and not last
                if checkpoint is not None and clients is not None and (due or stopping):
                    save(checkpoint, label, outcome, clients)
                    saved = time.monotonic()
            if stopping:
                then = "the same command resumes from there"
                then = then if checkpoint is not None else "nothing was saved, since no checkpoint was asked for"
                raise Interrupted(f"stopped after round {row['round'] + 1} of {rounds}; {then}")

        return simulation.simulate(
            federation,
            algorithm,
            rounds,
            participation,
            outcome=before,
            after_round=after_round,
            exchange=exchange,
            patience=patience,
            enough=enough,
        )


def save(path: Path, label: str, outcome: Outcome, clients: ClientFiles) -> None:
    """Write a checkpoint for `load`, changed clients first; weights and plain numbers only."""
    buffer = io.BytesIO()
    rows = {"rounds": outcome.round_rows, "clients": outcome.client_rows, "timing": outcome.timing_rows}
    rows["details"] = outcome.detail_rows
    state = {"label": label, "status": outcome.status, "seconds": outcome.seconds}
    torch.save(state | {"server": outcome.server, "clients": clients.write(), "rows": rows}, buffer)
    files.write_files({path: files.seal(buffer.getbuffer())})
    clients.forget()


def load(path: Path, label: str, federation: Federation, clients: ClientFiles) -> Outcome | None:
    """The outcome so far, or None; a checkpoint that is damaged, itself or in a client file, or of another run is
    reported and renamed.
    """
    if not path.exists():
        return None
    try:
        content = io.BytesIO(files.unseal(files.regular(path, LARGEST).read_bytes()))
        state = torch.load(content, map_location=federation.device, weights_only=True)
        foreign = re.sub(" [0-9a-f]{16}$", "", state["label"]) != label  # a digest of fedlib's source stood there once
        if not foreign:
            tables = [state["rows"][name] for name in ("rounds", "clients", "timing", "details")]
            if [row["round"] for row in tables[0]] != [*range(-1, len(tables[2]))]:
                raise ValueError("not one row a round")
            trained = {row["architecture"]: int(row["client"]) for row in tables[1] if row["round"] >= 0}
            if not isinstance(state["server"], dict) or state["status"] not in ("finished", "diverged"):
                raise ValueError("no state of a server")
            outcome = Outcome(federation, state["server"], state["status"], float(state["seconds"]), *tables)
            clients.resume(state["clients"])
            federation.last_trained = trained
            return outcome
    except Exception:  # another digest, or no zip, pickle or tensor: torch raises many kinds
        clientfiles.set_aside(path, "corrupted")
        return None
    clientfiles.set_aside(path, "foreign")
    return None


_received: list[int] | None = None  # the signals that the outermost `signals` of the main thread has collected


@contextmanager
def signals(quiet: bool = False) -> Iterator[list[int]]:
    """Collect the first SIGINT, SIGTERM or SIGHUP, so that the round or the writing of a record can end; a second one
    stops at once. Main thread only; an inner block shares the outer one's list. quiet: says nothing, as in a worker, for which
    its parent speaks.
    """
    global _received
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    if _received is not None:
        yield _received
        return
    received: list[int] = []

    def collect(number: int, frame: Any) -> None:
        if received:
            raise Interrupted("stopped inside a round; the last checkpoint, if any, is kept")
        received.append(number)
        if quiet:
            return
        said = "\nFinishing this round, then saving. Press Ctrl-C again to stop now."
        with suppress(OSError):  # the terminal may be gone
            try:
                print(said, file=sys.stdout if in_notebook() else sys.stderr)  # a notebook paints the latter red
            except RuntimeError:  # in the middle of another line, where only the system's own call may write
                os.write(2, f"{said}\n".encode())

    numbers = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:  # `nohup` ignores it
        numbers.append(hangup)
    before = {number: signal.signal(number, collect) for number in numbers}
    _received = received
    try:
        yield received
    finally:
        _received = None
        for number, handler in before.items():
            signal.signal(number, handler)
