"""A figure is out of date when something changed that it is made of, and only then."""

import dataclasses
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import IPython
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from results_of_record import settings

from fedlib import ALGORITHMS, data, lab, models
from fedlib.algorithms.base import Algorithm
from fedlib.look import Look
from fedlib.papers import exhibits, notebook, pages, stamps
from fedlib.show import plots, tables

NAMES = ("fedssa/table1", "fedgh/table1", "fedgh/fig2", "pfedhr/table4", "fedssa/fig3")


@dataclasses.dataclass(frozen=True)
class Stored:
    """A run that is there and fresh."""

    key: str
    rounds: pd.DataFrame
    status: str = "finished"
    digest: str = "bits"
    stale: bool = False


def stored(key):
    columns = {name: [0.5, 0.6] for name in ("accuracy", "accuracy_all", "accuracy_selected")}
    return Stored(key, pd.DataFrame({"round": [0, 1]} | columns))


def runs_of(cells):
    return notebook.Runs(cells, [stored(str(place)) for place, _ in enumerate(cells)])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A FEDLIB_HOME with some exhibits, drawn from made-up runs by different functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(there := tmp_path_factory.mktemp("drawn")))
        patch.setattr(plots.Picture, "png", lambda figure: b"drawn")
        draw()
    return there


@pytest.fixture
def made(drawn, home, monkeypatch):
    """Those exhibits; returns exhibit -> its state."""
    monkeypatch.setattr(lab, "read", lambda path: stored(path.name))
    monkeypatch.setattr(plots.Picture, "png", lambda figure: b"drawn")
    shutil.copytree(drawn, home, dirs_exist_ok=True)
    return lambda: {name: notebook.freshness(exhibits.every()[name], settings()) for name in NAMES}


def draw():
    for name in NAMES:
        cells = exhibits.cells(exhibits.every()[name].grids, "smoke")
        used = notebook.Runs(cells, [stored(lab.resolve(cell.spec, "smoke").key) for cell in cells])
        if name == "fedssa/fig3":
            notebook.save(name, settings(), plots.decay({"mu": float}, 3), pd.DataFrame({"mu": [1]}))
            continue
        summary, shown = used.summary("last"), list(dict.fromkeys(cell.method for cell in cells))
        if name == "fedgh/fig2":
            picture = plots.curves(used.rounds(), dict.fromkeys(summary["setting"], shown))
        else:
            picture = plots.intervals(summary, shown)
        notebook.save(name, settings(), picture, summary, used)


def stale(states):
    return {name for name, state in states.items() if state != "fresh"}


def test_another_exhibit_method_model_or_data_set_leaves_all_fresh(made, monkeypatch):
    class Another(Algorithm):
        name = "Another"
        look = Look("#123456")

    assert stale(made()) == set()
    grid = replace(exhibits.GRIDS["fedssa/table5"], name="fedssa/new")
    exhibit = exhibits.Exhibit("fedssa/fig12", "a sweep", "fedssa/1_method.ipynb", ("fedssa/new",), "sweeps")
    monkeypatch.setitem(exhibits.GRIDS, grid.name, grid)
    monkeypatch.setitem(exhibits.EXHIBITS, exhibit.name, exhibit)
    monkeypatch.setitem(ALGORITHMS, "Another", Another)
    monkeypatch.setitem(models.BUILDERS, "another", lambda num_classes, channels: None)
    monkeypatch.setattr(data, "names", lambda: [*data.BUILT_IN, "another"])
    assert stale(made()) == set()
    assert notebook.freshness(exhibit, settings()) == "fig12.json missing"


def test_a_methods_colour_is_of_the_figures_that_it_is_in(made, monkeypatch):
    monkeypatch.setattr(ALGORITHMS["FedProx"], "look", Look("#123456"))
    assert stale(made()) == {"pfedhr/table4"}
    assert made()["pfedhr/table4"] == "looks changed"


def test_other_rows_or_values_are_another_grid(made, monkeypatch):
    grid = exhibits.GRIDS["fedgh/homogeneous"]
    fewer = {name: fields for name, fields in grid.methods.items() if name != "FML"}
    monkeypatch.setitem(exhibits.GRIDS, grid.name, dataclasses.replace(grid, methods=fewer))
    assert made() == {name: "grid changed" if name == "fedgh/table1" else "fresh" for name in NAMES}


def test_another_run_or_file_is_found(made, monkeypatch, home):
    def other(path):
        record = stored(path.name)
        return dataclasses.replace(record, digest="others") if path.name.startswith("FedAvg") else record

    monkeypatch.setattr(lab, "read", other)
    assert made()["fedgh/table1"] == made()["fedgh/fig2"] == "runs changed" and made()["fedssa/table1"] == "fresh"
    file = home / "figures" / "smoke" / "fedssa" / "table1.csv"
    file.write_bytes(file.read_bytes() + b"\n")
    assert made()["fedssa/table1"] == "table1.csv changed"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": 3}'])
def test_a_damaged_stamp_is_said_to_be(made, home, content):
    (home / "figures" / "smoke" / "fedssa" / "table1.json").write_text(content)
    assert made()["fedssa/table1"] == "stamp damaged"


def test_every_exhibit_is_drawn_in_its_notebook():
    for item in exhibits.every().values():
        call = f"plots.{item.drawn}(" if item.drawn else f'save_figure("{item.name}"'
        assert any(call in source for source in stamps._code(item.notebook)), item.name


# ------------------------------------------------------------------------------------------------------- what is written


def test_a_figure_drawn_in_a_cell_is_the_same_whatever_else_is_in_the_store(home, monkeypatch):
    """Its table lacks other methods' empty columns, its stamp has the cell as the kernel was asked for it, in the history or not."""
    shell = SimpleNamespace(get_parent=lambda: {"content": {"code": "draw()\n"}}, user_ns={"In": [""]})
    asked = settings()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    frame = exhibits.frame("pfedes/table3").iloc[:2]
    for extra in ({}, {"params.of_another_method": None}):
        notebook.save_figure("pfedes/table3", asked, Figure(), frame.assign(**extra))
        files = {file.suffix: file.read_bytes() for file in (home / "figures/record/pfedes").iterdir()}
        assert b"of_another" not in files[".csv"] and b"mu0" not in files[".csv"]
        assert json.loads(files[".json"])["cell"] == stamps._digest(["draw()"])


def text_of(figure):
    return [text.get_text() for text in figure.texts] + ([figure.get_suptitle()] if figure.get_suptitle() else [])


def test_a_picture_carries_its_settings_and_says_stand_in_only_of_embedded_runs(made, home):
    cells = exhibits.cells("fedssa/homogeneous", "smoke")
    used = runs_of(cells)
    summary = used.summary("last")
    figure = notebook.save(
        "fedssa/table1", settings(), plots.intervals(summary, list(summary["method"])), summary, used
    )
    said = " ".join(text_of(figure)).replace("\n", " ")
    assert "N = 10; C = 100 %; T = 3; E = 1; B = 32; scale smoke; protocol reconstructed; n = 1" in said
    assert "stand-in" in said
    table = tables.wide(summary, list(summary["method"]))
    notebook.save("fedssa/table1", settings(), figure, summary, used, table)
    latex = (home / "figures/smoke/fedssa/table1.tex").read_text()
    assert "N = 10; C = 100 \\%; T = 3; E = 1; B = 32; scale smoke; protocol reconstructed; n = 1" in latex
    none = notebook.save("audit/contradictions", settings(), plots.decay({"mu": float}, 2), summary)
    assert not any("stand-in" in text or "N = " in text for text in text_of(none))


def test_a_picture_of_record_has_an_svg_and_the_settings_of_what_is_in_it(home, monkeypatch):
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0,))
    found = runs_of(cells)
    monkeypatch.setattr(stamps.loading, "load_record", lambda grid, scale: found)
    summary = found.summary("last")
    rows = summary[summary["num_clients"] == 10]
    figure = notebook.save_record("fedssa/table2", settings(), plots.intervals(rows, list(rows["method"])), rows)
    (said,) = text_of(figure)
    line = "N = 10; C = 100 %; T = 20; E = 10; B = 64; scale record; protocol reconstructed; n = 1; the last round"
    assert said.replace("\n", " ") == line
    folder = home / "figures" / "record" / "fedssa"
    assert {path.name for path in folder.iterdir()} == {f"table2-of-record.{kind}" for kind in ("png", "svg", "csv")}
    assert b"<svg" in (folder / "table2-of-record.svg").read_bytes()

    rounds = pd.DataFrame({"setting": "one", "method": "FedSSA", "seed": 0, "round": [0, 1], "accuracy": [0.1, 0.2]})
    curves = notebook.save_record(
        "fedssa/fig10", settings(), plots.curves(rounds, {"one": ["FedSSA"]}), rounds, used=found
    )
    assert any("scale record" in text and "round" not in text for text in text_of(curves))  # all rounds: by no rule


def test_a_picture_of_what_one_run_kept_counts_one_seed(home, monkeypatch):
    cells = exhibits.cells("pfedes/images", "record", seeds=(2, 0, 1))
    found = runs_of(cells)
    monkeypatch.setattr(stamps.loading, "load_record", lambda grid, scale: found)
    drawn = plots.images({"original": np.zeros((1, 32, 32, 3))})
    (said,) = text_of(notebook.save_record("pfedes/fig7", settings(), drawn, pd.DataFrame({"row": ["original"]})))
    assert "protocol reconstructed; n = 1;" in said.replace("\n", " ")


@pytest.fixture
def two():
    """Of record: Standalone and FedSSA among a hundred clients, one seed."""
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0,))
    hundred = [cell for cell in cells if cell.spec.num_clients == 100 and cell.method in ("Standalone", "FedSSA")]
    return runs_of(hundred)


def test_how_leads_move_is_a_further_picture_of_the_curves(two, home, monkeypatch, capsys):
    pages.leads_of_record("fedssa/fig10", settings(), two, "FML", ["FedSSA"])
    assert "no method is on record with FML yet" in capsys.readouterr().out and not (home / "figures").exists()
    drawn = []
    monkeypatch.setattr(pages, "display", drawn.append)
    pages.leads_of_record("fedssa/fig10", settings(), two, "Standalone", ["FedSSA"])
    (said,) = text_of(drawn[0])
    assert said.startswith("Each point is the mean of the ten rounds until then.") and said.endswith("n = 1")
    rows = pd.read_csv(home / "figures/record/fedssa/fig10-leads-of-record.csv")
    assert set(rows["method"]) == {"FedSSA"} and (rows["lead"] == 0).all()  # of the same tables


def test_a_variation_leaves_pictures_of_record_as_they_are(home):
    figure = plots.decay({"mu": float}, 2)
    assert notebook.save_record("fedssa/fig4", settings(seeds=[3]), figure, pd.DataFrame()) is figure
    assert not (home / "figures").exists()
