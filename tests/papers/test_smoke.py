"""Scale smoke, which everybody sees first, shows something: no exhibit is all ties or two points.

What the grids ask for is checked always. What came out is checked where it is there: the runs in the store of the repository (or of
FEDLIB_HOME), as `make test` trains them before, and the CSVs of figures/smoke as the notebooks last wrote them.
"""

import numpy as np
import pandas as pd
import pytest

from fedlib import lab
from fedlib.papers import exhibits, notebook

HOME = lab.home()  # before conftest gives each test an empty one
TRAINED = {name: item for name, item in exhibits.every().items() if item.grids}
# What an exhibit plots: the column of its CSV, and the columns whose rows belong to one panel, or to one line of it.
TABLE = ("ours", ("setting",))
CURVES = ("accuracy", ("setting", "method", "value"))
SWEEP = ("ours", ("dataset", "method", "swept"))
SWEEP_BY_PANEL = ("ours", ("setting", "method"))
TABLES = {
    **dict.fromkeys(("fedssa/table1", "fedssa/table2", "fedssa/table4", "fedssa/table5"), TABLE),
    **dict.fromkeys(("fedgh/table1", "fedgh/table3", "pfedes/table2", "pfedes/table3"), TABLE),
    **dict.fromkeys(("pfedhr/table2", "pfedhr/table3", "pfedhr/table4"), TABLE),
    **dict.fromkeys(("fedssa/fig4", "pfedes/fig4"), ("accuracy", ("setting",))),
    **dict.fromkeys(("fedssa/fig5", "pfedes/fig5"), ("accuracy", ("dataset", "clients"))),
    **dict.fromkeys(("fedssa/fig6", "pfedes/fig6"), ("x", ("method",))),
    **dict.fromkeys(("audit/fedssa", "audit/fedgh", "audit/pfedes", "audit/controls"), ("difference", ("dataset",))),
    **dict.fromkeys(("pfedhr/fig1", "pfedhr/appendix-fig1", "pfedhr/appendix-fig2", "pfedhr/appendix-fig3"), TABLE),
}
LINES = {  # at least three points each
    **dict.fromkeys(("fedssa/fig10", "fedssa/fig11", "fedgh/fig2", "fedgh/fig5", "pfedes/fig3"), CURVES),
    **dict.fromkeys(("fedssa/fig7", "fedssa/fig8", "fedssa/fig9", "fedgh/fig3", "fedgh/fig4"), SWEEP),
    **dict.fromkeys(("pfedes/fig8", "pfedes/fig9", "pfedes/fig10"), SWEEP),
    **dict.fromkeys(("pfedhr/fig3", "pfedhr/fig4", "pfedhr/fig5", "pfedhr/fig6"), SWEEP_BY_PANEL),
}
NOT_NUMBERS = {
    "pfedes/fig7",
    "pfedhr/fig7",
    "audit/claims",
    "audit/precision",
}  # pictures, chains, verdicts, next to nothing


def dull(table, column, panel, line=False):
    """What is wrong with the values that an exhibit plots: panels whose values all print alike, lines of fewer than three points."""
    keys = [name for name in panel if name in table and table[name].notna().any()]
    found = []
    for name, group in table.groupby(keys, sort=False, dropna=False):
        values = group[column].dropna()
        if len(values) < (3 if line else 2):
            found.append(f"{name}: {len(values)} values")
        elif np.ptp(values.to_numpy()) < 1e-4:
            found.append(f"{name}: all {len(values)} values are {values.iloc[0]:.4f}")
    return found


def test_dull_tables_are_found():
    table = pd.DataFrame({"setting": ["a", "a", "b", "b", "b"], "ours": [50.0, 50.0, 50.0, 51.0, 50.0]})
    assert dull(table, *TABLE) == ["('a',): all 2 values are 50.0000"]
    assert dull(table, *TABLE, line=True) == ["('a',): 2 values"]
    assert dull(table[table["setting"] == "b"], *TABLE, line=True) == []


def test_every_exhibit_that_trains_is_looked_at():
    assert {*TABLES, *LINES, *NOT_NUMBERS} == set(TRAINED)


@pytest.mark.parametrize("name", TRAINED)
def test_the_grids_ask_for_three_points(name):
    for grid in TRAINED[name].grids:
        cells = exhibits.cells(grid, "smoke")
        assert min(cell.spec.rounds for cell in cells) >= 3
        assert {cell.method for cell in cells} == set(exhibits.GRIDS[grid].methods), "a table has all its rows"
        swept = {cell.value for cell in cells}
        sweep = exhibits.GRIDS[grid].sweep
        assert sweep in ("", "public_dataset") or len(swept) >= 3, f"{grid}: {swept}"


@pytest.fixture
def stored(monkeypatch):
    """The finished smoke runs of exhibits, from the repository's own store; skips where one is not there or of other code."""
    monkeypatch.setenv("FEDLIB_HOME", str(HOME))

    def of(*grids):
        cells = exhibits.cells(grids, "smoke")
        records = [lab.read(lab.store() / lab.resolve(cell.spec, "smoke").key) for cell in cells]
        if any(record is None or record.stale for record in records):
            pytest.skip("its smoke runs are not all trained: python -m fedlib reproduce all --scale smoke")
        return notebook.Runs(cells, records)

    return of


@pytest.mark.parametrize("name", [name for name in TRAINED if name != "pfedes/fig7"])  # pictures of one run
def test_smoke_runs_differ(name, stored):
    found = stored(*TRAINED[name].grids)
    summary = found.summary("last")
    assert dull(summary, *TABLE) == []
    sweeps = [grid for grid in TRAINED[name].grids if exhibits.GRIDS[grid].sweep not in ("", "public_dataset")]
    for grid in sweeps:
        assert dull(stored(grid).summary("last"), *SWEEP_BY_PANEL, line=True) == [], grid
    assert dull(found.rounds(), *CURVES, line=True) == []


@pytest.mark.parametrize("name", TRAINED)
def test_smoke_runs_learn(name, stored):
    """Every method ends above its start, and most of a panel's clearly above chance, which is 10 % for the ten digits."""
    found = stored(*TRAINED[name].grids)
    ends = [record.rounds["accuracy"].iloc[[0, -1]].tolist() for record in found.records]
    rows = [(cell.setting, *pair) for cell, pair in zip(found.cells, ends, strict=True)]
    table = pd.DataFrame(rows, columns=["setting", "start", "end"])
    assert (table["end"] > table["start"]).mean() > 0.9
    assert (table.groupby("setting")["end"].median() > 0.2).all()


@pytest.mark.parametrize("name", TABLES | LINES)
def test_figures_of_smoke_show_something(name, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(HOME))
    state = notebook.freshness(exhibits.every()[name], "smoke")
    if state != "fresh":
        pytest.skip(f"figures/smoke/{name}: {state}: python -m fedlib reproduce {name}")
    column, panel = (TABLES | LINES)[name]
    table = pd.read_csv(HOME / "figures" / "smoke" / f"{name}.csv")
    assert dull(table, column, panel, line=name in LINES) == []
