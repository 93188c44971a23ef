"""The page of exhibits says what the committed results and pictures say, and goes with them."""

import importlib
import sys

import pytest

from fedlib.lab import of_record
from fedlib.papers import exhibits, notebook

pytest.importorskip("pygments")
ROOT = notebook.NOTEBOOKS.parent


@pytest.fixture(scope="module")
def blocks():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("blocks")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.mark.thorough
def test_the_page_says_what_the_results_say(blocks):
    text = (blocks.PAGES / "exhibits.md").read_text(encoding="utf-8")
    made = blocks.blocks()["exhibits.md"]
    assert "<!-- exhibits -->\n" in text and blocks.filled(text, made) == text, "python docs/blocks.py writes it"


@pytest.mark.thorough
def test_both_pages_are_linked_from_the_readme_and_in_the_sites_navigation(blocks):
    for page in ("objections", "exhibits"):
        assert f"](docs/pages/{page}.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
        assert f"\n{page}\n" in blocks.generate.landing()


@pytest.mark.thorough
def test_the_state_of_an_exhibit_is_that_of_its_picture_and_runs(blocks):
    generate, states = blocks.generate, {}
    for exhibit in exhibits.EXHIBITS.values():
        runs, asked, seeds = generate.held(exhibit)
        states[exhibit.name] = generate.state(exhibit)
        drawn = (ROOT / "figures" / "record" / exhibit.paper / f"{exhibit.item}-of-record.png").exists()
        assert (states[exhibit.name] == "record") == (drawn and bool(exhibit.grids))
        assert runs <= asked and bool(runs) <= bool(seeds)
        assert bool(runs) or not drawn  # a picture of record without a run would be of nothing
        assert (states[exhibit.name] == "needs no run") == (asked == 0)
    assert len(states) == 44 and set(states.values()) <= {"record", "demo", "smoke only", "needs no run"}
    assert states["fedssa/table3"] == "needs no run" and states["fedssa/table2"] == "record"


def test_runs_of_an_exhibit_are_counted_one_by_one(blocks):
    held = {
        (record.spec.algorithm, record.spec.seed)
        for record in of_record.read_results()
        if record.spec.dataset == "cifar10" and record.spec.rounds == 100 and record.spec.protocol == "reconstructed"
    }
    runs, asked, seeds = blocks.generate.held(
        exhibits.EXHIBITS["fedssa/fig9"]
    )  # FedProto, FedSSA x three rates x three seeds
    assert asked == 18 and runs >= len([one for one in held if one[0] in ("FedProto", "FedSSA") and one[1] < 3]) > 0
    assert seeds == [len([one for one in held if one[0] == "FedSSA"])]


def test_a_picture_of_one_run_of_each_method_asks_for_one_seed(blocks):
    _, asked, _ = blocks.generate.held(exhibits.EXHIBITS["fedssa/fig6"])  # FedProto, FedSSA
    assert asked == 2 == len(exhibits.cells("fedssa/representations", "record", seeds=(0,)))


@pytest.mark.parametrize("name", ["fig7.png", "fig7-of-record.png"])
def test_a_picture_of_scale_demo_makes_it_demo(blocks, monkeypatch, tmp_path, name):
    monkeypatch.setattr(blocks.generate, "ROOT", tmp_path)
    exhibit = exhibits.EXHIBITS["fedssa/fig7"]
    assert blocks.generate.state(exhibit) == "smoke only"
    (tmp_path / "figures/demo/fedssa").mkdir(parents=True)
    (tmp_path / "figures/demo/fedssa" / name).write_bytes(b"")
    assert blocks.generate.state(exhibit) == "demo"
    (tmp_path / "figures/record/fedssa").mkdir(parents=True)
    (tmp_path / "figures/record/fedssa/fig7.png").write_bytes(b"")  # a notebook's own, not of record
    assert blocks.generate.state(exhibit) == "demo"
    (tmp_path / "figures/record/fedssa/fig7-of-record.png").write_bytes(b"")
    assert blocks.generate.state(exhibit) == "record"
