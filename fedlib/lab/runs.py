"""A run's specification, its key, its record on disk, the cache, and parallel sweeps.

`runs/<key>/` holds spec.json (what is hashed), provenance.json, rounds.csv, clients.csv, timing.csv, details.jsonl if
the method notes any, final-server.pt or final-clients.pt if kept, checkpoint.pt while unfinished, and DONE, written
last with the SHA-256 of every other file, below a line with its own. A finished run is never recomputed; an unfinished
one resumes. A damaged one is set aside and said to be.
"""

import dataclasses
import hashlib
import inspect
import io
import json
import os
import platform
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pandas as pd
import torch

from .. import algorithms, costs, data, federation, models, partition, protocol, randomness, simulation, training
from ..errors import FedlibError, choose, coerce, folder_from, require
from . import sources
from .progress import Progress

# What a scale fills in where a specification is silent. At `paper`, the text gives grids for T, E and B: the released
# homogeneous script's defaults are *chosen* (500, 10, 512).
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "dataset": "digits",
        "num_clients": 10,
        "participation": 1.0,
        "rounds": 3,
        "local_epochs": 1,
        "batch_size": 32,
    },
    "demo": {
        "dataset": "cifar10",
        "num_clients": 10,
        "participation": 1.0,
        "rounds": 10,
        "local_epochs": 1,
        "batch_size": 64,
    },
    "paper": {
        "dataset": "cifar10",
        "num_clients": 10,
        "participation": 1.0,
        "rounds": 500,
        "local_epochs": 10,
        "batch_size": 512,
    },
}
KEEP = ("none", "server", "clients")
PARTITIONS = ("by-class", "dirichlet", "iid")
CHOICES = {
    "precision": ("fp32", "bf16"),
    "device": ("cpu", "cuda", "auto"),
    "keep": KEEP,
}


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run's numbers. A field left at None is filled by the scale, the protocol or the data
    set.

    A field's help on the command line is its `help` here; method hyper-parameters go into `params`, protocol fields
    into `overrides`.
    """

    algorithm: str = field(default="FedSSA", metadata={"help": "method, see `python -m fedlib list`"})
    params: dict[str, Any] = field(default_factory=dict, metadata={"help": "hyper-parameters of the method"})
    dataset: str | None = field(
        default=None, metadata={"help": "digits and digits100 are embedded; cifar10, cifar100, mnist, svhn"}
    )
    scenario: str | tuple[str, ...] | None = field(
        default=None,
        metadata={
            "help": "architectures: homogeneous (all CNN-1), heterogeneous (CNN-1..5 in turn), reassembly (M1..M4 in "
            "turn), reassembly-500 (the same with 500 features each), homogeneous-M1, homogeneous-M4, or names of "
            "architectures in turn, such as CNN-1,CNN-5; default heterogeneous, or reassembly under pFedHR's protocol",
            "kind": str,
        },
    )
    num_clients: int | None = field(default=None, metadata={"help": "N, clients in all", "kind": int})
    participation: float | None = field(
        default=None, metadata={"help": "C in (0, 1], part of the clients selected a round", "kind": float}
    )
    partition: str = field(default="by-class", metadata={"help": "by-class, dirichlet or iid"})
    classes_per_client: int | None = field(
        default=None, metadata={"help": "classes a client holds (by-class); default 2 of 10, 10 of 100", "kind": int}
    )
    alpha: float = field(default=0.5, metadata={"help": "concentration of the Dirichlet partition, above 0"})
    rounds: int | None = field(default=None, metadata={"help": "T, communication rounds", "kind": int})
    local_epochs: int | None = field(
        default=None, metadata={"help": "E, epochs of local training a round", "kind": int}
    )
    batch_size: int | None = field(default=None, metadata={"help": "B, images a batch", "kind": int})
    lr: float | None = field(
        default=None, metadata={"help": "learning rate of local training; default the protocol's", "kind": float}
    )
    seed: int = field(default=0, metadata={"help": "seed of every random stream"})
    paper: str | None = field(
        default=None,
        metadata={"help": "whose protocol: FedSSA, FedGH, pFedES or pFedHR; default the method's, or FedSSA"},
    )
    protocol: str = field(default="paper", metadata={"help": "paper: what its text says; released: what its code does"})
    overrides: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "protocol fields by name, such as momentum"}
    )
    public_dataset: str | None = field(
        default=None,
        metadata={"help": "data set of the public images, for methods that need some; default the clients' own"},
    )
    public_fraction: float = field(
        default=0.1,
        metadata={"help": "part of the training images that is public; no client holds it, whatever public_dataset is"},
    )
    public_images: int | None = field(
        default=None, metadata={"help": "largest number of public images; default all of that part", "kind": int}
    )
    public_labels: bool = field(default=True, metadata={"help": "whether the public images have labels"})
    precision: str = field(default="fp32", metadata={"help": "fp32, or bf16 arithmetic (faster, other numbers)"})
    device: str = field(default="cpu", metadata={"help": "cpu, cuda, or auto (cuda where there is one)"})
    keep: str = field(
        default="none", metadata={"help": "weights kept in final.pt: none, server or clients (with the server's)"}
    )


@dataclass(frozen=True)
class Resolved:
    """A specification with every field filled, coerced and checked; `hashed` is what its key is made of."""

    spec: RunSpec
    algorithm: algorithms.Algorithm
    protocol: protocol.Protocol
    info: data.DatasetInfo
    hashed: dict[str, Any]

    @property
    def data(self) -> data.Dataset:
        """The clients' data set, read when it is first asked for."""
        return data.load(str(self.spec.dataset))

    @property
    def key(self) -> str:
        digest = hashlib.sha256(json.dumps(self.hashed, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.spec.algorithm}-{self.spec.dataset}-{digest}"

    @property
    def architectures(self) -> tuple[str, ...]:
        """Those of clients 0, 1, 2, ... in turn."""
        return models.architectures(str(self.spec.scenario))

    @property
    def label(self) -> str:
        """A short name for progress bars."""
        return f"{self.spec.algorithm} {self.spec.dataset} N={self.spec.num_clients} seed={self.spec.seed}"

    @property
    def portable(self) -> bool:
        """Whether another process can compute the run: nothing in it was defined or registered in this one."""
        return not self.hashed.get("own") and not data.registered() & {self.spec.dataset, self.spec.public_dataset}

    @property
    def samples(self) -> float:
        """Training images that the run will see, about."""
        spec, parts = self.spec, self.protocol.parts
        assert spec.num_clients and spec.participation and spec.rounds and spec.local_epochs
        share = parts[0] / sum(parts) * self.info.num_images / spec.num_clients
        return simulation.participants(spec.num_clients, spec.participation) * share * spec.rounds * spec.local_epochs


def _check_types(spec: Any) -> None:
    """Raise FedlibError where a field holds what is no text, no mapping, or nothing though it needs a value."""
    require(isinstance(spec, RunSpec), "spec", spec, "a RunSpec, such as RunSpec(algorithm='FedSSA')")
    for item in dataclasses.fields(RunSpec):
        value = getattr(spec, item.name)
        if item.name in ("params", "overrides"):
            require(isinstance(value, Mapping), item.name, value, "a dictionary of names and values, {} for none")
        elif value is None:
            require(item.default is None, item.name, value, "given")
        elif _kinds(item) == (str,):
            coerce(item.name, value, str)


def _kinds(item: "dataclasses.Field[Any]") -> tuple[type, ...]:
    """The types, None apart, that a field of RunSpec may have once it is filled."""
    kinds = typing.get_args(item.type) or (item.type,)
    return tuple(kind for kind in kinds if kind is not type(None)) + ((int,) if float in kinds else ())


def resolve(spec: RunSpec, scale: str | None = None) -> Resolved:
    """Fill and check every field; raises FedlibError naming the field, the value and what is allowed, before anything
    is written.

    scale: `smoke`, `demo` or `paper`; by default smoke on embedded data (or none given) and demo on real data.
    """
    _check_types(spec)
    if scale is None:
        scale = "demo" if spec.dataset and spec.dataset not in data.EMBEDDED else "smoke"
    choose("scale", scale, SCALES)
    values = {item.name: getattr(spec, item.name) for item in dataclasses.fields(spec)}
    choose("algorithm", values["algorithm"], algorithms.ALGORITHMS)
    if values["paper"] is None:
        own = (values["algorithm"], values["protocol"]) in protocol.PROTOCOLS
        values["paper"] = values["algorithm"] if own else "FedSSA"
    if values["scenario"] is None:
        values["scenario"] = protocol.SCENARIOS.get(values["paper"], "heterogeneous")
    values["scenario"] = models.scenario(values["scenario"])
    whose = (values["paper"], values["protocol"], values["scenario"])
    sizes = SCALES[scale] | protocol.sizes(*whose, scale)
    values = {name: sizes.get(name) if value is None else value for name, value in values.items()}
    given = protocol.params(*whose, values["algorithm"]) | values["params"]
    method = algorithms.make(values["algorithm"], given)
    preset = protocol.protocol(*whose, values["overrides"])
    for item in dataclasses.fields(spec):
        kind = item.metadata.get("kind", type(item.default))
        if kind in (int, float, str, bool) and values[item.name] is not None:
            values[item.name] = coerce(item.name, values[item.name], kind)
    for name, known in CHOICES.items():
        choose(name, values[name], known)
    choose("partition", values["partition"], [*PARTITIONS, *partition.REGISTERED])
    if values["lr"] is not None:
        preset = dataclasses.replace(preset, lr=values["lr"])
    for name in ("num_clients", "rounds", "local_epochs", "batch_size"):
        require(values[name] >= 1, name, values[name], "at least 1")
        require(values[name] < 2**31, name, values[name], "below 2**31")
    require(0 < values["participation"] <= 1, "participation", values["participation"], "in (0, 1]")
    require(0 <= values["seed"] < 2**63, "seed", values["seed"], "between 0 and 2**63 - 1")
    require(values["alpha"] > 0, "alpha", values["alpha"], "above 0")
    require(0 < values["public_fraction"] < 1, "public_fraction", values["public_fraction"], "in (0, 1)")
    if values["public_images"] is not None:
        require(values["public_images"] >= 1, "public_images", values["public_images"], "at least 1")
    if values["device"] == "auto":
        values["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    require(
        values["device"] == "cpu" or torch.cuda.is_available(),
        "device",
        values["device"],
        "cpu on this machine, which has no CUDA device",
    )

    dataset = data.info(values["dataset"])
    if values["public_dataset"] is not None:
        choose("public_dataset", values["public_dataset"], data.names())
        allowed = "another data set than the clients'; without it, a part of theirs is public"
        require(values["public_dataset"] != values["dataset"], "public_dataset", values["public_dataset"], allowed)
    if values["partition"] == "by-class":
        held = values["classes_per_client"]
        held = classes_held(dataset) if held is None else held
        allowed = f"between 1 and {dataset.num_classes}, the number of classes of {dataset.name}"
        require(1 <= held <= dataset.num_classes, "classes_per_client", held, allowed)
        values["classes_per_client"] = held
    values |= {"params": dataclasses.asdict(method), "lr": preset.lr}
    images = dataset.num_images
    allowed = f"at most {images // 3}: {dataset.name} has {images} images and a client needs 3"
    require(3 * values["num_clients"] <= images, "num_clients", values["num_clients"], allowed)

    hashed = {
        name: value for name, value in values.items() if name not in ("paper", "protocol", "overrides", "keep", "lr")
    }
    if values["partition"] != "dirichlet":
        del hashed["alpha"]
    if values["partition"] != "by-class":
        del hashed["classes_per_client"]
    if method.public_data == "none":
        for name in (
            "public_dataset",
            "public_images",
            "public_labels",
            *([] if preset.reserve else ["public_fraction"]),
        ):
            del hashed[name]
    elif values["public_dataset"]:
        hashed["public"] = data.info(values["public_dataset"]).fingerprint
    hashed |= {
        "protocol": dataclasses.asdict(preset),
        "architectures": list(models.architectures(values["scenario"])),
        "data": {"fingerprint": dataset.fingerprint, "mean": list(dataset.mean), "std": list(dataset.std)},
    }
    digests = _own_parts(method, hashed["architectures"], values["partition"])
    if digests:
        hashed["own"] = digests
    return Resolved(RunSpec(**values), method, preset, dataset, hashed)


def _own_parts(method: algorithms.Algorithm, architectures: Iterable[str], partition_name: str) -> dict[str, str]:
    """Digests of what a person defined and a run uses: its method, networks (also those that the method's parameters
    name) and partition. One changed line gives another digest, and so another key.
    """
    own: dict[str, Any] = {} if type(method) in algorithms.BUILT_IN else {"method": type(method)}
    for name in sorted({*architectures, *map(str, dataclasses.asdict(method).values())}):
        if name in models.BUILDERS and not models.is_built_in(name):
            own[f"architecture {name}"] = models.BUILDERS[name]
    if partition_name not in PARTITIONS:
        own["partition"] = partition.REGISTERED[partition_name]
    return {name: sources.digest(part) for name, part in own.items()}


def classes_held(dataset: data.DatasetInfo) -> int:
    """Classes that a client holds where nothing else is said: 2 of 10, 10 of 100."""
    return 10 if dataset.num_classes >= 100 else min(2, dataset.num_classes)


def public_of(resolved: Resolved) -> np.ndarray | None:
    """The public images of a method that needs some: indices into the training images of `public_dataset`, or of the
    clients' data set.
    """
    spec = resolved.spec
    if resolved.algorithm.public_data == "none":
        return None
    dataset = data.load(spec.public_dataset) if spec.public_dataset else resolved.data
    stream = randomness.generator(spec.seed, "public")
    labels = dataset.labels[: dataset.num_train].numpy()
    indices = partition.hold_out(labels, spec.public_fraction, stream)
    if spec.public_images is not None:
        indices = partition.stratified(labels, indices, spec.public_images, stream)
    return indices


def reserved_of(resolved: Resolved) -> np.ndarray:
    """Indices of the training images that no client holds: the public part, even where another data set stands in for
    it, so that a client's images do not depend on the choice of public data.
    """
    if resolved.algorithm.public_data == "none" and not resolved.protocol.reserve:
        return np.empty(0, dtype=int)
    labels, spec = resolved.data.labels[: resolved.data.num_train].numpy(), resolved.spec
    return partition.hold_out(labels, spec.public_fraction, randomness.generator(spec.seed, "public"))


def partition_of(resolved: Resolved) -> list[Any]:
    """What each client holds, as indices into the pooled images, none of them public: one array where the protocol
    splits locally, else a (train, validation, test) triple.
    """
    dataset, stream = resolved.data, randomness.generator(resolved.spec.seed, "partition")
    private = np.setdiff1d(np.arange(len(dataset.labels)), reserved_of(resolved))
    source = resolved.protocol.split.partition("-")[0]
    if source == "train":
        private = private[private < dataset.num_train]
    if source != "official":
        return _dealt(resolved, [private], stream)[0]
    shuffled = stream.permutation(private[private < dataset.num_train])
    train, validation = np.split(shuffled, [len(shuffled) * 4 // 5])
    test = private[private >= dataset.num_train]
    return list(zip(*_dealt(resolved, [train, validation, test], stream), strict=True))


def _dealt(resolved: Resolved, parts: list[np.ndarray], stream: np.random.Generator) -> list[list[np.ndarray]]:
    """Each of `parts` (indices into the pooled images) dealt to the clients, by the same shares of the classes."""
    spec, preset = resolved.spec, resolved.protocol
    labels = [resolved.data.labels.numpy()[part] for part in parts]
    clients = spec.num_clients
    assert clients is not None
    if spec.partition == "by-class":
        assert spec.classes_per_client is not None
        flags = {"extra_slot": preset.extra_slot, "distinct": preset.distinct}
        shares = partition.class_shares(clients, resolved.data.num_classes, spec.classes_per_client, stream, **flags)
        held = [partition.deal(part, shares, stream, floors=preset.floors) for part in labels]
    elif spec.partition == "dirichlet":
        least = min(10, len(parts[0]) // (2 * clients))
        least_each = [max(3, least)] if len(parts) == 1 else [max(1, least), 1, 1]
        held = partition.dirichlet_parts(labels, clients, spec.alpha, stream, least_each, floors=preset.floors)
    elif spec.partition == "iid":
        held = [partition.iid(part, clients, stream) for part in labels]
    else:
        held = [partition.own(spec.partition, part, clients, stream) for part in labels]
    return [[part[own] for own in owns] for part, owns in zip(parts, held, strict=True)]


def federation_of(resolved: Resolved) -> federation.Federation:
    """The federation that a specification describes, ready to train."""
    spec = resolved.spec
    assert spec.local_epochs and spec.batch_size
    return federation.Federation(
        resolved.data,
        partition_of(resolved),
        resolved.architectures,
        protocol=resolved.protocol,
        local_epochs=spec.local_epochs,
        batch_size=spec.batch_size,
        seed=spec.seed,
        device=spec.device,
        precision=spec.precision,
        public=public_of(resolved),
        public_dataset=data.load(spec.public_dataset) if spec.public_dataset else None,
        public_labels=spec.public_labels,
    )


def home() -> Path:
    """The root of runs/ and figures/: FEDLIB_HOME, else the repository, else (installed elsewhere) ~/.cache/fedlib."""
    repository = Path(__file__).resolve().parents[2]
    return folder_from("FEDLIB_HOME", str(repository) if (repository / "notebooks").is_dir() else "~/.cache/fedlib")


def store() -> Path:
    return home() / "runs"


@dataclass(frozen=True)
class Record:
    """A finished run, read from disk: tidy tables, how it ended, where it came from.

    rounds: one row a round (-1 is before training): round, selected, visited, loss, accuracy (mean over all clients),
    accuracy_selected, validation_accuracy, further ways of predicting, download_words, upload_words, published_words,
    diagnostics. clients: one row a (round, participant). timing: seconds, which need not repeat. details: what a method
    noted in a round that is no single number (pFedHR's structures and distances), one a round that has any. files:
    SHA-256 of each file, by name. Accuracies are fractions of 1.
    """

    key: str
    path: Path
    spec: RunSpec
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


PROVENANCE = ("code", "commit", "python", "torch", "numpy", "machine", "device", "finished", "seconds")


def read(path: Path) -> Record | None:
    """The finished run in `path`, or None if unfinished. Raises FedlibError when a file is damaged or missing; weights
    (final-*.pt) are looked at by `weights`.
    """
    if not (path / "DONE").exists():
        return None
    try:
        done = json.loads(simulation.unseal((path / "DONE").read_bytes()))
        files = done["files"]
        content = {name: (path / name).read_bytes() for name in files if not name.startswith("final-")}
        for name in content:
            if hashlib.sha256(content[name]).hexdigest() != files[name]:
                raise ValueError(f"{name} is not what was written")
        spec = _stored_spec(json.loads(content["spec.json"])["spec"])
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
            rounds, clients, timing, details, provenance, files, stale,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FedlibError(f"run {path.name}: its record is damaged ({error or type(error).__name__})") from error


def _stored_spec(values: dict[str, Any]) -> RunSpec:
    """The specification that a finished run was stored with; raises ValueError where it is not one of this version."""
    fields = {item.name: item for item in dataclasses.fields(RunSpec)}
    if values.keys() != fields.keys():
        different = ", ".join(sorted(values.keys() ^ fields.keys()))
        raise ValueError(f"spec.json is of another version: {different}")
    may_be_empty = ("classes_per_client", "public_dataset", "public_images")
    for name, value in values.items():
        kinds = (dict,) if name in ("params", "overrides") else _kinds(fields[name])
        if type(value) not in kinds and not (value is None and name in may_be_empty):
            raise ValueError(f"spec.json: {name} = {value!r}")
    return RunSpec(**values)


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


def _lock(key: str) -> filelock.BaseFileLock:
    """Whoever computes or deletes the run holds it. Only a holder may remove the file (others then make a new one)."""
    return filelock.FileLock(store() / f".{key}.lock")


def run(spec: RunSpec, scale: str | None = None, *, progress: bool = True, reuse_stale: bool = False) -> Record:
    """The record of `spec`: read if it is finished, resumed or computed otherwise.

    A record computed by other code is recomputed on embedded data; on real data it is set aside, or returned if
    `reuse_stale`. One process computes; another that asks for the same run waits and reads. Of several threads of one
    process, one trains and the others wait (`sweep` trains side by side). Raises FedlibError for what a user can mend,
    Interrupted on Ctrl-C, which a run in another thread than the main one does not hear.
    """
    resolved = resolve(spec, scale)
    record = _usable(resolved, reuse_stale)
    if record is not None:
        return record
    with _alone(resolved.label):  # a builder of the user's own may touch torch's global generator
        built = federation_of(resolved)
        resolved.algorithm.check(built)
    try:
        store().mkdir(parents=True, exist_ok=True)
        lock = _lock(resolved.key)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            print(f"{resolved.label}: another process computes this run; waiting for it", file=sys.stderr)
            lock.acquire()
        try:
            record = _usable(resolved, reuse_stale, mend=True)
            if record is not None:
                return record
            with _alone(resolved.label):
                return _compute(resolved, built, progress)
        except BaseException:
            if not (store() / resolved.key).exists():
                Path(lock.lock_file).unlink(missing_ok=True)
            raise
        finally:
            lock.release()
    except OSError as error:
        raise FedlibError(f"store = {str(store())!r}: cannot write there ({error.strerror or error})") from error


@contextmanager
def _alone(label: str) -> Iterator[None]:
    """Hold `randomness.exclusive`; says so where another thread has it. Ctrl-C ends the waiting."""
    if not randomness.exclusive.acquire(blocking=False):
        print(f"{label}: another thread of this process trains; waiting for it", file=sys.stderr)
        randomness.exclusive.acquire()
    try:
        yield
    finally:
        randomness.exclusive.release()


def _usable(resolved: Resolved, reuse_stale: bool, mend: bool = False) -> Record | None:
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
            simulation.set_aside(path, "damaged")
        return None
    if stale:
        if mend and resolved.info.embedded:
            shutil.rmtree(path)
        elif mend:
            simulation.set_aside(path, "stale")
        return None
    return record if whole else None


def _compute(resolved: Resolved, built: federation.Federation, progress: bool) -> Record:
    """Train (or resume) and store; the locks are held. What a failed start leaves is removed."""
    path, spec, code = store() / resolved.key, resolved.spec, code_digest(resolved.spec)
    stored = json.dumps({"spec": dataclasses.asdict(spec), "hashed": resolved.hashed}, indent=1).encode()
    assert spec.rounds and spec.participation
    try:
        with simulation.signals() as stop:
            path.mkdir(exist_ok=True)
            for leftover in path.glob(".*.tmp"):  # of a process that was killed while it wrote
                leftover.unlink()
            if not (path / "DONE").exists():  # else a whole record is only to be replaced by one that keeps more
                simulation.write_bytes(path / "spec.json", stored)
            with Progress(resolved.label, spec.rounds, progress) as bar:

                def after_round(row: dict[str, Any], timing: dict[str, Any]) -> None:
                    bar.update(row["round"] + 1, f"{_reached(row, spec.rounds)}, {timing['seconds']:.1f} s a round")
                    _report(row)

                outcome = simulation.simulate(
                    built, resolved.algorithm, spec.rounds, spec.participation,
                    checkpoint=path / "checkpoint.pt", label=f"{resolved.key} {code}", progress=after_round,
                )  # fmt: skip
            _store(path, outcome, spec, code, stored)
            if stop:
                raise simulation.Interrupted(f"{resolved.key} is finished and stored; stopped after it")
    except BaseException:
        _tidy(path)
        raise
    record = read(path)
    assert record is not None
    return record


TABLES = ("rounds", "clients", "timing")


def _store(path: Path, outcome: simulation.Outcome, spec: RunSpec, code: str, stored: bytes) -> None:
    """Write the record of a finished run, DONE last."""
    tables = dict(zip(TABLES, (outcome.rounds, outcome.client_table, outcome.timing), strict=True))
    files: dict[str, bytes | memoryview] = {"spec.json": stored}
    files |= {f"{name}.csv": table.to_csv(index=False, lineterminator="\n").encode() for name, table in tables.items()}
    if outcome.detail_rows:
        files["details.jsonl"] = "".join(json.dumps(row) + "\n" for row in outcome.detail_rows).encode()
    if spec.keep != "none":
        files[f"final-{spec.keep}.pt"] = _kept(spec.keep, outcome)
    files["provenance.json"] = json.dumps(_provenance(spec, code, outcome.seconds), indent=1).encode()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    done = {"status": outcome.status, "state": outcome.digest(), "files": digests}
    sealed = simulation.seal(json.dumps(done, indent=1).encode())
    simulation.write_files({path / name: [content] for name, content in files.items()} | {path / "DONE": sealed})
    for old in path.glob("final-*.pt"):
        if old.name not in files:
            old.unlink()
    (path / "checkpoint.pt").unlink(missing_ok=True)


def _kept(keep: str, outcome: simulation.Outcome) -> memoryview:
    """The content of final-server.pt or final-clients.pt: weights only, for `torch.load(weights_only=True)`."""
    kept: dict[str, Any] = {"server": outcome.server}
    if keep == "clients":
        kept["clients"] = {client.id: client.snapshot() for client in outcome.clients if client.visited}
    buffer = io.BytesIO()
    torch.save(kept, buffer)
    return buffer.getbuffer()


def _tidy(path: Path) -> None:
    """Remove a run's folder if there is nothing in it to read or to resume."""
    with suppress(OSError):
        names = {item.name for item in path.iterdir()}
        if names <= {"spec.json"}:
            (path / "spec.json").unlink(missing_ok=True)
            path.rmdir()


def code_digest(spec: RunSpec) -> str:
    """SHA-256 (16 digits) of fedlib's source that determines a run's numbers, without comments and docstrings: how
    images are dealt, training and simulation, the networks, the method's file, those of the methods it extends and the
    modules that they use. What a person defined is in the key instead.
    """
    method = algorithms.ALGORITHMS.get(spec.algorithm)
    classes = [cls for cls in method.__mro__ if issubclass(cls, algorithms.Algorithm)] if method else []
    networks = [*models.architectures(str(spec.scenario), known_only=False), *map(str, spec.params.values())]
    builders = {name: models.BUILDERS[name] for name in networks if name in models.BUILDERS}
    own = [cls for cls in classes if sources.is_own(cls.__module__)]
    own_use = sources.used_of_fedlib(*own, *(builders[name] for name in builders if not models.is_built_in(name)))

    # Of these, only what is used: another data set, preset or network is no other code.
    shipped = [builders[name] for name in builders if models.is_built_in(name)]
    in_part = {
        data: {"Dataset"},
        protocol: {"Protocol"},
        models: {"build", *(getattr(builder, "func", builder).__name__ for builder in shipped)},
    }
    homes = [sys.modules[cls.__module__] for cls in classes if cls not in own]
    used = [value for home in homes for value in vars(home).values() if inspect.ismodule(value)]
    used += [sys.modules[name] for name in own_use]
    whole = [randomness, partition, training, federation, simulation, algorithms.base, *used, *homes]
    files = [
        Path(str(module.__file__))
        for module in dict.fromkeys(whole)
        if module.__name__.startswith("fedlib.") and module not in in_part
    ]
    texts = [sources.bare_source(file) for file in files]
    texts.append(sources.part_of_source(Path(__file__), ("federation_of",)))
    for module, names in in_part.items():
        short = module.__name__.rpartition(".")[2]
        names = names.union(own_use.get(module.__name__, ()), *(sources.mentioned(file, short) for file in files))
        texts.append(sources.part_of_source(Path(str(module.__file__)), tuple(sorted(names)), REGISTRIES))
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


# Tables of all that there is, which a run looks one thing up in.
REGISTRIES = ("BUILDERS", "BUILT_IN", "SCENARIOS", "PROTOCOLS", "EMBEDDED")


def _provenance(spec: RunSpec, code: str, seconds: float) -> dict[str, Any]:
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {
        "code": code,
        "commit": commit,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if spec.device == "cuda" else "cpu",
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 2),
    }


# ---------------------------------------------------------------------------------------------- several runs


_reporter: Callable[[dict[str, Any]], None] | None = None  # in a sweep's worker: tells the parent of a round


def _report(row: dict[str, Any]) -> None:
    if _reporter is not None:
        _reporter(row)


def _reached(row: dict[str, Any], rounds: int | None) -> str:
    """Where a run is, for a bar: its round, of how many, and the mean accuracy over all clients."""
    return f"round {row['round'] + 1}/{rounds} accuracy {row['accuracy']:.3f}"


def missing(specs: Iterable[RunSpec], scale: str | None = None, reuse_stale: bool = False) -> list[Resolved]:
    """The runs among `specs` that have no usable record, longest first; of duplicates, the one that keeps most."""
    every = sorted((resolve(spec, scale) for spec in specs), key=lambda item: KEEP.index(item.spec.keep))
    resolved = {item.key: item for item in every}
    wanted = [item for item in resolved.values() if _usable(item, reuse_stale) is None]
    return sorted(wanted, key=lambda item: -item.samples)


def sweep(
    specs: Iterable[RunSpec],
    scale: str | None = None,
    *,
    jobs: int = 2,
    progress: bool = True,
    reuse_stale: bool = False,
) -> list[Record]:
    """The records of `specs` in order; what is missing is trained by `jobs` single-threaded workers, side by side.

    On Ctrl-C or SIGTERM the workers finish their rounds and save; the same call resumes. An error of one run is
    raised when all others are done.
    """
    allowed = "a list of RunSpec; of a single one, `run` gives the record"
    require(isinstance(specs, Iterable) and not isinstance(specs, str | Mapping), "specs", specs, allowed)
    specs, jobs = list(specs), coerce("jobs", jobs, int)
    require(jobs >= 1, "jobs", jobs, "at least 1")
    wanted = missing(specs, scale, reuse_stale)
    todo = [item for item in wanted if item.portable]
    if jobs > 1 and len(wanted) - len(todo) > 1:
        line = f"{len(wanted) - len(todo)} of {len(wanted)} runs have parts that this process defined"
        print(f"{line}, which no worker knows: they train here, one after the other", file=sys.stderr)
    failures = []
    if todo:
        seconds = expected_seconds(todo) if progress else [1.0] * len(todo)
        expected = {item.key: one for item, one in zip(todo, seconds, strict=True)}
        with Progress(f"0 of {len(todo)} runs", sum(seconds), progress) as bar:
            failures = _in_workers(todo, min(jobs, len(todo)), bar, expected, reuse_stale)
    if failures:
        raise FedlibError("; ".join(failures))
    return [run(spec, scale, progress=False, reuse_stale=reuse_stale) for spec in specs]


def _in_workers(
    todo: list[Resolved], jobs: int, bar: Progress, expected: dict[str, float], reuse_stale: bool
) -> list[str]:
    """Train `todo` in `jobs` worker processes; returns what went wrong, a line each. The bar goes by `expected`, each
    run's seconds by its key.

    A worker is a Python of its own that reads specifications and writes reports as lines of JSON, so a script needs no
    main guard and a notebook no importable main module.
    """
    reports: queue.Queue[tuple[subprocess.Popen[str], dict[str, Any] | None]] = queue.Queue()
    workers = [_start_worker(reports, reuse_stale) for _ in range(jobs)]
    waiting, failures, finished = list(todo), [], 0
    interrupt: KeyboardInterrupt | None = None
    training: dict[subprocess.Popen[str], Resolved] = {}
    done: dict[str, float] = dict.fromkeys(expected, 0.0)  # seconds of `expected`, by run

    def give(worker: subprocess.Popen[str]) -> None:
        assert worker.stdin is not None
        try:
            if waiting and interrupt is None:
                training[worker] = waiting.pop(0)
                worker.stdin.write(json.dumps(dataclasses.asdict(training[worker].spec)) + "\n")
                worker.stdin.flush()
            else:
                worker.stdin.close()
        except BrokenPipeError:  # it died: its closing report says so
            pass

    with _terminate_as_interrupt():
        try:
            for worker in workers:
                give(worker)
            alive = len(workers)
            while alive:
                try:
                    worker, report = reports.get(timeout=0.5)
                except queue.Empty:
                    continue
                except KeyboardInterrupt as error:
                    if interrupt is not None:
                        raise
                    interrupt = error
                    for worker in workers:
                        worker.terminate()  # each finishes its round and saves
                    continue
                if report is None:
                    alive -= 1
                    if worker.wait() and interrupt is None:
                        failures.append(f"a worker died (exit {worker.returncode}); the same command resumes its run")
                elif "round" in report:  # a resumed run has the rounds before it done at once
                    item = training[worker]
                    assert item.spec.rounds
                    done[item.key] = expected[item.key] * (report["round"] + 1) / item.spec.rounds
                    bar.update(sum(done.values()), f"{item.spec.algorithm} {_reached(report, item.spec.rounds)}")
                else:
                    finished += "finished" in report
                    failures += [report["failed"]] if "failed" in report else []
                    bar.label = f"{finished} of {len(todo)} runs"
                    done[training[worker].key] = expected[training[worker].key]
                    bar.update(sum(done.values()))
                    give(worker)
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
    if interrupt is not None:
        raise KeyboardInterrupt(f"stopped with {finished} of {len(todo)} runs finished; the same command resumes")
    return failures


def _start_worker(reports: "queue.Queue[Any]", reuse_stale: bool) -> "subprocess.Popen[str]":
    """A worker process, in a session of its own so that a terminal's Ctrl-C reaches the parent alone."""
    command = [sys.executable, "-c", f"from fedlib.lab.runs import _work; _work({reuse_stale})"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def listen() -> None:
        assert worker.stdout is not None
        with worker.stdout as lines:
            for line in lines:
                reports.put((worker, json.loads(line)))
        reports.put((worker, None))

    threading.Thread(target=listen, daemon=True).start()
    return worker


def _work(reuse_stale: bool) -> None:
    """A worker's life: specifications in on stdin, reports out on stdout; ends with stdin or with its parent."""
    global _reporter
    parent = os.getppid()

    def send(**report: Any) -> None:
        print(json.dumps(report), flush=True)

    def report(row: dict[str, Any]) -> None:
        if os.getppid() != parent:
            signal.raise_signal(signal.SIGTERM)
        else:
            send(round=row["round"], accuracy=row["accuracy"])

    _reporter = report
    try:
        for line in sys.stdin:
            spec = RunSpec(**json.loads(line))
            try:
                run(spec, progress=False, reuse_stale=reuse_stale)
                send(finished=True)
            except FedlibError as error:
                send(failed=f"{spec.algorithm} on {spec.dataset}: {error}")
    except KeyboardInterrupt:
        sys.exit(0)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as SIGINT does (in the main thread)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


# Time by FLOPs, against Standalone's, where more takes time than the FLOPs that PyTorch counts: singular value
# decompositions, random weights, element-wise work. CNN-1..5, 256 images a client, E = 1, B = 64, one idle core.
UNCOUNTED = {"FedKD": 1.5, "pFedBayes": 5.6, "pFedES": 1.15}


def expected_seconds(resolved: Sequence[Resolved]) -> list[float]:
    """Seconds that each run will take on one core of this machine, about: plain training of its architectures, timed here
    in a moment, times the work that its method does beside it (`relative_work`).
    """
    return [_expected(item) for item in resolved]


def _expected(item: Resolved) -> float:
    assert item.spec.batch_size
    shape = (item.info.num_classes, item.info.channels)
    settings = (min(item.spec.batch_size, 64), item.protocol.optimiser)  # a larger batch is hardly faster
    plain = [_seconds_an_image(name, *settings, *shape) for name in item.architectures]
    return item.samples * float(np.mean(plain)) * relative_work(item)


def relative_work(item: Resolved) -> float:
    """A run's work, clients and server together, by that of Standalone with the same clients and rounds: the FLOPs of its
    method with its usual parameters, counted once a process on CNN-3, and what they leave out (`UNCOUNTED`).
    """
    spec = item.spec
    assert spec.num_clients and spec.participation and spec.rounds and spec.local_epochs
    cost = _method_flops(spec.algorithm)
    if cost is None:
        return 1.0
    selected = simulation.participants(spec.num_clients, spec.participation)
    images = round(item.samples / (selected * spec.rounds * spec.local_epochs))
    public = 0
    if item.algorithm.public_data != "none":
        public = round(spec.public_fraction * images * spec.num_clients)
        public = min(public, spec.public_images or public, getattr(item.algorithm, "public_samples", public))
    round_ = selected * cost.local(images, spec.local_epochs, public) + cost.aggregation(selected, public)
    plain = selected * images * spec.local_epochs * costs.training_flops("CNN-3", 10, 3)
    return UNCOUNTED.get(spec.algorithm, 1.0) * round_ / plain


@cache
def _method_flops(algorithm: str) -> costs.Flops | None:
    """FLOPs of a method with its usual parameters, in parts; None of one that cannot be measured by itself."""
    try:
        return costs.flops(algorithms.make(algorithm), "CNN-3")
    except Exception:  # a user's method may need networks or data of the user's; it counts as plain training
        return None


@cache
def _seconds_an_image(architecture: str, batch_size: int, optimiser: str, num_classes: int, channels: int) -> float:
    """Seconds (of processor time) a training image of plain training, one thread: the quickest of four batches, after one to warm up, or of
    one where a batch takes long.
    """
    stream = randomness.generator(0, "init")
    model = models.build(architecture, num_classes, channels, stream)
    scale = torch.full((channels, 1, 1), 127.5)
    pool = training.Pool(torch.zeros(batch_size, channels, 32, 32).byte(), torch.zeros(batch_size).long(), scale, scale)
    settings = training.Settings(1, batch_size, 0.001, optimiser=optimiser)
    took: list[float] = []
    with training.one_thread():
        while len(took) < 5 and (len(took) < 2 or sum(took) < 1):
            started = time.process_time()
            indices = torch.arange(batch_size)
            training.train(training.cross_entropy, {"model": model}, pool, indices, settings, stream)
            took.append(time.process_time() - started)
    return min(took[1:]) / batch_size


def estimate(resolved: Sequence[Resolved], jobs: int) -> float:
    """Seconds that `resolved` will take with `jobs` workers, about; see `expected_seconds`."""
    require(jobs >= 1, "jobs", jobs, "at least 1")
    return sum(expected_seconds(resolved)) / min(jobs, max(1, len(resolved)))


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def differences(spec: RunSpec) -> list[str]:
    """What a resolved specification sets otherwise than its method's usual run, in short words: architectures, partition, protocol,
    overrides, hyper-parameters, public data, arithmetic. N, C, T, E and the seed are left to the caller.
    """
    found = [] if spec.scenario == "heterogeneous" else [str(spec.scenario)]
    usual = 10 if str(spec.dataset).endswith("100") else 2
    if spec.partition == "by-class" and spec.classes_per_client != usual:
        found.append(f"{spec.classes_per_client} classes")
    elif spec.partition != "by-class":
        found.append(f"{spec.partition} {spec.alpha:g}" if spec.partition == "dirichlet" else spec.partition)
    own = spec.algorithm if (spec.algorithm, spec.protocol) in protocol.PROTOCOLS else "FedSSA"
    if spec.paper != own or spec.protocol != "paper":
        found.append(f"{spec.protocol} of {spec.paper}" if spec.paper != own else spec.protocol)
    whose = (str(spec.paper), spec.protocol, str(spec.scenario))
    preset = protocol.protocol(*whose, spec.overrides)
    if preset.inherit != "none" and "inherit" not in spec.overrides:
        found.append(f"inherit={preset.inherit}")
    found += [f"{name}={value}" for name, value in spec.overrides.items()]
    if spec.lr != preset.lr:
        found.append(f"lr={spec.lr:g}")
    method = algorithms.ALGORITHMS.get(spec.algorithm)
    given = (
        dataclasses.asdict(algorithms.make(spec.algorithm, protocol.params(*whose, spec.algorithm))) if method else {}
    )
    found += [f"{name}={value}" for name, value in spec.params.items() if value != given.get(name)]
    if method and method.public_data != "none":
        found += [f"public {spec.public_dataset}"] if spec.public_dataset else []
        found += [] if spec.public_labels else ["unlabelled"]
        found += [f"{spec.public_images} public"] if spec.public_images else []
        found += [f"public {spec.public_fraction:.3g}"] if spec.public_fraction != 0.1 else []
    if spec.batch_size != (32 if spec.dataset in data.EMBEDDED else 64):
        found.append(f"B={spec.batch_size}")
    found += [] if spec.precision == "fp32" else [spec.precision]
    return found + ([] if spec.device == "cpu" else [spec.device])


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
    lock = _lock(path.name)
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
        with (lock := _lock(path.name)).acquire(timeout=0):
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


def export() -> int:
    """Write the finished real-data runs of the store to results/runs.csv, rounds.csv and clients.csv, the t-SNE maps of those that
    kept their clients to maps.csv, the enhanced images of pFedES's that kept their server to images.csv and what pFedHR's matched
    to whom to matches.csv, replacing rows of the same key.

    These small summaries are committed: the results of record. Returns how many runs were written.
    """
    from ..papers import views

    folder = home() / "results"
    tables: dict[str, list[pd.DataFrame]] = {
        name: [] for name in ("runs", "rounds", "clients", "maps", "images", "matches")
    }
    for path in stored():
        record = read(path)
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
            tables["maps"].append(views.map_representations(record).round(2).assign(key=record.key))
        if record.spec.algorithm == "pFedES" and (path / "final-server.pt").exists():
            tables["images"].append(views.encode_images(views.enhance_images(record)).assign(key=record.key))
        if record.spec.algorithm == "pFedHR":
            tables["matches"].append(views.list_matches(record).assign(key=record.key))
    if not tables["runs"]:
        raise FedlibError(f"runs: no finished run on real data in {store()}")
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
        simulation.write_bytes(file, new.to_csv(index=False, lineterminator="\n").encode())
    return len(tables["runs"])
