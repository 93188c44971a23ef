"""Tables and sentences made from tidy rows: ranks, leads, verdicts, the selected clients beside all."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedlib import exhibits, notebook, plots, report

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
    one, two, three = report.standing(ROWS, "B")
    assert one == "one: B 75.00, rank 1 of 3, +3.00 against C (n = 3); in the paper +5.00 against A: holds."
    assert two.endswith("+1.00 against A (n = 1); in the paper +5.00 against A: holds in direction.")
    assert three.endswith("rank 2 of 2, -1.00 against A (n = 3); in the paper +5.00 against A: does not hold.")


def test_standing_needs_intervals_apart_to_hold():
    near = ROWS[ROWS["setting"] == "one"].assign(ci95=1.5)
    assert report.standing(near, "B")[0].endswith("holds in direction.")  # 3 points apart, 1.5 + 1.5: they touch


def test_standing_without_the_papers_number_or_without_records():
    (sentence,) = report.standing(ROWS[ROWS["setting"] == "one"], "C")
    assert sentence.endswith("-3.00 against B (n = 3); the paper prints nothing to compare with.")
    (sentence,) = report.standing(ROWS[ROWS["setting"] == "one"], "C", claimed=True)
    assert sentence.endswith("(n = 3); the paper claims a lead: does not hold.")
    empty = notebook.Runs([], []).summary("last")
    printed = report.printed("FedSSA", "Table 1")
    beside = report.beside_paper(empty, printed, ["method", "dataset", "clients"])
    assert {"ours", "paper", "difference", "verdict"} <= set(beside.columns)
    assert report.standing(beside, "FedSSA") == [report.NO_RECORD]


def test_selected_beside_all():
    table = report.with_selected(ROWS, ["B", "A", "C", "D"])
    assert list(table.index) == ["B", "A", "C"] and list(table.columns) == ["one", "two", "three"]
    assert table.loc["A", "one"] == "71.50 (+1.50)" and table.loc["B", "two"] == "60.50 (-0.50)"
    assert table.loc["C", "two"] == "not yet"


@pytest.mark.parametrize("selected", [False, True])
def test_sweeps_draw_the_selected_when_asked(selected):
    table = ROWS.assign(dataset=ROWS["setting"], value=0.1)
    figure = plots.sweeps(table, ["A", "B"], "C", selected=selected)
    hollow = [line for axes in figure.axes for line in axes.lines if line.get_fillstyle() == "none"]
    assert len(hollow) == (6 if selected else 0)
    if selected:
        assert sorted(float(line.get_ydata()[0]) for line in hollow)[-1] == 75.0


def test_a_case_keeps_its_look_whatever_its_full_name():
    assert plots.colour("case C: FedSSA") == plots.colour("FedSSA")
    assert len({plots.colour(f"case {letter}: x") for letter in "ABC"}) == 3


def test_coverage_says_what_is_on_record(monkeypatch):
    assert "cifar10, N = 10, C = 100 %" in notebook.coverage("fedssa/heterogeneous")
    monkeypatch.setattr(report, "recorded", lambda folder: [])
    assert notebook.coverage("pfedes/mu") == "pfedes/mu: no results of record yet (0 of 30 runs at scale demo)."


def test_sensitivity_draws_a_row_a_data_set_and_a_column_a_quantity():
    rows = [("pFedES", data, value, 50.0, np.nan) for data in ("cifar10", "cifar100") for value in (0.1, 0.3)]
    table = pd.DataFrame(rows, columns=["method", "dataset", "value", "ours", "ci95"])
    figure = plots.sensitivity({"mu": table, "E_fe": table.assign(value=5)}, "pFedES")
    assert [(axes.get_title(), axes.get_xlabel()) for axes in figure.axes] == [
        ("cifar10", "mu"), ("cifar10", "E_fe"), ("cifar100", "mu"), ("cifar100", "E_fe"),
    ]  # fmt: skip
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0.1, 0.3]


def test_equal_means_share_their_mark():
    table = pd.DataFrame({"method": list("ABCD"), "setting": "one", "ours": [60.0, 70.0, 60.001, 50.0]})
    ranked = report.wide(table.assign(ci95=np.nan, n=1, diverged=0), list("ABCD")).table["one"]
    assert list(ranked) == ["60.00 (n = 1) °", "70.00 (n = 1) *", "60.00 (n = 1) °", "50.00 (n = 1)"]


def test_where_all_tie_nothing_is_best():
    rows = {"all tie": [50.0, 50.001, 50.0], "two tie": [60.0, 60.0, 50.0], "alone": [70.0]}
    pairs = [("ABC"[place], name, mean) for name, means in rows.items() for place, mean in enumerate(means)]
    table = pd.DataFrame(pairs, columns=["method", "setting", "ours"]).assign(ci95=np.nan, n=1, diverged=0)
    ranked = report.wide(table, list("ABC"), absent="–")
    assert list(ranked.table["all tie"]) == ["50.00 (n = 1)"] * 3
    assert list(ranked.table["two tie"]) == ["60.00 (n = 1) *", "60.00 (n = 1) *", "50.00 (n = 1)"]
    assert list(ranked.table["alone"]) == ["70.00 (n = 1)", "–", "–"]
    assert ranked.latex().count(r"\textbf") == ranked._repr_html_().count("<b>") == 2


def test_a_run_that_is_recorded_twice_counts_once(monkeypatch):
    once = notebook.recorded("fedssa/heterogeneous")
    available = report.recorded(notebook.NOTEBOOKS.parent / "results")
    newer = [
        replace(record, key=f"{record.key}-again", row=dict(record.row) | {"keep": "clients"}) for record in available
    ]
    monkeypatch.setattr(report, "recorded", lambda folder: [*newer, *available])
    twice = notebook.recorded("fedssa/heterogeneous")
    assert twice.cells == once.cells
    assert all(record.key.endswith("-again") for record in twice.records)


def test_cost_ratios_by_hand():
    rows = [
        ("cifar10", "N = 10", "FedProto", True, 300.0, 10.0),
        ("cifar10", "N = 10", "pFedES", True, 100.0, 40.0),
        ("cifar10", "N = 50", "FedProto", False, 300.0, 10.0),
        ("cifar10", "N = 50", "pFedES", True, 100.0, 40.0),
        ("cifar10", "N = 100", "FedProto", True, 300.0, 10.0),
    ]
    table = pd.DataFrame(rows, columns=["dataset", "clients", "method", "reached", "words", "flops"])
    first, second, third = report.cost_ratios(table, "FedProto", "pFedES").to_dict("records")
    assert (first["words"], first["flops"], first["note"]) == (3.0, 0.25, "")
    assert np.isnan(second["words"]) and second["note"] == "target not reached: FedProto"
    assert np.isnan(third["flops"]) and third["note"] == "not run: pFedES"
    assert report.cost_ratios(notebook.Runs([], []).costs("last"), "FedProto", "pFedES").empty


def test_top_leaves_out_settings_without_the_method():
    found = notebook.Runs([], []).top(ROWS, "C", others=1)
    assert found == {"one": ["B", "C"]}


def test_heat_map_frames_what_is_marked_and_writes_its_numbers():
    table = pd.DataFrame([[0.1, 0.9], [np.nan, 0.2]], index=["a", "b"], columns=["c1", "c2"])
    figure = plots.heat_map(table, "similarity", marked=[(0, 1)], numbers=".1f")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["0.1", "0.9", "0.2"]
    (frame,) = axes.patches
    assert (frame.get_x() + 0.46, frame.get_y() + 0.46) == (1, 0)
    lines = plots.heat_map(table, "distance", groups=[0, 1]).axes[0].lines
    assert len(lines) == 2 and not plots.heat_map(table, "distance", groups=[0, 0]).axes[0].lines


def test_chains_draw_a_block_a_layer_and_a_lozenge_a_stitch():
    rows = {"c1": [("M1", "conv1", False), ("M2", "fc4", True)], "c2": [("M1", "conv2", True), ("", "output", False)]}
    (axes,) = plots.chains(rows).axes
    assert [text.get_text() for text in axes.texts] == ["M1\nconv1", "M2\nfc4", "M1\nconv2", "output"]
    same, other, again, new = (patch.get_facecolor() for patch in axes.patches)
    assert same == again != other and new == (1, 1, 1, 1)
    assert [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_marker() == "D"] == [(1, 0), (0, 1)]


def test_by_group_sets_methods_side_by_side_in_their_group():
    table = ROWS[ROWS["setting"] != "three"].assign(public=["x", "y", "y", "x", "x"])
    figure = plots.by_group(table, ["A", "B", "C"], "public", "public data")
    first, second = figure.axes
    assert [label.get_text() for label in first.get_xticklabels()] == ["x", "y"]
    assert [round(float(box.lines[0].get_xdata()[0]), 1) for box in first.containers] == [-0.2, 1.0, 1.2]
    assert len(second.containers) == 2


def test_a_swept_value_of_none_has_a_row_of_its_own():
    cells = exhibits.cells("pfedhr/public-labelled", "smoke")
    record = report.Recorded(
        "key",
        "finished",
        {},
        pd.DataFrame({"round": [0], "accuracy": [0.5], "accuracy_selected": [0.5]}),
        pd.DataFrame(),
    )
    summary = notebook.Runs(cells, [record] * len(cells)).summary("last")
    assert len(summary) == len(cells) and summary["value"].isna().sum() == 3  # three methods


def test_paired_keeps_the_seeds_that_all_have():
    cells = exhibits.cells("fedssa/classes", "demo", seeds=(0, 1, 2))  # FedProto and FedSSA, two data sets
    values = exhibits.CLASSES.at("demo", "cifar10")
    lacking = {("cifar10", "FedProto", 2, 1), ("cifar10", "FedSSA", 10, 2)}
    kept = [cell for cell in cells if (cell.dataset, cell.method, cell.value, cell.spec.seed) not in lacking]
    found = notebook.Runs(kept, [report.Recorded("", "finished", {}, *[pd.DataFrame()] * 2)] * len(kept)).paired()
    assert [cell for cell in found.cells if cell.dataset == "cifar100"] == [
        cell for cell in cells if cell.dataset == "cifar100"
    ]
    assert [(cell.method, cell.value, cell.spec.seed) for cell in found.cells if cell.dataset == "cifar10"] == [
        (method, value, 0) for method in ("FedProto", "FedSSA") for value in values
    ]
    assert len(found.records) == len(found.cells) and notebook.Runs([], []).paired().cells == []
