"""What every test of fedlib shares, and an installed package that brings a method of one's own."""

import os
import sys
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
    """A folder with an installed package that brings a method."""
    folder = tmp_path / "site" / "site-packages"
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
