"""One clear line for every mistake a user can make: the field, its value, and what is allowed."""

import contextlib
import difflib
import numbers
from collections.abc import Iterable
from typing import Any


class FedlibError(ValueError):
    """A mistake the user can mend. The command line prints it as one line and exits with status 2."""


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raise `FedlibError` naming `field`, `value` and what is `allowed`, unless `condition` holds."""
    if not condition:
        raise FedlibError(f"{field} = {value!r}: must be {allowed}")


def choose(field: str, value: Any, names: Iterable[str]) -> None:
    """Raise `FedlibError` with the nearest valid name, unless `value` is one of `names`."""
    known = list(names)
    if value in known:
        return
    by_lower_case = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(value).lower(), by_lower_case, n=1, cutoff=0.5)
    hint = f"did you mean {by_lower_case[near[0]]!r}? " if near else ""
    raise FedlibError(f"{field} = {value!r} is unknown: {hint}known are {', '.join(known)}")


def distinct(field: str, values: Iterable[Any]) -> None:
    """Raise `FedlibError` naming what occurs twice in `values`: a repeated seed would narrow an interval."""
    seen: list[Any] = []
    for value in values:
        require(value not in seen, field, list(values), f"different from each other; {value!r} occurs twice")
        seen.append(value)


def coerce(field: str, value: Any, kind: type) -> Any:
    """Turn `value` (perhaps a string from a command line or papermill) into `kind`, or raise `FedlibError`.

    Booleans accept true/false, integers accept whole floats; nothing is ever rounded or truncated.
    """
    allowed = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]
    if kind is bool:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        require(isinstance(value, bool), field, value, allowed)
        return value
    if kind is str:
        require(isinstance(value, str), field, value, allowed)
        return value
    require(isinstance(value, numbers.Real | str) and not isinstance(value, bool), field, value, allowed)
    if kind is int:
        with contextlib.suppress(ValueError):  # exact, where a float would round beyond 2**53
            if isinstance(value, numbers.Integral | str):
                return int(value)
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    require(number == number and abs(number) != float("inf"), field, value, f"{allowed} (finite)")
    if kind is int:
        require(number.is_integer(), field, value, allowed)
        return int(number)
    return number
