"""Tables: what the papers report, what our runs give, with intervals, a named selection rule and failures shown.

Takes tidy tables, never trains, never imports torch. Accuracies are fractions of 1 in records and per cent in tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from .errors import choose, require
from .papers.reported import ACCURACY, reported

SELECTION_RULES = {
    "last": "the last round",
    "last10": "the mean of the last ten rounds",
    "validation": "the round of best mean validation accuracy",
    "best": "the round of best mean test accuracy (selects on the test split)",
}


class RunTables(Protocol):
    """What a table needs of a run: `runs.Record` has it."""

    @property
    def key(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def rounds(self) -> pd.DataFrame: ...


def printed(paper: str, item: str) -> pd.DataFrame:
    """A paper's accuracy table with our names: method, dataset, clients, value (per cent, NaN: a dash).

    clients: `N = 10, C = 100 %`; in pFedHR, whose tables have one N each, `labelled, Non-IID` or `M1, IID`.
    """
    table = reported(paper, item)
    table = table[table["metric"].isin(ACCURACY)]
    clients = [_clients(row) for row in table.to_dict("records")]
    return table.assign(clients=clients)[["method", "dataset", "clients", "value"]]


_SMALL_MODELS = {"homogeneous-M1": "M1", "homogeneous-M4": "M4"}


def _clients(row: Mapping[Any, Any]) -> str:
    """Our name of a printed setting."""
    if not row["distribution"]:
        return f"N = {row['num_clients']}, C = {round(100 * row['participation'])} %"
    return f"{row['public_labels'] or _SMALL_MODELS[row['models']]}, {row['distribution']}"


def selected_accuracy(rounds: pd.DataFrame, rule: str, column: str = "accuracy") -> float:
    """The accuracy (a fraction) that `rule` reports from a record's rounds; see SELECTION_RULES."""
    choose("selection rule", rule, SELECTION_RULES)
    trained = rounds[rounds["round"] >= 0]
    if rule == "last":
        return float(trained[column].iloc[-1])
    if rule == "last10":
        return float(trained[column].tail(10).mean())
    by = "validation_accuracy" if rule == "validation" else column
    allowed = "last, last10 or best: under this protocol clients have no validation images"
    require(bool(trained[by].notna().any()), "rule", rule, allowed)
    return float(trained[column].iloc[int(trained[by].to_numpy().argmax())])


def interval(values: Sequence[float] | np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Mean and half-width of its Student t interval, of 95 % unless `level` says; the half-width of a single value is NaN."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 2:
        return float(sample.mean()), float("nan")
    from scipy.stats import t

    return float(sample.mean()), float(
        t.ppf(0.5 + level / 2, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    )


SUMMARY = ("ours", "ci95", "n", "diverged", "selected")  # columns that `summarise` adds to a group's labels


def summarise(
    runs: Iterable[tuple[Mapping[str, Any], RunTables]], rule: str = "last", column: str = "accuracy"
) -> pd.DataFrame:
    """One row a group of runs that differ in their seed only: the labels, mean and interval in per cent, n, diverged.

    runs: (labels, record) pairs; labels such as {"method": ..., "setting": ...} name the group. A group with a diverged run
    has no mean. `selected` is the mean over the clients that the round selected, which the released code reports: the same
    number where all of them are.
    """
    groups: dict[tuple[Any, ...], list[RunTables]] = {}
    names: list[str] = []
    for labels, record in runs:
        names = list(labels)
        groups.setdefault(tuple(labels.values()), []).append(record)
    rows = []
    for values, records in groups.items():
        diverged = sum(record.status == "diverged" for record in records)
        accuracies = [100 * selected_accuracy(record.rounds, rule, column) for record in records]
        mean, half = (np.nan, np.nan) if diverged else interval(accuracies)
        selected = [100 * selected_accuracy(record.rounds, rule, "accuracy_selected") for record in records]
        rows.append(
            dict(zip(names, values, strict=True))
            | {"ours": mean, "ci95": half, "n": len(records), "diverged": diverged}
            | {"selected": np.nan if diverged else float(np.mean(selected))}
        )
    return pd.DataFrame(rows)


def effects(
    runs: Iterable[tuple[str, str, int, RunTables]], reference: str, rule: str = "last", instead: Mapping[str, str] = {}
) -> pd.DataFrame:
    """What each case changes against the case `reference`: differences case - reference, paired by seed, in points.

    runs: (case, dataset, seed, record); instead: case -> another reference for it. One row a dataset and case: `against`;
    `ours`, the mean over all clients in per cent; `difference` and `ci95` over the `n` seeds that both have (NaN: one seed, or
    a run diverged); the same of the clients that the round selected, as `selected`, `selected_difference`, `selected_ci95`.
    Cases without such a seed are left out.
    """
    found: dict[tuple[str, str], dict[int, RunTables]] = {}
    for case, dataset, seed, record in runs:
        found.setdefault((dataset, case), {})[seed] = record
    rows = []
    for (dataset, case), records in found.items():
        against = instead.get(case, reference)
        others = found.get((dataset, against), {})
        seeds = [seed for seed in records if seed in others]
        if case == against or not seeds:
            continue
        row: dict[str, Any] = {"case": case, "against": against, "dataset": dataset, "n": len(seeds)}
        diverged = any(run.status == "diverged" for seed in seeds for run in (records[seed], others[seed]))
        for name, prefix, column in (("ours", "", "accuracy"), ("selected", "selected_", "accuracy_selected")):
            own, other = (
                np.array([100 * selected_accuracy(some[seed].rounds, rule, column) for seed in seeds])
                for some in (records, others)
            )
            mean, half = (np.nan, np.nan) if diverged else interval(own - other)
            row |= {name: float(own.mean()), f"{prefix}difference": mean, f"{prefix}ci95": half}
        rows.append(row)
    return pd.DataFrame(rows, columns=EFFECTS)


EFFECTS = [
    "case", "against", "dataset", "n",
    "ours", "difference", "ci95", "selected", "selected_difference", "selected_ci95",
]  # fmt: skip


def effect_sentences(table: pd.DataFrame) -> list[str]:
    """Each row of `effects` in words: the size, both means, the number of seeds, and whether the interval excludes 0."""
    said = []
    for row in table.to_dict("records"):
        if np.isnan(row["difference"]):
            said.append(f"{row['dataset']}: {row['case']}: a run diverged.")
            continue
        if row["n"] == 1:
            sure = "one seed, so no interval"
        else:
            excludes = abs(row["difference"]) > row["ci95"]
            sure = f"± {row['ci95']:.2f} over {row['n']} seeds, which {'excludes' if excludes else 'holds'} 0"
        said.append(
            f"{row['dataset']}: {row['case']}: {row['difference']:+.2f} points against {row['against']} ({sure}); "
            f"over the selected clients {row['selected_difference']:+.2f}."
        )
    return said


def cell(mean: float, half: float, n: int, diverged: int = 0) -> str:
    """`96.5 ± 0.3`; a dash with its reason where a run diverged; one seed says so."""
    if diverged:
        return f"– ({diverged} of {n} diverged)"
    if np.isnan(mean):
        return "–"
    return f"{mean:.2f} (n = 1)" if n == 1 else f"{mean:.2f} ± {half:.2f}"


def beside_paper(ours: pd.DataFrame, paper: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """`summarise`'s rows with the paper's number, the difference (ours - paper, points) and a verdict.

    paper: columns `on` and `value` in per cent. The verdict speaks only where several seeds give an interval.
    """
    table = ours.merge(paper[[*on, "value"]].rename(columns={"value": "paper"}), on=list(on), how="left")
    table["difference"] = table["ours"] - table["paper"]
    table["verdict"] = [_verdict(row) for row in table.to_dict("records")]
    return table


def _verdict(row: Mapping[Any, Any]) -> str:
    if row["diverged"]:
        return "diverged" if not np.isnan(row["paper"]) else "diverges, as in the paper"
    if np.isnan(row["paper"]):
        return "the paper prints none"
    if row["n"] == 1:
        return "one seed: no verdict"
    if abs(row["difference"]) <= row["ci95"]:
        return "the interval holds the paper's"
    return "above the paper's" if row["difference"] > 0 else "below the paper's"


def standing(table: pd.DataFrame, method: str, claimed: bool = False) -> list[str]:
    """What `table` says of `method` against the others, a sentence a setting: its rank by our means, its lead over the best
    other one, the lead that the paper prints over the best of the same ones, and whether the direction is the same.

    table: `beside_paper`'s rows; claimed: the paper claims a lead where it prints no number. `holds` needs
    intervals that do not touch; an empty table gives one sentence that says so.
    """
    sentences = []
    for setting, group in table.dropna(subset=["ours"]).groupby("setting", sort=False):
        rows = group.to_dict("records")
        others = [row for row in rows if row["method"] != method]
        if len(others) in (0, len(rows)):
            continue
        (mine,) = (row for row in rows if row["method"] == method)
        best = max(others, key=lambda row: row["ours"])
        lead, rank = mine["ours"] - best["ours"], 1 + sum(row["ours"] > mine["ours"] for row in others)
        ours = f"{method} {mine['ours']:.2f}, rank {rank} of {len(rows)}, {lead:+.2f} against {best['method']}"
        ours = f"{setting}: {ours} (n = {min(mine['n'], best['n'])})"
        rivals = [row for row in others if not np.isnan(row["paper"])]
        if not np.isnan(mine["paper"]) and rivals:
            rival = max(rivals, key=lambda row: row["paper"])
            printed = mine["paper"] - rival["paper"]
            said = f"in the paper {printed:+.2f} against {rival['method']}"
        elif claimed:
            printed, said = 1.0, "the paper claims a lead"
        else:
            sentences.append(f"{ours}; the paper prints nothing to compare with.")
            continue
        clear = abs(lead) > mine["ci95"] + best["ci95"]  # false while an interval is NaN, of one seed
        verdict = ("holds" if clear else "holds in direction") if lead * printed > 0 else "does not hold"
        sentences.append(f"{ours}; {said}: {verdict}.")
    return sentences or [NO_RECORD]


NO_RECORD = "No result of record compares these methods yet: not testable here."


def with_selected(table: pd.DataFrame, methods: Sequence[str], column: str = "setting") -> pd.DataFrame:
    """Methods down, settings across: the mean over the selected clients (per cent) and its difference from the mean over all.

    table: `summarise`'s rows.
    """
    pairs = zip(table["selected"], (table["selected"] - table["ours"]).round(2) + 0.0, strict=True)  # no -0.00
    text = table.assign(text=[f"{mean:.2f} ({more:+.2f})" for mean, more in pairs])
    shown = text.pivot_table(index="method", columns=column, values="text", aggfunc="first", sort=False)
    return (
        shown.reindex(index=[name for name in methods if name in shown.index])
        .fillna("not yet")
        .rename_axis(columns=None)
    )


_MARKS = (" *", " °")


@dataclass(frozen=True)
class Ranked:
    """A table of text cells, the best of each column in bold and the second underlined (in plain text: * and °)."""

    table: pd.DataFrame

    def __repr__(self) -> str:
        return self.table.to_string()

    def _repr_html_(self) -> str:
        return self._marked("<b>{}</b>", "<u>{}</u>").to_html(escape=False)

    def latex(self, caption: str = "") -> str:
        """As a LaTeX table for the booktabs package."""
        special = str.maketrans({"%": r"\%", "±": r"$\pm$", "–": "--", "_": r"\_", "&": r"\&", "λ": r"$\lambda$"})
        table = self._marked("BOLD{}END", "LINE{}END").map(lambda text: text.translate(special))
        table = table.map(
            lambda text: text.replace("BOLD", r"\textbf{").replace("LINE", r"\underline{").replace("END", "}")
        )
        table.columns = [str(column).translate(special) for column in table.columns]
        table.index = pd.Index([str(name).translate(special) for name in table.index], name=self.table.index.name)
        return table.to_latex(caption=caption.translate(special) or None)

    def _marked(self, best: str, second: str) -> pd.DataFrame:
        def marked(text: str) -> str:
            for mark, style in zip(_MARKS, (best, second), strict=True):
                if text.endswith(mark):
                    return style.format(text.removesuffix(mark))
            return text

        return self.table.map(marked)


def wide(table: pd.DataFrame, methods: Sequence[str], column: str = "setting", absent: str = "not yet") -> Ranked:
    """Methods down, settings across, one text cell each; the best of a setting is bold and the second underlined.

    table: `summarise`'s rows. A method of `methods` without a row prints as `absent`. Means that print alike share their mark, and a
    setting whose means all print alike has none.
    """
    marks: dict[Any, str] = {}
    for _, group in table.dropna(subset=["ours"]).groupby(column, sort=False):
        means = group["ours"].astype(float).round(2)
        places = means.rank(method="min", ascending=False)
        if means.min() < means.max():
            marks |= {index: _MARKS[int(place) - 1] for index, place in places.items() if place <= len(_MARKS)}
    text = {
        (row["method"], row[column]): cell(row["ours"], row["ci95"], row["n"], row["diverged"]) + marks.get(index, "")
        for index, row in table.iterrows()
    }
    settings = list(dict.fromkeys(table[column]))
    rows = {method: [text.get((method, setting), absent) for setting in settings] for method in methods}
    result = pd.DataFrame.from_dict(rows, orient="index", columns=settings)
    result.index.name = "method"
    return Ranked(result)


def caption(
    *, scale: str, datasets: Sequence[str], embedded: bool, protocol: str, rule: str, seeds: int, average: str = "all"
) -> str:
    """The sentence that every table carries: data, scale, protocol, seeds, selection rule, whose mean."""
    spread = "one seed, no interval" if seeds == 1 else f"mean and 95 % interval over {seeds} seeds"
    stand_in = " Embedded data: a stand-in that shows the mechanics, not comparable with the paper." if embedded else ""
    whose = "all clients" if average == "all" else "the selected clients"
    return (
        f"Mean test accuracy in per cent over {whose}, {SELECTION_RULES[rule]}; {spread}. "
        f"Data: {', '.join(datasets)}; scale {scale}; protocol {protocol}. Best in bold, second underlined.{stand_in}"
    )


@dataclass(frozen=True)
class Recorded:
    """A committed result of record: a run's row, its rounds and each client's last row (results/*.csv)."""

    key: str
    status: str
    row: Mapping[Any, Any]
    rounds: pd.DataFrame
    clients: pd.DataFrame


def recorded(folder: Path) -> list[Recorded]:
    """Every result of record in `folder` (results/): small committed CSV, so that what is read from it never changes by itself."""
    tables = {name: pd.read_csv(folder / f"{name}.csv") for name in ("runs", "rounds", "clients")}
    by_key = {name: dict(list(tables[name].groupby("key"))) for name in ("rounds", "clients")}
    return [
        Recorded(row["key"], row["status"], row, by_key["rounds"][row["key"]], by_key["clients"][row["key"]])
        for row in tables["runs"].to_dict("records")
    ]


def rounds_to_target(rounds: pd.DataFrame, target: float) -> int | None:
    """Rounds until the mean accuracy (a fraction, over all clients) first reaches `target`; None if it never does."""
    reached = rounds[(rounds["round"] >= 0) & (rounds["accuracy"] >= target)]
    return None if reached.empty else int(reached["round"].iloc[0]) + 1


def communication(words: pd.DataFrame, clients: int = 10, paper: str = "FedGH", item: str = "Table 3") -> pd.DataFrame:
    """A paper's communication columns recomputed, a row a printed number that is not 0.

    words: `costs.table`, words a client and round. `published` counts as the paper does, `real` every word that travels; totals
    are the paper's own number of rounds x `clients` a round x words. KB is 1024 bytes, MB 1024 KB.
    """
    table = reported(paper, item)
    rounds = table[table["metric"] == "rounds to target"].set_index(["dataset", "method"])["value"]
    rows = []
    for row in table[table["metric"].str.startswith("communication") & (table["value"] > 0)].to_dict("records"):
        per_round = row["metric"].endswith("round")
        visits = 1 if per_round else rounds[row["dataset"], row["method"]] * clients
        share = visits * 4 / (2**20 if row["unit"] == "MB" else 2**10)
        ours, real = (words.loc[row["method"], f"{row['dataset']}_{counted}"] for counted in ("published", "real"))
        rows.append(
            {"dataset": row["dataset"], "method": row["method"], "quantity": "CO/c/r" if per_round else "CO"}
            | {"unit": row["unit"], "paper": row["value"], "published": ours * share, "real": real * share}
            | {"verdict": "to the last digit" if f"{ours * share:.2f}" == f"{row['value']:.2f}" else "differs"}
            | {"published words": int(ours), "real words": int(real)}
        )
    return pd.DataFrame(rows)


def with_costs(ranked: Ranked, costs: pd.DataFrame) -> Ranked:
    """`wide`'s table with three columns after each setting's accuracy: KB a client and round, rounds and KB to the target.

    costs: `notebook.Runs.targets`'s rows. A dash: the target was not reached.
    """
    columns: dict[str, list[str]] = {}
    for setting in ranked.table.columns:
        rows = costs[costs["setting"] == setting].set_index("method")
        columns[setting] = list(ranked.table[setting])
        target = f"rounds ({rows['target'].iloc[0]:g} %)"
        shown = {"KB/c/r": ("per_round_kb", ".2f"), target: ("rounds", ".3g"), "total KB": ("total_kb", ".2f")}
        for label, (name, style) in shown.items():
            values = rows[name].reindex(ranked.table.index)
            columns[f"{setting.split(',')[0]}: {label}"] = [
                "–" if np.isnan(value) else f"{value:{style}}" for value in values
            ]
    return Ranked(pd.DataFrame(columns, index=ranked.table.index))


def beside_costs(costs: pd.DataFrame, paper: str = "FedGH", item: str = "Table 3") -> pd.DataFrame:
    """`notebook.Runs.targets`'s rows with the paper's numbers beside them, in KB of 1024 bytes; NaN: a dash, or not reached."""
    names = {"per round": "per_round_kb", "rounds to target": "rounds", "communication to target": "total_kb"}
    table = costs.copy()
    for metric, name in names.items():
        printed = reported(paper, item)
        printed = printed[printed["metric"].str.endswith(metric)]
        values = printed["value"] * printed["unit"].map({"MB": 1024.0}).fillna(1.0)
        values.index = pd.MultiIndex.from_frame(printed[["dataset", "method"]])
        keys = pd.MultiIndex.from_frame(table[["dataset", "method"]])
        table.insert(list(table.columns).index(name), f"paper_{name}", values.reindex(keys).to_numpy())
    return table


def cost_ratios(costs: pd.DataFrame, over: str, under: str) -> pd.DataFrame:
    """What method `over` spent until the target accuracy by what `under` did, a row a setting: dataset, clients, words, flops, note.

    costs: `notebook.Runs.costs`'s rows. The ratios are NaN where one of the two never reached the target or has not been run.
    """
    rows = []
    for (dataset, clients), group in costs.groupby(["dataset", "clients"], sort=False):
        both = {row["method"]: row for row in group.to_dict("records")}
        absent = [name for name in (over, under) if name not in both]
        short = [name for name in (over, under) if name in both and not both[name]["reached"]]
        reasons = {"not run": absent, "target not reached": short}
        note = "; ".join(f"{reason}: {', '.join(names)}" for reason, names in reasons.items() if names)
        ratios = {name: float("nan") if note else both[over][name] / both[under][name] for name in ("words", "flops")}
        rows.append({"dataset": dataset, "clients": clients} | ratios | {"note": note})
    return pd.DataFrame(rows, columns=["dataset", "clients", "words", "flops", "note"])


def model_sizes(sizes: Mapping[str, int], paper: str = "FedSSA", item: str = "Table 3") -> pd.DataFrame:
    """Our float32 sizes in MiB beside the papers' model-size rows; sizes: architecture -> number of floats."""
    printed = reported(paper, item).query("metric == 'model size'").set_index("method")["value"]
    table = pd.DataFrame({"floats": pd.Series(dict(sizes)), "paper (MB)": printed})
    table.insert(1, "ours (MiB)", (table["floats"] * 4 / 2**20).round(2))
    table["verdict"] = [
        "as printed" if abs(a - b) < 0.011 else "the paper errs"
        for a, b in zip(table["ours (MiB)"], table["paper (MB)"], strict=True)
    ]
    return table
