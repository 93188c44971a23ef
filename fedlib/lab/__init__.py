"""Runs as records: specified, computed once, stored, read again. A name is loaded from its room on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import federation_of as federation_of
    from .build import partition_of as partition_of
    from .build import public_of as public_of
    from .build import reserved_of as reserved_of
    from .checkpoint import Interrupted as Interrupted
    from .checkpoint import simulate as simulate
    from .estimates import cores as cores
    from .estimates import estimate as estimate
    from .estimates import expected_seconds as expected_seconds
    from .estimates import relative_work as relative_work
    from .estimates import training_work as training_work
    from .files import write_bytes as write_bytes
    from .launch import missing as missing
    from .launch import run as run
    from .launch import sweep as sweep
    from .places import checkout as checkout
    from .places import home as home
    from .places import shipped as shipped
    from .plugins import load_plugins as load_plugins
    from .records import Record as Record
    from .records import Unreadable as Unreadable
    from .records import computing as computing
    from .records import delete as delete
    from .records import read as read
    from .records import state as state
    from .records import store as store
    from .records import stored as stored
    from .records import weights as weights
    from .records import whole as whole
    from .spec import CHOICES as CHOICES
    from .spec import KEEP as KEEP
    from .spec import SCALES as SCALES
    from .spec import FilledSpec as FilledSpec
    from .spec import Resolved as Resolved
    from .spec import RunSpec as RunSpec
    from .spec import classes_held as classes_held
    from .spec import differences as differences
    from .spec import read_images as read_images
    from .spec import resolve as resolve
    from .spec import spec_from as spec_from
    from .tables import clients_of as clients_of
    from .tables import counts as counts
    from .tables import owners as owners
    from .tables import rounds_of as rounds_of
    from .tables import timing_of as timing_of

_ROOMS = {
    "spec": (
        "CHOICES",
        "KEEP",
        "SCALES",
        "FilledSpec",
        "Resolved",
        "RunSpec",
        "classes_held",
        "differences",
        "read_images",
        "resolve",
        "spec_from",
    ),
    "build": (
        "federation_of",
        "partition_of",
        "public_of",
        "reserved_of",
    ),
    "places": (
        "checkout",
        "home",
        "shipped",
    ),
    "plugins": ("load_plugins",),
    "records": (
        "Record",
        "Unreadable",
        "computing",
        "delete",
        "read",
        "state",
        "store",
        "stored",
        "weights",
        "whole",
    ),
    "checkpoint": (
        "Interrupted",
        "simulate",
    ),
    "files": ("write_bytes",),
    "launch": (
        "missing",
        "run",
        "sweep",
    ),
    "estimates": (
        "cores",
        "estimate",
        "expected_seconds",
        "relative_work",
        "training_work",
    ),
    "tables": (
        "clients_of",
        "counts",
        "owners",
        "rounds_of",
        "timing_of",
    ),
}
_NAMES = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_NAMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
