"""How long runs will take, about: from runs that were timed, and from what methods compute beside plain training."""

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch

from .. import algorithms, data, models, simulation, training
from ..errors import FedlibError
from . import costs
from .records import Record, state, stored
from .spec import FilledSpec, Resolved, resolve

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
# random weights (pFedBayes), factors (FedKD), frozen networks and small filters (pFedES). `PLAIN` ones train their client's
# model and nothing else; what a method that is not named computes is counted, see `_counted_work`.
PLAIN = ("Standalone", "FedAvg", "FedProx", "LG-FedAvg", "FedClassAvg", "FedSSA")
WORK = dict.fromkeys(PLAIN, Work()) | {
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


# FLOPs of training per second of an ordinary core (2800 images of CNN-1 to CNN-5): where no run has been timed yet.
ORDINARY = 5.5e10
# A training step in bf16 by one in fp32 on a processor that has instructions for bf16: the median of five pairs of runs of record.
WITH_INSTRUCTIONS = 0.63
SLOW = 2.0  # where a line says so
NEWEST = 100  # stored runs that are looked at
NEAREST = 9  # of them, whose median speed counts: a machine that does other things beside makes single runs slow


@dataclass(frozen=True, eq=False)
class Timed:
    """A finished run, the processor seconds that its rounds took, and whether that processor has instructions for bf16."""

    run: Resolved
    seconds: float
    bf16: bool = False

    @property
    def slowness(self) -> float:
        """What its arithmetic cost there, by fp32: a processor without instructions is taken to be like this one."""
        return WITH_INSTRUCTIONS if self.bf16 and _in_bf16(self.run.spec) else slowness(self.run.spec)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "list[Timed]":
        """Those of `records` that finished on a CPU and have their processor seconds: the clock's, which are all that runs before
        version 0.3 have, are up to four times as many, by what else the machine did.
        """
        found = []
        for record in records:
            seconds = record.provenance.get("processor_seconds", 0)
            if record.status == "finished" and seconds > 0 and record.spec.device == "cpu":
                with contextlib.suppress(FedlibError):  # its method or data set may not be known here
                    flags = record.provenance.get("flags", "bf16")  # which older results of record lack
                    found.append(cls(resolve(record.spec), float(seconds), "bf16" in flags))
        return found


def timed() -> list[Timed]:
    """The newest finished runs of the store."""
    done = [path / "DONE" for path in stored() if (path / "DONE").exists()]
    newest = sorted(done, key=lambda path: path.stat().st_mtime)[-NEWEST:]
    found = [state(path.parent)[1] for path in newest]
    return Timed.of(record for record in found if record is not None)


def expected_seconds(resolved: Sequence[Resolved], known: Sequence[Timed] | None = None) -> list[float]:
    """Seconds that each run will take on one core, about: its `training_work` at the median speed of the runs of `known`
    (of the store, unless given) that are most like it, and what bf16 costs here where that is its arithmetic (`slowness`).
    """
    known = timed() if known is None else known
    with_work = [(one, training_work(one.run)) for one in known] if resolved else []
    return [_expected(item, with_work) for item in resolved]


def _expected(item: Resolved, known: Sequence[tuple[Timed, float]]) -> float:
    work = training_work(item)
    unlike = {one: _distance(item.spec, one.run.spec) + abs(np.log10(done / work)) for one, done in known}
    speeds = [
        done * one.slowness / one.seconds
        for one, done in sorted(known, key=lambda other: unlike[other[0]])[:NEAREST]
        if unlike[one] <= min(unlike.values()) + 1
    ]
    return work * slowness(item.spec) / float(np.median(speeds) if speeds else ORDINARY)


def _in_bf16(spec: FilledSpec) -> bool:
    return spec.precision == "bf16" and spec.device == "cpu"


def slowness(spec: FilledSpec) -> float:
    """What a run's arithmetic costs on this processor, by fp32: 1 but for bf16 on the CPU."""
    return bf16_cost() if _in_bf16(spec) else 1.0


@cache
def bf16_cost() -> float:
    """A training step of CNN-1 in bf16 by one in fp32 on this processor, timed once (a second): about 0.6 where it has
    instructions for bf16, and 8 where it has not.
    """
    with training.one_thread(), torch.random.fork_rng(devices=[]):
        network = models.BUILDERS["CNN-1"](10, 3)
        images = torch.ones(16, 3, 32, 32).to(memory_format=torch.channels_last)

        def step(bf16: bool) -> float:
            started = time.process_time()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = network(images).square().sum()
            loss.backward()
            return time.process_time() - started

        fp32, bf16 = (min(step(kind) for _ in range(4)) for kind in (False, True))
    return bf16 / fp32


def slow_arithmetic(runs: Iterable[Resolved]) -> str:
    """A line for who is about to train `runs` in bf16 where that is slower than fp32, with what can be done; else empty."""
    if not any(_in_bf16(run.spec) for run in runs) or bf16_cost() < SLOW:
        return ""
    return (
        f"precision = 'bf16' takes about {bf16_cost():.0f} times as long as 'fp32' on this processor, as where one has no "
        "instructions for it; --precision fp32 trains other runs (Standalone and FedSSA, CIFAR-10, T = 30, three seeds: "
        "no difference in accuracy within a point)"
    )


def _distance(one: FilledSpec, other: FilledSpec) -> int:
    """How unlike two runs are: how many of the fields differ that change the time an image takes."""
    sizes = ("batch_size", "local_epochs", "num_clients")
    names = ("algorithm", "params", "dataset", "scenario", "precision", "protocol", *sizes)
    return sum(getattr(one, name) != getattr(other, name) for name in names)


def _flops(architecture: str, info: data.DatasetInfo) -> int:
    return costs.training_flops(architecture, info.num_classes, info.sample)


def _mean_flops(item: Resolved) -> float:
    """FLOPs of a training step an image, the mean over the visits of the first rounds, up to 20."""
    spec, turns = item.spec, item.architectures
    flops = {name: _flops(name, item.info) for name in set(turns)}
    rounds = 1 if spec.participation == 1 else min(spec.rounds, 20)
    visited = _visited(spec.seed, rounds, spec.num_clients, spec.participation)
    return float(np.mean([flops[turns[id % len(turns)]] for id in visited]))


@cache
def _visited(seed: int, rounds: int, num_clients: int, participation: float) -> list[int]:
    sampled = [simulation.sampled_clients(seed, round, num_clients, participation) for round in range(rounds)]
    return [id for visited in sampled for id in visited.tolist()]


def relative_work(item: Resolved) -> float:
    """A run's work, clients and server together, by that of Standalone with the same clients and rounds (see `WORK`).

    Networks count by their FLOPs. Of pFedHR's, M4 has 1.23 GFLOP an image, 46 times CNN-1, and its server fine-tunes as
    many networks as there are uploads and candidates, so where M4 is among them nearly all of the time is its.
    """
    spec, params = item.spec, item.spec.params
    selected, flops = simulation.participants(spec.num_clients, spec.participation), _mean_flops(item)
    images = item.samples / (selected * spec.rounds * spec.local_epochs)  # of a client, for training
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
    named = type(item.algorithm) in algorithms.BUILT_IN and spec.algorithm in WORK
    work = WORK[spec.algorithm] if named else _counted_work(type(item.algorithm)())
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
    """FLOPs of a run's training, about: counted, not timed, so that an order by it is always the same."""
    return item.samples * relative_work(item) * _mean_flops(item)


@cache
def _counted_work(method: algorithms.Algorithm) -> Work:
    """Of a method that is not in `WORK`, such as a person's own: its FLOPs are counted on a few small rounds of CNN-3; it
    counts as plain training where that cannot be done.
    """
    try:
        cost = costs.flops(method, "CNN-3")
    except Exception:  # it may need networks or data of the person's
        return Work()
    plain = costs.training_flops("CNN-3", 10, 3)
    return Work(own=cost.epoch / plain, after=cost.round / plain, public=cost.public / plain)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
