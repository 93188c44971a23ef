"""Specifications: what a user asks for (`RunSpec`), and the same with every field filled, checked and hashed (`Resolved`)."""

import dataclasses
import hashlib
import json
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import filelock

from .. import algorithms, data, devices, fields, metrics, models, numerics, partition, simulation, training
from ..errors import FedlibError, choose, coerce, require, whole_or_part
from ..fields import setting
from ..isolated import Isolated, check_isolated
from ..protocol import Protocol
from ..sample import Sample
from . import own, plugins, presets, pretrained

# What a scale fills in where a specification is silent. `record` is one point of the texts' own grids (T of {100, 500}, E of
# {1, 10}, B of {64..512}). At `paper`, the released homogeneous script's defaults are *chosen* from these grids.
SCALES: dict[str, dict[str, Any]] = {
    name: dict(zip(("dataset", "num_clients", "rounds", "local_epochs", "batch_size", "precision"), row, strict=True))
    for name, row in {
        "smoke": ("digits", 10, 3, 1, 32, "fp32"),
        "demo": ("cifar10", 100, 12, 5, 64, "bf16"),
        "record": ("cifar10", 100, 100, 10, 64, "bf16"),
        "paper": ("cifar10", 100, 500, 10, 512, "fp32"),
    }.items()
}
# Default clients per round: 10, or all if there are fewer; the papers' (10, 100 %), (50, 20 %) and (100, 10 %).
SELECTED = 10
KEEP = ("none", "server", "clients")


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run's numbers. A field left at None is filled by the scale, the protocol or the data
    set.

    A field's help on the command line is its `help` here; method hyper-parameters go into `params`, protocol fields
    into `overrides`.
    """

    algorithm: str = setting("FedSSA", help="method, see `python -m fedlib list`")
    params: dict[str, Any] = field(default_factory=dict, metadata={"help": "hyper-parameters of the method"})
    dataset: str | None = setting(
        None,
        help="digits and digits100 are embedded; cifar10, cifar100, mnist, svhn, har, har-raw, pamap2, ag-news, femnist, "
        "tiny-imagenet",
    )
    scenario: str | tuple[str, ...] | None = setting(
        None,
        help="architectures: homogeneous (all CNN-1), heterogeneous (CNN-1..5 in turn), reassembly (M1..M4 in "
        "turn), reassembly-500 (the same with 500 features each), homogeneous-M1, homogeneous-M4, or names of "
        "architectures in turn, such as ResNet-18,MobileNet-V2,ViT-S (`fedlib list`); default heterogeneous, or "
        "reassembly under pFedHR's protocol",
    )
    num_clients: int | None = setting(None, ge=1, help="N, clients in all")
    participation: float | None = setting(
        None,
        gt=0,
        le=1,
        help="C in (0, 1], fraction of the clients selected per round; default 10 clients, or all",
    )
    partition: str = setting(
        "by-class",
        help="by-class, dirichlet, iid, quantity-skew (clients of unequal size), feature-shift (of unlike samples), or "
        "groups (one client per subject, writer or domain of the data set)",
    )
    classes_per_client: int | None = setting(None, help="classes a client holds (by-class); default 2 of 10, 10 of 100")
    alpha: float = setting(0.5, gt=0, help="concentration of the Dirichlet partition and of the quantity skew, above 0")
    rounds: int | None = setting(None, ge=1, help="T, communication rounds")
    local_epochs: float | int | None = setting(
        None, gt=0, help="E, local epochs per round; 0.5: one on half of a client's images"
    )
    batch_size: int | None = setting(None, ge=1, help="B, batch size in images")
    lr: float | None = setting(None, help="learning rate of local training; default the protocol's")
    seed: int = setting(0, help="seed of every random stream")
    paper: str | None = setting(
        None, help="whose protocol: FedSSA, FedGH, pFedES or pFedHR; default the method's, or FedSSA"
    )
    protocol: str = setting(
        "reconstructed",
        help="reconstructed: the text's algorithm, with the code's training where the text is silent; paper: the "
        "text alone; released: what the code does",
    )
    overrides: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "protocol fields by name, such as momentum"}
    )
    public_dataset: str | None = setting(
        None, help="data set of the public images, for methods that need some; default the clients' own"
    )
    public_fraction: float = setting(
        0.1,
        gt=0,
        lt=1,
        help="fraction of the training images that is public; no client holds it, whatever public_dataset is",
    )
    public_images: int | None = setting(None, ge=1, help="largest number of public images; default all of that part")
    public_labels: bool = setting(True, help="whether the public images have labels")
    precision: str | None = setting(
        None,
        choices=training.PRECISIONS,
        help="fp32, or bf16 arithmetic (other numbers; faster on processors with instructions for it); default the scale's",
    )
    device: str = setting(
        "cpu",
        help="cpu, cuda, cuda:1, mps, or auto (cuda where there is one); the workers of a sweep take several in turn: cuda:0,cuda:1",
    )
    keep: str = setting(
        "none", choices=KEEP, help="weights kept in final.pt: none, server or clients (with the server's)"
    )
    metrics: str = fields.later(
        "",
        neutral="",
        in_key=False,
        help="what is measured on each client besides accuracy, names with commas between: balanced_accuracy, "
        "macro_f1, auc, calibration_error",
    )
    newcomers: int = fields.later(
        0,
        neutral=0,
        help="how many of the N clients, drawn by the seed, take no part before the last round, which is theirs alone",
    )
    newcomer_visits: int = fields.later(
        0,
        neutral=0,
        ge=0,
        help="visits, E local epochs each, of the newcomers after the last round, on one download; they then take part in none",
    )
    deterministic: bool = fields.later(
        True,
        neutral=True,
        help="on CUDA, whether only kernels are used that give the same bits each time; false for a layer that has none",
    )
    schedule: str = fields.later(
        "",
        neutral="",
        help="of the learning rate over the rounds, one of torch's, such as CosineAnnealingLR or StepLR(step_size=30)",
    )
    patience: int = fields.later(
        0,
        neutral=0,
        ge=0,
        help="rounds without a better mean validation accuracy of the visited clients after which a run ends; 0: never",
    )
    budget_flops: float = fields.later(
        0.0,
        neutral=0.0,
        ge=0,
        help="FLOPs of all clients and the server; the round in which they are used up is the last one; 0: no such end",
    )
    budget_words: float = fields.later(
        0.0,
        neutral=0.0,
        ge=0,
        help="32-bit words sent by all, both ways; the round in which they are used up is the last one; 0: no such end",
    )
    weights: str = fields.later(
        "",
        neutral="",
        help="files that the clients' networks start from, such as ResNet-18=resnet18.pt; more with commas between",
    )
    isolated: bool = fields.later(
        False,
        neutral=False,
        help="each client with a server of its own, which sees nobody else's uploads: what the method does by itself",
    )


# What a field must be one of, where that is always the same.
CHOICES = {item.name: item.metadata["choices"] for item in dataclasses.fields(RunSpec) if "choices" in item.metadata}


ENDS = ("patience", "budget_flops", "budget_words")  # fields by which a run may end before its last round


@dataclass(frozen=True)
class FilledSpec(RunSpec):
    """A specification in which every field has its value; only inapplicable fields are None."""

    dataset: str = ""
    scenario: str = ""
    num_clients: int = 0
    participation: float = 0.0
    rounds: int = 0
    local_epochs: float | int = 0
    batch_size: int = 0
    lr: float = 0.0
    paper: str = ""
    precision: str = ""

    @property
    def may_end_early(self) -> bool:
        """Whether the run may be whole with fewer rounds than `rounds`."""
        return any(getattr(self, name) for name in ENDS)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> "FilledSpec":
        """What was stored with a run, by this version or an earlier one: renamed fields under today's names, later ones
        at their neutral value. Raises FedlibError for a field that this version does not know, ValueError for a value
        that no version stores.
        """
        known = {item.name: item for item in dataclasses.fields(RunSpec)}
        values = _completed(fields.read(RunSpec, values))
        unknown = [name for name in values if name not in known]
        if unknown:
            raise FedlibError(f"its specification has fields that this fedlib does not know: {', '.join(unknown)}")
        for name, item in known.items():
            kinds = (dict,) if name in ("params", "overrides") else _kinds(item)
            value = values.get(name)
            if type(value) not in kinds and not (
                value is None and (name in MAY_BE_NONE or name in fields.neutral(RunSpec))
            ):
                raise ValueError(f"spec.json: {name} = {value!r}")
        return cls(**values)


MAY_BE_NONE = ("classes_per_client", "public_dataset", "public_images")


@dataclass(frozen=True)
class Resolved:
    """A specification with every field filled, coerced and checked; `hashed` is what its key is made of."""

    spec: FilledSpec
    algorithm: algorithms.Algorithm
    protocol: Protocol
    info: data.DatasetInfo
    hashed: dict[str, Any]

    @property
    def data(self) -> data.Dataset:
        """The clients' data set, read when it is first asked for."""
        return read_images(self.spec.dataset)

    @property
    def key(self) -> str:
        digest = hashlib.sha256(json.dumps(self.hashed, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.spec.algorithm}-{self.spec.dataset}-{digest}"

    @property
    def simulated(self) -> algorithms.Algorithm:
        """The method as the simulation runs it: isolated where the specification says so."""
        return Isolated(self.algorithm) if self.spec.isolated else self.algorithm

    @property
    def session(self) -> str:
        """The run and the versions of its numbers: a checkpoint of another session is not resumed."""
        changed = (f"{part} {number}" for part, number in self.numerics.items() if number != 1)
        digests = self.own_metrics
        asked = (f"{name}={digests[name]}" if name in digests else name for name in metrics.measured(self.spec.metrics))
        return ", ".join([self.key, *changed, *asked])

    @property
    def numerics(self) -> dict[str, int]:
        """The parts of fedlib whose numbers the run is made of, and their versions."""
        return numerics.versions(self.hashed)

    def joined(self, other: RunSpec) -> "Resolved":
        """The same run with the union of what it and `other`, a specification of the same run, keep and measure: a metric that is
        not registered here cannot be measured again.
        """
        keep = max(self.spec.keep, other.keep, key=KEEP.index)
        known = [name for name in other.metrics.split(",") if name in metrics.METRICS]
        both = ",".join(sorted({*self.spec.metrics.split(","), *known} - {""}))
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, keep=keep, metrics=both))

    def remade(self, made: Mapping[str, str]) -> "Resolved":
        """The run of a person's own parts that make something else today than they did for a stored run: another one."""
        return dataclasses.replace(self, hashed=self.hashed | {"made": dict(made)})

    @property
    def own(self) -> dict[str, str]:
        """Digests of the person's own parts, by kind (see `_own_parts`)."""
        return self.hashed.get("own", {})

    @property
    def own_metrics(self) -> dict[str, str]:
        """Digests of the person's own metrics that the run measures: they decide no key, but what stands in its columns."""
        asked = {name: metrics.METRICS[name] for name in metrics.measured(self.spec.metrics)}
        return {name: own.digest(one.of_client) for name, one in asked.items() if one not in metrics.BUILT_IN}

    def measured_by(self, columns: Iterable[Any], provenance: Mapping[str, Any]) -> bool:
        """Whether a record with these columns has the metrics that are asked for, measured by today's code."""
        before = provenance.get("metrics", {})
        same = all(before.get(name, digest) == digest for name, digest in self.own_metrics.items())
        return same and {*self.spec.metrics.split(",")} - {""} <= {*columns}

    def check_data(self) -> None:
        """Raise FedlibError where a data set is no longer what the key was made of."""
        for name in filter(None, (self.spec.dataset, self.spec.public_dataset)):
            data.check(name)

    def check_own_parts(self) -> None:
        """Raise FedlibError where a person's own parts are no longer what they were when the key was made."""
        today = _own_parts(self.algorithm, self.hashed["architectures"], self.spec.partition)
        for part, before in self.own.items():
            if today.get(part) != before:
                raise FedlibError(
                    f"{part} of {self.label}: a global, a class attribute or a closure that its code names has changed "
                    "while it trained, which no checkpoint keeps; what is to be kept goes into client.state, the server's "
                    "state or diagnostics"
                )

    @property
    def architectures(self) -> tuple[str, ...]:
        """Those of clients 0, 1, 2, ... in turn."""
        return models.architectures(self.spec.scenario)

    @property
    def label(self) -> str:
        """A short name for progress bars."""
        return f"{self.spec.algorithm} {self.spec.dataset} N={self.spec.num_clients} seed={self.spec.seed}"

    @property
    def portable(self) -> bool:
        """Whether another process can compute the run: all own parts come from installed packages."""
        named = [name.removeprefix("architecture ") for name in self.own if name.startswith("architecture ")]
        parts: list[tuple[str, str, Any]] = [("fedlib.models", name, models.BUILDERS[name]) for name in named]
        if "method" in self.own:
            parts.append(("fedlib.algorithms", self.spec.algorithm, type(self.algorithm)))
        for name in data.registered() & {self.spec.dataset, self.spec.public_dataset}:
            parts.append(("fedlib.datasets", name, data.REGISTERED[name]))
        return not self.own_metrics and "partition" not in self.own and all(plugins.provides(*part) for part in parts)

    @property
    def reserves(self) -> bool:
        """Whether a part of the training images, the public one, is kept from the clients."""
        return self.algorithm.public_data != "none" or self.protocol.reserve

    @property
    def samples(self) -> float:
        """Approximate number of training images that the run will process."""
        spec, (train, validation, test) = self.spec, self.protocol.parts
        of_training = float(self.info.num_train)
        if self.reserves:
            of_training *= 1 - spec.public_fraction
        dealt = of_training + (self.info.num_test if self.protocol.split.startswith("local") else 0)
        share = train / (train + validation + (0 if self.protocol.split.startswith("official") else test))
        if spec.partition == "by-class":  # few clients leave classes, or shards, that nobody holds
            taken = spec.num_clients * (spec.classes_per_client or 1)
            shards = self.protocol.dealing == "shards"
            share *= min(1.0, taken / (partition.num_shards(int(dealt), taken) if shards else self.info.num_classes))
        selected = simulation.participants(spec.num_clients, spec.participation)
        return selected * share * dealt / spec.num_clients * spec.rounds * spec.local_epochs


def read_images(name: str) -> data.Dataset:
    """`data.load`; of several processes that miss the same data set, one downloads it and the others wait."""
    if data.available(name):
        return data.load(name)
    lock = filelock.FileLock(data.root() / f".{name}.lock")
    try:
        data.root().mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError:
        return data.load(name)  # which says what cannot be written
    try:
        return data.load(name)
    finally:
        lock.release()


def spec_from(values: Mapping[str, Any]) -> RunSpec:
    """The specification in a JSON object, of today's or of an earlier version: fields under old names are read as what
    they are called today, and where it names all fields of its version, those of later ones are at their neutral value.

    Raises FedlibError for a field that is unknown.
    """
    known = [item.name for item in dataclasses.fields(RunSpec)]
    values = fields.read(RunSpec, values)
    for name in values:
        choose("field", name, known)
    whole = set(known) - set(fields.neutral(RunSpec)) <= set(values)
    return RunSpec(**_completed(values) if whole else values)


def _completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a whole specification of any version, with what its version did not know at its neutral value."""
    found = fields.neutral(RunSpec) | dict(values)
    method = algorithms.ALGORITHMS.get(found["algorithm"])
    if method is not None and isinstance(found["params"], Mapping):
        found["params"] = fields.neutral(method) | fields.read(method, found["params"])
    return found


def _check_types(spec: Any) -> None:
    """Raise FedlibError where a field has the wrong type: no text, no mapping, or None though it needs a value."""
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

    scale: one of SCALES; by default smoke on embedded data (or none given) and demo on real data.
    """
    plugins.load_plugins()
    _check_types(spec)
    if scale is None:
        scale = "demo" if spec.dataset and spec.dataset not in data.EMBEDDED else "smoke"
    choose("scale", scale, SCALES)
    values = {item.name: getattr(spec, item.name) for item in dataclasses.fields(RunSpec)}
    choose("algorithm", values["algorithm"], algorithms.ALGORITHMS, algorithms.OWN)
    whose = _whose(*(values[name] for name in ("algorithm", "paper", "protocol", "scenario")))
    values |= dict(zip(_PRESET, whose, strict=True))
    sizes = SCALES[scale] | presets.sizes(*whose, scale)
    if values["partition"] == "groups":
        values |= _of_groups(values, sizes)
    values = {name: sizes.get(name) if value is None else value for name, value in values.items()}
    kind = algorithms.ALGORITHMS[values["algorithm"]]
    values["overrides"] = fields.read(Protocol, values["overrides"])
    given = fields.read(kind, presets.params(*whose, values["algorithm"])) | fields.read(kind, values["params"])
    method = algorithms.make(values["algorithm"], given)
    preset = presets.protocol(*whose, values["overrides"])
    values["overrides"] = {name: getattr(preset, name) for name in values["overrides"]}
    for item in dataclasses.fields(RunSpec):
        kind = fields.kind_of(item)
        if kind in (int, float, str, bool) and values[item.name] is not None:
            values[item.name] = coerce(item.name, values[item.name], kind)
            fields.check(item, values[item.name])
    values["local_epochs"] = whole_or_part("local_epochs", values["local_epochs"])
    if values["participation"] is None:
        values["participation"] = min(1.0, SELECTED / max(1, values["num_clients"]))
    choose("partition", values["partition"], [*partition.BUILT_IN, *partition.REGISTERED])
    if values["lr"] is not None:
        preset = dataclasses.replace(preset, lr=values["lr"])
    for name in ("num_clients", "rounds", "local_epochs", "batch_size"):
        require(values[name] < 2**31, name, values[name], "below 2**31")
    require(0 <= values["seed"] < 2**63, "seed", values["seed"], "between 0 and 2**63 - 1")
    allowed = f"between 0 and {values['num_clients'] - 1}, fewer than there are clients"
    require(0 <= values["newcomers"] < values["num_clients"], "newcomers", values["newcomers"], allowed)
    allowed = "0 where there are no newcomers"
    require(values["newcomers"] or not values["newcomer_visits"], "newcomer_visits", values["newcomer_visits"], allowed)
    waiting = values["newcomers"] and not values["newcomer_visits"]
    allowed = "at least 2, of which the last is the newcomers'"
    require(values["rounds"] >= 2 or not waiting, "rounds", values["rounds"], allowed)
    for name in ("budget_flops", "budget_words"):
        require(not waiting or not values[name], name, values[name], "0 where newcomers wait for the last round")
    if values["schedule"]:
        from .. import optimisers

        values["schedule"] = optimisers.spelled("schedule", values["schedule"])
        optimisers.rates(values["schedule"], preset.lr, values["rounds"])
    allowed = "0 where clients have no validation images, or newcomers wait for the last round"
    require((preset.parts[1] > 0 and not waiting) or not values["patience"], "patience", values["patience"], allowed)
    values["device"] = devices.several(values["device"])
    on_cuda = devices.kind(values["device"]) == "cuda"
    require(
        on_cuda or values["deterministic"], "deterministic", values["deterministic"], "true but on CUDA, as others are"
    )

    dataset = data.info(values["dataset"])
    # A preset's augmentation is for data that may be flipped.
    if not dataset.augment and "augmentation" not in values["overrides"]:
        preset = dataclasses.replace(preset, augmentation="none")
    if dataset.kind != "image" and "normalise" not in values["overrides"]:  # of the presets `half` is for pictures
        preset = dataclasses.replace(preset, normalise="dataset")
    preset.check_augmentation(dataset.name, dataset.augment)
    method = _fitting(method, given, dataset.sample)
    method.check_samples(models.architectures(values["scenario"]), dataset.sample)
    if values["public_dataset"] is not None:
        choose("public_dataset", values["public_dataset"], data.names())
        allowed = "another data set than the clients'; without it, a part of theirs is public"
        require(values["public_dataset"] != values["dataset"], "public_dataset", values["public_dataset"], allowed)
    if values["partition"] == "by-class":
        held = values["classes_per_client"]
        usual = 10 if dataset.num_classes >= 100 else min(2, dataset.num_classes)
        held = usual if held is None else held
        allowed = f"between 1 and {dataset.num_classes}, the number of classes of {dataset.name}"
        require(1 <= held <= dataset.num_classes, "classes_per_client", held, allowed)
        values["classes_per_client"] = held
    values |= {"params": dataclasses.asdict(method), "lr": preset.lr}
    values["metrics"] = ",".join(metrics.measured(values["metrics"]))
    if values["isolated"]:
        check_isolated(method, preset.inherit)
    images = dataset.num_images
    allowed = f"at most {images // 3}: {dataset.name} has {images} images and a client needs 3"
    require(3 * values["num_clients"] <= images, "num_clients", values["num_clients"], allowed)

    return Resolved(FilledSpec(**values), method, preset, dataset, _hashed(values, method, preset, dataset))


def _fitting(method: algorithms.Algorithm, given: Mapping[str, Any], sample: Sample) -> algorithms.Algorithm:
    """The method with its networks by default, such as FML's shared CNN-5, where they are not for such samples, replaced."""
    defaults = {item.name: getattr(method, item.name) for item in dataclasses.fields(method) if item.name not in given}
    networks = {name: value for name, value in defaults.items() if isinstance(value, str) and value in models.BUILDERS}
    others = {name: models.fitting(value, sample) for name, value in networks.items()}
    return dataclasses.replace(method, **others) if others != networks else method


def _hashed(
    values: Mapping[str, Any], method: algorithms.Algorithm, preset: Protocol, dataset: data.DatasetInfo
) -> dict[str, Any]:
    """What a run's key is a hash of: all that decides its numbers, and nothing that it has no use for."""
    left_out = ("paper", "protocol", "overrides", "keep", "lr")  # the protocol's fields stand in their place
    asked = {name: value for name, value in values.items() if name not in left_out}
    asked["device"] = devices.kind(values["device"])
    hashed = fields.in_key(RunSpec, asked | {"params": fields.in_key(type(method), values["params"])})
    if values["partition"] not in ("dirichlet", "quantity-skew"):
        del hashed["alpha"]
    if values["partition"] != "by-class":
        del hashed["classes_per_client"]
    if method.public_data == "none":
        for name in ("public_dataset", "public_images", "public_labels"):
            del hashed[name]
        if not preset.reserve:
            del hashed["public_fraction"]
    elif values["public_dataset"]:
        hashed["public"] = data.info(values["public_dataset"]).fingerprint
    hashed |= {
        "protocol": fields.in_key(Protocol, dataclasses.asdict(preset)),
        "architectures": list(models.architectures(values["scenario"])),
        "data": {"fingerprint": dataset.fingerprint, "mean": list(dataset.mean), "std": list(dataset.std)}
        | {
            name: list(value) if isinstance(value, tuple) else value  # as it is read back
            for name, value in fields.in_key(type(dataset), vars(dataset)).items()
            if name in fields.neutral(type(dataset))
        },
    }
    if values["weights"]:
        hashed["weights"] = pretrained.digests(values["weights"], models.architectures(values["scenario"]))
    digests = _own_parts(method, hashed["architectures"], values["partition"])
    if digests:
        hashed["own"] = digests
    return hashed


def _of_groups(values: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The number of clients where nothing is said: one per group. Raises FedlibError for a data set without groups."""
    info = data.info(values["dataset"] or sizes["dataset"])
    allowed = f"another one, since {info.name} does not say whose its samples are (Dataset.from_arrays, groups=...)"
    require(info.groups > 0, "partition", "groups", allowed)
    return {"num_clients": info.groups if values["num_clients"] is None else values["num_clients"]}


def _own_parts(method: algorithms.Algorithm, architectures: Iterable[str], partition_name: str) -> dict[str, str]:
    """Digests of what a person defined and a run uses: its method, networks (also those that the method's parameters
    name) and partition. One changed line gives another digest, and so another key.
    """
    parts: dict[str, Any] = {} if type(method) in algorithms.BUILT_IN else {"method": type(method)}
    for name in sorted({*architectures, *map(str, dataclasses.asdict(method).values())}):
        if name in models.BUILDERS and not models.is_built_in(name):
            parts[f"architecture {name}"] = models.BUILDERS[name]
    if partition_name not in partition.BUILT_IN:
        parts["partition"] = partition.REGISTERED[partition_name]
    return {name: own.digest(part) for name, part in parts.items()}


_PRESET = ("paper", "protocol", "scenario")


def _whose(algorithm: str, paper: str | None, protocol: str, scenario: str | None) -> tuple[str, str, str]:
    """Whose protocol a run has, and which: paper, protocol and scenario, where they are not said, of the method."""
    if paper is None:
        paper = algorithm if (algorithm, protocol) in presets.PRESETS else "FedSSA"
    if scenario is None:
        scenario = presets.preset(paper, protocol).scenario
    return paper, protocol, models.scenario(scenario)


def differences(spec: FilledSpec) -> list[str]:
    """How a resolved specification differs from its method's usual run on its data set, field by field, where the field
    decides numbers. N, C, T, E and the seed are left to the caller; the fields of a named protocol are not listed.
    """
    preset = {name: getattr(spec, name) for name in _PRESET}
    try:
        usual = dict(zip(_PRESET, _whose(spec.algorithm, None, RunSpec.protocol, None), strict=True))
        run, own = resolve(spec), resolve(RunSpec(spec.algorithm, dataset=spec.dataset, num_clients=1, **preset))
    except FedlibError:
        return ["parts that are not registered here"]
    found = [_in_short(name, value) for name, value in preset.items() if value != usual[name]]
    for part in ("params", "overrides"):
        values, theirs = getattr(spec, part), getattr(own.spec, part)
        found += [_in_short(name, value) for name, value in values.items() if value != theirs.get(name)]
    found += [_in_short("lr", spec.lr)] if spec.lr != own.spec.lr else []
    left_out = {"algorithm", "dataset", "params", "seed", "num_clients", "participation", "rounds", "local_epochs"}
    for item in dataclasses.fields(RunSpec):
        name = item.name
        if name not in {*_PRESET, *left_out} and name in run.hashed and run.hashed[name] != own.hashed.get(name):
            found.append(_in_short(name, getattr(spec, name)))
    return found


def _in_short(name: str, value: Any) -> str:
    """A field and its value: the name alone is enough of what is true, and the value of the commonest ones."""
    if value is True or name in ("scenario", "partition", "protocol", "precision"):
        return name if value is True else str(value)
    name = {"classes_per_client": "classes", "public_fraction": "public", "batch_size": "B"}.get(name, name)
    return f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
