"""A finished run on disk: its record, the store that holds it, and who may touch it.

`runs/<key>/` holds spec.json (what is hashed), provenance.json, rounds.csv, clients.csv, timing.csv, details.jsonl if
the method notes any, final-server.pt or final-clients.pt if kept, and DONE, written last with the SHA-256 of every
other file, below a line with its own; while unfinished, checkpoint.pt and, in the folder checkpoint.pt.clients, the
visited clients. A finished run is never recomputed; an unfinished one resumes. A damaged one is set aside and said to
be.
"""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pandas as pd
import torch

from ..errors import FedlibError, choose
from ..simulation import Outcome
from . import clientfiles, files
from .freshness import code_digest
from .places import home
from .spec import KEEP, FilledSpec, Resolved
from .tables import clients_of, rounds_of, timing_of


def store() -> Path:
    return home() / "runs"


@dataclass(frozen=True)
class Record:
    """A finished run, read from disk: tidy tables, how it ended, where it came from.

    rounds: one row a round (-1 is before training): round, selected, visited, loss, accuracy (mean over the clients
    visited so far), accuracy_all, accuracy_selected, validation_accuracy, further ways of predicting, download_words,
    upload_words, published_words, diagnostics. clients: one row a (round, participant). timing: seconds, which need not
    repeat. details: what a method noted in a round that is no single number (pFedHR's structures and distances), one a
    round that has any. files: SHA-256 of each file, by name. Accuracies are fractions of 1.
    """

    key: str
    path: Path
    spec: FilledSpec
    status: str  # finished | diverged
    digest: str  # of the final state, SHA-256
    rounds: pd.DataFrame
    clients: pd.DataFrame
    timing: pd.DataFrame
    details: list[dict[str, Any]]
    provenance: dict[str, Any]
    files: dict[str, str]
    stale: bool

    def final(self) -> pd.DataFrame:
        """Each client's last measured row."""
        return self.clients.groupby("client", as_index=False).last()


TABLES = ("rounds", "clients", "timing")
PROVENANCE = ("code", "commit", "python", "torch", "numpy", "machine", "processor", "device", "finished", "seconds")


def read(path: Path) -> Record | None:
    """The finished run in `path`, or None if unfinished. Raises FedlibError when a file is damaged or missing; weights
    (``final-*.pt``) are looked at by `weights`.
    """
    if not (path / "DONE").exists():
        return None
    try:
        done = json.loads(files.unseal((path / "DONE").read_bytes()))
        digests = done["files"]
        content = {name: (path / name).read_bytes() for name in digests if not name.startswith("final-")}
        for name in content:
            if hashlib.sha256(content[name]).hexdigest() != digests[name]:
                raise ValueError(f"{name} is not what was written")
        spec = FilledSpec.stored(json.loads(content["spec.json"])["spec"])
        provenance = json.loads(content["provenance.json"])
        for name in PROVENANCE:
            if name not in provenance:
                raise ValueError(f"provenance.json has no {name}")
        choose("status", done["status"], ("finished", "diverged"))
        rounds, clients, timing = (pd.read_csv(io.BytesIO(content[f"{name}.csv"])) for name in TABLES)
        details = [json.loads(line) for line in content.get("details.jsonl", b"").splitlines()]
        stale = provenance["code"] != code_digest(spec)
        return Record(
            path.name, path, spec, done["status"], done["state"],
            rounds, clients, timing, details, provenance, digests, stale,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FedlibError(f"run {path.name}: its record is damaged ({error or type(error).__name__})") from error


def weights(record: Record, what: str) -> Path | None:
    """The file with the weights of `what` (`server` or `clients`, whose file has the server's too), its digest checked;
    None where the run kept none. Raises FedlibError when it is damaged.
    """
    for keep in KEEP[KEEP.index(what) :]:
        file = record.path / f"final-{keep}.pt"
        if file.name not in record.files or not file.exists():
            continue
        try:
            with open(file, "rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise FedlibError(f"run {record.key}: {file.name} cannot be read ({error.strerror})") from error
        if digest != record.files[file.name]:
            raise FedlibError(f"run {record.key}: its record is damaged ({file.name} is not what was written)")
        return file
    return None


def lock_of(key: str) -> filelock.BaseFileLock:
    """Whoever computes or deletes the run holds it. Only a holder may remove the file (others then make a new one)."""
    return filelock.FileLock(store() / f".{key}.lock")


def stored() -> list[Path]:
    """Folders of the store that hold a run, finished or not, by name."""
    return sorted(path.parent for path in store().glob("*/spec.json")) if store().is_dir() else []


def state(path: Path) -> tuple[str, Record | None]:
    """A stored run's state in a word (finished, diverged, stale, unfinished, damaged, set aside), and its record if it
    is whole.
    """
    if ".stale-" in path.name or ".damaged-" in path.name:
        return "set aside", None
    try:
        record = read(path)
    except FedlibError:
        return "damaged", None
    if record is None:
        return "unfinished", None
    return ("stale" if record.stale else record.status), record


def computing(path: Path) -> bool:
    """Whether a process computes (or deletes) the run at this moment."""
    lock = lock_of(path.name)
    if not Path(lock.lock_file).exists():
        return False
    try:
        with lock.acquire(timeout=0):
            return False
    except filelock.Timeout:
        return True
    except OSError:  # a store that cannot be written
        return False


def delete(path: Path) -> None:
    """Delete a stored run that has no usable record: unfinished, stale, damaged or set aside (of a linked folder, the
    link). Raises FedlibError, and deletes nothing, when it is being computed or finished, or cannot be deleted.
    """
    try:
        with (lock := lock_of(path.name)).acquire(timeout=0):
            if state(path)[0] in ("finished", "diverged"):
                raise FedlibError(f"run {path.name}: not deleted, it is finished by now")
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
            Path(lock.lock_file).unlink(missing_ok=True)
    except filelock.Timeout:
        raise FedlibError(f"run {path.name}: not deleted, another process computes it") from None
    except OSError as error:
        raise FedlibError(f"run {path.name}: cannot be deleted ({error.strerror or error})") from error


def usable(resolved: Resolved, reuse_stale: bool, mend: bool = False) -> Record | None:
    """The stored record if it can stand for `resolved`; with `mend` (the lock is held) what cannot is set aside or
    removed.
    """
    path = store() / resolved.key
    try:
        record = read(path)
        if record is None:
            return None
        if json.loads((path / "spec.json").read_bytes()).get("hashed") != resolved.hashed:
            raise FedlibError(f"run {path.name}: its record is of another specification")
        stale, keep = record.stale and not reuse_stale, resolved.spec.keep
        whole = stale or keep == "none" or weights(record, keep) is not None
    except FedlibError as error:
        if mend:
            print(error, file=sys.stderr)
            files.set_aside(path, "damaged")
        return None
    if stale:
        if mend and resolved.info.embedded:
            shutil.rmtree(path)
        elif mend:
            files.set_aside(path, "stale")
        return None
    return record if whole else None


def write(path: Path, outcome: Outcome, spec: FilledSpec, code: str, stored: bytes) -> None:
    """Write the record of a finished run, DONE last. code: its `code_digest`; stored: the content of spec.json."""
    tables = dict(zip(TABLES, (rounds_of(outcome), clients_of(outcome), timing_of(outcome)), strict=True))
    contents: dict[str, bytes | memoryview] = {"spec.json": stored}
    contents |= {
        f"{name}.csv": table.to_csv(index=False, lineterminator="\n").encode() for name, table in tables.items()
    }
    if outcome.detail_rows:
        contents["details.jsonl"] = "".join(json.dumps(row) + "\n" for row in outcome.detail_rows).encode()
    if spec.keep != "none":
        contents[f"final-{spec.keep}.pt"] = _kept(spec.keep, outcome)
    contents["provenance.json"] = json.dumps(_provenance(spec, code, outcome.seconds), indent=1).encode()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    done = {"status": outcome.status, "state": outcome.digest(), "files": digests}
    sealed = files.seal(json.dumps(done, indent=1).encode())
    files.write_files({path / name: [content] for name, content in contents.items()} | {path / "DONE": sealed})
    for old in path.glob("final-*.pt"):
        if old.name not in contents:
            old.unlink()
    clientfiles.remove(path / "checkpoint.pt")


def _kept(keep: str, outcome: Outcome) -> memoryview:
    """The content of final-server.pt or final-clients.pt: weights only, for `torch.load(weights_only=True)`."""
    kept: dict[str, Any] = {"server": outcome.server}
    if keep == "clients":
        kept["clients"] = {client.id: client.snapshot() for client in outcome.clients if client.visited}
    buffer = io.BytesIO()
    torch.save(kept, buffer)
    return buffer.getbuffer()


def tidy(path: Path) -> None:
    """Remove a run's folder if there is nothing in it to read or to resume."""
    with suppress(OSError):
        if not (path / "checkpoint.pt").exists():
            clientfiles.remove(path / "checkpoint.pt")
        names = {item.name for item in path.iterdir()}
        if names <= {"spec.json"}:
            (path / "spec.json").unlink(missing_ok=True)
            path.rmdir()


def _commit() -> str:
    """The commit of the package's checkout, with `-modified` where its source differs from it; `unknown` outside of one."""
    folder = Path(__file__).parents[1]
    try:
        said = [
            subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--", "."))
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{said[0]}-modified" if said[1] else said[0]


def _processor() -> str:
    """The CPU's model, as Linux names it; elsewhere what Python knows of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _provenance(spec: FilledSpec, code: str, seconds: float) -> dict[str, Any]:
    return {
        "code": code,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "device": torch.cuda.get_device_name() if spec.device == "cuda" else "cpu",
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 2),
    }
