"""`log=` is called once a round, in order, in this process and for a sweep's workers; it changes no number and ends no run."""

import dataclasses

import numpy as np
import pytest
import torch

from fedlib import FedlibError, RunSpec, lab, run, study, sweep

SPEC = RunSpec("Standalone", dataset="digits", scenario="CNN-5", num_clients=3, rounds=2, batch_size=64)
BOTH = [SPEC, dataclasses.replace(SPEC, seed=1)]


@pytest.mark.parametrize("jobs", [pytest.param(2, marks=pytest.mark.thorough), 0])
def test_each_round_is_told_once_and_in_order_though_another_log_fails(jobs, home, monkeypatch, capsys):
    seen = {0: [], 1: []}

    def log(spec, row):
        seen[spec.seed].append((row["round"], row["accuracy"]))
        row["accuracy"] = spec.params["x"] = 9.0  # of copies
        torch.rand(3), np.random.rand()  # noqa: NPY002
        if row["round"] == 1 and spec.seed == 0:
            raise SystemExit("the server\nis away")

    one_by_one = [run(spec, progress=False) for spec in BOTH]
    monkeypatch.setenv("FEDLIB_HOME", str(home / "other"))
    logged = sweep(BOTH, jobs=jobs, progress=False, log=log) if jobs else [run(SPEC, progress=False, log=log)]
    for record, plain in zip(logged, one_by_one, strict=False):
        rows = plain.rounds.query("round >= 0")
        told = seen[plain.spec.seed]
        assert told == list(zip(rows["round"], rows["accuracy"], strict=True))[: len(told)]
        assert record.digest == plain.digest and record.spec == plain.spec
    assert len(seen[0]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("log is called no more")]
    assert len(said) == 1 and "the runs go on: log: " in said[0] and "the server is away" in said[0]


def test_what_is_no_function_is_refused_before_anything_is_trained():
    with pytest.raises(FedlibError, match="log = 3: must be a function of a specification and a row"):
        study.train(["Standalone"], log=3)
    assert not lab.stored()
