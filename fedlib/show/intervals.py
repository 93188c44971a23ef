"""What a run reports: which of its rounds, of which metric.

Accuracies are fractions of 1 in records and per cent in tables.
"""

from typing import Any

import numpy as np
import pandas as pd

from .. import metrics
from ..errors import FedlibError, choose, others_code, require
from . import stats


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a run's rounds or clients without round -1, which is before any training."""
    return rows[rows["round"] >= 0]


def selected_accuracy(rounds: pd.DataFrame, rule: str, column: str = "accuracy") -> float:
    """The accuracy (a fraction) that `rule` reports from a record's rounds; see `stats.RULES`."""
    choose("selection rule", rule, stats.RULES)
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


def whole(run: Any) -> bool:
    """Whether a run has numbers to print: it did not diverge, and none of its rounds is missing; one that may end early has
    had its last one.
    """
    trained = [number for number in run.rounds["round"].tolist() if number >= 0]
    spec = getattr(run, "spec", None)
    asked = len(trained) if getattr(spec, "may_end_early", False) else getattr(spec, "rounds", None) or len(trained)
    return run.status != "diverged" and trained == list(range(max(1, asked)))


def reported(run: Any, rule: str, column: str = "accuracy") -> float:
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


def with_metric(run: Any, column: str) -> pd.DataFrame:
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

    def value(own: np.ndarray) -> float:
        with others_code(f"metric {column}"):
            found = float(metric.of_clients(own))  # type: ignore[misc]
        metric.check(found, f"of run {run.key}")
        return found

    pairs = zip(known, rounds["visited"], strict=True)
    return rounds.assign(**{column: [value(own) if 0 < len(own) == visited else np.nan for own, visited in pairs]})
