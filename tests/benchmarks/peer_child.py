"""What one contestant of bench_peers.py does, in a process of its own; nothing here is of the peers' code.

`main` takes one JSON object on the command line, runs a script of a clone on the CPU, or fedlib on a specification, and writes
to the file `told` the processor time at each round's begin and at the last one's end, and what parts of a round took.
"""

import contextlib
import io
import json
import os
import resource
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import tqdm
from torch import Tensor, nn

from fedlib import RunSpec, lab, models, simulate

stamps: list[float] = []
parts: dict[str, float] = {}


def used() -> float:
    """Processor seconds of this process and of those that it has waited for, system time included."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in times)


def stamp() -> None:
    stamps.append(used())


def stamped(rounds: int) -> Iterator[int]:
    """In place of `tqdm.trange`, by which the authors' scripts count their rounds."""
    for number in range(rounds):
        stamp()
        yield number
    stamp()


class Stamping(io.TextIOBase):
    """In place of standard output: what HtFLlib prints when a round begins and when all are over."""

    def write(self, text: str) -> int:
        if "Round number: " in text or "Best accuracy." in text:
            stamp()
        return len(text)


def timed(owner: Any, name: str) -> None:
    """Add up what a method takes in `parts`; one that is not there, or is never called, leaves nothing."""
    method = getattr(owner, name, None)

    def wrapped(*given: Any, **named: Any) -> Any:
        began = used()
        try:
            return method(*given, **named)
        finally:
            parts[name] = parts.get(name, 0.0) + used() - began

    if method is not None:
        setattr(owner, name, wrapped)


class Network(nn.Module):
    """CNN-1..5 as HtFLlib wants a network: its last layer is called fc."""

    def __init__(self, architecture: str, num_classes: int, channels: int):
        super().__init__()
        model = models.BUILDERS[architecture](num_classes, channels)
        self.extractor, self.fc = model.extractor, model.header

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.extractor(images))


def run_ours(spec: dict[str, Any], rounds: int) -> None:
    """All rounds in this process, nothing stored."""
    run = lab.resolve(RunSpec(**spec))
    stamp()
    given = (lab.federation_of(run), run.algorithm, rounds, run.spec.participation)
    outcome = simulate(*given, after_round=lambda outcome: stamp())
    parts["evaluate"] = sum(row["evaluation_seconds"] for row in outcome.timing_rows)


def run_script(roots: list[str], module: str, arguments: list[str]) -> None:
    """One of the authors' scripts as `python -m module arguments`; the working folder takes what it writes."""
    os.makedirs("Results/temp", exist_ok=True)
    sys.path[:0] = roots
    sys.argv = [module, *arguments]
    tqdm.trange = stamped
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_htfllib(system: str, architectures: list[str], channels: int, arguments: list[str]) -> None:
    """HtFLlib's main.py with our networks in place of a family of its own, and without the servers that want StyleGAN
    or Stable Diffusion.
    """
    sys.path[:0] = [system]
    for name in ("stylegan_xl", "stylegan_3", "stable_diffusion"):
        sys.modules[f"flcore.servers.serverktl_{name}"] = SimpleNamespace(FedKTL=None)  # type: ignore[assignment]
    from flcore.servers.serverbase import Server
    from flcore.trainmodel import models as theirs

    for name in ("evaluate", "train_metrics"):
        timed(Server, name)
    split, theirs.Network = theirs.BaseHeadSplit.__init__, Network

    def with_our_networks(self: Any, args: Any, *further: Any, **named: Any) -> None:
        args.models = [f"Network({name!r}, args.num_classes, {channels})" for name in architectures]
        split(self, args, *further, **named)

    theirs.BaseHeadSplit.__init__ = with_our_networks
    sys.argv = ["main.py", *arguments]
    with contextlib.redirect_stdout(Stamping()):
        runpy.run_path(str(Path(system) / "main.py"), run_name="__main__")


def run_flower(spec: dict[str, Any], rounds: int) -> None:
    """FedAvg on Flower's simulation engine."""
    import peer_flower  # only here, since it needs Flower

    peer_flower.run(spec, rounds)


def main() -> None:
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):  # of Linux alone
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.cuda.is_available = lambda: False  # the authors' scripts choose a GPU by themselves
    torch.cuda.device_count = lambda: 0
    job = json.loads(sys.argv[1])
    told = Path(job.pop("told"))
    {"ours": run_ours, "script": run_script, "htfllib": run_htfllib, "flower": run_flower}[job.pop("kind")](**job)
    told.write_text(json.dumps({"stamps": stamps, "parts": parts}))
