"""A shell completes commands, options and names, tried in a real bash."""

import shutil
import subprocess

import pytest

from fedlib import lab
from fedlib.__main__ import main

BASH = shutil.which("bash")


@pytest.fixture
def script(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "fedlib.bash"
    path.write_text(capsys.readouterr().out)
    return path


def complete(script, *words):
    """What bash offers for the last of the words of a line."""
    line = " ".join(f"'{word}'" for word in words)
    source = f"""
source {script}
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
called=$(complete -p fedlib | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$called fedlib '{words[-1]}' ''
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    ended = subprocess.run([str(BASH), "--norc", "-c", source], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and not ended.stderr, ended.stderr
    return ended.stdout.split()


@pytest.mark.skipif(BASH is None, reason="no bash")
def test_bash_completes_commands_options_and_names(script):
    assert complete(script, "fedlib", "rep") == ["reproduce"]
    assert set(complete(script, "fedlib", "reproduce", "fedgh/table")) == {
        "fedgh/table1",
        "fedgh/table2",
        "fedgh/table3",
    }
    assert complete(script, "fedlib", "reproduce", "fedgh/table3", "--sc") == ["--scale"]
    assert complete(script, "fedlib", "reproduce", "fedgh/table3", "--scale", "re") == ["record"]
    assert complete(script, "fedlib", "run", "FedS") == ["FedSSA"]
    assert complete(script, "fedlib", "run", "FedSSA", "--protocol", "rel") == ["released"]
    assert set(complete(script, "fedlib", "runs", "")) >= {"list", "show", "prune", "export"}


@pytest.mark.skipif(BASH is None, reason="no bash")
def test_bash_completes_the_keys_of_stored_runs(script):
    (lab.store() / "FedSSA-digits-0123").mkdir(parents=True)
    assert complete(script, "fedlib", "compare", "Fed") == ["FedSSA-digits-0123"]
    assert complete(script, "fedlib", "runs", "show", "Fed") == ["FedSSA-digits-0123"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "fedgh/table3" in capsys.readouterr().out


@pytest.mark.skipif(BASH is None, reason="no bash")
def test_the_names_of_folders_are_never_executed(script, tmp_path):
    """In a store that others write to, a name is a name: completing it runs nothing, whatever it is."""
    said = tmp_path / "executed"
    names = ["FedSSA-$(touch${IFS}executed)x", "FedSSA-`touch executed`", "FedSSA-a;touch executed", "FedSSA-$HOME"]
    names += ["FedSSA-*", "FedSSA-a b", "FedSSA-'x", 'FedSSA-"x', "FedSSA-a\nb", "FedSSA-{1..9}", "FedSSA-\\x", "-rf"]
    for name in [*names, "FedSSA-digits-0123", "FedSSA-digits-4567"]:
        (lab.store() / name).mkdir(parents=True)
    source = f"source {script}; cd {tmp_path}; _fedlib_keys FedSSA; _fedlib_keys '$(touch executed)'; _fedlib_keys ''"
    ended = subprocess.run([str(BASH), "--norc", "-c", source], capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["FedSSA-digits-0123", "FedSSA-digits-4567"] * 2 and not ended.stderr
    assert complete(script, "fedlib", "runs", "show", "FedSSA-d") == ["FedSSA-digits-0123", "FedSSA-digits-4567"]
    assert not said.exists() and not list(tmp_path.glob("**/executed"))


@pytest.mark.skipif(BASH is None, reason="no bash")
def test_a_store_with_a_quote_in_its_name(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "it's $(touch executed)"))
    assert main(["completion", "bash"]) == 0
    (tmp_path / "fedlib.bash").write_text(capsys.readouterr().out)
    (lab.store() / "FedSSA-digits-0123").mkdir(parents=True)
    for unset in ("unset FEDLIB_HOME; ", ""):
        source = f"{unset}source {tmp_path / 'fedlib.bash'}; cd {tmp_path}; _fedlib_keys FedSSA"
        ended = subprocess.run([str(BASH), "--norc", "-c", source], capture_output=True, text=True, timeout=60)
        assert ended.stdout.split() == ["FedSSA-digits-0123"] and not ended.stderr
    assert not (tmp_path / "executed").exists()
