"""Each number of contradictions.csv, from what the papers print, from our networks and from the presets."""

import re
from collections.abc import Callable
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from fedlib import algorithms, models
from fedlib.lab import presets
from fedlib.papers.reported import ACCURACY, PLACE, SIZE, accuracy, numbers, reported

TABLE = pd.read_csv(files("fedlib.papers") / "contradictions.csv", index_col="number")
FEDSSA1, FEDSSA2, FEDSSA5 = ("FedSSA", "Table 1"), ("FedSSA", "Table 2"), ("FedSSA", "Table 5")
FEDGH1, FEDGH3 = ("FedGH", "Table 1"), ("FedGH", "Table 3")
PFEDES2, PFEDES3 = ("pFedES", "Table 2"), ("pFedES", "Table 3")


def shared(*tables):
    """What two tables print of the same methods and settings, a row each; NaN: a dash."""
    first, second = (table[table["metric"].isin(ACCURACY)] for table in map(reported, *zip(*tables, strict=True)))
    both = first.merge(second, on=["method", *PLACE])
    return both.rename(columns={"value_x": "first", "value_y": "second"})


def both(method, *tables):
    """What each table prints of ten clients on CIFAR-10 and CIFAR-100; a dash is no number, and is left out."""
    found = [accuracy(*table, method, dataset, 10) for table in tables for dataset in ("cifar10", "cifar100")]
    return [value for value in found if value is not None]


def cnn_4():
    floats = {name: models.num_floats(models.cnn(name, 10, 3)) for name in ("CNN-3", "CNN-4")}
    counted = (25 * 3 + 1) * 16 + (25 * 16 + 1) * 32 + (25 * 32 + 1) * 800 + (800 + 1) * 500 + (500 + 1) * 10
    assert counted == floats["CNN-4"]
    unit = 800 + 1 + 500  # floats of a unit of FC1
    assert floats["CNN-3"] - floats["CNN-4"] == 200 * unit
    tables = [("FedSSA", "Table 3"), ("FedGH", "Table 2"), ("pFedES", "Table 1")]
    printed = [numbers(*table, SIZE).set_index("method")["value"]["CNN-4"] for table in tables]
    mib = counted * 4 / 2**20
    return [*printed, round(mib, 3), 3.81, round(800 - (mib - 3.81) * 2**20 / 4 / unit), 800]


def gains():
    """Relative (per cent) and in points, of FedGH over FedProto for both data sets, of pFedES over Standalone."""
    pairs = []
    for dataset in ("cifar10", "cifar100"):
        means = numbers(*FEDGH1, datasets=[dataset]).groupby("method")["value"].mean()
        pairs.append((means["FedGH"], means["FedProto"]))
    pairs.append(tuple(accuracy(*PFEDES3, name, "cifar100", 50) for name in ("pFedES", "Standalone")))
    return [round(gain, 2) for own, other in pairs for gain in (100 * (own / other - 1), own - other)]


def table_5():
    a, b = (
        [accuracy(*FEDSSA5, case, data, n) for data in ("cifar10", "cifar100") for n in (10, 50, 100)]
        for case in ("case-A", "case-B")
    )
    apart = np.subtract(a, b)[:-1]
    return [a[-1], b[-1], round(apart.min(), 2), round(apart.max(), 2)]


def alike():
    counts = []
    for table in (shared(FEDSSA1, PFEDES2), shared(FEDSSA2, PFEDES3)):
        same = (table["first"] == table["second"]) | table[["first", "second"]].isna().all(axis=1)
        counts += [same.sum(), len(table)]
    return counts


def active(protocol):
    return round(12 * presets.PRESETS["pFedHR", protocol].setting["participation"])


SHIPPED = presets.params("pFedES", "released", "heterogeneous", "pFedES")
OURS = algorithms.make("pFedES", {})
LAST = 500 * 10 + 10  # floats of the last layer with its bias
BY_NUMBER: dict[int, Callable[[], list[float]]] = {
    1: lambda: both("Standalone", FEDGH1, FEDSSA1, PFEDES2),
    2: lambda: both("FedProto", FEDGH1, FEDSSA1) + both("FD", FEDGH1, FEDSSA1),
    3: lambda: [
        own := accuracy(*FEDGH1, "FedGH", "cifar100", 10),
        alone := both("Standalone", FEDSSA1)[1],
        own - alone,
    ],
    4: lambda: both("Standalone", FEDGH3, FEDSSA2),
    5: lambda: both("FML", FEDGH3, FEDSSA2) + both("FedKD", FEDGH3, FEDSSA2),
    6: alike,
    7: lambda: [accuracy(*PFEDES3, "FedKD", "cifar10", 50)],
    8: lambda: [LAST, 10, 500, 5000, (2000 + 1) * 500 + LAST],
    9: lambda: [10, 2 * 2 * 501, 2 * 10 * 501, 2 * 2 * 500, 100, 2 * 10 * 501, 2 * 100 * 501, 2 * 10 * 500],
    11: lambda: [100, models.num_floats(models.cnn("CNN-1", 100, 3))],
    12: cnn_4,
    13: gains,
    15: lambda: [algorithms.make("FedKEMF", {}).label_weight],
    16: lambda: [OURS.mu, OURS.extractor_epochs, SHIPPED["mu"], SHIPPED["extra_epochs"]],
    17: table_5,
    18: lambda: [active("paper"), active("released"), 12, 4, 2, 0.2, 0.1],
    19: lambda: [presets.protocol("FedGH", "paper").lr],
}


@pytest.mark.parametrize("number", BY_NUMBER)
def test_numbers(number):
    words = re.sub(r"Tables? \d|CNN-\d|appendix \d+|layers? two|FC1", "", TABLE.loc[number, "numbers"])
    said = [float(word) for word in re.findall(r"(?<![\w.])[+-]?\d+(?:\.\d+)?", words.replace("CIFAR-", "CIFAR "))]
    computed = [float(value) for value in BY_NUMBER[number]()]
    assert said and sorted(said) == pytest.approx(sorted(computed), abs=1e-9)


def test_words():
    splits = {name: preset.protocol.split for (paper, name), preset in presets.PRESETS.items() if paper == "FedSSA"}
    assert TABLE.loc[10, "numbers"] == "; ".join(f"{name}: {split}" for name, split in splits.items())
    assert TABLE.loc[14, "numbers"].endswith(f": {algorithms.make('FedGH', {}).public_data}")
    assert f"FedKEMF here: {algorithms.make('FedKEMF', {}).public_data}," in TABLE.loc[15, "numbers"]
    assert models.num_floats(models.cnn("CNN-1", 10, 3).header) == LAST


def test_each_item_has_its_sources_and_what_is_done():
    assert list(TABLE.index) == list(range(1, 21)) and {*BY_NUMBER, 10, 14, 20} == {*TABLE.index}
    assert (TABLE.map(len) > 5).all(axis=None)
