"""Tables of text cells: what is marked, and that text, HTML and LaTeX say the same."""

import numpy as np
import pandas as pd
import pytest

from fedlib.show import intervals, labels, tables
from fedlib.show.tables import BEST, SECOND

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


LED = ROWS.assign(all=ROWS["ours"] - 2, diverged=0, runner_up="B", lead=-1.25, lead_ci95=0.5, lead_n=3, taught=np.nan)


def test_a_table_in_full():
    rows = LED.copy()
    rows.loc[rows["setting"] == "two", ["lead_ci95", "lead_n"]] = (np.nan, 1)
    rows.loc[2, "lead_n"] = 0
    table = tables.in_full(rows, ["B", "A", "C", "D"])
    assert list(table.index[:4]) == [("one", "B"), ("one", "A"), ("one", "C"), ("two", "B")]
    assert list(table.columns) == ["visited", "all", "selected", "paired difference"]
    assert list(table.loc[("one", "A")]) == ["70.00 ± 1.00 (n = 3)", "68.00", "71.50", "-1.25 ± 0.50 to B (n = 3)"]
    assert table.loc[("two", "A"), "visited"] == "60.00 (n = 1)"
    assert table.loc[("two", "A"), "paired difference"] == "-1.25 to B (n = 1)"
    assert table.loc[("one", "C"), "paired difference"] == "–"


def test_a_method_without_any_teacher_is_a_dash_and_not_ranked():
    rows = LED.assign(taught=[np.nan, 0.0, 0.25, *[np.nan] * 4])
    ranked = tables.wide(rows, ["A", "B", "C"])
    assert ranked.table.loc["B", "one"] == tables.NEVER_TAUGHT and ranked.marks.loc["B", "one"] == ""
    assert ranked.marks.loc["C", "one"] == BEST
    assert tables.in_full(rows, ["A", "B", "C"]).loc[("one", "C"), "taught"] == "25 %"


def ranked(means, **more):
    names = [f"m{place}" for place in range(len(means))]
    rows = {"method": names, "setting": "CIFAR-10, C = 10 %", "ours": means, "ci95": np.nan, "n": 1, "diverged": 0}
    return tables.wide(pd.DataFrame(rows | more), names)


@pytest.mark.parametrize(
    ("means", "marks"),
    [
        ([60.0, 70.0, 65.0, 50.0], ["", BEST, SECOND, ""]),
        ([60.0, 70.0, 60.001, 50.0], [SECOND, BEST, SECOND, ""]),  # equal as printed
        ([70.0, 70.0, 60.0], [BEST, BEST, ""]),  # two bests, so nobody is second
        ([70.0, 70.0, 70.0], ["", "", ""]),
        ([70.0], [""]),
        ([np.nan, 70.0, 60.0], ["", BEST, SECOND]),
    ],
)
def test_ties_are_marked_alike_and_nothing_where_all_tie(means, marks):
    found = ranked(means)
    assert found.marks.iloc[:, 0].tolist() == marks
    assert not found.table.map(lambda text: "*" in text or "°" in text).any(axis=None)  # marks are data of their own


def test_text_html_and_latex_show_the_same_marks():
    found = ranked([60.0, 70.0, 65.0])
    assert list(found.text().iloc[:, 0]) == ["60.00 (n = 1)", "70.00 (n = 1) *", "65.00 (n = 1) °"]
    assert repr(found).endswith("Of its column: * best, ° second.")
    html, latex = found._repr_html_(), found.to_latex("50 % of a_b & c")
    assert "<b>70.00 (n = 1)</b>" in html and "<u>65.00 (n = 1)</u>" in html
    assert "<style" not in html and tables.MARKED in html
    assert r"\textbf{70.00 (n = 1)}" in latex and r"\underline{65.00 (n = 1)}" in latex
    assert r"C = 10 \%" in latex and r"50 \% of a\_b \& c" in latex
    assert "*" not in latex and "BOLD" not in latex
    alone = ranked([60.0])
    assert alone.footer == "" and tables.MARKED not in alone._repr_html_()


def test_cells_and_names_are_escaped():
    names = ["a<b", "50 %_x"]
    rows = {"method": names, "setting": "s & t", "ours": [1.0, 2.0], "ci95": 0.5, "n": 3, "diverged": 0}
    found = tables.wide(pd.DataFrame(rows), names)
    assert "a&lt;b" in found._repr_html_() and "s &amp; t" in found._repr_html_()
    assert r"50 \%\_x" in found.to_latex() and r"$\pm$" in found.to_latex() and r"s \& t" in found.to_latex()
    assert tables.latex_text("a\\{") == r"a\textbackslash{}\{"


def test_a_column_of_unequal_seeds_is_not_ranked():
    found = ranked([60.0, 70.0], n=[1, 3])
    assert found.marks.iloc[:, 0].tolist() == ["", ""] and "differ in n" in found.footer


def test_diverged_and_missing_runs_have_their_words():
    rows = pd.DataFrame(
        [("a", "s", np.nan, np.nan, 3, 2)], columns=["method", "setting", "ours", "ci95", "n", "diverged"]
    )
    assert tables.wide(rows, ["a", "b"], absent="–").table["s"].tolist() == ["– (2 of 3 diverged)", "–"]


def test_the_caption_says_data_scale_protocol_rule_and_seeds():
    said = tables.caption(scale="demo", datasets=["cifar10"], embedded=False, protocol="paper", rule="last", seeds=3)
    for part in ("CIFAR-10", "scale demo", "protocol paper", "the last round", "3 seeds", tables.MARKED):
        assert part in said
    assert "stand-in" not in said


def test_settings_are_labelled_in_one_place():
    assert labels.setting("cifar10", 10, 1.0) == "CIFAR-10, N = 10, C = 100 %"
    assert labels.setting(num_clients=20, participation=0.5, stands_for=50) == "N = 20, C = 50 % (for N = 50)"
    long = labels.setting(num_clients=20, participation=0.5, stands_for=(100, 0.1))
    assert long == "N = 20, C = 50 % (for N = 100, C = 10 %)"
    assert labels.setting("mnist", 24, others=["labelled", "IID"]) == "MNIST, labelled, IID, N = 24"
    assert labels.setting(participation=1 / 3) == "C = 33 %" and labels.setting() == ""
    assert labels.dataset("my-own") == "my-own"
    assert labels.classes("cifar10")[9] == "truck" and labels.classes("x") == ()


def test_shaking_is_the_mean_step_of_each_half_and_its_difference_is_paired():
    """Steps of A: 80, 30, then 20, 10 points with seed 0, and 10, 30, then 0, 10 with seed 1: means 55 and 20, then 15 and 5. B, with
    seed 0 alone, takes steps of 10 points. Half-width of 55 and 20 about 37.5, by t = 12.706: 222.4.
    """
    accuracies = {
        ("A", 0): (0.1, 0.9, 0.6, 0.4, 0.5),
        ("A", 1): (0.1, 0.2, 0.5, 0.5, 0.6),
        ("B", 0): (0.1, 0.2, 0.3, 0.4, 0.5),
        ("C", 0): (0.5, 0.5, 0.5, 0.5, 0.5),
        ("C", 1): (0.5, 0.5, 0.5, 0.5, 0.5),
        ("D", 1): (0.5, 0.5, 0.5, 0.5, 0.5),
    }
    rounds = pd.DataFrame(
        [
            {"setting": "here", "method": method, "seed": seed, "round": place, "accuracy": value}
            for (method, seed), values in accuracies.items()
            for place, value in enumerate(values)
        ]
    )
    table = intervals.shaking(rounds[::-1], "B").set_index(["half", "method"])
    assert table.loc["first"].index.tolist() == ["A", "B", "C"]  # no seed of D's is B's
    assert table.loc[("first", "A"), ["n", "shaking", "difference"]].tolist() == pytest.approx([1, 55, 45])
    assert table.loc[("second", "A"), ["n", "shaking", "difference"]].tolist() == pytest.approx([1, 15, 5])
    assert table["ci95"].isna().all() and np.isnan(table.loc[("first", "B"), "difference"])
    against = intervals.shaking(rounds, "C").set_index(["half", "method"])
    means = ["n", "shaking", "difference", "ci95"]
    assert against.loc[("first", "A"), means].tolist() == pytest.approx([2, 37.5, 37.5, 222.36], abs=0.01)
    assert intervals.shaking(rounds, "E").empty and intervals.shaking(rounds.iloc[:0], "B").empty


def test_leads_over_rounds_are_paired_by_seed_and_trailing_means():
    # B above A by 2 and 4 points in round 1 (seeds 0, 1), by 6 and 4 in round 2; of seed 2 there is no A. Over two rounds: 4 and 4.
    levels = {
        ("A", 0): [0.10, 0.20],
        ("A", 1): [0.30, 0.30],
        ("B", 0): [0.12, 0.26],
        ("B", 1): [0.34, 0.34],
        ("B", 2): [0.9, 0.9],
    }
    rounds = pd.DataFrame(
        [
            ("here", "cifar10", "N = 10", method, seed, place, accuracy)
            for (method, seed), own in levels.items()
            for place, accuracy in enumerate(own)
        ],
        columns=["setting", "dataset", "clients", "method", "seed", "round", "accuracy"],
    )
    table = intervals.leads(rounds, "A", last=2)
    assert table[["method", "rounds", "n"]].to_numpy().tolist() == [["B", 1, 2], ["B", 2, 2]]
    np.testing.assert_allclose(table["lead"], [3.0, 4.0])
    np.testing.assert_allclose(
        table["ci95"], [12.706 * 1.0, 0.0], atol=1e-3
    )  # sd sqrt(2) over sqrt(2) seeds; t of one degree of freedom
    assert tables.lead_sentences(table, "B", "A", at=(1, 2)) == [
        "here: B above A: +3.00 ± 12.71 after 1, +4.00 ± 0.00 after 2 rounds (n = 2)."
    ]
    assert intervals.leads(rounds[rounds["method"] == "B"], "A").empty
    assert np.isnan(intervals.leads(rounds[rounds["seed"] == 0], "A")["ci95"]).all()  # one seed


def test_a_readable_table_wraps_its_words_and_has_a_dash_for_no_number():
    long = "a sentence that is longer than the fifty characters at which pandas cuts what stands in a cell"
    shown = tables.Readable(pd.DataFrame({"words": [long, "<b>"], "points": [1.234, np.nan], "n": [3, 1]}))
    made = shown._repr_html_()
    assert long in made and "&lt;b&gt;" in made and "NaN" not in made
    assert made.count("<td") == made.count("text-align: left") - made.count("<th ")
    assert 'white-space: normal">1.23</td>' in made and ">–</td>" in made and ">3</td>" in made
    assert repr(shown).splitlines()[1].endswith("1.23  3")


def test_a_run_that_has_ended_leads_no_more():
    rows = [("here", "d", "N", name, 0, place, 0.5) for name, last in (("A", 6), ("B", 3)) for place in range(last)]
    rounds = pd.DataFrame(rows, columns=["setting", "dataset", "clients", "method", "seed", "round", "accuracy"])
    assert intervals.leads(rounds, "A")["rounds"].tolist() == [1, 2, 3]
