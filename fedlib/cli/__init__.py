"""The commands of the command line, a file per group; each is imported when it is called."""

import textwrap
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import choose, coerce, require

WIDTH = 80  # of what is printed, in characters
MOST_JOBS = 1024
Scale = Annotated[Literal["smoke", "demo", "record", "paper"], Parameter(show_choices=False)]  # `lab.SCALES`
Jobs = Annotated[
    str | None,
    Parameter(
        metavar="N",
        help="runs trained side by side (default: one for every core); of fewer runs, clients train side by side",
    ),
]


def fill(text: str, head: str = "", indent: int | None = None) -> str:
    """`head` and `text` in lines of at most `WIDTH` characters; the next lines begin under `text`, or at `indent`.

    A no-break space holds words together.
    """
    further = " " * (len(head) if indent is None else indent)
    filled = textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=further, break_on_hyphens=False)
    return filled.replace("\u00a0", " ")


def spelled(field: str, value: str, names: Iterable[str]) -> str:
    """The one of `names` that `value` is, in upper or lower case; raises FedlibError with the nearest if it is none."""
    known = list(names)
    same = [name for name in known if name.lower() == value.lower()]
    if value not in known and len(same) == 1:
        return same[0]
    choose(field, value, known)
    return value


def number_of_jobs(given: str | None) -> int:
    """The value of --jobs, by default the number of cores; raises FedlibError where it is no number of runs."""
    from .. import lab

    jobs = lab.cores() if given is None else int(coerce("jobs", given, int))
    require(1 <= jobs <= MOST_JOBS, "jobs", jobs, f"at least 1 and at most {MOST_JOBS}")
    return jobs


def completed(names: Iterable[str], shown: bool = False) -> Any:
    """The type of an argument that a shell completes from `names`, and that the command itself checks.

    shown: whether its help lists them.
    """
    as_it_is = Parameter(converter=lambda kind, tokens: tokens[0].value, show_choices=shown)
    return Annotated[Literal[tuple(names)], as_it_is]
