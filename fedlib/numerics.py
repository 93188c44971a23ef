"""Which numbers each part of fedlib computes: a version per part, stored in every record with the parts that it used.

A record is stale when a part that it used has another version today. Whoever changes the numbers of a part raises its
version in VERSIONS and writes the golden values again (`tests/golden.py`), without which the golden test fails; a
change that leaves all numbers as they are needs neither. Another torch, processor or thread count is environment, not
a version: it stands in the record's provenance.
"""

import dataclasses

from . import algorithms, models, partition
from .protocol import Protocol

# Part (see `parts`) -> the version of its numbers. A part that is not listed has version 1.
VERSIONS: dict[str, int] = {
    "network M4": 2,  # has batch normalisation, for which a last batch of one joins the batch before it
}


def version(part: str) -> int:
    """The version of a part's numbers."""
    return VERSIONS.get(part, 1)


def parts(
    method: algorithms.Algorithm, protocol: Protocol, architectures: tuple[str, ...], dealer: str, precision: str
) -> list[str]:
    """The parts of fedlib that a run uses: `training`, `partition by-class`, each choice of its protocol such as
    `augmentation released`, `method FedSSA` with the methods that it extends, `network CNN-1`, `precision bf16`.

    architectures: of the clients; those that the method's parameters name count too. dealer: the name of the partition.
    What a person defined is none of them: its source is in the run's key.
    """
    found = ["training", f"precision {precision}"]
    if dealer in partition.BUILT_IN:
        found.append(f"partition {dealer}")
    choices = dataclasses.asdict(protocol)
    found += [f"{name} {value}" for name, value in choices.items() if isinstance(value, str)]
    bases = [cls for cls in type(method).__mro__ if cls in algorithms.BUILT_IN]
    found += [f"method {cls.name}" for cls in bases]
    networks = {*architectures, *map(str, dataclasses.asdict(method).values())}
    return found + [f"network {name}" for name in sorted(networks) if models.is_built_in(name)]


def versions(used: list[str]) -> dict[str, int]:
    """The versions of parts, as a record keeps them."""
    return {part: version(part) for part in used}
