"""The papers' printed tables, as they stand in `reported.csv`.

A row is one printed number with its setting in columns: num_clients (N), participation (C) or active_clients (pFedHR's B), models
(homogeneous, heterogeneous, or homogeneous-M1 and -M4), public_labels (labelled, unlabelled) and distribution (IID, Non-IID) in
pFedHR. An empty value was printed as a dash.
"""

from collections.abc import Collection
from functools import cache
from importlib.resources import files

import pandas as pd

ACCURACY = ("mean test accuracy", "test accuracy")
COMMUNICATION, ROUNDS, SIZE, WIDTH = "communication to target", "rounds to target", "model size", "FC2 width"
SETTING = ("num_clients", "participation", "active_clients", "models", "public_labels", "distribution")
PLACE = ["dataset", *SETTING]  # what the methods of a table are compared in


@cache
def _every() -> pd.DataFrame:
    counts = {"num_clients": "Int64", "active_clients": "Int64"}
    missing = {name: [""] for name in ("value", "participation", *counts)}
    with files("fedlib.papers").joinpath("reported.csv").open() as file:
        return pd.read_csv(file, dtype=counts, keep_default_na=False, na_values=missing)


def reported(paper: str, item: str) -> pd.DataFrame:
    """All rows of one printed table (`FedSSA`, `Table 2`)."""
    table = _every()
    return table[(table["paper"] == paper) & (table["item"] == item)].drop(columns=["paper", "item"])


def numbers(
    paper: str, item: str, metric: str | Collection[str] = ACCURACY, datasets: Collection[str] = ()
) -> pd.DataFrame:
    """The rows of a table that have a number of this metric, of some data sets or of all."""
    table = reported(paper, item).dropna(subset=["value"])
    table = table[table["metric"].isin([metric] if isinstance(metric, str) else metric)]
    return table[table["dataset"].isin(datasets)] if datasets else table


def accuracy(paper: str, item: str, method: str, dataset: str, num_clients: int) -> float | None:
    """The accuracy (per cent) of one method where N alone tells the settings of a table apart; None: a dash, or no such row."""
    table = numbers(paper, item, datasets=[dataset])
    found = table[(table["method"] == method) & (table["num_clients"] == num_clients)]["value"]
    return float(found.item()) if len(found) else None


def lead(paper: str, item: str, method: str, other: str, dataset: str, num_clients: int) -> float:
    """What a table prints of `method` above `other`, in points; NaN where one of the two is a dash or not there."""
    own, its = (accuracy(paper, item, name, dataset, num_clients) for name in (method, other))
    return float("nan") if own is None or its is None else own - its
