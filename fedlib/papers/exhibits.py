"""Every table and figure of the four papers, and the audit's: which runs each needs at each scale, and which notebook makes it.

A paper's exhibits are declared in its own module, each in one place; grids of different papers name the same runs where the papers
ask the same, so that those train once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..errors import choose
from ..lab import SCALES
from . import audit, fedgh, fedssa, grids, pfedes, pfedhr
from .audit import (
    AS_RELEASED,
    AUDIT_FEDGH,
    AUDIT_FEDSSA,
    AUDIT_INSTEAD,
    AUDIT_PFEDES,
    CONTROLS,
    LONG_HISTORY,
    PRECISIONS_INSTEAD,
    THE_TEXT,
    WITHOUT_HISTORY,
)
from .fedgh import FEDGH_TABLE1, FEDGH_TABLE3, SERVER_LR
from .fedssa import ALPHA, FEDSSA_TABLE1, FEDSSA_TABLE2
from .grids import CLASSES, DATASETS, LAYERS, PARTICIPATION, SEEDS, TARGETS, Cell, Exhibit, Grid, Paper, Sweep
from .pfedes import EXTRACTOR_EPOCHS, MU, PFEDES_TABLES
from .pfedhr import (
    CLUSTERS,
    PFEDHR_LABELLED,
    PFEDHR_TABLE4,
    PFEDHR_UNLABELLED,
    PUBLIC_DATASET,
    PUBLIC_DATASET_MANY,
    PUBLIC_FRACTION,
    SERVER_EPOCHS,
    STITCH_LAYERS,
)

__all__ = [
    "ALPHA",
    "AS_RELEASED",
    "AUDIT",
    "AUDIT_FEDGH",
    "AUDIT_FEDSSA",
    "AUDIT_INSTEAD",
    "AUDIT_PFEDES",
    "CHOSEN",
    "CLASSES",
    "CLUSTERS",
    "CONTROLS",
    "DATASETS",
    "EXHIBITS",
    "EXTRACTOR_EPOCHS",
    "FEDGH_TABLE1",
    "FEDGH_TABLE3",
    "FEDSSA_TABLE1",
    "FEDSSA_TABLE2",
    "GRIDS",
    "LAYERS",
    "LONG_HISTORY",
    "MU",
    "PAPERS",
    "PARTICIPATION",
    "PFEDES_TABLES",
    "PRECISIONS_INSTEAD",
    "PFEDHR_LABELLED",
    "PFEDHR_TABLE4",
    "PFEDHR_UNLABELLED",
    "PUBLIC_DATASET",
    "PUBLIC_DATASET_MANY",
    "PUBLIC_FRACTION",
    "SCALES",
    "SEEDS",
    "SERVER_EPOCHS",
    "SERVER_LR",
    "STITCH_LAYERS",
    "TARGETS",
    "THE_TEXT",
    "WITHOUT_HISTORY",
    "Cell",
    "Exhibit",
    "Grid",
    "Paper",
    "Sweep",
    "cells",
    "choose_exhibits",
    "every",
    "index",
]

PAPERS: tuple[Paper, ...] = (fedssa.PAPER, fedgh.PAPER, pfedes.PAPER, pfedhr.PAPER)
# Of the papers, and of our own: what the released code does against what the text says.
EXHIBITS: dict[str, Exhibit] = {item.name: item for paper in PAPERS for item in paper.exhibits}
AUDIT: dict[str, Exhibit] = {item.name: item for item in audit.PAPER.exhibits}
GRIDS: dict[str, Grid] = {
    grid.name: grid
    for paper in (*PAPERS, audit.PAPER)
    for grid in (*(grid for item in paper.exhibits for grid in item.runs), *paper.further)
}

# What the three texts leave open at scale `paper`, and what is *chosen* there: the released scripts' defaults.
CHOSEN = {
    "rounds": "500, of the text's {100, 500}",
    "local_epochs": "10, of {1, 10} (FedGH: of {1, 10, 30, 50, 100})",
    "batch_size": "512, of {64, 128, 256, 512} (FedGH: also 32)",
    "stable_rounds": "20 of 500 rounds in proportion, FedSSA's Figure 3; the text searches",
    "mu and extractor_epochs": "0.1 and 5, best of pFedES's Figure 10; the text searches",
    "hyper-parameters of the baselines": "each method's defaults; the text searches",
}


def every() -> dict[str, Exhibit]:
    """All exhibits: the papers', in their order, and the audit's."""
    return EXHIBITS | AUDIT


def choose_exhibits(name: str) -> list[Exhibit]:
    """The exhibits that `name` means: one (`fedssa/table2`), a paper's (`fedssa`), the `audit`'s, or `all`."""
    known = every()
    papers = list(dict.fromkeys(exhibit.paper for exhibit in known.values()))
    choose("exhibit", name, ["all", *papers, *known])
    return [item for item in known.values() if name in ("all", item.paper, item.name)]


def index(chosen: Mapping[str, Exhibit] | None = None) -> pd.DataFrame:
    """The papers' exhibits, or those `chosen`: what each shows, the notebook that makes it, and its runs at each scale."""
    rows = [
        {"exhibit": item.name, "shows": item.title, "notebook": item.notebook}
        | {f"runs, {scale}": str(len(cells(item.grids, scale))) for scale in SCALES}
        for item in (EXHIBITS if chosen is None else chosen).values()
    ]
    return pd.DataFrame(rows).set_index("exhibit")


def cells(
    names: str | Sequence[str], scale: str, dataset: str = "", seeds: Sequence[int] = (), **changes: Any
) -> list[Cell]:
    """The runs of a grid, or of several, at a scale; `dataset` restricts them, `changes` replace fields of every specification."""
    choose("scale", scale, SCALES)
    kept = grids.needed_weights(list(GRIDS.values()), scale)
    made = []
    for name in [names] if isinstance(names, str) else names:
        choose("grid", name, GRIDS)
        made += grids.cells(GRIDS[name], scale, dataset, seeds, kept, **changes)
    return made
