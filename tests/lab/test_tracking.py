"""Trackers are told of every round, in this process, in workers, of trials and of stored runs; they change no number and end
no run.
"""

import random
import sys

import numpy as np
import pytest
import torch

from fedlib import FedlibError, RunSpec, lab, run, sweep
from fedlib.__main__ import main

SPEC = RunSpec("Standalone", dataset="digits", scenario="CNN-5", num_clients=3, rounds=2, batch_size=64)
COMMAND = ["run", "Standalone", "--scenario", "CNN-5", "--num-clients", "3", "--batch-size", "64", "--rounds", "2"]


class Watcher:
    """Notes what it is told."""

    def __init__(self):
        self.rows, self.finished = [], []

    def __call__(self, key, spec, row):
        self.rows.append((key, spec.seed, int(row["round"]), row["accuracy"]))

    def finish(self, key):
        self.finished.append(key)


def told(record):
    rows = record.rounds.query("round >= 0")
    return [
        (record.key, record.spec.seed, number, value)
        for number, value in zip(rows["round"], rows["accuracy"], strict=True)
    ]


def test_a_run_is_told_round_by_round_and_a_stored_one_at_once(small_digits):
    first, second, seen = Watcher(), Watcher(), []
    with lab.track(first):
        record = run(SPEC, progress=False, log=lambda row: seen.append(len(first.rows)))
        run(SPEC, progress=False)  # which is told already
    with lab.track(second, first):
        run(SPEC, progress=False)
    assert seen == [1, 2] and second.rows == told(record)
    assert first.rows == 2 * told(record) and first.finished == 2 * [record.key] and second.finished == [record.key]
    run(RunSpec(**vars(SPEC) | {"seed": 1}), progress=False)
    assert len(first.rows) == 4  # outside of the block


@pytest.mark.thorough
def test_a_sweep_is_told_of_its_workers_too():
    watcher = Watcher()
    with lab.track(watcher):
        (record,) = sweep([SPEC], jobs=1, progress=False)
    assert watcher.rows == told(record) and watcher.finished == [record.key]


def test_trials_are_told_the_pruned_ones_too(small_digits):
    pytest.importorskip("optuna")
    watcher = Watcher()
    with lab.track(watcher):
        lab.tune(SPEC, {"lr": (0.01, 0.1)}, trials=2, progress=False)
    assert len(set(watcher.finished)) == 2 and len(watcher.rows) == 4


def meddle(key, spec, row):
    """Everything that could be changed from here."""
    row["accuracy"] = spec.overrides["momentum"] = spec.params["x"] = 9.0
    torch.set_num_threads(3)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    np.random.seed(7), random.seed(7)  # noqa: NPY002
    torch.rand(3), np.random.rand(), random.random()  # noqa: NPY002


def fail(key, spec, row):
    raise SystemExit("the server\nis away")


def test_a_tracker_changes_no_number_and_its_error_is_one_line(small_digits, home, monkeypatch, capsys):
    plain = run(SPEC, progress=False)
    monkeypatch.setenv("FEDLIB_HOME", str(home / "other"))
    watcher, drawn = Watcher(), torch.random.get_rng_state()
    with lab.track(meddle, fail, watcher):
        watched = run(SPEC, progress=False)
    assert watched.digest == plain.digest and watched.rounds.equals(plain.rounds) and watched.spec == plain.spec
    assert torch.equal(torch.random.get_rng_state(), drawn) and torch.get_default_dtype() == torch.float32
    assert watcher.rows == told(plain)
    line = "tracking ended, the runs go on: fail: "
    said = [text for text in capsys.readouterr().err.splitlines() if text.startswith("tracking")]
    assert len(said) == 1 and said[0].startswith(line) and "the server is away" in said[0]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("tensorbord:x", "tracker = 'tensorbord' is unknown: did you mean 'tensorboard'?"),
        (3, "tracker = 3: must be a function of key, specification and row, or tensorboard:FOLDER"),
        ("wandb:x", "tracker = 'wandb:x': wandb is not installed: pip install wandb"),
    ],
)
def test_a_tracker_that_cannot_be_is_one_line_before_anything_is_trained(given, line, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(FedlibError, match=line), lab.track(given):
        raise AssertionError("entered")


def test_the_command_line_says_what_is_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main([*COMMAND, "--track", "tensorboard"]) == 2
    assert "tensorboard is not installed: pip install tensorboard" in capsys.readouterr().err
    assert not lab.store().exists()


# -------------------------------------------------------------------------------------------- where they are installed


def test_tensorboard_has_the_rounds(small_digits, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for written in range(2):  # the second time from the stored record
        assert main([*COMMAND, "--track", f"tensorboard:{tmp_path / 'boards'}"]) == 0
        (stored,) = lab.stored()
        found = EventAccumulator(str(tmp_path / "boards" / stored.name))
        found.Reload()
        assert {"accuracy", "loss", "upload_words"} <= set(found.Tags()["scalars"])
        events = [(event.step, event.value) for event in found.Scalars("accuracy")]
        rows = lab.read(stored).rounds.query("round >= 0")
        assert events == [(step, pytest.approx(value, rel=1e-6)) for step, value in enumerate(rows["accuracy"])], (
            written
        )


@pytest.mark.filterwarnings("ignore")  # its own
def test_mlflow_has_the_rounds_once(small_digits, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    for _ in range(2):  # the second time from the stored record: what is there stays as it is
        with lab.track(f"mlflow:{tmp_path / 'flows'}"):
            record = run(SPEC, progress=False)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'flows'}/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("fedlib").experiment_id])
    history = [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, "accuracy")]
    assert history == [row[2:] for row in told(record)] and found.info.run_name == record.key
    assert found.data.params["rounds"] == "2" and found.info.status == "FINISHED"


def test_wandb_has_the_rounds(small_digits, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with lab.track("wandb:papers"):
        record = run(SPEC, progress=False)
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert record.key in folder.name and list(folder.glob("*.wandb"))
