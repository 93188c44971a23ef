"""Runs that end by what they have spent, words or FLOPs."""

import numpy as np
import pytest

from fedlib import FedlibError, RunSpec, lab, run, study
from fedlib.__main__ import main
from fedlib.lab import costs
from fedlib.show import intervals

WORDS = 2 * (500 * 10 + 10)  # of LG-FedAvg a client and round: the header down, and up
SMALL = {"dataset": "digits", "scenario": "CNN-5", "num_clients": 3, "rounds": 9, "batch_size": 16}


@pytest.mark.parametrize(("rounds", "ended_after"), [(2, 2), (2.5, 3), (0.1, 1), (100, 9)])
def test_the_round_in_which_the_words_are_used_up_is_the_last(rounds, ended_after, small_digits):
    record = run(RunSpec("LG-FedAvg", budget_words=rounds * 3 * WORDS, **SMALL), progress=False)
    assert record.status == "finished" and record.rounds["round"].tolist() == [-1, *range(ended_after)]
    sent = record.rounds[["download_words", "upload_words"]].to_numpy()[1:].sum()
    assert sent == ended_after * 3 * WORDS and costs.budgets(record) == {"words": (sent, rounds * 3 * WORDS)}
    assert intervals.whole(record)


@pytest.mark.thorough
def test_at_equal_flops_a_method_that_computes_more_has_fewer_rounds(small_digits):
    whole = run(RunSpec("Standalone", **SMALL), progress=False)
    images = whole.rounds["samples"].iloc[1]
    a_round = images * costs.training_flops("CNN-5", 10, 3)
    assert costs.of_run(whole)[:2] == pytest.approx([a_round, 2 * a_round])
    ended = {}
    for name in ("Standalone", "FML"):
        record = run(RunSpec(name, budget_flops=3.5 * a_round, **SMALL), progress=False)
        ended[name] = len(record.rounds) - 1
        spent = costs.of_run(record)
        assert spent[-1] >= 3.5 * a_round > ([0, *spent])[-2]
    assert ended == {"Standalone": 4, "FML": 2}  # CNN-5 beside CNN-5: twice as much
    again = run(RunSpec("Standalone", **SMALL | {"rounds": 4}), progress=False)
    stopped = run(RunSpec("Standalone", budget_flops=3.5 * a_round, **SMALL), progress=False)
    assert again.digest == stopped.digest and again.key != stopped.key


def test_no_budget_is_no_part_of_a_key_and_each_is_another_run():
    keys = [lab.resolve(RunSpec(**more)).key for more in ({}, {"budget_words": 0}, {"budget_flops": "0"})]
    others = [lab.resolve(RunSpec(**more)).key for more in ({"budget_words": 5}, {"budget_flops": 5})]
    assert len(set(keys)) == 1 and len({*keys, *others}) == 3
    assert lab.resolve(RunSpec(budget_words="1e6")).key == lab.resolve(RunSpec(budget_words=10**6)).key


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"budget_words": -1}, r"budget_words = -1(\.0)?: must be at least 0"),
        ({"budget_flops": "much"}, "budget_flops = 'much': must be a number"),
        ({"budget_flops": float("nan")}, "budget_flops = nan"),
        ({"budget_words": 5, "newcomers": 1}, "budget_words = 5.0: must be 0 where newcomers wait for the last round"),
    ],
)
def test_a_budget_that_cannot_be_is_one_line(more, line):
    with pytest.raises(FedlibError, match=line):
        lab.resolve(RunSpec(**more))


def test_runs_that_end_early_stand_in_tables(small_digits, capsys):
    """Of a run with a budget or with patience no round is missing."""
    found = study.train(["Standalone", "LG-FedAvg"], jobs=1, budget_words=1.5 * 3 * WORDS, **SMALL)
    assert "–" not in "".join(found.table().iloc[:, 0])
    assert (found.rounds.groupby("method")["round"].max() + 1).to_dict() == {
        "Standalone": SMALL["rounds"],
        "LG-FedAvg": 2,
    }
    patient = study.train(["Standalone"], jobs=1, patience=2, **SMALL | {"lr": 0.0})
    assert len(patient.records[0].rounds) == 4 and "–" not in patient.table().iloc[0, 0]
    assert np.isfinite(patient.runs["last"]).all()
    command = ["run", "LG-FedAvg", "--scenario", "CNN-5", "--num-clients", "3", "--batch-size", "16", "--rounds", "9"]
    assert main([*command, "--budget-words", str(1.5 * 3 * WORDS)]) == 0
    said = capsys.readouterr().out
    assert "finished after 2 of 9 rounds" in said and "budget: 133 % of 4.51e+04 words" in said
