"""The rule by which runs support or contradict a claim, or leave it undecided.

A check (`papers/checks.py`) turns runs into comparisons: differences paired by seed, and the bounds between which the claim puts
their mean. The rule is symmetric. A claim is *supported* when the 95 % interval of every comparison lies within its bounds, and
*contradicted* when the interval of some comparison lies outside (of most, where the claim says most), widened for the number
of comparisons that were looked at. Both need every cell of the claim, at scale record or paper, under the protocol
`reconstructed`, with at least three seeds that both sides have. Everything else is *undecided*, with the reason, or *not run*.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ..show import intervals, tables
from . import exhibits

SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN = "supported", "contradicted", "undecided", "not run"
STAND_IN = "stand-in"  # embedded data, or another set than the claim's: evidence without a verdict
VERDICTS = (SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN, STAND_IN)

DECISIVE_SCALES = ("record", "paper")
DECISIVE_PROTOCOL = "reconstructed"
MIN_SEEDS = 3
LEVEL = 0.95

# Embedded data and what they stand for at scale smoke.
_STANDS_FOR = {"digits": ("cifar10", "svhn", "mnist"), "digits100": ("cifar100",)}
# FedGH needs features of one width, and has variants of the same models.
_SAME_MODELS = {"reassembly-500": "reassembly"}


class RunRecord(Protocol):
    """What a check reads of a finished run: `lab.Record` has it."""

    @property
    def status(self) -> str: ...
    @property
    def rounds(self) -> pd.DataFrame: ...
    @property
    def clients(self) -> pd.DataFrame: ...


class Runs(Protocol):
    """The finished runs of a grid, cells and records side by side: `results.Runs` has it."""

    @property
    def cells(self) -> Sequence[exhibits.Cell]: ...
    @property
    def records(self) -> Sequence[RunRecord]: ...


@dataclass(frozen=True)
class Place:
    """Where methods are compared: everything of a run that its method and seed leave open. num_clients is the paper's N."""

    dataset: str
    num_clients: int
    models: str
    partition: str
    public_labels: bool
    value: Any = None  # of the swept quantity

    @classmethod
    def of(cls, cell: exhibits.Cell) -> "Place":
        spec, models = cell.spec, str(cell.spec.scenario)
        num_clients = cell.stands_for or spec.num_clients or 0
        models = _SAME_MODELS.get(models, models)
        return cls(cell.dataset, num_clients, models, spec.partition, spec.public_labels, cell.value)

    def __str__(self) -> str:
        parts = [self.dataset, f"N = {self.num_clients}"]
        parts += ["IID"] if self.partition == "iid" else []
        parts += [] if self.public_labels else ["unlabelled"]
        parts += [self.models] if self.models not in ("heterogeneous", "homogeneous", "reassembly") else []
        return ", ".join(parts + ([] if self.value is None else [f"at {self.value}"]))


@dataclass(frozen=True)
class Run:
    """A cell of a grid with its record."""

    cell: exhibits.Cell
    record: RunRecord
    rule: str = "last"

    @cached_property
    def place(self) -> Place:
        return Place.of(self.cell)

    @property
    def diverged(self) -> bool:
        return self.record.status == "diverged"

    @cached_property
    def finals(self) -> np.ndarray:
        """Each client's last accuracy in per cent; clients that were never visited have none."""
        last = self.record.clients.groupby("client").last()
        return 100 * last.loc[last["round"] >= 0, "accuracy"].to_numpy()

    @cached_property
    def accuracy(self) -> float:
        """In per cent, over the clients visited so far. NaN: diverged."""
        return float("nan") if self.diverged else self.of_rounds("accuracy", self.rule)

    def of_rounds(self, column: str, rule: str) -> float:
        return 100 * intervals.selected_accuracy(self.record.rounds, rule, column)

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The record's rounds without its untrained start."""
        return self.record.rounds.query("round >= 0")


Seeds = Mapping[int, Run]
Found = Mapping[Place, Mapping[str, Seeds]]  # place -> method -> seed -> run


@dataclass(frozen=True)
class Evidence:
    """The runs at hand by grid (a missing grid has none), the scale at which they were made, and the rule that reads them."""

    grids: Mapping[str, Runs] = field(default_factory=dict)
    scale: str = "smoke"
    rule: str = "last"

    def runs(self, check: "Check") -> list[Run]:
        """Those that a check is about."""
        found = [self.grids[name] for name in check.grids if name in self.grids]
        pairs = [pair for runs in found for pair in zip(runs.cells, runs.records, strict=True)]
        return [Run(cell, record, self.rule) for cell, record in pairs if check.concerns(cell)]


@dataclass(frozen=True)
class Comparison:
    """One thing that a claim says: that the mean of these differences (one per common seed) lies between two bounds.

    obstacle: why it decides nothing, whatever the differences are.
    """

    what: str
    differences: tuple[float, ...]
    low: float = 0.0
    high: float = float("inf")
    unit: str = "points"
    obstacle: str = ""

    @property
    def n(self) -> int:
        return len(self.differences)

    @property
    def mean(self) -> float:
        return float(np.mean(self.differences))

    @property
    def as_claimed(self) -> bool:
        return self.low < self.mean < self.high

    @property
    def margin(self) -> float:
        """How far the mean is inside the bounds; negative outside."""
        return min(self.mean - self.low, self.high - self.mean)

    def clearly_for(self) -> bool:
        mean, half = intervals.interval(self.differences, LEVEL)
        return self.low < mean - half and mean + half < self.high

    def clearly_against(self, looked_at: int) -> bool:
        """Whether the interval lies outside, at a level that holds for `looked_at` comparisons together (Bonferroni)."""
        mean, half = intervals.interval(self.differences, 1 - (1 - LEVEL) / looked_at)
        return mean + half < self.low or mean - half > self.high

    def __str__(self) -> str:
        mean, half = intervals.interval(self.differences, LEVEL)
        return f"{self.what} {tables.apart(mean, half)} {self.unit} (n = {self.n})"


@dataclass(frozen=True, kw_only=True)
class Check(ABC):
    """How a claim is held against runs.

    grids: whose runs; datasets, num_clients (the paper's N): only those, or all of the grids'; most: the claim is about most
    comparisons, not every one; sized: it prints a number for them.
    """

    grids: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    num_clients: tuple[int, ...] = ()
    most: bool = False
    sized: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """The labels that the check compares; empty: all of the grids'."""
        return ()

    @property
    def parts(self) -> "tuple[Check, ...]":
        return (self,)

    def concerns(self, cell: exhibits.Cell) -> bool:
        names = {cell.dataset, *_STANDS_FOR.get(cell.dataset, ())}
        return (
            not cell.ours
            and (not self.datasets or not names.isdisjoint(self.datasets))
            and (not self.num_clients or Place.of(cell).num_clients in self.num_clients)
            and (not self.methods or cell.method in self.methods)
        )

    def planned(self, scale: str) -> list[exhibits.Cell]:
        """The cells that the claim is about, one seed: those of the papers' own setting. At scale record a sweep has fewer
        values; what it leaves out besides (a data set, another N) is still of the claim.
        """
        published = [cell for cell in exhibits.cells(self.grids, "paper", seeds=(0,)) if self.concerns(cell)]
        if scale not in DECISIVE_SCALES or scale == "paper":
            return published
        fewer = [cell for cell in exhibits.cells(self.grids, scale, seeds=(0,)) if self.concerns(cell)]
        there = {(cell.method, without_value(Place.of(cell))) for cell in fewer}
        return fewer + [cell for cell in published if (cell.method, without_value(Place.of(cell))) not in there]

    @abstractmethod
    def compare(self, found: Found, scale: str) -> list[Comparison]:
        """What the runs at hand say of the claim."""

    def printed_of(self, comparisons: list[Comparison]) -> list[Comparison]:
        """Which of the comparisons the printed number is about."""
        return comparisons


@dataclass(frozen=True, kw_only=True)
class Exact(Check):
    """A claim that is settled by counting, without a run."""

    @abstractmethod
    def count(self) -> tuple[bool, float, str]:
        """Whether it is so, the number that was counted (NaN: several), and the evidence."""

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        return []


@dataclass(frozen=True, kw_only=True)
class All(Check):
    """Several checks that a claim needs together."""

    checks: tuple[Check, ...]

    @property
    def parts(self) -> tuple[Check, ...]:
        return self.checks

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        raise NotImplementedError("its parts are compared, each on its own runs")


@dataclass(frozen=True)
class Finding:
    """What runs say of a claim: the verdict, why it is none, the numbers behind it, and how its printed size compares."""

    verdict: str
    why: str = ""
    evidence: str = ""
    size: str = ""


def by_place(runs: Sequence[Run]) -> dict[Place, dict[str, dict[int, Run]]]:
    """Runs by place, method and seed."""
    found: dict[Place, dict[str, dict[int, Run]]] = {}
    for run in runs:
        found.setdefault(run.place, {}).setdefault(run.cell.method, {})[run.cell.spec.seed] = run
    return found


def without_value(place: Place) -> Place:
    """The place, whatever the swept quantity is."""
    return replace(place, value=None)


def paired(
    what: str,
    own: Seeds,
    other: Seeds,
    measure: Callable[[Run], float],
    *,
    relative: bool = False,
    low: float = 0.0,
    high: float = float("inf"),
) -> Comparison:
    """Own less other (in per cent of other, if relative), on the seeds that both have and neither diverged at."""
    seeds = [seed for seed in own if seed in other]
    values = [(measure(own[seed]), measure(other[seed])) for seed in seeds]
    kept = [(mine, its) for mine, its in values if not np.isnan(mine - its)]
    differences = tuple(100 * (mine / its - 1) if relative else mine - its for mine, its in kept)
    obstacle = "no common seed" if not seeds else "a run diverged" if len(kept) < len(seeds) else ""
    return Comparison(what, differences, low, high, "%" if relative else "points", obstacle)


def judge(check: Check | None, found: Evidence, printed: float = float("nan")) -> Finding:
    """The verdict of the runs at hand on one claim, which prints the number `printed` (NaN: none)."""
    if check is None:
        return Finding(UNDECIDED, "nothing that a run could be held against")
    if isinstance(check, Exact):
        right, counted, evidence = check.count()
        size = (
            "" if np.isnan(printed) or np.isnan(counted) else "as printed" if counted == printed else "not as printed"
        )
        return Finding(SUPPORTED if right else CONTRADICTED, "", evidence, size)
    comparisons: list[Comparison] = []
    runs: list[Run] = []
    planned: set[tuple[str, Place]] = set()
    foreign: set[str] = set()
    for part in check.parts:
        own, cells = found.runs(part), part.planned(found.scale)
        comparisons += part.compare(by_place(own), found.scale)
        planned |= {(cell.method, Place.of(cell)) for cell in cells}
        foreign |= {run.cell.dataset for run in own} - {cell.dataset for cell in cells}
        runs += own
    run = {(run.cell.method, run.place) for run in runs}
    if not comparisons:
        return Finding(NOT_RUN, f"{len(planned & run)} of {len(planned)} cells run" if runs else "")
    evidence = _evidence(comparisons, check.most)
    if foreign:
        return Finding(STAND_IN, f"on {', '.join(sorted(foreign))}", evidence)
    reasons = _reasons(comparisons, runs, found.scale, len(planned & run), len(planned))
    if any(_varied(part, found) for part in check.parts):
        reasons.append(f"T, E or B are not those of scale {found.scale}")
    size = _size(check.printed_of([c for c in comparisons if c.n]), printed) if check.sized else ""
    if reasons:
        return Finding(UNDECIDED, "; ".join([*_lean(comparisons), *reasons]), evidence, size)
    sure = sum(one.clearly_for() for one in comparisons)
    against = sum(one.clearly_against(len(comparisons)) for one in comparisons)
    half = len(comparisons) / 2
    if sure > half if check.most else sure == len(comparisons):
        return Finding(SUPPORTED, "", evidence, size)
    if against >= half if check.most else against:
        return Finding(CONTRADICTED, "", evidence, size)
    return Finding(UNDECIDED, f"only {sure} of {len(comparisons)} intervals are clear of the bound", evidence, size)


def _reasons(comparisons: list[Comparison], runs: list[Run], scale: str, there: int, planned: int) -> list[str]:
    """Why the runs at hand decide nothing, whatever they say."""
    reasons = list(dict.fromkeys(one.obstacle for one in comparisons if one.obstacle))
    reasons += [f"{there} of {planned} cells run"] if there < planned else []
    counts = {one.n for one in comparisons if one.n}
    return reasons + obstacles(counts, scale, {run.cell.spec.protocol for run in runs})


def obstacles(counts: Collection[int], scale: str, protocols: Collection[str]) -> list[str]:
    """What keeps paired differences from deciding anything: too few seeds, another scale or protocol; counts: of seeds."""
    fewest, others = min(counts, default=MIN_SEEDS), sorted(set(protocols) - {DECISIVE_PROTOCOL})
    reasons = []
    if fewest < MIN_SEEDS:
        few = "one seed" if fewest == 1 else f"{fewest} seeds"
        reasons.append(few + (" in places" if max(counts) > fewest else ""))
    reasons += [f"scale {scale}"] if scale not in DECISIVE_SCALES else []
    return reasons + ([f"protocol {', '.join(others)}"] if others else [])


@dataclass(frozen=True)
class Lead:
    """A method's lead over the best of `over` others, positive as claimed: the mean of the differences over `n` common seeds, in
    points, and its 95 % interval.
    """

    mean: float
    half: float
    n: int
    over: int = 1

    @property
    def looked_at(self) -> int:
        """Above the best is above all: one comparison. But one that is above it was looked for among `over`."""
        return 1 if self.mean > 0 else self.over

    def clear(self) -> bool:
        """Whether the interval excludes zero, widened as in `Comparison.clearly_against`."""
        level = 1 - (1 - LEVEL) / self.looked_at
        return abs(self.mean) > self.half * intervals.quantile(self.n, level) / intervals.quantile(self.n, LEVEL)


def judge_lead(lead: Lead, scale: str, protocol: str, *, absent: str = "", embedded: bool = False) -> str:
    """The verdict on a single claimed lead, in words: `supported`, `contradicted`, or `undecided` with what it leans to and why.

    absent: which of the methods that the claim is about have not been run, if any; embedded: on a stand-in for the claim's data.
    """
    if not lead.n:
        return f"{UNDECIDED}: no common seed"
    lean = f"leans {'for' if lead.mean > 0 else 'against'} (n = {lead.n})"
    if embedded:
        return f"{STAND_IN}: {lean}"
    reasons = [reason for reason in (absent, *obstacles({lead.n}, scale, {protocol})) if reason]
    if not reasons and not lead.clear():
        widened = f", widened for {lead.looked_at} methods," if lead.looked_at > 1 else ""
        reasons = [f"the interval{widened} includes 0"]
    if reasons:
        return f"{UNDECIDED}: {'; '.join([lean, *reasons])}"
    return SUPPORTED if lead.mean > 0 else CONTRADICTED


def _varied(check: Check, found: Evidence) -> bool:
    """Whether some run has other sizes than its scale gives it: a reader's variation is not a result at that scale."""
    if found.scale not in DECISIVE_SCALES:
        return False

    def sizes(cell: exhibits.Cell) -> tuple[Any, ...]:
        return cell.spec.rounds, cell.spec.local_epochs, cell.spec.batch_size

    cells = exhibits.cells(check.grids, found.scale, seeds=(0,))
    own = {(cell.method, Place.of(cell)): sizes(cell) for cell in cells}
    ran = [run.cell for run in found.runs(check)]
    return any(sizes(cell) != own.get((cell.method, Place.of(cell)), sizes(cell)) for cell in ran)


def _lean(comparisons: list[Comparison]) -> list[str]:
    """Which way the runs at hand lean: for or against the claim when all of its comparisons do."""
    made = [one for one in comparisons if one.n]
    if not made:
        return []
    right, counts = sum(one.as_claimed for one in made), sorted({one.n for one in made})
    way = "for" if right == len(made) else "against" if not right else f"neither way, {right} of {len(made)} as claimed"
    seeds = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
    return [f"leans {way} ({seeds})"]


def _evidence(comparisons: list[Comparison], most: bool) -> str:
    """The comparison itself, or how many are as claimed and the one that is least so (of most: the middle one)."""
    made = sorted((one for one in comparisons if one.n), key=lambda one: one.margin)
    if len(made) < 2:
        return "".join(map(str, made))
    right = sum(one.as_claimed for one in made)
    shown = made[len(made) // 2] if most else made[0]
    return f"{right} of {len(made)} comparisons as claimed; {'median' if most else 'least'}: {shown}"


def _size(comparisons: list[Comparison], printed: float) -> str:
    """Whether the printed number lies in the intervals of what was measured; one seed has none."""
    found = [intervals.interval(one.differences, LEVEL) for one in comparisons if one.n > 1]
    inside = sum(abs(printed - mean) <= half for mean, half in found)
    if not found:
        return ""
    if len(found) == 1:
        return "inside the interval" if inside else "outside the interval"
    return f"inside {inside} of {len(found)} intervals"
