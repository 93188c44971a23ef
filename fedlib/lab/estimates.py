"""How long runs will take on this machine, about."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch

from .. import algorithms, data, models, randomness, simulation, training
from ..errors import require
from ..sample import Sample
from . import costs
from .spec import Resolved

FORWARD = 0.28  # a forward pass by a training step of the same images


@dataclass(frozen=True)
class Work:
    """What a round of a method computes, in training steps of an image.

    own: with the client's model, an image and epoch; shared: likewise, with the method's shared network; after: with the
    client's model, an image and round; public: likewise, a public image; visit: likewise, a public image at the first visit;
    fixed: with the shared network, a client and round; server: with it, a public image and round; each: likewise, an upload.
    """

    own: float = 1.0
    shared: float = 0.0
    after: float = 0.0
    public: float = 0.0
    visit: float = 0.0
    fixed: float = 0.0
    server: float = 0.0
    each: float = 0.0


# Steps by Algorithm, and where time differs from the count of steps, as tests/benchmarks/bench_methods.py measures it:
# random weights (pFedBayes), factors (FedKD), frozen networks and small filters (pFedES). Methods not named train
# their client's model and nothing else.
WORK = {
    "Per-FedAvg": Work(own=2.0),
    "pFedMe": Work(own=5.0),  # inner steps
    "pFedBayes": Work(own=5.6),
    "FML": Work(shared=1.0),
    "FedKD": Work(shared=1.0, fixed=150.0),
    "FD": Work(after=FORWARD),
    "FedProto": Work(after=FORWARD),
    "FedMD": Work(public=1 + FORWARD, visit=1.0),
    "FCCL": Work(own=1 + 2 * FORWARD, public=1 + FORWARD),
    "FedKEMF": Work(shared=1.0, server=1.0, each=FORWARD),
    "FedGH": Work(after=FORWARD),
    "pFedES": Work(own=1.95, after=1.35),  # an epoch of its second step
}


# FLOPs of a training step an image (10 classes, 3 channels), as PyTorch counts them (`costs.training_flops`). M4 has 46
# times those of CNN-1.
FLOPS = {
    "CNN-1": 27_073_200,
    "CNN-2": 18_433_200,
    "CNN-3": 19_273_200,
    "CNN-4": 17_713_200,
    "CNN-5": 15_373_200,
    "M1": 12_435_000,
    "M2": 13_222_200,
    "M3": 63_188_736,
    "M4": 1_234_320_384,
}


def _flops(architecture: str, info: data.DatasetInfo) -> int:
    """FLOPs of a training step an image, about; of a person's own network, or of other samples than 32x32 images, on samples
    like the data set's.
    """
    if models.is_built_in(architecture) and (info.kind, info.size) == ("image", (32, 32)):
        return FLOPS[architecture.removesuffix(f"-{models.FEATURES}")]
    return costs.training_flops(architecture, info.num_classes, info.sample)


def _mean_flops(item: Resolved) -> float:
    """The same over the first visits of a run."""
    return float(np.mean([_flops(name, item.info) for name in _turns(item)]))


def expected_seconds(resolved: Sequence[Resolved]) -> list[float]:
    """Seconds that each run will take on one core of this machine, about: plain training of its architectures, timed here
    in a moment, times the work that its method does beside it (`relative_work`), evaluation, and what every client costs.
    """
    return [_expected(item) for item in resolved]


def _expected(item: Resolved) -> float:
    spec, shape = item.spec, (item.info.num_classes, item.info.sample)
    visits = spec.rounds * simulation.participants(spec.num_clients, spec.participation)
    of_client = max(spec.batch_size, round(_images(item)))
    plain = float(
        np.mean(
            [
                _seconds_an_image(
                    name,
                    *_timed(_flops(name, item.info), spec.batch_size, of_client),
                    item.protocol.optimiser,
                    spec.precision,
                    *shape,
                )
                for name in _turns(item)
            ]
        )
    )
    train, *others = item.protocol.parts
    judged = FORWARD * sum(others) / train * (item.samples / spec.local_epochs + _images(item) * spec.num_clients)
    return 0.2 + 0.003 * visits + plain * (item.samples * relative_work(item) + judged)


def _timed(flops: int, batch_size: int, images: int) -> tuple[int, int]:
    """How to time a network of `flops` an image: in which batches, and on how many images, few where an image costs much."""
    most = round(5e9 / flops)
    batch_size = max(1, min(batch_size, 64, most))
    batches = min(images // batch_size, 4, most // (2 * batch_size))
    return batch_size, batch_size * 2 ** max(0, batches.bit_length() - 1)  # 1, 2 or 4 batches


def _turns(item: Resolved) -> list[str]:
    """The architecture of each visit of the first rounds, up to 20."""
    spec, turns = item.spec, item.architectures
    rounds = 1 if spec.participation == 1 else min(spec.rounds, 20)
    return [turns[id % len(turns)] for id in _visited(spec.seed, rounds, spec.num_clients, spec.participation)]


@cache
def _visited(seed: int, rounds: int, num_clients: int, participation: float) -> list[int]:
    sampled = [simulation.sampled_clients(seed, round, num_clients, participation) for round in range(rounds)]
    return [id for visited in sampled for id in visited.tolist()]


def _images(item: Resolved) -> float:
    """Training images of a client."""
    spec = item.spec
    selected = simulation.participants(spec.num_clients, spec.participation)
    return item.samples / (selected * spec.rounds * spec.local_epochs)


def relative_work(item: Resolved) -> float:
    """A run's work, clients and server together, by that of Standalone with the same clients and rounds (see `WORK`).

    Networks count by their FLOPs. Of pFedHR's, M4 has 1.23 GFLOP an image, 46 times CNN-1, and its server fine-tunes as
    many networks as there are uploads and candidates, so where M4 is among them nearly all of the time is its.
    """
    spec, params = item.spec, item.spec.params
    selected, images = simulation.participants(spec.num_clients, spec.participation), _images(item)
    flops = _mean_flops(item)
    public = 0.0
    if item.algorithm.public_data != "none":
        source = data.info(spec.public_dataset) if spec.public_dataset else item.info
        public = spec.public_fraction * source.num_train
        public = min(public, spec.public_images or public)
    plain = selected * images * spec.local_epochs
    if spec.algorithm == "pFedHR":  # fine-tuning, and Eq. 6 with a teacher
        networks = selected + params["max_candidates"]
        if params["public_only"]:  # a network an architecture
            networks = min(selected, len(set(item.architectures)))
        twice = 1 if spec.public_labels else 2  # two views of each image
        return (1 + FORWARD) + networks * public * (params["server_epochs"] * twice + FORWARD) / plain
    work = WORK.get(spec.algorithm, Work())
    if type(item.algorithm) not in algorithms.BUILT_IN:
        work = _own_work(spec.algorithm)
    if spec.algorithm == "pFedES":
        epochs = params["extractor_epochs"] or spec.local_epochs + params["extra_epochs"]
        work = replace(work, after=epochs * work.after)
    if spec.algorithm == "pFedMe":
        work = replace(work, own=float(params["inner_steps"]))
    shared = params.get("shared", params.get("knowledge"))
    smaller = _flops(shared, item.info) / flops if shared in models.BUILDERS else 0.0
    sampled = min(public, params.get("public_samples", public))
    own = spec.local_epochs * images * work.own + images * work.after + sampled * work.public
    own += public * work.visit * min(1, spec.num_clients / (selected * spec.rounds))
    own += smaller * (spec.local_epochs * images * work.shared + work.fixed)
    server = smaller * (work.fixed + sampled * (work.server + selected * work.each))
    return (selected * own + server) / plain


def training_work(item: Resolved) -> float:
    """FLOPs of a run's training, about: nothing is timed, so that an order by it is always the same."""
    return item.samples * relative_work(item) * _mean_flops(item)


@cache
def _own_work(algorithm: str) -> Work:
    """Of a person's own method, whose FLOPs are counted on a few small rounds of CNN-3; it counts as plain training where
    that cannot be done.
    """
    try:
        cost = costs.flops(algorithms.make(algorithm, {}), "CNN-3")
    except Exception:  # it may need networks or data of the person's
        return Work()
    plain = costs.training_flops("CNN-3", 10, 3)
    return Work(own=cost.epoch / plain, after=cost.round / plain, public=cost.public / plain)


@cache
def _seconds_an_image(
    architecture: str, batch_size: int, count: int, optimiser: str, precision: str, num_classes: int, sample: Sample
) -> float:
    """Seconds (of processor time) a training image of plain training on `count` images, one thread: the quicker of two goes
    after one batch to warm up, or of one where that takes long.
    """
    stream = randomness.generator(0, "init")
    model = models.build(architecture, num_classes, sample, stream)
    scale = sample.shaped((0.5,) * sample.statistics)
    labels = torch.zeros(count).long()
    pool = training.Pool(sample.zeros(count), labels, scale, scale, precision)
    settings = training.Settings(1, batch_size, 0.001, optimiser=optimiser)
    took: list[float] = []
    with training.one_thread():
        for images in (batch_size, count, count):
            if len(took) < 2 or sum(took) < 0.2:
                started = time.process_time()
                indices = torch.arange(images)
                training.train(training.cross_entropy, {"model": model}, pool, indices, settings, stream)
                took.append(time.process_time() - started)
    return min(took[1:]) / count


def estimate(resolved: Sequence[Resolved], jobs: int) -> float:
    """Seconds that `resolved` will take with `jobs` workers, about; see `expected_seconds`."""
    require(jobs >= 1, "jobs", jobs, "at least 1")
    return sum(expected_seconds(resolved)) / min(jobs, max(1, len(resolved)))


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
