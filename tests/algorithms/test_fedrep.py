"""FedRep: two rounds by hand, and what it sends."""

import pytest
from extractors import rounds, sends, stepped

from fedlib.algorithms.fedrep import FedRep


@pytest.mark.parametrize("head_epochs", [0, 2])
def test_fedrep_by_hand(head_epochs: int) -> None:
    """The header first, on the extractor that came down, then the extractor for that header; an unweighted mean."""

    def local_round(net, data):
        for _ in range(head_epochs):
            net = stepped(net, data, "Wb")
        after = stepped(net, data, "A")
        return after, after

    rounds(FedRep(head_epochs=head_epochs), local_round, (1, 1))


def test_fedrep_sends_the_extractor() -> None:
    sends(FedRep(head_epochs=1), header_down=False)
