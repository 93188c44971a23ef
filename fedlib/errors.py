"""One clear line for every mistake a user can make: the field, its value, and what is allowed."""

import contextlib
import difflib
import math
import numbers
import os
import re
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

NAME_BYTES, PATH_BYTES = 255, 3800  # what file systems take, with room for the names of runs


class FedlibError(ValueError):
    """A mistake the user can mend. The command line prints it as one line and exits with status 2."""


FEW = 12  # names at most that a message lists in full
LONG = 400  # characters at most of a value or of another's error


def one_line(text: str) -> str:
    """`text` without line breaks, cut in the middle where it is long."""
    text = re.sub(r"\s*[\n\r]\s*", " ", text).strip()
    return text if len(text) <= LONG else f"{text[: LONG - 100]} ... {text[-90:]}"


def shown(value: Any) -> str:
    """A value as a message shows it: in one line, whatever it is."""
    try:
        return one_line(repr(value))
    except Exception:  # another's __repr__, or a number of more digits than Python prints
        return f"a {type(value).__name__} that cannot be shown"


def told(error: BaseException) -> str:
    """Another's error in one line: its kind, what it says and where in their code it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if not Path(frame.filename).is_relative_to(Path(__file__).parent)
        and not {"site-packages", "dist-packages"} & {*Path(frame.filename).parts}
    ]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    try:
        said = one_line(str(error))
    except Exception:  # another's __str__
        said = ""
    return f"{type(error).__name__}{': ' if said else ''}{said}{where}"


@contextlib.contextmanager
def others_code(what: str) -> Iterator[None]:
    """Within, a person's own code runs: what it raises is a FedlibError that names `what` it is."""
    try:
        yield
    except FedlibError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        raise FedlibError(f"{what}: {told(error)}") from error


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raise `FedlibError` naming `field`, `value` and what is `allowed`, unless `condition` holds."""
    if not condition:
        raise FedlibError(f"{field} = {shown(value)}: must be {allowed}")


def choose(field: str, value: Any, names: Iterable[str], besides: str = "") -> None:
    """Raise `FedlibError` with the nearest valid names, unless `value` is one of `names`.

    Of a few names all are listed; of many the three nearest alone, or all that end in `/value`; where none is near, `besides` too.
    """
    known = list(names)
    if isinstance(value, str) and value in known:
        return
    by_lower_case = {name.lower(): name for name in known}
    text = (value if isinstance(value, str) else shown(value)).lower()[:LONG]
    close = [text] if text in by_lower_case else difflib.get_close_matches(text, by_lower_case, n=3, cutoff=0.5)
    close = [name for name in by_lower_case if name.endswith(f"/{text}")] or close
    near = [by_lower_case[name] for name in close]
    if len(known) <= FEW:
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise FedlibError(f"{field} = {shown(value)} is unknown: {hint}known are {', '.join(known)}")
    if near:
        hint = f"did you mean {' or '.join(repr(name) for name in near)}?"
    else:
        nearest = difflib.get_close_matches(text, by_lower_case, n=3, cutoff=0.0)
        hint = f"the nearest of {len(known)} are {', '.join(by_lower_case[name] for name in nearest)}{besides}"
    raise FedlibError(f"{field} = {shown(value)} is unknown: {hint}")


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
    except OSError as error:
        raise FedlibError(f"{variable} = {given!r}: must be absolute, as the current directory is gone") from error
    parts = [os.fsencode(part) for part in path.parts]
    room = f"a path of fewer than {PATH_BYTES} bytes, each name of at most {NAME_BYTES}"
    if max(map(len, parts)) > NAME_BYTES or len(os.fsencode(path)) >= PATH_BYTES:
        raise FedlibError(f"{variable} = {shown(given)} ({len(given)} characters): must be {room}")
    if os.environ.get(variable):
        os.environ[variable] = str(path)
    return path


def check_name(field: str, name: Any) -> None:
    """Raise `FedlibError` unless `name` can name a folder and stand in a list: letters, digits, `.`, `_`, `+`, `-`."""
    allowed = "letters, digits, '.', '_', '+' and '-', a letter or digit first, 60 at most"
    require(isinstance(name, str) and bool(re.fullmatch(r"\w[\w.+-]{0,59}", name)), field, name, allowed)


def distinct(field: str, values: Iterable[Any]) -> None:
    """Raise `FedlibError` naming what occurs twice in `values`: a repeated seed would narrow an interval."""
    listed = list(values)
    for place, value in enumerate(listed):
        require(value not in listed[:place], field, listed, f"different from each other; {shown(value)} occurs twice")


def whole_or_part(field: str, value: Any) -> float:
    """A number, an int where it is whole; raises `FedlibError` for anything else."""
    number = coerce(field, value, float)
    return int(number) if number.is_integer() else number


def coerce(field: str, value: Any, kind: type) -> Any:
    """Turn `value` (perhaps a string from a command line or papermill) into `kind`, or raise `FedlibError`.

    Booleans accept true/false, integers accept whole floats; nothing is ever rounded or truncated, and what a float
    cannot hold is refused: 10**400, and 1e-400, which it would read as 0.
    """
    as_it_is = type(value) is kind
    if as_it_is and (kind is not float or math.isfinite(value)):
        return value + 0.0 if kind is float else value
    allowed = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind in (bool, str):
        require(isinstance(value, kind), field, value, allowed)
        return value
    require(isinstance(value, numbers.Real | str) and not isinstance(value, bool), field, value, allowed)
    if kind is int:
        with contextlib.suppress(ValueError):  # exact, where a float would round beyond 2**53
            if isinstance(value, numbers.Integral | str):
                return int(value)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = float("nan")
    require(math.isfinite(number), field, value, f"{allowed} (finite)")
    digits = re.sub("[eE].*", "", value) if isinstance(value, str) else ""
    lost = number == 0 and (bool(re.search("[1-9]", digits)) or (not isinstance(value, str) and value != 0))
    require(not lost, field, value, f"{allowed}, 0 or further from it")
    if kind is int:
        require(number.is_integer(), field, value, allowed)
        return int(number)
    return number + 0.0  # one spelling of 0: -0.0 would be another run
