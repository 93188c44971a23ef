"""What notebooks show besides their exhibits: sources, class distributions, provenance, results of record, scales and costs."""

import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from nbformat import v4
from PIL import Image
from results_of_record import of_record, settings

from fedlib import ALGORITHMS, FedlibError, lab
from fedlib.algorithms import pfedes
from fedlib.papers import exhibits, notebook, pages, reproduce
from fedlib.papers.printed import accuracies


def shown(monkeypatch):
    """What `display` was given."""
    found = []
    monkeypatch.setattr(pages, "display", lambda *values: found.extend(values))
    return found


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


def test_provenance_has_each_run_once(capsys):
    first = SimpleNamespace(key="a", provenance={"seconds": 2.0, "device": "cpu", "python": "3.11", "commit": "c0ffee"})
    second = SimpleNamespace(key="b", provenance={"seconds": 3.4, "device": "cpu"})
    table = pages.provenance([first, second, first])
    assert list(table.index) == ["a", "b"]
    assert table.to_dict("list") == {
        "seconds": [2.0, 3.4],
        "device": ["cpu", "cpu"],
        "commit": ["c0ffee", "–"],
    }  # what is known
    assert capsys.readouterr().out == "2 runs, 5 s of training in all\n"
    assert not len(pages.provenance([]))


def test_class_distributions_by_hand(monkeypatch):
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    run = SimpleNamespace(data=SimpleNamespace(labels=SimpleNamespace(numpy=lambda: labels)))
    run.info = SimpleNamespace(num_classes=4)
    parts = [np.array([0, 1, 2, 3]), np.array([4, 5])]  # classes 0, 0, 0, 1 and 1, 2
    monkeypatch.setattr(pages.lab, "resolve", lambda spec: run)
    monkeypatch.setattr(pages.lab, "partition_of", lambda run: parts)
    pictures = shown(monkeypatch)
    cells = exhibits.cells("fedgh/heterogeneous", "smoke")
    (row,) = pages.class_distribution(cells).to_dict("records")  # all methods have the same clients
    assert row == {
        "classes per client": 2.0,
        "commonest (%)": 62.5,  # (3 / 4 + 1 / 2) / 2
        "fewest owners": 0,  # of class 3
        "mean owners": 1.0,
        "most owners": 2,
        "fewest images": 2,
        "mean images": 3.0,
    }
    assert len(pictures) == 1
    assert not len(pages.class_distribution([]))


def test_class_distributions_of_a_sweep_have_a_row_per_value(monkeypatch):
    shown(monkeypatch)
    table = pages.class_distribution(exhibits.cells("fedssa/classes", "smoke"))
    assert table["value"].tolist() == table["classes per client"].tolist() == [2, 6, 10]
    assert "value" not in pages.class_distribution(
        exhibits.cells("fedgh/server_lr", "smoke")
    )  # the same clients at any rate


def test_record_block_stands_beside_the_paper(monkeypatch, capsys):
    tables = shown(monkeypatch)
    columns = {"accuracy": 0.9, "accuracy_all": 0.85, "accuracy_selected": 0.91}
    ran = [cell.spec for cell in exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0,))]
    ran += [cell.spec for cell in exhibits.cells("fedssa/classes", "record", "cifar10", (0,))]
    made = [
        of_record(lab.resolve(spec, "record").key, spec, pd.DataFrame({"round": range(-1, spec.rounds)} | columns))
        for spec in ran
    ]
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: made)
    record, rows = pages.record_block("fedssa/heterogeneous", accuracies("FedSSA", "Table 2"))
    said = capsys.readouterr().out.strip().splitlines()
    assert said[0] == notebook.coverage("fedssa/heterogeneous") and "earlier" not in said[0]
    assert said[1] == (
        "Epochs that a client trains, on average: 200 here, up to 5000 in the paper (N = 10); 200 here, up to 1000 in the "
        "paper (N = 50); 100 here, up to 500 in the paper (N = 100)."
    )
    assert len(record.cells) == len(rows) == 27 - 2  # FedProto's and FedSSA's of N = 10 are the t-SNE figures' alone
    (row,) = rows.query("method == 'Standalone' and clients == 'N = 10, C = 100 %'").to_dict("records")
    assert row["paper"] == 96.53 and (row["all"], row["selected"]) == (85, 91)
    assert row["difference"] == pytest.approx(90 - 96.53)
    assert {"paper", "ours", "all", "selected", "verdict"} <= set(tables[0].table)
    _, rows = pages.record_block(["fedssa/classes", "fedgh/classes"])
    assert rows["paper"].isna().all()
    assert "verdict" not in tables[1].table
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_nothing_on_record_is_said_and_not_drawn(capsys, home):
    nothing = pd.DataFrame(columns=["method", "setting", "dataset", "value", "ours"])
    one = pd.DataFrame({"dataset": ["cifar10"] * 2, "value": [2, 2], "setting": "cifar10, 2", "method": ["A", "B"]})
    pages.figure_of_record("fedssa/table1", settings(), nothing, exhibits.methods("fedssa/table1"))
    pages.sweep_of_record("fedssa/fig7", settings(), one, ["A"], "classes")
    pages.sweep_of_record("fedssa/fig8", settings(), nothing, ["A"], "classes")
    said = capsys.readouterr().out
    assert "fedssa/table1: no two methods of record" in said
    assert said.count("fewer than two values have results of record") == 2
    assert not (home / "figures").exists()


def test_the_picture_of_scale_demo_stands_in_where_none_is_of_record(monkeypatch, capsys, tmp_path):
    """A picture of 2 by 1 inches at 300 dpi is shown 220 pixels wide; without one, only the reason is said."""
    monkeypatch.setattr(lab, "shipped", lambda: tmp_path)
    found = shown(monkeypatch)
    pages.not_of_record("fedssa/fig7", "not run")
    assert capsys.readouterr().out == "fedssa/fig7: not run\n" and not found
    folder = tmp_path / "figures/demo/fedssa"
    folder.mkdir(parents=True)
    Image.new("RGB", (600, 300)).save(folder / "fig7.png")
    pages.not_of_record("fedssa/fig7", "not run")
    assert "one seed" in capsys.readouterr().out
    drawn, size = found[0]._repr_png_()
    assert drawn == (folder / "fig7.png").read_bytes() and size == {"width": 220, "height": 110}


def test_values_go_into_settings_in_words():
    table = pd.DataFrame({"dataset": ["cifar10", "digits"], "value": [0.5, 10]})
    assert pages.with_values(table, "C = {:g}")["setting"].tolist() == ["cifar10, C = 0.5", "digits, C = 10"]
    assert pages.with_values(table[:0])["setting"].tolist() == []


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


def test_a_function_is_put_under_sliders_and_called_with_their_values(monkeypatch, capsys):
    pytest.importorskip("ipywidgets")
    monkeypatch.setenv("JPY_SESSION_NAME", "open")
    found, calls = shown(monkeypatch), []
    pages.interact(lambda number, name: calls.append((number, name)), number=(0.0, 1.0, 0.5), name=["a", "b"])
    (box,) = found
    number, name = box.children[:2]
    number.value, name.value = 1.0, "b"
    assert calls[-1] == (1.0, "b") and number.min == 0 and number.max == 1 and list(name.options) == ["a", "b"]
    pages.interact(lambda name: name, name=[])
    assert "nothing to choose from" in capsys.readouterr().out and len(found) == 1


def test_sliders_do_without_their_library_and_know_their_function(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)

    def decay(mu0):
        return mu0

    pages.interact(decay, mu0=(0, 1))
    assert "call decay(mu0) with other values" in capsys.readouterr().out
    with pytest.raises(FedlibError, match=r"argument of decay = 'mu'.*mu0"):
        pages.interact(decay, mu=(0, 1))


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
