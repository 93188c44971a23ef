"""The switches between what FedSSA's and FedGH's papers say and what code does, each worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pixels import context, cross_entropy_slope, federation, visit

from fedlib import ALGORITHMS, FedlibError, simulate
from fedlib.federation import Federation, Message, Upload
from fedlib.randomness import generator
from fedlib.training import augmented

FedSSA, FedGH = ALGORITHMS["FedSSA"], ALGORITHMS["FedGH"]
SEEN = ([0, 0, 1], [1, 2], [1, 0])  # training labels of clients 0, 1, 2; class 3 is nobody's
CLASSES = 4


def headers(count: int) -> np.ndarray:
    """`count` headers: float64 (count, classes, weight of two features and bias)."""
    return np.random.default_rng(7).normal(size=(count, CLASSES, 3)).astype(np.float32).astype(np.float64)


def write(header: Any, values: np.ndarray) -> None:
    header.weight.data, header.bias.data = torch.tensor(values[:, :2]).float(), torch.tensor(values[:, 2]).float()


def rows(tensors: Any) -> np.ndarray:
    return torch.cat([tensors["weight"], tensors["bias"][:, None]], 1).detach().double().numpy()


def still() -> Federation:
    """Training changes nothing: what is seen is what the method itself does."""
    return federation(SEEN, classes=CLASSES, lr=0)


def fused(round: int, **switches: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, Message]:
    """Global header, client 1's (classes 1 and 2) before, after a round without learning, and its upload."""
    built = still()
    client, method = built.clients[1], FedSSA(**switches)
    shared, own = headers(2)
    write(client.model.header, own)
    server = {"weight": torch.tensor(shared[:, :2]).float(), "bias": torch.tensor(shared[:, 2]).float()}
    upload = visit(method, client, method.download(server, client.info, context(built, round)), built, round)
    return shared, own, rows(client.model.header.state_dict()), upload


@pytest.mark.parametrize("round", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("fusion", ["literal", "convex"])
@pytest.mark.parametrize("replace", ["seen", "all"])
def test_fedssa_fusion(round: int, fusion: str, replace: str) -> None:
    shared, own, after, upload = fused(round, mu0=0.8, stable_rounds=4, fusion=fusion, replace=replace)
    mu = 0.8 * math.cos(math.pi * round / 8) if round < 4 else 0.0
    expected = own.copy()
    touched = [1, 2] if replace == "seen" else [0, 1, 2, 3]
    weight = 1 if fusion == "literal" else 1 - mu
    expected[touched] = weight * shared[touched] + mu * own[touched]
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert upload["classes"].tolist() == [1, 2]
    np.testing.assert_allclose(rows(upload), expected[[1, 2]], atol=1e-6)


def test_fedssa_words_of_each_setting() -> None:
    built = still()
    expected = {  # (down, up): a row is 2 weights and a bias; class ids are the rest
        ("by_class", "seen"): (6, 8),
        ("by_class", "all"): (12, 8),
        ("whole", "all"): (12, 12),
        ("whole", "seen"): (6, 12),
    }
    for (aggregation, replace), wanted in expected.items():
        method, now = FedSSA(aggregation=aggregation, replace=replace), context(built)
        down = method.download(method.init_server(now), built.clients[1].info, now)
        up = visit(method, built.clients[1], down, built)
        assert (down.words(), up.words()) == wanted
        # The paper counts the whole header each way (section 6.2, Algorithm 1): 4 rows of 3.
        assert [method.published_words(message, now) for message in (down, up)] == [12, 12]


def uploads_of(method: Any, values: dict[int, np.ndarray], built: Federation) -> list[Upload]:
    """What clients with these headers upload, in this order of arrival."""
    uploads = []
    for id, header in values.items():
        write(built.clients[id].model.header, header)
        client = built.clients[id]
        uploads.append(Upload(client.info, Message(method._upload(client.model.header, client.classes))))
    return uploads


def test_fedssa_aggregates_by_class_over_the_selected() -> None:
    built, method = still(), FedSSA()
    server, now = method.init_server(context(built)), context(built)
    start, (a, b, c) = rows(server), headers(3)
    method.aggregate(server, uploads_of(method, {2: c, 0: a, 1: b}, built), now)
    expected = np.stack([(a[0] + c[0]) / 2, (a[1] + b[1] + c[1]) / 3, b[2], start[3]])
    np.testing.assert_allclose(rows(server), expected, atol=1e-6)
    method.aggregate(server, uploads_of(method, {1: 2 * b}, built), now)  # class 0 keeps its row
    np.testing.assert_allclose(rows(server), [expected[0], 2 * b[1], 2 * b[2], start[3]], atol=1e-6)


def test_fedssa_aggregates_over_all_owners() -> None:
    built, method = still(), FedSSA(aggregate_over="all")
    server, now = method.init_server(context(built)), context(built)
    start, (a, b) = rows(server), headers(2)
    method.aggregate(server, uploads_of(method, {0: a}, built), now)  # clients 1 and 2 count with the initial rows
    expected = [(a[0] + start[0]) / 2, (a[1] + 2 * start[1]) / 3, start[2], start[3]]
    np.testing.assert_allclose(rows(server), expected, atol=1e-6)
    method.aggregate(server, uploads_of(method, {1: b}, built), now)  # client 0 counts with what it sent last
    expected = [(a[0] + start[0]) / 2, (a[1] + b[1] + start[1]) / 3, b[2], start[3]]
    np.testing.assert_allclose(rows(server), expected, atol=1e-6)


@pytest.mark.parametrize("over", ["selected", "all"])
def test_fedssa_aggregates_whole_headers(over: str) -> None:
    built, method = still(), FedSSA(aggregation="whole", aggregate_over=over)
    server, now = method.init_server(context(built)), context(built)
    start, (a, b) = rows(server), headers(2)
    method.aggregate(server, uploads_of(method, {0: a, 1: b}, built), now)
    expected = (a + b) / 2 if over == "selected" else (a + b + start) / 3
    np.testing.assert_allclose(rows(server), expected, atol=1e-6)


def test_fedssa_ablations() -> None:
    """Case 4 A, all of equal size, is LG-FedAvg; 5 B leaves unseen rows to the client, 5 A does not."""
    labels = ([0, 1], [1, 2], [2, 0])
    digests = {}
    for name, method in (
        ("4 A", FedSSA(aggregation="whole", replace="all", mu0=0)),
        ("LG-FedAvg", ALGORITHMS["LG-FedAvg"]()),
        ("5 A", FedSSA(replace="all", mu0=0)),
        ("5 B", FedSSA(mu0=0)),
        ("5 C", FedSSA()),
        ("4 B", FedSSA(aggregation="whole", replace="all")),
    ):
        outcome = simulate(federation(labels), method, 3)
        digests[name] = [client.model.header.weight.detach() for client in outcome.clients]
    flat = {name: torch.cat(values).flatten() for name, values in digests.items()}
    assert torch.allclose(flat["4 A"], flat["LG-FedAvg"], atol=1e-6)
    names = [name for name in flat if name != "LG-FedAvg"]
    for i, one in enumerate(names):
        for other in names[:i]:
            assert not torch.allclose(flat[one], flat[other], atol=1e-4), (one, other)


# ------------------------------------------------------------------------------------------------------- FedGH

LARS = {  # client -> (representations of its classes, classes), in order of arrival
    2: (np.array([[0.5, -1.0], [2.0, 0.25]]), [1, 0]),
    0: (np.array([[-0.75, 1.5]]), [1]),
}


def trained_header(**switches: Any) -> tuple[np.ndarray, np.ndarray]:
    built, method = still(), FedGH(server_lr=0.3, **switches)
    now = context(built)
    server = method.init_server(now)
    uploads = [
        Upload(built.clients[id].info, Message({"lars": torch.tensor(lars).float(), "classes": torch.tensor(classes)}))
        for id, (lars, classes) in LARS.items()
    ]
    before = {name.removeprefix("header."): tensor.clone() for name, tensor in server.items()}
    method.aggregate(server, uploads, now)
    return rows(before), rows({name.removeprefix("header."): tensor for name, tensor in server.items()})


def step(header: np.ndarray, lars: np.ndarray, classes: list[int]) -> np.ndarray:
    """One step at 0.3 on the mean CE of H(LAR) = W LAR + b."""
    inputs = np.concatenate([lars, np.ones((len(lars), 1))], 1)
    return header - 0.3 * cross_entropy_slope(inputs @ header.T, np.array(classes)).T @ inputs


def test_fedgh_takes_one_step_a_lar_in_order_of_arrival() -> None:
    before, after = trained_header()
    expected = before
    for lars, classes in LARS.values():
        for lar, label in zip(lars, classes, strict=True):
            expected = step(expected, lar[None], [label])
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert np.abs(after - before).max() > 0.01


def test_fedgh_minibatch_takes_one_step_on_the_mean() -> None:
    before, after = trained_header(server_update="minibatch")  # B is larger than the number of LARs
    lars = np.concatenate([lars for lars, _ in LARS.values()])
    np.testing.assert_allclose(after, step(before, lars, [1, 0, 1]), atol=1e-6)


def test_fedgh_frozen_changes_nothing() -> None:
    before, after = trained_header(server_update="frozen")
    assert np.array_equal(before, after)


def test_fedgh_first_header() -> None:
    built = still()
    for first, sent in (("global", True), ("own", False)):
        method = FedGH(first_header=first)
        server = method.init_server(context(built))
        assert bool(method.download(server, built.clients[0].info, context(built, 0)).tensors) == sent
        assert method.download(server, built.clients[0].info, context(built, 1)).words() == 3 * CLASSES
    own = built.clients[0].model.header.weight.detach().clone()
    visit(method, built.clients[0], Message(), built)
    assert torch.equal(built.clients[0].model.header.weight, own)


@pytest.mark.parametrize("lars", ["plain", "augmented"])
def test_fedgh_lars_of_augmented_images(lars: str) -> None:
    """The first draws of the client's stream are training's, the second the LARs'; the short Eq. 3 mean by hand."""
    built = federation(SEEN, classes=CLASSES, lr=0, augmentation="released")
    client = built.clients[0]
    upload = visit(FedGH(lars=lars), client, Message(), built)
    stream = generator(0, "augmentation", 0, 0)
    images = client.pool.batch(client.train)
    augmented(images, stream)
    if lars == "augmented":
        images = augmented(images, stream)
    features = images[:, 0, 0, :2].double().numpy() @ client.model.extractor[1].weight.detach().double().numpy().T
    expected = [features[:2].mean(0), features[2]]  # labels 0, 0, 1
    np.testing.assert_allclose(upload["lars"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "field", "allowed"),
    [
        (FedSSA, "fusion", "literal, convex"),
        (FedSSA, "aggregate_over", "selected, all"),
        (FedSSA, "aggregation", "by_class, whole"),
        (FedSSA, "replace", "seen, all"),
        (FedGH, "server_update", "per_lar, minibatch, frozen"),
        (FedGH, "first_header", "global, own"),
        (FedGH, "lars", "plain, augmented"),
    ],
)
def test_a_wrong_switch_says_what_is_known(method: Any, field: str, allowed: str) -> None:
    with pytest.raises(FedlibError, match=f"{field} = 'x' is unknown: known are {allowed}"):
        method(**{field: "x"})
