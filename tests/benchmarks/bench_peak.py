"""Training as a share of what the core can do, its fastest kernel, measured in the same run, in turns.

For each of CNN-1..5, batches of 64 and 512, fp32 and bf16, and two protocols: `paper` (plain SGD) and what the released
scripts do besides (momentum, weight decay, clipping, augmentation). Prints images a second and the share of the peak: of
the most FLOPs a second that a product of square matrices, of several sizes and written in place, or a convolution of 128
channels reached in the same precision, in any turn of any row. (Which of the two is faster depends on the libraries: on a
processor of AMD a product in fp32 is less than half a convolution.) `kernels` is the share that would be left if all but
the convolutions and matrix products themselves, timed inside the same training, cost nothing: what PyTorch's own allow.

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
SIZES = {384: 64, 768: 8, 1536: 1}  # of matrices, and how many products: equally many FLOPs
IMAGES, CHANNELS, SIDE = 16, 128, 32  # of the convolution, 3 x 3
MATRICES = {"mm", "addmm", "convolution", "convolution_backward"}  # what the FLOPs of our networks are in


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


def speeds(
    name: str, batch: int, precision: str, protocol: Protocol, count: int, repeats: int
) -> tuple[np.ndarray, float]:
    """FLOPs a second of training, as a whole and in its convolutions and matrix products alone (2,), medians over turns; and of
    the fastest kernel of any turn.
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
    matrices = [torch.randn(size, size).to(DTYPES[precision]) for size in SIZES]
    results = [torch.empty_like(matrix) for matrix in matrices]

    wide = torch.randn(IMAGES, CHANNELS, SIDE, SIDE).to(DTYPES[precision], memory_format=torch.channels_last)
    kernel = torch.randn(CHANNELS, CHANNELS, 3, 3).to(DTYPES[precision], memory_format=torch.channels_last)
    of_wide = 2 * IMAGES * (SIDE - 2) ** 2 * CHANNELS**2 * 9

    def peak() -> float:
        """The most FLOPs a second of a product or the convolution."""
        best = of_wide / seconds(lambda: torch.nn.functional.conv2d(wide, kernel))
        for (size, times), matrix, result in zip(SIZES.items(), matrices, results, strict=True):
            taken = seconds(lambda: [torch.mm(matrix, matrix, out=result) for _ in range(times)])  # noqa: B023
            best = max(best, times * 2 * size**3 / taken)
        return best

    def train() -> None:
        training.train(training.cross_entropy, modules, pool, indices, settings, stream, augment=augment)

    def alone() -> float:
        with Matrices() as matrices:
            train()
        return matrices.seconds

    peak(), train()
    turns = np.array([(peak(), seconds(train), alone()) for _ in range(repeats)])
    work = count * costs.training_flops(name, 10, 3)
    return np.median(work / turns[:, 1:], 0), float(turns[:, 0].max())


def main() -> None:
    short = shortened(__doc__)
    repeats, least = (2, 64) if short else (5, 1024)
    print(describe())
    with training.one_thread():
        print(f"images a second (share of the peak), {repeats} turns")
        print(f"{'':<24}{''.join(f'{name:>14}' for name in models.CNN_WIDTHS)}{'mean':>8}{'kernels':>9}{'peak':>6}")
        for precision in DTYPES:
            rows, peaks = {}, []
            for batch in (64, 512):
                for protocol in ("paper", FULL):
                    settings = PRESETS["FedSSA", protocol].protocol
                    given = (batch, precision, settings, max(batch, least), repeats)
                    found = [speeds(name, *given) for name in models.CNN_WIDTHS]
                    rows[batch, protocol] = np.array([each for each, _ in found])
                    peaks += [best for _, best in found]
            highest = max(peaks)
            for (batch, protocol), each in rows.items():
                images = each[:, 0] / [costs.training_flops(name, 10, 3) for name in models.CNN_WIDTHS]
                cells = "".join(
                    f"{speed:8.0f} ({part:.2f})"[-14:] for speed, part in zip(images, each[:, 0] / highest, strict=True)
                )
                part, kernels = each.mean(0) / highest
                label = f"{precision} B={batch} {protocol}"
                print(f"{label:<24}{cells}{part:8.2f}{kernels:9.2f}{highest / 1e9:6.0f}", flush=True)


if __name__ == "__main__":
    main()
