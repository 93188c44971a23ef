"""Each method against rounds worked out in NumPy (see tiny.py), its limits, and what every method must satisfy."""

import math
from dataclasses import fields

import numpy as np
import pytest
import tiny
import torch

from fedlib import ALGORITHMS, RunSpec, lab, simulate, simulation
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.fedgh import FedGH
from fedlib.algorithms.fedproto import FedProto
from fedlib.algorithms.fedssa import FedSSA
from fedlib.algorithms.lg_fedavg import LGFedAvg
from fedlib.algorithms.standalone import Standalone
from fedlib.federation import Message, Upload

DATA = tiny.dataset(num_classes=3, per_class=12)
LR = 0.1
CLASSES, COUNTS = [[0, 1], [1, 2]], [3, 5]  # two clients, 6 and 10 training images


def federation(**options):
    partition = tiny.holding(DATA, CLASSES, COUNTS)
    return tiny.federation(DATA, partition, lr=LR, **options), [tiny.inputs(DATA, part[0]) for part in partition]


def arrivals(rounds: int, num_clients: int, participation: float = 1.0, seed: int = 0) -> list[list[int]]:
    return [simulation.sampled_clients(seed, t, num_clients, participation).tolist() for t in range(rounds)]


# ------------------------------------------------------------------------------------------ rounds by hand


def test_standalone_by_hand():
    """Two rounds of two full-batch epochs: four gradient steps on one's own data, nothing exchanged."""
    fed, data = federation(epochs=2)
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, Standalone(), 2)
    for client, (x, y) in zip(outcome.clients, data, strict=True):
        tiny.assert_weights(client.model, tiny.descend(start, x, y, LR, steps=4))
    table = lab.clients_of(outcome).set_index(["round", "client"])
    for k, (x, y) in enumerate(data):  # the recorded loss is the mean before each step
        path = [tiny.descend(start, x, y, LR, steps=s) for s in (0, 1)]
        assert table.loc[(0, k), "loss"] == pytest.approx(np.mean([tiny.loss(w, x, y) for w in path]), rel=1e-5)
    assert (lab.rounds_of(outcome)[["download_words", "upload_words"]].fillna(0) == 0).all(axis=None)


def test_fedavg_by_hand():
    """w <- (6 w_0 + 10 w_1) / 16 after each client's step from w."""
    fed, data = federation()
    w = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, FedAvg(), 2)
    for _ in range(2):
        local = [tiny.descend(w, x, y, LR) for x, y in data]
        w = {name: (6 * local[0][name] + 10 * local[1][name]) / 16 for name in w}
    server = outcome.server
    expected = {"extractor.2.weight": "A", "extractor.2.bias": "a", "header.weight": "W", "header.bias": "b"}
    for key, name in expected.items():
        np.testing.assert_allclose(server[key], w[name], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):  # evaluated after local training
        tiny.assert_weights(client.model, state)


def test_lg_fedavg_by_hand():
    """Headers are averaged by numbers of training images and replaced; extractors stay."""
    fed, data = federation()
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, LGFedAvg(), 2)
    local, header = [start, start], {name: start[name] for name in "Wb"}
    for _ in range(2):
        local = [tiny.descend(w | header, x, y, LR) for w, (x, y) in zip(local, data, strict=True)]
        header = {name: (6 * local[0][name] + 10 * local[1][name]) / 16 for name in "Wb"}
    np.testing.assert_allclose(outcome.server["weight"], header["W"], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(outcome.server["bias"], header["b"], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)


def test_fedproto_by_hand():
    """Round 0 has no prototypes; round 1 pulls towards the unweighted class means over owners (Eq. 6 to 8)."""
    fed, data = federation()
    local, prototypes = [tiny.weights(fed.build("tiny-a"))] * 2, {}
    outcome = simulate(fed, FedProto(lam=0.7), 2)
    for _ in range(2):
        local = [
            tiny.descend(w, x, y, LR, prototypes=prototypes, lam=0.7) for w, (x, y) in zip(local, data, strict=True)
        ]
        own = [tiny.class_means(w, x, y) for w, (x, y) in zip(local, data, strict=True)]
        prototypes = {0: own[0][0], 1: (own[0][1] + own[1][1]) / 2, 2: own[1][2]}
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)
    for label, prototype in prototypes.items():
        np.testing.assert_allclose(outcome.server["prototypes"][label], prototype, rtol=1e-5, atol=2e-6)


def test_fedproto_weighted_aggregation_by_hand():
    """Eq. 6: client 0 has 3 images of class 1 and client 1 has 5, so its prototype is (3 c_0 + 5 c_1) / 8."""
    fed, data = federation()
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, FedProto(weighted=True), 1)
    own = [tiny.class_means(tiny.descend(start, x, y, LR), x, y) for x, y in data]
    prototypes = {0: own[0][0], 1: (3 * own[0][1] + 5 * own[1][1]) / 8, 2: own[1][2]}
    for label, prototype in prototypes.items():
        np.testing.assert_allclose(outcome.server["prototypes"][label], prototype, rtol=1e-5, atol=2e-6)
    last = outcome.rounds.iloc[-1]  # two classes a client, of 3 features: the counts go up and are not published
    assert (last["upload_words"], last["published_words"]) == (2 * (2 * 3 + 2 + 2), 2 * 2 * 3)
    plain = simulate(federation()[0], FedProto(), 1).rounds.iloc[-1]
    assert plain["upload_words"] == 2 * (2 * 3 + 2)


def test_fedproto_ignores_classes_without_a_prototype():
    """One client a round: the second knows class 1 from the first, class 2 from nobody."""
    fed, data = federation()
    (first,), (second,) = arrivals(2, 2, 0.5)
    seed = 0
    while first == second:
        seed += 1
        (first,), (second,) = arrivals(2, 2, 0.5, seed)
    fed, data = federation(seed=seed)
    start = tiny.weights(fed.build("tiny-a"))
    outcome = simulate(fed, FedProto(lam=0.7), 2, 0.5)
    x, y = data[first]
    known = tiny.class_means(tiny.descend(start, x, y, LR), x, y)
    x, y = data[second]
    assert set(known) & set(y.tolist()) == {1}
    state = tiny.descend(start, x, y, LR, prototypes=known, lam=0.7)
    tiny.assert_weights(outcome.clients[second].model, state)
    kept = next(label for label in known if label != 1)  # not uploaded in round 1, so kept
    np.testing.assert_allclose(outcome.server["prototypes"][kept], known[kept], rtol=1e-5, atol=2e-6)


def test_fedproto_predicts_with_the_nearest_prototype_of_its_own_classes():
    fed, _ = federation()
    outcome = simulate(fed, FedProto(), 3)
    client = outcome.clients[0]
    images = fed.pool.batch(torch.arange(36))
    predicted = FedProto().predict(client, images)["prototype_accuracy"].argmax(1)
    x, _ = tiny.inputs(DATA, np.arange(36))
    f = tiny.features(tiny.weights(client.model), x)
    held = client.state["prototypes"].numpy().astype(np.float64)
    nearest = np.array(CLASSES[0])[((f[:, None] - held[None]) ** 2).sum(2).argmin(1)]
    assert np.array_equal(predicted, nearest)


def softmax_steps(w: tiny.Weights, lars: list[tuple[np.ndarray, int]], lr: float) -> tiny.Weights:
    """One SGD step a (LAR, class): dz = softmax(W f + b) - onehot, W <- W - lr dz f', b <- b - lr dz."""
    for f, label in lars:
        dz = tiny.softmax(w["W"] @ f + w["b"]) - np.eye(len(w["b"]))[label]
        w = w | {"W": w["W"] - lr * np.outer(dz, f), "b": w["b"] - lr * dz}
    return w


def header_of(server) -> tiny.Weights:
    return {name: server[f"header.{key}"].numpy().astype(np.float64) for name, key in (("W", "weight"), ("b", "bias"))}


def test_fedgh_server_step_on_one_lar_is_the_softmax_gradient():
    fed, _ = federation()
    context, method = fed.server_context(), FedGH(server_lr=0.3)
    server = method.init_server(context)
    before = header_of(server)
    lar = torch.tensor([[0.5, -1.0, 2.0]])
    upload = Upload(fed.clients[0].info, Message({"lars": lar, "classes": torch.tensor([1])}))
    method.aggregate(server, [upload], context)
    expected = softmax_steps(before, [(lar[0].double().numpy(), 1)], 0.3)
    for name, value in header_of(server).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-6, atol=1e-7)


def test_fedgh_by_hand():
    """Two rounds: header down, local step, LARs up, one server step a LAR in order of arrival."""
    fed, data = federation()
    local = [tiny.weights(fed.build("tiny-a"))] * 2
    header = header_of(FedGH().init_server(fed.server_context()))
    outcome = simulate(fed, FedGH(server_lr=0.3), 2)
    for order in arrivals(2, 2):
        local = [tiny.descend(w | header, x, y, LR) for w, (x, y) in zip(local, data, strict=True)]
        lars = [tiny.class_means(w, x, y) for w, (x, y) in zip(local, data, strict=True)]
        flat = [(lars[k][label], label) for k in order for label in CLASSES[k]]
        header = softmax_steps(header, flat, 0.3)
    for name, value in header_of(outcome.server).items():
        np.testing.assert_allclose(value, header[name], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)
    start = header_of(FedGH().init_server(fed.server_context()))
    assert not np.allclose(
        start["W"], fed.server_context().initial_header().weight.detach()
    )  # a fresh one, not a client's


def test_fedgh_with_server_lr_0_keeps_its_header():
    fed, _ = federation()
    before = header_of(FedGH().init_server(fed.server_context()))
    outcome = simulate(fed, FedGH(server_lr=0.0), 2)
    assert all(np.array_equal(value, before[name]) for name, value in header_of(outcome.server).items())


def fused(w: tiny.Weights, server: tiny.Weights, seen: list[int], mu: float) -> tiny.Weights:
    """Eq. 4: global + mu * local for the seen rows; the others stay."""
    w = {name: value.copy() for name, value in w.items()}
    for s in seen:
        w["W"][s] = server["W"][s] + mu * w["W"][s]
        w["b"][s] = server["b"][s] + mu * w["b"][s]
    return w


def test_fedssa_by_hand():
    """Two rounds with training: fuse (Eq. 4), step, mean of the owners' rows (Eq. 3)."""
    fed, data = federation()
    start = tiny.weights(fed.build("tiny-a"))
    local, server = [start, start], {"W": start["W"].copy(), "b": start["b"].copy()}
    outcome = simulate(fed, FedSSA(mu0=0.5, stable_rounds=20), 2)
    for mu in (0.5, 0.5 * math.cos(math.pi / 40)):
        local = [
            tiny.descend(fused(w, server, seen, mu), x, y, LR)
            for w, seen, (x, y) in zip(local, CLASSES, data, strict=True)
        ]
        for name in "Wb":
            server[name][0] = local[0][name][0]
            server[name][1] = (local[0][name][1] + local[1][name][1]) / 2
            server[name][2] = local[1][name][2]
    np.testing.assert_allclose(outcome.server["weight"], server["W"], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(outcome.server["bias"], server["b"], rtol=1e-5, atol=2e-6)
    for client, state in zip(outcome.clients, local, strict=True):
        tiny.assert_weights(client.model, state)


# ------------------------------------------------------------------------- FedSSA without training, in closed form


@pytest.mark.parametrize(("participation", "seed"), [(1.0, 0), (0.5, 0), (0.5, 3)])
def test_fedssa_with_lr_0_follows_its_equations(participation, seed):
    """Four heterogeneous clients, six rounds, T_stable = 4: every row of every header, weights and biases."""
    data, classes = tiny.dataset(num_classes=5, per_class=20), [[0, 1], [1, 2], [0, 2, 3], [3]]  # class 4: nobody's
    partition = tiny.holding(data, classes, [3] * 4)
    fed = tiny.federation(data, partition, ("tiny-a", "tiny-b"), lr=0.0, seed=seed)
    names = {"W": "weight", "b": "bias"}

    def header(module) -> tiny.Weights:
        return {name: getattr(module, key).detach().numpy().astype(np.float64) for name, key in names.items()}

    rounds, mu0, stable = 6, 0.8, 4
    local = [header(client.model.header) for client in fed.clients]
    unseen = [{name: value.copy() for name, value in state.items()} for state in local]
    server = {name: value.copy() for name, value in local[0].items()}  # CNN-1's place: the first architecture's
    initial = {name: value.copy() for name, value in server.items()}
    outcome = simulate(fed, FedSSA(mu0=mu0, stable_rounds=stable), rounds, participation)

    kept_rows, selected = 0, arrivals(rounds, 4, participation, seed)
    for t, chosen in enumerate(selected):
        mu = mu0 * math.cos(math.pi * t / (2 * stable)) if t <= stable else 0.0
        for k in chosen:
            local[k] = fused(local[k], server, classes[k], mu)
        for s in range(5):
            owners = [k for k in chosen if s in classes[k]]
            kept_rows += not owners
            for name in names:
                if owners:  # Eq. 3: the unweighted mean over the selected owners
                    server[name][s] = sum(local[k][name][s] for k in owners) / len(owners)
    for name, key in names.items():
        np.testing.assert_allclose(outcome.server[key], server[name], rtol=1e-5, err_msg=f"server {key}")
        assert np.array_equal(outcome.server[key][4], initial[name][4])  # never owned
        for client, expected, before in zip(outcome.clients, local, unseen, strict=True):
            result = header(client.model.header)[name]
            np.testing.assert_allclose(result, expected[name], rtol=1e-5, err_msg=f"client {client.id} {key}")
            rows = [s for s in range(5) if s not in classes[client.id]]
            assert np.array_equal(result[rows], before[name][rows])  # unseen rows: to the bit
    assert kept_rows >= (rounds if participation == 1 else rounds + 2)  # also classes that had an owner before
    assert selected == [
        lab.clients_of(outcome).query(f"round == {t}")["client"].tolist() for t in range(rounds)
    ]  # the order of arrival


def test_fedssa_rows_of_a_single_owner_grow_by_one_plus_mu():
    """Never convex: theta_T = (theta_server + mu_0 theta) * prod_{t=1..T-1} (1 + mu_t), here 2 theta_0 ... by mu0=1."""
    data = tiny.dataset(num_classes=2, per_class=8)
    fed = tiny.federation(data, tiny.holding(data, [[0, 1]], [3]), lr=0.0)
    start = fed.server_context().initial_header().weight.detach().double()
    outcome = simulate(fed, FedSSA(mu0=1.0, stable_rounds=3), 5)
    factor = math.prod(1 + math.cos(math.pi * t / 6) for t in range(3))  # mu is 0 from round 3 on
    torch.testing.assert_close(outcome.server["weight"].double(), start * factor, rtol=1e-5, atol=0)


def test_mu_is_cos_shaped_and_recorded():
    fed, _ = federation()
    recorded = lab.rounds_of(simulate(fed, FedSSA(mu0=0.6, stable_rounds=4), 7)).set_index("round")["mu"]
    # cos of 0, 22.5, 45 and 67.5 degrees
    np.testing.assert_allclose(recorded.loc[0:3], 0.6 * np.array([1, 0.92387953, 0.70710678, 0.38268343]), rtol=1e-7)
    assert (recorded.loc[4:] == 0).all() and np.isnan(recorded.loc[-1])
    assert all(FedSSA(mu0=0.0).mu(t) == 0 for t in range(30))


def test_stable_rounds_are_in_proportion_to_the_rounds_unless_given():
    """Figure 3's 20 of 500: 4 of 100 and, since 30 * 20 / 500 = 1.2 and 38 * 20 / 500 = 1.52, 1 of 30 and 2 of 38."""
    stable = {1: 1, 10: 1, 30: 1, 38: 2, 100: 4, 500: 20}
    for rounds, expected in stable.items():
        assert [FedSSA().mu(t, rounds) > 0 for t in range(50)] == [t < expected for t in range(50)], rounds
        assert FedSSA(stable_rounds=45).mu(44, rounds) == pytest.approx(0.5 * math.sin(math.pi / 90))
    # T = 100: 0.5 cos of 0, 22.5, 45 and 67.5 degrees
    np.testing.assert_allclose(
        [FedSSA().mu(t, 100) for t in range(5)], [0.5, 0.46193977, 0.35355339, 0.19134172, 0], rtol=1e-7
    )
    figure3 = FedSSA(mu0=0.5, stable_rounds=20).mu  # one argument: what the figure draws
    assert [figure3(t) for t in range(30)] == [FedSSA().mu(t, 500) for t in range(30)]
    fed, _ = federation()
    recorded = simulate(fed, FedSSA(mu0=0.6), 38, 0.5).rounds.set_index("round")["mu"]
    np.testing.assert_allclose(recorded.loc[0:3], [0.6, 0.6 / math.sqrt(2), 0, 0], rtol=1e-7)


# ----------------------------------------------------------------------------------------------- prototypes


@pytest.mark.parametrize("method", [FedProto(), FedGH()])
def test_uploaded_means_equal_float64_means_of_the_representations(method, small_digits):
    """With a real extractor: to 1e-6 of a float64 mean over the client's training images."""
    resolved = lab.resolve(RunSpec(algorithm=method.name, num_clients=5))
    fed = lab.federation_of(resolved)
    context, client = fed.server_context(), fed.clients[4]
    message = method.download(method.init_server(context), client.info, context)
    upload = method.local_round(client, message, fed.client_context(4))
    with torch.no_grad():
        f = client.model.extractor(fed.pool.batch(client.train)).double().numpy()
    labels = fed.pool.labels[client.train].numpy()
    means = upload["prototypes" if method.name == "FedProto" else "lars"]
    assert np.array_equal(upload["classes"], np.unique(labels))
    for row, label in zip(means.numpy(), np.unique(labels), strict=True):
        np.testing.assert_allclose(row, f[labels == label].mean(axis=0), rtol=0, atol=1e-6)


# --------------------------------------------------------------------------------------------------- limits


def models_of(outcome) -> list[dict[str, torch.Tensor]]:
    return [client.model.state_dict() for client in outcome.clients]


@pytest.mark.parametrize("method", [FedAvg(), LGFedAvg(), FedSSA(mu0=0.0)])
def test_with_one_client_averaging_is_standalone_to_the_bit(method):
    def alone():
        partition = tiny.holding(DATA, [[0, 1, 2]], [9])
        return tiny.federation(DATA, partition, epochs=2, batch_size=4)

    one, other = (models_of(simulate(alone(), m, 3)) for m in (method, Standalone()))
    assert tiny.equal_states(one[0], other[0])


@pytest.mark.parametrize("architectures", [("tiny-a",), ("tiny-a", "tiny-b")])
def test_fedproto_with_lam_0_is_standalone_to_the_bit(architectures):
    def fresh():
        return tiny.federation(DATA, tiny.holding(DATA, CLASSES, COUNTS), architectures, epochs=2, batch_size=4)

    one, other = (simulate(fresh(), m, 3) for m in (FedProto(lam=0.0), Standalone()))
    for mine, theirs in zip(models_of(one), models_of(other), strict=True):
        assert tiny.equal_states(mine, theirs)
    assert lab.rounds_of(one)["accuracy"].equals(lab.rounds_of(other)["accuracy"])
    other = simulate(fresh(), FedProto(lam=0.5), 3)
    assert not tiny.equal_states(models_of(one)[0], models_of(other)[0])


def test_fedssa_without_shared_classes_and_mu0_0_is_standalone_to_the_bit():
    """Ten clients on CIFAR-100: every class has one owner, who gets back what it sent."""

    def fresh():
        return tiny.federation(DATA, tiny.holding(DATA, [[0], [1, 2]], [6, 6]), batch_size=4)

    one, other = (models_of(simulate(fresh(), m, 3)) for m in (FedSSA(mu0=0.0), Standalone()))
    assert all(tiny.equal_states(mine, theirs) for mine, theirs in zip(one, other, strict=True))


# ------------------------------------------------------------------------------------ every method, real networks

ORDERED = {"FedGH"}  # methods whose server step depends on the order of arrival, as their paper says


def small_run(name: str, wrap=lambda method: method, rounds: int = 3):
    """A few rounds of `name` on a few digits, five clients, two a round."""
    needs = ALGORITHMS[name].needs
    scenario = "homogeneous" if needs == "architecture" else "heterogeneous"
    spec = RunSpec(algorithm=name, scenario=scenario, num_clients=5, participation=0.4, rounds=rounds)
    resolved = lab.resolve(spec)
    return simulate(lab.federation_of(resolved), wrap(resolved.algorithm), rounds, 0.4)


def derived(method, **methods):
    """The same method and hyper-parameters with some of its steps replaced."""
    own = type(method)
    copy = type(own.__name__, (own,), methods)
    return copy(**{field.name: getattr(method, field.name) for field in fields(own)})


def reversed_arrival(method):
    own = type(method)

    def aggregate(self, server, uploads, context):
        return own.aggregate(self, server, uploads[::-1], context)

    return derived(method, aggregate=aggregate)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ORDERED])
def test_the_order_of_uploads_does_not_matter(name, small_digits):
    one, other = small_run(name, rounds=1), small_run(name, reversed_arrival, rounds=1)
    assert one.server.keys() == other.server.keys()
    for key, value in one.server.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, other.server[key], rtol=1e-6, atol=1e-6)
