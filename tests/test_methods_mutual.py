"""FML and FedKD: rounds by hand, limits, and the traps of other implementations."""

import dataclasses

import numpy as np
import pixels
import pytest
import torch
import torch.nn.functional as F

from fedlib import FedlibError, simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedkd import FedKD, compress, distillation_loss, expand, factors
from fedlib.algorithms.fml import FML, mutual_loss
from fedlib.algorithms.standalone import Standalone
from fedlib.federation import Message, Upload

LABELS = [[0, 1, 0], [1, 2, 2, 1, 1]]
NAMES = ("extractor.1.weight", "header.weight", "header.bias")
METHODS = (FML(shared="tiny"), FedKD(shared="tiny"))


def kl(teacher: np.ndarray, logits: np.ndarray) -> float:
    """KL(softmax(teacher) || softmax(logits)), summed over classes and averaged over the batch."""
    p, q = pixels.softmax(teacher), pixels.softmax(logits)
    return float((p * np.log(p / q)).sum(1).mean())


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(pixels.softmax(logits)[np.arange(len(y)), y]).mean())


# FML


def test_fml_one_round_by_hand() -> None:
    alpha, beta, federation = 0.3, 0.6, pixels.federation(LABELS)
    method, context = FML(alpha=alpha, beta=beta, shared="tiny"), pixels.context(federation)
    server = method.init_server(context)
    models = [pixels.Net(client.model) for client in federation.clients]
    memes = [pixels.Net(server) for _ in federation.clients]
    uploads = pixels.play(method, server, federation, context)
    for client, model, meme in zip(federation.clients, models, memes, strict=True):
        x, y = pixels.data(client)
        own, other = model.logits(x), meme.logits(x)
        gap = (pixels.softmax(own) - pixels.softmax(other)) / len(y)  # d KL(meme || model) / d own, by the batch's size
        model.step((x, alpha * pixels.cross_entropy_slope(own, y)), (x, (1 - alpha) * gap))
        meme.step((x, beta * pixels.cross_entropy_slope(other, y)), (x, -(1 - beta) * gap))
        model.agrees(client.model)
        meme.agrees(uploads[client.id].message.tensors)
    method.aggregate(server, uploads, context)
    for name, parts in zip("AWb", zip(*[(meme.A, meme.W, meme.b) for meme in memes], strict=True), strict=True):
        np.testing.assert_allclose(getattr(pixels.Net(server), name), sum(parts) / 2, rtol=0, atol=2e-6)  # unweighted


def test_fml_on_labels_alone_is_standalone() -> None:
    mutual, alone = pixels.federation(LABELS), pixels.federation(LABELS)
    for federation in (mutual, alone):
        federation.settings = dataclasses.replace(federation.settings, epochs=2, batch_size=2, clip_norm=0.2)
    simulate(mutual, FML(alpha=1.0, shared="tiny"), 3)
    simulate(alone, Standalone(), 3)
    assert pixels.same_models(mutual, alone)
    other = pixels.federation(LABELS)
    simulate(other, FML(alpha=0.9, shared="tiny"), 3)
    assert not pixels.same_models(other, alone)


def pair(seed: int = 0) -> tuple[pixels.Model, pixels.Model, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return pixels.tiny_model(3, 1), pixels.tiny_model(3, 1), torch.randn(4, 1, 32, 32), torch.tensor([0, 1, 2, 1])


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


@pytest.mark.parametrize(("classes", "words"), [(10, 1_340_116), (100, 1_430_296)])
@pytest.mark.parametrize("architecture", ["CNN-1", "CNN-2"])
def test_fml_words_a_client_round(architecture: str, classes: int, words: int) -> None:
    federation = pixels.federation([[0, 1, 0]], classes=classes, architectures=[architecture], channels=3)
    method, context = FML(), pixels.context(federation)
    server = method.init_server(context)
    download = method.download(server, federation.clients[0].info, context)
    assert (
        download.words() + pixels.play(method, server, federation, context)[0].message.words() == words
    )  # CNN-5, down and up


# FedKD


def test_fedkd_one_round_by_hand() -> None:
    federation, method = pixels.federation(LABELS), FedKD(shared="tiny")
    context = pixels.context(federation)
    server = method.init_server(context)
    starts = [pixels.Net(client.model) for client in federation.clients]
    meme = pixels.Net(server["model"])
    uploads, changes = [], []
    for client, start in zip(federation.clients, starts, strict=True):
        pixels.begin(method, client, federation)
        mapping = client.state["projection"].double().numpy().copy()
        upload = pixels.visit(method, client, method.download(server, client.info, context), federation)
        uploads.append(Upload(client.info, upload))
        x, y = pixels.data(client)
        own, other, features, hidden = start.logits(x), meme.logits(x), start.features(x), meme.features(x)
        both = cross_entropy(own, y) + cross_entropy(other, y)  # a constant, like the partner in each loss

        def unpack(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return at[:4].reshape(2, 2), at[4:10].reshape(3, 2), at[10:13]

        def model_loss(at: np.ndarray) -> float:
            a, w, b = unpack(at)
            logits, hint = x @ a.T @ w.T + b, ((x @ a.T - hidden @ mapping.T) ** 2).mean()  # noqa: B023
            return cross_entropy(logits, y) + (kl(other, logits) + hint) / both  # noqa: B023

        def shared_loss(at: np.ndarray) -> float:  # the mapping learns here
            (a, w, b), learnt = unpack(at), at[13:].reshape(2, 2)
            logits, hint = x @ a.T @ w.T + b, ((features - x @ a.T @ learnt.T) ** 2).mean()  # noqa: B023
            return cross_entropy(logits, y) + (kl(own, logits) + hint) / both  # noqa: B023

        at = np.concatenate([part.ravel() for part in (start.A, start.W, start.b)])
        start.A, start.W, start.b = unpack(at - pixels.LR * pixels.slope(model_loss, at))
        start.agrees(client.model, 5e-6)
        at = np.concatenate([part.ravel() for part in (meme.A, meme.W, meme.b, mapping)])
        change = -pixels.LR * pixels.slope(shared_loss, at)
        np.testing.assert_allclose(client.state["projection"].flatten(), (at + change)[13:], rtol=0, atol=5e-6)
        sent = np.concatenate([upload[name].flatten().numpy() for name in NAMES])  # too small to factorise
        np.testing.assert_allclose(sent, change[:13], rtol=0, atol=5e-6)
        changes.append(change[:13])
    method.aggregate(server, uploads, context)
    after = np.concatenate([server["model"][name].flatten().numpy() for name in NAMES])
    before = np.concatenate([part.ravel() for part in (meme.A, meme.W, meme.b)])
    np.testing.assert_allclose(after, before + (changes[0] + changes[1]) / 2, rtol=0, atol=5e-6)  # unweighted


def test_fedkd_partner_and_denominator_are_detached() -> None:
    model, shared, images, labels = pair()
    projection = torch.nn.Linear(2, 2, bias=False)
    loss = distillation_loss(model, shared, projection, images, labels)
    got = torch.autograd.grad(loss, [*model.parameters()])
    with torch.no_grad():
        features, hidden = shared(images), projection(shared.extractor(images))
        both = F.cross_entropy(model(images), labels) + F.cross_entropy(features, labels)
    own = model.extractor(images)
    logits = model.header(own)
    distance = F.kl_div(logits.log_softmax(1), features.softmax(1), reduction="batchmean") + F.mse_loss(own, hidden)
    expected = torch.autograd.grad(F.cross_entropy(logits, labels) + distance / both, [*model.parameters()])
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def spectrum(*values: float, rows: int = 20, columns: int = 30) -> torch.Tensor:
    """A matrix with these singular values."""
    stream = np.random.default_rng(0)
    left, right = (np.linalg.qr(stream.normal(size=(size, len(values))))[0] for size in (rows, columns))
    return torch.from_numpy(left @ np.diag(values) @ right.T).float()


@pytest.mark.parametrize(("energy", "rank"), [(0.6, 1), (0.65, 2), (0.92, 2), (0.93, 3), (0.999, 3)])
def test_fedkd_keeps_the_fewest_components_that_hold_the_energy(energy: float, rank: int) -> None:
    matrix = spectrum(3, 2, 1)  # shares of the sum of squares: 9/14 = 0.643, 13/14 = 0.929, 1
    parts = factors(matrix, energy)
    assert [tuple(parts[part].shape) for part in "usv"] == [(20, rank), (rank,), (rank, 30)]
    left, values, right = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    restored = expand(compress({"w": matrix}, energy), {"w": matrix})["w"]
    np.testing.assert_allclose(restored, (left[:, :rank] * values[:rank]) @ right[:rank], rtol=0, atol=1e-6)


def test_fedkd_never_keeps_rank_zero() -> None:
    header = torch.empty(10, 500)
    torch.nn.init.kaiming_uniform_(header, a=5**0.5, generator=torch.Generator().manual_seed(0))
    for update in (header, spectrum(1, 1, 1, 1), torch.zeros(20, 30)):  # energy at full rank only, or none at all
        for energy in (0.95, 0.98, 1.0):
            restored = expand(compress({"w": update}, energy), {"w": update})["w"]
            missing = (restored - update).square().sum() / update.square().sum().clamp(min=1e-12)
            assert missing <= 1 - energy + 1e-5
    assert factors(torch.zeros(20, 30), 0.98)["s"].shape == (1,)
    assert factors(spectrum(1, 1, 1, 1), 0.98)["s"].shape == (4,)


def test_fedkd_sends_the_matrix_where_factors_are_larger() -> None:
    noise = torch.randn(100, 500, generator=torch.Generator().manual_seed(0))
    sent = compress({"header": noise, "bias": torch.ones(100)}, 0.98)
    assert list(sent) == ["header", "bias"] and sent["header"] is noise
    assert Message(sent).words() == 100 * 500 + 100
    low = compress({"header": spectrum(3, 2, 1, rows=100, columns=500)}, 0.98)
    assert list(low) == ["header.u", "header.s", "header.v"] and Message(low).words() == 3 * (100 + 500 + 1)
    assert factors(torch.full((20, 30), torch.nan), 0.98) is None  # a diverged client is no crash


def test_fedkd_compresses_updates_not_parameters() -> None:
    federation = pixels.federation([[0, 1, 0]] * 2, classes=10, architectures=["CNN-5"], channels=3, lr=0.0)
    outcome = simulate(federation, FedKD(), 2)
    start = FedKD().init_server(pixels.context(federation))["model"]
    assert all(
        torch.equal(start[name], outcome.server["model"][name]) for name in start
    )  # nothing learnt, nothing lost


def test_fedkd_clients_rebuild_the_servers_model_from_updates() -> None:
    federation = pixels.federation([[0, 1, 0], [2, 3, 3], [4, 5, 4]], classes=10, architectures=["CNN-5"], channels=3)
    method, dense = FedKD(), 670_058
    server = method.init_server(pixels.context(federation))
    first, second, absent = federation.clients
    for turn, visited in enumerate([(first, second), (first, absent)]):
        context, uploads = pixels.context(federation, turn), []
        for client in visited:
            message = method.download(server, client.info, context)
            holds = turn == 1 and client is first
            assert (message.words() < dense / 2) == holds  # the last update, or the whole model
            upload = pixels.visit(method, client, message, federation, turn)
            uploads.append(Upload(client.info, upload))
            start = client.state["shared"]
            assert all(torch.equal(start[name], server["model"][name]) for name in start)
            assert upload.words() == sum(map(torch.numel, upload.tensors.values())) < dense / 2
        method.aggregate(server, uploads, context)


def test_fedkd_energy_grows_from_start_to_end() -> None:
    federation = pixels.federation(LABELS)
    energies = [FedKD().energy(federation.server_context(t, 4)) for t in range(4)]
    np.testing.assert_allclose(energies, [0.9575, 0.965, 0.9725, 0.98])  # 0.95 + (1 + t) / T * 0.03


def test_fedkd_maps_features_of_unequal_width() -> None:
    federation = pixels.federation(LABELS, architectures=["tiny", "CNN-5"])
    outcome = simulate(federation, FedKD(), 2)
    assert outcome.status == "finished"
    assert [tuple(client.state["projection"].shape) for client in federation.clients] == [(2, 500), (500, 500)]


# Both


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_aggregation_does_not_depend_on_the_order_of_arrival(method: Algorithm) -> None:
    models = []
    for turn in (1, -1):
        federation = pixels.federation(LABELS)
        context = pixels.context(federation)
        server = method.init_server(context)
        uploads = pixels.play(method, server, federation, context)
        method.aggregate(server, uploads[::turn], context)
        models.append(server.get("model", server))
    for name in models[0]:
        torch.testing.assert_close(models[0][name], models[1][name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", [FML, FedKD], ids=lambda method: method.name)
def test_shared_model_has_an_initial_state_of_its_own(method: type[Algorithm]) -> None:
    federation = pixels.federation(LABELS, architectures=["CNN-5"], channels=3)
    server = method().init_server(pixels.context(federation))
    own = federation.build("CNN-5").state_dict()
    assert not any(torch.equal(own[name], value) for name, value in server.get("model", server).items())


@pytest.mark.parametrize("method", [FML, FedKD], ids=lambda method: method.name)
def test_unknown_shared_architecture(method: type[Algorithm]) -> None:
    with pytest.raises(FedlibError, match="shared = 'CNN-6' is unknown"):
        method(shared="CNN-6")
