"""Where each value of the three protocols comes from: what the text says, what the released code does, what `reconstructed` takes,
and why. The values are read from the presets; only the reasons are written down, in `fields.toml`.
"""

import tomllib
from importlib.resources import files
from typing import Any

import pandas as pd

from .. import algorithms
from ..errors import choose
from ..lab import presets

_SAID: dict[str, Any] = tomllib.loads(files(__package__).joinpath("fields.toml").read_text(encoding="utf-8"))
WHY_PARAMS: dict[str, dict[str, str]] = _SAID[
    "parameters"
]  # paper -> hyper-parameter that the protocols set apart -> why
NOT_REPRODUCED: dict[str, str] = _SAID["not_reproduced"]  # whose code -> what it does that no protocol here reproduces


def field_table(paper: str, scenario: str = "heterogeneous") -> pd.DataFrame:
    """One row per field of the protocol, and per parameter of the paper's method that the protocols set apart: its value under
    `paper`, `released` and `reconstructed`, and why the last one is what it is. Raises FedlibError for an unknown paper.
    """
    choose("paper", paper, dict.fromkeys(name for name, _ in presets.PRESETS))
    variants = ("paper", "released", "reconstructed")
    scenario = presets.preset(paper, "paper").scenario if paper == "pFedHR" else scenario
    protocols = {name: presets.protocol(paper, name, scenario) for name in variants}
    rows = [
        {"field": field}
        | {name: _said(getattr(protocol, field)) for name, protocol in protocols.items()}
        | {"why": reasons.get(paper, reasons["all"])}
        for field, reasons in _SAID["fields"].items()
    ]
    methods = {name: algorithms.make(paper, presets.params(paper, name, scenario, paper)) for name in variants}
    for name in _set_apart(paper):
        values = {variant: _said(getattr(methods[variant], name)) for variant in variants}
        rows.append({"field": f"{name} of {paper}"} | values | {"why": WHY_PARAMS[paper][name]})
    return pd.DataFrame(rows).set_index("field")


def _set_apart(paper: str) -> list[str]:
    """Parameters of the paper's own method that some scenario's released preset sets."""
    return list(dict.fromkeys(name for own in presets.preset(paper, "released").params.values() for name in own))


def _said(value: Any) -> str:
    return {True: "yes", False: "no", None: "-"}[value] if value is None or isinstance(value, bool) else str(value)
