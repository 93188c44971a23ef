"""FedClassAvg: rounds by hand, and its contrast."""

import numpy as np
import pytest
import tiny
import torch
from tiny import LABELS

from fedlib import simulate
from fedlib.algorithms.fedclassavg import FedClassAvg, supervised_contrast


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("replace", [True, False])
def test_fedclassavg_one_round_by_hand(reduction: str, replace: bool) -> None:
    federation = tiny.federation_of(LABELS)
    method, context = FedClassAvg(rho=0.4, reduction=reduction, replace=replace), tiny.context(federation)
    weight, bias = np.array([[1.0, -0.5], [0.25, 0.0], [-1.0, 0.5]]), np.array([0.1, 0.0, -0.2])
    server = {"weight": torch.tensor(weight).float(), "bias": torch.tensor(bias).float()}
    share = {"sum": (1.0, 1.0), "mean": (1 / weight.size, 1 / bias.size)}[reduction]

    nets = []
    for client in federation.clients:
        (x, y), net = tiny.training_data(client), tiny.Net(client.model)
        if replace:  # the proximal term then starts at zero and its first slope is zero
            net.W, net.b = weight.copy(), bias.copy()
        header = (0.4 * share[0] * (net.W - weight), 0.4 * share[1] * (net.b - bias))  # d(rho/2 |.|^2)
        net.step((x, tiny.cross_entropy_slope(net.logits(x), y)), header=header)
        nets.append(net)
    uploads = tiny.play(method, server, federation, context)
    for client, net in zip(federation.clients, nets, strict=True):
        net.agrees(client.model)
    method.aggregate(server, uploads, context)
    np.testing.assert_allclose(server["weight"], (3 * nets[0].W + 5 * nets[1].W) / 8, atol=2e-6)
    np.testing.assert_allclose(server["bias"], (3 * nets[0].b + 5 * nets[1].b) / 8, atol=2e-6)


def test_supervised_contrast_by_hand() -> None:
    features = np.random.default_rng(0).normal(size=(6, 4))
    labels, temperature = np.array([0, 1, 0, 2, 1, 2]), 0.5
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    terms = []
    for i in range(6):  # -1/|P(i)| sum_p log( exp(z_i z_p / T) / sum_{a != i} exp(z_i z_a / T) )
        others = [np.exp(unit[i] @ unit[a] / temperature) for a in range(6) if a != i]
        peers = [p for p in range(6) if p != i and labels[p] == labels[i]]
        terms.append(-np.mean([unit[i] @ unit[p] / temperature - np.log(sum(others)) for p in peers]))
    ours = supervised_contrast(torch.tensor(features), torch.tensor(labels), temperature)
    assert ours.item() == pytest.approx(np.mean(terms), rel=1e-9)


def test_supervised_contrast_survives_features_that_are_all_zero() -> None:
    features = torch.zeros(4, 3, requires_grad=True)
    supervised_contrast(features, torch.tensor([0, 0, 1, 1]), 0.07).backward()
    assert torch.isfinite(features.grad).all()


def test_fedclassavg_with_contrast_trains() -> None:
    runs = [tiny.federation_of(LABELS) for _ in range(2)]
    for federation, method in zip(runs, (FedClassAvg(contrast=0.5), FedClassAvg()), strict=True):
        assert simulate(federation, method, 2).status == "finished"
    assert not tiny.same_models(*runs)
