"""The results of record: small tables of the finished real-data runs of a store, which are committed."""

import json

import pandas as pd

from .. import data, lab
from ..errors import FedlibError
from . import views


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
        provenance = {name: record.provenance[name] for name in ("code", "commit", "torch", "device", "seconds")}
        tables["runs"].append(pd.DataFrame([{"key": record.key, "status": record.status} | spec | provenance]))
        rounds = record.rounds.round(6)
        tables["rounds"].append(rounds.assign(key=record.key))
        tables["clients"].append(record.final().round(6).assign(key=record.key))
        if (path / "final-clients.pt").exists():
            tables["maps"].append(views.mapped(record).round(2).assign(key=record.key))
        if record.spec.algorithm == "pFedES" and (path / "final-server.pt").exists():
            tables["images"].append(views.pixels(views.enhanced(record)).assign(key=record.key))
        if record.spec.algorithm == "pFedHR":
            tables["matches"].append(views.matches(record).assign(key=record.key))
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
