"""What every test of fedlib shares, and an installed package that brings a method of one's own."""

import os
import sys
import tomllib
from pathlib import Path

import pytest
import united
from fixtures import *  # noqa: F403

from fedlib.lab import plugins

PACKAGE = Path(__file__).parents[1]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
)  # not installed


@pytest.fixture
def package(tmp_path):
    """A folder with an installed package that brings a method, and this one as if installed, for processes of their own."""
    folder = tmp_path / "site" / "site-packages"
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    about = folder / f"mhpfl_flower-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    commands = (f"{name} = {value}\n" for name, value in project["entry-points"]["fedlib.commands"].items())
    (about / "entry_points.txt").write_text("".join(["[fedlib.commands]\n", *commands]))
    (folder / "mine-1.0.dist-info").mkdir(parents=True)
    (folder / "mine.py").write_text(united.MINE)
    (folder / "mine-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (folder / "mine-1.0.dist-info/entry_points.txt").write_text("[fedlib.algorithms]\nSharedBias = mine:SharedBias\n")
    return folder


@pytest.fixture
def mine(package, monkeypatch):
    """The package's method in this process, too, which is the server's and simulates the union."""
    monkeypatch.syspath_prepend(str(package))
    plugins.load_plugins.cache_clear()
    yield
    plugins.load_plugins.cache_clear()
    plugins.PROVIDED.pop(("fedlib.algorithms", "SharedBias"), None)
    sys.modules.pop("mine", None)
