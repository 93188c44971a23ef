"""FML: a round by hand, limits, and the traps of other implementations."""

import dataclasses

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from tiny import LABELS, kl, pair

from fedlib import fields, simulate
from fedlib.algorithms.fml import FML, mutual_loss
from fedlib.algorithms.standalone import Standalone


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


def test_fml_on_labels_alone_is_standalone() -> None:
    mutual, alone = tiny.federation_of(LABELS), tiny.federation_of(LABELS)
    for federation in (mutual, alone):
        federation.settings = dataclasses.replace(federation.settings, epochs=2, batch_size=2, clip_norm=0.2)
    simulate(mutual, FML(alpha=1.0, shared="tiny"), 3)
    simulate(alone, Standalone(), 3)
    assert tiny.same_models(mutual, alone)
    other = tiny.federation_of(LABELS)
    simulate(other, FML(alpha=0.9, shared="tiny"), 3)
    assert not tiny.same_models(other, alone)


def test_fml_partner_is_detached() -> None:
    model, shared, images, labels = pair()
    loss = mutual_loss(model, shared, images, labels, alpha=0.0, beta=1.0)  # KL(shared || model) + CE of shared
    got = torch.autograd.grad(loss, [*shared.parameters()])
    expected = torch.autograd.grad(F.cross_entropy(shared(images), labels), [*shared.parameters()])
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_fml_divergence_is_a_mean_over_the_batch() -> None:
    model, shared, images, labels = pair()
    own, other = (network(images).detach().double().numpy() for network in (model, shared))
    assert abs(mutual_loss(model, shared, images, labels, 0.0, 0.0).item() - kl(other, own) - kl(own, other)) < 1e-6


def test_fml_scores_the_shared_network() -> None:
    """What the client trained and what it received, on its test images."""
    scored = tiny.federation_of(LABELS)
    method, context = FML(shared="tiny", score_shared=True), tiny.context(scored)
    server = method.init_server(context)
    for client, (_, upload) in zip(scored.clients, tiny.play(method, server, scored, context), strict=True):
        images, x = client.pool.batch(client.test), tiny.first_pixels(scored, client.test)
        answers = method.predict(client, images)
        assert list(answers) == ["accuracy", "shared_accuracy", "received_accuracy"]
        for name, net in (("shared_accuracy", upload.tensors), ("received_accuracy", server)):
            np.testing.assert_allclose(answers[name].detach(), tiny.Net(net).logits(x), rtol=0, atol=1e-5)


def test_fml_is_the_same_whether_the_shared_network_is_scored() -> None:
    scored, plain = tiny.federation_of(LABELS), tiny.federation_of(LABELS)
    one, other = (simulate(fed, FML(shared="tiny", score_shared=on), 3) for fed, on in ((scored, True), (plain, False)))
    assert tiny.same_models(scored, plain) and tiny.equal_states(one.server, other.server)
    extra = {"shared_accuracy", "received_accuracy"}
    for mine, theirs in zip(one.round_rows, other.round_rows, strict=True):
        assert {name: mine[name] for name in mine if name not in extra} == pytest.approx(theirs, nan_ok=True, abs=0)
        assert extra <= set(mine) or mine["round"] < 0


def test_fml_scores_nothing_unless_it_is_asked_to() -> None:
    federation = tiny.federation_of(LABELS)
    simulate(federation, FML(shared="tiny"), 1)
    assert all(not client.state for client in federation.clients)
    assert fields.neutral(FML) == {"score_shared": False}


def test_fml_scores_a_network_without_dropout() -> None:
    """M1 has dropout, which evaluation leaves out: two answers to the same images are one."""
    federation = tiny.federation_of([[0, 1, 2]] * 2, classes=10, architectures=["CNN-5"], channels=3)
    method = FML(shared="M1", score_shared=True)
    simulate(federation, method, 1)
    images = federation.pool.batch(federation.clients[0].test)
    one, other = (method.predict(federation.clients[0], images)["shared_accuracy"] for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize(("classes", "words"), [(10, 1_340_116), (100, 1_430_296)])
@pytest.mark.parametrize("architecture", ["CNN-1", "CNN-2"])
def test_fml_words_a_client_round(architecture: str, classes: int, words: int) -> None:
    federation = tiny.federation_of([[0, 1, 0]], classes=classes, architectures=[architecture], channels=3)
    method, context = FML(), tiny.context(federation)
    server = method.init_server(context)
    download = method.download(server, federation.clients[0].info, context)
    assert (
        download.words() + tiny.play(method, server, federation, context)[0].message.words() == words
    )  # CNN-5, down and up
