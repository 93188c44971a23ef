"""What the results of record hold is read, not trained: by the plan, by a notebook, and by the stamps of what was made of them."""

import dataclasses
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from matplotlib.figure import Figure
from results_of_record import drawing, write_results

from fedlib import devices, lab, numerics
from fedlib.__main__ import main
from fedlib.errors import FedlibError
from fedlib.papers import exhibits, notebook, reproduce, settings, stamps, views

METHODS = ("Standalone", "FedSSA")
WORKFLOW = Path(__file__).parents[2] / "workflow"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    every = settings.defaults("record", METHODS).cells("fedssa/heterogeneous")
    write_results(results := tmp_path_factory.mktemp("written") / "results", every[:-1])
    return results, every


@pytest.fixture
def cells(written, tmp_path, monkeypatch):
    """Those of Standalone and FedSSA in FedSSA's Table 2 at scale record, all of record but the last seed of one; nothing trains."""
    results, every = written
    shutil.copytree(results, tmp_path / "results")
    monkeypatch.setattr("fedlib.lab.places.RESULTS", tmp_path / "results")
    monkeypatch.setattr(lab, "expected_seconds", lambda todo, known: [60.0] * len(todo))
    return every


def trained(monkeypatch):
    """What `lab.sweep` is asked to train from now on."""
    asked = []

    def sweep(specs, *given, **named):
        asked.extend(specs)
        return [SimpleNamespace(key=lab.resolve(spec).key) for spec in specs]

    for name in ("fedlib.lab.sweep", "fedlib.lab.of_record.sweep"):
        monkeypatch.setattr(name, sweep)
    return asked


def test_what_is_of_record_is_not_trained(cells, monkeypatch, capsys):
    asked = trained(monkeypatch)
    command = ["reproduce", "fedssa/table2", "--scale", "record", "--methods", "FedSSA, Standalone", "--train-only"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert said.startswith("36 runs needed, 0 stored, 35 of record, 1 to train:")
    assert "35 runs of record are read" in said
    assert [lab.resolve(spec).key for spec in asked] == [lab.resolve(cells[-1].spec).key]
    assert main([*command, "--afresh"]) == 0
    assert capsys.readouterr().out.startswith("36 runs needed, 0 stored, 36 to train:") and len(asked) == 37


def test_a_plan_says_what_is_to_be_downloaded(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    assert main(["reproduce", "fedssa/table2", "--scale", "demo", "--dry-run"]) == 0
    assert "\nto download first: python -m fedlib data cifar10\n" in capsys.readouterr().out


def test_that_todays_code_computes_other_numbers_is_said(cells, tmp_path, monkeypatch, capsys):
    write_results(tmp_path / "results", cells)
    monkeypatch.setitem(numerics.VERSIONS, "method FedSSA", 2)
    assert main(["reproduce", "fedssa/table2", "--scale", "record", "--methods", "FedSSA,Standalone", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "36 of record: nothing to train" in said
    assert "18 of 36 are of earlier numbers than today's code computes (method FedSSA)." in said


def test_what_needs_more_than_a_summary_is_trained(cells):
    """FedSSA's t-SNE shows clients' networks, pFedHR's Figure 7 structures."""
    chosen = exhibits.choose_exhibits
    assert not reproduce.plan(chosen("fedssa/fig6"), "record").read
    assert not reproduce.plan([*chosen("fedssa/fig6"), *chosen("fedssa/table2")], "record", methods=["FedSSA"]).read[
        18:
    ]
    assert {item.name for item in exhibits.every().values() if item.whole} == {"pfedhr/fig7"}
    needs = {
        item.name
        for item in exhibits.every().values()
        if any(exhibits.GRIDS[grid].keep != "none" for grid in item.grids)
    }
    assert needs == {"fedssa/fig6", "pfedes/fig6", "pfedes/fig7"}


@pytest.mark.thorough
def test_a_plan_for_another_engine_says_what_is_of_record(cells):
    """And asks for none of it."""
    planned = reproduce.listed("fedssa/table2", "record", methods=METHODS)
    last = lab.resolve(cells[-1].spec).key
    assert [run["key"] for run in planned["runs"]] == planned["exhibits"][0]["runs"] == [last]
    assert len(planned["of_record"]) == 35 and last not in planned["of_record"]
    assert len(reproduce.listed("fedssa/table2", "record", methods=METHODS, afresh=True)["runs"]) == 36
    for plan in (planned, reproduce.listed("all", "smoke")):
        jsonschema.validate(json.loads(json.dumps(plan)), json.loads((WORKFLOW / "plan.schema.json").read_text()))


def test_a_plan_and_the_engines_have_one_schema():
    """And one version: see tests/test_workflow.py."""
    stated = {
        int(re.search(r"^SCHEMA = (\d+)", (WORKFLOW / name).read_text(), re.M)[1])
        for name in ("Snakefile", "submit.py")
    }
    described = json.loads((WORKFLOW / "plan.schema.json").read_text())["properties"]["schema"]["const"]
    assert stated == {described} == {reproduce.SCHEMA}


def test_a_notebook_reads_them(cells, monkeypatch, capsys):
    asked = trained(monkeypatch)
    found = notebook.train_cells(cells[:-1])
    assert not asked and len(found.records) == 35
    assert capsys.readouterr().out == "35 runs are of record, read from results/.\n"
    notebook.check_training(found.records, "FedSSA")
    assert "NO" not in capsys.readouterr().out
    with pytest.raises(FedlibError, match=r"keeps no weights.*whole=True"):
        lab.load_weights(found.records[0], "clients")
    with pytest.raises(FedlibError, match=r"no details.*whole=True"):
        views.list_matches(found.records[0])
    notebook.train_cells(cells[:3], whole=True)
    assert len(asked) == 3
    own = exhibits.Cell(spec=replace(cells[0].spec, keep="clients"))
    notebook.train_cells([own])
    assert len(asked) == 4
    notebook.train_cells([exhibits.Cell(spec=replace(cells[0].spec, metrics="macro_f1"))])
    assert len(asked) == 5  # a result of record has no such column


def test_with_no_jobs_what_is_missing_is_left_out(cells, monkeypatch, capsys):
    asked = trained(monkeypatch)
    found = notebook.train_cells(cells, 0)
    assert not asked and [cell.spec for cell in found.cells] == [cell.spec for cell in cells[:-1]]
    assert [record.key for record in found.records] == [lab.resolve(cell.spec).key for cell in cells[:-1]]
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 36 runs are missing and left out."
    with pytest.raises(FedlibError, match="jobs = 0: must be at least 1: none of the 1 runs is there"):
        notebook.train_cells(cells[-1:], 0)


def test_of_scale_record_a_notebook_trains_nothing_unless_weights_are_wanted(cells, monkeypatch):
    asked, of_record = trained(monkeypatch), [replace(cell, scale="record") for cell in cells]
    given = {name: default for name, (_, default, _) in notebook.PARAMETERS.items()}
    assert notebook.settings(**given | {"scale": "record"}).jobs == 2  # for what a notebook trains besides exhibits
    assert len(notebook.train_cells(of_record, 2).records) == len(cells) - 1 and not asked
    notebook.train_cells(of_record[:1], 2, whole=True)
    assert len(asked) == 1


@pytest.mark.thorough
def test_figures_alone_are_drawn_without_what_is_missing(cells, tmp_path, monkeypatch, capsys):
    swept = trained(monkeypatch)

    def execute(file, asked, train):
        assert not train
        executed = reproduce._executed(file, asked)
        executed.parent.mkdir(parents=True, exist_ok=True)
        executed.write_text('{"cells": []}')
        drawing(monkeypatch, "fedssa/table2")
        notebook.save_figure("fedssa/table2", asked, Figure(), exhibits.frame(cells))

    monkeypatch.setattr(reproduce, "execute", execute)
    command = ["reproduce", "fedssa/table2", "--scale", "record", "--methods", "FedSSA,Standalone", "--figures-only"]
    for was in ("not executed", "runs changed"):  # what lacks a run is never fresh
        assert main(command) == 0
        said = capsys.readouterr().out
        assert said.startswith("1 of 36 runs are missing, and are left out") and not swept
        assert f"fedssa/table2         {was}" in said and "ok, 35 of 36 runs" in said
    write_results(tmp_path / "results", [])
    assert main(command) == 2 and "36 of 36 runs are missing: the same" in capsys.readouterr().err


def test_another_device_has_runs_and_files_of_its_own(cells, monkeypatch, capsys):
    """What is of record was trained on the CPU, so it is not read for another device; which this machine may plan for, not train on."""
    command = ["reproduce", "fedssa/table2", "--scale", "smoke", "--device", "cuda:7"]
    assert main([*command, "--dry-run"]) == 0 and "to train" in capsys.readouterr().out
    assert main(command) == 2
    assert capsys.readouterr().err.startswith("fedlib: device = 'cuda:7': must be cpu, cuda,")
    monkeypatch.setattr(devices, "is_there", lambda device: True)
    given: list = []
    monkeypatch.setattr(lab, "sweep", lambda specs, *_, **__: given.extend(specs))
    monkeypatch.setattr(reproduce, "execute", lambda file, asked, train: given.append(asked))
    command = ["reproduce", "fedssa/table2", "--scale", "record", "--methods", "FedSSA,Standalone"]
    main([*command, "--device", "cuda:0,cuda:1"])
    *specs, asked = given
    assert len(specs) == 36 and {spec.device for spec in specs} == {"cuda:0,cuda:1"}
    assert asked.variation == "methods-FedSSA-Standalone--device-cuda-0-cuda-1"
    executed = [
        reproduce._executed("a.ipynb", of).name for of in (asked, dataclasses.replace(asked, methods=(), device="cpu"))
    ]
    assert executed == [f"a--{asked.variation}.ipynb", "a.ipynb"]  # nor is the notebook itself overwritten
    planned = reproduce.plan(exhibits.choose_exhibits("fedssa/table2"), "record", methods=METHODS, device="cuda")
    assert not planned.read and not {run.key for run in planned.todo} & {lab.resolve(cell.spec).key for cell in cells}


def test_another_precision_has_runs_and_files_of_its_own(monkeypatch):
    """But rows that are about a precision keep theirs; and the scale's own is no other."""
    given: list = []
    monkeypatch.setattr(lab, "sweep", lambda specs, *_, **__: given.extend(specs))
    monkeypatch.setattr(reproduce, "execute", lambda file, asked, train: given.append(asked))
    main(["reproduce", "fedssa/fig6", "--scale", "demo", "--precision", "fp32"])
    *specs, asked = given
    assert {spec.precision for spec in specs} == {"fp32"} and asked.variation == "precision-fp32"
    assert reproduce.listed("fedssa/fig6", "demo", precision="bf16") == reproduce.listed("fedssa/fig6", "demo")
    rows = settings.Parameters("demo", precision="fp32").cells("audit/precision")
    assert {cell.method.split(", ")[1]: cell.spec.precision for cell in rows} == {"fp32": "fp32", "bf16": "bf16"}


def test_an_exhibit_without_any_run_is_not_drawn(cells, monkeypatch, capsys):
    """Of two, the one that has some is: Table 1's runs are of homogeneous models."""
    two = [exhibits.every()[name] for name in ("fedssa/table1", "fedssa/table2")]
    monkeypatch.setattr(exhibits, "choose_exhibits", lambda name: two)
    executed = []
    monkeypatch.setattr(reproduce, "execute", lambda file, *given, **named: executed.append(file))
    assert main(["reproduce", "fedssa", "--scale", "record", "--figures-only"]) == 1
    assert executed == [two[1].notebook]
    assert "not drawn: none of its 144 runs is there" in capsys.readouterr().out


def test_a_run_of_ones_own_comes_before_one_of_record(cells, monkeypatch):
    asked = trained(monkeypatch)
    monkeypatch.setattr("fedlib.lab.of_record.missing", lambda specs, *given: [])  # all are stored
    notebook.train_cells(cells[:2])
    assert [spec.seed for spec in asked] == [0, 1]


def test_an_exhibit_made_of_records_is_fresh_until_they_change(cells, tmp_path, monkeypatch):
    write_results(tmp_path / "results", cells)
    item = exhibits.every()["fedssa/table2"]
    given = settings.defaults("record", METHODS)
    assert given.variation == "methods-FedSSA-Standalone"
    drawing(monkeypatch, "fedssa/table2")
    notebook.save_figure("fedssa/table2", given, Figure(), exhibits.frame(cells))
    assert stamps.freshness(item, settings.defaults("record", METHODS)) == "fresh"
    assert stamps.freshness(item, settings.defaults("record")) == "table2-of-record.json missing"
    write_results(tmp_path / "results", cells[:-1])
    assert stamps.freshness(item, settings.defaults("record", METHODS)) == "runs changed"


def test_in_a_batch_what_is_changed_by_hand_is_small(monkeypatch, capsys):
    here = settings.defaults("record")
    assert here.spec("fedssa/heterogeneous", "FedSSA").rounds > 5
    monkeypatch.setattr(settings, "_injected", lambda: ["scale"])
    spec = here.spec("fedssa/heterogeneous", "FedSSA")
    assert spec.dataset == "digits" and spec.rounds <= 5 and "scale smoke" in capsys.readouterr().out
    assert settings.defaults("demo").beside.scale == "demo"
