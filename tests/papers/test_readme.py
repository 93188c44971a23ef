"""What README and the page of exhibits say is what the committed results, pictures and verdicts say; their commands exist."""

import importlib
import re
import sys

import numpy as np
import pandas as pd
import pytest

from fedlib import ALGORITHMS
from fedlib.__main__ import WING, app
from fedlib.lab import of_record
from fedlib.papers import differences, exhibits, notebook, reported

ROOT = notebook.NOTEBOOKS.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
LEDGER = pd.read_csv(ROOT / "figures/record/audit/claims-of-record.csv", dtype=str, keep_default_na=False)
PLACE = ("Standalone", "cifar100", 100)


def spread(row):
    return f"{row['difference']:+.2f}, one seed" if row["n"] == 1 else f"{row['difference']:+.2f} ± {row['half']:.2f}"


def front_table():
    """CIFAR-100 with 100 clients, of results/differences.csv: gains over training alone of the papers' own methods and of the two
    best others, largest first, what the papers print, and what is lost with nothing exchanged.
    """
    table = differences.load().query("dataset == 'cifar100' and rounds == 100 and rule == 'last'")
    gains = table[table["family"] == "main-table/alone"].sort_values("difference", ascending=False).set_index("method")
    sharing = table[table["family"] == "parts/exchange"].set_index("method")
    others = [name for name in gains.index if name not in exhibits.PAPERS][:2]
    for name in gains.index.intersection([*exhibits.PAPERS, *others], sort=False):
        leads = [
            f"{lead:+.2f} ({paper}, {item})"
            for paper, item in (("FedSSA", "Table 2"), ("pFedES", "Table 3"))
            if not np.isnan(lead := reported.lead(paper, item, name, *PLACE))
        ]
        lost = spread(sharing.loc[name]) if name in sharing.index else "not run"
        yield f"| {name} | {spread(gains.loc[name])} | {[*leads, '–'][0]} | {lost} |"


def test_the_table_of_results_is_what_the_committed_results_give():
    assert README[README.index("<!-- front -->") : README.index("<!-- /front -->")].splitlines()[3:] == [*front_table()]
    alone = exhibits.frame("fedssa/table2").query("method == 'Standalone' and dataset == 'cifar100'")["last"].mean()
    assert f"training alone has {alone:.1f} %" in README


def test_its_tally_and_what_it_says_of_each_paper_are_the_ledgers():
    said = "{contradicted} are contradicted, {undecided} undecided, {not run} not run yet"
    assert said.format_map(LEDGER["verdict"].value_counts()) in README
    assert len(LEDGER) == 83 and LEDGER[LEDGER["verdict"] == "supported"]["by"].tolist() == ["counted"] * 3
    judged = LEDGER.set_index(["paper", "claim"])["verdict"]
    text = re.sub(r"\s+", " ", README[README.index("## What came out") :])
    for paper, claim, words in (
        ("FedSSA", "largest lead, heterogeneous models", "with 100 clients, is *{}*"),
        ("pFedES", "best everywhere, heterogeneous models", "best everywhere is *{}*"),
        ("FedGH", "best everywhere, heterogeneous models", "best everywhere is *{}*"),
        ("pFedHR", "best in Table 2", "its claims are *{}* at their own settings"),
    ):
        line = text[text.index(f"**{paper}**") :]
        assert words.format(judged[paper, claim]) in line[:250]


def test_it_says_how_many_methods_and_notebooks_there_are():
    notebooks = [*(ROOT / "notebooks").rglob("*.ipynb")]
    assert f"with {len(ALGORITHMS)} methods" in README and f"and {len(notebooks)} notebooks" in README


def test_the_commands_that_it_notebooks_and_pages_name_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.M)
    named = set(re.findall(r"(?:^    |`|sh )make (\w+)", README, flags=re.M))
    assert {"reproduce", "test", "lab", "site"} <= named <= set(targets)
    files = [*ROOT.glob("*.md"), *ROOT.glob("notebooks/**/*.ipynb"), *ROOT.glob("docs/pages/**/*.md")]
    texts = [path.read_text(encoding="utf-8") for path in [*files, *ROOT.glob("fedlib/**/*.py")]]
    named = {command for text in texts for command in re.findall(r"`(?:python -m )?fedlib ([a-z]+)", text)}
    assert {"run", "runs", "reproduce", "record", "data"} <= named <= {*app, *WING}


# --------------------------------------------------------------------------------------------------- the page of exhibits


@pytest.fixture(scope="module")
def blocks():
    pytest.importorskip("pygments")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        yield importlib.import_module("blocks")
    for name in ("blocks", "generate"):
        sys.modules.pop(name, None)


@pytest.mark.thorough
def test_the_page_says_what_the_results_say(blocks):
    text = (blocks.PAGES / "exhibits.md").read_text(encoding="utf-8")
    made = blocks.blocks()["exhibits.md"]
    assert "<!-- exhibits -->\n" in text and blocks.filled(text, made) == text, "python docs/blocks.py writes it"
    states = {exhibit.name: blocks.generate.state(exhibit) for exhibit in exhibits.EXHIBITS.values()}
    for exhibit in exhibits.EXHIBITS.values():
        runs, asked, seeds = blocks.generate.held(exhibit)
        drawn = (ROOT / "figures" / "record" / exhibit.paper / f"{exhibit.item}-of-record.png").exists()
        assert (states[exhibit.name] == "record") == (drawn and bool(exhibit.grids))
        assert runs <= asked and bool(runs) <= bool(seeds)
        assert bool(runs) or not drawn  # a picture of record without a run would be of nothing
        assert (states[exhibit.name] == "needs no run") == (asked == 0)
    assert len(states) == 44 and set(states.values()) <= {"record", "demo", "smoke only", "needs no run"}
    assert states["fedssa/table3"] == "needs no run" and states["fedssa/table2"] == "record"


def test_runs_of_an_exhibit_are_counted_one_by_one(blocks):
    held = [
        record.spec.seed
        for record in of_record.read_results()
        if (record.spec.algorithm, record.spec.dataset, record.spec.rounds) == ("pFedES", "cifar10", 100)
    ]
    fig10, fig6 = (blocks.generate.held(exhibits.EXHIBITS[name]) for name in ("pfedes/fig10", "fedssa/fig6"))
    assert fig10 == (len(held), 15, [len(held)]) and held  # three values of mu and of E_fe, of which one is the same
    assert fig6[1] == 2 == len(exhibits.cells("fedssa/representations", "record", seeds=(0,)))  # a picture of one seed


@pytest.mark.parametrize("name", ["fig7.png", "fig7-of-record.png"])
def test_a_picture_decides_the_state_of_its_exhibit(blocks, monkeypatch, tmp_path, name):
    monkeypatch.setattr(blocks.generate, "ROOT", tmp_path)
    exhibit = exhibits.EXHIBITS["fedssa/fig7"]
    assert blocks.generate.state(exhibit) == "smoke only"
    for scale, file, state in (
        ("demo", name, "demo"),
        ("record", "fig7.png", "demo"),  # a notebook's own, not of record
        ("record", "fig7-of-record.png", "record"),
    ):
        folder = tmp_path / "figures" / scale / "fedssa"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"")
        assert blocks.generate.state(exhibit) == state
