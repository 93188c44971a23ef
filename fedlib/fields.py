"""What a dataclass field says of itself in one place: its limits and its help, and how results were keyed without it.

`setting` declares limits and help, `check` holds a value to them. A run's key is a hash of what was asked. A field that
was added after results were stored (`later`) declares its *neutral* value, what code that did not know the field did,
and is left out of the key there; its default may be another. A renamed field (`renamed`) keeps its first name in the
key, and its old names are read as its own. `tests/lab/test_keys.py` refuses a new field of a specification, a protocol,
a data set's info or a method without a neutral value.
"""

import dataclasses
import operator
import typing
from collections.abc import Mapping
from typing import Any

from .errors import FedlibError, choose, coerce, require

_NOTHING = object()
_HOLDS = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}


def setting(default: Any, **metadata: Any) -> Any:
    """A dataclass field that says what it allows: `mu0: float = setting(0.5, ge=0, le=1)`.

    ge, gt, le, lt: least and largest value, included (e) or not; choices: names, of which it is one; note: what an error
    says besides; help: for the command line. `later` and `renamed` take the same.
    """
    return dataclasses.field(default=default, metadata=metadata)


def check(item: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise FedlibError unless `value` has the type of the field (text is no number) and is within its limits."""
    kind, limits = kind_of(item), item.metadata
    if kind not in (int, float, bool, str):
        return
    is_text = kind is not str and isinstance(value, str)
    require(not is_text, item.name, value, "a number, or true or false, as its default is")
    value = coerce(item.name, value, kind)
    if "choices" in limits:
        choose(item.name, value, limits["choices"])
    if not all(holds(value, limits[name]) for name, holds in _HOLDS.items() if name in limits):
        require(False, item.name, value, _allowed(limits))


def kind_of(item: "dataclasses.Field[Any]") -> Any:
    """The type of a field's values: its default's (`lam: float = 1` is a float) or, of one that may be None, the first that
    its annotation names.
    """
    if item.default is None:
        return next(iter(typing.get_args(item.type)), None)
    return float if type(item.default) is int and item.type in (float, "float") else type(item.default)


def _allowed(limits: Mapping[str, Any]) -> str:
    """Limits in words: `in [0, 1)`, `above 0`."""
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if high is None:
        words = f"{'at least' if 'ge' in limits else 'above'} {low}"
    elif low is None:
        words = f"{'at most' if 'le' in limits else 'below'} {high}"
    else:
        words = f"in {'[' if 'ge' in limits else '('}{low}, {high}{']' if 'le' in limits else ')'}"
    return f"{words} ({limits['note']})" if "note" in limits else words


def with_meaning(owner: type | None, name: str, value: Any) -> str:
    """`name = value`, held together by no-break spaces, and what the value means where `owner`'s note on the field says so."""
    item = getattr(owner, "__dataclass_fields__", {}).get(name)
    explained, _, meaning = item.metadata.get("note", "").partition(": ") if item else ("", "", "")
    means = f" ({meaning})" if isinstance(value, int | float) and f"{value:g}" == explained else ""
    return f"{name} = {value}{means}".replace(" ", "\u00a0")


def allowed(item: "dataclasses.Field[Any]") -> str:
    """What a field allows, in words; of many names, that it is one of them."""
    choices = list(item.metadata.get("choices", ()))
    if choices:
        return ", ".join(choices) if len(choices) <= 6 else f"one of {len(choices)} names"
    if kind_of(item) is bool:
        return "true or false"
    if _HOLDS.keys() & item.metadata.keys():
        return _allowed(item.metadata)
    return "a number" if kind_of(item) in (int, float) else "text"


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
