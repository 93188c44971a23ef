"""Hyper-parameters chosen by validation accuracy: what is searched, judged, and gone on with."""

import dataclasses

import pandas as pd
import pytest

from fedlib import FedlibError, RunSpec, algorithms, fields, lab

SPEC = RunSpec("FedProto", dataset="digits", num_clients=4, rounds=1)


def tune(trials: int = 3, **more):
    return lab.tune(SPEC, {"lr": (0.001, 0.1), "lam": [0.1, 2.0]}, trials=trials, jobs=1, progress=False, **more)


@pytest.mark.thorough
def test_the_best_validation_accuracy_is_chosen_and_more_trials_go_on(small_digits):
    found = tune()
    assert found.trials == 3 and found.validation == found.table["validation"].max()
    assert found.spec.lr == found.chosen.get("lr") and found.spec.params.get("lam") == found.chosen.get("lam")
    assert pd.isna(found.table["lr"][0]) and len(lab.stored()) == 3  # the first has the values that are given
    given = lab.run(SPEC, progress=False).rounds["validation_accuracy"]
    assert found.table["validation"][0] == 100 * given.iloc[-1] and len(lab.stored()) == 3
    assert all(0.001 <= lr <= 0.1 for lr in found.table["lr"][1:]) and set(found.table["lam"][1:]) <= {0.1, 2.0}
    more = tune(4)
    assert more.table[:3].equals(found.table) and len(lab.stored()) == 4


@pytest.mark.thorough
def test_a_diverged_trial_is_not_chosen(small_digits):
    found = lab.tune(SPEC, {"lr": [1e30]}, trials=2, jobs=1, progress=False)
    assert found.chosen == {} and found.table["validation"].isna().tolist() == [False, True]
    with pytest.raises(FedlibError, match="FedProto: none of 1 trials ended with a finite validation accuracy"):
        lab.tune(dataclasses.replace(SPEC, lr=1e30), {"lr": [1e30]}, trials=1, progress=False)


def test_by_default_every_positive_number_is_searched_declared_or_not(monkeypatch):
    assert lab.default_ranges(SPEC) == {"lr": (0.001, 0.1), "lam": (0.1, 10.0)}
    of_fml = lab.default_ranges(RunSpec("FML"))
    assert of_fml["alpha"] == of_fml["beta"] == (0.0, 1.0)  # their limits

    class Plain(algorithms.ALGORITHMS["FedProto"]):
        own: float = 0.5
        share: float = fields.setting(0.2, ge=0, le=1)
        off: float = 0.0

    monkeypatch.setitem(algorithms.ALGORITHMS, "Plain", dataclasses.dataclass(frozen=True)(Plain))
    found = lab.default_ranges(RunSpec("Plain", dataset="digits", num_clients=4))
    assert found["own"] == (0.05, 5.0) and found["share"] == (0.0, 1) and "off" not in found


@pytest.mark.parametrize(
    ("ranges", "more", "line"),
    [
        ({"mumu": (0, 1)}, {}, "range = 'mumu' is unknown: did you mean 'momentum'"),
        (
            {"lr": (0.1, 0.01)},
            {},
            r"range of lr = \(0.1, 0.01\): must be \(low, high\), two numbers of which the first",
        ),
        ({"lr": "0.1"}, {}, "range of lr = '0.1': must be"),
        ({"lam": (-1.0, 1.0)}, {}, "lam = -1.0: must be at least 0"),
        ({}, {}, "ranges = {}: must be a name and its range"),
        (None, {"trials": 0}, "trials = 0: must be at least 1"),
        (None, {"trials": "many"}, "trials = 'many': must be a whole number"),
        (None, {"seed": -1}, "seed = -1: must be at least 0"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_a_trial(small_digits, ranges, more, line):
    with pytest.raises(FedlibError, match=line):
        lab.tune(SPEC, ranges, **more)
    assert not lab.stored()


def test_without_validation_samples_there_is_nothing_to_choose_by():
    with pytest.raises(FedlibError, match="split = 'local-8:0:2': must be one with validation samples"):
        lab.tune(RunSpec("FedProto", overrides={"split": "local-8:0:2"}))
