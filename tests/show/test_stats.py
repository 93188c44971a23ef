"""Differences: numbers worked by hand, and quantiles from printed tables."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import studentized_range

from fedlib.errors import FedlibError
from fedlib.show import stats

# Means 11, 13, 10 by method and 11, 12, 11 by seed less 0; residuals by hand:
#          seed 0  seed 1  seed 2   mean
# A           10      12      11      11
# B           12      14      13      13
# C            9       9      12      10
# seed     10.33   11.67   12.00   11.33
# residuals A: 0, 2/3, -2/3;  B: 0, 2/3, -2/3;  C: 0, -4/3, 4/3;  sum of squares 8/9 + 8/9 + 32/9 = 48/9, on (3-1)(3-1) = 4
HAND = {"A": {0: 10.0, 1: 12.0, 2: 11.0}, "B": {0: 12.0, 1: 14.0, 2: 13.0}, "C": {0: 9.0, 1: 9.0, 2: 12.0}}
POOLED = 48 / 9 / 4


def frame(values, **more):
    rows = [(m, s, v, v) for m, own in values.items() for s, v in own.items()]
    return pd.DataFrame(rows, columns=["method", "seed", "last", "last10"]).assign(**more)


def test_the_grids_variance_by_hand():
    assert stats.pooled(pd.DataFrame(HAND)) == (pytest.approx(POOLED), 4)


def test_a_variance_is_shrunk_to_the_grids_by_two_degrees_of_freedom():
    """C - A is -1, -3, 1: variance 4 on 2; the grid's, of a difference, is 2 * POOLED; half and half of both, on 4. t(.975, 4) = 2.776445.
    B - A is 2 at every seed: half of the grid's.
    """
    for method, mean, variance in (("C", -1.0, (2 * 4 + 2 * 2 * POOLED) / 4), ("B", 2.0, (2 * 0 + 2 * 2 * POOLED) / 4)):
        (row,) = stats.differences(frame(HAND), [(method, "A")]).itertuples()
        assert (row.difference, row.n) == (mean, 3) and row.half == pytest.approx(
            2.776445 * (variance / 3) ** 0.5, rel=1e-6
        )
    assert row.seeds == {0: 2.0, 1: 2.0, 2: 2.0}


def test_a_pair_alone_has_its_own_variance():
    """Two methods say nothing of the noise that their difference does not: Student's t on n - 1, t(.975, 2) = 4.302653."""
    (row,) = stats.differences(frame({name: HAND[name] for name in "AC"}), "A").itertuples()
    assert row.half == pytest.approx(4.302653 * 2 / 3**0.5, rel=1e-6)


def test_intervals_of_a_family_hold_together_and_settings_are_families_of_their_own():
    both = pd.concat([frame(HAND, setting="one"), frame(HAND, setting="other")])
    alone, found = stats.differences(frame(HAND), [("B", "A")]), stats.differences(both, "A")
    assert list(found["setting"]) == ["one", "one", "other", "other"] and found["half"].iloc[0] == found["half"].iloc[2]
    assert found["half"].iloc[0] > alone["half"].iloc[0]


def test_seeds_that_both_have_count():
    """C has seeds 0 and 1 only. By hand: the step between them is 2, 2 and 0, 4/3 on average; residuals +-1/3, +-1/3, -+2/3; df 3."""
    values = {"A": HAND["A"], "B": HAND["B"], "C": {0: 9.0, 1: 9.0}}
    variance, free = stats.pooled(pd.DataFrame(values))
    assert free == 3 and variance == pytest.approx(2 * (1 / 9 + 1 / 9 + 4 / 9) / 3)
    (row,) = stats.differences(frame(values), [("C", "A")]).itertuples()
    own = 2.0  # of -1 and -3, on 1
    assert row.n == 2 and row.difference == -2.0
    assert row.half == pytest.approx(3.182446 * ((own + 2 * 2 * variance) / 3 / 2) ** 0.5, rel=1e-6)  # t(.975, 3)


def test_quantiles_are_the_known_ones():
    """All pairs of 4 methods, 3 seeds: Tukey's studentised range over sqrt(2); against one: Dunnett's table, 3 against one, df 6."""
    every = [(a, b) for a in "ABCD" for b in "ABCD" if a < b]
    wide = stats.critical(stats._correlation(every, [[0, 1, 2]] * 6), 6)
    assert wide == pytest.approx(studentized_range.ppf(0.95, 4, 6) / 2**0.5, abs=0.02)
    wide = stats.critical(stats._correlation([(name, "A") for name in "BCD"], [[0, 1, 2]] * 3), 6)
    assert wide == pytest.approx(3.10, abs=0.02)  # Dunnett 1964, two-sided, p = 3, df = 6, 5 %


@pytest.mark.parametrize(
    ("last", "last10", "verdict"),
    [
        ([5.0, 5.1, 4.9], [5.0, 5.1, 4.9], "clear"),
        ([5.0, 5.1, 4.9], [5.0, -5.1, 4.9], "undecided"),  # both rules must agree
        ([5.0, 5.1, 4.9], [-5.0, -5.1, -4.9], "undecided"),
        ([0.1, 0.0, -0.1], [0.1, 0.0, -0.1], "no difference"),
        ([0.1, 0.0, -0.1], [3.0, 0.0, -3.0], "undecided"),
        ([5.0], [5.0], "one seed"),
        ([5.0, np.nan, 5.0], [5.0, np.nan, 5.0], "diverged"),
    ],
)
def test_a_verdict_needs_both_rules(last, last10, verdict):
    seeds = range(len(last))
    rows = pd.DataFrame({"method": "B", "seed": seeds, "last": last, "last10": last10})
    grid = pd.concat([rows, pd.DataFrame({"method": "A", "seed": seeds, "last": 0.0, "last10": 0.0})])
    (row,) = stats.differences(grid, "A").itertuples()
    assert (
        row.verdict == verdict and row.n == len(last) and (np.isnan(row.half) == (verdict in ("one seed", "diverged")))
    )
    assert stats.differences(grid, "A", margin=None)["verdict"].iloc[0] != "no difference"


def test_no_common_seed_no_row_and_two_runs_of_one_seed_are_refused():
    assert stats.differences(frame({"A": {0: 1.0}, "B": {1: 3.0}}), "A").empty
    with pytest.raises(FedlibError, match="frame = 'A, seed 0': must be one run a method, seed and setting"):
        stats.differences(pd.concat([frame(HAND), frame(HAND)]), "A")


def test_what_a_rule_reports_of_rounds():
    rounds = pd.DataFrame(
        {"key": "k", "round": [-1, *range(12)], "accuracy": [0.9, *(0.01 * n for n in range(12))]}
    ).assign(validation_accuracy=[9.0, 0, 0, 0, 1, *[0] * 8])
    said = {rule: stats.reported(rounds, rule)["k"] for rule in stats.RULES}
    assert said == pytest.approx({"last": 11, "last10": 6.5, "validation": 3, "best": 11})
    assert stats.reported(rounds, at=3)["k"] == pytest.approx(2) and np.isnan(stats.reported(rounds, at=13)["k"])


def test_rounding_a_singular_correlation_does_no_harm():
    """All pairs of six methods with unequal seeds: rounded to nine digits, the least eigenvalue is below -1e-9 for some."""
    stream, below = np.random.default_rng(0), 0
    for _ in range(60):
        kept = [{seed for seed in range(5) if stream.random() < 0.7} for _ in range(6)]
        pairs = [(i, j) for i in range(6) for j in range(i + 1, 6) if kept[i] & kept[j]]
        seeds = [sorted(kept[i] & kept[j]) for i, j in pairs]
        rounded = np.round(stats._correlation([(str(i), str(j)) for i, j in pairs], seeds), 9)
        if np.linalg.eigvalsh(rounded)[0] < -1e-9:
            below += 1
            assert 2 < stats.critical(rounded, 8) < 6
    assert below
