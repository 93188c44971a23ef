"""The README's tables of results of record: differences paired by seed, n in every cell."""

import re

from fedlib.papers import notebook, reproduce


def test_differences_are_to_standalone_and_paired_by_seed():
    table = reproduce._record().set_index("method")
    column = "less Standalone, N = 100, C = 10 %"
    found = notebook.load_record("fedssa/record")
    last = {
        (cell.method, cell.spec.seed): 100 * record.rounds["accuracy"].iloc[-1]
        for cell, record in found.pairs
        if cell.num_clients == 100
    }
    seeds = [seed for method, seed in last if method == "FedSSA" and ("Standalone", seed) in last]
    mean = sum(last["FedSSA", seed] - last["Standalone", seed] for seed in seeds) / len(seeds)
    assert table.loc["FedSSA", column].startswith(f"{mean:+.2f} ")
    assert table.loc["FedSSA", column].endswith(f"(n = {len(seeds)})")
    assert table.loc["Standalone", column] == "–"
    assert table.loc["FedSSA", "the paper's, N = 100, C = 10 %"] == "92.92 (+0.95)"
    assert table.loc["Standalone", "the paper's, N = 100, C = 10 %"] == "91.97"


def test_every_number_of_ours_has_its_n():
    for table in (reproduce._record(), reproduce._against("pfedhr/labelled", "pFedHR"), reproduce._audited("FedSSA")):
        columns = [name for name in table if name.startswith(("N = ", "less ", "all clients", "the last round"))]
        cells = [text for name in columns for text in table[name]]
        assert cells and all(re.search(r"\(n = \d+\)$", text) or text in ("–", "not yet") for text in cells), cells
