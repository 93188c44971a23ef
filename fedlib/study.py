"""Your own experiment from end to end: methods beside each other, tuned, with seeds, as tidy frames and a table; and any runs compared.

>>> from fedlib import study  # doctest: +SKIP
>>> found = study.train(["Standalone", "FedProto", "FedSSA"], seeds=range(3), dataset="digits", rounds=10)
>>> found.table(reference="Standalone")
>>> seaborn.relplot(found.rounds, x="round", y="accuracy", hue="method", kind="line")
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from . import lab
from .errors import FedlibError, choose, coerce, require
from .lab import Record, RunSpec, Tuned, of_record
from .lab.tuning import with_values
from .show import intervals, labels, stats

Method = str | RunSpec | Tuned | Mapping[str, Any]
Methods = Iterable[str] | Mapping[str, Method]

# Fields of a specification in short, and those whose value says what they are.
_SHORT = {"num_clients": "N", "participation": "C", "rounds": "T", "local_epochs": "E", "batch_size": "B"}
_PLAIN = ("dataset", "scenario", "partition", "precision", "device")
# What decides which images a client holds, of what a run's key is made of; a public fraction is there where clients lack one.
_DEAL = ("data", "num_clients", "partition", "classes_per_client", "alpha", "public_fraction")
_DEAL_OF_PROTOCOL = ("split", "distinct", "floors", "dealing")


class Tunings(dict[str, Tuned]):
    """What `tune` chose for each method, by its label: `train` takes it in place of the methods."""

    @property
    def note(self) -> str:
        """How the methods were tuned, in a sentence; `Study.notes` has it."""
        return f"Hyper-parameters chosen by validation accuracy, {labels.seeds_range(one.trials for one in self.values())} trials each."

    @property
    def table(self) -> pd.DataFrame:
        """A row a method: trials, validation accuracy of the best (per cent), what was chosen."""
        rows = {
            label: {
                "trials": one.trials,
                "validation": round(one.validation, 2),
                "chosen": one.words,
            }
            for label, one in self.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


@dataclass(frozen=True, eq=False)
class Study:
    """Trained methods beside each other, as frames for pandas and seaborn.

    runs: a row a run: method, setting (in words), seed, key, what each rule reports in per cent (`stats.by_rules`), then
    `lab.tidy`'s columns; rounds: method, setting, seed and a run's rounds (-1: before training); clients: likewise, each
    client's last measured row; records: the runs, in the order of `runs`; notes: what to know when methods are compared.
    """

    runs: pd.DataFrame
    rounds: pd.DataFrame
    clients: pd.DataFrame
    records: list[Record]
    notes: list[str]

    def __repr__(self) -> str:
        return f"Study({', '.join(self.runs['method'].unique())}: {len(self.records)} runs; .runs, .rounds, .clients, .table())"

    @property
    def newcomers(self) -> pd.DataFrame:
        """Of runs with `newcomer_visits`: method, setting, seed, then a row a newcomer and visit (-1: its initial network, 0: after the
        download), with what was measured.
        """
        front = self.runs[["method", "setting", "seed", "key"]]
        rows = [record.newcomers.assign(key=record.key) for record in self.records if len(record.newcomers)]
        return front.merge(pd.concat(rows), on="key") if rows else front.head(0)

    def table(self, rule: str = "last", metric: str = "accuracy", reference: str = "") -> pd.DataFrame:
        """Methods down, settings across: the mean over seeds with its 95 % Student interval, as text; `.to_latex()` and
        `.to_markdown()` for a paper. A dash: a run diverged.

        rule: the round that is reported, of `stats.RULES`; metric: of `metrics.METRICS`, over the clients visited so far;
        reference: a method to which the differences are given beside it, paired by seed, with intervals that hold together
        (`stats.differences`). Raises FedlibError for an unknown name.
        """
        choose("rule", rule, stats.RULES)
        if reference:
            choose("reference", reference, self.runs["method"].unique())
        values = [intervals.reported(record, rule, metric) for record in self.records]
        frame = self.runs.assign(value=values)
        by = frame.groupby(["method", "setting"], sort=False)["value"]
        cells = {place: labels.mean(*stats.student(own.to_numpy()), len(own)) for place, own in by}
        order, settings = frame["method"].unique(), frame["setting"].unique()
        made = pd.DataFrame({one: [cells.get((name, one), "–") for name in order] for one in settings}, index=order)
        if reference:
            apart = stats.differences(frame, reference, value="value", also=None)
            for setting, rows in apart.groupby("setting", sort=False):
                said = {
                    row["method"]: labels.mean(row["difference"], row["half"], row["n"], "+")
                    for row in rows.to_dict("records")
                }
                name = f"difference to {reference}" + (f", {setting}" if len(settings) > 1 else "")
                made[name] = [said.get(method, "–") for method in order]
        return made.rename_axis("method")


def tune(
    methods: Methods,
    *,
    trials: int = 20,
    ranges: Mapping[str, Mapping[str, Any]] | None = None,
    scale: str | None = None,
    jobs: int = 2,
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
            label: lab.tune(spec, (ranges or {}).get(label), trials=trials, scale=scale, jobs=jobs, progress=progress)
            for label, spec in specs.items()
        }
    )


def train(
    methods: Methods,
    *,
    seeds: Iterable[int] = (0,),
    jobs: int = 2,
    scale: str | None = None,
    log: Any = None,
    **settings: Any,
) -> Study:
    """The runs of some methods with each of the seeds: read from the store or the results of record, or trained, `jobs` side by side.

    methods: names, or label -> a name, the fields of a RunSpec, a RunSpec, or what `lab.tune` chose; `tune`'s answer is such a
    mapping; settings: fields of RunSpec, the same for all, which a method's own and what was chosen for it precede; log: as of `lab.sweep`.
    Raises
    FedlibError for what is unknown.
    """
    named, allowed = _named(methods), "one or more different whole numbers"
    require(isinstance(seeds, Iterable) and not isinstance(seeds, str), "seeds", seeds, allowed)
    require("seed" not in settings, "seed", settings.get("seed"), "left out: seeds=[0, 1, 2] says them all")
    listed = [coerce("seed", seed, int) for seed in seeds]
    require(bool(listed) and len(set(listed)) == len(listed), "seeds", listed, allowed)
    specs = {label: _spec(label, one, settings) for label, one in named.items()}
    asked = {
        (label, seed): lab.resolve(dataclasses.replace(spec, seed=seed), scale)
        for label, spec in specs.items()
        for seed in listed
    }
    found = lab.gather([run.spec for run in asked.values()], jobs, log=log)
    rows = [
        {
            "method": label,
            "setting": labels.setting(str(run.spec.dataset), run.spec.num_clients, run.spec.participation),
        }
        | {"key": run.key}
        for (label, _), run in asked.items()
        if run.key in found
    ]
    runs, rounds, clients = lab.tidy(keys=[row["key"] for row in rows])
    frame = stats.by_rules(pd.DataFrame(rows).merge(runs, on="key"), rounds)
    front = frame[["method", "setting", "seed", "key"]]
    last = clients.sort_values("round", kind="stable").groupby(["key", "client"], sort=False).tail(1)
    notes = _not_alike({label: asked[label, listed[0]] for label in named}, isinstance(methods, Tunings))
    notes += [methods.note] if isinstance(methods, Tunings) else []
    return Study(
        frame, front.merge(rounds, on="key"), front.merge(last, on="key"), [found[key] for key in frame["key"]], notes
    )


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


def _not_alike(resolved: Mapping[str, lab.Resolved], tuned: bool) -> list[str]:
    """Which methods are trained otherwise than the first one (but for rates, where they are tuned), or on other images."""
    (first, *methods), said = resolved, list[str]()
    usual = _asked(resolved[first])
    for name in methods:
        own = _asked(resolved[name])
        apart = {field: value for field, value in own.items() if value != usual[field]}
        others = {
            field: value for field, value in apart.items() if field != "reserve" and not (tuned and field == "lr")
        }
        if others:
            said.append(
                f"{name} is trained otherwise than {first}: {', '.join(f'{k} = {v}' for k, v in others.items())}."
            )
        if _dealt(resolved[name].hashed) != _dealt(resolved[first].hashed):
            more = " (overrides={'reserve': True} keeps the public images from all)" if "reserve" in apart else ""
            said.append(
                f"{name}'s clients hold other images than {first}'s{more}: their differences are not client by client."
            )
    return said


def _asked(run: lab.Resolved) -> dict[str, Any]:
    """How a run trains and who takes part, whatever its method."""
    others = {name: getattr(run.spec, name) for name in ("newcomers", "newcomer_visits", "isolated")}
    return vars(run.protocol) | {"reserve": run.reserves} | others


# ---------------------------------------------------------------------------------------------------------- any runs


@dataclass(frozen=True)
class Compared:
    """Runs beside each other, those that differ in nothing but their seed in one row; the first row is the reference.

    rows: label -> its runs by seed; table: a row a label: n, accuracy (mean, per cent), half (of its 95 % interval over seeds),
    difference to the reference in points, paired by the seeds that both have, its half (of your own runs: the intervals of
    results of record stand in results/differences.csv) and seeds; clients: label, seed, client, `accuracy` and `reference` (per
    cent), `difference`, of the clients' last visits, where both have the same clients; notes: what to know when reading it. A
    run that diverged or lacks rounds has no number, and neither has the mean of its row.
    """

    rows: Mapping[str, Mapping[int, Any]]
    table: pd.DataFrame
    clients: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def by_client(self) -> pd.DataFrame:
        """A row a label: the mean difference client by client, how many clients there are, and how many are higher, lower, equal."""
        apart = self.clients.set_index("label")["difference"].astype(float).round(6)
        by = (apart > 0).astype(int).rename("higher").to_frame().assign(lower=apart < 0, equal=apart == 0, clients=1)
        counts = by.groupby(level=0, sort=False).sum().astype(int)
        return counts.assign(difference=apart.groupby(level=0, sort=False).mean().round(2))

    def __repr__(self) -> str:
        tables = [self.table, self.by_client] if len(self.clients) else [self.table]
        return "\n".join([*(one.round(2).to_string(na_rep="–") for one in tables), *self.notes])


def compare(*runs: Any, rule: str = "last") -> Compared:
    """Compare runs: keys as `fedlib runs` lists them (or enough of one), of the store or of record, records, or a `Study`.

    rule: the round that is compared, see `stats.RULES`. Raises FedlibError for a key that names no finished run, and for fewer
    than two runs.
    """
    choose("rule", rule, stats.RULES)
    records: list[Any] = []
    for run in runs:
        require(isinstance(run, Study | str) or hasattr(run, "rounds"), "runs", run, "keys, records, or a study")
        records += run.records if isinstance(run, Study) else [lab.find(run)] if isinstance(run, str) else [run]
    records = list({record.key: record for record in records}.values())
    require(len(records) >= 2, "runs", len(records), "at least two different ones")
    rows: dict[str, dict[int, Any]] = {}
    for label, record in zip(told_apart(_labels([record.spec for record in records]), records), records, strict=True):
        rows.setdefault(label, {})[record.spec.seed] = record
    reference, *others = rows
    notes = [of_record.stale([record for record in records if record.of_record])]
    short = [record.key for record in records if record.status != "diverged" and not intervals.whole(record)]
    notes += [f"without all of their rounds, and so without a number: {', '.join(short)}"] if short else []
    parts = []
    for label in others:
        own, its = (next(iter(rows[name].values())).hashed for name in (label, reference))
        seeds = [seed for seed in rows[label] if seed in rows[reference]]
        if _dealt(own) != _dealt(its):
            notes.append(
                f"the clients of {label} hold other images than those of {reference}: the difference says little"
            )
        elif not seeds:
            notes.append(f"{label} and {reference} have no seed in common: nothing is paired")
        else:
            pairs = [(seed, rows[label][seed], rows[reference][seed]) for seed in seeds]
            parts += [_by_client(label, *pair) for pair in pairs if all(map(intervals.whole, pair[1:]))]
    columns = ["label", "seed", "client", "accuracy", "reference", "difference"]
    clients = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    return Compared(rows, _compared(rows, rule), clients, tuple(filter(None, notes)))


def _compared(rows: Mapping[str, Mapping[int, Any]], rule: str) -> pd.DataFrame:
    """`Compared.table`."""
    values = [
        {"method": label, "seed": seed, "value": intervals.reported(record, rule)}
        for label, by_seed in rows.items()
        for seed, record in by_seed.items()
    ]
    reference = next(iter(rows))
    frame = pd.DataFrame(values)
    apart = stats.differences(frame, reference, value="value", also=None).set_index("method")
    both = {label: [*rows[label].values(), *rows[reference].values()] for label in apart.index}
    apart.loc[[label for label in apart.index if any(run.of_record for run in both[label])], "half"] = np.nan
    said = [
        [f"{seed}: {labels.mean(value, 0.0, 1, '+').split()[0]}" for seed, value in own.items()]
        for own in apart["seeds"]
    ]
    apart["seeds"] = ["; ".join(own) for own in said]
    own = {label: stats.student(part["value"].to_numpy()) for label, part in frame.groupby("method", sort=False)}
    made = pd.DataFrame.from_dict(own, orient="index", columns=["accuracy", "half"])
    made.insert(0, "n", [len(rows[label]) for label in made.index])
    more = apart[["difference", "half", "seeds"]].rename(columns={"half": "half of difference"})
    return made.join(more).rename_axis("run")


def _labels(specs: Sequence[Any]) -> list[str]:
    """Each run's method, and the fields in which it differs from another run, whichever these are; hyper-parameters and overrides
    from one of the same method. What a run keeps decides no number: `told_apart` names it where it must.
    """
    every = [vars(spec) for spec in specs]
    unsaid = ("algorithm", "params", "overrides", "seed", "keep", "metrics")
    varied = [name for name in every[0] if name not in unsaid and len({str(one[name]) for one in every}) > 1]
    made = []
    for own in every:
        same = [one for one in every if one["algorithm"] == own["algorithm"]]
        named = [str(own[name]) if name in _PLAIN else f"{_SHORT.get(name, name)} = {own[name]}" for name in varied]
        for part in ("params", "overrides"):
            names = dict.fromkeys(name for one in same for name in one[part])
            told = [name for name in names if len({str(one[part].get(name)) for one in same}) > 1]
            named += [f"{name} = {own[part][name]}" for name in told if name in own[part]]
        made.append(", ".join([own["algorithm"], *named]))
    return made


def told_apart(labels_: Sequence[str], runs: Sequence[Any]) -> list[str]:
    """The label of each run, so that runs of one label differ in nothing but their seed, and no two of them have the same.

    What two such runs keep is added, and where that is the same too (two versions of one's own method, whose specifications are
    equal), the eight signs of each key that `fedlib runs` lists.
    """
    made = list(labels_)
    for tell in (lambda run: f"keep = {run.spec.keep}", lambda run: run.key.rpartition("-")[2][:8]):
        places: dict[str, list[int]] = {}
        for place, label in enumerate(made):
            places.setdefault(label, []).append(place)
        for label, alike in places.items():
            own = [runs[place] for place in alike]
            doubled = len({run.spec.seed for run in own}) < len(own) or len({_but_seed(run) for run in own}) > 1
            words = [tell(run) for run in own] if doubled else []
            if len(set(words)) > 1:
                for place, word in zip(alike, words, strict=True):
                    made[place] = f"{label}, {word}"
    return made


def _but_seed(run: Any) -> str:
    """What a run was asked to be, but for its seed and what it keeps and measures."""
    asked = {name: value for name, value in vars(run.spec).items() if name not in ("seed", "keep", "metrics")}
    return json.dumps(asked, sort_keys=True, default=str)


def _dealt(hashed: Mapping[str, Any]) -> list[Any]:
    """What decides which images a client holds, of what a run's key is made of."""
    return [hashed.get(name) for name in _DEAL] + [hashed["protocol"].get(name) for name in _DEAL_OF_PROTOCOL]


def _by_client(label: str, seed: int, one: Any, other: Any) -> pd.DataFrame:
    own, theirs = (intervals.trained(record.final())[["client", "accuracy"]] for record in (one, other))
    both = own.merge(theirs, on="client", suffixes=("", "_reference"))
    both = both.assign(accuracy=100 * both["accuracy"], reference=100 * both["accuracy_reference"])
    return both.assign(label=label, seed=seed, difference=both["accuracy"] - both["reference"])


def differing(one: Any, other: Any) -> list[str]:
    """Where two runs differ, a line each: the specification's fields, their provenance, and whether their bits do."""
    lines = []
    for part in ("spec", "provenance"):
        own, its = (_flat(dataclasses.asdict(run.spec) if part == "spec" else run.provenance) for run in (one, other))
        names = [name for name in own | its if own.get(name) != its.get(name)]
        lines += [f"{part}.{name}: {own.get(name)} | {its.get(name)}" for name in names]
    if isinstance(one, lab.Record) and isinstance(other, lab.Record):
        lines.append(f"final states: {'the same bits' if one.digest == other.digest else 'different bits'}")
    return lines


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a mapping and of the mappings in it, `params.mu0` by name."""
    inner = {name: value if isinstance(value, Mapping) else {"": value} for name, value in values.items()}
    return {f"{name}.{part}".rstrip("."): value for name, own in inner.items() for part, value in own.items()}


__all__ = ["Compared", "Study", "Tunings", "compare", "differing", "train", "tune"]
