"""Any runs beside each other, stored or of record: their curves, and their differences, paired by seed and client by client."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .. import data, lab
from ..errors import require
from ..lab import of_record
from ..show import intervals, labels, plots, tables
from .exhibits import Cell
from .prose import say
from .results import Runs, compared, note

# Fields of a specification in short, and those whose value says what they are.
_SHORT = {"num_clients": "N", "participation": "C", "rounds": "T", "local_epochs": "E", "batch_size": "B"}
_PLAIN = ("dataset", "scenario", "partition", "precision", "device")
# What decides which images a client holds, of what a run's key is made of; a public fraction is there where clients lack one.
_DEAL = ("data", "num_clients", "partition", "classes_per_client", "alpha", "public_fraction")
_DEAL_OF_PROTOCOL = ("split", "distinct", "floors", "dealing")


@dataclass(frozen=True)
class ComparedRuns:
    """Runs beside each other, those that differ in nothing but their seed in one row; the first row is the reference.

    rows: label -> its runs by seed; table: label, n, `accuracy` (per cent, 95 % interval over seeds), `difference` to the
    reference in points, paired by the seeds that both have; clients: label, seed, client, `accuracy` and `reference`
    (per cent), `difference`, of the clients' last visits, where both have the same clients; notes: what to know when reading it.
    A run that diverged or lacks rounds has no number in either table, and neither has the mean of its row.
    """

    rows: Mapping[str, Mapping[int, Any]]
    table: pd.DataFrame
    clients: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def figure(self) -> plots.Picture:
        """The rows' mean accuracy over the rounds, and each client's difference to the reference, in order of size."""
        rounds = [
            intervals.trained(record.rounds)[["round", "accuracy"]].assign(method=label, seed=seed)
            for label, by_seed in self.rows.items()
            for seed, record in by_seed.items()
        ]
        figure = plots.comparison(pd.concat(rounds, ignore_index=True), self.clients, next(iter(self.rows)))
        cells = [Cell(label, record.spec) for label, by_seed in self.rows.items() for record in by_seed.values()]
        datasets = dict.fromkeys(cell.dataset for cell in cells)
        if any(data.info(name).embedded for name in datasets):
            plots.label_stand_in(figure)
        return figure.note(f"{', '.join(map(labels.dataset, datasets))}; {note(cells)}")

    @property
    def by_client(self) -> list[str]:
        """The differences client by client, a sentence for each row."""
        said, reference = [], next(iter(self.rows))
        for label, rows in self.clients.groupby("label", sort=False):
            apart = rows["difference"].round(6)
            mean, half = intervals.interval(apart.to_numpy())
            over = "" if np.isnan(half) else " (95 % over clients)"
            difference = tables.format_difference(mean, half)
            said.append(
                f"{label}, difference to {reference}, client by client: {difference}{over} points; of {len(apart)} clients "
                f"{(apart > 0).sum()} higher, {(apart < 0).sum()} lower, {(apart == 0).sum()} equal"
            )
        return said

    def __repr__(self) -> str:
        return "\n".join([self.table.to_string(index=False), *self.by_client, *self.notes])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.figure)
        display(self.table)
        say(*self.by_client, *self.notes)


def compare(*runs: Any, rule: str = "last") -> ComparedRuns:
    """Compare runs: keys as `fedlib runs` lists them (or enough of one), records, or what `train_cells` and `load_record` give.

    rule: the round that is compared, see `intervals.SELECTION_RULES`. Raises FedlibError for a key that names no finished run,
    and for fewer than two runs.
    """
    records: list[Any] = []
    for run in runs:
        allowed = "keys, records, or what train_cells, load_record and study.train give"
        run = getattr(run, "runs", run)  # a study's
        require(isinstance(run, Runs | str) or hasattr(run, "rounds"), "runs", run, allowed)
        records += run.records if isinstance(run, Runs) else [lab.find(run)] if isinstance(run, str) else [run]
    records = list({record.key: record for record in records}.values())
    require(len(records) >= 2, "runs", len(records), "at least two different ones")
    rows: dict[str, dict[int, Any]] = {}
    for label, record in zip(told_apart(_labels([record.spec for record in records]), records), records, strict=True):
        rows.setdefault(label, {})[record.spec.seed] = record
    reference, *others = rows
    notes = [of_record.stale([record for record in records if record.of_record])]
    short = [record.key for record in records if record.status != "diverged" and not intervals.whole(record)]
    notes += [f"without all of their rounds, and so without a number: {', '.join(short)}"] if short else []
    parts = []
    for label in others:
        own, its = (next(iter(rows[name].values())).hashed for name in (label, reference))
        alike = dealt(own) == dealt(its)
        seeds = [seed for seed in rows[label] if seed in rows[reference]]
        pairs = [(seed, rows[label][seed], rows[reference][seed]) for seed in seeds if alike]
        parts += [_by_client(label, *pair) for pair in pairs if all(map(intervals.whole, pair[1:]))]
        if not alike:
            notes.append(
                f"the clients of {label} hold other images than those of {reference}: the difference says little"
            )
        elif not seeds:
            notes.append(f"{label} and {reference} have no seed in common: nothing is paired")
    columns = ["label", "seed", "client", "accuracy", "reference", "difference"]
    clients = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    table = pd.DataFrame([_row(label, rows, rule) for label in rows])
    wanted = [(label, reference) for label in others]
    made = compared(rows, wanted, lambda run: intervals.reported(run, rule))
    said = {one.own: tables.format_difference(one.mean, one.half, one.n) for one in made}
    table[f"difference to {reference}"] = [said.get(label, "–") for label in rows]
    return ComparedRuns(rows, table, clients, tuple(filter(None, notes)))


def _labels(specs: Sequence[Any]) -> list[str]:
    """Each run's method, and the fields in which it differs from another run, whichever these are; hyper-parameters and overrides
    from one of the same method. What a run keeps decides no number: `told_apart` names it where it must.
    """
    every = [vars(spec) for spec in specs]
    unsaid = ("algorithm", "params", "overrides", "seed", "keep", "metrics")
    varied = [name for name in every[0] if name not in unsaid and len({str(one[name]) for one in every}) > 1]
    made = []
    for own in every:
        same = [one for one in every if one["algorithm"] == own["algorithm"]]
        named = [str(own[name]) if name in _PLAIN else f"{_SHORT.get(name, name)} = {own[name]}" for name in varied]
        for part in ("params", "overrides"):
            names = dict.fromkeys(name for one in same for name in one[part])
            told = [name for name in names if len({str(one[part].get(name)) for one in same}) > 1]
            named += [f"{name} = {own[part][name]}" for name in told if name in own[part]]
        made.append(", ".join([own["algorithm"], *named]))
    return made


def told_apart(labels_: Sequence[str], runs: Sequence[Any]) -> list[str]:
    """The label of each run, so that runs of one label differ in nothing but their seed, and no two of them have the same.

    What two such runs keep is added, and where that is the same too (two versions of one's own method, whose specifications are
    equal), the eight signs of each key that `fedlib runs` lists.
    """
    made = list(labels_)
    for tell in (lambda run: f"keep = {run.spec.keep}", lambda run: run.key.rpartition("-")[2][:8]):
        places: dict[str, list[int]] = {}
        for place, label in enumerate(made):
            places.setdefault(label, []).append(place)
        for label, alike in places.items():
            own = [runs[place] for place in alike]
            doubled = len({run.spec.seed for run in own}) < len(own) or len({_but_seed(run) for run in own}) > 1
            words = [tell(run) for run in own] if doubled else []
            if len(set(words)) > 1:
                for place, word in zip(alike, words, strict=True):
                    made[place] = f"{label}, {word}"
    return made


def _but_seed(run: Any) -> str:
    """What a run was asked to be, but for its seed and what it keeps and measures."""
    asked = {name: value for name, value in vars(run.spec).items() if name not in ("seed", "keep", "metrics")}
    return json.dumps(asked, sort_keys=True, default=str)


def dealt(hashed: Mapping[str, Any]) -> list[Any]:
    """What decides which images a client holds, of what a run's key is made of."""
    return [hashed.get(name) for name in _DEAL] + [hashed["protocol"].get(name) for name in _DEAL_OF_PROTOCOL]


def _by_client(label: str, seed: int, one: Any, other: Any) -> pd.DataFrame:
    own, theirs = (intervals.trained(record.final())[["client", "accuracy"]] for record in (one, other))
    both = own.merge(theirs, on="client", suffixes=("", "_reference"))
    both = both.assign(accuracy=100 * both["accuracy"], reference=100 * both["accuracy_reference"])
    return both.assign(label=label, seed=seed, difference=both["accuracy"] - both["reference"])


def _row(label: str, rows: Mapping[str, Mapping[int, Any]], rule: str) -> dict[str, Any]:
    own = [intervals.reported(run, rule) for run in rows[label].values()]
    diverged = sum(record.status == "diverged" for record in rows[label].values())
    return {"run": label, "n": len(own), "accuracy, %": tables.cell(*intervals.interval(own), len(own), diverged)}


def differing(one: Any, other: Any) -> list[str]:
    """Where two runs differ, a line each: the specification's fields, their provenance, and whether their bits do."""
    lines = []
    for part in ("spec", "provenance"):
        own, its = (_flat(dataclasses.asdict(run.spec) if part == "spec" else run.provenance) for run in (one, other))
        names = [name for name in own | its if own.get(name) != its.get(name)]
        lines += [f"{part}.{name}: {own.get(name)} | {its.get(name)}" for name in names]
    if isinstance(one, lab.Record) and isinstance(other, lab.Record):
        lines.append(f"final states: {'the same bits' if one.digest == other.digest else 'different bits'}")
    return lines


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a mapping and of the mappings in it, `params.mu0` by name."""
    inner = {name: value if isinstance(value, Mapping) else {"": value} for name, value in values.items()}
    return {f"{name}.{part}".rstrip("."): value for name, own in inner.items() for part, value in own.items()}
