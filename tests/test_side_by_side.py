"""Visits of a round in copies of this process: the bits of one after the other, whatever becomes of a copy."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from processes import SECONDS, started

from fedlib import ALGORITHMS, FedlibError, RunSpec, lab, side_by_side, simulate, simulation, training
from fedlib.algorithms import make
from fedlib.algorithms.fedssa import FedSSA
from fedlib.lab import checkpoint, clientfiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies of a process on Linux alone")
ROUNDS, PARTICIPATION = 3, 0.5
SWITCHED = [("FML", {"score_shared": True}), ("FedSSA", {"aggregation": "whole"}), ("pFedHR", {"public_only": True})]


@pytest.fixture
def copies(monkeypatch, visits_made_here):
    """Three of them, however little there is to do."""
    monkeypatch.setattr(simulation, "WORTH_COPIES", 0.0)
    setting = training.processes.set(3)
    yield
    training.processes.reset(setting)


def alone(call):
    """What `call` gives without copies."""
    setting = training.processes.set(1)
    try:
        return call()
    finally:
        training.processes.reset(setting)


def federation(**protocol):
    return tiny.federation_of([[k % 3, (k + 1) % 3, k % 3] for k in range(8)], **protocol)


def played(method="FedSSA", **protocol):
    return simulate(federation(**protocol), make(method), ROUNDS, PARTICIPATION)


def assert_same(one, other):
    assert one.digest() == other.digest() and one.detail_rows == other.detail_rows
    assert lab.rounds_of(one).to_csv() == lab.rounds_of(other).to_csv()
    assert lab.clients_of(one).to_csv() == lab.clients_of(other).to_csv()


@pytest.fixture
def visits(tmp_path, monkeypatch):
    """Which process made each visit of FedSSA."""
    log, plain = tmp_path / "visits.txt", FedSSA.local_round

    def watched(self, client, message, context):
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
        return plain(self, client, message, context)

    monkeypatch.setattr(FedSSA, "local_round", watched)
    return lambda: [int(line) for line in log.read_text().split()]


@pytest.mark.thorough("FedSSA", "FedKD")
@pytest.mark.parametrize(("name", "params"), [*((name, {}) for name in ALGORITHMS), *SWITCHED], ids=str)
def test_every_method_keeps_its_bits(name, params, copies, small_digits):
    scenario = "homogeneous" if ALGORITHMS[name].needs == "architecture" else "heterogeneous"
    params = ({"clusters": 2} if name == "pFedHR" else {}) | params
    known = {"dataset": "digits", "scenario": scenario, "num_clients": 6, "public_images": 16}
    run = lab.resolve(RunSpec(name, params=params, **known))

    def call():
        return simulate(lab.federation_of(run), run.simulated, ROUNDS, PARTICIPATION)

    assert_same(call(), alone(call))


def test_all_visits_but_the_first_are_made_in_copies(copies, visits):
    outcome = played()
    made = visits()
    assert len(made) == 3 * 4 and made.count(os.getpid()) == 1
    assert_same(outcome, alone(played))


def test_copies_of_a_run_that_keeps_its_clients_in_files(copies, tmp_path, monkeypatch):
    """There is room for one client in memory: copies read the files, and this process alone writes them."""
    writers, plain = [], clientfiles.ClientFiles._write

    def noted(self, id):
        writers.append(os.getpid())
        Path(tmp_path, f"by-{os.getpid()}").touch()
        plain(self, id)

    monkeypatch.setattr(clientfiles.ClientFiles, "_write", noted)
    monkeypatch.setattr(clientfiles, "MEMORY", 0)
    outcome = checkpoint.simulate(
        federation(), make("FedSSA"), ROUNDS, PARTICIPATION, checkpoint=tmp_path / "x.pt", every=0
    )
    assert [file.name for file in tmp_path.glob("by-*")] == [f"by-{os.getpid()}"]
    assert_same(outcome, alone(played))


def test_what_a_killed_copy_had_begun_is_done_here(copies, monkeypatch):
    plain, parent = FedSSA.local_round, os.getpid()

    def killed(self, client, message, context):
        if os.getpid() != parent and client.id == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, client, message, context)

    expected = alone(played)
    monkeypatch.setattr(FedSSA, "local_round", killed)
    with pytest.warns(RuntimeWarning, match="was killed; what it had begun is done here"):
        outcome = played()
    assert_same(outcome, expected)


def test_an_error_is_raised_as_by_a_visit_made_here(copies, monkeypatch):
    def broken(self, client, message, context):
        raise KeyError("rows")

    monkeypatch.setattr(FedSSA, "local_round", broken)
    with pytest.raises(FedlibError, match=r"FedSSA.local_round in round 0 of client \d: KeyError: 'rows'"):
        played()


def test_a_diagnostic_of_any_kind_of_number_arrives(copies, monkeypatch):
    plain = FedSSA.local_round

    def strange(self, client, message, context):
        upload = plain(self, client, message, context)
        upload.diagnostics |= {"double": np.float64(0.1), "single": np.float32(0.1), "tensor": torch.tensor(0.1)}
        return upload

    monkeypatch.setattr(FedSSA, "local_round", strange)
    outcome = played()
    assert outcome.round_rows[-1]["double"] == 0.1 and outcome.round_rows[-1]["tensor"] == np.float32(0.1)
    assert_same(outcome, alone(played))


@pytest.mark.parametrize("why", ["inherits", "short", "memory"])
def test_visits_that_follow_from_each_other_are_short_or_large_are_made_here(why, copies, visits, monkeypatch):
    if why == "short":
        monkeypatch.setattr(simulation, "WORTH_COPIES", 60.0)
    if why == "memory":
        sizes = {"MemAvailable": 1_900_000, "VmHWM": 1_000_000}
        monkeypatch.setattr(side_by_side, "_kibibytes", lambda file, name: sizes[name])
    played(**{"inherit": "first_visit"} if why == "inherits" else {})
    assert {*visits()} == {os.getpid()}


def test_a_run_counts_the_processor_seconds_of_its_copies(copies, monkeypatch):
    plain, parent = FedSSA.local_round, os.getpid()

    def busy(self, client, message, context):
        until = time.process_time() + 0.2
        while os.getpid() != parent and time.process_time() < until:
            pass
        return plain(self, client, message, context)

    monkeypatch.setattr(FedSSA, "local_round", busy)
    assert sum(row["processor_seconds"] for row in played().timing_rows) > 0.2 * 10


STOPPED = """
import os, sys, time
from pathlib import Path
from fedlib import lab, simulation
from fedlib.algorithms.fedssa import FedSSA
from fedlib.lab import launch

simulation.WORTH_COPIES = 0.0
plain, parent, log = FedSSA.local_round, os.getpid(), open(sys.argv[2], "a")

def slow(self, client, message, context):
    if os.getpid() != parent and sys.argv[3] == "slow":
        print(os.getpid(), file=log, flush=True)
        time.sleep(2)
    return plain(self, client, message, context)

FedSSA.local_round = slow
launch.cores = lambda: 3
try:
    record = lab.run(lab.RunSpec("FedSSA", dataset="digits", num_clients=6, participation=1.0, rounds=3), progress=False)
    print(record.digest)
except lab.Interrupted as stopped:
    print(stopped)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["once", "twice", "killed"])
def test_a_stopped_run_leaves_no_copies_and_goes_on_to_the_same_bits(how, tmp_path):
    """Its copies get the terminal's Ctrl-C, too."""
    file, log = tmp_path / "script.py", tmp_path / "copies.txt"
    file.write_text(STOPPED)
    log.touch()

    def script(pace, home):
        return started(str(file), str(home), str(log), pace, home=home)

    with script("fast", tmp_path / "whole") as process:
        expected = process.communicate(timeout=SECONDS)[0].split()[-1]
    with script("slow", tmp_path / "home") as process:
        until = time.monotonic() + SECONDS
        while not log.read_text():
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
        seen = [int(pid) for pid in log.read_text().split()]
        for number in {"once": [signal.SIGINT], "twice": [signal.SIGINT] * 2, "killed": [signal.SIGKILL]}[how]:
            process.send_signal(number)
            for pid in seen if number == signal.SIGINT else ():
                os.kill(pid, number)
            time.sleep(0.3)
        said = process.communicate(timeout=SECONDS)[0]
    assert how == "killed" or "stopped " in said
    while any(Path(f"/proc/{pid}").exists() for pid in seen):
        assert time.monotonic() < until
        time.sleep(0.05)
    with script("fast", tmp_path / "home") as process:
        assert process.communicate(timeout=SECONDS)[0].split()[-1] == expected
