"""The README's table of results is that of the committed results, and its commands exist."""

import os
import re
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from fedlib import ALGORITHMS
from fedlib.__main__ import app
from fedlib.algorithms import make
from fedlib.papers import (
    conclusions,
    exhibits,
    loading,
    notebook,
    parts,
    prices,
    printed,
    recorded,
)
from fedlib.show import intervals, tables

ROOT = notebook.NOTEBOOKS.parent


def front_table():
    """CIFAR-100 with 100 clients: gains over Standalone of the papers' own methods and of the two best others, largest first, at
    equal rounds and at equal FLOPs, what each computes (Standalone: 1), the gain that the papers print and the number of seeds.
    """
    pfedes = loading.load_record("pfedes/heterogeneous").of("pFedES")
    found = notebook.Runs.joined([loading.load_record("fedssa/heterogeneous"), pfedes])
    rows = prices.over(found.where(dataset="cifar100", num_clients=100), "Standalone").to_dict("records")
    rows.sort(key=lambda row: -row["rounds"])
    own = exhibits.PAPERS
    others = [row["own"] for row in rows if row["own"] not in own][:2]
    shown = [row for row in rows if row["own"] in (*own, *others)]
    (split,) = parts.parts(parts.isolated(recorded.read_results())).groupby("setting")  # one setting has isolated runs
    exchange = split[1].set_index("method").reindex([row["own"] for row in shown])
    return pd.DataFrame(
        {
            "method": [row["own"] for row in shown],
            "gain over training alone": [unbroken(row["rounds"], row["rounds_ci95"]) for row in shown],
            "from the exchange": [
                unbroken(*one) for one in zip(exchange["exchange"], exchange["exchange_ci95"], strict=True)
            ],
            "at equal computation": [unbroken(row["flops"], row["flops_ci95"]) for row in shown],
            "computes": [f"{row['compute']:.2f} times" for row in shown],
            "the paper's gain": [printed_gain(row["own"]) for row in shown],
            "seeds": [f"{row['n']} ({n:.0f})" for row, n in zip(shown, exchange["n"].fillna(0), strict=True)],
        }
    )


def unbroken(value, half):
    """A difference that no line is broken in."""
    return "–" if np.isnan(value) else tables.format_difference(value, half).replace(" ", "\N{NO-BREAK SPACE}")


def printed_gain(method):
    value = printed.gain(method, "cifar100", 100)
    return "–" if np.isnan(value) else f"{value:+.2f}"


@pytest.mark.thorough
def test_the_table_of_results_is_what_the_committed_results_give():
    table = front_table()
    theirs = dict(zip(table["method"], table["the paper's gain"], strict=True))
    assert theirs["FedSSA"] == "+4.25"  # 57.29 less 53.04, Table 2
    assert theirs["pFedES"] == "+1.36"  # 54.40 less 53.04, its Table 3
    lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    made = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    text = (ROOT / "README.md").read_text()
    assert f"<!-- front -->\n{made}\n<!-- /front -->" in text
    runs = loading.load_record("fedssa/heterogeneous").where(dataset="cifar100", num_clients=100).of("Standalone")
    assert f"training alone ({runs.summary('last')['ours'].iloc[0]:.1f} %)" in text


def test_what_it_says_of_the_exchange_is_what_the_isolated_runs_give():
    rows = parts.parts(parts.isolated(recorded.read_results())).set_index("method")
    assert "Most of FedKD's lead is there with nothing exchanged" in (ROOT / "README.md").read_text()
    assert rows.loc["FedKD", "local"] > rows.loc["FedKD", "gain"] / 2
    for method in ("FedSSA", "FedProto"):
        assert rows.loc[method, "exchange"] > max(rows.loc[method, "gain"] / 2, rows.loc[method, "exchange_ci95"])


def runs_of(method, **more):
    """Results of record with 100 clients by seed: those with these fields and parameters."""
    return {
        run.spec.seed: run
        for run in recorded.read_results()
        if run.spec.algorithm == method and run.spec.num_clients == 100 and not run.spec.isolated
        if more.items() <= (vars(run.spec) | run.spec.params).items()
    }


def gains_over(others, runs):
    """Points of the last round, seed by seed."""
    return [intervals.reported(run, "last") - intervals.reported(others[seed], "last") for seed, run in runs.items()]


def test_what_it_says_of_history_and_of_the_released_header_is_what_their_runs_give():
    table = {"dataset": "cifar100", "rounds": 100, "protocol": "reconstructed", "overrides": {}, "device": "cpu"}
    short, long = (
        runs_of("FedSSA", **table, params=asdict(make("FedSSA", {"stable_rounds": rounds}))) for rounds in (0, 20)
    )
    apart = gains_over(short, long)
    assert len(apart) == 3 and max(apart) < 0
    method = make("FedSSA")
    assert method.mu(3, 100) > 0 == method.mu(4, 100)
    alone = runs_of("Standalone", protocol="released", dataset="cifar10")
    apart = gains_over(alone, runs_of("FedGH", server_update="frozen"))
    assert len(apart) == 3 and all(-3.5 < one < -2.5 for one in apart)


@pytest.mark.thorough
def test_what_it_says_of_each_paper_is_the_ledgers_verdict():
    judged = conclusions.judged().set_index(["paper", "claim"])["verdict"]
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
    assert "\ntests/bare.sh make test\ntests/bare.sh make slow\n" in (ROOT / ".ci" / "run").read_text()


def test_notebooks_and_pages_name_commands_that_exist():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files += [
        path for kind in ("notebooks/**/*.ipynb", "docs/pages/**/*.md", "fedlib/**/*.py") for path in ROOT.glob(kind)
    ]
    texts = [path.read_text(encoding="utf-8") for path in files if ".ipynb_checkpoints" not in path.parts]
    named = {command for text in texts for command in re.findall(r"`(?:python -m )?fedlib ([a-z]+)", text)}
    assert {"run", "runs", "reproduce", "record", "data"} <= named
    for command in named:
        assert command in app


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
    environment = (ROOT / "environment.yml").read_text()
    assert re.search(r"pip:\s*\n\s*- -r requirements.txt", environment)
    pins = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.+]+\s+#", line) for line in pins)
