"""FedL2G: the gradient of a guiding vector against its equation and against differences, rounds by hand, its sets."""

import numpy as np
import pytest
import tiny
import torch
from steps import cross_entropy, moved
from tiny import LABELS, LR

from fedlib import FedlibError, simulate
from fedlib.algorithms.fedl2g import FedL2G, quiz

SPACES = ("logits", "features")
LONG = [[0, 1, 0, 1, 2, 0], [1, 2, 2, 1, 1]]  # two clients: 6 and 5 training images


def guided_slopes(net: tiny.Net, x, y, guides, space: str):
    """d(CE + mean squared error of what is guided) / d(A, W, b)."""
    dz, h = tiny.cross_entropy_slope(net.logits(x), y), net.features(x)
    df = np.zeros_like(h)
    if space == "logits":
        dz = dz + 2 * (net.logits(x) - guides[y]) / guides[y].size
    else:
        df = 2 * (h - guides[y]) / guides[y].size
    return [net.W.T @ dz.T @ x + df.T @ x, dz.T @ h, dz.sum(0)]


def stepped(net: tiny.Net, x, y, guides, space: str, lr: float) -> tiny.Net:
    return moved(net, lr, guided_slopes(net, x, y, guides, space))


def asked_of(net: tiny.Net, x, y) -> float:
    return cross_entropy(net.logits(x), y)


def expected_gradient(net: tiny.Net, study, asked, guides, space: str) -> np.ndarray:
    """By central differences over the guides, through the step."""
    return tiny.slope(lambda v: asked_of(stepped(net, *study, v, space, LR), *asked), guides)


def in_closed_form(net: tiny.Net, study, asked, guides, space: str) -> np.ndarray:
    """2 eta / (n m) * sum over class c of J_g(x) grad_theta' CE, for the tiny network's Jacobian."""
    moved = stepped(net, *study, guides, space, LR)
    dz = tiny.cross_entropy_slope(moved.logits(asked[0]), asked[1])
    dA, dW, db = moved.W.T @ dz.T @ asked[0], dz.T @ moved.features(asked[0]), dz.sum(0)
    x, y = study
    change = x @ dA.T  # of the representations along the slope
    if space == "logits":
        change = change @ net.W.T + net.features(x) @ dW.T + db
    rows = np.stack([change[y == c].sum(0) for c in range(len(guides))])
    return 2 * LR / change.size * rows


@pytest.mark.parametrize("space", SPACES)
def test_the_gradient_of_the_guides_goes_through_the_step(space: str) -> None:
    model, _, images, labels = tiny.pair()
    asked, answers = torch.randn(3, 1, 32, 32), torch.tensor([0, 0, 2])
    guides = torch.randn(3, 3 if space == "logits" else 2)
    found, gradient = quiz(model, (images, labels), (asked, answers), guides, LR, space)
    net, x, q = tiny.Net(model), images[:, 0, 0, :2].double().numpy(), asked[:, 0, 0, :2].double().numpy()
    study, quizzed, v = (x, labels.numpy()), (q, answers.numpy()), guides.double().numpy()
    assert found.item() == pytest.approx(asked_of(stepped(net, *study, v, space, LR), *quizzed), rel=1e-5)
    tiny.same(gradient, expected_gradient(net, study, quizzed, v, space))
    tiny.same(gradient, in_closed_form(net, study, quizzed, v, space))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("space", SPACES)
def test_fedl2g_by_hand(space: str) -> None:
    """Two rounds of which the first only warms up; gradients are averaged over who has the class in its batch."""
    built = tiny.federation_of(LONG)
    method = FedL2G(space=space, warm_up=0.5, quiz_share=0.3, server_lr=5.0)
    guides = method.init_server(built.server_context())["guides"].double().numpy()
    nets = [tiny.Net(client.model) for client in built.clients]
    outcome = simulate(built, method, 2)

    def seen(client, name):
        indices = client.state[name]
        return tiny.first_pixels(built, indices), built.pool.labels[indices].numpy()

    for round in range(2):
        total, owners, first = np.zeros_like(guides), np.zeros(3), guides
        for place, client in enumerate(built.clients):
            study, asked = seen(client, "study"), seen(client, "quiz")
            if round == 1:
                nets[place] = stepped(nets[place], *study, first, space, LR)
            gradient = expected_gradient(nets[place], study, asked, first, space)
            for c in np.unique(study[1]):
                total[c], owners[c] = total[c] + gradient[c], owners[c] + 1
        guides = first - 5.0 * total / np.maximum(owners, 1)[:, None]
    for client, net in zip(built.clients, nets, strict=True):
        net.agrees(client.model)
    tiny.same(outcome.server["guides"], guides, 5e-6)
    row = outcome.round_rows[1]
    assert row["loss"] == row["quiz_loss"] != outcome.round_rows[2]["loss"]  # nothing was trained in the first


def test_half_of_three_rounds_is_a_warm_up_of_two() -> None:
    rows = simulate(tiny.federation_of(LONG), FedL2G(warm_up=0.5), 3).round_rows[1:]
    assert [row["loss"] == row["quiz_loss"] for row in rows] == [True, True, False]


def test_quiz_images_are_held_out_and_an_only_image_is_both() -> None:
    built = tiny.federation_of([*LONG, [1]])
    method = FedL2G(quiz_share=0.3)
    for client, sizes in zip(built.clients, ((2, 4), (2, 3), (1, 1)), strict=True):
        tiny.begin(method, client, built)
        asked, study = (set(client.state[name].tolist()) for name in ("quiz", "study"))
        assert (len(asked), len(study)) == sizes and asked | study == set(client.train.tolist())
        assert not asked & study or len(client.train) == 1
    tiny.begin(FedL2G(quiz_share=0.99), built.clients[0], built)
    assert len(built.clients[0].state["study"]) == 1


def test_features_need_one_width_and_logits_none() -> None:
    with pytest.raises(FedlibError, match="'FedL2G': what it shares depends on the header's input width"):
        simulate(tiny.federation_of(LABELS, architectures=["tiny", "CNN-5"]), FedL2G(space="features"), 1)
    assert simulate(tiny.federation_of(LABELS, architectures=["tiny", "tiny-b"]), FedL2G(), 1).status == "finished"


def test_fedl2g_words() -> None:
    """Two seen classes: of 10 logits, or of 500 features, each way."""
    assert tiny.words(FedL2G(), 10, [[0, 1, 0]], 0) == (20, 20)
    assert tiny.words(FedL2G(space="features"), 10, [[0, 1, 0]], 0) == (1000, 1000)
