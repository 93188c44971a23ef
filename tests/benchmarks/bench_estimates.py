"""What estimates of time are worth: each of the last 50 results of record that have processor seconds, predicted from those
finished before it.

python tests/benchmarks/bench_estimates.py
"""

import numpy as np

from fedlib.lab import estimates, of_record

LAST = 50


def main() -> None:
    records = sorted(of_record.read_results(), key=lambda record: record.provenance["finished"])
    timed = estimates.Timed.of(records)
    first = max(1, len(timed) - LAST)
    predicted = [
        estimates.expected_seconds([timed[at].run], timed[:at], of_record=True)[0] for at in range(first, len(timed))
    ]
    seconds = np.array([one.seconds for one in timed[first:]])
    ratios = np.array(predicted) / seconds
    print(f"{'method':<12}{'data set':<10}{'T':>4}{'E':>4}{'predicted s':>13}{'took s':>9}{'ratio':>7}")
    for one, guess, ratio in zip(timed[first:], predicted, ratios, strict=True):
        spec = one.run.spec
        sizes = f"{spec.rounds:>4}{spec.local_epochs:>4}"
        print(f"{spec.algorithm:<12}{spec.dataset:<10}{sizes}{guess:>13.0f}{one.seconds:>9.0f}{ratio:>7.2f}")
    near = int(((ratios >= 1 / 1.25) & (ratios <= 1.25)).sum())
    print(f"within a factor of 1.25: {near} of {len(ratios)}; median ratio {np.median(ratios):.2f}; ", end="")
    print(f"all together {sum(predicted) / seconds.sum():.2f}")


if __name__ == "__main__":
    main()
