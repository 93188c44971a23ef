"""One run on several cores: a round's clients side by side in copies of the process, by one after the other.

FedSSA and Standalone, CIFAR-10's size (random images), N = 100, C = 10 %, E = 10 and 1, B = 64, fp32, CNN-1 to CNN-5: median
seconds of a round with 1, 2, 4, ... processes, and the ratio to one process; all must have the same digest.
--csv writes the rows, with the machine (committed: figures/benchmarks/clients.csv). Nothing else should run beside it.

    python tests/benchmarks/bench_clients.py [--short] [--rounds N] [--csv FILE]
"""

import itertools

import numpy as np
import pandas as pd
from machine import describe, options, random_images

from fedlib import Dataset, Federation, simulate, training
from fedlib.algorithms import make
from fedlib.lab.estimates import cores
from fedlib.simulation import Outcome


def trained(images: Dataset, method: str, epochs: int, processes: int, rounds: int) -> Outcome:
    parts = np.array_split(np.arange(len(images.labels)), 100)
    setting = training.processes.set(processes)
    try:
        return simulate(Federation(images, parts, local_epochs=epochs), make(method), rounds, 0.1)
    finally:
        training.processes.reset(setting)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="that are timed of each, after a first one")
    parser.add_argument("--csv", help="where the rows are written")
    arguments = parser.parse_args()
    images, rounds = random_images(6_000 if arguments.short else 60_000), 1 if arguments.short else arguments.rounds
    counts = [
        1,
        *itertools.takewhile(lambda count: count <= max(2, cores()), (2**power for power in itertools.count(1))),
    ]
    print(machine := describe())
    rows = []
    for method, epochs in itertools.product(("Standalone", "FedSSA"), (1,) if arguments.short else (10, 1)):
        found = {processes: trained(images, method, epochs, processes, 1 + rounds) for processes in counts}
        assert len({outcome.digest() for outcome in found.values()}) == 1
        for processes, outcome in found.items():
            seconds = np.median([row["seconds"] for row in outcome.timing_rows[1:]])
            alone = np.median([row["seconds"] for row in found[1].timing_rows[1:]])
            rows.append({"method": method, "E": epochs, "processes": processes, "seconds a round": round(seconds, 2)})
            rows[-1]["of one process"] = round(seconds / alone, 2)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if arguments.csv:
        table.assign(machine=machine).to_csv(arguments.csv, index=False)


if __name__ == "__main__":
    main()
