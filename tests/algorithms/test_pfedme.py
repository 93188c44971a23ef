"""pFedMe: a round by hand, and what cannot converge."""

import pytest
import tiny
from steps import federation, mean, moved, pull, slopes

from fedlib import FedlibError
from fedlib.algorithms.pfedme import PFedMe


def test_pfedme_one_round_by_hand() -> None:
    lam, eta, rate, beta, built = 2.0, 0.2, 0.3, 0.6, federation(epochs=2)
    method, context = PFedMe(lam=lam, eta=eta, inner_lr=rate, inner_steps=3, beta=beta), tiny.context(built)
    server = method.init_server(context)
    start, expected = tiny.Net(server), []
    uploads = tiny.play(method, server, built, context)
    for client in built.clients:
        x, y = tiny.training_data(client)
        w = theta = start
        for _ in range(2):  # R = 2 batches
            for _ in range(3):  # K = 3 steps on the loss + lambda / 2 * ||theta - w||^2
                theta = moved(theta, rate, slopes(theta, x, y), pull(theta, w, lam))
            w = moved(w, eta, pull(w, theta, lam))  # w <- w - eta * lambda * (w - theta)
        theta.agrees(client.model)
        w.agrees(uploads[client.id].message.tensors)
        w.agrees(client.state["w"])
        expected.append(w)
    method.aggregate(server, uploads, context)
    moved(start, beta, pull(start, mean(expected), 1.0)).agrees(server)  # (1 - beta) * w + beta * mean


def test_pfedme_refuses_what_cannot_converge() -> None:
    with pytest.raises(FedlibError, match=r"eta \* lam = 1\.5: must be below 1"):
        PFedMe(eta=0.1, lam=15.0)
