"""How long runs will take, about: as long as the finished run that is most like them, by their work."""

import contextlib
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from .. import devices, training
from ..errors import FedlibError
from . import costs
from .records import Record, state, stored
from .spec import FilledSpec, Resolved, resolve

# FLOPs of training per second that runs of record in fp32 reach (the median), where no run is known.
OF_RECORD = 7.35e10
SLOW = 2.0  # how many times as long bf16 takes as fp32 where a line says so
NEWEST = 100  # stored runs that are looked at
# Fields that change the time an image takes. The method counts most: what it computes beside plain training is not counted.
_UNLIKE = {"algorithm": 3} | dict.fromkeys(
    ("params", "dataset", "scenario", "precision", "protocol", "batch_size", "num_clients"), 1
)


@dataclass(frozen=True, eq=False)
class Timed:
    """A finished run, the processor seconds that its rounds took, and whether it was trained by a processor of the results of record
    (else by this one).
    """

    run: Resolved
    seconds: float
    of_record: bool = False

    @classmethod
    def of(cls, records: Iterable[Record]) -> "list[Timed]":
        """Those of `records` that finished and have their processor seconds: the clock's, which are all that runs before version 0.3
        have, are up to four times as many, by what else the machine did.
        """
        found = []
        for record in records:
            seconds = record.provenance.get("processor_seconds", 0)
            if record.status == "finished" and seconds > 0:
                with contextlib.suppress(FedlibError):  # its method or data set may not be known here
                    found.append(cls(resolve(record.spec), float(seconds), record.of_record))
        return found


def timed() -> list[Timed]:
    """The newest finished runs of the store."""
    done = [path / "DONE" for path in stored() if (path / "DONE").exists()]
    newest = sorted(done, key=lambda path: path.stat().st_mtime)[-NEWEST:]
    found = [state(path.parent)[1] for path in newest]
    return Timed.of(record for record in found if record is not None)


def expected_seconds(
    resolved: Sequence[Resolved], known: Sequence[Timed] | None = None, of_record: bool = False
) -> list[float]:
    """Seconds that each run will take on one core, about: those of the run of `known` (of the store, unless given) that is most like
    it, times its `training_work` by that run's. A run of another processor (of_record: than those of the results of record) is
    less like it, one of another kind of device counts only where nothing else is known.
    """
    known = timed() if known is None else known
    done = [(one, training_work(one.run)) for one in known] if resolved else []
    return [_expected(item, done, of_record) for item in resolved]


def _expected(item: Resolved, done: Sequence[tuple[Timed, float]], of_record: bool) -> float:
    work, near = training_work(item), dict[float, list[float]]()
    for one, its in done:
        there = devices.kind(one.run.spec.device) != devices.kind(item.spec.device)
        unlike = _distance(item.spec, one.run.spec) + abs(math.log10(its / work)) + (one.of_record != of_record)
        near.setdefault(round(unlike + 100 * there, 3), []).append(one.seconds * work / its)
    return statistics.median(near[min(near)]) if near else work / OF_RECORD


def _distance(one: FilledSpec, other: FilledSpec) -> float:
    """How unlike two runs are: in how many of these fields, and in E, with which evaluation is a larger part of a round or a smaller."""
    differ = sum(weight * (getattr(one, name) != getattr(other, name)) for name, weight in _UNLIKE.items())
    return differ + 2 * abs(math.log10(one.local_epochs / other.local_epochs))


@cache
def bf16_cost() -> float:
    """A training step in bf16 by one in fp32 on this processor: about 0.6 where it has instructions for bf16, and 8 where not."""
    with training.one_thread(), torch.random.fork_rng(devices=[]):
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 5))
        images = torch.ones(16, 3, 32, 32)

        def step(bf16: bool) -> float:
            started = time.process_time()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = network(images).square().sum()
            loss.backward()
            return time.process_time() - started

        return min(step(True) for _ in range(4)) / min(step(False) for _ in range(4))


def slow_arithmetic(runs: Iterable[Resolved]) -> str:
    """A line for who is about to train `runs` in bf16 where that is slower than fp32, with what can be done; else empty."""
    in_bf16 = any(run.spec.precision == "bf16" and run.spec.device == "cpu" for run in runs)
    if not in_bf16 or bf16_cost() < SLOW:
        return ""
    return (
        f"precision = 'bf16' takes about {bf16_cost():.0f} times as long as 'fp32' on this processor, as where one has no "
        "instructions for it; --precision fp32 trains other runs (Standalone and FedSSA, CIFAR-10, T = 30, three seeds: "
        "no difference in accuracy within a point)"
    )


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
