"""The papers' numbers with typed settings, and ours beside them."""

import numpy as np
import pandas as pd
import pytest

from fedlib.papers import notebook, printed

ROWS = pd.DataFrame(
    [  # method, setting, ours, ci95, n, selected, paper
        ("A", "one", 70.0, 1.0, 3, 71.5, 90.0),
        ("B", "one", 75.0, 1.0, 3, 75.0, 95.0),
        ("C", "one", 72.0, 1.0, 3, 71.0, np.nan),
        ("A", "two", 60.0, np.nan, 1, 60.0, 90.0),
        ("B", "two", 61.0, np.nan, 1, 60.5, 95.0),
        ("A", "three", 61.0, 1.0, 3, 61.0, 90.0),
        ("B", "three", 60.0, 1.0, 3, 60.0, 95.0),
    ],
    columns=["method", "setting", "ours", "ci95", "n", "selected", "paper"],
)


def test_standing_says_rank_lead_and_verdict():
    one, two, three = printed.standing(ROWS, "B")
    assert one == "one: B 75.00, rank 1 of 3, +3.00 against C (n = 3); in the paper +5.00 against A: holds."
    assert two.endswith("+1.00 against A (n = 1); in the paper +5.00 against A: holds in direction.")
    assert three.endswith("rank 2 of 2, -1.00 against A (n = 3); in the paper +5.00 against A: does not hold.")


def test_standing_needs_intervals_apart_to_hold():
    near = ROWS[ROWS["setting"] == "one"].assign(ci95=1.5)
    assert printed.standing(near, "B")[0].endswith("holds in direction.")  # 3 points apart, 1.5 + 1.5: they touch


def test_standing_without_the_papers_number_or_without_records():
    (sentence,) = printed.standing(ROWS[ROWS["setting"] == "one"], "C")
    assert sentence.endswith("-3.00 against B (n = 3); the paper prints nothing to compare with.")
    (sentence,) = printed.standing(ROWS[ROWS["setting"] == "one"], "C", claimed=True)
    assert sentence.endswith("(n = 3); the paper claims a lead: does not hold.")
    empty = notebook.Runs([], []).summary("last")
    table = printed.accuracies("FedSSA", "Table 1")
    beside = printed.beside_paper(empty, table, ["method", "dataset", "clients"])
    assert {"ours", "paper", "difference", "verdict"} <= set(beside.columns)
    assert printed.standing(beside, "FedSSA") == [printed.NO_RECORD]


@pytest.mark.parametrize(
    ("paper", "item", "row"),
    [
        ("FedSSA", "Table 2", ("FedSSA", "cifar10", 100, 0.1, "N = 100, C = 10 %", 92.92)),
        ("FedGH", "Table 3", ("FedGH", "cifar10", 10, 1.0, "N = 10, C = 100 %", 97.6)),
        ("pFedHR", "Table 2", ("FedMD", "mnist", 12, 4 / 12, "labelled, Non-IID", 91.44)),
        ("pFedHR", "Table 4", ("FedAvg", "mnist", 12, 4 / 12, "M1, IID", np.nan)),
    ],
)
def test_printed_settings_are_typed_and_labelled(paper, item, row):
    table = printed.accuracies(paper, item)
    assert list(table) == ["method", "dataset", "num_clients", "participation", "clients", "value"]
    method, dataset, clients, participation, label, value = row
    (found,) = table[(table[["method", "dataset", "clients"]] == [method, dataset, label]).all(axis=1)].to_dict(
        "records"
    )
    assert (found["num_clients"], found["participation"]) == (clients, participation)
    if not np.isnan(value):
        assert found["value"] == value
