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


def runs_of(*rows: tuple[str, int, int, int, float, float]) -> pd.DataFrame:
    """Rows of `differences._frame`, of method, E, T, seed, accuracy and validation accuracy."""
    made = pd.DataFrame(rows, columns=["method", "local_epochs", "rounds", "seed", "last", "validation"])
    made = made.assign(dataset="cifar10", num_clients=10, participation=1.0, batch_size=64, lr=0.01)
    made = made.assign(
        algorithm=made["method"], last10=made["last"], setting=list(map(tuple, made[differences.PLACE].to_numpy()))
    )
    return made.assign(**dict.fromkeys(differences._OF_A_RUN, "")).assign(seed=made["seed"], key=range(len(made)))


def test_a_tuned_method_is_read_where_its_validation_accuracy_is_best():
    frame = differences._tuned(
        runs_of(
            ("FedSSA", 1, 500, 3, 48.0, 50.0),
            ("FedSSA", 1, 500, 4, 49.0, 52.0),
            ("FedSSA", 1, 500, 4, 49.0, 52.0),  # a longer run, read at the same round
            ("FedSSA", 10, 100, 3, 60.0, 53.0),  # the best single one, and test accuracy, of a worse mean
            ("FedSSA", 10, 100, 4, 61.0, 48.0),
            ("FedProto", 1, 500, 3, 40.0, 41.0),
            ("FedProto", 10, 100, 3, 39.0, 42.0),
        )
    )
    chosen = frame[["method", "local_epochs", "seed", "last"]].to_numpy().tolist()
    assert chosen == [
        ["FedSSA", 1, 3, 48.0],
        ["FedSSA", 1, 4, 49.0],
        ["FedProto", 10, 3, 39.0],
    ]
    (setting,) = frame["setting"].unique()
    assert setting == ("cifar10", 10, 1.0, None, None, None)


def test_a_pair_is_judged_where_both_are_at_their_best():
    place = {"dataset": "cifar10", "num_clients": 10, "participation": 1.0, "method": "FedSSA"}
    rows = [
        ("FedProto", 1, 3, 50.0, 40.0),
        ("FedProto", 10, 5, 52.0, 41.0),  # both at their best
        ("FedProto", 5, 1, 60.0, 60.0),  # one seed
        ("Standalone", 1, 3, 50.0, 40.0),
        ("Standalone", 10, 3, 52.0, 39.0),
        ("Standalone", None, 3, 52.0, 40.0),  # of `tuned`
        ("FedGH", 10, 1, 52.0, 30.0),  # all there is
    ]
    table = pd.DataFrame(rows, columns=["reference", "local_epochs", "n", *differences.VALIDATION]).assign(**place)
    assert differences.at_best(table).tolist() == [False, True, False, False, False, True, True]


def test_a_change_is_taken_seed_by_seed_where_both_are():
    rows = [
        *(("FedSSA", 10, 100, seed, 50.0, 0) for seed in (3, 4, 5)),
        *(("FedSSA", 1, 100, seed, 30.0 + seed, 0) for seed in (2, 4, 5, 3)),
        ("FedProto", 1, 100, 4, 25.0, 0),
        ("FedProto", 10, 100, 4, 51.0, 0),
        ("Standalone", 1, 100, 4, 20.0, 0),
    ]
    found = differences._change(runs_of(*rows)).sort_values(["method", "seed"])
    changes = [["FedProto", 4, -26.0], ["FedSSA", 3, -17.0], ["FedSSA", 4, -16.0], ["FedSSA", 5, -15.0]]
    assert found[["method", "seed", "last"]].to_numpy().tolist() == changes
    assert set(found["setting"]) == {("cifar10", 10, 1.0, None, 64, 100)}
    assert not len(differences._change(runs_of(*rows[1:])))  # two seeds
