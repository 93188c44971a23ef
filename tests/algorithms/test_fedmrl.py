"""FedMRL: a round by hand, what is nested in what, and the mean."""

import numpy as np
import pytest
import tiny
import torch
from steps import cross_entropy, cut, flat, weights
from tiny import LABELS, LR
from torch import nn

from fedlib import FedlibError, Model, models, simulate
from fedlib.algorithms.fedmrl import FedMRL, nested_loss


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """An architecture like `tiny` whose representation has one number: d_1 = 1 beside d_2 = 2."""

    def build(num_classes: int, channels: int) -> Model:
        return Model(nn.Sequential(tiny.FirstPixels(), nn.Linear(2, 1, bias=False)), nn.Linear(1, num_classes))

    monkeypatch.setitem(models.BUILDERS, "narrow", build)


NET, NARROW, PROJECTOR = ((2, 2), (3, 2), (3,)), ((1, 2), (3, 1), (3,)), ((2, 3), (2,))  # d_1 + d_2 numbers to d_2


def answers(at: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """Logits G_hd(R[:1]) and F_hd(R[:2]), R = P [G x, F x], of the client's model, the small one and the projector in one vector."""
    A, W, b, a, w, c, P, q = cut(at, *NET, *NARROW, *PROJECTOR)
    joined = np.concatenate([x @ a.T, x @ A.T], axis=1) @ P.T + q
    return [joined[:, :1] @ w.T + c, joined @ W.T + b]


def test_fedmrl_one_round_by_hand() -> None:
    """Every weight of the client's model, the small one and the projector goes down the slope of m_1 CE + m_2 CE."""
    federation, scales = tiny.federation_of(LABELS), (0.5, 2.0)
    method, context = FedMRL(m_small=scales[0], m_large=scales[1], shared="narrow"), tiny.context(federation)
    server = method.init_server(context)

    def vector(client, small) -> np.ndarray:
        return flat(*weights(tiny.Net(client.model)), *weights(tiny.Net(small)), *client.state["projector"].values())

    expected = []
    for client in federation.clients:
        tiny.begin(method, client, federation)
        x, y = tiny.training_data(client)

        def loss(at: np.ndarray, x=x, y=y) -> float:
            return sum(scale * cross_entropy(z, y) for scale, z in zip(scales, answers(at, x), strict=True))

        at = vector(client, server)
        expected.append(at - LR * tiny.slope(loss, at))
    uploads = tiny.play(method, server, federation, context)
    for client, after, upload in zip(federation.clients, expected, uploads, strict=True):
        assert [*client.state["projector"]] == ["weight", "bias"]
        np.testing.assert_allclose(vector(client, upload.message.tensors), after, rtol=0, atol=5e-6)
        answer = method.predict(client, client.pool.batch(client.test))["accuracy"].detach()
        by_hand = answers(after, tiny.first_pixels(federation, client.test))[1]
        np.testing.assert_allclose(answer, by_hand, rtol=0, atol=1e-5)
    method.aggregate(server, uploads, context)
    mean = (3 * expected[0] + 5 * expected[1]) / 8  # weighted by numbers of images
    np.testing.assert_allclose(flat(*weights(tiny.Net(server))), mean[13:21], rtol=0, atol=5e-6)


def test_the_small_header_reads_the_first_numbers_alone() -> None:
    own, small, images, labels = tiny.pair()
    small = models.build("narrow", 3, 1, np.random.default_rng(0))
    projector = nn.Linear(3, 2)
    nested_loss(own, small, projector, images, labels, 1.0, 0.0).backward()
    assert projector.weight.grad[0].abs().sum() > 0 == projector.weight.grad[1].abs().sum()


@pytest.mark.parametrize(("own", "shared"), [("tiny", "narrow"), ("narrow", "tiny")])
def test_either_representation_may_be_the_smaller_one(own: str, shared: str) -> None:
    federation = tiny.federation_of(LABELS, architectures=[own])
    outcome = simulate(federation, FedMRL(shared=shared), 2)
    assert outcome.status == "finished" and outcome.clients[0].state["projector"]["weight"].shape == (2, 3)


def test_projectors_start_apart() -> None:
    federation = tiny.federation_of(LABELS)
    method = FedMRL(shared="tiny")
    for client in federation.clients:
        tiny.begin(method, client, federation)
    one, other = (client.state["projector"]["weight"] for client in federation.clients)
    assert not torch.equal(one, other)


def test_d_1_is_the_width_of_the_small_models_last_hidden_layer() -> None:
    """100 numbers in CNN-5 in place of 500: of 250 500 + 5 010 numbers 50 100 + 1 010 are left; each seed has its own."""
    whole, method = 670_058 - 250_500 - 5_010, FedMRL(width=100)
    assert tiny.words(method, 10, [[0, 1, 0]], 0) == (whole + 50_100 + 1_010,) * 2
    built = tiny.federation_of([[0, 1, 0]] * 2, classes=10, architectures=["CNN-5"], channels=3)
    one, other = (method.init_server(tiny.context(built)) for _ in range(2))
    assert tiny.equal_states(one, other) and one["header.weight"].shape == (10, 100)
    assert 0.9 < one["header.weight"].std() * 100**0.5 * 3**0.5 < 1.1  # PyTorch's own: uniform within 1 / sqrt(100)
    outcome = simulate(built, method, 2)
    assert outcome.status == "finished"
    assert outcome.clients[0].state["projector"]["weight"].shape == (500, 600)


def test_a_small_model_that_cannot_be_narrowed(monkeypatch) -> None:
    monkeypatch.setitem(
        models.BUILDERS, "flat", lambda classes, channels: Model(tiny.FirstPixels(), nn.Linear(2, classes))
    )
    with pytest.raises(
        FedlibError, match="FedMRL width = 3: must be 0, since the small network's extractor has no linear"
    ):
        simulate(tiny.federation_of(LABELS), FedMRL(shared="flat", width=3), 1)


@pytest.mark.parametrize(("classes", "words"), [(10, 670_058), (100, 715_148)])
def test_fedmrl_sends_the_small_model(classes: int, words: int) -> None:
    assert tiny.words(FedMRL(), classes, [[0, 1, 0]], 0) == (words, words)  # CNN-5
