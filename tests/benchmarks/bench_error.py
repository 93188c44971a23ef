"""How often the intervals of a family cover all its true differences together: 95 % are asked for.

    python tests/benchmarks/bench_error.py

Simulates grids of `methods` x n seeds with normal noise and compares all methods with the first one; a row is a pattern of noise
(standard deviations 1:1, 1:2, 1:4, of the reference, of one other method, or of every second one). Columns: the moderated intervals
of `show/stats.py`, intervals that share one error, and those of each pair alone (Bonferroni), each with its mean half-width.
The first rows are the designs of the results of record. The rows are written to figures/benchmarks/error.csv, which is committed.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from fedlib.show import stats

ROWS = Path(__file__).parents[2] / "figures" / "benchmarks" / "error.csv"
DRAWS = 10_000
OURS = {
    "main table, three seeds": (9, 3),
    "main table, five seeds": (4, 5),
    "long": (3, 3),
    "pFedHR": (5, 3),
    "a pair": (2, 3),
}


def coverage(noise: np.ndarray, n: int, rng: np.random.Generator) -> dict[str, float]:
    methods = len(noise)
    values = rng.standard_normal((DRAWS, methods, n)) * noise[None, :, None]
    centred = (
        values - values.mean(1, keepdims=True) - values.mean(2, keepdims=True) + values.mean((1, 2), keepdims=True)
    )
    free = (methods - 1) * (n - 1)
    pooled = (centred**2).sum((1, 2)) / free
    apart = values[:, 1:] - values[:, :1]
    own, prior = n - 1, min(stats.PRIOR, free - (n - 1))
    correlation = stats._correlation([(str(row), "0") for row in range(1, methods)], [range(n)] * (methods - 1))
    shrunk = (own * apart.var(2, ddof=1) + prior * 2 * pooled[:, None]) / (own + prior)
    halves = {
        "moderated": stats.critical(correlation, own + prior) * np.sqrt(shrunk / n),
        "one error": stats.critical(correlation, free) * np.sqrt(2 * pooled / n)[:, None] * np.ones(methods - 1),
        "own errors": student_t.ppf(1 - 0.025 / (methods - 1), own) * apart.std(2, ddof=1) / np.sqrt(n),
    }
    found = {}
    for name, half in halves.items():
        found |= {name: 100 * (np.abs(apart.mean(2)) <= half).all(1).mean(), f"{name}, ±": half.mean()}
    return found


def main() -> None:
    rng, rows = np.random.default_rng(1), {}
    designs = OURS | {f"{methods} x {n}": (methods, n) for methods in (4, 9) for n in (3, 4, 5)}
    for design, (methods, n) in designs.items():
        every = np.arange(methods)
        patterns = {"reference": every == 0, "one other": every == methods - 1, "every second": every % 2 == 1}
        rows[design, "1:1", "all"] = coverage(np.ones(methods), n, rng)
        for ratio in (2, 4):
            for name, noisy in patterns.items():
                rows[design, f"1:{ratio}", name] = coverage(np.where(noisy, ratio, 1.0), n, rng)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["design", "noise", "of"])
    print(table.round(1).to_string())
    table.round(2).to_csv(ROWS)


if __name__ == "__main__":
    main()
