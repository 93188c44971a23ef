"""The results of record: committed summaries of runs on real data, a read-only store in the store's own format.

`results/runs/<key>/` holds a run's spec.json, provenance.json, rounds.csv and clients.csv (each client's last row), six
digits kept, large tables compressed, and DONE with their SHA-256: changed digits, half a file or missing rounds are
found. Beside them stands what a figure needs of the run's weights: maps.csv (t-SNE), images.csv (pFedES) and matches.csv
(pFedHR).
"""

import gzip
import io
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from .. import data, lab
from ..errors import FedlibError
from ..lab import records
from . import exhibits, views
from .grids import RECORD
from .results import Runs

RESULTS = lab.shipped() / "results"
LARGE = 32 * 1024  # bytes of a table from which on it is compressed


def read_results() -> list[lab.Record]:
    """Every result of record that is whole and that this version can read, by key; those that are not are named, once, on
    standard error.
    """
    return _read(RESULTS, _state(RESULTS))[0]


def unreadable() -> dict[str, str]:
    """The results of record that are left out, by key: why."""
    return _read(RESULTS, _state(RESULTS))[1]


def _state(folder: Path) -> tuple[Any, ...]:
    """Which runs there are and when they were written."""
    return tuple(
        (done.parent.name, *(file.stat().st_mtime_ns for file in sorted(done.parent.iterdir())))
        for done in sorted((folder / "runs").glob("*/DONE"))
    )


@cache
def _read(folder: Path, state: tuple[Any, ...]) -> tuple[list[lab.Record], dict[str, str]]:
    found, left_out = [], {}
    for key, *_ in state:
        try:
            record = lab.read(folder / "runs" / key)
            assert record is not None
            found.append(record)
        except FedlibError as error:
            left_out[key] = str(error)
    if left_out:
        print(f"{len(left_out)} of {len(state)} results of record are left out:", file=sys.stderr)
        print(*left_out.values(), sep="\n", file=sys.stderr)
    return found, left_out


def by_key() -> dict[str, lab.Record]:
    """The results of record by key, which is the key of the run that asks for the same, for ever (`fields`)."""
    return {record.key: record for record in read_results()}


def load_record(grid: str, scale: str = RECORD) -> Runs:
    """The results of record that are runs of `grid` at `scale`; what has not been run yet is absent."""
    known = by_key()
    cells = [(cell, lab.resolve(cell.spec, scale).key) for cell in exhibits.cells(grid, scale)] if known else []
    return Runs.of_pairs((cell, known[key]) for cell, key in cells if key in known)


def train_cells(cells: Sequence[exhibits.Cell], jobs: int = 2, whole: bool = False) -> Runs:
    """The runs of `cells`, each read from the store, or else from the results of record, or else trained (side by side, with a
    progress bar).

    whole: what follows needs more of a run than its rounds and each client's last row, such as weights or what a method noted
    in a round: results of record will not do. Nor do they for a cell of your own that keeps weights.
    """
    known = {} if whole else by_key()
    missing = {run.key for run in lab.missing([cell.spec for cell in cells])} if known else set()
    keys = [lab.resolve(cell.spec).key for cell in cells]
    read = {
        key: known[key]
        for cell, key in zip(cells, keys, strict=True)
        if key in missing and key in known and (cell.scale or cell.spec.keep == "none")
    }
    if read:
        print(
            " ".join(
                filter(None, (f"{len(read)} runs are of record, read from results/.", say_stale([*read.values()])))
            )
        )
    trained = iter(lab.sweep([cell.spec for cell, key in zip(cells, keys, strict=True) if key not in read], jobs=jobs))
    return Runs(list(cells), [read[key] if key in read else next(trained) for key in keys])


def say_stale(records: Sequence[lab.Record]) -> str:
    """Which of some results of record today's code computes otherwise, in a sentence; empty where it computes them all."""
    stale = [record for record in records if record.stale]
    if not stale:
        return ""
    parts = sorted({part for record in stale for part in record.moved})
    return f"{len(stale)} of {len(records)} are of earlier numbers than today's code computes ({', '.join(parts)})."


def load_maps(grid: str, scale: str = RECORD) -> pd.DataFrame:
    """The t-SNE maps of a grid's results of record, of each method's first seed: method and the columns of
    `views.map_representations`. Without rows where no such run kept its clients.
    """
    pairs = sorted(load_record(grid, scale).pairs, key=lambda pair: pair[0].spec.seed)
    columns = ["client", "architecture", "label", "x", "y", *views.SHARES]
    chosen = {cell.method: _beside(record, "maps", columns) for cell, record in reversed(pairs)}
    parts = [rows.assign(method=method) for method, rows in chosen.items() if len(rows)]
    joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["method", *columns])
    order = [method for method in exhibits.GRIDS[grid].methods if method in set(joined["method"])]
    return joined.sort_values("method", key=lambda names: names.map(order.index), kind="stable")[["method", *columns]]


def load_images(grid: str, scale: str = RECORD) -> pd.DataFrame:
    """The enhanced images of a grid's results of record, of the first seed: the columns of
    `views.encode_images`. Without rows where no such run kept its extractor.
    """
    found = load_record(grid, scale)
    return _of_first_seed("images", ["row", "picture", "pixels"], found.pairs)


def load_matches(grid: str, scale: str = RECORD) -> pd.DataFrame:
    """What pFedHR's server matched in a grid's results of record, of the first Non-IID run that has it, by
    seed: `views.list_matches`'s columns. Without rows where there is none.
    """
    found = load_record(grid, scale)
    pairs = [pair for pair in found.pairs if pair[0].spec.partition == "by-class"]
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
    said = f"{grid}: {len(found.cells)} of {len(every)} runs at scale {scale} are on record ({'; '.join(settings)})."
    return " ".join(filter(None, (said, say_stale(found.records))))


def export() -> int:
    """Add the finished real-data runs of the store to the results of record, and hand back how many of its runs are there.

    A run that is there already stays as it is, unless it is damaged, or the store's keeps more and so gives maps or images
    besides. Where the store's numbers are others than those of record, a line says so, and nothing is changed.
    """
    folder, exported = lab.home() / "results" / "runs", 0
    for path in lab.stored():
        if lab.state(path)[0] not in ("finished", "diverged"):
            continue
        record = lab.read(path)
        assert record is not None
        if record.spec.dataset in data.EMBEDDED or record.spec.dataset in data.registered():
            continue
        exported += 1
        target, contents = folder / record.key, _summary(record)
        if lab.whole(target):
            different = [
                name
                for name in contents
                if name.startswith(("rounds", "clients")) and not _same(target, name, contents)
            ]
            if different:
                print(
                    f"run {record.key}: {', '.join(different)} differs from what is of record, which stays",
                    file=sys.stderr,
                )
            if different or set(contents) <= {file.name for file in target.iterdir()}:
                continue
        said = {"status": record.status, "state": record.digest, "of_record": True}
        records.write_whole(target, contents, said)
    if not exported:
        raise FedlibError(f"runs: no finished run on real data in {lab.store()}")
    return exported


def _same(target: Path, name: str, contents: dict[str, bytes | memoryview]) -> bool:
    return (target / name).exists() and (target / name).read_bytes() == contents[name]


def _summary(record: lab.Record) -> dict[str, bytes | memoryview]:
    """The files of a result of record, of a run in the store."""
    tables = {"rounds": record.rounds.round(6), "clients": record.final().round(6)}
    if (record.path / "final-clients.pt").exists():
        tables["maps"] = views.map_representations(record).round(2).sort_values("client", kind="stable")
    if record.spec.algorithm == "pFedES" and any(
        (record.path / f"final-{kept}.pt").exists() for kept in ("server", "clients")
    ):
        tables["images"] = views.encode_images(views.enhance_images(record))
    if record.spec.algorithm == "pFedHR":
        tables["matches"] = views.list_matches(record)
    contents: dict[str, bytes | memoryview] = {
        name: (record.path / name).read_bytes() for name in ("spec.json", "provenance.json")
    }
    return contents | dict(packed(name, table) for name, table in tables.items())


def packed(name: str, table: pd.DataFrame) -> tuple[str, bytes]:
    """A table's file name in the results of record, and its content: compressed where it is large."""
    content = table.to_csv(index=False, lineterminator="\n").encode()
    if len(content) < LARGE:
        return f"{name}.csv", content
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as file:
        file.write(content)
    return f"{name}.csv.gz", buffer.getvalue()
