"""What the commands print, at 80 columns and into streams of any kind, and what a shell completes, tried in a real bash."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import processes
import pytest
from processes import rewrite

import fedlib
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


def test_runs_are_listed_told_apart_filtered_and_shown(three, eighty, capsys):
    head, *rows, last = said("runs", capsys).splitlines()
    assert max(map(len, [head, *rows])) <= 80 and last.startswith("4 runs in ")
    assert [row.split("-")[0] for row in rows] == ["FedSSA", "Standalone", "Standalone", "FedGH"]  # as they finished
    assert "mu0=0.3, iid" in rows[0] and "inherit=first_visit" in rows[2] and "inherit" not in rows[1]
    assert "unfinished" in rows[3]
    shown = said(f"runs show {rows[0].split()[0]}", capsys)  # the shortened name is understood
    assert "published_words" in shown and "provenance: commit " in shown
    assert "mu0 = 0.3, stable_rounds = 0 (in proportion to the rounds), " in shown.replace("\n  ", " ")
    assert said("runs list fedssa", capsys).count("digits") == 1
    assert said("runs list fedkd", capsys).startswith("0 runs in ")


def test_names_are_found_in_any_case(small_digits, capsys):
    typed = "run fedssa --dataset DIGITS --num-clients 5 --participation 0.2 --rounds 1"
    assert "FedSSA-digits-" in said(typed, capsys)
    assert said("exhibits show FedSSA/Fig3", capsys).startswith("fedssa/fig3: ")


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


# --------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("text", ["list", "exhibits"])
def test_a_reader_that_has_gone_is_no_error(text):
    """As in `fedlib list | head`."""
    line = [sys.executable, "-m", "fedlib", text]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        _, error = process.communicate(timeout=processes.SECONDS)
    assert process.returncode == 0 and not error


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "closed"), [("runs", ">&-"), ("runs", ">&- 2>&- <&-"), ("data", ">&-"), ("list", "2>&-")]
)
def test_closed_streams(text, closed, home):
    line = f"exec {sys.executable} -m fedlib {text} {closed}"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and not ended.stderr


@pytest.mark.thorough
def test_a_run_with_closed_streams_is_stored_whole(home):
    words = "run Standalone --num-clients 20 --participation 0.05 --rounds 1 --scenario CNN-5 >&- 2>&- <&-"
    ended = subprocess.run(["sh", "-c", f"exec {sys.executable} -m fedlib {words}"], timeout=300)
    (path,) = lab.stored()
    assert ended.returncode == 0 and lab.state(path)[0] == "finished"


@pytest.mark.slow
def test_a_locale_without_dashes(home, tmp_path):
    """A diverged run prints one, and the store lists it."""
    ascii = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    diverging = ["run", "Standalone", "--num-clients", "5", "--participation", "0.2", "--rounds", "2", "--lr", "1e20"]
    code = f"from fedlib.__main__ import main; print('exits', main({diverging}), main(['runs']))"
    with processes.started("-c", code, home=home, **ascii) as process:
        output, _ = process.communicate(timeout=processes.SECONDS)
    assert "exits 0 0" in output and "accuracy: ? (a round left numbers that are not finite)" in output, output
    assert output.count("Standalone-digits-") == 3


# --------------------------------------------------------------------------------------------------- completion by TAB

BASH = shutil.which("bash")


@pytest.fixture
def complete(capsys, tmp_path):
    """What bash offers for the last of the words of a line; the script calls this checkout's fedlib."""
    if BASH is None:
        pytest.skip("no bash")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "fedlib").write_text(f'#!/bin/sh\nexec {sys.executable} -m fedlib "$@"\n')
    (tmp_path / "bin" / "fedlib").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(Path(fedlib.__file__).parents[1])}

    def offered(*words):
        line = " ".join(f"'{word}'" for word in words)
        source = f"""
source {tmp_path / "script"}
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
_fedlib fedlib '{words[-1]}' ''
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        command = [str(BASH), "--norc", "-c", source]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
        assert ended.returncode == 0 and not ended.stderr, ended.stderr
        return ended.stdout.split()

    return offered


def test_bash_completes_commands_options_and_names(complete):
    assert complete("fedlib", "rep") == ["reproduce"]
    tables = {"fedgh/table1", "fedgh/table2", "fedgh/table3"}
    assert set(complete("fedlib", "reproduce", "fedgh/table")) == tables
    assert complete("fedlib", "reproduce", "fedgh/table3", "--sc") == ["--scale"]
    assert complete("fedlib", "reproduce", "fedgh/table3", "--scale", "re") == ["record"]
    assert complete("fedlib", "run", "FedS") == ["FedSSA"]
    assert complete("fedlib", "run", "FedSSA", "--protocol", "rel") == ["released"]
    assert set(complete("fedlib", "runs", "")) >= {"list", "show", "prune", "export"}


@pytest.mark.slow
def test_bash_completes_the_keys_of_stored_runs_and_never_executes_the_names_of_folders(complete, tmp_path):
    """In a store that others write to, a name is a name: completing it runs nothing, whatever it is."""
    names = ["FedSSA-$(touch${IFS}executed)x", "FedSSA-`touch executed`", "FedSSA-a;touch executed", "FedSSA-$HOME"]
    names += ["FedSSA-*", "FedSSA-a b", "FedSSA-'x", 'FedSSA-"x', "FedSSA-a\nb", "FedSSA-{1..9}", "FedSSA-\\x", "-rf"]
    for name in [*names, "FedSSA-digits-0123", "FedSSA-digits-4567"]:
        (lab.store() / name).mkdir(parents=True)
        (lab.store() / name / "spec.json").touch()
    for words in (("runs", "show", "FedSSA"), ("compare", "Fed")):
        assert sorted(complete("fedlib", *words)) == ["FedSSA-digits-0123", "FedSSA-digits-4567"]
    assert not list(tmp_path.glob("**/executed"))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "fedgh/table3" in capsys.readouterr().out
