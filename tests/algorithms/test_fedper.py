"""FedPer: two rounds by hand, and what it sends."""

from extractors import COUNTS, rounds, sends, stepped

from fedlib.algorithms.fedper import FedPer


def test_fedper_by_hand() -> None:
    """Both parts at once; the extractor is averaged by 3 and 5 images, the header stays."""

    def local_round(net, data):
        after = stepped(net, data, "AWb")
        return after, after

    rounds(FedPer(), local_round, COUNTS)


def test_fedper_sends_the_extractor() -> None:
    sends(FedPer(), header_down=False)
