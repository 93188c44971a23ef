"""Figures from made-up tables: what is drawn, what is said, and that it is drawn the same twice."""

import io
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedlib.algorithms import ALGORITHMS
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedavg import FedAvg
from fedlib.errors import FedlibError
from fedlib.look import Look
from fedlib.papers import exhibits
from fedlib.show import plots
from fedlib.show.looks import looks

ROWS = pd.DataFrame(
    [  # method, dataset, clients, ours, ci95, n, selected, paper
        ("FedProto", "cifar10", "N = 10", 97.0, 8.0, 3, 71.5, 90.0),
        ("FedSSA", "cifar10", "N = 10", 97.2, np.nan, 1, 75.0, 95.0),
        ("FedProto", "mnist", "N = 100", 60.0, 1.0, 2, 60.0, 90.0),
    ],
    columns=["method", "dataset", "clients", "ours", "ci95", "n", "selected", "paper"],
).assign(setting=lambda table: table["dataset"] + ", " + table["clients"], diverged=0)
METHODS = ["FedProto", "FedSSA"]


def texts(drawn):
    return [text.get_text() for text in drawn]


def words(figure):
    return [word for axes in figure.axes for word in texts(axes.texts)] + [
        word for legend in figure.legends for word in texts(legend.get_texts())
    ]


def hollow(figure):
    return [line for axes in figure.axes for line in axes.lines if line.get_markerfacecolor() == "white"]


def test_every_method_has_a_look_and_tables_never_repeat_a_colour():
    found = {name: method.look for name, method in ALGORITHMS.items()}
    assert None not in found.values()
    assert len({(one.colour, one.marker) for one in found.values()}) == len(found)
    for name, grid in exhibits.GRIDS.items():
        colours = [found[method].colour for method in grid.methods if method in found]
        assert len(set(colours)) == len(colours), name


def test_a_method_without_a_look_of_its_own_gets_a_spare_one(monkeypatch):
    @dataclass(frozen=True)
    class Mine(FedAvg):
        name = "Mine"

    monkeypatch.setitem(ALGORITHMS, "Mine", Mine)
    found = looks(["FedAvg", "Mine", "case A: x", "case B: y", "Mine"])
    assert found["FedAvg"] == FedAvg.look and found == looks(["FedAvg", "Mine", "case A: x", "case B: y"])
    assert len({one.colour for one in found.values()}) == 4
    many = looks([f"case {place}" for place in range(20)])
    assert len({(one.colour, one.marker) for one in many.values()}) == 20
    monkeypatch.setattr(Mine, "look", Look("#123456", "x"), raising=False)
    assert looks(["Mine"])["Mine"] == Look("#123456", "x")
    assert Algorithm.look is None


@pytest.mark.thorough
def test_pictures_are_the_same_bytes_whenever_drawn():
    def draw():
        return plots.intervals(ROWS, METHODS).note("N = 10; T = 30")

    first, second = draw(), draw()
    assert first.png() == second.png() == first.png()
    assert first.svg() == second.svg() and b"<dc:date>" not in first.svg()
    png, size = first._repr_png_()
    assert png == first.png(200) and 200 < size["width"] < 900
    assert Image.open(io.BytesIO(first.png())).info["dpi"] == pytest.approx((300, 300), abs=0.1)  # as printers ask for
    assert first.texts[0].get_text() == "N = 10; T = 30"


def test_intervals_end_at_100_and_one_seed_is_hollow():
    figure = plots.intervals(ROWS, METHODS).note("a line of words")
    assert figure.texts[0].get_window_extent().y1 <= figure.legends[0].get_window_extent().y0 + 1  # under the legend
    first, second = figure.axes
    (bar,) = first.containers
    low, high = bar.lines[2][0].get_segments()[0][:, 0]
    assert (low, high) == (89.0, 100.0)
    assert [line.get_xdata()[0] for line in hollow(figure)] == [97.2]
    assert first.get_xlim()[1] <= 101 and second.get_xlim()[1] - second.get_xlim()[0] >= plots.LEAST_SPAN
    assert first.get_title() == "CIFAR-10\nN = 10" and second.get_title() == "MNIST\nN = 100"
    assert words(figure) == [
        "n = 3",
        "n = 1",
        "not run",
        "n = 2",
        "hollow: one seed, no interval",
        "printed in the paper",
    ]


def test_a_row_that_diverged_says_so():
    rows = ROWS.assign(ours=[np.nan, 97.2, 60.0])
    assert "diverged" in words(plots.intervals(rows, METHODS))


def curves_table(methods=("FedSSA", "FedProto"), seeds=(0, 1), rounds=4, level=0.9):
    rows = [
        ("cifar10", "N = 10", "cifar10, N = 10", method, seed, round, level + 0.2 * seed * (round == 3))
        for method in methods
        for seed in seeds
        for round in range(rounds)
    ]
    return pd.DataFrame(rows, columns=["dataset", "clients", "setting", "method", "seed", "round", "accuracy"])


def test_curves_say_n_have_the_tables_order_and_end_at_100():
    figure = plots.curves(curves_table(seeds=(0, 1, 2), level=0.7), {"cifar10, N = 10": ["FedProto", "FedSSA"]})
    (axes,) = figure.axes
    assert axes.get_title() == "CIFAR-10\nN = 10; n = 3"
    assert texts(figure.legends[0].get_texts()) == ["FedSSA", "FedProto"]  # as in the table
    top = max(band.get_paths()[0].vertices[:, 1].max() for band in axes.collections)
    assert top <= 100
    low, high = axes.get_ylim()
    assert high - low >= plots.LEAST_SPAN and high <= 100 + 0.04 * (high - low)
    starts = [line.get_markevery() for line in axes.lines]
    assert len(starts) == 2 and len({line.get_linewidth() for line in axes.lines}) == 2  # equal curves are both seen


def test_the_x_axis_is_a_choice():
    table = curves_table(seeds=(0, 1)).assign(words=lambda rows: 1000.0 * (rows["round"] + 1) + 100 * rows["seed"])
    (axes,) = plots.curves(table, {"cifar10, N = 10": ["FedSSA"]}, along="words").axes
    assert axes.get_xlabel() == "words transmitted"
    assert list(axes.lines[0].get_xdata()) == [1050, 2050, 3050, 4050]  # means over seeds
    with pytest.raises(FedlibError, match=r"along = 'seconds' is unknown: .*known are rounds, epochs, words, flops"):
        plots.curves(table, {}, along="seconds")


def test_one_seed_and_two_have_no_band():
    one = plots.curves(curves_table(seeds=(0,)), {"cifar10, N = 10": ["FedSSA"]})
    assert one.axes[0].get_title().endswith("n = 1")
    assert not one.axes[0].collections
    two = curves_table(level=0.5)  # whose interval of the last round spans more than 200 points
    assert not plots.curves(two, {"cifar10, N = 10": ["FedSSA"]}).axes[0].collections


def test_no_band_leaves_the_frame():
    table = curves_table(seeds=(0, 1, 2), level=0.5)
    for figure in (
        plots.curves(table, {"cifar10, N = 10": ["FedSSA"]}),
        plots.leads(lead_rows(ci95=40.0), "Standalone", ["FedSSA"]),
    ):
        (axes,) = figure.axes
        (band,) = axes.collections
        heights = band.get_paths()[0].vertices[:, 1]
        assert axes.get_ylim()[0] <= heights.min() < heights.max() <= axes.get_ylim()[1]
        assert heights.max() - heights.min() > 50


def lead_rows(ci95=0.5):
    rows = [("one", "cifar10", "N = 10", "FedSSA", 3, at, 1.0 * at, ci95) for at in (1, 2, 3)]
    return pd.DataFrame(rows, columns=["setting", "dataset", "clients", "method", "n", "rounds", "lead", "ci95"])


def test_the_recorded_mu_stands_beside_the_formula():
    record = pd.DataFrame({"round": [-1, 0, 1, 2, 3], "mu": [np.nan, 0.5, 0.4, 0.2, 0.0]})
    figure = plots.decay({"a": lambda round: 0.5, "b": lambda round: 1.0}, 2, recorded={"a": record})
    line, dots, _, legend = figure.axes[0].lines
    assert dots.get_xydata().tolist() == [[0, 0.5], [1, 0.4], [2, 0.2]] and dots.get_color() == line.get_color()
    assert legend.get_label() == "recorded by runs"


def test_leads_are_drawn_against_zero():
    table = lead_rows()
    figure = plots.leads(table, "Standalone", ["FedSSA"])
    (axes,) = figure.axes
    assert axes.get_ylabel() == "points above Standalone" and "n = 3" in axes.get_title()
    zero, curve = axes.lines
    assert curve.get_ydata().tolist() == [1.0, 2.0, 3.0] and set(zero.get_ydata()) == {0}
    assert "Bands: 95 % intervals of FedSSA." in figure.texts[-1].get_text()
    assert len(axes.collections) == 1  # the band, which two seeds are too few for, and only where it is asked for
    assert np.diff(axes.get_ylim()) >= plots.LEAST_SPAN  # a lead of nothing fills no panel
    long = plots.leads(table, "case B: by class, seen rows replaced", []).axes[0].get_ylabel()
    assert long == "points above case B: by class,\nseen rows replaced"  # as long as the panel is high
    few = plots.leads(table.assign(n=2), "Standalone", ["FedSSA"])
    assert not few.axes[0].collections and not few.texts
    assert not plots.leads(table, "Standalone", ["FedProto"]).axes[0].collections


def test_who_holds_what_says_how_large_a_dot_is():
    figure = plots.class_distribution(pd.DataFrame([[0, 40], [20, 4]]))
    assert texts(figure.legends[0].get_texts()) == ["40 images", "20 images", "4 images"]
    (dots,) = (own for own in figure.axes[0].collections if len(own.get_offsets()))
    assert dots.get_sizes().tolist() == pytest.approx([70, 35, 7])
    assert [own.get_sizes()[0] for own in figure.legends[0].legend_handles] == pytest.approx([70, 35, 7])
    assert np.diff(figure.axes[0].get_xticks())[0] == 1


def test_a_flat_sweep_makes_no_peak():
    table = pd.DataFrame({"value": [1, 2, 3], "ours": [95.86, 95.89, 95.85]})
    table = table.assign(method="FedSSA", dataset="mnist", ci95=np.nan, n=1, selected=99.0)
    figure = plots.sweeps(table, ["FedSSA"], "K")
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    assert high - low >= plots.LEAST_SPAN and high <= 101 and low < 95.8
    assert len(hollow(figure)) == 3 and axes.get_title() == "MNIST; n = 1"
    assert texts(axes.get_xticklabels()) == ["1", "2", "3"]


@pytest.mark.parametrize("selected", [False, True])
def test_sweeps_draw_the_selected_when_asked(selected):
    table = ROWS.assign(value=0.1)
    figure = plots.sweeps(table, METHODS, "C", selected=selected)
    pale = [line for axes in figure.axes for line in axes.lines if line.get_alpha() == 0.5]
    assert len(pale) == (4 if selected else 0)
    named = plots.sweeps(table, METHODS, "C", by="setting")
    assert [axes.get_title() for axes in named.axes] == ["CIFAR-10\nN = 10; n = 1 to 3", "MNIST\nN = 100; n = 2"]


def test_methods_at_one_value_stand_side_by_side():
    table = pd.DataFrame({"method": METHODS, "dataset": "mnist", "value": 1.0, "ours": 50.0, "ci95": 1.0, "n": 3})
    figure = plots.sweeps(table, METHODS, "C")
    figure.draw_without_rendering()
    lines = [bar.lines[0] for bar in figure.axes[0].containers]
    places = [line.get_transform().transform(line.get_xydata())[0][0] for line in lines]
    assert len(places) == 2 and places[1] - places[0] > 4  # pixels


def test_quantities_swept_one_by_one_have_panels_of_their_own_and_share_an_axis():
    rows = [
        (item, data, value) for data in ("cifar10", "cifar100") for item, value in (("mu", 0.1), ("mu", 0.3), ("E", 5))
    ]
    table = pd.DataFrame(rows, columns=["swept", "dataset", "value"]).assign(
        method="pFedES", ours=50.0, ci95=np.nan, n=1
    )
    table = table.assign(setting=table["dataset"] + table["swept"], clients="N = 10")
    table.loc[2, "ours"] = 90.0
    quantities = table["swept"].map({"mu": "weight mu", "E": "epochs"})
    figure = plots.sweeps(table, ["pFedES"], dict(zip(table["setting"], quantities, strict=True)), by="setting")
    assert [(axes.get_title(), axes.get_xlabel()) for axes in figure.axes] == [
        ("CIFAR-10\nN = 10; n = 1", "weight mu"), ("CIFAR-10\nN = 10; n = 1", "epochs"),
        ("CIFAR-100\nN = 10; n = 1", "weight mu"), ("CIFAR-100\nN = 10; n = 1", "epochs"),
    ]  # fmt: skip
    first, second, third, _ = figure.axes
    assert [float(line.get_xdata()[0]) for line in hollow(figure)] == [0.1, 0.3, 5, 0.1, 0.3, 5]
    assert first.get_ylim() == second.get_ylim() and first.get_ylim()[0] < 50 < 90 < first.get_ylim()[1]
    assert third.get_ylim()[1] < 60  # another data set


def effects_table():
    rows = [("one", "released", 2, 3.0, 1.0, 1.0, 0.5), ("two", "released", 1, -1.0, np.nan, 0.0, np.nan)]
    rows += [("three", "the text", 3, 2.0, 1.0, 1.0, 1.0)]
    columns = ["case", "against", "n", "difference", "ci95", "selected_difference", "selected_ci95"]
    return pd.DataFrame(rows, columns=columns).assign(dataset="cifar10")


def test_effects_name_the_reference_and_say_n():
    figure = plots.effects(effects_table(), "points")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "points\n0 = released" and axes.get_title() == "CIFAR-10"
    assert texts(axes.get_yticklabels()) == ["one", "two", "three\n(against the text)"]
    drawn = ["over the visited clients", "over the selected clients"]
    assert words(figure) == ["n = 2", "n = 1", "n = 3", *drawn, "hollow: one seed, no interval"]
    assert len(hollow(figure)) == 2
    alone = plots.effects(effects_table().query("n > 1").drop(columns="selected_difference"), "points")
    assert not alone.legends


def test_representations_name_axes_and_classes():
    rows = [("a", 0.0, 1.0, label, f"CNN-{label % 5 + 1}") for label in range(10)]
    table = pd.DataFrame(rows, columns=["method", "x", "y", "label", "architecture"])
    figure = plots.representations(table, [f"name {label}" for label in range(10)])
    assert figure.axes[0].get_xlabel() and figure.axes[0].get_ylabel()
    assert words(figure)[:2] == ["name 0", "name 1"] and words(plots.representations(table))[0] == "class 0"
    colours = {tuple(colour) for marks in figure.axes[0].collections for colour in marks.get_facecolors()}
    assert len(colours) == 10
    many = pd.concat([table.assign(label=label) for label in range(30)])
    assert len(words(plots.representations(many))) < 20


def test_images_are_rows_of_pictures():
    figure = plots.images({"original": np.zeros((3, 32, 32, 3)), "enhanced": np.ones((3, 32, 32, 3))}).note("rescaled")
    assert [axes.get_ylabel() for axes in figure.axes] == ["original", "", "", "enhanced", "", ""]


def test_tallies_draw_every_verdict_even_an_unknown_one():
    table = pd.DataFrame(
        {"supported": [2, 1], "undecided": [1, 0], "a new one": [0, 3], "never": [0, 0]}, index=["p", "q"]
    )
    figure = plots.tallies({"title": table, "other": table})
    assert texts(figure.axes[0].get_legend().get_texts()) == ["supported", "undecided", "a new one"]
    assert all(axes.get_xlabel() == "claims" for axes in figure.axes)
    small = plots.tallies({"title": table, "few": table // 2})
    assert small.axes[0].get_xlim() == small.axes[1].get_xlim()


def test_a_line_per_value_and_a_legend_that_fits():
    values = [10.0**-place for place in range(9, -1, -1)]
    rows = [{"setting": "a, b", "value": value, "seed": 0, "round": 0, "accuracy": value / 2} for value in values]
    figure = plots.curves_by_value(pd.DataFrame(rows[::-1]), "a label of some length")
    (legend,) = figure.legends
    assert [text.get_text().split(" = ")[1] for text in legend.get_texts()] == [f"{value:g}" for value in values]
    assert [line.get_ydata()[0] for line in figure.axes[0].lines] == [100 * value / 2 for value in values]
    assert legend.get_tightbbox().width <= figure.bbox.width


def test_four_panels_leave_no_orphan():
    rows = [(method, f"s{place}", 50.0, 1.0, 3) for method in METHODS for place in range(4)]
    figure = plots.intervals(pd.DataFrame(rows, columns=["method", "setting", "ours", "ci95", "n"]), METHODS)
    places = [axes.get_subplotspec().rowspan.start for axes in figure.axes]
    assert places == [0, 0, 1, 1]
    named = [bool(axes.get_yticklabels()[0].get_text()) for axes in figure.axes]
    assert named == [True, False, True, False]


def test_names_stand_side_by_side_and_are_not_joined():
    rows = [
        ("A", "one", "x", 3),
        ("B", "one", "y", 3),
        ("C", "one", "y", 1),
        ("A", "two", "x", 1),
        ("B", "two", "x", 1),
    ]
    table = pd.DataFrame(rows, columns=["method", "setting", "value", "n"]).assign(dataset="mnist", ours=60.0)
    table = table.assign(ci95=[np.nan if n == 1 else 1.0 for n in table["n"]])
    figure = plots.sweeps(table, ["A", "B", "C", "D"], "public data", by="setting")
    first, second = figure.axes
    assert texts(first.get_xticklabels()) == ["x", "y"]
    assert sorted(line.get_xdata()[0] for line in first.lines if str(line.get_marker()) in "os^DvP*X") == [0, 1, 1]
    assert not any(len(line.get_xdata()) > 2 for line in first.lines) and len(hollow(figure)) == 3
    assert first.get_xlim() == second.get_xlim() == (-0.5, 1.5)
    assert words(figure)[-4:] == ["A", "B", "C", "hollow: one seed, no interval"]


def test_a_line_joins_means_of_several_seeds_only():
    table = pd.DataFrame({"value": [3, 1, 2], "n": [3, 3, 1], "ours": [50.0, 60.0, 55.0], "ci95": [1, 1, np.nan]})
    (axes,) = plots.sweeps(table.assign(method="FedSSA", dataset="mnist"), ["FedSSA"], "K").axes
    assert axes.lines[0].get_xydata().tolist() == [[1, 60], [3, 50]]
    one = table.assign(n=1, ci95=np.nan, selected=50.0, method="FedSSA", dataset="mnist")
    (axes,) = plots.sweeps(one, ["FedSSA"], "K", selected=True).axes
    assert all(line.get_linestyle() == "None" or not len(line.get_xdata()) for line in axes.lines)


def test_heat_map_frames_what_is_marked_and_writes_its_numbers():
    table = pd.DataFrame([[0.1, 0.9], [np.nan, 0.2]], index=["a", "b"], columns=["c1", "c2"])
    figure = plots.heat_map(table, "similarity", marked=[(0, 1)], numbers=".1f")
    axes = figure.axes[0]
    assert texts(axes.texts) == ["0.1", "0.9", "0.2"]
    (frame,) = axes.patches
    assert (round(frame.get_x()), round(frame.get_y())) == (1, 0)
    lines = plots.heat_map(table, "distance", groups=[0, 1]).axes[0].lines
    assert len(lines) == 2 and not plots.heat_map(table, "distance", groups=[0, 0]).axes[0].lines
    assert figure.png() == figure.png()  # with a colour bar too


def test_chains_draw_a_block_a_layer_and_a_lozenge_a_stitch():
    rows = {"c1": [("M1", "conv1", False), ("M2", "fc4", True)], "c2": [("M1", "conv2", True), ("", "output", False)]}
    (axes,) = plots.chains(rows).axes
    assert texts(axes.texts) == ["M1\nconv1", "M2\nfc4", "M1\nconv2", "output"]
    same, other, again, new = (patch.get_facecolor() for patch in axes.patches)
    assert same == again != other and new == (1, 1, 1, 1)
    assert [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_marker() == "D"] == [(1, 0), (0, 1)]


def test_without_runs_a_figure_says_so():
    rows, curved = ROWS.head(0).assign(value=[]), curves_table().head(0)
    empty = [
        plots.intervals(rows, METHODS), plots.sweeps(rows, METHODS, "C"),
        plots.curves(curved, {}), plots.curves_by_value(curved.assign(value=[]), "rate"),
        plots.effects(effects_table().head(0), "points"),
    ]  # fmt: skip
    for figure in empty:
        assert not figure.axes and figure.texts[0].get_text() == "no runs to plot"
        assert figure.png()


def test_a_line_is_not_broken_within_a_quantity():
    assert plots._wrapped(["N = 12, C = 50 % (for N = 100, C = 10 %); n = 1"], 38) == (
        "N = 12, C = 50 % (for N = 100,\nC = 10 %); n = 1"
    )


def test_differences_side_by_side_leave_out_what_is_not_there():
    columns = ["setting", "other", "n", "rounds", "rounds_ci95", "words", "words_ci95"]
    rows = [("one", "A", 3, 1.0, 0.5, np.nan, np.nan), ("one", "B", 1, -2.0, np.nan, 4.0, np.nan)]
    table, kinds = pd.DataFrame(rows, columns=columns), {"rounds": "equal rounds", "words": "equal words"}
    figure = plots.differences(table, "other", kinds, "points")
    (axes,) = figure.axes
    assert texts(axes.get_yticklabels()) == ["A", "B"]
    marks = sorted(float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() in ("o", "s"))
    assert marks == [-2.0, 1.0, 4.0]  # A's lead at equal words is not there
    legend = texts(figure.legends[0].get_texts())
    assert legend == ["equal rounds", "equal words", "hollow: one seed, no interval"]
    two = pd.concat([table, table.head(1).assign(setting="two")])
    assert texts(plots.differences(two, "other", kinds, "").axes[1].texts) == ["not run", "n = 3"]


def test_what_the_paper_prints_of_a_difference_is_a_tick_or_far_off_a_number():
    rows = [("A", 3, 1.0, 0.5, 2.5), ("B", 3, -2.0, 0.5, -37.8), ("C", 3, 0.0, 0.5, np.nan), ("D", 3, 3.0, 0.5, 40.0)]
    table = pd.DataFrame(rows, columns=["row", "n", "d", "d_ci95", "paper"]).assign(setting="one")
    figure = plots.differences(table, "row", {"d": "difference"}, "points")
    (axes,) = figure.axes
    ticks = {int(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "|"}
    assert ticks[0] == 2.5 and set(ticks.values()) & {-37.8, 40.0} == set()
    assert {"\u2190 -37.8", "+40.0 \u2192"} < set(texts(axes.texts))
    assert axes.get_xlim()[0] > -8 and axes.get_xlim()[1] < 8
    assert texts(figure.legends[0].get_texts()) == ["printed in the paper (arrow: off the axis)"]


def test_messages_say_what_travels_and_how_large():
    sent = pd.DataFrame(
        [("download", "rows", (2, 512), 1024), *(("upload", f"w{place}", (256, 1024), 2**18) for place in range(6))],
        columns=["direction", "tensor", "shape", "words"],
    )
    networks, sizes = {"client 0": [16, 500, 10]}, {"client 0": "CNN-1, 10 MiB"}
    said = words(plots.messages(sent, networks, sizes, "averages"))
    assert "download, 4.00 KB\nrows (2, 512)" in said and "averages" in said
    assert "upload, 6.00 MiB\nw0 (256, 1024)\nw1 (256, 1024)\nw2 (256, 1024)\nand 3 more tensors" in said
    figure = plots.messages(sent.query("direction == 'upload'"), networks, sizes)
    assert "download: nothing" in words(figure)
    heights = [
        patch.get_height() for patch in figure.axes[0].patches[2:5]
    ]  # of the layers, by the logarithm of their widths
    assert heights == pytest.approx([0.72 * np.log(width) / np.log(500) for width in (16, 500, 10)])
