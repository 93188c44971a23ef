"""The papers' numbers with typed settings, and ours beside them."""

import numpy as np
import pandas as pd
import pytest

from fedlib.errors import FedlibError
from fedlib.papers import notebook, printed

ROWS = pd.DataFrame(
    [  # method, setting, ours, n, paper, runner_up, lead, lead_ci95, lead_n
        ("A", "one", 70.0, 3, 90.0, "B", -5.0, 1.0, 3),
        ("B", "one", 75.0, 3, 95.0, "C", 3.0, 1.0, 3),
        ("C", "one", 72.0, 3, np.nan, "B", -3.0, 1.0, 3),
        ("A", "two", 60.0, 1, 90.0, "B", -1.0, np.nan, 1),
        ("B", "two", 61.0, 1, 95.0, "A", 1.0, np.nan, 1),
        ("A", "three", 61.0, 3, 90.0, "B", 1.0, 1.5, 3),
        ("B", "three", 60.0, 3, 95.0, "A", -1.0, 0.5, 3),
        ("A", "four", 61.0, 4, 90.0, "B", 1.0, 1.5, 3),
        ("B", "four", 62.0, 3, 95.0, "A", 1.0, 1.5, 3),
    ],
    columns=["method", "setting", "ours", "n", "paper", "runner_up", "lead", "lead_ci95", "lead_n"],
).assign(ci95=9.0, scale="record", protocol="reconstructed", dataset="cifar10")


def test_standing_says_rank_paired_lead_and_verdict():
    one, two, three, four = printed.standing(ROWS, "B")
    assert one == (
        "one: B 75.00, rank 1 of 3, +3.00 ± 1.00 against C (n = 3); in the paper +5.00 against A: supported."
    )  # by the paired interval, whatever the intervals of the means are
    assert two.endswith(
        "+1.00 against A (n = 1); in the paper +5.00 against A: undecided: leans for (n = 1); one seed."
    )
    assert three.endswith("rank 2 of 2, -1.00 ± 0.50 against A (n = 3); in the paper +5.00 against A: contradicted.")
    assert four == (  # different numbers of seeds: no rank
        "four: B 62.00, +1.00 ± 1.50 against A (n = 3); in the paper +5.00 against A: "
        "undecided: leans for (n = 3); the interval includes 0."
    )


def test_standing_is_decided_when_every_method_that_the_paper_compares_has_run():
    (short,) = printed.standing(ROWS[ROWS["setting"] == "one"].assign(in_paper=3), "B")
    assert short.endswith(": undecided: leans for (n = 3); 2 of the paper's 3 methods run.")
    (whole,) = printed.standing(ROWS[ROWS["setting"] == "one"].assign(in_paper=2), "B")
    assert whole.endswith(": supported.")


def test_standing_widens_the_interval_of_the_one_that_was_looked_for_among_several():
    # Student t with 2 degrees of freedom is sqrt(2) c / sqrt(1 - c^2) for a two-sided level c: 4.303 at 0.95, 6.205 at 0.975.
    rows = ROWS[ROWS["setting"] == "one"]
    rows = rows.assign(paper=[90.0, 95.0, 91.0], lead_ci95=[1.0, 1.0, 2.0])
    assert printed.standing(rows, "C")[0].endswith("in the paper -4.00 against B: supported.")
    rows["paper"] = [90.0, 91.0, 95.0]  # and 2.0 becomes 2.88 for two others: clear of 3
    assert printed.standing(rows, "C")[0].endswith("in the paper +4.00 against B: contradicted.")
    rows["lead_ci95"] = [1.0, 1.0, 2.2]  # 3.17
    assert printed.standing(rows, "C")[0].endswith(
        ": undecided: leans against (n = 3); the interval, widened for 2 methods, includes 0."
    )


def test_standing_is_never_decided_at_a_smaller_scale_or_under_another_protocol():
    small = ROWS.assign(scale="demo", protocol="paper")
    assert printed.standing(small, "B")[0].endswith(": undecided: leans for (n = 3); scale demo; protocol paper.")
    stand_in = ROWS.assign(dataset="digits")
    assert printed.standing(stand_in, "B")[0].endswith(": stand-in: leans for (n = 3).")


def test_standing_without_the_papers_number_or_without_records():
    (sentence,) = printed.standing(ROWS[ROWS["setting"] == "one"], "C")
    assert sentence.endswith("-3.00 ± 1.00 against B (n = 3); the paper prints nothing to compare with.")
    (sentence,) = printed.standing(ROWS[ROWS["setting"] == "one"], "C", claimed=["A", "B", "C"])
    assert sentence.endswith("(n = 3); the paper claims a lead: contradicted.")
    (sentence,) = printed.standing(ROWS[ROWS["setting"] == "one"], "C", claimed=["A", "B", "C", "D"])
    assert sentence.endswith(
        "the paper claims a lead: undecided: leans against (n = 3); 3 of the paper's 4 methods run."
    )
    empty = notebook.Runs([], []).summary("last")
    table = printed.accuracies("FedSSA", "Table 1")
    beside = printed.beside_paper(empty, table, ["method", "dataset", "clients"])
    assert {"ours", "paper", "difference", "verdict", "lead"} <= set(beside.columns)
    assert printed.standing(beside, "FedSSA") == [printed.NO_RECORD]


def test_a_level_is_inside_or_outside_of_our_interval():
    ours = pd.DataFrame(
        [("A", 70.0, 1.0, 3, 0), ("B", 70.0, np.nan, 1, 0), ("C", np.nan, np.nan, 3, 1), ("D", 70.0, 0.5, 3, 0)],
        columns=["method", "ours", "ci95", "n", "diverged"],
    )
    paper = pd.DataFrame({"method": list("ABCD"), "value": [70.9, 70.9, 70.9, 70.9]})
    found = printed.beside_paper(ours, paper, ["method"])["verdict"].tolist()
    assert found == ["inside the interval", "one seed, no interval", "diverged", "outside the interval"]


def test_a_difference_is_beside_the_printed_one_of_its_own_setting():
    names = ["dataset", "clients", "setting", "method", "n", "difference", "ci95"]
    rows = [("x", "N = 1", "X, N = 1", method, 3, 2.0, 1.0) for method in ("A", "B", "C", "E")]
    rows += [("x", "N = 2", "X, N = 2", "A", 1, 2.0, np.nan), ("x", "N = 2", "X, N = 2", "B", 3, np.nan, np.nan)]
    ours = pd.DataFrame(rows, columns=names)
    paper = pd.DataFrame(
        [("A", 52.9), ("B", 50.5), ("C", np.nan), ("Standalone", 50.0)], columns=["method", "value"]
    ).assign(dataset="x", clients="N = 1")
    other = pd.DataFrame([("A", 70.0), ("B", 60.0), ("Standalone", 80.0)], columns=["method", "value"])
    paper = pd.concat([paper, other.assign(dataset="x", clients="N = 2")], ignore_index=True)
    found = printed.beside_differences(ours, paper, "Standalone")
    assert list(found) == ["method", "setting", "n", "ours", "ci95", "paper", "verdict"]
    np.testing.assert_allclose(found["paper"], [2.9, 0.5, np.nan, np.nan, -10.0, -20.0])
    assert found["verdict"].tolist() == [
        "inside the interval",
        "outside the interval",
        "the paper prints none",
        "the paper prints none",
        "one seed, no interval",
        "diverged",
    ]


def test_a_reference_that_the_paper_lacks_is_refused_and_no_runs_give_no_differences():
    nothing = notebook.Runs([], []).differences("Standalone", "last")
    paper = printed.accuracies("FedSSA", "Table 2")
    assert printed.beside_differences(nothing, paper, "Standalone").empty
    with pytest.raises(FedlibError, match=r"reference = 'Standalon' is unknown: did you mean 'Standalone'\?"):
        printed.beside_differences(nothing, paper, "Standalon")


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
