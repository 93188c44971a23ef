"""FedKD: a round by hand, its factors, and the traps of other implementations."""

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from steps import NAMES, cross_entropy, cut, flat, weights
from tiny import LABELS, kl, pair

from fedlib import models, simulate, training
from fedlib.algorithms.fedkd import FedKD, compress, distillation_loss, expand, factors, leading
from fedlib.federation import Message, Upload


def by_hand(
    at: np.ndarray, x: np.ndarray, y: np.ndarray, reduction: str = "batch", both: float | None = None
) -> tuple[float, float]:
    """L_model and L_shared; at: A, W, b of the model, of the shared one, and the mapping. both: what their hints and distances are
    divided by, where that is a constant.
    """
    net = ((2, 2), (3, 2), (3,))
    a, w, b, c, v, d, mapping = cut(at, *net, *net, (2, 2))
    own, other = x @ a.T @ w.T + b, x @ c.T @ v.T + d
    classes = 3 if reduction == "all" else 1
    both = both or cross_entropy(own, y) + cross_entropy(other, y)
    hint = ((x @ a.T - x @ c.T @ mapping.T) ** 2).mean()
    model_loss = cross_entropy(own, y) + (kl(other, own) / classes + hint) / both
    return model_loss, cross_entropy(other, y) + (kl(own, other) / classes + hint) / both


def test_fedkd_one_round_by_hand() -> None:
    federation, method = tiny.federation_of(LABELS), FedKD(shared="tiny")
    context = tiny.context(federation)
    server = method.init_server(context)
    meme = tiny.Net(server["model"])
    uploads, changes = [], []
    for client in federation.clients:
        net = tiny.Net(client.model)
        tiny.begin(method, client, federation)
        at = flat(*weights(net), *weights(meme), client.state["projection"])
        x, y = tiny.training_data(client)
        upload = tiny.visit(method, client, method.download(server, client.info, context), federation)
        uploads.append(Upload(client.info, upload))
        both = cross_entropy(net.logits(x), y) + cross_entropy(
            meme.logits(x), y
        )  # a constant, like the partner in each loss

        def own(v: np.ndarray, at=at, x=x, y=y, both=both) -> float:
            return by_hand(np.append(v, at[13:]), x, y, both=both)[0]

        def shared(v: np.ndarray, at=at, x=x, y=y, both=both) -> float:  # the mapping learns here
            return by_hand(np.append(at[:13], v), x, y, both=both)[1]

        expected = at - tiny.LR * np.append(tiny.slope(own, at[:13]), tiny.slope(shared, at[13:]))
        sent = [upload[name] for name in NAMES]  # of the shared network its change, too small to factorise
        found = flat(*weights(tiny.Net(client.model)), *sent, client.state["projection"])
        found[13:26] += at[13:26]
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-6)
        changes.append((expected - at)[13:26])
    method.aggregate(server, uploads, context)
    after = flat(*weights(tiny.Net(server["model"])))
    np.testing.assert_allclose(after, flat(*weights(meme)) + np.mean(changes, 0), rtol=0, atol=5e-6)  # unweighted


def drawn() -> tuple[models.Model, models.Model, torch.nn.Linear, torch.Tensor, torch.Tensor]:
    """Two tiny networks, the matrix between them, four images and their labels."""
    model, shared, images, labels = pair()
    torch.manual_seed(1)
    return model, shared, torch.nn.Linear(2, 2, bias=False), images, labels


@pytest.mark.parametrize("reduction", ["batch", "all"])
def test_fedkd_without_constants_is_the_loss_of_the_public_codes(reduction: str) -> None:
    """Nothing detached: each network, and the mapping, gets the gradient of both losses."""
    model, shared, mapping, images, labels = drawn()
    loss = distillation_loss(model, shared, mapping, images, labels, reduction, detach=False)
    networks = [(net.extractor[1].weight, net.header.weight, net.header.bias) for net in (model, shared)]
    got = torch.autograd.grad(loss, [*networks[0], *networks[1], mapping.weight])
    at = flat(*(part.detach() for part in (*networks[0], *networks[1], mapping.weight)))
    x, y = images[:, 0, 0, :2].double().numpy(), labels.numpy()
    assert abs(loss.item() - sum(by_hand(at, x, y, reduction))) < 1e-5
    expected = tiny.slope(lambda here: sum(by_hand(here, x, y, reduction)), at)
    np.testing.assert_allclose(torch.cat([part.flatten() for part in got]), expected, rtol=0, atol=5e-6)


def test_fedkd_where_a_probability_underflows_without_constants() -> None:
    """softmax(200, 0, 0) has zeros in float32, whose logarithm is no number."""
    model, shared, mapping, images, labels = drawn()
    with torch.no_grad():
        shared.header.bias.copy_(torch.tensor([200.0, 0.0, 0.0]))
    loss = distillation_loss(model, shared, mapping, images, labels, "all", detach=False)
    gradients = torch.autograd.grad(loss, [*model.parameters(), *shared.parameters()])
    assert loss.isfinite() and all(part.isfinite().all() for part in gradients)


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


def by_svd(matrix: torch.Tensor, energy: float) -> dict[str, torch.Tensor] | None:
    """The same triplets from a singular value decomposition in float64."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    rank = int((s.square().cumsum(0) < energy * s.square().sum()).sum()) + 1
    if rank * (sum(matrix.shape) + 1) >= matrix.numel():
        return None
    return {"u": u[:, :rank].float(), "s": s[:rank].float(), "v": v[:rank].float()}


def trained_updates() -> dict[str, torch.Tensor]:
    """What five steps of SGD change in CNN-5's weights."""
    federation = tiny.federation_of([[0, 1, 2, 3] * 10], classes=10, channels=3, architectures=["CNN-5"])
    client, settings = federation.clients[0], training.Settings(1, 8, 0.05, momentum=0.9)
    start = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    modules = {"model": client.model}
    stream = np.random.default_rng(0)
    training.train(training.cross_entropy, modules, client.pool, client.train, settings, stream)
    return {name: tensor - start[name] for name, tensor in client.model.state_dict().items() if tensor.ndim > 1}


@pytest.mark.parametrize("energy", [0.5, 0.95, 0.98])
def test_fedkd_factors_are_those_of_a_singular_value_decomposition(energy: float) -> None:
    """Ranks and singular values of real updates, wide and tall; what is rebuilt, to 1e-5 and to 1e-5 of the energy."""
    for name, update in trained_updates().items():
        for matrix in (update.flatten(1), update.flatten(1).T.contiguous()):
            parts, expected = factors(matrix, energy), by_svd(matrix, energy)
            assert (parts is None) == (expected is None), name
            if parts is None or expected is None:
                continue
            assert {key: part.shape for key, part in parts.items()} == {key: e.shape for key, e in expected.items()}
            torch.testing.assert_close(parts["s"], expected["s"], rtol=1e-4, atol=0)
            one, other = ((part["u"] * part["s"]) @ part["v"] for part in (parts, expected))
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
            total = matrix.square().sum()
            assert (one - other).square().sum() < 1e-5 * total
            assert abs((matrix - one).square().sum() - (matrix - other).square().sum()) < 1e-5 * total
            torch.testing.assert_close(parts["v"] @ parts["v"].T, torch.eye(len(parts["s"])), rtol=0, atol=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(500, 800), (500, 500), (800, 500)])
@pytest.mark.parametrize(("decay", "found"), [(1.5, True), (1.0, True), (0.7, False), (0.0, False)])
def test_fedkd_finds_the_leading_triplets_of_large_matrices(shape: tuple[int, int], decay: float, found: bool) -> None:
    """Singular values 1 / i^decay: a few hold 95 % of the energy and come from a block of vectors, or hundreds do."""
    matrix = spectrum(*(1 / np.arange(1, 501) ** decay), rows=shape[0], columns=shape[1])
    wide = matrix.T if shape[0] > shape[1] else matrix
    assert (leading(wide, 0.95) is not None) == found
    parts, expected = factors(matrix, 0.95), by_svd(matrix, 0.95)
    assert (parts is None) == (expected is None)
    if parts and expected:
        assert len(parts["s"]) == len(expected["s"])
        one, other = ((part["u"] * part["s"]) @ part["v"] for part in (parts, expected))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_fedkd_factors_where_eigenvalues_do_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = factors(spectrum(3, 2, 1), 0.98)

    def failing(matrix: torch.Tensor) -> None:
        raise torch.linalg.LinAlgError("too many repeated eigenvalues")

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    for matrix in (spectrum(3, 2, 1), spectrum(3, 2, 1).T):
        parts = factors(matrix, 0.98)
        torch.testing.assert_close((parts["u"] * parts["s"]) @ parts["v"], matrix, rtol=0, atol=1e-5)
        torch.testing.assert_close(parts["s"], expected["s"])


def test_fedkd_never_keeps_rank_zero() -> None:
    header = torch.empty(10, 500)
    torch.nn.init.kaiming_uniform_(header, a=5**0.5, generator=torch.Generator().manual_seed(0))
    for update in (header, spectrum(1, 1, 1, 1), torch.zeros(20, 30)):  # energy at full rank only, or none at all
        for energy in (0.95, 0.98, 1.0):
            restored = expand(compress({"w": update}, energy), {"w": update})["w"]
            missing = (restored - update).square().sum() / update.square().sum().clamp(min=1e-12)
            assert missing <= 1 - energy + 1e-5
    vectors, along = leading(torch.zeros(200, 300), 0.98)
    assert along.count_nonzero() == 0 and vectors.isfinite().all()
    for nothing in (torch.zeros(20, 30), torch.zeros(200, 300)):
        assert factors(nothing, 0.98)["s"].tolist() == [0]
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
    federation = tiny.federation_of([[0, 1, 0]] * 2, classes=10, architectures=["CNN-5"], channels=3, lr=0.0)
    outcome = simulate(federation, FedKD(), 2)
    start = FedKD().init_server(tiny.context(federation))["model"]
    assert all(
        torch.equal(start[name], outcome.server["model"][name]) for name in start
    )  # nothing learnt, nothing lost


def test_fedkd_clients_rebuild_the_servers_model_from_updates() -> None:
    federation = tiny.federation_of([[0, 1, 0], [2, 3, 3], [4, 5, 4]], classes=10, architectures=["CNN-5"], channels=3)
    method, dense = FedKD(), 670_058
    server = method.init_server(tiny.context(federation))
    first, second, absent = federation.clients
    for turn, visited in enumerate([(first, second), (first, absent)]):
        context, uploads = tiny.context(federation, turn), []
        for client in visited:
            message = method.download(server, client.info, context)
            holds = turn == 1 and client is first
            assert (message.words() < dense / 2) == holds  # the last update, or the whole model
            upload = tiny.visit(method, client, message, federation, turn)
            uploads.append(Upload(client.info, upload))
            start = client.state["shared"]
            assert all(torch.equal(start[name], server["model"][name]) for name in start)
            assert upload.words() == sum(map(torch.numel, upload.tensors.values())) < dense / 2
        method.aggregate(server, uploads, context)


def test_fedkd_energy_grows_from_start_to_end() -> None:
    federation = tiny.federation_of(LABELS)
    energies = [FedKD().energy(federation.server_context(t, 4)) for t in range(4)]
    np.testing.assert_allclose(energies, [0.9575, 0.965, 0.9725, 0.98])  # 0.95 + (1 + t) / T * 0.03


def test_fedkd_maps_features_of_unequal_width() -> None:
    federation = tiny.federation_of(LABELS, architectures=["tiny", "CNN-5"])
    outcome = simulate(federation, FedKD(), 2)
    assert outcome.status == "finished"
    assert [tuple(client.state["projection"].shape) for client in federation.clients] == [(2, 500), (500, 500)]


def test_fedkd_where_both_networks_are_entirely_right() -> None:
    """Both cross-entropies are 0 in float32, by which the paper's loss divides."""
    model, shared, images, labels = pair()
    for network in (model, shared):
        with torch.no_grad():
            network.header.bias[0] += 200
    loss = distillation_loss(model, shared, torch.nn.Linear(2, 2, bias=False), images, torch.zeros_like(labels))
    loss.backward()
    assert F.cross_entropy(model(images), torch.zeros_like(labels)) == 0 and torch.isfinite(loss)
    assert all(torch.isfinite(part.grad).all() for network in (model, shared) for part in network.parameters())
