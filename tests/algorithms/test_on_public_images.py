"""What FedMD, FCCL and FedKEMF have in common: they meet on public images."""

from collections.abc import Callable

import pytest
import tiny
from tiny import LABELS

from fedlib import FedlibError, lab, simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fccl import FCCL
from fedlib.algorithms.fedkemf import FedKEMF
from fedlib.algorithms.fedmd import FedMD

PUBLIC = 6
METHODS = {FedMD: {}, FCCL: {}, FedKEMF: {"knowledge": "tiny"}}


@pytest.fixture(params=METHODS, ids=lambda kind: kind.name)
def method(request: pytest.FixtureRequest) -> Algorithm:
    return request.param(**METHODS[request.param])


@pytest.mark.parametrize("make", [FedMD, FCCL])
def test_consensus_words(make: Callable[..., Algorithm]) -> None:
    """2 * P * C published (100 000 at P = 5000 and C = 10); the indices of the images are sent too."""
    federation, method = tiny.federation_of(LABELS, public=50, lr=0.1), make(public_samples=20)
    rounds = lab.rounds_of(simulate(federation, method, 2))
    assert rounds["published_words"].iloc[-1] == len(LABELS) * 2 * 20 * tiny.CLASSES
    assert rounds["download_words"].iloc[-1] == len(LABELS) * (20 * tiny.CLASSES + 20)
    assert rounds["upload_words"].iloc[-1] == len(LABELS) * 20 * tiny.CLASSES


def test_without_public_data_it_says_so(method: Algorithm) -> None:
    with pytest.raises(FedlibError, match="public data"):
        simulate(tiny.federation_of(LABELS), method, 1)
