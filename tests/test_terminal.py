"""What the commands print, at 80 columns: aligned, rounded, in order, and with everything that tells runs apart."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from processes import rewrite

from fedlib import ALGORITHMS, Dataset, RunSpec, data, lab, run
from fedlib.__main__ import app, main, parse
from fedlib.papers import reproduce

SPEC = RunSpec(algorithm="Standalone", num_clients=6, participation=1 / 3, rounds=3)


def said(text: str, capsys) -> str:
    assert main(text.split()) == 0
    return capsys.readouterr().out


@pytest.fixture
def eighty(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


COMMANDS = [name for name in app if not name.startswith("-")]
COMMANDS += [f"{name} {further}" for name in COMMANDS for further in app[name] if not further.startswith("-")]


@pytest.mark.parametrize("text", ["list", "exhibits", "notebooks", "--help", *(f"{name} --help" for name in COMMANDS)])
def test_pages_fit_80_columns(text, eighty, capsys):
    assert main(text.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_two_examples_that_are_understood(command, eighty, capsys):
    assert main([*command.split(), "--help"]) == 0
    lines = [line.partition("\u2022 ")[2].strip() for line in capsys.readouterr().out.splitlines() if "\u2022 " in line]
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line.partition("fedlib ")[2].partition(" > ")[0])
        assert words[0] == command.split()[0]
        parse(words)  # raises FedlibError for what no command understands


def test_the_commands_are_found():
    assert len(COMMANDS) >= 19 and {"run", "runs show"} <= set(COMMANDS)


@pytest.fixture(scope="module")
def runs(trained_once):
    inherits = replace(SPEC, overrides={"inherit": "first_visit"})
    specs = [SPEC, replace(SPEC, algorithm="FedSSA", params={"mu0": 0.3}, partition="iid"), inherits]
    return trained_once(lambda: [run(spec, progress=False) for spec in specs])


@pytest.fixture
def three(small_digits, runs):
    """Three stored runs that differ in what no earlier column shows, and an unfinished one."""
    records = [lab.read(shutil.copytree(one.path, lab.store() / one.key)) for one in runs]
    for number, record in enumerate(records):  # the second finished first
        finished = f"2026-01-0{(2, 1, 3)[number]}T00:00:00Z"
        rewrite(record.path, "provenance.json", lambda provenance, at=finished: provenance | {"finished": at})
    (lab.store() / "FedGH-digits-0123456789abcdef").mkdir()
    (lab.store() / "FedGH-digits-0123456789abcdef" / "spec.json").write_text("{}")
    return records


def test_runs_are_listed_in_order_aligned_and_told_apart(three, eighty, capsys):
    lines = said("runs", capsys).splitlines()
    head, *rows, last = lines
    assert max(map(len, [head, *rows])) <= 80 and last.startswith("4 runs in ")
    assert [row.split("-")[0] for row in rows] == ["FedSSA", "Standalone", "Standalone", "FedGH"]
    assert "mu0=0.3, iid" in rows[0] and "inherit=first_visit" in rows[2] and "inherit" not in rows[1]
    assert "unfinished" in rows[3]
    for row in rows[:3]:
        assert re.search(r" \d+\.\d\d  ?6 0\.33 3 1 +0", row), row
        assert row[: head.index(" N") + 2].endswith("6")
    shown = said(f"runs show {rows[0].split()[0]}", capsys)  # the shortened name is understood
    rounds = shown[shown.index("\n}\n") :].splitlines()
    assert shown.startswith("{") and max(map(len, rounds)) <= 80 and "published_words" in shown


def test_runs_are_filtered_and_printed_as_json(three, eighty, capsys):
    assert said("runs list fedssa", capsys).count("digits") == 1
    assert said("runs list fedkd", capsys).startswith("0 runs in ")
    assert main(["runs", "list", "FedSAA"]) == 2 and "did you mean 'FedSSA'" in capsys.readouterr().err
    found = json.loads(said("runs list Standalone --json", capsys))
    assert [one["key"] for one in found] == [three[0].key, three[2].key]
    assert found[0]["spec"]["participation"] == 1 / 3 and found[1]["spec"]["overrides"] == {"inherit": "first_visit"}
    assert 0 <= found[0]["accuracy"] <= 1 and found[0]["state"] == "finished"


def test_a_run_prints_its_overrides_and_names_its_means_for_what_they_are(three, eighty, capsys):
    text = said(
        "run Standalone --num-clients 6 --participation 0.3333333333333333 --rounds 3 --override inherit=first_visit",
        capsys,
    )
    assert "overrides: inherit = first_visit" in text and "C = 0.333" in text and "T = 3" in text
    assert "mean of the last 3 " in text.replace("\n  ", " ") and "last10" not in text


def test_check_says_what_is_not_fresh(capsys):
    assert not reproduce.reproduce("fedssa/table3", "smoke", jobs=1, only="check")
    assert "table3.json missing" in capsys.readouterr().out


def test_train_only_trains_and_executes_nothing(home, monkeypatch, capsys):
    """And figures alone are made of what is there."""
    swept = []
    monkeypatch.setattr(lab, "sweep", lambda specs, *args, **kwargs: swept.extend(specs))
    monkeypatch.setattr(reproduce, "execute", lambda *args: pytest.fail("executed"))
    assert said("reproduce fedssa/fig6 --train-only", capsys).startswith("2 runs needed, 0 stored, 2 to train")
    assert len(swept) == 2


def test_communication_is_in_units_of_1024(small_digits, capsys):
    printed = said("run FedAvg --num-clients 4 --participation 0.5 --rounds 2 --scenario homogeneous", capsys)
    (record,) = [lab.read(path) for path in lab.stored()]
    words = record.rounds[["download_words", "upload_words"]].iloc[1:].to_numpy().sum()
    each, whole = re.search(r"communication: ([\d.]+) KB a client and round, ([\d.]+) MB in all", printed).groups()
    assert float(each) == pytest.approx(words * 4 / 1024 / 4, abs=0.006)
    assert float(whole) == pytest.approx(words * 4 / 1024**2, abs=0.006) and float(whole) > 5


def test_bare_it_greets_and_names_are_found_in_any_case(small_digits, capsys):
    assert main([]) == 0
    greeting = capsys.readouterr().out
    assert all(f"  fedlib {words}  " in greeting for words in ("run FedSSA", "exhibits", "reproduce fedssa/fig6"))
    assert "FedSSA-digits-" in said(
        "run fedssa --dataset DIGITS --num-clients 5 --participation 0.2 --rounds 1", capsys
    )
    assert said("exhibits show FedSSA/Fig3", capsys).startswith("fedssa/fig3: ")


@pytest.mark.parametrize("words", ["--version", "--help", "", "rnu"])
def test_what_needs_nothing_heavy_imports_nothing_heavy(words):
    code = f"import sys; from fedlib.__main__ import main; main({words.split()}); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"torch", "numpy", "pandas", "matplotlib"} & set(ended.stdout.split())


def test_every_method_that_is_a_paper_s_can_be_cited(eighty, capsys):
    names = [name for name in ALGORITHMS if name != "Standalone"]
    assert main(["cite", *names]) == 0
    entries = capsys.readouterr().out.split("\n\n")
    assert len(entries) == len(names) + 1 and all(entry.count("{") == entry.count("}") for entry in entries)
    for name, entry in zip(names, entries, strict=False):  # as the first sentence of its module says
        said = " ".join((sys.modules[ALGORITHMS[name].__module__].__doc__ or "").split()[:60])
        cited = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", entry, re.M))
        surnames, given = zip(*(author.split(", ") for author in cited["author"].split(" and ")), strict=True)
        title = re.sub("[{}]", "", cited["title"])
        assert f': {", ".join(surnames)}, "{title}"' in said and cited["year"] in said and all(given), name
        assert cited.keys() & {"booktitle", "journal"}, name
    assert main(["cite", "fedSsa"]) == 0 and "Semantic Similarity" in capsys.readouterr().out


def test_runs_on_data_that_is_registered_elsewhere_are_listed(eighty, capsys):
    stream = np.random.default_rng(0)
    arrays = stream.random((40, 8)), np.arange(40) % 4, stream.random((20, 8)), np.arange(20) % 4
    data.register("vectors", lambda: Dataset.from_arrays("vectors", *arrays))
    run(
        RunSpec("Standalone", dataset="vectors", scenario="MLP", num_clients=2, rounds=1, batch_size=16), progress=False
    )
    del data.REGISTERED["vectors"]
    assert "Standalone-vectors" in said("runs list", capsys)
