"""The machinery of exhibits: a grid of runs, the cells that it has at a scale, and which layer gives each of a run's values.

What the four papers ask for is declared in their own modules, one for each paper; `exhibits` gathers it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..algorithms import ALGORITHMS
from ..data import info
from ..errors import choose, distinct, require
from ..lab import KEEP, SCALES, RunSpec, resolve
from ..show import labels

Fields = Mapping[str, Any]  # of a RunSpec, or hyper-parameters of a method
SMOKE, DEMO, RECORD = "smoke", "demo", "record"  # embedded data; ten minutes an exhibit; the results of record


def by_scale(smoke: tuple[str, ...], real: tuple[str, ...], **others: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Data sets by scale: embedded ones at scale smoke, and the same `real` ones at all others but those of `others`."""
    return {scale: others.get(scale, smoke if scale == SMOKE else real) for scale in SCALES}


# At scales smoke and demo one data set and one seed: the time goes into rounds.
DATASETS = by_scale(("digits",), ("cifar10", "cifar100"), demo=("cifar10",))
CIFAR10 = by_scale(("digits",), ("cifar10",))
SWEPT = DATASETS | {RECORD: ("cifar10",)}  # at scale record, sweeps are shown on one data set, with half the rounds
HALF: dict[str, Fields] = {RECORD: {"rounds": 50}}
SEEDS: dict[str, tuple[int, ...]] = {scale: (0,) if scale in (SMOKE, DEMO) else (0, 1, 2) for scale in SCALES}

# Accuracy targets of the cost comparisons, by the paper's N (pFedES, section 5: 90 % on CIFAR-10; 70, 60, 50 % on CIFAR-100).
# Those of the embedded data are ours. Other data sets have 50 %.
TARGETS: dict[str, dict[int, float]] = {
    "cifar10": {10: 0.9, 50: 0.9, 100: 0.9},
    "cifar100": {10: 0.7, 50: 0.6, 100: 0.5},
    "digits": {10: 0.7, 100: 0.5},
    "digits100": {10: 0.2, 100: 0.1},
}


@dataclass(frozen=True)
class Column:
    """A setting of a paper, such as its N and C: what it says, and what a scale puts in its place.

    at_scale: scale -> fields instead; absent: scales that have nothing to stand in for it.
    """

    fields: Fields
    at_scale: Mapping[str, Fields] = field(default_factory=dict)
    absent: Sequence[str] = ()


# Of every run of the Yi et al. papers at scale smoke: small batches, or few rounds on few images would hardly move anything.
_QUICK: Fields = {"batch_size": 16, "extractor_epochs": 1}  # 5 would cost pFedES minutes
# Their N and C. The embedded data are too few for 50 or 100 clients: N = 12 stands in for 100, nothing for 50. A round at N = 10
# has ten times the images of one at N = 100: fewer rounds, then.
TEN = Column(
    {"num_clients": 10, "participation": 1.0},
    {SMOKE: {"rounds": 3, **_QUICK}, DEMO: {"rounds": 8, "local_epochs": 1}, RECORD: {"rounds": 20}},
)
FIFTY = Column({"num_clients": 50, "participation": 0.2}, absent=(SMOKE,))
HUNDRED = Column(
    {"num_clients": 100, "participation": 0.1},
    {SMOKE: {"num_clients": 12, "participation": 0.5, "rounds": 4, **_QUICK}},
)


@dataclass(frozen=True)
class Sweep:
    """One quantity at several values: a field of RunSpec or a hyper-parameter of the method.

    values: of the paper, by data set, by its number of classes (10 or 100), or under 0 the same for all; few: those of scales
    demo and record; smoke: those of embedded data, if not the few; numeric: whether the values are numbers, and the figure a
    line; along: scale -> value -> fields that go with it.
    """

    name: str
    label: str
    values: Mapping[int | str, Sequence[Any]]
    few: Mapping[int | str, Sequence[Any]]
    smoke: Mapping[int | str, Sequence[Any]] = field(default_factory=dict)
    numeric: bool = True
    along: Mapping[str, Mapping[Any, Fields]] = field(default_factory=dict)

    def at(self, scale: str, dataset: str) -> Sequence[Any]:
        values = (
            self.smoke if scale == SMOKE and self.smoke else self.few if scale in (SMOKE, DEMO, RECORD) else self.values
        )
        classes = info(dataset).num_classes
        found = [values[key] for key in (dataset, classes, 0) if key in values]
        require(bool(found), "dataset", dataset, f"one with 10 or 100 classes to sweep {self.name}, not {classes}")
        return found[0]

    def fields(self, scale: str, value: Any) -> dict[str, Any]:
        """Those of a run at `value`."""
        return {self.name: value, **self.along.get(scale, {}).get(value, {})}


# Swept by more than one paper.
CLASSES = Sweep(
    "classes_per_client",
    "classes a client holds",
    {10: (2, 4, 6, 8, 10), 100: (10, 30, 50, 70, 90, 100)},
    {10: (2, 6, 10), 100: (10, 50, 100)},
)
# At scales demo and record the clients' work is the same at each C: T in proportion to 1 / C. The papers keep T.
PARTICIPATION = Sweep(
    "participation",
    "participation C",
    {0: (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)},
    {0: (0.1, 0.5, 1.0)},
    {0: (0.1, 0.3, 0.5)},
    along={
        DEMO: {0.1: {"rounds": 10}, 0.5: {"rounds": 2}, 1.0: {"rounds": 1}},
        RECORD: {0.1: {"rounds": 100}, 0.5: {"rounds": 20}, 1.0: {"rounds": 10}},
    },
)


@dataclass(frozen=True)
class Grid:
    """A comparison of `methods` (label -> fields of their specifications) in some columns, on some data sets.

    columns_at: scale -> those columns that it shows, if not all; scale demo shows the last one; data: scale -> data sets; common:
    fields of every run; at_scale: scale -> fields of every run; methods_at: scale -> method -> further fields; shown: fields that
    tell the columns apart, in the order of their labels; keep: weights that the exhibit needs of its runs (`RunSpec.keep`);
    ours: rows that the paper's exhibit does not have, which no claim is about.
    """

    name: str
    methods: Mapping[str, Fields]
    columns: Sequence[Column] = (TEN, FIFTY, HUNDRED)
    columns_at: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    data: Mapping[str, Sequence[str]] = field(default_factory=lambda: DATASETS)
    sweep: Sweep | None = None
    common: Fields = field(default_factory=dict)
    at_scale: Mapping[str, Fields] = field(default_factory=dict)
    methods_at: Mapping[str, Mapping[str, Fields]] = field(default_factory=dict)
    shown: Sequence[str] = ("num_clients", "participation")
    keep: str = "none"
    ours: Sequence[str] = ()

    def at(self, scale: str) -> Sequence[Column]:
        """The columns of a scale."""
        chosen = self.columns_at.get(scale, self.columns[-1:] if scale == DEMO else self.columns)
        return [column for column in chosen if scale not in column.absent]


def methods(*names: str) -> dict[str, Fields]:
    """Rows of methods under their own names."""
    return {name: {"algorithm": name} for name in names}


@dataclass(frozen=True)
class Exhibit:
    """One table or figure: what it shows, the notebook that makes it, the grids of runs that it reads, and how it is drawn.

    name: paper and item, such as `fedssa/table2`; runs: empty, it needs none; drawn: the function of `show.plots`; whole: it shows
    what a method noted in a round, which results of record do not have.
    """

    name: str
    title: str
    notebook: str
    runs: tuple[Grid, ...] = ()
    drawn: str = ""
    whole: bool = False

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def item(self) -> str:
        return self.name.partition("/")[2]

    @property
    def grids(self) -> tuple[str, ...]:
        """The names of its grids."""
        return tuple(grid.name for grid in self.runs)


@dataclass(frozen=True)
class Paper:
    """What one paper asks for: its exhibits, and grids of runs that no exhibit trains."""

    name: str
    citation: str
    exhibits: tuple[Exhibit, ...]
    further: tuple[Grid, ...] = ()


# ---------------------------------------------------------------------------------------------------------------- cells

# What decides a run's values, the later over the earlier. `exhibits show` names the layer of each value.
LAYERS = {
    "default": "the default of the specification or of the method",
    "house": "of all exhibits: FedSSA's protocol, heterogeneous models",
    "scale": "the scale: N, C, T, E, B, precision",
    "grid": "the grid: what all of its runs have",
    "column": "the grid's column, such as the paper's N and C",
    "column at scale": "what the scale puts in the column's place",
    "grid at scale": "what all runs of the grid have at this scale",
    "sweep": "the swept quantity, and what goes with it",
    "method": "the row: a method and what it changes",
    "method at scale": "what the row changes at this scale",
    "data": "the grid's data sets, or what the data set decides",
    "seed": "the scale's seeds",
    "change": "a change of yours",
    "keep": "weights that some exhibit of the same run needs",
    "protocol": "the protocol, where the specification is silent",
}
_HOUSE: Fields = {"paper": "FedSSA", "scenario": "heterogeneous"}
_RUN_FIELDS = frozenset(item.name for item in dataclasses.fields(RunSpec))


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

    def typed(self) -> dict[str, Any]:
        """The setting's values, for the columns of a table: num_clients, participation, stands_for (the paper's N, if another)
        and whatever else its label names.
        """
        others = [name for name in self.shown if name not in ("num_clients", "participation")]
        return {
            "num_clients": self.num_clients,
            "participation": self.participation,
            "stands_for": self.stands_for,
            **{name: getattr(self.spec, name) for name in others},
        }


Kept = Mapping[str, str]  # a specification (`_identity`) -> the weights that some exhibit needs of its run


def cells(
    grid: Grid, scale: str, dataset: str = "", seeds: Sequence[int] = (), kept: Kept | None = None, **changes: Any
) -> list[Cell]:
    """The runs of a grid at a scale; `dataset` restricts them, `changes` replace fields of every specification, `kept`
    (`needed_weights` of all grids) makes a run that several exhibits share keep what any of them needs.
    """
    choose("scale", scale, SCALES)
    distinct("seeds", seeds)
    made = []
    for data in [dataset] if dataset else grid.data[scale]:
        values = grid.sweep.at(scale, data) if grid.sweep else (None,)
        for method in grid.methods:
            for column in grid.at(scale):
                for value in values:
                    layers = _layers(grid, scale, data, method, column, value)
                    cell = _cell(grid, scale, method, value, layers, kept or {})
                    for seed in seeds or SEEDS[scale]:
                        spec = replace(cell.spec, **{"seed": seed} | changes)
                        origins = dict(cell.layers) | {"seed": "seed"} | dict.fromkeys(changes, "change")
                        made.append(replace(cell, spec=spec, layers=origins))
    return made


_PUBLISHED = ("house", "grid", "column")  # the layers that no scale touches


def _layers(grid: Grid, scale: str, data: str, method: str, column: Column, value: Any) -> list[tuple[str, Fields]]:
    """(name, fields) of each layer, in the order of LAYERS."""
    return [
        ("house", _HOUSE),
        ("scale", SCALES[scale]),
        ("grid", grid.common),
        ("column", column.fields),
        ("column at scale", column.at_scale.get(scale, {})),
        ("grid at scale", grid.at_scale.get(scale, {})),
        ("sweep", grid.sweep.fields(scale, value) if grid.sweep else {}),
        ("method", grid.methods[method]),
        ("method at scale", grid.methods_at.get(scale, {}).get(method, {})),
        ("data", {"dataset": data}),
    ]


def _merged(layers: Sequence[tuple[str, Fields]]) -> dict[str, Any]:
    return {name: value for _, fields in layers for name, value in fields.items()}


def _cell(grid: Grid, scale: str, method: str, value: Any, layers: Sequence[tuple[str, Fields]], kept: Kept) -> Cell:
    """The cell of these layers, with seed 0."""
    every = _merged(layers)
    known = {item.name for item in dataclasses.fields(ALGORITHMS[every["algorithm"]])}
    # What is no field of RunSpec is a hyper-parameter, of the methods that have it.
    params = {name: value for name, value in every.items() if name in known} | dict(every.get("params", {}))
    fields = {name: value for name, value in every.items() if name in _RUN_FIELDS} | {"params": params}
    origins = {name: layer for layer, given in layers for name in (*given, *given.get("params", {}))}
    origins = {name: layer for name, layer in origins.items() if name in fields or name in params}
    spec = RunSpec(**fields)
    keep = max(grid.keep, kept.get(_identity(spec, scale), "none") if kept else "none", key=KEEP.index)
    if keep != "none":
        spec, origins["keep"] = replace(spec, keep=keep), "keep"
    published = _merged([layer for layer in layers if layer[0] in _PUBLISHED])
    stands_in = scale == SMOKE and published["num_clients"] != spec.num_clients
    shown = tuple(name for name in grid.shown if not grid.sweep or name != grid.sweep.name)
    return Cell(
        method,
        spec,
        TARGETS.get(str(spec.dataset), {}).get(published["num_clients"], 0.5),
        value,
        published["num_clients"] if stands_in else None,
        published["participation"] if stands_in and "participation" in shown else None,
        shown,
        scale,
        origins,
        method in grid.ours,
    )


def _identity(spec: RunSpec, scale: str) -> str:
    """The same for two specifications of the same run, whatever their seed, however they are written, whatever they keep."""
    return resolve(replace(spec, seed=0), scale).key


def needed_weights(grids: Sequence[Grid], scale: str) -> Kept:
    """What the runs of `grids` must keep, by their specifications."""
    asking = [cell.spec for grid in grids if grid.keep != "none" for cell in cells(grid, scale, seeds=(0,))]
    asking.sort(key=lambda spec: KEEP.index(spec.keep))
    return {_identity(spec, scale): spec.keep for spec in asking}
