"""FLOPs against counts by hand, and what is told from them of samples of every kind. Each method: test_contract.py."""

import dataclasses
import itertools

import computed
import numpy as np
import pytest
import torch

from fedlib import Dataset, Model, RunSpec, algorithms, data, lab, models
from fedlib.algorithms import Standalone, make
from fedlib.lab import costs, estimates, of_record
from fedlib.papers import views
from fedlib.sample import Sample

SAMPLES = {
    "MLP": Sample("vector", (561,), "float32"),
    "CNN-1D": Sample("series", (9, 128), "float32"),
    "fastText": Sample("tokens", (16,), "int64", 50),
    "CNN-5": Sample("image", (1, 28, 28), "float32"),
}


def register(name: str) -> RunSpec:
    sample = SAMPLES[name]
    values, labels = sample.random(60, np.random.default_rng(0)), np.arange(60) % 4
    arrays = values[:50], labels[:50], values[50:], labels[50:]
    data.register("shaped", lambda: Dataset.from_arrays("shaped", *arrays, 4, kind=sample.kind))
    return RunSpec("FedGH", dataset="shaped", scenario=name, num_clients=3, participation=1.0, rounds=2, batch_size=8)


def linear(*widths: int) -> int:
    """FLOPs of a training step of linear layers: 2 per weight forward, 2 for its gradient, 2 for the input's but of the first."""
    products = [inputs * outputs for inputs, outputs in itertools.pairwise(widths)]
    return 6 * sum(products) - 2 * products[0]


def test_flops_of_a_vector_are_those_of_its_linear_layers():
    assert costs.training_flops("MLP", 6, SAMPLES["MLP"]) == linear(561, 200, 200, 6)
    assert costs.training_flops("fastText", 6, SAMPLES["fastText"]) == linear(64, 200, 6) + 2 * 64 * 200


def test_flops_of_a_smaller_image_are_fewer():
    side = [costs.training_flops("CNN-5", 10, Sample(shape=(3, side, side))) for side in (28, 32, 64)]
    assert side == sorted(side) and side[1] == costs.training_flops("CNN-5", 10, 3)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_round_costs_is_measured_on_samples_of_the_shape(name):
    cost = costs.flops(make("Standalone"), name, 4, SAMPLES[name])
    assert cost.epoch == costs.training_flops(name, 4, SAMPLES[name]) and cost.fixed == 0


def test_what_is_defined_again_is_counted_again():
    for hidden, passes in ((4, 1), (8, 2)):

        def network(num_classes, channels, sample, hidden=hidden):
            return Model(
                torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(561, hidden)),
                torch.nn.Linear(hidden, num_classes),
            )

        class Mine(Standalone):
            name = "Mine"

            def local_round(self, client, download, context, passes=passes):
                for _ in range(passes):
                    uploaded = super().local_round(client, download, context)
                return uploaded

        models.register("mine", network)
        algorithms.register(Mine)
        cost = costs.flops(make("Standalone"), "mine", 6, SAMPLES["MLP"])
        assert cost.epoch == costs.training_flops("mine", 6, SAMPLES["MLP"]) == linear(561, hidden, 6)
        assert costs.flops(make("Mine"), "mine", 6, SAMPLES["MLP"]).epoch == passes * cost.epoch


@pytest.mark.parametrize("name", SAMPLES)
def test_a_run_is_estimated_costed_and_read_back(name):
    spec = register(name)
    run = lab.resolve(spec, "smoke")
    assert estimates.expected_seconds([run])[0] > 0
    record = lab.run(dataclasses.replace(spec, keep="clients"), "smoke", progress=False)
    assert lab.read(record.path).hashed == record.hashed == run.hashed and record.key == run.key
    spent, plain = costs.of_run(record), costs.training_flops(name, 4, SAMPLES[name])
    trained = record.rounds[record.rounds["round"] >= 0]["samples"].sum()
    assert spent[-1] > trained * plain
    table, features = views.extract_representations(record, per_client=3)
    width = models.feature_width(name, 4, SAMPLES[name])
    assert features.shape == (len(table), width) and np.isfinite(features).all()


UNEVEN = {"partition": "dirichlet", "alpha": 0.5, "num_clients": 4, "participation": 1.0, "rounds": 2, "batch_size": 16}


def test_a_large_run_holds_what_it_was_priced_at_and_a_small_one_is_priced_alike(small_digits, monkeypatch):
    spec = RunSpec("FedKEMF", dataset="digits", scenario="CNN-5,CNN-1", keep="server", **UNEVEN)
    small = lab.run(spec, progress=False)
    monkeypatch.setattr(costs, "LARGE", 0)
    large = lab.run(dataclasses.replace(spec, isolated=False, keep="clients"), progress=False)
    assert small.key == large.key and not len(small.flops) and (large.path / "flops.csv").exists()
    assert costs.of_run(large).tolist() == costs.of_run(small).tolist() == large.flops["flops"].tolist()
    assert np.cumsum(computed.counted(small.spec, small.rounds)) == pytest.approx(costs.of_run(small), rel=0.2)


def test_every_result_of_record_has_its_flops():
    assert not computed.missing()


@pytest.mark.slow
def test_the_flops_of_results_of_record_are_what_is_counted_today():
    """Of one run a method, data set and way."""
    old = [run for run in of_record.read_results() if not len(run.flops)]
    one = {(run.spec.algorithm, run.spec.dataset, run.spec.isolated): run for run in old}
    for run in one.values():
        assert costs.of_run(run) == pytest.approx(np.cumsum(computed.counted(run.spec, run.rounds)), rel=1e-9), run.key


# ---------------------------------------------------------------------------------------------------- methods by hand

# Multiply-adds of a forward pass of CNN-1..5 with 10 classes, and of conv1, whose input needs no gradient.
FORWARD = {"CNN-1": 4_825_800, "CNN-2": 3_385_800, "CNN-3": 3_525_800, "CNN-4": 3_265_800, "CNN-5": 2_875_800}
CONV1 = 28 * 28 * 16 * 75
HEADER = 500 * 10
MEANS = 2 * 500  # class means of the representation over two seen classes, an image


@pytest.mark.parametrize("architecture", FORWARD)
def test_three_forwards_beside_the_real_step(architecture: str) -> None:
    assert costs.training_flops(architecture, 10, 3) == 3 * 2 * FORWARD[architecture] - 2 * CONV1


RATIOS = {  # FLOPs by Standalone's: CNN-1 to CNN-5
    "pFedES": (2.827, 2.903, 2.892, 2.912, 2.950),  # E_fe = E; above 3.2 frozen networks would take gradients
    "FML": (1.568, 1.834, 1.798, 1.868, 2.000),
    "FedGH": (1.357, 1.367, 1.366, 1.369, 1.374),  # E = 1
    "FedSSA": (1.0, 1.0, 1.0, 1.0, 1.0),
    "LG-FedAvg": (1.0, 1.0, 1.0, 1.0, 1.0),
    "FedProto": (1.357, 1.367, 1.366, 1.369, 1.374),  # as FedGH: every image once more for the class means
}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("place", [0, 3])  # the others take as long again and say the same
@pytest.mark.parametrize("method", RATIOS)
def test_flops_relative_to_standalone(method: str, place: int) -> None:
    given = {"extractor_epochs": 0} if method == "pFedES" else {}
    ratio = costs.relative_to_standalone(make(method, given), list(FORWARD)[place])
    assert ratio == pytest.approx(RATIOS[method][place], rel=0.005)


@pytest.mark.slow
@pytest.mark.thorough
def test_extractor_epochs_do_not_grow_with_the_local_ones() -> None:
    """pFedES on CNN-5: step 1 trains on raw and on enhanced images, 2 (3 f - c1) + g multiply-adds an image; step 2
    takes the gradient through a frozen network, 2 f + 2.5 g. E_fe = 5 of step 2 fall on E of step 1.
    """
    forward, extractor = FORWARD["CNN-5"], 442_368
    first, second = 2 * (3 * forward - CONV1) + extractor, 2 * forward + 2.5 * extractor
    for epochs in (1, 10):
        expected = (first + 5 / epochs * second) / (3 * forward - CONV1)
        ratio = costs.relative_to_standalone(make("pFedES"), "CNN-5", epochs)
        assert ratio == pytest.approx(expected, rel=0.005)


@pytest.mark.slow
@pytest.mark.thorough
def test_parts_of_a_round_by_hand() -> None:
    step, extraction = 2 * (3 * FORWARD["CNN-5"] - CONV1), 2 * (FORWARD["CNN-5"] - HEADER + MEANS)
    cost = costs.flops(make("FedGH"), "CNN-5")
    assert (cost.epoch, cost.round, cost.public, cost.fixed) == (step, extraction, 0, 0)
    # the server's step on a LAR: forward, and the gradient of the weight; two LARs an upload
    assert cost.upload == 2 * 2 * (2 * HEADER) and cost.server == 0
    frozen = costs.flops(make("FedGH", {"server_update": "frozen"}), "CNN-5")
    assert (frozen.upload, frozen.epoch, frozen.round) == (0, step, extraction)
    # FedMD digests the public subset (a training step an image) and answers on it (a forward pass)
    digest = costs.flops(make("FedMD"), "CNN-5")
    assert (digest.epoch, digest.public) == (step, step + 2 * FORWARD["CNN-5"])
    # FedKEMF's server runs each upload on the public subset and trains one network on it
    distil = costs.flops(make("FedKEMF"), "CNN-5")
    assert (distil.upload, distil.upload_public) == (0, 2 * FORWARD["CNN-5"])
    assert (distil.server_public, distil.server) == (step, 0)
