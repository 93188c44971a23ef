"""FedMRL: a round by hand, what is nested in what, and the mean."""

import numpy as np
import pytest
import tiny
import torch
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


def loss_of(own, small, projector, x, y, weights) -> float:
    """m_1 CE(G_hd(R[:1])) + m_2 CE(F_hd(R[:2])), R = P [G x, F x]."""
    joined = np.concatenate([x @ small["A"].T, x @ own["A"].T], axis=1) @ projector["W"].T + projector["b"]
    total = 0.0
    for weight, net, width in zip(weights, (small, own), (1, 2), strict=True):
        q = tiny.softmax(joined[:, :width] @ net["W"].T + net["b"])
        total -= weight * np.log(q[np.arange(len(y)), y]).mean()
    return float(total)


def net(state) -> dict[str, np.ndarray]:
    names = {"A": "extractor.1.weight", "W": "header.weight", "b": "header.bias"}
    return {short: state[name].detach().double().numpy() for short, name in names.items()}


def test_fedmrl_one_round_by_hand() -> None:
    """Every weight of the client's model, the small one and the projector goes down the slope of the loss."""
    federation, weights = tiny.federation_of(LABELS), (0.5, 2.0)
    method, context = FedMRL(m_small=weights[0], m_large=weights[1], shared="narrow"), tiny.context(federation)
    server = method.init_server(context)
    before = {"small": net(server)}
    expected = []
    for client in federation.clients:
        tiny.begin(method, client, federation)
        projector = {"W": "weight", "b": "bias"}
        projector = {k: client.state["projector"][name].double().numpy() for k, name in projector.items()}
        assert projector["W"].shape == (2, 3)  # d_1 + d_2 numbers to d_2
        parts = {"own": net(client.model.state_dict()), "small": before["small"], "projector": projector}
        x, y = tiny.training_data(client)
        after = {}
        for part, values in parts.items():
            after[part] = {}
            for name, value in values.items():

                def at(v, part=part, name=name, parts=parts, x=x, y=y):
                    now = parts | {part: parts[part] | {name: v}}
                    return loss_of(now["own"], now["small"], now["projector"], x, y, weights)

                after[part][name] = value - LR * tiny.slope(at, value)
        expected.append(after)
    uploads = tiny.play(method, server, federation, context)
    for client, after, upload in zip(federation.clients, expected, uploads, strict=True):
        found = {"own": net(client.model.state_dict()), "small": net(upload.message.tensors)}
        found["projector"] = {
            "W": client.state["projector"]["weight"].numpy(), "b": client.state["projector"]["bias"].numpy()
        }  # fmt: skip
        for part, values in after.items():
            for name, value in values.items():
                np.testing.assert_allclose(found[part][name], value, rtol=0, atol=5e-6, err_msg=f"{part} {name}")
        x = tiny.first_pixels(federation, client.test)
        joined = np.concatenate([x @ after["small"]["A"].T, x @ after["own"]["A"].T], axis=1)
        joined = joined @ after["projector"]["W"].T + after["projector"]["b"]
        answer = method.predict(client, client.pool.batch(client.test))["accuracy"].detach()
        np.testing.assert_allclose(answer, joined @ after["own"]["W"].T + after["own"]["b"], rtol=0, atol=1e-5)
    method.aggregate(server, uploads, context)
    for name, value in net(server).items():  # weighted by 3 and 5 images
        mean = (3 * expected[0]["small"][name] + 5 * expected[1]["small"][name]) / 8
        np.testing.assert_allclose(value, mean, rtol=0, atol=5e-6)


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
