"""Where the papers contradict each other, themselves or their code, and what is done about it here: contradictions.csv.

`tests/papers/test_contradictions.py` computes its numbers from the papers' printed tables (`reported.csv`), from our
networks and from the presets.
"""

from importlib.resources import files

import pandas as pd

from .reported import ACCURACY, PLACE, reported

# Two tables of two papers for the same settings, and whose models they are about.
PAIRS = (
    (("FedSSA", "Table 1"), ("FedGH", "Table 1"), "homogeneous models"),
    (("FedSSA", "Table 2"), ("FedGH", "Table 3"), "heterogeneous models"),
    (("FedSSA", "Table 1"), ("pFedES", "Table 2"), "homogeneous models"),
    (("FedSSA", "Table 2"), ("pFedES", "Table 3"), "heterogeneous models"),
)


def table() -> pd.DataFrame:
    """All items by their number: item, sources, numbers, here (the field or switch that settles it)."""
    with files(__package__).joinpath("contradictions.csv").open() as lines:
        return pd.read_csv(lines, index_col="number")


def shared_tables() -> pd.DataFrame:
    """What both tables of a pair print of the same method and place: method, the columns of PLACE, first_table and second_table
    (their names), first and second (per cent; NaN: a dash), models (which kind, in words).
    """
    keys, found = ["method", *PLACE], []
    for first, second, models in PAIRS:
        rows = [
            table[table["metric"].isin(ACCURACY)][[*keys, "value"]] for table in (reported(*first), reported(*second))
        ]
        both = rows[0].merge(rows[1], on=keys).rename(columns={"value_x": "first", "value_y": "second"})
        found.append(both.assign(first_table=" ".join(first), second_table=" ".join(second), models=models))
    return pd.concat(found, ignore_index=True)
