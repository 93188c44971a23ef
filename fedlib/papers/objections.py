"""What results of record answer to the objections that an author of the four papers could raise (docs/pages/objections.md).

Every number, and every word that says which way it falls, is computed of the results and of the plan that are there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from .. import lab
from ..errors import choose
from ..lab import plugins
from ..show import intervals, labels, paired, tables
from . import exhibits, loading, parts, planned, prices, recorded, reported, results, verdicts
from .exhibits import RECORD

LAST, SMOOTH = verdicts.RULES
PLAIN = "Standalone"
NONE = "No run of the plan answers it."
Rows = Mapping[str, Mapping[int, Any]]  # case -> seed -> run


def answers(*names: str) -> dict[str, list[str]]:
    """Objection -> the sentences that answer it, of what is on record now; of all by default. Raises FedlibError for an unknown
    name.
    """
    for name in names:
        choose("objection", name, _ANSWERS)
    return {name: _ANSWERS[name]() for name in names or _ANSWERS}


def clear(*differences: tuple[float, float]) -> str:
    """What (mean, half-width) pairs, one for each selection rule, say together: `clear` where every interval leaves 0 out on the same
    side, else `not clear`.
    """
    sides = {0.0 if np.isnan(half) or abs(mean) <= half else float(np.sign(mean)) for mean, half in differences}
    return "clear" if len(sides) == 1 and sides != {0.0} else "not clear"


# ---------------------------------------------------------------------------------------------------- what is there


@cache
def _plan(_held: frozenset[str], _registered: tuple[Any, ...]) -> pd.DataFrame:
    """The runs of the plan: arm, case, key, what its key is made of, and whether it is of record."""
    rows = []
    for arm in planned.arms().values():
        for run in arm.runs:
            hashed = lab.resolve(run.spec, RECORD).hashed
            rows.append({"arm": arm.name, "case": run.case, "key": run.key, "hashed": hashed, "held": run.key in _held})
    return pd.DataFrame(rows)


def _planned() -> pd.DataFrame:
    return _plan(frozenset(recorded.by_key()), plugins.registered())


def _values(name: str, field: Callable[[Mapping[str, Any]], Any], methods: Sequence[str] = ()) -> str:
    """The values of a field in the runs of record, each with how many have it, and those planned besides."""
    plan = _planned()
    own = plan[[not methods or one["algorithm"] in methods for one in plan["hashed"]]]
    own = own.assign(value=[field(one) for one in own["hashed"]])
    held = own[own["held"]]["value"].value_counts()
    said = ", ".join(f"{value} in {count}" for value, count in held.items()) or "none"
    open_ = own[~own["held"] & ~own["value"].isin(held.index)].groupby("value", sort=False)["arm"].unique()
    further = "; ".join(f"{value} ({', '.join(arms)})" for value, arms in open_.items()) or "none"
    of = f" of {', '.join(methods)}" if methods else ""
    return f"{name} of the {held.sum()} runs{of} on record: {said}. Planned besides: {further}."


def _progress(name: str) -> str:
    arm = _planned().query("arm == @name")
    return f"Arm *{name}* of the plan: {arm['held'].sum()} of {len(arm)} runs are on record."


def _rows(*names: str) -> dict[tuple[str, int], dict[str, dict[int, Any]]]:
    """(data set, T) -> case -> seed -> run: what is on record of some arms."""
    known, found = recorded.by_key(), dict[tuple[str, int], dict[str, dict[int, Any]]]()
    for row in _planned().query("held and arm in @names").to_dict("records"):
        record = known[row["key"]]
        if intervals.whole(record):
            place = found.setdefault((str(record.spec.dataset), record.spec.rounds), {})
            place.setdefault(row["case"], {})[record.spec.seed] = record
    return found


def _each(name: str) -> list[tuple[str, int, Any]]:
    """(case, seed, run) of what is on record of an arm."""
    return [
        (case, seed, run) for cases in _rows(name).values() for case, own in cases.items() for seed, run in own.items()
    ]


@cache
def _front(_held: frozenset[str], _registered: tuple[Any, ...]) -> results.Runs:
    pfedes = loading.load_record("pfedes/heterogeneous").of("pFedES")
    return results.Runs.joined([loading.load_record("fedssa/heterogeneous"), pfedes]).where(num_clients=100)


def _main(dataset: str) -> results.Runs:
    """The main tables' runs with 100 clients: FedSSA's methods and pFedES."""
    return _front(frozenset(recorded.by_key()), plugins.registered()).where(dataset=dataset)


def _by_method(runs: results.Runs) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for cell, record in runs.pairs:
        if intervals.whole(record):
            found.setdefault(cell.method, {})[cell.spec.seed] = record
    return found


# ---------------------------------------------------------------------------------------------------- sentences


@dataclass(frozen=True)
class _Lead:
    """own - other in points by both rules: (mean, half-width) each, over n seeds; equal: within verdicts.MARGIN by both."""

    own: str
    other: str
    last: tuple[float, float]
    smooth: tuple[float, float]
    n: int
    equal: bool = False

    @property
    def verdict(self) -> str:
        if self.n < verdicts.MIN_SEEDS:
            return "one seed, which decides nothing" if self.n == 1 else f"{self.n} seeds, which decide nothing"
        word = clear(self.last, self.smooth)
        same = word != "clear" and self.equal
        return f"no difference within {verdicts.MARGIN:g} point" if same else word

    def __str__(self) -> str:
        shown = [(mean, half if self.n > 1 else np.nan) for mean, half in (self.last, self.smooth)]
        own, smooth = (tables.format_difference(*one) for one in shown)
        return (
            f"{self.own} against {self.other}: {own}, in the last ten rounds {smooth} (n = {self.n}): {self.verdict}."
        )


def _leads(rows: Rows, pairs: Sequence[tuple[str, str]]) -> list[_Lead]:
    """Each pair that is there, with the common error of the grid that its runs belong to."""
    made = []
    for rule in verdicts.RULES:

        def measure(run: Any, rule: str = rule) -> float:
            return intervals.reported(run, rule)

        made.append(results.compared(rows, [pair for pair in pairs if set(pair) <= set(rows)], measure))
    return [
        _Lead(last.own, last.other, (last.mean, last.half), (smooth.mean, smooth.half), last.n, equal)
        for last, smooth in zip(*made, strict=True)
        for equal in [last.equal(verdicts.MARGIN) and smooth.equal(verdicts.MARGIN)]
    ]


def _family(runs: results.Runs, pair: tuple[str, str]) -> list[tuple[str, str]]:
    """The pairs whose intervals hold together with that of `pair` in README's and FedSSA's tables: every method over Standalone, or
    the first over every other.
    """
    methods = list(dict.fromkeys(cell.method for cell in runs.cells))
    if pair[1] == PLAIN:
        return [(name, PLAIN) for name in methods if name != PLAIN]
    return [(pair[0], name) for name in methods if name != pair[0]]


def _main_leads(dataset: str, pairs: Sequence[tuple[str, str]]) -> list[_Lead]:
    """Pairs of the main tables with 100 clients, with the intervals that those have."""
    rows, found = _by_method(_main(dataset)), []
    for pair in pairs:
        made = _leads(rows, _family(_main(dataset), pair))
        found += [lead for lead in made if (lead.own, lead.other) == pair]
    return found


def _arm(name: str, *families: Sequence[tuple[str, str]]) -> list[str]:
    """How far an arm is, and its differences that can be computed; those of a family hold together."""
    said = [_progress(name)]
    for (dataset, rounds), rows in _rows(name).items():
        for pairs in families:
            own = {case: runs for case, runs in rows.items() if any(case in pair for pair in pairs)}
            said += [f"{labels.dataset(dataset)}, T = {rounds}: {lead}" for lead in _leads(own, pairs)]
    return said


def _priced(dataset: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Pairs of the main tables at equal rounds, FLOPs and words."""
    said = []
    for pair in pairs:
        made = [prices.leads(_main(dataset), _family(_main(dataset), pair), rule) for rule in verdicts.RULES]
        last, smooth = (table[(table["own"] == pair[0]) & (table["other"] == pair[1])] for table in made)
        for row, beside in zip(last.to_dict("records"), smooth.to_dict("records"), strict=True):
            at = []
            for kind in (kind for kind in prices.KINDS if not row[f"{kind}_why"]):
                both = [(one[kind], one[f"{kind}_ci95"]) for one in (row, beside)]
                at.append(f"at equal {prices.WORDS[kind]} {tables.format_difference(*both[0])} ({clear(*both)})")
            computes = f"computes {row['compute']:.2f} times as much"
            said.append(f"{pair[0]} against {pair[1]}: {computes}; {', '.join(at)} (n = {row['n']}).")
    return said


def _effects(grid: str, reference: str, cases: Sequence[str]) -> list[str]:
    """What cases of an audit grid change, or that they are not run."""
    runs, said, title = loading.load_record(grid), [], exhibits.every()[grid].title
    both = [runs.effects(reference, rule).set_index("case") for rule in verdicts.RULES]
    for case in cases:
        if case in both[0].index:
            last, smooth = (table.loc[case].to_dict() for table in both)
            shown = (last["difference"], last["ci95"]), (smooth["difference"], smooth["ci95"])
            said.append(f"{title}: {_Lead(case, reference, shown[0], shown[1], last['n'])}")
        else:
            arms = _planned().query("case == @case")["arm"].unique()
            where = f"planned in {', '.join(arms)}" if len(arms) else "in no arm of the plan"
            said.append(f"{title}: {case}: not on record, {where}.")
    return said


# ---------------------------------------------------------------------------------------------------- answers


def _length() -> list[str]:
    runs = _main("cifar100")
    theirs = [cell.spec for cell in exhibits.cells("fedssa/heterogeneous", "paper", "cifar100", (0,))]
    own = [cell.spec for cell in runs.cells]
    spec = own[0]
    assert spec.rounds
    here, there = results.epochs(own), results.epochs(results.of_column(spec, theirs))
    said = [f"A client trains {here:g} epochs here on average, in the papers' runs of this setting up to {there:g}."]
    rows = _by_method(runs)
    for other in ("FedProto", PLAIN):
        said += tables.lead_sentences(intervals.leads(runs.rounds(), other), "FedSSA", other, (20, 50, 100))
        seeds = [seed for seed in rows["FedSSA"] if seed in rows[other]]
        both = [(rows["FedSSA"][seed], rows[other][seed]) for seed in seeds]
        early, late = (
            np.array([prices.until(own, end, SMOOTH) - prices.until(its, end, SMOOTH) for own, its in both])
            for end in (20, spec.rounds)
        )
        change = intervals.interval(late - early)
        said.append(
            f"From round 20 to the end that lead changes by {tables.format_difference(*change)} (n = {len(seeds)}): {clear(change)}."
        )
    said += _arm("long", [("FedSSA", "FedProto"), ("FedSSA", PLAIN), ("FedProto", PLAIN), ("FedKD", PLAIN)])
    for case, seed, run in _each("long"):
        last, before = (prices.until(run, end, LAST) for end in (run.spec.rounds, spec.rounds))
        said.append(
            f"{case}, seed {seed}: {last:.2f} after {run.spec.rounds} rounds, {before:.2f} after {spec.rounds} of them; "
            f"FedSSA's Table 2 prints {_printed(run):.2f}."
        )
    return said


def _tuning() -> list[str]:
    rows = _rows("main-table", "ablations", "history")["cifar100", 100]
    rows |= {"FedProto": _by_method(_main("cifar100"))["FedProto"]}
    settings = [case for case, own in rows.items() if {run.spec.algorithm for run in own.values()} == {"FedSSA"}]
    seeds = [seed for seed in rows["FedProto"] if all(seed in rows[case] for case in settings)]
    made = []
    for rule in verdicts.RULES:
        best = {seed: max(intervals.reported(rows[case][seed], rule) for case in settings) for seed in seeds}
        default = {seed: intervals.reported(rows["FedProto"][seed], rule) for seed in seeds}
        (one,) = paired.differences({"best": best, "default": default}, [("best", "default")])
        made.append((one.mean, one.half))
    name = f"The best of FedSSA's {len(settings)} settings on record (ablations included), chosen for each seed on its test images,"
    said = [str(_Lead(name, "FedProto as it is", made[0], made[1], len(seeds)))]
    alone = [lead.last[0] for lead in _leads(rows, [(case, "FedProto") for case in settings])]
    said.append(
        f"Each of these settings against FedProto: {min(alone):+.2f} to {max(alone):+.2f} after the last round."
    )
    said += _effects("audit/controls", PLAIN, ["Standalone, three times the rate"])
    said += [*_rates(), _progress("tuning")]
    named = {"sgd": "SGD", "adam": "Adam"}
    said.append(
        _values("Learning rate", lambda run: f"{run['protocol']['lr']:g} ({named[run['protocol']['optimiser']]})")
    )
    tried: dict[str, set[str]] = {}
    for hashed in _planned().query("held and arm in ['main-table', 'ablations', 'history']")["hashed"]:
        tried.setdefault(hashed["algorithm"], set()).add(str(hashed["params"]))
    counts = ", ".join(f"{name} {len(params)}" for name, params in tried.items() if name != PLAIN)
    return [*said, f"Settings of each method's own parameters on record: {counts}."]


def _rates() -> list[str]:
    """FedSSA against FedProto, each at the rate of best mean validation accuracy after the last round."""
    said, methods = [_progress("rates")], ("FedSSA", "FedProto")
    rows = next(iter(_rows("gpu", "rates").values()), {})
    every = [(case, run) for case, own in rows.items() for run in own.values()]
    cases = {(run.spec.algorithm, run.spec.lr): case for case, run in every}
    cells = [(exhibits.Cell(run.spec.algorithm, run.spec, value=run.spec.lr), run) for _, run in every]
    runs, rates = results.Runs.of_pairs(cells).paired(), sorted({rate for _, rate in cases})
    best = runs.tuned(rates, rates[0], LAST).set_index("method") if rates else pd.DataFrame()
    if not {*methods} <= {*best.index}:  # not run with each of the rates
        return said
    seen = runs.summary(LAST, "validation_accuracy").set_index(["method", "value"])["ours"]
    for method in methods:
        shown = ", ".join(f"{seen[method, rate]:.2f} at {rate:g}" for rate in rates)
        chosen, n = best.loc[method, ["chosen", "n"]]
        said.append(f"{method}, mean validation accuracy by learning rate (n = {n:g}): {shown}; {chosen:g} is taken.")
    own, other = (cases[method, best.loc[method, "chosen"]] for method in methods)
    said += map(str, _leads(rows, [(own, other)]))
    usual = [next(iter(_by_method(_main("cifar100"))[method].values())).spec.lr for method in methods]
    if [best.loc[method, "chosen"] for method in methods] == usual:
        said.append(f"Both rates are the main table's, whose runs on CPUs say: {_main_leads('cifar100', [methods])[0]}")
    return said


def _on_a_gpu() -> list[str]:
    names = ("FedProto", "FedSSA")
    rows = {name: _by_method(_main("cifar100"))[name] for name in names} | next(iter(_rows("gpu").values()), {})
    return [_progress("gpu"), *map(str, _leads(rows, [(f"{name}, GPU", name) for name in names]))]


def _batch() -> list[str]:
    sizes = _values("B", lambda run: run["batch_size"])
    run = lab.resolve(planned.arm("main-table").runs[0].spec, RECORD)
    assert run.spec.num_clients and run.spec.participation
    images = run.samples / (run.spec.rounds * run.spec.num_clients * run.spec.participation * run.spec.local_epochs)
    grid = (64, 128, 256, 512)  # FedSSA, section 6.1; pFedES
    steps = ", ".join(f"{-(-images // size):g} at B = {size}" for size in grid)
    most = max(grid, key=lambda size: -(-images // size))
    return [
        sizes,
        f"A client of the main table has {images:g} training images: steps in an epoch are {steps}; B = {most} of the "
        "papers' grid has most of them.",
        *([] if len({one["batch_size"] for one in _planned()["hashed"]}) > 1 else [NONE]),
    ]


AUGMENTED = {"released": "the scripts' own", "none": "without"}


def _training() -> list[str]:
    return [
        _values("Momentum", lambda run: run["protocol"]["momentum"]),
        _values("Augmentation", lambda run: AUGMENTED.get(run["protocol"]["augmentation"], "another")),
        *_effects("audit/fedssa", "as released", ["no augmentation", "plain SGD at 0.01", "the paper's text"]),
    ]


def _decay() -> list[str]:
    def decay(hashed: Mapping[str, Any]) -> str:
        return f"{hashed['protocol']['weight_decay']:g}"

    said = [_values("Weight decay", decay, [name]) for name in (PLAIN, "FedSSA", "FedGH", "pFedES")]
    own = decay(lab.resolve(lab.RunSpec("pFedES", dataset="cifar100", paper="pFedES"), RECORD).hashed)
    there = any(one["algorithm"] == "pFedES" and decay(one) == own for one in _planned()["hashed"])
    return [*said, f"pFedES's own protocol has {own}." + ("" if there else f" {NONE}")]


def _compute() -> list[str]:
    return _priced("cifar100", [("FedSSA", "FedProto"), ("FedSSA", "FedKD"), ("FedKD", PLAIN), ("pFedES", PLAIN)])


PRINTED = {  # leads that the papers print for 100 clients: where
    ("FedSSA", "FedProto"): ("FedSSA", "Table 2"),
    ("FedSSA", PLAIN): ("FedSSA", "Table 2"),
    ("pFedES", PLAIN): ("pFedES", "Table 3"),
}


def _their_seed() -> list[str]:
    said, rows = [], _by_method(_main("cifar100"))
    for lead in _main_leads("cifar100", [*PRINTED]):
        own, other = rows[lead.own], rows[lead.other]
        apart = [
            intervals.reported(own[seed], LAST) - intervals.reported(other[seed], LAST) for seed in own if seed in other
        ]
        paper, item = PRINTED[lead.own, lead.other]
        printed, (mean, half) = reported.lead(paper, item, lead.own, lead.other, "cifar100", 100), lead.last
        inside = "inside" if abs(printed - mean) <= half else "outside"
        said.append(
            f"{lead.own} against {lead.other} is printed as {printed:+.2f} ({paper}, {item}), {inside} our interval, "
            f"{tables.format_difference(mean, half)} (n = {lead.n}); single seeds of ours give {min(apart):+.2f} to {max(apart):+.2f}."
        )
    return said


def _precision() -> list[str]:
    pairs = [(f"{name}, bf16", f"{name}, fp32") for name in (PLAIN, "FedSSA", "FedKD")]
    said, margin = _arm("precision", pairs), planned.arm("precision").margin or 0.0
    for (dataset, _), rows in _rows("precision").items():
        for lead in _leads(rows, pairs):
            beyond = abs(lead.last[0]) - lead.last[1] > margin
            if lead.n > 1:
                said.append(
                    f"{labels.dataset(dataset)}, {lead.own}: wholly beyond {margin} points: {'yes' if beyond else 'no'}."
                )
    return said


def _written_again() -> list[str]:
    rows = _by_method(_main("cifar100"))
    same = [
        max(abs(_first(rows[name][seed]) - _first(rows[PLAIN][seed])) for seed in rows[name] if seed in rows[PLAIN])
        for name in ("FD", "FedProto")
    ]
    said = [
        "After round 0, when nothing has come from a server yet, FD and FedProto must equal Standalone: their largest "
        f"difference is {max(same):.2f} points.",
        *_effects("audit/fedssa", PLAIN, ["as released", "no inheritance, selected owners"]),
    ]
    for lead in _main_leads("cifar100", [("FedKD", PLAIN), ("FML", PLAIN)]):
        printed = reported.lead("FedSSA", "Table 2", lead.own, PLAIN, "cifar100", 100)
        said.append(f"{lead} FedSSA's Table 2 prints {printed:+.2f}.")
    said.append(f"Is the printed accuracy the shared network's? {_progress('shared')}")
    for case, seed, run in _each("shared"):
        end = 100 * run.rounds.iloc[-1]
        said.append(
            f"{case}, seed {seed}: the client's own {end['accuracy']:.2f}, the shared one {end['shared_accuracy']:.2f}, "
            f"as received {end['received_accuracy']:.2f}; printed {_printed(run):.2f}."
        )
    return said


def _printed(run: Any) -> float | None:
    """What FedSSA's Table 2 prints of a run's method with 100 clients."""
    return reported.accuracy("FedSSA", "Table 2", run.spec.algorithm, run.spec.dataset, 100)


def _first(run: Any) -> float:
    """The accuracy after round 0, in per cent."""
    return 100 * float(run.rounds.query("round == 0")["accuracy"].iloc[0])


def _exchange() -> list[str]:
    rows, said = _by_method(_main("cifar100")), []
    first = {name: {seed: _first(run) for seed, run in own.items()} for name, own in rows.items()}
    pairs = [(name, PLAIN) for name in ("FedKD", "FML", "FedSSA", "pFedES")]
    start = {one.own: (one.mean, one.half) for one in paired.differences(first, _family(_main("cifar100"), pairs[0]))}
    for lead in _main_leads("cifar100", pairs):
        before = f"{tables.format_difference(*start[lead.own])} ({clear(start[lead.own])})"
        after = f"{tables.format_difference(*lead.last)} ({lead.verdict}, n = {lead.n})"
        said.append(f"{lead.own} against {PLAIN} after round 0: {before}; after the last round: {after}.")
    said.append(_progress("isolated"))
    made = [parts.parts(parts.isolated(recorded.read_results()), rule) for rule in verdicts.RULES]
    for row, smooth in zip(*(one.to_dict("records") for one in made), strict=True):
        pieces = []
        for part in ("local", "exchange"):
            last, beside = ((one[part], one[f"{part}_ci95"] if one["n"] > 1 else np.nan) for one in (row, smooth))
            word = clear(last, beside) if row["n"] > 1 else "one seed"
            pieces.append(f"{part} {tables.format_difference(*last)} ({word})")
        said.append(f"{row['method']}, {row['setting']}: {', '.join(pieces)} (n = {row['n']}).")
    return said


def _participation() -> list[str]:
    plan = _planned()
    found = pd.DataFrame(plan["hashed"].tolist())
    rates = [own.groupby(["dataset", "num_clients"])["participation"] for own in (found[plan["held"]], found)]
    held, every = (own.nunique().max() > 1 for own in rates)
    two = "Two rates of participation with as many clients are"
    said = f"{two} on record." if held else f"{two} planned." if every else f"{two} neither on record nor planned."
    sizes = _values("N and C", lambda run: f"N = {run['num_clients']}, C = {100 * run['participation']:.0f} %")
    return [sizes, said, f"N = 10, where every client takes part in each round: {_progress('n10')}"]


def _reduced() -> list[str]:
    spec = next(run.spec for run in planned.arm("pfedhr").runs if run.spec.algorithm == "pFedHR")
    cells = exhibits.cells("pfedhr/labelled", "paper", "cifar10", seeds=(0,))
    resolved = lab.resolve(next(cell.spec for cell in cells if cell.spec.algorithm == "pFedHR"), "paper")
    theirs, public = resolved.spec, resolved.spec.public_fraction * resolved.info.num_train
    assert spec.participation and theirs.participation and spec.rounds and spec.scenario
    visits, printed = spec.rounds * spec.participation, theirs.rounds * theirs.participation
    said = [
        f"T = {spec.rounds} ({theirs.rounds}), E = {spec.local_epochs} ({theirs.local_epochs}), at the server "
        f"{spec.params['server_epochs']} ({theirs.params['server_epochs']}), B = {spec.batch_size} ({theirs.batch_size}), "
        f"{spec.public_images} public images ({public:.0f}), models {', '.join(spec.scenario)}; a client is visited {visits:.1f} "
        f"times on average ({printed:.1f})."
    ]
    teachers = ("labelled, teacher of the last match", "labelled, teacher of public images alone")
    kinds = [f"pFedHR, {kind}" for kind in ("labelled", "unlabelled", *teachers)]
    said += _arm("pfedhr", *([(f"{kind}, {how}", f"{PLAIN}, {how}") for kind in kinds] for how in ("IID", "Non-IID")))
    for cases in _rows("pfedhr").values():
        for case, own in cases.items():
            taught = [run.rounds["taught"].mean() for run in own.values() if "taught" in run.rounds]
            if taught:
                said.append(
                    f"{case}: {100 * float(np.mean(taught)):.0f} % of the visits were taught (n = {len(taught)})."
                )
    return said


def _power() -> list[str]:
    said = [_progress("five-seeds")]
    for dataset in ("cifar100", "cifar10"):
        for lead in _main_leads(dataset, [*PRINTED]):
            paper, item = PRINTED[lead.own, lead.other]
            printed, half = reported.lead(paper, item, lead.own, lead.other, dataset, 100), lead.last[1]
            seen = "larger" if abs(printed) > half else "smaller"
            said.append(
                f"{labels.dataset(dataset)}, {lead.own} against {lead.other}: the interval is ± {half:.2f} (n = {lead.n}), and the "
                f"printed {printed:+.2f} is {seen} than that. Ours is {lead.last[0]:+.2f}: {lead.verdict}."
            )
    return said


_ANSWERS: dict[str, Callable[[], list[str]]] = {
    "length": _length,
    "tuning": _tuning,
    "batch": _batch,
    "training": _training,
    "decay": _decay,
    "compute": _compute,
    "seed": _their_seed,
    "precision": _precision,
    "gpu": _on_a_gpu,
    "again": _written_again,
    "exchange": _exchange,
    "participation": _participation,
    "reduced": _reduced,
    "power": _power,
}
