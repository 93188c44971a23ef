"""The results of record: committed summaries of runs on real data, a read-only store in the store's own format.

`results/runs/<key>/` holds a run's spec.json, provenance.json, rounds.csv and clients.csv (each client's last row), six
digits kept, large tables compressed, and DONE with their SHA-256: changed digits, half a file or missing rounds are
found. Beside them stands what a figure needs of the run's weights: maps.csv (t-SNE), images.csv (pFedES) and matches.csv
(pFedHR).
"""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from .. import data, lab
from ..errors import FedlibError
from ..lab import estimates, of_record, records
from . import views

LARGE = 32 * 1024  # bytes of a table from which on it is compressed


def timed() -> list[estimates.Timed]:
    """Runs of the store and of record, with the seconds that they took: what estimates of time go by."""
    return estimates.timed() + estimates.Timed.of(of_record.read_results())


def beside(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """What results of record keep of a run's weights (`maps`, `images`, `matches`): the rows of <name>.csv of each run of a `frame`
    (`exhibits.frame`) that has it, after the run's key, method and seed. Without rows where none has.
    """
    known, parts = of_record.by_key(), []
    for key, method, seed in frame[["key", "method", "seed"]].itertuples(index=False):
        files = [known[key].path / f"{name}.csv{kind}" for kind in ("", ".gz")] if key in known else []
        for file in filter(Path.exists, files):
            parts.append(pd.read_csv(file).assign(key=key, method=method, seed=seed))
    made = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return made.reindex(columns=list(dict.fromkeys(["key", "method", "seed", *made.columns])))


def other_decay(resolved: lab.Resolved) -> lab.Record | None:
    """A result of record that differs from a run in its weight decay alone, whatever the seed; None where there is none, and where
    the run is a seed of what is on record. FedGH's and pFedES's own decay is not that of their rows of record, which share one
    training with FedSSA's table.
    """
    asked, decay = _but_for_decay(resolved.hashed)
    alike = {}
    for record in of_record.read_results():
        other, its = _but_for_decay(record.hashed)
        if other == asked:
            alike[its] = record
    return None if decay in alike else next(iter(alike.values()), None)


def _but_for_decay(hashed: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """What a key is made of without the seed and the weight decay, and the weight decay."""
    protocol = dict(hashed["protocol"])
    decay = protocol.pop("weight_decay")
    return hashed | {"protocol": protocol, "seed": 0}, decay


def export() -> int:
    """Add the finished real-data runs of the store to the results of record, and hand back how many of its runs are there.

    A run that is there already stays as it is, unless it is damaged, or the store's keeps more and so gives maps or images
    besides. Where the store's numbers are others than those of record, a line says so, and nothing is changed.
    """
    folder, exported = lab.home() / "results" / "runs", 0
    for path in lab.stored():
        state, record = lab.state(path)
        if record is None or state not in ("finished", "diverged"):
            continue
        if record.spec.dataset in data.EMBEDDED or record.spec.dataset in data.registered():
            continue
        exported += 1
        target, contents = folder / record.key, _summary(record)
        if lab.whole(target):
            held = {file.name: file.read_bytes() for file in target.iterdir()}
            numbers = [name for name in contents if name.startswith(("rounds", "clients"))]
            different = [name for name in numbers if held.get(name) != contents[name]]
            if different:
                print(
                    f"run {record.key}: {', '.join(different)} differs from what is of record, which stays",
                    file=sys.stderr,
                )
            if different or contents.keys() <= held.keys():
                continue
        said = {"status": record.status, "state": record.digest, "of_record": True}
        records.write_whole(target, contents, said)
    if not exported:
        raise FedlibError(f"runs: no finished run on real data in {lab.store()}")
    return exported


def _summary(record: lab.Record) -> dict[str, bytes | memoryview]:
    """The files of a result of record, of a run in the store."""
    tables = {"rounds": record.rounds.round(6), "clients": record.final().round(6)}
    tables |= {"flops": record.flops} if len(record.flops) else {}
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
