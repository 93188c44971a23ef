"""One's own experiment from end to end, without an import from fedlib.papers."""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch

from fedlib import FedlibError, RunSpec, lab, metrics, study

SMALL = {"dataset": "digits", "num_clients": 4, "rounds": 2}


@pytest.fixture(scope="module")
def found(trained_once):
    methods = {"alone": "Standalone", "FedSSA": {"params": {"mu0": 0.4}}}
    return trained_once(lambda: study.train(methods, seeds=(0, 1), jobs=1, **SMALL))


@pytest.mark.parametrize(
    ("methods", "more", "line"),
    [
        ("FedSSA", {}, "methods = 'FedSSA': must be names of methods"),
        ([], {}, "methods = .*: must be one or more"),
        (["FedSSA", "FedSSA"], {}, "methods = 'FedSSA': must be each once"),
        (["FedSSB"], {}, "FedSSB.*did you mean 'FedSSA'"),
        (["FedSSA"], {"seeds": ()}, "seeds = .*: must be one or more different"),
        (["FedSSA"], {"seeds": [0, "0"]}, "seeds = .*: must be one or more different"),
        (["FedSSA"], {"seeds": "01"}, "seeds = '01': must be one or more different"),
        (["FedSSA"], {"seeds": 3}, "seeds = 3: must be one or more different"),
        (["FedSSA"], {"seed": 3}, "seed = 3: must be left out"),
        ({"a": None}, {}, "a = None: must be a name, the fields"),
        (["FedSSA"], {"rouns": 3}, "FedSSA: field = 'rouns' is unknown: did you mean 'rounds'"),
    ],
)
def test_what_is_unknown_is_refused_in_one_line(methods, more, line):
    with pytest.raises(FedlibError, match=line):
        study.train(methods, **more)


@pytest.mark.thorough
def test_the_page_your_paper_runs_from_an_empty_folder(small_digits, tmp_path, monkeypatch):
    """In under 60 lines, without an import from fedlib.papers."""
    page = (Path(__file__).parents[1] / "docs/pages/paper.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(source.splitlines()) < 60 and "papers" not in source
    monkeypatch.chdir(tmp_path)
    # A notebook that this process has run may have set it.
    monkeypatch.setitem(mpl.rcParams, "figure.constrained_layout.use", False)
    for full, small in (
        ("trials=20", "trials=1"),
        ('"num_clients": 10, "rounds": 20', '"num_clients": 4, "rounds": 1'),
    ):
        assert full in source
        source = source.replace(full, small)
    exec(source, {})
    assert {path.name for path in tmp_path.glob("*.*")} >= {"table.tex", "rounds.pdf"}


@pytest.mark.parametrize("method", [{"algorithm": "FedSSA", "seed": 5}, RunSpec("FedSSA", seed=3)])
def test_a_seed_of_one_method_is_refused(method):
    with pytest.raises(
        FedlibError, match=r"^seed of mine = \d: must be left out: seeds=\[0, 1, 2\] says them for all$"
    ):
        study.train({"mine": method})


def test_frames_and_a_table_are_of_the_same_runs(found):
    assert found.runs[["method", "seed"]].to_numpy().tolist() == [
        ["alone", 0],
        ["alone", 1],
        ["FedSSA", 0],
        ["FedSSA", 1],
    ]
    assert [record.key for record in found.records] == found.runs["key"].tolist() and len(found.clients) == 4 * 4
    last = [100 * record.rounds["accuracy"].iloc[-1] for record in found.records]
    assert found.runs["last"].tolist() == pytest.approx(last) and found.records[2].spec.params["mu0"] == 0.4
    table = found.table(reference="alone")
    assert list(table.index) == ["alone", "FedSSA"] and table.shape == (2, 2)
    assert table.iloc[1, 0].startswith(f"{(last[2] + last[3]) / 2:.2f} ")
    assert table.loc["FedSSA", "difference to alone"].startswith(f"{(last[2] + last[3] - last[0] - last[1]) / 2:+.2f} ")
    of_clients = [100 * record.final().nsmallest(1, "accuracy")["accuracy"].mean() for record in found.records]
    assert found.table(metric="worst_decile").iloc[0, 0].startswith(f"{(of_clients[0] + of_clients[1]) / 2:.2f} ")
    assert repr(found) == "Study(alone, FedSSA: 4 runs; .runs, .rounds, .clients, .table())"
    for given, line in (
        ({"metric": "macro_f1"}, r"has no macro_f1; RunSpec\(metrics='macro_f1'\)"),
        ({"metric": "f1"}, "^metric = 'f1' is unknown"),
        ({"reference": "FedAvg"}, "^reference = 'FedAvg' is unknown"),
    ):
        with pytest.raises(FedlibError, match=line):
            found.table(**given)


@pytest.mark.thorough(None)
def test_it_says_who_is_trained_otherwise_or_on_other_images(small_digits):
    short = SMALL | {"rounds": 1}
    said = " ".join(study.train(["Standalone", "FedProto", "FedMD", "FedGH"], jobs=1, **short).notes)
    assert "FedGH is trained otherwise than Standalone: weight_decay = 0.001." in said and "FedProto" not in said
    assert "FedMD's clients hold other images than Standalone's (overrides={'reserve': True} keeps" in said
    names, alike = ("Standalone", "FedMD", "FedGH"), {"paper": "FedSSA", "overrides": {"reserve": True}}
    assert study.train({name: {"algorithm": name} | alike for name in names}, jobs=1, **short).notes == []
    methods = {"FedSSA": "FedSSA", "even": {"algorithm": "FedSSA", "partition": "iid"}}
    methods |= {"fewer": {"algorithm": "FedSSA", "newcomers": 1, "newcomer_visits": 1}}
    methods |= {"wild": {"algorithm": "Standalone", "lr": 1e9}}
    found = study.train(methods, jobs=1, batch_size=64, **SMALL)
    said = " ".join(found.notes)
    assert "even's clients hold other images than FedSSA's" in said
    assert "fewer is trained otherwise than FedSSA: newcomers = 1, newcomer_visits = 1" in said
    assert found.table(reference="FedSSA").loc["wild"].tolist() == ["–", "–"]


@pytest.mark.thorough
def test_tuned_methods_have_the_number_of_trials_beneath(small_digits):
    tuned = study.tune(["Standalone", "FedProto"], trials=2, jobs=1, progress=False, **SMALL)
    assert list(tuned.table["trials"]) == [2, 2]
    found = study.train(tuned, seeds=(0, 1), jobs=1)
    assert found.notes == ["Hyper-parameters chosen by validation accuracy, 2 trials each."]
    assert {record.spec.lr for record in found.records[2:]} == {tuned["FedProto"].spec.lr}
    assert len(lab.stored()) <= 4 + 4  # seed 0 of what was chosen is a trial
    kept = study.train(tuned, jobs=1, keep="clients", rounds=1)
    assert {(record.spec.keep, record.spec.rounds) for record in kept.records} == {("clients", 1)}
    assert kept.records[1].client(0) is not None


def test_a_specification_keeps_its_own_fields(small_digits):
    found = study.train({"one": RunSpec("FedProto", rounds=1), "two": "FedProto"}, jobs=1, **SMALL)
    assert found.runs["rounds"].tolist() == [1, 2]


def test_a_difference_is_of_the_metric_that_the_table_shows(small_digits):
    """Mean test losses of two seeds: what the column says is their paired difference in nats, not points of accuracy."""
    loss = torch.nn.functional.cross_entropy
    metrics.register(metrics.Metric("nats", "nats", high=np.inf, of_client=loss))
    size = {"dataset": "digits", "num_clients": 4, "rounds": 1, "batch_size": 64}
    found = study.train(["Standalone", "FedSSA"], seeds=(0, 1), jobs=1, metrics="nats", **size)
    last = [record.rounds["nats"].iloc[-1] for record in found.records]
    apart = (last[2] + last[3] - last[0] - last[1]) / 2
    assert found.table(metric="nats", reference="Standalone").iloc[1, 1].startswith(f"{apart:+.2f} ±")
