"""FedProx: a round by hand."""

import tiny
from steps import federation, mean, moved, pull, slopes

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
