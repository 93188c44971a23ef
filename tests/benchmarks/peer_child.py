"""What one contestant of bench_peers.py does, in a process of its own; nothing here is of the peers' code.

`main` takes one JSON object on the command line and runs a script of a clone on the CPU, or fedlib on a specification.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fedlib import RunSpec, lab, models, simulate


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
    simulate(lab.federation_of(run), run.algorithm, rounds, run.spec.participation)


def run_script(roots: list[str], module: str, arguments: list[str]) -> None:
    """One of the authors' scripts as `python -m module arguments`; the working folder takes what it writes."""
    os.makedirs("Results/temp", exist_ok=True)
    sys.path[:0] = roots
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_htfllib(system: str, architectures: list[str], channels: int, arguments: list[str]) -> None:
    """HtFLlib's main.py with our networks in place of a family of its own, and without the servers that want StyleGAN
    or Stable Diffusion.
    """
    sys.path[:0] = [system]
    for name in ("stylegan_xl", "stylegan_3", "stable_diffusion"):
        sys.modules[f"flcore.servers.serverktl_{name}"] = SimpleNamespace(FedKTL=None)  # type: ignore[assignment]
    from flcore.trainmodel import models as theirs

    split, theirs.Network = theirs.BaseHeadSplit.__init__, Network

    def with_our_networks(self: Any, args: Any, *further: Any, **named: Any) -> None:
        args.models = [f"Network({name!r}, args.num_classes, {channels})" for name in architectures]
        split(self, args, *further, **named)

    theirs.BaseHeadSplit.__init__ = with_our_networks
    sys.argv = ["main.py", *arguments]
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
    {"ours": run_ours, "script": run_script, "htfllib": run_htfllib, "flower": run_flower}[job.pop("kind")](**job)
