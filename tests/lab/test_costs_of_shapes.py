"""Costs, estimates and maps follow what a sample looks like."""

import dataclasses
import itertools

import computed
import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedlib import Dataset, Model, RunSpec, algorithms, data, lab, models, simulate
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


class Narrow(Standalone):
    """Fits one network alone."""

    name = "Narrow"

    def check(self, federation):
        assert set(federation.architectures) == {"mine"}


def counted(spec, monkeypatch):
    """What the second round computes, by a counter around each step of the method, and what it is priced at."""
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
    return sum(found), both - first


ZOO, QUICK = "ResNet-4,MobileNet-V2", ("FedGH", "FML", "Per-FedAvg", "FedKEMF")
UNEVEN = {"partition": "dirichlet", "alpha": 0.5, "num_clients": 4, "participation": 1.0, "rounds": 2, "batch_size": 16}
NAMES = list(algorithms.ALGORITHMS)
DEPEND = {"pFedHR", "FedKD"}  # on the weights: which candidates there are, which ranks are kept


@pytest.mark.thorough(*QUICK)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in DEPEND])
def test_a_method_is_priced_at_what_it_runs(name, small_digits, monkeypatch):
    scenario = "CNN-5" if algorithms.ALGORITHMS[name].needs == "architecture" else "CNN-2,CNN-5,CNN-1"
    found, priced = counted(RunSpec(name, dataset="digits", scenario=scenario, local_epochs=2, **UNEVEN), monkeypatch)
    assert priced == pytest.approx(found, rel=0.01)


KINDS = [
    *itertools.product(SAMPLES, ["FedProto", "FML"]),
    *((ZOO, name) for name in ("FML", "FedMRL", "FD")),
    ("mine", "Narrow"),
]


@pytest.mark.thorough("MLP", "mine")
@pytest.mark.parametrize(("scenario", "name"), KINDS)
def test_networks_of_every_kind_are_priced_at_what_they_run(scenario, name, small_digits, monkeypatch):
    algorithms.register(Narrow)
    models.register("mine", lambda num_classes, channels: models.cnn("CNN-5", num_classes, channels))
    spec = RunSpec(name, dataset="digits", scenario=scenario, **UNEVEN)
    if scenario in SAMPLES:
        spec = dataclasses.replace(register(scenario), algorithm=name)
    found, priced = counted(spec, monkeypatch)
    assert priced == pytest.approx(found, rel=0.01)


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
