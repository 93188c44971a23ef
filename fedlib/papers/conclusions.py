"""The verdicts of audit/2_claims in sentences, for notebooks that are not rewritten yet; it goes with the last of them."""

import json
from importlib.resources import files

import pandas as pd

from .. import lab

LEDGER = lab.shipped() / "figures" / "record" / "audit" / "claims-of-record.csv"


def said(*grids: str) -> list[str]:
    """A sentence or two for each claim that names one of `grids`: verdict, claim, place, why there is none, and the evidence."""
    with files(__package__).joinpath("claims.csv").open(encoding="utf-8") as file:
        asked = pd.read_csv(file, dtype=str, keep_default_na=False)["args"]
    ledger = pd.read_csv(LEDGER, dtype=str, keep_default_na=False)
    named = [any(grid in part["grids"] for part in json.loads(args or "[]") for grid in grids) for args in asked]
    lines = []
    for row in ledger[named].to_dict("records"):
        printed = f", printed {row['printed']} {row['unit']}" if row["printed"] else ""
        line = f"{row['verdict']}: {row['words']} ({row['where']}{printed})."
        line += f" {row['why'][:1].upper()}{row['why'][1:]}." if row["why"] else ""
        lines.append(line + (f" {row['evidence']}." if row["evidence"] else ""))
    return lines
