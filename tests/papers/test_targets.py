"""FedGH's Table 3: communication recomputed from words, and rounds and bytes to a target from records."""

import numpy as np
import pandas as pd
import pytest
from results_of_record import of_record

from fedlib.papers import exhibits, notebook, printed
from fedlib.show import tables


def words():
    counts = {"LG-FedAvg": (10_020, 100_200), "FD": (40, 2_000), "FedProto": (2_000, 10_000), "FedGH": (6_002, 55_010)}
    table = {
        name: {
            "cifar10_published": ten,
            "cifar10_real": ten + 10,
            "cifar100_published": hundred,
            "cifar100_real": hundred,
        }
        for name, (ten, hundred) in counts.items()
    }
    return pd.DataFrame.from_dict(table, orient="index")


def test_printed_communication_follows_from_words_to_the_last_digit():
    table = printed.communication(words()).set_index(["quantity", "dataset", "method"])
    assert len(table) == 14 and set(table["verdict"]) == {"to the last digit"}
    assert table.loc[("CO", "cifar10", "FedGH"), "published"] == 2 * 10 * 6_002 * 4 / 1024
    assert table.loc[("CO", "cifar100", "FedGH"), "published"] == 7 * 10 * 55_010 * 4 / 2**20
    assert table.loc[("CO/c/r", "cifar10", "FD"), "real"] == 50 * 4 / 1024
    wrong = printed.communication(words().replace(6_002, 6_012)).set_index(["quantity", "dataset", "method"])
    assert wrong.loc[("CO/c/r", "cifar10", "FedGH"), "verdict"] == "differs"


def record(accuracies, selected=2):
    """Rounds of a run that sends 256 published and 512 real words a client and round: 1 KB and 2 KB."""
    count = len(accuracies)
    rounds = {
        "round": range(-1, count - 1),
        "accuracy": accuracies,
        "accuracy_all": accuracies,
        "accuracy_selected": accuracies,
        "selected": [0] + [selected] * (count - 1),
    }
    sent = {"download_words": 256 * selected, "upload_words": 256 * selected, "published_words": 256 * selected}
    return of_record("key", rounds=pd.DataFrame(rounds | sent | {"samples": 1}))


@pytest.fixture
def runs_():
    cells = exhibits.cells("fedgh/heterogeneous", "record", "cifar10", (0, 1))
    cells = [cell for cell in cells if cell.method in ("FD", "FedGH")]  # two seeds each, target 90 %
    reached, never = [0.1, 0.5, 0.9, 0.95], [0.1, 0.5, 0.6, 0.7]
    return notebook.Runs(cells, [record(reached), record(never), record(reached), record([0.1, 0.95])])


def test_targets_are_those_that_every_seed_reached(runs_):
    table = runs_.targets().set_index("method")
    assert list(table["n"]) == [2, 2] and list(table["reached"]) == [1, 2] and set(table["target"]) == {90.0}
    assert table.loc["FedGH", ["per_round_kb", "rounds", "total_kb", "real_total_kb"]].tolist() == [1, 1.5, 3, 6]
    assert np.isnan(table.loc["FD", "rounds"]) and np.isnan(table.loc["FD", "total_kb"])


def test_costs_stand_in_the_table_and_beside_the_papers(runs_):
    costs = runs_.targets()
    table = tables.with_costs(tables.wide(runs_.summary("last"), ["FD", "FedGH"]), costs).table
    assert list(table.columns[1:]) == ["CIFAR-10: KB/c/r", "CIFAR-10: rounds (90 %)", "CIFAR-10: total KB"]
    assert list(table.loc["FedGH"][1:]) == ["1.00", "1.5", "3.00"] and table.loc["FD"].iloc[-1] == "–"
    beside = printed.beside_costs(costs).set_index("method")
    assert beside.loc["FedGH", ["paper_per_round_kb", "paper_rounds", "paper_total_kb"]].tolist() == [23.45, 2, 468.91]
    other = printed.beside_costs(costs.assign(dataset="cifar100")).set_index("method")
    assert other.loc["FedGH", "paper_total_kb"] == 14.69 * 1024 and np.isnan(other.loc["FD", "paper_total_kb"])
