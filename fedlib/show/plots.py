"""One function per kind of figure: tidy data in, matplotlib figure out. Never trains.

Every method keeps its look in all figures (`looks`). Intervals and bands end at 0 and 100 %, a single seed is drawn hollow and
without an interval, and the axis of a nearly flat result is at least LEAST_SPAN points long, so that noise makes no peak.
"""

import functools
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, ParamSpec

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import MultipleLocator
from matplotlib.transforms import ScaledTranslation
from PIL import Image

from .. import metrics
from ..errors import choose
from ..look import Look
from . import labels
from .intervals import interval
from .looks import looks

Parameters = ParamSpec("Parameters")

STYLE: Any = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 200, "axes.grid": True,
    "grid.alpha": 0.25, "grid.linewidth": 0.5, "lines.linewidth": 1.4, "svg.hashsalt": "fedlib", "axes.formatter.useoffset": False,
}  # fmt: skip
SHOWN_DPI = 110  # in a notebook, where pictures have twice the pixels that they take on the page
LEAST_SPAN = 5.0  # points of accuracy
LEAST_BANDED = 3  # seeds: the interval of two is as wide as the panel
ACCURACY = metrics.METRICS["accuracy"]
BLUE, RED, GREY = "#0173b2", "#d55e00", "#949494"


class Picture(Figure):
    """A figure outside pyplot's state; a notebook shows its PNG with fewer pixels than a saved one has.

    It remembers what it depends on besides its data: drawn_by, the function of this module that drew it, and methods, the
    looks of the methods in it.
    """

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.drawn_by = ""
        self.methods: dict[str, Look] = {}
        self._notes: dict[str, None] = {}
        self._foot: Text | None = None

    def looks(self, names: Iterable[str]) -> dict[str, Look]:
        """The look of each of `names` in this picture."""
        asked = list(dict.fromkeys(names))
        self.methods = looks([*self.methods, *asked])
        return {name: self.methods[name] for name in asked}

    def note(self, text: str) -> "Picture":
        """Print a line at the foot of the picture, such as `results.note` makes: N, C, T, E, B, scale, protocol, n. Another one
        goes below it; the same one is printed once.
        """
        self._notes[text] = None
        if self._foot is not None:
            self._foot.remove()
        width = int(self.get_size_inches()[0] * 23)  # characters of this size
        boxes = [legend.get_window_extent() for legend in self.legends]
        below = min([0.0, *(box.y0 / self.bbox.height for box in boxes)])
        style: Any = {"fontsize": 6, "color": "#444444", "va": "top", "ha": "left"}
        self._foot = self.text(0.01, below - 0.01, _wrapped(self._notes, width), **style)
        return self

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """Write the picture into a file, legend and foot included, at 300 dpi where nothing else is said."""
        chosen: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.05, "dpi": 300} | kwargs
        super().savefig(fname, **chosen)

    def png(self, dpi: int = 300) -> bytes:
        """The picture as a PNG, the same bytes whenever it is drawn from the same data; dpi: 300, as printers ask for."""
        return self._drawn("png", {"Software": None}, dpi)

    def svg(self) -> bytes:
        """The picture as an SVG, the same bytes whenever it is drawn from the same data."""
        return self._drawn("svg", {"Date": None}, "figure")

    def _drawn(self, kind: str, metadata: dict[str, Any], dpi: int | Literal["figure"]) -> bytes:
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            if self.get_layout_engine() is not None:  # lay out once: each further pass would move things a little
                self.draw_without_rendering()
                self.set_layout_engine("none")
            super().savefig(buffer, format=kind, metadata=metadata, bbox_inches="tight", pad_inches=0.05, dpi=dpi)
        return buffer.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        dpi = STYLE["figure.dpi"]
        return _shown(self.png(dpi), dpi)


@dataclass(frozen=True)
class Saved:
    """A picture that was saved before, as a notebook shows it."""

    path: Path

    def __repr__(self) -> str:
        """The end of the path, since a notebook keeps this beside the picture."""
        return f"Saved({'/'.join(self.path.parts[-4:])})"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return _shown(self.path.read_bytes(), 300)


def _shown(drawn: bytes, dpi: float) -> tuple[bytes, dict[str, int]]:
    """A PNG drawn at `dpi`, and the width and height in which a notebook shows it."""
    width, height = (round(pixels * SHOWN_DPI / dpi) for pixels in Image.open(io.BytesIO(drawn)).size)
    return drawn, {"width": width, "height": height}


def label_stand_in(figure: Figure) -> None:
    """Say on the figure itself that its data are embedded ones."""
    text = "stand-in: embedded digits, not comparable with the paper"
    figure.suptitle(text, fontsize=6.5, color="#555555", x=0.99, ha="right")


# ---------------------------------------------------------------------------------------------- what the figures share


def _styled(draw: Callable[Parameters, Picture]) -> Callable[Parameters, Picture]:
    """Draw under STYLE, without touching the reader's matplotlib settings."""

    @functools.wraps(draw)
    def styled(*arguments: Parameters.args, **named: Parameters.kwargs) -> Picture:
        with mpl.rc_context(STYLE):
            picture = draw(*arguments, **named)
            picture.drawn_by = draw.__name__
            return picture

    return styled


def _panels(
    titles: Mapping[Any, str], width: float, height: float, columns: int = 3, xlabel: str = "", ylabel: str = ""
) -> tuple[Picture, dict[Any, Axes]]:
    """A figure with one panel of `width` x `height` inches per title; the first of each row has the label of the y axis. Without
    titles it says that nothing is there.
    """
    count = len(titles)
    if not count:
        figure = Picture(figsize=(3.4, 0.8), layout="constrained")
        figure.text(0.5, 0.5, "no runs to plot", ha="center", va="center")
        return figure, {}
    columns = 2 if count == 4 and columns == 3 else min(columns, count)  # no orphan in a second row
    rows = -(-count // columns)
    figure = Picture(figsize=(width * columns, height * rows + 0.3), layout="constrained")
    panels = {}
    for place, (key, title) in enumerate(titles.items()):
        axes = panels[key] = figure.add_subplot(rows, columns, place + 1)
        axes.set(
            title=_wrapped(title.splitlines(), int(17 * width)),
            xlabel=xlabel,
            ylabel=_wrapped([ylabel], int(17 * height)) if place % columns == 0 else "",
        )
    return figure, panels


def _wrapped(lines: Iterable[str], width: int) -> str:
    """Each line broken at `width` characters, but not within `n = 1` or `10 %`."""
    held = (line.replace(" = ", "\u00a0=\u00a0").replace(" %", "\u00a0%") for line in lines)
    return "\n".join(fill(line, width) for line in held).replace("\u00a0", " ")


def _single(width: float, height: float) -> tuple[Picture, Axes]:
    figure, panels = _panels({0: ""}, width, height)
    return figure, panels[0]


def _is_first(axes: Axes) -> bool:
    """Whether a panel is the first of its row."""
    place = axes.get_subplotspec()
    return place is None or place.is_first_col()


def _titles(table: pd.DataFrame, by: str = "setting", counted: bool = True) -> dict[Any, str]:
    """Value of the column `by` -> title of its panel: the data set's name and the setting, from the columns `dataset` and
    `clients` where the table has them; counted: and the number of seeds.
    """
    titles = {}
    for key, rows in table.groupby(by, sort=False):
        title = labels.dataset(str(key)) if by == "dataset" else str(key)
        if by == "setting" and {"dataset", "clients"} <= set(table.columns):
            title = f"{labels.dataset(rows['dataset'].iloc[0])}\n{rows['clients'].iloc[0]}"
        titles[key] = title + (f"; n = {labels.seeds_range(_seeds(rows))}" if counted and len(_seeds(rows)) else "")
    return titles


def _seeds(rows: pd.DataFrame) -> list[int]:
    """The numbers of seeds that the rows of a panel are means of."""
    if "n" in rows:
        return sorted(set(rows["n"]))
    if "seed" not in rows:
        return []
    groups = rows.groupby([name for name in ("method", "value") if name in rows], dropna=False)
    return sorted(set(groups["seed"].nunique()))


def _legend_below(figure: Figure, handles: Sequence[Any], columns: int = 6) -> None:
    """Under the figure, in as many columns as fit its width, at most `columns`; without handles, none."""
    where: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 0.2, "frameon": False}
    for number in range(min(columns, len(handles)), 0, -1):
        legend = figure.legend(handles=list(handles), ncols=number, **where)
        box = legend.get_tightbbox()
        if number == 1 or box is None or box.width <= figure.bbox.width:
            return
        legend.remove()


def _handle(label: str, shown: Look, size: float = 4, line: bool = False, **style: Any) -> Line2D:
    drawn: dict[str, Any] = {"color": shown.colour, "marker": shown.marker, "linestyle": shown.dash if line else ""}
    drawn["markersize"] = size * _SIZES.get(shown.marker, 1)
    return Line2D([], [], label=label, **drawn | style)


_SIZES = {"*": 1.5, "d": 1.3, "P": 1.2, "X": 1.2, "p": 1.2, "h": 1.2}  # of markers that look small, by the others'
_HOLLOW: dict[str, Any] = {"markerfacecolor": "white"}
_ONE_SEED = Line2D(
    [], [], color="#444444", marker="o", linestyle="", markersize=4, label="hollow: one seed, no interval", **_HOLLOW
)


def _mean(
    axes: Axes,
    x: float,
    y: float,
    half: float,
    shown: Look,
    along: str,
    limits: tuple[float, float] = (0, 100),
    **style: Any,
) -> bool:
    """Draw a mean with its interval along `x` or `y`, cut at `limits`; hollow where there is none. Returns whether it is hollow."""
    drawn: dict[str, Any] = {"marker": shown.marker, "color": shown.colour, "linestyle": "", "zorder": 3}
    drawn |= {"markersize": 5 * _SIZES.get(shown.marker, 1)} | style
    middle = x if along == "x" else y
    ends = [middle] if np.isnan(half) else [max(middle - half, limits[0]), min(middle + half, limits[1])]
    axes.update_datalim(
        [(end, y) if along == "x" else (x, end) for end in ends]
    )  # a shifted mark does not count by itself
    if np.isnan(half):
        axes.plot(x, y, **drawn | _HOLLOW)
        return True
    error = [[middle - ends[0]], [ends[1] - middle]]
    drawn |= {"markeredgecolor": "white", "markeredgewidth": 0.3, "capsize": 2, "elinewidth": 1, f"{along}err": error}
    axes.errorbar(x, y, **drawn)
    return False


def _span(axes: Axes, along: str, metric: metrics.Metric | None = ACCURACY) -> None:
    """End an axis of a metric at its limits and make one in per cent, or of differences (None), at least LEAST_SPAN long."""
    first, last = getattr(axes, f"get_{along}lim")()
    # Of other units nobody knows what is nearly flat.
    least = LEAST_SPAN if metric is None or metric.unit == "%" else 0.0
    short = max(0.0, least - (last - first))
    first, last = first - short / 2, last + short / 2
    if metric:
        margin = 0.03 * (last - first)
        low, high = metric.limits[0] - margin, metric.limits[1] + margin
        shift = max(0.0, low - first) - max(0.0, last - high) if short else 0.0
        first, last = max(first + shift, low), min(last + shift, high)
    getattr(axes, f"set_{along}lim")(first, last)


def _beside(axes: Axes, points: float) -> Any:
    """The data's coordinates, shifted right by some points, so that marks at one place stand beside each other."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return axes.transData + ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)


def _places(count: int, width: float) -> list[float]:
    """`count` shifts around 0, `width` apart."""
    return [width * (place - (count - 1) / 2) for place in range(count)]


def _row_counts(axes: Axes, counts: Mapping[float, int]) -> None:
    """The number of seeds at the right end of each row of a panel."""
    small: Any = {"fontsize": 6, "color": "#555555", "ha": "left", "transform": axes.get_yaxis_transform()}
    for place, count in counts.items():
        axes.text(1.02, place, f"n = {count:g}", va="center", **small)


def _row_words(axes: Axes, words: Mapping[int, str]) -> None:
    """What rows without a number say instead."""
    small: Any = {"fontsize": 6, "color": "#777777", "ha": "center", "transform": axes.get_yaxis_transform()}
    for place, word in words.items():
        axes.text(0.5, place, word, va="center", **small)


def _printed(axes: Axes, values: Mapping[int, float]) -> None:
    """The paper's values as black ticks, the axis up to half as long again for them; one further off as a number at the axis' end."""
    low, high = axes.get_xlim()
    span = high - low
    near = [value for value in values.values() if low - span / 2 <= value <= high + span / 2]
    low = min([low, *(value - 0.03 * span for value in near)])
    high = max([high, *(value + 0.03 * span for value in near)])
    room = 0.2 * (high - low)  # for the numbers
    axes.set_xlim(low - room * (min(values.values()) < low), high + room * (max(values.values()) > high))
    small: Any = {"fontsize": 6, "va": "center", "transform": axes.get_yaxis_transform()}
    for place, value in values.items():
        if low <= value <= high:
            axes.plot(value, place, "|", color="black", markersize=9, markeredgewidth=1.4)
        elif value < low:
            axes.text(0.01, place, f"\u2190 {value:+.1f}", ha="left", **small)
        else:
            axes.text(0.99, place, f"{value:+.1f} \u2192", ha="right", **small)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Rows from top to bottom, named in the first column of panels."""
    axes.set_yticks(range(len(names)), list(names) if _is_first(axes) else [])
    axes.set_ylim(len(names) - 0.5, -0.5)


# -------------------------------------------------------------------------------------------------------- the figures


@_styled
def class_distribution(counts: pd.DataFrame, title: str = "") -> Picture:
    """Who holds what: one dot per (client, class), its area the number of images, which the legend says; counts: clients x classes."""
    figure, axes = _single(5.2, min(4.5, 1.2 + 0.12 * len(counts.columns)))
    clients, classes = np.nonzero(counts.to_numpy())
    images = counts.to_numpy()[clients, classes]
    dots: Any = {"color": BLUE, "linewidths": 0}
    axes.scatter(clients, classes, s=70 * images / images.max(), **dots)
    axes.set(xlabel="client", ylabel="class", title=title, ylim=(-0.7, len(counts.columns) - 0.3))
    for axis, count in ((axes.xaxis, len(counts)), (axes.yaxis, len(counts.columns))):
        axis.set_major_locator(MultipleLocator(1 if count <= 20 else 10))  # each is named where there is room
    sizes = dict.fromkeys(int(share * images.max()) for share in (1, 0.5, 0.1))
    _legend_below(
        figure, [axes.scatter([], [], s=70 * n / images.max(), label=f"{n} images", **dots) for n in sizes if n]
    )
    return figure


@_styled
def decay(
    curves: Mapping[str, Callable[[int], float]], rounds: int, recorded: Mapping[str, pd.DataFrame] = {}
) -> Picture:
    """FedSSA's mu over the rounds 0..`rounds`: the formula as a line and what runs recorded as dots on it.

    curves: label -> function of the round; recorded: label -> the rounds of a run's record, with a column mu.
    """
    figure, axes = _single(3.4, 2.2)
    for (label, curve), style in zip(curves.items(), ("--", "-", ":", "-."), strict=False):
        (line,) = axes.plot(range(rounds + 1), [curve(round) for round in range(rounds + 1)], style, label=label)
        if label in recorded:
            own = recorded[label].query("0 <= round <= @rounds")
            axes.plot(own["round"], own["mu"], "o", color=line.get_color(), markersize=2.5)
    if recorded:
        axes.plot([], [], "o", color="#444444", markersize=2.5, label="recorded by runs")
    axes.set(xlabel="round t", ylabel=r"$\mu^t$", xlim=(0, rounds), ylim=(0, 1.02))
    axes.legend(frameon=False)
    return figure


@_styled
def sizes(table: pd.DataFrame) -> Picture:
    """Model sizes, ours against the paper's; table: index architecture, columns `ours (MiB)` and `paper (MB)`."""
    figure, axes = _single(3.4, 1.9)
    places = np.arange(len(table))
    axes.barh(places, table["ours (MiB)"], height=0.5, color=BLUE, label="ours, measured")
    printed: Any = {"color": "black", "markersize": 12, "markeredgewidth": 1.6, "label": "printed in the paper"}
    axes.plot(table["paper (MB)"], places, "|", **printed)
    axes.set_xlabel("float32 size (MiB)")
    _rows(axes, list(table.index))
    axes.legend(frameon=False, loc="lower right")
    return figure


@_styled
def intervals(
    table: pd.DataFrame,
    methods: Sequence[str],
    metric: str = "accuracy",
    absent: str = "not run",
) -> Picture:
    """A table as a picture: mean and 95 % interval by method, one panel per setting, with the number of seeds in each row; the
    paper's number, if any, is an upright bar.

    table: method, setting, ours, ci95, n, diverged, and perhaps paper, dataset and clients (`intervals.summarise`); methods: the
    rows of all panels; metric: which the table is of; absent: what a row without a result says.
    """
    shown_as = metrics.find(metric)
    titles = _titles(table, counted=False)
    width = 2.6 + 0.05 * max(0, max(map(len, methods), default=0) - 12)  # long names leave the panel its place
    figure, panels = _panels(titles, width, 0.6 + 0.17 * len(methods), xlabel=shown_as.label)
    shown, hollow = figure.looks(methods), False
    for setting, axes in panels.items():
        rows = table[table["setting"] == setting].set_index("method")
        counts, words = {}, {}
        for place, method in enumerate(methods):
            if method not in rows.index:
                words[place] = absent
                continue
            row = rows.loc[method]
            counts[float(place)] = row.get("n", np.nan)
            if np.isnan(row["ours"]):
                words[place] = "diverged"
            else:
                hollow |= _mean(axes, row["ours"], place, row["ci95"], shown[method], "x", shown_as.limits)
            if "paper" in rows and not np.isnan(row["paper"]):
                axes.plot(row["paper"], place, "|", color="black", markersize=9, zorder=4)
        axes.margins(x=0.08)
        _span(axes, "x", shown_as)
        _row_words(axes, words)
        _rows(axes, methods)
        _row_counts(axes, {place: count for place, count in counts.items() if not np.isnan(count)})
    printed = _handle("printed in the paper", Look("black", "|"), 9)
    _legend_below(figure, [_ONE_SEED] * hollow + [printed] * ("paper" in table))
    return figure


# What may stand on the x-axis of curves: column of `Runs.rounds` -> its label.
ALONG = {
    "rounds": "communication round",
    "epochs": "local epochs per client",
    "words": "words transmitted",
    "flops": "FLOPs",
}


@dataclass(frozen=True)
class Curve:
    """One curve: how it looks, its points, and the half-width of its band at each of them (NaN or None: no band)."""

    look: Look
    x: Any
    mean: Any
    half: Any = None


def _draw_curves(axes: Axes, curves: Sequence[Curve], metric: metrics.Metric | None) -> None:
    """Curves, the earlier the wider, with their markers between those of the others, so that equal curves are seen; the axis holds
    their bands, which end at the limits of `metric` (None: differences, which have none).
    """
    low, high = metric.limits if metric else (-np.inf, np.inf)
    for place, curve in enumerate(curves):
        every, shown = max(1, len(curve.mean) // 8), curve.look
        axes.plot(
            curve.x, curve.mean, color=shown.colour, linestyle=shown.dash, linewidth=2.4 - 1.2 * place / len(curves),
            marker=shown.marker, markersize=4 * _SIZES.get(shown.marker, 1), markevery=(place * every // len(curves), every),
            markeredgecolor="white", markeredgewidth=0.3,
        )  # fmt: skip
        if curve.half is not None:
            ends = (np.clip(end, low, high) for end in (curve.mean - curve.half, curve.mean + curve.half))
            axes.fill_between(curve.x, *ends, color=curve.look.colour, alpha=0.15, linewidth=0)
    _span(axes, "y", metric)
    axes.locator_params(axis="x", integer=True)


def _over_seeds(
    rows: pd.DataFrame, look: Look, metric: metrics.Metric, along: str = "rounds", smooth: int = 1
) -> Curve:
    """The mean over seeds of a metric, as it is shown, with its interval from three seeds on; where a run diverged, the rounds that
    all have.
    """
    by_seed = metric.scale * rows.pivot_table(index="round", columns="seed", values=metric.name, dropna=False).dropna()
    by_seed = by_seed.rolling(smooth, min_periods=1).mean()
    mean, halves = np.array([interval(values) for values in by_seed.to_numpy()]).reshape(-1, 2).T
    half = halves if by_seed.shape[1] >= LEAST_BANDED else None
    if along == "rounds":
        return Curve(look, by_seed.index + 1, mean, half)
    return Curve(look, rows.groupby("round")[along].mean().loc[by_seed.index], mean, half)


def _legend_of_curves(figure: Figure, shown: Mapping[str, Look], columns: int = 6) -> None:
    _legend_below(figure, [_handle(name, look, 3, line=True) for name, look in shown.items()], columns)


@_styled
def curves(
    table: pd.DataFrame,
    methods: Mapping[str, Sequence[str]],
    smooth: int = 1,
    metric: str = "accuracy",
    along: str = "rounds",
) -> Picture:
    """A metric as training goes on, one panel per setting; the band is the 95 % interval over seeds, where there are three or
    more.

    table: `Runs.rounds`: setting, method, seed, round (from 0), the columns `metric` (see `metrics.find`) and `along`, perhaps
    dataset and clients; methods: setting -> methods shown; smooth: width in rounds of the trailing mean; along: the x-axis, one
    of ALONG. The legend has the order of the table.
    """
    choose("along", along, ALONG)
    measured = metrics.find(metric)
    drawn = table[table["setting"].isin(methods)]
    there = [method in methods[setting] for setting, method in zip(drawn["setting"], drawn["method"], strict=True)]
    drawn = drawn[np.array(there, dtype=bool)]
    figure, panels = _panels(_titles(drawn), 2.4, 1.9, xlabel=ALONG[along], ylabel=measured.label)
    shown = figure.looks(drawn["method"])
    for setting, axes in panels.items():
        own = dict(list(drawn[drawn["setting"] == setting].groupby("method", sort=False)))
        drawn_ = [_over_seeds(own[name], shown[name], measured, along, smooth) for name in shown if name in own]
        _draw_curves(axes, drawn_, measured)
        if along == "words":  # they differ by orders of magnitude
            axes.set_xscale("log")
    _legend_of_curves(figure, shown)
    sent = drawn.groupby("method", sort=False)["words"].sum() if along == "words" else pd.Series([1])
    silent = ", ".join(map(str, sent[sent == 0].index))
    return figure.note(f"Not drawn, since they send nothing: {silent}.") if silent else figure


@_styled
def newcomers(table: pd.DataFrame, metric: str = "accuracy") -> Picture:
    """How good clients become that a method has never trained: their mean before anything, after the download, and after visits
    of local training on it; one panel per setting, the band is the 95 % interval over seeds.

    table: `Runs.newcomers`: setting, method, seed, visits (from -1), the column `metric`, perhaps dataset and clients.
    """
    measured = metrics.find(metric)
    xlabel, ylabel = "visits after the download", f"newcomers' {measured.label}"
    figure, panels = _panels(_titles(table), 2.4, 2.0, xlabel=xlabel, ylabel=ylabel)
    shown = figure.looks(table["method"])
    for setting, axes in panels.items():
        own = dict(list(table[table["setting"] == setting].assign(round=table["visits"]).groupby("method", sort=False)))
        drawn = [_over_seeds(own[name], look, measured, "visits") for name, look in shown.items() if name in own]
        _draw_curves(axes, drawn, measured)
        numbers = sorted(set(table["visits"]))
        kept = [number for number in numbers if number <= 0 or number % (1 + numbers[-1] // 8) == 0]
        axes.set_xticks(kept, [{-1: "start", 0: "0"}.get(number, f"{number:g}") for number in kept])
    _legend_of_curves(figure, shown)
    return figure


@_styled
def curves_by_value(table: pd.DataFrame, label: str) -> Picture:
    """Mean test accuracy over the rounds, one line per value of a swept quantity, dark to light, one panel per setting; means over
    seeds.

    table: setting, value, seed, round (from 0), accuracy (a fraction), and perhaps dataset and clients; label: of the swept
    quantity.
    """
    values = sorted(table["value"].unique())
    shades = [mpl.colors.to_hex(shade) for shade in mpl.colormaps["viridis"](np.linspace(0, 0.9, len(values)))]
    shown = {
        value: Look(shade, "os^Dv*PX"[place % 8], ("-", "--", "-.", ":")[place % 4])
        for place, (value, shade) in enumerate(zip(values, shades, strict=True))
    }
    figure, panels = _panels(_titles(table), 2.4, 1.9, xlabel=ALONG["rounds"], ylabel=ACCURACY.label)
    for setting, axes in panels.items():
        own = dict(list(table[table["setting"] == setting].groupby("value")))
        drawn = [_over_seeds(own[value], look, ACCURACY) for value, look in shown.items() if value in own]
        _draw_curves(axes, [replace(curve, half=None) for curve in drawn], ACCURACY)
    _legend_of_curves(figure, {f"{label} = {value:g}": look for value, look in shown.items()}, columns=4)
    return figure


@_styled
def leads(table: pd.DataFrame, reference: str, banded: Collection[str]) -> Picture:
    """How far methods stand above `reference` as the rounds go by, one panel per setting. The methods of `banded` have a band, the
    95 % interval over seeds, from three on: nine bands would hide each other. The foot says which. table: `intervals.leads`'s rows.
    """
    figure, panels = _panels(_titles(table), 2.4, 1.9, xlabel=ALONG["rounds"], ylabel=f"points above {reference}")
    shown, named = figure.looks(table["method"]), dict[str, None]()
    for setting, axes in panels.items():
        own = dict(list(table[table["setting"] == setting].groupby("method", sort=False)))
        drawn = []
        for method in (name for name in shown if name in own):
            rounds, lead, half, n = own[method][["rounds", "lead", "ci95", "n"]].to_numpy().T
            has_band = method in banded and n[0] >= LEAST_BANDED
            named |= {method: None} if has_band else {}
            drawn.append(Curve(shown[method], rounds, lead, half if has_band else None))
        axes.axhline(0, color="black", linewidth=0.8)
        _draw_curves(axes, drawn, None)
    _legend_of_curves(figure, shown)
    return figure.note(f"Bands: 95 % intervals of {'; '.join(named)}.") if named else figure


@_styled
def comparison(rounds: pd.DataFrame, clients: pd.DataFrame, reference: str) -> Picture:
    """Any runs: mean test accuracy over the rounds, with the 95 % interval over seeds; and, of each client, the difference to
    `reference`, in order of size.

    rounds: method, seed, round (from 0), accuracy (a fraction); clients: label (a method), difference (points).
    """
    titles = {"rounds": "mean over the clients visited so far"}
    titles |= {"clients": f"each client, difference to {reference}"} if len(clients) else {}
    figure, panels = _panels(titles, 3.0, 2.2)
    shown = figure.looks(rounds["method"])
    own = {method: rounds[rounds["method"] == method] for method in shown}
    means = [_over_seeds(own[method], look, ACCURACY) for method, look in shown.items()]
    _draw_curves(panels["rounds"], means, ACCURACY)
    panels["rounds"].set(xlabel=ALONG["rounds"], ylabel=ACCURACY.label)
    if "clients" in panels:
        apart = {name: clients.loc[clients["label"] == name, "difference"].to_numpy(dtype=float) for name in shown}
        drawn = [
            Curve(shown[name], np.arange(1, len(own) + 1), np.sort(own)[::-1])
            for name, own in apart.items()
            if len(own)
        ]
        _draw_curves(panels["clients"], drawn, None)
        panels["clients"].axhline(0, color=GREY, linewidth=0.8)
        panels["clients"].set(xlabel="clients, by their difference", ylabel="difference (points)")
    _legend_of_curves(figure, shown)
    return figure


@_styled
def sweeps(
    table: pd.DataFrame,
    methods: Sequence[str],
    label: str | Mapping[str, str],
    log: bool = False,
    selected: bool = False,
    by: str = "dataset",
    metric: str = "accuracy",
) -> Picture:
    """A metric against a swept quantity, one panel per data set; bars are 95 % intervals over seeds. Means of one seed, and those of
    names such as public data sets, stand side by side, not joined by a line.

    table: method, dataset, value (numbers or names), ours, ci95, n (`intervals.summarise`; per cent); label: of the swept quantity,
    or of that of each panel, where panels of one data set share their y axis; log: its axis; selected: also draw the means over the
    selected clients, thin and pale; by: `setting` for one panel per setting; metric: which the table is of.
    """
    titles, measured = _titles(table, by), metrics.find(metric)
    figure, panels = _panels(titles, 2.6, 2.0, ylabel=measured.label)
    shown, hollow = figure.looks(name for name in methods if name in set(table["method"])), False
    values = list(dict.fromkeys(table["value"]))
    named = any(isinstance(value, str) for value in values)
    places = {value: float(place) if named else float(value) for place, value in enumerate(values)}
    pale: Any = {"linewidth": 0.9, "alpha": 0.5, "marker": "_"}
    first: dict[str, Axes] = {}  # of the panels of a data set
    for key, axes in panels.items():
        panel = table[table[by] == key].assign(place=lambda rows: rows["value"].map(places)).sort_values("place")
        axes.set(xlabel=label if isinstance(label, str) else label[key], xscale="log" if log else "linear")
        dataset = panel["dataset"].iloc[0]
        if not isinstance(label, str) and dataset in first:
            axes.sharey(first[dataset])
        first.setdefault(dataset, axes)
        for (method, look_), shift in zip(shown.items(), _places(len(shown), 5 if named else 3), strict=True):
            rows = panel[panel["method"] == method]
            style: Any = {"color": look_.colour, "linestyle": look_.dash, "transform": _beside(axes, shift)}
            if not named:
                axes.plot("place", "ours", data=rows[rows["n"] > 1], **style)
            for row in rows.dropna(subset="ours").to_dict("records"):
                own = row["place"], row["ours"], row["ci95"], look_
                hollow |= _mean(axes, *own, "y", measured.limits, transform=style["transform"])
            if selected:
                axes.update_datalim(rows[["place", "selected"]].dropna().to_numpy())
                joined = look_.dash if (rows["n"] > 1).all() else ""
                axes.plot("place", "selected", data=rows, **style | pale | {"linestyle": joined})
        ticks = {places[value]: value for value in panel["value"]}
        words = [fill(labels.dataset(value), 9) if named else f"{value:g}" for value in ticks.values()]
        axes.set_xticks(list(ticks), words, minor=False)
        axes.minorticks_off()
        axes.margins(x=0.08)
        axes.autoscale(axis="y")
        _span(axes, "y", measured)
        if named:
            axes.set_xlim(-0.5, len(values) - 0.5)
            axes.grid(axis="x", visible=False)
            for edge in range(1, len(values)):
                axes.axvline(edge - 0.5, color="#bbbbbb", linewidth=0.6)
    handles = [_handle(name, look_, line=not named) for name, look_ in shown.items()]
    if selected:
        handles.append(Line2D([], [], color="#444444", label="thin and pale: mean over the selected clients", **pale))
    _legend_below(figure, [*handles, _ONE_SEED] if hollow else handles)
    return figure


@_styled
def effects(table: pd.DataFrame, label: str) -> Picture:
    """What one difference at a time does, one panel per data set; 0 is the reference, which the axis names.

    table: case, against (the reference), dataset, difference, ci95 (points; NaN: one seed), n, in the order shown; perhaps
    selected_difference and selected_ci95, the same of the selected clients (`intervals.effects`), and paper (printed).
    """
    main = table["against"].mode().get(0, "")
    pairs = zip(table["case"], table["against"], strict=True)
    rows = [case if against == main else f"{case}\n(against {against})" for case, against in pairs]
    kinds = {"difference": "over the visited clients", "selected_difference": "over the selected clients"}
    renamed = {"ci95": "difference_ci95", "selected_ci95": "selected_difference_ci95"}
    kinds = {column: words for column, words in kinds.items() if column in table}
    zero = f"{label}\n0 = {main}" + ", each client alone" * (main == "Standalone")
    return differences(table.assign(row=rows).rename(columns=renamed), "row", kinds, zero, by="dataset")


@_styled
def differences(table: pd.DataFrame, rows: str, kinds: Mapping[str, str], label: str, by: str = "setting") -> Picture:
    """Differences with their 95 % intervals and number of seeds, those of a row below each other (a lead at equal rounds, FLOPs and
    words, say); one panel per setting.

    table: n, the column `rows`, which names the rows, `by`, which names the panels, for each of `kinds` (column -> what it is) the
    difference in points and `<column>_ci95` (NaN: one seed), and perhaps paper, what the paper prints of it; NaN is not drawn.
    """
    looks_ = [Look(BLUE, "o"), Look(RED, "s"), Look("#117733", "^")]
    titles, names = _titles(table, by, counted=False), list(dict.fromkeys(table[rows]))
    width, height = 3.6 if len(titles) == 1 else 3.0, 0.7 + max(0.2, 0.12 * len(kinds)) * len(names)
    figure, panels = _panels(titles, width, height, 2, xlabel=label)
    hollow = False
    for key, axes in panels.items():
        panel = table[table[by] == key]
        for row in panel.to_dict("records"):
            for kind, shown, shift in zip(kinds, looks_, _places(len(kinds), 0.7 / len(kinds)), strict=False):
                if not np.isnan(row[kind]):
                    place = names.index(row[rows]) + shift
                    hollow |= _mean(axes, row[kind], place, row[f"{kind}_ci95"], shown, "x", (-100, 100))
        axes.axvline(0, color="black", linewidth=0.8)
        axes.margins(x=0.08)
        _span(axes, "x", None)
        if "paper" in panel and panel["paper"].notna().any():
            values = panel.dropna(subset=["paper"])
            _printed(axes, dict(zip(map(names.index, values[rows]), values["paper"], strict=True)))
        _rows(axes, names)
        _row_words(axes, {place: "not run" for place, name in enumerate(names) if name not in set(panel[rows])})
        _row_counts(axes, dict(zip(map(names.index, panel[rows]), panel["n"], strict=True)))
    handles = [_handle(name, shown) for name, shown in zip(kinds.values(), looks_, strict=False)]
    printed = [_handle("printed in the paper (arrow: off the axis)", Look("black", "|"), 9)] * ("paper" in table)
    _legend_below(figure, handles * (len(kinds) > 1) + [_ONE_SEED] * hollow + printed)
    return figure


# Told apart by the colour-blind where neighbours overlap: Paul Tol's muted scheme and black.
_TEN = (
    "#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#aa4499", "#44aa99", "#999933", "#882255", "#000000",
)  # fmt: skip


@_styled
def representations(table: pd.DataFrame, classes: Sequence[str] = ()) -> Picture:
    """t-SNE maps, one panel per method: coloured by class, marked by architecture.

    table: method, x, y, label (class number), architecture; classes: names of the classes, by number (`labels.classes`).
    """
    import seaborn as sns

    titles = {method: str(method) for method in dict.fromkeys(table["method"])}
    figure, panels = _panels(titles, 3.2, 2.9, len(titles), "t-SNE, first dimension", "t-SNE, second dimension")
    found, architectures = sorted(table["label"].unique()), sorted(table["architecture"].unique())
    shades = _TEN if len(found) <= len(_TEN) else sns.color_palette("viridis", len(found)).as_hex()
    colours = dict(zip(found, shades, strict=False))
    shapes = dict(zip(architectures, "os^DPX*v", strict=False))
    for method, axes in panels.items():
        by: Any = {"hue": "label", "palette": colours, "style": "architecture", "markers": shapes, "legend": False}
        sns.scatterplot(table[table["method"] == method], x="x", y="y", s=7, alpha=0.75, linewidth=0, ax=axes, **by)
        axes.set(xticks=[], yticks=[], ylabel=axes.get_ylabel() if _is_first(axes) else "")
        axes.margins(0.03)
        axes.grid(False)
    chosen = found if len(found) <= len(_TEN) else found[:: max(1, len(found) // 9)]
    named = {label: classes[label] if len(classes) > label else f"class {label}" for label in chosen}
    handles = [_handle(name, Look(colours[label])) for label, name in named.items()]
    handles += [_handle(name, Look("#777777", shape)) for name, shape in shapes.items()]
    _legend_below(figure, handles, columns=8)
    return figure


@_styled
def images(rows: Mapping[str, np.ndarray]) -> Picture:
    """Rows of pictures under each other, such as originals over enhanced ones; rows: label -> (n, height, width, 3) in [0, 1]."""
    count = len(next(iter(rows.values())))
    figure = Picture(figsize=(1.05 * count + 0.5, 1.05 * len(rows) + 0.2), layout="constrained")
    for place, (label, pictures) in enumerate(rows.items()):
        for number, picture in enumerate(pictures):
            axes = figure.add_subplot(len(rows), count, place * count + number + 1)
            axes.imshow(picture, interpolation="nearest")
            axes.set(xticks=[], yticks=[], ylabel=label if number == 0 else "")
            axes.grid(False)
            for spine in axes.spines.values():
                spine.set_visible(False)
    return figure


# Good to bad to unknown, told apart in grey by lightness and hatching.
_TALLY = {
    "agrees": (BLUE, ""), "supported": (BLUE, ""), "off in the last digit": ("#7fb9dc", ""),
    "disagrees": (RED, "xx"), "contradicted": (RED, "xx"), "no difference": ("#f0a878", "x"),
    "stand-in": ("#e3d9a8", ".."), "undecided": ("#bbbbbb", "//"), "no table to check": ("#bbbbbb", "//"),
    "not run": ("#dddddd", "\\\\"),
}  # fmt: skip


@_styled
def tallies(tables: Mapping[str, pd.DataFrame]) -> Picture:
    """Stacked counts, one panel per table under each other: rows (papers) down, one colour per column (verdicts), numbers inside."""
    rows = max(len(table) for table in tables.values())
    titles = {title: title for title in tables}
    figure, panels = _panels(titles, 4.0, 0.9 + 0.22 * rows, columns=1, xlabel="claims")
    most = max(table.sum(axis=1).max() for table in tables.values())
    for title, axes in panels.items():
        table = tables[title]
        known = [column for column in _TALLY if column in table]
        shown = [column for column in [*known, *table.columns.difference(known, sort=False)] if table[column].sum()]
        left = np.zeros(len(table))
        for column in shown:
            counts, (face, hatch) = table[column].to_numpy(), _TALLY.get(column, ("#999999", "++"))
            style: Any = {"color": face, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
            bars = axes.barh(table.index, counts, left=left, label=column, **style)
            boxed = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
            texts = [f"{count}" if count else "" for count in counts]
            for text in axes.bar_label(bars, texts, label_type="center", fontsize=6.5):
                text.set_bbox(boxed if text.get_text() else None)
            left = left + counts
        axes.invert_yaxis()
        axes.set_xlim(0, 1.04 * most)  # a bar is as long as it is large, in every panel
        axes.locator_params(axis="x", integer=True)
        axes.grid(axis="y", visible=False)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=6.5)
    return figure


@_styled
def agreement(table: pd.DataFrame) -> Picture:
    """What two papers print for the same thing, one against the other, one panel per pair of tables; on the diagonal they agree.

    table: first_table and second_table (names of the pair), models (title of its panel), dataset, num_clients, first (on the x
    axis) and second, per cent; NaN: a dash.
    """
    import seaborn as sns

    found = table.dropna(subset=["first", "second"])
    pairs = found.groupby(["first_table", "second_table", "models"], sort=False)
    titles = [(key, rows["models"].iloc[0]) for key, rows in pairs]
    figure, panels = _panels({key: str(models) for key, models in titles}, 2.3, 2.3, columns=2)
    clients, datasets = sorted(found["num_clients"].unique()), list(dict.fromkeys(found["dataset"]))
    shapes = dict(zip(clients, "os^DP", strict=False))
    colours = dict(zip(datasets, (BLUE, RED, "black"), strict=False))
    low, high = found[["first", "second"]].min().min() - 3, found[["first", "second"]].max().max() + 3
    for key, rows in pairs:
        axes = panels[key]
        axes.axline((50, 50), slope=1, color="black", linewidth=0.6)
        by: Any = {"hue": "dataset", "palette": colours, "style": "num_clients", "markers": shapes, "legend": False}
        sns.scatterplot(rows, x="first", y="second", s=18, ax=axes, **by)
        below, left = rows["first_table"].iloc[0], rows["second_table"].iloc[0]
        axes.set(xlabel=f"{below} (%)", ylabel=f"{left} (%)", xlim=(low, high), ylim=(low, high))
        axes.set_aspect("equal")
    handles = [_handle(labels.dataset(name), Look(colour)) for name, colour in colours.items()]
    handles += [_handle(f"N = {count:g}", Look("grey", shape)) for count, shape in shapes.items()]
    _legend_below(figure, handles)
    return figure


EXTRACTOR, HEADER = "#9ecae9", "#f0b04f"


@_styled
def messages(
    table: pd.DataFrame, networks: Mapping[str, Sequence[int]], sizes: Mapping[str, str], server: str = ""
) -> Picture:
    """A round of a federation: clients with their networks, the tensors that each receives and sends, and the server.

    table: direction (`download`, `upload`), tensor, shape, words (`costs.messages`); networks: a client's label -> the width of each
    layer, from input to output, the last one the header; sizes: a client's label -> how large its network is, in words; server: what
    the server does.
    """
    rows = len(networks)
    figure = Picture(figsize=(6.4, 0.62 * rows + 0.35), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(0, 10), ylim=(rows - 0.45, -0.75))
    axes.axis("off")
    small: Any = {"fontsize": 6.5, "va": "center"}
    for x, colour, words in ((1.75, EXTRACTOR, "extractor"), (3.1, HEADER, "header")):
        axes.add_patch(Rectangle((x, -0.72), 0.16, 0.16, facecolor=colour))
        axes.text(x + 0.25, -0.64, words, **small)
    most = np.log(max(max(widths) for widths in networks.values()))
    for place, (label, widths) in enumerate(networks.items()):
        axes.text(0, place - 0.12, label, fontweight="bold", fontsize=7, va="center")
        axes.text(0, place + 0.16, sizes[label], color="#555555", **small)
        step = min(0.38, 2.4 / len(widths))
        for number, width in enumerate(widths):
            high, last = 0.72 * np.log(width) / most, number == len(widths) - 1
            colour = HEADER if last else EXTRACTOR
            axes.add_patch(Rectangle((1.75 + step * number, place - high / 2), 0.64 * step, high, facecolor=colour))
    middle, arrow = (rows - 1) / 2, {"arrowstyle": "-|>", "color": "#444444", "linewidth": 1.2}
    for direction, y, ends in (("download", middle - 0.12, (7.45, 4.35)), ("upload", middle + 0.12, (4.35, 7.45))):
        own = table[table["direction"] == direction]
        if len(own):
            axes.annotate("", (ends[1], y), (ends[0], y), arrowprops=arrow)
        shift, edge = (-0.1, "bottom") if direction == "download" else (0.1, "top")
        axes.text(5.9, y + shift, _contents(direction, own), ha="center", va=edge, fontsize=6.5)
    axes.add_patch(Rectangle((7.6, -0.3), 2.35, rows - 0.4, facecolor="#f2f2f2", edgecolor="#444444", linewidth=0.8))
    axes.text(8.77, -0.08, "server", ha="center", va="center", fontweight="bold", fontsize=7)
    axes.text(8.77, middle, fill(server, 26), ha="center", **small)
    return figure


def _contents(direction: str, rows: pd.DataFrame) -> str:
    """What a message holds: its size, and its first tensors with their shapes."""
    if not len(rows):
        return f"{direction}: nothing"
    size = rows["words"].sum() * 4 / 1024
    said = f"{size:.2f} KB" if size < 1024 else f"{size / 1024:.2f} MiB"
    names = [f"{row['tensor']} ({', '.join(map(str, row['shape']))})" for row in rows.to_dict("records")]
    more = [f"and {len(names) - 3} more tensors"] if len(names) > 4 else []
    return "\n".join([f"{direction}, {said}", *(names[:3] + more if more else names)])


# Architecture -> colour of its layers: the text on it is black, and names it.
_ORIGINS = {"M1": "#7cc4ea", "M2": "#f0b04f", "M3": "#5cc4a2", "M4": "#dfa3d4"}


@_styled
def heat_map(
    table: pd.DataFrame,
    label: str,
    groups: Sequence[Any] = (),
    marked: Sequence[tuple[int, int]] = (),
    numbers: str = "",
    size: tuple[float, float] = (3.4, 3.4),
) -> Picture:
    """A matrix as colours, light is low.

    label: of the colour bar; groups: of the rows, which are also the columns' and in order, with a white line between two;
    marked: (row, column) places to frame; numbers: format of the numbers inside, none by default; size: in inches, at the least.
    """
    import seaborn as sns

    figure = Picture(figsize=[max(inches, 0.16 * len(table.columns)) for inches in size], layout="constrained")
    axes = figure.add_subplot()
    small: Any = {"fontsize": 6.5} if len(table.columns) > 12 else {}
    written: Any = {"annot": bool(numbers), "fmt": numbers or "g", "annot_kws": {"fontsize": 6.5}}
    bar = {"label": label, "shrink": 0.8}
    sns.heatmap(table, cmap="cividis_r", xticklabels=True, yticklabels=True, cbar_kws=bar, ax=axes, **written)
    axes.set(xlabel="", ylabel="")
    axes.tick_params(length=2)
    axes.grid(False)
    axes.set_xticks(axes.get_xticks(), list(table.columns), rotation=90 if small else 0, **small)
    axes.set_yticks(axes.get_yticks(), list(table.index), rotation=0, **small)
    for place in range(1, len(groups)):
        if groups[place] != groups[place - 1]:
            axes.axhline(place, color="white", linewidth=1.6)
            axes.axvline(place, color="white", linewidth=1.6)
    for row, column in marked:
        axes.add_patch(Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, fill=False, edgecolor=RED, linewidth=2))
    return figure


@_styled
def chains(rows: Mapping[str, Sequence[tuple[str, str, bool]]]) -> Picture:
    """Models as chains of blocks from input to output, coloured by the architecture that a layer comes from.

    rows: label of a model -> (architecture, layer, stitched) of each block; stitched: a stitch stands before it, drawn as a
    black lozenge; an empty architecture is a new layer, white.
    """
    longest = max(len(blocks) for blocks in rows.values())
    figure = Picture(figsize=(3.4, 0.42 * len(rows) + 0.45), layout="constrained")
    axes = figure.add_subplot()
    for place, blocks in enumerate(rows.values()):
        for number, (origin, layer, stitched) in enumerate(blocks):
            face = _ORIGINS.get(origin, "white")
            block: Any = {"facecolor": face, "edgecolor": "black", "linewidth": 0.6}
            axes.add_patch(Rectangle((number + 0.09, place - 0.38), 0.82, 0.76, **block))
            text = f"{origin}\n{layer}" if origin else layer
            axes.text(number + 0.5, place, text, ha="center", va="center", fontsize=6, linespacing=1.05)
            if number:
                axes.plot([number - 0.09, number + 0.09], [place, place], color="black", linewidth=0.8, zorder=1)
            if stitched:
                axes.plot(number, place, "D", color="black", markersize=4)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(xticks=[], xlim=(-0.15, longest + 0.05), ylim=(len(rows) - 0.5, -0.5))
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _legend_below(figure, [_handle("stitch", Look("black", "D"))])
    return figure
