"""Statistics over seeds: which round a run reports, means with 95 % intervals, differences paired by seed.

Accuracies are fractions of 1 in records and per cent in tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from .. import metrics
from ..errors import FedlibError, choose, require

SELECTION_RULES = {
    "last": "the last round",
    "last10": "the mean of the last ten rounds",
    "validation": "the round of best mean validation accuracy",
    "best": "the round of best mean test accuracy (selects on the test split)",
}


class RunTables(Protocol):
    """What tables and figures read of a finished run: `lab.Record` has it."""

    @property
    def key(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def rounds(self) -> pd.DataFrame: ...
    @property
    def clients(self) -> pd.DataFrame: ...


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a run's rounds or clients without round -1, which is before any training."""
    return rows[rows["round"] >= 0]


def selected_accuracy(rounds: pd.DataFrame, rule: str, column: str = "accuracy") -> float:
    """The accuracy (a fraction) that `rule` reports from a record's rounds; see SELECTION_RULES."""
    choose("selection rule", rule, SELECTION_RULES)
    there = rounds["round"].to_numpy() >= 0
    values = rounds[column][there]
    if rule == "last":
        return float(values.iloc[-1])
    if rule == "last10":
        return float(values.tail(10).mean())
    by = rounds["validation_accuracy"][there] if rule == "validation" else values
    allowed = "last, last10 or best: under this protocol clients have no validation images"
    require(bool(by.notna().any()), "rule", rule, allowed)
    return float(values.iloc[int(np.nanargmax(by.to_numpy(float)))])


def whole(run: RunTables) -> bool:
    """Whether a run has numbers to print: it did not diverge, and none of its rounds is missing; one that may end early has
    had its last one.
    """
    trained = [number for number in run.rounds["round"].tolist() if number >= 0]
    spec = getattr(run, "spec", None)
    asked = len(trained) if getattr(spec, "may_end_early", False) else getattr(spec, "rounds", None) or len(trained)
    return run.status != "diverged" and trained == list(range(max(1, asked)))


def reported(run: RunTables, rule: str, column: str = "accuracy") -> float:
    """What `rule` reports of a metric of a run, as it is shown (accuracies in per cent); NaN where the run is not `whole`.

    Raises FedlibError for a metric that the run has not measured, or not in the rounds that the rule needs.
    """
    if not whole(run):
        return float("nan")
    rounds = with_metric(run, column)
    missing = rule != "last" and metrics.find(column).of_clients and trained(rounds)[column].isna().any()
    allowed = f"last for {column} of {run.key}, which has each client's last accuracy alone"
    require(not missing, "rule", rule, allowed)
    return metrics.find(column).scale * selected_accuracy(rounds, rule, column)


def with_metric(run: RunTables, column: str) -> pd.DataFrame:
    """The run's rounds, with `column` computed from its clients where it is such a metric: of those visited so far, NaN
    where their accuracies of then are not stored. Raises FedlibError for a metric that the run has not measured.
    """
    rounds, metric = run.rounds, metrics.find(column)
    if column in rounds:
        return rounds
    if metric.of_clients is None:
        choose("metric", column, metrics.METRICS)
        raise FedlibError(f"run {run.key}: has no {column}; RunSpec(metrics={column!r}) measures it")
    measured = trained(run.clients).pivot_table(index="round", columns="client", values="accuracy")
    last_known = measured.reindex(rounds["round"]).ffill()
    known = [row[~np.isnan(row)] for row in last_known.to_numpy(float)]
    pairs = zip(known, rounds["visited"], strict=True)
    return rounds.assign(
        **{column: [metric.of_clients(own) if 0 < len(own) == visited else np.nan for own, visited in pairs]}
    )


def once(runs: Iterable[tuple[tuple[Any, ...], RunTables]]) -> dict[tuple[Any, ...], Any]:
    """(place in a table, run) pairs as a dictionary; a run that is there twice counts once.

    Raises FedlibError where two runs claim one place, since a table would show one of them, or their mean, as if it were both.
    """
    found: dict[tuple[Any, ...], RunTables] = {}
    for place, run in runs:
        if found.setdefault(place, run).key != run.key:
            named = ", ".join(str(part) for part in place if part is not None)
            raise FedlibError(
                f"runs: {found[place].key} and {run.key} are both {named}; `fedlib compare` tells them apart"
            )
    return found


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean and half-width of its 95 % Student t interval; the half-width of a single value is NaN."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 2:
        return float(sample.mean()), float("nan")
    quantile = float(stdtrit(len(sample) - 1, 0.975))
    return float(sample.mean()), float(quantile * sample.std(ddof=1) / np.sqrt(len(sample)))


SUMMARY = ("ours", "ci95", "n", "diverged", "all", "selected")  # columns that `summarise` adds to a group's labels


def summarise(
    runs: Iterable[tuple[Mapping[str, Any], RunTables]], rule: str = "last", column: str = "accuracy"
) -> pd.DataFrame:
    """One row per group of runs that differ only in seed: the labels, mean and interval in per cent, n, diverged.

    runs: (labels, record) pairs; labels such as {"method": ..., "setting": ...} name the group. A group with a run that diverged or
    lacks rounds has no mean. `ours` is of the clients visited so far, of the metric (`metrics`) or column of rounds `column`;
    `all` of all clients, `selected` of those that the round selected, which the released code reports: the same number where all
    of them are, NaN for a metric of the clients' accuracies. `taught`, where some run has it (pFedHR), is the share of selected
    clients that had a teacher, a mean over rounds.
    """
    groups: dict[tuple[Any, ...], list[RunTables]] = {}
    names: list[str] = []
    for labels, record in runs:
        names = list(labels)
        groups.setdefault(tuple(labels.values()), []).append(record)
    of = column.removesuffix("_all").removesuffix("_selected")
    rows = []
    for values, records in groups.items():
        diverged = sum(record.status == "diverged" for record in records)
        mean, half = interval([reported(record, rule, column) for record in records])
        others = {"all": float("nan"), "selected": float("nan")}
        for name in others:
            if all(f"{of}_{name}" in record.rounds for record in records):
                others[name] = float(np.mean([reported(record, rule, f"{of}_{name}") for record in records]))
        taught = [record.rounds["taught"].mean() for record in records if "taught" in record.rounds]
        taught = [share for share in taught if not np.isnan(share)] if all(map(whole, records)) else []
        rows.append(
            dict(zip(names, values, strict=True))
            | {"ours": mean, "ci95": half, "n": len(records), "diverged": diverged}
            | ({"taught": float(np.mean(taught))} if taught else {})
            | others
        )
    return pd.DataFrame(rows)


def leads(rounds: pd.DataFrame, reference: str, last: int = 10) -> pd.DataFrame:
    """How far each method stands above `reference` after so many rounds, paired by seed: how a lead moves while clients train.

    rounds: setting, dataset, clients, method, seed, round (from 0) and accuracy (in [0, 1]). Gives setting, dataset, clients,
    method, `rounds` (from 1), `lead` (points, of the means of the `last` rounds until then), `ci95` (NaN: one seed) and `n`, the
    seeds that both have. Methods without such a seed are left out.
    """
    place = ["setting", "dataset", "clients"]
    table = []
    for setting, own in rounds.groupby(place, sort=False):
        held = 100 * own.pivot_table(index="round", columns=["method", "seed"], values="accuracy").sort_index()
        held = held.rolling(last, min_periods=1).mean().where(held.notna())  # a run that has ended leads no more
        seeds_of = {str(method): set(rows["seed"]) for method, rows in own.groupby("method", sort=False)}
        for method, known in seeds_of.items():
            seeds = sorted(known & seeds_of.get(reference, set()))
            if method == reference or not seeds:
                continue
            apart = held[method][seeds] - held[reference][seeds]
            named = dict(zip(place, setting, strict=True)) | {"method": method, "n": len(seeds)}
            for round, values in zip(apart.index, apart.to_numpy(), strict=True):
                if np.isnan(values).any():
                    continue
                lead, half = interval(values)
                table.append(named | {"rounds": int(round) + 1, "lead": lead, "ci95": half})
    return pd.DataFrame(table, columns=[*place, "method", "rounds", "lead", "ci95", "n"])


def shaking(rounds: pd.DataFrame, reference: str) -> pd.DataFrame:
    """How much the accuracy jumps from one round to the next, in points: the mean absolute change over the first and over the second
    half of the rounds, and how much more that is than with the method `reference`, paired by seed.

    rounds: setting, seed, method, round and accuracy (in [0, 1]). Gives setting, half, method, `shaking`, `difference` and `ci95`
    over the `n` seeds that both have (ci95 NaN: one seed); methods without such a seed are left out.
    """
    own = rounds.sort_values("round").reset_index(drop=True)
    step = 100 * own.groupby(["setting", "seed", "method"], sort=False)["accuracy"].diff().abs()
    later = own["round"] > own.groupby("setting")["round"].transform("max") / 2
    own = own.assign(step=step, half=np.where(later, "second", "first"))
    table = []
    for (setting, half), part in own.groupby(["setting", "half"], sort=False):
        held = part.pivot_table(index="seed", columns="method", values="step")
        for method in held if reference in held else ():
            steps = pd.DataFrame({"own": held[method], "other": held[reference]}).dropna()
            if len(steps):
                apart = steps["own"] - steps["other"]
                against = (np.nan, np.nan) if method == reference else interval(apart.to_numpy())
                table.append((setting, half, method, len(steps), steps["own"].mean(), *against))
    return pd.DataFrame(table, columns=["setting", "half", "method", "n", "shaking", "difference", "ci95"])
