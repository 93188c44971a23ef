"""What each method costs beside Standalone: processor time of whole rounds, evaluation and server included.

Five clients, CNN-1..5 (CNN-3 alone for methods that average whole models), 480 training images each, as of N = 100 on
CIFAR-10; E = 1, B = 64. Standalone and the method run in turns; a run's first round, with its first visits, is left out.
Prints the ratio of a round's times. Wanted: FedKD at most 2.2, pFedES (E_fe = E) at most 3.0, FedProto, FD and FedGH at
most 1.2.

    python tests/benchmarks/bench_methods.py [--short] [--methods FedKD,pFedES] [--precision bf16]
"""

import time

import numpy as np
import torch
from machine import describe, options, random_images, spread

from fedlib import Federation, models, simulate
from fedlib.algorithms import ALGORITHMS, Algorithm, make
from fedlib.protocol import Protocol

PARAMS = {"pFedES": {"extractor_epochs": 0}}  # as many epochs as the model's
WANTED = {"FedKD": 2.2, "pFedES": 3.0, "FedProto": 1.2, "FD": 1.2, "FedGH": 1.2}
PUBLIC = 256


def rounds(method: Algorithm, architectures: tuple[str, ...], count: int, number: int, precision: str) -> np.ndarray:
    """Seconds of processor time of each round but the first."""
    share, clients = count * 10 // 8, 5
    data = random_images(share * clients + PUBLIC)
    parts = [
        tuple(np.split(np.arange(k * share, (k + 1) * share), [count, count + share // 10])) for k in range(clients)
    ]
    federation = Federation(
        data,
        parts,
        architectures,
        protocol=Protocol(lr=0.01),
        batch_size=64,
        precision=precision,
        public=np.arange(share * clients, len(data.labels)),
    )
    ends: list[float] = []
    simulate(federation, method, number + 1, after_round=lambda outcome: ends.append(time.process_time()))
    return np.diff(ends)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--methods", help="some of them, by name (default: all but Standalone and pFedHR)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    arguments = parser.parse_args()
    names = [name for name in ALGORITHMS if name not in ("Standalone", "pFedHR")]
    names = arguments.methods.split(",") if arguments.methods else names
    count, number, turns = (16, 1, 1) if arguments.short else (480, 1, 3)
    torch.set_num_threads(1)
    print(describe())
    print(f"{'':<12}  round by Standalone's          wanted")
    for name in names:
        method = make(name, PARAMS.get(name, {}))
        turn = ("CNN-3",) if method.needs == "architecture" else tuple(models.CNN_WIDTHS)
        ratios = []
        for _ in range(turns):
            plain, own = (
                rounds(each, turn, count, number, arguments.precision) for each in (make("Standalone"), method)
            )
            ratios.append(own / plain)
        wanted = f"{WANTED[name]:.1f}" if name in WANTED else ""
        print(f"{name:<12}  {spread(np.concatenate(ratios)):<30}{wanted:>6}", flush=True)


if __name__ == "__main__":
    main()
