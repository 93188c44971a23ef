"""How long runs will take on this machine, about."""

import os
import time
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from .. import algorithms, models, randomness, simulation, training
from ..errors import require
from . import costs
from .spec import Resolved

# Time by FLOPs, against Standalone's, where more takes time than the FLOPs that PyTorch counts: singular value
# decompositions, random weights, element-wise work. CNN-1..5, 256 images a client, E = 1, B = 64, one idle core.
UNCOUNTED = {"FedKD": 1.5, "pFedBayes": 5.6, "pFedES": 1.15}


def expected_seconds(resolved: Sequence[Resolved]) -> list[float]:
    """Seconds that each run will take on one core of this machine, about: plain training of its architectures, timed here
    in a moment, times the work that its method does beside it (`relative_work`).
    """
    return [_expected(item) for item in resolved]


def _expected(item: Resolved) -> float:
    shape = (item.info.num_classes, item.info.channels)
    settings = (min(item.spec.batch_size, 64), item.protocol.optimiser)  # a larger batch is hardly faster
    plain = [_seconds_an_image(name, *settings, *shape) for name in item.architectures]
    return item.samples * float(np.mean(plain)) * relative_work(item)


def relative_work(item: Resolved) -> float:
    """A run's work, clients and server together, by that of Standalone with the same clients and rounds: the FLOPs of its
    method, counted once per process on CNN-3 (of its parameters those in `MORE_WORK` count), and what they leave out (`UNCOUNTED`).
    """
    spec = item.spec
    cost = _method_flops(spec.algorithm, tuple((name, spec.params[name]) for name in MORE_WORK if name in spec.params))
    if cost is None:
        return 1.0
    selected = simulation.participants(spec.num_clients, spec.participation)
    images = round(item.samples / (selected * spec.rounds * spec.local_epochs))
    public = 0
    if item.algorithm.public_data != "none":
        public = round(spec.public_fraction * images * spec.num_clients)
        public = min(public, spec.public_images or public, getattr(item.algorithm, "public_samples", public))
    round_ = selected * cost.local(images, spec.local_epochs, public) + cost.aggregation(selected, public)
    plain = selected * images * spec.local_epochs * costs.training_flops("CNN-3", 10, 3)
    return UNCOUNTED.get(spec.algorithm, 1.0) * round_ / plain


MORE_WORK = ("extractor_epochs", "extra_epochs")  # parameters by which a client's work grows


@cache
def _method_flops(algorithm: str, params: tuple[tuple[str, int], ...] = ()) -> costs.Flops | None:
    """FLOPs of a method with these parameters and otherwise its usual ones, in parts; None of one that cannot be measured by itself."""
    try:
        return costs.flops(algorithms.make(algorithm, dict(params)), "CNN-3")
    except Exception:  # a user's method may need networks or data of the user's; it counts as plain training
        return None


@cache
def _seconds_an_image(architecture: str, batch_size: int, optimiser: str, num_classes: int, channels: int) -> float:
    """Seconds (of processor time) a training image of plain training, one thread: the quickest of four batches, after one to warm up, or of
    one where a batch takes long.
    """
    stream = randomness.generator(0, "init")
    model = models.build(architecture, num_classes, channels, stream)
    scale = torch.full((channels, 1, 1), 127.5)
    pool = training.Pool(torch.zeros(batch_size, channels, 32, 32).byte(), torch.zeros(batch_size).long(), scale, scale)
    settings = training.Settings(1, batch_size, 0.001, optimiser=optimiser)
    took: list[float] = []
    with training.one_thread():
        while len(took) < 5 and (len(took) < 2 or sum(took) < 1):
            started = time.process_time()
            indices = torch.arange(batch_size)
            training.train(training.cross_entropy, {"model": model}, pool, indices, settings, stream)
            took.append(time.process_time() - started)
    return min(took[1:]) / batch_size


def estimate(resolved: Sequence[Resolved], jobs: int) -> float:
    """Seconds that `resolved` will take with `jobs` workers, about; see `expected_seconds`."""
    require(jobs >= 1, "jobs", jobs, "at least 1")
    return sum(expected_seconds(resolved)) / min(jobs, max(1, len(resolved)))


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
