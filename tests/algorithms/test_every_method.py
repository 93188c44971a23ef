"""What every method must do: run, refuse what it cannot, resume, repeat, diverge, and not mind the order of arrival."""

import dataclasses
import itertools
import multiprocessing
import os
import re
import signal
from functools import cache
from typing import Any

import numpy as np
import processes
import pytest
import tiny
import torch
from processes import bits
from torch import nn

from fedlib import ALGORITHMS, Federation, FedlibError, Model, RunSpec, lab, models, run, simulate, simulation
from fedlib.algorithms.base import Algorithm
from fedlib.federation import Message
from fedlib.lab import checkpoint, clientfiles

NUM_CLIENTS, PARTICIPATION, ROUNDS = 40, 0.05, 3  # 2 clients a round, with 36 training images or so
PARAMS = {"pFedHR": {"clusters": 2}}  # of two clients' layers, so that there are candidates


def arrivals(seed: int) -> list[list[int]]:
    """The clients of each round."""
    return [simulation.sampled_clients(seed, t, NUM_CLIENTS, PARTICIPATION).tolist() for t in range(ROUNDS)]


@cache
def seed() -> int:
    """The first seed under which the third round has a client of the first and one of the second."""
    for number in itertools.count():
        one, two, three = (set(sampled) for sampled in arrivals(number))
        if not one & two and one & three and two & three:
            return number
    raise AssertionError


def scenarios(name: str) -> list[str]:
    """Those that a method supports."""
    return ["homogeneous"] if ALGORITHMS[name].needs == "architecture" else ["heterogeneous", "homogeneous"]


def spec(name: str, scenario: str | None = None, **changes: Any) -> RunSpec:
    small = RunSpec(
        algorithm=name,
        dataset="digits",
        scenario=scenario or scenarios(name)[0],
        num_clients=NUM_CLIENTS,
        participation=PARTICIPATION,
        rounds=ROUNDS,
        batch_size=64,
        seed=seed(),
        public_images=16,
        params=PARAMS.get(name, {}),
    )
    return dataclasses.replace(small, **changes)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Method, scenario -> its record, computed in this process the first time it is asked for."""
    folder = tmp_path_factory.mktemp("undisturbed")

    def record(name: str, scenario: str | None = None) -> lab.Record:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDLIB_HOME", str(folder))
            return run(spec(name, scenario), progress=False)

    return record


# ------------------------------------------------------------------------------------------------ what it can do


@pytest.mark.thorough("Standalone", "FedProto", "FedSSA", "FedGH")
@pytest.mark.parametrize(
    ("name", "scenario"), [(name, scenario) for name in ALGORITHMS for scenario in scenarios(name)]
)
def test_runs_in_each_scenario_that_it_supports(name, scenario, undisturbed):
    record = undisturbed(name, scenario)
    assert record.status == "finished" and not record.stale and record.spec.algorithm == name
    assert record.rounds["round"].tolist() == [-1, *range(ROUNDS)]
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
    assert len(record.clients) == NUM_CLIENTS + 2 * ROUNDS


def refusal(name: str, scenario: str) -> str:
    with pytest.raises(FedlibError) as error:
        run(spec(name, scenario), progress=False)
    assert "\n" not in str(error.value) and f"algorithm = {name!r}" in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", [name for name, method in ALGORITHMS.items() if method.needs == "architecture"])
def test_whole_models_are_not_averaged_over_architectures(name, home):
    assert "same architecture; got CNN-1, CNN-2" in refusal(name, "heterogeneous")
    assert not list(home.rglob("spec.json"))  # before anything is stored


def narrow(num_classes: int, channels: int) -> Model:
    return Model(nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * channels, 7)), nn.Linear(7, num_classes))


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name, method in ALGORITHMS.items() if method.needs != "architecture"])
def test_unequal_feature_widths(name, home, monkeypatch):
    """An architecture of one's own whose header reads 7 features, beside CNN-5, whose header reads 500."""
    monkeypatch.setitem(models.BUILDERS, "narrow", narrow)
    monkeypatch.setitem(models.SCENARIOS, "mixed", ("CNN-5", "narrow"))
    if ALGORITHMS[name].needs == "features":
        assert re.search(r"must be equal for all clients; got .*500.*7", refusal(name, "mixed"))
        assert not list(home.rglob("spec.json"))
    else:
        assert run(spec(name, "mixed", rounds=1), progress=False).status == "finished"


WRONG: dict[str, dict[str, list[Any]]] = {
    "FCCL": {"off_diagonal": [-1.0], "intra": [-1.0], "inter": [-1.0], "public_lr": [-1.0], "pretrain_epochs": [0]},
    "FD": {"gamma": [-1.0], "distance": ["kl"], "outputs": ["raw"]},
    "FML": {"shared": ["CNN-6"]},
    "FedClassAvg": {"rho": [-0.1], "reduction": ["max"], "contrast": [-1.0], "temperature": [0.0]},
    "FedGH": {"server_update": ["x"], "first_header": ["x"], "lars": ["x"]},
    "FedKD": {"shared": ["CNN-6"], "reduction": ["mean"]},
    "FedKEMF": {
        "knowledge": ["CNN-9"], "weight": [-1.0], "distance": ["l1"], "temperature": [0.0], "label_weight": [1.0],
        "server_epochs": [-1],
    },
    "FedMD": {"public_samples": [0], "digest_epochs": [0], "pretrain_epochs": [-1]},
    "FedProx": {"mu": [-0.1]},
    "FedSSA": {"fusion": ["x"], "aggregate_over": ["x"], "aggregation": ["x"], "replace": ["x"]},
    "pFedBayes": {"beta": [1.5]},
    "pFedES": {"mu": [-0.1, 1.5], "extractor_epochs": [-1], "extra_epochs": [-1], "output": ["tanh"]},
    "pFedHR": {
        "clusters": [0], "weight": [-1.0], "kd": ["mse"], "teacher": ["never"], "search": ["random"], "max_candidates": [0],
        "crop": [0.0], "stitch_layers": [4], "cka_samples": [-1], "temperature": [0.0], "activations": ["some"],
    },
    "pFedMe": {"inner_steps": [0]},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hyper_parameter_is_one_line_with_its_name_and_value(name):
    for field, values in WRONG[name].items():
        for value in values:
            with pytest.raises(FedlibError, match=rf"^{field} = {value!r}( is unknown|: must be)") as error:
                ALGORITHMS[name](**{field: value})
            assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------------------ the same bits


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
    """In a process of its own: a checkpoint after each round, clients in files, and SIGKILL in the middle of a round."""
    os.environ["FEDLIB_HOME"] = home
    checkpoint.CHECKPOINT_SECONDS = 0.0
    clientfiles.MEMORY = 0
    simulation._hits, _ = at_visit(visit, signal.SIGKILL)
    run(spec, progress=False)


@pytest.fixture(scope="module")
def warm():
    """Processes fork_torch from one that has imported everything (torch._dynamo is what the first optimiser imports) and
    trained nothing: where there is an accelerator, a fork of a process that has trained cannot train.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["__main__", "fedlib", "sklearn.datasets", "sklearn.model_selection", "torch._dynamo"]
    )
    return context


@pytest.mark.thorough(None)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_interrupted_then_killed_then_resumed(name, undisturbed, warm, home, monkeypatch, capfd):
    """Ctrl-C in the first round; resumed elsewhere and killed inside the third; resumed here for the third. Each client
    goes to its file and back.
    """
    expected = bits(undisturbed(name).path)
    monkeypatch.setattr(clientfiles, "MEMORY", 0)
    with monkeypatch.context() as patch:
        hits, seen = at_visit(1, signal.SIGINT)
        patch.setattr(simulation, "_hits", hits)
        with pytest.raises(lab.Interrupted, match="stopped after round 1 of 3"):
            run(spec(name), progress=False)
        assert len(seen) == 2  # the round was finished

    process = warm.Process(target=run_until_killed, args=(spec(name), str(home), 3), daemon=True)
    process.start()
    process.join(processes.SECONDS)
    assert process.exitcode == -signal.SIGKILL

    hits, seen = at_visit(0, signal.SIGINT)
    monkeypatch.setattr(simulation, "_hits", hits)
    record = run(spec(name), progress=False)
    assert seen == arrivals(seed())[2]
    assert bits(record.path) == expected
    assert not (record.path / "checkpoint.pt").exists()
    assert "corrupted" not in capfd.readouterr().err


# ----------------------------------------------------------------------------------------------------------- divergence


@pytest.mark.thorough
@pytest.mark.parametrize("lr", [1e9, 1e38])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_step_too_far_in_the_last_round_ends_as_diverged(name, lr, small_digits):
    """One batch, one round: the loss is that of the initial model, and only what the step leaves is not finite."""
    outcome = small_run(name, rounds=1, lr=lr, batch_size=1000, params=PARAMS.get(name, {}))
    assert outcome.status == "diverged" and len(outcome.round_rows) == 2


@pytest.mark.thorough("model", "upload")
@pytest.mark.parametrize("place", ["model", "state", "upload", "logits", "server"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("loss", [True, False])
def test_whatever_a_round_leaves_is_finite_or_the_run_diverged(place, value, loss, small_digits):
    """One number of one tensor, in a method that trains or that knows no loss; a logit of -inf rules a class out."""

    def spoiling(value, wanted):
        def local_round(self, client, message, context):
            if loss:
                context.train()
            bad = {"deep": [torch.full((2, 2), value if place == wanted else 0.0), torch.arange(3), "text"]}
            if place == "model":
                client.model.header.bias.data[3] += bad["deep"][0][0, 0] if wanted == place else 0
            client.state.update(bad if place == "state" else {})
            return Message({"a": bad["deep"][0]} if place == "upload" else {}, client.num_samples)

        def aggregate(self, server, uploads, context):
            server["nested"] = {"a": torch.full((2,), value if place == wanted == "server" else 0.0)}

        def predict(self, client, images):
            logits = client.model(images)
            ruled_out = torch.zeros_like(logits).index_fill(1, torch.tensor([0]), -torch.inf)
            spoilt = torch.full_like(logits, value if place == wanted == "logits" else 0.0)
            return {"accuracy": logits, "another": logits + ruled_out + spoilt}

        def wrap(method):
            return derived(method, local_round=local_round, aggregate=aggregate, predict=predict)

        return small_run("Standalone", wrap, rounds=1)

    fine, spoilt = spoiling(value, "nothing"), spoiling(value, place)
    assert fine.status == "finished" and np.isfinite(fine.round_rows[-1]["loss"]) == loss
    assert spoilt.status == "diverged"
    assert np.isnan(spoilt.round_rows[-1]["loss"]) == (place != "server" or not loss)


def small_run(name: str, wrap=lambda method: method, rounds: int = 3, **fields):
    """A few rounds of `name` on a few digits, five clients, two a round."""
    needs = ALGORITHMS[name].needs
    scenario = "homogeneous" if needs == "architecture" else "heterogeneous"
    spec = RunSpec(algorithm=name, scenario=scenario, num_clients=5, participation=0.4, rounds=rounds, **fields)
    resolved = lab.resolve(spec)
    return simulate(lab.federation_of(resolved), wrap(resolved.algorithm), rounds, 0.4)


def derived(method, **methods):
    """The same method and hyper-parameters with some of its steps replaced."""
    own = type(method)
    copy = type(own.__name__, (own,), methods)
    return copy(**{field.name: getattr(method, field.name) for field in dataclasses.fields(own)})


# ------------------------------------------------------------------------------------- on networks of one's own


def on(architecture: str, name: str) -> Algorithm:
    """The method, sharing this network where it shares one beside the clients'."""
    method = ALGORITHMS[name]
    shared = {field.name for field in dataclasses.fields(method)} & {"shared", "knowledge"}
    return method(**dict.fromkeys(shared, architecture), **({"clusters": 1} if name == "pFedHR" else {}))


ORDERED = {"FedGH", "pFedHR"}  # one depends on the order of arrival, as its paper says; the other groups no such layers


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ORDERED])
def test_the_order_of_arrival_does_not_matter(name):
    tiny.arrival_order_matters_at_most(on("tiny", name))


def normed(num_classes: int, channels: int) -> Model:
    layers = [nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * channels, 7), nn.BatchNorm1d(7), nn.ReLU()]
    return Model(nn.Sequential(*layers), nn.Linear(7, num_classes))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALGORITHMS)
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


# ------------------------------------------------------------------------------------------------------- arithmetic


# The golden digests hold bf16's numbers to the last digit, those of most methods in `make slow`.
@pytest.mark.thorough("FedSSA", "FedGH", others="nightly")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_bf16_follows_float32(name, small_digits):
    """Two rounds, whose losses are the same up to bf16's rounding."""
    params = PARAMS.get(name, {})
    one, other = (small_run(name, rounds=2, precision=precision, params=params) for precision in ("fp32", "bf16"))
    assert other.status == "finished" and one.digest() != other.digest()
    losses = [lab.rounds_of(outcome)["loss"].iloc[1:].to_numpy() for outcome in (one, other)]
    np.testing.assert_allclose(*losses, rtol=0.05)
