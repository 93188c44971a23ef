"""FedProto: rounds by hand, and whom prototypes reach."""

import numpy as np
import tiny
import torch
from two_clients import CLASSES, DATA, LR, arrivals, federation

from fedlib import lab, simulate
from fedlib.algorithms.fedproto import FedProto


def test_fedproto_by_hand():
    """Round 0 has no prototypes; round 1 pulls towards the unweighted class means over owners (Eq. 6 to 8)."""
    fed, data = federation()
    local, prototypes = [tiny.weights(fed.build("tiny-a"))] * 2, {}
    outcome = simulate(fed, FedProto(lam=0.7), 2)
    for _ in range(2):
        local = [
            tiny.descend(w, x, y, LR, prototypes=prototypes, lam=0.7) for w, (x, y) in zip(local, data, strict=True)
        ]
        own = [tiny.class_means(w, x, y) for w, (x, y) in zip(local, data, strict=True)]
        prototypes = {0: own[0][0], 1: (own[0][1] + own[1][1]) / 2, 2: own[1][2]}
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)
    for label, prototype in prototypes.items():
        np.testing.assert_allclose(outcome.server["prototypes"][label], prototype, rtol=1e-5, atol=2e-6)


def test_fedproto_weighted_aggregation_by_hand():
    """Eq. 6: client 0 has 3 images of class 1 and client 1 has 5, so its prototype is (3 c_0 + 5 c_1) / 8."""
    fed, data = federation()
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, FedProto(weighted=True), 1)
    own = [tiny.class_means(tiny.descend(start, x, y, LR), x, y) for x, y in data]
    prototypes = {0: own[0][0], 1: (3 * own[0][1] + 5 * own[1][1]) / 8, 2: own[1][2]}
    for label, prototype in prototypes.items():
        np.testing.assert_allclose(outcome.server["prototypes"][label], prototype, rtol=1e-5, atol=2e-6)
    last = lab.rounds_of(outcome).iloc[-1]  # two classes a client, of 3 features; counts go up and are not published
    assert (last["upload_words"], last["published_words"]) == (2 * (2 * 3 + 2 + 2), 2 * 2 * 3)
    plain = lab.rounds_of(simulate(federation()[0], FedProto(), 1)).iloc[-1]
    assert plain["upload_words"] == 2 * (2 * 3 + 2)


def test_fedproto_ignores_classes_without_a_prototype():
    """One client a round: the second knows class 1 from the first, class 2 from nobody."""
    fed, data = federation()
    (first,), (second,) = arrivals(2, 2, 0.5)
    seed = 0
    while first == second:
        seed += 1
        (first,), (second,) = arrivals(2, 2, 0.5, seed)
    fed, data = federation(seed=seed)
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, FedProto(lam=0.7), 2, 0.5)
    x, y = data[first]
    known = tiny.class_means(tiny.descend(start, x, y, LR), x, y)
    x, y = data[second]
    assert set(known) & set(y.tolist()) == {1}
    state = tiny.descend(start, x, y, LR, prototypes=known, lam=0.7)
    tiny.assert_weights(outcome.clients[second].model, state)
    kept = next(label for label in known if label != 1)  # not uploaded in round 1, so kept
    np.testing.assert_allclose(outcome.server["prototypes"][kept], known[kept], rtol=1e-5, atol=2e-6)


def test_fedproto_predicts_with_the_nearest_prototype_of_its_own_classes():
    fed, _ = federation()
    outcome = simulate(fed, FedProto(), 3)
    client = outcome.clients[0]
    images = fed.pool.batch(torch.arange(36))
    predicted = FedProto().predict(client, images)["prototype_accuracy"].argmax(1)
    x, _ = tiny.inputs(DATA, np.arange(36))
    f = tiny.features(tiny.weights(client.model), x)
    held = client.state["prototypes"].numpy().astype(np.float64)
    nearest = np.array(CLASSES[0])[((f[:, None] - held[None]) ** 2).sum(2).argmin(1)]
    assert np.array_equal(predicted, nearest)
