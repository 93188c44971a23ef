"""The results of record as runs: a read-only store beside your own, in the store's own format."""

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import FedlibError, require, shown
from . import places, records
from .launch import missing, sweep
from .spec import RunSpec, resolve


def read_results() -> list[records.Record]:
    """Every result of record that is whole and that this version can read, by key; those that are not are named, once, on
    standard error.
    """
    return _read(places.RESULTS, _state(places.RESULTS))[0]


def unreadable() -> dict[str, str]:
    """The results of record that are left out, by key: why."""
    return _read(places.RESULTS, _state(places.RESULTS))[1]


def by_key() -> dict[str, records.Record]:
    """The results of record by key, which is the key of the run that asks for the same, for ever (`fields`)."""
    return {record.key: record for record in read_results()}


def _state(folder: Path) -> tuple[Any, ...]:
    """Which runs there are and when they were written."""
    return tuple(
        (done.parent.name, *(file.stat().st_mtime_ns for file in sorted(done.parent.iterdir())))
        for done in sorted((folder / "runs").glob("*/DONE"))
    )


@cache
def _read(folder: Path, state: tuple[Any, ...]) -> tuple[list[records.Record], dict[str, str]]:
    found, left_out = [], {}
    for key, *_ in state:
        try:
            record = records.read(folder / "runs" / key)
            assert record is not None
            found.append(record)
        except FedlibError as error:
            left_out[key] = str(error)
    if left_out:
        print(f"{len(left_out)} of {len(state)} results of record are left out:", file=sys.stderr)
        print(*left_out.values(), sep="\n", file=sys.stderr)
    return found, left_out


def find(key: str) -> records.Record:
    """The finished run whose key begins with `key`, or has it somewhere: of the store, or else of the results of record.

    Raises FedlibError where there is none, more than one, or one that is not finished.
    """
    require(isinstance(key, str) and bool(key.strip()), "run", key, "a key, or a part of one")
    stored = {path.name: path for path in records.stored()}
    of_record = by_key()
    for known in (stored, of_record):
        matches = [name for name in known if name == key]
        matches = matches or [name for name in known if name.startswith(key)] or [name for name in known if key in name]
        if len(matches) > 1:
            named = f"names {len(matches)} runs, such as {', '.join(matches[:2])}; give more of it"
            raise FedlibError(f"run = {shown(key)}: {named}")
        if matches:
            record = records.read(stored[matches[0]]) if known is stored else of_record[matches[0]]
            require(record is not None, "run", key, "finished; the command that started it resumes it")
            assert record is not None
            return record
    raise FedlibError(f"run = {shown(key)}: names no stored run and none of record; `fedlib runs` lists those stored")


def gather(specs: Iterable[RunSpec], jobs: int = 2, whole: bool = False, log: Any = None) -> dict[str, records.Record]:
    """The records of `specs` by key, each read from the store, or else from the results of record, or else trained, `jobs` side by
    side. jobs = 0 trains none: what is missing is left out, and raises FedlibError where everything is.

    whole: results of record, which have a run's rounds and each client's last row, will not do. Nor do they for a run that keeps
    weights or measures what they lack. log: as of `sweep`.
    """
    resolved = {run.key: run for run in map(resolve, specs)}
    known = {} if whole else by_key()
    lacking = {run.key for run in missing([run.spec for run in resolved.values()])} if known or not jobs else set()
    read = {
        key: known[key]
        for key, run in resolved.items()
        if key in lacking
        and key in known
        and run.spec.keep == "none"
        and run.measured_by(known[key].rounds, known[key].provenance)
    }
    if read:
        print(" ".join(filter(None, (f"{len(read)} runs are of record, read from results/.", stale([*read.values()])))))
    blank = set() if jobs else lacking - read.keys()
    if blank:
        allowed = f"at least 1: none of the {len(resolved)} runs is there; `fedlib reproduce` trains them"
        require(len(blank) < len(resolved), "jobs", jobs, allowed)
        print(f"{len(blank)} of {len(resolved)} runs are missing and left out.")
    asked = [run.spec for key, run in resolved.items() if key not in read and key not in blank]
    made = read | {record.key: record for record in sweep(asked, jobs=jobs or 1, log=log)}
    return {key: made[key] for key in resolved if key in made}


def stale(found: Sequence[records.Record]) -> str:
    """Which of some results of record today's code computes otherwise, in a sentence; empty where it computes them all."""
    moved = [record for record in found if record.stale]
    parts = sorted({part for record in moved for part in record.moved})
    return (
        f"{len(moved)} of {len(found)} are of earlier numbers than today's code computes ({', '.join(parts)})."
        if moved
        else ""
    )
