"""One clear line for every mistake a user can make: the field, its value, and what is allowed."""

import contextlib
import difflib
import numbers
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NAME_BYTES, PATH_BYTES = 255, 3800  # what file systems take, with room for the names of runs


class FedlibError(ValueError):
    """A mistake the user can mend. The command line prints it as one line and exits with status 2."""


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raise `FedlibError` naming `field`, `value` and what is `allowed`, unless `condition` holds."""
    if not condition:
        raise FedlibError(f"{field} = {value!r}: must be {allowed}")


FEW = 12  # names at most that a message lists in full


def choose(field: str, value: Any, names: Iterable[str]) -> None:
    """Raise `FedlibError` with the nearest valid names, unless `value` is one of `names`.

    Of a few names all are listed; of many the three nearest alone.
    """
    known = list(names)
    if value in known:
        return
    by_lower_case = {name.lower(): name for name in known}
    text = str(value).lower()
    close = [text] if text in by_lower_case else difflib.get_close_matches(text, by_lower_case, n=3, cutoff=0.5)
    near = [by_lower_case[name] for name in close]
    if len(known) <= FEW:
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise FedlibError(f"{field} = {value!r} is unknown: {hint}known are {', '.join(known)}")
    if near:
        hint = f"did you mean {' or '.join(repr(name) for name in near)}?"
    else:
        nearest = difflib.get_close_matches(text, by_lower_case, n=3, cutoff=0.0)
        hint = f"the nearest of {len(known)} are {', '.join(by_lower_case[name] for name in nearest)}"
    raise FedlibError(f"{field} = {value!r} is unknown: {hint}")


def folder_from(variable: str, default: str) -> Path:
    """The folder that an environment variable names (`~` expanded), or `default`; raises `FedlibError` if it cannot be one.

    A relative one is made absolute against the current directory and written back to the environment, so that workers
    and kernels, which run elsewhere, mean the same.
    """
    given = os.environ.get(variable) or default
    try:
        path = Path(os.path.abspath(Path(given).expanduser()))
    except RuntimeError as error:
        raise FedlibError(f"{variable} = {given!r}: must begin with a user that exists: {error}") from error
    parts = [os.fsencode(part) for part in path.parts]
    room = f"a path of fewer than {PATH_BYTES} bytes, each name of at most {NAME_BYTES}"
    if max(map(len, parts)) > NAME_BYTES or len(os.fsencode(path)) >= PATH_BYTES:
        shown = given if len(given) <= 60 else f"{given[:40]}...{given[-10:]}"
        raise FedlibError(f"{variable} = {shown!r} ({len(given)} characters): must be {room}")
    if os.environ.get(variable):
        os.environ[variable] = str(path)
    return path


def check_name(field: str, name: Any) -> None:
    """Raise `FedlibError` unless `name` can name a folder and stand in a list: letters, digits, `.`, `_`, `+`, `-`."""
    allowed = "letters, digits, '.', '_', '+' and '-', a letter or digit first, 60 at most"
    require(isinstance(name, str) and bool(re.fullmatch(r"\w[\w.+-]{0,59}", name)), field, name, allowed)


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
