"""The same specification gives the same bits: again, with workers, from the command line, and killed and resumed."""

import random
import signal
import time
from pathlib import Path

import processes
import pytest
import torch
from processes import bits

from fedlib import RunSpec, lab, run, simulation, sweep
from fedlib.__main__ import main

ROUNDS = 5
# 2 of 12 clients a round, so that some come back and some are never visited
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


def folder(home: Path, spec: RunSpec) -> Path:
    return home / "runs" / lab.resolve(spec).key


@pytest.fixture
def rounds_computed(monkeypatch):
    """The rounds that this process computes."""
    computed, whole = [], simulation._round

    def counted(outcome, algorithm, context, *rest):
        computed.append(context.round)
        return whole(outcome, algorithm, context, *rest)

    monkeypatch.setattr(simulation, "_round", counted)
    return computed


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
@pytest.mark.parametrize(("jobs", "specs"), [(1, SPECS), (2, SPECS)])
def test_with_workers(jobs, specs, expected, rounds_computed):
    for record in sweep(specs, jobs=jobs, progress=False):
        assert bits(record.path) == expected[record.spec.algorithm]
    assert not rounds_computed  # all in the workers


@pytest.mark.slow
def test_from_the_command_line_with_two_openmp_threads(expected, home):
    with processes.started("-m", "fedlib", *COMMAND, home=home, OMP_NUM_THREADS="2") as process:
        output, _ = process.communicate(timeout=processes.SECONDS)
    assert process.returncode == 0, output
    assert bits(folder(home, FEDSSA)) == expected["FedSSA"]


@pytest.mark.thorough
def test_killed_at_a_random_moment(expected, home, rounds_computed, capsys):
    """SIGKILL, up to a few rounds after the first checkpoint (one a round here), then resumed in this process."""
    path, delay = folder(home, FEDPROTO), random.uniform(0, 0.5)
    source = "checkpoint.CHECKPOINT_SECONDS = 0.0\nrun(specs[0], progress=False)"
    with processes.started(*processes.code(source, [FEDPROTO]), home=home) as process:
        processes.wait_for((path / "checkpoint.pt").exists, "checkpoint")
        time.sleep(delay)
        process.kill()
        output, _ = process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0), output  # 0 where it was faster than the delay
    record = run(FEDPROTO, progress=False)
    assert bits(record.path) == expected["FedProto"], f"killed after {delay} seconds"
    assert 0 not in rounds_computed  # resumed, not started again
    assert capsys.readouterr().err == ""  # nothing was damaged
    assert not (path / "checkpoint.pt").exists()


@pytest.mark.thorough
def test_interrupted_from_the_keyboard(expected, home, rounds_computed, capsys):
    """SIGINT to the command: it finishes the round, saves and says so; the same command resumes."""
    with processes.started("-m", "fedlib", *COMMAND, home=home) as process:
        processes.wait_for_text(process, f"round 1/{ROUNDS} ")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=processes.SECONDS)
    assert process.returncode == 130, output
    assert "Finishing this round" in output and "the same command resumes" in output and "Traceback" not in output
    path = folder(home, FEDSSA)
    assert (path / "checkpoint.pt").exists() and not (path / "DONE").exists()
    assert main(COMMAND) == 0
    assert bits(path) == expected["FedSSA"]
    assert rounds_computed and 0 not in rounds_computed
    assert f"finished after {ROUNDS} of {ROUNDS} rounds" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_sweep_in_the_background_stops_at_sigterm(expected, home):
    """A shell's `&` starts its command with SIGINT ignored."""
    source = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsweep(specs, jobs=1, progress=False)"
    with processes.started(*processes.code(source, SPECS), home=home) as process:
        processes.wait_for(lambda: any(home.glob("runs/*/spec.json")), "run")
        process.terminate()
        output, _ = process.communicate(timeout=processes.SECONDS)
    assert process.returncode and "runs finished; the same command resumes" in output
    assert output.count("Traceback") == 1  # the script's own, as Ctrl-C ends it
    assert bits(run(FEDPROTO, progress=False).path) == expected["FedProto"]


@pytest.mark.thorough
def test_a_killed_sweep_leaves_a_worker_that_saves_and_stops(expected, home, capsys):
    with processes.started(*processes.code("sweep(specs, jobs=1, progress=False)", [FEDPROTO]), home=home) as process:
        processes.wait_for((folder(home, FEDPROTO) / "spec.json").exists, "run")
        process.kill()
    record = run(FEDPROTO, progress=False)  # waits for the lock while the worker ends its round
    assert bits(record.path) == expected["FedProto"]
    assert "corrupted" not in capsys.readouterr().err
