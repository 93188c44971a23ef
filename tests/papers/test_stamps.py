"""A figure is out of date when something changed that it is made of, and only then."""

import dataclasses
import json
from types import SimpleNamespace

import IPython
import pandas as pd
import pytest
from matplotlib.figure import Figure
from results_of_record import drawing, settings

from fedlib import ALGORITHMS, data, lab, models
from fedlib.algorithms.base import Algorithm
from fedlib.lab import of_record
from fedlib.look import Look
from fedlib.papers import exhibits, notebook, stamps

NAMES = ("fedssa/table1", "fedgh/table1", "fedgh/fig2", "pfedhr/table4")


@dataclasses.dataclass(frozen=True)
class Stored:
    """A run that is there and fresh."""

    key: str
    digest: str = "bits"
    stale: bool = False


def frame_of(cells, scale="smoke"):
    """A made-up run of each cell, as `exhibits.frame` has it."""
    rows = []
    for cell in cells:
        run = lab.resolve(cell.spec, scale)
        said = {name: getattr(cell, name) for name in ("method", "setting", "value", "scale", "dataset")}
        fields = {name: getattr(run.spec, name) for name in (*exhibits.SYMBOLS.values(), "protocol", "seed")}
        rows.append({"key": run.key, "digest": "bits", "last": 50.0} | said | fields)
    return pd.DataFrame(rows)


@pytest.fixture
def made(home, monkeypatch):
    """Some exhibits, of made-up runs; returns exhibit -> its state."""
    monkeypatch.setattr(lab, "read", lambda path: Stored(path.name))
    monkeypatch.setattr("fedlib.show.style.png", lambda figure: b"drawn")
    for name in NAMES:
        drawing(monkeypatch, name)
        frame = frame_of(exhibits.cells(exhibits.every()[name].grids, "smoke"))
        notebook.save_figure(name, settings(), Figure(), frame)
    return lambda: {name: notebook.freshness(exhibits.every()[name], settings()) for name in NAMES}


def registered(patch):
    """What somebody adds: an exhibit, a grid, a method, a network and a data set."""

    class Another(Algorithm):
        name = "Another"
        look = Look("#123456")

    grid = dataclasses.replace(exhibits.GRIDS["fedssa/table5"], name="fedssa/new")
    exhibit = exhibits.Exhibit("fedssa/fig12", "a sweep", "fedssa/1_method.ipynb", ("fedssa/new",))
    patch.setitem(exhibits.GRIDS, grid.name, grid)
    patch.setitem(exhibits.EXHIBITS, exhibit.name, exhibit)
    patch.setitem(ALGORITHMS, "Another", Another)
    patch.setitem(models.BUILDERS, "another", lambda num_classes, channels: None)
    patch.setattr(data, "names", lambda: [*data.BUILT_IN, "another"])
    assert notebook.freshness(exhibit, settings()) == "fig12.json missing"


GRID = exhibits.GRIDS["fedgh/homogeneous"]
FEWER = dataclasses.replace(GRID, methods={name: fields for name, fields in GRID.methods.items() if name != "FML"})
CODE = stamps._code
BITS = {"FedAvg": "others"}
CHANGES = [  # a change, and the states of the exhibits that are not fresh after it
    (registered, {}),
    (
        lambda patch: patch.setattr(stamps, "_code", lambda name: [f"{own}\nmore" for own in CODE(name)]),
        dict.fromkeys(NAMES, "cell changed"),
    ),
    (
        lambda patch: patch.setattr(stamps, "show_digest", lambda: "another"),
        dict.fromkeys(NAMES, "fedlib/show changed"),
    ),
    (lambda patch: patch.setitem(exhibits.GRIDS, GRID.name, FEWER), {"fedgh/table1": "grid changed"}),
    (
        lambda patch: patch.setattr(lab, "read", lambda path: Stored(path.name, BITS.get(path.name[:6], "bits"))),
        {name: "runs changed" for name in NAMES if name != "fedssa/table1"},  # which has no FedAvg
    ),
]


def test_only_a_change_of_what_an_exhibit_is_made_of_puts_it_out_of_date(made):
    for change, states in CHANGES:
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            assert made() == dict.fromkeys(NAMES, "fresh") | states, change
        assert made() == dict.fromkeys(NAMES, "fresh")


def test_a_changed_file_or_a_damaged_stamp_is_found(made, home):
    folder = home / "figures" / "smoke" / "fedssa"
    for content in ("", "[]", "{}", '{"files": 3}'):
        whole = (folder / "table1.json").read_text()
        (folder / "table1.json").write_text(content)
        assert made()["fedssa/table1"] == "stamp damaged", content
        (folder / "table1.json").write_text(whole)
    (folder / "table1.csv").write_bytes((folder / "table1.csv").read_bytes() + b"\n")
    assert made() == dict.fromkeys(NAMES, "fresh") | {"fedssa/table1": "table1.csv changed"}


def test_every_exhibit_is_drawn_in_its_notebook():
    for item in exhibits.every().values():
        assert any(f'save_figure("{item.name}"' in source for source in stamps._code(item.notebook)), item.name


# ------------------------------------------------------------------------------------------------------- what is written


def test_a_picture_of_record_is_of_the_runs_that_are_there():
    known = {key: record.digest for key, record in of_record.by_key().items()}
    drawn = [
        json.loads(file.read_text())["runs"] for file in sorted((lab.shipped() / "figures/record").rglob("*.json"))
    ]
    assert len(drawn) > 20 and all(runs and runs.items() <= known.items() for runs in drawn)


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
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def test_a_picture_carries_its_settings_and_says_stand_in_only_of_embedded_runs(home):
    made = {}
    for scale in ("smoke", "record"):
        made[scale] = Figure()
        frame = frame_of(exhibits.cells("fedssa/homogeneous", scale), scale)
        notebook.save_figure("fedssa/table1", settings(), made[scale], frame)
    said = text_of(made["smoke"])
    assert "N = 10; C = 100 %; T = 3; E = 1; B = 32; scale smoke; protocol reconstructed; n = 1" in said
    assert "stand-in" in said and "stand-in" not in text_of(made["record"])
    assert {path.name for path in (home / "figures/record/fedssa").iterdir()} == {
        f"table1-of-record.{kind}" for kind in ("png", "csv", "json")
    }


def test_a_variation_leaves_pictures_of_record_as_they_are(home):
    frame = frame_of(exhibits.cells("fedssa/table4", "record"), "record")
    notebook.save_figure("fedssa/table4", settings(seeds=[3]), Figure(), frame)
    assert not (home / "figures").exists()
