"""The README's table of results is that of the committed results, and its commands exist."""

import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import yaml

from fedlib import ALGORITHMS
from fedlib.__main__ import WING, app
from fedlib.papers import differences, exhibits, notebook, reported

ROOT = notebook.NOTEBOOKS.parent


def front_table():
    """CIFAR-100 with 100 clients, of results/differences.csv: gains over training alone of the papers' own methods and of the two best
    others, largest first, what the papers print, and what is lost with nothing exchanged.
    """
    table = differences.load().query("dataset == 'cifar100' and rounds == 100 and rule == 'last'")
    gains = table[table["family"] == "main-table/alone"].sort_values("difference", ascending=False).set_index("method")
    sharing = table[table["family"] == "parts/exchange"].set_index("method")
    others = [name for name in gains.index if name not in exhibits.PAPERS][:2]
    rows = []
    for name in gains.index.intersection([*exhibits.PAPERS, *others], sort=False):
        paper, item = next(
            (
                one
                for one in (("FedSSA", "Table 2"), ("pFedES", "Table 3"))
                if not np.isnan(reported.lead(*one, name, *PLACE))
            ),
            ("", ""),
        )
        said = f"{reported.lead(paper, item, name, *PLACE):+.2f} ({paper}, {item})" if paper else "–"
        lost = spread(sharing.loc[name]) if name in sharing.index else "not run"
        rows.append([name, spread(gains.loc[name]), said, lost])
    return rows


PLACE = ("Standalone", "cifar100", 100)


def spread(row):
    return f"{row['difference']:+.2f}, one seed" if row["n"] == 1 else f"{row['difference']:+.2f} ± {row['half']:.2f}"


def test_the_table_of_results_is_what_the_committed_results_give():
    text = (ROOT / "README.md").read_text()
    block = text[text.index("<!-- front -->") : text.index("<!-- /front -->")].splitlines()[3:]
    assert block == ["| " + " | ".join(row) + " |" for row in front_table()]
    alone = exhibits.frame("fedssa/table2").query("method == 'Standalone' and dataset == 'cifar100'")["last"].mean()
    assert f"training alone has {alone:.1f} %" in text


LEDGER = pd.read_csv(ROOT / "figures/record/audit/claims-of-record.csv", dtype=str, keep_default_na=False)


def test_its_tally_is_the_ledgers():
    said = "{contradicted} are contradicted, {undecided} undecided, {not run} not run yet"
    assert said.format_map(LEDGER["verdict"].value_counts()) in (ROOT / "README.md").read_text()
    assert len(LEDGER) == 83 and LEDGER[LEDGER["verdict"] == "supported"]["by"].tolist() == ["counted"] * 3


def test_what_it_says_of_each_paper_is_the_ledgers_verdict():
    judged = LEDGER.set_index(["paper", "claim"])["verdict"]
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    said = {
        "FedSSA": ("largest lead, heterogeneous models", "with 100 clients, is *contradicted*"),
        "pFedES": ("best everywhere, heterogeneous models", "best everywhere is *contradicted*"),
        "FedGH": ("best everywhere, heterogeneous models", "best everywhere is *not run*"),
        "pFedHR": ("best in Table 2", "its claims are *not run* at their own settings"),
    }
    for paper, (claim, words) in said.items():
        line = text[text.index(f"**{paper}**", text.index("## What came out")) :]
        assert words in line[:250] and judged[paper, claim] in words


def test_it_says_how_many_methods_there_are():
    text, notebooks = (ROOT / "README.md").read_text(), len([*(ROOT / "notebooks").rglob("*.ipynb")])
    assert f"with {len(ALGORITHMS)} methods" in text and f"and {notebooks} notebooks" in text


def test_it_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 9_000


def test_the_commands_are_makefile_targets_and_ci_calls_the_test_command():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.M)
    named = set(re.findall(r"(?:^    |`|sh )make (\w+)", (ROOT / "README.md").read_text(), flags=re.M))
    assert named and named <= set(targets)
    assert named == {"reproduce", "test", "lab", "site"}
    called = re.findall(r"^tests/bare.sh make (\w+)$", (ROOT / ".ci" / "run").read_text(), flags=re.M)
    assert called == ["test", "slow"]


def test_notebooks_and_pages_name_commands_that_exist():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files += [
        path for kind in ("notebooks/**/*.ipynb", "docs/pages/**/*.md", "fedlib/**/*.py") for path in ROOT.glob(kind)
    ]
    texts = [path.read_text(encoding="utf-8") for path in files if ".ipynb_checkpoints" not in path.parts]
    named = {command for text in texts for command in re.findall(r"`(?:python -m )?fedlib ([a-z]+)", text)}
    assert {"run", "runs", "reproduce", "record", "data"} <= named
    for command in named:
        assert command in [*app, *WING]


def test_bare_means_no_variable_no_home_no_data_and_a_loopback():
    script = """
import errno, os, socket
assert set(os.environ) <= {"PATH", "HOME", "TMPDIR", "FEDLIB_DATA", "LC_CTYPE", "PWD", "SHLVL", "_"}, os.environ
assert not os.listdir(os.environ["HOME"]) and not os.listdir(os.environ["FEDLIB_DATA"])
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
try:
    socket.create_connection(("192.0.2.1", 80), timeout=0.1)
except OSError as error:
    print(error.errno == errno.ENETUNREACH)
"""
    command = [str(ROOT / "tests" / "bare.sh"), sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"FEDLIB_HOME": "/nowhere"})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "True\n" or "the network is not cut" in ended.stderr


def test_bare_fails_as_its_command_does_and_when_data_are_downloaded():
    for code, status in (("exit 3", 3), ("touch $FEDLIB_DATA/cifar10", 1)):
        command = [str(ROOT / "tests" / "bare.sh"), "bash", "-c", code]
        assert subprocess.run(command, capture_output=True).returncode == status


def test_conda_installs_the_same_requirements():
    *own, by_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert by_pip == {"pip": ["-r requirements.txt", "--editable ."]} and own == ["python=3.12", "pip", "git", "make"]
    pins = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.+]+\s+#", line) for line in pins)
