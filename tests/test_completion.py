"""A shell completes commands, options and names, tried in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedlib
from fedlib import lab
from fedlib.__main__ import main

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash")


@pytest.fixture
def complete(capsys, tmp_path):
    """What bash offers for the last of the words of a line; the script calls this checkout's fedlib."""
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
