"""FedGen: Eq. 4 and 5 by hand, and a round of the server's."""

import numpy as np
import pytest
import tiny
import torch
from two_clients import LR, federation

from fedlib import simulate
from fedlib.algorithms.fedgen import FedGen, Generator, ensemble_loss, regularised_loss


def test_what_the_generator_makes_by_hand():
    """W_2 relu(W_1 [noise, one hot] + b_1) + b_2."""
    torch.manual_seed(0)
    generator = Generator(3, 2, 4, 5)
    labels, noise = torch.tensor([2, 0]), torch.randn(2, 2)
    s = {name: tensor.double().numpy() for name, tensor in generator.state_dict().items()}
    joined = np.concatenate([noise.numpy(), np.eye(3)[labels.numpy()]], axis=1)
    hidden = np.maximum(joined @ s["layers.0.weight"].T + s["layers.0.bias"], 0)
    tiny.same(generator(labels, noise), hidden @ s["layers.2.weight"].T + s["layers.2.bias"])


def test_labels_follow_the_prior():
    torch.manual_seed(0)
    labels, noise = Generator(4, 2, 4, 5).sample(torch.tensor([0.5, 0.0, 0.25, 0.25]), 4000)
    shares = labels.bincount(minlength=4) / 4000
    assert shares[1] == 0 and abs(shares - torch.tensor([0.5, 0.0, 0.25, 0.25])).max() < 0.03
    assert noise.shape == (4000, 2) and abs(noise.mean()) < 0.05 and abs(noise.std() - 1) < 0.05


class Fixed(torch.nn.Module):
    """A generator that makes twice the noise."""

    def forward(self, labels, noise):
        return 2 * noise


def test_the_generators_loss_in_numbers():
    """Eq. 4: the CE of the mean of the two headers' logits, not the mean of their CEs; and 1 / (2 + 1e-5) as all is doubled."""
    noise, other, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    weights = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 5.0]]])  # two headers of two classes
    biases = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    header = {"weight": weights.mean(0), "bias": biases.mean(0)}
    loss = ensemble_loss(Fixed(), header, labels, noise, other, 0.0)
    assert loss.item() == pytest.approx(-np.log(np.exp(3) / (np.exp(3) + np.exp(0.5))))  # logits (2, 1) and (4, 0)
    more = ensemble_loss(Fixed(), header, labels, noise, other, 0.3)
    assert (more - loss).item() == pytest.approx(0.3 * 0.5 / (1.0 + 1e-5), rel=1e-4)


def test_a_clients_loss_is_its_ce_and_that_of_made_representations_whose_gradient_only_the_header_gets():
    model, _, images, labels = tiny.pair()
    generator, prior = Generator(3, 2, 4, 2), torch.tensor([0.5, 0.5, 0.0])
    torch.manual_seed(3)
    loss = regularised_loss(model, images, labels, generator, prior, 0.7)
    gradients = torch.autograd.grad(loss, [*model.parameters(), *generator.parameters()], allow_unused=True)
    torch.manual_seed(3)
    drawn, noise = generator.sample(prior, 4)
    z, net = generator(drawn, noise).detach().double().numpy(), tiny.Net(model)
    x = images[:, 0, 0, :2].double().numpy()
    own, made = net.logits(x), z @ net.W.T + net.b
    dz, dm = (tiny.cross_entropy_slope(logits, y.numpy()) for logits, y in ((own, labels), (made, drawn)))
    for found, expected in zip(
        gradients,
        (net.W.T @ dz.T @ x, dz.T @ net.features(x) + 0.7 * dm.T @ z, dz.sum(0) + 0.7 * dm.sum(0)),
        strict=False,
    ):
        tiny.same(found, expected)
    assert gradients[3:] == (None,) * 4


def test_fedgen_by_hand():
    """With weight 0: headers are averaged without weights, and p is 3, 8 and 5 sixteenths."""
    fed, data = federation()
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, FedGen(weight=0.0, generator_steps=0), 2)
    local, header = [start, start], {name: start[name] for name in "Wb"}
    for _ in range(2):
        local = [tiny.descend(w | header, x, y, LR) for w, (x, y) in zip(local, data, strict=True)]
        header = {name: (local[0][name] + local[1][name]) / 2 for name in "Wb"}
    np.testing.assert_allclose(outcome.server["header.weight"], header["W"], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(outcome.server["prior"], [3 / 16, 8 / 16, 5 / 16])


def test_the_server_teaches_its_generator():
    """After some rounds what G makes of y is y to the mean header."""
    fed, _ = federation()
    method = FedGen(generator_steps=200, generator_lr=0.01, diversity=0.1)
    server = simulate(fed, method, 3).server
    generator = method._generator(fed.server_context(), server)
    labels = torch.arange(3).repeat(50)
    torch.manual_seed(0)
    logits = torch.nn.functional.linear(
        generator(labels, torch.randn(150, 32)), server["header.weight"], server["header.bias"]
    )
    assert (logits.argmax(1) == labels).float().mean() > 0.9


def test_fedgen_words():
    """Down: the header (500 * 10 + 10), G ((32 + 10) * 256 + 256 + 256 * 500 + 500) and p (10); up: header and counts."""
    assert tiny.words(FedGen(), 10, [[0, 1, 0]], 1) == (5010 + 139_508 + 10, 5010 + 10)
