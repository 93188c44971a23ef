"""The checks that claims name: each turns runs into comparisons, which `verdicts.judge` decides on.

Methods are compared in one place (data set, N, models, partition, public labels, swept value) and paired by seed. Accuracies are in
per cent, their differences in points; what is compared in per cent says so.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from .. import algorithms, models
from ..lab import costs
from .verdicts import Check, Comparison, Exact, Found, Place, Run, Seeds, paired, without_value

INFINITE = float("inf")


def _accuracy(run: Run) -> float:
    return run.accuracy


def _spread(run: Run) -> float:
    """Standard deviation of the individual clients' accuracies, in points."""
    return float("nan") if run.diverged else float(run.finals.std(ddof=1))


def _mean_of_rounds(run: Run) -> float:
    """Mean accuracy over all rounds: of two curves that end alike, the faster one has the higher."""
    return float("nan") if run.diverged else 100 * float(run.trained["accuracy"].mean())


def _mean(seeds: Seeds, measure: Callable[[Run], float] = _accuracy) -> float:
    """Over seeds that did not diverge; -inf where all did."""
    values = [value for value in map(measure, seeds.values()) if not np.isnan(value)]
    return float(np.mean(values)) if values else -INFINITE


def _rivals(by_method: Mapping[str, Seeds], method: str, over: Collection[str], top: int = 0) -> list[str]:
    """The methods to compare with: those of `over`, or all others, or the `top` best of them."""
    others = [name for name in by_method if name != method and (not over or name in over)]
    return sorted(others, key=lambda name: -_mean(by_method[name]))[:top] if top else others


@dataclass(frozen=True, kw_only=True)
class Above(Check):
    """The method is above each of the others (of `over`, or all) in every place.

    relative: by per cent of the other's accuracy. The printed number is the smallest lead.
    """

    method: str
    over: tuple[str, ...] = ()
    relative: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        return (self.method, *self.over) if self.over else ()

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        return [
            paired(f"{self.method} - {name}, {place}:", by_method[self.method], by_method[name], _accuracy,
                   relative=self.relative)
            for place, by_method in found.items()
            if self.method in by_method
            for name in _rivals(by_method, self.method, self.over)
        ]  # fmt: skip

    def printed_of(self, comparisons: list[Comparison]) -> list[Comparison]:
        return sorted(comparisons, key=lambda one: one.mean)[:1]


@dataclass(frozen=True, kw_only=True)
class AboveOnAverage(Check):
    """The method's mean over all places is above the other's, by per cent of the other's."""

    method: str
    over: str

    @property
    def methods(self) -> tuple[str, ...]:
        return (self.method, self.over)

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        places = [by_method for by_method in found.values() if set(self.methods) <= set(by_method)]
        if not places:
            return []
        runs = [list(by_method[name].values()) for by_method in places for name in self.methods]
        seeds = set.intersection(*({run.cell.spec.seed for run in own} for own in runs))
        means = {
            name: [float(np.mean([place[name][seed].accuracy for place in places])) for seed in sorted(seeds)]
            for name in self.methods
        }
        leads = [100 * (own / other - 1) for own, other in zip(means[self.method], means[self.over], strict=True)]
        kept = tuple(lead for lead in leads if not np.isnan(lead))
        what = f"{self.method} - {self.over}, mean of {len(places)} settings:"
        obstacle = "no common seed" if not seeds else "a run diverged" if len(kept) < len(leads) else ""
        return [Comparison(what, kept, unit="%", obstacle=obstacle)]


@dataclass(frozen=True, kw_only=True)
class Ordered(Check):
    """The methods stand in this order, highest first, in every place."""

    order: tuple[str, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        return self.order

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        return [
            paired(f"{high} - {low}, {place}:", by_method[high], by_method[low], _accuracy)
            for place, by_method in found.items()
            for high, low in pairwise(self.order)
            if high in by_method and low in by_method
        ]


@dataclass(frozen=True, kw_only=True)
class Spread(Check):
    """The method has a higher mean than its rivals and a smaller spread over the individual clients.

    over, top: the rivals, or the best of them. similar: instead, mean and spread are within this many points of theirs.
    """

    method: str
    over: tuple[str, ...] = ()
    top: int = 0
    similar: float = 0.0

    @property
    def methods(self) -> tuple[str, ...]:
        return (self.method, *self.over) if self.over else ()

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        low, high = (-self.similar, self.similar) if self.similar else (0.0, INFINITE)
        comparisons = []
        for place, by_method in found.items():
            if self.method not in by_method:
                continue
            own = by_method[self.method]
            for name in _rivals(by_method, self.method, self.over, self.top):
                other = by_method[name]
                comparisons += [
                    paired(f"mean of {self.method} - {name}, {place}:", own, other, _accuracy, low=low, high=high),
                    paired(f"spread of {name} - {self.method}, {place}:", other, own, _spread, low=low, high=high),
                ]
        return comparisons


@dataclass(frozen=True, kw_only=True)
class Faster(Check):
    """The method ends higher than its rivals and is higher on average over all rounds. over, top: as in `Spread`."""

    method: str
    over: tuple[str, ...] = ()
    top: int = 0

    @property
    def methods(self) -> tuple[str, ...]:
        return (self.method, *self.over) if self.over else ()

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for place, by_method in found.items():
            if self.method not in by_method:
                continue
            own = by_method[self.method]
            for name in _rivals(by_method, self.method, self.over, self.top):
                what = f"{self.method} - {name}, {place}"
                comparisons += [
                    paired(f"{what}, at the end:", own, by_method[name], _accuracy),
                    paired(f"{what}, mean of all rounds:", own, by_method[name], _mean_of_rounds),
                ]
        return comparisons


# --------------------------------------------------------------------------------------------------------------- sweeps


def _series(found: Found) -> Iterator[tuple[str, Place, dict[Any, Seeds]]]:
    """(method, place, swept value -> runs, by rising value)."""
    series: dict[tuple[str, Place], dict[Any, Seeds]] = {}
    for place, by_method in found.items():
        for method, seeds in by_method.items():
            series.setdefault((method, without_value(place)), {})[place.value] = seeds
    for (method, place), values in series.items():
        yield method, place, dict(sorted(values.items()))


def _measured(values: Mapping[Any, Seeds], measure: Callable[[Run], float]) -> tuple[np.ndarray, bool]:
    """(seeds that every value has and that did not diverge, values) of measures, and whether one did diverge."""
    seeds = sorted(set.intersection(*(set(own) for own in values.values())))
    table = np.array([[measure(own[seed]) for own in values.values()] for seed in seeds]).reshape(-1, len(values))
    whole = ~np.isnan(table).any(axis=1)
    return table[whole], not whole.all()


def _obstacle(table: np.ndarray, values: Mapping[Any, Seeds], diverged: bool) -> str:
    if len(values) < 2:
        return "one value is no sweep"
    return "a run diverged" if diverged else "" if len(table) else "no common seed"


@dataclass(frozen=True, kw_only=True)
class Trend(Check):
    """What is measured rises or falls with the swept quantity: the slope over its values in order, one per seed."""

    direction: Literal["rises", "falls"]
    quantity: Literal["accuracy", "candidates"] = "accuracy"

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for method, place, values in _series(found):
            table, diverged = _measured(values, self._measure)
            slopes: tuple[float, ...] = ()
            if len(values) > 1 and len(table):
                slopes = tuple(np.polyfit(range(len(values)), table.T, 1)[0])
            low, high = (0.0, INFINITE) if self.direction == "rises" else (-INFINITE, 0.0)
            unit = "points a step" if self.quantity == "accuracy" else "candidates a step"
            what = f"{method}, {place}, {min(values)} to {max(values)}:"
            comparisons.append(Comparison(what, slopes, low, high, unit, _obstacle(table, values, diverged)))
        return comparisons

    def _measure(self, run: Run) -> float:
        if self.quantity == "accuracy":
            return run.accuracy
        return float(run.trained[self.quantity].mean())


@dataclass(frozen=True, kw_only=True)
class Flat(Check):
    """The swept quantity does not matter: each value is within `margin` points of the mean of all."""

    margin: float = 1.0

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for method, place, values in _series(found):
            table, diverged = _measured(values, _accuracy)
            obstacle = _obstacle(table, values, diverged)
            apart = table - table.mean(axis=1, keepdims=True)
            for value, column in zip(values, apart.T, strict=True):
                what = f"{method}, {place}, at {value} less the mean:"
                made = tuple(column) if len(values) > 1 else ()
                comparisons.append(Comparison(what, made, -self.margin, self.margin, obstacle=obstacle))
        return comparisons


# ---------------------------------------------------------------------------------------------------------------- costs


@dataclass(frozen=True, kw_only=True)
class Saves(Check):
    """Per cent of what the others spend until the target accuracy that the method saves; it lies between `low` and `high`.

    kinds: rounds, words (as the papers count) or flops (of local training); over: the others, or all that communicate.
    Only where both reach the target.
    """

    method: str
    kinds: tuple[Literal["rounds", "words", "flops"], ...]
    over: tuple[str, ...] = ()
    low: float = 0.0
    high: float = INFINITE

    @property
    def methods(self) -> tuple[str, ...]:
        return (self.method, *self.over) if self.over else ()

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for place, by_method in found.items():
            if self.method not in by_method:
                continue
            for name in _rivals(by_method, self.method, self.over):
                if any(run.trained["published_words"].sum() for run in by_method[name].values()):
                    own, other = by_method[self.method], by_method[name]
                    comparisons += [self._saved(kind, name, place, own, other) for kind in self.kinds]
        return comparisons

    def _saved(self, kind: str, name: str, place: Place, own: Seeds, other: Seeds) -> Comparison:
        seeds = [seed for seed in own if seed in other]
        spent = [(_spent(own[seed], kind), _spent(other[seed], kind)) for seed in seeds]
        saved = tuple(
            100 * (1 - _amount(mine, kind) / _amount(its, kind)) for mine, its in spent if mine.reached and its.reached
        )
        obstacle = "" if seeds else "no common seed"
        if len(saved) < len(seeds):
            obstacle = "target not reached"
        what = f"{kind} that {self.method} saves of {name}'s, {place}:"
        return Comparison(what, saved, self.low, self.high, "%", obstacle)


def _spent(run: Run, kind: str) -> costs.Spent:
    spec, per_image = run.cell.spec, float("nan")
    if kind == "flops":
        # What a method computes beyond plain training is measured on CNN-3, where it is within 1 % of the mean of the five.
        method = algorithms.make(spec.algorithm, spec.params)
        per_image = costs.relative_to_standalone(method, "CNN-3", spec.local_epochs or 1)
    return costs.until(run.record.rounds, run.cell.target, flops_per_image=per_image)


def _amount(spent: costs.Spent, kind: str) -> float:
    return {"rounds": float(spent.rounds), "words": spent.published_words, "flops": spent.flops}[kind]


@dataclass(frozen=True, kw_only=True)
class Reaches(Check):
    """All compared methods reach the target (per cent) in some round, so that costs until then can be compared.

    Fewer rounds than the papers' say nothing against it.
    """

    over: tuple[str, ...]
    target: float

    @property
    def methods(self) -> tuple[str, ...]:
        return self.over

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for place, by_method in found.items():
            for name, seeds in by_method.items():
                best = [run.of_rounds("accuracy", "best") for run in seeds.values() if not run.diverged]
                short = scale != "paper" and any(value < self.target for value in best)
                obstacle = "a run diverged" if len(best) < len(seeds) else "target not reached" if short else ""
                what = f"{name} beyond {self.target:g} %, {place}:"
                comparisons.append(Comparison(what, tuple(value - self.target for value in best), obstacle=obstacle))
        return comparisons


# ------------------------------------------------------------------------------------------- other places, public data


@dataclass(frozen=True, kw_only=True)
class Higher(Check):
    """Cells where `field` is `at` exceed the same cells where it is `than`.

    what: the two values in words; over: of these methods, or of all.
    """

    what: str
    field: Literal["public_labels", "models", "num_clients"]
    at: bool | str | int
    than: bool | str | int
    over: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        return self.over

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for place, by_method in found.items():
            other: dict[str, Any] = vars(place) | {self.field: self.than}
            partner = found.get(Place(**other), {})
            if getattr(place, self.field) == self.at:
                comparisons += [
                    paired(f"{name}, {self.what}, {place}:", own, partner[name], _accuracy)
                    for name, own in by_method.items()
                    if name in partner
                ]
        return comparisons


def _public(found: Found) -> Iterator[tuple[Place, Mapping[str, Seeds], list[Mapping[str, Seeds]]]]:
    """(place, runs with the clients' own kind of public data, runs with each foreign kind), where both are there."""
    for place, own in found.items():
        foreign = [
            by_method for other, by_method in found.items() if other.value is not None and without_value(other) == place
        ]
        if place.value is None and foreign:
            yield place, own, foreign


def _lost(own: Seeds, foreign: Sequence[Seeds]) -> dict[int, float]:
    """By seed, how many points the mean over foreign public data is below the own kind's."""
    seeds = [seed for seed in own if all(seed in runs for runs in foreign)]
    return {seed: own[seed].accuracy - float(np.mean([runs[seed].accuracy for runs in foreign])) for seed in seeds}


def _apart(what: str, more: Mapping[int, float], less: Mapping[int, float], low: float = 0.0) -> Comparison:
    """Differences of two numbers by seed."""
    seeds = [seed for seed in more if seed in less]
    kept = tuple(more[seed] - less[seed] for seed in seeds if not np.isnan(more[seed] - less[seed]))
    obstacle = "no common seed" if not seeds else "a run diverged" if len(kept) < len(seeds) else ""
    return Comparison(what, kept, low, obstacle=obstacle)


@dataclass(frozen=True, kw_only=True)
class LosesAbroad(Check):
    """Every method has a lower accuracy with each foreign kind of public data than with the clients' own."""

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        return [
            paired(f"{name}, own - foreign public data, {place}:", own[name], runs[name], _accuracy)
            for place, own, foreign in _public(found)
            for runs in foreign
            for name in own
            if name in runs
        ]


@dataclass(frozen=True, kw_only=True)
class LosesLeast(Check):
    """With foreign public data (their mean) the method loses less than each other one."""

    method: str

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for place, own, foreign in _public(found):
            names = [name for name in own if all(name in runs for runs in foreign)]
            lost = {name: _lost(own[name], [runs[name] for runs in foreign]) for name in names}
            comparisons += [
                _apart(f"loss of {name} - {self.method}, {place}:", lost[name], lost[self.method])
                for name in lost
                if self.method in lost and name != self.method
            ]
        return comparisons


@dataclass(frozen=True, kw_only=True)
class KeepsUp(Check):
    """With foreign public data (their mean) the method is at most `margin` points below each other one with the own kind."""

    method: str
    margin: float = 1.0

    def compare(self, found: Found, scale: str) -> list[Comparison]:
        comparisons = []
        for place, own, foreign in _public(found):
            if self.method not in own or not all(self.method in runs for runs in foreign):
                continue
            mine = own[self.method]
            lost = _lost(mine, [runs[self.method] for runs in foreign])
            abroad = {seed: mine[seed].accuracy - loss for seed, loss in lost.items()}
            for name, seeds in own.items():
                if name != self.method:
                    at_home = {seed: run.accuracy for seed, run in seeds.items()}
                    what = f"{self.method}, foreign - {name}, own public data, {place}:"
                    comparisons.append(_apart(what, abroad, at_home, -self.margin))
        return comparisons


# --------------------------------------------------------------------------------------------------------- without runs


@dataclass(frozen=True, kw_only=True)
class HeaderSize(Exact):
    """The header of all five CNNs has this many weights for `num_classes`."""

    num_classes: int
    weights: int

    def count(self) -> tuple[bool, float, str]:
        sizes = {models.cnn(name, self.num_classes, 3).header.weight.numel() for name in models.CNN_WIDTHS}
        evidence = f"{', '.join(map(str, sorted(sizes)))} weights in all five CNNs, and {self.num_classes} biases"
        return sizes == {self.weights}, float(max(sizes)), evidence


@dataclass(frozen=True, kw_only=True)
class ExtractionCost(Exact):
    """FedGH's extraction of representations costs less than one epoch of training."""

    def count(self) -> tuple[bool, float, str]:
        cost = costs.flops(algorithms.make("FedGH", {}), "CNN-3")
        share = cost.round / cost.epoch
        return share < 1, round(share, 2), f"{share:.2f} of an epoch, counted on CNN-3"


@dataclass(frozen=True, kw_only=True)
class RoundCost(Exact):
    """In a round a client of `method` sends and computes less (or more) than one of `other`, on both data sets of the papers.

    epochs: of local training.
    """

    method: str
    other: str
    kinds: tuple[Literal["words", "flops"], ...]
    less: bool
    epochs: int = 10

    def count(self) -> tuple[bool, float, str]:
        right, said = True, []
        for kind in self.kinds:
            if kind == "words":
                columns = [f"{name}_published" for name in ("cifar10", "cifar100")]
                table = costs.table([self.method, self.other])[columns].astype(float)
                pairs = list(zip(table.loc[self.method], table.loc[self.other], strict=True))
                shown = [f"{mine:.0f} against {its:.0f} words" for mine, its in pairs]
            else:
                made = [algorithms.make(name, {}) for name in (self.method, self.other)]
                mine, its = (costs.relative_to_standalone(method, "CNN-3", self.epochs) for method in made)
                pairs, shown = [(mine, its)], [f"{mine:.2f} against {its:.2f} times plain training"]
            right = right and all(mine < its if self.less else mine > its for mine, its in pairs)
            said += shown
        return right, float("nan"), f"{self.method} against {self.other}: {', '.join(said)}"
