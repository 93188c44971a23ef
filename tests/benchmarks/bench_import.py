"""Seconds that a fresh Python takes to `import fedlib`, and of those torch's own (< 2.5 s in all expected).

python tests/benchmarks/bench_import.py [--short]
"""

import subprocess
import sys
import time

import numpy as np
from machine import describe, in_turns, shortened, spread


def main() -> None:
    repeats = 2 if shortened(__doc__) else 9
    print(describe())

    def fresh(statement: str) -> None:
        subprocess.run([sys.executable, "-c", statement], check=True)

    ours, bare = in_turns(lambda: fresh("import fedlib"), lambda: fresh("import torch"), repeats, time.perf_counter)
    print(f"{repeats} processes each, in turns; seconds, median (middle half)")
    print(f"  import fedlib: {spread(ours)}")
    print(f"  import torch:  {spread(bare)}")
    print(f"  difference of the medians: {np.median(ours) - np.median(bare):.3f}")


if __name__ == "__main__":
    main()
