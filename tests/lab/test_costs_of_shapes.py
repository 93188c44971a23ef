"""Costs, estimates, shares of a real federation and maps follow what a sample looks like."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from fedlib import Dataset, Model, RunSpec, algorithms, data, lab, models
from fedlib.algorithms import Standalone, make
from fedlib.flower import shares
from fedlib.lab import costs, estimates
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


@pytest.mark.parametrize("name", SAMPLES)
def test_a_share_holds_the_samples_as_they_are(name, tmp_path):
    run = shares.deal(register(name), tmp_path, 2, "smoke")
    whole = lab.federation_of(run)
    for node, held in enumerate(([0, 2], [1])):
        found = shares.federation_from(*shares.read(tmp_path / f"node-{node}", run.key))
        for id in held:
            own, mine = found.clients[id], whole.clients[id]
            assert torch.equal(own.pool.batch(own.train), mine.pool.batch(mine.train))
    server = shares.federation_from(*shares.read(tmp_path / "server", run.key))
    assert server.sample == whole.sample and not server.pool.images.any()
