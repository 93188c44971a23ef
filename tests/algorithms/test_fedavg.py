"""FedAvg: two rounds by hand."""

import numpy as np
import tiny
from two_clients import LR, federation

from fedlib import simulate
from fedlib.algorithms.fedavg import FedAvg


def test_fedavg_by_hand():
    """w <- (6 w_0 + 10 w_1) / 16 after each client's step from w."""
    fed, data = federation()
    w = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, FedAvg(), 2)
    for _ in range(2):
        local = [tiny.descend(w, x, y, LR) for x, y in data]
        w = {name: (6 * local[0][name] + 10 * local[1][name]) / 16 for name in w}
    server = outcome.server
    expected = {"extractor.2.weight": "A", "extractor.2.bias": "a", "header.weight": "W", "header.bias": "b"}
    for key, name in expected.items():
        np.testing.assert_allclose(server[key], w[name], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):  # evaluated after local training
        tiny.assert_weights(client.model, state)
