"""One function a kind of figure: tidy data in, matplotlib figure out. Never trains, never imports torch.

Every method keeps its colour, marker and line in all figures; all are told apart in grey and by the colour-blind.
"""

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

Parameters = ParamSpec("Parameters")

# Seaborn's colour-blind palette; the methods that share a table never share a colour.
_COLOURS = {
    "Standalone": "#949494", "FedAvg": "#d55e00", "FedProx": "#de8f05", "Per-FedAvg": "#ece133", "pFedMe": "#ca9161",
    "pFedBayes": "#fbafe4", "FML": "#ece133", "FedKD": "#ca9161", "LG-FedAvg": "#56b4e9", "FedClassAvg": "#fbafe4",
    "FD": "#de8f05", "FedProto": "#029e73", "FedMD": "#de8f05", "FCCL": "#fbafe4", "FedKEMF": "#ece133",
    "FedGH": "#cc78bc", "FedSSA": "#0173b2", "pFedES": "#d55e00", "pFedHR": "#000000",
    "case A": "#56b4e9", "case B": "#de8f05", "case C": "#0173b2",  # of FedSSA's ablations; C is FedSSA itself
    "pFedHR, labelled": "#000000", "pFedHR, unlabelled": "#d55e00",
}  # fmt: skip
_MARKERS = dict(zip(_COLOURS, "oPX<>dvphD*s^8HdsPo<vsso", strict=True)) | {
    "FedSSA": "s",
    "FedProto": "^",
    "Standalone": "o",
    "FedGH": "D",
}
_DASHES: dict[str, Any] = {
    "Standalone": "--",
    "FedProto": "-.",
    "LG-FedAvg": ":",
    "FedGH": (0, (5, 1, 1, 1, 1, 1)),
    "case A": ":",
    "case B": "--",
    "pFedHR, unlabelled": "--",
}
STYLE: Any = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 150, "savefig.dpi": 150, "axes.grid": True,
    "grid.alpha": 0.25, "grid.linewidth": 0.5, "lines.linewidth": 1.4,
}  # fmt: skip


# Of methods of a person's own: the first one drawn gets the first look, and keeps it.
_others: dict[str, int] = {}
_OTHER_COLOURS = ("#b2182b", "#1b7837", "#542788", "#8c510a", "#003c30")
_OTHER_MARKERS = "*Xp8h"
_OTHER_DASHES = ("-", "--", ":", "-.")


def colour(method: str) -> str:
    return _COLOURS.get(_name(method)) or _OTHER_COLOURS[_place(method) % 5]


def _marker(method: str) -> str:
    return _MARKERS.get(_name(method)) or _OTHER_MARKERS[_place(method) % 5]


def _place(method: str) -> int:
    """0, 1, 2, ... in the order in which such methods are first drawn."""
    return _others.setdefault(_name(method), len(_others))


def _dash(method: str) -> Any:
    if _name(method) in _COLOURS:
        return _DASHES.get(_name(method), "-")
    return _OTHER_DASHES[_place(method) // 5 % 4]


def _name(method: str) -> str:
    """`case B: by class` is drawn as `case B`."""
    return method.split(":")[0]


class Picture(Figure):
    """A figure outside pyplot's state that a notebook shows as a PNG, the same bytes as `notebook.save` writes."""

    def png(self) -> bytes:
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()

    _repr_png_ = png


def _styled(draw: Callable[Parameters, Picture]) -> Callable[Parameters, Picture]:
    """Draw under STYLE, without touching the reader's matplotlib settings."""

    @functools.wraps(draw)
    def styled(*arguments: Parameters.args, **named: Parameters.kwargs) -> Picture:
        with mpl.rc_context(STYLE):
            return draw(*arguments, **named)

    return styled


def _grid(panels: int, columns: int, width: float, height: float) -> tuple[Picture, list[Axes]]:
    """A figure of `panels` axes of the given size in inches, outside pyplot's state; without panels it says that nothing is there."""
    if not panels:
        figure = Picture(figsize=(3.4, 0.8), layout="constrained")
        figure.text(0.5, 0.5, "none of these runs belongs here", ha="center", va="center")
        return figure, []
    rows = -(-panels // columns)
    figure = Picture(figsize=(width * columns, height * rows + 0.3), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(panels)]


def _title(setting: str) -> str:
    """`cifar10, N = 10, C = 100 %` in two lines."""
    return setting.replace(", ", "\n", 1)


def _legend_below(figure: Figure, handles: Sequence[Line2D], columns: int = 6) -> None:
    """In as many columns as fit the figure's width, at most `columns`."""
    for number in range(min(columns, len(handles)), 0, -1):
        legend = figure.legend(handles=list(handles), loc="outside lower center", ncols=number, frameon=False)
        box = legend.get_tightbbox()
        if number == 1 or box is None or box.width <= figure.bbox.width:
            return
        legend.remove()


def label_stand_in(figure: Figure) -> None:
    """Say on the figure itself that its data are embedded ones."""
    figure.suptitle(
        "stand-in: embedded digits, not comparable with the paper", fontsize=6.5, color="#555555", x=0.99, ha="right"
    )


@_styled
def holdings(counts: pd.DataFrame, title: str = "") -> Picture:
    """Who holds what: a dot a (client, class), its area the number of images; counts: clients x classes."""
    tall = min(4.5, 1.2 + 0.12 * len(counts.columns))
    figure, (axes,) = _grid(1, 1, 5.2, tall)
    clients, classes = np.nonzero(counts.to_numpy())
    images = counts.to_numpy()[clients, classes]
    axes.scatter(clients, classes, s=70 * images / images.max(), color=colour("FedSSA"), linewidths=0)
    axes.set(xlabel="client", ylabel="class", title=title)
    axes.set_ylim(-0.7, len(counts.columns) - 0.3)
    axes.locator_params(integer=True)
    return figure


@_styled
def decay(curves: Mapping[str, Callable[[int], float]], rounds: int) -> Picture:
    """Curves over the rounds 0..`rounds`, such as FedSSA's mu; curves: label -> function of the round."""
    figure, (axes,) = _grid(1, 1, 3.4, 2.2)
    for (label, curve), style in zip(curves.items(), ("--", "-", ":", "-."), strict=False):
        axes.plot(range(rounds + 1), [curve(round) for round in range(rounds + 1)], style, label=label)
    axes.set(xlabel="round t", ylabel=r"$\mu^t$", xlim=(0, rounds), ylim=(0, 1.02))
    axes.legend(frameon=False)
    return figure


@_styled
def sizes(table: pd.DataFrame) -> Picture:
    """Model sizes, ours against the paper's; table: index architecture, columns `ours (MiB)` and `paper (MB)`."""
    figure, (axes,) = _grid(1, 1, 3.4, 1.9)
    places = np.arange(len(table))
    axes.barh(places, table["ours (MiB)"], height=0.5, color=colour("FedSSA"), label="ours, measured")
    axes.plot(
        table["paper (MB)"],
        places,
        "|",
        color="black",
        markersize=12,
        markeredgewidth=1.6,
        label="printed in the paper",
    )
    axes.set(yticks=places, xlabel="float32 size (MiB)", ylim=(len(table) - 0.5, -0.5))
    axes.set_yticklabels(table.index)
    axes.legend(frameon=False, loc="lower right")
    return figure


@_styled
def intervals(table: pd.DataFrame, methods: Sequence[str], unit: str = "mean test accuracy (%)") -> Picture:
    """A table as a picture: mean and 95 % interval by method, a panel a setting; the paper's number, if any, is a bar |.

    table: method, setting, ours, ci95, and perhaps paper (`report.summarise`, `report.beside_paper`).
    """
    settings = list(dict.fromkeys(table["setting"]))
    figure, panels = _grid(len(settings), min(3, len(settings)), 2.6, 0.6 + 0.17 * len(methods))
    for axes, setting in zip(panels, settings, strict=True):
        rows = table[table["setting"] == setting].set_index("method")
        for place, method in enumerate(methods):
            if method in rows.index:
                row = rows.loc[method]
                half = 0 if np.isnan(row["ci95"]) else row["ci95"]
                axes.errorbar(
                    row["ours"],
                    place,
                    xerr=half,
                    fmt=_marker(method),
                    color=colour(method),
                    markersize=4,
                    capsize=2,
                )
                if "paper" in rows and not np.isnan(row["paper"]):
                    axes.plot(row["paper"], place, "|", color="black", markersize=9)
        axes.set(yticks=range(len(methods)), title=_title(setting), xlabel=unit)
        axes.set_yticklabels(methods if (panels.index(axes) % 3 == 0) else [])
        axes.set_ylim(len(methods) - 0.5, -0.5)
    if "paper" in table:
        _legend_below(
            figure,
            [Line2D([], [], color="black", marker="|", linestyle="", markersize=9, label="printed in the paper")],
        )
    return figure


@_styled
def boxes(table: pd.DataFrame, methods: Mapping[str, Sequence[str]]) -> Picture:
    """Accuracy of the individual clients by method, a panel a setting; `+` is the mean over clients.

    table: setting, method, client, accuracy (a fraction); methods: setting -> methods shown, in order.
    """
    import seaborn as sns

    figure, panels = _grid(len(methods), min(3, len(methods)), 2.3, 2.0)
    for axes, (setting, shown) in zip(panels, methods.items(), strict=True):
        rows = table[(table["setting"] == setting) & table["method"].isin(shown)].assign(
            per_cent=lambda t: 100 * t["accuracy"]
        )
        sns.boxplot(
            rows, x="method", y="per_cent", hue="method", order=shown, hue_order=shown, palette={m: colour(m) for m in shown}, ax=axes,
            width=0.55, saturation=1, linewidth=0.8, fliersize=2, showmeans=True, legend=False,
            meanprops={"marker": "+", "markeredgecolor": "black", "markersize": 6},
        )  # fmt: skip
        axes.set(
            title=_title(setting),
            xlabel="",
            ylabel="test accuracy of a client (%)" if panels.index(axes) % 3 == 0 else "",
        )
    return figure


@_styled
def curves(table: pd.DataFrame, methods: Mapping[str, Sequence[str]], smooth: int = 1) -> Picture:
    """Mean test accuracy over the rounds, a panel a setting; the band is the 95 % interval over seeds.

    table: setting, method, seed, round (from 0), accuracy (a fraction); smooth: width in rounds of the trailing mean.
    """
    from .report import interval

    figure, panels = _grid(len(methods), min(3, len(methods)), 2.3, 1.9)
    seen: dict[str, Line2D] = {}
    for axes, (setting, shown) in zip(panels, methods.items(), strict=True):
        for method in shown:
            rows = table[(table["setting"] == setting) & (table["method"] == method)]
            if rows.empty:
                continue
            by_seed = 100 * rows.pivot_table(index="round", columns="seed", values="accuracy")
            by_seed = by_seed.rolling(smooth, min_periods=1).mean()
            mean, half = np.array([interval(values) for values in by_seed.to_numpy()]).T
            (line,) = axes.plot(
                by_seed.index + 1, mean, color=colour(method), linestyle=_dash(method), label=method,
                marker=_marker(method), markersize=3, markevery=max(1, len(mean) // 8),
            )  # fmt: skip
            axes.fill_between(
                by_seed.index + 1, mean - half, mean + half, color=colour(method), alpha=0.15, linewidth=0
            )
            seen[method] = line
        axes.set(
            title=_title(setting),
            xlabel="communication round",
            ylabel="mean test accuracy (%)" if panels.index(axes) % 3 == 0 else "",
        )
        axes.locator_params(axis="x", integer=True)
    _legend_below(figure, list(seen.values()))
    return figure


@_styled
def curves_by_value(table: pd.DataFrame, label: str) -> Picture:
    """Mean test accuracy over the rounds, a line a value of a swept quantity, dark to light, a panel a setting; means over seeds.

    table: setting, value, seed, round (from 0), accuracy (a fraction); label: of the swept quantity.
    """
    settings, values = list(dict.fromkeys(table["setting"])), sorted(table["value"].unique())
    figure, panels = _grid(len(settings), min(3, len(settings)), 2.3, 1.9)
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(values)))
    dashes = [("-", "--", "-.", ":")[place % 4] for place in range(len(values))]
    markers = ["os^Dv*PX"[place % 8] for place in range(len(values))]
    looks: list[Any] = list(zip(values, shades, markers, dashes, strict=True))
    for axes, setting in zip(panels, settings, strict=True):
        for value, shade, marker, dash in looks:
            rows = table[(table["setting"] == setting) & (table["value"] == value)]
            mean = 100 * rows.groupby("round")["accuracy"].mean()
            every = max(1, len(mean) // 8)
            axes.plot(mean.index + 1, mean, color=shade, linestyle=dash, marker=marker, markersize=3, markevery=every)
        axes.set(
            title=_title(setting),
            xlabel="communication round",
            ylabel="mean test accuracy (%)" if axes is panels[0] else "",
        )
        axes.locator_params(axis="x", integer=True)
    handles = [
        Line2D([], [], color=shade, linestyle=dash, marker=marker, markersize=3, label=f"{label} = {value:g}")
        for value, shade, marker, dash in looks
    ]
    _legend_below(figure, handles, columns=4)
    return figure


@_styled
def trade_off(table: pd.DataFrame) -> Picture:
    """Accuracy against communication, the marker's area the computation: bottom right and small is best; a panel a data set.

    table: dataset, setting, method, accuracy (per cent), words (transmitted until the target), flops, reached (bool): hollow
    markers never reached the target and stand at what they spent in all rounds.
    """
    datasets = list(dict.fromkeys(table["dataset"]))
    settings = list(dict.fromkeys(table["clients"]))
    figure, panels = _grid(len(datasets), len(datasets), 3.3, 2.7)
    shapes = dict(zip(settings, "os^DP", strict=False))
    for axes, dataset in zip(panels, datasets, strict=True):
        rows = table[table["dataset"] == dataset]
        for row in rows.itertuples():
            face = colour(row.method) if row.reached else "none"
            axes.scatter(
                row.accuracy, max(row.words, 0), s=20 + 180 * row.flops / rows["flops"].max(), marker=shapes[row.clients],
                facecolors=face, edgecolors=colour(row.method), linewidths=1.0, alpha=0.8,
            )  # fmt: skip
        smallest = max(10.0, rows.loc[rows["words"] > 0, "words"].min())
        axes.set_yscale("symlog", linthresh=smallest)
        axes.set_ylim(-0.5 * smallest, 4 * rows["words"].max())
        axes.margins(x=0.12)
        axes.set(title=dataset, xlabel="mean test accuracy (%)", ylabel="words transmitted")
    methods = list(dict.fromkeys(table["method"]))
    handles = [Line2D([], [], color=colour(m), marker="o", linestyle="", label=m) for m in methods]
    handles += [Line2D([], [], color="black", marker=shapes[s], linestyle="", label=s) for s in settings]
    handles += [Line2D([], [], color="black", marker="o", fillstyle="none", linestyle="", label="target not reached")]
    _legend_below(figure, handles, columns=2 * len(datasets))
    return figure


@_styled
def sweeps(
    table: pd.DataFrame, methods: Sequence[str], label: str, log: bool = False, selected: bool = False
) -> Picture:
    """Mean test accuracy against one swept quantity, a panel a data set; bars are 95 % intervals over seeds.

    table: method, dataset, value, ours, ci95 (`report.summarise`; per cent); label: of the swept quantity; log: its axis;
    selected: also draw the means over the selected clients, thin and hollow.
    """
    datasets = list(dict.fromkeys(table["dataset"]))
    figure, panels = _grid(len(datasets), len(datasets), 2.6, 2.0)
    for axes, dataset in zip(panels, datasets, strict=True):
        _sweep(axes, table[table["dataset"] == dataset], methods, label, log, selected)
        axes.set(title=dataset, ylabel="mean test accuracy (%)" if axes is panels[0] else "")
    handles = [
        Line2D([], [], color=colour(m), linestyle=_dash(m), marker=_marker(m), markersize=4, label=m) for m in methods
    ]
    if selected:
        hollow: Any = {"marker": "o", "fillstyle": "none", "linewidth": 0.7, "markersize": 5}
        handles.append(Line2D([], [], color="grey", label="thin and hollow: mean over the selected clients", **hollow))
    _legend_below(figure, handles)
    return figure


@_styled
def sensitivity(tables: Mapping[str, pd.DataFrame], method: str) -> Picture:
    """One method against several swept quantities: a row a data set, a column a quantity; bars are 95 % intervals over seeds.

    tables: label of the quantity -> method, dataset, value, ours, ci95 (`report.summarise`; per cent).
    """
    datasets = list(dict.fromkeys(dataset for table in tables.values() for dataset in table["dataset"]))
    figure, panels = _grid(len(datasets) * len(tables), len(tables), 2.3, 1.7)
    for place, (dataset, label) in enumerate((dataset, label) for dataset in datasets for label in tables):
        axes, table, first = panels[place], tables[label], place % len(tables) == 0
        _sweep(axes, table[table["dataset"] == dataset], [method], label)
        axes.set(title=dataset, ylabel="mean test accuracy (%)" if first else "")
        if not first:
            axes.sharey(panels[place - 1])
    return figure


def _sweep(
    axes: Axes, table: pd.DataFrame, methods: Sequence[str], label: str, log: bool = False, selected: bool = False
) -> None:
    for method in methods:
        rows = table[table["method"] == method].sort_values("value")
        axes.errorbar(
            rows["value"].astype(float), rows["ours"], yerr=rows["ci95"].fillna(0), color=colour(method), capsize=2,
            linestyle=_dash(method), marker=_marker(method), markersize=4, label=method,
        )  # fmt: skip
        if selected:
            axes.plot(
                rows["value"].astype(float), rows["selected"], color=colour(method), linewidth=0.7, markersize=5,
                linestyle=_dash(method), marker=_marker(method), fillstyle="none",
            )  # fmt: skip
    values = sorted(table["value"].astype(float).unique())
    axes.set_xscale("log" if log else "linear")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    axes.set_xlabel(label)


@_styled
def effects(table: pd.DataFrame, label: str = "difference in mean test accuracy (points)") -> Picture:
    """What one difference at a time does: a dot a case with its 95 % interval, a panel a data set; 0 is the reference.

    table: case, dataset, difference, ci95 (points; NaN: one seed), in the order shown; perhaps selected_difference and
    selected_ci95, the same of the selected clients, drawn hollow below.
    """
    datasets = list(dict.fromkeys(table["dataset"]))
    cases = list(dict.fromkeys(table["case"]))
    width = 3.6 if len(datasets) == 1 else 2.6
    figure, panels = _grid(len(datasets), len(datasets), width, 0.6 + 0.24 * len(cases))
    blue, red = colour("FedSSA"), colour("pFedES")
    kinds: list[tuple[str, float, Any, str]] = [("", 0.0, {"marker": "o", "color": blue}, "")]
    if "selected_difference" in table:
        hollow = {"marker": "s", "color": red, "markerfacecolor": "white"}
        kinds = [("", -0.14, kinds[0][2], "over all clients"), ("selected_", 0.14, hollow, "over the selected clients")]
    for axes, dataset in zip(panels, datasets, strict=True):
        for row in table[table["dataset"] == dataset].to_dict("records"):
            for prefix, shift, style, _ in kinds:
                half = row[f"{prefix}ci95"]
                xerr = 0 if np.isnan(half) else half
                place = cases.index(row["case"]) + shift
                axes.errorbar(
                    row[f"{prefix}difference"], place, xerr=xerr, linestyle="", markersize=4, capsize=2, **style
                )
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set(yticks=range(len(cases)), title=dataset, ylim=(len(cases) - 0.5, -0.5), xlabel=label)
        axes.set_yticklabels(cases if axes is panels[0] else [])
    if len(kinds) > 1:
        _legend_below(
            figure, [Line2D([], [], linestyle="", markersize=4, label=name, **style) for _, _, style, name in kinds]
        )
    return figure


@_styled
def representations(table: pd.DataFrame, classes: Sequence[str] = ()) -> Picture:
    """t-SNE maps, a panel a method: coloured by class, marked by architecture.

    table: method, x, y, label (class number), architecture; classes: names of the classes, by number.
    """
    methods = list(dict.fromkeys(table["method"]))
    figure, panels = _grid(len(methods), len(methods), 3.2, 2.9)
    labels, architectures = sorted(table["label"].unique()), sorted(table["architecture"].unique())
    colours = [mpl.colormaps["tab10"](number % 10) for number in range(len(labels))]
    shapes = dict(zip(architectures, "os^DPX*v", strict=False))
    for axes, method in zip(panels, methods, strict=True):
        for (label, architecture), rows in table[table["method"] == method].groupby(["label", "architecture"]):
            axes.scatter(
                rows["x"], rows["y"], s=7, marker=shapes[architecture], color=colours[labels.index(label)], alpha=0.7, linewidths=0
            )  # fmt: skip
        axes.set(title=method, xticks=[], yticks=[])
        axes.grid(False)
    handles = [
        Line2D([], [], color=colours[place], marker="o", linestyle="", markersize=4, label=classes[label] if classes else str(label))
        for place, label in enumerate(labels)
    ]  # fmt: skip
    handles += [
        Line2D([], [], color="black", marker=shape, linestyle="", markersize=4, label=name)
        for name, shape in shapes.items()
    ]
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
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            for spine in axes.spines.values():
                spine.set_visible(False)
            if number == 0:
                axes.set_ylabel(label)
    return figure


# Good to bad to unknown, told apart in grey by lightness and hatching.
_TALLY = {
    "agrees": ("#0173b2", ""), "supported": ("#0173b2", ""),
    "off in the last digit": ("#7fb9dc", ""), "disagrees": ("#d55e00", "xx"), "contradicted": ("#d55e00", "xx"),
    "undecided": ("#bbbbbb", "//"), "no table to check": ("#bbbbbb", "//"),
    "stand-in": ("#e3d9a8", ".."), "not run": ("#eeeeee", ""),
}  # fmt: skip


@_styled
def tallies(tables: Mapping[str, pd.DataFrame]) -> Picture:
    """Stacked counts, a panel a table under each other: rows (papers) down, a colour a column (verdicts), numbers inside."""
    rows = max(len(table) for table in tables.values())
    figure, panels = _grid(len(tables), 1, 3.6, 0.75 + 0.22 * rows)
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        shown = [column for column in _TALLY if column in table and table[column].sum()]
        left = np.zeros(len(table))
        for column in shown:
            counts, (face, hatch) = table[column].to_numpy(), _TALLY[column]
            style: Any = {"color": face, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
            bars = axes.barh(table.index, counts, left=left, label=column, **style)
            boxed = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
            labels = [f"{count}" if count else "" for count in counts]
            for text in axes.bar_label(bars, labels, label_type="center", fontsize=6.5):
                text.set_bbox(boxed if text.get_text() else None)
            left = left + counts
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        last = axes is panels[-1]
        axes.set(title=title, xlabel="claims" if last else "")
        below = (0.45, -0.38 if last else -0.18)
        axes.legend(loc="upper center", bbox_to_anchor=below, ncols=3, frameon=False, fontsize=6.5)
    return figure


@_styled
def agreement(table: pd.DataFrame) -> Picture:
    """What two papers print for the same thing, one against the other, one panel per pair of tables; on the diagonal they agree.

    table: first_table and second_table (names of the pair), models (title of its panel), dataset, num_clients, first (on the x
    axis) and second, per cent; NaN: a dash.
    """
    found = table.dropna(subset=["first", "second"])
    pairs = list(found.groupby(["first_table", "second_table", "models"], sort=False))
    figure, panels = _grid(len(pairs), 2, 2.3, 2.2)
    shapes, colours = (
        dict(zip(sorted(found["num_clients"].unique()), "os^D", strict=False)),
        {"cifar10": colour("FedSSA"), "cifar100": colour("pFedES")},
    )
    for axes, ((first, second, models), rows) in zip(panels, pairs, strict=True):
        axes.axline((50, 50), slope=1, color="black", linewidth=0.6)
        for row in rows.to_dict("records"):
            axes.plot(
                row["first"], row["second"], shapes[row["num_clients"]], color=colours[row["dataset"]], markersize=4,
                markerfacecolor="none" if row["dataset"] == "cifar100" else colours[row["dataset"]],
            )  # fmt: skip
        axes.set(title=models, xlabel=f"{first} (%)", ylabel=f"{second} (%)")
        axes.set_aspect("equal", adjustable="datalim")
    handles = [
        Line2D([], [], color=shade, marker="o", linestyle="", markersize=4, label=name, markerfacecolor=fill)
        for (name, shade), fill in zip(colours.items(), (colour("FedSSA"), "none"), strict=True)
    ]
    handles += [
        Line2D([], [], color="grey", marker=shape, linestyle="", markersize=4, label=f"N = {number}")
        for number, shape in shapes.items()
    ]
    _legend_below(figure, handles)
    return figure


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
    marked: (row, column) places to frame; numbers: format of the numbers inside, none by default; size: in inches.
    """
    figure = Picture(figsize=size, layout="constrained")
    axes, values = figure.add_subplot(), table.to_numpy(float)
    shown = axes.imshow(values, cmap="cividis_r", aspect="auto", interpolation="nearest")
    small: Any = {"fontsize": 5} if len(table.columns) > 12 else {}
    axes.set_xticks(range(len(table.columns)), list(table.columns), rotation=90 if small else 0, **small)
    axes.set_yticks(range(len(table)), list(table.index), **small)
    axes.tick_params(length=2)
    axes.grid(False)
    for place in range(1, len(groups)):
        if groups[place] != groups[place - 1]:
            axes.axhline(place - 0.5, color="white", linewidth=1.6)
            axes.axvline(place - 0.5, color="white", linewidth=1.6)
    for row, column in marked:
        axes.add_patch(Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor="#d55e00", linewidth=2))
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if numbers and np.isfinite(value):
            ink = "white" if value > middle else "black"
            axes.text(column, row, format(value, numbers), ha="center", va="center", color=ink, fontsize=6.5)
    figure.colorbar(shown, ax=axes, label=label, shrink=0.8)
    return figure


@_styled
def chains(rows: Mapping[str, Sequence[tuple[str, str, bool]]], width: float = 3.4) -> Picture:
    """Models as chains of blocks from input to output, coloured by the architecture that a layer comes from.

    rows: label of a model -> (architecture, layer, stitched) of each block; stitched: a stitch stands before it, drawn as a
    black lozenge; an empty architecture is a new layer, white.
    """
    longest = max(len(blocks) for blocks in rows.values())
    figure = Picture(figsize=(width, 0.42 * len(rows) + 0.45), layout="constrained")
    axes = figure.add_subplot()
    for place, blocks in enumerate(rows.values()):
        for number, (origin, layer, stitched) in enumerate(blocks):
            face = _ORIGINS.get(origin, "white")
            axes.add_patch(
                Rectangle((number + 0.09, place - 0.38), 0.82, 0.76, facecolor=face, edgecolor="black", linewidth=0.6)
            )
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
    _legend_below(figure, [Line2D([], [], color="black", marker="D", linestyle="", markersize=4, label="stitch")])
    return figure


@_styled
def by_group(table: pd.DataFrame, methods: Sequence[str], column: str, label: str) -> Picture:
    """Mean test accuracy by method side by side for each value of a column of names, a panel a setting.

    table: method, setting, `column`, ours, ci95 (`report.summarise`; per cent; the bars are 95 % intervals over seeds); label:
    of the column.
    """
    settings, groups = list(dict.fromkeys(table["setting"])), list(dict.fromkeys(table[column]))
    figure, panels = _grid(len(settings), min(2, len(settings)), 3.1, 2.1)
    for axes, setting in zip(panels, settings, strict=True):
        rows = table[table["setting"] == setting]
        present = [method for method in methods if method in set(rows["method"])]
        for number, method in enumerate(present):
            own = rows[rows["method"] == method]
            shift = 0.2 * (number - (len(present) - 1) / 2)
            places = [groups.index(name) + shift for name in own[column]]
            axes.errorbar(
                places, own["ours"], yerr=own["ci95"].fillna(0), color=colour(method), marker=_marker(method), linestyle="",
                markersize=4.5, capsize=2,
            )  # fmt: skip
        for edge in range(1, len(groups)):
            axes.axvline(edge - 0.5, color="#bbbbbb", linewidth=0.6)
        first = panels.index(axes) % 2 == 0
        axes.set(title=_title(setting), xlabel=label, ylabel="mean test accuracy (%)" if first else "")
        axes.set_xticks(range(len(groups)), [name.replace("-", "\n", 1) for name in groups])
        axes.set_xlim(-0.5, len(groups) - 0.5)
        axes.grid(axis="x", visible=False)
    _legend_below(
        figure,
        [
            Line2D([], [], color=colour(method), marker=_marker(method), linestyle="", markersize=4.5, label=method)
            for method in methods
            if method in set(table["method"])
        ],
        columns=5,
    )
    return figure
