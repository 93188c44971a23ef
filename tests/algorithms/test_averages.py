"""Two rounds by hand of the methods whose server averages networks or parts of them, and what each has besides."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from steps import LABELS, federation, moved, pull, slopes
from test_contract import normed
from two_clients import DATA, models_of

from fedlib import FedlibError, lab, models, simulate
from fedlib.algorithms import make
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedssa import FedSSA
from fedlib.algorithms.per_fedavg import meta_loss

LR, COUNTS, EQUAL = tiny.LR, (3, 5), (1, 1)  # 3 and 5 training images
Net = tiny.Net
Local = Callable[[Net, Net, tuple[np.ndarray, np.ndarray]], tuple[Net, Net]]


def stepped(net: Net, data: Any, parts: str = "AWb", lr: float = LR) -> Net:
    """A step of the extractor (A), of the header (Wb) or of both on the mean CE."""
    result = copy.deepcopy(net)
    for name, slope in zip("AWb", slopes(net, *data), strict=True):
        if name in parts:
            setattr(result, name, getattr(net, name) - lr * slope)
    return result


def averaged(kept: Net, came: Net, data: Any) -> tuple[Net, Net]:
    """One step from what came: what goes up is what stays."""
    after = stepped(came, data)
    return after, after


def fedprox(kept: Net, came: Net, data: Any) -> tuple[Net, Net]:
    """Two steps; at the start the proximal term has no slope (Eq. 2)."""
    first = stepped(came, data)
    after = moved(first, LR, slopes(first, *data), pull(first, came, 0.3))
    return after, after


def ditto(kept: Net, came: Net, data: Any) -> tuple[Net, Net]:
    """w is FedAvg's; v_k goes down the slope of its loss + lambda (v_k - w), with the w that came down."""
    return stepped(came, data), moved(kept, LR, slopes(kept, *data), pull(kept, came, 0.4))


def per_fedavg(kept: Net, came: Net, data: Any) -> tuple[Net, Net]:
    """w~ = w - alpha grad f(w); w <- w - beta grad f(w~), no Hessian; evaluated: adapted by one step. Both batches are all images."""
    trained = moved(came, 0.4, slopes(stepped(came, data, lr=0.2), *data))
    return trained, stepped(trained, data, lr=0.2)


def pfedme(kept: Net, came: Net, data: Any) -> tuple[Net, Net]:
    """R = 2 batches of K = 3 steps on the loss + lambda / 2 ||theta - w||^2, after which w <- w - eta lambda (w - theta)."""
    w = theta = came
    for _ in range(2):
        for _ in range(3):
            theta = moved(theta, 0.3, slopes(theta, *data), pull(theta, w, 2.0))
        w = moved(w, 0.2, pull(w, theta, 2.0))
    return w, theta


def fedrep(head_epochs: int) -> Local:
    """The header first, on the extractor that came down, then the extractor for that header."""

    def local(kept: Net, came: Net, data: Any) -> tuple[Net, Net]:
        net = came
        for _ in range(head_epochs):
            net = stepped(net, data, "Wb")
        after = stepped(net, data, "A")
        return after, after

    return local


def fedbabu(parts: str) -> Local:
    """The extractor is trained for the first header, goes up, and then what is kept is tuned twice, from the first header again."""

    def local(kept: Net, came: Net, data: Any) -> tuple[Net, Net]:
        net, first = copy.deepcopy(came), Net(federation().build("tiny"))
        net.W, net.b = first.W, first.b
        up = stepped(net, data, "A")
        return up, stepped(stepped(up, data, parts), data, parts)

    return local


ROUNDS: list[tuple[str, dict[str, Any], int, str, tuple[int, int], float, Local]] = [
    # method and its parameters, local epochs, what is shared, the weights of the clients, and of their mean in the server's new w
    ("FedAvg", {}, 1, "AWb", COUNTS, 1, averaged),
    ("FedProx", {"mu": 0.3}, 2, "AWb", COUNTS, 1, fedprox),
    ("Ditto", {"lam": 0.4}, 1, "AWb", COUNTS, 1, ditto),
    ("Per-FedAvg", {"alpha": 0.2, "beta": 0.4}, 1, "AWb", COUNTS, 1, per_fedavg),
    ("pFedMe", {"lam": 2.0, "eta": 0.2, "inner_lr": 0.3, "inner_steps": 3, "beta": 0.6}, 2, "AWb", COUNTS, 0.6, pfedme),
    ("LG-FedAvg", {}, 1, "Wb", COUNTS, 1, averaged),
    ("FedPer", {}, 1, "A", COUNTS, 1, averaged),
    ("FedRep", {"head_epochs": 0}, 1, "A", EQUAL, 1, fedrep(0)),
    ("FedRep", {"head_epochs": 2}, 1, "A", EQUAL, 1, fedrep(2)),
    ("FedBABU", {"tune_epochs": 2, "tuned": "header"}, 1, "A", COUNTS, 1, fedbabu("Wb")),
    ("FedBABU", {"tune_epochs": 2, "tuned": "model"}, 1, "A", COUNTS, 1, fedbabu("AWb")),
]


@pytest.mark.parametrize(("name", "params", "epochs", "shared", "weights", "beta", "local"), ROUNDS)
def test_two_rounds_by_hand(name, params, epochs, shared, weights, beta, local) -> None:
    built = federation(epochs=epochs)
    data = [tiny.training_data(client) for client in built.clients]
    kept, server = [Net(client.model) for client in built.clients], Net(built.build("tiny"))
    outcome = simulate(built, make(name, params), 2)
    for _ in range(2):
        came = [copy.deepcopy(net) for net in kept]
        for net in came:
            vars(net).update({part: getattr(server, part) for part in shared})
        pairs = [local(*given) for given in zip(kept, came, data, strict=True)]
        kept = [net for _, net in pairs]
        for part in shared:
            mean = sum(w * getattr(up, part) for w, (up, _) in zip(weights, pairs, strict=True)) / sum(weights)
            setattr(server, part, (1 - beta) * getattr(server, part) + beta * mean)
    for client, net, (up, _) in zip(built.clients, kept, pairs, strict=True):
        net.agrees(client.model)
        if "w" in client.state:
            up.agrees(client.state["w"])
    prefix = {"AWb": "", "A": "extractor.", "Wb": "header."}[shared]
    assert len(outcome.server) == len(shared)
    server.agrees(dict(built.build("tiny").state_dict()) | {prefix + key: one for key, one in outcome.server.items()})


# ---------------------------------------------------------------------------------------------- what each has besides


def test_standalone_by_hand() -> None:
    """Two rounds of two full-batch epochs: four steps on one's own data, whose loss is the mean before each step; no words."""
    built = federation(epochs=2)
    data, start = [tiny.training_data(client) for client in built.clients], Net(built.build("tiny"))
    outcome = simulate(built, make("Standalone"), 2)
    for client, own in zip(built.clients, data, strict=True):
        path = [start]
        for _ in range(4):
            path.append(stepped(path[-1], own))
        path[-1].agrees(client.model)
        losses = [-np.log(tiny.softmax(net.logits(own[0]))[np.arange(len(own[1])), own[1]]).mean() for net in path[:2]]
        row = next(row for row in outcome.client_rows if (row["round"], row["client"]) == (0, client.id))
        assert row["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert (lab.rounds_of(outcome)[["download_words", "upload_words"]].fillna(0) == 0).all(axis=None)


@pytest.mark.parametrize("method", [make("FedAvg"), make("LG-FedAvg"), FedSSA(mu0=0.0)], ids=lambda method: method.name)
def test_with_one_client_averaging_is_standalone_to_the_bit(method: Algorithm) -> None:
    def alone():
        return tiny.federation(DATA, tiny.holding(DATA, [[0, 1, 2]], [9]), epochs=2, batch_size=4)

    one, other = (models_of(simulate(alone(), m, 3)) for m in (method, make("Standalone")))
    assert tiny.equal_states(one[0], other[0])


@pytest.mark.parametrize(
    ("name", "params", "header_down"),
    [("FedPer", {}, False), ("FedRep", {"head_epochs": 1}, False), ("FedBABU", {"tune_epochs": 1}, True)],
)
def test_words_of_the_extractor(name: str, params: dict[str, Any], header_down: bool) -> None:
    """All of CNN-5 but its 5010 header numbers, each way; FedBABU's first header comes down with it."""
    built = tiny.federation_of([[0]], classes=10, architectures=["CNN-5"], channels=3)
    whole = models.num_floats(built.build("CNN-5"))
    assert tiny.words(make(name, params), 10, [[0, 1, 0]], 0) == (whole - 5010 * (not header_down), whole - 5010)


def test_fedbabus_header_is_one_for_all_where_clients_start_apart() -> None:
    """With nothing tuned all clients have the server's header, whatever theirs was."""
    built = tiny.federation_of(LABELS, starts="apart")
    assert not (built.clients[0].model.header.weight == built.clients[1].model.header.weight).all()
    simulate(built, make("FedBABU", {"tune_epochs": 0}), 1)
    for client in built.clients:
        assert (client.model.header.weight == built.server_context().initial_header().weight).all()


@pytest.mark.parametrize(
    ("params", "other", "batch_size"),
    [  # without adaptation it is FedAvg on the second batches at rate beta, which is the run's unless it is given
        ({"alpha": 0.0, "beta": 0.3}, "FedAvg", 2),
        ({"beta": 0.3}, "Per-FedAvg", 1000),
    ],
)
def test_per_fedavg_at_rate_beta_is(params: dict[str, Any], other: str, batch_size: int) -> None:
    given, plain = federation(2, batch_size, lr=0.9), federation(2, batch_size, lr=0.3)
    simulate(given, make("Per-FedAvg", params), 3)
    simulate(plain, make(other), 3)
    assert tiny.same_models(given, plain)


def test_per_fedavg_adapts_on_a_batch_of_its_own() -> None:
    seen = []

    def spy(images: torch.Tensor, support_images: torch.Tensor, **rest: object) -> torch.Tensor:
        seen.append((images.flatten(1)[:, 0].tolist(), support_images.flatten(1)[:, 0].tolist()))
        return meta_loss(images=images, support_images=support_images, **rest)

    built = federation(epochs=4, batch_size=2)
    built.client_context(1).train(spy, support="method", alpha=0.1)
    assert len(seen) == 12 and all(len(one) == len(other) for one, other in seen)  # 3 batches an epoch, the last of 1
    assert sum(set(one) == set(other) for one, other in seen) < 6  # independent draws


def test_pfedme_sends_the_statistics_of_batch_norm_that_the_personal_network_has(monkeypatch) -> None:
    monkeypatch.setitem(models.BUILDERS, "normed", normed)
    built = tiny.federation_of(LABELS, architectures=["normed"])
    method, start = make("pFedMe"), built.build("normed").state_dict()
    for upload in tiny.play(method, method.init_server(tiny.context(built)), built, tiny.context(built)):
        own = built.clients[upload.info.id].model.state_dict()
        for name in ("extractor.3.running_mean", "extractor.3.running_var"):
            assert torch.equal(upload.message[name], own[name]) and not torch.equal(own[name], start[name])
        assert not torch.equal(upload.message["header.weight"], own["header.weight"])  # w, not theta


def test_pfedme_refuses_what_cannot_converge() -> None:
    with pytest.raises(FedlibError, match=r"eta \* lam = 1\.5: must be below 1"):
        make("pFedMe", {"eta": 0.1, "lam": 15.0})
