"""LG-FedAvg: two rounds by hand."""

import numpy as np
import tiny
from two_clients import LR, federation

from fedlib import simulate
from fedlib.algorithms.lg_fedavg import LGFedAvg


def test_lg_fedavg_by_hand():
    """Headers are averaged by numbers of training images and replaced; extractors stay."""
    fed, data = federation()
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, LGFedAvg(), 2)
    local, header = [start, start], {name: start[name] for name in "Wb"}
    for _ in range(2):
        local = [tiny.descend(w | header, x, y, LR) for w, (x, y) in zip(local, data, strict=True)]
        header = {name: (6 * local[0][name] + 10 * local[1][name]) / 16 for name in "Wb"}
    np.testing.assert_allclose(outcome.server["weight"], header["W"], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(outcome.server["bias"], header["b"], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)
