"""FCCL: its steps by hand on public images, and what must not turn into NaN."""

import numpy as np
import pytest
import tiny
import torch
from tiny import LABELS, same

from fedlib import models
from fedlib.algorithms.fccl import FCCL, correlation_loss, standardise

PUBLIC = 6


def correlation(z: np.ndarray, target: np.ndarray, weight: float) -> float:
    """sum_i (M_ii - 1)^2 + weight * sum_{i != j} (M_ij + 1)^2 of the correlations of the columns."""

    def standard(logits: np.ndarray) -> np.ndarray:
        return (logits - logits.mean(0)) / np.sqrt(logits.var(0) + 1e-5)

    one, other, total = standard(z), standard(target), 0.0
    for i in range(z.shape[1]):
        for j in range(z.shape[1]):
            entry = np.mean(one[:, i] * other[:, j])
            total += (entry - 1) ** 2 if i == j else weight * (entry + 1) ** 2
    return total


def test_fccl_collaborative_and_local_step_by_hand() -> None:
    federation, lr = tiny.federation_of(LABELS, public=PUBLIC, lr=0.1), 0.1
    method, context = FCCL(off_diagonal=0.3, intra=0.7, inter=0.4, public_lr=0.05), tiny.context(federation)
    server = method.init_server(context)
    nets = [tiny.Net(client.model) for client in federation.clients]
    pretrained = []
    for client, net in zip(federation.clients, nets, strict=True):
        tiny.begin(method, client, federation)
        net.train(*tiny.training_data(client), lr)
        pretrained.append(tiny.Net(client.state["pretrained"]))
        net.agrees(client.state["pretrained"])

    def local(net: tiny.Net, x: np.ndarray, y: np.ndarray, first: tiny.Net, last: tiny.Net) -> None:
        z = net.logits(x)
        pulls = [(tiny.softmax(z) - tiny.softmax(old.logits(x))) / len(y) for old in (first, last)]  # d KL(old || p)
        net.step((x, tiny.cross_entropy_slope(z, y) + 0.7 * pulls[0] + 0.4 * pulls[1]), lr=lr)

    uploads = tiny.play(
        method, server, federation, context
    )  # round 0: no consensus, the last round's model is pretrained
    method.aggregate(server, uploads, context)
    for client, net, first in zip(federation.clients, nets, pretrained, strict=True):
        local(net, *tiny.training_data(client), first, first)
        net.agrees(client.model)

    asked = tiny.first_pixels(federation, server["indices"])
    consensus = np.mean([net.logits(asked) for net in nets], 0)
    same(server["consensus"], consensus)
    last = [tiny.Net(client.model) for client in federation.clients]
    tiny.play(method, server, federation, tiny.context(federation, round=1))
    for client, net, first, previous in zip(federation.clients, nets, pretrained, last, strict=True):
        slope = tiny.slope(lambda z: correlation(z, consensus, 0.3), net.logits(asked))
        net.step((asked, slope), lr=0.05)
        local(net, *tiny.training_data(client), first, previous)
        net.agrees(client.model, 1e-5)


def test_fccl_off_diagonals_are_driven_to_minus_one() -> None:
    consensus = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])  # columns anticorrelated: M = [[1, -1], [-1, 1]]
    images, places = consensus, torch.arange(2)
    perfect = correlation_loss(torch.nn.Identity(), images, places, consensus, 1.0)
    assert perfect.item() == pytest.approx(0, abs=1e-8)
    columns_alike = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])  # every M_ij = 1: off the diagonal (1 + 1)^2, twice
    loss = correlation_loss(torch.nn.Identity(), columns_alike, places, columns_alike, 0.0051)
    assert loss.item() == pytest.approx(0.0051 * 8, rel=1e-4)


@pytest.mark.parametrize("size", [1, 4])
def test_fccl_a_batch_without_variance_gives_no_nan(size: int) -> None:
    """Equal images, or a last batch of one: plain division by the standard deviation is 0 / 0."""
    model = models.BUILDERS["tiny"](3, 1)
    images = torch.full((size, 1, 32, 32), 0.3)
    assert standardise(model(images)).abs().max() == 0
    loss = correlation_loss(model, images, torch.arange(size), torch.ones(size, 3), 0.0051)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
