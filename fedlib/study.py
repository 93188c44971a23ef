"""Your own experiment from end to end: methods beside each other, tuned, with seeds, a table, curves and differences.

>>> from fedlib import study  # doctest: +SKIP
>>> found = study.train(["Standalone", "FedProto", "FedSSA"], seeds=range(3), dataset="digits", rounds=10)
>>> found.table(reference="Standalone")

`Runs` are finished runs as tables; `Cell` is a run with the label of its row, and `train_cells` trains any cells, for grids of
your own; `compare` sets any runs beside each other, client by client; `settings` checks the parameters of a notebook.
`fedlib.show.plots` draws further figures of these tables.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from . import data, lab, metrics
from .errors import FedlibError, choose, coerce, require
from .lab import RunSpec, Tuned, costs
from .lab.tuning import with_values
from .papers import results
from .papers.comparison import compare, dealt
from .papers.exhibits import Cell
from .papers.loading import train_cells
from .papers.results import Runs, note
from .papers.settings import settings
from .show import intervals, labels, plots, tables
from .show.intervals import SELECTION_RULES

Method = str | RunSpec | Tuned | Mapping[str, Any]
Methods = Iterable[str] | Mapping[str, Method]


class Tunings(dict[str, Tuned]):
    """What `tune` chose for each method, by its label: `train` takes it in place of the methods."""

    @property
    def note(self) -> str:
        """How the methods were tuned, in a sentence; tables of their runs have it beneath."""
        return f"Hyper-parameters chosen by validation accuracy, {labels.seeds_range(one.trials for one in self.values())} trials each."

    @property
    def table(self) -> pd.DataFrame:
        """A row a method: trials, how many of them were pruned, validation accuracy of the best (per cent), what was chosen."""
        rows = {
            label: {
                "trials": one.trials,
                "pruned": int((one.table["state"] == "pruned").sum()),
                "validation": round(one.validation, 2),
                "chosen": one.words,
            }
            for label, one in self.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


@dataclass(frozen=True)
class Study:
    """Trained methods beside each other. runs: their runs; methods: their labels, in the order of the rows; note: how they were
    tuned, if they were.
    """

    runs: Runs
    methods: list[str]
    note: str = ""

    def __repr__(self) -> str:
        return f"Study({', '.join(self.methods)}: {len(self.runs.records)} runs; .table(), .curves())"

    def table(
        self,
        rule: str = "last",
        metric: str = "accuracy",
        *,
        reference: str = "",
        people: bool = False,
        prices: bool = False,
    ) -> tables.Ranked:
        """Methods down: the mean over clients with its 95 % interval over seeds, best in bold, second underlined; HTML in a
        notebook, `.to_latex()` and `.to_markdown()` for a paper.

        rule: the round that is reported, of `SELECTION_RULES`; metric: of `metrics.METRICS`; reference: a method to which the
        differences are given, in points or the metric's unit, paired by seed, simultaneous over the table, with the number of
        seeds; people: the accuracy of the worst decile of the clients and its standard deviation, too; prices: KB a client and
        round, and FLOPs of local training by the cheapest method's. Raises FedlibError for an unknown name.
        """
        choose("rule", rule, SELECTION_RULES)
        if reference:
            choose("reference", reference, self.methods)
        summary = self.runs.summary(rule, metric)
        ranked = tables.wide(summary, self.methods, metric=metric)
        several = len(ranked.table.columns) > 1
        columns: dict[str, list[str]] = {}
        for setting in ranked.table.columns:
            columns[setting] = list(ranked.table[setting])
            own = Runs.of_pairs(pair for pair in self.runs.pairs if pair[0].setting == setting)
            for name, cells in self._more(own, rule, metric, reference, people, prices).items():
                columns[f"{setting}: {name}" if several else name] = cells
        table = pd.DataFrame(columns, index=ranked.table.index)
        datasets = list(dict.fromkeys(cell.dataset for cell in self.runs.cells))
        said = tables.caption(
            scale="", datasets=datasets, protocol="", rule=rule, metric=metric,
            embedded=any(data.info(name).embedded for name in datasets), seeds=len({cell.spec.seed for cell in self.runs.cells}),
            note=note(self.runs.cells),
        )  # fmt: skip
        marks = ranked.marks.reindex(columns=table.columns, fill_value="")
        noted = [said.replace(f" {tables.MARKED}", ""), ranked.note, _budgets(self.runs), _ended_early(self.runs)]
        noted += [_not_alike(self.runs, self.methods, bool(self.note)), self.note]
        return tables.Ranked(table, marks, " ".join(filter(None, noted)))

    def _more(
        self, own: Runs, rule: str, metric: str, reference: str, people: bool, prices: bool
    ) -> dict[str, list[str]]:
        """Further columns of one setting: name -> a cell a method."""
        columns = {}
        if reference:
            rows = own.effects(reference, rule, metric=metric).to_dict("records")
            said = {row["case"]: tables.format_difference(row["difference"], row["ci95"], row["n"]) for row in rows}
            columns[f"difference to {reference}"] = [said.get(one, "–") for one in self.methods]
        if people:
            for name in ("worst_decile", "spread"):
                values = own.summary(rule, name).set_index("method")["ours"].to_dict()
                of = "" if metric == "accuracy" else " of accuracy"
                columns[f"{name.replace('_', ' ')}{of}"] = [
                    tables.plain(values.get(one, np.nan)) for one in self.methods
                ]
        if prices:
            spent = pd.DataFrame([_price(cell.method, record) for cell, record in own.pairs]).groupby("method").mean()
            least = spent["flops"].min()
            columns["KB a client and round"] = [
                tables.short(float(spent["kb"].get(one, np.nan))) for one in self.methods
            ]
            flops = [float(spent["flops"].get(one, np.nan)) / least for one in self.methods]
            columns["FLOPs"] = ["–" if np.isnan(one) else f"{one:.2f}" for one in flops]
        return columns

    def curves(self, metric: str = "accuracy", along: str = "rounds") -> plots.Picture:
        """The metric as training goes on, a panel a setting; the band is the 95 % interval over seeds. along: rounds, epochs,
        words or flops.
        """
        choose("along", along, plots.ALONG)
        of_clients = metrics.find(metric).of_clients is not None  # computed; others are columns of the rounds
        for _, record in self.runs.pairs if not of_clients else ():
            intervals.with_metric(record, metric)
        more = [*([metric] if of_clients else []), *([along] if along != "rounds" else [])]
        settings = dict.fromkeys(cell.setting for cell in self.runs.cells)
        drawn = plots.curves(self.runs.rounds(*more), dict.fromkeys(settings, self.methods), metric=metric, along=along)
        if any(data.info(cell.dataset).embedded for cell in self.runs.cells):
            plots.label_stand_in(drawn)
        return drawn.note(note(self.runs.cells))

    def newcomers(self, metric: str = "accuracy") -> tables.Ranked:
        """Of runs with `newcomers` and `newcomer_visits`: methods down, the newcomers' mean before anything, after the download, and
        after each number of visits across, with its 95 % interval over seeds, best in bold, second underlined.

        metric: `accuracy`, one that the runs measure (`metrics=`), or a method's further way of predicting. Raises FedlibError where
        no run has it.
        """
        rows, measured = self._of_newcomers(metric), metrics.find(metric)
        stages: dict[Any, str] = {-1: "start", 0: "download", 1: "1 visit"}
        several, cells = len(set(rows["setting"])) > 1, []
        for (setting, visits, method), own in rows.groupby(["setting", "visits", "method"], sort=False):
            stage = stages.get(visits, f"{visits} visits")
            mean, half = intervals.interval(measured.scale * own[metric].to_numpy(float))
            row = {"stage": f"{setting}: {stage}" if several else stage, "method": method, "diverged": 0}
            cells.append(row | {"ours": mean, "ci95": half, "n": len(own)})
        ranked = tables.wide(pd.DataFrame(cells), self.methods, "stage", absent="–", metric=metric)
        counts = {cell.spec.newcomers for cell in self.runs.cells if cell.spec.newcomer_visits}
        said = (
            f"Clients that are in no round, {labels.seeds_range(counts)} a run: {measured.label}. Start: their initial network; "
            "download: what they make of the last server's; then after visits of E local epochs on it."
        )
        noted = " ".join(filter(None, (said, ranked.note, f"{note(self.runs.cells)}.")))
        return tables.Ranked(ranked.table, ranked.marks, noted)

    def newcomer_curves(self, metric: str = "accuracy") -> plots.Picture:
        """`newcomers` as a picture: their mean over the number of visits, a line a method; the band is the 95 % interval over seeds."""
        drawn = plots.newcomers(self._of_newcomers(metric), metric)
        if any(data.info(cell.dataset).embedded for cell in self.runs.cells):
            plots.label_stand_in(drawn)
        return drawn.note(note(self.runs.cells))

    def _of_newcomers(self, metric: str) -> pd.DataFrame:
        rows = self.runs.newcomers()
        require(len(rows) > 0, "newcomers", 0, "of runs with newcomers=1 or more and newcomer_visits=1 or more")
        measured = rows.columns[list(rows.columns).index("loss") + 1 :]
        choose("metric", metric, [name for name in measured if name not in (*results.LABELLED, *results.TYPED, "key")])
        return rows.dropna(subset=[metric])


def tune(
    methods: Methods,
    *,
    trials: int = 20,
    ranges: Mapping[str, Mapping[str, Any]] | None = None,
    scale: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> Tunings:
    """Choose each method's hyper-parameters by validation accuracy, all with the same number of trials; see `lab.tune`.

    methods, settings: as in `train`; ranges: label -> the ranges of that method, in place of `lab.default_ranges`.
    """
    named = _named(methods)
    for label in ranges or {}:
        choose("ranges", label, named)
    specs = {label: _spec(label, one, settings) for label, one in named.items()}
    return Tunings(
        {
            label: lab.tune(spec, (ranges or {}).get(label), trials=trials, scale=scale, progress=progress)
            for label, spec in specs.items()
        }
    )


def train(
    methods: Methods, *, seeds: Iterable[int] = (0,), jobs: int = 2, scale: str | None = None, **settings: Any
) -> Study:
    """The runs of some methods with each of the seeds: read from the store, or trained, `jobs` side by side.

    methods: names, or label -> a name, the fields of a RunSpec, a RunSpec, or what `lab.tune` chose; `tune`'s answer is such a
    mapping; settings: fields of RunSpec, the same for all, which a method's own and what was chosen for it precede. Raises
    FedlibError for what is unknown.
    """
    named, allowed = _named(methods), "one or more different whole numbers"
    require(isinstance(seeds, Iterable) and not isinstance(seeds, str), "seeds", seeds, allowed)
    require("seed" not in settings, "seed", settings.get("seed"), "left out: seeds=[0, 1, 2] says them all")
    listed = [coerce("seed", seed, int) for seed in seeds]
    require(bool(listed) and len(set(listed)) == len(listed), "seeds", listed, allowed)
    cells = [
        Cell(label, lab.resolve(dataclasses.replace(_spec(label, one, settings), seed=seed), scale).spec)
        for label, one in named.items()
        for seed in listed
    ]
    return Study(train_cells(cells, jobs), list(named), methods.note if isinstance(methods, Tunings) else "")


def _named(methods: Methods) -> dict[str, Method]:
    """label -> method."""
    allowed = "names of methods, or a mapping of labels to methods"
    require(isinstance(methods, Iterable) and not isinstance(methods, str), "methods", methods, allowed)
    named: dict[str, Method] = dict(methods) if isinstance(methods, Mapping) else {}
    if not isinstance(methods, Mapping):
        for name in methods:
            require(isinstance(name, str) and name not in named, "methods", name, f"each once; {allowed}")
            named[name] = name
    require(bool(named), "methods", list(named), "one or more")
    return named


def _spec(label: str, method: Method, settings: Mapping[str, Any]) -> RunSpec:
    """The specification of a method under common settings, which its own precede."""
    if isinstance(method, Tuned):  # settings replace those under which it was tuned; what was chosen stays
        given = {name: value for name, value in _given(method.spec).items() if name != "seed"}
        return with_values(_spec(label, given | dict(settings), {}), method.chosen)
    if isinstance(method, RunSpec):
        method = _given(method)
    allowed = "a name, the fields of a RunSpec, a RunSpec, or what lab.tune chose"
    require(isinstance(method, str | Mapping), label, method, allowed)
    seed = None if isinstance(method, str) else method.get("seed")
    require(seed is None, f"seed of {label}", seed, "left out: seeds=[0, 1, 2] says them for all")
    own = {"algorithm": method} if isinstance(method, str) else dict(method)
    try:
        return lab.spec_from({"algorithm": label} | dict(settings) | own)
    except FedlibError as error:
        raise FedlibError(f"{label}: {error}") from None


def _given(spec: RunSpec) -> dict[str, Any]:
    """The fields of a specification that say something."""
    usual = vars(RunSpec())
    return {"algorithm": spec.algorithm} | {name: value for name, value in vars(spec).items() if value != usual[name]}


def _price(method: str, record: Any) -> dict[str, Any]:
    """What a run sent by client and round, both ways (KB), and the FLOPs of its local training in all."""
    words = (record.rounds["download_words"] + record.rounds["upload_words"]).sum()
    kilobytes = costs.kilobytes(words / record.rounds["selected"].sum())
    flops = float(costs.of_run(record)[-1]) if record.status != "diverged" else np.nan
    return {"method": method, "kb": kilobytes, "flops": flops}


def _budgets(runs: Runs) -> str:
    """By what the runs ended that have a budget, in a sentence; empty where none has."""
    found: dict[str, dict[str, bool]] = {}  # until when -> method -> whether it ended so
    for cell, record in runs.pairs:
        for what, (used, most) in costs.budgets(record).items():
            own = found.setdefault(f"has {'computed' if what == 'FLOPs' else 'sent'} {most:.3g} {what}", {})
            own[cell.method] = own.get(cell.method, True) and used >= most
    said = []
    for until, own in found.items():
        every = own.keys() == {cell.method for cell in runs.cells}
        whose = "Each run" if every else f"A run of {', '.join(own)}"
        text = f"{whose} ends with the round in which it {until}"
        short = sorted(name for name, ended in own.items() if not ended)
        said.append(f"{text}; {', '.join(short)} ended by its rounds." if short else f"{text}.")
    return " ".join(said)


def _ended_early(runs: Runs) -> str:
    """How many runs ended for want of a better validation accuracy, in a sentence; empty where none may."""
    patient = [(cell, record) for cell, record in runs.pairs if cell.spec.patience]
    if not patient:
        return ""
    rounds = [int(record.rounds["round"].max()) + 1 for _, record in patient]
    early = sum(had < (cell.spec.rounds or 0) for (cell, _), had in zip(patient, rounds, strict=True))
    waited = ", ".join(map(str, sorted({cell.spec.patience for cell, _ in patient})))
    least = f"{waited} round{'' if waited == '1' else 's'}"
    said = f"A run ends after {least} without a better validation accuracy: {early} of {len(patient)} did"
    return f"{said}, the earliest after {min(rounds)} rounds."


def _not_alike(runs: Runs, methods: list[str], tuned: bool) -> str:
    """Which methods are trained otherwise than the first one (but for rates, where they are tuned), or on other images, in
    sentences; empty where none is.
    """
    resolved = {cell.method: lab.resolve(cell.spec) for cell in reversed(runs.cells)}
    first, said = methods[0], []
    usual = _asked(resolved[first])
    for name in methods[1:]:
        own = _asked(resolved[name])
        apart = {field: value for field, value in own.items() if value != usual[field]}
        others = {
            field: value for field, value in apart.items() if field != "reserve" and not (tuned and field == "lr")
        }
        if others:
            said.append(
                f"{name} is trained otherwise than {first}: {', '.join(f'{k} = {v}' for k, v in others.items())}."
            )
        if dealt(resolved[name].hashed) != dealt(resolved[first].hashed):
            more = " (overrides={'reserve': True} keeps the public images from all)" if "reserve" in apart else ""
            said.append(
                f"{name}'s clients hold other images than {first}'s{more}: their differences are not client by client."
            )
    return " ".join(said)


def _asked(run: lab.Resolved) -> dict[str, Any]:
    """How a run trains and who takes part, whatever its method."""
    others = {name: getattr(run.spec, name) for name in ("newcomers", "newcomer_visits", "isolated")}
    return vars(run.protocol) | {"reserve": run.reserves} | others


__all__ = ["Cell", "Runs", "Study", "Tunings", "compare", "settings", "train", "train_cells", "tune"]
