"""All runs of a folder as three frames, for a notebook's cell: pandas alone, nothing is resolved, priced or trained."""

import gzip
import hashlib
import io
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ..errors import require
from . import files, places

# What a field that is younger than a stored run is in it: its neutral value (`fields.neutral(RunSpec)`, which needs torch).
NEUTRAL = {
    "metrics": "", "newcomers": 0, "newcomer_visits": 0, "deterministic": True, "schedule": "", "patience": 0,
    "budget_flops": 0.0, "budget_words": 0.0, "weights": "", "isolated": False,
}  # fmt: skip


class Tidy(NamedTuple):
    """runs: a row a run; rounds: a row a run and round (-1: before training); clients: a row a run, client and round, in results of
    record each client's last one. `key` joins them.
    """

    runs: pd.DataFrame
    rounds: pd.DataFrame
    clients: pd.DataFrame


def tidy(folder: str | Path = "all", keys: Collection[str] | None = None) -> Tidy:
    """The finished runs of a store: `record` (the results of record), `store` (your own), `all` of both, or the path of a folder of
    runs. keys: of these runs alone.

    runs has a column for each field of a specification (`algorithm`, `dataset`, `num_clients`, ..., `params.mu0`,
    `overrides.lr`), and `status`, `digest` (of the final state), `processor`, `commit`, `finished`, `seconds`. rounds and clients
    are the tables as they are stored; accuracies are fractions of 1. A run that is not as it was written is left out and named on
    standard error. Raises FedlibError where there is no such folder.
    """
    record, store = places.RESULTS / "runs", places.home() / "runs"
    named = {"record": [record], "store": [store], "all": [store, record]}
    folders = named.get(str(folder), [Path(folder).expanduser()])
    for place in folders[-1:]:
        require(place.is_dir(), "folder", str(folder), "'all', 'record', 'store' or a folder of runs")
    asked = None if keys is None else set(keys)  # of a Series, `in` asks its index
    found: dict[str, tuple[dict[str, object], dict[str, pd.DataFrame]]] = {}
    for path in (done.parent for place in folders for done in sorted(place.glob("*/DONE"))):
        if (
            (asked is not None and path.name not in asked)
            or path.name in found
            or ".stale-" in path.name
            or ".damaged-" in path.name
        ):
            continue
        try:
            found[path.name] = _read(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"run {path.name}: left out ({error or type(error).__name__})", file=sys.stderr)
    if not found:
        return Tidy(*(pd.DataFrame(columns=["key"]) for _ in Tidy._fields))
    tables = (pd.concat([own[name] for _, own in found.values()], ignore_index=True) for name in ("rounds", "clients"))
    return Tidy(pd.DataFrame([row for row, _ in found.values()]), *tables)


def _read(path: Path) -> tuple[dict[str, object], dict[str, pd.DataFrame]]:
    """A run's row and its tables, each file held to its digest."""
    done = json.loads(files.unseal(files.regular(path / "DONE").read_bytes()))
    content = {}
    for name, digest in done["files"].items():
        if name.startswith(("spec", "provenance", "rounds", "clients")):
            held = files.regular(path / name).read_bytes()
            if hashlib.sha256(held).hexdigest() != digest:
                raise ValueError(f"{name} is not what was written")
            content[name.removesuffix(".gz")] = gzip.decompress(held) if name.endswith(".gz") else held
    stored, made = json.loads(content["spec.json"]), json.loads(content["provenance.json"])
    spec = {name: value for name, value in stored["spec"].items() if not isinstance(value, dict)}
    for group in ("params", "overrides"):
        spec |= {f"{group}.{name}": value for name, value in stored["spec"].get(group, {}).items()}
    row = {"key": path.name} | NEUTRAL | spec | {"status": done["status"], "digest": files.digest(done, content)}
    row |= {name: made.get(name) for name in ("processor", "commit", "finished", "seconds")}
    tables = {
        name: pd.read_csv(io.BytesIO(content[f"{name}.csv"])).assign(key=path.name) for name in ("rounds", "clients")
    }
    return row, tables
