"""What every method is held to, a test a column: it does it, or REFUSED has the one line that it says instead."""

import itertools
import multiprocessing
import os
import signal
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pretend
import processes
import pytest
import tiny
import torch
from elsewhere import Elsewhere, of_resolved, over_bytes
from processes import bits
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedlib import (
    ALGORITHMS,
    Dataset,
    Federation,
    FedlibError,
    Model,
    RunSpec,
    data,
    lab,
    models,
    run,
    simulate,
    simulation,
    training,
)
from fedlib.algorithms import Standalone, make, register
from fedlib.algorithms.base import Algorithm
from fedlib.lab import checkpoint, clientfiles, costs
from fedlib.lab.records import Predictor
from fedlib.sample import KINDS
from fedlib.simulation import Outcome

WHOLE = [name for name, method in ALGORITHMS.items() if method.needs == "architecture"]
FEATURES = [name for name, method in ALGORITHMS.items() if method.needs == "features"]
METHODS = pytest.mark.parametrize("name", ALGORITHMS)
PARAMS: dict[str, dict[str, Any]] = {"pFedHR": {"clusters": 2}}  # of two clients' layers, so that there are candidates
# Methods with a network of their own, and its name.
SHARED = {"FML": "shared", "FedKD": "shared", "FedMRL": "shared", "FedKEMF": "knowledge"}


def all_but(*names: str) -> Any:
    return pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in names])


def asked(name: str, **changes: Any) -> RunSpec:
    """Three rounds with two of five clients each, so that some come back and some never come."""
    scenario = "homogeneous" if name in WHOLE else "heterogeneous"
    usual = {"scenario": scenario, "num_clients": 5, "participation": 0.4, "rounds": 3, "public_images": 16}
    return RunSpec(name, **{"dataset": "digits", "params": PARAMS.get(name, {})} | usual | changes)


def trained(name: str, **changes: Any) -> Outcome:
    return of_resolved(lab.resolve(asked(name, **changes)))


def narrow(num_classes: int, channels: int) -> Model:
    return Model(nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * channels, 7)), nn.Linear(7, num_classes))


@pytest.fixture(autouse=True)
def own_networks(registries: None) -> None:
    """`narrow`, whose header reads 7 features, beside networks whose header reads 500."""
    models.register("narrow", narrow)


# ------------------------------------------------------------------------------------------------ what is refused

TODAYS = "ResNet-4,MobileNet-V3-S,ViT-T"
VECTORS = {"dataset": "har", "scenario": "MLP", "public_images": None}  # of which there are no data here
PICTURES = "takes images, and these samples are vectors (561,)"
REFUSED: list[tuple[str, dict[str, Any], str]] = [  # method, what it is asked for, the line
    *((name, {"scenario": "heterogeneous"}, "same architecture; got CNN-1, CNN-2") for name in WHOLE),
    *((name, {"scenario": "CNN-5,narrow"}, "for all clients; got {'CNN-5': 500, 'narrow': 7}") for name in FEATURES),
    ("pFedHR", {"isolated": True}, "isolated = True: must be False for pFedHR, which makes a client's teacher"),
    *((name, VECTORS | {"params": {SHARED[name]: "CNN-5"}}, f"{name} {SHARED[name]} = 'CNN-5': {PICTURES}: use MLP")
      for name in ("FML", "FedKD", "FedKEMF")),
    ("FedSSA", VECTORS | {"scenario": "heterogeneous"}, f"architecture = 'CNN-1': {PICTURES}"),
    ("FedAvg", VECTORS | {"scenario": "fastText"}, "architecture = 'fastText': takes token ids, and these samples are"),
    ("pFedES", VECTORS, "algorithm = 'pFedES': needs images, and these samples are vectors (561,)"),
]  # fmt: skip
# What only a run finds out.
REFUSED_WHILE_RUNNING = [
    (
        "pFedHR",
        {"scenario": TODAYS, "params": {}},
        "must be at most 2, as a candidate has a layer of each group; layers by model: {",
    ),
    ("FedL2G", {"scenario": "MobileNet-V3-S"}, "needs second derivatives, and a layer of the network has none"),
]


@pytest.mark.parametrize(("name", "fields", "line"), [*REFUSED, *REFUSED_WHILE_RUNNING])
def test_refused(name, fields, line, home, small_digits):
    with pytest.raises(FedlibError) as error:
        run(asked(name, **fields), progress=False)
    assert line in str(error.value) and "\n" not in str(error.value)
    if (name, fields, line) in REFUSED:
        assert not list(home.rglob("spec.json"))  # before anything is stored


# ---------------------------------------------------------------------------------------------------- each scenario

FORTY = {
    "num_clients": 40,
    "participation": 0.05,
    "batch_size": 64,
    "keep": "clients",
}  # 2 a round, with 36 images or so


def arrivals(seed: int) -> list[list[int]]:
    """The clients of each round of FORTY."""
    return [simulation.sampled_clients(seed, t, 40, 0.05).tolist() for t in range(3)]


@cache
def seed() -> int:
    """The first seed under which the third round has a client of the first and one of the second."""
    for number in range(1000):
        one, two, three = (set(sampled) for sampled in arrivals(number))
        if not one & two and one & three and two & three:
            return number
    raise AssertionError("rounds sample alike")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Method, what it is asked for -> its record, computed in this process the first time it is asked for."""
    folder = tmp_path_factory.mktemp("undisturbed")

    def record(name: str, **fields: Any) -> lab.Record:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDLIB_HOME", str(folder))
            return run(asked(name, **FORTY, seed=seed(), **fields), progress=False)

    return record


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "scenario"),
    [*((name, "homogeneous") for name in ALGORITHMS), *((n, "heterogeneous") for n in ALGORITHMS if n not in WHOLE)],
)
def test_scenario(name, scenario, undisturbed):
    """On one architecture and on five: the rows of two clients a round, and networks that predict what was measured."""
    record = undisturbed(name, scenario=scenario)
    assert record.status == "finished" and not record.stale and record.spec.algorithm == name
    assert record.rounds["round"].tolist() == [-1, 0, 1, 2]
    before, rounds = record.rounds.iloc[0], record.rounds.iloc[1:]
    assert np.isfinite(rounds["loss"]).all() and np.isnan(before["loss"])
    assert rounds["selected"].eq(2).all() and rounds["visited"].tolist() == [2, 4, 4]
    accuracies = record.rounds.filter(like="accuracy")
    assert accuracies.columns[0] == "accuracy" and np.isfinite(record.rounds["accuracy"]).all()
    assert (accuracies.isna() | ((accuracies >= 0) & (accuracies <= 1))).all(axis=None)
    words = rounds[["download_words", "upload_words", "published_words"]]
    assert (words.iloc[-1] > 0).all() if ALGORITHMS[name].exchanges != "nothing" else (words == 0).all(axis=None)
    if name != "FedSSA":  # its paper counts the padding of unseen rows, which is not sent
        assert (rounds["published_words"] <= rounds["download_words"] + rounds["upload_words"]).all()
    clients = record.clients.query("round >= 0")
    assert clients.groupby("round")["client"].apply(list).tolist() == arrivals(seed())
    assert np.allclose(clients.groupby("round")["loss"].mean(), rounds["loss"])
    turns = models.SCENARIOS[scenario]
    assert clients["architecture"].tolist() == [turns[id % len(turns)] for id in clients["client"]]
    assert len(record.clients) == 40 + 2 * 3
    final, federation = record.final().set_index("client")["accuracy"], lab.federation_of(lab.resolve(record.spec))
    for client in (federation.clients[id] for id in arrivals(seed())[-1]):
        model, labels = record.client(client.id), federation.pool.labels[client.test]
        assert not model.training and isinstance(model, Predictor if name == "FedMRL" else Model)
        predicted = training.outputs(model, client.pool, client.test).argmax(1)
        assert float((predicted == labels).double().mean()) == final[client.id]


@pytest.mark.thorough
@all_but(*WHOLE, *FEATURES)
def test_unequal_feature_widths(name, small_digits):
    assert trained(name, scenario="CNN-5,narrow", rounds=1).status == "finished"


def normed(num_classes: int, channels: int) -> Model:
    layers = [nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * channels, 7), nn.BatchNorm1d(7), nn.ReLU()]
    return Model(nn.Sequential(*layers), nn.Linear(7, num_classes))


def on(architecture: str, name: str) -> Algorithm:
    """The method, sharing this network where it shares one beside the clients'."""
    shared = {SHARED[name]: architecture} if name in SHARED else {}
    return make(name, shared | ({"clusters": 1, "server_epochs": 1, "max_candidates": 2} if name == "pFedHR" else {}))


@pytest.mark.thorough
@METHODS
def test_no_image_is_alone_in_batch_normalisation(name, small_digits):
    """Clients of 9, 5 and 1 training images and 9 public ones in batches of 4; what is counted stays a whole number."""
    models.register("normed", normed)
    cuts = np.cumsum([9, 5, 1, *[1] * 6])
    nine, five, one, *rest = np.split(np.arange(cuts[-1]), cuts[:-1])
    parts = [(own, rest[2 * place], rest[2 * place + 1]) for place, own in enumerate((nine, five, one))]
    built = Federation(small_digits, parts, ["normed"], batch_size=4, public=np.arange(50, 59))
    outcome = simulate(built, on("normed", name), 2)
    assert outcome.status == "finished" and np.isfinite([row["loss"] for row in outcome.round_rows[1:]]).all()

    def whole(value: Any, key: str = "") -> list[bool]:
        if isinstance(value, dict):
            return [found for name, part in value.items() for found in whole(part, str(name))]
        return [not value.is_floating_point()] if key.endswith("num_batches_tracked") else []

    states = [outcome.server, *(client.snapshot() for client in outcome.clients)]
    found = [each for state in states for each in whole(state)]
    assert len(found) >= 3 and all(found)


# ----------------------------------------------------------------------------------------- data of every kind and shape

SHAPES = {  # of a sample -> its kind and the built-in network for it
    (1, 28, 28): ("image", "CNN-5"),
    (3, 32, 32): ("image", "CNN-5"),
    (3, 64, 64): ("image", "CNN-5"),
    (2, 20, 44): ("image", "CNN-5"),
    (561,): ("vector", "MLP"),
    (1,): ("vector", "MLP"),
    (9, 128): ("series", "CNN-1D"),
    (16,): ("tokens", "fastText"),
}
# A method of each kind of exchange, on each kind of data.
SAMPLE = [
    ("FedSSA", (561,), "float32"),
    ("FedAvg", (9, 128), "float32"),
    ("FedGH", (16,), "int64"),
    ("FML", (9, 128), "float32"),
    ("FedMD", (561,), "uint8"),
    ("FedProto", (1, 28, 28), "uint8"),
    ("pFedES", (1, 28, 28), "float32"),
    ("pFedES", (561,), "float32"),
    ("pFedHR", (16,), "int64"),
    ("Standalone", (3, 32, 32), "int64"),
]


def shaped(name: str, shape: tuple[int, ...], dtype: str, **changes: Any) -> RunSpec:
    """A run on 48 such samples, which are registered."""
    kind, network = SHAPES[shape]
    stream, labels = np.random.default_rng(0), np.arange(48) % 4
    drawn = stream.normal(3, 5, (48, *shape)) if dtype == "float32" else stream.integers(0, 200, (48, *shape))
    values = drawn.astype(dtype)
    made = Dataset.from_arrays("shaped", values[:40], labels[:40], values[40:], labels[40:], 4, kind=kind)
    data.register("shaped", lambda: made)
    usual = {"rounds": 2, "local_epochs": 1, "batch_size": 8, "classes_per_client": 2, "public_fraction": 0.3}
    if name == "pFedHR":
        usual["params"] = {"clusters": 2, "server_epochs": 1, "max_candidates": 2}
    usual["scenario"] = "M3" if name == "pFedHR" and kind == "image" else network
    return RunSpec(name, dataset="shaped", num_clients=2, participation=1.0, **usual | changes)


def marked(name: str, shape: tuple[int, ...], dtype: str, precision: str) -> Any:
    """What is no sample is slow, and for `make nightly` in bf16, which takes long without instructions for it, and
    where it trains on images, as every method does in other tests too.
    """
    nightly = precision == "bf16" or (SHAPES[shape][0] == "image" and dtype != "int64")
    marks = [] if (name, shape, dtype) in SAMPLE else pytest.mark.nightly if nightly else pytest.mark.slow
    return pytest.param(name, shape, dtype, precision, marks=marks)


CASES = itertools.product(ALGORITHMS, SHAPES, ("uint8", "float32", "int64"), ("fp32", "bf16"))


@pytest.mark.parametrize(("name", "shape", "dtype", "precision"), [marked(*case) for case in CASES])
def test_kind_and_shape(name, shape, dtype, precision):
    """It learns finite numbers, or one line says that it needs images, or what samples of the kind are made of."""
    kind = SHAPES[shape][0]
    wrong = (dtype == "int64") != (kind == "tokens") and not (kind == "tokens" and dtype == "uint8")
    unfit = kind != "image" and ALGORITHMS[name].needs == "images"
    try:
        outcome = of_resolved(lab.resolve(shaped(name, shape, dtype, precision=precision), "smoke"))
    except FedlibError as error:
        line = str(error)
        assert (wrong or unfit) and "\n" not in line and ("needs images" in line or "images' dtype" in line), line
        assert unfit or KINDS[kind].dtypes[0] in line
    else:
        assert not wrong and not unfit
        assert outcome.status == "finished" and np.isfinite(outcome.round_rows[-1]["accuracy"])


def test_a_preset_for_pictures_leaves_other_data_as_they_are():
    protocol = lab.resolve(shaped("Standalone", (561,), "float32", paper="pFedHR"), "smoke").protocol
    assert (protocol.normalise, protocol.augmentation) == ("dataset", "none")


# -------------------------------------------------------------------------------------------- resumed to the same bits


def at_visit(number: int, signal_number: int) -> tuple[Any, list[int]]:
    """A stand-in for `simulation._hits` that sends this process a signal when the `number`-th client has trained, and
    the list of clients that it sees.
    """
    whole, seen = simulation._hits, []

    def hits(algorithm: Any, client: Any, num_classes: int) -> Any:
        seen.append(client.id)
        if len(seen) == number:
            os.kill(os.getpid(), signal_number)
        return whole(algorithm, client, num_classes)

    return hits, seen


def run_until_killed(spec: RunSpec, home: str, visit: int) -> None:
    """In a process of its own: a checkpoint after each round, clients in files, and SIGKILL amid a round."""
    os.environ["FEDLIB_HOME"] = home
    checkpoint.CHECKPOINT_SECONDS = 0.0
    clientfiles.MEMORY = 0
    simulation._hits, _ = at_visit(visit, signal.SIGKILL)
    run(spec, progress=False)


@pytest.fixture(scope="module")
def warm():
    """Processes fork from one that has imported everything (torch._dynamo is what the first optimiser imports) and
    trained nothing: where there is an accelerator, a fork of a process that has trained cannot train.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["__main__", "fedlib", "sklearn.datasets", "sklearn.model_selection", "torch._dynamo"]
    )
    return context


MORE = [("FedSSA", {"isolated": True}), ("FedProto", {"newcomers": 2, "newcomer_visits": 1})]


@pytest.mark.thorough(None)
@pytest.mark.parametrize(("name", "more"), [*((name, {}) for name in ALGORITHMS), *MORE], ids=str)
def test_interrupted_then_killed_then_resumed(name, more, undisturbed, warm, home, monkeypatch, capfd):
    """Ctrl-C in the first round; resumed elsewhere and killed inside the third; resumed here for the third, and for
    what newcomers make of it. Each client goes to its file and back.
    """
    scenario = "homogeneous" if name in WHOLE else "heterogeneous"
    whole = undisturbed(name, scenario=scenario, **more)
    spec = whole.spec
    monkeypatch.setattr(clientfiles, "MEMORY", 0)
    with monkeypatch.context() as patch:
        hits, seen = at_visit(1, signal.SIGINT)
        patch.setattr(simulation, "_hits", hits)
        with pytest.raises(lab.Interrupted, match="stopped after round 1 of 3"):
            run(spec, progress=False)
        assert len(seen) == 2  # the round was finished

    process = warm.Process(target=run_until_killed, args=(spec, str(home), 3), daemon=True)
    process.start()
    process.join(processes.SECONDS)
    assert process.exitcode == -signal.SIGKILL

    hits, seen = at_visit(0, signal.SIGINT)
    monkeypatch.setattr(simulation, "_hits", hits)
    record = run(spec, progress=False)
    assert bits(record.path) == bits(whole.path) and record.newcomers.equals(whole.newcomers)
    visits = [whole.clients.query("round == 2"), whole.newcomers.query("visits >= 0") if more == MORE[1][1] else None]
    assert seen == pd.concat(visits)["client"].tolist()
    assert not (record.path / "checkpoint.pt").exists()
    assert "corrupted" not in capfd.readouterr().err


# --------------------------------------------------------------------------------------- messages and states as bytes


SWITCHED = {
    "FML": {"score_shared": True},
    "FedKD": {"score_shared": True},
    "pFedHR": {"public_only": True},
    "FedL2G": {"space": "features", "warm_up": 0.5},
}


@pytest.mark.thorough("FedSSA", "FedGH")
@pytest.mark.parametrize(("name", "switched"), [*((name, {}) for name in ALGORITHMS), *SWITCHED.items()], ids=str)
def test_clients_elsewhere_give_the_same_bits(name, switched, small_digits):
    over_bytes(lab.resolve(asked(name, params=PARAMS.get(name, {}) | switched)))


LARGE = "ResNet-18,MobileNet-V2,ViT-T"
MIXES = [(name, mix) for name in ALGORITHMS if name not in (*WHOLE, "pFedHR") for mix in (TODAYS, LARGE)]
MIXES.remove(("FedL2G", TODAYS))  # refused, see above
MIXES += [("FedProto", "ResNet-4,MobileNet-V3-S"), *(("FedAvg", name) for name in TODAYS.split(","))]
MIXES += [(name, "ResNet-18") for name in WHOLE if name != "FedAvg"]


def marked_mix(name: str, mix: str) -> Any:
    """Half a minute a method, and minutes with ResNet-18 and MobileNet-V2: all but FedProto are for `make nightly`."""
    slow = pytest.mark.slow if name == "FedProto" and "ResNet-18" not in mix else pytest.mark.nightly
    return pytest.param(name, mix, marks=[] if (name, mix) == ("FedAvg", "ResNet-4") else slow)


@pytest.mark.parametrize(("name", "mix"), [marked_mix(*case) for case in MIXES])
def test_networks_of_today_resume_and_travel(name, mix, small_digits, tmp_path):
    params = {SHARED[name]: "ResNet-4"} if name in SHARED and name != "FedMRL" else {}
    params |= {"server_epochs": 1} if name == "FedKEMF" else {}
    size = {"num_clients": 3, "participation": 1.0, "rounds": 2, "batch_size": 16, "classes_per_client": 4}
    found = lab.resolve(asked(name, scenario=mix, params=params, **size))
    path = tmp_path / "checkpoint.pt"
    resumed = tiny.stopped_and_resumed(lambda: lab.federation_of(found), found.simulated, 2, path)
    assert len(list(clientfiles.folder_of(path).iterdir())) == len(resumed.round_rows) == 3
    assert resumed.digest() == over_bytes(found).digest()


# ------------------------------------------------------------------------------------------ isolated, new, in any order


def alike(one: Outcome, other: Outcome) -> None:
    """The same numbers and networks of every client, to the bit."""
    numbers = [[{name: row[name] for name in row if name != "mu"} for row in out.client_rows] for out in (one, other)]
    assert repr(numbers[0]) == repr(numbers[1])
    assert [client.visited for client in one.clients] == [client.visited for client in other.clients]
    assert tiny.same_models(one, other)


@pytest.mark.thorough
@all_but("pFedHR")  # refused
def test_in_the_first_round_a_method_and_its_isolated_self_are_equal(name, small_digits):
    together, alone = (trained(name, rounds=1, batch_size=32, isolated=isolated) for isolated in (False, True))
    alike(together, alone)
    row = alone.round_rows[-1]
    assert row["download_words"] == row["upload_words"] == row["published_words"] == 0
    for client in alone.clients:
        if client.visited:  # it is stored and travels with the client
            assert tiny.posted(client.snapshot()).keys() == {"model", "state"}


@pytest.mark.thorough(None)
@pytest.mark.parametrize("name", ["FedAvg", "LG-FedAvg", "FD"])
def test_who_only_averages_is_standalone_when_isolated(name, small_digits):
    """From equal starts: the mean of one model is that model; of others' outputs, without one's own, there are none."""
    params = {"exclude_self": True} if name == "FD" else {}
    equal = {"scenario": "homogeneous", "batch_size": 32}
    alike(trained(name, params=params, isolated=True, **equal), trained("Standalone", **equal))


@METHODS
def test_newcomer(name):
    """A client that is in no round has numbers after each number of visits, and public images stay as they were."""
    federation = tiny.federation_of(tiny.LABELS, public=6, newcomer_visits=2)
    (new,), images = federation.newcomers, federation.pool.stored.clone()
    outcome = simulate(federation, on("tiny", name), 2)
    table = pd.DataFrame(outcome.newcomer_rows)
    assert outcome.status == "finished" and table["visits"].tolist() == [-1, 0, 1, 2] and set(table["client"]) == {new}
    assert new not in {row["client"] for row in outcome.client_rows if row["round"] >= 0}
    assert table["accuracy"].between(0, 1).all() and table["loss"].notna().tolist() == [False, False, True, True]
    assert (table["download_words"].iloc[1:] > 0).all() == (name not in ("Standalone", "pFedHR"))
    assert torch.equal(images, federation.pool.stored)
    if name in ("Standalone", "FedProto", "FD", "pFedHR"):  # their download leaves the network as it is
        assert table["accuracy"].iloc[0] == table["accuracy"].iloc[1]


@all_but("FedGH")  # which depends on it, as its paper says
def test_the_order_of_arrival_does_not_matter(name):
    tiny.arrival_order_matters_at_most(on("tiny", name))


# ------------------------------------------------------------------------------------------- divergence and arithmetic


@pytest.mark.thorough
@pytest.mark.parametrize(("lr", "elsewhere"), [(1e9, False), (1e38, False), (1e38, True)])
@METHODS
def test_a_step_too_far_in_the_last_round_ends_as_diverged(name, lr, elsewhere, small_digits):
    """One batch, one round: the loss is that of the initial model, and only what the step leaves is not finite."""
    found = lab.resolve(asked(name, rounds=1, lr=lr, batch_size=1000))
    outcome = of_resolved(found, **{"exchange": Elsewhere(found)} if elsewhere else {})
    assert outcome.status == "diverged" and len(outcome.round_rows) == 2


# The golden digests hold bf16's numbers to the last digit, those of most methods in `make slow`.
@pytest.mark.thorough("FedSSA", "FedGH", others="nightly")
@METHODS
def test_bf16_follows_float32(name, small_digits):
    """Two rounds, whose losses are the same up to bf16's rounding."""
    one, other = (trained(name, rounds=2, precision=precision) for precision in ("fp32", "bf16"))
    assert other.status == "finished" and one.digest() != other.digest()
    losses = [lab.rounds_of(outcome)["loss"].iloc[1:].to_numpy() for outcome in (one, other)]
    np.testing.assert_allclose(*losses, rtol=0.05)


# The host waits when a round is over, for accuracy, validation accuracy and loss of each visit (another accuracy or
# number is one more, and so is a mask of the classes that the server knows), and twice a round: is the server's state
# finite, how many rows has each class. FedKD looks at singular values, pFedHR's server at the similarity of layers.
WAITS_A_VISIT = {"FD": 4, "FedProto": 5, "FedTGP": 5, "FedL2G": 4, "FedKD": 50, "pFedHR": 70}
ALWAYS = ("Standalone", "FedSSA", "FedProto")


@pytest.mark.thorough(*ALWAYS)
@METHODS
def test_it_runs_on_a_gpu_and_seldom_waits_for_it(name, small_digits):
    """Two rounds with two clients each on a device that is pretended."""
    params = {"clusters": 2, "server_epochs": 1, "max_candidates": 2} if name == "pFedHR" else {}
    scenario = "homogeneous-M1" if name in WHOLE else "heterogeneous"
    cuda = pretend.simulated(make(name, params), algorithm=name, scenario=scenario)
    waits, copies = cuda.waits_inside, cuda.copies_inside
    assert not waits["train"] and not waits["step"], waits
    assert waits["_round"].total() <= WAITS_A_VISIT.get(name, 3) * 4 + 2 * 2, waits
    assert not copies["step"], copies
    if name in ALWAYS:  # an epoch's order and the draws of its augmentation
        assert 0 < copies["train"].total() <= 2 * 4, copies


# ---------------------------------------------------------------------------------------------- what a round costs

WEIGHTS = (5_243_116, 5_333_296)  # twice CNN-1
SMALL = (1_340_116, 1_430_296)  # twice CNN-5
SIX_POINT_TWO = (10_020, 100_200)  # 2 C (d + 1)
# In a steady state, CIFAR-10 with 2 of 10 classes and CIFAR-100 with 10 of 100, d = 500: as published, as sent.
WORDS = {
    "Standalone": ((0, 0), (0, 0)),
    "FedAvg": (WEIGHTS, WEIGHTS),
    "FedProx": (WEIGHTS, WEIGHTS),
    "Per-FedAvg": (WEIGHTS, WEIGHTS),
    "pFedMe": (WEIGHTS, WEIGHTS),
    "pFedBayes": ((10_486_232, 10_666_592), (10_486_232, 10_666_592)),  # a mean and a spread of every weight
    "FML": (SMALL, SMALL),
    "LG-FedAvg": (SIX_POINT_TWO, SIX_POINT_TWO),
    "FedClassAvg": (SIX_POINT_TWO, SIX_POINT_TWO),
    "FD": ((40, 2_000), (44, 2_020)),  # 2 |S| C, and the class ids
    "FedProto": ((2_000, 10_000), (2_004, 10_020)),  # 2 |S| d, and the class ids
    "FedMD": ((2 * 20 * 10, 2 * 20 * 100), (420, 4_020)),  # 2 P C, and the indices
    "FCCL": ((2 * 20 * 10, 2 * 20 * 100), (420, 4_020)),
    "FedKEMF": (SMALL, SMALL),
    "FedGH": ((6_002, 55_010), (6_012, 55_110)),  # |S| d + |S| + d C, and the bias
    "FedSSA": (SIX_POINT_TWO, (2_006, 10_030)),  # section 6.2; 2 |S| (d + 1), and the class ids up
    "pFedES": ((886, 886), (886, 886)),  # 2 (3*8*9 + 8 + 8*3*9 + 3)
}


# Thorough, so that the planted faults' runner takes it.
@pytest.mark.thorough(None)
def test_words_in_a_steady_state_round():
    words = costs.table(public_samples=20)
    assert list(words.index) == list(ALGORITHMS)
    columns = [f"{data}_{counting}" for counting in ("published", "real") for data in ("cifar10", "cifar100")]
    assert {name: tuple(words.loc[name, columns]) for name in WORDS} == {n: (*a, *b) for n, (a, b) in WORDS.items()}
    # FedKD: how much less depends on the data: at least a factor of rank 1 a matrix, and the biases, each way
    matrices, biases = [(16, 75), (32, 400), (500, 800), (500, 500), (10, 500)], 16 + 32 + 500 + 500 + 10
    least = biases + sum(rows + columns + 1 for rows, columns in matrices)
    assert 2 * least <= words.loc["FedKD", "cifar10_real"] < SMALL[0]


class Narrow(Standalone):
    """Fits one network alone."""

    name = "Narrow"

    def check(self, federation):
        assert set(federation.architectures) == {"mine"}


def assert_priced_at_what_it_runs(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second round computes, by a counter around each step of the method."""
    run, found = lab.resolve(spec, "smoke"), []

    def watched(step):
        def within(*given):
            with FlopCounterMode(display=False) as counter:
                returned = step(*given)
            found.append(counter.get_total_flops() if given[-1].round == 1 else 0)
            return returned

        return within

    for name in ("init_client", "download", "local_round", "aggregate"):
        monkeypatch.setattr(type(run.algorithm), name, watched(getattr(type(run.algorithm), name)))
    outcome = simulate(lab.federation_of(run), run.simulated, 2)
    monkeypatch.undo()
    first, both = costs.of_outcome(outcome, run.simulated)
    assert both - first == pytest.approx(sum(found), rel=0.01)


UNEVEN = {"partition": "dirichlet", "alpha": 0.5, "num_clients": 4, "participation": 1.0, "rounds": 2, "batch_size": 16}


@pytest.mark.thorough("FedGH", "FML", "Per-FedAvg", "FedKEMF")
@all_but("pFedHR", "FedKD")  # depend on the weights: which candidates there are, which ranks are kept
def test_a_method_is_priced_at_what_it_runs(name, small_digits, monkeypatch):
    scenario = "CNN-5" if name in WHOLE else "CNN-2,CNN-5,CNN-1"
    spec = RunSpec(name, dataset="digits", scenario=scenario, local_epochs=2, **UNEVEN)
    assert_priced_at_what_it_runs(spec, monkeypatch)


KINDS_OF_NETWORK = [
    *itertools.product(("MLP", "CNN-1D", "fastText", "CNN-5"), ["FedProto", "FML"]),
    *(("ResNet-4,MobileNet-V2", name) for name in ("FML", "FedMRL", "FD")),
    ("mine", "Narrow"),
]


@pytest.mark.thorough("MLP", "mine")
@pytest.mark.parametrize(("scenario", "name"), KINDS_OF_NETWORK)
def test_networks_of_every_kind_are_priced_at_what_they_run(scenario, name, small_digits, monkeypatch):
    register(Narrow)
    models.register("mine", lambda num_classes, channels: models.cnn("CNN-5", num_classes, channels))
    spec = RunSpec(name, dataset="digits", scenario=scenario, **UNEVEN)
    shapes = {"MLP": (561,), "CNN-1D": (9, 128), "fastText": (16,), "CNN-5": (1, 28, 28)}
    if scenario in shapes:
        spec = shaped(name, shapes[scenario], "int64" if scenario == "fastText" else "float32")
    assert_priced_at_what_it_runs(spec, monkeypatch)
