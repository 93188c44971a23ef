"""`fedlib run`: train one specification, or read it if it is stored."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from .. import algorithms, data, devices, fields, lab, partition
from ..errors import FedlibError, distinct
from ..lab import costs, presets
from ..papers import recorded
from ..protocol import Protocol
from ..show import intervals
from . import Scale, completed, fill, spelled

# Fields of a specification that name something: what a shell completes.
NAMES = {
    "dataset": data.names(),
    "public_dataset": data.names(),
    "partition": partition.BUILT_IN,
    "paper": list(dict.fromkeys(paper for paper, _ in presets.PRESETS)),
    "protocol": list(dict.fromkeys(protocol for _, protocol in presets.PRESETS)),
    "device": devices.KNOWN,
    **lab.CHOICES,
}
FIELDS = [item for item in dataclasses.fields(lab.RunSpec) if item.name not in ("algorithm", "params", "overrides")]


def _option(item: "dataclasses.Field[Any]") -> tuple[str, Any, None]:
    """A field of RunSpec as an option, whose value `lab.resolve` checks."""
    if item.default is False:
        return item.name, Annotated[bool | None, Parameter(help=item.metadata["help"])], None
    default = "" if item.default in (None, "") else f" (default {item.default})"
    kind = completed(NAMES[item.name]) if item.name in NAMES else str
    return item.name, Annotated[kind | None, Parameter(metavar="VALUE", help=item.metadata["help"] + default)], None


Options = Parameter(name="*")(
    dataclasses.make_dataclass("Options", map(_option, FIELDS), namespace={"__module__": __name__})
)
Pairs = Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE")]


def run(
    algorithm: completed(algorithms.ALGORITHMS) | None = None,  # type: ignore[valid-type]
    /,
    *,
    spec: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,  # `-` is standard input
    options: Options = Options(),  # type: ignore[valid-type]  # noqa: B008
    params: Annotated[Pairs, Parameter(name="--set")] = (),
    override: Pairs = (),
    scale: Scale | None = None,
    reuse_stale: bool = False,
) -> None:
    """Train one specification, or read its record, and print what came of it.

    Parameters
    ----------
    algorithm
        method, see `fedlib list`
    spec
        FILE with the specification as a JSON object (- for standard input): fields of RunSpec, such as a run of
        `reproduce --plan json`; in place of everything below but --scale and --reuse-stale
    params
        hyper-parameter of the method; repeatable
    override
        field of the protocol, such as momentum; repeatable
    scale
        smoke, demo, record or paper: fills every field not given (default: smoke on embedded data, demo on real data)
    reuse_stale
        accept a stored record whose numbers have changed since
    """
    given = _given(algorithm, options)
    if spec is not None:
        others = [*given, *(name for name, values in (("set", params), ("override", override)) if values)]
        if others:
            raise FedlibError(f"--spec cannot be combined with {', '.join(map(_flag, others))}")
        asked = _spec_from(spec)
    elif algorithm is None:
        raise FedlibError("algorithm: must be given, see `fedlib list`, or --spec FILE")
    else:
        asked = lab.RunSpec(**given, params=_pairs("set", params), overrides=_pairs("override", override))
    resolved = lab.resolve(asked, scale)
    _say_other_decay(resolved)
    record = lab.run(asked, scale, reuse_stale=reuse_stale)
    print_record(record)


def _given(algorithm: str | None, options: Any) -> dict[str, Any]:
    """The fields of the specification that were given, names spelled as they are known."""
    given: dict[str, Any] = {name: value for name, value in vars(options).items() if value is not None}
    if algorithm is not None:
        given["algorithm"] = algorithm
    for name, known in {"algorithm": algorithms.ALGORITHMS, **NAMES}.items():
        if name in given and name not in ("partition", "device", *lab.CHOICES):
            given[name] = spelled(name, given[name], known)
    return given


def _flag(name: str) -> str:
    return name if name == "algorithm" else "--" + name.replace("_", "-")


def print_record(record: lab.Record) -> None:
    """What a run was, its accuracies by each rule, what it sent and where it is stored."""
    spec, last = record.spec, record.rounds.iloc[-1]
    stale = f" (stale: {', '.join(record.moved)} changed since)" if record.stale else ""
    print(f"{record.key}: {record.status} after {int(last['round']) + 1} of {spec.rounds} rounds{stale}")
    setting = (
        f"{spec.algorithm} on {spec.dataset}, {spec.scenario}, N = {spec.num_clients}, C = {spec.participation:.3g}, "
        f"T = {spec.rounds}, E = {spec.local_epochs}, B = {spec.batch_size}, lr = {spec.lr:g}, seed {spec.seed}, "
        f"protocol {spec.protocol} of {spec.paper}"
    )
    lines = [setting]
    method = algorithms.ALGORITHMS.get(spec.algorithm)
    for what, owner, values in (("parameters", method, spec.params), ("overrides", Protocol, spec.overrides)):
        if values:
            lines.append(f"{what}: " + ", ".join(fields.with_meaning(owner, *item) for item in values.items()))
    differs = lab.differences(spec)
    if differs:
        lines.append(f"differs from the usual setting in: {', '.join(differs)}")
    if record.status == "diverged":
        lines.append("accuracy: – (a round left numbers that are not finite)")
    else:
        lines += _accuracies(record)
    if len(record.newcomers):
        stages: dict[Any, str] = {-1: "at the start", 0: "after the download", 1: "after 1 visit"}
        means = 100 * record.newcomers.groupby("visits")["accuracy"].mean()
        said = [f"{stages.get(visits, f'after {visits}')} {mean:.2f}" for visits, mean in means.items()]
        lines.append(f"mean test accuracy of {spec.newcomers} newcomers, %: {', '.join(said)}")
    trained = record.rounds[record.rounds["round"] >= 0]
    words = float(trained[["download_words", "upload_words"]].to_numpy().sum())
    per_client = costs.kilobytes(words / record.rounds["selected"].sum())
    megabytes = costs.kilobytes(words) / 1024
    for what, (used, most) in costs.budgets(record).items():
        ended = "" if used >= most else ", the rounds ended first"
        lines.append(f"budget: {used / most:.0%} of {most:.3g} {what}{ended}".replace("%", " %"))
    lines.append(f"communication: {per_client:.2f} KB a client and round, {megabytes:.2f} MB in all")
    print(*(fill(line, indent=2) for line in lines), sep="\n")
    print(f"{int(last['visited'])} of {spec.num_clients} clients visited; {record.provenance['seconds']:.0f} s")
    print(f"stored in {record.path}")


def _accuracies(record: lab.Record) -> list[str]:
    """Mean test accuracies, over three sets of clients and by each rule."""
    rounds = record.rounds[record.rounds["round"] >= 0]
    rules = {"last": "last round"}
    if len(rounds) > 1:
        rules["last10"] = f"mean of the last {min(10, len(rounds))}"
    if rounds["validation_accuracy"].notna().any():
        rules["validation"] = "round of best validation"
    averaged = {
        "accuracy": "the visited clients",
        "accuracy_all": "all clients",
        "accuracy_selected": "each round's clients",
    }
    lines = []
    for column, name in averaged.items():
        shown = [
            f"{words} {100 * intervals.selected_accuracy(record.rounds, rule, column):.2f}"
            for rule, words in rules.items()
            if rule != "validation" or column == "accuracy"
        ]
        lines.append(f"mean test accuracy of {name}, %: {', '.join(shown)}")
    return lines


def _say_other_decay(resolved: lab.Resolved) -> None:
    """A line, before anything is trained, where a run is not its row of record because of its weight decay alone."""
    found = None if resolved.spec.dataset in data.EMBEDDED else recorded.other_decay(resolved)
    if found is None:
        return
    its, here = found.hashed["protocol"]["weight_decay"], resolved.protocol.weight_decay
    if found.spec.paper == resolved.spec.paper:
        said = f"row of record: weight decay {its:g}, not {here:g} (--override weight_decay={its:g})"
    else:
        whose = found.spec.paper
        said = f"row of record: {whose}'s weight decay, {its:g}, not {here:g} (--paper {whose})"
    print(fill(said, indent=2), flush=True)


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise FedlibError(f"--{flag} {text!r}: must be NAME=VALUE")
        pairs[name] = value
    return pairs


def _spec_from(name: str) -> lab.RunSpec:
    """The specification in a file, or on standard input: the fields themselves, or those under `spec`, as a run in a
    plan and spec.json in the store have them.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        content = json.loads(text, object_pairs_hook=_once_each)
    except FedlibError as error:
        raise FedlibError(f"--spec = {name!r}: {error}") from None
    except OSError as error:
        raise FedlibError(f"--spec = {name!r}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError):
        raise FedlibError(f"--spec = {name!r}: must be a JSON object") from None
    content = content.get("spec", content) if isinstance(content, dict) else content
    if not isinstance(content, dict):
        raise FedlibError(f"--spec = {name!r}: must be a JSON object with fields of RunSpec")
    try:
        return lab.spec_from(content)
    except FedlibError as error:
        raise FedlibError(f"--spec {name}: {error}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name stands twice."""
    distinct("names of an object", [name for name, _ in pairs])
    return dict(pairs)
