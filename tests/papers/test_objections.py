"""The pages of objections and of exhibits say what the committed results and pictures say, and go with them."""

import importlib
import re
import sys

import numpy as np
import pandas as pd
import pytest
from results_of_record import of_record

from fedlib.papers import exhibits, notebook, objections, planned, recorded

pytest.importorskip("pygments")
ROOT = notebook.NOTEBOOKS.parent
nan = float("nan")


@pytest.fixture(scope="module")
def blocks():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("blocks")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def made(blocks):
    return blocks.blocks()


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["objections.md", "exhibits.md"])
def test_a_page_says_what_the_results_say(blocks, made, page):
    text = (blocks.PAGES / page).read_text(encoding="utf-8")
    assert blocks.filled(text, made[page]) == text, "python docs/blocks.py writes it"
    assert all(f"<!-- {name} -->\n" in text and f"\n<!-- /{name} -->" in text for name in made[page])


@pytest.mark.thorough
def test_both_pages_are_linked_from_the_readme_and_in_the_sites_navigation(blocks):
    for page in ("objections", "exhibits"):
        assert f"](docs/pages/{page}.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
        assert f"\n{page}\n" in blocks.generate.landing(dict.fromkeys(exhibits.EXHIBITS, ""))


@pytest.mark.thorough
def test_no_number_of_a_result_is_typed(blocks, made):
    """Outside of the blocks only what was asked: settings, never a mean, an interval or an n of ours."""
    empty = blocks.filled(
        (blocks.PAGES / "objections.md").read_text(encoding="utf-8"), dict.fromkeys(made["objections.md"], "")
    )
    assert "±" not in empty and "n =" not in empty and not re.search(r"\s[+-]\d|\d\d\.\d", empty)


@pytest.mark.thorough
def test_every_arm_that_is_not_whole_is_named_by_an_answer(made):
    said = "\n".join(made["objections.md"].values())
    waiting = [
        arm.name for arm in planned.arms().values() if not {run.key for run in arm.runs} <= recorded.by_key().keys()
    ]
    assert [name for name in waiting if f"*{name}*" not in said and f"({name})" not in said] == []


@pytest.mark.parametrize(
    ("differences", "word"),
    [
        ([(1.0, 0.9), (2.0, 1.5)], "clear"),
        ([(-1.0, 0.9), (-2.0, 1.5)], "clear"),
        ([(1.0, 0.9), (-2.0, 1.5)], "not clear"),  # the rules disagree
        ([(1.0, 0.9), (1.0, 1.0)], "not clear"),
        ([(1.0, nan)], "not clear"),
        ([(1.0, 0.9), (1.0, nan)], "not clear"),
    ],
)
def test_clear_is_clear_by_every_rule(differences, word):
    assert objections.clear(*differences) == word


def trained(name, cases, value):
    """Results of record of an arm that have these cases: accuracy `value(case, seed)`, the same in every round."""
    arm = planned.arm(name)
    found = []
    for run in arm.runs:
        if run.case in cases:
            accuracy = value(run.case, run.spec.seed)
            rounds = pd.DataFrame({"round": np.arange(run.spec.rounds), "accuracy": accuracy})
            found.append(of_record(run.key, run.spec, rounds))
    return found


def test_an_arm_answers_as_soon_as_its_runs_are_there(monkeypatch):
    noise = [0.0, 0.001, -0.001]
    levels = {"Standalone": 0.5, "FedProto": 0.55, "FedSSA": 0.6}
    new = trained("long", levels, lambda case, seed: levels[case] + noise[seed] * (1 if case == "FedSSA" else -1))
    for run in new:
        run.rounds.loc[run.rounds["round"] < 100, "accuracy"] -= 0.1
    own = {run.key for run in planned.arm("long").runs}  # whatever is on record of the arm
    every = [*(record for record in recorded.read_results() if record.key not in own), *new]
    monkeypatch.setattr(recorded, "read_results", lambda: every)
    said = objections.answers("length")["length"]
    assert "Arm *long* of the plan: 9 of 10 runs are on record." in said
    (line,) = [one for one in said if one.startswith("CIFAR-100, T = 500: FedSSA against FedProto: ")]
    assert "+5.00 ± " in line and "(n = 3)" in line and line.endswith(": clear.")
    assert not [one for one in said if one.startswith("FedKD")]  # not there yet
    assert "Standalone, seed 0: 50.00 after 500 rounds, 40.00 after 100 of them; FedSSA's Table 2 prints 53.04." in said


def test_each_method_is_taken_at_the_rate_of_best_validation_accuracy(monkeypatch):
    """Not of best test accuracy, which is the other way round; of seeds 0, 1 and 2 the mean counts."""
    validation = {"FedSSA": {0.003: 0.6, 0.01: 0.5, 0.03: 0.4}, "FedProto": {0.003: 0.3, 0.01: 0.4, 0.03: 0.5}}
    noise = [0.01, -0.01, 0.0]
    new = []
    for arm in ("gpu", "rates"):
        for run in planned.arm(arm).runs:
            method, rate, seed = run.spec.algorithm, run.spec.lr or 0.01, run.spec.seed
            high = validation[method][rate] + noise[seed] * (1 if method == "FedSSA" else -1)
            table = {"round": np.arange(run.spec.rounds), "accuracy": 1.0 - high, "validation_accuracy": high}
            new.append(of_record(run.key, run.spec, pd.DataFrame(table)))
    every = [*(record for record in recorded.read_results() if record.key not in {one.key for one in new}), *new]
    monkeypatch.setattr(recorded, "read_results", lambda: every)
    said = objections.answers("tuning")["tuning"]
    assert (
        "FedSSA, mean validation accuracy by learning rate (n = 3): 60.00 at 0.003, 50.00 at 0.01, 40.00 at 0.03; 0.003 is taken."
        in said
    )
    (line,) = [one for one in said if one.startswith("FedSSA, GPU, lr 0.003 against FedProto, GPU, lr 0.03: ")]
    assert "-10.00 ± " in line and "(n = 3)" in line and not [one for one in said if "Both rates are" in one]
    (line,) = [one for one in objections.answers("gpu")["gpu"] if one.startswith("FedSSA, GPU against FedSSA: ")]
    main = [run for run in every if run.key in {one.key for one in planned.arm("main-table").runs}]
    own = [
        100 * run.rounds["accuracy"].iloc[-1]
        for run in main
        if run.spec.algorithm == "FedSSA" and run.spec.dataset == "cifar100"
    ]
    assert f": {50 - np.mean(own):+.2f} ± " in line


@pytest.mark.thorough
def test_one_seed_has_no_interval_and_decides_nothing(monkeypatch):
    new = trained(
        "pfedhr", ["Standalone, IID", "pFedHR, labelled, IID"], lambda case, seed: 0.5 + ("pFed" in case) / 10
    )
    own = {run.key for run in planned.arm("pfedhr").runs}
    others = [run for run in recorded.read_results() if run.key not in own]
    every = [*others, *(run for run in new if run.spec.seed == 0)]
    monkeypatch.setattr(recorded, "read_results", lambda: every)
    said = objections.answers("reduced")["reduced"]
    assert "Arm *pfedhr* of the plan: 2 of 30 runs are on record." in said
    (line,) = [one for one in said if "pFedHR, labelled, IID against Standalone, IID" in one]
    assert line.endswith(": +10.00, in the last ten rounds +10.00 (n = 1): one seed, which decides nothing.")


def copied(arm, rounds_of, **columns):
    """Results of record of an arm: of each case the rounds of the run that it names, with further columns."""
    for run in planned.arm(arm).runs:
        yield of_record(run.key, run.spec, rounds_of(run.spec).assign(**columns))


@pytest.mark.thorough
def test_the_parts_of_a_lead_and_the_shared_network_are_said(monkeypatch):
    held = recorded.read_results()
    alike = {
        (record.spec.algorithm, record.spec.seed): record.rounds
        for record in held
        if (record.spec.dataset, record.spec.local_epochs, record.spec.rounds) == ("cifar100", 10, 100)
        and record.key in {run.key for arm in ("main-table", "five-seeds") for run in planned.arm(arm).runs}
    }

    def rounds_of(spec):
        return alike[spec.algorithm, spec.seed]

    new = [
        *copied("isolated", rounds_of),
        *copied("shared", rounds_of, shared_accuracy=0.25, received_accuracy=0.125),
    ]
    every = [*(record for record in held if record.key not in {one.key for one in new}), *new]
    monkeypatch.setattr(recorded, "read_results", lambda: every)
    said = objections.answers("exchange", "again")
    (kd,) = [
        one for one in said["exchange"] if one.startswith("FedKD, CIFAR-100")
    ]  # isolated as together: all of it is local
    assert "local +" in kd and "exchange +0.00 ± " in kd and "(clear)" in kd and kd.endswith("(not clear) (n = 3).")
    (ssa,) = [one for one in said["exchange"] if one.startswith("FedSSA, CIFAR-100")]
    assert "exchange +0.00 (one seed)" in ssa and "±" not in ssa
    (kd,) = [one for one in said["again"] if one.startswith("FedKD, shared network scored, seed 0")]
    assert "the shared one 25.00, as received 12.50; printed 37.21." in kd


def test_a_difference_within_the_margin_is_none_and_a_clear_one_is_clear():
    def word(**given):
        lead = {"own": "a", "other": "b", "last": (0.1, 0.5), "smooth": (0.1, 0.5), "n": 3, "equal": True} | given
        return str(objections._Lead(**lead)).split(": ")[-1]

    assert word() == "no difference within 1 point."
    assert word(n=2) == word(n=2, last=(0.6, 0.5), smooth=(0.6, 0.5)) == "2 seeds, which decide nothing."
    assert word(equal=False) == "not clear."
    assert word(last=(0.6, 0.5), smooth=(0.6, 0.5)) == "clear."


# ---------------------------------------------------------------------------------------------------- exhibits


@pytest.mark.thorough
def test_the_state_of_an_exhibit_is_that_of_its_picture_and_runs(blocks):
    generate, states = blocks.generate, {}
    for exhibit in exhibits.EXHIBITS.values():
        runs, asked, seeds = generate.held(exhibit)
        states[exhibit.name] = generate.state(exhibit)
        drawn = (ROOT / "figures" / "record" / exhibit.paper / f"{exhibit.item}-of-record.png").exists()
        assert (states[exhibit.name] == "record") == (drawn and bool(exhibit.grids))
        assert runs <= asked and bool(runs) <= bool(seeds)
        assert bool(runs) or not drawn  # a picture of record without a run would be of nothing
        assert (states[exhibit.name] == "needs no run") == (asked == 0)
    assert len(states) == 44 and set(states.values()) <= {"record", "demo", "smoke only", "needs no run"}
    assert states["fedssa/table3"] == "needs no run" and states["fedssa/table2"] == "record"


def test_runs_of_an_exhibit_are_counted_one_by_one(blocks):
    held = {
        (record.spec.algorithm, record.spec.seed)
        for record in recorded.read_results()
        if record.spec.dataset == "cifar10" and record.spec.rounds == 100 and record.spec.protocol == "reconstructed"
    }
    runs, asked, seeds = blocks.generate.held(
        exhibits.EXHIBITS["fedssa/fig9"]
    )  # FedProto, FedSSA x three rates x three seeds
    assert asked == 18 and runs >= len([one for one in held if one[0] in ("FedProto", "FedSSA") and one[1] < 3]) > 0
    assert seeds == [len([one for one in held if one[0] == "FedSSA"])]


def test_a_picture_of_one_run_of_each_method_asks_for_one_seed(blocks):
    _, asked, _ = blocks.generate.held(exhibits.EXHIBITS["fedssa/fig6"])  # FedProto, FedSSA
    assert asked == 2 == len(exhibits.cells("fedssa/representations", "record", seeds=(0,)))


@pytest.mark.parametrize("name", ["fig7.png", "fig7-of-record.png"])
def test_a_picture_of_scale_demo_makes_it_demo(blocks, monkeypatch, tmp_path, name):
    monkeypatch.setattr(blocks.generate, "ROOT", tmp_path)
    exhibit = exhibits.EXHIBITS["fedssa/fig7"]
    assert blocks.generate.state(exhibit) == "smoke only"
    (tmp_path / "figures/demo/fedssa").mkdir(parents=True)
    (tmp_path / "figures/demo/fedssa" / name).write_bytes(b"")
    assert blocks.generate.state(exhibit) == "demo"
    (tmp_path / "figures/record/fedssa").mkdir(parents=True)
    (tmp_path / "figures/record/fedssa/fig7.png").write_bytes(b"")  # a notebook's own, not of record
    assert blocks.generate.state(exhibit) == "demo"
    (tmp_path / "figures/record/fedssa/fig7-of-record.png").write_bytes(b"")
    assert blocks.generate.state(exhibit) == "record"
