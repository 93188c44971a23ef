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
