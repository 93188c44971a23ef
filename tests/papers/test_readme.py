"""The README's table of results is that of the committed results, and its commands exist."""

import os
import re
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlib import ALGORITHMS
from fedlib.__main__ import app
from fedlib.algorithms import make
from fedlib.papers import (
    conclusions,
    exhibits,
    loading,
    notebook,
    objections,
    parts,
    prices,
    printed,
    recorded,
    reported,
)
from fedlib.show import intervals, tables

ROOT = notebook.NOTEBOOKS.parent
KINDS = ("labelled", "unlabelled", "labelled, teacher of public images alone")  # of pFedHR's public data


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


@pytest.mark.thorough
def test_what_it_says_of_500_rounds_is_what_the_runs_of_that_length_give():
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text().replace("\u00a0", " "))
    (found,) = re.findall(
        r"500 rounds, .*? history counts in twenty, FedSSA ends (\S+) points above training alone \((\d seeds?.+?)\), "
        r"FedProto (\S+) \((\d seeds?.+?)\), and FedSSA (\S+) against FedProto \((\d seeds?.+?)\); "
        r"the paper prints (\S+), (\S+) and (\S+) ",
        text,
    )
    said = objections.answers("length")["length"]
    pairs = ("FedSSA", "Standalone"), ("FedProto", "Standalone"), ("FedSSA", "FedProto")
    for (own, other), gain, word, theirs in zip(pairs, found[:6:2], found[1:6:2], found[6:], strict=True):
        printed = [reported.accuracy("FedSSA", "Table 2", name, "cifar100", 100) for name in (own, other)]
        assert theirs == f"{printed[0] - printed[1]:+.2f}"
        (line,) = [one for one in said if one.startswith(f"CIFAR-100, T = 500: {own} against {other}: ")]
        assert line.split(": ")[2].split()[0].rstrip(",") == gain
        n, verdict = re.findall(r"\(n = (\d)\): (.+)\.$", line)[0]
        assert word == (verdict if "seed" in verdict else f"{n} seeds: {verdict}")
    assert {run.spec.params["stable_rounds"] for run in runs_of("FedSSA", dataset="cifar100", rounds=500).values()} == {
        20
    }


def test_what_it_says_of_the_first_rounds_is_what_the_leads_give():
    assert "FedProto is ahead of it there after 100 rounds (behind after 20)" in re.sub(
        r"\s+", " ", (ROOT / "README.md").read_text()
    )
    (line,) = [one for one in objections.answers("length")["length"] if "FedSSA above FedProto: +" in one]
    (early, late) = re.findall(r"([+-][\d.]+) ± ([\d.]+) after (?:20|100)\b", line)
    assert float(early[0]) > float(early[1]) and float(late[0]) < -float(late[1])


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


def test_what_it_says_of_learning_rates_is_what_their_runs_give():
    """As audit/4_tuning says it, too."""
    for file in ("README.md", "notebooks/audit/4_tuning.ipynb"):
        text = re.sub(r"\s+", " ", (ROOT / file).read_text().replace("\\n", " "))
        assert "best validation accuracy at it" in text or "best validation accuracy at 0.01" in text
    taken = [one for one in objections.answers("tuning")["tuning"] if "validation accuracy by learning rate" in one]
    assert len(taken) == 2 and all(one.endswith("; 0.01 is taken.") for one in taken)


def test_what_it_says_of_pfedhr_is_what_its_runs_give():
    """IID: no difference within a point, by every kind of teacher but the last match's; Non-IID: none that is clear."""
    said = objections.answers("reduced")["reduced"]
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    assert (
        "there is no difference to training alone, within a point, where clients are IID, and where they are not we cannot tell"
        in text
    )
    for how, ends in (
        ("IID", ("no difference within 1 point.",)),
        ("Non-IID", ("not clear.", "no difference within 1 point.")),
    ):
        for kind in KINDS:
            (line,) = [one for one in said if f"pFedHR, {kind}, {how} against Standalone, {how}: " in one]
            assert "(n = 3)" in line and line.endswith(ends)


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
    *own, by_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert by_pip == {"pip": ["-r requirements.txt", "--editable ."]} and own == ["python=3.12", "pip", "git", "make"]
    pins = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.+]+\s+#", line) for line in pins)
