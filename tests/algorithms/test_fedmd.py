"""FedMD: rounds by hand on public images."""

import numpy as np
import pytest
import tiny
import torch
from tiny import LABELS, same

from fedlib.algorithms.fedmd import FedMD

PUBLIC = 6


@pytest.mark.parametrize("epochs", [1, 2])
def test_fedmd_transfer_learning_then_two_rounds_by_hand(epochs: int) -> None:
    federation, method = tiny.federation_of(LABELS, public=PUBLIC, lr=0.1), FedMD(pretrain_epochs=epochs)
    context = tiny.context(federation)
    server = method.init_server(context)
    shared, shared_labels = tiny.first_pixels(federation, federation.public.indices), np.arange(PUBLIC) % tiny.CLASSES
    nets = [tiny.Net(client.model) for client in federation.clients]
    for client, net in zip(federation.clients, nets, strict=True):
        tiny.begin(method, client, federation)
        for images, labels in [(shared, shared_labels), tiny.training_data(client)]:  # public first, with its labels
            for _ in range(epochs):
                net.train(images, labels, 0.1)
        net.agrees(client.model)

    assert not method.download(server, federation.clients[0].info, context).tensors  # no consensus yet
    uploads = tiny.play(method, server, federation, context)
    method.aggregate(server, uploads, context)
    for client, net in zip(federation.clients, nets, strict=True):
        net.train(*tiny.training_data(client), 0.1)
    asked = tiny.first_pixels(federation, server["indices"])
    assert sorted(server["indices"].tolist()) == federation.public.indices.tolist()
    consensus = np.mean([net.logits(asked) for net in nets], 0)
    same(server["consensus"], consensus)

    context = tiny.context(federation, round=1)
    tiny.play(method, server, federation, context)
    for client, net in zip(federation.clients, nets, strict=True):
        z = net.logits(asked)
        net.step((asked, np.sign(z - consensus) / z.size), lr=0.1)  # digest: d(mean absolute error)
        net.train(*tiny.training_data(client), 0.1)  # revisit
        net.agrees(client.model)


def test_fedmd_each_image_meets_its_own_target() -> None:
    """A subset in an order of its own, in small batches: the row of the consensus follows the image."""
    federation = tiny.federation_of(LABELS, public=50)
    indices = federation.public.sample(20, tiny.context(federation).generator("server"))
    assert len(indices) == len(indices.unique()) == 20 and not torch.equal(indices, indices.sort().values)
    numbered = federation.public.pool.numbered(indices)
    assert torch.equal(numbered.labels[indices], torch.arange(20))
    assert torch.equal(numbered.batch(indices), federation.public.pool.batch(indices))
