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

from .. import devices, models, training
from ..errors import FedlibError
from . import costs
from .records import Record, state, stored
from .spec import FilledSpec, Resolved, resolve

USUAL = 0.9  # a run's FLOPs per second by those of its steps alone, where no run has been timed yet
# Of the processors that trained the results of record: FLOPs per second of training steps of 64 images in fp32, of what their runs
# in fp32 reach (the median), and what a step in bf16, for which they have instructions, takes by one in fp32 (the median of five
# pairs of runs). Their steps alone were never timed.
OF_RECORD, BF16_OF_RECORD = 7.35e10 / USUAL, 0.63
LARGEST = 64  # images of a step that is timed: with 512 it has up to a quarter more FLOPs per second
SLOW = 2.0  # where a line says so
NEWEST = 100  # stored runs that are looked at
NEAREST = 9  # of them, whose median speed counts: a machine that does other things beside makes single runs slow
CLOSE = 0.5  # how much less alike than the nearest they may be; of those as near, the newest count


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
        have, are up to four times as many, by what else the machine did. On a GPU the processor's are as many as the clock's: it
        waits for the device, or the device for it.
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
    """Seconds that each run will take on one core, about: its `training_work` at the pace of its training steps (`_pace`) times
    how much of it the runs of `known` (of the store, unless given) that are most like it had.

    of_record: on a processor like those of the results of record, in place of this one.
    """
    known = timed() if known is None else known
    shares = []
    for one in known if resolved else ():
        work = training_work(one.run)
        shares.append((one, work, work / one.seconds / _pace(one.run.spec, one.of_record)))
    return [_expected(item, shares) / _pace(item.spec, of_record) for item in resolved]


def _expected(item: Resolved, known: Sequence[tuple[Timed, float, float]]) -> float:
    """`training_work`, and what else a run does, as much more work: as the runs on devices of its kind had, or those on CPUs where there
    are none.
    """
    work, of_kind = training_work(item), dict[str, list[tuple[Timed, float, float]]]()
    for one in reversed(known):
        of_kind.setdefault(devices.kind(one[0].run.spec.device), []).append(one)
    near = [
        (_distance(item.spec, one.run.spec) + abs(math.log10(done / work)), share)
        for one, done, share in of_kind.get(devices.kind(item.spec.device), of_kind.get("cpu", []))
    ]
    near.sort(key=lambda one: one[0])
    shares = [share for distance, share in near[:NEAREST] if distance <= near[0][0] + CLOSE]
    return work / (statistics.median(shares) if shares else USUAL)


def _pace(spec: FilledSpec, of_record: bool) -> float:
    """FLOPs per second of a run's training steps, with its batch size and precision: on a processor of record or on this one."""
    if of_record:
        return OF_RECORD / (BF16_OF_RECORD if _in_bf16(spec) else 1.0)
    return step_speed(min(spec.batch_size, LARGEST)) / (bf16_cost() if _in_bf16(spec) else 1.0)


def _in_bf16(spec: FilledSpec) -> bool:
    return spec.precision == "bf16" and spec.device == "cpu"


@cache
def step_speed(batch_size: int, bf16: bool = False) -> float:
    """FLOPs per second of training steps of CNN-1 on this processor, timed once (a fifth of a second)."""
    with training.one_thread(), torch.random.fork_rng(devices=[]):
        network = models.BUILDERS["CNN-1"](10, 3)
        images = torch.ones(batch_size, 3, 32, 32).to(memory_format=torch.channels_last)

        def step() -> float:
            started = time.process_time()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = network(images).square().sum()
            loss.backward()
            return time.process_time() - started

        return batch_size * costs.training_flops("CNN-1", 10, 3) / min(step() for _ in range(4))


def bf16_cost() -> float:
    """A training step in bf16 by one in fp32 on this processor: about 0.6 where it has instructions for bf16, and 8 where not."""
    return step_speed(16) / step_speed(16, True)


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
