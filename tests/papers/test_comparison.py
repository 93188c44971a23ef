"""Any runs beside each other: paired by seed, client by client, with what differs in their labels."""

from dataclasses import replace

import pytest
from results_of_record import write_results

from fedlib import RunSpec, lab, run
from fedlib.__main__ import main
from fedlib.errors import FedlibError
from fedlib.papers import exhibits, notebook, recorded


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Made-up results of record on CIFAR-10, N = 100: Standalone and, 2 points above it, FedSSA with three seeds, FedProto with one."""
    cells = [cell for cell in exhibits.cells("fedssa/heterogeneous", "record", "cifar10") if cell.num_clients == 100]
    seeds = {"Standalone": (0, 1, 2), "FedSSA": (0, 1, 2), "FedProto": (3,)}
    kept = [replace(cell, spec=replace(cell.spec, seed=3)) for cell in cells if cell.method == "FedProto"][:1]
    kept += [cell for cell in cells if cell.method != "FedProto" and cell.spec.seed in seeds.get(cell.method, ())]
    write_results(tmp_path / "results", kept, gains={"FedSSA": 0.02})
    monkeypatch.setattr(recorded, "RESULTS", tmp_path / "results")
    return {cell.method: lab.resolve(cell.spec).key for cell in kept}


def test_runs_are_paired_by_seed_and_compared_client_by_client(results):
    compared = notebook.compare(notebook.load_record("fedssa/heterogeneous"))
    rows = compared.table.set_index("run")
    assert list(rows.index) == ["Standalone", "FedSSA"] and rows["n"].tolist() == [3, 3]
    assert rows.loc["FedSSA", "less Standalone"] == "+2.00 ± 0.00 (n = 3)"
    assert rows.loc["FedSSA", "accuracy, %"] == "73.00 ± 2.48"  # t of two degrees of freedom, 4.3027 / sqrt(3)
    assert compared.clients["difference"].tolist() == pytest.approx([2, 4, 0] * 3)
    (said,) = compared.by_client
    assert said.startswith("FedSSA less Standalone, client by client: +2.00 ± ")
    assert "of 9 clients 6 higher, 0 lower, 3 equal" in said
    figure = compared.figure
    assert figure.png() and figure.drawn_by == "comparison"
    said = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    assert "n = " in said and "T = " in said and "protocol" in said


def test_what_is_not_paired_is_said(results):
    compared = notebook.compare(results["Standalone"], results["FedProto"])
    assert compared.table["less Standalone"].tolist() == ["–", "–"] and compared.clients.empty and compared.figure.png()
    assert compared.notes == ("FedProto and Standalone have no seed in common: nothing is paired",)


def test_a_label_says_what_differs_and_other_clients_are_not_paired(small_digits):
    spec = RunSpec("FedSSA", num_clients=4, rounds=1, params={"mu0": 0.3})
    specs = [spec, replace(spec, params={"mu0": 0.5}), replace(spec, num_clients=5)]
    compared = notebook.compare(*(run(one, progress=False) for one in specs))
    first, second, third = compared.table["run"]
    assert "mu0 = 0.3" in first and "mu0 = 0.5" in second and "N = 5" in third and "seed" not in first
    assert set(compared.clients["label"]) == {second}
    assert any("other clients" in note for note in compared.notes)


def test_runs_that_cannot_be_compared_are_refused(results):
    with pytest.raises(FedlibError, match=r"run = 'nothing': names no stored run and none of record"):
        notebook.compare("nothing", results["FedSSA"])
    with pytest.raises(FedlibError, match=r"run = 'FedSSA': names 3 runs"):
        notebook.compare("FedSSA", results["Standalone"])
    with pytest.raises(FedlibError, match="at least two different ones"):
        notebook.compare(results["FedSSA"], results["FedSSA"])


def test_the_command_prints_and_draws_it(results, tmp_path, capsys):
    assert main(["compare", results["Standalone"], results["FedSSA"], "--figure", str(tmp_path / "a.svg")]) == 0
    said = capsys.readouterr().out
    assert "+2.00 (n = 1)" in said and "of 3 clients 2 higher" in said and "spec.algorithm: Standalone | FedSSA" in said
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert main(["compare", results["Standalone"], results["FedSSA"], "--figure", "a.gif"]) == 2
    assert "must end in .png or .svg" in capsys.readouterr().err
    assert main(["runs", "show", results["FedSSA"]]) == 0  # of record, too
