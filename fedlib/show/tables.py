"""Tables and sentences from tidy rows: methods down, settings across, best and second marked, as text, HTML and LaTeX."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from .. import metrics
from . import labels
from .intervals import SELECTION_RULES

NEVER_TAUGHT = "– (never taught)"  # pFedHR without any candidate: plain local training


def cell(mean: float, half: float, n: int, diverged: int = 0) -> str:
    """`96.5 ± 0.3`; a dash with its reason where a run diverged; one seed says so."""
    if diverged:
        return f"– ({diverged} of {n} diverged)"
    if np.isnan(mean):
        return "–"
    return f"{mean:.2f} (n = 1)" if n == 1 else f"{mean:.2f} ± {half:.2f}"


def format_difference(mean: float, half: float, n: int = 0) -> str:
    """`+1.20 ± 0.80 (n = 3)` of a difference in points, n where it is given; without an interval (NaN), of one seed, the
    difference alone; a dash for NaN.
    """
    if np.isnan(mean):
        return "–"
    return f"{mean:+.2f}" + ("" if np.isnan(half) else f" ± {half:.2f}") + (f" (n = {n})" if n else "")


def plain(value: float) -> str:
    """`96.50`, and a dash for NaN."""
    return "–" if np.isnan(value) else f"{value:.2f}"


BEST, SECOND = "best", "second"
MARKED = "Best in bold, second underlined."
_SPECIAL = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "%_&#${}"}
    | {"±": r"$\pm$", "–": "--", "°": r"$^\circ$", "λ": r"$\lambda$", "μ": r"$\mu$", "γ": r"$\gamma$"}
)


@dataclass(frozen=True)
class Ranked:
    """A table of text cells and, in `marks` of the same shape, which of them are "best" or "second" of their column.

    Best is bold and second underlined in HTML and LaTeX; plain text has `*` and `°` and says so in a line under the table.
    """

    table: pd.DataFrame
    marks: pd.DataFrame
    note: str = ""  # a sentence under the table

    def __repr__(self) -> str:
        return "\n".join(part for part in (self.text().to_string(), self.footer) if part)

    @property
    def footer(self) -> str:
        """What the signs of `text` mean, where there are any, and the table's note."""
        used = set(self.marks.to_numpy().ravel())
        said = [f"{sign} {mark}" for sign, mark in (("*", BEST), ("°", SECOND)) if mark in used]
        legend = f"Of its column: {', '.join(said)}." if said else ""
        return " ".join(part for part in (legend, self.note) if part)

    def text(self) -> pd.DataFrame:
        """The table with `*` after the best of a column and `°` after the second."""
        return self.table + self.marks.map({BEST: " *", SECOND: " °", "": ""}.get)

    def _repr_html_(self) -> str:
        """Without ids and style sheets: the same whenever it is made, and shown where style sheets are stripped, as on GitHub."""
        under = " ".join(part for part in (MARKED if self.footer != self.note else "", html.escape(self.note)) if part)
        styler = self._styled(html.escape, "<b>{}</b>", "<u>{}</u>")
        return str(styler.to_html(exclude_styles=True, caption=under or None))

    def to_latex(self, caption: str = "") -> str:
        """As a LaTeX table for the booktabs package; caption: by default the note."""
        styler = self._styled(latex_text, r"\textbf{{{}}}", r"\underline{{{}}}")
        return str(styler.to_latex(caption=latex_text(caption or self.note) or None, hrules=True))

    def to_markdown(self) -> str:
        """As a Markdown table, best in bold, second in italics, the note beneath."""
        signs = {BEST: "**{}**", SECOND: "*{}*", "": "{}"}
        rows = [
            [str(name), *(signs[mark].format(text) for text, mark in zip(own, marks, strict=True))]
            for name, own, marks in zip(self.table.index, self.table.to_numpy(), self.marks.to_numpy(), strict=True)
        ]
        head = [str(self.table.index.name or ""), *map(str, self.table.columns)]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [head, *rows]]
        return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:], *(["", self.note] if self.note else [])])

    def _styled(self, escape: Callable[[str], str], best: str, second: str) -> Styler:
        def form_of(form: str) -> Callable[[object], str]:
            return lambda text: form.format(escape(str(text)))

        plain = form_of("{}")
        styler = self.table.style.format(plain).format_index(plain, axis="index").format_index(plain, axis="columns")
        for mark, form in ((BEST, form_of(best)), (SECOND, form_of(second))):
            for column, marks in self.marks.items():
                styler.format(form, subset=(marks.index[marks == mark], [column]))
        return styler


@dataclass(frozen=True)
class Readable:
    """A table of words: a notebook wraps them and begins all at the left; of numbers two digits are shown, and a dash for none."""

    table: pd.DataFrame

    def __repr__(self) -> str:
        return self.table.to_string(na_rep="–", float_format="{:.2f}".format)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            made = self.table.to_html(border=0, na_rep="–", float_format="{:.2f}".format)
        style = "text-align: left; vertical-align: top; white-space: normal"
        return re.sub(r"<(td|th)>", rf'<\1 style="{style}">', made)


def latex_text(text: str) -> str:
    """`text` with LaTeX's special characters escaped."""
    return text.translate(_SPECIAL)


def ranks(values: Sequence[float], higher_is_better: bool = True) -> list[str]:
    """ "best", "second" or "" for each value: all tied bests (as printed, to two digits) are marked alike, a second only behind a
    single best, and nothing where all are equal.
    """
    shown = pd.Series(values, dtype=float).round(2)
    if shown.nunique() < 2:
        return [""] * len(shown)
    places = shown.rank(method="min", ascending=not higher_is_better)
    return [BEST if place == 1 else SECOND if place == 2 else "" for place in places]


def wide(
    table: pd.DataFrame,
    methods: Sequence[str],
    column: str = "setting",
    absent: str = "not run",
    metric: str = "accuracy",
) -> Ranked:
    """Methods down, settings across, one text cell each, the best and the second of a setting marked.

    table: `intervals.summarise`'s rows, of `metric`. A method of `methods` without a row prints as `absent`. A setting whose rows differ in
    their number of seeds is not ranked, and pFedHR that had no candidate in any round prints as a dash.
    """
    marks: dict[tuple[Any, Any], str] = {}
    higher_is_better = metrics.find(metric).higher_is_better
    unequal = False
    for setting, group in table.groupby(column, sort=False):
        ranked = group.dropna(subset=["ours"])
        ranked = ranked[ranked["taught"] != 0] if "taught" in ranked else ranked
        if len(set(ranked["n"])) > 1:
            unequal = True
            continue
        keys = zip(ranked["method"], [setting] * len(ranked), strict=True)
        marks |= dict(zip(keys, ranks(ranked["ours"].tolist(), higher_is_better), strict=True))
    text = {
        (row["method"], row[column]): NEVER_TAUGHT
        if row.get("taught") == 0
        else cell(row["ours"], row["ci95"], row["n"], row["diverged"])
        for row in table.to_dict("records")
    }
    settings = list(dict.fromkeys(table[column]))
    index = pd.Index(methods, name="method")

    def frame(found: Mapping[tuple[Any, Any], str], otherwise: str) -> pd.DataFrame:
        cells = {setting: [found.get((method, setting), otherwise) for method in methods] for setting in settings}
        return pd.DataFrame(cells, index=index)

    note = "A column whose rows differ in n is not ranked." if unequal else ""
    return Ranked(frame(text, absent), frame(marks, ""), note)


def in_full(table: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """One row per setting and method: the mean over the visited clients with its interval and n, the means over all and over the
    selected clients (per cent), the difference to the best other method, paired by seed, with its interval and n, and, of pFedHR,
    how often a selected client had a teacher (per cent).

    table: `results.Runs.summary`'s rows.
    """
    rows = []
    for row in table[table["method"].isin(methods)].to_dict("records"):
        text = cell(row["ours"], row["ci95"], row["n"], row["diverged"])
        shown = {
            "setting": row["setting"],
            "method": row["method"],
            "visited": text if row["n"] == 1 or np.isnan(row["ours"]) else f"{text} (n = {row['n']})",
            "all": plain(row["all"]),
            "selected": plain(row["selected"]),
            "paired difference": _paired(row),
        }
        if not np.isnan(row.get("taught", np.nan)):
            shown["taught"] = labels.per_cent(row["taught"])
        rows.append(shown)
    settings, place = list(dict.fromkeys(table["setting"])), ["setting", "method"]
    rows.sort(key=lambda row: (settings.index(row["setting"]), methods.index(row["method"])))
    names = dict.fromkeys([*place, *(name for row in rows for name in row)])
    return pd.DataFrame(rows, columns=list(names)).fillna("").set_index(place)


def short(value: float) -> str:
    """A quantity of any size in three digits: `5,590`, `38.8`, `0.0116`; a dash for NaN."""
    return "–" if np.isnan(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _paired(row: Mapping[Any, Any]) -> str:
    """`+1.20 ± 0.80 to FedProto (n = 3)`; a dash where no other method has a common seed."""
    if not row["lead_n"] or np.isnan(row["lead"]):
        return "–"
    return f"{format_difference(row['lead'], row['lead_ci95'])} to {row['runner_up']} (n = {int(row['lead_n'])})"


def caption(
    *,
    scale: str,
    datasets: Sequence[str],
    embedded: bool,
    protocol: str,
    rule: str,
    seeds: int,
    note: str = "",
    metric: str = "accuracy",
) -> str:
    """The sentence that every table carries: metric and unit, data, scale, protocol, seeds, selection rule, whose mean; note:
    `results.note` of the runs in it, in place of scale and protocol.
    """
    shown = metrics.find(metric)
    unit = {"%": " in per cent", "": ""}.get(shown.unit, f" in {shown.unit}")
    said = shown.name not in metrics.METRICS and " over " in shown.title  # `accuracy_all` and the like
    whose = "" if said else " over the clients visited so far"
    spread = "one seed, no interval" if seeds == 1 else f"mean and 95 % interval over {seeds} seeds"
    stand_in = " Embedded data: a stand-in that shows the mechanics, not comparable with the paper." if embedded else ""
    return (
        f"{shown.title[0].upper()}{shown.title[1:]}{unit}{whose}, {SELECTION_RULES[rule]}; {spread}. "
        f"Data: {', '.join(labels.dataset(name) for name in datasets)}; {note or f'scale {scale}; protocol {protocol}'}. "
        f"{MARKED}{stand_in}"
    )


def lead_sentences(
    leads: pd.DataFrame, method: str, reference: str, at: Sequence[int] = (10, 20, 50, 100)
) -> list[str]:
    """How far `method` stands above `reference` after `at` rounds, a sentence per setting; leads: `intervals.leads`'s rows."""
    said = []
    rows = leads[(leads["method"] == method) & leads["rounds"].isin(at)]
    for setting, own in rows.groupby("setting", sort=False):
        stood = [
            f"{format_difference(lead, half)} after {rounds}"
            for lead, half, rounds in zip(own["lead"], own["ci95"], own["rounds"], strict=True)
        ]
        said.append(f"{setting}: {method} above {reference}: {', '.join(stood)} rounds (n = {own['n'].iloc[0]}).")
    return said
