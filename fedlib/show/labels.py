"""The words on tables and figures, each made once, from typed values: a label is never taken apart again."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

_DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST", "svhn": "SVHN"}
_DATASETS |= {"har": "UCI HAR", "har-raw": "UCI HAR, raw", "ag-news": "AG News", "tiny-imagenet": "Tiny ImageNet"}
_DATASETS |= {"pamap2": "PAMAP2", "femnist": "FEMNIST"}
_DIGITS = tuple("0123456789")
_CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_ACTIVITIES = ("walking", "upstairs", "downstairs", "sitting", "standing", "laying")
_CLASSES = {  # in the order of the labels
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "mnist": _DIGITS,
    "svhn": _DIGITS,
    "digits": _DIGITS,
    "femnist": _CHARACTERS,
    "har": _ACTIVITIES,
    "har-raw": _ACTIVITIES,
    "pamap2": (
        "lying",
        "sitting",
        "standing",
        "walking",
        "running",
        "cycling",
        "Nordic walking",
        "upstairs",
        "downstairs",
        "vacuuming",
        "ironing",
        "rope jumping",
    ),
    "ag-news": ("world", "sports", "business", "science"),
}


def dataset(name: str) -> str:
    """A data set's name as its authors write it: `CIFAR-10` of `cifar10`; any other name as it is."""
    return _DATASETS.get(name, name)


def classes(name: str) -> tuple[str, ...]:
    """The names of a data set's classes, by label; empty where they have none but their numbers."""
    return _CLASSES.get(name, ())


# Values of fields of a run's specification, in words.
_WORDS: dict[str, dict[Any, str]] = {
    "public_labels": {True: "labelled", False: "unlabelled"},
    "partition": {
        "iid": "IID",
        "by-class": "Non-IID",
        "dirichlet": "Dirichlet",
        "quantity-skew": "quantity skew",
        "feature-shift": "feature shift",
        "groups": "one client per group",
    },
    "scenario": {"homogeneous-M1": "M1", "homogeneous-M4": "M4"},
}


def word(field: str, value: Any) -> str:
    """A field's value in a word: `labelled` of public_labels = True, `Non-IID` of partition = by-class; any other as it is."""
    return _WORDS.get(field, {}).get(value, str(value))


def per_cent(share: float) -> str:
    """`10 %` of 0.1; a third is `33 %`."""
    return f"{100 * share:.0f} %"


def mean(value: float, half: float, n: int, sign: str = "") -> str:
    """`96.50 ± 0.30`; without an interval (NaN), as of one seed, `96.50 (n = 1)`, and so where it is wider than 50 points to each side,
    which says nothing; a dash for NaN. sign: `+` shows that of a difference.
    """
    if math.isnan(value):
        return "–"
    said = f"(n = {n}, ± above 50)" if half > 50 else f"(n = {n})" if math.isnan(half) else f"± {half:.2f}"
    return f"{value:{sign}.2f} {said}"


def setting(
    data: str = "",
    num_clients: int | None = None,
    participation: float | None = None,
    stands_for: int | tuple[int, float | None] | None = None,
    others: Sequence[str] = (),
) -> str:
    """`CIFAR-10, labelled, N = 10, C = 100 % (for N = 50)`: a setting in words; what is not given is left out.

    data: name of the data set; stands_for: the paper's number of clients, or that and its participation, where this setting
    takes their place; others: what else distinguishes the setting, such as `labelled` or `Non-IID`.
    """
    parts = [dataset(data)] if data else []
    parts += others
    parts += [] if num_clients is None else [f"N = {num_clients}"]
    parts += [] if participation is None else [f"C = {per_cent(participation)}"]
    whole = ", ".join(parts)
    if stands_for is None:
        return whole
    clients, share = stands_for if isinstance(stands_for, tuple) else (stands_for, None)
    return f"{whole} (for {setting(num_clients=clients, participation=share)})"


def seeds_range(counts: Iterable[float]) -> str:
    """`3`, or `1 to 3` where the numbers of seeds differ."""
    found = sorted(set(counts))
    return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"
