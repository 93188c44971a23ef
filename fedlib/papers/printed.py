"""What the papers print, and our numbers beside it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..show import labels
from .reported import ACCURACY, reported


def accuracies(paper: str, item: str) -> pd.DataFrame:
    """A paper's accuracy table with our names: method, dataset, num_clients, participation, clients, value (per cent, NaN: a
    dash).

    clients: the label `N = 10, C = 100 %`; in pFedHR, whose tables have one N each, `labelled, Non-IID` or `M1, IID`.
    """
    table = reported(paper, item)
    table = table[table["metric"].isin(ACCURACY)]
    typed = pd.DataFrame([_typed(row) for row in table.to_dict("records")], index=table.index)
    return table[["method", "dataset"]].join(typed).assign(value=table["value"])


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
