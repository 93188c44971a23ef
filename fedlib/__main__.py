"""The command line, fedlib or python -m fedlib: each command has a --help."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

try:  # before torch is loaded, whose libraries end the process without a word about the reason
    os.getcwd()
except OSError:
    print("fedlib: the current directory is gone; change to one that is there", file=sys.stderr)
    sys.exit(2)

import pandas as pd
from tqdm import tqdm

from . import __version__, algorithms, data, lab, models, partition
from .errors import FedlibError, choose, coerce, distinct, require
from .lab import costs, presets
from .lab.boards import Board
from .papers import checked, comparison, exhibits, explain, planned, recorded, reproduce
from .show import intervals

WIDTH = 80  # of what is printed, in characters
MOST_JOBS = 1024
DESCRIPTION = "A reproducible companion to four papers on model-heterogeneous personalised federated learning."


class Parser(argparse.ArgumentParser):
    """Wrong usage is one clear line too, and an option is never guessed from its first letters."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **({"allow_abbrev": False} | named))

    def error(self, message: str) -> NoReturn:
        raise FedlibError(f"{message.replace(chr(10), ' ')}; see `{self.prog} --help`")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = _command(parser, options)
        if not unknown[0].startswith("-"):
            command.error(f"argument {unknown[0]!r} is one too many")
        known = [text for text in command._option_string_actions if len(text) > 2]
        choose(f"`{command.prog}`: option", unknown[0].partition("=")[0], known)
        command.error(f"option {unknown[0]!r} must stand behind `{command.prog}`")
    return options


def _command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the command that was given: its options are the ones that count."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and getattr(options, action.dest, None):
            return _command(action.choices[getattr(options, action.dest)], options)
    return parser


def _parser(name: str = "") -> Parser:
    """The command line; name: of the program, if not as it was called."""
    script = Path(sys.argv[0]).name == "fedlib"
    parser = Parser(name or ("fedlib" if script else "python -m fedlib"), description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"fedlib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

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
        epilog="Example: fedlib run FedSSA --dataset cifar10 --num-clients 10 --device auto --set mu0=0.5",
    )
    command.add_argument("algorithm", nargs="?", help="method, see `fedlib list`")
    command.add_argument(
        "--spec",
        metavar="FILE",
        help="the specification as a JSON object (- for standard input): fields of RunSpec, such as a run of "
        "`reproduce --plan json`; in place of everything below but --scale and --reuse-stale",
    )
    for item in dataclasses.fields(lab.RunSpec):
        if item.name not in ("algorithm", "params", "overrides"):
            default = "" if item.default is None else f" (default {item.default})"
            if item.default is False:
                name = "--" + item.name.replace("_", "-")
                command.add_argument(name, action="store_true", default=None, help=item.metadata["help"])
                continue
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
        help="smoke, demo, record or paper: fills every field not given (default: smoke on embedded data, demo on real data)",
    )
    command.add_argument(
        "--reuse-stale", action="store_true", help="accept a stored record whose numbers have changed since"
    )
    command.add_argument(
        "--log",
        choices=("tensorboard",),
        help="write each round for TensorBoard, too (pip install 'fedlib[tensorboard]')",
    )

    command = commands.add_parser(
        "exhibits",
        help="the tables and figures: what each shows, and the runs that it needs; show: one of them",
        description="Without a name, list the exhibits with their number of runs at each scale. `show NAME` prints one resolved "
        "row for each run of an exhibit, and which layer gives each value.",
    )
    actions = command.add_subparsers(dest="action", metavar="show")
    action = actions.add_parser("show", help="the runs of one exhibit, resolved, and where their values come from")
    action.add_argument("exhibit", help="such as fedssa/fig7, a paper's (fedssa), or all")
    action.add_argument("--scale", default="smoke", help=f"{', '.join(lab.SCALES)}; default smoke")

    command = commands.add_parser(
        "reproduce",
        help="make exhibits: train what is missing, execute the notebooks, check figures and tables",
        description="Make one exhibit (fedssa/table2), a paper's (fedssa), or all.",
        usage=f"{parser.prog} reproduce [exhibit] [options]",
        epilog="exhibits:\n" + _exhibits(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("exhibit", nargs="?", default="all", help="which, of those below (default all)")
    command.add_argument(
        "--scale",
        default="smoke",
        help="smoke (embedded data, minutes in all), demo (real data, about ten minutes an exhibit), record (T = 100, three "
        "seeds: hours an exhibit) or paper (the published setting: weeks); default smoke",
    )
    command.add_argument(
        "--methods",
        metavar="NAMES",
        default="",
        help="only these rows of the exhibit, such as FedSSA,Standalone; its files then have a name of their own",
    )
    command.add_argument(
        "--afresh",
        action="store_true",
        help="train what the results of record hold, too; without it, a run of record that is not stored is read from there",
    )
    _add_jobs(command)
    parts = command.add_mutually_exclusive_group()
    for flag, only, text in (
        ("--dry-run", "plan", "say what would be trained and how long it would take, and stop"),
        ("--train-only", "runs", "train what is missing and stop: no notebook is executed"),
        ("--figures-only", "figures", "train nothing: execute the notebooks whose exhibits are not fresh"),
        ("--check", "check", "train and execute nothing: say which exhibits' files are not fresh (then exit 1)"),
    ):
        parts.add_argument(flag, dest="only", action="store_const", const=only, default="", help=text)
    parts.add_argument(
        "--plan",
        choices=("json",),
        help="print the runs, their specifications and the exhibits, for another engine to launch, and stop",
    )
    command.add_argument(
        "--reuse-stale", action="store_true", help="accept stored records whose numbers have changed since"
    )

    command = commands.add_parser(
        "record",
        help="the results of record: what is on record, and train more of it",
        description="Without a name, list the arms of the plan (results/planned.csv): what each asks, and what it lacks. With one, "
        "train that, seed by seed, and add each finished run to results/.",
    )
    command.add_argument("arm", nargs="?", help="an arm of the plan")
    command.add_argument(
        "--check",
        nargs="*",
        metavar="KEY",
        help="train the first two rounds again, of one run for each method, protocol, data set and source of code, or of those "
        "with these keys, and compare every number on record (then exit 1 where one differs); written to results/checked.csv",
    )
    _add_jobs(command)

    command = commands.add_parser(
        "notebooks",
        help="the notebooks: where they are; copy: into a folder of yours",
        description="Without a name, list the notebooks that came with fedlib. `copy FOLDER` copies them into a folder of yours, "
        "to be read, changed and run there.",
    )
    actions = command.add_subparsers(dest="action", metavar="copy")
    action = actions.add_parser("copy", help="copy all notebooks into a folder; nothing there is replaced")
    action.add_argument("folder", help="such as notebooks; made where it is not there")

    command = commands.add_parser(
        "compare",
        help="runs beside each other: accuracies paired by seed, clients one by one",
        description="Runs beside each other, stored or of record; those that differ in nothing but their seed are one row, and the "
        "first row is the reference. Of two runs it also says in which fields, versions and bits they differ.",
        epilog="Example: fedlib compare Standalone-1f Standalone-2c FedSSA-07 FedSSA-9b --figure mine.png",
    )
    command.add_argument("key", nargs="+", help="as `fedlib runs` lists it, or enough of it")
    command.add_argument(
        "--rule", default="last", help=f"the round compared: {', '.join(intervals.SELECTION_RULES)}; default last"
    )
    command.add_argument("--figure", metavar="FILE", help="draw curves and clients' differences into a .png or .svg")

    command = commands.add_parser(
        "completion",
        help="what a shell needs to complete commands, options and names",
        description="Print a script by which a shell completes commands, options, methods, exhibits, data sets and keys.",
        epilog="bash: fedlib completion bash > ~/.local/share/bash-completion/completions/fedlib, in the next shell",
    )
    command.add_argument("shell", choices=("bash", "zsh", "tcsh"))

    command = commands.add_parser("runs", help="what is stored: list, show, prune, export")
    actions = command.add_subparsers(dest="action", metavar="list | show | prune | export")
    action = actions.add_parser(
        "list",
        help="every stored run, a line each (the default)",
        description="Every stored run, a line each, by the time at which it finished; N clients, T rounds, E epochs. The "
        "last column names what differs from the method's usual setting and, on a terminal, is cut to its width.",
    )
    action.add_argument("name", nargs="?", default="", help="only runs with this in their name, such as FedSSA")
    action.add_argument("--json", action="store_true", help="as a JSON list, nothing rounded or cut")
    actions.add_parser("show", help="one run: specification, provenance, rounds").add_argument("key")
    action = actions.add_parser(
        "prune",
        help="delete damaged runs, and unfinished ones by name or age (asks --yes)",
        description="Delete runs that are damaged by their own digests and, where NAME or --older-than says so, unfinished ones. "
        "A run that is whole is never deleted, whichever version computed it.",
    )
    action.add_argument("name", nargs="*", help="unfinished runs with this in their name, too")
    action.add_argument(
        "--older-than", metavar="DAYS", help="unfinished runs that nobody has gone on with for so long, too"
    )
    action.add_argument("--yes", action="store_true", help="really delete; without it, only say what would go")
    actions.add_parser(
        "export", help="write the finished real-data runs' summaries to results/ (the results of record)"
    )
    return parser


def _add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--jobs", help="runs trained side by side, one thread each (default: one for every core)")


def _jobs(options: argparse.Namespace) -> int:
    jobs = lab.cores() if options.jobs is None else int(coerce("jobs", options.jobs, int))
    require(1 <= jobs <= MOST_JOBS, "jobs", jobs, f"at least 1 and at most {MOST_JOBS}")
    return jobs


def _completion(shell: str) -> str:
    """The script by which `shell` completes `fedlib`. It is written once and does not call fedlib, whose import takes seconds."""
    import shtab

    parser = _parser("fedlib")
    names: dict[str, Sequence[str]] = {
        "algorithm": list(algorithms.ALGORITHMS),
        "scale": list(lab.SCALES),
        "dataset": data.names(),
        "public_dataset": data.names(),
        "rule": list(intervals.SELECTION_RULES),
        "exhibit": ["all", *dict.fromkeys(item.paper for item in exhibits.every().values()), *exhibits.every()],
        "arm": list(planned.arms()),
        "partition": list(partition.BUILT_IN),
        "paper": list(dict.fromkeys(paper for paper, _ in presets.PRESETS)),
        "protocol": list(dict.fromkeys(protocol for _, protocol in presets.PRESETS)),
    }
    names |= {name: list(map(str, values)) for name, values in lab.CHOICES.items() if name not in names}
    for command, own in _commands(parser):
        for action in own._actions:
            if action.choices is None and (action.dest in names or (command, action.dest) == ("data", "name")):
                action.choices = names.get(action.dest, data.names())
            if action.dest in ("spec", "figure"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            if action.dest == "key":
                action.complete = {"bash": "_fedlib_keys"}  # type: ignore[attr-defined]
    # Whoever may write into the store names its folders: a name is matched, and never expanded.
    keys = f"""_fedlib_keys() {{
  local home=${{FEDLIB_HOME:-}} path name
  [[ -n $home ]] || home={shlex.quote(str(lab.home()))}
  for path in "${{home/#\\~\\//$HOME/}}/runs/"*; do
    name=${{path##*/}}
    if [[ $name =~ ^[[:alnum:]_][[:alnum:]_.+-]*$ && $name == "$1"* ]]; then printf '%s\\n' "$name"; fi
  done
}}"""
    return str(shtab.complete(parser, shell, root_prefix="fedlib", preamble=keys if shell == "bash" else ""))


def _commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command's parser, and those of its own commands."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own, inner in action.choices.items():
                yield from _commands(inner, own)


def _exhibits() -> str:
    """The names of all exhibits, a line or two for each paper."""
    by_paper: dict[str, list[str]] = {}
    for item in exhibits.every().values():
        by_paper.setdefault(item.paper, []).append(item.item)
    lines = [f"  {paper + '/':<8}{', '.join(items)}" for paper, items in by_paper.items()]
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent=" " * 10, break_on_hyphens=False) for line in lines)


def _list_exhibits() -> None:
    table = exhibits.index(exhibits.every())
    width = max(map(len, table.index))
    print(f"{'exhibit':<{width}}" + "".join(f"{scale:>7}" for scale in lab.SCALES) + "  runs; what it shows")
    for name, row in table.iterrows():
        counts = "".join(f"{row[f'runs, {scale}']:>7}" for scale in lab.SCALES)
        head = f"{name:<{width}}{counts}  "
        print(textwrap.fill(row["shows"], WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))


def _show_exhibits(name: str, scale: str) -> None:
    for item in exhibits.choose_exhibits(name):
        cells = exhibits.cells(item.grids, scale)
        print(f"{item.name}: {item.title}; notebooks/{item.notebook}; {len(cells)} runs at scale {scale}")
        if not cells:
            continue
        print(explain.resolved_rows(cells, scale).to_string(index=False, float_format="{:.4g}".format))
        layers = explain.layers_of(cells, scale)
        print("\nWhich layer gives each value; what is not named has its default.")
        for row in [dict(zip(layers, layers, strict=True)), *layers.to_dict("records")]:
            head = f"{row['field']:<19} {row['layer']:<16}{row['runs']:>5}  "
            print(textwrap.fill(row["values"], WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))
        for layer, text in explain.used_layers(layers).items():
            print(_indented(f"{layer}: {text}", 2))


def _list() -> None:
    print(f"{'method':<12} {'models':<7}{'public data':<12}exchanged; models: any, or the same for all")
    for method in algorithms.ALGORITHMS.values():
        same = "same" if method.needs == "architecture" else "any"
        head = f"{method.name:<12} {same:<7}{method.public_data:<12}"
        print(textwrap.fill(method.exchanges, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))
        parameters = [f"{item.name}\u00a0=\u00a0{item.default}" for item in dataclasses.fields(method)]
        for text in (method.paper, f"parameters: {', '.join(parameters)}" if parameters else ""):
            if text:
                print(_indented(text))


def _indented(text: str, indent: int = 13) -> str:
    """`text` in lines of at most `WIDTH` characters; a no-break space holds words together."""
    filled = textwrap.fill(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent, break_on_hyphens=False
    )
    return filled.replace("\u00a0", " ")


def _notebooks(folder: str | None) -> None:
    if folder is None:
        print(*reproduce.all_notebooks(), f"in {reproduce.notebook.NOTEBOOKS}", sep="\n")
        return
    require(bool(folder.strip()), "folder", folder, "a folder's name; `.` is the current one")
    copied = reproduce.copy_notebooks(folder)
    print(f"copied {len(copied)} notebooks into {folder}; next: jupyter lab {Path(folder) / '00_start_here.ipynb'}")


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


def _names(text: str) -> list[str]:
    """The names in `a,b`."""
    return [name.strip() for name in text.split(",") if name.strip()]


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


def _run(options: argparse.Namespace) -> None:
    names = [item.name for item in dataclasses.fields(lab.RunSpec) if item.name not in ("params", "overrides")]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    params, overrides = _pairs("set", options.set), _pairs("override", options.override)
    if options.spec is not None:
        others = [*given, *(["set"] if params else []), *(["override"] if overrides else [])]
        if others:
            raise FedlibError(f"--spec: says everything, so {', '.join(others)} cannot be given besides")
        spec = _spec_from(options.spec)
    elif options.algorithm is None:
        raise FedlibError("algorithm: must be given, see `fedlib list`, or --spec FILE")
    else:
        spec = lab.RunSpec(**given, params=params, overrides=overrides)
    _say_other_decay(lab.resolve(spec, options.scale))
    with contextlib.nullcontext() if options.log is None else Board(lab.resolve(spec, options.scale)) as board:
        record = lab.run(spec, options.scale, reuse_stale=options.reuse_stale, log=board.write if board else None)
        if board and not board.rounds:  # it was read, not trained
            for row in record.rounds.query("round >= 0").to_dict("records"):
                board.write(row)
    spec, last = record.spec, record.rounds.iloc[-1]
    stale = f" (stale: {', '.join(record.moved)} changed since)" if record.stale else ""
    print(f"{record.key}: {record.status} after {int(last['round']) + 1} of {spec.rounds} rounds{stale}")
    _print(
        f"{spec.algorithm} on {spec.dataset}, {spec.scenario}, N = {spec.num_clients}, C = {spec.participation:.3g}, "
        f"T = {spec.rounds}, E = {spec.local_epochs}, B = {spec.batch_size}, lr = {spec.lr:g}, seed {spec.seed}, "
        f"protocol {spec.protocol} of {spec.paper}"
    )
    for what, values in (("parameters", spec.params), ("overrides", spec.overrides)):
        if values:
            _print(f"{what}: " + ", ".join(f"{name}\u00a0=\u00a0{value}" for name, value in values.items()))
    differs = lab.differences(spec)
    if differs:
        _print(f"differs from the usual setting in: {', '.join(differs)}")
    if record.status == "diverged":
        print("accuracy: – (a round left numbers that are not finite)")
    else:
        rounds = record.rounds[record.rounds["round"] >= 0]
        rules = {"last": "last round"} | (
            {"last10": f"mean of the last {min(10, len(rounds))}"} if len(rounds) > 1 else {}
        )
        if rounds["validation_accuracy"].notna().any():
            rules["validation"] = "round of best validation"
        whose = {
            "accuracy": "the visited clients",
            "accuracy_all": "all clients",
            "accuracy_selected": "each round's clients",
        }
        for column, name in whose.items():
            shown = [
                f"{words} {100 * intervals.selected_accuracy(record.rounds, rule, column):.2f}"
                for rule, words in rules.items()
                if rule != "validation" or column == "accuracy"
            ]
            _print(f"mean test accuracy of {name}, %: {', '.join(shown)}")
    words = costs.until(record.rounds, float("inf")).words
    per_client = words / record.rounds["selected"].sum()
    _print(
        f"communication: {costs.kilobytes(per_client):.2f} KB a client and round, {costs.kilobytes(words) / 1024:.2f} MB in all"
    )
    print(f"{int(last['visited'])} of {spec.num_clients} clients visited; {record.provenance['seconds']:.0f} s")
    print(f"stored in {record.path}")
    if board:
        print(f"to look at: tensorboard --logdir {board.path.parent}")


def _say_other_decay(resolved: lab.Resolved) -> None:
    """A line, before anything is trained, where a run is not its row of record because of its weight decay alone."""
    found = None if resolved.spec.dataset in data.EMBEDDED else recorded.other_decay(resolved)
    if found is None:
        return
    its, here = found.hashed["protocol"]["weight_decay"], resolved.protocol.weight_decay
    if found.spec.paper == resolved.spec.paper:
        _print(f"row of record: weight decay {its:g}, not {here:g} (--override weight_decay={its:g})")
    else:
        whose = found.spec.paper
        _print(f"row of record: {whose}'s weight decay, {its:g}, not {here:g} (--paper {whose})")
    sys.stdout.flush()


def _print(text: str) -> None:
    """`text` in lines of at most `WIDTH` characters."""
    filled = textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    print(filled.replace("\u00a0", " "))


def _record(options: argparse.Namespace) -> int:
    if options.check is not None:
        require(options.arm is None, "arm", options.arm, "left out with --check, which takes keys")
        return 0 if checked.print_check(options.check) else 1
    if options.arm is not None:

        def export(left: int) -> None:
            written = f"{recorded.export()} runs of the store are in {recorded.RESULTS}"
            tqdm.write(f"{written}; {left} of the arm remain")  # above the bar
            sys.stdout.flush()

        if not planned.train(options.arm, _jobs(options), export):
            number = len(planned.arm(options.arm).runs)
            print(f"nothing to train: all {number} runs of {options.arm} are of record or stored")
        return 0
    print(f"{'arm':<12}{'runs':>9}  hours left on one core; the question")
    for arm in planned.arms().values():
        still = arm.open()
        hours = planned.expected_hours(still)
        head = f"{arm.name:<12}{f'{len(arm.runs) - len(still)}/{len(arm.runs)}':>9}{hours:7.1f}  "
        print(textwrap.fill(arm.question, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))
    if recorded.unreadable():
        print(f"{len(recorded.unreadable())} results of record cannot be read: {', '.join(recorded.unreadable())}")
    return 0


def _runs(options: argparse.Namespace) -> None:
    action = options.action or "list"
    if action == "list":
        _list_runs(getattr(options, "name", ""), getattr(options, "json", False))
    elif action == "show":
        record = comparison.find(options.key)
        print(json.dumps({"spec": dataclasses.asdict(record.spec), "provenance": record.provenance}, indent=1))
        print(record.rounds.to_string(index=False))
    elif action == "prune":
        _prune(options.name, options.older_than, options.yes)
    else:
        print(f"wrote {recorded.export()} runs to {lab.home() / 'results'}")


def _state(name: str) -> tuple[str, lab.Record | None]:
    return lab.state(lab.store() / name)


def _list_runs(name: str, as_json: bool) -> None:
    found = [(path, *_state(path.name)) for path in lab.stored() if name.lower() in path.name.lower()]
    found.sort(key=lambda run: run[2].provenance.get("finished", "") if run[2] else "~")  # unfinished ones last
    if as_json:
        print(json.dumps([_described(*run) for run in found], indent=1))
        return
    rows = [_row(*run) for run in found]
    if rows:
        table = [("run", "acc. %", "N", "C", "T", "E", "seed", "differs in"), *rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
        limit = shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None
        for row in table:
            numbers = [f"{text:>{width}}" for text, width in zip(row[1:-1], widths[1:-1], strict=True)]
            line = "  ".join([f"{row[0]:<{widths[0]}}", " ".join(numbers), row[-1]]).rstrip()
            print(line if limit is None or len(line) <= limit else line[: limit - 1] + "…")
    print(f"{len(rows)} {'run' if len(rows) == 1 else 'runs'} in {lab.store()}")


def _row(path: Path, state: str, record: lab.Record | None) -> tuple[str, ...]:
    """A stored run as `runs` prints it: a name that `runs show` understands, last accuracy or state, N, C, T, E, seed, the rest."""
    method, _, key = path.name.rpartition("-")
    name = path.name if record is None else f"{method}-{key[:8]}"
    if record is None:
        return name, state, *[""] * 5, ""
    spec = record.spec
    accuracy = 100 * intervals.selected_accuracy(record.rounds, "last")
    shown = f"{accuracy:.2f}" if state == "finished" else "–" if state == "diverged" else f"{state} {accuracy:.2f}"
    numbers = (spec.num_clients, f"{spec.participation:.2f}", spec.rounds, spec.local_epochs, spec.seed)
    return name, shown, *map(str, numbers), ", ".join(lab.differences(spec))


def _described(path: Path, state: str, record: lab.Record | None) -> dict[str, Any]:
    if record is None:
        return {"key": path.name, "state": state}
    accuracy = None if record.status == "diverged" else intervals.selected_accuracy(record.rounds, "last")
    spec = dataclasses.asdict(record.spec)
    return {"key": path.name, "state": state, "accuracy": accuracy, "spec": spec, "provenance": record.provenance}


def _compare(options: argparse.Namespace) -> None:
    target = None if options.figure is None else Path(options.figure).expanduser()
    kinds = (".png", ".svg")
    if target is not None and target.suffix not in kinds:
        raise FedlibError(f"--figure {options.figure!r}: must end in {' or '.join(kinds)}")
    found = [comparison.find(key) for key in options.key]
    compared = comparison.compare(*found, rule=options.rule)
    print(compared.table.to_string(index=False))
    for line in (*compared.by_client, *compared.notes):
        _print(line)
    if len(found) == 2:
        print(*comparison.differing(*found), sep="\n")
    if target is not None:
        picture = compared.figure
        try:
            target.write_bytes(picture.png() if target.suffix == ".png" else picture.svg())
        except OSError as error:
            raise FedlibError(f"--figure {options.figure!r}: cannot be written ({error.strerror})") from error
        print(f"drawn in {target}")


def _prune(names: Sequence[str], older_than: str | None, really: bool) -> None:
    days = None if older_than is None else coerce("older-than", older_than, float)
    require(days is None or days >= 0, "older-than", days, "a number of days, at least 0")
    stored, doomed, failures = lab.stored(), 0, []
    for name in names:
        require(any(name in path.name for path in stored), "name", name, "part of a stored run's, see `fedlib runs`")
    for path in stored:
        state, named = lab.state(path)[0], any(name in path.name for name in names)
        if lab.whole(path):
            if named:
                print(f"kept {path.name} ({state}; a whole run is never pruned: {path} can be removed by hand)")
            continue
        unfinished = not (path / "DONE").exists()
        idle = (time.time() - max(file.stat().st_mtime for file in path.iterdir())) / 86400
        if unfinished and not named and (days is None or idle < days):
            continue
        if lab.computing(path):
            print(f"kept {path.name} (another process computes it)")
            continue
        doomed += 1
        if not really:
            print(f"would delete {path.name} ({state})")
            continue
        try:
            lab.delete(path)
            print(f"deleted {path.name} ({state})")
        except FedlibError as error:
            failures.append(str(error))
    if doomed and not really:
        print("nothing was deleted; add --yes")
    if not doomed:
        print(
            "nothing to delete: no stored run is damaged"
            + (", or unfinished and meant" if names or days is not None else "")
        )
    if failures:
        raise FedlibError("; ".join(failures))


def _open_what_is_closed() -> None:
    """After `fedlib runs >&-` what is printed is lost, and goes into no file that happens to get the number."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+" if number == 0 else "w"))  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 (an artefact is missing or stale), 2 (bad input) or 130 (interrupted)."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):  # where the locale has no dash or letter, print a stand-in for it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        lab.load_plugins()
        options = _parse(arguments)
        if options.command == "list":
            _costs() if options.costs else _list()
        elif options.command == "data":
            _data(options.name)
        elif options.command == "run":
            _run(options)
        elif options.command == "record":
            return _record(options)
        elif options.command == "runs":
            _runs(options)
        elif options.command == "completion":
            print(_completion(options.shell))
        elif options.command == "compare":
            _compare(options)
        elif options.command == "notebooks":
            _notebooks(getattr(options, "folder", None))
        elif options.command == "exhibits":
            _show_exhibits(options.exhibit, options.scale) if options.action else _list_exhibits()
        elif options.plan is not None:
            chosen = {"reuse_stale": options.reuse_stale, "methods": _names(options.methods), "afresh": options.afresh}
            print(json.dumps(reproduce.listed(options.exhibit, options.scale, **chosen), indent=1))
        else:
            made = reproduce.reproduce(
                options.exhibit,
                options.scale,
                jobs=_jobs(options),
                only=options.only,
                reuse_stale=options.reuse_stale,
                methods=_names(options.methods),
                afresh=options.afresh,
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
