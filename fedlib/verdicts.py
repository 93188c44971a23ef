"""Verdicts of runs on claims: each check is held against the runs at hand, and says what they show.

A check gets the evidence, the printed number (NaN for a claim without one) and the arguments of its recipe in
`papers/ledger.csv`, and gives a verdict with the numbers behind it. `holds`: as claimed, in everything that the claim names;
`holds in direction`: the sign or the order is right, in what was run; one seed never gives more for a size.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from . import algorithms, costs, exhibits, models
from .show import intervals

HOLDS, DIRECTION, FAILS = "holds", "holds in direction", "does not hold"
UNTESTABLE, NOT_RUN, STAND_IN = "not testable here", "not run yet", "stand-in"
VERDICTS = (HOLDS, DIRECTION, FAILS, UNTESTABLE, NOT_RUN, STAND_IN)

# What stands for a paper's data set at scale smoke.
_STAND_INS = {"cifar10": "digits", "cifar100": "digits100", "svhn": "digits"}
_SAME = 0.1  # a number within a tenth of the printed one is called the same


@dataclass(frozen=True)
class Finding:
    """What runs say of a claim, and the numbers that say it."""

    verdict: str
    evidence: str


@dataclass(frozen=True)
class Evidence:
    """The runs at hand, by grid (objects with `cells` and `records`, such as `notebook.Runs`); a missing grid has none."""

    grids: Mapping[str, Any] = field(default_factory=dict)
    rule: str = "last"

    def pairs(self, names: str) -> list[tuple[Any, Any]]:
        """(cell, record) of grids joined by `+`."""
        found = [self.grids[name] for name in names.split("+") if name in self.grids]
        return [pair for runs in found for pair in zip(runs.cells, runs.records, strict=True)]

    def frame(self, names: str, dataset: str = "", clients: str = "") -> pd.DataFrame:
        """method, dataset, clients, value, seed and accuracy (per cent; NaN: diverged), of one data set or number of clients."""
        rows = [
            {
                "method": cell.method,
                "dataset": cell.dataset,
                "clients": cell.clients,
                "value": cell.value,
                "seed": cell.spec.seed,
            }
            | {
                "accuracy": np.nan
                if record.status == "diverged"
                else 100 * intervals.selected_accuracy(record.rounds, self.rule)
            }
            for cell, record in self.pairs(names)
            if _is(cell, dataset, clients)
        ]
        return pd.DataFrame(rows, columns=["method", "dataset", "clients", "value", "seed", "accuracy"])

    def means(self, names: str, dataset: str = "", clients: str = "") -> dict[tuple[str, str, Any], pd.Series]:
        """(data set, setting, swept value) -> mean accuracy by method, over seeds; diverged methods left out."""
        frame = self.frame(names, dataset, clients).dropna(subset=["accuracy"])
        cells: dict[tuple[str, str, Any], list[dict[Any, Any]]] = {}
        for row in frame.to_dict("records"):
            value = None if isinstance(row["value"], float) and np.isnan(row["value"]) else row["value"]
            cells.setdefault((row["dataset"], row["clients"], value), []).append(row)
        return {key: pd.DataFrame(rows).groupby("method", sort=False)["accuracy"].mean() for key, rows in cells.items()}

    def spent(
        self, names: str, method: str, other: str, kinds: str, dataset: str = "", clients: str = ""
    ) -> dict[str, dict[str, float]]:
        """setting -> what `other` spends by what `method` spends, of each of `kinds` (rounds, words, flops, joined by `+`),
        until both reach one mean accuracy: the setting's target, or the lower of their two best where one does not get there.
        """
        curves: dict[str, dict[str, list[tuple[Any, pd.DataFrame]]]] = {}
        for cell, record in self.pairs(names):
            if cell.method in (method, other) and record.status != "diverged" and _is(cell, dataset, clients):
                rounds = record.rounds.query("round >= 0").set_index("round")
                curves.setdefault(cell.setting, {}).setdefault(cell.method, []).append((cell, rounds))
        ratios = {}
        for setting, by_method in curves.items():
            if len(by_method) < 2:
                continue
            mean = {name: _mean_rounds(runs) for name, runs in by_method.items()}
            level = min(by_method[method][0][0].target, *(table["accuracy"].max() for table in mean.values()))
            cost = {
                name: _cost_until(
                    table.loc[: (table["accuracy"] >= level - 1e-12).idxmax()], by_method[name][0][0].spec, kinds
                )
                for name, table in mean.items()
            }
            ratios[setting] = {kind: _ratio(cost[other][kind], cost[method][kind]) for kind in kinds.split("+")}
        return ratios


def _cost_until(rounds: pd.DataFrame, spec: Any, kinds: str) -> dict[str, float]:
    """Rounds, words as published, and training images weighted by the method's FLOPs an image (relative to Standalone)."""
    spent = {"rounds": float(len(rounds)), "words": float(rounds["published_words"].sum())}
    if "flops" in kinds:
        algorithm = algorithms.make(spec.algorithm, spec.params)
        per_image = costs.relative_to_standalone(algorithm, "CNN-3", spec.local_epochs)
        spent["flops"] = float(rounds["samples"].sum()) * per_image
    return spent


def _stands(dataset: str, name: str) -> bool:
    """Whether `dataset` is the data set `name`, or embedded data in its place."""
    return dataset in (name, _STAND_INS.get(name))


def _is(cell: Any, dataset: str, clients: str) -> bool:
    """Whether a cell is of `dataset` and of `clients` clients, or stands for them; empty: any."""
    right = not clients or re.search(rf"N = {clients}\b", cell.clients) is not None
    return right and (not dataset or _stands(cell.dataset, dataset))


def _mean_rounds(runs: list[tuple[Any, pd.DataFrame]]) -> pd.DataFrame:
    columns = ["accuracy", "published_words", "samples"]
    return sum(table[columns] for _, table in runs) / len(runs)  # type: ignore[return-value]


def _ratio(above: float, below: float) -> float:
    return above / below if below else np.inf


def _planned(grids: str, dataset: str = "", clients: str = "") -> list[Any]:
    """The cells that a claim is about: those of the papers' own setting, one seed."""
    cells = exhibits.cells(grids.split("+"), "paper", seeds=(0,))
    return [cell for cell in cells if _is(cell, dataset, clients)]


def _columns(grids: str, dataset: str = "", clients: str = "") -> int:
    """Number of (data set, setting, swept value) that a claim is about."""
    return len({(cell.dataset, cell.clients, cell.value) for cell in _planned(grids, dataset, clients)})


def _counted(wins: int, of: int, total: float, what: str, complete: bool = True) -> Finding:
    """A claim about `total` places, right in `wins` of the `of` that were run: in all; in most of those run; or not."""
    if not of:
        return Finding(NOT_RUN, "")
    evidence = f"{wins} of {of} {what} run" + (f" (of {total:.0f})" if of < total else "")
    if wins == of and of >= total and complete:
        return Finding(HOLDS, evidence)
    return Finding(DIRECTION if 2 * wins > of else FAILS, evidence + ("" if complete else ", some methods missing"))


def _gain(
    found: Evidence,
    printed: float,
    grid: str,
    method: str,
    other: str,
    dataset: str,
    clients: str,
    unit: str = "points",
) -> Finding:
    """The lead over `other` (or the `best` other) in one setting: its sign, and whether the interval holds the number."""
    frame = found.frame(grid, dataset, clients).dropna(subset=["accuracy"])
    means = frame.groupby("method")["accuracy"].mean()
    others = means.drop(method, errors="ignore")
    if method not in means or others.empty or (other != "best" and other not in others):
        return Finding(NOT_RUN, "")
    name = str(others.idxmax()) if other == "best" else other
    by_seed = (
        frame[frame["method"].isin([method, name])]
        .pivot_table(index="seed", columns="method", values="accuracy")
        .dropna()
    )
    if by_seed.empty:
        return Finding(NOT_RUN, "")
    relative = unit == "relative"
    leads = 100 * (by_seed[method] / by_seed[name] - 1) if relative else by_seed[method] - by_seed[name]
    mean, half = intervals.interval(leads.to_numpy())
    shown = f"{mean:+.2f}" + ("" if len(leads) == 1 else f" ± {half:.2f} (n = {len(leads)})")
    evidence = f"{shown} {'per cent' if relative else 'points'} over {name}"
    if mean <= 0:
        return Finding(FAILS, evidence)
    return Finding(HOLDS if len(leads) > 1 and mean > half >= abs(mean - printed) else DIRECTION, evidence)


def _gain_of_means(found: Evidence, printed: float, grid: str, method: str, other: str, dataset: str) -> Finding:
    """The relative lead of the mean over the three settings; only when all three were run."""
    means = [means for means in found.means(grid, dataset).values() if {method, other} <= set(means.index)]
    if len(means) < 3:
        return Finding(NOT_RUN, f"{len(means)} of 3 settings run" if means else "")
    gain = 100 * (sum(row[method] for row in means) / sum(row[other] for row in means) - 1)
    close = abs(gain - printed) <= _SAME * abs(printed)
    return Finding(FAILS if gain <= 0 else HOLDS if close else DIRECTION, f"{gain:+.2f} per cent over {other}")


def _best(found: Evidence, printed: float, grids: str, method: str, *datasets: str) -> Finding:
    every = found.means(grids).items()
    named = [row for key, row in every if not datasets or any(_stands(key[0], name) for name in datasets)]
    means = [row for row in named if method in row and len(row) > 1]
    run = {(cell.method, cell.dataset, cell.clients) for cell, _ in found.pairs(grids)}  # diverged ones too
    settings = {(dataset, clients) for _, dataset, clients in run}
    pairs = {(cell.method, cell.dataset, cell.clients) for cell in _planned(grids)}
    complete = {pair for pair in pairs if pair[1:] in settings} <= run
    wins = sum(row[method] > row.drop(method).max() for row in means)
    return _counted(wins, len(means), printed, "settings", complete)


def _above(found: Evidence, printed: float, grid: str, method: str, *others: str) -> Finding:
    """Above all of `others` at every value of a sweep."""
    means = [row for row in found.means(grid).values() if {method, *others} <= set(row.index)]
    wins = sum(row[method] > row[list(others)].max() for row in means)
    return _counted(wins, len(means), _columns(grid), "values")


def _series(found: Evidence, grid: str) -> list[pd.Series]:
    """Accuracy over the swept value, a series a method, data set and setting that has at least two values."""
    frame = found.frame(grid).dropna(subset=["accuracy", "value"])
    groups = frame.groupby(["method", "dataset", "clients"], sort=False)
    series = [rows.groupby("value")["accuracy"].mean().sort_index() for _, rows in groups]
    return [one for one in series if len(one) > 1]


def _trend(found: Evidence, printed: float, grid: str, sign: int) -> Finding:
    series = _series(found, grid)
    if not series:
        return Finding(NOT_RUN, "")
    total = len({(cell.method, cell.dataset, cell.clients) for cell in _planned(grid)})
    steady = sum(bool((sign * one.diff().dropna() > 0).all()) for one in series)
    ends = sum(sign * (one.iloc[-1] - one.iloc[0]) > 0 for one in series)
    word = "rise" if sign > 0 else "fall"
    evidence = f"{ends} of {len(series)} series run (of {total}) {word} from end to end, {steady} at every step"
    if steady == len(series) >= total:
        return Finding(HOLDS, evidence)
    return Finding(DIRECTION if 2 * ends > len(series) else FAILS, evidence)


def _falls(found: Evidence, printed: float, grid: str) -> Finding:
    return _trend(found, printed, grid, -1)


def _rises(found: Evidence, printed: float, grid: str) -> Finding:
    return _trend(found, printed, grid, 1)


def _flat(found: Evidence, printed: float, grid: str) -> Finding:
    """No effect of the swept value: the means lie within one point."""
    spans = [one.max() - one.min() for one in _series(found, grid)]
    if not spans:
        return Finding(NOT_RUN, "")
    whole = len(spans) >= len({cell.dataset for cell in _planned(grid)})
    verdict = FAILS if max(spans) > 1 else HOLDS if whole else DIRECTION
    return Finding(verdict, f"the means span {max(spans):.2f} points at most")


def _ordered(found: Evidence, printed: float, grid: str, *cases: str) -> Finding:
    """The cases (their labels' beginnings) stand in this order, highest first."""
    wins = total = 0
    for row in found.means(grid).values():
        named = [[value for label, value in row.items() if str(label).startswith(case)] for case in cases]
        if all(named):
            values = [values[0] for values in named]
            total, wins = total + 1, wins + all(more > less for more, less in pairwise(values))
    return _counted(wins, total, printed, "settings")


def _spread(found: Evidence, printed: float, grid: str, method: str, clients: str) -> Finding:
    """Higher mean and lower variance over the individual clients than each of the two best others."""
    wins = total = 0
    for (dataset, setting, _), means in found.means(grid, clients=clients).items():
        rivals = means.drop(method, errors="ignore").sort_values(ascending=False).head(2)
        if method not in means or len(rivals) < 2:
            continue
        finals = {name: [] for name in (method, *rivals.index)}  # type: dict[Any, list[float]]
        for cell, record in found.pairs(grid):
            if (cell.dataset, cell.clients) == (dataset, setting) and cell.method in finals:
                finals[cell.method].append(float(record.clients.groupby("client")["accuracy"].last().var()))
        own, *rest = (np.mean(values) for values in finals.values())
        total, wins = total + 1, wins + bool(means[method] > rivals.max() and own < min(rest))
    return _counted(wins, total, len({cell.dataset for cell in _planned(grid, clients=clients)}), "data sets")


def _cost(
    found: Evidence, printed: float, grid: str, method: str, other: str, kinds: str, low: str, high: str,
    dataset: str = "", clients: str = "",
) -> Finding:  # fmt: skip
    """What `other` spends (rounds, words, flops, joined by `+`) by what `method` spends lies between `low` and `high`; where
    the bounds are on one side of 1, that side is the direction.
    """
    ratios = found.spent(grid, method, other, kinds, dataset, clients)
    values = [value for row in ratios.values() for value in row.values()]
    if not values:
        return Finding(NOT_RUN, "")
    total = _columns(grid, dataset, clients)
    evidence = f"{other} spends {min(values):.2f} to {max(values):.2f} times {method}'s {kinds.replace('+', ' and ')}"
    evidence += f" in {len(ratios)} of {total} settings" if len(ratios) < total else ""
    within = [float(low) <= value <= float(high) for value in values]
    if all(within) and len(ratios) >= total:
        return Finding(HOLDS, evidence)
    right = within
    if float(low) >= 1 or float(high) <= 1:
        right = [value > 1 if float(low) >= 1 else value < 1 for value in values]
    return Finding(DIRECTION if 2 * sum(right) > len(right) else FAILS, evidence)


def _cheap(
    found: Evidence, printed: float, grid: str, method: str, kinds: str, dataset: str = "", clients: str = ""
) -> Finding:
    """The method's rank by cost among those that communicate, each compared with it at a level that both reach. A number of
    settings where it is first is claimed, or its rank in one; a rank needs all methods.
    """
    planned = {cell.method for cell in _planned(grid)} - {method, "Standalone"}
    names = planned & set(found.frame(grid, dataset, clients)["method"])
    cheaper: dict[tuple[str, str], int] = {}
    for name in sorted(names):
        for setting, row in found.spent(grid, method, name, kinds, dataset, clients).items():
            for kind, value in row.items():
                cheaper[setting, kind] = cheaper.get((setting, kind), 0) + (value < 1)
    ranks = [count + 1 for count in cheaper.values()]
    if not ranks:
        return Finding(NOT_RUN, "")
    wanted = int(printed) if dataset else 1
    complete = names == planned and len(ranks) >= _columns(grid, dataset, clients) * len(kinds.split("+"))
    evidence = f"rank {', '.join(map(str, ranks))} by {kinds.replace('+', ' and ')} among {len(names) + 1} methods"
    if wanted > 1 and not complete:
        return Finding(NOT_RUN, evidence)
    right = sum(rank == wanted for rank in ranks)
    if right == len(ranks) and complete:
        return Finding(HOLDS, evidence)
    return Finding(DIRECTION if 2 * right > len(ranks) else FAILS, evidence)


def _fastest(found: Evidence, printed: float, grid: str, method: str, clients: str) -> Finding:
    """The highest last accuracy, and the highest mean over all rounds."""
    wins = total = 0
    for dataset, setting, _ in found.means(grid, clients=clients):
        area: dict[str, list[tuple[float, float]]] = {}
        for cell, record in found.pairs(grid):
            if (cell.dataset, cell.clients) == (dataset, setting) and record.status != "diverged":
                accuracy = record.rounds.query("round >= 0")["accuracy"]
                area.setdefault(cell.method, []).append((accuracy.mean(), accuracy.iloc[-1]))
        means = {name: np.mean(values, axis=0) for name, values in area.items()}
        if method in means and len(means) > 1:
            rest = np.max([value for name, value in means.items() if name != method], axis=0)
            total, wins = total + 1, wins + bool((means[method] > rest).all())
    return _counted(wins, total, len({cell.dataset for cell in _planned(grid, clients=clients)}), "data sets")


def _target(found: Evidence, printed: float, grid: str, dataset: str, clients: str, *methods: str) -> Finding:
    """All compared methods reach the target at some round, so that costs until then can be compared."""
    best: dict[str, float] = {}
    for cell, record in found.pairs(grid):
        if cell.method in methods and _is(cell, dataset, clients):
            accuracy = 100 * float(record.rounds.query("round >= 0")["accuracy"].max())
            best[cell.method] = max(best.get(cell.method, 0.0), accuracy)
    if len(best) < len(methods):
        return Finding(NOT_RUN, "")
    evidence = ", ".join(f"{name} reaches {value:.1f}" for name, value in best.items())
    return Finding(HOLDS if min(best.values()) >= printed else UNTESTABLE, evidence)


def _labels(found: Evidence, printed: float, grids: str, high: str, low: str, method: str = "", *names: str) -> Finding:
    """Cells of settings that begin with `high` exceed those that begin with `low` instead; of the data sets `names` or all."""
    means = found.means(grids)
    wins = total = 0
    for (dataset, setting, value), row in means.items():
        partner = means.get((dataset, setting.replace(high, low, 1), value))
        if setting.startswith(high) and partner is not None and (not names or any(_stands(dataset, n) for n in names)):
            shared = [name for name in row.index if name in partner and method in ("", name)]
            total, wins = total + len(shared), wins + sum(row[name] > partner[name] for name in shared)
    return _counted(wins, total, printed, "pairs of cells")


def _lower(found: Evidence, printed: float, grids: str, others: str) -> Finding:
    """Cells of `grids` are below the same cells of `others`."""
    many, few = found.means(grids), found.means(others)
    wins = total = 0
    for (dataset, setting, value), row in many.items():
        partner = few.get((dataset, setting.split(", N = ")[0], value), pd.Series(dtype=float))
        shared = [name for name in row.index if name in partner]
        total, wins = total + len(shared), wins + sum(row[name] < partner[name] for name in shared)
    return _counted(wins, total, printed, "cells")


def _drops(found: Evidence, grids: str) -> dict[tuple[str, str], pd.DataFrame]:
    """(data set, setting) -> by method: accuracy with the clients' own kind of public data, and the mean with foreign ones."""
    by_setting: dict[tuple[str, str], dict[bool, list[pd.Series]]] = {}
    for (dataset, setting, value), row in found.means(grids).items():
        by_setting.setdefault((dataset, setting), {}).setdefault(value is None, []).append(row)
    return {
        key: pd.DataFrame({"own": rows[True][0], "foreign": sum(rows[False]) / len(rows[False])}).dropna()
        for key, rows in by_setting.items()
        if len(rows) == 2
    }


def _smallest_drop(found: Evidence, printed: float, grids: str, method: str) -> Finding:
    drops = [table["own"] - table["foreign"] for table in _drops(found, grids).values() if method in table.index]
    drops = [row for row in drops if len(row) > 1]
    wins = sum(row[method] < row.drop(method).min() for row in drops)
    return _counted(wins, len(drops), len({(cell.dataset, cell.clients) for cell in _planned(grids)}), "settings")


def _foreign(found: Evidence, printed: float, grids: str, method: str) -> Finding:
    """With foreign public data at most a point below the best other that has the clients' own kind."""
    tables = [table for table in _drops(found, grids).values() if method in table.index and len(table) > 1]
    wins = sum(table["foreign"][method] >= table["own"].drop(method).max() - 1 for table in tables)
    return _counted(wins, len(tables), len({(cell.dataset, cell.clients) for cell in _planned(grids)}), "settings")


def _header_size(found: Evidence, printed: float, num_classes: str) -> Finding:
    sizes = {models.cnn(name, int(num_classes), 3).header.weight.numel() for name in models.CNN_WIDTHS}
    evidence = f"{', '.join(map(str, sizes))} weights in all five CNNs, and {num_classes} biases"
    return Finding(HOLDS if sizes == {int(printed)} else FAILS, evidence)


def _extraction(found: Evidence, printed: float) -> Finding:
    cost = costs.flops(algorithms.make("FedGH", {}), "CNN-3")
    share = cost.round / cost.epoch
    near = abs(share - printed) <= _SAME * printed
    return Finding(HOLDS if near else DIRECTION if share < 1 else FAILS, f"{share:.2f} of an epoch, counted on CNN-3")


CHECKS: dict[str, Callable[..., Finding]] = {
    "gain": _gain,
    "gain_of_means": _gain_of_means,
    "best": _best,
    "above": _above,
    "falls": _falls,
    "rises": _rises,
    "flat": _flat,
    "ordered": _ordered,
    "spread": _spread,
    "cost": _cost,
    "cheap": _cheap,
    "fastest": _fastest,
    "target": _target,
    "labels": _labels,
    "lower": _lower,
    "smallest_drop": _smallest_drop,
    "foreign": _foreign,
    "header_size": _header_size,
    "extraction": _extraction,
}
COUNTED = ("header_size", "extraction")  # need no run and no data


def grids_of(table: pd.DataFrame) -> list[str]:
    """The grids that the checks of a ledger name."""
    words = [word for recipe in table["check"] for word in shlex.split(recipe)[1:]]
    return list(dict.fromkeys(grid for word in words if "/" in word for grid in word.split("+")))


def judge(printed: float, recipe: str, found: Evidence) -> Finding:
    """The verdict of the runs at hand on one claim. Runs on data that the claim is not about (embedded ones, or another set in
    its place) are shown as evidence and give no verdict.
    """
    if not recipe:
        return Finding(UNTESTABLE, "the text names nothing to compare with")
    name, *arguments = shlex.split(recipe)
    finding = CHECKS[name](found, printed, *arguments)
    if name in COUNTED or not finding.evidence:
        return finding
    grids = "+".join(argument for argument in arguments if "/" in argument)
    cells = [cell for cell, _ in found.pairs(grids)]
    seeds = len({cell.spec.seed for cell in cells})
    evidence = f"{finding.evidence}; {'one seed' if seeds == 1 else f'up to {seeds} seeds'}"
    foreign = {cell.dataset for cell in cells} - {cell.dataset for cell in _planned(grids)}
    return Finding(
        STAND_IN if foreign else finding.verdict, evidence + (f", on {', '.join(sorted(foreign))}" if foreign else "")
    )
