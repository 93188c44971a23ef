"""FedGH's Table 3: communication recomputed from words, and rounds and bytes to a target from records."""

import pandas as pd

from fedlib.papers import printed


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
