"""Made-up results of record, as `recorded.export` writes them, records that were never stored, and notebooks' settings."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import IPython
import pandas as pd

from fedlib import RunSpec, lab
from fedlib.lab import records
from fedlib.papers import exhibits, notebook, recorded, stamps

PROVENANCE = {
    "commit": "a",
    "torch": "2",
    "processor": "p",
    "device": "cpu",
    "seconds": 60.0,
    "finished": "2026-01-01T00:00:00Z",
}


def settings(**changed: Any) -> notebook.Parameters:
    """`notebook.settings` with every parameter at its default but those of `changed`."""
    return notebook.settings(**{name: default for name, (_, default, _) in notebook.PARAMETERS.items()} | changed)


def of_record(
    key: str, spec: Any = None, rounds: Any = None, clients: Any = None, *, status: str = "finished", **provenance: Any
) -> lab.Record:
    """A result of record that no file holds; without tables, they are empty."""
    empty = pd.DataFrame()
    resolved = lab.resolve(spec) if spec is not None else None
    return lab.Record(
        key, Path(key), resolved.spec if resolved else lab.FilledSpec(), status, "digest",
        empty if rounds is None else rounds, empty if clients is None else clients,
        provenance=PROVENANCE | provenance, hashed=resolved.hashed if resolved else {}, of_record=True,
    )  # fmt: skip


def write_record(folder: Path, spec: RunSpec, rounds: pd.DataFrame, clients: pd.DataFrame, **more: Any) -> Path:
    """The result of record of a specification with these numbers, in `folder`/runs; more: tables beside them, and what
    its provenance says.
    """
    resolved = lab.resolve(spec)
    tables = {"rounds": rounds, "clients": clients} | {
        n: more.pop(n) for n in list(more) if isinstance(more[n], pd.DataFrame)
    }
    contents = {
        "spec.json": json.dumps({"spec": dataclasses.asdict(resolved.spec), "hashed": resolved.hashed}).encode(),
        "provenance.json": json.dumps(PROVENANCE | {"numerics": resolved.numerics} | more).encode(),
    } | dict(recorded.packed(name, table) for name, table in tables.items())
    path = folder / "runs" / resolved.key
    records.write_whole(path, contents, {"status": "finished", "state": "", "of_record": True})
    return path


def write_results(folder: Path, cells: Any, gains: Mapping[str, float] = {}, **provenance: Any) -> None:
    """The results of record of `cells` in `folder`, and none besides; gains: method -> what its accuracy is above that of
    others, of client 1 twice that, of client 2 nothing.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for cell in cells:
        count = lab.resolve(cell.spec).spec.rounds
        rows = []
        for number in range(-1, count):
            accuracy = 0.1 + 0.6 * (number + 1) / count + cell.spec.seed / 100 + gains.get(cell.method, 0)
            means = dict.fromkeys(("accuracy", "accuracy_all", "accuracy_selected", "validation_accuracy"), accuracy)
            sent = dict.fromkeys(("download_words", "upload_words", "published_words"), 1000.0)
            counted = {"selected": 10, "visited": 10, "samples": 1, "loss": 1 - accuracy}
            rows.append({"round": number} | counted | means | sent)
        more = gains.get(cell.method, 0)
        each = [accuracy, accuracy + more, accuracy - more]
        named = {"round": number, "architecture": "CNN-1"}
        clients = [{"client": client} | named | {"accuracy": own} for client, own in enumerate(each)]
        write_record(folder, cell.spec, pd.DataFrame(rows), pd.DataFrame(clients), **provenance)
    folder.mkdir(parents=True, exist_ok=True)


def drawing(monkeypatch: Any, name: str) -> None:
    """From now on the cell of its notebook that draws this exhibit is being executed."""
    (source,) = [own for own in stamps._code(exhibits.every()[name].notebook) if f'save_figure("{name}"' in own][:1]
    shell = SimpleNamespace(get_parent=lambda: {"content": {"code": source}}, user_ns={"In": [""]})
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
