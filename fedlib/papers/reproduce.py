"""Make exhibits in a batch: train what is missing, execute the notebooks that are not fresh, check the artefacts."""

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

from .. import lab
from ..errors import FedlibError, choose, require
from ..show import tables
from . import exhibits, notebook, recorded
from .printed import accuracies

# A busy machine may start a kernel slowly; the kernel's own log says nothing that a reader needs.
PAPERMILL: Any = {
    "kernel_name": "python3", "progress_bar": False, "start_timeout": 120, "extra_arguments": ["--IPKernelApp.log_level=CRITICAL"],
}  # fmt: skip


def plan(chosen: Sequence[exhibits.Exhibit], scale: str, reuse_stale: bool = False) -> tuple[int, list[lab.Resolved]]:
    """How many runs the exhibits need, and those that must be trained."""
    grids = list(dict.fromkeys(grid for item in chosen for grid in item.grids))
    specs = [cell.spec for cell in exhibits.cells(grids, scale)]
    needed = {lab.resolve(spec, scale).key for spec in specs}
    return len(needed), lab.missing(specs, scale, reuse_stale)


def listed(name: str, scale: str, reuse_stale: bool = False) -> dict[str, Any]:
    """The plan as plain values, for an engine that starts `fedlib run --spec` and `fedlib reproduce --figures-only`.

    runs: every one that the exhibits need, each once, longest first: its key, its specification with every field
    filled, whether it is stored, and the training images that it sees; exhibits: what each is, its notebook, the keys
    of its runs. Raises FedlibError for an unknown name or scale.
    """
    chosen = exhibits.choose_exhibits(name)
    choose("scale", scale, lab.SCALES)
    keys: dict[str, list[str]] = {}
    resolved: dict[str, lab.Resolved] = {}
    for item in chosen:
        own = [lab.resolve(cell.spec, scale) for cell in exhibits.cells(list(item.grids), scale)]
        keys[item.name] = list(dict.fromkeys(run.key for run in own))
        for run in own:  # of those that keep different weights, the one that keeps most
            known = resolved.get(run.key, run)
            resolved[run.key] = max(known, run, key=lambda one: lab.KEEP.index(one.spec.keep))
    missing = {run.key for run in lab.missing([run.spec for run in resolved.values()], scale, reuse_stale)}
    runs = sorted(resolved.values(), key=lambda run: -run.samples)
    return {
        "scale": scale,
        "home": str(lab.home()),
        "runs": [
            {
                "key": run.key,
                "spec": dataclasses.asdict(run.spec),
                "stored": run.key not in missing,
                "images": round(run.samples),
            }
            for run in runs
        ],
        "exhibits": [
            {"name": item.name, "title": item.title, "notebook": item.notebook, "runs": keys[item.name]}
            for item in chosen
        ],
    }


def describe(needed: int, todo: Sequence[lab.Resolved], jobs: int) -> str:
    """The plan in two lines, with an estimate of time from a short calibration."""
    if not todo:
        return f"{needed} runs needed, all stored: nothing to train"
    seconds = lab.estimate(todo, jobs)
    images = sum(item.samples for item in todo)
    return (
        f"{needed} runs needed, {needed - len(todo)} stored, {len(todo)} to train:\n{images / 1e6:.2f} million images, about "
        f"{duration(seconds)} with {min(jobs, len(todo))} at a time (from short calibrations here)"
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
        for run, seconds in zip(todo, lab.expected_seconds(todo), strict=True)
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


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def reproduce(name: str, scale: str, *, jobs: int, only: str = "", reuse_stale: bool = False) -> bool:
    """Make the exhibits that `name` means at `scale`; prints a line an exhibit and returns whether all artefacts are fresh.

    jobs: runs, then notebooks, side by side. only: `plan` says what would be trained; `runs` trains what is missing;
    `figures` trains nothing, and raises FedlibError where a run is missing; `check` says whether each exhibit's files are
    fresh by their stamps, whoever executed its notebook. Empty: train, then execute the notebooks that need it.
    """
    choose("only", only, ("", "plan", "runs", "figures", "check"))
    require(jobs >= 1, "jobs", jobs, "at least 1")
    lab.home()  # one that cannot be is refused before anything is done
    chosen = exhibits.choose_exhibits(name)
    choose("scale", scale, lab.SCALES)
    if only == "check":
        return _check(chosen, scale)
    needed, todo = plan(chosen, scale, reuse_stale)
    if only == "figures" and todo:
        raise FedlibError(
            f"{len(todo)} of {needed} runs are missing: the same command without --figures-only trains them"
        )
    print(describe(needed, todo, jobs))
    if scale == "paper":
        print("*chosen* where the texts leave it open: " + "; ".join(f"{k} = {v}" for k, v in exhibits.CHOSEN.items()))
    if only == "plan":
        _print_plan(todo)
        return True
    lab.sweep([run.spec for run in todo], scale, jobs=jobs, reuse_stale=reuse_stale)
    if only == "runs":
        return True
    state = {item.name: _state(item, scale) for item in chosen}
    seconds: dict[str, float] = {}
    errors: dict[str, str] = {}

    def make(file: str) -> None:
        print(
            f"executing notebooks/{file} ...\n", end="", file=sys.stderr
        )  # one write, so that threads' lines stay whole
        started = time.perf_counter()
        try:
            execute(file, scale)
        except Exception as error:  # such as a kernel that died: the other notebooks go on
            errors[file] = (str(error).strip() or type(error).__name__).splitlines()[0]
        seconds[file] = time.perf_counter() - started

    with ThreadPoolExecutor(jobs) as pool:  # the runs are stored by now, so that a notebook only reads and draws
        try:
            list(pool.map(make, dict.fromkeys(item.notebook for item in chosen if state[item.name] != "fresh")))
        except (
            KeyboardInterrupt
        ):  # those waiting are cancelled; a kernel's session is its own, which Ctrl-C does not reach
            for kernel in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself
                    kernel.send_signal(signal.SIGINT)
            raise
    now = {item.name: _state(item, scale) if item.notebook in seconds else state[item.name] for item in chosen}
    failed = {
        item.name: errors.get(item.notebook, "" if now[item.name] == "fresh" else now[item.name]) for item in chosen
    }
    print(f"{'exhibit':<22}{'was':<22}{'seconds':>8}  status")
    for item in chosen:
        was = "cached" if state[item.name] == "fresh" else state[item.name]
        took = f"{seconds[item.notebook]:.1f}" if item.notebook in seconds else "-"
        status = f"FAILED in {item.notebook}: {failed[item.name]}" if failed[item.name] else "ok"
        print(f"{item.name:<22}{was:<22}{took:>8}  {status}")
    print(f"figures and tables: {notebook.figures(scale)}\nexecuted notebooks: {_executed(scale, '')}")
    return not any(failed.values())


def _check(chosen: Sequence[exhibits.Exhibit], scale: str) -> bool:
    """Whether all exhibits' files are fresh; prints those that are not."""
    states = {item.name: notebook.freshness(item, scale) for item in chosen}
    for name, state in states.items():
        if state != "fresh":
            print(f"{name:<22}{state}")
    good = sum(state == "fresh" for state in states.values())
    print(f"{good} of {len(chosen)} exhibits are fresh in {notebook.figures(scale)}")
    return good == len(chosen)


def _executed(scale: str, file: str) -> Path:
    return lab.home() / "executed" / scale / file


def _state(item: exhibits.Exhibit, scale: str) -> str:
    """`fresh`, or why the exhibit's notebook must be executed; an execution that ended in an error is not fresh."""
    try:
        cells = json.loads(_executed(scale, item.notebook).read_text())["cells"]
    except (FileNotFoundError, ValueError, KeyError):
        return "not executed"
    if any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", [])):
        return "ended in an error"
    return notebook.freshness(item, scale)


def execute(file: str, scale: str) -> None:
    """Execute one notebook with papermill into executed/<scale>/; raises FedlibError with the cell's error in one line."""
    import nbformat
    import papermill

    source = notebook.NOTEBOOKS / file
    target = _executed(scale, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    parameters = {"scale": scale}
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
        _without_progress(cell)
    nbformat.write(executed, target)


def refresh(files: Sequence[str], jobs: int = 2) -> None:
    """Execute committed notebooks in place, `jobs` side by side; the runs that they need should be stored by then."""
    command = [
        sys.executable,
        "-c",
        "import sys; from fedlib.papers import reproduce; reproduce.refresh_one(sys.argv[1])",
    ]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda file: subprocess.run([*command, file], check=True), files))


def refresh_one(file: str) -> None:
    """Execute a committed notebook in place at its defaults and write it as it is committed: outputs without progress bars,
    timestamps and papermill's metadata.
    """
    import nbformat
    import papermill

    path = notebook.NOTEBOOKS / file
    before = nbformat.read(path, as_version=4)
    executed = papermill.execute_notebook(path, None, {}, cwd=path.parent, **PAPERMILL)
    for cell, original in zip(executed.cells, before.cells, strict=True):
        cell.metadata = original.metadata
        cell.id = original.id
        _without_progress(cell)
        if cell.cell_type == "code" and "nbval-check-output" not in cell.metadata.get("tags", []):
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    before.cells = executed.cells
    path.write_text(json.dumps(before, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def _without_progress(cell: Any) -> None:
    """Take out what a bar leaves behind in an executed cell: an output without content."""
    if cell.cell_type == "code":
        cell.outputs = [output for output in cell.outputs if output.get("data", True)]


def write_readme() -> None:
    """Bring README.md's generated tables up to date."""
    text = readme()
    (notebook.NOTEBOOKS.parent / "README.md").write_text(text, encoding="utf-8")


def readme() -> str:
    """README.md with its generated tables brought up to date: the results of record and the index of exhibits."""
    text = (notebook.NOTEBOOKS.parent / "README.md").read_text(encoding="utf-8")
    text = _between(text, "record", _record())
    text = _between(text, "audit", pd.concat([_audited(paper.name) for paper in exhibits.PAPERS]))
    reassembly = [_against(f"pfedhr/{labels}", "pFedHR") for labels in ("labelled", "unlabelled")]
    text = _between(text, "reassembly", pd.concat(reassembly))
    index = exhibits.index().reset_index()
    ours = len(exhibits.AUDIT)
    return _between(text, "exhibits", index, f"{len(index)} in all, and {ours} of the audit, which are ours.")


_REFERENCE = "Standalone"


def _record() -> pd.DataFrame:
    """FedSSA's Table 2: methods down, settings across, with T and E in their names; of each setting our mean, its difference to
    Standalone paired by seed, and the paper's number with its difference to Standalone. n stands in each cell.
    """
    found = recorded.load_record("fedssa/record")
    summary, changes = found.summary("last"), _differences(found, _REFERENCE)
    methods = list(dict.fromkeys(summary["method"]))
    printed = accuracies("FedSSA", "Table 2").set_index(["method", "dataset", "clients"])["value"]
    columns: dict[str, list[str]] = {"method": methods}
    for setting, rows in summary.groupby("setting", sort=False):
        spec = next(cell.spec for cell in found.cells if cell.setting == setting)
        dataset, clients = rows["dataset"].iloc[0], rows["clients"].iloc[0]
        means = {row["method"]: _mean(row) for row in rows.to_dict("records")}
        paper = {name: printed.get((name, dataset, clients), float("nan")) for name in methods}
        columns[f"{clients}, T = {spec.rounds}, E = {spec.local_epochs}"] = [means.get(m, "not yet") for m in methods]
        columns[f"less {_REFERENCE}, {clients}"] = [changes.get((str(setting), name), "–") for name in methods]
        columns[f"the paper's, {clients}"] = [
            _beside(paper[name], float("nan") if name == _REFERENCE else paper[_REFERENCE]) for name in methods
        ]
    return pd.DataFrame(columns)


def _mean(row: Mapping[Any, Any]) -> str:
    """`74.84 ± 3.87 (n = 3)`."""
    text = tables.cell(row["ours"], row["ci95"], row["n"], row["diverged"])
    return text if row["n"] == 1 or row["diverged"] else f"{text} (n = {row['n']})"


def _beside(value: float, reference: float) -> str:
    """`92.92 (+0.95)`: what a paper prints, and how far it is from the reference; a dash where it prints none."""
    if np.isnan(value):
        return "–"
    return f"{value:.2f}" if np.isnan(reference) else f"{value:.2f} ({value - reference:+.2f})"


def _differences(found: notebook.Runs, reference: str, instead: Mapping[str, str] = {}) -> dict[tuple[str, str], str]:
    """(setting, method) -> `+9.71 ± 4.20 (n = 3)`: its difference to the reference in points, paired by seed."""
    made = {}
    for setting in dict.fromkeys(cell.setting for cell in found.cells):
        pairs = [(cell, record) for cell, record in found.pairs if cell.setting == setting]
        own = notebook.Runs([cell for cell, _ in pairs], [record for _, record in pairs])
        for row in own.effects(reference, "last", instead).to_dict("records"):
            spread = "" if np.isnan(row["ci95"]) else f" ± {row['ci95']:.2f}"
            text = "diverged" if np.isnan(row["difference"]) else f"{row['difference']:+.2f}{spread}"
            made[setting, row["case"]] = f"{text} (n = {row['n']})"
    return made


def _audited(paper: str) -> pd.DataFrame:
    """The audit of a paper's code: each case with its difference to the released code, or to the reference that it has instead."""
    grid = f"audit/{paper.lower()}"
    if grid not in exhibits.GRIDS:
        return pd.DataFrame()
    table = _against(grid, exhibits.AS_RELEASED, exhibits.AUDIT_INSTEAD)
    if len(table):
        table["method"] = [f"{paper}: {case}" for case in table["method"]]
    return table.rename(columns={"method": "case", f"less {exhibits.AS_RELEASED}": "less its reference"})


def _against(grid: str, reference: str, instead: Mapping[str, str] = {}) -> pd.DataFrame:
    """A grid's results of record, one row per method: how they were run, their mean over all clients and its difference to
    `reference`, paired by seed, and the mean over the last round's clients. n stands in each cell.
    """
    found = recorded.load_record(grid)
    rows, changes = found.summary("last").to_dict("records"), _differences(found, reference, instead)
    specs = {(cell.method, cell.setting): cell.spec for cell in found.cells}
    of = [specs[row["method"], row["setting"]] for row in rows]
    return pd.DataFrame(
        {
            "method": [row["method"] for row in rows],
            "setting": [row["setting"] for row in rows],
            "N": [str(spec.num_clients) for spec in of],
            "T": [str(spec.rounds) for spec in of],
            "E": [str(spec.local_epochs) for spec in of],
            "protocol": [spec.protocol for spec in of],
            "all clients": [_mean(row) for row in rows],
            f"less {reference}": [changes.get((row["setting"], row["method"]), "–") for row in rows],
            "the last round's clients": [f"{row['selected']:.2f} (n = {row['n']})" for row in rows],
        }
    )


def _between(text: str, mark: str, table: pd.DataFrame, footer: str = "") -> str:
    """`text` with a Markdown table of `table`, and `footer` under it, between the comments `mark` and `/mark`."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    drawn = "\n".join("| " + " | ".join(line) + " |" for line in lines) + (f"\n\n{footer}" if footer else "")
    before, rest = text.split(f"<!-- {mark} -->")
    return f"{before}<!-- {mark} -->\n{drawn}\n<!-- /{mark} -->{rest.split(f'<!-- /{mark} -->')[1]}"


def all_notebooks() -> list[str]:
    return sorted(
        str(path.relative_to(notebook.NOTEBOOKS))
        for path in Path(notebook.NOTEBOOKS).rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    )
