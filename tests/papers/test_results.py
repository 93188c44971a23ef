"""Runs of a grid and the results of record: what is there, what counts once, what is paired."""

from dataclasses import replace

import pandas as pd
import pytest
from results_of_record import of_record as made_up

from fedlib import FedlibError, lab
from fedlib.lab import of_record
from fedlib.papers import exhibits, notebook, planned, results
from fedlib.show import paired, tables


def record_of(spec):
    """A result of record of a specification."""
    rounds = pd.DataFrame({"round": [0], "accuracy": [0.5], "accuracy_all": [0.5], "accuracy_selected": [0.5]})
    return made_up(lab.resolve(spec).key, spec, rounds)


def test_coverage_says_what_is_on_record(monkeypatch):
    cell = next(cell for cell in exhibits.cells("pfedes/mu", "record") if cell.value == 0.3)
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: [record_of(cell.spec)])
    said = "pfedes/mu: 1 of 9 runs at scale record are on record (CIFAR-10, N = 100, C = 10 %)."
    assert notebook.coverage("pfedes/mu") == said
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: [])
    assert notebook.coverage("pfedes/mu") == "pfedes/mu: no results of record yet (0 of 9 runs at scale record)."


def test_a_swept_value_of_none_has_a_row_of_its_own():
    cells = exhibits.cells("pfedhr/public-labelled", "smoke")
    summary = notebook.Runs(cells, [recorded_run(0.5)] * len(cells)).summary("last")
    assert len(summary) == len(cells) and summary["value"].isna().sum() == 3  # three methods, IID


def test_paired_keeps_the_seeds_that_all_have():
    # FedProto and FedSSA, three values, two data sets
    cells = [
        cell for data in ("digits", "digits100") for cell in exhibits.cells("fedssa/classes", "smoke", data, (0, 1, 2))
    ]
    lacking = {("digits", "FedProto", 2, 1), ("digits", "FedSSA", 10, 2)}
    kept = [cell for cell in cells if (cell.dataset, cell.method, cell.value, cell.spec.seed) not in lacking]
    found = notebook.Runs(kept, [recorded_run(0.5)] * len(kept)).paired()
    assert [cell for cell in found.cells if cell.dataset == "digits100"] == [
        cell for cell in cells if cell.dataset == "digits100"
    ]
    assert [(cell.method, cell.value, cell.spec.seed) for cell in found.cells if cell.dataset == "digits"] == [
        (method, value, 0) for method in ("FedProto", "FedSSA") for value in (2, 6, 10)
    ]
    assert len(found.records) == len(found.cells) and notebook.Runs([], []).paired().cells == []


def recorded_run(*accuracies, status="finished"):
    columns = dict.fromkeys(("accuracy", "accuracy_all", "accuracy_selected"), accuracies)
    rounds = pd.DataFrame({"round": range(len(accuracies))} | columns)
    return made_up("key", rounds=rounds, status=status)


def test_a_summary_says_the_lead_over_the_runner_up_paired_by_seed():
    cells = exhibits.cells("fedgh/classes", "record", "cifar10", (0, 1, 2))
    cells = [cell for cell in cells if cell.value == 2]
    accuracy = {
        ("LG-FedAvg", 0): 0.50, ("LG-FedAvg", 1): 0.60, ("LG-FedAvg", 2): 0.70,
        ("FedProto", 0): 0.10, ("FedProto", 1): 0.10, ("FedProto", 2): 0.10,
        ("FedGH", 0): 0.52, ("FedGH", 1): 0.61,
    }  # fmt: skip
    pairs = [
        (cell, accuracy[cell.method, cell.spec.seed]) for cell in cells if (cell.method, cell.spec.seed) in accuracy
    ]
    found = notebook.Runs([cell for cell, _ in pairs], [recorded_run(value) for _, value in pairs])
    rows = found.summary("last").set_index("method")
    assert rows["runner_up"].to_dict() == {"LG-FedAvg": "FedGH", "FedProto": "LG-FedAvg", "FedGH": "LG-FedAvg"}
    assert rows["lead_n"].to_dict() == {"LG-FedAvg": 2, "FedProto": 3, "FedGH": 2}
    assert rows.loc["FedGH", "lead"] == pytest.approx(
        1.5
    )  # 2 and 1, though its mean is below LG-FedAvg's of three seeds
    # One error for the three, by least squares on 3 degrees of freedom, and intervals that hold for both of FedGH's leads.
    values = {name: {} for name in ("LG-FedAvg", "FedProto", "FedGH")}
    for (name, seed), value in accuracy.items():
        values[name][seed] = 100 * value
    lead = paired.differences(values, [("FedGH", "LG-FedAvg"), ("FedGH", "FedProto")])[0]
    assert lead.df == 3 and lead.shared and rows.loc["FedGH", "lead_ci95"] == pytest.approx(lead.half)
    assert rows["ours"].to_dict() == pytest.approx({"LG-FedAvg": 60, "FedProto": 10, "FedGH": 56.5})


def test_a_method_that_diverged_is_no_runner_up():
    cells = exhibits.cells("fedssa/representations", "record", seeds=(0,))
    found = notebook.Runs(cells, [recorded_run(0.9, status="diverged"), recorded_run(0.5)])
    rows = found.summary("last").set_index("method")
    assert rows.loc["FedSSA", "lead_n"] == 0 and rows.loc["FedSSA", "runner_up"] == ""


def test_a_choice_by_validation_accuracy_and_the_places_before_and_after_it():
    # lr -> (validation, test) of seeds 0 and 1, per cent
    measured = {
        "Standalone": {0.003: ((30, 40), (20, 20)), 0.01: ((50, 50), (50, 60)), 0.03: ((40, 70), (40, 60))},
        "FedSSA": {0.003: ((60, 60), (58, 58)), 0.01: ((10, 10), (54, 54)), 0.03: ((59, 60), (90, 90))},
        "FML": {0.003: ((60, 60), (90, 90)), 0.01: ((10, 10), (90, 90))},  # not run at 0.03
    }
    cells, records = [], []
    for cell in exhibits.cells("audit/tuning", "record", seeds=(0, 1)):
        if pair := measured.get(cell.method, {}).get(cell.value):
            validation, test = (accuracy[cell.spec.seed] / 100 for accuracy in pair)
            record = recorded_run(test)
            cells.append(cell)
            records.append(made_up("key", rounds=record.rounds.assign(validation_accuracy=validation)))
    found = notebook.Runs(cells, records).tuned((0.003, 0.01, 0.03), 0.01, "last").set_index("method")
    assert list(found.index) == ["Standalone", "FedSSA"] and set(found["n"]) == {2}
    # 35, 50, 55 on validation: 0.03, although its test accuracy is below 0.01's; 60, 10, 59.5: 0.003, though 0.03 has 90
    assert found["chosen"].to_dict() == {"Standalone": 0.03, "FedSSA": 0.003}
    assert found["given"].to_dict() == pytest.approx({"Standalone": 55, "FedSSA": 54})
    assert found["tuned"].to_dict() == pytest.approx({"Standalone": 50, "FedSSA": 58})
    assert found["place_given"].to_dict() == {"Standalone": 1, "FedSSA": 2}
    assert found["place_tuned"].to_dict() == {"Standalone": 2, "FedSSA": 1}
    assert notebook.Runs([], []).tuned((0.01,), 0.01, "last").empty


def ran(accuracy, key="key", status="finished", rounds=20):
    """A record of the twenty rounds of FedSSA's N = 10, with what tables of costs need."""
    columns = dict.fromkeys(("accuracy", "accuracy_all", "accuracy_selected"), accuracy)
    sent = dict.fromkeys(("download_words", "upload_words", "published_words", "selected", "visited", "samples"), 10.0)
    spec = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0,))[0].spec
    table = pd.DataFrame({"round": range(-1, rounds)} | columns | sent)
    return made_up(key, spec, table, status=status)


BROKEN = {
    "diverged": {"status": "diverged"},
    "without its last round": {"rounds": 19},
    "without a round": {"rounds": 0},
}


@pytest.mark.parametrize("how", BROKEN)
def test_no_table_has_a_number_of_a_run_that_diverged_or_lacks_rounds(how):
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0, 1))
    cells = [cell for cell in cells if cell.num_clients == 10 and cell.method in ("Standalone", "FedSSA", "FedProto")]
    broken = ("FedSSA", 1)
    records = [
        ran(0.7, f"{cell.method}-{cell.spec.seed}", **(BROKEN[how] if (cell.method, cell.spec.seed) == broken else {}))
        for cell in cells
    ]
    found = notebook.Runs(cells, records)
    summary = found.summary("last").set_index("method")
    assert summary.loc["FedSSA", ["ours", "ci95", "all", "selected", "lead", "lead_ci95"]].isna().all()
    assert summary.loc["FedSSA", "n"] == 2 and "FedSSA" not in set(summary["runner_up"])
    assert summary.loc["Standalone", ["ours", "all", "selected", "lead"]].notna().all()
    full = tables.in_full(summary.reset_index(), ["Standalone", "FedSSA", "FedProto"]).xs("FedSSA", level="method")
    assert all(text.startswith("–") for text in full.iloc[0]) and "nan" not in full.to_string()
    changes = found.effects("Standalone", "last").set_index("case")
    differences = ["difference", "ci95", "selected_difference", "selected_ci95"]
    assert changes.loc["FedSSA", ["ours", "selected", *differences]].isna().all()
    assert changes.loc["FedProto", "difference"] == 0
    against = found.effects("FedSSA", "last")  # as the reference
    assert against[["ours", "difference", "selected", "selected_difference"]].isna().all(axis=None)


def test_two_runs_of_one_place_are_refused_and_one_that_two_grids_share_counts_once():
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0,))
    cells = [cell for cell in cells if cell.num_clients == 10 and cell.method in ("Standalone", "FedSSA")]
    once = notebook.Runs(cells, [ran(0.6, "a"), ran(0.7, "b")])
    shared = notebook.Runs.joined([once, once])
    assert shared.summary("last").equals(once.summary("last")) and set(shared.summary("last")["n"]) == {1}
    assert shared.effects("Standalone", "last").equals(once.effects("Standalone", "last"))
    twice = notebook.Runs.joined([once, notebook.Runs(cells, [ran(0.6, "a"), ran(0.9, "c")])])
    made = {
        "summary": lambda: twice.summary("last"),
        "effects": lambda: twice.effects("Standalone", "last"),
        "rounds": twice.rounds,
    }
    for name, table in made.items():
        with pytest.raises(
            FedlibError, match=r"^runs: b and c are both .*FedSSA.*seed.*0; `fedlib compare` tells"
        ) as raised:
            table()
        assert "\n" not in str(raised.value), name


def test_tables_have_typed_columns_beside_their_labels():
    cells = exhibits.cells("pfedhr/many-labelled", "smoke")
    summary = notebook.Runs(cells, [recorded_run(0.5)] * len(cells)).summary("last")
    names = ["clients", "num_clients", "stands_for", "public_labels", "partition", "scale", "protocol"]
    (row,) = summary[names].drop_duplicates().to_dict("records")
    assert row == {
        "clients": "labelled, Non-IID, N = 9 (for N = 100)",
        "num_clients": 9,
        "stands_for": 100,
        "public_labels": True,
        "partition": "by-class",
        "scale": "smoke",
        "protocol": "reconstructed",
    }
    rounds = notebook.Runs(cells, [recorded_run(0.5)] * len(cells)).rounds()
    assert set(rounds["num_clients"]) == {9} and set(rounds["stands_for"]) == {100}


def test_a_note_says_what_cells_have_in_common():
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10")
    assert results.note(cells) == (
        "N = 10, 50, 100; C = 10 %, 20 %, 100 %; T = 20, 100; E = 10; B = 64; scale record; protocol reconstructed; n = 3"
    )
    assert results.note([]) == ""


def test_a_metric_that_others_of_the_planned_grid_lack_has_the_error_of_the_runs_that_have_it():
    known = of_record.by_key()
    grid = planned.grid_of([key for key, record in known.items() if record.spec.algorithm == "FedProto"])
    keys = {
        (run.case, run.spec.seed): run.key for run in grid if run.case in ("FedProto", "FedSSA") and run.key in known
    }
    assert len(keys) >= 6 and len({row.case for row in grid}) > 2
    own = [known[key] for key in keys.values()]
    own = [replace(record, rounds=record.rounds.assign(macro_f1=record.rounds["accuracy"] / 2)) for record in own]
    runs = results.Runs.of_pairs((exhibits.Cell(record.spec.algorithm, record.spec), record) for record in own)
    summary = runs.summary("last", "macro_f1").set_index("method")
    half = [50 * record.rounds["accuracy"].iloc[-1] for record in own if record.spec.algorithm == "FedSSA"]
    assert summary.loc["FedSSA", "ours"] == pytest.approx(sum(half) / len(half))
