"""A lead over training alone in two parts: what a method does by itself (*local*) and what the exchange adds.

Local is the method run isolated, each client with a server of its own, minus Standalone; exchange is the method minus its isolated self.
Both are paired by seed, and add up to the gain.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from .. import lab
from ..show import intervals, labels
from .exhibits import RECORD
from .results import compared

COLUMNS = ["setting", "method", "n", "gain", "gain_ci95", "local", "local_ci95", "exchange", "exchange_ci95"]


def isolated(records: Iterable[Any]) -> dict[tuple[str, str], dict[str, dict[int, Any]]]:
    """(setting, method) -> "isolated", "together" or "alone" -> seed -> run: the seeds for which all three are among `records`."""
    known = {record.key: record for record in records}
    found: dict[tuple[str, str], dict[str, dict[int, Any]]] = {}
    for record in known.values():
        if not record.spec.isolated:
            continue
        together = replace(record.spec, isolated=False)
        alone = replace(together, algorithm="Standalone", params={})
        partners = [known.get(lab.resolve(spec, RECORD).key) for spec in (together, alone)]
        if None in partners or not all(map(intervals.whole, [record, *partners])):
            continue
        spec = record.spec
        setting = f"{labels.dataset(str(spec.dataset))}, {labels.setting(num_clients=spec.num_clients, participation=spec.participation)}"
        place = found.setdefault((setting, spec.algorithm), {"isolated": {}, "together": {}, "alone": {}})
        for name, run in zip(place, (record, *partners), strict=True):
            place[name][spec.seed] = run
    return found


def parts(found: Mapping[tuple[str, str], Mapping[str, Mapping[int, Any]]], rule: str = "last") -> pd.DataFrame:
    """The two parts of each method of `isolated`, in points, a row a setting and method: gain = local + exchange, each with the
    half-width of an interval that holds for the three together, over its `n` seeds. With one seed the interval is that of the
    planned grid's common error (NaN where there is none).
    """
    rows = []
    for (setting, method), runs in found.items():
        pairs = [("together", "alone"), ("isolated", "alone"), ("together", "isolated")]
        made = compared(runs, pairs, lambda run: intervals.reported(run, rule))
        row = {"setting": setting, "method": method, "n": made[0].n}
        for name, one in zip(("gain", "local", "exchange"), made, strict=True):
            row |= {name: one.mean, f"{name}_ci95": one.half}
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)
