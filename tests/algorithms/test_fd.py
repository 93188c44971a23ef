"""FD: rounds by hand, and the traps of other implementations."""

import dataclasses

import numpy as np
import pytest
import tiny
import torch
from tiny import LABELS

from fedlib import lab, simulate
from fedlib.algorithms.fd import FD, fd_loss
from fedlib.algorithms.standalone import Standalone
from fedlib.federation import Message, Upload

KINDS = [(distance, outputs) for distance in ("cross_entropy", "mse") for outputs in ("softmax", "logits")]
RAW = ("cross_entropy", "logits")  # without a lower bound


def test_fd_defaults_are_the_papers() -> None:
    assert (FD().distance, FD().outputs, FD().exclude_self) == ("cross_entropy", "softmax", True)


def test_fd_loss_on_one_image_by_hand() -> None:
    """Logits (0, ln 3): p = (1/4, 3/4), of class 0; the others' mean output for class 0 is t = (0.8, 0.2)."""
    images, labels, known = torch.tensor([[0.0, np.log(3.0)]]), torch.tensor([0]), torch.tensor([1.0, 0.0])
    targets = torch.tensor([[0.8, 0.2], [0.0, 0.0]])
    own, gamma = np.log(4), 0.5  # CE of the label: -ln(1/4)
    expected = {
        ("cross_entropy", "softmax"): 0.8 * np.log(4) + 0.2 * np.log(4 / 3),  # H(t, p)
        ("mse", "softmax"): 0.55**2,  # ((0.25 - 0.8)^2 + (0.75 - 0.2)^2) / 2
        ("mse", "logits"): (0.8**2 + (np.log(3) - 0.2) ** 2) / 2,
    }
    for (distance, outputs), apart in expected.items():
        loss = fd_loss(torch.nn.Identity(), images, labels, targets, known, gamma, distance, outputs)
        assert loss.item() == pytest.approx(own + gamma * apart, rel=1e-6)
        nobody = fd_loss(torch.nn.Identity(), images, 1 - labels, targets, known, gamma, distance, outputs)
        assert nobody.item() == pytest.approx(np.log(4 / 3), rel=1e-6)  # class 1 has no target


@pytest.mark.parametrize(("distance", "outputs"), KINDS)
def test_fd_two_rounds_by_hand(distance: str, outputs: str) -> None:
    """Three clients; class 1 has three owners, class 0 and 2 have two, so everyone has targets in round 1."""
    own = [[0, 1, 0], [1, 2, 2, 1, 1], [2, 0, 1, 0]]
    federation, method = tiny.federation_of(own), FD(gamma=0.7, distance=distance, outputs=outputs)
    server = method.init_server(tiny.context(federation))
    data = [tiny.training_data(client) for client in federation.clients]
    nets = [tiny.Net(client.model) for client in federation.clients]

    def shown(logits: np.ndarray) -> np.ndarray:
        return tiny.softmax(logits) if outputs == "softmax" else logits

    means: list[dict[int, np.ndarray]] = []
    for (x, y), net in zip(data, nets, strict=True):  # round 0: nothing to download, plain CE
        net.train(x, y)
        means.append({c: shown(net.logits(x))[y == c].mean(0) for c in set(y.tolist())})
    context = tiny.context(federation)
    method.aggregate(server, tiny.play(method, server, federation, context), context)

    context = tiny.context(federation, round=1)
    for k, client in enumerate(federation.clients):
        (x, y), net = data[k], nets[k]
        targets = {c: np.mean([m[c] for j, m in enumerate(means) if j != k and c in m], 0) for c in means[k]}
        download = method.download(server, client.info, context)
        assert download["classes"].tolist() == sorted(targets)
        for c, output in zip(download["classes"].tolist(), download["outputs"], strict=True):
            np.testing.assert_allclose(output, targets[c], atol=2e-6)
        z, target = net.logits(x), np.array([targets[c] for c in y])
        p = tiny.softmax(z)
        if distance == "cross_entropy":  # d(-sum_c t_c log p_c) / dz = p sum_c t_c - t
            slope = p * target.sum(1, keepdims=True) - target
        else:  # d(mean over classes of the squared difference), through the softmax: p (g - sum_c p_c g_c)
            slope = 2 * (shown(z) - target) / z.shape[1]
            if outputs == "softmax":
                slope = p * (slope - (p * slope).sum(1, keepdims=True))
        net.step((x, tiny.cross_entropy_slope(z, y) + 0.7 * slope / len(y)))
        tiny.visit(method, client, download, federation, 1)
        net.agrees(client.model)


def test_fd_the_only_owner_of_its_classes_has_no_target() -> None:
    """CIFAR-100, 10 clients, 10 classes each: leaving the own contribution out leaves nothing, so FD is Standalone."""
    own = [[0, 1, 0], [2, 2, 2]]
    runs = [tiny.federation_of(own) for _ in range(3)]
    methods = (FD(), Standalone(), FD(exclude_self=False))
    outcomes = [simulate(federation, method, 3) for federation, method in zip(runs, methods, strict=True)]
    assert lab.rounds_of(outcomes[0])["download_words"].iloc[1:].tolist() == [0, 0, 0]
    assert tiny.same_models(runs[0], runs[1])
    assert lab.rounds_of(outcomes[2])["download_words"].iloc[-1] == 3 * 3 + 3  # its own vectors come back
    assert not tiny.same_models(runs[0], runs[2])


def test_fd_sums_stay_those_of_the_latest_vectors() -> None:
    """After many rounds, in each of which one client is there, and without a list of all clients."""
    federation, method = tiny.federation_of(LABELS), FD()
    server = method.init_server(tiny.context(federation))
    now = dataclasses.replace(tiny.context(federation), infos=None)  # type: ignore[arg-type]
    stream, latest = np.random.default_rng(0), {}
    for _ in range(60):
        client = federation.clients[stream.integers(2)]
        sent = torch.from_numpy(stream.dirichlet([0.1] * 3, len(client.classes))).float()
        method.aggregate(server, [Upload(client.info, Message({"classes": client.classes, "outputs": sent}))], now)
        latest[client.id] = sent.double()
    total, owners = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for id, sent in latest.items():
        total[federation.clients[id].classes] += sent
        owners[federation.clients[id].classes] += 1
    torch.testing.assert_close(server["sum"], total, rtol=1e-12, atol=1e-12)
    assert torch.equal(server["owners"], owners)


def test_fd_raw_target_has_no_lower_bound() -> None:
    labels, known = torch.tensor([0, 1]), torch.ones(2)
    logits, images = torch.tensor([[3.0, -2.0], [-2.0, 3.0]]), torch.eye(2)
    losses: dict[tuple[str, str], list[float]] = {kind: [] for kind in KINDS}
    for scale in (1.0, 1e2, 1e4):
        model = torch.nn.Linear(2, 2, bias=False)
        model.weight.data = scale * torch.eye(2)
        for distance, outputs in KINDS:
            targets = logits.softmax(1) if outputs == "softmax" else logits
            loss = fd_loss(model, images, labels, targets, known, 1.0, distance, outputs)
            losses[distance, outputs].append(loss.item())
    raw = losses.pop(RAW)
    assert raw[0] > raw[1] > raw[2] < -1e4
    assert min(min(values) for values in losses.values()) >= 0
