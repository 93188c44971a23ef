"""Every table and figure of the four papers, and the audit's: which runs each needs at each scale, and which notebook makes it.

They are declared in `exhibits.toml`, beside this file; here they become specifications.
"""

import dataclasses
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from .. import lab
from ..algorithms import ALGORITHMS
from ..data import DatasetInfo, info
from ..errors import choose, distinct, require
from ..lab import SCALES, RunSpec, costs, of_record, resolve
from ..lab.frames import Tidy
from ..show import labels, stats
from . import planned

SMOKE, DEMO, RECORD = "smoke", "demo", "record"  # embedded data; ten minutes per exhibit; the results of record
# What decides a run's values, the later over the earlier, as exhibits.toml says; `fedlib exhibits show` names each value's.
LAYERS = ("default", "scale", "exhibit", "row", "yours")
Fields = Mapping[str, Any]  # of a RunSpec, or hyper-parameters of a method
SYMBOLS = {"N": "num_clients", "C": "participation", "T": "rounds", "E": "local_epochs", "B": "batch_size"}
_RUN_FIELDS = frozenset(item.name for item in dataclasses.fields(RunSpec))


@dataclass(frozen=True, eq=False)
class Grid:
    """Runs of the same methods in the same settings; several exhibits may read them.

    methods: row -> what it changes; runs: scale -> lines of the declaration; sweep: the field along the figure's x-axis;
    shown: fields that tell settings apart, in the order of their labels; keep: weights needed (`RunSpec.keep`); ours: rows
    that the paper's exhibit does not have; instead: of some rows the row that they are compared with.
    """

    name: str
    methods: Mapping[str, Fields]
    runs: Mapping[str, Sequence[Fields]]
    sweep: str = ""
    shown: Sequence[str] = ("num_clients", "participation")
    keep: str = "none"
    ours: Sequence[str] = ()
    instead: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The x-axis of its figure."""
        return _DECLARED["labels"].get(self.sweep, "")

    def datasets(self, scale: str) -> list[str]:
        """Its data sets at a scale."""
        return [name for line in self.runs[scale] for name in line.get("data", ())]

    def values(self, scale: str, dataset: str) -> tuple[Any, ...]:
        """Of the swept quantity, on a data set."""
        settings = self.settings(scale, dataset)
        return tuple(dict.fromkeys(fields.get(self.sweep) for fields in settings))

    def settings(self, scale: str, dataset: str) -> list[dict[str, Any]]:
        """What the exhibit says of each of its settings at a scale."""
        return [_DECLARED["every"] | fields for fields in _combinations(self._line(scale, dataset))]

    def row(self, method: str, scale: str, dataset: str) -> dict[str, Any]:
        """What a row says: its method and what it changes."""
        further = self._line(scale, dataset).get("rows", {}).get(method, {})
        return {"algorithm": method, **self.methods[method], **further}

    def _line(self, scale: str, dataset: str) -> Fields:
        """The line of the declaration that is for a data set."""
        lines, classes = self.runs[scale], info(dataset).num_classes
        for name in (dataset, classes):
            for line in lines:
                if name in line.get("data", ()) or name in line.get("asked", ()):
                    return line
        allowed = f"one with 10 or 100 classes to sweep {self.sweep}, not {classes}"
        require(not any("asked" in line for line in lines), "dataset", dataset, allowed)
        return lines[0]


_NOT_FIELDS = ("data", "asked", "rows")


def _combinations(line: Fields) -> Iterator[dict[str, Any]]:
    """A line's settings: the combinations of its lists, the last one changing first."""
    names, choices = [], []
    for name, value in line.items():
        if name not in _NOT_FIELDS:
            names.append([SYMBOLS.get(each, each) for each in name.split(", ")])
            several = value if isinstance(value, list) else [value]
            choices.append([each if len(names[-1]) > 1 else [each] for each in several])
    for chosen in itertools.product(*choices):
        pairs = (zip(*pair, strict=True) for pair in zip(names, chosen, strict=True))
        yield {name: value for pair in pairs for name, value in pair if value != ""}


@dataclass(frozen=True)
class Exhibit:
    """One table or figure: what it shows, the notebook that makes it, the names of the grids that it reads.

    name: paper and item, such as `fedssa/table2`; grids: empty, it needs no runs; whole: it shows what a method noted in a round,
    which results of record do not have.
    """

    name: str
    title: str
    notebook: str
    grids: tuple[str, ...] = ()
    whole: bool = False

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def item(self) -> str:
        return self.name.partition("/")[2]


def _said(name: str) -> dict[str, Any]:
    """What is declared of a grid, with what it takes from the grid that it is `like`."""
    own = _DECLARED["grids"][name]
    return (_said(own["like"]) if "like" in own else {}) | own


def _grid(name: str) -> Grid:
    said = _said(name)
    rows = said["rows"]
    methods = rows if isinstance(rows, dict) else {row: {} for row in rows}
    common = said.get("all", {})
    runs = {}
    for scale in SCALES:
        lines = said[scale] if isinstance(said[scale], list) else [said[scale]]
        runs[scale] = [common | line for line in lines]
    others = {key: said[key] for key in ("sweep", "shown", "keep", "ours", "instead") if key in said}
    return Grid(name, methods, runs, **others)


_DECLARED = tomllib.loads((Path(__file__).parent / "exhibits.toml").read_text())
SEEDS: dict[str, tuple[int, ...]] = {scale: tuple(seeds) for scale, seeds in _DECLARED["seeds"].items()}
CHOSEN: dict[str, str] = _DECLARED["chosen"]  # what the texts leave open at scale `paper`, and what is chosen there
GRIDS: dict[str, Grid] = {name: _grid(name) for name in _DECLARED["grids"]}
_ALL = {
    name: Exhibit(name, said["title"], said["notebook"], tuple(said.get("runs", ())), "whole" in said)
    for name, said in _DECLARED["exhibits"].items()
}
AUDIT: dict[str, Exhibit] = {name: item for name, item in _ALL.items() if item.paper == "audit"}
EXHIBITS: dict[str, Exhibit] = {name: item for name, item in _ALL.items() if name not in AUDIT}
PAPERS: tuple[str, ...] = tuple(_DECLARED["papers"])


def every() -> dict[str, Exhibit]:
    """All exhibits: the papers', in their order, and the audit's."""
    return EXHIBITS | AUDIT


def choose_exhibits(name: str) -> list[Exhibit]:
    """The exhibits that `name` means: one (`fedssa/table2`), a paper's (`fedssa`), the four `papers`', the `audit`'s, or `all`."""
    choose("exhibit", name, groups_and_names())
    if name == "papers":
        return list(EXHIBITS.values())
    return [item for item in every().values() if name in ("all", item.paper, item.name)]


def groups_and_names() -> list[str]:
    """What `choose_exhibits` takes."""
    known = every()
    return ["all", "papers", *dict.fromkeys(exhibit.paper for exhibit in known.values()), *known]


def methods(name: str) -> list[str]:
    """The rows of an exhibit's table, such as `fedssa/table2`, in their order."""
    choose("exhibit", name, every())
    return list(dict.fromkeys(method for grid in every()[name].grids for method in GRIDS[grid].methods))


def datasets(scale: str) -> list[str]:
    """The data sets of the papers' main tables at a scale."""
    return GRIDS["fedssa/heterogeneous"].datasets(scale)


# ---------------------------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the specification of its run and what the table says of it.

    method: its row; target: accuracy of the cost comparison, a fraction; value: of the swept quantity; stands_for and
    stands_for_participation: the paper's N and C, where embedded data are too few for so many clients; shown: the fields of the
    specification that its label names; scale: whose settings it has; layers: field or hyper-parameter -> which of LAYERS gave it;
    ours: whether the paper's exhibit has no such row.

    For runs of your own `Cell(spec=RunSpec(...))` is enough: the specification, resolved, says the rest.
    """

    method: str = ""
    spec: RunSpec = field(default_factory=RunSpec)
    target: float = 0.5
    value: Any = None
    stands_for: int | None = None
    stands_for_participation: float | None = None
    shown: tuple[str, ...] = ("num_clients", "participation")
    scale: str = ""
    layers: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    ours: bool = False

    def __post_init__(self) -> None:
        if not self.method or None in (self.spec.dataset, self.spec.num_clients, self.spec.participation):
            spec = resolve(self.spec).spec
            object.__setattr__(self, "spec", spec)
            object.__setattr__(self, "method", self.method or spec.algorithm)

    @property
    def dataset(self) -> str:
        return str(self.spec.dataset)

    @property
    def num_clients(self) -> int:
        assert self.spec.num_clients
        return self.spec.num_clients

    @property
    def participation(self) -> float:
        assert self.spec.participation
        return self.spec.participation

    @property
    def clients(self) -> str:
        """The setting in words, without the data set, as tables print it."""
        return self._label("")

    @property
    def setting(self) -> str:
        """The setting in words, with the data set."""
        return self._label(self.dataset)

    def _label(self, data: str) -> str:
        """N is named where the label always does, and where it is another than the paper's."""
        with_share = "participation" in self.shown
        stands_for = None if self.stands_for is None else (self.stands_for, self.stands_for_participation)
        return labels.setting(
            data,
            self.num_clients if "num_clients" in self.shown or stands_for else None,
            self.participation if with_share else None,
            stands_for,
            self._others(),
        )

    def _others(self) -> list[str]:
        names = [name for name in self.shown if name not in ("num_clients", "participation")]
        return [labels.word(name, getattr(self.spec, name)) for name in names]


def cells(
    names: str | Sequence[str], scale: str, dataset: str = "", seeds: Sequence[int] = (), **changes: Any
) -> list[Cell]:
    """The runs of a grid, or of several, at a scale; `dataset` restricts them, `changes` replace fields of every specification,
    but not the precision of a row that is about it.
    """
    choose("scale", scale, SCALES)
    require(
        isinstance(seeds, Sequence) and not isinstance(seeds, str),
        "seeds",
        seeds,
        "a list of seeds, [] for the scale's",
    )
    distinct("seeds", seeds)
    names = [names] if isinstance(names, str) else names
    for name in names:
        choose("grid", name, GRIDS)
    made = []
    for grid in (GRIDS[name] for name in names):
        for data in [dataset] if dataset else grid.datasets(scale):
            for cell in _of_first_seed(grid, scale, info(data)):
                for seed in seeds or SEEDS[scale]:
                    own = {name: dict(getattr(cell.spec, name)) for name in ("params", "overrides")}  # not the cache's
                    about_it = cell.layers.get("precision") == "row"
                    yours = {name: value for name, value in changes.items() if name != "precision" or not about_it}
                    spec = replace(cell.spec, **own | {"seed": seed} | yours)
                    made.append(replace(cell, spec=spec, layers={**cell.layers, **dict.fromkeys(yours, "yours")}))
    return made


def frame(what: str | Sequence[Cell], scale: str = RECORD) -> pd.DataFrame:
    """A row a finished run of an exhibit (`fedssa/table2`), of a grid or of some cells, from your store and the results of record.

    Columns: key, method (the exhibit's row), setting and clients (in words), value (of a swept quantity), scale, target (per cent),
    `last`, `last10`, `validation`, `best` and `selected` (`stats.by_rules`), then those of `lab.tidy`'s runs. By name
    and at scale record, the further seeds that the plan names are there, and runs that it shows elsewhere are not. Raises
    FedlibError for an unknown name.
    """
    choose("scale", scale, SCALES)
    if isinstance(what, str):
        choose("exhibit", what, [*every(), *GRIDS])
        grids = [what] if what in GRIDS else every()[what].grids
        seeds = sorted({*SEEDS[scale], *(planned.seeds() if scale == RECORD else ())})
        asked = {grid: cells(grid, scale, seeds=seeds) for grid in grids}
        apart = {grid: planned.elsewhere(grid) if scale == RECORD else set() for grid in grids}
        pairs = [(cell, resolve(cell.spec, scale).key) for grid in grids for cell in asked[grid]]
        pairs = [(cell, key) for cell, key in pairs if not any(key in own for own in apart.values())]
    else:
        pairs = [(cell, resolve(cell.spec).key) for cell in what]
    found = lab.tidy(keys={key for _, key in pairs})
    runs, rounds, _ = found if len(found.runs) else _without_runs()
    rows = [
        {"key": key, "method": cell.method, "setting": cell.setting, "clients": cell.clients, "value": cell.value}
        | {"scale": cell.scale, "target": 100 * cell.target}
        for cell, key in pairs
    ]
    columns = ["key", "method", "setting", "clients", "value", "scale", "target"]
    made = (
        pd.DataFrame(rows, columns=columns).merge(runs, on="key").drop_duplicates(["key", "method", "setting", "value"])
    )
    made = stats.by_rules(made, rounds)
    rules = [*stats.RULES, "selected"]
    return made[[*columns, *rules, *sorted(set(runs.columns) - {"key"})]]


def flops(frame: pd.DataFrame) -> pd.DataFrame:
    """What the runs of a `frame` had computed by the end of each round: key, round (from 0) and flops, of all clients and the server."""
    known = of_record.by_key()
    rows = []
    for key in dict.fromkeys(frame["key"]):
        record = known.get(key) or lab.read(lab.store() / key)
        assert record is not None
        spent = costs.of_run(record)
        rows.append(pd.DataFrame({"key": key, "round": range(len(spent)), "flops": spent}))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=["key", "round", "flops"])


@cache
def _without_runs() -> Tidy:
    """The frames of no run: the columns of all that there are, which are read once."""
    return Tidy(*(table.head(0) for table in lab.tidy()))


@cache
def _of_first_seed(grid: Grid, scale: str, data: DatasetInfo) -> list[Cell]:
    """The cells of a grid on a data set, with seed 0, made once."""
    rows = itertools.product(grid.methods, grid.settings(scale, data.name))
    return [_cell(grid, scale, data.name, method, settings) for method, settings in rows]


def _cell(grid: Grid, scale: str, data: str, method: str, settings: Mapping[str, Any]) -> Cell:
    """The cell of a row in a setting, with seed 0."""
    layers = {"scale": SCALES[scale] | {"seed": 0}, "exhibit": {**settings, "dataset": data}}
    if grid.keep != "none":
        layers["exhibit"]["keep"] = grid.keep
    layers["row"] = grid.row(method, scale, data)
    values = {name: value for fields in layers.values() for name, value in fields.items()}
    origins = {name: layer for layer, fields in layers.items() for name in fields}
    known = {item.name for item in dataclasses.fields(ALGORITHMS[values["algorithm"]])}
    overrides = {"params": {name: value for name, value in values.items() if name in known}}
    spec = RunSpec(**{name: value for name, value in values.items() if name in _RUN_FIELDS} | overrides)
    shown = tuple(name for name in grid.shown if name != grid.sweep)
    stands_for = settings.get("stands_for")
    targets = _DECLARED["targets"].get(data, {})
    return Cell(
        method,
        spec,
        targets.get(str(stands_for or spec.num_clients), 0.5),
        settings.get(grid.sweep),
        stands_for,
        settings.get("stands_for_participation") if "participation" in shown else None,
        shown,
        scale,
        {name: layer for name, layer in origins.items() if name in _RUN_FIELDS or name in known},
        method in grid.ours,
    )
