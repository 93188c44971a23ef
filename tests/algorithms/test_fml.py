"""FML: a round by hand, and how its shared network is scored."""

import numpy as np
import tiny
import torch
from tiny import LABELS

from fedlib import simulate
from fedlib.algorithms.fml import FML


def test_fml_one_round_by_hand() -> None:
    alpha, beta, federation = 0.3, 0.6, tiny.federation_of(LABELS)
    method, context = FML(alpha=alpha, beta=beta, shared="tiny"), tiny.context(federation)
    server = method.init_server(context)
    models = [tiny.Net(client.model) for client in federation.clients]
    memes = [tiny.Net(server) for _ in federation.clients]
    uploads = tiny.play(method, server, federation, context)
    for client, model, meme in zip(federation.clients, models, memes, strict=True):
        x, y = tiny.training_data(client)
        own, other = model.logits(x), meme.logits(x)
        gap = (tiny.softmax(own) - tiny.softmax(other)) / len(y)  # d KL(meme || model) / d own, by the batch's size
        model.step((x, alpha * tiny.cross_entropy_slope(own, y)), (x, (1 - alpha) * gap))
        meme.step((x, beta * tiny.cross_entropy_slope(other, y)), (x, -(1 - beta) * gap))
        model.agrees(client.model)
        meme.agrees(uploads[client.id].message.tensors)
    method.aggregate(server, uploads, context)
    for name, parts in zip("AWb", zip(*[(meme.A, meme.W, meme.b) for meme in memes], strict=True), strict=True):
        np.testing.assert_allclose(getattr(tiny.Net(server), name), sum(parts) / 2, rtol=0, atol=2e-6)  # unweighted


def test_fml_scores_a_network_without_dropout() -> None:
    """M1 has dropout, which evaluation leaves out: two answers to the same images are one."""
    federation = tiny.federation_of([[0, 1, 2]] * 2, classes=10, architectures=["CNN-5"], channels=3)
    method = FML(shared="M1", score_shared=True)
    simulate(federation, method, 1)
    images = federation.pool.batch(federation.clients[0].test)
    one, other = (method.predict(federation.clients[0], images)["shared_accuracy"] for _ in range(2))
    assert torch.equal(one, other)
