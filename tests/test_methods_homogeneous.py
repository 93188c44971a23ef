"""FedProx, Per-FedAvg, pFedMe and pFedBayes: rounds by hand, limits, and the traps of other implementations."""

import copy
import dataclasses

import numpy as np
import pixels
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedlib import Federation, FedlibError, RunSpec, simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.fedprox import FedProx
from fedlib.algorithms.per_fedavg import PerFedAvg, meta_loss
from fedlib.algorithms.pfedbayes import Gaussian, PFedBayes, divergence
from fedlib.algorithms.pfedme import PFedMe
from fedlib.algorithms.standalone import Standalone
from fedlib.lab import runs
from fedlib.randomness import forked

LABELS = [[0, 1, 0], [1, 2, 2, 1, 1]]
NAMES = ("extractor.1.weight", "header.weight", "header.bias")
METHODS = (FedProx(mu=0.3), PerFedAvg(alpha=0.2), PFedMe(lam=2.0, eta=0.1, inner_lr=0.1), PFedBayes(zeta=0.1))


def federation(epochs: int = 1, batch_size: int = 1000, lr: float = pixels.LR) -> Federation:
    built = pixels.federation(LABELS, lr=lr)
    built.settings = dataclasses.replace(built.settings, epochs=epochs, batch_size=batch_size)
    return built


def weights(net: pixels.Net) -> list[np.ndarray]:
    return [net.A, net.W, net.b]


def slopes(net: pixels.Net, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """d(mean CE) / d(A, W, b)."""
    dz = pixels.cross_entropy_slope(net.logits(x), y)
    return [net.W.T @ dz.T @ x, dz.T @ net.features(x), dz.sum(0)]


def moved(net: pixels.Net, lr: float, *directions: list[np.ndarray]) -> pixels.Net:
    """The network after one step of `lr` against the sum of `directions`."""
    result = copy.deepcopy(net)
    for part in zip(weights(result), *directions, strict=True):
        part[0][...] -= lr * sum(part[1:])
    return result


def pull(net: pixels.Net, towards: pixels.Net, strength: float) -> list[np.ndarray]:
    """d(strength / 2 * squared distance) / d(A, W, b)."""
    return [strength * (own - other) for own, other in zip(weights(net), weights(towards), strict=True)]


def mean(nets: list[pixels.Net]) -> pixels.Net:
    """Weighted by the numbers of training images, 3 and 5."""
    result = copy.deepcopy(nets[0])
    for place, parts in zip(weights(result), zip(*map(weights, nets), strict=True), strict=True):
        place[...] = (3 * parts[0] + 5 * parts[1]) / 8
    return result


# FedProx


def test_fedprox_one_round_by_hand() -> None:
    mu, built, method = 0.3, federation(epochs=2), FedProx(mu=0.3)
    context = pixels.context(built)
    server = method.init_server(context)
    start, expected = pixels.Net(server), []
    uploads = pixels.play(method, server, built, context)
    for client in built.clients:
        x, y = pixels.data(client)
        first = moved(start, pixels.LR, slopes(start, x, y))  # at the start the proximal term has no slope
        second = moved(first, pixels.LR, slopes(first, x, y), pull(first, start, mu))  # Eq. 2
        second.agrees(client.model)
        expected.append(second)
    method.aggregate(server, uploads, context)
    mean(expected).agrees(server)


def test_fedprox_without_its_term_is_fedavg() -> None:
    prox = simulate(federation(epochs=2, batch_size=2), FedProx(mu=0.0), 3)
    assert prox.digest() == simulate(federation(epochs=2, batch_size=2), FedAvg(), 3).digest()
    assert prox.digest() != simulate(federation(epochs=2, batch_size=2), FedProx(mu=0.1), 3).digest()
    assert FedProx().mu > 0  # peers ship mu = 0
    with pytest.raises(FedlibError, match=r"mu = -0\.1: must be at least 0"):
        FedProx(mu=-0.1)


# Per-FedAvg


def test_per_fedavg_one_round_by_hand() -> None:
    alpha, beta, built = 0.2, 0.4, federation()
    method, context = PerFedAvg(alpha=alpha, beta=beta), pixels.context(built)
    server = method.init_server(context)
    start, expected = pixels.Net(server), []
    uploads = pixels.play(method, server, built, context)
    for client in built.clients:
        x, y = pixels.data(client)  # both batches are all of the client's images
        tentative = moved(start, alpha, slopes(start, x, y))  # w~ = w - alpha * grad f(w)
        trained = moved(start, beta, slopes(tentative, x, y))  # w <- w - beta * grad f(w~), no Hessian
        trained.agrees(uploads[client.id].message.tensors)
        trained.agrees(client.state["w"])
        moved(trained, alpha, slopes(trained, x, y)).agrees(client.model)  # evaluated: adapted by one step
        expected.append(trained)
    method.aggregate(server, uploads, context)
    mean(expected).agrees(server)


def test_per_fedavg_without_adaptation_is_fedavg_on_the_second_batches_at_rate_beta() -> None:
    meta, plain = federation(2, batch_size=2, lr=0.9), federation(2, batch_size=2, lr=0.3)
    simulate(meta, PerFedAvg(alpha=0.0, beta=0.3), 3)
    simulate(plain, FedAvg(), 3)
    assert pixels.same_models(meta, plain)


def test_per_fedavg_beta_is_the_runs_rate_unless_given() -> None:
    default, given = federation(lr=0.3), federation(lr=0.9)
    simulate(default, PerFedAvg(), 2)
    simulate(given, PerFedAvg(beta=0.3), 2)
    assert pixels.same_models(default, given)


def test_per_fedavg_adapts_on_a_batch_of_its_own() -> None:
    seen = []

    def spy(images: torch.Tensor, support_images: torch.Tensor, **rest: object) -> torch.Tensor:
        seen.append((images.flatten(1)[:, 0].tolist(), support_images.flatten(1)[:, 0].tolist()))
        return meta_loss(images=images, support_images=support_images, **rest)

    built = federation(epochs=4, batch_size=2)
    built.client_context(1).train(spy, support="method", alpha=0.1)
    assert len(seen) == 12 and all(len(one) == len(other) for one, other in seen)  # 3 batches an epoch, the last of 1
    assert sum(set(one) == set(other) for one, other in seen) < 6  # independent draws


# pFedMe


def test_pfedme_one_round_by_hand() -> None:
    lam, eta, rate, beta, built = 2.0, 0.2, 0.3, 0.6, federation(epochs=2)
    method, context = PFedMe(lam=lam, eta=eta, inner_lr=rate, inner_steps=3, beta=beta), pixels.context(built)
    server = method.init_server(context)
    start, expected = pixels.Net(server), []
    uploads = pixels.play(method, server, built, context)
    for client in built.clients:
        x, y = pixels.data(client)
        w = theta = start
        for _ in range(2):  # R = 2 batches
            for _ in range(3):  # K = 3 steps on the loss + lambda / 2 * ||theta - w||^2
                theta = moved(theta, rate, slopes(theta, x, y), pull(theta, w, lam))
            w = moved(w, eta, pull(w, theta, lam))  # w <- w - eta * lambda * (w - theta)
        theta.agrees(client.model)
        w.agrees(uploads[client.id].message.tensors)
        w.agrees(client.state["w"])
        expected.append(w)
    method.aggregate(server, uploads, context)
    moved(start, beta, pull(start, mean(expected), 1.0)).agrees(server)  # (1 - beta) * w + beta * mean


def test_pfedme_with_one_step_on_one_batch_is_one_fedavg_step() -> None:
    lam, eta, rate = 2.0, 0.3, 0.4
    moreau = simulate(federation(), PFedMe(lam=lam, eta=eta, inner_lr=rate, inner_steps=1, beta=1.0), 1)
    plain = simulate(federation(lr=eta * lam * rate), FedAvg(), 1)
    for name in NAMES:
        torch.testing.assert_close(moreau.server[name], plain.server[name], rtol=0, atol=1e-6)


def test_pfedme_refuses_what_cannot_converge() -> None:
    with pytest.raises(FedlibError, match=r"eta \* lam = 1\.5: must be below 1"):
        PFedMe(eta=0.1, lam=15.0)
    with pytest.raises(FedlibError, match="inner_steps = 0"):
        PFedMe(inner_steps=0)


def test_pfedme_with_beta_zero_never_changes_the_global_model() -> None:
    outcome = simulate(federation(), PFedMe(beta=0.0), 2)
    context = pixels.context(federation())
    assert all(torch.equal(outcome.server[name], value) for name, value in FedAvg().init_server(context).items())
    assert PFedMe().beta == 1.0  # a peer ships 0


# pFedBayes


def softplus(rho: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(rho))


def kl(q: np.ndarray, p: np.ndarray) -> float:
    """KL(q || p) of Gaussians, rows (mu, rho): sum of log(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2."""
    s_q, s_p = softplus(q[1]), softplus(p[1])
    return float((np.log(s_p / s_q) + (s_q**2 + (q[0] - p[0]) ** 2) / (2 * s_p**2) - 0.5).sum())


def cross_entropy(flat: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    a, w, b = flat[:4].reshape(2, 2), flat[4:10].reshape(3, 2), flat[10:]
    shares = pixels.softmax(x @ a.T @ w.T + b)
    return float(-np.log(shares[np.arange(len(y)), y]).mean())


def flat(state: dict[str, torch.Tensor], rho: list[torch.Tensor]) -> np.ndarray:
    """Rows (mu, rho), in the order A, W, b."""
    rows = [[state[name] for name in NAMES], rho]
    return np.stack([torch.cat([part.flatten() for part in row]).detach().double().numpy() for row in rows])


def test_pfedbayes_one_round_by_hand() -> None:
    zeta, noise, beta, built = 0.7, 0.9, 0.6, federation(epochs=2)
    method, context = PFedBayes(zeta=zeta, rho0=-1.0, noise=noise, beta=beta), pixels.context(built)
    server = method.init_server(context)
    start = flat({name: server[f"mu.{name}"] for name in NAMES}, [server[f"rho.{index}"] for index in range(3)])
    assert (start[1] == -1).all()
    uploads, expected = pixels.play(method, server, built, context), []
    for client in built.clients:
        x, y = pixels.data(client)
        q, local, weight = start, start, zeta / len(y)
        with forked(built.client_context(client.id).generator("method")):  # the draws, as data
            draws = [np.concatenate([torch.randn(n).double().numpy() for n in (4, 6, 3)]) for _ in range(2)]
        for draw in draws:

            def objective(at: np.ndarray, draw: np.ndarray = draw, prior: np.ndarray = local) -> float:
                loss = cross_entropy(at[0] + noise * softplus(at[1]) * draw, x, y)  # noqa: B023
                return loss + weight * kl(at, prior)  # noqa: B023

            q = q - pixels.LR * pixels.slope(objective, q)
            local = local - pixels.LR * pixels.slope(lambda at: weight * kl(q, at), local)  # noqa: B023
        kept = flat(client.model.state_dict(), [client.state["rho"][str(index)] for index in range(3)])
        upload = uploads[client.id].message
        sent = flat({n: upload[f"mu.{n}"] for n in NAMES}, [upload[f"rho.{index}"] for index in range(3)])
        np.testing.assert_allclose(kept, q, rtol=0, atol=5e-6)
        np.testing.assert_allclose(sent, local, rtol=0, atol=5e-6)
        expected.append(local)
    assert not np.allclose(expected[0], start, atol=1e-3)
    method.aggregate(server, uploads, context)
    after = flat({name: server[f"mu.{name}"] for name in NAMES}, [server[f"rho.{index}"] for index in range(3)])
    mean_of_clients = (3 * expected[0] + 5 * expected[1]) / 8
    np.testing.assert_allclose(after, (1 - beta) * start + beta * mean_of_clients, rtol=0, atol=5e-6)


def test_pfedbayes_without_noise_and_divergence_is_plain_training() -> None:
    bayes, plain = federation(2, batch_size=2), federation(2, batch_size=2)
    simulate(bayes, PFedBayes(zeta=0.0, noise=0.0), 3)
    simulate(plain, Standalone(), 3)
    assert pixels.same_models(bayes, plain)


def test_pfedbayes_posterior_stays_with_the_client() -> None:
    built, method = federation(), PFedBayes()
    server = method.init_server(pixels.context(built))
    method.aggregate(server, pixels.play(method, server, built, pixels.context(built)), pixels.context(built))
    before = [copy.deepcopy(client.snapshot()) for client in built.clients]
    built.settings = dataclasses.replace(built.settings, lr=0.0)  # a second visit that learns nothing
    pixels.play(method, server, built, pixels.context(built, round=1))
    for client, old in zip(built.clients, before, strict=True):
        assert all(torch.equal(old["model"][name], value) for name, value in client.model.state_dict().items())
        assert all(torch.equal(old["state"]["rho"][name], value) for name, value in client.state["rho"].items())
        assert not torch.equal(client.state["rho"]["0"], server["rho.0"])  # not the prior's


def test_pfedbayes_learns_about_as_fast_as_fedavg() -> None:
    """M1 on digits, Adam at 1e-3: with unit noise at rho = -3 it would be at 30 %."""
    spec = RunSpec(
        scenario="homogeneous-M1", partition="iid", num_clients=4, participation=0.5, rounds=3, local_epochs=2,
        batch_size=32, lr=0.001, overrides={"optimiser": "adam"},
    )  # fmt: skip
    last = {}
    for name in ("FedAvg", "pFedBayes"):
        resolved = runs.resolve(dataclasses.replace(spec, algorithm=name))
        last[name] = (
            simulate(runs.federation_of(resolved), resolved.algorithm, 3, 0.5).rounds["accuracy_selected"].max()
        )
    assert last["pFedBayes"] > last["FedAvg"] - 0.1 and last["FedAvg"] > 0.8


def test_pfedbayes_posterior_starts_as_the_prior() -> None:
    """A client that comes late has seen no data yet; one that comes back keeps its own posterior."""
    built, method = federation(lr=0.0), PFedBayes()
    server, context = method.init_server(pixels.context(built)), pixels.context(built, 1)
    trained = {name: tensor + 0.25 for name, tensor in server.items()}
    for down in (trained, server):
        pixels.visit(method, built.clients[0], method.download(down, built.infos[0], context), built, 1)
        state = {f"mu.{name}": tensor for name, tensor in built.clients[0].model.state_dict().items()}
        state |= {f"rho.{name}": tensor for name, tensor in built.clients[0].state["rho"].items()}
        assert state.keys() == trained.keys() and all(torch.equal(state[name], trained[name]) for name in trained)


def test_pfedbayes_beta() -> None:
    """0 never changes the server; 1, the default, takes the clients' mean."""
    still = simulate(federation(), PFedBayes(beta=0.0), 2)
    start = PFedBayes().init_server(pixels.context(federation()))
    assert all(torch.equal(still.server[name], tensor) for name, tensor in start.items())
    built, method = federation(), PFedBayes()
    context, server = pixels.context(built), dict(start)
    uploads = pixels.play(method, server, built, context)
    method.aggregate(server, uploads, context)
    for name, tensor in server.items():
        expected = (3 * uploads[0].message[name] + 5 * uploads[1].message[name]) / 8
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6)
    with pytest.raises(FedlibError, match=r"beta = 1\.5: must be in \[0, 1\]"):
        PFedBayes(beta=1.5)


def test_pfedbayes_noise_is_as_wide_as_it_says() -> None:
    """`noise` times the spread: the equation's under 1, a thousandth of it under the defaults."""
    layer = nn.Linear(400, 300, bias=False)
    nn.init.zeros_(layer.weight)
    gaussian = Gaussian(layer, -1.0)
    for noise, share in ((1.0, 1.0), (PFedBayes().noise, 0.001)):
        with forked(np.random.default_rng(0)), torch.no_grad():
            drawn = gaussian(torch.eye(400), gaussian.moments(), noise)
        assert abs(drawn.std().item() / F.softplus(torch.tensor(-1.0)).item() / share - 1) < 0.01


def test_pfedbayes_divergence_is_that_of_gaussians() -> None:
    stream = torch.Generator().manual_seed(0)
    q, p = ([(torch.randn(5, generator=stream), torch.rand(5, generator=stream) + 0.1)] for _ in range(2))
    normals = (torch.distributions.Normal(*moments[0]) for moments in (q, p))
    torch.testing.assert_close(divergence(q, p), torch.distributions.kl_divergence(*normals).sum())
    assert divergence(q, q).abs() < 1e-6


# All four


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_aggregation_does_not_depend_on_the_order_of_arrival(method: Algorithm) -> None:
    servers = []
    for turn in (1, -1):
        built = federation()
        context = pixels.context(built)
        servers.append(method.init_server(context))
        uploads = pixels.play(method, servers[-1], built, context)
        method.aggregate(servers[-1], uploads[::turn], context)
    for name in servers[0]:
        torch.testing.assert_close(servers[0][name], servers[1][name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_augmented_batches_reach_the_method(method: Algorithm) -> None:
    runs = [pixels.federation(LABELS, augmentation=kind) for kind in ("none", "released")]
    for run in runs:
        simulate(run, method, 1)
    assert not pixels.same_models(*runs)


@pytest.mark.parametrize(("classes", "words"), [(10, 5_243_116), (100, 5_333_296)])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_words_a_client_round(method: Algorithm, classes: int, words: int) -> None:
    built = pixels.federation([[0, 1, 0]], classes=classes, architectures=["CNN-1"], channels=3)
    context = pixels.context(built)
    download = method.download(method.init_server(context), built.clients[0].info, context)
    upload = pixels.visit(method, built.clients[0], download, built)
    twice = 2 if method.name == "pFedBayes" else 1  # a mean and a spread for every weight
    assert (
        download.words(method.uncounted) + upload.words(method.uncounted)
        == download.words() + upload.words()
        == twice * words
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_needs_one_architecture(method: Algorithm) -> None:
    with pytest.raises(FedlibError, match=f"algorithm = '{method.name}'.*same architecture"):
        simulate(pixels.federation(LABELS, architectures=["tiny", "CNN-5"]), method, 1)
