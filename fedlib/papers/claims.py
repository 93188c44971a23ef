"""What the four papers claim in prose (`claims.csv`), with what their own tables and our runs say of it.

A row: paper; name, unique in its paper; where it is claimed, and where again; words: the claim in ours; printed and unit: its number,
where it has one; recomputed, how and agreement: that number from the paper's own tables (`tests/papers/test_recomputed.py` computes
it); kind and args: how runs are held against it (`comparators.py`), args a list where it takes several; counted and evidence: its
verdict where it can be counted without a run (computed by the same tests); unsettled: why nothing can be held against it.
"""

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

from ..errors import choose, require
from . import comparators, verdicts

AGREES, LAST_DIGIT, DISAGREES, NO_TABLE = "agrees", "off in the last digit", "disagrees", "no table to check"
AGREEMENTS = (AGREES, LAST_DIGIT, DISAGREES, NO_TABLE)
# Of the arguments: which runs, and how many of them decide.
_RUNS = ("grids", "datasets", "num_clients", "most", "sized")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of claims.csv."""

    paper: str
    name: str
    where: str
    again: str
    words: str
    printed: str
    unit: str
    recomputed: str
    how: str
    agreement: str
    kind: str
    args: str
    counted: str
    evidence: str
    unsettled: str

    def _args(self) -> list[dict[str, Any]]:
        read = json.loads(self.args or "[]")
        return read if isinstance(read, list) else [read]

    def parts(self) -> list[verdicts.Part]:
        """The runs and comparators that it is held against; empty where it is counted, or unsettled."""
        return [part(self.kind, **args) for args in self._args()]

    def judge(self, found: verdicts.Evidence) -> verdicts.Finding:
        """The verdict of counting or of the runs at hand."""
        if self.counted:
            return verdicts.Finding(self.counted, "", self.evidence, by=verdicts.COUNTED)
        about_words = any("words" in args.get("kinds", ()) for args in self._args())
        counts = tuple(verdicts.COUNTS) if about_words else ()
        return verdicts.judge(self.parts(), found, float(self.printed or "nan"), counts)


def part(kind: str, **args: Any) -> verdicts.Part:
    """What a claim of your own is held against: a comparator by name, its arguments, and grids, datasets, num_clients.

    Raises FedlibError for an unknown comparator or argument.
    """
    choose("kind", kind, comparators.COMPARATORS)
    comparator = comparators.COMPARATORS[kind]
    runs: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in args.items() if name in _RUNS
    }
    own = {name: value for name, value in args.items() if name not in _RUNS}
    known = [name for name in inspect.signature(comparator).parameters if name not in ("found", "reading")]
    for name in own:
        choose(f"argument of {kind}", name, [*known, *_RUNS])
    require(bool(runs.get("grids")), "grids", runs.get("grids"), "at least one grid")
    over = own.get("over") or []
    compared = [own["method"], *over] if over and "method" in own else own.get("order") or over
    return verdicts.Part(comparator=comparator, args=own, methods=tuple(compared), **runs)


@cache
def every() -> tuple[Claim, ...]:
    """The claims, in the order of the papers."""
    with files(__package__).joinpath("claims.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    return tuple(Claim(**{str(name): value for name, value in row.items()}) for row in table.to_dict("records"))


def grids_of(claims: Sequence[Claim] | None = None) -> list[str]:
    """The grids whose runs some claims (or all) are held against."""
    parts = [part for claim in (every() if claims is None else claims) for part in claim.parts()]
    return list(dict.fromkeys(grid for part in parts for grid in part.grids))


def ledger(found: verdicts.Evidence, claims: Sequence[Claim] | None = None) -> pd.DataFrame:
    """One row per claim, numbered in this order: paper, claim (its name), where, again, words, printed, unit; recomputed, how and
    own table from the paper's tables; verdict, by (counted or trained), why (it is none), evidence and size (how the printed
    number compares) from runs.
    """
    rows = [_row(claim, found) for claim in (every() if claims is None else claims)]
    return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="number"))


def _row(claim: Claim, found: verdicts.Evidence) -> dict[str, str]:
    finding = claim.judge(found)
    return {
        **{"paper": claim.paper, "claim": claim.name, "where": claim.where, "again": claim.again},
        **{"words": claim.words, "printed": claim.printed, "unit": claim.unit},
        **{"recomputed": claim.recomputed, "how": claim.how, "own table": claim.agreement},
        **{"verdict": finding.verdict, "by": "" if claim.unsettled else finding.by},
        **{"why": claim.unsettled or finding.why, "evidence": finding.evidence, "size": finding.size},
    }


def tally(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """How many claims of each paper (rows) have each value of `column` (`own table` or `verdict`)."""
    order = AGREEMENTS if column == "own table" else verdicts.VERDICTS
    counts = pd.crosstab(table["paper"], table[column]).reindex(columns=order, fill_value=0)
    return counts.loc[list(dict.fromkeys(table["paper"])), counts.sum() > 0].rename_axis(columns=None)
