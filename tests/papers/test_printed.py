"""The papers' numbers with typed settings, and ours beside them."""

import numpy as np
import pytest

from fedlib.papers import printed


@pytest.mark.parametrize(
    ("paper", "item", "row"),
    [
        ("FedSSA", "Table 2", ("FedSSA", "cifar10", 100, 0.1, "N = 100, C = 10 %", 92.92)),
        ("FedGH", "Table 3", ("FedGH", "cifar10", 10, 1.0, "N = 10, C = 100 %", 97.6)),
        ("pFedHR", "Table 2", ("FedMD", "mnist", 12, 4 / 12, "labelled, Non-IID", 91.44)),
        ("pFedHR", "Table 4", ("FedAvg", "mnist", 12, 4 / 12, "M1, IID", np.nan)),
    ],
)
def test_printed_settings_are_typed_and_labelled(paper, item, row):
    table = printed.accuracies(paper, item)
    assert list(table) == ["method", "dataset", "num_clients", "participation", "clients", "value"]
    method, dataset, clients, participation, label, value = row
    (found,) = table[(table[["method", "dataset", "clients"]] == [method, dataset, label]).all(axis=1)].to_dict(
        "records"
    )
    assert (found["num_clients"], found["participation"]) == (clients, participation)
    if not np.isnan(value):
        assert found["value"] == value
