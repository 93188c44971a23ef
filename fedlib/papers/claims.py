"""What the four papers claim in prose (`claims.csv`), with what their own tables and our runs say of it.

A row: paper; name, unique in its paper; where it is claimed, and where again; words: the claim in ours; printed and unit: its number,
where it has one; tables: the function of `recompute.py` that computes it from the paper's printed tables, with its arguments;
kind and args: how runs are held against it (`comparators.py`): a list where it takes several; unsettled: why nothing can be.
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
from . import comparators, recompute, verdicts

AGREES, LAST_DIGIT, DISAGREES, NO_TABLE = "agrees", "off in the last digit", "disagrees", "no table to check"
AGREEMENTS = (AGREES, LAST_DIGIT, DISAGREES, NO_TABLE)
_PART = ("grids", "datasets", "num_clients", "most", "sized")  # of a comparator's arguments: which runs
_TUPLES = ("grids", "datasets", "num_clients", "methods")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of claims.csv."""

    paper: str
    name: str
    where: str
    again: str = ""
    words: str
    printed: str = ""
    unit: str = ""
    tables: str = ""
    kind: str = ""
    args: str = ""
    unsettled: str = ""

    @property
    def value(self) -> float:
        """The printed number; NaN: none."""
        return float(self.printed or "nan")

    def recomputed(self) -> recompute.Recomputed | None:
        """The number from the paper's own tables; None where none holds it."""
        if not self.tables:
            return None
        asked = json.loads(self.tables)
        found = getattr(recompute, asked.pop("recompute"))(**asked)
        assert isinstance(found, recompute.Recomputed)
        return found

    def agreement(self) -> str:
        """Whether the printed number is what the paper's own tables give, to its last digit; a count must be met exactly, a target
        reached.
        """
        found = self.recomputed()
        if found is None:
            return NO_TABLE
        if found.at_least:
            return AGREES if found.value >= self.value else DISAGREES
        digits = len(self.printed.partition(".")[2])
        apart, unit = abs(found.value - self.value), 10.0**-digits
        if apart <= 0.5 * unit + 1e-9:
            return AGREES
        return LAST_DIGIT if digits and apart <= 1.5 * unit else DISAGREES

    def parts(self) -> list[verdicts.Part]:
        """The runs and comparators that it is held against; empty where it is counted, or unsettled."""
        trained = self.kind not in ("", "counted")
        return [part(self.kind, **args) for args in _listed(self.args)] if trained else []

    def counts(self) -> tuple[str, ...]:
        """How words may be counted, where it is about words."""
        return tuple(verdicts.COUNTS) if any("words" in args.get("kinds", ()) for args in _listed(self.args)) else ()

    def judge(self, found: verdicts.Evidence) -> verdicts.Finding:
        """The verdict of counting or of the runs at hand."""
        if self.kind != "counted":
            return verdicts.judge(self.parts(), found, self.value, self.counts())
        (args,) = _listed(self.args)
        readings = [verdicts.Reading(count=count) for count in self.counts() or ("published",)]
        results = [comparators.counted(printed=self.printed, reading=reading, **args) for reading in readings]
        said = [evidence for _, evidence in results]
        if len(readings) > 1:
            said = [f"{verdicts.COUNTS[one.count]}: {evidence}" for one, evidence in zip(readings, said, strict=True)]
        verdict = verdicts.SUPPORTED if results[0][0] else verdicts.CONTRADICTED
        why = ""
        if len({right for right, _ in results}) > 1:
            verdict, why = verdicts.UNDECIDED, "depends on how words are counted"
        return verdicts.Finding(verdict, why, "; ".join(dict.fromkeys(said)), by=verdicts.COUNTED)


def _listed(args: str) -> list[dict[str, Any]]:
    read = json.loads(args or "[]")
    return read if isinstance(read, list) else [read]


def part(kind: str, **args: Any) -> verdicts.Part:
    """What a claim of your own is held against: a comparator by name, its arguments, and grids, datasets, num_clients.

    Raises FedlibError for an unknown comparator or argument.
    """
    choose("kind", kind, comparators.COMPARATORS)
    comparator = comparators.COMPARATORS[kind]
    own: dict[str, Any] = {
        str(name): tuple(value) if name in _TUPLES else value for name, value in args.items() if name in _PART
    }
    rest = {name: value for name, value in args.items() if name not in _PART}
    known = [name for name in inspect.signature(comparator).parameters if name not in ("found", "reading")]
    for name in rest:
        choose(f"argument of {kind}", name, [*known, *_PART])
    require(bool(own.get("grids")), "grids", own.get("grids"), "at least one grid")
    named = (
        [rest["method"], *rest["over"]]
        if rest.get("method") and rest.get("over")
        else rest.get("order") or rest.get("over") or []
    )
    return verdicts.Part(comparator=comparator, args=rest, methods=tuple(named), **own)


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
    recomputed, finding = claim.recomputed(), claim.judge(found)
    return {
        **{"paper": claim.paper, "claim": claim.name, "where": claim.where, "again": claim.again},
        **{"words": claim.words, "printed": claim.printed, "unit": claim.unit},
        "recomputed": f"{recomputed.value:.2f}".removesuffix(".00") if recomputed else "",
        "how": recomputed.how if recomputed else "",
        **{"own table": claim.agreement(), "verdict": finding.verdict, "by": finding.by if claim.kind else ""},
        **{"why": claim.unsettled or finding.why, "evidence": finding.evidence, "size": finding.size},
    }


def tally(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """How many claims of each paper (rows) have each value of `column` (`own table` or `verdict`)."""
    order = AGREEMENTS if column == "own table" else verdicts.VERDICTS
    counts = pd.crosstab(table["paper"], table[column]).reindex(columns=order, fill_value=0)
    return counts.loc[list(dict.fromkeys(table["paper"])), counts.sum() > 0].rename_axis(columns=None)
