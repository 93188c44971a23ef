"""The one table of differences: rebuilt from the runs, each pair once, the same families as before."""

import pandas as pd
import pytest

from fedlib.papers import differences, planned


@pytest.mark.thorough
def test_the_committed_table_is_what_the_runs_of_record_give():
    """`python -m fedlib.papers.differences` writes it again."""
    made, held = differences.build(), differences.load()
    pd.testing.assert_frame_equal(held, made, check_dtype=False, atol=2e-4)


def test_a_pair_has_one_interval():
    table = differences.load().query("rule == 'last' and family != 'main-table/computation'")
    places = map(tuple, table[differences.PLACE].to_numpy())
    pairs = [(*sorted(pair), *place) for *pair, place in zip(table["method"], table["reference"], places, strict=True)]
    assert len(set(pairs)) == len(pairs)


def test_every_family_is_of_the_plan_and_asks_something():
    families, arms = differences.families(), planned.arms()
    cases = {
        name: {run.case for arm in arms.values() for run in arm.runs if name in (arm.name, *run.grids)}
        for name in {part for grid in families["grid"] for part in grid.split()}
    }
    for family, rows in families.groupby("family"):
        first = rows.iloc[0]
        assert isinstance(first["question"], str) and first["planned"].startswith(
            ("before its runs", "its pairs were", "after a look")
        )
        known = set().union(*(cases[grid] for grid in first["grid"].split()))
        assert set(rows["case"]) | set(rows["reference"]) <= known, family
