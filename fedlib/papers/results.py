"""The finished runs of exhibits, side by side with the cells that asked for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import data, lab
from ..show import intervals
from .exhibits import Cell


@dataclass(frozen=True)
class Runs:
    """Cells and their records, side by side."""

    cells: list[Cell]
    records: list[lab.Record]


def train_cells(cells: Sequence[Cell], jobs: int = 2, whole: bool = False) -> Runs:
    """The runs of `cells`, each read or trained: `lab.gather`. Of scale record they are read, and trained by `fedlib
    reproduce`, unless their weights or details are wanted (whole).
    """
    jobs = 0 if not whole and any(cell.scale == "record" for cell in cells) else jobs
    found = lab.gather([cell.spec for cell in cells], jobs, whole)
    pairs = [(cell, lab.resolve(cell.spec).key) for cell in cells]
    return Runs([cell for cell, key in pairs if key in found], [found[key] for _, key in pairs if key in found])


def check_training(records: Sequence[Any], *methods: str) -> None:
    """Print whether training trained, for all records and for those of each of `methods` (algorithms): facts so coarse that they
    do not depend on the machine, for nbval to check.

    Both are means over runs of the clients that trained, in units of chance, 1 / number of classes: `above their start` is a
    rise by at least 1.5 of it from the accuracy before training (round -1) to the last one, `above chance` at least twice it.
    FedSSA's mu makes a client prefer its own classes without any training, so FedSSA alone proves little: name another method
    beside it, or hand in runs with mu0 = 0.
    """
    measured = [(record.spec.algorithm, *_gain(record)) for record in records]
    for name in ("all runs", *methods):
        rows = np.array([numbers for algorithm, *numbers in measured if name in ("all runs", algorithm)])
        if not len(rows):
            print(f"{name}: not among these runs")
            continue
        rise, end = rows.mean(axis=0)
        said = {"above their start": rise >= 1.5, "above chance": end >= 2}
        print(
            f"{name}: trained clients end",
            "; ".join(f"{fact}: {'ok' if holds else 'NO'}" for fact, holds in said.items()),
        )


def _gain(record: Any) -> tuple[float, float]:
    """(rise since before training, last accuracy) of a run: means over the clients that trained, in units of chance. A result of
    record has no client's accuracy before training, so there it is the mean over all.
    """
    classes = data.info(str(record.spec.dataset)).num_classes
    before = record.clients[record.clients["round"] < 0].set_index("client")["accuracy"]
    last = intervals.trained(record.clients).groupby("client")["accuracy"].last()
    if before.empty:
        start = record.rounds.loc[record.rounds["round"] < 0, "accuracy_all"].mean()
        return classes * float(last.mean() - start), classes * float(last.mean())
    return classes * float((last - before[last.index]).mean()), classes * float(last.mean())
