"""The README's tables of results of record: differences paired by seed, n in every cell."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from results_of_record import of_record

from fedlib import lab
from fedlib.papers import exhibits, recorded, reproduce

# Accuracy by method and seed, in per cent, at N = 100 on CIFAR-10; of the selected clients a point more.
MADE = {
    **{("Standalone", seed): 60.0 + seed for seed in (0, 1, 2)},
    ("FedSSA", 0): 63.0,
    ("FedSSA", 1): 65.0,
    ("pFedES", 2): 61.0,
}


@pytest.fixture
def record(monkeypatch):
    """Results of record of the main tables and of an audit, made up."""

    def of(cell):
        value = MADE.get((cell.spec.algorithm, cell.spec.seed), 50.0) / 100
        columns = {"accuracy": value, "accuracy_all": value - 0.02, "accuracy_selected": value + 0.01}
        rounds = pd.DataFrame({"round": range(-1, cell.spec.rounds)} | columns)
        return of_record(lab.resolve(cell.spec).key, cell.spec, rounds)

    grids = ("fedssa/heterogeneous", "pfedes/heterogeneous")
    cells = [cell for grid in grids for cell in exhibits.cells(grid, "record", "cifar10")]
    cells = [cell for cell in cells if cell.num_clients == 100 and (cell.spec.algorithm, cell.spec.seed) in MADE]
    cells += exhibits.cells("audit/fedssa", "record", seeds=(0, 1))
    cells += exhibits.cells("pfedhr/labelled", "record", "mnist", (0,))
    made = list({lab.resolve(cell.spec).key: of(cell) for cell in cells}.values())
    monkeypatch.setattr(recorded, "read_results", lambda: made)


def column():
    grids = [("fedssa/heterogeneous", ()), ("pfedes/heterogeneous", ("pFedES",))]
    papers = (("FedSSA", "Table 2"), ("pFedES", "Table 3"))
    return reproduce._against(grids, "Standalone", papers=papers)


def test_differences_are_to_standalone_and_paired_by_seed(record):
    table = column().set_index("method")
    assert list(table.index) == ["Standalone", "FedSSA", "pFedES"]
    # 63 - 60 and 65 - 61: 3.5 with a standard error of 0.5, and t = 12.7062 of one degree of freedom: its own error, since three
    # methods with two seeds or one leave one degree of freedom, and that to FedSSA and Standalone.
    assert table.loc["FedSSA", "gain over Standalone"] == "+3.50 ± 6.35 † (n = 2)"
    assert (
        table.loc["pFedES", "gain over Standalone"] == "-1.00 (n = 1)"
        and table.loc["Standalone", "gain over Standalone"] == "–"
    )
    assert table.loc["Standalone", "visited clients"] == "61.00 ± 2.48 (n = 3)"
    assert (table.loc["Standalone", "all clients"], table.loc["Standalone", "the rounds' clients"]) == (
        "59.00",
        "62.00",
    )
    assert table.loc["FedSSA", "the paper's"] == "92.92 (+0.95)" and table.loc["Standalone", "the paper's"] == "91.97"
    assert table.loc["pFedES", "the paper's"].startswith("92.72 (")
    assert set(table["epochs"]) == {"100 (500)"}  # 100 rounds, a tenth of them, ten epochs; the paper's most at N = 100


def test_the_audit_reports_what_the_scripts_do(record):
    table = reproduce._audited("FedSSA").set_index("case")
    assert table.loc["FedSSA: Standalone", "the rounds' clients"].startswith("61.50 ")  # 60 and 61, and a point more
    # A mean difference of -3.5 with a standard error of 0.5, and t(1 - 0.025 / 5, 1) = 63.657 for five cases together.
    assert table.loc["FedSSA: Standalone", "difference to its reference"].startswith("-3.50 ± ")


def test_a_diverged_run_is_a_dash(record, monkeypatch):
    made = recorded.read_results()
    broken = [replace(one, status="diverged") if one.spec.algorithm == "FedSSA" else one for one in made]
    monkeypatch.setattr(recorded, "read_results", lambda: broken)
    table = column().set_index("method")
    ours = ["visited clients", "gain over Standalone", "the same, last 10 rounds", "all clients", "the rounds' clients"]
    assert table.loc["FedSSA", ours].tolist() == ["– (2 of 2 diverged)", "–", "–", "–", "–"]
    assert "nan" not in (column().to_string() + reproduce._audited("FedSSA").to_string()).lower()


def test_every_number_of_ours_has_its_n(record):
    labelled = reproduce._against([("pfedhr/labelled", ())], "Standalone")
    for table, means in ((column(), "visited"), (labelled, "visited"), (reproduce._audited("FedSSA"), "the rounds'")):
        columns = [name for name in table if name.startswith(("less ", means))]
        cells = [text for name in columns for text in table[name]]
        assert cells and all(re.search(r"\(n = \d+\)$", text) or text == "–" for text in cells), cells
