"""Metrics: their values by hand, and the way of one registration into runs and tables."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from processes import interrupted

from fedlib import FedlibError, RunSpec, lab, metrics, study
from fedlib.lab import of_record
from fedlib.metrics import METRICS, Metric
from fedlib.papers import exhibits
from fedlib.show import intervals

SPEC = RunSpec("Standalone", rounds=2, num_clients=4, participation=0.5, batch_size=64)


def test_balanced_accuracy_weighs_classes_alike():
    logits = torch.eye(3)[torch.tensor([0, 0, 0, 1, 0])]
    labels = torch.tensor([0, 0, 0, 1, 1])  # 3 of 3 and 1 of 2; no image of class 2
    assert METRICS["balanced_accuracy"].of_client(logits, labels).item() == 0.75


def register_mine(value: float = 0.5) -> None:
    metrics.register(Metric("mine", "", of_client=lambda logits, labels: torch.tensor(value)))


def of(name: str, logits: list[list[float]], labels: list[int]) -> float:
    return float(metrics.METRICS[name].of_client(torch.tensor(logits), torch.tensor(labels)))


def test_f1_of_each_class_counts_alike():
    """Class 0: 1 of 2 found, 1 of another taken for it, 2 * 1 / (2 + 2) = 1/2; class 1: 2 * 2 / (3 + 3) = 2/3."""
    logits = [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert of("macro_f1", logits, [0, 0, 1, 1, 1]) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert of("macro_f1", [[0, 0, 1]], [0]) == 0  # nothing found, and no class that nobody holds counts


def test_the_area_under_the_curve_is_how_often_a_pair_is_in_order():
    """Scores of class 1: positives 0.9 and 0.4, negatives 0.4 and 0.1: three pairs in order and one tie of four."""
    logits = [[0.0, float(np.log(p / (1 - p)))] for p in (0.9, 0.4, 0.4, 0.1)]
    assert of("auc", logits, [1, 1, 0, 0]) == pytest.approx(3.5 / 4)
    assert np.isnan(of("auc", logits, [1, 1, 1, 1]))


def test_means_leave_out_clients_on_which_a_metric_is_undefined(small_digits):
    """A client of one class has no area under its curve; the others' mean is there, over all and over the round's own."""
    dealt = RunSpec("Standalone", num_clients=4, rounds=1, partition="dirichlet", alpha=0.05, batch_size=64)
    record = lab.run(replace(dealt, metrics="auc"), progress=False)
    values, last = record.clients.query("round == 0")["auc"], record.rounds.iloc[-1]
    assert values.isna().any() and values.notna().any()
    assert last["auc"] == last["auc_all"] == last["auc_selected"] == pytest.approx(values.mean())


def test_calibration_error_weighs_bins_by_their_samples():
    """Confidences 0.9 (right, right, wrong: off by 2/3 - 0.9) and 0.55 (right: off by 0.45)."""
    logits = [[0.0, float(np.log(p / (1 - p)))] for p in (0.9, 0.9, 0.9, 0.55)]
    expected = 3 / 4 * abs(2 / 3 - 0.9) + 1 / 4 * 0.45
    assert of("calibration_error", logits, [1, 1, 0, 1]) == pytest.approx(expected, rel=1e-5)


def test_the_worst_decile_is_of_whole_clients():
    worst = METRICS["worst_decile"].of_clients
    assert worst(np.arange(20)[::-1] / 20) == pytest.approx(0.025) and worst(np.array([0.7, 0.5])) == 0.5


def test_what_is_measured_decides_neither_key_nor_numbers(small_digits):
    plain = lab.run(SPEC, progress=False)
    assert "balanced_accuracy" not in plain.rounds and "balanced_accuracy" not in plain.clients
    asked = lab.run(replace(SPEC, metrics="balanced_accuracy"), progress=False)
    assert (asked.key, asked.digest) == (plain.key, plain.digest)
    assert asked.rounds[list(plain.rounds)].equals(plain.rounds)
    assert asked.clients[list(plain.clients)].equals(plain.clients)
    last = asked.final().set_index("client")["balanced_accuracy"]
    row, visited = asked.rounds.iloc[-1], asked.clients.query("round >= 0")["client"].unique()
    assert row["balanced_accuracy"] == pytest.approx(last[visited].mean())
    assert row["balanced_accuracy_all"] == pytest.approx(last.mean())
    assert lab.run(SPEC, progress=False).rounds.equals(asked.rounds)  # which has all that is asked for
    kept = lab.run(replace(SPEC, keep="server"), progress=False)  # trained again, for the weights
    assert kept.spec.metrics == "balanced_accuracy" and "balanced_accuracy" in kept.rounds


def test_the_worst_decile_of_a_round_is_over_the_clients_visited_so_far(small_digits):
    record = lab.run(SPEC, progress=False)
    table = intervals.with_metric(record, "worst_decile")
    trained = record.clients.query("round >= 0")
    first = trained[trained["round"] == 0]["accuracy"].min()
    assert table.query("round == 0")["worst_decile"].item() == first
    last = trained.groupby("client")["accuracy"].last().min()
    assert table.query("round == 1")["worst_decile"].item() == last
    only_last = replace(record, clients=record.final())  # what a result of record has
    assert intervals.reported(only_last, "last", "worst_decile") == pytest.approx(100 * last)
    with pytest.raises(
        FedlibError, match=r"rule = 'best': must be last for worst_decile"
    ):  # client 3 is in both rounds
        intervals.reported(only_last, "best", "worst_decile")
    with pytest.raises(FedlibError, match=r"has no balanced_accuracy; RunSpec\(metrics='balanced_accuracy'\)"):
        intervals.reported(record, "last", "balanced_accuracy")


def test_one_registration_reaches_runs_and_tables(small_digits):
    entropy = torch.nn.functional.cross_entropy
    loss = Metric("test_loss", "nats", 0.0, float("inf"), of_client=entropy)
    metrics.register(loss)
    metrics.register(loss)  # a cell can be run twice
    specs = [replace(SPEC, algorithm=name, metrics="test_loss") for name in ("Standalone", "FedSSA")]
    assert not lab.resolve(specs[0]).portable  # no worker knows it
    found = study.train({spec.algorithm: spec for spec in specs}, jobs=1)
    for method, run in zip(found.runs["method"], found.records, strict=True):
        assert found.table(metric="test_loss").loc[method].item() == f"{run.rounds['test_loss'].iloc[-1]:.2f} (n = 1)"


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (
            lambda accuracies: 100 * accuracies.mean() + 2,
            r"metric mine of run Standalone-.* = .*: must be between 0 and 1, as it",
        ),
        (lambda accuracies: np.nan, r"metric mine of run Standalone-.* = nan: must be between 0 and 1"),
        (lambda accuracies: accuracies["mean"], r"metric mine: IndexError"),
    ],
    ids=["percent", "nan", "fails"],
)
def test_a_metric_of_ones_own_over_the_clients_is_held_to_what_it_declares(measure, message, small_digits):
    metrics.register(Metric("mine", of_clients=measure))
    record = lab.run(SPEC, progress=False)
    with pytest.raises(FedlibError, match=message):
        intervals.with_metric(record, "mine")


def test_what_a_metric_draws_is_the_runs_and_a_range_forgives_rounding(small_digits):
    """The same numbers in every run, whatever stands before it and else is measured; and 0.9999999 + 2e-7 is a fraction."""
    metrics.register(Metric("drawn", of_client=lambda logits, labels: torch.rand(())))
    metrics.register(Metric("also", of_client=lambda logits, labels: torch.rand(()) * 0 + 0.9999999 + 2e-7))
    state = torch.get_rng_state()
    one, other = (lab.run(replace(SPEC, metrics=names), progress=False).clients for names in ("drawn", "also,drawn"))
    assert one["drawn"].equals(other["drawn"]) and one["drawn"].is_unique and (other["also"] > 1).all()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_client_that_diverges_is_recorded_whatever_a_metric_makes_of_its_logits(small_digits):
    metrics.register(Metric("mine", of_client=lambda logits, labels: logits.sum() * 0))
    spec = replace(SPEC, metrics="mine", lr=1e30)
    assert lab.run(spec, progress=False).status == "diverged"


def test_results_of_record_have_the_worst_decile():
    run = of_record.by_key()[exhibits.frame("fedssa/heterogeneous")["key"].iloc[0]]
    last = np.sort(run.clients.query("round >= 0")["accuracy"])
    worst = last[: int(np.ceil(len(last) / 10))].mean()
    assert intervals.reported(run, "last", "worst_decile") == pytest.approx(100 * worst)


def test_a_metric_of_ones_own_that_has_changed_is_measured_again(small_digits):
    """Its name is no promise: a run that was measured by another version of its code does not answer, and has no other key."""

    register_mine(0.25)
    asked = replace(SPEC, metrics="mine")
    first = lab.run(asked, progress=False)
    path = first.path / "DONE"
    written = path.stat().st_mtime_ns
    register_mine(0.25)  # the same code
    assert lab.run(asked, progress=False).rounds["mine"].iloc[-1] == 0.25 and path.stat().st_mtime_ns == written
    register_mine(0.75)
    session = lab.resolve(asked).session
    second = lab.run(asked, progress=False)
    assert second.rounds["mine"].iloc[-1] == 0.75 and (second.key, second.digest) == (first.key, first.digest)
    register_mine(0.25)
    assert lab.resolve(asked).session != session  # nor does a checkpoint of the other go on
    assert lab.run(SPEC, progress=False).rounds["mine"].iloc[-1] == 0.75  # nobody asked for it


def test_what_a_metric_does_to_its_logits_changes_no_other(small_digits):
    """Of four classes that are all scored 0 the cross-entropy is ln 4: what the second would measure of the first's zeros."""
    metrics.register(Metric("a_first", "", of_client=lambda logits, labels: logits.zero_().sum()))
    metrics.register(Metric("b_second", "", of_client=torch.nn.functional.cross_entropy))
    logits, labels = torch.tensor([[4.0, 0, 0, 0]]), torch.tensor([0])
    found = metrics.of_client(["a_first", "b_second"], logits, labels)
    assert found["a_first"] == 0 and found["b_second"] == pytest.approx(0.0535, abs=1e-4)  # ln(1 + 3 / e^4)


def test_a_run_with_a_metric_that_is_not_registered_here_is_trained_again_for_its_weights(small_digits, capsys):
    register_mine()
    first = lab.run(replace(SPEC, metrics="mine"), progress=False)
    del METRICS["mine"]
    again = lab.run(replace(SPEC, keep="server"), progress=False)
    assert again.digest == first.digest and "mine" not in again.rounds
    assert "trained again without mine, which is not registered here" in capsys.readouterr().err


def test_a_run_with_a_metric_of_ones_own_goes_on_where_it_was_interrupted(small_digits, capsys):
    register_mine()
    asked, told = replace(SPEC, metrics="mine", rounds=4), []
    interrupted(asked, after=1)
    record = lab.run(asked, progress=False, log=lambda spec, row: told.append(row))
    assert [row["round"] for row in told] == [2, 3] and "set aside" not in capsys.readouterr().err
    assert len(record.rounds) == 5 and record.rounds["mine"].notna().all()
