"""Which runs each table and figure of each paper needs, at each scale, and which notebook makes it.

A grid is a comparison: methods, settings of N and C, data sets, perhaps one swept quantity. Grids of different papers name the
same runs where the papers ask the same, so that those train once. The index lists all 44 exhibits of the four papers; the
audit's are ours.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from ..algorithms import ALGORITHMS
from ..data import info
from ..errors import choose, distinct, require
from ..lab import SCALES, RunSpec, resolve

# Of every run of the Yi et al. papers at scale smoke: at the papers' 0.01, few rounds on few images would hardly move anything.
_QUICK: dict[str, Any] = {"batch_size": 16, "lr": 0.05}
# The papers' N -> its column of N and C. The embedded data are too few for 50 or 100 clients: N = 12 stands in for 100, nothing for 50.
SETTINGS: dict[str, dict[int, tuple[str, dict[str, Any]]]] = {
    "smoke": {
        10: ("N = 10, C = 100 %", {"num_clients": 10, "participation": 1.0, "rounds": 4, **_QUICK}),
        100: (
            "N = 12, C = 50 % (for N = 100, C = 10 %)",
            {"num_clients": 12, "participation": 0.5, "rounds": 6, **_QUICK},
        ),
    },
    "demo": {
        10: ("N = 10, C = 100 %", {"num_clients": 10, "participation": 1.0, "rounds": 10, "local_epochs": 1}),
        50: ("N = 50, C = 20 %", {"num_clients": 50, "participation": 0.2, "rounds": 30, "local_epochs": 5}),
        100: ("N = 100, C = 10 %", {"num_clients": 100, "participation": 0.1, "rounds": 30, "local_epochs": 5}),
    },
    "paper": {
        10: ("N = 10, C = 100 %", {"num_clients": 10, "participation": 1.0}),
        50: ("N = 50, C = 20 %", {"num_clients": 50, "participation": 0.2}),
        100: ("N = 100, C = 10 %", {"num_clients": 100, "participation": 0.1}),
    },
}
# At scale smoke one data set: the time goes into rounds.
DATASETS = {"smoke": ("digits",), "demo": ("cifar10", "cifar100"), "paper": ("cifar10", "cifar100")}
# Accuracy targets of the cost comparisons (pFedES, section 5: 90 % on CIFAR-10; 70, 60, 50 % on CIFAR-100 by N). Those of the
# embedded data are ours.
TARGETS: dict[str, dict[int, float]] = {
    "cifar10": {10: 0.9, 50: 0.9, 100: 0.9},
    "cifar100": {10: 0.7, 50: 0.6, 100: 0.5},
    "digits": {10: 0.7, 100: 0.5},
    "digits100": {10: 0.2, 100: 0.1},
}
SEEDS = {"smoke": (0,), "demo": (0, 1, 2), "paper": (0, 1, 2)}

# What the three texts leave open at scale `paper`, and what is *chosen* there: the released scripts' defaults.
CHOSEN = {
    "rounds": "500, of the text's {100, 500}",
    "local_epochs": "10, of {1, 10} (FedGH: of {1, 10, 30, 50, 100})",
    "batch_size": "512, of {64, 128, 256, 512} (FedGH: also 32)",
    "stable_rounds": "20, FedSSA's Figure 3; the text searches",
    "mu and extractor_epochs": "0.5 and E, pFedES's homogeneous script; the text searches",
    "hyper-parameters of the baselines": "each method's defaults; the text searches",
}

Fields = Mapping[str, Any]  # of a RunSpec


def _methods(*names: str) -> dict[str, Fields]:
    return {name: {"algorithm": name} for name in names}


@dataclass(frozen=True)
class Sweep:
    """One quantity at several values: a field of RunSpec or a hyper-parameter of the method.

    values: by data set, by its number of classes (10 or 100), or under 0 the same for all; smoke: the values that embedded data
    show.
    """

    name: str
    label: str
    values: Mapping[int | str, Sequence[Any]]
    smoke: Mapping[int | str, Sequence[Any]]

    def at(self, scale: str, dataset: str) -> Sequence[Any]:
        values = self.smoke if scale == "smoke" else self.values
        classes = info(dataset).num_classes
        found = [values[key] for key in (dataset, classes, 0) if key in values]
        require(bool(found), "dataset", dataset, f"one with 10 or 100 classes to sweep {self.name}, not {classes}")
        return found[0]


CLASSES = Sweep(
    "classes_per_client",
    "classes a client holds",
    {10: (2, 4, 6, 8, 10), 100: (10, 30, 50, 70, 90, 100)},
    {10: (2, 6, 10), 100: (10, 50, 100)},
)
ALPHA = Sweep("alpha", "Dirichlet concentration", {0: (0.1, 0.2, 0.3, 0.4, 0.5)}, {0: (0.1, 0.3, 0.5)})
PARTICIPATION = Sweep("participation", "participation C", {0: (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)}, {0: (0.1, 0.3, 0.5)})
SERVER_LR = Sweep(
    "server_lr", "the server's learning rate", {0: (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)}, {0: (0.001, 0.01, 1.0)}
)
MU = Sweep("mu", "weight mu of enhanced images", {0: (0.1, 0.2, 0.3, 0.4, 0.5)}, {0: (0.1, 0.3, 0.5)})
EXTRACTOR_EPOCHS = Sweep("extractor_epochs", "extractor epochs E_fe", {0: (5, 10, 15, 20)}, {0: (1, 2, 3)})
PUBLIC_DATASET = Sweep(
    "public_dataset",
    "public data",
    {
        "mnist": (None, "cifar10"),  # at scale demo, in SVHN's place
        "svhn": (None, "mnist", "cifar10"),
        "cifar10": (None, "mnist", "svhn"),
    },
    {0: (None, "digits-inverted", "digits-noisy")},
)
PUBLIC_DATASET_MANY = replace(PUBLIC_DATASET, smoke={0: (None, "digits-inverted")})  # for many clients
PUBLIC_FRACTION = Sweep("public_fraction", "share of public data", {0: (0.02, 0.05, 0.1)}, {0: (0.02, 0.05, 0.1)})
CLUSTERS = Sweep("clusters", "clusters K", {0: (2, 3, 4, 5)}, {0: (2, 3, 4)})  # *chosen*: the text gives no values
STITCH_LAYERS = Sweep("stitch_layers", "layers of a stitch", {0: (1, 2, 3)}, {0: (1, 2, 3)})
SERVER_EPOCHS = Sweep("server_epochs", "server epochs E_s", {0: (1, 3, 5, 10)}, {0: (1, 3, 5)})  # *chosen*, likewise


@dataclass(frozen=True)
class Grid:
    """A comparison of `methods` (label -> fields of their specifications).

    columns: the papers' N, of SETTINGS; settings: label -> fields, in place of them; smoke_columns: those of either that scale smoke
    shows, if not all; datasets: which of DATASETS; data: scale -> data sets, in place of them; common: fields of every run; smoke
    and demo: fields of every run at that scale; smoke_methods: of single methods at scale smoke.
    """

    methods: Mapping[str, Fields]
    columns: Sequence[int] = (10, 50, 100)
    smoke_columns: Sequence[int | str] = ()
    datasets: Sequence[int] = (0, 1)
    sweep: Sweep | None = None
    common: Fields = field(default_factory=dict)
    smoke: Fields = field(default_factory=dict)
    demo: Fields = field(default_factory=dict)
    settings: Mapping[str, Fields] = field(default_factory=dict)
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    smoke_methods: Mapping[str, Fields] = field(default_factory=dict)


# The methods of the papers' tables, in row order. FedGH stands beside FedSSA's Table 2 too.
FEDSSA_TABLE1 = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FedClassAvg", "FD", "FedProto", "FedSSA")
FEDSSA_TABLE2 = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FedClassAvg", "FD", "FedProto", "FedGH", "FedSSA")
FEDGH_TABLE1 = ("Standalone", "FedAvg", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto", "FedGH")
FEDGH_TABLE3 = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto", "FedGH")
PFEDES_TABLES = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto", "pFedES")

PFEDHR_LABELLED = ("FedMD", "FedGH", "pFedHR")
PFEDHR_UNLABELLED = ("FedKEMF", "FCCL", "pFedHR")
PFEDHR_TABLE4 = ("FedAvg", "FedProx", "Per-FedAvg", "pFedMe", "pFedBayes", "pFedHR")

_ALIKE: Any = {"common": {"scenario": "homogeneous"}, "smoke_columns": (10,)}
_HUNDRED: Any = {"columns": (100,)}


def _ssa(**params: Any) -> Fields:
    return {"algorithm": "FedSSA", "params": params}


# The audit changes one thing at a time, starting from the released code. Names of its references:
AS_RELEASED, THE_TEXT = "as released", "the paper's text"


def _released(method: str, algorithm: str = "", **changed: Any) -> Fields:
    return {"algorithm": algorithm or method, "paper": method, "protocol": "released", **changed}


def _text(method: str, **params: Any) -> Fields:
    return {"algorithm": method, "paper": method, "protocol": "paper", "params": params}


def _training(method: str) -> dict[str, Fields]:
    """What the texts do not say of data and optimiser, taken back one by one."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "clip_norm": 0.0, "lr": 0.01}
    return {
        "8:1:1 of each client": _released(method, overrides={"split": "local-8:1:1"}),
        "no augmentation": _released(method, overrides={"augmentation": "none"}),
        "plain SGD at 0.01": _released(method, overrides=plain),
    }


AUDIT_FEDSSA: dict[str, Fields] = {
    AS_RELEASED: _released("FedSSA"),
    "no inherited first visits": _released("FedSSA", overrides={"inherit": "none"}),
    "mean over the selected owners": _released("FedSSA", params={"aggregate_over": "selected"}),
    "T_stable = 20": _released("FedSSA", params={"stable_rounds": 20}),
    **_training("FedSSA"),
    "Standalone": _released("FedSSA", "Standalone", overrides={"inherit": "none"}),
    "Standalone, inherited first visits": _released("FedSSA", "Standalone"),
    THE_TEXT: _text("FedSSA"),
}
AUDIT_FEDGH: dict[str, Fields] = {
    AS_RELEASED: _released("FedGH"),
    "the header is trained": _released("FedGH", params={"server_update": "per_lar"}),
    "no inheritance in round 0": _released("FedGH", overrides={"inherit": "none"}),
    **_training("FedGH"),
    THE_TEXT: _text("FedGH"),
    "the text, but header frozen": _text("FedGH", server_update="frozen"),
}
AUDIT_INSTEAD = {"the text, but header frozen": THE_TEXT}  # case -> its reference, where that is not the released code
AUDIT_PFEDES: dict[str, Fields] = {
    AS_RELEASED: _released("pFedES"),
    "mu = 0.1": _released("pFedES", params={"mu": 0.1}),
    "E_fe = 5": _released("pFedES", params={"extractor_epochs": 5}),
    **_training("pFedES"),
    THE_TEXT: _text("pFedES", mu=0.1, extractor_epochs=5),
}

_AUDIT_SMOKE: Fields = {
    "rounds": 4,
    "lr": None,
}  # the learning rates are the protocols' own: they are of what is compared

GRIDS: dict[str, Grid] = {
    "fedssa/homogeneous": Grid(_methods(*FEDSSA_TABLE1), **_ALIKE),
    "fedssa/heterogeneous": Grid(_methods(*FEDSSA_TABLE2)),
    # Results of record: Table 2's methods and those of the other two papers. No exhibit trains it.
    "fedssa/record": Grid(_methods(*FEDSSA_TABLE2, "pFedES")),
    "fedssa/representations": Grid(_methods("FedProto", "FedSSA"), columns=(10,), datasets=(0,)),
    "fedssa/classes": Grid(_methods("FedProto", "FedSSA"), sweep=CLASSES, **_HUNDRED),
    "fedssa/dirichlet": Grid(
        _methods("FedProto", "FedSSA"), sweep=ALPHA, **_HUNDRED, common={"partition": "dirichlet"}
    ),
    "fedssa/participation": Grid(_methods("FedProto", "FedSSA"), sweep=PARTICIPATION, **_HUNDRED),
    "fedssa/table4": Grid(
        {
            "case A: LG-FedAvg, unweighted": _ssa(aggregation="whole", replace="all", mu0=0.0),
            "case B: A with stabilisation": _ssa(aggregation="whole", replace="all"),
            "case C: FedSSA": _ssa(),
        },
        smoke_columns=(10,),
    ),
    "fedssa/table5": Grid(
        {
            "case A: by class, all rows replaced": _ssa(replace="all", mu0=0.0),
            "case B: by class, seen rows replaced": _ssa(mu0=0.0),
            "case C: FedSSA": _ssa(),
        },
        smoke_columns=(10,),
    ),
    "fedgh/homogeneous": Grid(_methods(*FEDGH_TABLE1), **_ALIKE),
    "fedgh/heterogeneous": Grid(_methods(*FEDGH_TABLE3), columns=(10,)),
    "fedgh/classes": Grid(_methods("LG-FedAvg", "FedProto", "FedGH"), columns=(10,), sweep=CLASSES),
    "fedgh/participation": Grid(_methods("LG-FedAvg", "FedProto", "FedGH"), sweep=PARTICIPATION, **_HUNDRED),
    "fedgh/server_lr": Grid(_methods("FedGH"), columns=(10,), sweep=SERVER_LR),
    "pfedes/homogeneous": Grid(_methods(*PFEDES_TABLES), **_ALIKE),
    "pfedes/heterogeneous": Grid(_methods(*PFEDES_TABLES)),
    "pfedes/representations": Grid(_methods("FedProto", "pFedES"), columns=(10,), datasets=(0,)),
    "pfedes/images": Grid(_methods("pFedES"), columns=(100,), datasets=(0,)),
    "pfedes/classes": Grid(_methods("FedProto", "pFedES"), sweep=CLASSES, **_HUNDRED),
    "pfedes/participation": Grid(_methods("FedProto", "pFedES"), sweep=PARTICIPATION, **_HUNDRED),
    "pfedes/mu": Grid(_methods("pFedES"), sweep=MU, **_HUNDRED),
    "pfedes/extractor_epochs": Grid(_methods("pFedES"), sweep=EXTRACTOR_EPOCHS, **_HUNDRED),
    "audit/fedssa": Grid(AUDIT_FEDSSA, **_HUNDRED, smoke=_AUDIT_SMOKE, demo={"rounds": 60}),
    "audit/fedgh": Grid(AUDIT_FEDGH, datasets=(0,), **_HUNDRED, smoke=_AUDIT_SMOKE),
    # Twenty epochs of the extractor, as shipped, are for scale smoke too many: 2 stand for 20, and 1 for 5.
    "audit/pfedes": Grid(
        AUDIT_PFEDES,
        columns=(100,),
        datasets=(0,),
        smoke={**_AUDIT_SMOKE, "extractor_epochs": 2},
        smoke_methods={
            "E_fe = 5": {"params": {"extractor_epochs": 1}},
            THE_TEXT: {"params": {"mu": 0.1, "extractor_epochs": 1}},
        },
    ),
}

# pFedHR's own world: N = 12, B = 4 active, M1..M4, Adam, a tenth of the training images public. E is the text's; T and the batch
# size are *chosen* (the released script's). Scale demo is reduced: 500 public images, one epoch at the clients and at the server,
# and bf16, in which M4 trains 3.5 times as fast on a CPU. At scale smoke a round of M4 still costs 46 times one of CNN-1: three
# clients, all active so that all are taught, have M1, M2 and M3; M4 is only among the nine that stand in for 100. Four fifths of the
# digits' training part are nobody's, 32 of them public, and 4 candidates are fine-tuned. Non-IID is four classes a client there: with
# two, a client is soon right on every test image.
_DISTRIBUTIONS: dict[str, Fields] = {"IID": {"partition": "iid"}, "Non-IID": {"partition": "by-class"}}
_LABELS = {"labelled": {"public_labels": True}, "unlabelled": {"public_labels": False}}
_HR_PAPER: Fields = {
    **{"paper": "pFedHR", "scenario": "reassembly", "num_clients": 12, "participation": 1 / 3},
    **{"rounds": 100, "local_epochs": 10, "batch_size": 10},
}
_HR_SMOKE: Fields = {
    **{
        "num_clients": 3,
        "participation": 1.0,
        "classes_per_client": 4,
        "rounds": 4,
        "local_epochs": 1,
        "batch_size": 16,
    },
    **{"public_fraction": 0.8, "public_images": 32, "server_epochs": 1, "max_candidates": 4},
}
_HR_SMOKE_MANY: Fields = {
    **_HR_SMOKE,
    **{"num_clients": 9, "participation": 1 / 3, "classes_per_client": 2, "local_epochs": 3, "public_images": 16},
}
_HR_DEMO: Fields = {
    **{"rounds": 10, "local_epochs": 1, "batch_size": 64, "public_images": 500},
    **{"server_epochs": 1, "precision": "bf16"},
}
_HR_ALL = {"smoke": ("digits",), "demo": ("mnist", "cifar10"), "paper": ("mnist", "svhn", "cifar10")}
_HR_SVHN = {"smoke": ("digits",), "demo": ("mnist",), "paper": ("svhn",)}  # at scale demo MNIST stands in
_HR_CIFAR = {"smoke": ("digits",), "demo": ("cifar10",), "paper": ("cifar10",)}


def _reassembly(
    names: Sequence[str], labels: str, data: Mapping[str, Sequence[str]], many: bool = False, **more: Any
) -> Grid:
    """A grid of section 4.2 or 4.4: `names` with labelled or unlabelled public data, IID and Non-IID; `many`: N = 100, B = 10."""
    clients = {"num_clients": 100, "participation": 0.1} if many else {}
    methods: dict[str, Fields] = _methods(*names)
    methods["pFedHR"] = {"algorithm": "pFedHR", "params": {"merge_same": True} if many else {}}
    if "FedGH" in methods:  # needs features of one width
        methods["FedGH"] = {"algorithm": "FedGH", "scenario": "reassembly-500"}
    return Grid(
        methods,
        common={**_HR_PAPER, **clients, **_LABELS[labels]},
        smoke=_HR_SMOKE_MANY if many else _HR_SMOKE,
        demo=_HR_DEMO,
        settings={f"{labels}, {name}": fields for name, fields in _DISTRIBUTIONS.items()},
        data=data,
        smoke_columns=(f"{labels}, Non-IID",) if many else (f"{labels}, IID",) if more else (),
        **more,
    )


def _pfedhr(sweep: Sweep, labels: Sequence[str] = ("labelled", "unlabelled"), **smoke: Any) -> Grid:
    """A sweep of sections 4.4 to 4.6: pFedHR on SVHN, N = 12."""
    return Grid(
        {f"pFedHR, {name}": {"algorithm": "pFedHR", **_LABELS[name]} for name in labels},
        common=_HR_PAPER,
        smoke={**_HR_SMOKE, **smoke},
        demo=_HR_DEMO,
        settings=_DISTRIBUTIONS,
        smoke_columns=("IID",),
        data=_HR_SVHN,
        sweep=sweep,
    )


GRIDS |= {
    "pfedhr/labelled": _reassembly(PFEDHR_LABELLED, "labelled", _HR_ALL),
    "pfedhr/unlabelled": _reassembly(PFEDHR_UNLABELLED, "unlabelled", _HR_ALL),
    "pfedhr/many-labelled": _reassembly(PFEDHR_LABELLED, "labelled", _HR_SVHN, many=True),
    "pfedhr/many-unlabelled": _reassembly(PFEDHR_UNLABELLED, "unlabelled", _HR_SVHN, many=True),
    "pfedhr/homogeneous": Grid(
        _methods(*PFEDHR_TABLE4),
        common=_HR_PAPER,
        smoke=_HR_SMOKE,
        demo=_HR_DEMO,
        settings={
            f"{model}, {name}": {"scenario": f"homogeneous-{model}", **fields}
            for model in ("M1", "M4")
            for name, fields in _DISTRIBUTIONS.items()
        },
        smoke_columns=("M1, IID", "M1, Non-IID"),
        data=_HR_ALL,
    ),
    "pfedhr/public-labelled": _reassembly(PFEDHR_LABELLED, "labelled", _HR_SVHN, sweep=PUBLIC_DATASET),
    "pfedhr/public-unlabelled": _reassembly(PFEDHR_UNLABELLED, "unlabelled", _HR_SVHN, sweep=PUBLIC_DATASET),
    "pfedhr/many-public-labelled": _reassembly(
        PFEDHR_LABELLED, "labelled", _HR_SVHN, many=True, sweep=PUBLIC_DATASET_MANY
    ),
    "pfedhr/many-public-unlabelled": _reassembly(
        PFEDHR_UNLABELLED, "unlabelled", _HR_SVHN, many=True, sweep=PUBLIC_DATASET_MANY
    ),
    "pfedhr/cifar-public-labelled": _reassembly(PFEDHR_LABELLED, "labelled", _HR_CIFAR, sweep=PUBLIC_DATASET),
    "pfedhr/cifar-public-unlabelled": _reassembly(PFEDHR_UNLABELLED, "unlabelled", _HR_CIFAR, sweep=PUBLIC_DATASET),
    # The shares leave the clients all other images, and all of a share are public.
    "pfedhr/public_fraction": _pfedhr(PUBLIC_FRACTION, public_images=None, rounds=3),
    "pfedhr/clusters": _pfedhr(CLUSTERS),
    "pfedhr/stitch_layers": _pfedhr(STITCH_LAYERS, ("labelled",)),
    "pfedhr/server_epochs": _pfedhr(SERVER_EPOCHS, ("labelled",)),
}


@dataclass(frozen=True)
class Exhibit:
    """One table or figure: what it shows, the notebook that makes it, and the grids of runs it reads."""

    paper: str
    item: str
    title: str
    notebook: str
    grids: tuple[str, ...] = ()  # empty: needs no run

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.item}"


def _exhibits() -> dict[str, Exhibit]:
    rows = [
        ("fedssa", "table1", "accuracy, homogeneous models", "fedssa/2_homogeneous.ipynb", "fedssa/homogeneous"),
        ("fedssa", "table2", "accuracy, heterogeneous models", "fedssa/3_heterogeneous.ipynb", "fedssa/heterogeneous"),
        ("fedssa", "table3", "the five CNNs and their sizes", "fedssa/1_method.ipynb"),
        ("fedssa", "table4", "ablation of the aggregation by class", "fedssa/6_ablations.ipynb", "fedssa/table4"),
        ("fedssa", "table5", "ablation of the parameter stabilisation", "fedssa/6_ablations.ipynb", "fedssa/table5"),
        ("fedssa", "fig3", "decay of mu", "fedssa/1_method.ipynb"),
        ("fedssa", "fig4", "accuracy of individual clients", "fedssa/3_heterogeneous.ipynb", "fedssa/heterogeneous"),
        ("fedssa", "fig5", "accuracy, communication and computation", "fedssa/3_heterogeneous.ipynb", "fedssa/heterogeneous"),
        ("fedssa", "fig6", "t-SNE of representations", "fedssa/4_representations.ipynb", "fedssa/representations"),
        ("fedssa", "fig7", "classes a client holds", "fedssa/5_robustness.ipynb", "fedssa/classes"),
        ("fedssa", "fig8", "Dirichlet partitions", "fedssa/5_robustness.ipynb", "fedssa/dirichlet"),
        ("fedssa", "fig9", "participation", "fedssa/5_robustness.ipynb", "fedssa/participation"),
        ("fedssa", "fig10", "accuracy over rounds", "fedssa/3_heterogeneous.ipynb", "fedssa/heterogeneous"),
        ("fedssa", "fig11", "with and without stabilisation, over rounds", "fedssa/6_ablations.ipynb", "fedssa/table5"),
        ("fedgh", "table1", "accuracy, homogeneous models", "fedgh/2_homogeneous.ipynb", "fedgh/homogeneous"),
        ("fedgh", "table2", "the five CNNs and their sizes", "fedgh/1_method.ipynb"),
        ("fedgh", "table3", "accuracy and communication, heterogeneous models", "fedgh/3_heterogeneous.ipynb", "fedgh/heterogeneous"),
        ("fedgh", "fig2", "accuracy over rounds", "fedgh/2_homogeneous.ipynb", "fedgh/homogeneous"),
        ("fedgh", "fig3", "classes a client holds", "fedgh/4_robustness.ipynb", "fedgh/classes"),
        ("fedgh", "fig4", "participation", "fedgh/4_robustness.ipynb", "fedgh/participation"),
        ("fedgh", "fig5", "the server's learning rate", "fedgh/5_server_lr.ipynb", "fedgh/server_lr"),
        ("pfedes", "table1", "the five CNNs and their sizes", "pfedes/1_method.ipynb"),
        ("pfedes", "table2", "accuracy, homogeneous models", "pfedes/2_homogeneous.ipynb", "pfedes/homogeneous"),
        ("pfedes", "table3", "accuracy, heterogeneous models", "pfedes/3_heterogeneous.ipynb", "pfedes/heterogeneous"),
        ("pfedes", "fig3", "accuracy over rounds", "pfedes/3_heterogeneous.ipynb", "pfedes/heterogeneous"),
        ("pfedes", "fig4", "accuracy of individual clients", "pfedes/3_heterogeneous.ipynb", "pfedes/heterogeneous"),
        ("pfedes", "fig5", "accuracy, communication and computation", "pfedes/3_heterogeneous.ipynb", "pfedes/heterogeneous"),
        ("pfedes", "fig6", "t-SNE of representations", "pfedes/4_representations.ipynb", "pfedes/representations"),
        ("pfedes", "fig7", "enhanced images", "pfedes/4_representations.ipynb", "pfedes/images"),
        ("pfedes", "fig8", "classes a client holds", "pfedes/5_robustness.ipynb", "pfedes/classes"),
        ("pfedes", "fig9", "participation", "pfedes/5_robustness.ipynb", "pfedes/participation"),
        ("pfedes", "fig10", "sensitivity to mu and E_fe", "pfedes/6_sensitivity.ipynb", "pfedes/mu", "pfedes/extractor_epochs"),
        ("pfedhr", "table2", "accuracy, heterogeneous models", "pfedhr/2_heterogeneous.ipynb", "pfedhr/labelled", "pfedhr/unlabelled"),
        ("pfedhr", "table3", "many clients", "pfedhr/2_heterogeneous.ipynb", "pfedhr/many-labelled", "pfedhr/many-unlabelled"),
        ("pfedhr", "table4", "homogeneous models", "pfedhr/3_homogeneous.ipynb", "pfedhr/homogeneous"),
        ("pfedhr", "fig1", "public data of other sets", "pfedhr/4_public_data.ipynb", "pfedhr/public-labelled", "pfedhr/public-unlabelled"),
        ("pfedhr", "fig3", "share of public data", "pfedhr/4_public_data.ipynb", "pfedhr/public_fraction"),
        ("pfedhr", "fig4", "number of clusters", "pfedhr/5_ablations.ipynb", "pfedhr/clusters"),
        ("pfedhr", "fig5", "layers of a stitch", "pfedhr/5_ablations.ipynb", "pfedhr/stitch_layers"),
        ("pfedhr", "fig6", "epochs of fine-tuning at the server", "pfedhr/5_ablations.ipynb", "pfedhr/server_epochs"),
        ("pfedhr", "fig7", "reassembled candidates", "pfedhr/1_method.ipynb", "pfedhr/labelled"),
        ("pfedhr", "appendix-fig1", "public data of other sets, many clients", "pfedhr/4_public_data.ipynb",
         "pfedhr/many-public-labelled", "pfedhr/many-public-unlabelled"),
        ("pfedhr", "appendix-fig2", "public data of other sets, labelled, CIFAR-10", "pfedhr/4_public_data.ipynb",
         "pfedhr/cifar-public-labelled"),
        ("pfedhr", "appendix-fig3", "public data of other sets, unlabelled, CIFAR-10", "pfedhr/4_public_data.ipynb",
         "pfedhr/cifar-public-unlabelled"),
    ]  # fmt: skip
    made = [Exhibit(paper, item, title, notebook, tuple(grids)) for paper, item, title, notebook, *grids in rows]
    return {exhibit.name: exhibit for exhibit in made}


EXHIBITS = _exhibits()
# Exhibits of our own: what the released code does against what the text says.
_AUDIT = [
    Exhibit("audit", "fedssa", "FedSSA, one difference at a time", "audit/1_paper_or_code.ipynb", ("audit/fedssa",)),
    Exhibit("audit", "fedgh", "FedGH, one difference at a time", "audit/1_paper_or_code.ipynb", ("audit/fedgh",)),
    Exhibit("audit", "pfedes", "pFedES, one difference at a time", "audit/1_paper_or_code.ipynb", ("audit/pfedes",)),
    Exhibit(
        *("audit", "claims", "the papers' claims, recomputed and judged", "audit/2_claims.ipynb"),
        ("fedssa/heterogeneous", "fedgh/heterogeneous", "pfedes/heterogeneous"),
    ),
    Exhibit("audit", "contradictions", "where the papers contradict each other", "audit/3_contradictions.ipynb"),
]
AUDIT = {exhibit.name: exhibit for exhibit in _AUDIT}


def every() -> dict[str, Exhibit]:
    """The 44 exhibits of the papers and the audit's."""
    return EXHIBITS | AUDIT


def choose_exhibits(name: str) -> list[Exhibit]:
    """The exhibits that `name` means: one (`fedssa/table2`), a paper's (`fedssa`), the `audit`'s, or `all`."""
    known = every()
    papers = list(dict.fromkeys(exhibit.paper for exhibit in known.values()))
    choose("exhibit", name, ["all", *papers, *known])
    return [item for item in known.values() if name in ("all", item.paper, item.name)]


def index() -> pd.DataFrame:
    """All 44 exhibits: what each shows, the notebook that makes it, and its runs at each scale."""
    rows = [
        {"exhibit": item.name, "shows": item.title, "notebook": item.notebook}
        | {f"runs, {scale}": str(len(cells(item.grids, scale))) for scale in SCALES}
        for item in EXHIBITS.values()
    ]
    return pd.DataFrame(rows).set_index("exhibit")


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the labels that the table gives it and the specification of its run.

    For runs of your own `Cell(spec=RunSpec(...))` is enough: the specification, resolved, says the rest.
    """

    method: str = ""
    dataset: str = ""
    clients: str = ""  # the setting of N and C, as printed
    target: float = 0.5  # accuracy target of the cost comparison, a fraction
    spec: RunSpec = field(default_factory=RunSpec)
    value: Any = None  # of the swept quantity
    stands_for: int | None = None  # the paper's N, where embedded data are too few for so many clients

    def __post_init__(self) -> None:
        if not (self.method and self.dataset and self.clients):
            spec = resolve(self.spec).spec
            clients = f"N = {spec.num_clients}, C = {100 * float(spec.participation or 1):g} %"
            given = {"method": self.method or spec.algorithm, "dataset": self.dataset or spec.dataset}
            for name, value in (given | {"clients": self.clients or clients, "spec": spec}).items():
                object.__setattr__(self, name, value)

    @property
    def setting(self) -> str:
        return f"{self.dataset}, {self.clients}"


def cells(
    grids: str | Sequence[str], scale: str, dataset: str = "", seeds: Sequence[int] = (), **changes: Any
) -> list[Cell]:
    """The runs of a grid, or of several, at a scale; `dataset` restricts them, `changes` replace fields of every specification."""
    choose("scale", scale, SCALES)
    distinct("seeds", seeds)
    made = []
    for name in [grids] if isinstance(grids, str) else grids:
        choose("grid", name, GRIDS)
        grid = GRIDS[name]
        every = (
            grid.data[scale]
            if grid.data
            else [name for place, name in enumerate(DATASETS[scale]) if place in grid.datasets]
        )
        for data in [dataset] if dataset else every:
            for method, own in grid.methods.items():
                fields = {**own, **(grid.smoke_methods.get(method, {}) if scale == "smoke" else {})}
                for clients, target, setting, value, published in _settings(grid, scale, data):
                    for seed in seeds or SEEDS[scale]:
                        spec = RunSpec(seed=seed, **_filled(grid, scale, data, fields, setting, value) | changes)
                        stands_for = published if scale == "smoke" and published != spec.num_clients else None
                        made.append(Cell(method, data, clients, target, _keeping(spec), value, stands_for))
    return made


def _settings(grid: Grid, scale: str, dataset: str) -> list[tuple[str, float, Fields, Any, int]]:
    """(label of N and C, accuracy target, fields, swept value, the paper's N) of a grid's columns."""
    targets = TARGETS.get(dataset, {})
    every: dict[int | str, tuple[str, Fields, float, int]]
    if grid.settings:
        stand_in = scale == "smoke" and "num_clients" in grid.smoke
        paper = int(grid.common["num_clients"])
        suffix = f", N = {grid.smoke['num_clients']} (for N = {paper})" if stand_in else ""
        every = {name: (name + suffix, own, targets.get(10, 0.5), paper) for name, own in grid.settings.items()}
    else:
        places = [place for place in grid.columns if place in SETTINGS[scale]]
        every = {place: (*SETTINGS[scale][place], targets.get(place, 0.5), place) for place in places}
    cut = scale == "smoke" and grid.smoke_columns
    columns = [column for place, column in every.items() if not cut or place in grid.smoke_columns]
    values = grid.sweep.at(scale, dataset) if grid.sweep else (None,)
    if grid.sweep is PARTICIPATION:
        columns = [
            (re.sub(r", C = \d+ %", "", label), fields, target, paper) for label, fields, target, paper in columns
        ]
    return [(label, target, fields, value, paper) for label, fields, target, paper in columns for value in values]


def _filled(grid: Grid, scale: str, dataset: str, fields: Fields, setting: Fields, value: Any) -> dict[str, Any]:
    """The fields of one specification, the more particular over the more general; what is no field of RunSpec is a
    hyper-parameter, of the methods that have it.
    """
    own = {"smoke": grid.smoke, "demo": grid.demo}.get(scale, {})
    swept = {grid.sweep.name: value} if grid.sweep else {}
    every = {"paper": "FedSSA", "scenario": "heterogeneous"} | SCALES[scale]
    for layer in (grid.common, setting, own, swept, fields):
        every |= layer
    known = {item.name for item in dataclasses.fields(RunSpec)}
    own_params = {item.name for item in dataclasses.fields(ALGORITHMS[every["algorithm"]])}
    params = {name: value for name, value in every.items() if name in own_params} | dict(fields.get("params", {}))
    return {name: value for name, value in every.items() if name in known} | {"dataset": dataset, "params": params}


def _keeping(spec: RunSpec) -> RunSpec:
    """The specification, keeping the weights that t-SNE and enhanced images need, whichever exhibit trains it first."""
    first = spec.dataset in {names[0] for names in DATASETS.values()}
    plain = spec.scenario == "heterogeneous" and spec.protocol == "paper" and spec.partition == "by-class"
    if not (first and plain and spec.classes_per_client is None and not spec.params):
        return spec
    if spec.algorithm in ("FedSSA", "FedProto", "pFedES") and spec.num_clients == 10:
        return replace(spec, keep="clients")
    if spec.algorithm == "pFedES" and spec.num_clients in (12, 100) and spec.participation in (0.5, 0.1):
        return replace(spec, keep="server")
    return spec
