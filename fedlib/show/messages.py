"""The picture of a round's messages."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

EXTRACTOR, HEADER = "#9ecae9", "#f0b04f"


def draw(
    table: pd.DataFrame, networks: Mapping[str, Sequence[int]], sizes: Mapping[str, str], server: str = ""
) -> Figure:
    """A round of a federation: clients with their networks, the tensors that each receives and sends, and the server.

    table: direction (`download`, `upload`), tensor, shape, words (`costs.messages`); networks: a client's label -> the width of each
    layer, from input to output, the last one the header; sizes: a client's label -> how large its network is, in words; server: what
    the server does.
    """
    rows = len(networks)
    figure = Figure(figsize=(6.4, 0.62 * rows + 0.35), layout="constrained")
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
