"""Which numbers each part of fedlib computes: a version per part, stored in every record with the parts that it used.

A record is stale when a part that it used has another version today. Whoever changes the numbers of a part raises its
version in VERSIONS and writes the golden values again (`python tests/golden.py`), without which the golden test fails;
a change that leaves all numbers as they are needs neither. Another torch, processor or thread count is environment, not
a version: it is in the record's provenance.
"""

from collections.abc import Mapping
from typing import Any

from . import algorithms, models, partition

# Part (see `parts`) -> the version of its numbers. A part that is not listed has version 1, and so has one that a record does not
# name, since it was stored before there were such parts.
VERSIONS: dict[str, int] = {
    "fp32 on cuda": 2,  # convolutions no longer round to TF32
    "network M4": 2,  # has batch normalisation, for which a last batch of one joins the batch before it
}


def version(part: str) -> int:
    """The version of a part's numbers."""
    return VERSIONS.get(part, 1)


def parts(hashed: Mapping[str, Any]) -> list[str]:
    """The parts of fedlib that a run uses: `training`, `precision bf16`, `partition by-class`, each choice of its
    protocol such as `augmentation released`, `method FedSSA` and the methods that it extends, `network CNN-1`.

    hashed: what the run's key is made of (`lab.Resolved.hashed`). What a person defined is no part: its source is in
    the key.
    """
    device, precision = hashed.get("device", "cpu"), hashed["precision"]
    found = ["training", f"precision {precision}", *([f"{precision} on {device}"] if device != "cpu" else [])]
    found += ["isolated"] if hashed.get("isolated") else []
    if hashed["partition"] in partition.BUILT_IN:
        found.append(f"partition {hashed['partition']}")
    chosen = {name: value for name, value in hashed["protocol"].items() if isinstance(value, str)}
    found += [
        f"{name} {value.partition('(')[0]}" for name, value in chosen.items()
    ]  # an optimiser without its parameters
    method = algorithms.ALGORITHMS.get(hashed["algorithm"])
    found += [f"method {cls.name}" for cls in method.__mro__ if cls in algorithms.BUILT_IN] if method else []
    networks = {*hashed["architectures"], *map(str, hashed["params"].values())}
    return found + [f"network {name}" for name in sorted(networks) if models.is_built_in(name)]


def versions(hashed: Mapping[str, Any]) -> dict[str, int]:
    """The parts that a run uses and their versions, as its record keeps them."""
    return {part: version(part) for part in parts(hashed)}


def moved(hashed: Mapping[str, Any], stored: Mapping[str, int] | None) -> list[str]:
    """The parts whose numbers have another version today than in a record; none where the record is up to date.

    stored: the record's versions, None of one that was stored before there were any.
    """
    known = dict.fromkeys(parts(hashed), 1) | dict(stored or {})
    return [part for part, number in known.items() if version(part) != number]
