"""Computing runs: one in this process, several side by side in worker processes; their clients on the cores that are left."""

import copy
import dataclasses
import json
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias

import filelock
import numpy as np

from .. import border, check, data, devices, randomness, training
from ..errors import FedlibError, coerce, one_line, others_code, require
from ..federation import Federation
from . import checkpoint, costs, files
from .build import federation_of, made_by_own_parts
from .estimates import cores, expected_seconds, slow_arithmetic
from .progress import Progress, notice
from .records import Record, begin_session, clear_folder, lock_of, read, state, store, usable, write
from .spec import FilledSpec, Resolved, RunSpec, resolve

Pipe: TypeAlias = "Connection[Any, Any]"
Log: TypeAlias = Callable[[FilledSpec, dict[str, Any]], Any]


def run(
    spec: RunSpec,
    scale: str | None = None,
    *,
    progress: bool = True,
    reuse_stale: bool = False,
    log: Log | None = None,
) -> Record:
    """The record of `spec`: read if it is finished, resumed or computed otherwise.

    A record whose numbers today's code does not compute any more (`numerics`) is renamed and trained again, or
    returned if `reuse_stale`. If a person's own network or partition makes something else than it did for the stored
    run, though its source is the same, that is another run. One process computes; another that asks for the same run
    waits and reads. Of several threads of one process, one trains and the others wait (`sweep` trains side by side). The clients
    of a round train side by side on the cores that this process may use (Linux), with the same bits.
    log: called as `log(spec, row)` with the row of each round that is trained, as it ends; where it fails, a line says so and the run goes
    on without it. Raises FedlibError for what a user can mend,
    Interrupted on Ctrl-C, which a run in another thread than the main one does not hear.
    """
    resolved = resolve(spec, scale)
    resolved.check_data()  # else a stored record would answer for other data
    return _run(resolved, progress, reuse_stale, _harmless(log))


def _harmless(log: Log | None) -> Log | None:
    """A person's `log`, which gets copies, and is called no more once it has failed."""
    require(log is None or callable(log), "log", log, "a function of a specification and a row of its rounds, or None")
    failed: list[FedlibError] = []

    def told(spec: FilledSpec, row: dict[str, Any]) -> None:
        try:
            with others_code("log"), randomness.fork_everything(np.random.default_rng(0)):
                if log is not None and not failed:
                    log(copy.deepcopy(spec), copy.deepcopy(row))
        except FedlibError as error:
            failed.append(error)
            notice(f"log is called no more, the runs go on: {one_line(str(error))}")

    return log and told


def _run(
    resolved: Resolved,
    progress: bool,
    reuse_stale: bool,
    log: Log | None,
    share: int | None = None,
) -> Record:
    """`run`. share: in a sweep's worker, the cores that it may use; it does not wait for a run that is computed elsewhere."""
    record = usable(resolved, reuse_stale)
    if record is not None and not resolved.own:
        return record
    before = None if record else state(store() / resolved.key)[1]
    resolved = resolved.joined(before.spec) if before else resolved  # trained again, it has no less than it had
    lost = {*before.spec.metrics.split(",")} - {*resolved.spec.metrics.split(","), ""} if before else set()
    if lost:
        notice(f"{resolved.label}: trained again without {', '.join(sorted(lost))}, which is not registered here")
    with training.one_thread():  # a builder of the user's own may touch torch's generator
        built = federation_of(resolved)
        border.fits(resolved.simulated, built)
        made = made_by_own_parts(resolved, built)
    known = made if record is None else record.provenance.get("made", made)
    changed = [part for part in made if made[part] != known.get(part)]
    if changed:
        stored, resolved = resolved.key, resolved.remade(made)
        said = f"{', '.join(changed)} made something else for {stored}, from the same source"
        notice(f"{resolved.label}: its {said}: this is another run, {resolved.key}")
        record = usable(resolved, reuse_stale)
    if record is not None:
        return record
    try:
        store().mkdir(parents=True, exist_ok=True)
        lock = lock_of(resolved.key)
        _acquire(lock, resolved.label, patience=None if share is None else PATIENCE)
        try:
            record = usable(resolved, reuse_stale, mend=True)
            if record is not None:
                return record
            if share is None and progress and (line := slow_arithmetic([resolved])):
                notice(line)
            with randomness.exclusive:  # before the signals: Ctrl-C ends the waiting for another thread
                if not (store() / resolved.key / "checkpoint.pt").exists():  # else it was, when the run began
                    check.rehearse(built, resolved.simulated, resolved.spec.rounds)
                    resolved.check_own_parts()
                return _compute(resolved, built, made, progress, log, share or cores())
        except BaseException:
            if not (store() / resolved.key).exists():
                Path(lock.lock_file).unlink(missing_ok=True)
            raise
        finally:
            lock.release()
    except OSError as error:
        raise FedlibError(f"store = {str(store())!r}: cannot write there ({error.strerror or error})") from error


class Elsewhere(Exception):
    """Another process, here or on another machine with this store, computes the run."""


PATIENCE = 2.0  # seconds for which a sweep's worker waits for a run that is computed elsewhere


def _acquire(lock: filelock.BaseFileLock, label: str, patience: float | None) -> None:
    """Take a run's lock: raises Elsewhere after `patience` seconds or, where that is None, says so and waits."""
    try:
        lock.acquire(timeout=patience or 0)
    except filelock.Timeout:
        if patience is not None:
            raise Elsewhere from None
        notice(f"{label}: another process computes this run; waiting for it")
        try:
            lock.acquire()
        except RuntimeError:  # filelock's, of a lock that this thread holds
            raise FedlibError(f"{label}: this very thread computes the run, and cannot wait for itself") from None


def _compute(
    resolved: Resolved,
    built: Federation,
    made: dict[str, str],
    progress: bool,
    log: Log | None,
    processes: int,
) -> Record:
    """Train (or resume) and store; the locks are held. What a failed start leaves is removed. processes: as many may
    train side by side.
    """
    path, spec = store() / resolved.key, resolved.spec
    asked = dataclasses.asdict(spec) | {"device": devices.kind(spec.device)}
    stored = json.dumps({"spec": asked, "hashed": resolved.hashed}, indent=1).encode()
    setting = training.processes.set(processes)
    try:
        with checkpoint.signals() as stop:
            path.mkdir(exist_ok=True)
            for leftover in path.glob(".*.tmp"):  # of a process that was killed while it wrote
                leftover.unlink()
            if not (path / "DONE").exists():  # else a whole record is only to be replaced by one that keeps more
                files.write_bytes(path / "spec.json", stored)
            commits = begin_session(path)
            with Progress(resolved.label, spec.rounds, progress) as bar:

                def after_round(row: dict[str, Any], timing: dict[str, Any]) -> None:
                    bar.update(row["round"] + 1, f"{_reached(row, spec.rounds)}, {timing['seconds']:.1f} s a round")
                    resolved.check_own_parts()
                    if row["round"] == 0:
                        resolved.check_data()
                    if log is not None:
                        log(spec, row)

                outcome = checkpoint.simulate(
                    built, resolved.simulated, spec.rounds, spec.participation,
                    checkpoint=path / "checkpoint.pt", label=resolved.session, progress=after_round, patience=spec.patience,
                    enough=costs.used_up(resolved),
                )  # fmt: skip
            resolved.check_data()
            more = ({"commits": commits} if len(commits) > 1 else {}) | ({"made": made} if made else {})
            write(path, outcome, resolved, stored, more)
            if stop:
                raise checkpoint.Interrupted(f"{resolved.key} is finished and stored; stopped after it")
    except BaseException:
        clear_folder(path)
        raise
    finally:
        training.processes.reset(setting)
    record = read(path)
    assert record is not None
    return record


def _reached(row: dict[str, Any], rounds: int | None) -> str:
    """Progress of a run, for a bar: its round and the mean accuracy over the clients visited so far."""
    return f"round {row['round'] + 1}/{rounds} accuracy {row['accuracy']:.3f}"


def missing(specs: Iterable[RunSpec], scale: str | None = None, reuse_stale: bool = False) -> list[Resolved]:
    """The runs among `specs` that have no usable record, in their order; of duplicates, one that keeps and measures what any does."""
    resolved: dict[str, Resolved] = {}
    for item in (resolve(spec, scale) for spec in specs):
        resolved[item.key] = resolved.get(item.key, item).joined(item.spec)
    names = (name for item in resolved.values() for name in (item.spec.dataset, item.spec.public_dataset) if name)
    for name in dict.fromkeys(names):
        data.check(name)
    return [item for item in resolved.values() if usable(item, reuse_stale) is None]


def sweep(
    specs: Iterable[RunSpec],
    scale: str | None = None,
    *,
    jobs: int = 2,
    progress: bool = True,
    reuse_stale: bool = False,
    in_order: bool = False,
    each: Callable[[int], None] | None = None,
    log: Log | None = None,
) -> list[Record]:
    """The records of `specs` in order; what is missing is trained by `jobs` workers, side by side, each with its share of the
    cores, longest first or as `specs` has it (in_order); a single run here. each: called with how many runs remain whenever
    one is finished; log: as of `run`, here, with the rounds of all.

    On Ctrl-C or SIGTERM the workers finish their rounds and save; the same call resumes. An error of one run is
    raised when all others are done; missing data that cannot be downloaded, before anything is trained.
    """
    allowed = "a list of RunSpec; of a single one, `run` gives the record"
    require(isinstance(specs, Iterable) and not isinstance(specs, str | Mapping), "specs", specs, allowed)
    with others_code("specs"):
        specs = list(specs)
    jobs = coerce("jobs", jobs, int)
    require(jobs >= 1, "jobs", jobs, "at least 1")
    require(each is None or callable(each), "each", each, "a function of how many runs remain, or None")
    log = _harmless(log)
    wanted = missing(specs, scale, reuse_stale)
    for device in dict.fromkeys(name for item in wanted for name in item.spec.device.split(",")):
        devices.found(device)
    single = len(wanted) == 1  # a worker would take seconds to start
    here = [item for item in wanted if single or not item.portable]
    todo = [item for item in wanted if item.portable and not single]
    if jobs > 1 and len(here) > 1:
        line = f"{len(here)} of {len(wanted)} runs use classes or data of this session"
        notice(f"{line}; worker processes do not know them, so they run here, one after the other")
    failures = []
    if todo:
        _fetch(todo)
        expected = dict(zip((item.key for item in todo), expected_seconds(todo), strict=True))
        if not in_order:
            todo.sort(key=lambda item: expected[item.key], reverse=True)
        if progress and (line := slow_arithmetic(todo)):
            notice(line)
        with Progress(f"0 of {len(todo)} runs", sum(expected.values()), progress) as bar:
            told = each and (lambda remaining: each(remaining + len(here)))
            failures = _in_workers(todo, min(jobs, len(todo)), bar, expected, reuse_stale, told, log)
    for place, item in enumerate(here, 1):
        try:
            run(item.spec, progress=progress and single, reuse_stale=reuse_stale, log=log)
        except FedlibError as error:
            if single:
                raise
            failures.append(str(error))
        else:
            if each:
                each(len(here) - place)
    if failures:
        raise FedlibError("; ".join(failures))
    return [_run(resolve(spec, scale), False, reuse_stale, None) for spec in specs]  # `missing` has checked their data


def missing_data(todo: Iterable[Resolved]) -> list[str]:
    """The data sets of these runs that are not here yet."""
    names = dict.fromkeys(name for item in todo for name in (item.spec.dataset, item.spec.public_dataset) if name)
    return [name for name in names if not data.available(name)]


def _fetch(todo: list[Resolved]) -> None:
    """Download missing data once, before any worker starts, so that a failure is one line and not one per run."""
    for name in missing_data(todo):
        data.load(name)


def _in_workers(
    todo: list[Resolved],
    jobs: int,
    bar: Progress,
    expected: dict[str, float],
    reuse_stale: bool,
    each: Callable[[int], None] | None,
    log: Log | None,
) -> list[str]:
    """Train `todo` in `jobs` worker processes; returns what went wrong, one line each. The bar goes by `expected`, each
    run's seconds by its key; `each` is told how many runs remain.

    A worker is a Python of its own, so a script needs no main guard and a notebook no importable main module. It gets
    specifications and sends reports through a pipe that nothing else knows, so that what a run prints disturbs nothing.
    No pool of concurrent.futures or loky: where one of its workers is killed, all its runs fail.
    """
    workers = dict(_start_worker(reuse_stale, max(1, cores() // jobs)) for _ in range(jobs))
    working, waiting, finished = list(workers), list(todo), 0
    deaths: list[str] = []
    failed: dict[str, list[str]] = {}  # what went wrong -> the runs
    given: dict[Pipe, Resolved] = {}
    done: dict[str, float] = dict.fromkeys(expected, 0.0)  # seconds of `expected`, by run

    def give(pipe: Pipe) -> None:
        """Send a worker its next run, or None, at which it ends."""
        item = waiting.pop(0) if waiting and not stop else None
        if item is not None:
            given[pipe] = item
        with suppress(OSError):  # it died: the end of its pipe says so
            pipe.send(
                item and dataclasses.replace(item.spec, device=_turn(item.spec.device, list(workers).index(pipe)))
            )

    def hear(pipe: Pipe) -> None:
        """What a worker has to say, or that it has ended."""
        nonlocal finished
        try:
            kind, said = pipe.recv()
        except (EOFError, OSError):
            working.remove(pipe)
            status = workers[pipe].wait()
            if status and not stop:
                deaths.append(f"a worker died (exit {status}); the same command resumes its run")
            return
        item = given[pipe]
        if kind == "round":  # a resumed run has the rounds before it done at once
            done[item.key] = expected[item.key] * (said["round"] + 1) / item.spec.rounds
            bar.update(sum(done.values()), f"{item.spec.algorithm} {_reached(said, item.spec.rounds)}")
            if log is not None:
                log(item.spec, said)
            return
        if kind == "elsewhere":
            waiting.append(item)  # the others first
            give(pipe)
            return
        finished += kind == "finished"
        if kind == "failed":
            failed.setdefault(said, []).append(f"{item.spec.algorithm} on {item.spec.dataset}")
        bar.label, done[item.key] = f"{finished} of {len(todo)} runs", expected[item.key]
        bar.update(sum(done.values()))
        give(pipe)
        if each and kind == "finished":
            each(len(todo) - finished)

    with checkpoint.signals() as stop:
        try:
            for pipe in workers:
                give(pipe)
            while working and not stop:
                for speaking in wait(working, timeout=1.0):  # which a signal does not end
                    hear(speaking)  # type: ignore[arg-type]
            for worker in workers.values() if stop else ():
                worker.terminate()  # each finishes its round and saves
            while working:
                for speaking in wait(working):
                    hear(speaking)  # type: ignore[arg-type]
        finally:
            for worker in workers.values():
                if worker.poll() is None:
                    worker.kill()
    if stop:
        raise checkpoint.Interrupted(f"stopped with {finished} of {len(todo)} runs finished; the same command resumes")
    return deaths + [f"{_counted(runs)}: {error}" for error, runs in failed.items()]


def _turn(devices: str, worker: int) -> str:
    """The device that a worker, the first of which is 0, takes of several."""
    names = devices.split(",")
    return names[worker % len(names)]


def _counted(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _start_worker(reuse_stale: bool, share: int) -> tuple["Pipe", "subprocess.Popen[bytes]"]:
    """A worker process and the pipe to it, in a session of its own so that a terminal's Ctrl-C reaches the parent alone.
    It prints to standard error, and has nothing to read.
    """
    ours, its = multiprocessing.Pipe()
    code = f"from fedlib.lab.launch import work; work({its.fileno()}, {reuse_stale}, {share})"
    with its:
        worker = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
    return ours, worker


def work(descriptor: int, reuse_stale: bool, share: int) -> None:
    """A worker's life: specifications in, reports out, until there are no more or its parent is gone. share: the cores
    that it may use.
    """
    parent: Pipe = Connection(descriptor)

    def report(spec: FilledSpec, row: dict[str, Any]) -> None:
        try:
            parent.send(("round", row))
        except OSError:  # the parent is gone
            signal.raise_signal(signal.SIGTERM)

    with suppress(KeyboardInterrupt, EOFError, OSError), checkpoint.signals(quiet=True):
        while spec := parent.recv():
            said = "finished", ""
            try:
                _run(resolve(spec), False, reuse_stale, report, share)
            except Elsewhere:
                said = "elsewhere", ""
            except FedlibError as error:
                said = "failed", str(error)
            parent.send(said)
