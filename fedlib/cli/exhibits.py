"""`fedlib exhibits`, `reproduce`, `record` and `notebooks`: the papers' tables and figures, and the results of record."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from cyclopts import App, Group, Parameter, validators
from tqdm import tqdm

from .. import devices, lab
from ..errors import require
from ..lab import of_record
from ..papers import checked, exhibits, explain, planned, recorded, reproduce
from . import WIDTH, Jobs, Scale, completed, fill, number_of_jobs, spelled

KNOWN = exhibits.groups_and_names()
Name = completed(KNOWN)

WORKFLOW = ("Snakefile", "submit.py", "plan.schema.json")

exhibits_ = App(name="exhibits")
notebooks = App(name="notebooks")
workflow = App(name="workflow")


@exhibits_.default
def list_exhibits() -> None:
    """Print every exhibit with its number of runs at each scale."""
    width = max(map(len, exhibits.every()))
    print(f"{'exhibit':<{width}}" + "".join(f"{scale:>7}" for scale in lab.SCALES) + "  runs; what it shows")
    for name, item in exhibits.every().items():
        counts = "".join(f"{len(exhibits.cells(item.grids, scale)):>7}" for scale in lab.SCALES)
        print(fill(item.title, f"{name:<{width}}{counts}  "))


@exhibits_.command
def show(exhibit: Name, /, *, scale: Scale = "smoke") -> None:  # type: ignore[valid-type]
    """the runs of one exhibit, resolved, and where their values come from

    A line for each setting with the methods run in it; then which layer gives which values, the later over the
    earlier: default, scale (T, E, B, precision, seeds), exhibit and row (both in exhibits.toml).

    * `fedlib exhibits show fedssa/fig7`
    * `fedlib exhibits show pfedhr/table2 --scale record`

    Parameters
    ----------
    exhibit
        such as fedssa/fig7, a paper's (fedssa), or all
    scale
        smoke, demo, record, paper; default smoke
    """
    for item in exhibits.choose_exhibits(spelled("exhibit", exhibit, KNOWN)):
        cells = exhibits.cells(item.grids, scale)
        print(fill(f"{item.title}; {item.notebook}; {len(cells)} runs at scale {scale}", f"{item.name}: ", 2))
        if not cells:
            continue
        declared = ", ".join(f'grids."{name}"' for name in item.grids)
        print(fill(f"{declared} in fedlib/papers/exhibits.toml", "declared: ", 2))
        table = explain.settings_of(cells, scale)
        varied = table[[name for name in table if len(set(table[name])) > 1]]
        if "methods" not in varied:
            print(fill(table["methods"].iloc[0], "methods: ", 2))
        _print_settings(varied)
        for layer, text in explain.in_words(cells, scale).items():
            print(fill(text, f"{layer}: ", 2))


def _print_settings(table: pd.DataFrame) -> None:
    """As a table, or where that is too wide a line each: `N = 10, T = 3: Standalone, FedSSA`."""
    lines = table.to_string(index=False).splitlines() if len(table.columns) else []
    if max(map(len, lines), default=0) <= WIDTH:
        print(*lines, sep="\n", end="\n" if lines else "")
        return
    for row in table.to_dict("records"):
        methods = row.pop("methods", "")
        print(fill(": ".join(filter(None, (", ".join(f"{k} = {v}" for k, v in row.items() if v), methods))), indent=2))


ONE_PART = Group("Parts", validator=validators.MutuallyExclusive())
Part = Annotated[bool, Parameter(group=ONE_PART)]


def reproduce_(
    exhibit: completed(KNOWN, shown=True) = "all",  # type: ignore[valid-type]
    /,
    *,
    scale: Scale = "smoke",
    methods: str | None = None,
    device: completed(devices.KNOWN) = "cpu",  # type: ignore[valid-type]
    precision: Literal["fp32", "bf16"] | None = None,
    afresh: bool = False,
    jobs: Jobs = None,
    dry_run: Part = False,
    train_only: Part = False,
    figures_only: Part = False,
    check: Part = False,
    plan: Annotated[Literal["json"] | None, Parameter(group=ONE_PART)] = None,
    reuse_stale: bool = False,
) -> int:
    """Make exhibits, or say what that needs; returns the exit status.

    Parameters
    ----------
    exhibit
        which (default all)
    scale
        smoke (embedded data, minutes in all), demo (real data, about ten minutes an exhibit), record (T = 100, three
        seeds: hours an exhibit) or paper (the published setting: weeks); default smoke
    methods
        only these rows of the exhibit, such as FedSSA,Standalone; its files then have a name of their own
    device
        where runs train: cpu, cuda, one of several such as cuda:1, several such as cuda:0,cuda:1, mps, auto; on another than
        the CPU the files have a name of their own
    precision
        fp32, or bf16 arithmetic; default the scale's; in another the files have a name of their own
    afresh
        train what the results of record hold, too; without it, a run of record that is not stored is read from there
    dry_run
        say what would be trained and how long it would take, and stop
    train_only
        train what is missing and stop: no notebook is executed
    figures_only
        train nothing: execute the notebooks whose exhibits are not fresh, without the runs that are missing
    check
        train and execute nothing: say which exhibits' files are not fresh (then exit 1)
    plan
        print the runs, their specifications and the exhibits, for another engine to launch, and stop
    reuse_stale
        accept stored records whose numbers have changed since
    """
    exhibit = spelled("exhibit", exhibit, KNOWN)
    rows = [name.strip() for name in (methods or "").split(",") if name.strip()]
    require(methods is None or bool(rows), "methods", methods, "rows of the exhibit, such as FedSSA,Standalone")
    if plan is not None:
        listed = reproduce.listed(
            exhibit,
            scale,
            reuse_stale=reuse_stale,
            methods=rows,
            afresh=afresh,
            device=device,
            precision=precision or "",
        )
        print(json.dumps(listed, indent=1))
        return 0
    parts = {"plan": dry_run, "runs": train_only, "figures": figures_only, "check": check}
    made = reproduce.reproduce(
        exhibit,
        scale,
        jobs=number_of_jobs(jobs),
        only=next((name for name, chosen in parts.items() if chosen), ""),
        reuse_stale=reuse_stale,
        methods=rows,
        afresh=afresh,
        device=device,
        precision=precision or "",
    )
    return 0 if made else 1


def record(
    experiment: completed(planned.arms()) | None = None,  # type: ignore[valid-type]
    /,
    *,
    check: Annotated[list[str] | None, Parameter(metavar="KEY", consume_multiple=True)] = None,
    jobs: Jobs = None,
) -> int:
    """Print the plan of the results of record, train an experiment of it, or check it; returns the exit status.

    Parameters
    ----------
    experiment
        one of the plan
    check
        train the first two rounds again, of one run for each method, protocol, data set and source of code, or of those
        with these keys, and compare every number on record (then exit 1 where one differs); written to
        results/checked.csv
    """
    if check is not None:
        require(experiment is None, "experiment", experiment, "left out with --check, which takes keys")
        return 0 if checked.print_check(check) else 1
    if experiment is None:
        _list_experiments()
        return 0

    def export(left: int) -> None:
        written = f"{recorded.export()} runs of the store are in {lab.home() / 'results'}"
        tqdm.write(f"{written}; {left} of the experiment remain")  # above the bar
        sys.stdout.flush()

    if not planned.train(experiment, number_of_jobs(jobs), export):
        number = len(planned.arm(experiment).runs)
        print(f"nothing to train: all {number} runs of {experiment} are of record or stored")
    return 0


def _list_experiments() -> None:
    print(f"{'experiment':<12}{'runs':>9}  hours left on one core; the question")
    timed = recorded.timed()
    for arm in planned.arms().values():
        still = arm.open()
        done = f"{len(arm.runs) - len(still)}/{len(arm.runs)}"
        print(fill(arm.question, f"{arm.name:<12}{done:>9}{planned.expected_hours(still, timed):7.1f}  "))
    print(
        f"exhibits at the papers' own settings are counted in {reproduce.notebook.NOTEBOOKS / 'audit/6_record.ipynb'}"
    )
    if of_record.unreadable():
        print(f"{len(of_record.unreadable())} results of record cannot be read: {', '.join(of_record.unreadable())}")


@notebooks.default
def list_notebooks() -> None:
    """Print where the notebooks are."""
    print(*reproduce.all_notebooks(), f"in {reproduce.notebook.NOTEBOOKS}", sep="\n")


@notebooks.command
def copy(folder: str, /) -> None:
    """copy all notebooks into a folder; nothing there is replaced

    * `fedlib notebooks copy my-notebooks`
    * `fedlib notebooks copy .`

    Parameters
    ----------
    folder
        such as notebooks; made where it is not there
    """
    copied = _copied("notebooks", reproduce.all_notebooks(), folder)
    print(f"copied {len(copied)} notebooks into {folder}; next: jupyter lab {Path(folder) / '00_start_here.ipynb'}")


@workflow.default
def list_workflow() -> None:
    """Print where the files are."""
    print(*WORKFLOW, f"in {lab.shipped() / 'workflow'}", sep="\n")


@workflow.command(name="copy")
def copy_workflow(folder: str, /) -> None:
    """copy them into a folder; nothing there is replaced

    * `fedlib workflow copy my-workflow`
    * `fedlib workflow copy .`

    Parameters
    ----------
    folder
        such as workflow; made where it is not there
    """
    copied = _copied("workflow", WORKFLOW, folder)
    print(f"copied {len(copied)} files into {folder}; next: fedlib reproduce fedssa --plan json > plan.json")


def _copied(shipped: str, files: Sequence[str], folder: str) -> list[Path]:
    require(bool(folder.strip()), "folder", folder, "a folder's name; `.` is the current one")
    return lab.copy(shipped, files, folder)
