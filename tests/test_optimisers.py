"""Torch's optimisers and schedules by name, parts of epochs, and runs that end when validation no longer improves."""

import numpy as np
import pytest
import tiny
import torch

from fedlib import Federation, RunSpec, lab, optimisers, run, simulate, training
from fedlib.algorithms import make
from fedlib.protocol import Protocol
from fedlib.simulation import Outcome, _over

DATA = tiny.dataset(num_classes=3, per_class=20)
HELD = [np.arange(20), np.arange(20, 40)]


def federation(**changes) -> Federation:
    usual = {"local_epochs": 1, "batch_size": 8, "protocol": Protocol(lr=0.1)}
    return Federation(DATA, HELD, ["tiny-a"], **usual | changes)


def weights(built: Federation, client: int = 0) -> torch.Tensor:
    return built.clients[client].model.header.weight.detach().clone()


def test_a_step_of_adamw_by_hand():
    """The first step of AdamW is the rate by the gradient's sign (to 1e-8 of it), after a shrinkage by lr * decay."""
    layer = torch.nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    settings = training.Settings(1, 4, 0.1, weight_decay=0.5, optimiser="AdamW(betas=(0.5, 0.9))")
    made = training.fresh_optimiser({"layer": layer}, settings)
    assert type(made) is torch.optim.AdamW and made.defaults["betas"] == (0.5, 0.9) and made.defaults["fused"]
    layer.weight.grad = torch.tensor([[2.0, -3.0]])
    made.step()
    torch.testing.assert_close(layer.weight.detach(), before * (1 - 0.1 * 0.5) - 0.1 * torch.tensor([[1.0, -1.0]]))


@pytest.mark.parametrize(
    "name", ["AdamW(amsgrad=True)", "RMSprop", "Adagrad", "SGD(nesterov=True)", "NAdam", "Adadelta"]
)
def test_any_optimiser_trains_a_federation_twice_to_the_same_bits(name):
    momentum = 0.5 if name.startswith("SGD") else 0.0
    protocol = Protocol(optimiser=name, momentum=momentum, lr=0.01, clip_norm=1.0)
    one, other = (simulate(federation(protocol=protocol), make("FedProto"), 2) for _ in range(2))
    assert one.status == "finished" and one.digest() == other.digest()
    assert one.digest() != simulate(federation(protocol=Protocol(lr=0.01, clip_norm=1.0)), make("FedProto"), 2).digest()


def test_a_preset_for_sgd_leaves_its_momentum_to_sgd():
    def resolved(**overrides):
        return lab.resolve(RunSpec("Standalone", overrides=overrides))

    assert resolved().protocol.momentum == resolved(optimiser="SGD(nesterov=True)").protocol.momentum == 0.9
    assert resolved(optimiser="AdamW").protocol.momentum == 0
    spelt = ("AdamW(amsgrad=True, eps=1e-07)", "AdamW( eps = 1e-7,amsgrad=True )", "AdamW")
    one, other, plain = (resolved(optimiser=text).key for text in spelt)
    assert one == other != plain
    assert "optimiser AdamW" in resolved(optimiser="AdamW(amsgrad=True)").numerics


# --------------------------------------------------------------------------------------------------------- schedules


def test_rates_over_rounds_by_hand():
    np.testing.assert_allclose(
        optimisers.rates("StepLR(step_size=2, gamma=0.1)", 0.1, 5), [0.1, 0.1, 0.01, 0.01, 0.001]
    )
    cosine = 0.05 * (1 + np.cos(np.pi * np.arange(4) / 4))  # down to 0 after the last of the rounds
    np.testing.assert_allclose(optimisers.rates("CosineAnnealingLR", 0.1, 4), cosine)
    np.testing.assert_allclose(
        optimisers.rates("CosineAnnealingLR(T_max=8)", 0.1, 2), 0.05 * (1 + np.cos(np.pi * np.arange(2) / 8))
    )
    np.testing.assert_allclose(optimisers.rates("ExponentialLR(gamma=0.5)", 0.1, 3), [0.1, 0.05, 0.025])
    for given, peak in (("", 2), (", epochs=4, steps_per_epoch=5", 5)):  # 30 % of the steps, those of T unless given
        one_cycle = optimisers.rates(f"OneCycleLR(max_lr=0.4{given})", 0.1, 10)
        assert np.argmax(one_cycle) == peak and one_cycle[peak] == pytest.approx(0.4)


def test_a_schedule_of_very_many_rounds_is_resolved_at_once():
    lab.resolve(RunSpec("Standalone", schedule="CosineAnnealingLR", rounds=2**31 - 1))
    late, text = optimisers.CHECKED + 5, "ExponentialLR(gamma=0.999)"
    assert optimisers.rate(text, 0.1, late, 10**9) == pytest.approx(0.1 * 0.999**late)


def test_a_round_trains_at_its_rate_and_a_resumed_one_too(tmp_path):
    halted = {"schedule": "StepLR(step_size=1, gamma=0.0)"}
    built, whole = federation(**halted), federation(**halted)
    started = weights(built)
    simulate(built, make("Standalone"), 1)
    simulate(whole, make("Standalone"), 3)
    assert not torch.equal(started, weights(built))
    assert torch.equal(weights(whole), weights(built))  # the later rounds at rate 0

    def falling() -> Federation:
        return federation(schedule="ExponentialLR(gamma=0.3)")

    resumed = tiny.stopped_and_resumed(falling, make("FedProto"), 3, tmp_path / "checkpoint.pt", after=1)
    assert resumed.digest() == simulate(falling(), make("FedProto"), 3).digest()


# ---------------------------------------------------------------------------------------------------- parts of epochs


def test_a_part_of_an_epoch_is_that_part_of_the_images():
    settings = training.Settings(2.5, 4, 0.1)
    assert training.images_of_epochs(settings, 9) == [9, 9, 4]
    assert training.images_of_epochs(training.Settings(0.01, 4, 0.1), 9) == [1]
    assert training.images_of_epochs(training.Settings(3, 4, 0.1), 9) == [9, 9, 9]
    built = federation()
    client = built.clients[0]
    seen = [len(y) for _, y in training.batches(client.pool, client.train[:9], settings, np.random.default_rng(0))]
    assert seen == [4, 4, 1, 4, 4, 1, 4]
    outcome = simulate(federation(local_epochs=0.5), make("Standalone"), 2)
    each = [round(0.5 * client.num_samples) for client in built.clients]
    assert [row["samples"] for row in outcome.round_rows] == [0, sum(each), sum(each)]


def test_the_first_half_epoch_is_the_start_of_a_whole_one():
    streams = [np.random.default_rng(3) for _ in range(2)]
    client = federation().clients[0]
    half, whole = (
        torch.cat([y for _, y in training.batches(client.pool, client.train, training.Settings(e, 4, 0.1), stream)])
        for e, stream in zip((0.5, 1), streams, strict=True)
    )
    assert len(half) == len(whole) // 2 and torch.equal(half, whole[: len(half)])


def test_epochs_in_a_specification():
    keys = [lab.resolve(RunSpec("Standalone", local_epochs=given)).key for given in (1, 2, 0.5, 1.5, 2.0, "2")]
    assert len(set(keys)) == 4 and keys[1] == keys[4] == keys[5]


# ----------------------------------------------------------------------------------------------------- early stopping


def outcome_of(accuracies, status="finished"):
    rows = [{"validation_accuracy": value} for value in (0.0, *accuracies)]
    return Outcome(federation(), {}, status, round_rows=rows)


def test_when_a_run_is_over():
    assert not _over(outcome_of([0.1, 0.2, 0.2]), 9, 2) and _over(outcome_of([0.1, 0.2, 0.2, 0.1]), 9, 2)
    assert not _over(outcome_of([0.1, 0.2, 0.2, 0.1]), 9)
    assert _over(outcome_of([0.1]), 1) and _over(outcome_of([0.1], "diverged"), 9)
    assert not _over(outcome_of([0.2, 0.1, 0.3, 0.1]), 9, 2) and not _over(outcome_of([0.3, 0.1]), 9, 2)
    assert not _over(outcome_of([]), 9, 1)


@pytest.mark.parametrize("name", ["Standalone", "FedProto"])
def test_a_run_that_no_longer_improves_ends_and_is_stored_so(name, small_digits):
    spec = RunSpec(name, scenario="CNN-5", num_clients=3, rounds=30, lr=0.0, patience=2, batch_size=16)
    record = run(spec, progress=False)
    assert record.status == "finished" and record.rounds["round"].tolist() == [-1, 0, 1, 2]
    assert run(spec, progress=False).key == record.key != lab.resolve(RunSpec(**vars(spec) | {"patience": 0})).key
