"""Where the papers contradict each other, themselves or their code, with the numbers computed, and what is done about it here.

The numbers come from the papers' printed tables (`papers/reported.csv`), from our networks and from the presets; the text of an
item is ours.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from . import algorithms, models, protocol
from .claims import cells, number, numbers
from .papers.printed import accuracies

TEN, FIFTY, HUNDRED = "N=10 C=1.0", "N=50 C=0.2", "N=100 C=0.1"
EQUAL, UNEQUAL = "equal models", "unequal models"


@dataclass(frozen=True)
class Pair:
    """Tables (paper, item) of two papers for the same settings, with `equal models` or `unequal models`."""

    first: tuple[str, str]
    second: tuple[str, str]
    models: str

    def __str__(self) -> str:
        return f"{self.second[0]}'s {self.second[1]} against {self.first[0]}'s {self.first[1]}, {self.models}"

    def table(self) -> pd.DataFrame:
        """What both print for the same method, data set and setting: method, dataset, num_clients, participation, first, second
        (per cent; NaN: a dash), and the names of the tables and models, as `plots.agreement` takes them.
        """
        keys = ["method", "dataset", "num_clients", "participation"]
        first, second = (accuracies(*name)[[*keys, "value"]] for name in (self.first, self.second))
        both = first.merge(second, on=keys).rename(columns={"value_x": "first", "value_y": "second"})
        names = {"first_table": self.first, "second_table": self.second}
        return both.assign(**{name: f"{paper}'s {item}" for name, (paper, item) in names.items()}, models=self.models)


PAIRS = (
    Pair(("FedSSA", "Table 1"), ("FedGH", "Table 1"), EQUAL),
    Pair(("FedSSA", "Table 2"), ("FedGH", "Table 3"), UNEQUAL),
    Pair(("FedSSA", "Table 1"), ("pFedES", "Table 2"), EQUAL),
    Pair(("FedSSA", "Table 2"), ("pFedES", "Table 3"), UNEQUAL),
)


def pairs() -> pd.DataFrame:
    """All PAIRS under each other."""
    return pd.concat([pair.table() for pair in PAIRS], ignore_index=True)


@dataclass(frozen=True)
class Contradiction:
    """What does not fit, who says what, the numbers (a function that computes them), and the field or switch that settles it here."""

    item: str
    sources: str
    numbers: Callable[[], str]
    resolution: str


def _both(method: str, setting: str, *tables: tuple[str, str]) -> str:
    """`FedGH 93.13 / 62.80, ...`: what each table prints on CIFAR-10 and CIFAR-100, `-` for a dash."""
    shown = []
    for paper, item in tables:
        found = [numbers(cells(paper, item), method, dataset, setting) for dataset in ("cifar10", "cifar100")]
        values = [f"{value.item():.2f}" if len(value) else "-" for value in found]
        shown.append(f"{paper} {item}: {' / '.join(values)}")
    return "; ".join(shown)


def _same_baselines() -> str:
    counts = []
    for pair in PAIRS[2:]:
        table = pair.table()
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
    sizes = {paper: cells(paper, item, "model size").set_index("method")["value"] for paper, item in _SIZES}
    printed = ", ".join(f"{paper} {table['CNN-4']}" for paper, table in sizes.items())
    return (
        f"printed {printed}; counted {floats['CNN-4'] * 4 / 2**20:.3f} MiB; 3.81 needs an FC1 of {width:.0f}, not 800"
    )


_SIZES = (("FedSSA", "Table 3"), ("FedGH", "Table 2"), ("pFedES", "Table 1"))


def _units() -> str:
    gh, es = cells("FedGH", "Table 1"), cells("pFedES", "Table 3")
    gains = []
    for dataset in ("cifar10", "cifar100"):
        own, other = (
            gh[(gh["method"] == m) & (gh["dataset"] == dataset)]["value"].mean() for m in ("FedGH", "FedProto")
        )
        gains.append(f"FedGH {100 * (own / other - 1):.2f} % or {own - other:.2f} points ({dataset})")
    own, other = (number(es, name, "cifar100", FIFTY) for name in ("pFedES", "Standalone"))
    return "; ".join([*gains, f"pFedES {100 * (own / other - 1):.2f} % or {own - other:.2f} points"])


def _table5() -> str:
    table = cells("FedSSA", "Table 5")
    a, b = (number(table, f"case-{case}", "cifar100", HUNDRED) for case in "AB")
    apart = [
        number(table, "case-A", data, at) - number(table, "case-B", data, at)
        for data in ("cifar10", "cifar100")
        for at in (TEN, FIFTY, HUNDRED)
    ]
    return f"A {a:.2f}, B {b:.2f}; in the other five settings A - B is {min(apart[:-1]):.2f} to {max(apart[:-1]):.2f}"


def _pfedes_settings() -> str:
    ours = algorithms.make("pFedES", {})
    shipped = protocol.PARAMS["pFedES", "released", "heterogeneous"]["extractor_epochs"]
    return f"best in appendix 10: 0.1 and 5; shipped: {ours.mu} and {shipped}"  # type: ignore[attr-defined]


def _pfedhr_settings() -> str:
    active = {
        name: round(12 * float(protocol.SETTINGS["pFedHR", name]["participation"])) for name in ("paper", "released")
    }
    return f"active clients {active['paper']} and {active['released']} of 12; K 4 and 2; lambda 0.2 and 0.1"


def _selected() -> str:
    from . import notebook

    table = notebook.recorded("fedssa/heterogeneous").summary("last")
    table = table[table["clients"].str.startswith("N = 100")].dropna(subset=["ours"])
    if table.empty:
        return "no results of record at N = 100 yet"
    apart = (table["selected"] - table["ours"]).to_numpy()
    return (
        f"results of record at N = 100: the selected clients' mean is {np.min(apart):+.2f} to {np.max(apart):+.2f} points from all "
        f"clients' ({len(apart)} methods)"
    )


def _standalone_above() -> str:
    own = number(cells("FedGH", "Table 1"), "FedGH", "cifar100", TEN)
    other = number(cells("FedSSA", "Table 1"), "Standalone", "cifar100", TEN)
    return f"FedGH {own:.2f}, the other papers' Standalone {other:.2f}: {own - other:+.2f} points"


CONTRADICTIONS = (
    Contradiction(
        "Standalone with equal models and 10 clients differs by points between papers",
        "FedGH Table 1; FedSSA Table 1",
        lambda: _both("Standalone", TEN, ("FedGH", "Table 1"), ("FedSSA", "Table 1"), ("pFedES", "Table 2")),
        "tables of different papers are never mixed: printed.accuracies takes one paper",
    ),
    Contradiction(
        "So does FedProto; FD fails on CIFAR-100 in both",
        "FedGH Table 1; FedSSA Table 1",
        lambda: (
            _both("FedProto", TEN, ("FedGH", "Table 1"), ("FedSSA", "Table 1"))
            + "; FD, "
            + _both("FD", TEN, ("FedGH", "Table 1"), ("FedSSA", "Table 1"))
        ),
        "as above; FD has a switch for its loss, FD.target",
    ),
    Contradiction(
        "FedGH in its own paper is below Standalone in the others, CIFAR-100, 10 clients",
        "FedGH Table 1; FedSSA Table 1",
        _standalone_above,
        "as above; all methods here share one protocol, so that tuning is not compared",
    ),
    Contradiction(
        "With unequal models Standalone all but agrees between the papers",
        "FedGH Table 3; FedSSA Table 2",
        lambda: _both("Standalone", TEN, ("FedGH", "Table 3"), ("FedSSA", "Table 2")),
        "the best anchors: fedssa/heterogeneous is run first",
    ),
    Contradiction(
        "FML fails in one paper and has numbers in the other; FedKD nearly agrees",
        "FedGH Table 3; FedSSA Table 2",
        lambda: (
            "FML, "
            + _both("FML", TEN, ("FedGH", "Table 3"), ("FedSSA", "Table 2"))
            + "; FedKD, "
            + _both("FedKD", TEN, ("FedGH", "Table 3"), ("FedSSA", "Table 2"))
        ),
        "ours are run; a diverged run is a dash with its count (tables.cell)",
    ),
    Contradiction(
        "FedSSA and pFedES print the same baselines",
        "FedSSA Tables 1, 2; pFedES Tables 2, 3",
        _same_baselines,
        "one campaign, so not independent evidence; shared runs train once here too",
    ),
    Contradiction(
        "FedKD with 50 clients on CIFAR-10 is 71.37 in one copy of FedSSA's text and 77.37 in the other",
        "two copies of FedSSA; pFedES Table 3",
        lambda: f"pFedES prints {number(cells('pFedES', 'Table 3'), 'FedKD', 'cifar10', FIFTY):.2f}",
        "77.37 is in papers/reported.csv",
    ),
    Contradiction(
        "The header is the last two linear layers, the last layer, or a 10 x 500 matrix",
        "FedSSA 3.2, 4.1, 6.1",
        _headers,
        "Model.header: the last linear layer with its bias, as in the code",
    ),
    Contradiction(
        "FedSSA communicates only seen rows, or the whole header padded with zeros; least of all, or more than FedProto",
        "FedSSA abstract, 4.3, 6.2, 7",
        _communication,
        "FedSSA sends seen rows (aggregation=by_class); `whole` is a switch; words are counted from the messages",
    ),
    Contradiction(
        "Each client's data are split 8:1:1, or official test images are the test data",
        "the three texts; their loaders",
        lambda: "; ".join(
            f"{name}: {preset.split}" for (who, name), preset in protocol.PROTOCOLS.items() if who == "FedSSA"
        ),
        "protocol field split: the text's under `paper`, the loader's under `released`",
    ),
    Contradiction(
        "CIFAR-100 is said to use ResNet-18; the scripts use CNN-1",
        "FedGH 5.1; its scripts",
        lambda: f"CNN-1 with 100 classes: {models.num_floats(models.cnn('CNN-1', 100, 3))} floats",
        "scenario homogeneous is CNN-1; there is no ResNet-18",
    ),
    Contradiction(
        "CNN-4's size is wrong in every table",
        "FedSSA Table 3, FedGH Table 2, pFedES Table 1",
        _cnn4,
        "models.CNN_WIDTHS keeps the printed layers",
    ),
    Contradiction(
        "Gains are relative in FedGH and in points in pFedES, both written with a per cent sign",
        "FedGH 5.2.1; pFedES abstract",
        _units,
        "differences here are points; the ledger of claims has a column for units",
    ),
    Contradiction(
        "pFedHR lists FedGH among methods that need labelled public data",
        "pFedHR Table 1; FedGH",
        lambda: f"FedGH's public_data here: {algorithms.make('FedGH', {}).public_data}",
        "FedGH needs none",
    ),
    Contradiction(
        "FedKEMF is listed with unlabelled public data; its code uses labels of images that clients train on",
        "pFedHR Table 1; FedKEMF's code",
        lambda: f"FedKEMF here: {algorithms.make('FedKEMF', {}).public_data}, label_weight 0 by default",
        "no client holds the public images; FedKEMF.label_weight uses their labels",
    ),
    Contradiction(
        "pFedES's sweep finds small mu and E_fe best; its code ships large ones",
        "pFedES appendix 10; its scripts",
        _pfedes_settings,
        "pFedES.mu and pFedES.extractor_epochs; audit/1_paper_or_code runs both",
    ),
    Contradiction(
        "FedSSA's Table 5 has the same number for cases A and B",
        "FedSSA Table 5",
        _table5,
        "both cases are run (fedssa/table5)",
    ),
    Contradiction(
        "pFedHR's text and code differ in active clients, clusters, weight and loss of distillation",
        "pFedHR 4.1, appendix 2; its code",
        _pfedhr_settings,
        "the text's values are the defaults; protocol released has the code's",
    ),
    Contradiction(
        "The local learning rate is 0.01, and 0.1 in one section",
        "FedGH 5.1, 5.3.3",
        lambda: f"protocol paper: {protocol.protocol('FedGH', 'paper').lr}",
        "0.01; RunSpec.lr changes it",
    ),
    Contradiction(
        "Accuracy falls with participation, which is called generalisation; the mean over the selected clients changes with it too",
        "FedGH 5.3.2, FedSSA 6.3, pFedES 6.3.2",
        _selected,
        "headline over all clients; rounds.csv has both, protocol field average",
    ),
)


def table() -> pd.DataFrame:
    """All items: number, item, sources, numbers, resolution."""
    rows = [
        {"item": c.item, "sources": c.sources, "numbers": c.numbers(), "here": c.resolution} for c in CONTRADICTIONS
    ]
    return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="number"))
