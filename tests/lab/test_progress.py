"""A bar says how far work is, where a person can see it: on a terminal, in a notebook, in a log a line for each tenth."""

import dataclasses
import io
import os
import threading

import nbformat
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_output
from traitlets.config import Config

from fedlib import FedlibError, RunSpec, devices, lab, sweep
from fedlib.lab import estimates, launch, progress
from fedlib.papers import reproduce


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_file_gets_a_line_for_every_tenth_and_no_bar(capsys):
    for shown in (True, False):
        with progress.Progress("FedSSA", 50, shown) as bar:
            for round in range(1, 101):
                bar.update(round / 2, f"accuracy {round / 200:.2f}")
            bar.update(99)  # it does not go beyond
            assert bar.done == 50
        lines = [f"FedSSA: {10 * tenth} %, accuracy {tenth / 20:.2f}" for tenth in range(1, 11)]
        assert capsys.readouterr().err.splitlines() == (lines if shown else [])


def test_a_terminal_gets_a_bar_that_ends_at_100_per_cent_but_not_after_an_error(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress.Progress("FedSSA", 50) as bar:
        bar.update(20, "round 2/5 accuracy 0.61")
        bar.update(10)  # it does not go back
        assert bar.done == 20
    assert "FedSSA  40 %|" in terminal.getvalue() and "round 2/5 accuracy 0.61" in terminal.getvalue()
    assert "100 %|" in terminal.getvalue()
    with pytest.raises(KeyboardInterrupt), progress.Progress("x", 10) as bar:
        bar.update(6)
        raise KeyboardInterrupt
    assert bar.done == 6


@pytest.mark.parametrize("terminal", [True, False])
def test_work_goes_on_where_the_terminal_has_gone(monkeypatch, terminal):
    class Gone(io.StringIO):
        def isatty(self):
            return terminal

        def write(self, text):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stderr", Gone())
    with progress.Progress("FedSSA", 50) as bar:
        bar.update(50)
    assert bar.done == 50
    elsewhere = threading.Thread(target=progress.Progress, args=("FedSSA", 50), daemon=True)
    elsewhere.start()
    elsewhere.join(60)  # a lock that was kept would keep it waiting for ever
    assert not elsewhere.is_alive()


@pytest.mark.thorough(None)
def test_a_notebook_gets_plain_text_and_keeps_no_trace_of_it():
    source = """
from fedlib.lab.progress import Progress
print("before")
with Progress("FedSSA", 2) as bar:
    bar.update(1, "round 1/2 accuracy 0.50")
"""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    said = []

    class Client(NotebookClient):
        def process_message(self, msg, cell, cell_index):
            said.append((msg["msg_type"], msg["content"].get("data")))
            return super().process_message(msg, cell, cell_index)

    Client(book, timeout=60, kernel_name="python3").execute()
    shown = [data["text/plain"] for kind, data in said if kind == "update_display_data" and data]
    assert any("FedSSA" in text and "50 %" in text and "round 1/2 accuracy 0.50" in text for text in shown)
    assert all(set(data) <= {"text/plain"} for _, data in said if data)
    reproduce._tidy(book.cells[0])
    (output,) = book.cells[0].outputs
    assert output["output_type"] == "stream" and output["name"] == "stdout" and output["text"] == "before\n"


@pytest.mark.parametrize("name", ["FedSSA", "FedProto", "FedGH", "pFedHR", "FedMD"])
@pytest.mark.parametrize("clients", [3, 10])
def test_the_number_of_images_is_known_without_dealing_them(name, clients):
    paper = name if name in ("FedSSA", "FedGH", "pFedHR") else None
    item = lab.resolve(RunSpec(algorithm=name, num_clients=clients, participation=1.0, paper=paper))
    dealt = sum(len(train) for train, _, _ in lab.partition_of(item)) * item.spec.rounds * item.spec.local_epochs
    assert item.samples == pytest.approx(dealt, rel=0.05)


def timed(seconds, **fields):
    """A finished run that took so many processor seconds."""
    return estimates.Timed(lab.resolve(RunSpec(**{"num_clients": 10, "rounds": 10} | fields)), seconds)


def expected(known, **fields):
    return lab.expected_seconds([timed(0, **fields).run], known)[0]


def test_only_the_networks_that_take_part_count():
    """Three clients of pFedHR's scenario have no M4, whose images cost a hundred times M1's."""
    few, with_m4 = (lab.resolve(RunSpec("pFedHR", num_clients=count, participation=1.0)) for count in (3, 4))
    assert estimates.training_work(with_m4) > 10 * estimates.training_work(few)


def test_an_estimate_goes_by_the_run_most_like_it():
    """The median of runs that are equally like it, of one's own method first, in proportion to the work."""
    own = [timed(seconds, algorithm="FedSSA", seed=seed) for seed, seconds in enumerate((50.0, 60.0, 100.0))]
    other = [timed(240.0, algorithm="pFedES")]
    assert expected(own + other, algorithm="FedSSA", seed=7) == pytest.approx(60)
    assert expected(own + other, algorithm="FedSSA", rounds=20) == pytest.approx(120)
    assert expected(own + other, algorithm="pFedES", rounds=20) == pytest.approx(480)
    another_method, another_size = (
        timed(600.0, algorithm="LG-FedAvg"),
        timed(120.0, algorithm="Standalone", protocol="paper", batch_size=16),
    )
    assert expected([another_size, another_method], algorithm="Standalone") == pytest.approx(120)


def test_runs_of_another_kind_of_device_or_processor_count_where_no_other_is_known():
    core, card = timed(600.0, algorithm="FedSSA"), timed(60.0, algorithm="pFedES", rounds=20, device="cuda")
    for device in ("cuda", "cuda:1", "cuda:0,cuda:1"):
        assert expected([core, card], algorithm="FedSSA", device=device) == pytest.approx(30)
        assert expected([core], algorithm="FedSSA", device=device) == pytest.approx(600)
    assert expected([core, card], algorithm="FedSSA") == pytest.approx(600)
    there = estimates.Timed(core.run, 60, of_record=True)
    assert expected([core, there], algorithm="FedSSA") == pytest.approx(600)
    assert lab.expected_seconds([core.run], [core, there], of_record=True) == [pytest.approx(60)]
    assert expected([], algorithm="FedSSA") == pytest.approx(estimates.training_work(core.run) / estimates.OF_RECORD)


def test_who_trains_in_slow_bf16_is_told_so(tmp_path, monkeypatch, capsys):
    runs = {name: [timed(0, precision=name).run] for name in ("fp32", "bf16")}
    before = torch.get_rng_state()
    assert estimates.bf16_cost() > 0 and torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(estimates, "bf16_cost", lambda: 0.6)
    assert not any(map(lab.slow_arithmetic, runs.values()))
    monkeypatch.setattr(estimates, "bf16_cost", lambda: 7.9)
    assert not lab.slow_arithmetic(runs["fp32"])
    monkeypatch.setattr(devices, "is_there", lambda device: True)
    assert not lab.slow_arithmetic([timed(0, precision="bf16", device="cuda").run])
    line = lab.slow_arithmetic(runs["bf16"])
    assert line.startswith("precision = 'bf16' takes about 8 times as long as 'fp32' on this processor")
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    spec = RunSpec("Standalone", num_clients=30, participation=1 / 30, rounds=1, precision="bf16")
    lab.run(spec)
    lab.run(spec)  # read, so nothing is said
    assert capsys.readouterr().err.count(line) == 1


@pytest.mark.thorough(None)
def test_estimates_go_by_processor_seconds_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    record = lab.run(RunSpec("Standalone", num_clients=2, rounds=2), progress=False)
    (own,) = estimates.timed()
    assert own.seconds == record.provenance["processor_seconds"] > 0
    assert own.seconds == pytest.approx(record.timing["processor_seconds"].sum(), abs=0.01)
    assert expected([own], algorithm="Standalone", num_clients=2, rounds=2, participation=1.0) > 0
    other = lab.run(RunSpec("Standalone", num_clients=2, rounds=2, seed=1), progress=False)
    monkeypatch.setattr(estimates, "NEWEST", 1)
    for newest, oldest in ((record, other), (other, record)):
        os.utime(oldest.path / "DONE", (0, 0))
        os.utime(newest.path / "DONE", (1, 1))
        assert [one.run.key for one in estimates.timed()] == [newest.key]
    diverged = dataclasses.replace(record, status="diverged")
    older = dataclasses.replace(record, provenance={"seconds": 7.0})
    assert [one.seconds for one in estimates.Timed.of([diverged, older, record])] == [own.seconds]


def test_the_longest_run_starts_first_whatever_it_keeps(tmp_path, monkeypatch):
    """M4 has 46 times the FLOPs of CNN-1, and pFedES took three times as long as Standalone when it was timed."""
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    runs = [
        ("Standalone", "CNN-1", "none"),
        ("pFedES", "CNN-1", "server"),
        ("Standalone", "M4", "none"),
    ]
    known = [timed(60.0, scenario="CNN-1"), timed(180.0, algorithm="pFedES", scenario="CNN-1")]
    monkeypatch.setattr(estimates, "timed", lambda: known)
    specs = [RunSpec(algorithm=name, scenario=networks, keep=keep) for name, networks, keep in runs]
    given = []
    monkeypatch.setattr(launch, "_in_workers", lambda todo, *others: [given.extend(todo) or "not trained here"])
    with pytest.raises(FedlibError, match="not trained here"):
        sweep(specs, progress=False)
    first = [(item.spec.algorithm, item.spec.scenario) for item in given]
    assert first == [("Standalone", "M4"), ("pFedES", "CNN-1"), ("Standalone", "CNN-1")]
    given.clear()
    with pytest.raises(FedlibError, match="not trained here"):
        sweep(specs, progress=False, in_order=True)
    assert [(item.spec.algorithm, item.spec.scenario, item.spec.keep) for item in given] == runs


def test_of_runs_that_differ_in_what_they_keep_the_one_that_keeps_most_is_trained_in_the_first_ones_place():
    kept = [("FedSSA", "none"), ("FedGH", "server"), ("FedSSA", "clients"), ("FedGH", "none")]
    specs = [RunSpec(algorithm=name, keep=keep, seed=991) for name, keep in kept]
    assert [(item.spec.algorithm, item.spec.keep) for item in lab.missing(specs)] == [
        ("FedSSA", "clients"),
        ("FedGH", "server"),
    ]


@pytest.mark.thorough
def test_whoever_asks_is_told_how_many_runs_remain_after_each(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    specs = [RunSpec("Standalone", num_clients=2, rounds=1, seed=seed) for seed in range(3)]
    finished = []

    def each(left):
        finished.append((left, len([path for path in lab.stored() if lab.read(path) is not None])))

    sweep(specs, jobs=1, progress=False, each=each)
    assert [left for left, _ in finished] == [2, 1, 0] and all(count >= 3 - left for left, count in finished)
    sweep(specs, jobs=1, progress=False, each=each)  # now nothing is trained
    assert len(finished) == 3


def test_a_notice_is_on_standard_error_and_in_a_notebook_an_output_that_is_not_committed(monkeypatch, capsys):
    progress.notice("waiting")
    assert capsys.readouterr().err == "waiting\n"
    shown = []
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, **how: shown.append((data, how["metadata"])))
    progress.notice("waiting")
    assert capsys.readouterr().err == "" and shown == [({"text/plain": "waiting"}, progress.NOTICE)]
    kept = new_output("display_data", {"text/plain": "a table"})
    cell = new_code_cell(outputs=[new_output("display_data", shown[0][0], metadata=shown[0][1]), kept])
    reproduce._tidy(cell)
    assert cell.outputs == [kept]


def test_an_interrupt_is_one_line_in_a_notebook():
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"hist_file": ":memory:"}}))
    try:
        shown = []
        shell._showtraceback = lambda kind, value, lines: shown.append(lines)
        shell.run_cell("from fedlib.lab.checkpoint import Interrupted\nraise Interrupted('stopped after round 1 of 3')")
        assert shown == [["stopped after round 1 of 3"]]
    finally:
        shell.history_manager.end_session()
        InteractiveShell.clear_instance()
