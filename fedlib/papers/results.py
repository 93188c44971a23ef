"""The finished runs of exhibits, side by side with the cells that asked for them, as tables: accuracies, rounds, clients, costs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .. import data, metrics
from ..errors import FedlibError, choose
from ..lab import costs, of_record
from ..show import intervals, labels, paired
from ..show.intervals import RunTables
from . import planned
from .exhibits import SYMBOLS, Cell

TYPED = ("num_clients", "participation", "stands_for")
LABELLED = ("dataset", "clients", "setting", "method", "seed", "value")  # of a row of a run's rounds and clients
EFFECTS = [
    "case", "against", "dataset", "n",
    "ours", "difference", "ci95", "selected", "selected_difference", "selected_ci95", "shared",
]  # fmt: skip
LEADS = (
    "runner_up",
    "lead",
    "lead_ci95",
    "lead_n",
)  # columns of a summary: the paired difference to the best other method


def note(cells: Sequence[Cell]) -> str:
    """The line at the foot of a picture of some cells: `N = 10, 50; C = 10 %; T = 30; E = 5; B = 64; scale demo; protocol paper;
    n = 1 to 3`, all values that occur, and how many seeds a point is the mean of; empty without cells.
    """
    said = []
    for symbol, name in SYMBOLS.items():
        values = sorted({value for cell in cells if (value := getattr(cell.spec, name))})
        words = [labels.per_cent(value) if symbol == "C" else f"{value:g}" for value in values]
        said += [f"{symbol} = {', '.join(words)}"] if words else []
    seeds: dict[Any, set[int]] = {}
    for cell in cells:
        seeds.setdefault((cell.method, cell.setting, cell.value), set()).add(cell.spec.seed)
    scales = dict.fromkeys(cell.scale for cell in cells if cell.scale)
    protocols = dict.fromkeys(cell.spec.protocol for cell in cells)
    said += [f"scale {', '.join(scales)}"] if scales else []
    said += [f"protocol {', '.join(protocols)}", f"n = {labels.seeds_range(map(len, seeds.values()))}"] if cells else []
    return "; ".join(said)


def epochs(specs: Sequence[Any]) -> float:
    """The most epochs that a client of these specifications trains, on average: T x C x E."""
    return max((spec.rounds * spec.participation * spec.local_epochs for spec in specs), default=float("nan"))


def of_column(spec: Any, specs: Iterable[Any]) -> list[Any]:
    """Those of `specs` in the column of `spec`: with its N and C."""
    return [one for one in specs if (one.num_clients, one.participation) == (spec.num_clients, spec.participation)]


def _epochs(run: Any) -> np.ndarray:
    selected = intervals.trained(run.rounds)["selected"]
    return np.asarray(selected.cumsum() * run.spec.local_epochs / run.spec.num_clients)


def _words(run: Any) -> np.ndarray:
    rounds = intervals.trained(run.rounds)
    return np.asarray((rounds["download_words"] + rounds["upload_words"]).cumsum())


# What a run has spent by the end of each round: local epochs per client, on average, words sent both ways by all, FLOPs.
_ALONG: dict[str, Callable[[Any], np.ndarray]] = {"epochs": _epochs, "words": _words, "flops": costs.of_run}


def _column(run: Any, name: str) -> np.ndarray:
    if name in _ALONG:
        return _ALONG[name](run)
    return intervals.trained(intervals.with_metric(run, name))[name].to_numpy()


@dataclass(frozen=True)
class Runs:
    """The finished runs of a grid: cells and their records, side by side."""

    cells: list[Cell]
    records: Sequence[Any]

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[Cell, RunTables]]) -> "Runs":
        listed = list(pairs)
        return cls([cell for cell, _ in listed], [record for _, record in listed])

    @classmethod
    def joined(cls, parts: Iterable["Runs"]) -> "Runs":
        """The runs of several grids, one after the other."""
        return cls.of_pairs(pair for part in parts for pair in part.pairs)

    @property
    def pairs(self) -> list[tuple[Cell, RunTables]]:
        return list(zip(self.cells, self.records, strict=True))

    def _once(self) -> list[tuple[Cell, RunTables]]:
        """The pairs that a table counts: a run that two grids share is there once. Raises FedlibError for two runs of one method,
        setting, value and seed.
        """
        places = [(cell.method, *_place(cell.setting, cell.value), f"seed {cell.spec.seed}") for cell in self.cells]
        first = dict(zip(reversed(places), reversed(self.cells), strict=True))
        return [(first[place], run) for place, run in intervals.once(zip(places, self.records, strict=True)).items()]

    def summary(self, rule: str, metric: str = "accuracy") -> pd.DataFrame:
        """method, dataset, clients, setting (in words), value (of the swept quantity, if any), num_clients, participation,
        stands_for (the paper's N, where another), what else the label names, protocol, scale, then `intervals.summarise`'s columns
        and LEADS: the other method of the same setting and value that is best against this one, the lead over it in points,
        paired by seed, with its 95 % interval, and the number of common seeds.

        metric: of `metrics.METRICS`, over the clients visited so far, or another column of the records' rounds:
        `accuracy_all` over all, or `accuracy_selected` over the round's own.
        """
        once = self._once()
        cells, records = [cell for cell, _ in once], [record for _, record in once]
        swept = any(
            cell.value is not None for cell in cells
        )  # None itself may be one of the values: the clients' own data
        named = [
            {"method": cell.method, "dataset": cell.dataset, "clients": cell.clients, "setting": cell.setting}
            | ({"value": cell.value} if swept else {})
            | typed
            | {"protocol": cell.spec.protocol, "scale": cell.scale}
            for cell, typed in zip(cells, Runs(cells, records)._typed(), strict=True)
        ]
        table = intervals.summarise(zip(named, records, strict=True), rule, metric)
        if not len(table):
            columns = ["method", "dataset", "clients", "setting", "value", *TYPED, "protocol", "scale"]
            return pd.DataFrame(columns=[*columns, *intervals.SUMMARY, *LEADS])
        leads = self._leads(rule, metric)
        places = zip(table["setting"], table.get("value", [None] * len(table)), table["method"], strict=True)
        rows = [leads.get(_place(*place), ("", np.nan, np.nan, 0)) for place in places]
        return table.join(pd.DataFrame(rows, columns=list(LEADS), index=table.index))

    def _typed(self) -> list[dict[str, Any]]:
        """The typed columns of each cell, the same for all."""
        typed = [cell.typed() for cell in self.cells]
        return [dict.fromkeys(name for one in typed for name in one) | own for own in typed]

    def _leads(self, rule: str, metric: str) -> dict[Any, tuple[str, float, float, int]]:
        """(setting, value, method) -> LEADS; a method of which a run diverged or lacks rounds has none, and leads nobody."""
        closest = min if metrics.find(metric).higher_is_better else max
        found: dict[Any, dict[str, dict[int, RunTables]]] = {}
        for cell, record in self._once():
            found.setdefault(_place(cell.setting, cell.value), {}).setdefault(cell.method, {})[cell.spec.seed] = record
        leads = {}
        for place, runs_ in found.items():
            values = {
                name: {seed: intervals.reported(run, rule, metric) for seed, run in own.items()}
                for name, own in runs_.items()
            }
            values = {name: own for name, own in values.items() if not np.isnan(list(own.values())).any()}
            error, outside = common_error(runs_, lambda run: intervals.reported(run, rule, metric))
            for method in values:
                pairs = [(method, name) for name in values if name != method]
                if made := paired.differences(values, pairs, error, outside):
                    best = closest(made, key=lambda one: one.mean)
                    leads[(*place, method)] = (best.other, best.mean, best.half, best.n)
        return leads

    def of(self, *methods: str) -> "Runs":
        """The runs of some methods only."""
        return Runs.of_pairs(pair for pair in self.pairs if pair[0].method in methods)

    def where(self, *, dataset: str = "", num_clients: int = 0) -> "Runs":
        """The runs on one data set, with so many clients."""
        return Runs.of_pairs(
            (cell, record)
            for cell, record in self.pairs
            if dataset in ("", cell.dataset) and num_clients in (0, cell.spec.num_clients)
        )

    def among(self, methods: Iterable[str]) -> list[str]:
        """Those of `methods` that have a run here, in the same order."""
        present = {cell.method for cell in self.cells}
        return [method for method in methods if method in present]

    def paired(self) -> "Runs":
        """Only the seeds that every method and value of a setting has: differences are then not due to which clients were sampled."""
        seeds: dict[str, dict[Any, set[int]]] = {}
        for cell in self.cells:
            seeds.setdefault(cell.setting, {}).setdefault((cell.method, cell.value), set()).add(cell.spec.seed)
        common = {setting: set.intersection(*own.values()) for setting, own in seeds.items()}
        return Runs.of_pairs(pair for pair in self.pairs if pair[0].spec.seed in common[pair[0].setting])

    def rounds(self, *more: str) -> pd.DataFrame:
        """key, dataset, clients, setting, method, seed, value (of the swept quantity, if any), typed columns and the records'
        rounds from 0; `more`: further columns, what was spent until the round's end, along which curves can be drawn
        (`_ALONG`), or metrics of the clients' accuracies.
        """
        of_clients = [name for name, metric in metrics.METRICS.items() if metric.of_clients is not None]
        for name in more:
            choose("column", name, [*_ALONG, *of_clients])

        def rows(record: Any) -> pd.DataFrame:
            return intervals.trained(record.rounds).assign(**{name: _column(record, name) for name in more})

        return self._labelled(rows, ["round", "accuracy"])

    def clients(self) -> pd.DataFrame:
        """key, dataset, clients, setting, method, seed, typed columns and each client's last measured row."""
        return self._labelled(lambda record: record.final(), ["client", "accuracy"]).drop(columns="value")

    def newcomers(self) -> pd.DataFrame:
        """key, dataset, clients, setting, method, seed, typed columns, visits (-1: the initial network, 0: after the download), and the
        mean over a run's newcomers of what was measured after so many visits. Without rows where no run has `newcomer_visits`.
        """

        def rows(record: Any) -> pd.DataFrame:
            found = record.newcomers
            if not len(found):
                return pd.DataFrame(columns=["visits", "accuracy"])
            return found.drop(columns=["client", "architecture"]).groupby("visits", as_index=False).mean()

        return self._labelled(rows, ["visits", "accuracy"]).drop(columns="value")

    def _labelled(self, rows: Callable[[Any], pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
        """`rows` of each record with its labels: key, LABELLED and typed columns; columns: of a table without rows."""
        once = self._once()
        tables = []
        for (cell, record), typed in zip(once, Runs.of_pairs(once)._typed(), strict=True):
            named = {name: cell.spec.seed if name == "seed" else getattr(cell, name) for name in LABELLED}
            tables.append(rows(record).assign(key=record.key, **named, **typed))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*columns, *LABELLED])

    def effects(
        self, reference: str, rule: str, instead: Mapping[str, str] = {}, metric: str = "accuracy"
    ) -> pd.DataFrame:
        """What each method, or case, changes against the one called `reference`: differences case - reference, paired by seed, in
        points, or in the unit of another metric.

        instead: case -> another reference for it. One row per data set and case: `against`; `ours`, the mean over the visited clients
        in per cent; `difference` and `ci95` over the `n` seeds that both have, where the intervals of a data set's rows hold together
        (ci95 NaN: one seed); the same of the clients that the round selected, as `selected`, `selected_difference`, `selected_ci95`;
        whether the error is the grid's, `shared`. All are NaN where one of these runs is not `whole`. Cases without such a seed are
        left out. Raises FedlibError for two runs of one case, data set and seed.
        """
        found: dict[str, dict[str, dict[int, RunTables]]] = {}
        places = (((cell.dataset, cell.method, "seed", cell.spec.seed), record) for cell, record in self.pairs)
        for (dataset, case, _, seed), record in intervals.once(places).items():
            found.setdefault(dataset, {}).setdefault(case, {})[seed] = record
        rows: list[dict[str, Any]] = []
        for dataset, cases in found.items():
            named = {case: instead.get(case, reference) for case in cases}
            pairs = [(case, other) for case, other in named.items() if case != other and other in cases]
            made: dict[str, dict[str, Any]] = {}
            selected = all(f"{metric}_selected" in run.rounds for own in cases.values() for run in own.values())
            for prefix, column in (("", metric), ("selected_", f"{metric}_selected"))[: 1 + selected]:

                def measure(run: Any, column: str = column) -> float:
                    return intervals.reported(run, rule, column)

                for one in compared(cases, pairs, measure):
                    own = [measure(run) for seed, run in cases[one.own].items() if seed in cases[one.other]]
                    mean, half = (np.nan, np.nan) if np.isnan(one.mean) else (float(np.mean(own)), one.half)
                    place = {
                        "case": one.own,
                        "against": one.other,
                        "dataset": dataset,
                        "n": one.n,
                        "shared": one.shared,
                    }
                    row = made.setdefault(one.own, place)
                    row |= {"selected" if prefix else "ours": mean}
                    row |= {f"{prefix}difference": one.mean, f"{prefix}ci95": half}
            rows += made.values()
        return pd.DataFrame(rows, columns=EFFECTS)

    def tuned(self, values: Sequence[Any], given: Any, rule: str) -> pd.DataFrame:
        """What a choice by validation accuracy changes in a sweep: setting, method, n (seeds that all runs of the setting have), chosen
        (of `values`, the one with the highest mean validation accuracy in the round that `rule` reports; of equals the first), given and
        tuned (mean test accuracy with the value `given` and with the chosen one, per cent), place_given and place_tuned (1: the
        highest of the setting). Methods that were not run with each of `values` are left out.
        """
        own, rows = self.paired(), []
        table = own.summary(rule).assign(validation=own.summary(rule, "validation_accuracy").get("ours"))
        for (setting, method), found in table.groupby(["setting", "method"], sort=False):
            by_value = found.set_index("value").reindex(list(values))
            if not by_value["validation"].isna().any():
                chosen: Any = by_value["validation"].idxmax()
                accuracy = by_value["ours"]
                rows.append((setting, method, by_value.loc[chosen, "n"], chosen, accuracy[given], accuracy[chosen]))
        both = pd.DataFrame(rows, columns=["setting", "method", "n", "chosen", "given", "tuned"])
        places = both.groupby("setting", sort=False)[["given", "tuned"]].rank(ascending=False, method="min")
        return both.astype({"n": int}).join(places.astype(int).add_prefix("place_"))


def grid_runs(records: Iterable[Any]) -> list[tuple[str, int, Any]]:
    """(case, seed, run) of the planned grid that most of `records` belong to, as far as it is on record (or among `records`); empty
    where none of them is planned.
    """
    own = {record.key: record for record in records}
    planned_ = planned.grid_of(own.keys())
    known = of_record.by_key() | own if planned_ else {}
    return [(run.case, run.spec.seed, known[run.key]) for run in planned_ if run.key in known]


def common_error(
    by_method: Mapping[str, Mapping[int, Any]], measure: Callable[[Any], float]
) -> tuple[paired.Error, frozenset[str]]:
    """The common error of the planned grid that these runs (method -> seed -> run) belong to, or of themselves where they are not
    planned or not all of the grid has the measure, and the methods that are outside of it. measure: what is compared, of a run.
    """
    grid = grid_runs([run for own in by_method.values() for run in own.values()])
    values: dict[str, dict[int, float]] = {}
    try:
        for case, seed, run in grid:
            values.setdefault(case, {})[seed] = measure(run)
    except FedlibError:  # a run of the grid that nobody asked for lacks the metric
        grid, values = [], {}
    keys = {run.key for _, _, run in grid}
    outside = {name for name, own in by_method.items() if grid and not keys.issuperset(run.key for run in own.values())}
    values = values or {name: {seed: measure(run) for seed, run in own.items()} for name, own in by_method.items()}
    return paired.error(values), frozenset(outside)


def compared(
    rows: Mapping[str, Mapping[int, Any]],
    pairs: Sequence[tuple[str, str]],
    measure: Callable[[Any], float],
) -> list[paired.Difference]:
    """The differences of these pairs of cases (case -> seed -> run), with the common error of the grid that the runs belong to."""
    error, outside = common_error(rows, measure)
    values = {case: {seed: measure(run) for seed, run in own.items()} for case, own in rows.items()}
    return paired.differences(values, pairs, error, outside)


def _place(setting: str, value: Any, *method: str) -> tuple[Any, ...]:
    """A key of a setting and a swept value; None and NaN, as a table may say it, are the same."""
    return (setting, None if value is None or (isinstance(value, float) and np.isnan(value)) else value, *method)


def check_training(records: Sequence[Any], *methods: str) -> None:
    """Print whether training trained, for all records and for those of each of `methods` (algorithms): facts so coarse that they
    do not depend on the machine, for nbval to check.

    Both are means over runs of the clients that trained, in units of chance, 1 / number of classes: `above their start` is a
    rise by at least 1.5 of it from the accuracy before training (round -1) to the last one, `above chance` at least twice it.
    FedSSA's mu makes a client prefer its own classes without any training, so FedSSA alone proves little: name another method
    beside it, or hand in runs with mu0 = 0.
    """
    measured = [(record.spec.algorithm, *_gain(record)) for record in records]
    for name in ("all runs", *methods):
        rows = np.array([numbers for algorithm, *numbers in measured if name in ("all runs", algorithm)])
        if not len(rows):
            print(f"{name}: not among these runs")
            continue
        rise, end = rows.mean(axis=0)
        said = {"above their start": rise >= 1.5, "above chance": end >= 2}
        print(
            f"{name}: trained clients end",
            "; ".join(f"{fact}: {'ok' if holds else 'NO'}" for fact, holds in said.items()),
        )


def _gain(record: Any) -> tuple[float, float]:
    """(rise since before training, last accuracy) of a run: means over the clients that trained, in units of chance. A result of
    record has no client's accuracy before training, so there it is the mean over all.
    """
    classes = data.info(str(record.spec.dataset)).num_classes
    before = record.clients[record.clients["round"] < 0].set_index("client")["accuracy"]
    last = intervals.trained(record.clients).groupby("client")["accuracy"].last()
    if before.empty:
        start = record.rounds.loc[record.rounds["round"] < 0, "accuracy_all"].mean()
        return classes * float(last.mean() - start), classes * float(last.mean())
    return classes * float((last - before[last.index]).mean()), classes * float(last.mean())
