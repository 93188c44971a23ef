"""What the papers print, and our numbers beside it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..show import labels
from .reported import ACCURACY, lead, reported


def accuracies(paper: str, item: str) -> pd.DataFrame:
    """A paper's accuracy table with our names: method, dataset, num_clients, participation, clients, value (per cent, NaN: a
    dash).

    clients: the label `N = 10, C = 100 %`; in pFedHR, whose tables have one N each, `labelled, Non-IID` or `M1, IID`.
    """
    table = reported(paper, item)
    table = table[table["metric"].isin(ACCURACY)]
    typed = pd.DataFrame([_typed(row) for row in table.to_dict("records")], index=table.index)
    return table[["method", "dataset"]].join(typed).assign(value=table["value"])


def gain(method: str, dataset: str, num_clients: int, reference: str = "Standalone") -> float:
    """What a main table prints of `method` above `reference`, in points, heterogeneous models: FedSSA's Table 2 or, where that does not
    have the method, pFedES's Table 3. NaN: neither prints both.
    """
    where = method, reference, dataset, num_clients
    first = lead("FedSSA", "Table 2", *where)
    return lead("pFedES", "Table 3", *where) if np.isnan(first) else first


def _typed(row: Mapping[Any, Any]) -> dict[str, Any]:
    """N, C and the label of a printed setting; pFedHR prints how many clients are active, the others C."""
    clients = int(row["num_clients"])
    if row["distribution"]:
        participation = int(row["active_clients"]) / clients
        label = labels.setting(
            others=[row["public_labels"] or labels.word("scenario", row["models"]), row["distribution"]]
        )
    else:
        participation = float(row["participation"])
        label = labels.setting(num_clients=clients, participation=participation)
    return {"num_clients": clients, "participation": participation, "clients": label}


def beside_paper(ours: pd.DataFrame, paper: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """`Runs.summary`'s rows with the paper's number, the difference (ours - paper, points) and whether the printed number lies
    inside the interval of ours: this says how far the level is, not which method is better. `in_paper` counts the methods for which
    the paper prints a number there.

    paper: columns `on` and `value` in per cent.
    """
    printed = paper[[*on, "value"]].dropna().rename(columns={"value": "paper"})
    table = ours.merge(printed, on=list(on), how="left")
    place = [name for name in on if name != "method"]
    counts = Counter(map(tuple, printed[place].to_numpy()))
    table["in_paper"] = [counts[tuple(row)] for row in table[place].to_numpy()]
    table["difference"] = table["ours"] - table["paper"]
    table["verdict"] = [_level(row) for row in table.to_dict("records")]
    return table


def _level(row: Mapping[Any, Any]) -> str:
    if row["diverged"]:
        return "diverged" if not np.isnan(row["paper"]) else "diverges, as in the paper"
    if np.isnan(row["paper"]):
        return "the paper prints none"
    if row["n"] == 1:
        return "one seed, no interval"
    return "inside the interval" if abs(row["difference"]) <= row["ci95"] else "outside the interval"


# Metrics of FedGH's Table 3.
PER_ROUND, ROUNDS, TO_TARGET = "communication per client per round", "rounds to target", "communication to target"


def communication(words: pd.DataFrame) -> pd.DataFrame:
    """The communication columns of FedGH's Table 3 recomputed, one row per printed number that is not 0.

    words: `costs.table`, words a client and round. `published` counts as the paper does, `real` every word that travels; totals
    are the paper's own number of rounds x 10 clients a round x words. KB is 1024 bytes, MB 1024 KB.
    """
    table = reported("FedGH", "Table 3")
    rounds = table[table["metric"] == ROUNDS].set_index(["dataset", "method"])["value"]
    rows = []
    for row in table[table["metric"].isin([PER_ROUND, TO_TARGET]) & (table["value"] > 0)].to_dict("records"):
        per_round = row["metric"] == PER_ROUND
        visits = 1 if per_round else rounds[row["dataset"], row["method"]] * 10
        share = visits * 4 / (2**20 if row["unit"] == "MB" else 2**10)
        ours, real = (words.loc[row["method"], f"{row['dataset']}_{counted}"] for counted in ("published", "real"))
        rows.append(
            {"dataset": row["dataset"], "method": row["method"], "quantity": "CO/c/r" if per_round else "CO"}
            | {"unit": row["unit"], "paper": row["value"], "published": ours * share, "real": real * share}
            | {"verdict": "to the last digit" if f"{ours * share:.2f}" == f"{row['value']:.2f}" else "differs"}
            | {"published words": int(ours), "real words": int(real)}
        )
    return pd.DataFrame(rows)


def model_sizes(sizes: Mapping[str, int], paper: str = "FedSSA", item: str = "Table 3") -> pd.DataFrame:
    """Our float32 sizes in MiB beside the papers' model-size rows; sizes: architecture -> number of floats."""
    printed = reported(paper, item).query("metric == 'model size'").set_index("method")["value"]
    table = pd.DataFrame({"floats": pd.Series(dict(sizes)), "paper (MB)": printed})
    table.insert(1, "ours (MiB)", (table["floats"] * 4 / 2**20).round(2))
    table["verdict"] = [
        "as printed" if abs(a - b) < 0.011 else "the paper errs"
        for a, b in zip(table["ours (MiB)"], table["paper (MB)"], strict=True)
    ]
    return table
