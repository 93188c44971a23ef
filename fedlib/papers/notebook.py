"""What a notebook calls: check its parameters, get its runs, save its exhibits with a stamp.

A stamp (figures/<scale>/<paper>/<exhibit>.json) holds hashes of the notebook's code, of the code that draws, of the runs read and of the
files themselves, so that an exhibit is fresh or stale by content, whatever the file times.
"""

import ast
import functools
import hashlib
import json
import re
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from .. import algorithms, data, lab, models
from ..errors import FedlibError, choose, coerce, require
from ..lab import costs, presets, sources, write_bytes
from ..protocol import Protocol
from ..show import intervals, labels, looks, plots, tables
from . import exhibits, printed, views

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
# name -> (type, default, help): the parameters that every notebook has. Defaults are the smoke scale.
PARAMETERS: dict[str, tuple[type, Any, str]] = {
    "scale": (str, "smoke", "smoke (embedded digits, minutes), demo (real data) or paper (the published setting)"),
    "dataset": (str, "", "one data set only; empty: those of the scale"),
    "methods": (list, [], 'methods, such as ["Standalone", "FedSSA"]; empty: all of the exhibit'),
    "seeds": (list, [], "seeds, such as [0, 1, 2]; empty: those of the scale"),
    "rounds": (int, 0, "communication rounds T; 0: the scale's"),
    "protocol": (str, "", "paper (what the text says) or released (what its code does); empty: the exhibit's own"),
    "device": (str, "cpu", "cpu, cuda, or auto (cuda where there is one)"),
    "jobs": (int, 2, "runs trained side by side, one thread each"),
    "rule": (str, "last", "round that a table reports: last, last10, validation or best"),
}
LONGEST_NAME = 95  # characters of a variation's files, so that the extension fits into a hundred


@dataclass(frozen=True)
class Settings:
    """A notebook's checked parameters. `methods`, `rounds` and `protocol` are empty or 0 where the exhibit's own hold."""

    scale: str
    dataset: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    rounds: int
    protocol: str
    device: str
    jobs: int
    rule: str

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,) if self.dataset else exhibits.DATASETS[self.scale]

    @property
    def embedded(self) -> bool:
        return any(name in data.EMBEDDED for name in self.datasets)

    @property
    def variation(self) -> str:
        """What differs from an exhibit's own settings, as a part of a file's name: `rounds-3--rule-best`; empty where nothing does.

        The order of `methods` does not count; a name that would be too long ends in a digest of the whole.
        """
        own = {"dataset": "", "methods": (), "seeds": exhibits.SEEDS[self.scale], "rounds": 0} | {
            "protocol": "", "device": "cpu", "rule": "last",
        }  # fmt: skip
        given = {name: getattr(self, name) for name in own} | {"methods": tuple(sorted(set(self.methods)))}
        changed = {name: value for name, value in given.items() if value != own[name]}
        words = [
            [name, *(map(str, value) if isinstance(value, tuple) else [str(value)])] for name, value in changed.items()
        ]
        whole = "--".join("-".join(re.sub(r"[^\w.]+", "-", word).strip("-") for word in part) for part in words)
        digest = hashlib.sha256(json.dumps(changed).encode()).hexdigest()[:8]
        longest = LONGEST_NAME - max(len(item.item) for item in exhibits.every().values()) - 2
        return whole if len(whole) <= longest else f"{whole[: longest - 9]}-{digest}"

    def grids(self, *names: str) -> dict[str, list[exhibits.Cell]]:
        """The runs of each grid under these settings.

        `methods` keeps those whose label or algorithm it names, in the grids that have one; raises FedlibError for a name that
        none of `names` has.
        """
        replaced = {
            "rounds": self.rounds,
            "protocol": self.protocol,
            "device": self.device if self.device != "cpu" else "",
        }
        changes = {name: value for name, value in replaced.items() if value}
        every = {name: exhibits.cells(name, self.scale, self.dataset, self.seeds, **changes) for name in names}
        known = dict.fromkeys(cell.method for cells in every.values() for cell in cells)
        known |= dict.fromkeys(cell.spec.algorithm for cells in every.values() for cell in cells)
        for method in self.methods:
            choose("method", method, known)
        if not self.methods:
            return every
        return {
            name: [cell for cell in cells if {cell.method, cell.spec.algorithm} & set(self.methods)]
            for name, cells in every.items()
        }

    def cells(self, *grids: str) -> list[exhibits.Cell]:
        """The runs of one or more grids under these settings, one grid after the other, see `grids`."""
        return [cell for cells in self.grids(*dict.fromkeys(grids)).values() for cell in cells]

    def spec(self, grid: str, method: str) -> lab.RunSpec:
        """The specification of the first run of `method` (a label or an algorithm) in a grid, to be changed by hand, even where
        the parameter `methods` leaves that method out.
        """
        return replace(self, methods=(method,)).cells(grid)[0].spec

    def caption(self) -> str:
        return tables.caption(
            scale=self.scale,
            datasets=self.datasets,
            embedded=self.embedded,
            protocol=self.protocol or "paper",
            rule=self.rule,
            seeds=len(self.seeds),
        )


def settings(
    *,
    scale: Any,
    dataset: Any,
    methods: Any,
    seeds: Any,
    rounds: Any,
    protocol: Any,
    device: Any,
    jobs: Any,
    rule: Any,
) -> Settings:
    """Check a notebook's parameters, print them resolved and hand them back; call it right after the parameters cell.

    Strings that papermill's `-p` passes for numbers and lists are understood. Raises FedlibError, one line, for a wrong type or
    value, and for a parameter that papermill was given and that does not exist (with the nearest that does). Nothing else that
    a notebook defines is looked at.
    """
    for name in _injected():
        choose("notebook parameter", name, PARAMETERS)
    texts = {"scale": scale, "dataset": dataset, "protocol": protocol, "device": device, "rule": rule}
    values: dict[str, Any] = {name: coerce(name, value, str) for name, value in texts.items()}
    values |= {"rounds": coerce("rounds", rounds, int), "jobs": coerce("jobs", jobs, int)}
    values |= {"methods": _methods(methods), "seeds": _seeds(seeds)}
    choose("scale", values["scale"], exhibits.DATASETS)
    choose("rule", values["rule"], intervals.SELECTION_RULES)
    if values["dataset"]:
        choose("dataset", values["dataset"], data.names())
    if values["protocol"]:
        choose("protocol", values["protocol"], dict.fromkeys(variant for _, variant in presets.PRESETS))
    choose("device", values["device"], lab.CHOICES["device"])
    if values["device"] == "auto":
        values["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    allowed = "cpu on this machine, which has no CUDA device"
    require(values["device"] == "cpu" or torch.cuda.is_available(), "device", values["device"], allowed)
    require(values["rounds"] >= 0, "rounds", values["rounds"], "at least 1, or 0 for the scale's")
    require(values["jobs"] >= 1, "jobs", values["jobs"], "at least 1")
    values["seeds"] = values["seeds"] or exhibits.SEEDS[values["scale"]]
    resolved = Settings(**values)
    print(
        f"scale {resolved.scale}; data {', '.join(resolved.datasets)}; methods {', '.join(resolved.methods) or 'all of the exhibit'}; "
        f"seeds {', '.join(map(str, resolved.seeds))}; rounds {resolved.rounds or 'as the scale says'}; "
        f"protocol {resolved.protocol or 'of the exhibit'}; device {resolved.device}; jobs {resolved.jobs}; "
        f"selection rule {resolved.rule}"
    )
    return resolved


def _injected() -> list[str]:
    """The names that papermill's latest cell in this kernel assigns: it puts the parameters of its caller into a cell of its own,
    which begins with `# Parameters`. Without IPython, or without such a cell, none.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    inputs = shell.user_ns.get("In", []) if shell else []
    source = next((text for text in reversed(inputs) if text.startswith("# Parameters")), "")
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a reader's own cell
        return []
    targets = [target for statement in statements if isinstance(statement, ast.Assign) for target in statement.targets]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _methods(value: Any) -> tuple[str, ...]:
    """A list of names; text is such a list in brackets, or a single name."""
    allowed = 'names in brackets, such as ["Standalone", "FedSSA"]'
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise FedlibError(f"methods = {value!r}: must be {allowed}") from None
    value = [value] if isinstance(value, str) and value else value or []
    require(isinstance(value, list | tuple) and all(isinstance(name, str) for name in value), "methods", value, allowed)
    return tuple(value)


def _seeds(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise FedlibError(f"seeds = {value!r}: must be whole numbers in brackets, such as [0, 1, 2]") from None
    value = [value] if isinstance(value, int) else value
    require(isinstance(value, list | tuple), "seeds", value, "whole numbers in brackets, such as [0, 1, 2]")
    return tuple(coerce("seeds", seed, int) for seed in value)


LABELS = ("method", "dataset", "clients", "setting")  # of a run in a table
LABELLED = ("setting", "method", "seed", "value")  # of a row of its rounds and clients


@dataclass(frozen=True)
class Runs:
    """The finished runs of a grid: cells and their records, side by side."""

    cells: list[exhibits.Cell]
    records: Sequence[lab.Record | printed.Recorded]

    def summary(self, rule: str) -> pd.DataFrame:
        """method, dataset, clients, setting, value (of the swept quantity, if any), then `intervals.summarise`'s columns."""
        swept = any(
            c.value is not None for c in self.cells
        )  # None itself may be one of the values: the clients' own data
        labels = [
            {"method": c.method, "dataset": c.dataset, "clients": c.clients, "setting": c.setting}
            | ({"value": c.value} if swept else {})
            for c in self.cells
        ]
        table = intervals.summarise(zip(labels, self.records, strict=True), rule)
        return table if len(table) else pd.DataFrame(columns=[*LABELS, "value", *intervals.SUMMARY])

    def of(self, *methods: str) -> "Runs":
        """The runs of some methods only."""
        kept = [(cell, record) for cell, record in zip(self.cells, self.records, strict=True) if cell.method in methods]
        return Runs([cell for cell, _ in kept], [record for _, record in kept])

    def among(self, methods: Iterable[str]) -> list[str]:
        """Those of `methods` that have a run here, in the same order."""
        present = {cell.method for cell in self.cells}
        return [method for method in methods if method in present]

    def paired(self) -> "Runs":
        """Only the seeds that every method and value of a setting has: what differs is then not the draw of the clients."""
        seeds: dict[str, dict[Any, set[int]]] = {}
        for cell in self.cells:
            seeds.setdefault(cell.setting, {}).setdefault((cell.method, cell.value), set()).add(cell.spec.seed)
        common = {setting: set.intersection(*own.values()) for setting, own in seeds.items()}
        pairs = zip(self.cells, self.records, strict=True)
        kept = [(cell, record) for cell, record in pairs if cell.spec.seed in common[cell.setting]]
        return Runs([cell for cell, _ in kept], [record for _, record in kept])

    def rounds(self) -> pd.DataFrame:
        """dataset, clients, setting, method, seed, value (of the swept quantity, if any) and the records' rounds from 0."""
        tables = [
            record.rounds.query("round >= 0").assign(
                dataset=cell.dataset,
                clients=cell.clients,
                setting=cell.setting,
                method=cell.method,
                seed=cell.spec.seed,
                value=cell.value,
            )
            for cell, record in zip(self.cells, self.records, strict=True)
        ]
        return (
            pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["round", "accuracy", *LABELLED])
        )

    def clients(self) -> pd.DataFrame:
        """dataset, clients, setting, method, seed and each client's last measured row."""
        tables = [
            _final(record).assign(
                dataset=cell.dataset,
                clients=cell.clients,
                setting=cell.setting,
                method=cell.method,
                seed=cell.spec.seed,
            )
            for cell, record in zip(self.cells, self.records, strict=True)
        ]
        return (
            pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["client", "accuracy", *LABELLED])
        )

    def top(self, summary: pd.DataFrame, method: str = "FedSSA", others: int = 2) -> dict[str, list[str]]:
        """setting -> the `others` methods of highest mean and `method`, as the papers choose the baselines that they draw; settings
        without `method` are left out.
        """
        chosen = {}
        for setting, rows in summary.groupby("setting", sort=False):
            if method not in set(rows["method"]):
                continue
            ranked = rows[rows["method"] != method].sort_values("ours", ascending=False)["method"]
            chosen[str(setting)] = [*ranked.head(others), method]
        return chosen

    def targets(self) -> pd.DataFrame:
        """Communication as FedGH's Table 3 counts it, means over seeds: dataset, setting, method, n, target (per cent), per_round_kb
        (a client and round, the last one's), reached (seeds whose mean over all clients got there), rounds, total_kb and
        real_total_kb until then. The last three are NaN unless every seed got there. KB is 1024 bytes.
        """
        rows = []
        for cell, record in zip(self.cells, self.records, strict=True):
            spent, last = costs.until(record.rounds, cell.target), record.rounds.iloc[-1]
            labels = {
                "dataset": cell.dataset,
                "setting": cell.setting,
                "method": cell.method,
                "target": 100 * cell.target,
            }
            kilobytes = {
                "per_round_kb": costs.kilobytes(last["published_words"] / last["selected"]),
                "total_kb": costs.kilobytes(spent.published_words),
                "real_total_kb": costs.kilobytes(spent.words),
            }
            rows.append(labels | {"reached": spent.reached, "rounds": float(spent.rounds)} | kilobytes)
        keys = ["dataset", "setting", "method", "target"]
        groups = pd.DataFrame(rows).groupby(keys, sort=False)
        means = groups[["per_round_kb", "rounds", "total_kb", "real_total_kb"]].mean()
        counts = groups["reached"].agg(n="size", reached="sum")
        means.loc[counts["reached"] < counts["n"], ["rounds", "total_kb", "real_total_kb"]] = float("nan")
        return counts.join(means).reset_index()

    def effects(self, reference: str, rule: str, instead: Mapping[str, str] = {}) -> pd.DataFrame:
        """What each method changes against the method `reference`, see `intervals.effects`."""
        pairs = zip(self.cells, self.records, strict=True)
        runs_ = ((cell.method, cell.dataset, cell.spec.seed, record) for cell, record in pairs)
        return intervals.effects(runs_, reference, rule, instead)

    def costs(self, rule: str) -> pd.DataFrame:
        """Words and FLOPs until the target accuracy (or in all rounds where it is not reached), means over seeds."""
        rows = [_cost(cell, record, rule) for cell, record in zip(self.cells, self.records, strict=True)]
        keys = ["dataset", "clients", "method"]
        columns = [*keys, "accuracy", "words", "flops", "reached"]
        means = pd.DataFrame(rows, columns=columns).groupby(keys, sort=False, as_index=False)
        return means.agg(
            accuracy=("accuracy", "mean"), words=("words", "mean"), flops=("flops", "mean"), reached=("reached", "all")
        )


def _final(record: lab.Record | printed.Recorded) -> pd.DataFrame:
    return record.clients.groupby("client", as_index=False).last()


def _cost(cell: exhibits.Cell, record: lab.Record | printed.Recorded, rule: str) -> dict[str, Any]:
    spec, dataset = cell.spec, data.info(cell.dataset)
    method = algorithms.make(spec.algorithm, spec.params)
    per_image = costs.flops_per_image(
        method, models.architectures(str(spec.scenario)), spec.local_epochs or 1, dataset.num_classes, dataset.channels
    )
    spent = costs.until(record.rounds, cell.target, flops_per_image=per_image)
    return {
        "dataset": cell.dataset,
        "clients": cell.clients,
        "method": cell.method,
        "reached": spent.reached,
        "accuracy": 100 * intervals.selected_accuracy(record.rounds, rule),
        "words": int(spent.words),
        "flops": spent.flops,
    }


def trained(cells: Sequence[exhibits.Cell], jobs: int = 2) -> Runs:
    """The records of `cells`: read where they are finished, trained side by side (with a progress bar) where they are not."""
    return Runs(list(cells), lab.sweep([cell.spec for cell in cells], jobs=jobs))


def check_training(records: Sequence[lab.Record], *methods: str) -> None:
    """Print whether training trained, for all records and for those of each of `methods` (algorithms): facts so coarse that they
    do not depend on the machine, for nbval to check.

    Both are means over runs of the clients that trained, in units of chance, 1 / number of classes: `above their start` is a
    rise by at least 1.5 of it from the accuracy before training (round -1) to the last one, `above chance` at least twice it.
    FedSSA's mu makes a client prefer its own classes without any training, so FedSSA alone proves little: name another method
    beside it, or hand in runs with mu0 = 0.
    """
    measured = [(record.spec.algorithm, *_gain(record)) for record in records]
    for name in ("all runs", *methods):
        rows = np.array([numbers for algorithm, *numbers in measured if name in ("all runs", algorithm)])
        if not len(rows):
            print(f"{name}: not among these runs")
            continue
        rise, end = rows.mean(axis=0)
        said = {"above their start": rise >= 1.5, "above chance": end >= 2}
        print(
            f"{name}: trained clients end",
            "; ".join(f"{fact}: {'ok' if holds else 'NO'}" for fact, holds in said.items()),
        )


def _gain(record: lab.Record) -> tuple[float, float]:
    """(rise since before training, last accuracy) of a run: means over the clients that trained, in units of chance."""
    classes = data.load(str(record.spec.dataset)).num_classes
    before = record.clients[record.clients["round"] < 0].set_index("client")["accuracy"]
    last = record.clients[record.clients["round"] >= 0].groupby("client")["accuracy"].last()
    return classes * float((last - before[last.index]).mean()), classes * float(last.mean())


def recorded(grid: str, scale: str = "demo") -> Runs:
    """The results of record (results/*.csv) that are runs of `grid` at `scale`; what has not been run yet is absent.

    A run that is there twice, under the keys of two versions, counts once: the one that kept most, or the last by key.
    """
    available = printed.recorded(NOTEBOOKS.parent / "results")
    available.sort(key=lambda record: (lab.KEEP.index(record.row["keep"]), record.key))
    matched = [(cell, [one for one in available if _same(cell, one)]) for cell in exhibits.cells(grid, scale)]
    found = [(cell, records[-1]) for cell, records in matched if records]
    return Runs([cell for cell, _ in found], [record for _, record in found])


def recorded_maps(grid: str, scale: str = "demo") -> pd.DataFrame:
    """The t-SNE maps of a grid's results of record (results/maps.csv), of each method's first seed: method and `views.mapped`'s
    columns. Without rows where no such run kept its clients.
    """
    file, found = NOTEBOOKS.parent / "results" / "maps.csv", recorded(grid, scale)
    pairs = sorted(zip(found.cells, found.records, strict=True), key=lambda pair: pair[0].spec.seed)
    columns = ["client", "architecture", "label", "x", "y", *views.SHARES]
    table = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["key", *columns])
    chosen = {cell.method: table[table["key"] == record.key] for cell, record in reversed(pairs)}
    parts = [rows.assign(method=method) for method, rows in chosen.items() if len(rows)]
    joined = pd.concat(parts, ignore_index=True) if parts else table.assign(method=[])
    order = [method for method in exhibits.GRIDS[grid].methods if method in set(joined["method"])]
    return joined.sort_values("method", key=lambda names: names.map(order.index), kind="stable")[["method", *columns]]


def recorded_images(grid: str, scale: str = "demo") -> pd.DataFrame:
    """The enhanced images of a grid's results of record (results/images.csv), of the first seed: `views.pixels`'s columns. Without
    rows where no such run kept its extractor.
    """
    found = recorded(grid, scale)
    return _of_first_seed("images", ["row", "picture", "pixels"], zip(found.cells, found.records, strict=True))


def recorded_matches(grid: str, scale: str = "demo") -> pd.DataFrame:
    """What pFedHR's server matched (results/matches.csv) in a grid's results of record, of the first Non-IID run that has it, by
    seed: `views.matches`'s columns. Without rows where there is none.
    """
    found = recorded(grid, scale)
    pairs = [pair for pair in zip(found.cells, found.records, strict=True) if pair[0].spec.partition == "by-class"]
    return _of_first_seed("matches", views.MATCHES, pairs)


def _of_first_seed(name: str, columns: Sequence[str], found: Iterable[tuple[exhibits.Cell, Any]]) -> pd.DataFrame:
    """The rows of results/<name>.csv of the first record of `found`, by seed, that has some."""
    file = NOTEBOOKS.parent / "results" / f"{name}.csv"
    table = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["key", *columns])
    pairs = sorted(found, key=lambda pair: pair[0].spec.seed)
    keys = [record.key for _, record in pairs if record.key in set(table["key"])]
    return table[table["key"].isin(keys[:1])].drop(columns="key")


def coverage(grid: str, scale: str = "demo") -> str:
    """How much of a grid the results of record hold, in a sentence."""
    found, every = recorded(grid, scale).cells, exhibits.cells(grid, scale)
    if not found:
        return f"{grid}: no results of record yet (0 of {len(every)} runs at scale {scale})."
    settings = list(dict.fromkeys(cell.setting for cell in found))
    return f"{grid}: {len(found)} of {len(every)} runs at scale {scale} are on record ({'; '.join(settings)})."


def _same(cell: exhibits.Cell, record: printed.Recorded) -> bool:
    """Whether a result of record is a run of `cell`: fields compared by value, the data's fingerprint left aside."""
    spec, row = cell.spec, record.row
    fields = [
        *("algorithm", "dataset", "scenario", "num_clients", "participation", "partition"),
        *("rounds", "local_epochs", "batch_size", "seed"),
        *(["alpha"] if spec.partition == "dirichlet" else []),
    ]
    if any(getattr(spec, name) != row[name] for name in fields):
        return False
    if spec.partition == "by-class":
        held = spec.classes_per_client or lab.classes_held(data.info(str(spec.dataset)))  # as `lab.resolve` fills it
        if held != row["classes_per_client"]:
            return False
    for name in ("public_dataset", "public_fraction", "public_images", "public_labels"):
        default = getattr(lab.RunSpec(), name)  # what an empty cell means
        if getattr(spec, name) != (default if pd.isna(row.get(name)) else row[name]):
            return False
    stored = lab.RunSpec(
        algorithm=row["algorithm"], scenario=row["scenario"], paper=row["paper"], protocol=row["protocol"], lr=row["lr"],
        params=json.loads(row["params"]), overrides=json.loads(row["overrides"]),
    )  # fmt: skip
    return _meaning(spec) == _meaning(stored)


def _meaning(spec: lab.RunSpec) -> tuple[algorithms.Algorithm, Protocol]:
    """The method and the protocol that a specification names, every field filled."""
    whose = (str(spec.paper), spec.protocol, str(spec.scenario))
    preset = presets.protocol(*whose, spec.overrides)
    preset = preset if spec.lr is None else replace(preset, lr=spec.lr)
    return algorithms.make(spec.algorithm, presets.params(*whose, spec.algorithm) | spec.params), preset


def figures(scale: str) -> Path:
    return lab.home() / "figures" / scale


def save(
    name: str,
    settings: Settings,
    figure: plots.Picture,
    table: pd.DataFrame,
    used: Runs | None = None,
    ranked: tables.Ranked | None = None,
) -> plots.Picture:
    """Write an exhibit's PNG, CSV, LaTeX (of `ranked`, where it is given) and stamp under figures/<scale>/ and hand back the
    figure for display.

    A reader's variation, whichever parameter it changes, goes beside the exhibit under a name of its own, such as
    `fig5--rounds-3`: the exhibit's own files and stamp stay as they are.
    """
    choose("exhibit", name, exhibits.every())
    exhibit = exhibits.every()[name]
    folder = figures(settings.scale) / exhibit.paper
    folder.mkdir(parents=True, exist_ok=True)
    stem = "--".join(filter(None, (exhibit.item, settings.variation)))
    if settings.embedded and exhibit.grids:
        plots.label_stand_in(figure)
    drawn = {f"{stem}.png": figure.png(), f"{stem}.csv": table.to_csv(index=False, lineterminator="\n").encode()}
    if ranked is not None:
        drawn[f"{stem}.tex"] = ranked.latex(settings.caption()).encode()
    for file, content in drawn.items():
        write_bytes(folder / file, content)
    stamp = {
        "notebook": notebook_digest(exhibit.notebook),
        "code": drawing_digest(),
        "runs": run_digests(used.records) if used else {},
        "files": {file: hashlib.sha256(content).hexdigest() for file, content in drawn.items()},
    }
    write_bytes(folder / f"{stem}.json", json.dumps(stamp, indent=1).encode())
    return figure


def save_record(
    name: str,
    settings: Settings,
    figure: plots.Picture,
    table: pd.DataFrame,
    ranked: tables.Ranked | None = None,
    scale: str = "demo",
) -> plots.Picture:
    """Write a picture of results of record, figures/<scale>/<paper>/<exhibit>-of-record.png, .csv and .tex, and hand it back for
    display. These files are committed, and do not depend on a notebook's parameters: a variation leaves them as they are.
    """
    if settings.variation:
        return figure
    exhibit = exhibits.every()[name]
    folder = figures(scale) / exhibit.paper
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / f"{exhibit.item}-of-record.png", figure.png())
    write_bytes(folder / f"{exhibit.item}-of-record.csv", table.to_csv(index=False, lineterminator="\n").encode())
    if ranked is not None:
        caption = (
            f"Results of record on real data, scale {scale}, protocol paper: mean test accuracy in per cent over all clients, "
            f"{intervals.SELECTION_RULES['last']}; a 95 % interval where n, the number of seeds, is above 1. {tables.MARKED}"
        )
        write_bytes(folder / f"{exhibit.item}-of-record.tex", ranked.latex(caption).encode())
    return figure


def run_digests(records: Sequence[Any]) -> dict[str, str]:
    return {record.key: record.digest for record in records}


def notebook_digest(notebook: str) -> str:
    """SHA-256 of a notebook's code cells, without outputs and prose."""
    content = json.loads((NOTEBOOKS / notebook).read_text())
    code = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


@functools.cache
def drawing_digest() -> str:
    """SHA-256 of the source that turns records into exhibits."""
    modules: list[types.ModuleType] = [intervals, labels, looks, plots, tables]
    files = [Path(str(module.__file__)) for module in modules] + sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256("".join(map(sources.bare_source, files)).encode()).hexdigest()[:16]


def freshness(exhibit: exhibits.Exhibit, scale: str) -> str:
    """`fresh`, or why the exhibit must be made again."""
    folder = figures(scale) / exhibit.paper
    try:
        stamp = json.loads((folder / f"{exhibit.item}.json").read_text())
        for file, digest in stamp["files"].items():
            if hashlib.sha256((folder / file).read_bytes()).hexdigest() != digest:
                return f"{file} changed"
        if not {f"{exhibit.item}.png", f"{exhibit.item}.csv"} <= set(stamp["files"]):
            return "incomplete"
        if stamp["notebook"] != notebook_digest(exhibit.notebook):
            return "notebook changed"
        if stamp["code"] != drawing_digest():
            return "drawing code changed"
        for key in {lab.resolve(cell.spec, scale).key for cell in exhibits.cells(exhibit.grids, scale)} | set(
            stamp["runs"]
        ):
            record = lab.read(lab.store() / key)
            if record is None or record.stale or stamp["runs"].get(key) != record.digest:
                return "runs changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} missing"
    except (KeyError, ValueError):
        return "stamp damaged"
    return "fresh"
