"""Ditto: two rounds by hand."""

import tiny
from steps import federation, mean, moved, pull, slopes

from fedlib import simulate
from fedlib.algorithms.ditto import Ditto


def test_ditto_two_rounds_by_hand() -> None:
    """w is FedAvg's; v_k goes down the slope of its loss + lambda (v_k - w), with the w that came down."""
    built, lam = federation(), 0.4
    data = [tiny.training_data(client) for client in built.clients]
    personal = [tiny.Net(client.model) for client in built.clients]
    w = tiny.Net(built.build("tiny"))
    outcome = simulate(built, Ditto(lam=lam), 2)
    for _ in range(2):
        trained = [moved(w, tiny.LR, slopes(w, x, y)) for x, y in data]
        personal = [
            moved(v, tiny.LR, slopes(v, x, y), pull(v, w, lam)) for v, (x, y) in zip(personal, data, strict=True)
        ]
        w = mean(trained)
    w.agrees(outcome.server)
    for client, v in zip(built.clients, personal, strict=True):
        v.agrees(client.model)
