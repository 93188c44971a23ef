"""Each further baseline learns on images, vectors and series, and is in no exhibit."""

import numpy as np
import pytest

from fedlib import Dataset, Federation, data, lab, partition, simulate
from fedlib.algorithms import ALGORITHMS, FURTHER, OF_THE_PAPERS, make
from fedlib.papers import exhibits
from fedlib.protocol import Protocol

NETWORKS = {"image": "CNN-5", "vector": "MLP", "series": "CNN-1D"}
SHARED = {"FedMRL": "shared"}
RATES = {"image": 0.03, "vector": 0.05, "series": 0.05}
ROUNDS, CLIENTS, CLASSES = 4, 4, 5  # of ten a client


def digits(kind: str) -> Dataset:
    """A third of the digits: as pictures of 16x16, as 64 grey values or as 8 series of 8 steps."""
    whole = data.load("digits")
    images, labels = whole.images.numpy()[::3], whole.labels.numpy()[::3]
    if kind == "image":
        images = images[:, :, ::2, ::2]
    else:
        images = images[:, 0, ::4, ::4].astype(np.float32) / 255
        images = images.reshape(-1, 64) if kind == "vector" else images
    return Dataset.from_arrays(f"digits-{kind}", images, labels, images[:10], labels[:10], 10, kind=kind)


@pytest.mark.thorough(None)
@pytest.mark.parametrize(
    "kind", [kind if kind == "image" else pytest.param(kind, marks=pytest.mark.nightly) for kind in NETWORKS]
)
@pytest.mark.parametrize("name", [method.name for method in FURTHER])
def test_it_learns(name, kind):
    """Far above a fifth, one class of five, and the untrained start, about a tenth; no client is in every round."""
    held = digits(kind)
    dealing = partition.Dealing(CLIENTS, 10, "by-class", CLASSES)
    parts = partition.client_images(held.labels.numpy(), len(held.labels), dealing, 0, ())
    network = NETWORKS[kind]
    params = {SHARED[name]: network} if name in SHARED else {}
    protocol = Protocol(lr=RATES[kind], momentum=0.9)
    built = Federation(held, parts, [network], protocol=protocol, local_epochs=3, batch_size=16)
    outcome = simulate(built, make(name, params), ROUNDS, 0.75)
    rounds = lab.rounds_of(outcome)["accuracy"]
    assert outcome.status == "finished"
    assert rounds.iloc[-1] > 0.6 and rounds.iloc[-1] > rounds.iloc[0] + 0.3, rounds.tolist()


def test_they_are_in_no_exhibit_and_stand_last():
    names = [method.name for method in FURTHER]
    assert list(ALGORITHMS)[-len(names) :] == names and not set(FURTHER) & set(OF_THE_PAPERS)
    assert not {method for grid in exhibits.GRIDS.values() for method in grid.methods} & set(names)
