"""The ledger of what the four papers claim in prose: recomputed from their own tables, and judged by our runs.

`papers/ledger.csv` holds, for each row of `papers/claims.csv`, the claim in our words and two recipes, a function's name and
its arguments: `tables` (one of TABLES) recomputes the claim from the paper's printed tables, `check` (one of `verdicts.CHECKS`) judges
it by runs. A claim without a recipe cannot be recomputed (drawn only), or has nothing that a run could be held against.
"""

import shlex
from collections.abc import Callable, Sequence
from importlib.resources import files

import pandas as pd

from . import verdicts
from .papers.printed import reported

AGREES, LAST_DIGIT, DISAGREES, NO_TABLE = "agrees", "off in the last digit", "disagrees", "no table to check"
AGREEMENTS = (AGREES, LAST_DIGIT, DISAGREES, NO_TABLE)


def ledger() -> pd.DataFrame:
    """The claims with our wording and recipes; one row a claim, numbered from 1 as in claims.csv."""
    folder = files("fedlib.papers")
    with folder.joinpath("claims.csv").open() as file, folder.joinpath("ledger.csv").open() as own:
        claims = pd.read_csv(file, dtype={"value": str}).rename(columns={"item": "where", "value": "printed"})
        words = pd.read_csv(own, keep_default_na=False).set_index("row")
    claims.index = pd.RangeIndex(1, len(claims) + 1, name="row")
    return claims.join(words, validate="one_to_one").drop(columns="note")


# ------------------------------------------------------------------------------------------ from the papers' own tables

Recomputed = tuple[float, str]  # the number, and how it came about


def cells(paper: str, item: str, metric: str = "accuracy", datasets: Sequence[str] = ()) -> pd.DataFrame:
    """A printed table's rows whose metric ends in `metric`, of some data sets or of all; dashes left out."""
    table = reported(paper, item)
    table = table[table["dataset"].isin(datasets)] if datasets else table
    return table[table["metric"].str.endswith(metric)].dropna(subset=["value"])


def numbers(table: pd.DataFrame, method: str, dataset: str, setting: str) -> pd.Series:
    """The numbers of a method and data set whose setting is, or begins with, `setting` (empty: any)."""
    found = table[(table["method"] == method) & (table["dataset"] == dataset)]
    if setting:
        found = found[(found["setting"] + " ").str.startswith(f"{setting} ")]
    return found["value"]


def number(table: pd.DataFrame, method: str, dataset: str, setting: str) -> float:
    """The one number of `numbers`."""
    return float(numbers(table, method, dataset, setting).item())


def _largest_gain(paper: str, item: str, method: str) -> Recomputed:
    """Over the settings, the method's lead over the best other, in points."""
    leads = []
    for _, rows in cells(paper, item).groupby(["dataset", "setting"]):
        by_method = rows.set_index("method")["value"]
        others = by_method.drop(method)
        leads.append(
            (by_method[method] - others.max(), f"{by_method[method]:.2f} - {others.max():.2f} ({others.idxmax()})")
        )
    return max(leads)


def _relative_gain(paper: str, item: str, method: str, other: str, dataset: str, setting: str) -> Recomputed:
    own, base = (number(cells(paper, item), name, dataset, setting) for name in (method, other))
    return 100 * (own / base - 1), f"{own:.2f} / {base:.2f} - 1; {own - base:.2f} points"


def _relative_gain_of_means(paper: str, item: str, method: str, other: str, dataset: str) -> Recomputed:
    table = cells(paper, item, datasets=[dataset])
    own, base = (table[table["method"] == name]["value"].mean() for name in (method, other))
    return 100 * (own / base - 1), f"{own:.3f} / {base:.3f} - 1; {own - base:.2f} points"


def _saved(paper: str, item: str, method: str, other: str, dataset: str) -> Recomputed:
    table = cells(paper, item, "communication to target")
    own, base = (number(table, name, dataset, "") for name in (method, other))
    return 100 * (1 - own / base), f"1 - {own:.2f} / {base:.2f}"


def _saved_by_ratio(ratio: str) -> Recomputed:
    return 100 * (1 - 1 / float(ratio)), f"1 - 1 / {ratio}"


def _wins(paper: str, item: str, method: str, *datasets: str) -> Recomputed:
    """In how many settings the method is the highest by itself."""
    table = cells(paper, item, datasets=datasets)
    groups = [
        rows.set_index("method")["value"]
        for _, rows in table.groupby(["dataset", "setting"])
        if method in set(rows["method"])
    ]
    return sum(rows[method] > rows.drop(method).max() for rows in groups), f"of {len(groups)} settings"


def _fewest(paper: str, item: str, method: str) -> Recomputed:
    """On how many data sets the method needs the fewest rounds, those that communicate compared."""
    table = cells(paper, item, "rounds to target").query("value > 0")
    groups = [rows.set_index("method")["value"] for _, rows in table.groupby("dataset")]
    return sum(rows[method] < rows.drop(method).min() for rows in groups), f"of {len(groups)} data sets"


def _cheap_rank(paper: str, item: str, method: str, dataset: str) -> Recomputed:
    table = cells(paper, item, "communication to target", [dataset]).query("value > 0")
    ranked = table.set_index("method")["value"].sort_values()
    return list(ranked.index).index(method) + 1, ", ".join(f"{name} {value:.2f}" for name, value in ranked.items())


def _order(paper: str, item: str, *methods: str) -> Recomputed:
    """In how many settings the methods stand in this order, highest first."""
    table = cells(paper, item).pivot_table(index=["dataset", "setting"], columns="method", values="value")[
        list(methods)
    ]
    return int((table.diff(axis=1).iloc[:, 1:] < 0).all(axis=1).sum()), f"of {len(table)} settings"


def _pairs(paper: str, item: str, high: str, low: str, method: str = "", *datasets: str) -> Recomputed:
    """How many cells of settings that name `high` exceed the same cell of the setting that names `low` instead."""
    table = cells(paper, item, datasets=datasets)
    table = table[table["method"] == method] if method else table
    rows = table[["method", "dataset", "setting", "value"]].itertuples(index=False, name=None)
    by_cell = {(name, data, setting): value for name, data, setting, value in rows}
    pairs = [
        (value, by_cell[name, data, setting.replace(high, low)])
        for (name, data, setting), value in by_cell.items()
        if f" {high}" in setting
    ]
    return sum(more > less for more, less in pairs), f"of {len(pairs)} pairs of cells"


def _lower_in(paper: str, item: str, start: str, than_item: str, than_start: str, dataset: str) -> Recomputed:
    """How many cells of a table, whose settings begin with `start`, are below the same cell of another."""
    above = cells(paper, than_item, datasets=[dataset])
    pairs = [
        (number(above, row["method"], dataset, row["setting"].replace(start, than_start)), row["value"])
        for row in cells(paper, item, datasets=[dataset]).to_dict("records")
    ]
    return sum(more > less for more, less in pairs), f"of {len(pairs)} cells"


def _header(paper: str, item: str, num_classes: str) -> Recomputed:
    (width,) = set(cells(paper, item, "FC2 width")["value"])
    return int(num_classes) * width, f"{num_classes} classes x width {width:.0f}, bias left out"


def _reach(paper: str, item: str, dataset: str, setting: str, *methods: str) -> Recomputed:
    """The lowest printed accuracy among the compared methods, which a target must not exceed."""
    values = {name: number(cells(paper, item), name, dataset, setting) for name in methods}
    return min(values.values()), ", ".join(f"{name} ends at {value:.2f}" for name, value in values.items())


TABLES: dict[str, Callable[..., Recomputed]] = {
    "largest_gain": _largest_gain,
    "relative_gain": _relative_gain,
    "relative_gain_of_means": _relative_gain_of_means,
    "saved": _saved,
    "saved_by_ratio": _saved_by_ratio,
    "wins": _wins,
    "fewest": _fewest,
    "cheap_rank": _cheap_rank,
    "order": _order,
    "pairs": _pairs,
    "lower_in": _lower_in,
    "header": _header,
    "reach": _reach,
}


def recompute(recipe: str) -> Recomputed | None:
    """The claimed number from the paper's own tables; None where it prints none to compute it from."""
    if not recipe:
        return None
    name, *arguments = shlex.split(recipe)
    value, how = TABLES[name](*arguments)
    return float(value), how


def agreement(printed: str, recipe: str) -> str:
    """Whether a printed number is what the paper's own table gives, to its last digit; a count must be met exactly, a target
    reached.
    """
    found = recompute(recipe)
    if found is None:
        return NO_TABLE
    if recipe.startswith("reach "):
        return AGREES if found[0] >= float(printed) else DISAGREES
    digits = len(printed.partition(".")[2])
    apart, unit = abs(found[0] - float(printed)), 10.0**-digits
    if apart <= 0.5 * unit + 1e-9:
        return AGREES
    return LAST_DIGIT if digits and apart <= 1.5 * unit else DISAGREES


def judged(table: pd.DataFrame, found: verdicts.Evidence) -> pd.DataFrame:
    """A ledger with `recomputed`, `how` and `own table` from the papers' tables, `verdict` and `evidence` from runs."""
    rows = []
    for row in table.to_dict("records"):
        value = recompute(row["tables"])
        printed = float(row["printed"])  # NaN: a claim without a number
        finding = verdicts.judge(printed, row["check"], found)
        rows.append(
            {
                "recomputed": "" if value is None else f"{value[0]:.2f}".removesuffix(".00"),
                "how": "" if value is None else value[1],
                "own table": agreement(row["printed"], row["tables"]),
                "verdict": finding.verdict,
                "evidence": finding.evidence,
            }
        )
    return table.join(pd.DataFrame(rows, index=table.index))


def tally(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """How many claims of each paper (rows) have each value of `column` (`own table` or `verdict`)."""
    order = AGREEMENTS if column == "own table" else verdicts.VERDICTS
    counts = pd.crosstab(table["paper"], table[column]).reindex(columns=order, fill_value=0)
    return counts.loc[list(dict.fromkeys(table["paper"])), counts.sum() > 0].rename_axis(columns=None)
