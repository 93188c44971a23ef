"""The rule by which runs support or contradict a claim, or leave it undecided.

A comparator (`papers/comparators.py`) turns runs into comparisons: means of differences paired by seed, and the bounds between which
the claim puts them. A claim is

- *supported* when every comparison (or most, where the claim says most) lies clearly within its bounds, and no cell is
  missing;
- *contradicted* when one lies clearly outside, with intervals that hold for all comparisons together, even if cells are
  missing;
- *no difference* when all are within MARGIN points, by two one-sided tests;
- else *undecided*, with the reason, or *not run*.

All need scale record or paper, the protocol `reconstructed`, no fewer rounds than the papers have, and three seeds in each comparison
that counts. A claim is read by the
last round and by the mean of the last ten, and words by what the paper counts and by what is sent: where the readings disagree, it is
undecided. What a claim says that can be counted without a run is judged by counting, and tallied apart.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ..show import intervals, tables
from ..show.intervals import RunTables
from . import exhibits
from .results import Runs

SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN = "supported", "contradicted", "undecided", "not run"
NO_DIFFERENCE = "no difference"
STAND_IN = "stand-in"  # embedded data, or another set than the claim's: evidence without a verdict
VERDICTS = (SUPPORTED, CONTRADICTED, NO_DIFFERENCE, UNDECIDED, NOT_RUN, STAND_IN)
COUNTED, TRAINED = "counted", "trained"

DECISIVE_SCALES = ("record", "paper")
DECISIVE_PROTOCOL = "reconstructed"
MIN_SEEDS = 3
LEVEL = 0.95
MARGIN = 1.0  # points; chosen after the first 99 results of record were known, and before all later ones
RULES = ("last", "last10")
# The fewest rounds of the papers' own grids, T of {100, 500}; pFedHR prints none, and its reductions are named in its plan.
PAPERS_ROUNDS = {"FedSSA": 100, "FedGH": 100, "pFedES": 100}
COUNTS = {"published": "as the paper counts", "sent": "as sent"}

# Embedded data and what they stand for at scale smoke.
_STANDS_FOR = {"digits": ("cifar10", "svhn", "mnist"), "digits100": ("cifar100",)}
# FedGH needs features of one width, and has variants of the same models.
_SAME_MODELS = {"reassembly-500": "reassembly"}


@dataclass(frozen=True)
class Setting:
    """Where methods are compared: every field of a run except method and seed. num_clients is the paper's N."""

    dataset: str
    num_clients: int
    models: str
    partition: str
    public_labels: bool
    value: Any = None  # of the swept quantity

    @classmethod
    def of(cls, cell: exhibits.Cell) -> "Setting":
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
    record: RunTables

    @cached_property
    def setting(self) -> Setting:
        return Setting.of(self.cell)


Seeds = Mapping[int, Run]
Found = Mapping[Setting, Mapping[str, Seeds]]  # setting -> method -> seed -> run


@dataclass(frozen=True)
class Reading:
    """How runs are read: the rule that selects a run's round, how words are counted, the scale, and how many parts the claim
    has, whose intervals hold together.
    """

    rule: str = RULES[0]
    count: str = "published"
    scale: str = "record"
    parts: int = 1


@dataclass(frozen=True)
class Contrast:
    """One thing that a claim says: that a mean over `n` seeds lies between two bounds.

    se, df: the mean's standard error and its degrees of freedom; wide: how many of them the interval reaches that holds for all
    comparisons of the claim together; ratio: mean and bounds are logarithms of a quotient, in words `1.20 times`; obstacle: why
    it decides nothing, whatever it is.
    """

    what: str
    n: int
    mean: float = float("nan")
    se: float = float("nan")
    df: int = 0
    wide: float = float("nan")
    low: float = 0.0
    high: float = float("inf")
    unit: str = "points"
    ratio: bool = False
    obstacle: str = ""

    @property
    def half(self) -> float:
        """Half-width of its own 95 % interval; NaN: none."""
        return float(stdtrit(self.df, 0.5 + LEVEL / 2)) * self.se if self.df else float("nan")

    @property
    def as_claimed(self) -> bool:
        return self.low < self.mean < self.high

    @property
    def margin(self) -> float:
        """How far the mean is inside the bounds; negative outside."""
        return min(self.mean - self.low, self.high - self.mean)

    def clearly_for(self) -> bool:
        return self.n >= MIN_SEEDS and self.low < self.mean - self.half and self.mean + self.half < self.high

    def clearly_against(self) -> bool:
        reach = self.wide * self.se
        return (
            self.n >= MIN_SEEDS
            and not self.obstacle
            and bool(self.mean + reach < self.low or self.mean - reach > self.high)
        )

    def clearly_equal(self) -> bool:
        """Whether two one-sided tests at 5 % put a difference of points within +-MARGIN."""
        reach = float(stdtrit(self.df, LEVEL)) * self.se if self.df else float("nan")
        return self.unit == "points" and self.n >= MIN_SEEDS and bool(abs(self.mean) + reach < MARGIN)

    def __str__(self) -> str:
        if not self.ratio:
            return f"{self.what} {tables.format_difference(self.mean, self.half)} {self.unit} (n = {self.n})"
        quotients = np.exp([self.mean, self.mean - self.half, self.mean + self.half])
        mean, low, high = (f"{100 * (one - 1):+.2f}" if self.unit == "%" else f"{one:.2f}" for one in quotients)
        ends = "" if np.isnan(self.half) else f" ({low} to {high})"
        return f"{self.what} {mean} {self.unit}{ends} (n = {self.n})"


Comparator = Callable[..., list[Contrast]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a claim is held against: which runs, by which comparator, with which arguments.

    grids: whose runs; datasets, num_clients (the paper's N): only those, or all of the grids'; methods: those compared, or all;
    most: the claim is about most comparisons, not every one; sized: it prints a number for them.
    """

    comparator: Comparator
    args: Mapping[str, Any]
    grids: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    num_clients: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    most: bool = False
    sized: bool = False

    def concerns(self, cell: exhibits.Cell) -> bool:
        names = {cell.dataset, *_STANDS_FOR.get(cell.dataset, ())}
        return (
            not cell.ours
            and (not self.datasets or not names.isdisjoint(self.datasets))
            and (not self.num_clients or Setting.of(cell).num_clients in self.num_clients)
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
        there = {(cell.method, without_value(Setting.of(cell))) for cell in fewer}
        return fewer + [cell for cell in published if (cell.method, without_value(Setting.of(cell))) not in there]

    def runs(self, grids: Mapping[str, Runs]) -> list[Run]:
        pairs = [pair for name in self.grids if name in grids for pair in grids[name].pairs]
        return [Run(cell, record) for cell, record in pairs if self.concerns(cell)]


@dataclass(frozen=True)
class Evidence:
    """The runs at hand by grid (a missing grid has none), and the scale at which they were made."""

    grids: Mapping[str, Runs] = field(default_factory=dict)
    scale: str = "smoke"


@dataclass(frozen=True)
class Finding:
    """What runs say of a claim: the verdict, why it is none, the numbers behind it, how its printed size compares, and whether it
    was counted or trained.
    """

    verdict: str
    why: str = ""
    evidence: str = ""
    size: str = ""
    by: str = TRAINED


def by_setting(runs: Sequence[Run]) -> dict[Setting, dict[str, dict[int, Run]]]:
    """Runs by setting, method and seed."""
    found: dict[Setting, dict[str, dict[int, Run]]] = {}
    for run in runs:
        found.setdefault(run.setting, {}).setdefault(run.cell.method, {})[run.cell.spec.seed] = run
    return found


def without_value(setting: Setting) -> Setting:
    """The setting, whatever the swept quantity is."""
    return replace(setting, value=None)


def judge(parts: Sequence[Part], found: Evidence, printed: float = float("nan"), counts: Sequence[str] = ()) -> Finding:
    """The verdict of the runs at hand on one claim, which prints the number `printed` (NaN: none): that of all readings, or none.

    counts: how words may be counted, where the claim is about words.
    """
    if not parts:
        return Finding(UNDECIDED, "not testable by a run")
    readings = [Reading(rule, count, found.scale, len(parts)) for count in counts or ("published",) for rule in RULES]
    judged = {(one.rule, one.count): _judge(parts, found, one, printed) for one in readings}
    first = judged[RULES[0], readings[0].count]
    by_rule = {rule: one for (rule, count), one in judged.items() if count == readings[0].count}
    by_count = {count: one for (rule, count), one in judged.items() if rule == RULES[0]}
    if len({one.verdict for one in judged.values()}) == 1:
        said = "; ".join(dict.fromkeys(f"{COUNTS[count]}: {one.evidence}" for count, one in by_count.items()))
        return replace(first, evidence=said) if len(by_count) > 1 and first.evidence else first
    if len({one.verdict for one in by_rule.values()}) > 1:
        said = "; ".join(f"{intervals.SELECTION_RULES[rule]}: {one.verdict}" for rule, one in by_rule.items())
        return replace(first, verdict=UNDECIDED, why=f"depends on the round ({said})")
    said = "; ".join(f"{COUNTS[count]}: {one.verdict}, {one.evidence}" for count, one in by_count.items())
    return replace(first, verdict=UNDECIDED, why=f"depends on how words are counted ({said})", evidence="")


def _judge(parts: Sequence[Part], found: Evidence, reading: Reading, printed: float) -> Finding:
    comparisons: list[Contrast] = []
    runs: list[Run] = []
    planned: set[tuple[str, Setting]] = set()
    foreign: set[str] = set()
    every = [part.runs(found.grids) for part in parts]
    if found.scale in DECISIVE_SCALES and not all(_short(run) for own in every for run in own):
        every = [[run for run in own if not _short(run)] for own in every]  # the others neither decide nor hinder
    for part, own in zip(parts, every, strict=True):
        cells = part.planned(found.scale)
        comparisons += part.comparator(by_setting(own), reading, **part.args)
        planned |= {(cell.method, Setting.of(cell)) for cell in cells}
        foreign |= {run.cell.dataset for run in own} - {cell.dataset for cell in cells}
        runs += own
    there, most = len(planned & {(run.cell.method, run.setting) for run in runs}), parts[0].most
    if not comparisons:
        return Finding(NOT_RUN, f"{there} of {len(planned)} cells run" if runs else "")
    evidence = _evidence(comparisons, most)
    if foreign:
        return Finding(STAND_IN, f"on {', '.join(sorted(foreign))}", evidence)
    size = _size(comparisons, printed) if parts[0].sized else ""
    others = sorted({str(run.cell.spec.protocol) for run in runs} - {DECISIVE_PROTOCOL})
    reasons = [] if found.scale in DECISIVE_SCALES else [f"scale {found.scale}"]
    reasons += [f"protocol {', '.join(others)}"] if others else []
    if any(_varied(part, found) for part in parts):
        reasons.append(f"T, E or B are not those of scale {found.scale}")
    short = sorted({run.cell.spec.rounds or 0 for run in runs if _short(run)})
    if found.scale in DECISIVE_SCALES and short:
        reasons.append(f"T = {', '.join(map(str, short))}, below the papers'")
    decisive = not reasons
    lacking = list(dict.fromkeys(one.obstacle for one in comparisons if one.obstacle))
    lacking += [f"{there} of {len(planned)} cells run"] if there < len(planned) else []
    lacking += _few(comparisons)
    sure = sum(one.clearly_for() for one in comparisons)
    against = sum(one.clearly_against() for one in comparisons)
    half = len(comparisons) / 2
    if decisive and (against >= half and not lacking if most else against):
        return Finding(CONTRADICTED, "", evidence, size)
    if reasons or lacking:
        return Finding(UNDECIDED, "; ".join([*_lean(comparisons), *lacking, *reasons]), evidence, size)
    if sure > half if most else sure == len(comparisons):
        return Finding(SUPPORTED, "", evidence, size)
    if all(one.clearly_equal() for one in comparisons):
        return Finding(NO_DIFFERENCE, f"within {MARGIN:g} point", evidence, size)
    return Finding(UNDECIDED, f"only {sure} of {len(comparisons)} intervals are clear of the bound", evidence, size)


def _short(run: Run) -> bool:
    """Whether a run has fewer rounds than the least of its paper's."""
    return (run.cell.spec.rounds or 0) < PAPERS_ROUNDS.get(str(run.cell.spec.paper), 0)


def _few(comparisons: Sequence[Contrast]) -> list[str]:
    counts = [one.n for one in comparisons if one.n]
    fewest = min(counts, default=MIN_SEEDS)
    if fewest >= MIN_SEEDS:
        return []
    return [("one seed" if fewest == 1 else f"{fewest} seeds") + (" in places" if max(counts) > fewest else "")]


def _varied(part: Part, found: Evidence) -> bool:
    """Whether some run has other sizes than its scale gives it: a reader's variation is not a result at that scale."""
    if found.scale not in DECISIVE_SCALES:
        return False

    def sizes(cell: exhibits.Cell) -> tuple[Any, ...]:
        return cell.spec.rounds, cell.spec.local_epochs, cell.spec.batch_size

    cells = exhibits.cells(part.grids, found.scale, seeds=(0,))
    own = {(cell.method, Setting.of(cell)): sizes(cell) for cell in cells}
    ran = [run.cell for run in part.runs(found.grids)]
    return any(sizes(cell) != own.get((cell.method, Setting.of(cell)), sizes(cell)) for cell in ran)


def _lean(comparisons: list[Contrast]) -> list[str]:
    """Which way the runs at hand lean: for or against the claim when all of its comparisons do."""
    made = [one for one in comparisons if one.n]
    if not made:
        return []
    right, counts = sum(one.as_claimed for one in made), sorted({one.n for one in made})
    way = "for" if right == len(made) else "against" if not right else f"neither way, {right} of {len(made)} as claimed"
    seeds = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
    return [f"leans {way} ({seeds})"]


def _evidence(comparisons: list[Contrast], most: bool) -> str:
    """The comparison itself, or how many are as claimed and the one that is least so (of most: the middle one)."""
    made = sorted((one for one in comparisons if one.n), key=lambda one: one.margin)
    if len(made) < 2:
        return "".join(map(str, made))
    right = sum(one.as_claimed for one in made)
    shown = made[len(made) // 2] if most else made[0]
    return f"{right} of {len(made)} comparisons as claimed; {'median' if most else 'least'}: {shown}"


def _size(comparisons: list[Contrast], printed: float) -> str:
    """Whether the printed number, which is about the least of the differences, lies in the interval of ours; one seed has none."""
    made = sorted((one for one in comparisons if one.n), key=lambda one: one.mean)[:1]
    if not made or np.isnan(made[0].half):
        return ""
    (least,) = made
    if least.ratio:
        printed = float(np.log(1 + printed / 100) if least.unit == "%" else np.log(1 - printed / 100))
    return "inside the interval" if abs(printed - least.mean) <= least.half else "outside the interval"
