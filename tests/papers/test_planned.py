"""The plan of the results of record: every run that is there was asked for, arms train seed by seed and once."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from results_of_record import of_record as made

from fedlib import data, lab, models
from fedlib.__main__ import main
from fedlib.data import Dataset
from fedlib.errors import FedlibError
from fedlib.lab import estimates, of_record, places
from fedlib.papers import exhibits, planned, recorded


def test_every_result_of_record_is_named_by_the_plan():
    named = {run.key for arm in planned.arms().values() for run in arm.runs}
    assert len(named) > 200 and {record.key for record in of_record.read_results()} <= named


def test_another_network_under_a_planned_name_is_another_run_while_it_is_there():
    keys = [record.key for record in of_record.read_results() if record.spec.algorithm == "FedSSA"]

    def named():
        return {run.key for arm in planned.arms().values() for run in arm.runs} & {*keys}

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(models.BUILDERS, "CNN-1", models.BUILDERS["tiny"])
        assert not named()
    assert named() == {*keys} != set()


def test_other_data_under_a_planned_name_leave_the_runs_on_the_others():
    """CNNs take no vectors, so that no run on them can be resolved."""
    grid = "audit/fedgh"  # on CIFAR-10 alone
    before = exhibits.frame(grid)["key"].tolist()
    vectors, labels = np.ones((40, 12), np.float32), np.arange(40) % 4
    data.register("cifar100", lambda: Dataset.from_arrays("cifar100", vectors, labels, vectors, labels))
    with pytest.raises(FedlibError, match="takes images"):
        lab.resolve(planned.arm("long").runs[0].spec, "record")
    assert exhibits.frame(grid)["key"].tolist() == before != []


def test_runs_that_were_made_for_a_picture_stay_in_it():
    for name in ("fedssa", "pfedes"):
        shown, table = (exhibits.frame(f"{name}/{grid}") for grid in ("representations", "heterogeneous"))
        assert set(shown["method"]) == {"FedProto", {"fedssa": "FedSSA", "pfedes": "pFedES"}[name]}
        assert set(shown["rounds"]) == {20} and set(table["rounds"]) == {100}
    assert planned.elsewhere("fedssa/heterogeneous") >= {run.key for run in planned.arm("n10").runs}
    assert not planned.elsewhere("fedssa/representations") & {run.key for run in planned.arm("n10").runs}


def test_no_exhibit_shows_the_runs_of_a_gpu_which_are_another_devices():
    on_a_gpu = {run.key for arm in ("gpu", "rates") for run in planned.arm(arm).runs}
    assert len(on_a_gpu) == 18 and on_a_gpu <= of_record.by_key().keys()
    for grid in ("fedssa/heterogeneous", "fedssa/table4", "audit/controls"):
        keys = set(exhibits.frame(grid)["key"])
        assert keys and not on_a_gpu & keys


def test_every_arm_says_what_it_asks_and_by_which_rule_before_its_runs():
    arms = planned.arms()
    assert list(arms)[:4] == ["audit", "main-table", "ablations", "history"] and len(arms) >= 8
    keys = [run.key for arm in arms.values() for run in arm.runs]
    assert len(keys) == len(set(keys)), "a run stands in one arm"
    for arm in arms.values():
        assert arm.question and arm.rule and re.match("before its runs|after a look", arm.planned), arm.name
        assert len(arm.name) < 12 and len({run.case for run in arm.runs}) >= 2
        assert [run.spec.seed for run in arm.runs] == sorted(run.spec.seed for run in arm.runs)


def test_what_is_on_record_or_stored_is_not_open(monkeypatch):
    arm = planned.arm("ablations")
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: [made(arm.runs[0].key)])
    assert len(arm.open()) == len(arm.runs) - 1 == 17
    monkeypatch.setattr(lab, "missing", lambda specs, scale: [lab.resolve(spec, scale) for spec in specs][1:])
    assert len(arm.open()) == len(arm.runs) - 2


def test_an_arm_trains_seed_by_seed_and_says_how_many_remain(monkeypatch):
    left = []

    def sweep(specs, scale, jobs, in_order, each):
        assert (scale, jobs, in_order) == ("record", 2, True)
        assert [spec.seed for spec in specs] == [0] * 9 + [1] * 9 + [2] * 9
        for run in range(len(specs)):
            each(len(specs) - 1 - run)

    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: [])
    monkeypatch.setattr(lab, "sweep", sweep)
    assert planned.train("audit", 2, left.append) == 27
    assert left == list(range(26, -1, -1))


def test_an_unknown_arm_is_refused():
    with pytest.raises(FedlibError, match="experiment = 'audits' is unknown: did you mean 'audit'"):
        planned.arm("audits")


def test_the_command_lists_the_arms(capsys, monkeypatch):
    monkeypatch.setattr(lab, "expected_seconds", lambda runs, known: [3600.0] * len(runs))
    assert main(["record"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == list(planned.arms())
    assert "## At the papers' own settings" in Path(last.rpartition(" in ")[2]).read_text()


def test_hours_are_those_of_runs_on_record_where_there_are_some(monkeypatch):
    spec = planned.arm("ablations").runs[0].spec
    done = lab.resolve(spec, "record").spec
    taken = [made(f"{seconds}", done, processor_seconds=seconds) for seconds in (3600.0, 7200.0, 3601.0)]
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: taken)
    monkeypatch.setattr(estimates, "timed", lambda: [])
    assert planned.expected_hours([spec], recorded.timed()) == pytest.approx(1.0, rel=1e-3)  # their median
    half = dataclasses.replace(spec, rounds=spec.rounds // 2)
    assert planned.expected_hours([half, half], recorded.timed()) == pytest.approx(1.0, rel=1e-3)


def test_the_pace_of_the_processors_of_record_is_what_their_runs_in_fp32_reach():
    known = [one for one in estimates.Timed.of(of_record.read_results()) if one.run.spec.precision == "fp32"]
    reached = np.median([estimates.training_work(one.run) / one.seconds for one in known])
    assert len(known) >= 5 and pytest.approx(reached, rel=0.05) == estimates.OF_RECORD


def test_further_seeds_of_the_plan_are_read():
    rows = exhibits.frame("fedssa/heterogeneous").query("method == 'FedSSA' and dataset == 'cifar100'")
    assert not {*rows["seed"]} <= {*exhibits.SEEDS["record"]} and {*rows["seed"]} <= planned.seeds()


def test_the_command_writes_the_results_after_each_run_and_says_when_nothing_is_left(capsys, monkeypatch):
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: [])
    monkeypatch.setattr(
        lab, "sweep", lambda specs, scale, jobs, in_order, each: [each(left) for left in (1, 0) if specs]
    )
    monkeypatch.setattr(recorded, "export", lambda: 62)
    assert main(["record", "audit"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"62 runs of the store are in {lab.home() / 'results'}; {left} of the experiment remain" for left in (1, 0)
    ]
    held = [made(run.key) for run in planned.arm("ablations").runs]
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: held)
    monkeypatch.setattr(recorded, "export", lambda: pytest.fail("nothing was trained"))
    assert main(["record", "ablations"]) == 0
    assert capsys.readouterr().out == "nothing to train: all 18 runs of ablations are of record or stored\n"


def test_what_waits_for_its_arm_is_whole_planned_and_in_no_table():
    waiting = [done.parent for done in (places.RESULTS / "pending" / "runs").glob("*/DONE")]
    named = {run.key for arm in planned.arms().values() for run in arm.runs}
    of_record_ = {record.key for record in of_record.read_results()}
    for path in waiting:
        record = lab.read(path)
        assert record is not None and record.key in named and record.key not in of_record_
        assert lab.resolve(record.spec).key == record.key


def test_what_waits_for_its_arm_is_not_open(tmp_path, monkeypatch):
    arm = planned.arm("ablations")
    monkeypatch.setattr("fedlib.lab.of_record.by_key", dict)
    monkeypatch.setattr(lab, "missing", lambda specs, scale: [lab.resolve(spec, scale) for spec in specs])
    monkeypatch.setattr(places, "RESULTS", tmp_path)
    before = len(arm.open())
    done = tmp_path / "pending" / "runs" / arm.runs[0].key / "DONE"
    done.parent.mkdir(parents=True)
    done.touch()
    assert before == len(arm.runs) and len(arm.open()) == before - 1
