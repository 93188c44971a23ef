"""Standalone: a round by hand, and what one client alone makes of averaging."""

import numpy as np
import pytest
import tiny
from two_clients import DATA, LR, federation, models_of

from fedlib import lab, simulate
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.fedssa import FedSSA
from fedlib.algorithms.lg_fedavg import LGFedAvg
from fedlib.algorithms.standalone import Standalone


def test_standalone_by_hand():
    """Two rounds of two full-batch epochs: four gradient steps on one's own data, nothing exchanged."""
    fed, data = federation(epochs=2)
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, Standalone(), 2)
    for client, (x, y) in zip(outcome.clients, data, strict=True):
        tiny.assert_weights(client.model, tiny.descend(start, x, y, LR, steps=4))
    table = lab.clients_of(outcome).set_index(["round", "client"])
    for k, (x, y) in enumerate(data):  # the recorded loss is the mean before each step
        path = [tiny.descend(start, x, y, LR, steps=s) for s in (0, 1)]
        assert table.loc[(0, k), "loss"] == pytest.approx(np.mean([tiny.loss(w, x, y) for w in path]), rel=1e-5)
    assert (lab.rounds_of(outcome)[["download_words", "upload_words"]].fillna(0) == 0).all(axis=None)


@pytest.mark.parametrize("method", [FedAvg(), LGFedAvg(), FedSSA(mu0=0.0)], ids=lambda method: method.name)
def test_with_one_client_averaging_is_standalone_to_the_bit(method):
    def alone():
        partition = tiny.holding(DATA, [[0, 1, 2]], [9])
        return tiny.federation(DATA, partition, epochs=2, batch_size=4)

    one, other = (models_of(simulate(alone(), m, 3)) for m in (method, Standalone()))
    assert tiny.equal_states(one[0], other[0])
