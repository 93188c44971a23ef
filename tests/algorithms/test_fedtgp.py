"""FedTGP: Eq. 9 and 10 in numbers, a server's step and a guided step by hand."""

import numpy as np
import pytest
import tiny
import torch
from two_clients import CLASSES, LR, federation

from fedlib import lab, simulate
from fedlib.algorithms.fedtgp import FedTGP, adaptive_margin, contrastive_loss


def test_the_margin_is_the_largest_distance_of_two_class_means_and_at_most_tau():
    """Eq. 9: Q^0 = (1, 0), Q^1 = (1, 3), nothing of class 2; far from 0 each, which must not count."""
    uploads, classes = torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]) + 100, torch.tensor([0, 0, 1])
    assert adaptive_margin(uploads, classes, 3, 50.0).item() == pytest.approx(3)
    assert adaptive_margin(uploads, classes, 3, 2.0).item() == 2
    assert adaptive_margin(uploads[:2], classes[:2], 3, 50.0).item() == 0


def test_the_contrastive_loss_in_numbers():
    """Eq. 10 of P = (3, 4), class 0: phi is 5 to P^0 and 4 to P^1, delta 1, so -log(e^-6 / (e^-6 + e^-4))."""
    trained = torch.tensor([[0.0, 0.0], [3.0, 0.0]])
    loss = contrastive_loss(trained, torch.tensor([[3.0, 4.0]]), torch.tensor([0]), torch.tensor(1.0))
    assert loss.item() == pytest.approx(np.log(1 + np.exp(2)))


def prototypes_of(s: dict[str, np.ndarray]) -> np.ndarray:
    hidden = np.maximum(s["vectors"] @ s["processor.0.weight"].T + s["processor.0.bias"], 0)
    return hidden @ s["processor.2.weight"].T + s["processor.2.bias"]


def loss_of(s: dict[str, np.ndarray], uploads: list[tuple[int, np.ndarray]], tau: float) -> float:
    """Eq. 9 and 10, a mean over the uploads."""
    centres = [np.mean([p for c, p in uploads if c == label], axis=0) for label in range(3)]
    delta = min(max(np.linalg.norm(a - b) for a in centres for b in centres), tau)
    total = 0.0
    for label, p in uploads:
        e = np.exp(-np.linalg.norm(p - prototypes_of(s), axis=1) - delta * (np.arange(3) == label))
        total -= np.log(e[label] / e.sum())
    return total / len(uploads)


def slope(s: dict[str, np.ndarray], name: str, uploads: list[tuple[int, np.ndarray]]) -> np.ndarray:
    return tiny.slope(lambda value: loss_of(s | {name: value}, uploads, 100.0), s[name])


def test_fedtgp_by_hand():
    """Round 0 trains without prototypes; the server steps twice on the four uploads; round 1 pulls by lambda * phi."""
    fed, data = federation()
    method = FedTGP(lam=0.7, server_epochs=2, server_lr=0.5)
    first = method.init_server(fed.server_context())["trainable"]
    server = {name: tensor.double().numpy() for name, tensor in first.items()}
    outcome = simulate(fed, method, 2)

    def own(w):
        return [(label, mean) for k in (0, 1) for label, mean in tiny.class_means(w[k], *data[k]).items()]

    local = [tiny.descend(tiny.weights(fed.build("tiny-a")), x, y, LR) for x, y in data]
    sent = []
    for round in range(2):
        if round == 1:
            local = [guided(w, x, y, prototypes_of(server), 0.7) for w, (x, y) in zip(local, data, strict=True)]
            sent = [prototypes_of(server)]
        uploads = own(local)
        for _ in range(2):
            server = {name: value - 0.5 * slope(server, name, uploads) for name, value in server.items()}
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)
        np.testing.assert_allclose(client.state["prototypes"], sent[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outcome.server["prototypes"], prototypes_of(server), rtol=1e-4, atol=1e-5)
    last = lab.rounds_of(outcome).iloc[-1]  # three prototypes of three features down, two up
    assert (last["published_words"], last["upload_words"]) == (2 * (3 * 3 + 2 * 3), 2 * (2 * 3 + 2))


def guided(w, x, y, prototypes, lam):
    """A step on CE + lam * mean Euclidean distance, whose slope at a representation is (f - P) / |f - P|."""
    gradient, apart = tiny.gradient(w, x, y), tiny.features(w, x) - prototypes[y]
    df = lam * apart / np.linalg.norm(apart, axis=1, keepdims=True) / len(y)
    extra = {"A": df.T @ x, "a": df.sum(0), "W": 0, "b": 0}
    return {name: w[name] - LR * (gradient[name] + extra[name]) for name in w}


def test_a_class_without_an_upload_has_no_prototype():
    """One client a round of classes 0 and 1: nothing comes down of class 2."""
    fed, _ = federation()
    method, context = FedTGP(server_epochs=1), fed.server_context()
    server = method.init_server(context)
    assert not method.download(server, fed.infos[1], context)["classes"].numel()
    uploads = tiny.play(method, server, fed, context)
    method.aggregate(server, uploads[:1], context)
    assert method.download(server, fed.infos[1], context)["classes"].tolist() == CLASSES[0]
