"""The results of record: committed summaries of runs on real data (``results/*.csv``), written and read as runs."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from .. import data, lab
from ..errors import FedlibError
from . import exhibits, views
from .grids import RECORD
from .results import Runs

RESULTS = lab.shipped() / "results"
PROVENANCE = ("code", "commit", "torch", "processor", "device", "seconds", "finished")  # in runs.csv


@dataclass(frozen=True)
class Recorded:
    """A committed result of record: the specification that ran, its row of runs.csv (with its provenance), its rounds and each
    client's last row. What a table reads of a `lab.Record` it has too; weights, and what a method noted in a round, it has not.
    """

    key: str
    status: str
    spec: lab.RunSpec
    row: Mapping[Any, Any]
    rounds: pd.DataFrame
    clients: pd.DataFrame

    @cached_property
    def stale(self) -> bool:
        """Whether today's code is another than the one that computed it."""
        return bool(self.row["code"] != lab.code_digest(lab.resolve(self.spec).spec))

    @property
    def provenance(self) -> dict[str, Any]:
        """Where it comes from, as far as runs.csv says so (PROVENANCE)."""
        return {name: self.row[name] for name in PROVENANCE if name in self.row}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the committed numbers (a stored run's is of its final state)."""
        tables = "".join(table.to_csv(index=False) for table in (self.rounds, self.clients))
        return hashlib.sha256(tables.encode()).hexdigest()

    @property
    def details(self) -> list[dict[str, Any]]:
        raise FedlibError(f"run {self.key}: a result of record has no details; train_cells(..., whole=True) trains it")

    def final(self) -> pd.DataFrame:
        """Each client's last measured row."""
        return self.clients.groupby("client", as_index=False).last()


def _spec(row: Mapping[Any, Any]) -> lab.RunSpec:
    """The specification in a row of runs.csv: an empty cell is None, a whole number may have come back as a fraction."""
    values: dict[str, Any] = {}
    for item in dataclasses.fields(lab.RunSpec):
        value, kind = row[item.name], item.metadata.get("kind", type(item.default))
        if item.name in ("params", "overrides"):
            values[item.name] = json.loads(value)
        elif pd.isna(value):
            values[item.name] = None
        else:
            values[item.name] = kind(value) if kind in (int, float, bool) else value
    return lab.RunSpec(**values)


def read_results() -> list[Recorded]:
    """Every result of record: small committed CSV, so that what is read from it never changes by itself."""
    return list(_read(RESULTS, *(_changed(name) for name in ("runs", "rounds", "clients"))))


def _changed(name: str) -> int:
    file = RESULTS / f"{name}.csv"
    return file.stat().st_mtime_ns if file.exists() else 0


@cache
def _read(folder: Path, *changed: int) -> tuple[Recorded, ...]:
    if not all(changed):
        return ()
    tables = {name: pd.read_csv(folder / f"{name}.csv") for name in ("runs", "rounds", "clients")}
    by_key = {name: dict(list(tables[name].groupby("key"))) for name in ("rounds", "clients")}
    return tuple(
        Recorded(
            row["key"], row["status"], _spec(row), row, by_key["rounds"][row["key"]], by_key["clients"][row["key"]]
        )
        for row in tables["runs"].to_dict("records")
    )


def by_key() -> dict[str, Recorded]:
    """The results of record by the key that each would have today.

    A run is known by its specification, resolved as it would be today. One that is there twice, under the keys of two
    versions, counts once: the one that kept most, or the last by key.
    """
    available = sorted(read_results(), key=lambda record: (lab.KEEP.index(record.spec.keep), record.key))
    return {lab.resolve(record.spec).key: record for record in available}


def load_record(grid: str, scale: str = RECORD) -> Runs:
    """The results of record (``results/*.csv``) that are runs of `grid` at `scale`; what has not been run yet is absent."""
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
        key: dataclasses.replace(known[key], key=key)
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


def say_stale(records: Sequence[Recorded]) -> str:
    """Whether some records were computed by other code than today's, and whether by different versions, in a sentence."""
    stale, codes = sum(record.stale for record in records), {record.row["commit"] for record in records}
    if not stale:
        return ""
    mixed = f", in all by {len(codes)} versions ({', '.join(sorted(map(str, codes)))})" if len(codes) > 1 else ""
    return f"{stale} of {len(records)} were computed by earlier code than today's{mixed}."


def load_maps(grid: str, scale: str = RECORD) -> pd.DataFrame:
    """The t-SNE maps of a grid's results of record (results/maps.csv), of each method's first seed: method and the columns of
    `views.map_representations`. Without rows where no such run kept its clients.
    """
    file, found = RESULTS / "maps.csv", load_record(grid, scale)
    pairs = sorted(found.pairs, key=lambda pair: pair[0].spec.seed)
    columns = ["client", "architecture", "label", "x", "y", *views.SHARES]
    table = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["key", *columns])
    chosen = {cell.method: table[table["key"] == record.key] for cell, record in reversed(pairs)}
    parts = [rows.assign(method=method) for method, rows in chosen.items() if len(rows)]
    joined = pd.concat(parts, ignore_index=True) if parts else table.assign(method=[])
    order = [method for method in exhibits.GRIDS[grid].methods if method in set(joined["method"])]
    return joined.sort_values("method", key=lambda names: names.map(order.index), kind="stable")[["method", *columns]]


def load_images(grid: str, scale: str = RECORD) -> pd.DataFrame:
    """The enhanced images of a grid's results of record (results/images.csv), of the first seed: the columns of
    `views.encode_images`. Without rows where no such run kept its extractor.
    """
    found = load_record(grid, scale)
    return _of_first_seed("images", ["row", "picture", "pixels"], found.pairs)


def load_matches(grid: str, scale: str = RECORD) -> pd.DataFrame:
    """What pFedHR's server matched (results/matches.csv) in a grid's results of record, of the first Non-IID run that has it, by
    seed: `views.list_matches`'s columns. Without rows where there is none.
    """
    found = load_record(grid, scale)
    pairs = [pair for pair in found.pairs if pair[0].spec.partition == "by-class"]
    return _of_first_seed("matches", views.MATCHES, pairs)


def _of_first_seed(name: str, columns: Sequence[str], found: Iterable[tuple[exhibits.Cell, Any]]) -> pd.DataFrame:
    """The rows of results/<name>.csv of the first record of `found`, by seed, that has some."""
    file = RESULTS / f"{name}.csv"
    table = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["key", *columns])
    pairs = sorted(found, key=lambda pair: pair[0].spec.seed)
    keys = [record.key for _, record in pairs if record.key in set(table["key"])]
    return table[table["key"].isin(keys[:1])].drop(columns="key")


def coverage(grid: str, scale: str = RECORD) -> str:
    """How much of a grid the results of record hold, in a sentence."""
    found, every = load_record(grid, scale), exhibits.cells(grid, scale)
    if not found.cells:
        return f"{grid}: no results of record yet (0 of {len(every)} runs at scale {scale})."
    settings = list(dict.fromkeys(cell.setting for cell in found.cells))
    said = f"{grid}: {len(found.cells)} of {len(every)} runs at scale {scale} are on record ({'; '.join(settings)})."
    return " ".join(filter(None, (said, say_stale(found.records))))


def export() -> int:
    """Write the finished real-data runs of the store to results/runs.csv, rounds.csv and clients.csv, the t-SNE maps of those that
    kept their clients to maps.csv, the enhanced images of pFedES's that kept their server to images.csv and what pFedHR's matched
    to whom to matches.csv, replacing rows of the same key.

    These small summaries are committed: the results of record. Returns how many runs were written.
    """
    folder = lab.home() / "results"
    tables: dict[str, list[pd.DataFrame]] = {
        name: [] for name in ("runs", "rounds", "clients", "maps", "images", "matches")
    }
    for path in lab.stored():
        record = lab.read(path)
        if record is None or record.spec.dataset in data.EMBEDDED or record.spec.dataset in data.registered():
            continue
        spec = {
            name: json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
            for name, value in vars(record.spec).items()
        }
        provenance = {name: record.provenance[name] for name in PROVENANCE}
        tables["runs"].append(pd.DataFrame([{"key": record.key, "status": record.status} | spec | provenance]))
        rounds = record.rounds.round(6)
        tables["rounds"].append(rounds.assign(key=record.key))
        tables["clients"].append(record.final().round(6).assign(key=record.key))
        if (path / "final-clients.pt").exists():
            tables["maps"].append(views.map_representations(record).round(2).assign(key=record.key))
        if record.spec.algorithm == "pFedES" and (path / "final-server.pt").exists():
            tables["images"].append(views.encode_images(views.enhance_images(record)).assign(key=record.key))
        if record.spec.algorithm == "pFedHR":
            tables["matches"].append(views.list_matches(record).assign(key=record.key))
    if not tables["runs"]:
        raise FedlibError(f"runs: no finished run on real data in {lab.store()}")
    folder.mkdir(exist_ok=True)
    for name, parts in tables.items():
        if not parts:
            continue
        file = folder / f"{name}.csv"
        new = pd.concat(parts, ignore_index=True)
        if file.exists():
            old = pd.read_csv(file)
            new = pd.concat([old[~old["key"].isin(new["key"])], new], ignore_index=True)
        order = {"runs": ["key"], "images": ["key"], "matches": ["key"], "rounds": ["key", "round"]}.get(
            name, ["key", "client"]
        )
        new = new.sort_values(order, kind="stable")[["key", *(column for column in new.columns if column != "key")]]
        lab.write_bytes(file, new.to_csv(index=False, lineterminator="\n").encode())
    return len(tables["runs"])
