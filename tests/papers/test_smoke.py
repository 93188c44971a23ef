"""Scale smoke, which everybody sees first, shows something: no exhibit is all ties or two points.

What the grids ask for is checked always. What came out is checked where it is there: the runs in the store of the repository (or of
FEDLIB_HOME), as `make test` trains them before, and the CSVs of figures/smoke as the notebooks last wrote them.
"""

import numpy as np
import pandas as pd
import pytest

from fedlib import lab
from fedlib.papers import exhibits, notebook, settings

HOME = lab.home()  # before conftest gives each test an empty one
TRAINED = {name: item for name, item in exhibits.every().items() if item.grids}
# What an exhibit plots: the column of its CSV, and the columns whose rows belong to one panel, or to one line of it.
TABLE = ("ours", ("setting",))
CURVES = ("accuracy", ("setting", "method", "value"))
SWEEP = ("ours", ("dataset", "method", "swept"))
SWEEP_BY_PANEL = ("ours", ("setting", "method"))
TABLES = {  # what draws an exhibit -> the same
    "intervals": TABLE,
    "": ("last", ("setting",)),  # drawn in a cell: a row a run
}
LINES = {
    "curves": CURVES,
    "sweeps": SWEEP,
}  # at least three points each
MAPS = dict.fromkeys(("fedssa/fig6", "pfedes/fig6"), ("x", ("method",)))
NOT_NUMBERS = ("chains",)
OTHERS = ("audit/precision", "pfedes/fig7")  # next to nothing; pictures of one run
PLOTTED = [name for name, item in TRAINED.items() if item.drawn not in NOT_NUMBERS and name not in OTHERS]


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


def test_every_way_to_draw_an_exhibit_that_trains_is_looked_at():
    assert {item.drawn for item in TRAINED.values()} <= {*TABLES, *LINES, *NOT_NUMBERS}


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


@pytest.mark.parametrize("name", [name for name in PLOTTED if name != "pfedhr/fig7"])  # chains of layers
def test_figures_of_smoke_show_something(name, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(HOME))
    state = notebook.freshness(exhibits.every()[name], settings.defaults("smoke"))
    if state != "fresh":
        pytest.skip(f"figures/smoke/{name}: {state}: python -m fedlib reproduce {name}")
    item = TRAINED[name]
    (column, panel), line = MAPS.get(name, (TABLES | LINES)[item.drawn]), item.drawn in LINES
    if item.drawn == "sweeps" and {exhibits.GRIDS[grid].sweep for grid in item.grids} <= {"", "public_dataset"}:
        (column, panel), line = TABLE, False  # of names, not of numbers
    elif item.drawn == "sweeps" and item.paper == "pfedhr":
        column, panel = SWEEP_BY_PANEL
    table = pd.read_csv(HOME / "figures" / "smoke" / f"{name}.csv")
    assert dull(table, column, panel, line=line) == []
