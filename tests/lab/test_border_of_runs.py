"""A person's own code in runs that are stored: what prints, reads, forks, or hands back NumPy's numbers spoils none."""

import os
import signal
import threading

import numpy as np
import pytest
import tiny
import torch
from test_plugins import MINE, SPEC, package  # noqa: F401, a fixture

from fedlib import FedlibError, RunSpec, algorithms, lab, models, randomness, run, simulate
from fedlib.algorithms import Algorithm, make
from fedlib.federation import Message
from fedlib.lab import launch
from fedlib.lab.progress import Progress
from fedlib.randomness import fork_torch

NOISY = MINE.replace(
    "        context.train()\n",
    """        import os, sys
        print("a debugging line")
        print('{"round": "a line of JSON"}', flush=True)
        os.system("echo from a program")
        if sys.stdin.read() or os.read(0, 9):  # in a worker there is nothing
            raise EOFError
        context.train()
""",
)


def trained_in_workers(specs: list[RunSpec]) -> list[str]:
    todo = [lab.resolve(spec) for spec in specs]
    failed: list[str] = []

    def train() -> None:
        expected = {item.key: 1.0 for item in todo}
        failed.extend(launch._in_workers(todo, 2, Progress("", 1.0, False), expected, False, None, None))

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive(), "the sweep hangs"
    return failed


@pytest.mark.thorough
def test_a_worker_whose_method_prints_and_reads_goes_on(package, capfd):  # noqa: F811
    (package / "mine_of_the_test.py").write_text('print("hello from an import")\n' + NOISY)
    specs = [RunSpec(**SPEC, seed=seed) for seed in (0, 1, 2)]
    assert trained_in_workers(specs) == []
    printed = capfd.readouterr()
    assert printed.err.count("a debugging line") >= 6 and "from a program" in printed.err
    assert "debugging" not in printed.out and printed.err.count("hello from an import") >= 2
    assert [record.status for record in lab.sweep(specs, progress=False)] == ["finished"] * 3


@pytest.mark.thorough
def test_a_worker_that_is_killed_is_a_line_and_the_others_go_on(package):  # noqa: F811
    dying = (
        "        import os, signal\n        if context.seed == 0:\n            os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (package / "mine_of_the_test.py").write_text(
        MINE.replace("        context.train()\n", dying + "        context.train()\n")
    )
    specs = [RunSpec(**SPEC, seed=seed) for seed in (0, 1, 2)]
    assert trained_in_workers(specs) == ["a worker died (exit -9); the same command resumes its run"]
    assert [record is not None for record in map(lab.read, lab.stored())].count(True) == 2


@pytest.mark.thorough
def test_what_python_prints_before_a_worker_has_begun_is_passed_on(package, capfd):  # noqa: F811
    (package / "sitecustomize.py").write_text("print('a banner')\nprint('[1]')\nprint('{}')")
    assert trained_in_workers([RunSpec(**SPEC)]) == []
    assert "a banner" in capfd.readouterr().err


def test_a_package_that_ends_python_is_left_out(package, capsys):  # noqa: F811
    (package / "mine_of_the_test.py").write_text("import sys\nsys.exit(3)\n")
    lab.resolve(RunSpec("Standalone", dataset="digits"))
    assert capsys.readouterr().err.count("is left out (SystemExit: 3)") == 3


class Noted(Algorithm):
    """Hands back what NumPy makes."""

    def local_round(self, client, message, context):
        context.train()
        return Message(num_samples=np.int64(client.num_samples), diagnostics={"mu": np.float32(0.5)})

    def aggregate(self, server, uploads, context):
        return {"count": np.int64(3), "sizes": [np.int64(1)], "more": {"a": np.float64(2), "b": np.arange(2)}}


SMALL = {"scenario": "tiny", "num_clients": 4, "participation": 0.5, "rounds": 2, "batch_size": 16}


@pytest.fixture(autouse=True)
def small(small_digits, monkeypatch):
    monkeypatch.setitem(models.SCENARIOS, "tiny", ("tiny-a",))


def test_numpys_numbers_are_stored():
    algorithms.register(Noted)
    record = run(RunSpec("Noted", **SMALL), progress=False)
    assert record.rounds["count"].iloc[1:].tolist() == [3, 3]
    assert record.details[0] == {"round": 0, "sizes": [1], "more": {"a": 2.0, "b": [0, 1]}}


kept: dict[int, float] = {}


class Elsewhere(Algorithm):
    def local_round(self, client, message, context):
        context.train()
        return Message(diagnostics={"before": kept.get(context.round, 0.0)})

    def aggregate(self, server, uploads, context):
        kept[context.round + 1] = 1.0  # read a round later, when nothing is made twice


def test_what_a_method_keeps_in_a_global_ends_the_run_before_it_trains(monkeypatch):
    monkeypatch.setattr(launch, "_compute", lambda *args: pytest.fail("trains"))
    algorithms.register(Elsewhere)
    with pytest.raises(
        FedlibError, match=r"^method of Elsewhere digits N=4 seed=0: a global, .* which no checkpoint keeps"
    ):
        run(RunSpec("Elsewhere", **SMALL), progress=False)


class Later(Elsewhere):
    def aggregate(self, server, uploads, context):
        if context.round > 1:  # two are rehearsed
            super().aggregate(server, uploads, context)


def test_what_a_method_keeps_in_a_global_from_its_third_round_on_ends_the_run_there():
    algorithms.register(Later)
    kept.clear()
    logged = []
    with pytest.raises(
        FedlibError, match=r"^method of Later digits N=4 seed=0: a global, .* which no checkpoint keeps"
    ):
        run(RunSpec("Later", **SMALL | {"rounds": 4}), progress=False, log=lambda _, row: logged.append(row["round"]))
    assert logged == [0, 1]


def test_a_run_within_its_own_log_is_a_line(capsys):
    spec = RunSpec("Standalone", **SMALL)
    run(spec, progress=False, log=lambda _, row: run(spec, progress=False))
    assert "this very thread computes the run, and cannot wait for itself" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_another_thread_trains_does_not_wait_for_ever():
    holding, free = threading.Event(), threading.Event()

    def hold() -> None:
        with randomness.exclusive:
            holding.set()
            free.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(60)
    child = os.fork()
    if not child:  # nothing of pytest's is to be done in the child
        signal.alarm(60)
        status = 1
        try:
            built = tiny.federation_of([[0, 1, 2]])
            status = 0 if simulate(built, make("Standalone"), 1).status == "finished" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    free.set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_thread_that_trains_may_fork_and_its_child_goes_on_with_the_lock():
    with randomness.exclusive:
        child = os.fork()
        if not child:
            os._exit(0 if randomness.exclusive._is_owned() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_thread_that_seeds_torch_while_a_run_draws_is_found():
    def draw() -> None:
        with fork_torch(np.random.default_rng(0)):
            thread = threading.Thread(target=torch.manual_seed, args=(1,))
            thread.start()
            thread.join()

    with pytest.raises(FedlibError, match=r"^torch.manual_seed was called while a run draws .* or by another thread"):
        draw()
    with pytest.raises(ZeroDivisionError), fork_torch(np.random.default_rng(0)):
        torch.manual_seed(1)
        raise ZeroDivisionError  # what went wrong first is what is said
