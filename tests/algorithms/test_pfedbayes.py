"""pFedBayes: a round by hand, where a posterior starts, and how wide its noise is."""

import numpy as np
import tiny
import torch
import torch.nn.functional as F
from steps import NAMES, cross_entropy, cut, federation
from torch import nn

from fedlib.algorithms.pfedbayes import Gaussian, PFedBayes
from fedlib.randomness import fork_torch


def softplus(rho: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(rho))


def kl(q: np.ndarray, p: np.ndarray) -> float:
    """KL(q || p) of Gaussians, rows (mu, rho): sum of log(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2."""
    s_q, s_p = softplus(q[1]), softplus(p[1])
    return float((np.log(s_p / s_q) + (s_q**2 + (q[0] - p[0]) ** 2) / (2 * s_p**2) - 0.5).sum())


def flat(state: dict[str, torch.Tensor], rho: list[torch.Tensor]) -> np.ndarray:
    """Rows (mu, rho), in the order A, W, b."""
    rows = [[state[name] for name in NAMES], rho]
    return np.stack([torch.cat([part.flatten() for part in row]).detach().double().numpy() for row in rows])


def logits(at: np.ndarray, x: np.ndarray) -> np.ndarray:
    a, w, b = cut(at, (2, 2), (3, 2), (3,))
    return x @ a.T @ w.T + b


def test_pfedbayes_one_round_by_hand() -> None:
    zeta, noise, beta, built = 0.7, 0.9, 0.6, federation(epochs=2)
    method, context = PFedBayes(zeta=zeta, rho0=-1.0, noise=noise, beta=beta), tiny.context(built)
    server = method.init_server(context)
    start = flat({name: server[f"mu.{name}"] for name in NAMES}, [server[f"rho.{index}"] for index in range(3)])
    assert (start[1] == -1).all()
    uploads, expected = tiny.play(method, server, built, context), []
    for client in built.clients:
        x, y = tiny.training_data(client)
        q, local, weight = start, start, zeta / len(y)
        with fork_torch(built.client_context(client.id).generator("method")):  # the draws, as data
            draws = [np.concatenate([torch.randn(n).double().numpy() for n in (4, 6, 3)]) for _ in range(2)]
        for draw in draws:

            def objective(at: np.ndarray, draw: np.ndarray = draw, prior: np.ndarray = local) -> float:
                loss = cross_entropy(logits(at[0] + noise * softplus(at[1]) * draw, x), y)  # noqa: B023
                return loss + weight * kl(at, prior)  # noqa: B023

            q = q - tiny.LR * tiny.slope(objective, q)
            local = local - tiny.LR * tiny.slope(lambda at: weight * kl(q, at), local)  # noqa: B023
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


def test_pfedbayes_posterior_starts_as_the_prior() -> None:
    """A client that comes late has seen no data yet; one that comes back keeps its own posterior."""
    built, method = federation(lr=0.0), PFedBayes()
    server, context = method.init_server(tiny.context(built)), tiny.context(built, 1)
    trained = {name: tensor + 0.25 for name, tensor in server.items()}
    for down in (trained, server):
        tiny.visit(method, built.clients[0], method.download(down, built.infos[0], context), built, 1)
        state = {f"mu.{name}": tensor for name, tensor in built.clients[0].model.state_dict().items()}
        state |= {f"rho.{name}": tensor for name, tensor in built.clients[0].state["rho"].items()}
        assert state.keys() == trained.keys() and all(torch.equal(state[name], trained[name]) for name in trained)


def test_pfedbayes_noise_is_as_wide_as_it_says() -> None:
    """`noise` times the spread: the equation's under 1, a thousandth of it under the defaults."""
    layer = nn.Linear(400, 300, bias=False)
    nn.init.zeros_(layer.weight)
    gaussian = Gaussian(layer, -1.0)
    for noise, share in ((1.0, 1.0), (PFedBayes().noise, 0.001)):
        with fork_torch(np.random.default_rng(0)), torch.no_grad():
            drawn = gaussian(torch.eye(400), gaussian.moments(), noise)
        assert abs(drawn.std().item() / F.softplus(torch.tensor(-1.0)).item() / share - 1) < 0.01
