"""What a lead costs, and its two parts, on made-up runs with numbers worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from results_of_record import of_record

from fedlib import RunSpec, lab
from fedlib.papers import conclusions, exhibits, notebook, parts, prices

WORDS = {"Standalone": 0, "FedSSA": 10, "pFedES": 4}
ROUNDS = 10


def run(cell, key, curve):
    """Ten rounds of a cell; `curve`: accuracy in per cent by round. A client trains 10 images in E epochs."""
    words = WORDS[cell.method]
    columns = {
        name: [0.1, *(value / 100 for value in curve)] for name in ("accuracy", "accuracy_all", "accuracy_selected")
    }
    columns |= {"selected": 10, "visited": 10, "samples": 100 * cell.spec.local_epochs, "loss": 1.0}
    columns |= {"download_words": words, "upload_words": words, "published_words": words}
    spec = replace(cell.spec, rounds=ROUNDS)
    return of_record(key, spec, pd.DataFrame({"round": range(-1, ROUNDS)} | columns))


@pytest.fixture
def made():
    """By round 1 to 10: Standalone at 50 throughout, FedSSA rising to 60 in steps of 1, pFedES to 70 in steps of 2."""
    curves = {
        "Standalone": [50.0] * 10,
        "FedSSA": [50.0 + r for r in range(1, 11)],
        "pFedES": [50.0 + 2 * r for r in range(1, 11)],
    }
    cells = [
        cell
        for grid in ("fedssa/heterogeneous", "pfedes/heterogeneous")
        for cell in exhibits.cells(grid, "record", "cifar10", (0, 1, 2))
        if cell.spec.num_clients == 100 and cell.method in curves
    ]
    cells = list({(cell.method, cell.spec.seed): cell for cell in cells}.values())
    noise = {("FedSSA", 0): 0.1, ("pFedES", 1): 0.1, ("Standalone", 2): 0.1}
    records = [
        run(
            cell,
            f"made-{place}",
            [value + noise.get((cell.method, cell.spec.seed), 0) for value in curves[cell.method]],
        )
        for place, cell in enumerate(cells)
    ]
    return notebook.Runs(cells, records)


def test_leads_at_three_prices(made):
    table = prices.against(made, "pFedES").set_index("other")
    row = table.loc["FedSSA"]
    # 2.47 times the FLOPs a round: FedSSA's ten rounds pay for four of pFedES's, at 58 against 60; 4 words against 10, and ten
    # rounds of 8 against 20 pay for four of FedSSA's, at 54 against 70. The noise of 0.1 in one seed of each is 0.033 in the mean.
    assert (row["rounds"], row["flops"], row["words"]) == pytest.approx((10.0, -2.0, 16.0), abs=1e-6)
    assert row["rounds_at"] == (10, 10) and row["flops_at"] == (4, 10) and row["words_at"] == (10, 4)
    assert row["compute"] == pytest.approx(2.467, abs=0.01) and row["sent"] == pytest.approx(0.4)
    assert row["n"] == 3 and row["rounds_ci95"] == pytest.approx(row["flops_ci95"])
    alone = table.loc["Standalone"]
    assert alone["words_why"] == "Standalone sends nothing" and np.isnan(alone["words"]) and np.isnan(alone["sent"])


def test_the_leads_in_words(made):
    rows = conclusions.at_each_price(made, "pFedES").set_index("against")
    assert rows.loc["Standalone", "equal words"] == "– (Standalone sends nothing)"
    said = rows.loc["FedSSA", "equal FLOPs"]
    assert said.startswith("-2.00 ± ") and "(4 against 10 rounds)" in said
    assert prices.against(notebook.Runs([], []), "FedSSA").empty


def test_a_lead_in_its_two_parts():
    """Standalone 50, 51, 52; FedKD isolated 56, 56.5, 58; FedKD 57, 58, 58: 6.67 = 5.83 local + 0.83 exchange."""
    base = RunSpec(
        "FedKD", dataset="cifar100", num_clients=100, participation=0.1, rounds=2, local_epochs=1, batch_size=64
    )
    values = {
        ("Standalone", False): (50, 51, 52),
        ("FedKD", True): (56, 56.5, 58),
        ("FedKD", False): (57, 58, 58),
    }
    records = []
    for (algorithm, isolated), accuracies in values.items():
        for seed, value in enumerate(accuracies):
            spec = lab.resolve(replace(base, algorithm=algorithm, isolated=isolated, seed=seed), "record").spec
            key = lab.resolve(spec, "record").key
            rounds = pd.DataFrame(
                {
                    "round": range(-1, spec.rounds),
                    "accuracy": value / 100,
                    "accuracy_all": 0.1,
                    "accuracy_selected": 0.1,
                }
            )
            records.append(of_record(key, spec, rounds))
    (row,) = parts.parts(parts.isolated(records)).to_dict("records")
    assert (row["method"], row["n"]) == ("FedKD", 3)
    assert (row["gain"], row["local"], row["exchange"]) == pytest.approx((20 / 3, 17.5 / 3, 2.5 / 3))
    assert row["gain"] == pytest.approx(row["local"] + row["exchange"]) and row["local_ci95"] > 0
    assert not parts.isolated(records[3:])  # without Standalone there is no gain
