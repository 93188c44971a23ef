"""Make exhibits in a batch: train what is missing, execute the notebooks that are not fresh, check the artefacts."""

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from .. import __version__, devices, lab
from ..errors import FedlibError, choose, coerce, require
from ..lab import of_record, places
from ..lab.progress import NOTICE
from . import exhibits, notebook, recorded, settings

# A busy machine may start a kernel slowly; the kernel's own log says nothing that a reader needs.
PAPERMILL: Any = {
    "kernel_name": "python3", "progress_bar": False, "start_timeout": 120, "extra_arguments": ["--IPKernelApp.log_level=CRITICAL"],
}  # fmt: skip


SCHEMA = 1  # of a plan for another engine, raised when what stands in it changes: workflow/


@dataclass(frozen=True)
class Plan:
    """What exhibits need: their runs by key; the keys of each exhibit's; those read from the results of record; those to be
    trained.
    """

    runs: dict[str, lab.Resolved]
    keys: dict[str, list[str]]
    read: list[lab.Record]
    todo: list[lab.Resolved]


def plan(
    chosen: Sequence[exhibits.Exhibit],
    scale: str,
    reuse_stale: bool = False,
    methods: Sequence[str] = (),
    afresh: bool = False,
    device: str = "cpu",
    precision: str = "",
) -> Plan:
    """What the exhibits need of some methods (labels or algorithms), or of all, on a device (`devices.several`), in a precision
    that is not the scale's.

    A run that the store does not have is read from the results of record where it is among them, unless an exhibit needs more
    of it than they hold (weights, what a method noted in a round) or `afresh`. Raises FedlibError for a method that an exhibit
    does not have.
    """
    asked = settings.defaults(scale, methods, device, precision)
    runs: dict[str, lab.Resolved] = {}
    keys: dict[str, list[str]] = {}
    for item in chosen:
        require(bool(item.grids or not methods), "methods", ", ".join(methods), f"left out: {item.name} needs no runs")
        own = [lab.resolve(cell.spec, scale) for cell in asked.cells(*item.grids)]
        keys[item.name] = list(dict.fromkeys(run.key for run in own))
        runs |= {run.key: runs.get(run.key, run).joined(run.spec) for run in own}
    todo = lab.missing([run.spec for run in runs.values()], scale, reuse_stale)
    known = {} if afresh else of_record.by_key()
    if known:
        whole = [
            item for item in chosen if item.whole or any(exhibits.GRIDS[grid].keep != "none" for grid in item.grids)
        ]
        needs = {key for item in whole for key in keys[item.name]}
        known = {key: record for key, record in known.items() if key not in needs}
    read = [known[run.key] for run in todo if run.key in known]
    return Plan(runs, keys, read, [run for run in todo if run.key not in known])


def listed(
    name: str,
    scale: str,
    reuse_stale: bool = False,
    methods: Sequence[str] = (),
    afresh: bool = False,
    device: str = "cpu",
    precision: str = "",
) -> dict[str, Any]:
    """The plan as plain values, for an engine that starts `fedlib run --spec` and `fedlib reproduce --figures-only`; what they
    are says workflow/plan.schema.json, and the engines refuse a plan of another schema or version of fedlib.

    runs: every one that the exhibits need in the store, each once, longest first: its key, its specification with every
    field filled, whether it is stored, and the training images that it sees; exhibits: what each is, its notebook, the keys of
    its runs; of_record: the keys of those left out, which are read from the results of record. Raises FedlibError for an unknown
    name, scale or method.
    """
    chosen = exhibits.choose_exhibits(name)
    choose("scale", scale, lab.SCALES)
    made = plan(chosen, scale, reuse_stale, methods, afresh, device, precision)
    of_record, missing = {record.key for record in made.read}, {run.key for run in made.todo}
    runs = [run for key, run in made.runs.items() if key not in of_record]
    expected = dict(zip((run.key for run in runs), lab.expected_seconds(runs, recorded.timed()), strict=True))
    runs.sort(key=lambda run: expected[run.key], reverse=True)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "scale": scale,
        "home": str(lab.home()),
        "runs": [
            {"key": run.key, "spec": dataclasses.asdict(run.spec)}
            | {"stored": run.key not in missing, "images": round(run.samples)}
            for run in runs
        ],
        "exhibits": [
            {"name": item.name, "title": item.title, "notebook": item.notebook}
            | {"runs": [key for key in made.keys[item.name] if key not in of_record]}
            for item in chosen
        ],
        "of_record": sorted(of_record),
    }


def describe(plan: Plan, jobs: int) -> str:
    """The plan in a few lines: what is read, what is trained, with an estimate of time (`recorded.timed`)."""
    read = ""
    if plan.read:
        said = f"of record are read from {places.RESULTS} (--afresh trains them)."
        read = "\n" + " ".join(filter(None, (f"{len(plan.read)} runs {said}", of_record.stale(plan.read))))
    needed = len(plan.runs)
    stored = needed - len(plan.todo) - len(plan.read)
    where = f"{stored} stored, {len(plan.read)} of record" if plan.read else f"{stored} stored"
    if not plan.todo:
        return f"{needed} runs needed, {where if plan.read else 'all stored'}: nothing to train{read}"
    seconds = sum(lab.expected_seconds(plan.todo, recorded.timed())) / min(jobs, len(plan.todo))
    images = sum(item.samples for item in plan.todo)
    absent = "".join(f"\nto download first: python -m fedlib data {name}" for name in lab.missing_data(plan.todo))
    return (
        f"{needed} runs needed, {where}, {len(plan.todo)} to train:\n{images / 1e6:.2f} million images, about "
        f"{duration(seconds)} with {min(jobs, len(plan.todo))} at a time (from runs timed before){absent}{read}"
    )


def _print_plan(todo: Sequence[lab.Resolved]) -> None:
    """What is to be trained, a row for each data set, kind of models, N, T and E; and the work that each method is of it."""
    rows = [
        {
            "dataset": run.spec.dataset,
            "models": run.spec.scenario,
            "N": run.spec.num_clients,
            "T": run.spec.rounds,
            "E": run.spec.local_epochs,
            "hours": seconds / 3600,
            "method": run.spec.algorithm,
        }
        for run, seconds in zip(todo, lab.expected_seconds(todo, recorded.timed()), strict=True)
    ]
    if not rows:
        return
    table = pd.DataFrame(rows)
    keys = ["dataset", "models", "N", "T", "E"]
    grouped = table.groupby(keys)["hours"].agg(runs="size", hours="sum").reset_index()
    print(grouped.assign(hours=grouped["hours"].map("{:.2f}".format)).to_string(index=False))
    shares = table.groupby("method")["hours"].sum().sort_values(ascending=False) / table["hours"].sum()
    shown = ", ".join(f"{method}\u00a0{100 * share:.0f}\u00a0%" for method, share in shares.items())
    lines = textwrap.fill(f"hours: on one core; of them {shown}", 80, break_on_hyphens=False)
    print(lines.replace("\u00a0", " "))
    if line := lab.slow_arithmetic(todo):
        print(textwrap.fill(line, 80))


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def reproduce(
    name: str,
    scale: str,
    *,
    jobs: int,
    only: str = "",
    reuse_stale: bool = False,
    methods: Sequence[str] = (),
    afresh: bool = False,
    device: str = "cpu",
    precision: str = "",
) -> bool:
    """Make the exhibits that `name` means at `scale`; prints a line an exhibit and returns whether all artefacts are fresh.

    methods: labels or algorithms of the exhibits' rows, if not all; device: where runs train (`devices.several`), if not on the
    CPU; precision: if not the scale's; with each of these the files have a name of
    their own. afresh: train also what the results of record hold.

    jobs: runs, then notebooks, side by side. only: `plan` says what would be trained; `runs` trains what is missing;
    `figures` trains nothing, leaves out what is missing, and raises FedlibError where every run is; `check` says whether each
    exhibit's files are fresh by their stamps, whoever executed its notebook. Empty: train, then execute the notebooks that need
    it.
    """
    choose("only", only, ("", "plan", "runs", "figures", "check"))
    jobs = coerce("jobs", jobs, int)
    require(jobs >= 1, "jobs", jobs, "at least 1")
    lab.home()  # one that cannot be is refused before anything is done
    chosen = exhibits.choose_exhibits(name)
    choose("scale", scale, lab.SCALES)
    device = devices.several(device)
    asked = settings.defaults(scale, methods, device, precision)
    if only == "check":
        return _check(chosen, asked)
    planned = plan(chosen, scale, reuse_stale, methods, afresh, device, precision)
    todo = planned.todo
    blank = {run.key for run in todo} if only == "figures" else set()
    if blank:
        missing = f"{len(blank)} of {len(planned.runs)} runs are missing"
        if len(blank) == len(planned.runs):
            raise FedlibError(f"{missing}: the same command without --figures-only trains them")
        print(f"{missing}, and are left out of what is drawn; the same command without --figures-only trains them")
    else:
        print(describe(planned, jobs))
    if scale == "paper":
        print("*chosen* where the texts leave it open: " + "; ".join(f"{k} = {v}" for k, v in exhibits.CHOSEN.items()))
    if only == "plan":
        _print_plan(todo)
        return True
    if not blank:
        lab.sweep([run.spec for run in todo], scale, jobs=jobs, reuse_stale=reuse_stale)
    if only == "runs":
        return True
    state = {item.name: _state(item, asked) for item in chosen}
    needed = {name: {*keys} if blank else set() for name, keys in planned.keys.items()}  # where some are missing
    empty = {name for name, keys in needed.items() if keys and keys <= blank}  # nothing of them can be drawn
    wanted = [item for item in chosen if state[item.name] != "fresh" and item.name not in empty]
    seconds: dict[str, float] = {}
    errors: dict[str, str] = {}

    def make(file: str) -> None:
        # One write, so that threads' lines stay whole.
        print(f"executing notebooks/{file} ...\n", end="", file=sys.stderr)
        started = time.perf_counter()
        try:
            execute(file, asked, train=not blank)
        except Exception as error:  # such as a kernel that died: the other notebooks go on
            errors[file] = (str(error).strip() or type(error).__name__).splitlines()[0]
        seconds[file] = time.perf_counter() - started

    with ThreadPoolExecutor(jobs) as pool:  # the runs are stored by now, so that a notebook only reads and draws
        try:
            list(pool.map(make, dict.fromkeys(item.notebook for item in wanted)))
        except KeyboardInterrupt:
            # Those waiting are cancelled; a kernel's session is its own, which Ctrl-C does not reach.
            for kernel in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself
                    kernel.send_signal(signal.SIGINT)
            raise
    now = {item.name: _state(item, asked) if item.notebook in seconds else state[item.name] for item in chosen}
    good = {name: ("fresh", "runs changed") if keys & blank else ("fresh",) for name, keys in needed.items()}
    failed = {}
    for item in chosen:
        error = errors.get(item.notebook, "" if now[item.name] in good[item.name] else now[item.name])
        failed[item.name] = f"FAILED in {item.notebook}: {error}" if error else ""
        if item.name in empty:
            failed[item.name] = f"not drawn: none of its {len(needed[item.name])} runs is there"
    print(f"{'exhibit':<22}{'was':<22}{'seconds':>8}  status")
    for item in chosen:
        was = "cached" if state[item.name] == "fresh" else state[item.name]
        took = f"{seconds[item.notebook]:.1f}" if item.notebook in seconds else "-"
        keys = needed[item.name]
        drawn = f"ok, {len(keys - blank)} of {len(keys)} runs" if keys & blank else "ok"
        status = failed[item.name] or drawn
        print(f"{item.name:<22}{was:<22}{took:>8}  {status}")
    print(f"figures and tables: {notebook.figures(scale)}\nexecuted notebooks: {lab.home() / 'executed' / scale}")
    return not any(failed.values())


def _check(chosen: Sequence[exhibits.Exhibit], asked: settings.Parameters) -> bool:
    """Whether all exhibits' files are fresh; prints those that are not."""
    states = {item.name: notebook.freshness(item, asked) for item in chosen}
    for name, state in states.items():
        if state != "fresh":
            print(f"{name:<22}{state}")
    good = sum(state == "fresh" for state in states.values())
    print(f"{good} of {len(chosen)} exhibits are fresh in {notebook.figures(asked.scale)}")
    return good == len(chosen)


def _executed(file: str, asked: settings.Parameters) -> Path:
    """Where an executed notebook lies; a variation has a name of its own."""
    path = lab.home() / "executed" / asked.scale / file
    return path.with_stem(f"{path.stem}--{asked.variation}") if asked.variation else path


def _state(item: exhibits.Exhibit, asked: settings.Parameters) -> str:
    """`fresh`, or why the exhibit's notebook must be executed; an execution that ended in an error is not fresh."""
    try:
        cells = json.loads(_executed(item.notebook, asked).read_text())["cells"]
    except (FileNotFoundError, ValueError, KeyError):
        return "not executed"
    if any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", [])):
        return "ended in an error"
    return notebook.freshness(item, asked)


def execute(file: str, asked: settings.Parameters, train: bool = True) -> None:
    """Execute one notebook with papermill into executed/<scale>/, on the runs that are there where it is not to train; raises
    FedlibError with the cell's error in one line.
    """
    import nbformat
    import papermill

    source = notebook.NOTEBOOKS / file
    target = _executed(file, asked)
    target.parent.mkdir(parents=True, exist_ok=True)
    parameters: dict[str, Any] = {"scale": asked.scale} | ({"methods": list(asked.methods)} if asked.methods else {})
    parameters |= {"device": asked.device} if asked.device != "cpu" else {}
    parameters |= {"precision": asked.precision} if asked.precision else {}
    parameters |= {} if train else {"jobs": 0}
    unknown = set(parameters) - set(papermill.inspect_notebook(source))
    if unknown:
        raise FedlibError(f"notebook {file}: has no parameter {', '.join(sorted(unknown))}")
    try:
        papermill.execute_notebook(source, target, parameters, cwd=source.parent, **PAPERMILL)
    except papermill.PapermillExecutionError as error:
        raise FedlibError(f"cell {error.exec_count}: {error.ename}: {error.evalue.splitlines()[0]}") from error
    executed = nbformat.read(target, as_version=4)
    executed.metadata.pop("papermill", None)
    for cell in executed.cells:
        _tidy(cell)
    nbformat.write(executed, target)


def refresh(files: Sequence[str], jobs: int = 2) -> None:
    """Execute committed notebooks in place, `jobs` side by side; the runs that they need should be stored by then."""
    code = "import sys; from fedlib.papers import reproduce; reproduce.refresh_one(sys.argv[1])"
    command = [sys.executable, "-c", code]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda file: subprocess.run([*command, file], check=True), files))


def refresh_one(file: str) -> None:
    """Execute a committed notebook in place at its defaults and write it as it is committed: outputs without progress bars,
    timestamps and papermill's metadata.
    """
    import nbformat
    import papermill

    path = lab.checkout() / "notebooks" / file
    before = nbformat.read(path, as_version=4)
    executed = papermill.execute_notebook(path, None, {}, cwd=path.parent, **PAPERMILL)
    for cell, original in zip(executed.cells, before.cells, strict=True):
        cell.metadata = original.metadata
        cell.id = original.id
        _tidy(cell, stderr="nbval-check-output" in cell.metadata.get("tags", []))
    before.cells = executed.cells
    path.write_text(json.dumps(before, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def _tidy(cell: Any, stderr: bool = True) -> None:
    """Take out what a bar leaves behind in an executed cell, an output without content, what is nothing without its kernel, a
    widget, what a notice said, and unless it is wanted `stderr`; and join what a stream wrote in parts, since where a part ends is chance.
    """
    if cell.cell_type != "code":
        return
    kept: list[Any] = []
    for output in cell.outputs:
        name = output.get("name")
        if not output.get("data", True) or any("widget" in kind for kind in output.get("data", {})):
            continue
        if output.get("metadata") == NOTICE:
            continue
        if name == "stderr" and not stderr:
            continue
        if name and kept and kept[-1].get("name") == name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    cell.outputs = kept


def all_notebooks() -> list[str]:
    return sorted(
        str(path.relative_to(notebook.NOTEBOOKS))
        for path in Path(notebook.NOTEBOOKS).rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    )
