"""Runs of a grid and the results of record: what is there, what counts once, what is paired."""

from dataclasses import replace

import pandas as pd

from fedlib.papers import exhibits, notebook, printed


def test_coverage_says_what_is_on_record(monkeypatch):
    assert "CIFAR-10, N = 10, C = 100 %" in notebook.coverage("fedssa/heterogeneous")
    monkeypatch.setattr(printed, "recorded", lambda folder: [])
    assert notebook.coverage("pfedes/mu") == "pfedes/mu: no results of record yet (0 of 30 runs at scale demo)."


def test_a_run_that_is_recorded_twice_counts_once(monkeypatch):
    once = notebook.recorded("fedssa/heterogeneous")
    available = printed.recorded(notebook.NOTEBOOKS.parent / "results")
    newer = [
        replace(record, key=f"{record.key}-again", row=dict(record.row) | {"keep": "clients"}) for record in available
    ]
    monkeypatch.setattr(printed, "recorded", lambda folder: [*newer, *available])
    twice = notebook.recorded("fedssa/heterogeneous")
    assert twice.cells == once.cells
    assert all(record.key.endswith("-again") for record in twice.records)


def test_top_leaves_out_settings_without_the_method():
    rows = pd.DataFrame(
        [("A", "one", 70.0), ("B", "one", 75.0), ("C", "one", 72.0), ("A", "two", 60.0)],
        columns=["method", "setting", "ours"],
    )
    found = notebook.Runs([], []).top(rows, "C", others=1)
    assert found == {"one": ["B", "C"]}


def test_a_swept_value_of_none_has_a_row_of_its_own():
    cells = exhibits.cells("pfedhr/public-labelled", "smoke")
    record = printed.Recorded(
        "key",
        "finished",
        {},
        pd.DataFrame({"round": [0], "accuracy": [0.5], "accuracy_selected": [0.5]}),
        pd.DataFrame(),
    )
    summary = notebook.Runs(cells, [record] * len(cells)).summary("last")
    assert len(summary) == len(cells) and summary["value"].isna().sum() == 3  # three methods, IID


def test_paired_keeps_the_seeds_that_all_have():
    # FedProto and FedSSA, three values, two data sets
    cells = [
        cell for data in ("digits", "digits100") for cell in exhibits.cells("fedssa/classes", "smoke", data, (0, 1, 2))
    ]
    lacking = {("digits", "FedProto", 2, 1), ("digits", "FedSSA", 10, 2)}
    kept = [cell for cell in cells if (cell.dataset, cell.method, cell.value, cell.spec.seed) not in lacking]
    found = notebook.Runs(kept, [printed.Recorded("", "finished", {}, *[pd.DataFrame()] * 2)] * len(kept)).paired()
    assert [cell for cell in found.cells if cell.dataset == "digits100"] == [
        cell for cell in cells if cell.dataset == "digits100"
    ]
    assert [(cell.method, cell.value, cell.spec.seed) for cell in found.cells if cell.dataset == "digits"] == [
        (method, value, 0) for method in ("FedProto", "FedSSA") for value in (2, 6, 10)
    ]
    assert len(found.records) == len(found.cells) and notebook.Runs([], []).paired().cells == []
