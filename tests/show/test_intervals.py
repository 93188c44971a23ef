"""Which round a run reports, by each rule, and what stands beside it."""

import numpy as np
import pandas as pd
import pytest

from fedlib import FedlibError
from fedlib.show import intervals, stats

ROUNDS = pd.DataFrame(
    {
        "round": [-1, *range(12)],
        "accuracy": [0.99, 0.1, 0.9, 0.3, 0.4, 0.5, 0.6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7],
        "validation_accuracy": [1.0, 0.1, 0.2, 0.3, 0.9, 0.5, 0.6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "accuracy_all": [0.0, *(np.arange(12) / 100)],
        "accuracy_selected": [0.0, *(np.arange(12) / 50)],
    }
)


class Run:
    def __init__(self, rounds=ROUNDS, status="finished", key="x"):
        self.key, self.status, self.rounds = key, status, rounds


def test_each_rule_reports_its_round():
    expected = {"last": 0.7, "last10": np.mean(ROUNDS["accuracy"].to_numpy()[3:]), "validation": 0.4, "best": 0.9}
    assert list(expected) == list(stats.RULES)
    for rule, value in expected.items():
        assert intervals.selected_accuracy(ROUNDS, rule) == pytest.approx(value, abs=1e-12)
    assert intervals.selected_accuracy(ROUNDS, "validation", "accuracy_all") == 0.03  # that round's, of another column
    assert intervals.selected_accuracy(ROUNDS, "last10", "accuracy_all") == pytest.approx(0.065)


def test_a_round_without_a_number_is_never_the_best():
    holes = ROUNDS.assign(
        validation_accuracy=ROUNDS["validation_accuracy"].where(ROUNDS["round"] != 0),
        accuracy=ROUNDS["accuracy"].where(ROUNDS["round"] != 4),
    )
    assert intervals.selected_accuracy(holes, "validation") == 0.4
    assert intervals.selected_accuracy(holes, "best") == 0.9
    with pytest.raises(
        FedlibError, match="last, last10 or best: under this protocol clients have no validation images"
    ):
        intervals.selected_accuracy(ROUNDS.assign(validation_accuracy=np.nan), "validation")


def test_only_whole_runs_report_anything():
    assert intervals.reported(Run(), "last") == pytest.approx(70)
    assert intervals.whole(Run()) and not intervals.whole(Run(status="diverged"))
    without_one = Run(ROUNDS[ROUNDS["round"] != 5])
    assert not intervals.whole(without_one) and np.isnan(intervals.reported(without_one, "last"))
    assert not intervals.whole(Run(ROUNDS[ROUNDS["round"] < 0]))


def test_student_t():
    mean, half = stats.student([1.0, 2.0, 6.0])
    assert mean == 3.0 and half == pytest.approx(4.302653 * 7**0.5 / 3**0.5, rel=1e-6)  # t of 2 degrees of freedom
    assert stats.student([4.0])[0] == 4.0 and np.isnan(stats.student([4.0])[1])
    assert stats.student([1.0, 3.0])[1] == pytest.approx(12.706205, rel=1e-6)


def test_a_metric_of_rounds_whose_clients_are_not_all_stored_is_not_known():
    """Round 1 has visited two clients, and the accuracy of one is there."""
    run = Run(pd.DataFrame({"round": [0, 1, 2], "visited": [1, 2, 2]}))
    run.clients = pd.DataFrame({"round": [0, 2, 2], "client": [0, 0, 1], "accuracy": [0.5, 0.5, 0.75]})
    spread = intervals.with_metric(run, "spread")["spread"]
    assert spread.isna().tolist() == [False, True, False]
