"""FedProx: a round by hand, and its limit."""

import pytest
import tiny
from steps import federation, mean, moved, pull, slopes

from fedlib import FedlibError, simulate
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.fedprox import FedProx


def test_fedprox_one_round_by_hand() -> None:
    mu, built, method = 0.3, federation(epochs=2), FedProx(mu=0.3)
    context = tiny.context(built)
    server = method.init_server(context)
    start, expected = tiny.Net(server), []
    uploads = tiny.play(method, server, built, context)
    for client in built.clients:
        x, y = tiny.training_data(client)
        first = moved(start, tiny.LR, slopes(start, x, y))  # at the start the proximal term has no slope
        second = moved(first, tiny.LR, slopes(first, x, y), pull(first, start, mu))  # Eq. 2
        second.agrees(client.model)
        expected.append(second)
    method.aggregate(server, uploads, context)
    mean(expected).agrees(server)


def test_fedprox_without_its_term_is_fedavg() -> None:
    prox = simulate(federation(epochs=2, batch_size=2), FedProx(mu=0.0), 3)
    assert prox.digest() == simulate(federation(epochs=2, batch_size=2), FedAvg(), 3).digest()
    assert prox.digest() != simulate(federation(epochs=2, batch_size=2), FedProx(mu=0.1), 3).digest()
    assert FedProx().mu > 0  # peers ship mu = 0
    with pytest.raises(FedlibError, match=r"mu = -0\.1: must be at least 0"):
        FedProx(mu=-0.1)
