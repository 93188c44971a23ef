"""The runs of exhibits: read from the store, from the results of record, or trained."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from .. import lab
from ..lab import of_record
from . import exhibits, planned, views
from .exhibits import RECORD
from .results import Runs


def load_record(grid: str, scale: str = RECORD) -> Runs:
    """The results of record that are runs of `grid` at `scale`, those of further seeds that the plan names included; what has not
    been run yet is absent, and so is what the plan shows in other grids alone.
    """
    apart = planned.elsewhere(grid)
    known = {key: record for key, record in of_record.by_key().items() if key not in apart}
    seeds = sorted({*exhibits.SEEDS[scale], *(planned.seeds() if scale == RECORD else ())})
    pairs = []
    for cell in exhibits.cells(grid, scale, seeds=(0,)) if known else []:
        run = lab.resolve(cell.spec, scale)
        for seed in seeds:
            if record := known.get(run.of_seed(seed).key):
                pairs.append((replace(cell, spec=replace(cell.spec, seed=seed)), record))
    return Runs.of_pairs(pairs)


def train_cells(cells: Sequence[exhibits.Cell], jobs: int = 2, whole: bool = False) -> Runs:
    """The runs of `cells`, each read or trained: `lab.gather`."""
    found = lab.gather([cell.spec for cell in cells], jobs, whole)
    pairs = [(cell, lab.resolve(cell.spec).key) for cell in cells]
    return Runs.of_pairs([(cell, found[key]) for cell, key in pairs if key in found])


def load_maps(grid: str) -> pd.DataFrame:
    """The t-SNE maps of a grid's results of record, of each method's first seed: method and the columns of
    `views.map_representations`. Without rows where no such run kept its clients.
    """
    pairs = sorted(load_record(grid).pairs, key=lambda pair: pair[0].spec.seed)
    columns = ["client", "architecture", "label", "x", "y", *views.SHARES]
    chosen = {cell.method: _beside(record, "maps", columns) for cell, record in reversed(pairs)}
    parts = [rows.assign(method=method) for method, rows in chosen.items() if len(rows)]
    joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["method", *columns])
    order = [method for method in exhibits.GRIDS[grid].methods if method in set(joined["method"])]
    return joined.sort_values("method", key=lambda names: names.map(order.index), kind="stable")[["method", *columns]]


def load_images(grid: str) -> pd.DataFrame:
    """The enhanced images of a grid's results of record, of the first seed: the columns of
    `views.encode_images`. Without rows where no such run kept its extractor.
    """
    return _of_first_seed("images", ["row", "picture", "pixels"], load_record(grid).pairs)


def load_matches(grid: str) -> pd.DataFrame:
    """What pFedHR's server matched in a grid's results of record, of the first Non-IID run that has it, by
    seed: `views.list_matches`'s columns. Without rows where there is none.
    """
    pairs = [pair for pair in load_record(grid).pairs if pair[0].spec.partition == "by-class"]
    return _of_first_seed("matches", views.MATCHES, pairs)


def _of_first_seed(name: str, columns: Sequence[str], found: Iterable[tuple[exhibits.Cell, Any]]) -> pd.DataFrame:
    """The rows of <name>.csv of the first record of `found`, by seed, that has some."""
    for _, record in sorted(found, key=lambda pair: pair[0].spec.seed):
        table = _beside(record, name, columns)
        if len(table):
            return table
    return pd.DataFrame(columns=list(columns))


def _beside(record: Any, name: str, columns: Sequence[str]) -> pd.DataFrame:
    """The table <name>.csv that a result of record has beside its own; without rows where it has none."""
    for file in (f"{name}.csv", f"{name}.csv.gz"):
        if file in record.files:
            return pd.read_csv(record.path / file)
    return pd.DataFrame(columns=list(columns))


def coverage(grid: str, scale: str = RECORD) -> str:
    """How much of a grid the results of record hold, in a sentence."""
    found, every = load_record(grid, scale), exhibits.cells(grid, scale)
    if not found.cells:
        return f"{grid}: no results of record yet (0 of {len(every)} runs at scale {scale})."
    settings = list(dict.fromkeys(cell.setting for cell in found.cells))
    own = sum(cell.spec.seed in exhibits.SEEDS[scale] for cell in found.cells)
    more = f", and {len(found.cells) - own} of further seeds" if own < len(found.cells) else ""
    said = f"{grid}: {own} of {len(every)} runs at scale {scale} are on record{more} ({'; '.join(settings)})."
    return " ".join(filter(None, (said, of_record.stale(found.records))))
