"""What FedMD and FCCL have in common: they publish a consensus on public images."""

from collections.abc import Callable

import pytest
import tiny
from tiny import LABELS

from fedlib import lab, simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fccl import FCCL
from fedlib.algorithms.fedmd import FedMD


@pytest.mark.parametrize("make", [FedMD, FCCL])
def test_consensus_words(make: Callable[..., Algorithm]) -> None:
    """2 * P * C published (100 000 at P = 5000 and C = 10); the indices of the images are sent too."""
    federation, method = tiny.federation_of(LABELS, public=50, lr=0.1), make(public_samples=20)
    rounds = lab.rounds_of(simulate(federation, method, 2))
    assert rounds["published_words"].iloc[-1] == len(LABELS) * 2 * 20 * tiny.CLASSES
    assert rounds["download_words"].iloc[-1] == len(LABELS) * (20 * tiny.CLASSES + 20)
    assert rounds["upload_words"].iloc[-1] == len(LABELS) * 20 * tiny.CLASSES
