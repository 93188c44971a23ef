"""Exhibits as files, each with a stamp by which it is fresh or stale by content, whatever the file times.

A stamp (figures/<scale>/<paper>/<exhibit>.json) holds what the exhibit was made of: the notebook's cell that draws it, the code of
fedlib/show, its runs as asked for and as read, and the files themselves. Another exhibit, method, model or data set leaves it fresh.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from .. import data, lab
from ..errors import choose
from ..lab import of_record, write_bytes
from ..show import style
from . import exhibits
from .exhibits import RECORD
from .settings import Parameters

NOTEBOOKS = lab.shipped() / "notebooks"


def figures(scale: str) -> Path:
    return lab.home() / "figures" / scale


def save_figure(
    name: str,
    settings: Parameters,
    figure: Figure,
    frame: pd.DataFrame,
    table: pd.DataFrame | None = None,
    view: str = "",
) -> style.Shown:
    """Write a figure of the runs in `frame` (`exhibits.frame`) and what it draws, a PNG and a CSV, with a stamp, and hand it back for
    display: what the runs have in common stands at its foot, and that their data are embedded ones.

    Runs of scale record go to figures/record/<paper>/<exhibit>-of-record, which is committed and which no parameter changes; others to
    figures/<scale>/<paper>/<exhibit>, a variation under a name of its own. table: what is drawn, by default `frame`; view: names a further
    figure of the same exhibit. The stamp holds the digests of the cell, of fedlib/show and of the table.
    """
    choose("exhibit", name, exhibits.every())
    exhibit, of_record = exhibits.every()[name], bool((frame["scale"] == RECORD).all()) and len(frame) > 0
    if any(data.info(own).embedded for own in frame["dataset"].unique()):
        figure.text(0.99, 1.0, style.STAND_IN, fontsize=6.5, color="#555555", va="bottom", ha="right")
    style.foot(figure, style.said(frame))
    # Without the fields of other methods, which `lab.tidy` has where a store holds their runs.
    drawn, content = (
        style.png(figure),
        _csv(frame.dropna(axis="columns", how="all").convert_dtypes() if table is None else table),
    )
    plt.close(figure)
    if not (of_record and settings.variation and settings.scale != RECORD):
        folder = figures(RECORD if of_record else settings.scale) / exhibit.paper
        folder.mkdir(parents=True, exist_ok=True)
        stem = _stem(exhibit, of_record, settings.variation, view)
        files = {f"{stem}.png": drawn, f"{stem}.csv": content}
        stamp = {
            "cell": _digest([_running()]),
            "show": show_digest(),
            "cells": cells_digest(exhibit, settings.scale),
            "runs": dict(zip(frame["key"], frame["digest"], strict=True)),
            "files": {file: hashlib.sha256(own).hexdigest() for file, own in files.items()},
        }
        for file, own in (files | {f"{stem}.json": json.dumps(stamp, indent=1).encode()}).items():
            write_bytes(folder / file, own)
    return style.Shown(drawn, 300)


def _stem(exhibit: exhibits.Exhibit, of_record: bool, variation: str, view: str = "") -> str:
    """The name of an exhibit's files: what is committed ends in `of-record`, a variation in what varies."""
    name = "-".join(filter(None, (exhibit.item, view, "of-record" if of_record and not variation else "")))
    return "--".join(filter(None, (name, variation)))


def _running() -> str:
    """The source of the notebook's cell that is being executed; empty outside of one."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    # A cell that nbval executes is not in the history `In`: the kernel's request has it.
    request: Any = getattr(shell, "get_parent", dict)()
    return str(request.get("content", {}).get("code", "")).strip()


@cache
def show_digest() -> str:
    """SHA-256 of how figures look: the source of fedlib/show."""
    return _digest([file.read_text() for file in sorted(Path(style.__file__).parent.glob("*.py"))])


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode()


# ------------------------------------------------------------------------------------------------------------- freshness


def freshness(exhibit: exhibits.Exhibit, asked: Parameters) -> str:
    """`fresh`, or why the exhibit, or its variation with only some methods or on another device, must be made again."""
    folder, scale = figures(asked.scale) / exhibit.paper, asked.scale
    stem = _stem(exhibit, scale == RECORD, asked.variation)
    try:
        stamp = json.loads((folder / f"{stem}.json").read_text())
        for file, digest in stamp["files"].items():
            if hashlib.sha256((folder / file).read_bytes()).hexdigest() != digest:
                return f"{file} changed"
        if not {f"{stem}.png", f"{stem}.csv"} <= set(stamp["files"]):
            return "incomplete"
        if stamp["cell"] not in {_digest([cell.strip()]) for cell in _code(exhibit.notebook)}:
            return "cell changed"
        if stamp["show"] != show_digest():
            return "fedlib/show changed"
        if stamp["cells"] != cells_digest(exhibit, scale):
            return "grid changed"
        needed = {lab.resolve(cell.spec, scale).key for cell in asked.cells(*exhibit.grids)}
        known = cache(of_record.by_key)  # read once, where the store lacks a run
        for key in needed | set(stamp["runs"]):
            record: Any = lab.read(lab.store() / key)
            if record is None or record.stale:
                record = known().get(key)
            if record is None or stamp["runs"].get(key) != record.digest:
                return "runs changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} missing"
    except (KeyError, ValueError, TypeError, AttributeError):
        return "stamp damaged"
    return "fresh"


def cells_digest(exhibit: exhibits.Exhibit, scale: str) -> str:
    """SHA-256 of what the exhibit's grids ask for at a scale: rows, settings, values, targets and runs, in their order."""
    cells = exhibits.cells(exhibit.grids, scale)
    rows = [
        (cell.method, cell.setting, cell.value, cell.target, cell.stands_for, lab.resolve(cell.spec, scale).key)
        for cell in cells
    ]
    return _digest([repr(rows)])


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _code(notebook: str) -> list[str]:
    content = json.loads((NOTEBOOKS / notebook).read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
