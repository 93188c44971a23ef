"""Where a run computes: `cpu`, `cuda`, `cuda:1`, `mps`, or several of one kind for the workers of a sweep."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .errors import FedlibError, require, shown

KNOWN = ("cpu", "cuda", "mps", "auto")
ALLOWED = "cpu, cuda, one of several such as cuda:1, mps or auto, and on this machine"


def is_there(device: torch.device) -> bool:
    """Whether this machine has the device."""
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index is None or device.index < torch.cuda.device_count())
    return device.type == "cpu" or (device.type == "mps" and torch.backends.mps.is_available())


def found(given: Any) -> torch.device:
    """The device that is named. Raises FedlibError where there is none."""
    try:
        device = torch.device(given)
        there = is_there(device)
    except Exception:  # torch raises many kinds, and another's __str__ any
        there = False
    require(there, "device", given, ALLOWED)
    return device


def several(given: str) -> str:
    """The one spelling of devices of one kind, with commas between: `auto` is cuda where there is one. They need not be on this
    machine (`found`), which may only plan runs for them or read those of another.
    """
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    names = [auto if name.strip() == "auto" else name.strip() for name in given.split(",")]
    require(all(re.fullmatch(r"(cpu|cuda|mps)(:\d+)?", name) for name in names), "device", given, ALLOWED)
    kinds = {kind(name) for name in names}
    require(len(kinds) == 1, "device", given, "devices of one kind, since a run's numbers are of that kind")
    require(len(set(names)) == len(names), "device", given, "different devices")
    return ",".join(names)


def kind(given: str) -> str:
    """`cuda` of `cuda:0,cuda:1`: what decides numbers, and so stands in a run's key."""
    return given.partition(",")[0].partition(":")[0]


def first(given: str) -> str:
    """The device of a run that has all of them to itself."""
    return given.partition(",")[0]


def widest(device: torch.device) -> torch.dtype:
    """float64, which no sum of float32 rounds; float32 on mps, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def deterministic(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Deterministic algorithms on CUDA, or others where they are not wanted; the CPU's already are under one thread."""
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


SAYS = "does not have a deterministic implementation"  # torch, of an operation's CUDA kernel


@contextmanager
def naming_layers(modules: Mapping[str, nn.Module], images: Any) -> Iterator[None]:
    """What torch says of an operation that has no deterministic kernel, with the layer that needs it; a FedlibError."""
    try:
        yield
    except RuntimeError as error:
        said = str(error)
        if SAYS not in said:
            raise
        operation = said.partition(SAYS)[0].split()[-1]
        layer = _layer_of(modules, images, operation) if isinstance(images, Tensor) else ""
        raise FedlibError(
            f"{layer or 'a loss'}: {operation} {SAYS}; deterministic=False trains it, to other bits each time ({shown(said)})"
        ) from error


def _plain(name: str) -> str:
    """`adaptiveavgpool2d` of `_adaptive_avg_pool2d_backward` and of `AdaptiveAvgPool2DBackward0`."""
    return name.lower().replace("_", "").partition("backward")[0]


def _layer_of(modules: Mapping[str, nn.Module], images: Tensor, operation: str) -> str:
    """The innermost layer whose forward pass has an operation in it, by its name, empty where none has."""
    names = {
        id(part): (path, f"{name}.{path}") for name, whole in modules.items() for path, part in whole.named_modules()
    }
    within: list[str] = []

    def look(layer: nn.Module, _: Any, output: Any) -> None:
        nodes, seen = [getattr(output, "grad_fn", None)], set()
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if _plain(operation).startswith(_plain(node.name())) and id(layer) in names:
                within.append(f"layer {names[id(layer)][1]} ({type(layer).__name__})")
                return
            nodes += [following for following, _ in node.next_functions]

    before = torch.are_deterministic_algorithms_enabled()
    handles = [part.register_forward_hook(look) for whole in modules.values() for part in whole.modules()]
    try:
        torch.use_deterministic_algorithms(False)
        for whole in modules.values():
            whole(images)
    except Exception:  # a module that takes no images: torch's own words will do
        pass
    finally:
        torch.use_deterministic_algorithms(before)
        for handle in handles:
            handle.remove()
    return within[0] if within else ""
