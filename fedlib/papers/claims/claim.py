"""What a claim of a paper is, and whether its own tables agree with it."""

from collections.abc import Callable
from dataclasses import dataclass

from ..recompute import Recomputed
from ..verdicts import Check

AGREES, LAST_DIGIT, DISAGREES, NO_TABLE = "agrees", "off in the last digit", "disagrees", "no table to check"
AGREEMENTS = (AGREES, LAST_DIGIT, DISAGREES, NO_TABLE)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A number, ranking or direction that a paper claims in prose.

    name: unique in its paper; where: the place that makes it; again: other places that repeat it; words: the claim in our
    words; printed and unit: its number, as printed, where it has one; tables: recomputes it from the paper's printed tables;
    check: holds it against runs; unsettled: why there is none.
    """

    name: str
    paper: str
    where: str
    words: str
    again: str = ""
    printed: str = ""
    unit: str = ""
    tables: Callable[[], Recomputed] | None = None
    check: Check | None = None
    unsettled: str = ""

    @property
    def value(self) -> float:
        """The printed number; NaN: none."""
        return float(self.printed or "nan")

    def agreement(self) -> str:
        """Whether the printed number is what the paper's own tables give, to its last digit; a count must be met exactly, a target
        reached.
        """
        if self.tables is None:
            return NO_TABLE
        found = self.tables()
        if found.at_least:
            return AGREES if found.value >= self.value else DISAGREES
        digits = len(self.printed.partition(".")[2])
        apart, unit = abs(found.value - self.value), 10.0**-digits
        if apart <= 0.5 * unit + 1e-9:
            return AGREES
        return LAST_DIGIT if digits and apart <= 1.5 * unit else DISAGREES
