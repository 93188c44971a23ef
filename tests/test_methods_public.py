"""FedMD, FCCL and FedKEMF: rounds by hand on public images, limits, and what must not turn into NaN."""

import io
from collections.abc import Callable

import numpy as np
import pixels
import pytest
import torch

from fedlib import FedlibError, lab, models, simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fccl import FCCL, correlation_loss, standardise
from fedlib.algorithms.fedkemf import FedKEMF, distil_loss
from fedlib.algorithms.fedmd import FedMD
from fedlib.algorithms.standalone import Standalone

LABELS = [[0, 1, 0], [1, 2, 2, 1, 1]]
PUBLIC = 6
METHODS = [FedMD(), FCCL(), FedKEMF(knowledge="tiny")]


def same(one: torch.Tensor, other: np.ndarray, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(one.detach(), other, rtol=0, atol=tolerance)


# FedMD


def test_fedmd_transfer_learning_then_two_rounds_by_hand() -> None:
    federation, method = pixels.federation(LABELS, public=PUBLIC, lr=0.1), FedMD()
    context = pixels.context(federation)
    server = method.init_server(context)
    shared, shared_labels = pixels.pixels(federation, federation.public.indices), np.arange(PUBLIC) % pixels.CLASSES
    nets = [pixels.Net(client.model) for client in federation.clients]
    for client, net in zip(federation.clients, nets, strict=True):
        pixels.begin(method, client, federation)
        net.train(shared, shared_labels, 0.1)  # public first, with its labels, then its own
        net.train(*pixels.data(client), 0.1)
        net.agrees(client.model)

    assert not method.download(server, federation.clients[0].info, context).tensors  # no consensus yet
    uploads = pixels.play(method, server, federation, context)
    method.aggregate(server, uploads, context)
    for client, net in zip(federation.clients, nets, strict=True):
        net.train(*pixels.data(client), 0.1)
    asked = pixels.pixels(federation, server["indices"])
    assert sorted(server["indices"].tolist()) == federation.public.indices.tolist()
    consensus = np.mean([net.logits(asked) for net in nets], 0)
    same(server["consensus"], consensus)

    context = pixels.context(federation, round=1)
    pixels.play(method, server, federation, context)
    for client, net in zip(federation.clients, nets, strict=True):
        z = net.logits(asked)
        net.step((asked, np.sign(z - consensus) / z.size), lr=0.1)  # digest: d(mean absolute error)
        net.train(*pixels.data(client), 0.1)  # revisit
        net.agrees(client.model)


def test_fedmd_each_image_meets_its_own_target() -> None:
    """A subset in an order of its own, in small batches: the row of the consensus follows the image."""
    federation = pixels.federation(LABELS, public=50)
    indices = federation.public.sample(20, pixels.context(federation).generator("server"))
    assert len(indices) == len(indices.unique()) == 20 and not torch.equal(indices, indices.sort().values)
    numbered = federation.public.pool.numbered(indices)
    assert torch.equal(numbered.labels[indices], torch.arange(20))
    assert torch.equal(numbered.batch(indices), federation.public.pool.batch(indices))


# FCCL


def correlation(z: np.ndarray, target: np.ndarray, weight: float) -> float:
    """sum_i (M_ii - 1)^2 + weight * sum_{i != j} (M_ij + 1)^2 of the correlations of the columns."""

    def standard(logits: np.ndarray) -> np.ndarray:
        return (logits - logits.mean(0)) / np.sqrt(logits.var(0) + 1e-5)

    one, other, total = standard(z), standard(target), 0.0
    for i in range(z.shape[1]):
        for j in range(z.shape[1]):
            entry = np.mean(one[:, i] * other[:, j])
            total += (entry - 1) ** 2 if i == j else weight * (entry + 1) ** 2
    return total


def test_fccl_collaborative_and_local_step_by_hand() -> None:
    federation, lr = pixels.federation(LABELS, public=PUBLIC, lr=0.1), 0.1
    method, context = FCCL(off_diagonal=0.3, intra=0.7, inter=0.4, public_lr=0.05), pixels.context(federation)
    server = method.init_server(context)
    nets = [pixels.Net(client.model) for client in federation.clients]
    pretrained = []
    for client, net in zip(federation.clients, nets, strict=True):
        pixels.begin(method, client, federation)
        net.train(*pixels.data(client), lr)
        pretrained.append(pixels.Net(client.state["pretrained"]))
        net.agrees(client.state["pretrained"])

    def local(net: pixels.Net, x: np.ndarray, y: np.ndarray, first: pixels.Net, last: pixels.Net) -> None:
        z = net.logits(x)
        pulls = [
            (pixels.softmax(z) - pixels.softmax(old.logits(x))) / len(y) for old in (first, last)
        ]  # d KL(old || p)
        net.step((x, pixels.cross_entropy_slope(z, y) + 0.7 * pulls[0] + 0.4 * pulls[1]), lr=lr)

    uploads = pixels.play(
        method, server, federation, context
    )  # round 0: no consensus, the last round's model is pretrained
    method.aggregate(server, uploads, context)
    for client, net, first in zip(federation.clients, nets, pretrained, strict=True):
        local(net, *pixels.data(client), first, first)
        net.agrees(client.model)

    asked = pixels.pixels(federation, server["indices"])
    consensus = np.mean([net.logits(asked) for net in nets], 0)
    same(server["consensus"], consensus)
    last = [pixels.Net(client.model) for client in federation.clients]
    pixels.play(method, server, federation, pixels.context(federation, round=1))
    for client, net, first, previous in zip(federation.clients, nets, pretrained, last, strict=True):
        slope = pixels.slope(lambda z: correlation(z, consensus, 0.3), net.logits(asked))
        net.step((asked, slope), lr=0.05)
        local(net, *pixels.data(client), first, previous)
        net.agrees(client.model, 1e-5)


def test_fccl_off_diagonals_are_driven_to_minus_one() -> None:
    consensus = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])  # columns anticorrelated: M = [[1, -1], [-1, 1]]
    images, places = consensus, torch.arange(2)
    perfect = correlation_loss(torch.nn.Identity(), images, places, consensus, 1.0)
    assert perfect.item() == pytest.approx(0, abs=1e-8)
    columns_alike = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])  # every M_ij = 1: off the diagonal (1 + 1)^2, twice
    loss = correlation_loss(torch.nn.Identity(), columns_alike, places, columns_alike, 0.0051)
    assert loss.item() == pytest.approx(0.0051 * 8, rel=1e-4)


@pytest.mark.parametrize("size", [1, 4])
def test_fccl_a_batch_without_variance_gives_no_nan(size: int) -> None:
    """Equal images, or a last batch of one: plain division by the standard deviation is 0 / 0."""
    model = models.BUILDERS["tiny"](3, 1)
    images = torch.full((size, 1, 32, 32), 0.3)
    assert standardise(model(images)).abs().max() == 0
    loss = correlation_loss(model, images, torch.arange(size), torch.ones(size, 3), 0.0051)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_fccl_finishes_when_all_public_images_are_equal() -> None:
    count = sum(len(own) + 2 for own in LABELS)
    images = np.random.default_rng(0).integers(0, 256, (count + PUBLIC, 1, 32, 32), dtype=np.uint8)
    images[count:] = 128
    federation = pixels.federation(LABELS, public=PUBLIC, lr=0.1, images=images)
    assert simulate(federation, FCCL(), 3).status == "finished"


# FedKEMF


def test_fedkemf_one_round_by_hand() -> None:
    federation, lr = pixels.federation(LABELS, public=PUBLIC, lr=0.1), 0.1
    method, context = FedKEMF(knowledge="tiny", weight=0.6, label_weight=0.25), pixels.context(federation)
    server = method.init_server(context)
    before, uploaded = pixels.Net(server), []
    uploads = pixels.play(method, server, federation, context)
    for client in federation.clients:
        (x, y), own, knowledge = (
            pixels.data(client),
            pixels.Net(pixels.federation(LABELS).build("tiny")),
            pixels.Net(server),
        )
        a, b = own.logits(x), knowledge.logits(x)
        gap = (pixels.softmax(a) - pixels.softmax(b)) / len(y)  # d KL(q || p) / d logits of p = (p - q) / n
        own.step((x, pixels.cross_entropy_slope(a, y) + 0.6 * gap), lr=lr)
        knowledge.step((x, pixels.cross_entropy_slope(b, y) - 0.6 * gap), lr=lr)
        own.agrees(client.model)
        knowledge.agrees(uploads[client.id].message.tensors)
        uploaded.append(knowledge)

    method.aggregate(server, uploads, context)
    shared, labels = pixels.pixels(federation, federation.public.indices), np.arange(PUBLIC) % pixels.CLASSES
    teacher = np.mean([pixels.softmax(net.logits(shared)) for net in uploaded], 0)
    z = before.logits(shared)  # the student starts from last round's network, not from an average
    distil = (pixels.softmax(z) - teacher) / PUBLIC
    before.step((shared, 0.75 * distil + 0.25 * pixels.cross_entropy_slope(z, labels)), lr=lr)
    before.agrees(server)


def test_fedkemf_released_distances_by_hand() -> None:
    federation, lr, temperature = pixels.federation(LABELS, public=PUBLIC, lr=0.1), 0.1, 4.0
    method = FedKEMF(knowledge="tiny", weight=2.0, distance="mse", temperature=temperature, label_weight=0.5)
    context = pixels.context(federation)
    server = method.init_server(context)
    before, uploaded = pixels.Net(server), []
    uploads = pixels.play(method, server, federation, context)
    for client in federation.clients:
        (x, y), own, knowledge = (
            pixels.data(client),
            pixels.Net(pixels.federation(LABELS).build("tiny")),
            pixels.Net(server),
        )
        a, b = own.logits(x), knowledge.logits(x)
        # each has CE + MSE and neither side is detached: every network feels both MSEs
        own.step((x, pixels.cross_entropy_slope(a, y) + 2 * (2 * (a - b) / a.size)), lr=lr)
        knowledge.step((x, pixels.cross_entropy_slope(b, y) + 2 * (2 * (b - a) / b.size)), lr=lr)
        own.agrees(client.model)
        uploaded.append(knowledge)

    method.aggregate(server, uploads, context)
    shared, labels = pixels.pixels(federation, federation.public.indices), np.arange(PUBLIC) % pixels.CLASSES
    teacher = np.mean([pixels.softmax(net.logits(shared)) for net in uploaded], 0)
    z = before.logits(shared)
    distil = pixels.slope(lambda z: temperature**2 * np.mean((pixels.softmax(z / temperature) - teacher) ** 2), z)
    before.step((shared, 0.5 * distil + 0.5 * pixels.cross_entropy_slope(z, labels)), lr=lr)
    before.agrees(server)


def test_fedkemf_weight_zero_is_standalone_to_the_bit() -> None:
    for distance in ("kl", "mse"):
        pair = [pixels.federation(LABELS, public=PUBLIC) for _ in range(2)]
        for federation, method in zip(
            pair, (FedKEMF(knowledge="tiny", weight=0.0, distance=distance), Standalone()), strict=True
        ):
            simulate(federation, method, 3)
        assert pixels.same_models(*pair)


def test_fedkemf_the_knowledge_network_has_an_initial_state_of_its_own() -> None:
    """Or else a client of the same architecture and its knowledge network would start, and stay, equal."""
    federation = pixels.federation(LABELS, public=PUBLIC)
    server = FedKEMF(knowledge="tiny").init_server(pixels.context(federation))
    assert not torch.equal(server["header.weight"], federation.clients[0].model.header.weight)


def test_fedkemf_a_certain_teacher_gives_no_nan() -> None:
    teacher = torch.tensor([[1.0, 0.0, 0.0]])  # 0 log 0
    student = models.BUILDERS["tiny"](3, 1)
    images, place = torch.zeros(1, 1, 32, 32), torch.tensor([0])
    for temperature in (0.0, 20.0):
        loss = distil_loss(student, images, place, teacher, place, 0.0, temperature)
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(parameter.grad).all() for parameter in student.parameters())


def test_fedkemf_needs_known_classes_only_with_labels() -> None:
    federation = pixels.federation(LABELS, public=PUBLIC)
    federation.public.pool.labels[federation.public.indices] = 7  # another data set's classes
    assert simulate(federation, FedKEMF(knowledge="tiny"), 1).status == "finished"
    with pytest.raises(FedlibError, match="public labels"):
        simulate(federation, FedKEMF(knowledge="tiny", label_weight=0.5), 1)


# All three


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_order_of_arrival_does_not_matter(method: Algorithm) -> None:
    servers = []
    for turn in (1, -1):
        federation = pixels.federation(LABELS, public=PUBLIC)
        context = pixels.context(federation)
        for client in federation.clients:
            pixels.begin(method, client, federation)
        servers.append(method.init_server(context))
        uploads = pixels.play(method, servers[-1], federation, context)
        method.aggregate(servers[-1], uploads[::turn], context)
    for name, tensor in servers[0].items():
        torch.testing.assert_close(tensor, servers[1][name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_states_are_plain_and_survive_a_file(method: Algorithm) -> None:
    federation = pixels.federation(LABELS, public=PUBLIC, lr=0.1)
    outcome = simulate(federation, method, 2)
    assert outcome.status == "finished"
    file = io.BytesIO()
    torch.save({"server": outcome.server, "clients": [client.snapshot() for client in federation.clients]}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["server"].keys() == outcome.server.keys()


@pytest.mark.parametrize("make", [FedMD, FCCL])
def test_consensus_words(make: Callable[..., Algorithm]) -> None:
    """2 * P * C published (100 000 at P = 5000 and C = 10); the indices of the images are sent too."""
    federation, method = pixels.federation(LABELS, public=50, lr=0.1), make(public_samples=20)
    rounds = lab.rounds_of(simulate(federation, method, 2))
    assert rounds["published_words"].iloc[-1] == len(LABELS) * 2 * 20 * pixels.CLASSES
    assert rounds["download_words"].iloc[-1] == len(LABELS) * (20 * pixels.CLASSES + 20)
    assert rounds["upload_words"].iloc[-1] == len(LABELS) * 20 * pixels.CLASSES


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_without_public_data_it_says_so(method: Algorithm) -> None:
    with pytest.raises(FedlibError, match="public data"):
        simulate(pixels.federation(LABELS), method, 1)


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (FedMD, "public_samples", 0), (FedMD, "digest_epochs", 0), (FedMD, "pretrain_epochs", -1),
        (FCCL, "off_diagonal", -1.0), (FCCL, "intra", -1.0), (FCCL, "inter", -1.0),
        (FCCL, "public_lr", -1.0), (FCCL, "pretrain_epochs", 0),
        (FedKEMF, "knowledge", "CNN-9"), (FedKEMF, "weight", -1.0), (FedKEMF, "distance", "l1"),
        (FedKEMF, "temperature", 0.0), (FedKEMF, "label_weight", 1.0), (FedKEMF, "server_epochs", -1),
    ],
)  # fmt: skip
def test_bad_values_are_named(make: type[Algorithm], field: str, value: object) -> None:
    with pytest.raises(FedlibError, match=field):
        make(**{field: value})
