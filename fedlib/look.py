"""How a method is drawn: its colour, marker and line, the same in every figure."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Look:
    """colour: `#rrggbb`; marker, dash: as matplotlib names them. A method has one as its class attribute `look`.

    Those of the papers' tables are of seaborn's colour-blind palette; methods that share a table never share a colour, and the further
    baselines share theirs with none.
    """

    colour: str
    marker: str = "o"
    dash: Any = "-"
