"""python -m fedlib list | data | run | reproduce | runs: each has a --help."""

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pandas as pd

from . import algorithms, costs, data, exhibits, models, report, reproduce, runs
from .errors import FedlibError, choose

DESCRIPTION = "A reproducible companion to four papers on model-heterogeneous personalised federated learning."


class Parser(argparse.ArgumentParser):
    """Wrong usage is one clear line too, and an option is never guessed from its first letters."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **({"allow_abbrev": False} | named))

    def error(self, message: str) -> NoReturn:
        raise FedlibError(f"{message.replace(chr(10), ' ')}; see `{self.prog} --help`")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        known = [text for command in _commands(_parser()) for text in command._option_string_actions if len(text) > 2]
        choose("option", unknown[0].partition("=")[0], dict.fromkeys(known))
    return options


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _parser() -> Parser:
    parser = Parser("python -m fedlib", description=DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="list | data | run | reproduce | runs")

    command = commands.add_parser(
        "list", help="the methods: paper, what is exchanged, what clients must share, hyper-parameters"
    )
    command.add_argument(
        "--costs", action="store_true", help="words and FLOPs of each method instead, measured (a minute)"
    )

    command = commands.add_parser(
        "data",
        help="the data sets: what is here, and how to get the rest",
        description="Without a name, list the data sets and where they are. With a name, load it (downloading it if "
        "it is not there) and describe it.",
    )
    command.add_argument("name", nargs="?", help=", ".join(data.names()))

    command = commands.add_parser(
        "run",
        help="train one specification, or read it if it is stored",
        description="Train one specification and store its record; the same command reads a finished run and resumes an "
        "interrupted one (Ctrl-C leaves a checkpoint).",
        epilog="Example: python -m fedlib run FedSSA --dataset cifar10 --num-clients 10 --device auto --set mu0=0.5",
    )
    command.add_argument("algorithm", help="method, see `python -m fedlib list`")
    for item in dataclasses.fields(runs.RunSpec):
        if item.name not in ("algorithm", "params", "overrides"):
            default = "" if item.default is None else f" (default {item.default})"
            command.add_argument(
                "--" + item.name.replace("_", "-"), metavar="VALUE", help=item.metadata["help"] + default
            )
    command.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="hyper-parameter of the method; repeatable"
    )
    command.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="field of the protocol, such as momentum; repeatable",
    )
    command.add_argument(
        "--scale",
        help="smoke, demo or paper: fills every field not given (default: smoke on embedded data, demo on real data)",
    )
    command.add_argument("--reuse-stale", action="store_true", help="accept a stored record that other code computed")

    command = commands.add_parser(
        "reproduce",
        help="make exhibits: train what is missing, execute the notebooks, check figures and tables",
        description="Make one exhibit (fedssa/table2), a paper's (fedssa), or all. They are: "
        + ", ".join(exhibits.every())
        + ".",
    )
    command.add_argument("exhibit", nargs="?", default="all")
    command.add_argument(
        "--scale", default="smoke", help="smoke (embedded data, minutes), demo (real data, an evening) or paper (days)"
    )
    command.add_argument("--jobs", default="2", help="runs trained side by side, one thread each (default 2)")
    command.add_argument(
        "--dry-run", action="store_true", help="say what would be trained and how long it would take, and stop"
    )
    command.add_argument("--reuse-stale", action="store_true", help="accept stored records that other code computed")

    command = commands.add_parser("runs", help="what is stored: list, show, diff, prune, export")
    actions = command.add_subparsers(dest="action", metavar="list | show | diff | prune | export")
    actions.add_parser("list", help="every stored run, a line each (the default)")
    actions.add_parser("show", help="one run: specification, provenance, rounds").add_argument("key")
    action = actions.add_parser("diff", help="where two runs differ: specification, provenance, accuracy")
    action.add_argument("key")
    action.add_argument("other")
    action = actions.add_parser("prune", help="delete unfinished, stale and set-aside runs (asks --yes)")
    action.add_argument("--yes", action="store_true", help="really delete; without it, only say what would go")
    actions.add_parser(
        "export", help="write the finished real-data runs' summaries to results/ (the results of record)"
    )
    return parser


def _list() -> None:
    print(f"{'method':<12} {'scenarios':<28} {'public data':<12} {'exchanged':<47} paper")
    for method in algorithms.ALGORITHMS.values():
        scenarios = "homogeneous" if method.needs == "architecture" else "homogeneous, heterogeneous"
        print(f"{method.name:<12} {scenarios:<28} {method.public_data:<12} {method.exchanges:<47} {method.paper}")
        parameters = [f"{item.name} = {item.default}" for item in dataclasses.fields(method)]
        if parameters:
            print(f"{'':<12} parameters: {', '.join(parameters)}")


def _costs() -> None:
    print("32-bit words a client and round, down and up, in a steady-state round: as the papers count and as they are")
    print(costs.table().to_string())
    print("\nFLOPs of local training by those of Standalone, at E = 1 (PyTorch's counter on real rounds)")
    rows = {}
    for name, method in algorithms.ALGORITHMS.items():
        shown = ("CNN-1",) if method.needs == "architecture" else tuple(models.CNN_WIDTHS)
        rows[name] = {
            architecture: f"{costs.relative_to_standalone(method(), architecture):.3f}" for architecture in shown
        }
    print(pd.DataFrame.from_dict(rows, orient="index").fillna("").to_string())


def _data(name: str | None) -> None:
    if name is None:
        print(f"real data under {data.root()} (FEDLIB_DATA)")
        for known in data.names():
            where = (
                "embedded"
                if known in data.EMBEDDED
                else "here"
                if data.available(known)
                else f"missing: python -m fedlib data {known}"
            )
            print(f"  {known:<15} {where}")
        return
    dataset = data.load(name)
    print(
        f"{name}: {dataset.num_train} training and {len(dataset.labels) - dataset.num_train} test images, "
        f"{tuple(dataset.images.shape[1:])}, {dataset.num_classes} classes, fingerprint {dataset.fingerprint}"
    )


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise FedlibError(f"--{flag} {text!r}: must be NAME=VALUE")
        pairs[name] = value
    return pairs


def _run(options: argparse.Namespace) -> None:
    names = [item.name for item in dataclasses.fields(runs.RunSpec) if item.name not in ("params", "overrides")]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    spec = runs.RunSpec(**given, params=_pairs("set", options.set), overrides=_pairs("override", options.override))
    record = runs.run(spec, options.scale, reuse_stale=options.reuse_stale)
    spec, last = record.spec, record.rounds.iloc[-1]
    stale = " (stale: other code)" if record.stale else ""
    print(f"{record.key}: {record.status} after {int(last['round']) + 1} of {spec.rounds} rounds{stale}")
    print(
        f"{spec.algorithm} {json.dumps(spec.params)} on {spec.dataset}, {spec.scenario}, N = {spec.num_clients}, C = {spec.participation}, "
        f"E = {spec.local_epochs}, B = {spec.batch_size}, lr = {spec.lr}, seed {spec.seed}, protocol {spec.protocol} of {spec.paper}"
    )
    if record.status == "diverged":
        print("accuracy: – (a training loss was not finite)")
    else:
        validated = record.rounds["validation_accuracy"].notna().any()
        rules = ", ".join(
            f"{rule} {100 * report.selected_accuracy(record.rounds, rule):.2f}"
            for rule in ("last", "last10", *(["validation"] if validated else []))
        )
        print(
            f"mean test accuracy over all clients, %: {rules}; over the last round's clients: {100 * last['accuracy_selected']:.2f}"
        )
    words = record.rounds.query("round >= 0")[["download_words", "upload_words"]].sum().sum()
    per_client = words / record.rounds["selected"].sum()
    print(
        f"communication: {costs.kilobytes(per_client):.2f} KB a client and round, {costs.kilobytes(words) / 1024:.2f} MB in all"
    )
    print(
        f"{int(last['visited'])} of {spec.num_clients} clients visited; {record.provenance['seconds']:.0f} s; stored in {record.path}"
    )


def _runs(options: argparse.Namespace) -> None:
    action = options.action or "list"
    if action == "list":
        _list_runs()
    elif action == "show":
        record = _stored(options.key)
        print(json.dumps({"spec": dataclasses.asdict(record.spec), "provenance": record.provenance}, indent=1))
        print(record.rounds.to_string(index=False))
    elif action == "diff":
        _diff(_stored(options.key), _stored(options.other))
    elif action == "prune":
        _prune(options.yes)
    else:
        print(f"wrote {runs.export()} runs to {runs.home() / 'results'}")


def _stored(key: str) -> runs.Record:
    known = [path.name for path in runs.stored()]
    matches = [name for name in known if name.startswith(key)] or [name for name in known if key in name]
    if len(matches) != 1:
        which = "names no stored run" if not matches else f"names {len(matches)} stored runs"
        raise FedlibError(f"run = {key!r}: {which}; `python -m fedlib runs` lists them")
    record = runs.read(runs.store() / (key if key in known else matches[0]))
    if record is None:
        raise FedlibError(f"run = {key!r}: not finished; the command that started it resumes it")
    return record


def _state(name: str) -> tuple[str, runs.Record | None]:
    """A stored run's state in a word, and its record if it is whole."""
    if ".stale-" in name or ".damaged-" in name:
        return "set aside", None
    try:
        record = runs.read(runs.store() / name)
    except FedlibError:
        return "damaged", None
    if record is None:
        return "unfinished", None
    return ("stale" if record.stale else record.status), record


def _list_runs() -> None:
    print(f"{'run':<44}{'state':<12}{'N':>5}{'C':>6}{'T':>5}{'seed':>6}{'accuracy %':>12}")
    for path in runs.stored():
        state, record = _state(path.name)
        line = f"{path.name:<44}{state:<12}"
        if record is not None:
            spec = record.spec
            accuracy = (
                "–" if record.status == "diverged" else f"{100 * report.selected_accuracy(record.rounds, 'last'):.2f}"
            )
            line += f"{spec.num_clients:>5}{spec.participation:>6}{spec.rounds:>5}{spec.seed:>6}{accuracy:>12}"
        print(line)
    print(f"in {runs.store()}")


def _diff(one: runs.Record, two: runs.Record) -> None:
    for part in ("spec", "provenance"):
        pair = [dataclasses.asdict(record.spec) if part == "spec" else record.provenance for record in (one, two)]
        for name in pair[0]:
            if pair[0][name] != pair[1].get(name):
                print(f"{part}.{name}: {pair[0][name]} | {pair[1].get(name)}")
    same = one.digest == two.digest
    last = [f"{100 * report.selected_accuracy(record.rounds, 'last'):.2f}" for record in (one, two)]
    print(f"last accuracy: {' | '.join(last)} %")
    print(f"final states: {'the same bits' if same else 'different bits'}")


def _prune(really: bool) -> None:
    doomed = [path for path in runs.stored() if _state(path.name)[0] not in ("finished", "diverged")]
    for path in doomed:
        print(f"{'deleted' if really else 'would delete'} {path.name} ({_state(path.name)[0]})")
        if really:
            shutil.rmtree(path)
    if doomed and not really:
        print("nothing was deleted; add --yes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 (an artefact is missing or stale), 2 (bad input) or 130 (interrupted)."""
    try:
        options = _parse(arguments)
        if options.command == "list":
            _costs() if options.costs else _list()
        elif options.command == "data":
            _data(options.name)
        elif options.command == "run":
            _run(options)
        elif options.command == "runs":
            _runs(options)
        else:
            jobs = runs.coerce("jobs", options.jobs, int)
            made = reproduce.reproduce(
                options.exhibit, options.scale, jobs=jobs, dry_run=options.dry_run, reuse_stale=options.reuse_stale
            )
            return 0 if made else 1
    except FedlibError as error:
        print(f"fedlib: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        print(f"fedlib: {str(stopped) or 'interrupted; the same command goes on from here'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head`
        with contextlib.suppress(OSError):
            sys.stdout.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
