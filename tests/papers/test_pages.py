"""What notebooks show besides their exhibits: sources, class distributions, provenance, results of record, scales and costs."""

import inspect
from types import SimpleNamespace

import pytest
from nbformat import v4

from fedlib import ALGORITHMS, FedlibError
from fedlib.algorithms import pfedes
from fedlib.papers import exhibits, pages, reproduce


def test_source_is_the_files_own():
    method = ALGORITHMS["pFedES"]
    page = pages.source(method, "mixed_loss", "local_round")
    file = inspect.getsource(pfedes)
    first, second = repr(page).split("\n\n")[0], repr(page).split("def local_round")[1]
    assert repr(page).startswith("def mixed_loss(") and first in file
    assert all(line.strip() in file for line in second.splitlines())
    assert "highlight" in page._repr_html_() and "local_round" in page._repr_html_()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_can_show_its_round(name):
    text = repr(pages.source(ALGORITHMS[name], "local_round", "aggregate"))
    assert text.count("def local_round(") == text.count("def aggregate(") == 1


def test_a_function_that_is_not_there_is_named():
    with pytest.raises(FedlibError, match="function of FedSSA = 'local_ruond' is unknown: did you mean 'local_round'"):
        pages.source(ALGORITHMS["FedSSA"], "local_ruond")


def test_scales_as_numbers():
    table = pages.scales()
    assert list(dict.fromkeys(table.index)) == ["smoke", "demo", "record", "paper"]
    row = table.loc["paper"].query("N == 10").iloc[0]
    assert (row["T"], row["E"], row["B"], row["C"], row["seeds"]) == (500, 10, 512, "100%", "0, 1, 2")
    row = table.loc["record"].query("N == 100").iloc[0]
    assert (row["T"], row["E"], row["B"], row["C"], row["rate"]) == (100, 10, 64, "10%", 0.01)


def test_costs_are_the_hours_of_runs_shared_ones_once(monkeypatch):
    """Two notebooks that share runs and one without, whose runs take half an hour each."""
    names = ["fedgh/1_method.ipynb", "fedssa/3_heterogeneous.ipynb", "fedssa/4_representations.ipynb"]
    monkeypatch.setattr(pages.reproduce, "all_notebooks", lambda: names)
    monkeypatch.setattr(pages.lab, "expected_seconds", lambda runs, known, of_record: [1800.0] * len(runs))
    table = pages.costs()
    assert list(table.index) == [*names, "all, shared runs once"]
    runs = {pages.lab.resolve(cell.spec, "smoke").key for cell in exhibits.cells("fedssa/representations", "smoke")}
    assert table.loc[names[2], "smoke: runs"] == str(len(runs))
    assert float(table.loc[names[2], "smoke: core-hours"]) == pytest.approx(len(runs) / 2, rel=0.05)
    assert table.loc[names[0]].unique().tolist() == ["0"]
    assert table.iloc[-1]["record: runs"] == table.loc[names[1], "record: runs"]  # of which the third's are part


def test_a_committed_notebook_holds_no_widget():
    kept, dropped = {"data": {"text/plain": "1"}}, {"data": {"application/vnd.jupyter.widget-view+json": {}}}
    cell = SimpleNamespace(cell_type="code", outputs=[kept, dropped, {"data": {}}])
    reproduce._tidy(cell)
    assert cell.outputs == [kept]


def test_a_committed_notebook_is_the_same_however_its_prints_arrived():
    """A kernel sends what a cell prints in parts of any size; what stands between two of them keeps them apart."""

    def executed(*parts):
        outputs = [v4.new_output("stream", name=name, text=text) for name, text in parts]
        shown = v4.new_output("display_data", {"text/plain": "a table"})
        return v4.new_code_cell(outputs=[*outputs, shown, v4.new_output("stream", name="stdout", text="after")])

    once, twice = (
        executed(("stdout", "one two")),
        executed(("stdout", "one "), ("stderr", "a warning"), ("stdout", "two")),
    )
    for cell in (once, twice):
        reproduce._tidy(cell, stderr=False)
    assert once.outputs == twice.outputs
    assert [output.get("text", "a table") for output in once.outputs] == ["one two", "a table", "after"]
