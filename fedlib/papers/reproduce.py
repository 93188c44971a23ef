"""Make exhibits in a batch: train what is missing, execute the notebooks that are not fresh, check the artefacts."""

import contextlib
import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

from .. import lab
from ..errors import FedlibError, choose, coerce, require
from ..lab import estimates
from ..show import tables
from . import checked, conclusions, exhibits, hours, loading, notebook, prices, recorded, results, settings, verdicts
from .exhibits import RECORD
from .printed import accuracies

# A busy machine may start a kernel slowly; the kernel's own log says nothing that a reader needs.
PAPERMILL: Any = {
    "kernel_name": "python3", "progress_bar": False, "start_timeout": 120, "extra_arguments": ["--IPKernelApp.log_level=CRITICAL"],
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What exhibits need: how many runs; those of them that are read from the results of record; those to be trained."""

    needed: int
    read: list[lab.Record]
    todo: list[lab.Resolved]


def plan(
    chosen: Sequence[exhibits.Exhibit],
    scale: str,
    reuse_stale: bool = False,
    methods: Sequence[str] = (),
    afresh: bool = False,
) -> Plan:
    """What the exhibits need of some methods (labels or algorithms), or of all.

    A run that the store does not have is read from the results of record where it is among them, unless an exhibit needs more
    of it than they hold (weights, what a method noted in a round) or `afresh`. Raises FedlibError for a method that an exhibit
    does not have.
    """
    cells = {item.name: _cells(item, scale, methods) for item in chosen}
    specs = [cell.spec for own in cells.values() for cell in own]
    needed = {lab.resolve(spec, scale).key for spec in specs}
    todo = lab.missing(specs, scale, reuse_stale)
    known = {} if afresh else recorded.by_key()
    if known:
        whole = [
            item for item in chosen if item.whole or any(exhibits.GRIDS[grid].keep != "none" for grid in item.grids)
        ]
        needs = {lab.resolve(cell.spec, scale).key for item in whole for cell in cells[item.name]}
        known = {key: record for key, record in known.items() if key not in needs}
    read = [known[run.key] for run in todo if run.key in known]
    return Plan(len(needed), read, [run for run in todo if run.key not in known])


def _cells(item: exhibits.Exhibit, scale: str, methods: Sequence[str]) -> list[exhibits.Cell]:
    """An exhibit's runs, of some methods or of all."""
    if not methods:
        return exhibits.cells(item.grids, scale)
    require(bool(item.grids), "methods", ", ".join(methods), f"left out: {item.name} needs no runs")
    return settings.defaults(scale, methods).cells(*item.grids)


def listed(
    name: str, scale: str, reuse_stale: bool = False, methods: Sequence[str] = (), afresh: bool = False
) -> dict[str, Any]:
    """The plan as plain values, for an engine that starts `fedlib run --spec` and `fedlib reproduce --figures-only`.

    runs: every one that the exhibits need in the store, each once, longest first: its key, its specification with every
    field filled, whether it is stored, and the training images that it sees; exhibits: what each is, its notebook, the keys of
    its runs; of_record: the keys of those left out, which are read from the results of record. Raises FedlibError for an unknown
    name, scale or method.
    """
    chosen = exhibits.choose_exhibits(name)
    choose("scale", scale, lab.SCALES)
    keys: dict[str, list[str]] = {}
    resolved: dict[str, lab.Resolved] = {}
    for item in chosen:
        own = [lab.resolve(cell.spec, scale) for cell in _cells(item, scale, methods)]
        keys[item.name] = list(dict.fromkeys(run.key for run in own))
        for run in own:  # of those that keep different weights, the one that keeps most
            known = resolved.get(run.key, run)
            resolved[run.key] = max(known, run, key=lambda one: lab.KEEP.index(one.spec.keep))
    missing = {run.key for run in lab.missing([run.spec for run in resolved.values()], scale, reuse_stale)}
    todo = {run.key for run in plan(chosen, scale, reuse_stale, methods, afresh).todo}
    of_record = missing - todo
    runs = sorted((run for key, run in resolved.items() if key not in of_record), key=lab.training_work, reverse=True)
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
            {
                "name": item.name,
                "title": item.title,
                "notebook": item.notebook,
                "runs": [key for key in keys[item.name] if key not in of_record],
            }
            for item in chosen
        ],
        "of_record": sorted(of_record),
    }


def describe(plan: Plan, jobs: int) -> str:
    """The plan in a few lines: what is read, what is trained, with an estimate of time from a short calibration."""
    of_record = ""
    if plan.read:
        said = f"of record are read from {recorded.RESULTS} (--afresh trains them)."
        of_record = "\n" + " ".join(filter(None, (f"{len(plan.read)} runs {said}", loading.say_stale(plan.read))))
    stored = plan.needed - len(plan.todo) - len(plan.read)
    where = f"{stored} stored, {len(plan.read)} of record" if plan.read else f"{stored} stored"
    if not plan.todo:
        return f"{plan.needed} runs needed, {where if plan.read else 'all stored'}: nothing to train{of_record}"
    seconds = lab.estimate(plan.todo, jobs)
    images = sum(item.samples for item in plan.todo)
    return (
        f"{plan.needed} runs needed, {where}, {len(plan.todo)} to train:\n{images / 1e6:.2f} million images, about "
        f"{duration(seconds)} with {min(jobs, len(plan.todo))} at a time (from short calibrations here){of_record}"
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
    taking_part = {name for run in todo for name in run.architectures}
    for name in sorted(taking_part & estimates.FLOPS.keys()):
        times = estimates.FLOPS[name] / estimates.FLOPS["CNN-1"]
        if times > 10:
            print(f"an image costs {times:.0f} times as much in {name} as in CNN-1")


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
) -> bool:
    """Make the exhibits that `name` means at `scale`; prints a line an exhibit and returns whether all artefacts are fresh.

    methods: labels or algorithms of the exhibits' rows, if not all; the files then have a name of their own. afresh: train also
    what the results of record hold.

    jobs: runs, then notebooks, side by side. only: `plan` says what would be trained; `runs` trains what is missing;
    `figures` trains nothing, and raises FedlibError where a run is missing; `check` says whether each exhibit's files are
    fresh by their stamps, whoever executed its notebook. Empty: train, then execute the notebooks that need it.
    """
    choose("only", only, ("", "plan", "runs", "figures", "check"))
    jobs = coerce("jobs", jobs, int)
    require(jobs >= 1, "jobs", jobs, "at least 1")
    lab.home()  # one that cannot be is refused before anything is done
    chosen = exhibits.choose_exhibits(name)
    choose("scale", scale, lab.SCALES)
    if only == "check":
        return _check(chosen, scale, methods)
    planned = plan(chosen, scale, reuse_stale, methods, afresh)
    todo = planned.todo
    if only == "figures" and todo:
        raise FedlibError(
            f"{len(todo)} of {planned.needed} runs are missing: the same command without --figures-only trains them"
        )
    print(describe(planned, jobs))
    if scale == "paper":
        print("*chosen* where the texts leave it open: " + "; ".join(f"{k} = {v}" for k, v in exhibits.CHOSEN.items()))
    if only == "plan":
        _print_plan(todo)
        return True
    lab.sweep([run.spec for run in todo], scale, jobs=jobs, reuse_stale=reuse_stale)
    if only == "runs":
        return True
    state = {item.name: _state(item, scale, methods) for item in chosen}
    seconds: dict[str, float] = {}
    errors: dict[str, str] = {}

    def make(file: str) -> None:
        print(
            f"executing notebooks/{file} ...\n", end="", file=sys.stderr
        )  # one write, so that threads' lines stay whole
        started = time.perf_counter()
        try:
            execute(file, scale, methods)
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
    now = {item.name: _state(item, scale, methods) if item.notebook in seconds else state[item.name] for item in chosen}
    failed = {
        item.name: errors.get(item.notebook, "" if now[item.name] == "fresh" else now[item.name]) for item in chosen
    }
    print(f"{'exhibit':<22}{'was':<22}{'seconds':>8}  status")
    for item in chosen:
        was = "cached" if state[item.name] == "fresh" else state[item.name]
        took = f"{seconds[item.notebook]:.1f}" if item.notebook in seconds else "-"
        status = f"FAILED in {item.notebook}: {failed[item.name]}" if failed[item.name] else "ok"
        print(f"{item.name:<22}{was:<22}{took:>8}  {status}")
    print(f"figures and tables: {notebook.figures(scale)}\nexecuted notebooks: {lab.home() / 'executed' / scale}")
    return not any(failed.values())


def _check(chosen: Sequence[exhibits.Exhibit], scale: str, methods: Sequence[str] = ()) -> bool:
    """Whether all exhibits' files are fresh; prints those that are not."""
    states = {item.name: notebook.freshness(item, scale, methods) for item in chosen}
    for name, state in states.items():
        if state != "fresh":
            print(f"{name:<22}{state}")
    good = sum(state == "fresh" for state in states.values())
    print(f"{good} of {len(chosen)} exhibits are fresh in {notebook.figures(scale)}")
    return good == len(chosen)


def _executed(scale: str, file: str, methods: Sequence[str] = ()) -> Path:
    """Where an executed notebook lies; a variation has a name of its own."""
    path = lab.home() / "executed" / scale / file
    variation = settings.defaults(scale, methods).variation
    return path.with_stem(f"{path.stem}--{variation}") if variation else path


def _state(item: exhibits.Exhibit, scale: str, methods: Sequence[str] = ()) -> str:
    """`fresh`, or why the exhibit's notebook must be executed; an execution that ended in an error is not fresh."""
    try:
        cells = json.loads(_executed(scale, item.notebook, methods).read_text())["cells"]
    except (FileNotFoundError, ValueError, KeyError):
        return "not executed"
    if any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", [])):
        return "ended in an error"
    return notebook.freshness(item, scale, methods)


def execute(file: str, scale: str, methods: Sequence[str] = ()) -> None:
    """Execute one notebook with papermill into executed/<scale>/; raises FedlibError with the cell's error in one line."""
    import nbformat
    import papermill

    source = notebook.NOTEBOOKS / file
    target = _executed(scale, file, methods)
    target.parent.mkdir(parents=True, exist_ok=True)
    parameters: dict[str, Any] = {"scale": scale} | ({"methods": list(methods)} if methods else {})
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
    widget, and unless it is wanted `stderr`; and join what a stream wrote in parts, since where a part ends is chance.
    """
    if cell.cell_type != "code":
        return
    kept: list[Any] = []
    for output in cell.outputs:
        name = output.get("name")
        if not output.get("data", True) or any("widget" in kind for kind in output.get("data", {})):
            continue
        if name == "stderr" and not stderr:
            continue
        if name and kept and kept[-1].get("name") == name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    cell.outputs = kept


def write_readme() -> None:
    """Bring README.md's generated tables up to date."""
    text = readme()
    (lab.checkout() / "README.md").write_text(text, encoding="utf-8")


def readme() -> str:
    """README.md with its generated tables brought up to date: the results of record and the index of exhibits."""
    text = (lab.checkout() / "README.md").read_text(encoding="utf-8")
    column = [("fedssa/heterogeneous", ()), ("pfedes/heterogeneous", ("pFedES",))]
    tables_ = {
        "verdicts": _judged(),
        "record": _against(column, "Standalone", papers=(("FedSSA", "Table 2"), ("pFedES", "Table 3"))),
        "audit": pd.concat([_audited(paper.name) for paper in exhibits.PAPERS]),
        "reassembly": pd.concat(
            [
                _against([(f"pfedhr/{labels}", ())], "Standalone", papers=(("pFedHR", "Table 2"),))
                for labels in ("labelled", "unlabelled")
            ]
        ),
    }
    for mark, table in tables_.items():
        text = _between(text, mark, _markdown(table) + ("" if len(table) else "\n\nNot run yet."))
    text = _between(text, "front", _markdown(_front()))
    hundred = _main_table().where(num_clients=100)
    text = _between(text, "prices", _markdown(conclusions.at_each_price(hundred, "FedSSA")))
    text = _between(text, "sentences", _sentences())
    text = _between(text, "checked", checked.last_agreed())
    index = exhibits.index()
    index.insert(2, "on record", [_on_record(exhibits.EXHIBITS[name]) for name in index.index])
    index["record: core-hours"] = [hours.text(exhibits.EXHIBITS[name].grids, RECORD) for name in index.index]
    index = index.reset_index()
    ours = len(exhibits.AUDIT)
    footer = f"{len(index)} in all, and {ours} of the audit, which are ours."
    return _between(text, "exhibits", f"{_markdown(index)}\n\n{footer}")


def _judged() -> pd.DataFrame:
    """What the results of record say of each paper's claims: which are supported, contradicted or of no difference by training and
    by counting, how many the rest are.
    """
    rows = []
    for paper, own in conclusions.judged().groupby("paper", sort=False):
        row: dict[str, Any] = {"paper": paper, "claims": len(own)}
        for by in (verdicts.TRAINED, verdicts.COUNTED):
            for verdict in (verdicts.SUPPORTED, verdicts.CONTRADICTED, verdicts.NO_DIFFERENCE):
                names = own["claim"][(own["verdict"] == verdict) & (own["by"] == by)]
                if by == verdicts.TRAINED or verdict != verdicts.NO_DIFFERENCE:
                    row[f"{verdict}, {by}"] = "; ".join(names) or "–"
        row |= {name: int((own["verdict"] == name).sum()) for name in (verdicts.UNDECIDED, verdicts.NOT_RUN)}
        rows.append(row)
    return pd.DataFrame(rows)


def _front() -> pd.DataFrame:
    """The main table in short, CIFAR-100 with 100 clients, a row a method: its compute and words, its mean, its gain over Standalone
    at equal rounds and at equal FLOPs, and the gain that the papers print.
    """
    found = _main_table().where(dataset="cifar100", num_clients=100)
    gains = {row["own"]: row for row in prices.over(found, "Standalone").to_dict("records")}
    theirs = [accuracies(*paper) for paper in (("FedSSA", "Table 2"), ("pFedES", "Table 3"))]
    kilobytes = conclusions.sent(found)
    rows = []
    for row in found.summary("last").to_dict("records"):
        method, gain = row["method"], gains.get(row["method"])
        values = [
            table[(table["dataset"] == row["dataset"]) & (table["clients"] == row["clients"])] for table in theirs
        ]
        printed = [own.set_index("method")["value"] for own in values]
        paper = next(
            (own[method] - own["Standalone"] for own in printed if not np.isnan(own.get(method, np.nan))), np.nan
        )
        rows.append(
            {
                "method": method,
                "computes": f"{1.0 if gain is None else gain['compute']:.2f}",
                "sends, KB": tables.short(kilobytes[row["setting"], method]),
                "accuracy": tables.mean(row),
                "gain": "–" if gain is None else _with_n(gain, "rounds"),
                "gain at equal FLOPs": "–" if gain is None else _with_n(gain, "flops"),
                "the paper's gain": "–" if np.isnan(paper) or gain is None else f"{paper:+.2f}",
            }
        )
    return pd.DataFrame(rows)


def _with_n(gain: Mapping[Any, Any], kind: str) -> str:
    return f"{tables.apart(gain[kind], gain[f'{kind}_ci95'])} (n = {gain['n']})"


def _main_table() -> notebook.Runs:
    """FedSSA's Table 2 of record, FedGH beside it, and pFedES, from its own paper's table."""
    own = loading.load_record("pfedes/heterogeneous").of("pFedES")
    return notebook.Runs.joined([loading.load_record("fedssa/heterogeneous"), own])


# The claim that each paper's main table is about: its name, the grids with the method and its rivals, the printed table.
_HEADLINES = {
    "FedSSA": ("largest lead, heterogeneous models", ("fedssa/heterogeneous",), "Table 2"),
    "FedGH": ("best everywhere, heterogeneous models", ("fedssa/heterogeneous",), "Table 3"),
    "pFedES": ("best everywhere, heterogeneous models", ("pfedes/heterogeneous",), "Table 3"),
    "pFedHR": ("best in Table 2", ("pfedhr/labelled", "pfedhr/unlabelled"), "Table 2"),
}


def _sentences() -> str:
    """A line a paper: its main claim, the verdict, and how its method stands in the results of record."""
    lines = []
    for paper, (name, grids, item) in _HEADLINES.items():
        own = conclusions.judged(paper=paper)
        claim = own[own["claim"] == name].iloc[0]
        found = notebook.Runs.joined(map(loading.load_record, grids))
        printed = f", printed {claim['printed']} {claim['unit']}" if claim["printed"] else ""
        why = f" ({claim['why']})" if claim["why"] else ""
        said = conclusions.standing(found, paper, accuracies(paper, item)) if found.cells else []
        head = f"* **{paper}**. {claim['words']} ({claim['where']}{printed}): **{claim['verdict']}**{why}."
        lines.append("\n".join([head, *(f"  * {sentence}" for sentence in said)]))
    return "\n".join(lines)


def _on_record(exhibit: exhibits.Exhibit) -> str:
    """`5 of 27 runs, n = 1 to 3`, `smoke only`, or that it needs none."""
    if not exhibit.grids:
        return "needs no run"
    found = notebook.Runs.joined(map(loading.load_record, exhibit.grids))
    seeds: dict[tuple[Any, ...], set[int]] = {}
    for cell in found.cells:
        seeds.setdefault((cell.method, cell.setting, cell.value), set()).add(cell.spec.seed)
    if not seeds:
        return "smoke only"
    least, most = (choice(map(len, seeds.values())) for choice in (min, max))
    n = f"{least}" if least == most else f"{least} to {most}"
    return f"{len(found.cells)} of {len(exhibits.cells(exhibit.grids, RECORD))} runs, n = {n}"


def _beside(value: float, reference: float) -> str:
    """`92.92 (+0.95)`: what a paper prints, and how far it is from the reference; a dash where it prints none."""
    if np.isnan(value):
        return "–"
    return f"{value:.2f}" if np.isnan(reference) else f"{value:.2f} ({value - reference:+.2f})"


def _differences(
    found: notebook.Runs, reference: str, instead: Mapping[str, str], rule: str, column: str
) -> dict[tuple[str, str], str]:
    """(setting, method) -> `+9.71 ± 4.20 (n = 3)`: its difference to the reference in points, paired by seed; or a dash."""
    made = {}
    prefix = "selected_" if column == "accuracy_selected" else ""
    for row in found.differences(reference, rule, instead).to_dict("records"):
        difference = row[f"{prefix}difference"]
        own = "" if row["shared"] or row["n"] < 2 else " †"
        text = f"{tables.apart(difference, row[f'{prefix}ci95'])}{own} (n = {row['n']})"
        made[row["setting"], row["method"]] = "–" if np.isnan(difference) else text
    return made


def _audited(paper: str) -> pd.DataFrame:
    """The audit of a paper's code: each case with its difference to the released code, or to the reference that it has instead, and
    to Standalone, by what the released scripts report: the mean over the last ten rounds of the clients that a round selects.
    """
    grid = f"audit/{paper.lower()}"
    if grid not in exhibits.GRIDS:
        return pd.DataFrame()
    said = exhibits.GRIDS[grid]
    table = _against([(grid, ())], said.reference, said.instead, rule="last10", column="accuracy_selected")
    if len(table):
        lead = _differences(loading.load_record(grid), "Standalone", {}, "last10", "accuracy_selected")
        places = zip(table["setting"], table["method"], strict=True)
        table.insert(
            list(table.columns).index("all clients"), _gain("Standalone"), [lead.get(place, "–") for place in places]
        )
        table["method"] = [f"{paper}: {case}" for case in table["method"]]
    return table.rename(columns={"method": "case", _gain("as released"): "difference to its reference"})


# Whose mean, by the column of a record's rounds.
_WHOSE = {
    "accuracy": "visited clients",
    "accuracy_all": "all clients",
    "accuracy_selected": "the rounds' clients",
}


def _against(
    grids: Sequence[tuple[str, Sequence[str]]],
    reference: str,
    instead: Mapping[str, str] = {},
    *,
    rule: str = "last",
    column: str = "accuracy",
    papers: Sequence[tuple[str, str]] = (),
) -> pd.DataFrame:
    """The results of record of grids (of some methods, or of all), one row per method and setting: how they were run, the mean by
    `rule` and `column` with its difference to `reference`, paired by seed, the other means, and what the first of `papers`, (name,
    table), that has the row prints, with its difference to what it prints of the reference. n stands in each cell.

    Epochs: those that a client trains on average, and in brackets the most that the paper trains at the same N and C.
    """
    loaded = [(loading.load_record(grid), names) for grid, names in grids]
    found = notebook.Runs.joined(found.of(*names) if names else found for found, names in loaded)
    settings_ = list(dict.fromkeys(cell.setting for cell in found.cells))
    rows = sorted(found.summary(rule, column).to_dict("records"), key=lambda row: settings_.index(row["setting"]))
    changes = _differences(found, reference, instead, rule, column)
    specs = {(cell.method, cell.setting): cell.spec for cell in found.cells}
    of = [specs[row["method"], row["setting"]] for row in rows]
    theirs = [cell.spec for grid, _ in grids for cell in exhibits.cells(grid, "paper", seeds=(0,))]
    others = {"accuracy_all": "all", "accuracy_selected": "selected"}
    made = {
        "method": [row["method"] for row in rows],
        "setting": [row["setting"] for row in rows],
        "T": [str(spec.rounds) for spec in of],
        "E": [str(spec.local_epochs) for spec in of],
        "epochs": [f"{results.epochs([spec]):g} ({results.epochs(results.of_column(spec, theirs)):g})" for spec in of],
        "protocol": [spec.protocol for spec in of],
        _WHOSE[column]: [tables.mean(row) for row in rows],
        _gain(reference): [changes.get((row["setting"], row["method"]), "–") for row in rows],
    }
    if rule != "last10":
        smoothed = _differences(found, reference, instead, "last10", column)
        made["the same, last 10 rounds"] = [smoothed.get((row["setting"], row["method"]), "–") for row in rows]
    for other, name in others.items():
        if other != column:
            made[_WHOSE[other]] = [tables.plain(row[name]) for row in rows]
    if any(not np.isnan(row.get("taught", np.nan)) for row in rows):
        made["visits taught"] = [tables.percent(row.get("taught", np.nan)) for row in rows]
    if papers:
        printed = [accuracies(*paper).set_index(["dataset", "clients", "method"])["value"] for paper in papers]
        made["the paper's"] = [_printed(row, reference, printed) for row in rows]
    return pd.DataFrame(made)


def _gain(reference: str) -> str:
    return "gain over Standalone" if reference == "Standalone" else f"difference to {reference}"


def _printed(row: Mapping[Any, Any], reference: str, printed: Sequence[pd.Series]) -> str:
    for values in printed:
        place = (row["dataset"], row["clients"])
        own = values.get((*place, row["method"]), np.nan)
        if not np.isnan(own):
            return _beside(own, np.nan if row["method"] == reference else values.get((*place, reference), np.nan))
    return "–"


def _markdown(table: pd.DataFrame) -> str:
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _between(text: str, mark: str, made: str) -> str:
    """`text` with `made` between the comments `mark` and `/mark`."""
    before, rest = text.split(f"<!-- {mark} -->")
    return f"{before}<!-- {mark} -->\n{made}\n<!-- /{mark} -->{rest.split(f'<!-- /{mark} -->')[1]}"


def copy_notebooks(target: str | Path) -> list[Path]:
    """Copy every notebook into the folder `target`, in the folders that they have here; returns the files written.

    Raises FedlibError, and writes nothing, where one of them is there already.
    """
    files = {file: Path(target).expanduser() / file for file in all_notebooks()}
    for path in files.values():
        require(not path.exists(), "folder", str(target), f"without {path.name}, or the copy would replace {path}")
    try:
        for file, path in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(notebook.NOTEBOOKS / file, path)
    except OSError as error:
        raise FedlibError(f"folder = {str(target)!r}: cannot be written: {error}") from error
    return list(files.values())


def all_notebooks() -> list[str]:
    return sorted(
        str(path.relative_to(notebook.NOTEBOOKS))
        for path in Path(notebook.NOTEBOOKS).rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    )
