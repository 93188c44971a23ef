"""What a lead costs: one method against another at equal rounds, at equal computation and at equal communication.

At equal FLOPs (or words) the run that spends more is cut at its last round within what the other one spent in all. A run cut
at a round is not a run planned for that many: a schedule, such as FedSSA's T_stable, would have been another.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..lab import costs
from ..show import intervals, paired
from .results import Runs, common_error

WORDS = {"rounds": "rounds", "flops": "FLOPs", "words": "words"}
KINDS = tuple(WORDS)
COLUMNS = ["dataset", "setting", "own", "other", "n", "compute", "sent"] + [
    f"{kind}{part}" for kind in KINDS for part in ("", "_ci95", "_at", "_why")
]


def leads(runs: Runs, pairs: Sequence[tuple[str, str]], rule: str = "last") -> pd.DataFrame:
    """How far the first method of each pair stands above the second, in points, paired by seed, a row a setting and pair.

    rule: last, or last10: the mean of the ten rounds until the cut. Gives dataset, setting, own, other, n; compute and sent: what
    own spent in all, in FLOPs of clients and server and in words, by other's (NaN: other spent none); rounds, flops, words: the lead
    at equal ones, with `_ci95`, which holds for all pairs of a setting together, `_at`: after how many rounds of each (own,
    other), and `_why`, where there is none. Pairs without a common seed that is whole are left out.
    """
    rows = []
    for setting in dict.fromkeys(cell.setting for cell in runs.cells):
        own = [(cell, record) for cell, record in runs.pairs if cell.setting == setting and intervals.whole(record)]
        found: dict[str, dict[int, Any]] = {}
        for cell, record in own:
            found.setdefault(cell.method, {})[cell.spec.seed] = record
        wanted = [pair for pair in pairs if set(pair) <= set(found) and set(found[pair[0]]) & set(found[pair[1]])]
        error, outside = common_error(found, lambda run: intervals.reported(run, rule))
        values = {
            name: {seed: intervals.reported(run, rule) for seed, run in own_.items()} for name, own_ in found.items()
        }
        spent = {record.key: _spent(record) for cell, record in own if any(cell.method in pair for pair in wanted)}
        for one in paired.differences(values, wanted, error, outside):
            named = {"dataset": own[0][0].dataset, "setting": setting}
            rows.append(named | _lead(found, spent, one, rule, error, outside))
    return pd.DataFrame(rows, columns=COLUMNS)


def against(runs: Runs, method: str, rule: str = "last") -> pd.DataFrame:
    """`leads` of a method over each other one."""
    others = dict.fromkeys(cell.method for cell in runs.cells if cell.method != method)
    return leads(runs, [(method, other) for other in others], rule)


def over(runs: Runs, reference: str, rule: str = "last") -> pd.DataFrame:
    """`leads` of each method over the method `reference`."""
    methods = dict.fromkeys(cell.method for cell in runs.cells if cell.method != reference)
    return leads(runs, [(method, reference) for method in methods], rule)


def _lead(
    found: dict[str, dict[int, Any]],
    spent_by: dict[str, dict[str, np.ndarray]],
    whole: paired.Difference,
    rule: str,
    error: paired.Error,
    outside: frozenset[str],
) -> dict[str, Any]:
    """A row of `leads`. found: method -> seed -> run; spent_by: `_spent` by a run's key; whole: the difference at equal rounds, whose
    share of the pairs' joint interval the other two have as well.
    """
    own, other = whole.own, whole.other
    seeds = [seed for seed in found[own] if seed in found[other]]
    spent = {name: {seed: spent_by[found[name][seed].key] for seed in seeds} for name in (own, other)}

    def ratio(kind: str) -> float:
        shares = [spent[own][seed][kind][-1] / (spent[other][seed][kind][-1] or np.nan) for seed in seeds]
        return float(np.mean(shares))

    row: dict[str, Any] = {
        "own": own,
        "other": other,
        "n": len(seeds),
        "compute": ratio("flops"),
        "sent": ratio("words"),
    }
    for kind in KINDS:
        silent = [name for name in (own, other) if any(spent[name][seed][kind][-1] == 0 for seed in seeds)]
        values: dict[str, dict[int, float]] = {own: {}, other: {}}
        at = []
        for seed in () if silent else seeds:
            budget = min(spent[name][seed][kind][-1] for name in (own, other)) * (1 + 1e-9)
            ends = [int((spent[name][seed][kind] <= budget).sum()) for name in (own, other)]
            for name, end in zip((own, other), ends, strict=True):
                values[name][seed] = until(found[name][seed], end, rule)
            at.append(ends)
        if silent:
            row[f"{kind}_why"] = f"{silent[0]} sends nothing" if kind == "words" else f"{silent[0]} computes nothing"
            continue
        (made,) = paired.differences(values, [(own, other)], error, outside)
        row |= {
            kind: made.mean,
            f"{kind}_ci95": whole.wide * made.se,
            f"{kind}_at": tuple(np.mean(at, axis=0).round().astype(int).tolist()),
        }
        row[f"{kind}_why"] = "a round alone costs more" if np.isnan(made.mean) else ""
    return row


def _spent(run: Any) -> dict[str, np.ndarray]:
    """What a run had spent by the end of each round."""
    trained = intervals.trained(run.rounds)
    words = (trained["download_words"] + trained["upload_words"]).to_numpy(float)
    return {"rounds": np.arange(1.0, len(trained) + 1), "flops": costs.of_run(run), "words": np.cumsum(words)}


def until(run: Any, end: int, rule: str) -> float:
    """The accuracy after `end` rounds by a selection rule, in per cent; NaN: none."""
    part = run.rounds[run.rounds["round"] < end]
    return 100 * intervals.selected_accuracy(part, rule) if end else float("nan")
