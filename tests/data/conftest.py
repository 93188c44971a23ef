"""An empty FEDLIB_DATA, and nothing remembered from another test."""

import pytest

from fedlib import data


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """FEDLIB_DATA of this test."""
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    data.load.cache_clear()
    yield tmp_path / "data"
    data.load.cache_clear()
