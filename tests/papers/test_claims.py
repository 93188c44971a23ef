"""The claims and the one list of verdicts, which audit/2_claims makes of them; nbval holds its numbers."""

import json
from importlib.resources import files

import pandas as pd
import pytest

from fedlib.papers import differences, exhibits, notebook

CLAIMS = pd.read_csv(files("fedlib.papers") / "claims.csv", dtype=str, keep_default_na=False)
FILE = notebook.NOTEBOOKS.parent / "figures" / "record" / "audit" / "claims-of-record.csv"
LEDGER = pd.read_csv(FILE, index_col="number", dtype=str, keep_default_na=False)
PARTS = [(claim["name"], part) for claim in CLAIMS.to_dict("records") for part in json.loads(claim["args"] or "[]")]


def test_every_claim_is_judged_by_runs_counted_or_not_run():
    same = {"name": "claim", "where": "where", "words": "words", "printed": "printed", "agreement": "own table"}
    assert (CLAIMS[[*same]].to_numpy() == LEDGER[[*same.values()]].to_numpy()).all() and len(CLAIMS) == 83
    kinds = {"trained": {"contradicted", "undecided"}, "counted": {"supported", "contradicted"}, "": {"not run"}}
    assert LEDGER.groupby("by")["verdict"].agg(set).to_dict() == kinds
    assert (CLAIMS["kind"] == "counted").tolist() == (LEDGER["by"] == "counted").tolist()
    assert (LEDGER["why"] + LEDGER["evidence"] != "")[LEDGER["by"] != ""].all()
    assert set(CLAIMS["kind"][CLAIMS["args"] == ""]) == {"", "counted"}
    assert (CLAIMS["unsettled"][CLAIMS["kind"] == ""] != "").all()


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_a_claim_names_methods_and_settings_that_its_grids_have(name, part):
    cells = exhibits.cells(part["grids"], "paper", seeds=(0,))
    methods = {cell.method.removeprefix("case C: ") for cell in cells}
    named = {part[key] for key in ("method", "loses_least", "keeps_up") if key in part} | {*part.get("over", [])}
    assert named | {method for pair in part.get("pairs", []) for method in pair} <= methods, name
    assert set(part.get("datasets", [])) <= {cell.dataset for cell in cells}, name
    assert set(part.get("num_clients", [])) <= {cell.num_clients for cell in cells}, name


def test_contradicted_claims_of_accuracy_rest_on_clear_differences_and_undecided_ones_on_none_against():
    table = differences.load().query("rule == 'last' and verdict == 'clear' and difference < 0")
    clear = [f"{row['method']} - {row['reference']} {row['difference']:+.2f}" for row in table.to_dict("records")]
    found = LEDGER[(LEDGER["by"] == "trained") & (CLAIMS["kind"] == "above").to_numpy()]
    for row in found.to_dict("records"):
        against = [said for said in row["evidence"].split("; ") if any(said.startswith(one) for one in clear)]
        every = len(against) == len(row["evidence"].split("; "))
        open_settings = row["claim"] in ("above others by participation", "clients closer")  # of FedGH, and of "most"
        assert every if row["verdict"] == "contradicted" else not against or open_settings, row["claim"]
