"""`fedlib runs` and `fedlib compare`: list, show and delete stored runs, and compare runs."""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from .. import algorithms, data, lab
from ..errors import FedlibError, coerce, require
from ..show import labels
from . import fill, spelled


def keys(_: object) -> list[str]:
    """The keys of stored runs, for a shell to complete."""
    return [path.name for path in lab.stored()]


KEY = Parameter(completer=keys)
runs = App(name="runs")


@runs.default
def _all_runs() -> None:
    """Print every stored run."""
    list_()


@runs.command(name="list")
def list_(name: str = "", /) -> None:
    """every stored run, a line each (the default)

    Every stored run, a line each, by the time at which it finished; N clients, T rounds, E epochs. The last column
    names what differs from the method's usual setting and, on a terminal, is cut to its width.

    * `fedlib runs list`
    * `fedlib runs list FedSSA`

    Parameters
    ----------
    name
        only runs with this in their name, such as FedSSA
    """
    stored = [path for path in lab.stored() if name.lower() in path.name.lower()]
    if name and not stored:
        spelled("name", name, [*algorithms.ALGORITHMS, *data.names()])
    found = [(path, *lab.state(lab.store() / path.name)) for path in stored]
    found.sort(key=lambda run: run[2].provenance.get("finished", "") if run[2] else "~")  # unfinished ones last
    rows = [_row(*run) for run in found]
    if rows:
        table = [("run", "acc. %", "N", "C", "T", "E", "seed", "differs in"), *rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
        limit = _width()
        for row in table:
            numbers = [f"{text:>{width}}" for text, width in zip(row[1:-1], widths[1:-1], strict=True)]
            line = "  ".join([f"{row[0]:<{widths[0]}}", " ".join(numbers), row[-1]]).rstrip()
            print(line if limit is None or len(line) <= limit else line[: limit - 1] + "…")
    print(f"{len(rows)} {'run' if len(rows) == 1 else 'runs'} in {lab.store()}")


def _width() -> int | None:
    """Characters of a line, where a person reads along."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def _row(path: Path, state: str, record: "lab.Record | None") -> tuple[str, ...]:
    """A row of the list: a name that `runs show` understands, last accuracy or state, N, C, T, E, seed, other differences."""
    from ..show import intervals

    if record is None:
        return path.name, state, *[""] * 5, ""
    method, _, key = path.name.rpartition("-")
    spec = record.spec
    accuracy = 100 * intervals.selected_accuracy(record.rounds, "last")
    shown = f"{accuracy:.2f}" if state == "finished" else "–" if state == "diverged" else f"{state} {accuracy:.2f}"
    numbers = (spec.num_clients, f"{spec.participation:.2f}", spec.rounds, spec.local_epochs, spec.seed)
    return f"{method}-{key[:8]}", shown, *map(str, numbers), ", ".join(lab.differences(spec))


@runs.command(name="show")
def show_run(key: Annotated[str, KEY], /) -> None:
    """one run: specification, provenance, rounds

    * `fedlib runs show FedSSA-digits-5d53`
    * `fedlib runs show Standalone-digits-1f`

    Parameters
    ----------
    key
        as `fedlib runs` lists it, or enough of it
    """

    from .run import print_record

    record = lab.find(key)
    print_record(record)
    made = {name: value for name, value in record.provenance.items() if not isinstance(value, dict) and name != "flags"}
    print(fill(", ".join(f"{name} {value}" for name, value in made.items()), "provenance: ", 2))
    print(record.rounds.to_string(index=False, line_width=_width()))


@runs.command
def prune(*name: str, older_than: Annotated[str | None, Parameter(metavar="DAYS")] = None, yes: bool = False) -> None:
    """delete damaged runs, and unfinished ones by name or age (needs --yes)

    Delete runs that are damaged by their own digests and, where NAME or --older-than says so, unfinished ones. A run
    that is whole is never deleted, whichever version computed it.

    * `fedlib runs prune`
    * `fedlib runs prune --older-than 30 --yes`

    Parameters
    ----------
    name
        also delete unfinished runs with this in their name
    older_than
        also delete unfinished runs untouched for so long
    yes
        delete; without it, only list what would be deleted
    """
    days = None if older_than is None else coerce("older-than", older_than, float)
    require(days is None or days >= 0, "older-than", days, "a number of days, at least 0")
    stored, doomed, failures = lab.stored(), 0, []
    for part in name:
        require(any(part in path.name for path in stored), "name", part, "part of a stored run's, see `fedlib runs`")
    for path in stored:
        state, named = lab.state(path)[0], any(part in path.name for part in name)
        if lab.whole(path):
            if named:
                print(f"kept {path.name} ({state}; a whole run is never pruned: {path} can be removed by hand)")
            continue
        unfinished = not (path / "DONE").exists()
        idle = (time.time() - max(file.lstat().st_mtime for file in path.iterdir())) / 86400
        if unfinished and not named and (days is None or idle < days):
            continue
        if lab.computing(path):
            print(f"kept {path.name} (another process computes it)")
            continue
        doomed += 1
        if not yes:
            print(f"would delete {path.name} ({state})")
            continue
        try:
            lab.delete(path)
            print(f"deleted {path.name} ({state})")
        except FedlibError as error:
            failures.append(str(error))
    if doomed and not yes:
        print("nothing was deleted; add --yes")
    if not doomed:
        meant = ", or unfinished and meant" if name or days is not None else ""
        print(f"nothing to delete: no stored run is damaged{meant}")
    if failures:
        raise FedlibError("; ".join(failures))


@runs.command
def export() -> None:
    """write the finished real-data runs' summaries to results/ (the results of record)

    * `fedlib runs export`
    * `FEDLIB_HOME=/shared/runs fedlib runs export`
    """
    from ..papers import recorded

    print(f"wrote {recorded.export()} runs to {lab.home() / 'results'}")


def compare(
    keys: Annotated[list[str], KEY],
    /,
    *,
    rule: Literal["last", "last10", "validation", "best"] = "last",
) -> None:
    """Print a comparison of runs.

    Parameters
    ----------
    keys
        as `fedlib runs` lists it, or enough of it
    rule
        the round compared; default last
    """
    from .. import study

    compared = study.compare(*keys, rule=rule)
    print("n, accuracy in %, difference to the first run, run")
    for label, row in compared.table.iterrows():
        apart = labels.mean(row["difference"], row["half of difference"], len(str(row["seeds"]).split(";")), "+")
        print(
            fill(
                str(label),
                f"{row['n']:.0f}  {labels.mean(row['accuracy'], row['half'], int(row['n'])):>15}  {apart:>15}  ",
            )
        )
    for label, row in compared.by_client.iterrows():
        counts = ", ".join(f"{row[name]:.0f} {name}" for name in ("higher", "lower", "equal"))
        print(
            fill(
                f"{label}, client by client: {row['difference']:+.2f} points; of {row['clients']:.0f} clients {counts}",
                indent=2,
            )
        )
    for line in compared.notes:
        print(fill(line, indent=2))
    both = [record for rows in compared.rows.values() for record in rows.values()]
    if len(both) == 2:
        print(*study.differing(*both), sep="\n")
