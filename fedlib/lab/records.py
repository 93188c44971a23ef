"""A finished run on disk: its record, the store that holds it, and the lock that protects it.

`runs/<key>/` holds spec.json (what is hashed), provenance.json, rounds.csv, clients.csv, timing.csv, newcomers.csv if
newcomers were visited, flops.csv of a large run (`costs.LARGE`), details.jsonl if the method notes any, final-
server.pt or final-clients.pt if kept, and DONE, written last with the SHA-256 of every other file, below a line with
its own; while unfinished, checkpoint.pt and, in the folder checkpoint.pt.clients, the visited clients. A finished run
is never recomputed; an unfinished one resumes. A damaged one is renamed and reported. A run that is whole is never
deleted, whatever version of fedlib computed it: one that this version cannot read is skipped and named, one whose
numbers today's code computes differently is renamed when it is asked for again.

The results of record (`fedlib.papers.recorded`) are such folders too, without weights, timing and details, and with
large tables compressed (`rounds.csv.gz`).
"""

import gzip
import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from .. import devices, numerics, training
from ..algorithms import Algorithm
from ..errors import FedlibError, choose, coerce, require, told
from ..federation import Client
from ..simulation import Outcome
from . import clientfiles, costs, files
from .build import federation_of
from .places import home
from .progress import notice
from .spec import KEEP, FilledSpec, Resolved, resolve
from .tables import clients_of, rounds_of


def store() -> Path:
    return home() / "runs"


class Unreadable(FedlibError):
    """A run that is whole by its own digests, of which this version of fedlib cannot make sense."""


@dataclass(frozen=True)
class Record:
    """A finished run, read from disk: tidy tables, how it ended, where it came from.

    rounds: one row per round (-1 is before training): round, selected, visited, loss, accuracy (mean over the clients
    visited so far), accuracy_all, accuracy_selected, validation_accuracy, further ways of predicting, download_words,
    upload_words, published_words, diagnostics. clients: one row per round and participant, in a result of record each
    client's last one. newcomers: of a run with `newcomer_visits`, one row per newcomer and number of visits: client,
    architecture, visits (-1: its initial network, 0: after the download, 1, ...: after so many visits of E local epochs
    on it), download_words, loss, accuracy and what else `clients` has. timing: seconds, which need not repeat. hashed:
    what the key is a hash of. files: SHA-256 of each
    file, by name. of_record: whether it is a committed result of record. Accuracies are fractions of 1.
    """

    key: str
    path: Path
    spec: FilledSpec
    status: str  # finished | diverged
    digest: str  # of the final state, SHA-256; of a result of record that does not have it, of its numbers
    rounds: pd.DataFrame
    clients: pd.DataFrame
    timing: pd.DataFrame = field(default_factory=pd.DataFrame)
    newcomers: pd.DataFrame = field(default_factory=pd.DataFrame)
    flops: pd.DataFrame = field(
        default_factory=pd.DataFrame
    )  # round, flops so far, if counted at its end: `costs.of_run`
    noted: list[dict[str, Any]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    hashed: dict[str, Any] = field(default_factory=dict)
    of_record: bool = False

    def __repr__(self) -> str:
        """One line, as a prompt shows it."""
        rounds = int((self.rounds["round"] >= 0).sum())
        return f"Record({self.key}, {self.status}, {rounds} rounds, accuracy {self.rounds['accuracy'].iloc[-1]:.4f})"

    @property
    def moved(self) -> list[str]:
        """The parts of fedlib whose numbers have changed since the run was computed, see `numerics`."""
        return numerics.moved(self.hashed, self.provenance.get("numerics")) if self.hashed else []

    @property
    def stale(self) -> bool:
        """Whether today's code computes other numbers."""
        return bool(self.moved)

    @property
    def details(self) -> list[dict[str, Any]]:
        """What a method noted in a round that is no single number (pFedHR's structures and distances), one entry a
        round that has any. Raises FedlibError for a result of record, which does not have it.
        """
        if self.of_record:
            said = "a result of record has no details; train_cells(..., whole=True) trains it"
            raise FedlibError(f"run {self.key}: {said}")
        return self.noted

    def final(self) -> pd.DataFrame:
        """Each client's last measured row."""
        return self.clients.groupby("client", as_index=False).last()

    def client(self, id: int) -> nn.Module:
        """What client `id` predicts with as the run left it, on the CPU, in fp32 and in evaluation mode: samples, normalised as in
        training, to the logits of its recorded accuracy. Its network or, where the method predicts with more than that,
        a `Predictor`. Raises FedlibError where the run did not keep its clients (`keep="clients"`) or never visited this one.
        """
        return self._handed(id)[0]

    def _handed(self, id: int) -> tuple[nn.Module, Tensor, dict[str, str]]:
        """What `client` hands out, two of the client's samples, and what is said of it in a file."""
        snapshots = load_weights(self, "clients")["clients"]
        id = coerce("client", id, int)
        visited = f"one that was visited: {', '.join(map(str, sorted(snapshots)[:20]))}"
        require(id in snapshots, "client", id, visited + (", ..." if len(snapshots) > 20 else ""))
        resolved = resolve(replace(self.spec, device="cpu", precision="fp32"))
        client = federation_of(resolved).clients[id]
        client.restore(snapshots[id])
        handed, pool = Predictor(resolved.simulated, client).eval(), client.whole
        measured = torch.cat([client.test, client.validation])
        alone, together = (training.outputs(network, pool, measured) for network in (handed.model, handed))
        scales = {
            name: json.dumps(scale.flatten().tolist()) for name, scale in (("mean", pool.mean), ("std", pool.std))
        }
        said = {"run": self.key, "client": str(id), "architecture": client.info.architecture} | scales
        return handed.model if torch.equal(alone, together) else handed, pool.batch(measured[[0, 0, -1]]), said

    def save(self, id: int, path: str | Path) -> Path:
        """Write what `client` hands out to a file: `.pt2`, a program from samples (any number) to logits, which
        `torch.export.load(path).module()` reads without fedlib; or `.safetensors`, the weights of a network, which
        `safetensors.torch.load_file` reads for the `load_state_dict` of `models.build(architecture, num_classes, sample)`.
        Both say run, client, architecture, mean and std by which stored samples are normalised: as metadata, or in the
        program's extra file `fedlib.json`. Raises FedlibError as `client` does, and for what cannot be written so.
        """
        path = Path(path).expanduser()
        choose("ending of the file", path.suffix, (".pt2", ".safetensors"))
        network, samples, said = self._handed(id)
        if path.suffix == ".pt2":
            content, program = io.BytesIO(), self._program(network, samples)
            with warnings.catch_warnings():  # of tensors that share memory
                warnings.simplefilter("ignore")
                torch.export.save(program, content, extra_files={"fedlib.json": json.dumps(said)})
            files.write_bytes(path, content.getvalue())
            return path
        from safetensors.torch import save

        allowed = f"'.pt2', since {self.spec.algorithm} predicts with more than the client's network"
        require(not isinstance(network, Predictor), "ending of the file", path.suffix, allowed)
        named = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
        files.write_bytes(path, save(named, metadata=said))
        return path

    def export(self, id: int, path: str | Path) -> Path:
        """Write what `client` hands out as an ONNX model, from `samples` (any number of them) to `logits`; with `pip install
        onnx onnxscript`. Raises FedlibError as `save` does, and where one of them is not installed.
        """
        path = Path(path).expanduser()
        network, samples, said = self._handed(id)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.onnx.export(
                    self._program(network, samples), input_names=["samples"], output_names=["logits"],
                    dynamo=True, verbose=False,
                )  # fmt: skip
        except ImportError as error:
            missing = error.name or str(error)
            raise FedlibError(f"{missing} is not installed; `pip install onnx onnxscript` installs it") from None
        except FedlibError:
            raise
        except Exception as error:  # torch's, of what ONNX has not
            raise FedlibError(f"run {self.key}: cannot be written as ONNX ({told(error)})") from None
        assert program is not None
        program.model.metadata_props.update(said)
        program.save(path, external_data=False)
        return path

    def _program(self, network: nn.Module, samples: Tensor) -> torch.export.ExportedProgram:
        """`network` as a program for any number of samples, tried on these."""
        reason = "its program answers otherwise"
        try:
            with torch.no_grad():
                expected = network(samples)
                if isinstance(network, Predictor):
                    network.settle(samples)
                program = torch.export.export(network, (samples,), dynamic_shapes=({0: torch.export.Dim("n")},))
                same = torch.allclose(program.module()(samples), expected, rtol=1e-4, atol=1e-4)
        except Exception as error:  # torch raises many kinds, of what it cannot trace
            same, reason = False, told(error)
        if not same:
            said = f"what {self.spec.algorithm} predicts with cannot be written as a program"
            raise FedlibError(f"run {self.key}: {said} ({reason}); `client` hands it out")
        return program


class Predictor(nn.Module):
    """What a client predicts with where that is more than its network, `model`: normalised samples (n, ...) to the logits (n, C)
    of its recorded accuracy, by the method's `predict`, which may read the client's state.
    """

    def __init__(self, method: Algorithm, client: Client):
        super().__init__()
        self.model, self.method, self.client = client.model, method, client

    def forward(self, samples: Tensor) -> Tensor:
        return self.method.predict(self.client, samples)["accuracy"]

    def settle(self, samples: Tensor) -> None:
        """Keep the networks that `predict` builds and loads, which a program could not, as they are after these samples."""
        build, made = self.client.build, dict[str, nn.Module]()

        def built(architecture: str) -> nn.Module:
            if architecture not in made:
                made[architecture] = build(architecture)
            return made[architecture]

        self.client.build = built  # type: ignore[assignment]
        self(samples)
        for network in made.values():
            network.load_state_dict = lambda *_, **__: None  # type: ignore[method-assign]


TABLES = ("rounds", "clients", "timing")
PROVENANCE = {"commit": str, "finished": str, "seconds": int | float}  # what every record says at least
NUMBERS = {
    "rounds": ("round", "accuracy", "validation_accuracy"),
    "clients": ("round", "client", "accuracy"),
}  # as do tables


def read(path: Path) -> Record | None:
    """The finished run in `path`, or None if unfinished. Raises FedlibError when a file is damaged or missing, and
    `Unreadable` when all are as they were written but mean nothing to this version, or are too large; weights (``final-*.pt``) are looked
    at by `weights`. What a process that was killed left beside a finished run is removed.
    """
    if not (path / "DONE").exists():
        return None
    try:
        done = json.loads(files.unseal(files.regular(path / "DONE").read_bytes()))
        digests = done["files"]
        content = {name: files.regular(path / name).read_bytes() for name in digests if not name.startswith("final-")}
        for name in content:
            if hashlib.sha256(content[name]).hexdigest() != digests[name]:
                raise ValueError(f"{name} is not what was written")
    except files.TooLarge as error:
        raise Unreadable(f"run {path.name}: too large to be read ({error})") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FedlibError(f"run {path.name}: its record is damaged ({error or type(error).__name__})") from error
    _clear(path)
    try:
        return _made(path, done, {name.removesuffix(".gz"): _decompressed(name, one) for name, one in content.items()})
    except Exception as error:  # of tables and texts of anybody's: Python and pandas raise many kinds
        said = error or type(error).__name__
        raise Unreadable(f"run {path.name}: whole, but not of this version of fedlib ({said})") from error


def _decompressed(name: str, content: bytes) -> bytes:
    if not name.endswith(".gz"):
        return content
    whole = gzip.GzipFile(fileobj=io.BytesIO(content)).read(files.LARGEST + 1)
    if len(whole) > files.LARGEST:
        raise files.TooLarge(f"{name} has more than {files.LARGEST} bytes")
    return whole


def _made(path: Path, done: dict[str, Any], content: dict[str, bytes]) -> Record:
    stored = json.loads(content["spec.json"])
    spec = FilledSpec.stored(stored["spec"])
    choose("status", done["status"], ("finished", "diverged"))
    provenance, of_record = json.loads(content["provenance.json"]), done.get("of_record", False)
    for name, kind in (PROVENANCE | dict.fromkeys(("numerics", "metrics", "made"), dict)).items():
        if not isinstance(provenance.get(name, {}), kind):
            raise ValueError(f"provenance.json has no {name}, or another kind of it")
    names = TABLES[:2] if of_record else TABLES
    tables = {name: pd.read_csv(io.BytesIO(content[f"{name}.csv"])) for name in names}
    for name in {"newcomers", "flops"} & {file.removesuffix(".csv") for file in content}:
        tables[name] = pd.read_csv(io.BytesIO(content[f"{name}.csv"]))
    for name, columns in NUMBERS.items():
        for column in columns:
            if not pd.api.types.is_numeric_dtype(tables[name][column]):
                raise ValueError(f"{name}.csv: {column} has what is no number")
    last = len(tables["rounds"]) - 1
    if last < 1 or tables["rounds"]["round"].tolist() != [*range(-1, last)]:
        raise ValueError("rounds.csv has not one row a round")
    if (last > spec.rounds or (last < spec.rounds and not spec.may_end_early)) and done["status"] == "finished":
        raise ValueError(f"{last} of {spec.rounds} rounds")
    noted = [json.loads(line) for line in content.get("details.jsonl", b"").splitlines()]
    record = Record(
        path.name, path, spec, done["status"], files.digest(done, content), **tables,
        noted=noted, provenance=provenance, files=done["files"], hashed=stored["hashed"], of_record=of_record,
    )  # fmt: skip
    _ = record.stale  # which reads what is hashed
    return record


def _clear(path: Path) -> None:
    """Remove the checkpoint of a process that was killed right after it had written DONE. A newer checkpoint belongs to
    a run that is trained again to keep more.
    """
    left, done = path / "checkpoint.pt", path / "DONE"
    with suppress(OSError, filelock.Timeout):
        if left.exists() and left.stat().st_mtime <= done.stat().st_mtime:
            with lock_of(path.name).acquire(timeout=0):
                clientfiles.remove(left)


def load_weights(record: Record, what: str) -> dict[str, Any]:
    """The weights of a run, on the CPU: {"server": ...} and, where `what` is `clients`, {"clients": {id: snapshot}} too.

    Raises FedlibError when the run did not keep them, or when they are not what it wrote.
    """
    if record.of_record:
        raise FedlibError(
            f"run {record.key}: a result of record keeps no weights; train_cells(..., whole=True) trains it"
        )
    found = weights(record, what)
    if found is None:
        raise FedlibError(f"run {record.key}: it kept no weights of the {what}; run it again with keep={what!r}")
    loaded: dict[str, Any] = torch.load(found, map_location="cpu", weights_only=True)
    return loaded


def weights(record: Record, what: str) -> Path | None:
    """The file with the weights of `what` (`server` or `clients`, whose file has the server's too), its digest checked;
    None where the run kept none. Raises FedlibError when it is damaged.
    """
    for keep in KEEP[KEEP.index(what) :]:
        file = record.path / f"final-{keep}.pt"
        if file.name not in record.files or not file.is_file():
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
    """The run's lock, held while it is computed or deleted. Only its holder may remove the file (others then make a new one)."""
    return filelock.FileLock(store() / f".{key}.lock")


def stored() -> list[Path]:
    """Folders of the store that hold a run, finished or not, by name; a name that fedlib gives none is none, since it could
    write to a terminal what it likes.
    """
    found = sorted(path.parent for path in store().glob("*/spec.json")) if store().is_dir() else []
    return [path for path in found if re.fullmatch(r"\w[\w.+-]*", path.name)]


def state(path: Path) -> tuple[str, Record | None]:
    """A stored run's state in a word (finished, diverged, stale, unfinished, damaged, unreadable, set aside), and its
    record if it can be read.
    """
    try:
        record = read(path)
    except Unreadable:
        return "unreadable", None
    except FedlibError:
        return "damaged", None
    if record is None:
        return "unfinished", None
    if ".stale-" in path.name or ".damaged-" in path.name:
        return "set aside", None
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
    """Delete a stored run that is not whole: unfinished, or damaged by its own digests (of a linked folder, the link).
    Raises FedlibError, and deletes nothing, when it is whole or being computed, or cannot be deleted.
    """
    try:
        with (lock := lock_of(path.name)).acquire(timeout=0):
            if whole(path):
                raise FedlibError(f"run {path.name}: not deleted, it is whole; {path} can be removed by hand")
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
            Path(lock.lock_file).unlink(missing_ok=True)
    except filelock.Timeout:
        raise FedlibError(f"run {path.name}: not deleted, another process computes it") from None
    except OSError as error:
        raise FedlibError(f"run {path.name}: cannot be deleted ({error.strerror or error})") from error


def whole(path: Path) -> bool:
    """Whether a stored run is finished and as it was written, whether or not this version can read it."""
    return state(path)[0] not in ("unfinished", "damaged")


def usable(resolved: Resolved, reuse_stale: bool, mend: bool = False) -> Record | None:
    """The stored record if it answers `resolved`; with `mend` (the lock is held) one that does not is renamed, never deleted."""
    path = store() / resolved.key
    try:
        record = read(path)
        if record is None:
            return None
        if record.hashed != resolved.hashed:
            raise FedlibError(f"run {path.name}: its record is of another specification")
        stale, keep = record.stale and not reuse_stale, resolved.spec.keep
        measured = resolved.measured_by(record.rounds, record.provenance)
        enough = stale or (measured and (keep == "none" or weights(record, keep) is not None))
    except FedlibError as error:
        if mend:
            print(error, file=sys.stderr)
            files.set_aside(path, "stale" if isinstance(error, Unreadable) else "damaged")
        return None
    if stale:
        if mend:
            notice(f"run {path.name}: the numbers of {', '.join(record.moved)} have changed since")
            files.set_aside(path, "stale")
        return None
    return record if enough else None


def write(path: Path, outcome: Outcome, resolved: Resolved, stored: bytes, more: dict[str, Any]) -> None:
    """Write the record of a finished run, DONE last. stored: the content of spec.json; more: what its provenance has
    besides, such as the digests of what a person's own parts made.
    """
    spec = resolved.spec
    timing = pd.DataFrame(outcome.timing_rows)
    tables = dict(zip(TABLES, (rounds_of(outcome), clients_of(outcome), timing), strict=True))
    if outcome.newcomer_rows:
        tables["newcomers"] = pd.DataFrame(outcome.newcomer_rows)
    if (counted := costs.at_end(outcome, resolved)) is not None:
        tables["flops"] = counted
    contents: dict[str, bytes | memoryview] = {"spec.json": stored}
    contents |= {
        f"{name}.csv": table.to_csv(index=False, lineterminator="\n").encode() for name, table in tables.items()
    }
    if outcome.detail_rows:
        contents["details.jsonl"] = "".join(json.dumps(row) + "\n" for row in outcome.detail_rows).encode()
    if spec.keep != "none":
        contents[f"final-{spec.keep}.pt"] = _kept(spec.keep, outcome)
    provenance = _provenance(spec, outcome.seconds) | {"numerics": resolved.numerics} | more
    provenance |= {"metrics": resolved.own_metrics} if resolved.own_metrics else {}
    processor = tables["timing"].get("processor_seconds")
    if processor is not None and processor.notna().all():  # not so if resumed from an older version
        provenance["processor_seconds"] = round(float(processor.sum()), 2)
    contents["provenance.json"] = json.dumps(provenance, indent=1).encode()
    write_whole(path, contents, {"status": outcome.status, "state": outcome.digest()})
    for old in path.glob("final-*.pt"):
        if old.name not in contents:
            old.unlink()
    clientfiles.remove(path / "checkpoint.pt")
    (path / SESSIONS).unlink(missing_ok=True)


def write_whole(path: Path, contents: dict[str, bytes | memoryview], said: dict[str, Any]) -> None:
    """Write a run's files into `path`, and DONE last: what is `said` of it, and the SHA-256 of each file."""
    done = said | {"files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}}
    sealed = files.seal(json.dumps(done, indent=1).encode())
    files.write_files({path / name: [content] for name, content in contents.items()} | {path / "DONE": sealed})


SESSIONS = "sessions.json"  # of an unfinished run: the commits that have computed it


def begin_session(path: Path) -> list[str]:
    """Note today's commit with an unfinished run; returns all commits that have computed it, the first one first."""
    commits = []
    if (path / "checkpoint.pt").exists():  # else it begins anew
        try:
            commits = [str(commit) for commit in json.loads(files.regular(path / SESSIONS).read_bytes())]
        except (OSError, ValueError, TypeError, RecursionError):
            commits = ["unknown"]
    if commits[-1:] != [commit_of_code()]:
        commits.append(commit_of_code())
    files.write_bytes(path / SESSIONS, json.dumps(commits).encode())
    return commits


def _kept(keep: str, outcome: Outcome) -> memoryview:
    """The content of final-server.pt or final-clients.pt: weights only, for `torch.load(weights_only=True)`."""
    kept: dict[str, Any] = {"server": outcome.server}
    if keep == "clients":
        kept["clients"] = {client.id: client.snapshot() for client in outcome.clients if client.visited}
    buffer = io.BytesIO()
    torch.save(kept, buffer)
    return buffer.getbuffer()


def clear_folder(path: Path) -> None:
    """Remove a run's folder if there is nothing in it to read or to resume."""
    with suppress(OSError):
        if not (path / "checkpoint.pt").exists():
            clientfiles.remove(path / "checkpoint.pt")
        names = {item.name for item in path.iterdir()}
        if names <= {"spec.json", SESSIONS}:
            for name in names:
                (path / name).unlink(missing_ok=True)
            path.rmdir()


def commit_of_code() -> str:
    """The commit of the package's checkout, with `-modified` where its source differs from it; `unknown` outside of one."""
    folder = Path(__file__).parents[1]
    try:
        asked = (("ls-files", "--error-unmatch", "__init__.py"), ("rev-parse", "--short=12", "HEAD"))
        _, *said = [  # a checkout of something else may have the package in it
            subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
            for words in (*asked, ("status", "--porcelain", "--", "."))
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{said[0]}-modified" if said[1] else said[0]


def processor() -> tuple[str, str]:
    """The CPU's model with family and stepping, and which vector units it has, as Linux names them; elsewhere what
    Python knows of it.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    said = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in reversed(lines))}
    numbers = [f"{name} {said[name]}" for name in ("cpu family", "model", "stepping") if name in said]
    model = ", ".join([said.get("model name") or platform.processor() or "unknown", *numbers])
    units = ("avx", "fma", "amx", "f16c", "sve", "asimd", "bf16", "i8mm")
    known = (said.get("flags") or said.get("Features") or "").split()
    return model, " ".join(flag for flag in known if flag.startswith(units))


def _provenance(spec: FilledSpec, seconds: float) -> dict[str, Any]:
    try:
        torchvision = metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        torchvision = "none"
    model, flags = processor()
    device = devices.found(devices.first(spec.device))
    return {
        "commit": commit_of_code(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": model,
        "flags": flags,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": training.THREADS,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 2),
    }
