"""What an installed package brings is known to every process, and what a plan lists can be run from its specification
alone.
"""

import io
import json
import os
import re
import subprocess
import sys

import pytest
from test_own_parts import DATA, METHOD, MODEL

from fedlib import ALGORITHMS, RunSpec, data, lab, models
from fedlib.__main__ import main
from fedlib.lab import launch, plugins
from fedlib.lab.progress import Progress
from fedlib.papers import exhibits, reproduce

# Nothing is registered when it is imported.
MINE = re.sub(r"(?m)^(@register|\w+\.register\(.*\))\n", "", METHOD + MODEL + DATA)
POINTS = """
[fedlib.algorithms]
SharedBias = mine_of_the_test:SharedBias
[fedlib.models]
small = mine_of_the_test:small
[fedlib.datasets]
stripes = mine_of_the_test:stripes
"""
SPEC = {"algorithm": "SharedBias", "dataset": "stripes", "scenario": "small", "num_clients": 3, "rounds": 2}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as pip leaves it: a module and the metadata that names its entry points; forgotten afterwards."""
    site = tmp_path / "site"
    (site / "mine-1.0.dist-info").mkdir(parents=True)
    (site / "mine-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (site / "mine-1.0.dist-info/entry_points.txt").write_text(POINTS)
    (site / "mine_of_the_test.py").write_text(MINE)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(plugins, "PROVIDED", {})
    plugins.load_plugins.cache_clear()
    yield site
    sys.modules.pop("mine_of_the_test", None)
    data.load.cache_clear()
    plugins.load_plugins.cache_clear()


def test_a_distribution_of_our_modules_name_beside_ours_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "fedlib-9.9.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for author in ("Somebody", "The fedlib authors"):  # of an older version of ours
        said = f"Metadata-Version: 2.1\nName: fedlib\nVersion: 9.9\nAuthor: {author}\n"
        (tmp_path / "fedlib-9.9.dist-info/METADATA").write_text(said)
        plugins.load_plugins.__wrapped__()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedlib: another project called fedlib is installed beside mhpfl: ")


@pytest.mark.thorough
def test_workers_train_what_a_package_brings(package):
    specs = [RunSpec(**SPEC, seed=seed) for seed in (0, 1)]
    resolved = lab.resolve(specs[0])
    assert resolved.portable and set(resolved.own) == {"method", "architecture small"}
    todo = [lab.resolve(spec) for spec in specs]
    bar = Progress("", 1.0, False)
    assert launch._in_workers(todo, 2, bar, {item.key: 1.0 for item in todo}, False, None, None) == []
    records = lab.sweep(specs, jobs=2, progress=False)  # which now only reads
    assert [record.status for record in records] == ["finished"] * 2 and not any(record.stale for record in records)
    assert records[0].digest != records[1].digest


def test_what_this_process_registered_over_a_packages_is_no_worker_s(package):
    lab.load_plugins()
    models.register("small", lambda num_classes, channels: sys.modules["mine_of_the_test"].small(num_classes, channels))
    assert not lab.resolve(RunSpec(**SPEC)).portable


@pytest.mark.thorough
def test_one_changed_line_of_a_package_is_another_key(package):
    before = lab.resolve(RunSpec(**SPEC)).key
    (package / "mine_of_the_test.py").write_text(MINE.replace("nn.ReLU()", "nn.Tanh()"))
    code = f"from fedlib import RunSpec, lab; print(lab.resolve(RunSpec(**{SPEC!r})).key)"
    ended = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("SharedBias-stripes-") and ended.stdout.strip() != before


@pytest.mark.parametrize(
    ("points", "line"),
    [
        (
            "[fedlib.models]\nsmall = mine_of_nobody:small",
            "fedlib.models of package mine: small is left out (ModuleNotF",
        ),
        ("[fedlib.models]\nCNN-1 = mine_of_the_test:small", "CNN-1 is left out (name = 'CNN-1': must be another one"),
        (
            "[fedlib.datasets]\ndigits = mine_of_the_test:stripes",
            "digits is left out (name = 'digits': must be another",
        ),
        ("[fedlib.algorithms]\nOther = mine_of_the_test:SharedBias", "must be the method's own name, SharedBias)"),
        ("[fedlib.algorithms]\nsmall = mine_of_the_test:small", "must be a subclass of fedlib.algorithms.Algorithm)"),
    ],
)
def test_what_cannot_be_loaded_is_left_out_and_said(package, points, line, capsys):
    (package / "mine-1.0.dist-info/entry_points.txt").write_text(points)
    before = set(ALGORITHMS), set(models.BUILDERS), data.registered()
    lab.resolve(RunSpec("Standalone"))
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
    assert (set(ALGORITHMS), set(models.BUILDERS), data.registered()) == before
    lab.resolve(RunSpec("Standalone"))
    assert capsys.readouterr().err == ""  # once a process


# ------------------------------------------------------------------------------- specifications and plans as JSON


def test_a_run_is_started_from_its_specification_alone(package, tmp_path, capsys, monkeypatch):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(SPEC | {"params": {"weight": 0.25}, "scenario": ["small"]}))
    assert main(["run", "--spec", str(file)]) == 0
    key = lab.resolve(RunSpec(**SPEC, params={"weight": 0.25})).key
    assert capsys.readouterr().out.startswith(f"{key}: finished after 2 of 2 rounds")
    stored = lab.store() / key / "spec.json"
    digest = lab.read(stored.parent).digest
    assert main(["run", "--spec", str(stored)]) == 0  # as the store has it, and read this time
    assert capsys.readouterr().out.startswith(f"{key}: finished") and lab.read(stored.parent).digest == digest
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    assert main(["run", "--spec", "-"]) == 0


def test_a_plan_is_what_reproduce_would_train(capsys):
    assert main(["reproduce", "fedssa", "--plan", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    made = reproduce.plan(exhibits.choose_exhibits("fedssa"), "smoke")
    needed, todo = len(made.runs), made.todo
    assert len(plan["runs"]) == needed == len({run["key"] for run in plan["runs"]})
    assert {run["key"] for run in plan["runs"] if not run["stored"]} == {run.key for run in todo}
    for run in plan["runs"][:5] + plan["runs"][-5:]:
        assert lab.resolve(RunSpec(**run["spec"]), plan["scale"]).key == run["key"]
    kept = {run.key: run.spec.keep for run in todo}
    assert {run["key"]: run["spec"]["keep"] for run in plan["runs"]} == kept
    named = {item["name"]: item for item in plan["exhibits"]}
    assert set(named) == {item.name for item in exhibits.choose_exhibits("fedssa")}
    assert set().union(*(item["runs"] for item in plan["exhibits"])) == {run["key"] for run in plan["runs"]}
    assert named["fedssa/table3"]["runs"] == [] and named["fedssa/fig6"]["notebook"] == "fedssa/4_representations.ipynb"
