"""FedBABU: two rounds by hand, its one header, and what it sends."""

import pytest
import tiny
from extractors import COUNTS, rounds, sends, stepped
from steps import LABELS, federation

from fedlib import simulate
from fedlib.algorithms.fedbabu import FedBABU


@pytest.mark.parametrize(("tuned", "parts"), [("header", "Wb"), ("model", "AWb")])
def test_fedbabu_by_hand(tuned: str, parts: str) -> None:
    """The extractor is trained for the first header, goes up, and then what is kept is tuned, from the first header again."""
    first = tiny.Net(federation().build("tiny"))

    def local_round(net, data):
        net.W, net.b = first.W, first.b
        up = stepped(net, data, "A")
        return up, stepped(stepped(up, data, parts), data, parts)

    rounds(FedBABU(tune_epochs=2, tuned=tuned), local_round, COUNTS)


def test_fedbabus_header_is_one_for_all_where_clients_start_apart() -> None:
    """With nothing tuned all clients have the server's header, whatever theirs was."""
    built = tiny.federation_of(LABELS, starts="apart")
    assert not (built.clients[0].model.header.weight == built.clients[1].model.header.weight).all()
    simulate(built, FedBABU(tune_epochs=0), 1)
    for client in built.clients:
        assert (client.model.header.weight == built.server_context().initial_header().weight).all()


def test_fedbabu_sends_the_extractor_and_gets_the_header_with_it() -> None:
    sends(FedBABU(tune_epochs=1), header_down=True)
