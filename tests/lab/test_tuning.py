"""Hyper-parameters chosen by validation accuracy: what is searched, judged, noted, and gone on with."""

import json
import signal
import sys

import pytest

from fedlib import FedlibError, RunSpec, lab
from fedlib.lab import tuning

SPEC = RunSpec("FedProto", dataset="digits", num_clients=4, rounds=3)


def tune(trials: int = 3, **more):
    return lab.tune(SPEC, {"lr": (0.001, 0.1), "lam": [0.1, 1.0]}, trials=trials, progress=False, **more)


def test_the_best_validation_accuracy_is_chosen_and_every_trial_is_a_stored_run(small_digits):
    found = tune()
    assert found.trials == 3 and found.validation == found.table["validation"].max()
    assert found.spec.lr == found.chosen["lr"] and found.spec.params == {"lam": found.chosen["lam"]}
    records = {record.spec.lr: record for record in map(lab.read, lab.stored())}
    assert len(records) == 3
    for _, row in found.table.iterrows():
        record = records[row["lr"]]
        assert row["validation"] == 100 * record.rounds["validation_accuracy"].iloc[-1]
    assert all(0.001 <= lr <= 0.1 for lr in found.table["lr"]) and set(found.table["lam"]) <= {0.1, 1.0}


@pytest.mark.thorough
def test_test_images_decide_nothing(small_digits, monkeypatch):
    """The same choice where every test accuracy is turned round."""
    found, run = tune(), tuning.run

    def turned(*args, log, **kwargs):
        record = run(*args, log=lambda row: log(row | {"accuracy": 1 - row["accuracy"]}), **kwargs)
        record.rounds["accuracy"] = 1 - record.rounds["accuracy"]
        return record

    monkeypatch.setattr(tuning, "run", turned)
    for notes in (lab.home() / "tuning").glob("*.json"):
        notes.unlink()
    assert tune().table.equals(found.table)


@pytest.mark.thorough
def test_an_interrupted_search_ends_as_one_in_one_go(small_digits, monkeypatch, tmp_path):
    whole = tune(5)
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "another"))
    run, rounds = tuning.run, []

    def interrupted(*args, log, **kwargs):
        def stop(row):
            log(row)
            rounds.append(row["round"])
            if len(rounds) in (2, 8):  # within the first trial, and within a later one
                signal.raise_signal(signal.SIGINT)  # the round is finished and saved

        return run(*args, log=stop, **kwargs)

    monkeypatch.setattr(tuning, "run", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tune(5)
    again = tune(5)
    assert again.table.equals(whole.table) and again.spec == whole.spec
    assert len(rounds) == whole.table["rounds"].sum()  # no round was trained twice
    more = tune(6)
    assert more.trials == 6 and more.table[:5].equals(whole.table)


@pytest.mark.thorough
def test_a_bad_trial_is_pruned_and_kept_as_an_interrupted_run(small_digits):
    found = lab.tune(SPEC, {"lr": [1e-6, 0.05]}, trials=8, progress=False)
    pruned = found.table[found.table["state"] == "pruned"]
    assert found.chosen["lr"] == 0.05 and set(pruned["lr"]) <= {1e-6}
    assert set(lab.tune(SPEC, {"lr": [1e-6, 0.05]}, trials=8, prune=False, progress=False).table["state"]) == {
        "finished"
    }


@pytest.mark.thorough(None)
def test_a_diverged_trial_is_not_chosen(small_digits):
    found = lab.tune(SPEC, {"lr": [0.05, 1e30]}, trials=6, progress=False)
    assert found.chosen["lr"] == 0.05 and "diverged" in set(found.table["state"])
    with pytest.raises(FedlibError, match="FedProto: none of 1 trials ended with a finite validation accuracy"):
        lab.tune(SPEC, {"lr": [1e30]}, trials=1, progress=False)


def test_by_default_rates_and_weights_are_searched_a_decade_to_either_side():
    assert lab.default_ranges(SPEC) == {"lr": (0.001, 0.1), "lam": (0.1, 10.0)}
    of_fml = lab.default_ranges(RunSpec("FML"))
    assert of_fml["alpha"] == of_fml["beta"] == (0.0, 1.0)  # their limits


@pytest.mark.parametrize(
    ("ranges", "more", "line"),
    [
        ({"mumu": (0, 1)}, {}, "range = 'mumu' is unknown: did you mean 'momentum'"),
        (
            {"lr": (0.1, 0.01)},
            {},
            r"range of lr = \(0.1, 0.01\): must be \(low, high\), two numbers of which the first is smaller",
        ),
        ({"lr": "0.1"}, {}, "range of lr = '0.1': must be"),
        ({"lam": (-1.0, 1.0)}, {}, "lam = -1.0: must be at least 0"),
        ({}, {}, "ranges = {}: must be a name and its range"),
        (None, {"trials": 0}, "trials = 0: must be at least 1"),
        (None, {"trials": "many"}, "trials = 'many': must be a whole number"),
        (None, {"seed": -1}, "seed = -1: must be between"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_a_trial(small_digits, ranges, more, line):
    with pytest.raises(FedlibError, match=line):
        lab.tune(SPEC, ranges, **more)
    assert not lab.stored()


def test_without_validation_samples_there_is_nothing_to_choose_by():
    with pytest.raises(FedlibError, match="split = 'local-8:0:2': must be one with validation samples"):
        lab.tune(RunSpec("FedProto", overrides={"split": "local-8:0:2"}))


@pytest.mark.thorough
def test_notes_that_cannot_be_read_are_begun_again(small_digits):
    found = tune()
    (notes,) = (lab.home() / "tuning").glob("*.json")
    assert [one["state"] for one in json.loads(notes.read_text())["ended"]] == ["finished"] * 3
    notes.write_text("{")
    assert tune().table.equals(found.table)


def test_without_optuna_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FedlibError, match=r"pip install optuna"):
        tune()
