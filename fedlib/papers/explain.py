"""What an exhibit trains: its settings, resolved, and which layer gives each value."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from .. import lab
from .exhibits import LAYERS, SYMBOLS, Cell

_SHORT = {"dataset": "data"} | {name: symbol for symbol, name in SYMBOLS.items()}
_NOT_SHOWN = ("algorithm", "params", "overrides")  # the row's name, and what it changes by name


def settings_of(cells: Sequence[Cell], scale: str) -> pd.DataFrame:
    """What is run: a column for each field that the exhibit or its rows set, if it is not the same in all, then `methods` (labels
    of rows); a line for each combination, with several values in a cell where all other columns are alike.

    Raises FedlibError where a run cannot be resolved.
    """
    rows = []
    for cell in cells:
        origins = [(_SHORT.get(field, field), _text(value), layer) for field, value, layer in _origins(cell, scale)]
        given = {field: text for field, text, layer in origins if layer in ("exhibit", "row", "yours") or field == "T"}
        rows.append(given | {"methods": cell.method})
    values = {name: {row.get(name, "") for row in rows} for name in dict.fromkeys(name for row in rows for name in row)}
    shown = [name for name in values if len(values[name]) > 1 and name not in ("methods", "keep")] + ["methods"]
    rows = [{name: row.get(name, "") for name in shown} for row in rows]
    for joined in reversed(shown):
        alike: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in rows:
            alike.setdefault(tuple(text for name, text in row.items() if name != joined), []).append(row)
        comma = "; " if joined == "methods" else ", "  # a row's label may have commas
        rows = [same[0] | {joined: comma.join(dict.fromkeys(row[joined] for row in same))} for same in alike.values()]
    return pd.DataFrame(rows)


def _origins(cell: Cell, scale: str) -> list[tuple[str, Any, str]]:
    """(field, resolved value, layer) of everything that decides the run, and of hyper-parameters that are not the method's own."""
    resolved = lab.resolve(cell.spec, scale)
    made = []
    for item in dataclasses.fields(lab.RunSpec):
        name, value = item.name, getattr(resolved.spec, item.name)
        if name in _NOT_SHOWN or name in cell.spec.overrides:
            continue
        filled = getattr(cell.spec, name) is None and value is not None  # by the protocol or the data set
        if filled or name in cell.layers:
            made.append((name, value, "default" if filled else cell.layers[name]))
    defaults = {item.name: item.default for item in dataclasses.fields(resolved.algorithm)}
    for name, value in resolved.spec.params.items():
        if name in cell.layers or value != defaults[name]:  # where a protocol has another one
            made.append((name, value, cell.layers.get(name, "default")))
    return made + [(name, value, cell.layers.get("overrides", "row")) for name, value in cell.spec.overrides.items()]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def in_words(cells: Sequence[Cell], scale: str) -> dict[str, str]:
    """What each layer gives, the more general layer first: `N = 100; C = 0.1, 0.5, 1; mu0 = 0 (3 of 9)`, of 9 runs. What is not
    named has its default.
    """
    found: dict[str, dict[str, list[str]]] = {layer: {} for layer in LAYERS}
    for cell in cells:
        for field, value, layer in _origins(cell, scale):
            found[layer].setdefault(_SHORT.get(field, field), []).append(_text(value))

    def said(field: str, values: list[str]) -> str:
        some = "" if len(values) == len(cells) else f" ({len(values)} of {len(cells)})"
        return f"{field} = {', '.join(dict.fromkeys(values))}{some}"

    return {layer: "; ".join(said(*item) for item in given.items()) for layer, given in found.items() if given}
