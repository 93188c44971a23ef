"""The distribution: what it holds and says of itself, its commands, and that its parts count as fedlib's."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedlib import FedlibError, __main__
from fedlib.lab import own
from fedlib_flower import wire

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.parents[1]
PROJECT, MAIN = (tomllib.loads((at / "pyproject.toml").read_text())["project"] for at in (PACKAGE, ROOT))


def test_it_is_of_fedlibs_version_and_at_the_versions_that_were_tried():
    assert PROJECT["version"] == MAIN["version"] and PROJECT["requires-python"] == MAIN["requires-python"]
    tried = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements-extras.txt").read_text(), re.M))
    tried |= {MAIN["name"]: MAIN["version"]}
    assert all(Requirement(text).specifier.contains(tried[Requirement(text).name]) for text in PROJECT["dependencies"])


@pytest.mark.slow
def test_its_wheel_holds_what_git_tracks_of_the_module(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", PACKAGE, "--no-deps", "--no-build-isolation", "--no-index"]
    ended = subprocess.run([*command, "--wheel-dir", tmp_path], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (built,) = tmp_path.glob("mhpfl_flower-*.whl")
    listed = subprocess.check_output(["git", "ls-files", "fedlib_flower"], cwd=PACKAGE, text=True).split()
    held = zipfile.ZipFile(built).namelist()
    assert "fedlib_flower/bundle/pyproject.toml" in listed
    assert {name for name in held if ".dist-info/" not in name} == set(listed)
    (points,) = (name for name in held if name.endswith("entry_points.txt"))
    assert "node = fedlib_flower.commands:node" in zipfile.ZipFile(built).read(points).decode()


POINTS = [
    EntryPoint(name, value, "fedlib.commands") for name, value in PROJECT["entry-points"]["fedlib.commands"].items()
]


@pytest.fixture
def installed(monkeypatch):
    """Calls that install and remove it, as far as the command line sees."""

    def change(there):
        monkeypatch.setattr(__main__, "entry_points", lambda group: POINTS if there else [])
        for name in __main__.WING:
            if name in __main__.app:  # what an earlier look found
                del __main__.app[name]

    yield change
    change(False)


def test_its_commands_are_there_where_it_is_installed_and_else_one_line(installed, capsys):
    installed(False)
    for words in (["node"], ["server", "check", "owners"], ["node", "--help"]):
        with pytest.raises(
            FedlibError, match=r"^`fedlib (node|server)` comes with .*: pip install \./packages/flower$"
        ):
            __main__.parse(words)
    assert __main__.main(["--help"]) == 0 and "of a real federation" not in capsys.readouterr().out
    installed(True)
    assert __main__.main(["--help"]) == 0 and "of a real federation" in capsys.readouterr().out
    assert __main__.parse(["server", "check", "owners"])[0].__module__ == "fedlib_flower.commands"


def test_commands_on_its_page_are_understood(installed):
    installed(True)
    found = re.findall(r"\b(fedlib (?:node|server) [^)\n`]+)", (PACKAGE / "README.md").read_text())
    assert len(found) > 4
    for command in found:
        __main__.parse(command.split()[1:])


def test_the_help_of_each_command_fits_80_columns_and_has_two_examples(installed, monkeypatch, capsys):
    installed(True)
    monkeypatch.setenv("COLUMNS", "80")
    __main__.parse(["node", "--help"])
    found = [
        [name, *further] for name in ("node", "server") for further in ([], *([one] for one in __main__.app[name]))
    ]
    for words in [words for words in found if not words[-1].startswith("-")]:
        assert __main__.main([*words, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        examples = [
            line.partition("\u2022 fedlib ")[2].partition(" > ")[0].split() for line in lines if "\u2022 " in line
        ]
        assert max(map(len, lines)) <= 80 and len(examples) == 2
        for example in examples:
            assert __main__.parse(example) and example[0] == words[0]


def test_the_list_of_commands_loads_no_torch():
    code = "import sys; import fedlib_flower.commands; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_its_parts_are_none_of_a_persons_own():
    """In a clone it is in no site-packages: by its path it would be a person's, and their keys would follow its source."""
    assert not own.is_own_module("fedlib_flower.wire") and own.is_own_module("united")
    assert not own.is_own_module("fedlib_flower") and own.is_own_module("fedlib_flowers")
    walk, said = own._Walk(), []
    walk.text = lambda *parts: said.append(parts)
    walk.value((lambda value: wire.to_bytes(value), wire.Bound))
    assert {("module", "fedlib_flower.wire"), ("library", "fedlib_flower.wire", "Bound")} <= set(said)
