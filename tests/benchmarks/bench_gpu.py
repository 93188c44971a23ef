"""What a CUDA device is worth: a round on it beside the same round on one core, and several runs that share it.

Five clients of CNN-1..5, 480 random images of CIFAR's shape each, two epochs, evaluation and server included; a run's first round,
with its first visits, is left out. The first table has wall-clock seconds of a round and the ratio of the core's to the
device's (above 1: the device is faster). The second one has runs in processes of their own side by side on one device, and how
many times the work of one alone they do together.

    python tests/benchmarks/bench_gpu.py [--short]
"""

import multiprocessing
import time
from typing import Any

import numpy as np
import torch
from machine import describe, options, random_images

from fedlib import Federation, models, simulate
from fedlib.algorithms import make
from fedlib.protocol import Protocol

CLIENTS, IMAGES = 5, 480


def seconds(method: str, device: str, precision: str, batch: int, rounds: int, together: Any = None) -> float:
    """Of a round, by the wall clock: the median of those after the first. together: is waited at after that one."""
    share = IMAGES * 10 // 8
    every = np.arange(share * CLIENTS).reshape(CLIENTS, share)
    parts = [(own[:IMAGES], own[IMAGES : IMAGES + share // 10], own[IMAGES + share // 10 :]) for own in every]
    federation = Federation(
        random_images(share * CLIENTS),
        parts,
        tuple(models.CNN_WIDTHS),
        protocol=Protocol(lr=0.01),
        local_epochs=2,
        batch_size=batch,
        device=device,
        precision=precision,
    )
    ends: list[float] = []

    def after_round(outcome: Any) -> None:
        if together is not None and not ends:
            together.wait()
        ends.append(time.perf_counter())

    simulate(federation, make(method), rounds + 1, after_round=after_round)
    return float(np.median(np.diff(ends)))


SHARED = ("FedProto", "cuda", "fp32", 64, 5)


def beside(together: Any, said: Any) -> None:
    said.put(seconds(*SHARED, together))


def shared(number: int) -> float:
    """Seconds of a round where `number` processes share the device."""
    spawned = multiprocessing.get_context("spawn")
    together, said = spawned.Barrier(number), spawned.Queue()
    workers = [spawned.Process(target=beside, args=(together, said)) for _ in range(number)]
    for worker in workers:
        worker.start()
    measured = [said.get() for _ in workers]
    for worker in workers:
        worker.join()
    return float(np.mean(measured))


def main() -> None:
    short = options(__doc__).parse_args().short
    torch.set_num_threads(1)
    print(describe())
    if not torch.cuda.is_available():
        raise SystemExit("bench_gpu: there is no CUDA device on this machine")
    print(f"{torch.cuda.get_device_name()}; a round of {CLIENTS} clients of {IMAGES} images, two epochs")
    print(f"{'':<12}{'precision':>10}{'B':>6}{'core':>9}{'device':>9}{'ratio':>8}")
    for method in ("Standalone", "FedProto", "FedSSA", "FML"):
        for precision in ("fp32", "bf16"):
            for batch in (64, 512):
                core, device = (
                    seconds(method, where, precision, batch, 1 if short else 2) for where in ("cpu", "cuda")
                )
                print(
                    f"{method:<12}{precision:>10}{batch:>6}{core:>8.2f}s{device:>8.2f}s{core / device:>8.1f}",
                    flush=True,
                )
    print("FedProto, fp32, B = 64, side by side on one device")
    alone = seconds(*SHARED)
    for number in (2, 4) if short else (2, 4, 8, 16):
        each = shared(number)
        print(
            f"{number:>4} runs: {each:.2f} s a round, {number * alone / each:.1f} times the work of one alone",
            flush=True,
        )


if __name__ == "__main__":
    main()
