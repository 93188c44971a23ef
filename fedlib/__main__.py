"""The command line, `fedlib` or `python -m fedlib`: one function per command, in `fedlib/cli/`, loaded when it is called."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Literal

try:  # before torch is loaded, whose libraries end the process without a word about the reason
    os.getcwd()
except OSError:
    print("fedlib: the current directory is gone; change to one that is there", file=sys.stderr)
    sys.exit(2)

from cyclopts import App, CoercionError, CycloptsError, Parameter, UnknownOptionError, UnusedCliTokensError
from cyclopts.help import DefaultFormatter, PanelSpec
from rich.box import Box

from . import __version__
from .errors import FedlibError, choose, told

DESCRIPTION = "A reproducible companion to four papers on model-heterogeneous personalised federated learning."
GREETING = f"""fedlib {__version__}: a reproducible companion to four papers on
model-heterogeneous personalised federated learning (FedSSA, FedGH, pFedES,
pFedHR). Three commands to try:

  fedlib run FedSSA                      train a method on small embedded data
  fedlib exhibits                        the papers' tables and figures
  fedlib reproduce fedssa/fig6           make one of them

fedlib --help lists all commands, fedlib COMMAND --help explains one."""
# Where a command is, under fedlib/cli/; its name; its help, whose first paragraph stands in the list of commands.
COMMANDS = (
    (
        "methods:list_",
        "list",
        "the methods: paper, what is exchanged, what clients must share, hyper-parameters",
    ),
    (
        "methods:data_",
        "data",
        """the data sets: what is here, and how to get the rest

Without a name, list the data sets and where they are. With a name, load it (downloading it if it is not there) and
describe it.""",
    ),
    (
        "methods:cite",
        "cite",
        "BibTeX of methods' papers, and of fedlib itself",
    ),
    (
        "run:run",
        "run",
        """train one specification, or read it if it is stored

Train one specification and store its record; the same command reads a finished run and resumes an interrupted one
(Ctrl-C leaves a checkpoint).""",
    ),
    (
        "exhibits:exhibits_",
        "exhibits",
        """the tables and figures: what each shows, and the runs that it needs; show: one of them

Without a name, list the exhibits with their number of runs at each scale. `show NAME` prints the settings and methods of
one exhibit, and which layer gives each value.""",
    ),
    (
        "exhibits:reproduce_",
        "reproduce",
        """make exhibits: train what is missing, execute the notebooks, check figures and tables

Make one exhibit (fedssa/table2), a paper's (fedssa), or all.""",
    ),
    (
        "exhibits:record",
        "record",
        """the results of record: what is on record, and train more of it

Without a name, list the experiments of the plan (results/planned.csv), the question of each and the runs it still lacks.
With a name, train those runs, seed by seed, and add each finished one to results/.""",
    ),
    (
        "exhibits:notebooks",
        "notebooks",
        """the notebooks: where they are; copy: into a folder of yours

List the notebooks that came with fedlib, or copy them with `copy FOLDER` into a folder of yours, to read, change and
run them there.""",
    ),
    (
        "exhibits:workflow",
        "workflow",
        """a plan on many machines: where its Snakefile and submit.py are; copy: into a folder of yours

Without a name, list what launches `fedlib reproduce ... --plan json` on a cluster: a Snakefile, a script for a Slurm
array, and the schema of a plan. `copy FOLDER` copies them.""",
    ),
    (
        "store:compare",
        "compare",
        """compare runs: accuracies paired by seed, and client by client

Compare stored runs or results of record. Runs that differ only in their seed share a row; the first row is the
reference. For two runs, the fields, versions and bits in which they differ are listed too.""",
    ),
    ("store:runs", "runs", "what is stored: list, show, prune, export"),
)
EXAMPLES = {
    "list": ("fedlib list", "fedlib list > methods.txt"),
    "data": ("fedlib data", "fedlib data cifar10"),
    "cite": ("fedlib cite FedSSA FedProto", "fedlib cite FedGH > references.bib"),
    "run": (
        "fedlib run FedSSA --dataset digits --rounds 3",
        "fedlib run FedSSA --dataset cifar10 --device auto --set mu0=0.5",
    ),
    "exhibits": ("fedlib exhibits", "fedlib exhibits show fedssa/table2 --scale record"),
    "reproduce": ("fedlib reproduce fedssa/fig6", "fedlib reproduce fedssa/table2 --scale demo --dry-run"),
    "record": ("fedlib record", "fedlib record precision --jobs 2"),
    "notebooks": ("fedlib notebooks", "fedlib notebooks copy my-notebooks"),
    "workflow": ("fedlib workflow", "fedlib workflow copy my-workflow"),
    "compare": (
        "fedlib compare Standalone-digits-fcda FedSSA-digits-5d53",
        "fedlib compare Standalone-digits-fcda FedSSA-digits-5d53 --rule last10",
    ),
    "runs": ("fedlib runs", "fedlib runs show FedSSA-digits-5d53"),
}
WING = ("node", "server")  # commands of packages/flower
NO_LINES = Box("    \n" * 8, ascii=True)

app = App(
    name="fedlib",
    help=DESCRIPTION,
    version=f"fedlib {__version__}",
    help_format="markdown",
    help_formatter=DefaultFormatter(panel_spec=PanelSpec(box=NO_LINES, padding=0, expand=False)),
    default_parameter=Parameter(negative=(), show_default=False),
)
for order, (place, name, text) in enumerate(COMMANDS):
    examples = "".join(f"\n* `{example}`" for example in EXAMPLES[name])
    app.command(f"fedlib.cli.{place}", name=name, help=f"{text}\n{examples}", sort_key=order)


@app.default
def greet() -> None:
    print(GREETING)


@app.command(sort_key=len(COMMANDS))
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """a script by which a shell completes commands, options and names

    It holds in the next shell.

    * `fedlib completion bash > ~/.local/share/bash-completion/completions/fedlib`
    * `fedlib completion fish > ~/.config/fish/completions/fedlib.fish`
    """
    from . import lab

    lab.load_plugins()
    print(app.generate_completion(shell=shell))


def mistake(error: CycloptsError) -> str:
    """What is wrong with the words of a command, in one line; an unknown name with the nearest that is known."""
    words = ["fedlib", *(error.command_chain or ())]
    try:
        if isinstance(error, UnknownOptionError):
            known = [name for item in error.argument_collection for name in item.names if name.startswith("--")]
            choose(f"`{' '.join(words)}`: option", error.token.keyword or error.token.value, [*known, "--help"])
        if isinstance(error, CoercionError) and error.argument and error.token:
            field, allowed = error.argument.name.strip("-").lower(), error.argument.get_choices(force=True)
            choose(field, error.token.value, allowed or ())
        if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
            asked = app
            for word in words[1:]:
                asked = asked[word]
            commands = [name for name in asked if not name.startswith("-")]
            if commands:
                choose("command", error.unused_tokens[0], commands)
            return f"unexpected argument {error.unused_tokens[0]!r}; see `{' '.join(words)} --help`"
    except FedlibError as found:
        return str(found)
    error.verbose = False
    return f"{' '.join(str(error).split()).rstrip('.')}; see `{' '.join(words)} --help`"


def _look_further(first: str) -> None:
    """Add other packages' commands, entry points `fedlib.commands`, where `first` lists all or is none of ours."""
    if first in ("--help", "-h", "completion") or not (first[:1] in ("", "-") or first in app):
        for point in entry_points(group="fedlib.commands"):
            try:
                if point.name not in app:
                    app.command(point.load(), name=point.name)
            except Exception as error:  # whatever another's module raises while it is imported
                print(f"fedlib: command {point.name} is left out ({told(error)})", file=sys.stderr)
    if first in WING and first not in app:
        raise FedlibError(
            f"`fedlib {first}` comes with the package mhpfl-flower; in a clone: pip install ./packages/flower"
        )


def parse(words: Sequence[str]) -> tuple:
    """The function of a command and its arguments; raises FedlibError for what no command understands."""
    _look_further(next(iter(words), ""))
    try:
        return app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise FedlibError(mistake(error)) from None


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
            stream.reconfigure(errors="replace", line_buffering=True)  # so that a reader that has gone is noticed below
    try:
        command, bound, _ = parse(sys.argv[1:] if arguments is None else arguments)
        if not command.__module__.startswith((__name__, "fedlib.__main__", "cyclopts")):
            from . import lab

            lab.load_plugins()
        return command(*bound.args, **bound.kwargs) or 0
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
