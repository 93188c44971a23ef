"""The captured training step (tests/benchmarks/captured.py), without a card: what it copies in and out is all that a step needs."""

import sys
from pathlib import Path

import golden
import pytest

sys.path.append(str(Path(__file__).parent / "benchmarks"))
import captured


@pytest.mark.thorough("FedSSA fp32", "FedSSA bf16", "pFedHR fp32")
@pytest.mark.parametrize("case", [case for case in golden.CASES if case.endswith(("fp32", "bf16"))])
def test_static_places_give_the_same_bits(case):
    plain = golden.values(case)
    with captured.captured():
        assert repr(golden.values(case)) == repr(plain)
        # Its steps are its own, so that they stay as they are.
        assert bool(captured.GRAPHS) == (case.split()[0] not in ("pFedMe", "pFedBayes"))
