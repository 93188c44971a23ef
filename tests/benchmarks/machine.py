"""What every benchmark shares: CIFAR-10-sized data, timing in turns, and a line about the machine."""

import argparse
import os
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

from fedlib import Dataset


def options(description: str | None) -> argparse.ArgumentParser:
    """Of every benchmark: its text, and `--short`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="little work: shows that it runs, not what it costs")
    return parser


def describe() -> str:
    """Processor, its load, versions: a ratio without them says little."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            name = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} intra-op thread; "
        f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    )


def random_images(count: int, num_classes: int = 10) -> Dataset:
    """Random images of CIFAR-10's shape, all classes equally often."""
    images = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(count) % num_classes
    return Dataset.from_arrays("cifar10", images, labels, images[:0], labels[:0], num_classes, augment=True)


def in_turns(one: Callable[[], object], other: Callable[[], object], repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Processor seconds of `one` and of `other`, alternating after a warm-up of each, the first of a pair changing every time."""
    one(), other()
    times = np.empty((repeats, 2))
    for i in range(repeats):
        for j in (0, 1) if i % 2 == 0 else (1, 0):
            started = time.process_time()
            (one, other)[j]()
            times[i, j] = time.process_time() - started
    return times[:, 0], times[:, 1]


def spread(values: np.ndarray) -> str:
    """Median and the middle half."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{median:.3f} ({low:.3f} to {high:.3f})"
