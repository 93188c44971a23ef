"""Differences of methods, paired by seed: the one place where a difference, its interval and its verdict are made.

A difference's variance is that of its own seeds, shrunk to the variance that its whole grid has about method and seed: the weighted
mean of both, the grid's with the weight of PRIOR degrees of freedom (Smyth 2004's moderated t, with a fixed prior). The intervals
of a family hold together: a multivariate t. `tests/benchmarks/bench_error.py` simulates what they cover: nominally 95 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import chdtrc, ndtri, stdtrit

from ..errors import choose, require

VERSION = 1  # of the rule
LEVEL = 0.95
PRIOR = 2  # degrees of freedom that the grid's variance counts for
_POINTS = 15  # a power of two

RULES = {
    "last": "the last round",
    "last10": "the mean of the last ten rounds",
    "validation": "the round of best mean validation accuracy",
    "best": "the round of best mean test accuracy (selects on the test split)",
}


def reported(rounds: pd.DataFrame, rule: str = "last", at: int | None = None, column: str = "accuracy") -> pd.Series:
    """What `rule` reports of each run in `rounds` (`lab.tidy`), in per cent, by key; at: as if the run had ended after so many
    rounds (NaN where it has fewer).
    """
    choose("rule", rule, RULES)
    rows = rounds[rounds["round"] >= 0]
    if at is not None:
        rows = rows[rows["round"] < at]
    by_run = rows.groupby("key")
    if rule in ("last", "last10"):
        found = by_run[column].apply(lambda own: own.tail(10 if rule == "last10" else 1).mean())
    else:
        chosen = rows["validation_accuracy" if rule == "validation" else column].groupby(rows["key"]).idxmax()
        found = rows.loc[chosen].set_index("key")[column]
    short = by_run["round"].max() + 1 < (at or 0)
    return 100 * found.mask(short)


def by_rules(runs: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
    """`runs` (a row a run) with what each of RULES reports in per cent, and `selected`: the best round of the mean over the clients that
    it selected, which the released scripts print. NaN where a run diverged, and of `validation` where no image is held out.
    """
    own = rounds[rounds["key"].isin(runs["key"])]
    said = {rule: reported(own, rule) for rule in ("last", "last10", "best")}
    held = own[own["validation_accuracy"].notna()] if "validation_accuracy" in own else own.head(0)
    said["validation"] = reported(held, "validation") if len(held) else pd.Series(dtype=float)
    said["selected"] = reported(own, "best", column="accuracy_selected") if len(own) else pd.Series(dtype=float)
    diverged = runs["status"] == "diverged"
    return runs.assign(**{name: runs["key"].map(one).mask(diverged) for name, one in said.items()})


def differences(
    frame: pd.DataFrame,
    against: str | Sequence[tuple[str, str]],
    *,
    value: str = "last",
    also: str | None = "last10",
    margin: float | None = 1.0,
) -> pd.DataFrame:
    """Each method minus its reference, paired by seed, in every setting of `frame`: one family, whose intervals hold together.

    frame: a row a run of the whole grid, with `method`, `seed`, the columns `value` and `also` (points) and, where there are
    several, `setting`. against: the reference of every other method, or the pairs (method, reference). Gives setting, method,
    reference, difference, half (of the 95 % interval; NaN with one seed), n, seeds (the differences seed by seed) and verdict;
    pairs without a common seed are left out. `clear`: the intervals of both columns leave out 0 on the same side; `no difference`:
    two one-sided tests at 5 % put both differences within `margin`; else `undecided`. A pair with a run whose value is NaN has
    `diverged`. Raises FedlibError for two runs of one method, seed and setting.
    """
    frame = frame if "setting" in frame else frame.assign(setting="")
    rows = []
    for setting, grid in frame.groupby("setting", sort=False):
        seeds = {str(method): set(own["seed"]) for method, own in grid.groupby("method", sort=False)}
        asked = [(method, against) for method in seeds if method != against] if isinstance(against, str) else against
        pairs = [(m, r) for m, r in asked if seeds.get(m, set()) & seeds.get(r, set())]
        made = [_family(grid, pairs, column) for column in (value, also) if column]
        for index, (method, reference) in enumerate(pairs):
            first = made[0][index]
            said = {"setting": setting, "method": method, "reference": reference, "difference": first.mean}
            verdict = _verdict([one[index] for one in made], margin)
            rows.append(said | {"half": first.half, "n": first.n, "seeds": first.seeds, "verdict": verdict})
    columns = ["setting", "method", "reference", "difference", "half", "n", "seeds", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def student(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean and half-width of its 95 % Student t interval; the half-width of a single value is NaN."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 2:
        return float(sample.mean()), float("nan")
    quantile = float(stdtrit(len(sample) - 1, 0.975))
    return float(sample.mean()), float(quantile * sample.std(ddof=1) / np.sqrt(len(sample)))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The ends of `student`'s interval, cut at 0 and 100, for seaborn's `errorbar`; of one value the value itself."""
    mean, half = student(values)
    half = 0.0 if np.isnan(half) else half
    return max(mean - half, 0.0), min(mean + half, 100.0)


@dataclass(frozen=True)
class _Difference:
    """A difference: values seed by seed, standard error, its degrees of freedom, and how many of them the interval reaches."""

    seeds: Mapping[int, float]
    se: float
    df: int
    wide: float

    @property
    def n(self) -> int:
        return len(self.seeds)

    @property
    def mean(self) -> float:
        return sum(self.seeds.values()) / self.n

    @property
    def half(self) -> float:
        return self.wide * self.se

    def within(self, margin: float) -> bool:
        return bool(abs(self.mean) + float(stdtrit(self.df, LEVEL)) * self.se < margin)


def _verdict(found: Sequence[_Difference], margin: float | None) -> str:
    if any(np.isnan(one.mean) for one in found):
        return "diverged"
    if found[0].n == 1:
        return "one seed"
    if all(abs(one.mean) > one.half for one in found) and len({one.mean > 0 for one in found}) == 1:
        return "clear"
    return "no difference" if margin and all(one.within(margin) for one in found) else "undecided"


def _family(grid: pd.DataFrame, pairs: Sequence[tuple[str, str]], column: str) -> list[_Difference]:
    """The differences of `pairs`, in their order, with intervals that hold together."""
    values: dict[str, dict[int, float]] = {}
    for method, seed, one in zip(grid["method"], grid["seed"], grid[column], strict=True):
        twice = seed in values.setdefault(method, {})
        require(not twice, "frame", f"{method}, seed {seed}", "one run a method, seed and setting")
        values[method][int(seed)] = float(one)
    variance, free = pooled(pd.DataFrame(values))
    apart = [{s: values[m][s] - values[r][s] for s in sorted(values[m].keys() & values[r].keys())} for m, r in pairs]
    several = [(pair, [*seeds]) for pair, seeds in zip(pairs, apart, strict=True) if len(seeds) > 1]
    correlation = _correlation([pair for pair, _ in several], [seeds for _, seeds in several])
    made = []
    for seeds in apart:
        own = len(seeds) - 1
        prior = min(PRIOR, max(free - own, 0))  # none where the grid is this pair alone
        if own:
            both = own * float(np.var([*seeds.values()], ddof=1)) + (prior * 2 * variance if prior else 0.0)
            se, df = (both / (own + prior) / len(seeds)) ** 0.5, own + prior
            made.append(_Difference(seeds, se, df, critical(correlation, df)))
        else:
            made.append(_Difference(seeds, float("nan"), 0, float("nan")))
    return made


def pooled(values: pd.DataFrame) -> tuple[float, int]:
    """The variance of a value about method (columns) + seed (rows), by least squares, and its degrees of freedom; NaN are left out."""
    present = values.notna().to_numpy()
    rows, columns = np.nonzero(present)
    design = np.hstack([np.eye(present.shape[0])[rows], np.eye(present.shape[1])[columns]])
    maker = np.eye(len(rows)) - design @ np.linalg.pinv(design)
    free = round(float(np.trace(maker)))
    residuals = maker @ values.to_numpy(float)[rows, columns]
    return (float((residuals**2).sum()) / free if free else float("nan")), free


def _correlation(pairs: Sequence[tuple[str, str]], seeds: Sequence[Sequence[int]]) -> np.ndarray:
    """Correlations of the means of paired differences, from the runs that they have in common."""
    weights = [
        {(name, seed): sign / len(own) for name, sign in zip(pair, (1, -1), strict=True) for seed in own}
        for pair, own in zip(pairs, seeds, strict=True)
    ]
    table = pd.DataFrame(weights).fillna(0.0).to_numpy()
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table @ table.T)


def critical(correlation: np.ndarray, df: int, level: float = LEVEL) -> float:
    """How many standard errors intervals must reach to each side to hold together with probability `level`: the two-sided quantile
    of a multivariate t with these correlations. From scrambled Sobol points, the same on every machine.
    """
    if len(correlation) == 1:
        return float(stdtrit(df, 0.5 + level / 2))
    return _critical(np.round(correlation, 9).tobytes(), len(correlation), df, level)


@cache
def _critical(correlation: bytes, size: int, df: int, level: float) -> float:
    # A Cholesky factor is unique, which eigenvectors of equal eigenvalues are not; the matrix may be singular, and rounding may have
    # left it a little below that.
    matrix = np.frombuffer(correlation).reshape(size, size)
    below = min(0.0, float(np.linalg.eigvalsh(matrix)[0]))
    factor = np.linalg.cholesky(matrix + (1e-9 if below > -5e-10 else 1e-9 - 2 * below) * np.eye(size))
    from scipy.stats import qmc  # takes a second, and only joint intervals need it

    points = qmc.Sobol(size, rng=0).random_base2(_POINTS)
    largest = np.abs(ndtri(np.clip(points, 1e-12, 1 - 1e-12)) @ factor.T).max(axis=1)
    low, high = 0.0, 200.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        inside = chdtrc(df, df * (largest / middle) ** 2).mean()
        low, high = (middle, high) if inside < level else (low, middle)
    return high
