"""The papers' numbers with typed settings, and ours beside them."""

import numpy as np
import pandas as pd
import pytest

from fedlib.papers import notebook, printed


def test_no_runs_beside_a_paper():
    empty = notebook.Runs([], []).summary("last")
    table = printed.accuracies("FedSSA", "Table 1")
    beside = printed.beside_paper(empty, table, ["method", "dataset", "clients"])
    assert {"ours", "paper", "difference", "verdict", "lead"} <= set(beside.columns)


def test_a_level_is_inside_or_outside_of_our_interval():
    ours = pd.DataFrame(
        [("A", 70.0, 1.0, 3, 0), ("B", 70.0, np.nan, 1, 0), ("C", np.nan, np.nan, 3, 1), ("D", 70.0, 0.5, 3, 0)],
        columns=["method", "ours", "ci95", "n", "diverged"],
    )
    paper = pd.DataFrame({"method": list("ABCD"), "value": [70.9, 70.9, 70.9, 70.9]})
    found = printed.beside_paper(ours, paper, ["method"])["verdict"].tolist()
    assert found == ["inside the interval", "one seed, no interval", "diverged", "outside the interval"]


def test_the_methods_that_the_paper_prints_are_counted_place_by_place():
    ours = pd.DataFrame({"method": ["A", "A"], "place": ["x", "y"], "ours": 70.0, "ci95": 1.0, "n": 3, "diverged": 0})
    paper = pd.DataFrame({"method": list("ABC") * 2, "place": ["x"] * 3 + ["y"] * 3, "value": [1, 2, np.nan, 4, 5, 6]})
    assert printed.beside_paper(ours, paper, ["method", "place"])["in_paper"].tolist() == [2, 3]


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
