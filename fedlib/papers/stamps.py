"""Exhibits as files, each with a stamp by which it is fresh or stale by content, whatever the file times.

A stamp (figures/<scale>/<paper>/<exhibit>.json) holds what the exhibit was made of: the notebook's code, the looks of the methods
in it, its cells, the runs that were read, and the files themselves. Another exhibit, method, model or data set, and the look of a
method that is not in it, leave it fresh. Whoever changes how pictures are drawn makes them again: `make notebooks`.
"""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from .. import data, lab
from ..errors import choose
from ..lab import of_record, write_bytes
from ..show import intervals, looks, plots, style, tables
from . import exhibits, loading
from .exhibits import RECORD
from .results import Runs, note
from .settings import Parameters

NOTEBOOKS = lab.shipped() / "notebooks"
OVER_ROUNDS = ("curves", "curves_by_value", "leads")  # pictures of every round, which no rule selects
OF_FIRST_SEED = ("representations", "images", "chains")  # pictures of what one run kept


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
    return _digest([file.read_text() for file in sorted(Path(plots.__file__).parent.glob("*.py"))])


def save(
    name: str,
    settings: Parameters,
    figure: plots.Picture,
    table: pd.DataFrame,
    used: Runs | None = None,
    ranked: tables.Ranked | None = None,
) -> plots.Picture:
    """Write an exhibit's PNG, CSV, LaTeX (of `ranked`, where it is given) and stamp under figures/<scale>/ and hand back the
    figure for display, with N, C, T, E, B, scale, protocol and n of the runs `used` at its foot, and a label where their data are
    embedded ones.

    A reader's variation, whichever parameter it changes, goes beside the exhibit under a name of its own, such as
    `fig5--rounds-3`: the exhibit's own files and stamp stay as they are.
    """
    choose("exhibit", name, exhibits.every())
    exhibit = exhibits.every()[name]
    folder = figures(settings.scale) / exhibit.paper
    folder.mkdir(parents=True, exist_ok=True)
    stem = "--".join(filter(None, (exhibit.item, settings.variation)))
    cells = used.cells if used else []
    if any(data.info(cell.dataset).embedded for cell in cells):
        plots.label_stand_in(figure)
    _describe(figure, cells)
    drawn = {f"{stem}.png": figure.png(), f"{stem}.csv": _csv(table)}
    if ranked is not None:
        drawn[f"{stem}.tex"] = ranked.to_latex(settings.caption(cells)).encode()
    for file, content in drawn.items():
        write_bytes(folder / file, content)
    stamp = {
        "notebook": notebook_digest(exhibit.notebook),
        "looks": _looks(figure.methods),
        "cells": cells_digest(exhibit, settings.scale),
        "runs": {record.key: record.digest for record in used.records} if used else {},
        "files": {file: hashlib.sha256(content).hexdigest() for file, content in drawn.items()},
    }
    write_bytes(folder / f"{stem}.json", json.dumps(stamp, indent=1).encode())
    return figure


def save_record(
    name: str,
    settings: Parameters,
    figure: plots.Picture,
    table: pd.DataFrame,
    ranked: tables.Ranked | None = None,
    scale: str = RECORD,
    used: Runs | None = None,
    rule: str = "last",
    view: str = "",
) -> plots.Picture:
    """Write a picture of results of record, figures/<scale>/<paper>/<exhibit>-of-record.png, .svg, .csv and .tex, and hand it back
    for display. These files are committed, and do not depend on a notebook's parameters: a variation leaves them as they are.

    used: the runs in it, by default those of the exhibit's grids that `table` has rows of; what they have in common with each
    other stands at its foot, and `rule`, by which they are read. view: names a further picture of the same exhibit.
    """
    if settings.variation:
        return figure
    choose("exhibit", name, exhibits.every())
    exhibit = exhibits.every()[name]
    found = [used] if used else [loading.load_record(grid, scale) for grid in exhibit.grids]
    cells = [cell for runs_ in found for cell in runs_.cells]
    if not used:  # counts of claims are of many grids' runs: no line says what they have in common
        cells = [] if exhibit.drawn == "tallies" else _in_table(cells, table, set(figure.methods))
    _describe(figure, cells, "" if figure.drawn_by in OVER_ROUNDS else intervals.SELECTION_RULES[rule])
    folder = figures(scale) / exhibit.paper
    folder.mkdir(parents=True, exist_ok=True)
    written = {"png": figure.png(), "svg": figure.svg(), "csv": _csv(table)}
    if ranked is not None:
        about = note(cells) or f"scale {scale}"
        caption = (
            f"Results of record on real data: mean test accuracy in per cent over the clients visited so far, "
            f"{intervals.SELECTION_RULES[rule]}; a 95 % interval where n, the number of seeds, is above 1. {about}. {tables.MARKED}"
        )
        written["tex"] = ranked.to_latex(caption).encode()
    for kind, content in written.items():
        write_bytes(folder / f"{'-'.join(filter(None, (exhibit.item, view)))}-of-record.{kind}", content)
    return figure


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode()


def _describe(figure: plots.Picture, cells: Sequence[exhibits.Cell], rule: str = "") -> None:
    """What the cells in a picture have in common, at its foot, and by which rule they are read."""
    drawn = [cell for cell in cells if not figure.methods or cell.method in figure.methods] or cells
    if figure.drawn_by in OF_FIRST_SEED and drawn:
        first = min(cell.spec.seed for cell in drawn)
        drawn = [cell for cell in drawn if cell.spec.seed == first]
    if drawn:
        figure.note("; ".join(filter(None, (note(drawn), rule))))


def _in_table(cells: Sequence[exhibits.Cell], table: pd.DataFrame, methods: set[str]) -> list[exhibits.Cell]:
    """Those of `cells` that a table has rows of, by the labels that it has; a table without any has all."""
    names = {"method": "method", "case": "method", "dataset": "dataset", "clients": "clients", "value": "value"}
    names = {column: name for column, name in names.items() if column in table and table[column].notna().any()}
    if "method" in names and not methods & set(table["method"]):  # rows of a figure, such as learning rates
        names.pop("method")
    rows = set(table[list(names)].itertuples(index=False, name=None)) if names else set()
    return [cell for cell in cells if not names or tuple(getattr(cell, name) for name in names.values()) in rows]


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
        if "cell" in stamp:
            if stamp["cell"] not in {_digest([cell.strip()]) for cell in _code(exhibit.notebook)}:
                return "cell changed"
            if stamp["show"] != show_digest():
                return "fedlib/show changed"
        elif stamp["notebook"] != notebook_digest(exhibit.notebook):
            return "notebook changed"
        elif stamp["looks"] != _looks(looks.looks(stamp["looks"])):
            return "looks changed"
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


def notebook_digest(notebook: str) -> str:
    """SHA-256 of a notebook's code cells, without outputs and prose."""
    return _digest(["\n".join(_code(notebook))])


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _looks(found: Mapping[str, Any]) -> dict[str, Any]:
    """Looks as a stamp holds them."""
    return json.loads(json.dumps({name: dataclasses.asdict(look) for name, look in found.items()}))


def _code(notebook: str) -> list[str]:
    content = json.loads((NOTEBOOKS / notebook).read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
