"""The plan of the results of record (results/planned.csv): which runs were asked for, why, and by which rule they are judged.

A plain table, written before its runs: an arm answers one question, which stands in its first row with when it was
planned (and what had been seen by then), the rule that selects a run's round, and the margin in points within which a
difference counts as none. A row is one case with its seeds; `more` has the fields of a specification that have no column.
`grids` names the grids whose common error a row's runs are part of (`show/stats.py`): a row that is not planned turns no
verdict. `only` names the grids that alone show a row's runs, such as those of a picture for which a few were made.

Finished runs of an arm that would change tables only half wait in results/pending/runs, which no table reads, until the
arm is whole.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pandas as pd

from .. import lab
from ..errors import FedlibError, choose, require
from ..lab import estimates, of_record, places, plugins

PLACE = {
    "dataset": str,
    "num_clients": int,
    "participation": float,
    "rounds": int,
    "local_epochs": int,
    "batch_size": int,
}
RECORD = "record"  # the scale
FIELDS = PLACE | {"precision": str, "protocol": str, "paper": str}


@dataclass(frozen=True)
class Planned:
    """A planned run. place: its data set, N, C, T, E and B; grids: those whose common error it is part of; only: those that alone
    show it.
    """

    case: str
    spec: lab.RunSpec
    place: tuple[str, ...]
    grids: tuple[str, ...]
    only: tuple[str, ...]

    @cached_property
    def key(self) -> str:
        """Empty where it cannot be trained here: a person has registered other data, say vectors, under the name of its data set."""
        try:
            return lab.resolve(self.spec, RECORD).key
        except FedlibError:
            return ""


@dataclass(frozen=True)
class Arm:
    """Runs that answer one question, seed by seed, so that what is there is paired."""

    name: str
    question: str
    planned: str
    rule: str
    margin: float | None
    runs: list[Planned]

    def open(self) -> list[lab.RunSpec]:
        """The runs that neither the results of record, nor what waits to be among them, nor the store has."""
        waiting = (places.RESULTS / "pending" / "runs").glob("*/DONE")
        known = {*of_record.by_key(), *(done.parent.name for done in waiting)}
        missing = {run.key for run in lab.missing([run.spec for run in self.runs if run.key not in known], RECORD)}
        return [run.spec for run in self.runs if run.key in missing]


def arms() -> dict[str, Arm]:
    """The arms of the plan by name, in the order in which they are trained."""
    file = places.RESULTS / "planned.csv"
    if not file.exists():  # another folder of results
        return {}
    return _read(str(file), file.stat().st_mtime_ns, plugins.registered())


@cache
def _read(file: str, _written: int, _registered: tuple[Any, ...]) -> dict[str, Arm]:
    made = {}
    for name, rows in pd.read_csv(file, dtype=str, keep_default_na=False).groupby("arm", sort=False):
        first = rows.iloc[0]
        margin = float(first["margin"]) if first["margin"] else None
        runs = [run for row in rows.to_dict("records") for run in _runs(row)]
        runs.sort(key=lambda run: run.spec.seed)
        made[str(name)] = Arm(str(name), first["question"], first["planned"], first["rule"], margin, runs)
    return made


def _runs(row: Mapping[Any, str]) -> Iterator[Planned]:
    place = tuple(row[name] for name in PLACE)
    given = {name: kind(row[name]) for name, kind in FIELDS.items() if row[name]} | json.loads(row["more"] or "{}")
    for seed in map(int, row["seeds"].split()):
        spec = lab.spec_from({"algorithm": row["algorithm"], "seed": seed} | given)
        yield Planned(row["case"], spec, place, tuple(row["grids"].split()), tuple(row["only"].split()))


def _every() -> list[Planned]:
    return [run for arm in arms().values() for run in arm.runs]


def seeds() -> set[int]:
    """Every seed that the plan names."""
    return {run.spec.seed for run in _every()}


def elsewhere(grid: str) -> set[str]:
    """Keys of planned runs that the grid could have but does not show, since they were made for others alone."""
    return {run.key for run in _every() if run.only and grid not in run.only}


def arm(name: str) -> Arm:
    """An arm of the plan; raises FedlibError for an unknown name."""
    found = arms()
    choose("experiment", name, found)
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
