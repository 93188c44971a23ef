"""Which runs each table and figure of each paper needs, at each scale, and which notebook makes it.

The index lists all 44 exhibits of the four papers; those without a notebook are not reproduced yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from . import algorithms
from .errors import FedlibError, choose, require
from .runs import SCALES, RunSpec

# (N, C) columns of FedSSA's Tables 1 and 2. The embedded data are too few for 100 clients: N = 20 and 40 stand in.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "N = 10, C = 100 %": {"num_clients": 10, "participation": 1.0},
        "N = 20, C = 50 % (for N = 50)": {"num_clients": 20, "participation": 0.5},
        "N = 40, C = 25 % (for N = 100)": {"num_clients": 40, "participation": 0.25},
    },
    "demo": {
        "N = 10, C = 100 %": {"num_clients": 10, "participation": 1.0, "rounds": 10, "local_epochs": 1},
        "N = 50, C = 20 %": {"num_clients": 50, "participation": 0.2, "rounds": 30, "local_epochs": 5},
        "N = 100, C = 10 %": {"num_clients": 100, "participation": 0.1, "rounds": 30, "local_epochs": 5},
    },
    "paper": {
        "N = 10, C = 100 %": {"num_clients": 10, "participation": 1.0},
        "N = 50, C = 20 %": {"num_clients": 50, "participation": 0.2},
        "N = 100, C = 10 %": {"num_clients": 100, "participation": 0.1},
    },
}
DATASETS = {"smoke": ("digits", "digits100"), "demo": ("cifar10", "cifar100"), "paper": ("cifar10", "cifar100")}
# Accuracy targets of the cost comparisons (pFedES, section 5: 90 % on CIFAR-10; 70, 60, 50 % on CIFAR-100 by N). Those of the
# embedded data are ours.
TARGETS = {
    "cifar10": (0.9, 0.9, 0.9),
    "cifar100": (0.7, 0.6, 0.5),
    "digits": (0.7, 0.7, 0.5),
    "digits100": (0.1, 0.1, 0.1),
}
SEEDS = {"smoke": (0,), "demo": (0, 1, 2), "paper": (0, 1, 2)}

# FedSSA's Table 2, in its row order, and FedGH beside it.
FEDSSA_TABLE2 = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FedClassAvg", "FD", "FedProto", "FedGH", "FedSSA")


@dataclass(frozen=True)
class Exhibit:
    """One table or figure: what it shows, the notebook that makes it (empty: not yet), and the grid of runs it reads."""

    paper: str
    item: str
    title: str
    notebook: str = ""
    grid: str = ""  # "" needs no run; "table2" is FedSSA's heterogeneous comparison

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.item}"


def _exhibits() -> dict[str, Exhibit]:
    method, heterogeneous = "fedssa/1_method.ipynb", "fedssa/3_heterogeneous.ipynb"
    rows = [
        ("fedssa", "table1", "accuracy, homogeneous models", "", ""),
        ("fedssa", "table2", "accuracy, heterogeneous models", heterogeneous, "table2"),
        ("fedssa", "table3", "the five CNNs and their sizes", method, ""),
        ("fedssa", "table4", "ablation of the aggregation by class", "", ""),
        ("fedssa", "table5", "ablation of the parameter stabilisation", "", ""),
        ("fedssa", "fig3", "decay of mu", method, ""),
        ("fedssa", "fig4", "accuracy of individual clients", heterogeneous, "table2"),
        ("fedssa", "fig5", "accuracy, communication and computation", heterogeneous, "table2"),
        ("fedssa", "fig6", "t-SNE of representations", "", ""),
        ("fedssa", "fig7", "classes a client holds", "", ""),
        ("fedssa", "fig8", "Dirichlet partitions", "", ""),
        ("fedssa", "fig9", "participation", "", ""),
        ("fedssa", "fig10", "accuracy over rounds", heterogeneous, "table2"),
        ("fedssa", "fig11", "with and without stabilisation, over rounds", "", ""),
        ("fedgh", "table1", "accuracy, homogeneous models", "", ""),
        ("fedgh", "table2", "the five CNNs and their sizes", "", ""),
        ("fedgh", "table3", "accuracy and communication, heterogeneous models", "", ""),
        ("fedgh", "fig2", "accuracy over rounds", "", ""),
        ("fedgh", "fig3", "classes a client holds", "", ""),
        ("fedgh", "fig4", "participation", "", ""),
        ("fedgh", "fig5", "the server's learning rate", "", ""),
        ("pfedes", "table1", "the five CNNs and their sizes", "", ""),
        ("pfedes", "table2", "accuracy, homogeneous models", "", ""),
        ("pfedes", "table3", "accuracy, heterogeneous models", "", ""),
        ("pfedes", "fig3", "accuracy over rounds", "", ""),
        ("pfedes", "fig4", "accuracy of individual clients", "", ""),
        ("pfedes", "fig5", "accuracy, communication and computation", "", ""),
        ("pfedes", "fig6", "t-SNE of representations", "", ""),
        ("pfedes", "fig7", "enhanced images", "", ""),
        ("pfedes", "fig8", "classes a client holds", "", ""),
        ("pfedes", "fig9", "participation", "", ""),
        ("pfedes", "fig10", "sensitivity to mu and E_fe", "", ""),
        *[
            ("pfedhr", item, title, "", "")
            for item, title in (
                ("table2", "accuracy, heterogeneous models"), ("table3", "many clients"), ("table4", "homogeneous models"),
                ("fig1", "public data of other sets"), ("fig3", "public data of other sets, by data set"), ("fig4", "share of public data"),
                ("fig5", "number of stitching layers"), ("fig6", "number of clusters"), ("fig7", "reassembled candidates"),
                ("appendix-fig1", "convergence"), ("appendix-fig2", "convergence"), ("appendix-fig3", "convergence"),
            )
        ],
    ]  # fmt: skip
    return {f"{row[0]}/{row[1]}": Exhibit(*row) for row in rows}


EXHIBITS = _exhibits()


def choose_exhibits(name: str) -> list[Exhibit]:
    """The exhibits that `name` means: one (`fedssa/table2`), a paper's (`fedssa`), or `all`; only those that exist."""
    papers = list(dict.fromkeys(exhibit.paper for exhibit in EXHIBITS.values()))
    choose("exhibit", name, ["all", *papers, *EXHIBITS])
    if name in EXHIBITS and not EXHIBITS[name].notebook:
        raise FedlibError(
            f"exhibit = {name!r} is not reproduced yet; `python -m fedlib reproduce --help` lists those that are"
        )
    return [item for item in EXHIBITS.values() if item.notebook and (name in ("all", item.paper, item.name))]


NOT_YET = "not yet"


def index() -> pd.DataFrame:
    """All 44 exhibits: what each shows, the notebook that makes it, and its runs at each scale."""
    rows = [
        {"exhibit": item.name, "shows": item.title, "notebook": item.notebook or NOT_YET}
        | {f"runs, {scale}": str(len(cells(item.grid, scale))) if item.notebook else "–" for scale in SCALES}
        for item in EXHIBITS.values()
    ]
    return pd.DataFrame(rows).set_index("exhibit")


@dataclass(frozen=True)
class Cell:
    """One cell of a grid: the labels that a table gives it and the specification of its run."""

    method: str
    dataset: str
    clients: str  # the setting of N and C, as printed
    target: float  # accuracy target of the cost comparison, a fraction
    spec: RunSpec

    @property
    def setting(self) -> str:
        return f"{self.dataset}, {self.clients}"


def cells(grid: str, scale: str, dataset: str = "", seeds: Sequence[int] = (), **changes: Any) -> list[Cell]:
    """The runs of a grid at a scale; `dataset` restricts them, `changes` replace fields of every specification.

    Methods that are in the paper's table but not in ALGORITHMS yet are left out.
    """
    choose("scale", scale, SCALES)
    require(grid in ("", "table2"), "grid", grid, "table2, or empty for an exhibit without runs")
    if not grid:
        return []
    made = []
    for name in [dataset] if dataset else DATASETS[scale]:
        targets = TARGETS.get(name, (0.5, 0.5, 0.5))
        for (clients, setting), target in zip(SETTINGS[scale].items(), targets, strict=True):
            for method in (method for method in FEDSSA_TABLE2 if method in algorithms.ALGORITHMS):
                for seed in seeds or SEEDS[scale]:
                    fields = {"batch_size": SCALES[scale]["batch_size"]} | SCALES[scale] | setting | {"dataset": name}
                    spec = replace(RunSpec(algorithm=method, seed=seed, paper="FedSSA"), **(fields | changes))
                    made.append(Cell(method, name, clients, target, spec))
    return made
