"""Differences with one error: numbers worked by hand, and quantiles from printed tables."""

import numpy as np
import pytest
from scipy.stats import studentized_range
from scipy.stats import t as student_t

from fedlib.show import paired

# Means 11, 13, 10 by method and 11, 12, 11 by seed less 0; residuals by hand:
#          seed 0  seed 1  seed 2   mean
# A           10      12      11      11
# B           12      14      13      13
# C            9       9      12      10
# seed     10.33   11.67   12.00   11.33
# residuals A: 0, 2/3, -2/3;  B: 0, 2/3, -2/3;  C: 0, -4/3, 4/3;  sum of squares 8/9 + 8/9 + 32/9 = 48/9, on (3-1)(3-1) = 4
HAND = {"A": {0: 10.0, 1: 12.0, 2: 11.0}, "B": {0: 12.0, 1: 14.0, 2: 13.0}, "C": {0: 9.0, 1: 9.0, 2: 12.0}}
SIGMA = (48 / 9 / 4) ** 0.5


@pytest.mark.parametrize("seed", range(20))
def test_two_methods_are_as_noisy_as_each_other(seed):
    """Their residuals are each other's negatives, whatever the values: no rounding decides whether they share an error."""
    values = np.random.default_rng(seed).normal(50, 1, (2, 3))
    assert paired.error({name: dict(enumerate(own)) for name, own in zip("AB", values, strict=True)}).even


def test_the_common_error_by_hand():
    found = paired.error(HAND)
    assert found.df == 4 and found.sigma == pytest.approx(SIGMA)


def test_differences_share_the_error_though_their_own_is_zero():
    """B - A is 2 at every seed: its own standard error would be 0."""
    (found,) = paired.differences(HAND, [("B", "A")], paired.Error(SIGMA, 4, True))
    assert (found.mean, found.n, found.df, found.shared) == (2.0, 3, 4, True)
    assert found.se == pytest.approx(SIGMA * (2 / 3) ** 0.5)
    assert found.half == pytest.approx(2.776445 * SIGMA * (2 / 3) ** 0.5, rel=1e-6)


def test_an_uneven_grid_leaves_each_pair_its_own_error():
    (found,) = paired.differences(HAND, [("A", "C")], paired.Error(SIGMA, 4, False))
    apart = np.array([1.0, 3.0, -1.0])
    assert not found.shared and found.df == 2 and found.mean == 1.0
    assert found.half == pytest.approx(4.302653 * apart.std(ddof=1) / 3**0.5, rel=1e-6)
    pair = paired.differences(HAND, [("A", "C"), ("B", "C")], paired.Error(SIGMA, 4, False))[0]
    assert pair.wide == pytest.approx(student_t.ppf(1 - 0.05 / 4, 2))  # Bonferroni for two


def test_a_row_outside_the_grid_turns_nothing_inside():
    noisy = HAND | {"D": {0: 0.0, 1: 50.0, 2: -40.0}}
    common = paired.Error(SIGMA, 4, True)
    inside, outside = paired.differences(noisy, [("B", "A"), ("D", "A")], common, frozenset({"D"}))
    assert inside.shared and inside.se == pytest.approx(SIGMA * (2 / 3) ** 0.5) and not outside.shared


def test_one_much_noisier_method_makes_a_grid_uneven():
    steps = {0: 1.0, 1: -1.0, 2: 0.0}, {0: 0.0, 1: 1.0, 2: -1.0}, {0: -1.0, 1: 0.0, 2: 1.0}
    even = {f"m{i}": steps[i % 3] for i in range(6)}
    uneven = even | {"m5": {seed: 10 * step for seed, step in steps[2].items()}}
    assert paired.error(even).even and not paired.error(uneven).even
    assert (
        paired.differences(even, [("m0", "m1")])[0].shared and not paired.differences(uneven, [("m0", "m1")])[0].shared
    )


def test_unequal_numbers_of_seeds():
    """C has seeds 0 and 1 only. By hand, with A and B equal in their steps (residuals 0) and C's step 0 against theirs of 2: the fit
    of the step between seeds 0 and 1 is their mean, (2 + 2 + 0) / 3 = 4/3; residuals +-1/3, +-1/3, -+2/3; df = 8 - 3 - 2 = 3.
    """
    values = {"A": HAND["A"], "B": HAND["B"], "C": {0: 9.0, 1: 9.0}}
    found = paired.error(values)
    assert found.df == 3 and found.sigma == pytest.approx((2 * (1 / 9 + 1 / 9 + 4 / 9) / 3) ** 0.5)
    (short,) = paired.differences(values, [("C", "A")], paired.Error(found.sigma, found.df, True))
    assert short.n == 2 and short.mean == -2.0 and short.se == pytest.approx(found.sigma)


def test_quantiles_are_the_known_ones():
    """All pairs of 4 methods, 3 seeds: Tukey's studentised range over sqrt(2); against one: Dunnett's table, 3 against one, df 6."""
    names = "ABCD"
    seeds = {(a, b): [0, 1, 2] for a in names for b in names if a != b}
    every = [(a, b) for a in names for b in names if a < b]
    wide = paired.critical(paired._correlation(every, seeds), 6)
    assert wide == pytest.approx(studentized_range.ppf(0.95, 4, 6) / 2**0.5, abs=0.02)
    against = [(name, "A") for name in "BCD"]
    wide = paired.critical(paired._correlation(against, seeds), 6)
    assert wide == pytest.approx(3.10, abs=0.02)  # Dunnett 1964, two-sided, p = 3, df = 6, 5 %


def test_one_seed_has_no_interval_and_no_common_seed_no_difference():
    (found,) = paired.differences({"A": {0: 1.0}, "B": {0: 3.0, 1: 4.0}}, [("A", "B")])
    assert found.mean == -2.0 and found.df == 0 and np.isnan(found.half) and not found.equal(5)
    assert paired.differences({"A": {0: 1.0}, "B": {1: 3.0}}, [("A", "B")]) == []


def test_equal_within_a_margin_by_two_one_sided_tests():
    """t(0.95, 18) = 1.734064: 0.3 + 1.734 * 0.4 = 0.994 lies within 1; 0.31 and more does not."""
    inside = paired.Difference("A", "B", 3, -0.3, 0.4, 18, True, 3.0)
    outside = paired.Difference("A", "B", 3, -0.31, 0.4, 18, True, 3.0)
    assert inside.equal(1.0) and not outside.equal(1.0)


def test_rounding_a_singular_correlation_does_no_harm():
    """All pairs of six methods with unequal seeds: rounded to nine digits, the least eigenvalue is below -1e-9 for some."""
    stream, below = np.random.default_rng(0), 0
    for _ in range(60):
        kept = {f"m{k}": {seed: 0.0 for seed in range(5) if stream.random() < 0.7} for k in range(6)}
        pairs = [
            (one, other) for one in kept for other in kept if one < other and kept[one].keys() & kept[other].keys()
        ]
        seeds = {pair: sorted(kept[pair[0]].keys() & kept[pair[1]].keys()) for pair in pairs}
        rounded = np.round(paired._correlation(pairs, seeds), 9)
        if np.linalg.eigvalsh(rounded)[0] < -1e-9:
            below += 1
            assert 2 < paired.critical(rounded, 8) < 6
    assert below
