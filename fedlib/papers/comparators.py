"""The five ways in which a claim is held against runs (`claims.csv`, column `kind`): each turns runs into comparisons, which
`verdicts.judge` decides on.

Methods are compared in one setting (data set, N, models, partition, public labels, swept value) and paired by seed, with the common
error of their grid (`show/paired.py`). Accuracies are in per cent, their differences in points; costs are compared by their quotient.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ..lab import costs
from ..show import intervals, paired
from .results import common_error
from .verdicts import LEVEL, Comparator, Contrast, Found, Reading, Run, Seeds, Setting, without_value

INFINITE = float("inf")
NAN = float("nan")
FOREIGN = "foreign"  # public data of every other kind than the clients'


# ------------------------------------------------------------------------------------------------------------- measures


def _accuracy(run: Any, reading: Reading) -> float:
    return intervals.reported(run, reading.rule)


def _spread(run: Any, reading: Reading) -> float:
    """The metric `spread` after the last round, in points, counted down: less is more."""
    return -intervals.reported(run, "last", "spread")


def _mean_of_rounds(run: Any, reading: Reading) -> float:
    """Mean accuracy over all rounds: of two curves that end alike, the faster one has the higher."""
    return 100 * float(intervals.trained(run.rounds)["accuracy"].mean()) if intervals.whole(run) else NAN


Measure = Callable[[Any, Reading], float]
MEASURES: dict[str, Measure] = {
    "accuracy": _accuracy,
    "spread over clients": _spread,
    "mean of all rounds": _mean_of_rounds,
}


def _of(seeds: Seeds, measure: Measure, reading: Reading) -> dict[int, float]:
    return {seed: measure(run.record, reading) for seed, run in seeds.items()}


def _compared(
    place: str,
    by_method: Mapping[str, Seeds],
    pairs: Sequence[tuple[str, str]],
    measure: Measure,
    reading: Reading,
    level: float,
    **bounds: Any,
) -> list[Contrast]:
    """Each pair of a setting, with the common error of its grid; bounds: low, high, unit and ratio (logarithms are compared)."""

    def value(run: Any) -> float:
        found = measure(run, reading)
        return float(np.log(found)) if bounds.get("ratio") and found > 0 else found

    records = {name: {seed: run.record for seed, run in own.items()} for name, own in by_method.items()}
    values = {name: {seed: value(run) for seed, run in own.items()} for name, own in records.items()}
    error, outside = common_error(records, value)
    kept = {name: {seed: one for seed, one in own.items() if not np.isnan(one)} for name, own in values.items()}
    made = {(one.own, one.other): one for one in paired.differences(kept, pairs, error, outside, level)}
    comparisons = []
    for own, other in pairs:
        one, common = made.get((own, other)), [seed for seed in values[own] if seed in values[other]]
        obstacle = "" if one and one.n == len(common) else "a run diverged" if common else "no common seed"
        numbers: dict[str, Any] = {"n": 0}
        if one is not None:
            numbers = {"n": one.n, "mean": one.mean, "se": one.se, "df": one.df, "wide": one.wide}
        comparisons.append(Contrast(f"{own} - {other}, {place}:", **numbers, **bounds, obstacle=obstacle))
    return comparisons


def _alone(what: str, values: Sequence[float], of: int, reading: Reading, **bounds: Any) -> Contrast:
    """A mean of one value a seed, with their own error; of: comparisons of this part of the claim, whose intervals hold together
    with those of its other parts.
    """
    kept = [value for value in values if not np.isnan(value)]
    n = len(kept)
    se = float(np.std(kept, ddof=1)) / n**0.5 if n > 1 else NAN
    wide = float(stdtrit(n - 1, 1 - (1 - LEVEL) / 2 / max(1, of) / reading.parts)) if n > 1 else NAN
    mean = float(np.mean(kept)) if kept else NAN
    return Contrast(what, n, mean, se, max(0, n - 1), wide, **bounds)


def _best(by_method: Mapping[str, Seeds], names: Sequence[str], top: int, reading: Reading) -> list[str]:
    """The `top` methods of highest mean accuracy, or all where top is 0."""
    means = {name: np.mean(list(_of(by_method[name], _accuracy, reading).values())) for name in names}
    return sorted(names, key=lambda name: -means[name] if not np.isnan(means[name]) else INFINITE)[: top or None]


# -------------------------------------------------------------------------------------------------------------- 1 above


def above(
    found: Found,
    reading: Reading,
    *,
    method: str = "",
    over: Collection[str] = (),
    order: Sequence[str] = (),
    measures: Sequence[str] = ("accuracy",),
    top: int = 0,
    within: float = 0.0,
    relative: bool = False,
    mean_of_settings: bool = False,
) -> list[Contrast]:
    """The method is above each of the others in every setting.

    over: the others, or all; top: only the best of them; order: instead, these stand in this order; measures: see MEASURES; within:
    instead, within so many points; relative: by per cent of the other's; mean_of_settings: in the mean of all settings.
    """
    bounds: dict[str, Any] = {"low": -within, "high": within} if within else {}
    bounds |= {"unit": "%", "ratio": True} if relative else {}
    if mean_of_settings:
        both = [name for name in over if any({method, name} <= set(by_method) for by_method in found.values())]
        return [_above_in_the_mean(found, reading, method, name, len(both), bounds) for name in both]
    wanted: dict[Setting, list[tuple[str, str]]] = {}
    shown: dict[Setting, list[str]] = {}  # of the others; the best were chosen among all, so all are in the joint level
    for setting, by_method in found.items():
        names = [name for name in by_method if name != method and (not over or name in over)]
        shown[setting] = _best(by_method, names, top, reading)
        pairs = list(pairwise(order)) or [(method, name) for name in names]
        wanted[setting] = [pair for pair in pairs if set(pair) <= set(by_method)]
    wanted = {setting: pairs for setting, pairs in wanted.items() if pairs}
    comparisons = []
    for setting, pairs in wanted.items():
        for measure in measures:
            place = str(setting) if measure == "accuracy" else f"{setting}, {measure}"
            level = 1 - (1 - LEVEL) / (len(wanted) * len(measures) * reading.parts)
            made = _compared(place, found[setting], pairs, MEASURES[measure], reading, level, **bounds)
            by_pair = dict(zip(pairs, made, strict=True))
            chosen = pairs if order else [(method, name) for name in shown[setting]]
            comparisons += [by_pair[pair] for pair in chosen if pair in by_pair]
    return comparisons


def _above_in_the_mean(
    found: Found, reading: Reading, method: str, other: str, of: int, bounds: Mapping[str, Any]
) -> Contrast:
    settings = [by_method for by_method in found.values() if {method, other} <= set(by_method)]
    runs = [by_method[name] for by_method in settings for name in (method, other)]
    seeds = sorted(set.intersection(*map(set, runs))) if runs else []
    means = {
        name: [
            float(np.mean([_accuracy(setting[name][seed].record, reading) for setting in settings])) for seed in seeds
        ]
        for name in (method, other)
    }
    leads = [float(np.log(own / its)) for own, its in zip(means[method], means[other], strict=True)]
    obstacle = "no common seed" if not seeds else "a run diverged" if np.isnan(leads).any() else ""
    what = f"{method} - {other}, mean of {len(settings)} settings:"
    return _alone(what, leads, of, reading, obstacle=obstacle, **bounds)


# -------------------------------------------------------------------------------------------------------------- 2 trend


def trend(
    found: Found, reading: Reading, *, direction: str = "", within: float = 0.0, quantity: str = "accuracy"
) -> list[Contrast]:
    """What is measured rises or falls with the swept quantity: the slope over its values in order, one a seed.

    within: instead, each value is within so many points of the mean of all. quantity: accuracy, or a column of the rounds.
    """

    def measure(run: Run) -> float:
        if quantity == "accuracy":
            return _accuracy(run.record, reading)
        return float(intervals.trained(run.record.rounds)[quantity].mean())

    series: dict[tuple[str, Setting], dict[Any, Seeds]] = {}
    for setting, by_method in found.items():
        for method, own in by_method.items():
            series.setdefault((method, without_value(setting)), {})[setting.value] = own
    comparisons = []
    for (method, setting), by_value in series.items():
        values = dict(sorted(by_value.items()))
        seeds = sorted(set.intersection(*(set(own) for own in values.values())))
        table = np.array([[measure(own[seed]) for own in values.values()] for seed in seeds]).reshape(-1, len(values))
        broken = "a run diverged" if np.isnan(table).any() else "" if len(seeds) else "no common seed"
        obstacle = "one value is no sweep" if len(values) < 2 else broken
        table = table[~np.isnan(table).any(axis=1)] if len(values) > 1 else table[:0]
        if within:
            apart = table - table.mean(axis=1, keepdims=True)
            bounds, of = {"low": -within, "high": within, "obstacle": obstacle}, len(values) * len(series)
            comparisons += [
                _alone(f"{method}, {setting}, at {value} less the mean:", list(column), of, reading, **bounds)
                for value, column in zip(values, apart.T, strict=True)
            ]
        else:
            slopes = list(np.polyfit(range(len(values)), table.T, 1)[0]) if len(table) else []
            low, high = (0.0, INFINITE) if direction == "rises" else (-INFINITE, 0.0)
            unit = "points a step" if quantity == "accuracy" else f"{quantity} a step"
            what = f"{method}, {setting}, {min(values)} to {max(values)}:"
            bounds = {"low": low, "high": high, "unit": unit, "obstacle": obstacle}
            comparisons.append(_alone(what, slopes, len(series), reading, **bounds))
    return comparisons


# ------------------------------------------------------------------------------------------------------------ 3 cheaper


def cheaper(
    found: Found,
    reading: Reading,
    *,
    method: str,
    kinds: Sequence[str],
    over: Collection[str] = (),
    low: float = 0.0,
    high: float | None = 1.0,
) -> list[Contrast]:
    """What the method spends until the target accuracy, by what each other one (of `over`, or all that communicate) spends, lies
    between `low` and `high` (None: no bound). Only where both reach the target.

    kinds: rounds, words (as `reading.count` counts them) or flops (of the clients and the server).
    """
    wanted = [
        (kind, name, setting, by_method)
        for setting, by_method in found.items()
        if method in by_method
        for name in by_method
        if name != method
        and (not over or name in over)
        and any(run.record.rounds["published_words"].sum() for run in by_method[name].values())
        for kind in kinds
    ]
    comparisons = []
    for kind, name, setting, by_method in wanted:
        own, other = by_method[method], by_method[name]
        seeds = [seed for seed in own if seed in other]
        spent = [(_spent(own[seed], kind, reading), _spent(other[seed], kind, reading)) for seed in seeds]
        shares = [float(np.log(mine / its)) for mine, its in spent if mine and its]
        obstacle = "no common seed" if not seeds else "target not reached" if len(shares) < len(seeds) else ""
        what = f"{method}'s {kind} to the target by {name}'s, {setting}:"
        bounds: dict[str, Any] = {"low": np.log(low) if low else -INFINITE}
        bounds |= {"high": INFINITE if high is None else np.log(high)}
        bounds |= {"unit": "times", "ratio": True, "obstacle": obstacle}
        comparisons.append(_alone(what, shares, len(wanted), reading, **bounds))
    return comparisons


def _spent(run: Run, kind: str, reading: Reading) -> float:
    """Until the target; 0: it was not reached."""
    spent = costs.until(run.record.rounds, run.cell.target)
    if not spent.reached or not intervals.whole(run.record):
        return 0.0
    if kind == "flops":
        return float(costs.of_run(run.record)[spent.rounds - 1])
    return {
        "rounds": float(spent.rounds),
        "words": spent.published_words if reading.count == "published" else spent.words,
    }[kind]


# ------------------------------------------------------------------------------------------------------------ 4 reaches


def reaches(found: Found, reading: Reading, *, over: Collection[str], target: float) -> list[Contrast]:
    """All compared methods reach the target (per cent) in some round, so that costs until then can be compared. Fewer rounds than
    the papers' say nothing against it.
    """
    listed = [(name, setting, own) for setting, by_method in found.items() for name, own in by_method.items()]
    comparisons = []
    for name, setting, own in listed:
        best = [intervals.reported(run.record, "best") - target for run in own.values()]
        short = reading.scale != "paper" and any(value < 0 for value in best)
        obstacle = "a run diverged" if np.isnan(best).any() else "target not reached" if short else ""
        what = f"{name} beyond {target:g} %, {setting}:"
        comparisons.append(_alone(what, best, len(listed), reading, obstacle=obstacle))
    return comparisons


# ------------------------------------------------------------------------------------------------------------ 5 between


def between(
    found: Found,
    reading: Reading,
    *,
    field: str,
    at: Any,
    than: Any,
    what: str = "",
    over: Collection[str] = (),
    loses_least: str = "",
    keeps_up: str = "",
    margin: float = 0.0,
) -> list[Contrast]:
    """Cells where `field` of their setting is `at` exceed the same cells where it is `than` (FOREIGN: each other value).

    what: the two in words; over: of these methods, or of all; loses_least: instead, this method loses less by `than` (the mean over
    its values) than each other; keeps_up: instead, this method at `than` is at most `margin` points below each other one at `at`.
    """
    made: list[tuple[str, dict[int, float], dict[int, float]]] = []
    for setting, own in found.items():
        if getattr(setting, field) != at:
            continue
        others = [
            by_method
            for other, by_method in found.items()
            if (getattr(other, field) not in (at, None) if than == FOREIGN else getattr(other, field) == than)
            and _but(other, field) == _but(setting, field)
        ]
        here = {name: _of(seeds, _accuracy, reading) for name, seeds in own.items()}
        if not loses_least and not keeps_up:
            made += [
                (f"{name}, {what}, {setting}:", here[name], _of(other[name], _accuracy, reading))
                for other in others
                for name in own
                if name in other and (not over or name in over)
            ]
            continue
        there = {
            name: _mean_by_seed([_of(other[name], _accuracy, reading) for other in others])
            for name in own
            if others and all(name in other for other in others)
        }
        if loses_least in there:
            lost = {
                name: {seed: here[name][seed] - own_[seed] for seed in own_ if seed in here[name]}
                for name, own_ in there.items()
            }
            made += [
                (f"loss of {name} - {loses_least}, {setting}:", lost[name], lost[loses_least])
                for name in lost
                if name != loses_least
            ]
        if keeps_up in there:
            made += [
                (f"{keeps_up}, foreign - {name}, own public data, {setting}:", there[keeps_up], here[name])
                for name in here
                if name != keeps_up
            ]
    comparisons = []
    for said, more, less in made:
        apart = [more[seed] - less[seed] for seed in more if seed in less]
        obstacle = "no common seed" if not apart else "a run diverged" if np.isnan(apart).any() else ""
        comparisons.append(_alone(said, apart, len(made), reading, low=-margin, obstacle=obstacle))
    return comparisons


def _but(setting: Setting, field: str) -> tuple[Any, ...]:
    return tuple(value for name, value in vars(setting).items() if name != field)


def _mean_by_seed(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    seeds = set.intersection(*map(set, values))
    return {seed: float(np.mean([own[seed] for own in values])) for seed in sorted(seeds)}


COMPARATORS: dict[str, Comparator] = {
    "above": above,
    "trend": trend,
    "cheaper": cheaper,
    "reaches": reaches,
    "between": between,
}
