"""What a notebook calls: check its parameters, get its runs, save its exhibits with a stamp.

A stamp (figures/<scale>/<paper>/<exhibit>.json) holds hashes of the notebook's code, of the code that draws, of the runs read and of the
files themselves, so that an exhibit is fresh or stale by content, whatever the file times.
"""

import ast
import functools
import hashlib
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from . import (
    algorithms,
    claims,
    contradictions,
    costs,
    data,
    exhibits,
    models,
    protocol,
    runs,
    verdicts,
    views,
)
from .errors import FedlibError, choose, coerce, require
from .papers import printed
from .show import intervals, labels, looks, plots, tables
from .simulation import write_bytes

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
# name -> (type, default, help): the parameters that every notebook has. Defaults are the smoke scale.
PARAMETERS: dict[str, tuple[type, Any, str]] = {
    "scale": (str, "smoke", "smoke (embedded data), demo (real data, an evening) or paper (the published setting)"),
    "dataset": (str, "", "one data set only; empty: those of the scale"),
    "seeds": (list, [], "seeds, such as [0, 1, 2]; empty: those of the scale"),
    "rounds": (int, 0, "communication rounds T; 0: the scale's"),
    "jobs": (int, 2, "runs trained side by side, one thread each"),
    "rule": (str, "last", "round that a table reports: last, last10, validation or best"),
}


@dataclass(frozen=True)
class Settings:
    """A notebook's checked parameters."""

    scale: str
    dataset: str
    seeds: tuple[int, ...]
    rounds: int
    jobs: int
    rule: str

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,) if self.dataset else exhibits.DATASETS[self.scale]

    @property
    def embedded(self) -> bool:
        return any(name in data.EMBEDDED for name in self.datasets)

    @property
    def whole(self) -> bool:
        """Whether these are an exhibit's own settings, not a reader's variation."""
        return not (self.dataset or self.rounds) and self.seeds == exhibits.SEEDS[self.scale]

    def cells(self, *grids: str) -> list[exhibits.Cell]:
        """The runs of one or more grids under these settings."""
        changes = {"rounds": self.rounds} if self.rounds else {}
        return exhibits.cells(grids, self.scale, self.dataset, self.seeds, **changes)

    def caption(self, protocol: str = "paper") -> str:
        return tables.caption(
            scale=self.scale,
            datasets=self.datasets,
            embedded=self.embedded,
            protocol=protocol,
            rule=self.rule,
            seeds=len(self.seeds),
        )


def settings(namespace: Mapping[str, Any]) -> Settings:
    """Check the parameters in a notebook's `globals()` and print them resolved; call it right after the parameters cell.

    Raises FedlibError, one line, for a parameter that does not exist (with the nearest that does), a wrong type or value.
    Strings that papermill's `-p` passes for numbers and lists are understood.
    """
    for name, value in namespace.items():
        if (
            not name.startswith("_")
            and isinstance(value, str | int | float | list | dict | tuple | None)
            and name not in ("In", "Out")
        ):
            choose("notebook parameter", name, PARAMETERS)
    values: dict[str, Any] = {}
    for name, (kind, default, _) in PARAMETERS.items():
        value = namespace.get(name, default)
        values[name] = _seeds(value) if kind is list else coerce(name, value, kind)
    choose("scale", values["scale"], exhibits.DATASETS)
    choose("rule", values["rule"], intervals.SELECTION_RULES)
    if values["dataset"]:
        choose("dataset", values["dataset"], data.names())
    require(values["rounds"] >= 0, "rounds", values["rounds"], "at least 1, or 0 for the scale's")
    require(values["jobs"] >= 1, "jobs", values["jobs"], "at least 1")
    values["seeds"] = values["seeds"] or exhibits.SEEDS[values["scale"]]
    resolved = Settings(**values)
    print(
        f"scale {resolved.scale}; data {', '.join(resolved.datasets)}; seeds {', '.join(map(str, resolved.seeds))}; "
        f"rounds {resolved.rounds or 'as the scale says'}; protocol paper; selection rule {resolved.rule}"
    )
    return resolved


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


@dataclass(frozen=True)
class Runs:
    """The finished runs of a grid: cells and their records, side by side."""

    cells: list[exhibits.Cell]
    records: Sequence[runs.Record | printed.Recorded]

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
        return pd.concat(tables, ignore_index=True)

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
        return pd.concat(tables, ignore_index=True)

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
            until, last = costs.to_target(record.rounds, cell.target), record.rounds.iloc[-1]
            labels = {
                "dataset": cell.dataset,
                "setting": cell.setting,
                "method": cell.method,
                "target": 100 * cell.target,
            }
            found = until or dict.fromkeys(("rounds", "words", "published_words"), float("nan"))
            kilobytes = {"per_round_kb": costs.kilobytes(last["published_words"] / last["selected"])} | {
                f"{kind}total_kb": costs.kilobytes(found[f"{name}words"])
                for kind, name in (("", "published_"), ("real_", ""))
            }
            rows.append(labels | {"reached": until is not None, "rounds": found["rounds"]} | kilobytes)
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


def _final(record: runs.Record | printed.Recorded) -> pd.DataFrame:
    return record.clients.groupby("client", as_index=False).last()


def _cost(cell: exhibits.Cell, record: runs.Record | printed.Recorded, rule: str) -> dict[str, Any]:
    rounds = record.rounds.query("round >= 0")
    spent = costs.to_target(rounds, cell.target)
    until = rounds.head(int(spent["rounds"]) if spent else len(rounds))
    dataset, method = data.load(cell.dataset), algorithms.make(cell.method, cell.spec.params)
    assert cell.spec.local_epochs
    plain = [
        costs.training_flops(name, dataset.num_classes, dataset.images.shape[1])
        for name in models.SCENARIOS[str(cell.spec.scenario)]
    ]
    # The method's share beyond plain training is measured on CNN-3, where it is within 1 % of the mean of the five.
    per_image = sum(plain) / len(plain) * costs.relative_to_standalone(method, "CNN-3", cell.spec.local_epochs)
    return {
        "dataset": cell.dataset,
        "clients": cell.clients,
        "method": cell.method,
        "reached": spent is not None,
        "accuracy": 100 * intervals.selected_accuracy(record.rounds, rule),
        "words": int(until[["download_words", "upload_words"]].to_numpy().sum()),
        "flops": float(until["samples"].sum() * per_image),
    }


def trained(cells: Sequence[exhibits.Cell], jobs: int = 2) -> Runs:
    """The records of `cells`: read where they are finished, trained side by side (with a progress bar) where they are not."""
    return Runs(list(cells), runs.sweep([cell.spec for cell in cells], jobs=jobs))


def recorded(grid: str, scale: str = "demo") -> Runs:
    """The results of record (results/*.csv) that are runs of `grid` at `scale`; what has not been run yet is absent.

    A run that is there twice, under the keys of two versions, counts once: the one that kept most, or the last by key.
    """
    available = printed.recorded(NOTEBOOKS.parent / "results")
    available.sort(key=lambda record: (runs.KEEP.index(record.row["keep"]), record.key))
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
        held = spec.classes_per_client or (10 if str(spec.dataset).endswith("100") else 2)  # as `runs.resolve` fills it
        if held != row["classes_per_client"]:
            return False
    for name in ("public_dataset", "public_fraction", "public_images", "public_labels"):
        default = getattr(runs.RunSpec(), name)  # what an empty cell means
        if getattr(spec, name) != (default if pd.isna(row.get(name)) else row[name]):
            return False
    stored = runs.RunSpec(
        algorithm=row["algorithm"], scenario=row["scenario"], paper=row["paper"], protocol=row["protocol"], lr=row["lr"],
        params=json.loads(row["params"]), overrides=json.loads(row["overrides"]),
    )  # fmt: skip
    return _meaning(spec) == _meaning(stored)


def _meaning(spec: runs.RunSpec) -> tuple[algorithms.Algorithm, protocol.Protocol]:
    """The method and the protocol that a specification names, every field filled."""
    whose = (str(spec.paper), spec.protocol, str(spec.scenario))
    preset = protocol.protocol(*whose, spec.overrides)
    preset = preset if spec.lr is None else replace(preset, lr=spec.lr)
    return algorithms.make(spec.algorithm, protocol.params(*whose, spec.algorithm) | spec.params), preset


def figures(scale: str) -> Path:
    return runs.home() / "figures" / scale


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

    A reader's variation (one data set, other rounds or seeds) goes beside the exhibit, named `<exhibit>-variation`.
    """
    choose("exhibit", name, exhibits.every())
    exhibit = exhibits.every()[name]
    folder = figures(settings.scale) / exhibit.paper
    folder.mkdir(parents=True, exist_ok=True)
    stem = exhibit.item if settings.whole else f"{exhibit.item}-variation"
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
    name: str, figure: plots.Picture, table: pd.DataFrame, ranked: tables.Ranked | None = None, scale: str = "demo"
) -> plots.Picture:
    """Write a picture of results of record, figures/<scale>/<paper>/<exhibit>-of-record.png, .csv and .tex: these are committed."""
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
    modules: list[types.ModuleType] = [
        exhibits,
        intervals,
        labels,
        looks,
        plots,
        printed,
        tables,
        views,
        claims,
        contradictions,
        verdicts,
    ]
    sources = [runs.bare_source(Path(str(module.__file__))) for module in modules] + [runs.bare_source(Path(__file__))]
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:16]


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
        for key in {runs.resolve(cell.spec, scale).key for cell in exhibits.cells(exhibit.grids, scale)} | set(
            stamp["runs"]
        ):
            record = runs.read(runs.store() / key)
            if record is None or record.stale or stamp["runs"].get(key) != record.digest:
                return "runs changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} missing"
    except (KeyError, ValueError):
        return "stamp damaged"
    return "fresh"
