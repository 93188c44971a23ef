"""Claimed numbers computed again from the papers' own printed tables."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from .reported import COMMUNICATION, PLACE, ROUNDS, WIDTH, accuracy, numbers


def _places(table: pd.DataFrame) -> list[pd.Series]:
    """Of each setting of each data set: value by method."""
    groups = table.groupby(PLACE, dropna=False, sort=False)
    return [rows.set_index("method")["value"] for _, rows in groups]


@dataclass(frozen=True)
class Recomputed:
    """A claimed number from the paper's own tables, and how it came about; at_least: what is claimed must not exceed it."""

    value: float
    how: str
    at_least: bool = False


def largest_gain(paper: str, item: str, *, method: str) -> Recomputed:
    """The method's largest lead over the best other, in points."""
    leads = []
    for values in _places(numbers(paper, item)):
        others = values.drop(method)
        how = f"{values[method]:.2f} - {others.max():.2f} ({others.idxmax()})"
        leads.append((float(values[method] - others.max()), how))
    return Recomputed(*max(leads))


def _relative(own: float, other: float, digits: int) -> Recomputed:
    how = f"{own:.{digits}f} / {other:.{digits}f} - 1; {own - other:.2f} points"
    return Recomputed(100 * (own / other - 1), how)


def relative_gain(paper: str, item: str, *, method: str, over: str, dataset: str, num_clients: int) -> Recomputed:
    """How much higher the method's accuracy is, in per cent of the other's."""
    own, other = (accuracy(paper, item, name, dataset, num_clients) for name in (method, over))
    assert own is not None and other is not None
    return _relative(own, other, 2)


def relative_gain_of_means(paper: str, item: str, *, method: str, over: str, dataset: str) -> Recomputed:
    """Likewise, of the means over all settings of a data set."""
    means = numbers(paper, item, datasets=[dataset]).groupby("method")["value"].mean()
    return _relative(float(means[method]), float(means[over]), 3)


def saved(paper: str, item: str, *, method: str, over: str, dataset: str) -> Recomputed:
    """Per cent of the other's communication to the target that the method saves."""
    spent = numbers(paper, item, COMMUNICATION, [dataset]).set_index("method")["value"]
    return Recomputed(float(100 * (1 - spent[method] / spent[over])), f"1 - {spent[method]:.2f} / {spent[over]:.2f}")


def saved_by_ratio(ratio: float) -> Recomputed:
    """Per cent saved by whoever spends one part in `ratio`."""
    return Recomputed(100 * (1 - 1 / ratio), f"1 - 1 / {ratio:g}")


def wins(paper: str, item: str, *, method: str, datasets: Sequence[str] = ()) -> Recomputed:
    """In how many settings the method is the highest by itself."""
    places = [values for values in _places(numbers(paper, item, datasets=datasets)) if method in values]
    return Recomputed(
        sum(values[method] > values.drop(method).max() for values in places), f"of {len(places)} settings"
    )


def fewest_rounds(paper: str, item: str, *, method: str) -> Recomputed:
    """On how many data sets the method needs the fewest rounds, of those that communicate at all."""
    places = _places(numbers(paper, item, ROUNDS).query("value > 0"))
    return Recomputed(
        sum(values[method] < values.drop(method).min() for values in places), f"of {len(places)} data sets"
    )


def rank_by_communication(paper: str, item: str, *, method: str, dataset: str) -> Recomputed:
    """The method's place by communication to the target, 1 the least, among those that communicate at all."""
    spent = numbers(paper, item, COMMUNICATION, [dataset]).query("value > 0").set_index("method")["value"].sort_values()
    how = ", ".join(f"{name} {value:.2f}" for name, value in spent.items())
    return Recomputed(list(spent.index).index(method) + 1, how)


def order(paper: str, item: str, *, methods: Sequence[str]) -> Recomputed:
    """In how many settings the methods stand in this order, highest first."""
    places = [values[list(methods)] for values in _places(numbers(paper, item))]
    right = sum(bool((values.diff().iloc[1:] < 0).all()) for values in places)
    return Recomputed(right, f"of {len(places)} settings")


def higher(
    paper: str,
    item: str,
    *,
    field: Literal["public_labels", "models"],
    at: str,
    than: str,
    methods: Collection[str] = (),
    datasets: Collection[str] = (),
) -> Recomputed:
    """In how many cells the number at one value of `field` exceeds the same cell's at another."""
    table = numbers(paper, item, datasets=datasets)
    table = table[table["method"].isin(methods)] if methods else table
    keys = ["method", *(name for name in PLACE if name != field)]
    high, low = (table[table[field] == value] for value in (at, than))
    both = high.merge(low, on=keys, validate="one_to_one")
    return Recomputed(int((both["value_x"] > both["value_y"]).sum()), f"of {len(both)} pairs of cells")


def lower_than_in(paper: str, item: str, *, other: str, dataset: str) -> Recomputed:
    """In how many cells of a table the number is lower than in the table `other`, of another number of clients."""
    counts = ("num_clients", "participation", "active_clients")
    keys = ["method", *(name for name in PLACE if name not in counts)]
    here, there = (numbers(paper, name, datasets=[dataset]) for name in (item, other))
    both = here.merge(there, on=keys, validate="one_to_one")
    return Recomputed(int((both["value_x"] < both["value_y"]).sum()), f"of {len(both)} cells")


def header_weights(paper: str, item: str, *, num_classes: int) -> Recomputed:
    """Weights of a header of `num_classes` rows, by the printed width of the layer below it."""
    (width,) = set(numbers(paper, item, WIDTH)["value"])
    return Recomputed(num_classes * width, f"{num_classes} classes x width {width:.0f}, bias left out")


def reach(paper: str, item: str, *, methods: Sequence[str], dataset: str, num_clients: int) -> Recomputed:
    """The lowest printed accuracy among the compared methods, which a target must not exceed."""
    values = {name: accuracy(paper, item, name, dataset, num_clients) for name in methods}
    ends = {name: value for name, value in values.items() if value is not None}
    how = ", ".join(f"{name} ends at {value:.2f}" for name, value in ends.items())
    return Recomputed(min(ends.values()), how, at_least=True)
