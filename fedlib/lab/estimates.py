"""How long runs will take, about: from the processor seconds of the finished runs that are most like them."""

import contextlib
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from .. import models, training
from ..errors import FedlibError
from . import costs
from .records import Record, state, stored
from .spec import FilledSpec, Resolved, resolve

# FLOPs of training per second of an ordinary core (2800 images of CNN-1 to CNN-5): where no run has been timed yet.
ORDINARY = 5.5e10
# A training step in bf16 by one in fp32 on a processor that has instructions for bf16: the median of five pairs of runs of record.
WITH_INSTRUCTIONS = 0.63
SLOW = 2.0  # where a line says so
NEWEST = 100  # stored runs that are looked at
NEAREST = 9  # of them, whose median speed counts: a machine that does other things beside makes single runs slow
CLOSE = 0.5  # how much less alike than the nearest they may be; of those as near, the newest count


@dataclass(frozen=True, eq=False)
class Timed:
    """A finished run, the processor seconds that its rounds took, and whether that processor has instructions for bf16."""

    run: Resolved
    seconds: float
    bf16: bool = False

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


def expected_seconds(
    resolved: Sequence[Resolved], known: Sequence[Timed] | None = None, bf16: float = 0.0
) -> list[float]:
    """Seconds that each run will take on one core, about: its `training_work` at the median speed of the runs of `known`
    (of the store, unless given) that are most like it.

    bf16: what a training step in bf16 costs, by fp32; 0: what it costs on this processor (`bf16_cost`).
    """
    known = timed() if known is None else known

    def slowness(spec: FilledSpec, instructions: bool = False) -> float:
        if not _in_bf16(spec):
            return 1.0
        return WITH_INSTRUCTIONS if instructions else bf16 or bf16_cost()

    # A run in bf16 was made with instructions for it, or on a processor that is taken to be like this one.
    works = [(one, training_work(one.run)) for one in known] if resolved else []
    speeds = [(one, done, done * slowness(one.run.spec, one.bf16) / one.seconds) for one, done in works]
    return [_expected(item, speeds) * slowness(item.spec) for item in resolved]


def _expected(item: Resolved, known: Sequence[tuple[Timed, float, float]]) -> float:
    work = training_work(item)
    near = [
        (_distance(item.spec, one.run.spec) + abs(math.log10(done / work)), speed)
        for one, done, speed in reversed(known)
    ]
    near.sort(key=lambda one: one[0])
    speeds = [speed for distance, speed in near[:NEAREST] if distance <= near[0][0] + CLOSE]
    return work / (statistics.median(speeds) if speeds else ORDINARY)


def _in_bf16(spec: FilledSpec) -> bool:
    return spec.precision == "bf16" and spec.device == "cpu"


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


# Fields that change the time an image takes. The method counts most: what it computes beside plain training is not counted.
_UNLIKE = {"algorithm": 3} | dict.fromkeys(
    ("params", "dataset", "scenario", "precision", "protocol", "batch_size", "local_epochs", "num_clients"), 1
)


def _distance(one: FilledSpec, other: FilledSpec) -> int:
    """How unlike two runs are: in how many of these fields."""
    return sum(weight * (getattr(one, name) != getattr(other, name)) for name, weight in _UNLIKE.items())


def training_work(item: Resolved) -> float:
    """FLOPs of training the clients' networks on a run's images: counted, not timed, so that an order by it is always the same.
    What a method computes besides is not counted.
    """
    turns = item.architectures
    flops = {name: costs.training_flops(name, item.info.num_classes, item.info.sample) for name in set(turns)}
    clients = item.spec.num_clients
    return item.samples * sum(flops[turns[client % len(turns)]] for client in range(clients)) / clients


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
