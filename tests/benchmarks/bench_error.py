"""How often intervals that share one error cover all true differences to the first method together: 95 % are asked for.

    python tests/benchmarks/bench_error.py

Simulates grids of `methods` x n seeds with normal noise; one row a pattern of noise (standard deviations 1:1, 1:2, 1:4, of the
reference, of one other method, or of every second one). Columns: every grid with one error; every pair with its own; and what
`show/paired.py` does, one error unless the noisiest method is noisier than EVEN of the grids with equal noise would show, with
the share of grids that had one error, and the half-width of the intervals by that of pairs with their own error.
"""

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from fedlib.show import paired

DRAWS = 20_000


def coverage(noise: np.ndarray, n: int, rng: np.random.Generator) -> dict[str, float]:
    methods = len(noise)
    values = rng.standard_normal((DRAWS, methods, n)) * noise[None, :, None]
    present = np.ones((methods, n), bool)
    maker, df = paired._residuals(present.tobytes(), present.shape)
    squares = (values.reshape(DRAWS, -1) @ maker) ** 2
    even = paired._noisiest(squares, maker, np.nonzero(present)[0]) <= paired._usual(present.tobytes(), present.shape)
    apart = values[:, 1:] - values[:, :1]
    seeds = {(str(row), "0"): range(n) for row in range(1, methods)}
    wide = paired.critical(paired._correlation(list(seeds), seeds), df)
    one = wide * np.sqrt(squares.sum(1) / df * 2 / n)[:, None]
    own = student_t.ppf(1 - 0.025 / (methods - 1), n - 1) * apart.std(2, ddof=1) / np.sqrt(n)
    covered_one, covered_own = (np.abs(apart.mean(2)) <= half for half in (one, own))
    both = np.where(even, covered_one.all(1), covered_own.all(1))
    return {
        "one error": covered_one.all(1).mean(),
        "own errors": covered_own.all(1).mean(),
        "as in paired.py": both.mean(),
        "grids with one error": even.mean(),
        "half-width by own": one.mean() / own.mean(),
    }


def main() -> None:
    rng, rows = np.random.default_rng(1), {}
    for methods in (4, 9):
        every = np.arange(methods)
        for n in (3, 4, 5):
            for ratio in (1, 2, 4):
                who = (
                    {"all": every < 0}
                    if ratio == 1
                    else {"reference": every == 0, "one other": every == methods - 1, "every second": every % 2 == 1}
                )
                for name, noisy in who.items():
                    rows[methods, n, f"1:{ratio}", name] = coverage(np.where(noisy, ratio, 1.0), n, rng)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["methods", "n", "noise", "of"])
    print((100 * table).round(1).to_string())


if __name__ == "__main__":
    main()
