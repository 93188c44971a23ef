"""The plan of the results of record (results/planned.csv): which runs were asked for, why, and by which rule they are judged.

A plain table, written before its runs: an arm answers one question, which stands in its first row with when it was
planned (and what had been seen by then), the rule that selects a run's round, and the margin in points within which a
difference counts as none. A row is one case with its seeds; `more` has the fields of a specification that have no column.
`grids` names the grids whose common error a row's runs are part of (`show/paired.py`): a row that is not planned turns no
verdict. `only` names the grids that alone show a row's runs, such as those of a picture for which a few were made.

Finished runs of an arm that would change tables only half wait in results/pending/runs, which no table reads, until the
arm is whole.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from .. import lab
from ..errors import FedlibError, choose, require
from ..lab import estimates, plugins
from . import recorded
from .exhibits import RECORD

FIELDS = {
    **{"dataset": str, "num_clients": int, "participation": float, "rounds": int, "local_epochs": int},
    **{"batch_size": int, "precision": str, "protocol": str, "paper": str},
}


@dataclass(frozen=True)
class Arm:
    """Runs that answer one question. runs: (case, specification), seed by seed, so that what is there is paired."""

    name: str
    question: str
    planned: str
    rule: str
    margin: float | None
    runs: list[tuple[str, lab.RunSpec]]

    @property
    def keys(self) -> list[str]:
        return [lab.resolve(spec, RECORD).key for _, spec in self.runs]

    def open(self) -> list[lab.RunSpec]:
        """The runs that neither the results of record, nor what waits to be among them, nor the store has."""
        waiting = (recorded.RESULTS / "pending" / "runs").glob("*/DONE")
        known = {*recorded.by_key(), *(done.parent.name for done in waiting)}
        left = [spec for _, spec in self.runs if lab.resolve(spec, RECORD).key not in known]
        missing = {run.key for run in lab.missing(left, RECORD)}
        return [spec for spec in left if lab.resolve(spec, RECORD).key in missing]


def arms() -> dict[str, Arm]:
    """The arms of the plan by name, in the order in which they are trained."""
    file, made = recorded.RESULTS / "planned.csv", dict[str, Arm]()
    if not file.exists():  # another folder of results
        return made
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    for name, rows in table.groupby("arm", sort=False):
        first = rows.iloc[0]
        runs = [(int(seed), row) for row in rows.to_dict("records") for seed in row["seeds"].split()]
        runs.sort(key=lambda run: run[0])
        margin = float(first["margin"]) if first["margin"] else None
        specs = [(row["case"], _spec(row, seed)) for seed, row in runs]
        made[str(name)] = Arm(str(name), first["question"], first["planned"], first["rule"], margin, specs)
    return made


@dataclass(frozen=True)
class Row:
    """A planned run of a grid, or of none (""): the grid's name, the case, its seed, its key, and the grids that alone show it."""

    grid: str
    place: tuple[Any, ...]
    case: str
    seed: int
    key: str
    only: tuple[str, ...]


def seeds() -> set[int]:
    """Every seed that the plan names."""
    return {row.seed for row in _planned_rows()}


def grid_of(keys: Collection[str]) -> list[Row]:
    """The planned grid, in one place (data set, N, C, T, E, B), that holds most of the runs `keys`; empty where none of them is
    planned. Of two that hold as many, the first in the plan.
    """
    rows = _planned_rows()
    held: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.grid:
            held.setdefault((row.grid, row.place), []).append(row)
    counts = [(sum(row.key in keys for row in own), own) for own in held.values()]
    most = max((count for count, _ in counts), default=0)
    return next(own for count, own in counts if count == most) if most else []


def _planned_rows() -> tuple[Row, ...]:
    file = recorded.RESULTS / "planned.csv"
    return _rows(str(file), file.stat().st_mtime_ns, plugins.registered()) if file.exists() else ()


def elsewhere(grid: str) -> set[str]:
    """Keys of planned runs that the grid could have but does not show, since they were made for others alone."""
    return {row.key for row in _planned_rows() if row.only and grid not in row.only}


@cache
def _rows(file: str, _written: int, _registered: tuple[Any, ...]) -> tuple[Row, ...]:
    found = []
    for row in pd.read_csv(file, dtype=str, keep_default_na=False).to_dict("records"):
        place = tuple(
            row[name] for name in ("dataset", "num_clients", "participation", "rounds", "local_epochs", "batch_size")
        )
        for seed in map(int, row["seeds"].split()):
            try:
                key = lab.resolve(_spec(row, seed), RECORD).key
            except FedlibError:  # of a method of the reader's own that has the name of one of the plan
                continue
            only = tuple(row["only"].split())
            found += [Row(grid, place, row["case"], seed, key, only) for grid in row["grids"].split() or [""]]
    return tuple(found)


def _spec(row: Mapping[Any, str], seed: int) -> lab.RunSpec:
    given = {name: kind(row[name]) for name, kind in FIELDS.items() if row[name]}
    return lab.spec_from({"algorithm": row["algorithm"], "seed": seed} | given | json.loads(row["more"] or "{}"))


def arm(name: str) -> Arm:
    """An arm of the plan; raises FedlibError for an unknown name."""
    found = arms()
    choose("arm", name, found)
    return found[name]


def expected_hours(specs: Collection[lab.RunSpec], timed: Sequence[estimates.Timed]) -> float:
    """Hours on one core that runs will take, by those of `timed` (`recorded.timed()`) that are most like them."""
    return sum(lab.expected_seconds([lab.resolve(spec, RECORD) for spec in specs], timed)) / 3600


def train(name: str, jobs: int, each: Callable[[int], None]) -> int:
    """Train what is open of an arm, seed by seed, `jobs` runs side by side; `each` is called after each finished run with
    how many remain. Returns how many were open.
    """
    specs = arm(name).open()
    require(jobs >= 1, "jobs", jobs, "at least 1")
    lab.sweep(specs, RECORD, jobs=jobs, in_order=True, each=each)
    return len(specs)
