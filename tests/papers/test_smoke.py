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
TABLE = ("last", ("setting",))  # the column whose values are looked at, and the columns whose rows belong together
CURVES = ("accuracy", ("setting", "method", "value"))
SWEEP = ("last", ("setting", "method"))
OTHERS = ("audit/precision", "pfedes/fig7", "pfedhr/fig7")  # next to nothing; pictures of one run
UNSWEPT = ("", "public_dataset")


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
    table = pd.DataFrame({"setting": ["a", "a", "b", "b", "b"], "last": [50.0, 50.0, 50.0, 51.0, 50.0]})
    assert dull(table, *TABLE) == ["('a',): all 2 values are 50.0000"]
    assert dull(table, *TABLE, line=True) == ["('a',): 2 values"]
    assert dull(table[table["setting"] == "b"], *TABLE, line=True) == []


@pytest.mark.parametrize("name", TRAINED)
def test_the_grids_ask_for_three_points(name):
    for grid in TRAINED[name].grids:
        cells, declared = exhibits.cells(grid, "smoke"), exhibits.GRIDS[grid]
        assert min(cell.spec.rounds for cell in cells) >= 3
        assert {cell.method for cell in cells} == set(declared.methods), "a table has all its rows"
        assert declared.sweep in UNSWEPT or len({cell.value for cell in cells}) >= 3, grid


@pytest.mark.parametrize("name", TRAINED)
def test_smoke_runs_differ_and_learn(name, monkeypatch):
    """Every method ends above its start, and most of a panel's clearly above chance, which is 10 % for the ten digits."""
    monkeypatch.setenv("FEDLIB_HOME", str(HOME))
    cells = exhibits.cells(TRAINED[name].grids, "smoke")
    records = [lab.read(lab.store() / lab.resolve(cell.spec, "smoke").key) for cell in cells]
    if any(record is None or record.stale for record in records):
        pytest.skip("its smoke runs are not all trained: python -m fedlib reproduce all --scale smoke")
    found = exhibits.frame(cells)
    rounds = lab.tidy(keys=found["key"])[1].sort_values("round")
    accuracy = rounds.groupby("key")["accuracy"]
    table = found.assign(start=found["key"].map(accuracy.first()), end=found["key"].map(accuracy.last()))
    assert (table["end"] > table["start"]).mean() > 0.9
    assert (table.groupby("setting")["end"].median() > 0.2).all()
    if name != "pfedes/fig7":
        assert dull(found, *TABLE) == []
        for grid in TRAINED[name].grids:
            if exhibits.GRIDS[grid].sweep not in UNSWEPT:
                assert dull(exhibits.frame(exhibits.cells(grid, "smoke")), *SWEEP, line=True) == [], grid
        curves = rounds.merge(found[["key", "setting", "method", "value"]], on="key")
        assert dull(curves, *CURVES, line=True) == []


@pytest.mark.parametrize("name", [name for name in TRAINED if name not in OTHERS])
def test_figures_of_smoke_show_something(name, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(HOME))
    state = notebook.freshness(exhibits.every()[name], settings.defaults("smoke"))
    if state != "fresh":
        pytest.skip(f"figures/smoke/{name}: {state}: python -m fedlib reproduce {name}")
    table = pd.read_csv(HOME / "figures" / "smoke" / f"{name}.csv")
    column, panel = ("x", ("method",)) if name in ("fedssa/fig6", "pfedes/fig6") else TABLE
    assert dull(table, column, panel) == []
