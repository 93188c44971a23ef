"""The ledger: every claim with what its paper's own tables say of it and what runs say of it."""

from collections.abc import Sequence

import pandas as pd

from .. import verdicts
from . import fedgh, fedssa, pfedes, pfedhr
from .claim import AGREEMENTS, Claim

CLAIMS: tuple[Claim, ...] = (*fedssa.CLAIMS, *fedgh.CLAIMS, *pfedes.CLAIMS, *pfedhr.CLAIMS)


def grids_of(claims: Sequence[Claim] = CLAIMS) -> list[str]:
    """The grids whose runs the checks of some claims read."""
    parts = [part for claim in claims if claim.check for part in claim.check.parts]
    return list(dict.fromkeys(grid for part in parts for grid in part.grids))


def ledger(found: verdicts.Evidence, claims: Sequence[Claim] = CLAIMS) -> pd.DataFrame:
    """One row per claim, numbered in this order: paper, claim (its name), where, again, words, printed, unit; recomputed, how and
    own table from the paper's tables; verdict, why (it is none), evidence and size (how the printed number compares) from runs.
    """
    rows = [_row(claim, found) for claim in claims]
    return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="number"))


def _row(claim: Claim, found: verdicts.Evidence) -> dict[str, str]:
    row = {
        **{"paper": claim.paper, "claim": claim.name, "where": claim.where, "again": claim.again},
        **{"words": claim.words, "printed": claim.printed, "unit": claim.unit},
    }
    own = claim.agreement()
    recomputed = claim.tables() if claim.tables else None
    row["recomputed"] = f"{recomputed.value:.2f}".removesuffix(".00") if recomputed else ""
    row["how"] = recomputed.how if recomputed else ""
    finding = verdicts.judge(claim.check, found, claim.value)
    why = claim.unsettled or finding.why
    return row | {
        **{"own table": own, "verdict": finding.verdict, "why": why},
        **{"evidence": finding.evidence, "size": finding.size},
    }


def tally(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """How many claims of each paper (rows) have each value of `column` (`own table` or `verdict`)."""
    order = AGREEMENTS if column == "own table" else verdicts.VERDICTS
    counts = pd.crosstab(table["paper"], table[column]).reindex(columns=order, fill_value=0)
    return counts.loc[list(dict.fromkeys(table["paper"])), counts.sum() > 0].rename_axis(columns=None)
