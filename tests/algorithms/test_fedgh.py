"""FedGH: rounds by hand, and the switches between what its paper says and what code does."""

from collections.abc import Sequence

import numpy as np
import pytest
import tiny
import torch
from headers import NUM_CLASSES, SEEN, still
from two_clients import CLASSES, LR, arrivals, federation

from fedlib import simulate
from fedlib.algorithms.fedgh import FedGH
from fedlib.federation import Message, Upload
from fedlib.randomness import generator
from fedlib.training import augmented

LARS = {  # client -> (representations of its classes, classes), in order of arrival
    2: (np.array([[0.5, -1.0], [2.0, 0.25]]), [1, 0]),
    0: (np.array([[-0.75, 1.5]]), [1]),
}


def stepped(w: tiny.Weights, lars: np.ndarray, classes: Sequence[int]) -> tiny.Weights:
    """One SGD step at 0.3 on the mean CE of W f + b: dz = (softmax(W f + b) - onehot) / n, W -= 0.3 dz' f, b -= 0.3 dz."""
    dz = tiny.cross_entropy_slope(lars @ w["W"].T + w["b"], np.array(classes))
    return {"W": w["W"] - 0.3 * dz.T @ lars, "b": w["b"] - 0.3 * dz.sum(0)}


def header_of(server) -> tiny.Weights:
    return {name: server[f"header.{key}"].numpy().astype(np.float64) for name, key in (("W", "weight"), ("b", "bias"))}


def test_fedgh_by_hand():
    """Two rounds: header down, local step, LARs up, one server step a LAR in order of arrival."""
    fed, data = federation()
    local = [tiny.weights(fed.build("tiny-a"))] * 2
    header = header_of(FedGH().init_server(fed.server_context()))
    outcome = simulate(fed, FedGH(server_lr=0.3), 2)
    for order in arrivals(2, 2):
        local = [tiny.descend(w | header, x, y, LR) for w, (x, y) in zip(local, data, strict=True)]
        lars = [tiny.class_means(w, x, y) for w, (x, y) in zip(local, data, strict=True)]
        for k in order:
            for label in CLASSES[k]:
                header = stepped(header, lars[k][label][None], [label])
    for name, value in header_of(outcome.server).items():
        np.testing.assert_allclose(value, header[name], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)
    start = header_of(FedGH().init_server(fed.server_context()))
    assert not np.allclose(
        start["W"], fed.server_context().initial_header().weight.detach()
    )  # a fresh one, not a client's


@pytest.mark.parametrize(
    ("update", "rate", "batches"),
    [
        ("per_lar", 0.3, [[0], [1], [2]]),
        ("minibatch", 0.3, [[0, 1, 2]]),
        ("frozen", 0.3, []),
    ],
)
def test_fedgh_steps_in_order_of_arrival(update: str, rate: float, batches: list[list[int]]) -> None:
    """One step a LAR; or one on the mean, since B is larger than the number of LARs; or none, which changes no bit."""
    built, method = still(), FedGH(server_lr=rate, server_update=update)
    now = tiny.context(built)
    server = method.init_server(now)
    uploads = [
        Upload(built.clients[id].info, Message({"lars": torch.tensor(lars).float(), "classes": torch.tensor(classes)}))
        for id, (lars, classes) in LARS.items()
    ]
    expected = header_of(server)
    method.aggregate(server, uploads, now)
    lars, classes = (np.concatenate(parts) for parts in zip(*LARS.values(), strict=True))
    for batch in batches:
        expected = stepped(expected, lars[batch], classes[batch])
    for name, value in header_of(server).items():
        np.testing.assert_allclose(value, expected[name], **({"atol": 1e-6} if batches else {"rtol": 0}))


def test_fedgh_first_header() -> None:
    built = still()
    for first, sent in (("global", True), ("own", False)):
        method = FedGH(first_header=first)
        server = method.init_server(tiny.context(built))
        assert bool(method.download(server, built.clients[0].info, tiny.context(built, 0)).tensors) == sent
        assert method.download(server, built.clients[0].info, tiny.context(built, 1)).words() == 3 * NUM_CLASSES
    own = built.clients[0].model.header.weight.detach().clone()
    tiny.visit(method, built.clients[0], Message(), built)
    assert torch.equal(built.clients[0].model.header.weight, own)


@pytest.mark.parametrize("lars", ["plain", "augmented"])
def test_fedgh_lars_of_augmented_images(lars: str) -> None:
    """The first draws of the client's stream are training's, the second the LARs'; the short Eq. 3 mean by hand."""
    built = tiny.federation_of(SEEN, classes=NUM_CLASSES, lr=0, augmentation="released")
    client = built.clients[0]
    upload = tiny.visit(FedGH(lars=lars), client, Message(), built)
    stream = generator(0, "augmentation", 0, 0)
    images = client.pool.batch(client.train)
    augmented(images, stream)
    if lars == "augmented":
        images = augmented(images, stream)
    features = images[:, 0, 0, :2].double().numpy() @ client.model.extractor[1].weight.detach().double().numpy().T
    expected = [features[:2].mean(0), features[2]]  # labels 0, 0, 1
    np.testing.assert_allclose(upload["lars"], expected, atol=1e-6)


def test_fedgh_at_rate_0_trains_no_header():
    fed, _ = federation()
    start = header_of(FedGH().init_server(fed.server_context()))
    outcome = simulate(fed, FedGH(server_lr=0.0), 2)
    for name, value in header_of(outcome.server).items():
        np.testing.assert_array_equal(value, start[name])
