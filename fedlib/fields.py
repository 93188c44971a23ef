"""Fields that were added or renamed after results were stored, so that every stored result stays readable under its key.

A run's key is a hash of what was asked. A field that was added later declares its *neutral* value, what code that did
not know the field did, and is left out of the key there; its default may be another. A renamed field keeps its first
name in the key, and its old names are read as its own. `tests/lab/test_keys.py` refuses a new field of a specification,
a protocol, a data set's info or a method without a neutral value.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .errors import FedlibError

_NOTHING = object()


def later(default: Any, neutral: Any, **metadata: Any) -> Any:
    """A dataclass field that was added after results were stored: `noise: float = later(0.0, neutral=0.0)`."""
    return dataclasses.field(default=default, metadata={"neutral": neutral} | metadata)


def renamed(default: Any, *formerly: str, **metadata: Any) -> Any:
    """A dataclass field under a new name; formerly: its old ones, the first one first."""
    return dataclasses.field(default=default, metadata={"formerly": formerly} | metadata)


def in_key(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """What of `values`, the fields of a `kind`, belongs into a key: under their first names, without those at their
    neutral value and those that declare `in_key` false, since they decide no number by themselves.
    """
    found = {}
    for item in dataclasses.fields(kind):
        neutral = item.metadata.get("neutral", _NOTHING)
        if item.name in values and item.metadata.get("in_key", True) and values[item.name] != neutral:
            found[_first(item)] = values[item.name]
    return found


def read(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` under today's names of the fields of `kind`; names that it does not know are left as they are.

    Raises FedlibError where a field is given under two names.
    """
    names = {old: item.name for item in dataclasses.fields(kind) for old in item.metadata.get("formerly", ())}
    found: dict[str, Any] = {}
    for name, value in values.items():
        today = names.get(name, name)
        if today in found:
            raise FedlibError(f"{name} = {value!r}: {today} is given, too, which is its name today")
        found[today] = value
    return found


def neutral(kind: type) -> dict[str, Any]:
    """The neutral values of those fields of `kind` that declare one."""
    fields = dataclasses.fields(kind)
    return {item.name: item.metadata["neutral"] for item in fields if "neutral" in item.metadata}


def _first(item: "dataclasses.Field[Any]") -> str:
    return next(iter(item.metadata.get("formerly", ())), item.name)
