"""What an exhibit trains: one resolved row per run, and which layer gives each value."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from .. import lab
from .exhibits import LAYERS, Cell

# Field of the specification -> its short name as a column.
_COLUMNS = {
    "dataset": "data",
    "scenario": "scenario",
    "num_clients": "N",
    "participation": "C",
    "rounds": "T",
    "local_epochs": "E",
    "batch_size": "B",
    "lr": "lr",
    "protocol": "protocol",
}
_NOT_SHOWN = ("algorithm", "params", "overrides")  # the row's name, and what `differs` says


def resolved_rows(cells: Sequence[Cell], scale: str) -> pd.DataFrame:
    """One row per run: method (its label), data, scenario, N, C, T, E, B, lr, protocol, the swept value (if any), seed, and what else
    differs from the method's usual run. Raises FedlibError where a run cannot be resolved.
    """
    rows = []
    for cell in cells:
        spec = lab.resolve(cell.spec, scale).spec
        row = {"method": cell.method} | {short: getattr(spec, name) for name, short in _COLUMNS.items()}
        shown = {
            str(spec.scenario),
            spec.protocol,
            f"B={spec.batch_size}",
            f"lr={spec.lr:g}",
        }  # in columns of their own
        differs = [text for text in lab.differences(spec) if text not in shown]
        swept = {} if cell.value is None else {"value": cell.value}
        rows.append(row | swept | {"seed": spec.seed, "differs in": ", ".join(differs)})
    return pd.DataFrame(rows)


def layers_of(cells: Sequence[Cell], scale: str) -> pd.DataFrame:
    """Which layer gives each value: field (of the specification, or a hyper-parameter), layer, its values, and how many runs have
    one of them. The layers are explained in `exhibits.LAYERS`; what is not named has its default.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        for field, value, layer in _origins(cell, scale):
            found.setdefault(field, {}).setdefault(layer, []).append(_shown(value))
    rows = [
        (field, layer, ", ".join(dict.fromkeys(values)), len(values))
        for field, by_layer in found.items()
        for layer, values in by_layer.items()
    ]
    return pd.DataFrame(rows, columns=["field", "layer", "values", "runs"])


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


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def used_layers(table: pd.DataFrame) -> dict[str, str]:
    """The layers that a table of `layers_of` names, the more general first, with what they are."""
    return {name: text for name, text in LAYERS.items() if name in set(table["layer"])}
