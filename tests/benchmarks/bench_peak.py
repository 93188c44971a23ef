"""Training as a share of what the core can do: matrix products and memory, measured in the same run, in turns.

For each of CNN-1..5, batches of 64 and 512, fp32 and bf16, and two protocols: `paper` (plain SGD) and what the released
scripts do besides (momentum, weight decay, clipping, augmentation). Prints images a second and the share of the peak of
a product of two 1024 x 1024 matrices of the same precision. Wanted under `paper`: fp32 0.65 (B = 64) and 0.75 (B = 512),
bf16 0.50 and 0.62; under the other at most 15 % less. `kernels` is the share that would be left if all but the
convolutions and matrix products themselves, timed inside the same training, cost nothing: what PyTorch's own allow.

    python tests/benchmarks/bench_peak.py [--short]
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from machine import describe, random_images, shortened
from torch.utils._python_dispatch import TorchDispatchMode

from fedlib import models, training
from fedlib.lab import costs
from fedlib.lab.presets import PRESETS
from fedlib.protocol import Protocol
from fedlib.randomness import generator

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FULL = "reconstructed" if ("FedSSA", "reconstructed") in PRESETS else "released"
MATRICES = {"mm", "addmm", "convolution", "convolution_backward"}  # what the FLOPs of our networks are in
WANTED = {("fp32", 64): 0.65, ("fp32", 512): 0.75, ("bf16", 64): 0.50, ("bf16", 512): 0.62}


class Matrices(TorchDispatchMode):
    """Seconds of processor time inside convolutions and matrix products, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        started = time.process_time()
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in MATRICES:
            self.seconds += time.process_time() - started
        return result


def seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


def memory() -> float:
    """GB a second, read and written, of copying 256 MB."""
    one = torch.ones(2**25)
    other = torch.empty_like(one)
    return 2 * 4 * len(one) / min(seconds(lambda: other.copy_(one)) for _ in range(5)) / 1e9


def share(
    name: str, batch: int, precision: str, protocol: Protocol, count: int, repeats: int
) -> tuple[float, float, float, float]:
    """Images a second, the peak in GFLOP a second, training as a share of it, and that of its convolutions and matrix
    products alone: medians over turns.
    """
    data, indices = random_images(count), torch.arange(count)
    mean, std = (torch.tensor(values).view(-1, 1, 1) * 255 for values in (data.mean, data.std))
    pool = training.Pool(data.images, data.labels, mean, std, precision)
    settings = training.Settings(
        1, batch, protocol.lr, protocol.momentum, protocol.weight_decay, protocol.clip_norm, protocol.optimiser
    )
    stream = np.random.default_rng(0)
    augment = None if protocol.augmentation == "none" else partial(training.augmented, stream=stream)
    modules = {"model": models.build(name, 10, 3, generator(0, "init"))}
    matrix = torch.randn(1024, 1024).to(DTYPES[precision])

    def product() -> None:
        for _ in range(10):
            matrix @ matrix

    def train() -> None:
        training.train(training.cross_entropy, modules, pool, indices, settings, stream, augment=augment)

    def alone() -> float:
        with Matrices() as matrices:
            train()
        return matrices.seconds

    product(), train()
    turns = np.array([(seconds(product), seconds(train), alone()) for _ in range(repeats)])
    peaks, speeds = 10 * 2 * 1024**3 / turns[:, :1], count / turns[:, 1:]
    shares = speeds * costs.training_flops(name, 10, 3) / peaks  # of whole steps, of the matrices in them
    whole, matrices = np.median(shares, 0)
    return float(np.median(speeds[:, 0])), float(np.median(peaks)) / 1e9, float(whole), float(matrices)


def main() -> None:
    short = shortened(__doc__)
    repeats, least = (2, 64) if short else (5, 1024)
    print(describe())
    with training.one_thread():
        print(f"memory {memory():.0f} GB/s; images a second (share of the peak of matrix products), {repeats} turns")
        print(
            f"{'':<24}{''.join(f'{name:>14}' for name in models.CNN_WIDTHS)}{'mean':>8}{'wanted':>8}{'kernels':>9}{'peak':>6}"
        )
        for precision in DTYPES:
            for batch in (64, 512):
                for protocol in ("paper", FULL):
                    settings = PRESETS["FedSSA", protocol].protocol
                    found = np.array(
                        [
                            share(name, batch, precision, settings, max(batch, least), repeats)
                            for name in models.CNN_WIDTHS
                        ]
                    )
                    wanted = WANTED[precision, batch] * (1 if protocol == "paper" else 0.85)
                    cells = "".join(f"{speed:8.0f} ({part:.2f})"[-14:] for speed, _, part, _ in found)
                    label = f"{precision} B={batch} {protocol}"
                    _, peak, part, kernels = found.mean(0)
                    print(f"{label:<24}{cells}{part:8.2f}{wanted:8.2f}{kernels:9.2f}{peak:6.0f}", flush=True)


if __name__ == "__main__":
    main()
