"""Where the papers contradict each other, themselves or their code, with the numbers computed, and what is done about it here.

The numbers come from the papers' printed tables (`reported.csv`), from our networks and from the presets; the text of an
item is ours.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import algorithms, models
from ..lab import presets
from ..show import intervals
from .reported import ACCURACY, PLACE, SIZE, accuracy, numbers, reported
from .verdicts import Runs


@dataclass(frozen=True)
class Printed:
    """A table of a paper."""

    paper: str
    item: str

    def __str__(self) -> str:
        return f"{self.paper} {self.item}"

    def accuracy(self, method: str, dataset: str, num_clients: int) -> float:
        """In per cent; NaN: a dash."""
        found = accuracy(self.paper, self.item, method, dataset, num_clients)
        return float("nan") if found is None else found


FEDSSA1, FEDSSA2, FEDSSA5 = (Printed("FedSSA", item) for item in ("Table 1", "Table 2", "Table 5"))
FEDGH1, FEDGH3 = Printed("FedGH", "Table 1"), Printed("FedGH", "Table 3")
PFEDES2, PFEDES3 = Printed("pFedES", "Table 2"), Printed("pFedES", "Table 3")
SIZES = (Printed("FedSSA", "Table 3"), Printed("FedGH", "Table 2"), Printed("pFedES", "Table 1"))


@dataclass(frozen=True)
class Pair:
    """Tables of two papers for the same settings."""

    first: Printed
    second: Printed
    models: str

    def shared(self) -> pd.DataFrame:
        """What both print of the same method and place: method, the columns of PLACE, first_table and second_table (their names),
        first and second (per cent; NaN: a dash); models says which kind in words.
        """
        keys = ["method", *PLACE]
        tables = [reported(table.paper, table.item) for table in (self.first, self.second)]
        rows = [table[table["metric"].isin(ACCURACY)][[*keys, "value"]] for table in tables]
        both = rows[0].merge(rows[1], on=keys).rename(columns={"value_x": "first", "value_y": "second"})
        return both.assign(first_table=str(self.first), second_table=str(self.second), models=self.models)


EQUAL, UNEQUAL = "equal models", "unequal models"
PAIRS = (
    Pair(FEDSSA1, FEDGH1, EQUAL),
    Pair(FEDSSA2, FEDGH3, UNEQUAL),
    Pair(FEDSSA1, PFEDES2, EQUAL),
    Pair(FEDSSA2, PFEDES3, UNEQUAL),
)


@dataclass(frozen=True)
class Contradiction:
    """What does not fit, who says what, the numbers (a function that computes them, perhaps from results of record), and the field
    or switch that settles it here.
    """

    item: str
    sources: str
    numbers: Callable[[Runs], str]
    resolution: str


def shared_tables() -> pd.DataFrame:
    """`Pair.shared` of all PAIRS."""
    return pd.concat([pair.shared() for pair in PAIRS], ignore_index=True)


def _both(method: str, *tables: Printed) -> str:
    """`FedGH Table 1: 93.13 / 62.80; ...`: what each table prints of 10 clients on CIFAR-10 and CIFAR-100, `-` for a dash."""
    shown = []
    for table in tables:
        values = [table.accuracy(method, dataset, 10) for dataset in ("cifar10", "cifar100")]
        shown.append(f"{table}: {' / '.join('-' if np.isnan(value) else f'{value:.2f}' for value in values)}")
    return "; ".join(shown)


def _same_baselines() -> str:
    counts = []
    for pair in PAIRS:
        if pair.second.paper == "pFedES":
            table = pair.shared()
            same = (table["first"] == table["second"]) | (table["first"].isna() & table["second"].isna())
            counts.append(f"{int(same.sum())} of {len(table)} cells alike ({pair.models})")
    return "; ".join(counts)


def _headers() -> str:
    model = models.cnn("CNN-1", 10, 3)
    last = models.num_floats(model.header)
    two = last + sum(tensor.numel() for tensor in list(model.extractor.parameters())[-2:])  # FC2
    return f"last layer with bias {last} floats (10 x 500 = 5000 without); the last two layers {two}"


def _communication() -> str:
    width = models.FEATURES
    rows = {
        f"{name}": (2 * seen * (width + 1), 2 * classes * (width + 1), 2 * seen * width)
        for name, seen, classes in (("CIFAR-10", 2, 10), ("CIFAR-100", 10, 100))
    }
    return "; ".join(
        f"{name}: seen rows {part}, whole header {whole}, FedProto {proto} floats a client and round"
        for name, (part, whole, proto) in rows.items()
    )


def _cnn4() -> str:
    floats = {name: models.num_floats(models.cnn(name, 10, 3)) for name in models.CNN_WIDTHS}
    per_unit = (floats["CNN-3"] - floats["CNN-4"]) / 200  # floats a unit of FC1's width, 1000 against 800
    width = 800 - (floats["CNN-4"] - 3.81 * 2**20 / 4) / per_unit
    sizes = {table.paper: numbers(table.paper, table.item, SIZE).set_index("method")["value"] for table in SIZES}
    printed = ", ".join(f"{paper} {table['CNN-4']}" for paper, table in sizes.items())
    return (
        f"printed {printed}; counted {floats['CNN-4'] * 4 / 2**20:.3f} MiB; 3.81 needs an FC1 of {width:.0f}, not 800"
    )


def _units() -> str:
    gains = []
    for dataset in ("cifar10", "cifar100"):
        means = numbers("FedGH", "Table 1", datasets=[dataset]).groupby("method")["value"].mean()
        own, other = means["FedGH"], means["FedProto"]
        gains.append(f"FedGH {100 * (own / other - 1):.2f} % or {own - other:.2f} points ({dataset})")
    own, other = (PFEDES3.accuracy(name, "cifar100", 50) for name in ("pFedES", "Standalone"))
    return "; ".join([*gains, f"pFedES {100 * (own / other - 1):.2f} % or {own - other:.2f} points"])


def _table5() -> str:
    a, b = (FEDSSA5.accuracy(case, "cifar100", 100) for case in ("case-A", "case-B"))
    apart = [
        FEDSSA5.accuracy("case-A", data, clients) - FEDSSA5.accuracy("case-B", data, clients)
        for data in ("cifar10", "cifar100")
        for clients in (10, 50, 100)
    ]
    return f"A {a:.2f}, B {b:.2f}; in the other five settings A - B is {min(apart[:-1]):.2f} to {max(apart[:-1]):.2f}"


def _pfedes_settings() -> str:
    ours, shipped = algorithms.make("pFedES", {}), presets.params("pFedES", "released", "heterogeneous", "pFedES")
    best = f"{ours.mu} and {ours.extractor_epochs}"  # type: ignore[attr-defined]
    return f"best in appendix 10, and our default: {best}; shipped: {shipped['mu']} and E + {shipped['extra_epochs']}"


def _pfedhr_settings() -> str:
    active = {
        name: round(12 * float(presets.PRESETS["pFedHR", name].setting["participation"]))
        for name in ("paper", "released")
    }
    return f"active clients {active['paper']} and {active['released']} of 12; K 4 and 2; lambda 0.2 and 0.1"


def _selected(record: Runs) -> str:
    """The last round's mean over the selected clients less the mean over all, by method, at N = 100."""
    apart: dict[str, list[float]] = {}
    for cell, run in zip(record.cells, record.records, strict=True):
        if cell.spec.num_clients == 100 and run.status != "diverged":
            selected, every = (
                intervals.reported(run, "last", column) for column in ("accuracy_selected", "accuracy_all")
            )
            apart.setdefault(cell.method, []).append(selected - every)
    means = [np.mean(values) for values in apart.values()]
    if not means:
        return "no results of record at N = 100 yet"
    return (
        f"results of record at N = 100: the selected clients' mean is {min(means):+.2f} to {max(means):+.2f} points from all "
        f"clients' ({len(means)} methods)"
    )


def _standalone_above() -> str:
    own, other = FEDGH1.accuracy("FedGH", "cifar100", 10), FEDSSA1.accuracy("Standalone", "cifar100", 10)
    return f"FedGH {own:.2f}, the other papers' Standalone {other:.2f}: {own - other:+.2f} points"


CONTRADICTIONS = (
    Contradiction(
        "Standalone with equal models and 10 clients differs by points between papers",
        "FedGH Table 1; FedSSA Table 1",
        lambda record: _both("Standalone", FEDGH1, FEDSSA1, PFEDES2),
        "tables of different papers are never mixed: a table is read from one paper at a time",
    ),
    Contradiction(
        "So does FedProto; FD fails on CIFAR-100 in both",
        "FedGH Table 1; FedSSA Table 1",
        lambda record: f"{_both('FedProto', FEDGH1, FEDSSA1)}; FD, {_both('FD', FEDGH1, FEDSSA1)}",
        "as above; FD has switches for its loss, FD.distance and FD.outputs",
    ),
    Contradiction(
        "FedGH in its own paper is below Standalone in the others, CIFAR-100, 10 clients",
        "FedGH Table 1; FedSSA Table 1",
        lambda record: _standalone_above(),
        "as above; all methods here share one protocol, so that tuning is not compared",
    ),
    Contradiction(
        "With unequal models Standalone all but agrees between the papers",
        "FedGH Table 3; FedSSA Table 2",
        lambda record: _both("Standalone", FEDGH3, FEDSSA2),
        "the best anchors: fedssa/heterogeneous is run first",
    ),
    Contradiction(
        "FML fails in one paper and has numbers in the other; FedKD nearly agrees",
        "FedGH Table 3; FedSSA Table 2",
        lambda record: f"FML, {_both('FML', FEDGH3, FEDSSA2)}; FedKD, {_both('FedKD', FEDGH3, FEDSSA2)}",
        "ours are run; a diverged run is a dash with its count (tables.cell)",
    ),
    Contradiction(
        "FedSSA and pFedES print the same baselines",
        "FedSSA Tables 1, 2; pFedES Tables 2, 3",
        lambda record: _same_baselines(),
        "one campaign, so not independent evidence; shared runs train once here too",
    ),
    Contradiction(
        "FedKD with 50 clients on CIFAR-10 is 71.37 in one copy of FedSSA's text and 77.37 in the other",
        "two copies of FedSSA; pFedES Table 3",
        lambda record: f"pFedES prints {PFEDES3.accuracy('FedKD', 'cifar10', 50):.2f}",
        "77.37 is in papers/reported.csv",
    ),
    Contradiction(
        "The header is the last two linear layers, the last layer, or a 10 x 500 matrix",
        "FedSSA 3.2, 4.1, 6.1",
        lambda record: _headers(),
        "Model.header: the last linear layer with its bias, as in the code",
    ),
    Contradiction(
        "FedSSA communicates only seen rows, or the whole header padded with zeros; least of all, or more than FedProto",
        "FedSSA abstract, 4.3, 6.2, 7",
        lambda record: _communication(),
        "FedSSA sends seen rows (aggregation=by_class); `whole` is a switch; words are counted from the messages",
    ),
    Contradiction(
        "Each client's data are split 8:1:1, or official test images are the test data",
        "the three texts; their loaders",
        lambda record: "; ".join(
            f"{name}: {preset.protocol.split}" for (who, name), preset in presets.PRESETS.items() if who == "FedSSA"
        ),
        "protocol field split: the text's under `paper`, the loader's under `released`",
    ),
    Contradiction(
        "CIFAR-100 is said to use ResNet-18; the scripts use CNN-1",
        "FedGH 5.1; its scripts",
        lambda record: f"CNN-1 with 100 classes: {models.num_floats(models.cnn('CNN-1', 100, 3))} floats",
        "scenario homogeneous is CNN-1; there is no ResNet-18",
    ),
    Contradiction(
        "CNN-4's size is wrong in every table",
        "FedSSA Table 3, FedGH Table 2, pFedES Table 1",
        lambda record: _cnn4(),
        "models.CNN_WIDTHS keeps the printed layers",
    ),
    Contradiction(
        "Gains are relative in FedGH and in points in pFedES, both written with a per cent sign",
        "FedGH 5.2.1; pFedES abstract",
        lambda record: _units(),
        "differences here are points; the ledger of claims has a column for units",
    ),
    Contradiction(
        "pFedHR lists FedGH among methods that need labelled public data",
        "pFedHR Table 1; FedGH",
        lambda record: f"FedGH's public_data here: {algorithms.make('FedGH', {}).public_data}",
        "FedGH needs none",
    ),
    Contradiction(
        "FedKEMF is listed with unlabelled public data; its code uses labels of images that clients train on",
        "pFedHR Table 1; FedKEMF's code",
        lambda record: f"FedKEMF here: {algorithms.make('FedKEMF', {}).public_data}, label_weight 0 by default",
        "no client holds the public images; FedKEMF.label_weight uses their labels",
    ),
    Contradiction(
        "pFedES's sweep finds small mu and E_fe best; its code ships large ones",
        "pFedES appendix 10; its scripts",
        lambda record: _pfedes_settings(),
        "pFedES.mu and pFedES.extractor_epochs; audit/1_paper_or_code runs both",
    ),
    Contradiction(
        "FedSSA's Table 5 has the same number for cases A and B",
        "FedSSA Table 5",
        lambda record: _table5(),
        "both cases are run (fedssa/table5)",
    ),
    Contradiction(
        "pFedHR's text and code differ in active clients, clusters, weight and loss of distillation",
        "pFedHR 4.2, appendix 2; its code",
        lambda record: _pfedhr_settings(),
        "the text's values are the defaults; protocol released has the code's",
    ),
    Contradiction(
        "The local learning rate is 0.01, and 0.1 in one section",
        "FedGH 5.1, 5.3.3",
        lambda record: f"protocol paper: {presets.protocol('FedGH', 'paper').lr}",
        "0.01; RunSpec.lr changes it",
    ),
    Contradiction(
        "Accuracy falls with participation, which is called generalisation; the mean over the selected clients changes with it too",
        "FedGH 5.3.2, FedSSA 6.3, pFedES 6.3.2",
        _selected,
        "the released scripts print the selected clients' mean; rounds.csv has both, tables say which is which",
    ),
)


def table(record: Runs) -> pd.DataFrame:
    """All items: number, item, sources, numbers, here (what is done). record: results of record of `fedssa/heterogeneous`."""
    rows = [
        {"item": c.item, "sources": c.sources, "numbers": c.numbers(record), "here": c.resolution}
        for c in CONTRADICTIONS
    ]
    return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="number"))
