"""How figures look: a colour and a marker a method, the line at the foot that says what is in them, the same bytes each time."""

import io
import warnings
from collections.abc import Iterable
from textwrap import fill
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from . import labels
from .looks import looks

STYLE: Any = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 200, "axes.grid": True,
    "grid.alpha": 0.25, "grid.linewidth": 0.5, "lines.linewidth": 1.4, "axes.formatter.useoffset": False,
}  # fmt: skip
SHOWN_DPI = 110  # in a notebook, where pictures have twice the pixels that they take on the page
SYMBOLS = {"N": "num_clients", "C": "participation", "T": "rounds", "E": "local_epochs", "B": "batch_size"}
STAND_IN = "stand-in: embedded digits, not comparable with the paper"


def use() -> None:
    """Small type, light grids and no upper spines for all figures from here on, seaborn's too."""
    mpl.rcParams.update(STYLE | {"figure.constrained_layout.use": True})
    warnings.filterwarnings("ignore", "The figure layout has changed to tight")  # seaborn's grids lay themselves out


def palette(methods: Iterable[str]) -> dict[str, str]:
    """The colour of each method, the same in every figure."""
    return {name: look.colour for name, look in looks(methods).items()}


def markers(methods: Iterable[str]) -> dict[str, str]:
    """The marker of each method, the same in every figure."""
    return {name: look.marker for name, look in looks(methods).items()}


def said(frame: pd.DataFrame) -> str:
    """What is in a figure or a table of the runs in `frame` (`exhibits.frame`): `N = 100; C = 10 %; T = 100; E = 10; B = 64; scale record;
    protocol reconstructed; n = 3 to 5`, all values that occur; empty without runs.
    """
    if frame.empty:
        return ""
    words = []
    for symbol, name in SYMBOLS.items():
        values = sorted(frame[name].unique())
        words.append(f"{symbol} = {', '.join(labels.per_cent(one) if symbol == 'C' else f'{one:g}' for one in values)}")
    words += [f"{name} {', '.join(dict.fromkeys(frame[name]))}" for name in ("scale", "protocol")]
    seeds = frame.groupby(["method", "setting", "value"], dropna=False)["seed"].nunique()
    return "; ".join([*words, f"n = {labels.seeds_range(seeds)}"])


def foot(figure: Figure, text: str) -> None:
    """Print a line below everything that is in the figure."""
    figure.draw_without_rendering()
    lowest = min([0.0, *(legend.get_window_extent().y0 / figure.bbox.height for legend in figure.legends)])
    width = int(figure.get_size_inches()[0] * 23)  # characters of this size
    figure.text(0.01, lowest - 0.01, fill(text, width), fontsize=6, color="#444444", va="top", ha="left")


def png(figure: Figure, dpi: int = 300) -> bytes:
    """The figure as a PNG, the same bytes whenever it is drawn from the same data."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None}, bbox_inches="tight", pad_inches=0.05)
    return buffer.getvalue()


class Shown:
    """A drawn figure, as a notebook shows it."""

    def __init__(self, drawn: bytes, dpi: int):
        self.drawn, self.dpi = drawn, dpi

    def __repr__(self) -> str:
        return "a figure"

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        from PIL import Image

        width, height = (round(pixels * SHOWN_DPI / self.dpi) for pixels in Image.open(io.BytesIO(self.drawn)).size)
        return self.drawn, {"width": width, "height": height}
