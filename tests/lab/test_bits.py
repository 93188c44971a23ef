"""The same specification gives the same bits: again, with workers, from the command line, and resumed, however and wherever it was
stopped: KINDS of runs, WAYS in which this process stops them, file operations before which it ends, and PROCESSES to be stopped.
"""

import errno
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import processes
import pytest
import torch
from processes import bits
from test_own_parts import SPEC as OWN
from test_own_parts import defined  # noqa: F401, a fixture

from fedlib import FedlibError, RunSpec, lab, run, simulation, sweep
from fedlib.__main__ import main
from fedlib.lab import checkpoint, clientfiles, launch, progress

# -------------------------------------------------------------------------------------------------- in this process

# 2 of 8 clients a round, so that some come back and some are never visited
SMALL: dict[str, Any] = {"scenario": "M1,M2", "num_clients": 8, "participation": 0.25, "rounds": 5, "batch_size": 16}
WORDS = 2 * 2 * (50 * 10 + 10)  # of LG-FedAvg a round: two clients' headers, down and up

KINDS = {
    "clients that are kept": RunSpec("FedSSA", keep="clients", seed=1, **SMALL),
    "a client's own state": RunSpec("FedProto", **SMALL),
    "first visits inherit": RunSpec(
        "FedSSA", params={"aggregate_over": "all"}, overrides={"inherit": "first_visit", "augmentation": "released"}, **SMALL
    ),
    "a budget": RunSpec("LG-FedAvg", budget_words=3.5 * WORDS, **SMALL),
    "parts of one's own": replace(OWN, rounds=4),
}  # fmt: skip
FILES = {"DONE", "spec.json", "provenance.json", "rounds.csv", "clients.csv", "timing.csv"}


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def undisturbed(small_digits, defined, known, tmp_path, monkeypatch):  # noqa: F811
    """The bits of a run that nothing stops, in a store of its own, computed when it is first asked for."""

    def computed(spec):
        key = lab.resolve(spec).key
        with monkeypatch.context() as patch:
            patch.setenv("FEDLIB_HOME", str(tmp_path / "undisturbed"))
            known[key] = known.get(key) or bits(run(spec, progress=False).path)
        return known[key]

    return computed


@pytest.fixture
def rounds_computed(monkeypatch):
    """The rounds that this process computes."""
    computed, whole = [], simulation._round

    def counted(outcome, algorithm, context, *rest):
        computed.append(context.round)
        return whole(outcome, algorithm, context, *rest)

    monkeypatch.setattr(simulation, "_round", counted)
    return computed


def stopped(spec, error=lab.Interrupted, match: str | None = "stopped after round", **named) -> None:
    with pytest.raises(error, match=match):
        run(spec, progress=False, **named)


def at(number: int, after: int = 0, times: int = 1):
    """Signals at the end of round `after`."""

    def log(spec, row) -> None:
        for _ in range(times if row["round"] == after else 0):
            signal.raise_signal(number)

    return log


def twice(spec, patch) -> None:
    for after in (0, 1):
        stopped(spec, log=at(signal.SIGTERM, after))


def a_second_one(spec, patch) -> None:
    stopped(spec, match="stopped inside a round", log=at(signal.SIGINT, times=2))


def inside_a_round(spec, patch) -> None:
    hits, seen = simulation._hits, []

    def ended(algorithm, client, num_classes):
        seen.append(client.id)
        if len(seen) > 2 * spec.num_clients * (spec.participation or 1):  # in the third round
            raise KeyboardInterrupt
        return hits(algorithm, client, num_classes)

    patch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    patch.setattr(simulation, "_hits", ended)
    stopped(spec, KeyboardInterrupt, None)


def without_its_terminal(spec, patch) -> None:
    """A hang-up; what would be shown after it is an error."""

    def gone(self, done, text="") -> None:
        if done == 1:
            signal.raise_signal(signal.SIGHUP)
            raise OSError(errno.EIO, "Input/output error")

    patch.setattr(progress.Progress, "update", gone)
    stopped(spec, (lab.Interrupted, FedlibError), None)


def without_its_folder(spec, patch) -> None:
    """Somebody deletes it after each round: what is in memory is written into a new one, checkpoints and the record alike."""
    patch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    run(spec, progress=False, log=lambda spec, row: shutil.rmtree(lab.store()))


def while_the_record_is_written(number):
    """The record is finished, the message says so, and whoever would go on to another run is stopped."""

    def way(spec, patch) -> None:
        plain = launch.write

        def struck(*given) -> None:
            signal.raise_signal(number)
            plain(*given)

        patch.setattr(launch, "write", struck)
        stopped(spec, KeyboardInterrupt, "is finished and stored; stopped after it")

    return way


def with_half_a_file(spec, patch) -> None:
    stopped(spec, log=at(signal.SIGTERM))
    (path,) = lab.stored()
    (path / ".checkpoint.pt.4711.tmp").write_bytes(b"half")


NONE: list[int] = []  # it is finished, and only read
WAYS = {  # how it is stopped, and the first of the rounds that are computed when it is asked for again
    "Ctrl-C": (lambda spec, patch: stopped(spec, log=at(signal.SIGINT)), [1]),
    "SIGTERM": (lambda spec, patch: stopped(spec, log=at(signal.SIGTERM, 1)), [2]),
    "hang-up": (lambda spec, patch: stopped(spec, log=at(signal.SIGHUP)), [1]),
    "SIGTERM, resumed, and again": (twice, [2]),
    "a second Ctrl-C": (a_second_one, [1]),
    "inside a round": (inside_a_round, [2]),
    "its terminal gone": (without_its_terminal, [1]),
    "its folder deleted": (without_its_folder, NONE),
    "Ctrl-C while the record is written": (while_the_record_is_written(signal.SIGINT), NONE),
    "SIGTERM while the record is written": (while_the_record_is_written(signal.SIGTERM), NONE),
    "hang-up while the record is written": (while_the_record_is_written(signal.SIGHUP), NONE),
    "half a file left": (with_half_a_file, [1]),
}


AGAIN = "SIGTERM, resumed, and again"
CASES = [*((way, "clients that are kept") for way in WAYS if way != AGAIN), *((AGAIN, kind) for kind in KINDS)]


@pytest.mark.thorough(
    *("Ctrl-C", "a second Ctrl-C", "inside a round", "its terminal gone", "its folder deleted", "half a file left"),
    *("SIGTERM while the record is written", "first visits inherit"),
)
@pytest.mark.parametrize(("way", "kind"), CASES)
def test_stopped_and_resumed(way, kind, undisturbed, rounds_computed, monkeypatch, capsys):
    """What is then in the run's folder is a finished run's, and no more. Of each kind with room for one client in memory."""
    (stop, first), spec = WAYS[way], KINDS[kind]
    expected = undisturbed(spec)
    monkeypatch.setattr(clientfiles, "MEMORY", 0 if way == AGAIN else clientfiles.MEMORY)
    with monkeypatch.context() as patch:
        stop(spec, patch)
    rounds_computed.clear()
    record = run(spec, progress=False)
    assert bits(record.path) == expected and rounds_computed[:1] == first
    assert {path.name for path in record.path.iterdir()} == FILES | (
        {"final-clients.pt"} if spec.keep != "none" else set()
    )
    assert "corrupted" not in capsys.readouterr().err and record.path == lab.store() / lab.resolve(spec).key
    assert kind != "first visits inherit" or record.rounds["inherited"].iloc[3:].sum() > 0


class Killed(BaseException):
    """Stands for the end of the process: nothing handles it."""


@pytest.mark.thorough
@pytest.mark.parametrize("room", [0, clientfiles.MEMORY])
@pytest.mark.parametrize("before", [None, 1])
def test_killed_before_any_file_operation(room, before, undisturbed, home, monkeypatch, capsys):
    """The process ends just before its n-th renaming or deletion of a file, for every third n, in its first session or in one that
    goes on after round `before`; from then on nothing is written or deleted any more.
    """
    spec = KINDS["clients that are kept"]
    expected, ended = undisturbed(spec), 0
    monkeypatch.setattr(clientfiles, "MEMORY", room)
    for last in range(0, 1000, 3):
        left = [last]

        def counted(operation, left=left):
            def call(*given: Any, **named: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return operation(*given, **named)

            return call

        shutil.rmtree(home, ignore_errors=True)
        if before is not None:
            stopped(spec, log=at(signal.SIGTERM, before))
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
            patch.setattr(os, "replace", counted(os.replace))
            patch.setattr(Path, "unlink", counted(Path.unlink))
            try:
                run(spec, progress=False)
                break
            except Killed:
                ended += 1
        assert bits(run(spec, progress=False).path) == expected, f"killed before file operation {last}"
    assert ended > 6 and "corrupted" not in capsys.readouterr().err


# --------------------------------------------------------------------------------------------- in processes of their own

ROUNDS = 5
# 2 of 12 clients a round, on the networks that every process knows
SPECS = [
    RunSpec(algorithm=name, num_clients=12, participation=0.17, rounds=ROUNDS, batch_size=64, seed=seed)
    for name, seed in (("FedSSA", 1), ("FedProto", 2))
]
FEDSSA, FEDPROTO = SPECS
COMMAND = ["run", "FedSSA", "--num-clients=12", "--participation=0.17", "--rounds=5", "--batch-size=64", "--seed=1"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bits of both runs, computed in this process, undisturbed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(tmp_path_factory.mktemp("undisturbed")))
        return {spec.algorithm: bits(run(spec, progress=False).path) for spec in SPECS}


@pytest.mark.thorough
def test_again_whatever_the_number_of_threads(expected, rounds_computed):
    torch.set_num_threads(2)
    try:
        record = run(FEDPROTO, progress=False)
    finally:
        torch.set_num_threads(1)
    assert bits(record.path) == expected["FedProto"]
    assert rounds_computed == list(range(ROUNDS))
    again = run(FEDPROTO, progress=False)  # read, not recomputed
    assert again.rounds.equals(record.rounds) and len(rounds_computed) == ROUNDS


@pytest.mark.thorough
@pytest.mark.parametrize("jobs", [1, 2])
def test_with_workers(jobs, expected, rounds_computed):
    for record in sweep(SPECS, jobs=jobs, progress=False):
        assert bits(record.path) == expected[record.spec.algorithm]
    assert not rounds_computed  # all in the workers


@pytest.mark.slow
def test_from_the_command_line_with_two_openmp_threads(expected, home):
    with processes.started("-m", "fedlib", *COMMAND, home=home, OMP_NUM_THREADS="2") as process:
        output, _ = process.communicate(timeout=processes.SECONDS)
    assert process.returncode == 0, output
    assert bits(lab.store() / lab.resolve(FEDSSA).key) == expected["FedSSA"]


EACH_ROUND = "checkpoint.CHECKPOINT_SECONDS = 0.0\nrun(specs[0], progress=False)"
IGNORED = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as a shell's `&` starts its command
SWEEP = "sweep(specs, jobs=1, progress=False)"
PROCESSES: dict[str, tuple[Any, ...]] = {
    # what runs, what is waited for (on its output or in the store), what it is sent then, its exit status, what it says
    # as often as it does (None: it is not listened to), and whether its first round is kept for sure
    "killed": (
        processes.code(EACH_ROUND, [FEDPROTO]), "checkpoint.pt", signal.SIGKILL, {-9, 0}, {}, True
    ),  # 0 where it was faster than the delay
    "Ctrl-C to the command": (
        ["-m", "fedlib", *COMMAND], f"round 1/{ROUNDS} ", signal.SIGINT, {130},
        {"Finishing this round": 1, "the same command resumes": 1, "Traceback": 0}, True,
    ),
    "SIGTERM to a sweep in the background": (  # the Traceback is the script's own, as Ctrl-C ends it
        processes.code(IGNORED + SWEEP, SPECS), "spec.json", signal.SIGTERM, {1, 130, -2, -15},
        {"of 2 runs finished; the same command resumes": 1, "Traceback": 1}, False,
    ),
    "a killed sweep, whose worker saves": (processes.code(SWEEP, [FEDPROTO, FEDSSA]), "spec.json", signal.SIGKILL, {-9}, None, False),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_stopped_and_the_command_resumes(name, expected, home, rounds_computed, capsys):
    """At a random moment of its next half a second, where it is killed."""
    arguments, awaited, number, statuses, says, kept = PROCESSES[name]
    with processes.started(*arguments, home=home) as process:
        if awaited.startswith("round"):
            processes.wait_for_text(process, awaited)
        else:
            processes.wait_for(lambda: any(home.glob(f"runs/*/{awaited}")), awaited)
        time.sleep(delay := random.uniform(0, 0.5) if number == signal.SIGKILL else 0)
        process.send_signal(number)
        output = process.communicate(timeout=processes.SECONDS)[0] if says is not None else ""
        assert process.wait(processes.SECONDS) in statuses, output
    assert all(output.count(text) == times for text, times in (says or {}).items()), output
    spec = next(spec for spec in SPECS if (lab.store() / lab.resolve(spec).key).exists())
    command = ["run", spec.algorithm, *COMMAND[2:-1], f"--seed={spec.seed}"]
    assert main(command) == 0  # where a worker saves, it waits for the lock
    said = capsys.readouterr()
    assert f"finished after {ROUNDS} of {ROUNDS} rounds" in said.out and "corrupted" not in said.err
    path = lab.store() / lab.resolve(spec).key
    assert bits(path) == expected[spec.algorithm], f"stopped after {delay} seconds"
    assert not (kept and 0 in rounds_computed) and not (path / "checkpoint.pt").exists()
