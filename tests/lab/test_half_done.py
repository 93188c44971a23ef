"""Runs that an earlier version stored half-done are resumed, not begun anew, to the numbers that it would have reached."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from processes import done

HALF_DONE = Path(__file__).parents[1] / "half_done"
KEYS = sorted(path.name for path in (HALF_DONE / "whole").iterdir())


@pytest.mark.thorough
@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="their own networks' keys are of Python 3.11's compiled code"
)
def test_runs_half_done_at_1872275_are_resumed(tmp_path):
    """The rounds that were stored stay as they are, byte by byte; the others are what 1872275 went on to, to the last bit on the
    processor that made them and close to it elsewhere.
    """
    shutil.copytree(HALF_DONE / "runs", tmp_path / "runs")
    process = subprocess.run(
        [sys.executable, str(HALF_DONE / "made.py")],
        env=os.environ | {"FEDLIB_HOME": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert sorted(process.stdout.splitlines()) == [f"{key} 2 3" for key in KEYS]
    for key in KEYS:
        now, then = tmp_path / "runs" / key, HALF_DONE / "whole" / key
        made = [json.loads((folder / "provenance.json").read_text()) for folder in (now, then)]
        alike = all(made[0][name] == made[1][name] for name in ("processor", "capability", "torch"))
        for table in ("rounds.csv", "clients.csv"):
            ours, theirs = (pd.read_csv(folder / table) for folder in (now, then))
            stored = theirs["round"] < 2
            pd.testing.assert_frame_equal(ours[stored], theirs[stored], check_exact=True)
            if alike:
                assert (now / table).read_bytes() == (then / table).read_bytes(), f"{key}: {table}"
            else:  # a client has about 90 test images
                pd.testing.assert_frame_equal(ours, theirs, atol=0.05, rtol=0.02)
        assert done(now)["state"] == done(then)["state"] or not alike, key
