"""What the results of record say: of claims, and of a paper's method beside the others, with the price of each lead."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..show import tables
from . import claims, loading, prices, verdicts
from .exhibits import RECORD
from .results import Runs


def judged(*grids: str, paper: str = "") -> pd.DataFrame:
    """The claims that are held against runs of some of `grids` (of all grids, and those that need no run, by default), of one paper
    or of all, as the results of record judge them: `claims.ledger`'s rows.
    """
    wanted = [
        claim
        for claim in claims.every()
        if (not paper or claim.paper == paper)
        and (not grids or any(grid in part.grids for part in claim.parts() for grid in grids))
    ]
    found = {grid: loading.load_record(grid) for grid in claims.grids_of(wanted)}
    return claims.ledger(verdicts.Evidence(found, scale=RECORD), wanted)


def readable(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `claims.ledger` for a reader: paper, where (and where again), claim, printed (with its unit), own table, verdict, by, and
    why with the evidence and how the printed number compares.
    """

    def joined(*texts: str) -> str:
        return "; ".join(filter(None, texts))

    made = []
    for row in rows.to_dict("records"):
        shown = {"paper": row["paper"], "where": joined(row["where"], row["again"]), "claim": row["words"]}
        shown |= {"printed": f"{row['printed']} {row['unit']}".strip() if row["printed"] else ""}
        shown |= {name: row[name] for name in ("own table", "verdict", "by")}
        size = f"the printed number lies {row['size']}" if row["size"] else ""
        made.append(shown | {"why, and evidence": joined(row["why"], row["evidence"], size)})
    return pd.DataFrame(made, index=rows.index)


def said(*grids: str, paper: str = "") -> list[str]:
    """`judged`, a sentence or two a claim: the verdict, the claim and where it is made, why there is no verdict, and the evidence."""
    lines = []
    for row in judged(*grids, paper=paper).to_dict("records"):
        printed = f", printed {row['printed']} {row['unit']}" if row["printed"] else ""
        found = f"; the printed number lies {row['size']}" if row["size"] else ""
        line = f"{row['verdict']}: {row['words']} ({row['where']}{printed})."
        line += f" {row['why'][:1].upper()}{row['why'][1:]}." if row["why"] else ""
        lines.append(line + (f" {row['evidence']}{found}." if row["evidence"] else ""))
    return lines


def standing(runs: Runs, method: str, printed: pd.DataFrame | None = None) -> list[str]:
    """How `method` stands, a sentence or two a setting: its mean and rank, its lead over the best other method of the paper's table
    and over the best one here, in points after the last round, paired by seed, by the last ten rounds, and at equal FLOPs.

    printed: `printed.accuracies`'s rows; None: the paper prints nothing to compare with.
    """
    said = []
    summary, ahead = runs.summary("last"), {rule: prices.against(runs, method, rule) for rule in verdicts.RULES}
    for setting, group in summary.dropna(subset=["ours"]).groupby("setting", sort=False):
        ours = group.set_index("method")["ours"]
        rows = {
            rule: {str(row["other"]): row for row in table[table["setting"] == setting].to_dict("records")}
            for rule, table in ahead.items()
        }
        last = rows["last"]
        if method not in ours or not last:
            continue
        rank = 1 + int((ours > ours[method]).sum())
        sentence = f"{setting}: {method} {ours[method]:.2f}, rank {rank} of {len(ours)}."
        best, theirs = min(last, key=lambda name: last[name]["rounds"]), _printed(printed, group)
        rivals = [name for name in theirs if name != method and name in last]
        if method in theirs and rivals:
            rival = max(rivals, key=lambda name: theirs[name])
            lead = f"there {theirs[method] - theirs[rival]:+.2f}"
            sentence += f" Against {rival}, the best other in the paper's table ({lead}): {_leads(rows, rival)}."
            if best != rival:
                sentence += f" Against {best}, the best other here: {_leads(rows, best)}."
        else:
            sentence += f" Against {best}, the best other here: {_leads(rows, best)}."
        said.append(sentence)
    return said or ["No result of record compares these methods yet: not testable here."]


def _printed(printed: pd.DataFrame | None, group: pd.DataFrame) -> Mapping[str, float]:
    if printed is None:
        return {}
    place = group.iloc[0]
    rows = printed[(printed["dataset"] == place["dataset"]) & (printed["clients"] == place["clients"])]
    return dict(rows.dropna(subset=["value"])[["method", "value"]].itertuples(index=False, name=None))


def _leads(rows: Mapping[str, Mapping[str, Mapping[Any, Any]]], other: str) -> str:
    last, smooth = rows["last"][other], rows["last10"][other]
    text = f"{tables.format_difference(last['rounds'], last['rounds_ci95'])} points (n = {last['n']})"
    text += f", {tables.format_difference(smooth['rounds'], smooth['rounds_ci95'])} in the mean of the last ten rounds"
    compute = 1 / last["compute"]
    if abs(compute - 1) < 0.005:
        return text
    at_equal = f"{tables.format_difference(last['flops'], last['flops_ci95'])} at equal FLOPs"
    return f"{text}; {other} computes {compute:.2f} times as much, and the lead is {at_equal}"


def at_each_price(runs: Runs, method: str) -> pd.DataFrame:
    """The leads of `method` over each other one, in words, a row a setting and method: what it computes and sends by the other, and
    the lead at equal rounds, FLOPs and words, with the rounds that are compared where one run is cut, or why there is none.
    """
    rows = []
    for row in prices.against(runs, method).to_dict("records"):
        shown = {"setting": row["setting"], "against": row["other"], "n": row["n"]}
        shown |= {"computes": f"{row['compute']:.2f}", "sends": tables.short(row["sent"])}
        rows.append(shown | {f"equal {prices.WORDS[kind]}": _at(row, kind) for kind in prices.KINDS})
    return pd.DataFrame(rows)


def _at(row: Mapping[Any, Any], kind: str) -> str:
    if row[f"{kind}_why"]:
        return f"– ({row[f'{kind}_why']})"
    own, other = row[f"{kind}_at"]
    cut = "" if own == other else f" ({own} against {other} rounds)"
    return f"{tables.format_difference(row[kind], row[f'{kind}_ci95'])}{cut}"
