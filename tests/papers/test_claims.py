"""The one list of verdicts, which audit/2_claims makes of the claims and nbval holds, printed settings, and every number that
stands in prose with an interval.
"""

import json
import re
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest

from fedlib.papers import differences, exhibits, printed

ROOT = Path(__file__).parents[2]
CLAIMS = pd.read_csv(files("fedlib.papers") / "claims.csv", dtype=str, keep_default_na=False)
FILE = ROOT / "figures" / "record" / "audit" / "claims-of-record.csv"
LEDGER = pd.read_csv(FILE, index_col="number", dtype=str, keep_default_na=False)
PARTS = [(claim["name"], part) for claim in CLAIMS.to_dict("records") for part in json.loads(claim["args"] or "[]")]


@pytest.mark.parametrize(
    ("paper", "item", "method", "dataset", "clients", "row"),
    [
        ("FedSSA", "Table 2", "FedSSA", "cifar10", "N = 100, C = 10 %", (100, 0.1, 92.92)),
        ("FedGH", "Table 3", "FedGH", "cifar10", "N = 10, C = 100 %", (10, 1.0, 97.6)),
        ("pFedHR", "Table 2", "FedMD", "mnist", "labelled, Non-IID", (12, 4 / 12, 91.44)),
        ("pFedHR", "Table 4", "FedAvg", "mnist", "M1, IID", (12, 4 / 12, None)),
    ],
)
def test_printed_settings_are_typed_and_labelled(paper, item, method, dataset, clients, row):
    table = printed.accuracies(paper, item).set_index(["method", "dataset", "clients"])
    found = table.loc[(method, dataset, clients), ["num_clients", "participation", "value"]].tolist()
    assert found[:2] == list(row[:2]) and row[2] in (None, found[2])


# ------------------------------------------------------------------------------------------------------------- the verdicts


def test_every_claim_is_judged_by_runs_counted_or_not_run():
    same = {"name": "claim", "where": "where", "words": "words", "printed": "printed", "agreement": "own table"}
    assert (CLAIMS[[*same]].to_numpy() == LEDGER[[*same.values()]].to_numpy()).all()
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


# ---------------------------------------------------------------------------------------------------------------- in prose

SPREAD = re.compile(r"([+-]?\d+(?:\.\d+)?)\s±\s(\d+(?:\.\d+)?)")
PROSE = [ROOT / "README.md", *sorted(ROOT.glob("docs/pages/*.md")), *sorted(ROOT.glob("notebooks/**/*.ipynb"))]


@pytest.mark.parametrize("file", PROSE, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_interval_in_prose_is_in_the_table_or_an_output_of_its_notebook(file):
    table = differences.load().dropna(subset=["half"])
    text, outputs = file.read_text(), ""
    if file.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        outputs = json.dumps([cell["outputs"] for cell in cells if cell["cell_type"] == "code"], ensure_ascii=False)
    for value, half in SPREAD.findall(text.replace("\N{NO-BREAK SPACE}", " ")):
        digits = len(half.partition(".")[2])
        known = {
            (f"{abs(v):.{digits}f}", f"{h:.{digits}f}") for v, h in zip(table["difference"], table["half"], strict=True)
        }
        assert (value.lstrip("+-"), half) in known or f"{value} ± {half}" in outputs, f"{value} ± {half}"
