"""One's own experiment from end to end, without an import from fedlib.papers."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib import FedlibError, RunSpec, lab, metrics, study

SMALL = {"dataset": "digits", "num_clients": 4, "rounds": 2}


@pytest.fixture(scope="module")
def found(trained_once):
    methods = {"alone": "Standalone", "FedSSA": {"params": {"mu0": 0.4}}}
    return trained_once(lambda: study.train(methods, seeds=(0, 1), jobs=1, **SMALL))


def test_a_table_has_accuracies_differences_people_and_prices(found):
    table = found.table(reference="alone", people=True, prices=True)
    assert list(table.table.index) == ["alone", "FedSSA"]
    setting, *more = table.table.columns
    assert more == ["difference to alone", "worst decile", "spread", "KB a client and round", "FLOPs"]
    of = {name: [record for cell, record in found.runs.pairs if cell.method == name] for name in found.methods}
    last = {name: [100 * one.rounds["accuracy"].iloc[-1] for one in records] for name, records in of.items()}
    mean = {name: sum(values) / 2 for name, values in last.items()}
    assert table.table.loc["FedSSA", setting].startswith(f"{mean['FedSSA']:.2f} ±")
    apart = f"{mean['FedSSA'] - mean['alone']:+.2f} ±"
    assert table.table.loc["FedSSA", "difference to alone"].startswith(apart)
    assert table.table.loc["FedSSA", "difference to alone"].endswith("(n = 2)")
    assert table.table.loc["alone", "KB a client and round"] == "0" and table.table["FLOPs"].min() == "1.00"
    spread = sum(100 * one.final()["accuracy"].std(ddof=0) for one in of["alone"]) / 2
    assert table.table.loc["alone", "spread"] == f"{spread:.2f}"
    assert of["FedSSA"][0].spec.params["mu0"] == 0.4


@pytest.mark.thorough(None)
def test_a_table_says_who_is_trained_otherwise_or_on_other_images(small_digits):
    table = study.train(["Standalone", "FedProto", "FedMD", "FedGH"], jobs=1, **SMALL | {"rounds": 1}).table(
        reference="Standalone"
    )
    said = table.note
    assert "FedGH is trained otherwise than Standalone: weight_decay = 0.001." in said and "FedProto" not in said
    assert "FedMD's clients hold other images than Standalone's (overrides={'reserve': True} keeps" in said
    alike = {
        name: {"algorithm": name, "paper": "FedSSA", "overrides": {"reserve": True}}
        for name in ("Standalone", "FedMD", "FedGH")
    }
    assert "otherwise" not in study.train(alike, jobs=1, **SMALL | {"rounds": 1}).table().note


@pytest.mark.thorough(None)
def test_a_table_says_how_many_runs_lost_patience(small_digits):
    said = study.train(["Standalone"], jobs=1, **SMALL | {"rounds": 6, "patience": 1, "lr": 1e-9}).table().note
    assert "A run ends after 1 round without a better validation accuracy: 1 of 1 did, the earliest after" in said


def test_a_table_goes_into_a_paper(found):
    table = found.table(reference="alone")
    latex, markdown = table.to_latex(), table.to_markdown()
    assert r"\textbf{" in latex and "Mean test accuracy" in latex and r"$\pm$" in latex
    assert markdown.splitlines()[1] == "| --- | --- | --- |" and "**" in markdown and markdown.count("\n") == 5


def test_curves_along_what_is_spent(found):
    for along in ("rounds", "words", "flops"):
        assert found.curves(along=along).axes[0].lines
    assert found.curves("worst_decile").axes[0].lines and found.curves("loss", along="epochs").axes[0].lines
    for given, line in (
        ({"along": "minutes"}, "along = 'minutes' is unknown"),
        ({"metric": "macro_f1"}, r"has no macro_f1; RunSpec\(metrics='macro_f1'\)"),
        ({"metric": "f1"}, "^metric = 'f1' is unknown: known are accuracy, balanced_accuracy, macro_f1, "),
    ):
        with pytest.raises(FedlibError, match=line):
            found.curves(**given)


def test_a_saved_figure_has_its_legend_and_foot(found, tmp_path):
    picture = found.curves()
    picture.savefig(tmp_path / "a.png")
    shown, drawn = (
        Image.open(file).size for file in (io.BytesIO((tmp_path / "a.png").read_bytes()), io.BytesIO(picture.png()))
    )
    assert shown[0] / drawn[0] == pytest.approx(1, rel=0.04)  # both at 300 dpi, of the same area
    assert shown[1] / drawn[1] == pytest.approx(1, rel=0.04)


def test_clients_one_by_one(found):
    assert len(found.runs.clients()) == 2 * 2 * 4 and set(found.runs.clients()["method"]) == {"alone", "FedSSA"}


@pytest.mark.thorough
def test_tuned_methods_have_the_number_of_trials_beneath_every_table(small_digits):
    tuned = study.tune(["Standalone", "FedProto"], trials=2, progress=False, **SMALL)
    assert list(tuned.table["trials"]) == [2, 2]
    found = study.train(tuned, seeds=(0, 1), jobs=1)
    assert found.table().note.endswith("Hyper-parameters chosen by validation accuracy, 2 trials each.")
    assert {cell.spec.lr for cell in found.runs.cells if cell.method == "FedProto"} == {tuned["FedProto"].spec.lr}
    assert len(lab.stored()) <= 4 + 4  # seed 0 of what was chosen is a trial
    kept = study.train(tuned, jobs=1, keep="clients", rounds=1)
    assert {(cell.spec.keep, cell.spec.rounds) for cell in kept.runs.cells} == {("clients", 1)}
    assert [cell.spec.lr for cell in kept.runs.cells] == [one.spec.lr for one in tuned.values()]
    assert kept.runs.records[1].client(0) is not None


def test_a_specification_keeps_its_own_fields(small_digits):
    found = study.train({"one": RunSpec("FedProto", rounds=1), "two": "FedProto"}, jobs=1, **SMALL)
    assert [cell.spec.rounds for cell in found.runs.cells] == [1, 2]


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
    for full, small in (
        ("trials=20", "trials=1"),
        ('"num_clients": 10, "rounds": 20', '"num_clients": 4, "rounds": 1'),
    ):
        assert full in source
        source = source.replace(full, small)
    exec(source, {})
    assert {path.name for path in tmp_path.glob("*.*")} >= {"table.tex", "rounds.pdf", "flops.pdf"}


def test_a_difference_is_of_the_metric_that_the_table_shows(small_digits):
    """Mean test losses of two seeds: what the column says is their paired difference in nats, not points of accuracy."""
    metrics.register(
        metrics.Metric(
            "nats", "loss", "nats", high=np.inf, higher_is_better=False, of_client=torch.nn.functional.cross_entropy
        )
    )
    size = {"dataset": "digits", "num_clients": 4, "rounds": 1, "batch_size": 64}
    found = study.train(["Standalone", "FedSSA"], seeds=(0, 1), jobs=1, metrics="nats", **size)
    last = {(cell.method, cell.spec.seed): run.rounds["nats"].iloc[-1] for cell, run in found.runs.pairs}
    apart = np.mean([last["FedSSA", seed] - last["Standalone", seed] for seed in (0, 1)])
    table = found.table(metric="nats", reference="Standalone", people=True).table
    assert table.loc["FedSSA", "difference to Standalone"].startswith(f"{apart:+.2f} ±")
    assert "spread of accuracy" in table.columns


def test_a_table_says_who_is_dealt_otherwise_takes_no_part_or_diverged(small_digits):
    size = {"dataset": "digits", "num_clients": 4, "rounds": 2, "batch_size": 64}
    methods = {
        "FedSSA": "FedSSA",
        "even": {"algorithm": "FedSSA", "partition": "iid"},
        "fewer": {"algorithm": "FedSSA", "newcomers": 1, "newcomer_visits": 1},
        "wild": {"algorithm": "Standalone", "lr": 1e9},
        "short": {"algorithm": "Standalone", "budget_words": 1e9},
    }
    shown = study.train(methods, jobs=1, **size).table(reference="FedSSA", prices=True)
    assert "even's clients hold other images than FedSSA's" in shown.note
    assert "fewer is trained otherwise than FedSSA: newcomers = 1, newcomer_visits = 1" in shown.note
    assert (
        "A run of short ends with the round in which it has sent 1e+09 words; short ended by its rounds." in shown.note
    )
    assert shown.table.loc["wild", ["difference to FedSSA", "FLOPs"]].tolist() == ["–", "–"]
    assert sorted(shown.table["FLOPs"])[0] == "1.00"


@pytest.mark.parametrize("method", [{"algorithm": "FedSSA", "seed": 5}, RunSpec("FedSSA", seed=3)])
def test_a_seed_of_one_method_is_refused(method):
    with pytest.raises(
        FedlibError, match=r"^seed of mine = \d: must be left out: seeds=\[0, 1, 2\] says them for all$"
    ):
        study.train({"mine": method})


def test_at_a_prompt_a_study_and_a_run_are_a_line_each(found):
    assert repr(found) == "Study(alone, FedSSA: 4 runs; .table(), .curves())"
    record = found.runs.records[0]
    accuracy = record.rounds["accuracy"].iloc[-1]
    assert repr(record) == f"Record({record.key}, finished, 2 rounds, accuracy {accuracy:.4f})"
