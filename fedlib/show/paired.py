"""Differences of methods, paired by seed, with one error for all of a grid.

The error is the residual of a least-squares fit of method and seed to the grid's values, so that each difference uses what all
methods say of the noise, not only its own two. Intervals hold together for the differences that a question is about: a
multivariate t. Where one method is much noisier than the others, each pair has its own error (Student t, Bonferroni), and
the result says so. `tests/benchmarks/bench_error.py` simulates what these intervals cover.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import chdtrc, ndtri, stdtrit

LEVEL = 0.95
# A grid has one error while its noisiest method is no noisier than this part of all grids with equal noise would show.
EVEN = 0.8
_DRAWS = 20_000
_POINTS = 15  # a power of two

Values = Mapping[str, Mapping[int, float]]  # method -> seed -> value


@dataclass(frozen=True)
class Error:
    """A grid's common error: standard deviation of one value about method + seed, on `df` degrees of freedom (0: none), and
    whether the methods are alike enough in noise to share it.
    """

    sigma: float
    df: int
    even: bool

    @property
    def shared(self) -> bool:
        return self.df > 0 and self.even


@dataclass(frozen=True)
class Difference:
    """own - other over the `n` seeds that both have: mean, standard error and its degrees of freedom (0: one seed, no error).

    shared: whether the error is the grid's; half: half-width of the interval that holds for all differences of the question
    together (NaN: one seed); wide: half in standard errors.
    """

    own: str
    other: str
    n: int
    mean: float
    se: float
    df: int
    shared: bool
    wide: float

    @property
    def half(self) -> float:
        return self.wide * self.se

    def equal(self, margin: float) -> bool:
        """Whether two one-sided tests at 5 % put the difference within +-margin."""
        return self.df > 0 and abs(self.mean) + float(stdtrit(self.df, LEVEL)) * self.se < margin


def error(values: Values) -> Error:
    """The common error of the runs of a grid; not every method needs every seed. NaN values, of runs that diverged, are left out."""
    table = pd.DataFrame(values).T.astype(float)
    present = table.notna().to_numpy()
    rows, columns = np.nonzero(present)
    if not len(rows):
        return Error(float("nan"), 0, True)
    residual_maker, df = _residuals(present.tobytes(), present.shape)
    residuals = residual_maker @ table.to_numpy()[rows, columns]
    if df < 1:
        return Error(float("nan"), 0, True)
    variance = float((residuals**2).sum()) / df
    noisiest = _noisiest(residuals[None, :] ** 2, residual_maker, rows)[0]
    usual = _usual(present.tobytes(), present.shape) * (1 + 1e-9)  # of two methods both are 1, but for rounding
    return Error(variance**0.5, df, bool(noisiest <= usual))


@cache
def _residuals(present: bytes, shape: tuple[int, int]) -> tuple[np.ndarray, int]:
    """The matrix that takes values to their residuals about method + seed, and its rank."""
    rows, columns = np.nonzero(np.frombuffer(present, bool).reshape(shape))
    design = np.hstack([np.eye(shape[0])[rows], np.eye(shape[1])[columns]])
    maker = np.eye(len(rows)) - design @ np.linalg.pinv(design)
    return maker, round(float(np.trace(maker)))


def _noisiest(squares: np.ndarray, maker: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How many times the common variance that of the noisiest method is, for each row of squared residuals (Cochran's C in other
    units). A method that has no residual of its own counts for nothing.
    """
    own = [
        (squares[:, rows == row].sum(1), float(np.trace(maker[np.ix_(rows == row, rows == row)]))) for row in set(rows)
    ]
    common = squares.sum(1) / np.trace(maker)
    return np.max([total / free for total, free in own if free > 1e-9], axis=0) / np.maximum(common, 1e-300)


@cache
def _usual(present: bytes, shape: tuple[int, int]) -> float:
    """What `_noisiest` stays below in EVEN of all grids of this pattern whose methods are equally noisy."""
    maker, _ = _residuals(present, shape)
    rows, _ = np.nonzero(np.frombuffer(present, bool).reshape(shape))
    drawn = np.random.default_rng(0).standard_normal((_DRAWS, len(rows))) @ maker
    return float(np.quantile(_noisiest(drawn**2, maker, rows), EVEN))


def differences(
    values: Values,
    pairs: Sequence[tuple[str, str]],
    common: Error | None = None,
    outside: frozenset[str] = frozenset(),
    level: float = LEVEL,
) -> list[Difference]:
    """Each (own, other) of `pairs`, with intervals that hold for all of them together; pairs without a common seed are left out.

    common: the error of the grid that the methods belong to, of these values by default; outside: methods that do not belong to
    it, whose pairs keep their own error; level: at which the intervals hold together.
    """
    common = error(values) if common is None else common
    seeds = {pair: [seed for seed in values[pair[0]] if seed in values[pair[1]]] for pair in pairs}
    pairs = [pair for pair in pairs if seeds[pair]]
    sharing = [pair for pair in pairs if common.shared and outside.isdisjoint(pair)]
    tested = sum(pair in sharing or len(seeds[pair]) > 1 for pair in pairs)
    wide = critical(_correlation(sharing, seeds), common.df, 1 - (1 - level) * len(sharing) / tested) if sharing else 0
    found = []
    for own, other in pairs:
        apart = np.array([values[own][seed] - values[other][seed] for seed in seeds[own, other]])
        n, mean = len(apart), float(apart.mean())
        if (own, other) in sharing:
            found.append(Difference(own, other, n, mean, common.sigma * (2 / n) ** 0.5, common.df, True, wide))
        elif n > 1:
            alone = float(stdtrit(n - 1, 1 - (1 - level) / 2 / tested))
            found.append(Difference(own, other, n, mean, float(apart.std(ddof=1)) / n**0.5, n - 1, False, alone))
        else:
            found.append(Difference(own, other, n, mean, float("nan"), 0, False, float("nan")))
    return found


def _correlation(pairs: Sequence[tuple[str, str]], seeds: Mapping[tuple[str, str], Sequence[int]]) -> np.ndarray:
    """Correlations of the means of paired differences, from the runs that they have in common."""
    weights = [
        {
            (name, seed): sign / len(seeds[pair])
            for name, sign in zip(pair, (1, -1), strict=True)
            for seed in seeds[pair]
        }
        for pair in pairs
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
