"""What the results of record say: of claims, and of a paper's method beside the others, with the price of each lead."""

import pandas as pd

from . import claims, loading, verdicts
from .exhibits import RECORD


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
