"""Rounds by hand of methods that average extractors: FedPer, FedRep and FedBABU."""

import copy

import tiny
from steps import LABELS, federation, slopes

from fedlib import models, simulate
from fedlib.algorithms.base import Algorithm

COUNTS = tuple(len(own) for own in LABELS)  # 3 and 5 training images


def stepped(net: tiny.Net, data, parts: str) -> tiny.Net:
    """A step of the extractor (A), of the header (Wb) or of both on the mean CE."""
    result = copy.deepcopy(net)
    for name, slope in zip("AWb", slopes(net, *data), strict=True):
        if name in parts:
            setattr(result, name, getattr(net, name) - tiny.LR * slope)
    return result


def rounds(method: Algorithm, local_round, weights) -> None:
    """Two rounds of a method against `local_round(net, data)`, which gives the net that goes up and the one that stays."""
    built = federation()
    data = [tiny.training_data(client) for client in built.clients]
    kept = [tiny.Net(client.model) for client in built.clients]
    extractor = tiny.Net(built.build("tiny")).A
    outcome = simulate(built, method, 2)
    for _ in range(2):
        for net in kept:
            net.A = extractor
        pairs = [local_round(net, own) for net, own in zip(kept, data, strict=True)]
        extractor = sum(w * up.A for w, (up, _) in zip(weights, pairs, strict=True)) / sum(weights)
        kept = [net for _, net in pairs]
    for client, net in zip(built.clients, kept, strict=True):
        net.agrees(client.model)
    last = tiny.Net(dict(built.build("tiny").state_dict()) | {"extractor.1.weight": outcome.server["1.weight"]})
    assert abs(last.A - extractor).max() < 2e-6 and list(outcome.server) == ["1.weight"]


def sends(method: Algorithm, header_down: bool) -> None:
    """All of CNN-5 but its 5010 header numbers, each way."""
    built = tiny.federation_of([[0]], classes=10, architectures=["CNN-5"], channels=3)
    whole = models.num_floats(built.build("CNN-5"))
    down = whole if header_down else whole - 5010
    assert tiny.words(method, 10, [[0, 1, 0]], 0) == (down, whole - 5010)
