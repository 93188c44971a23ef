"""What the site compares: a field that differs is in the setting or in the label, and its rows are README's."""

import importlib.util
import json
from collections import Counter
from dataclasses import fields, replace

import pytest

from fedlib import lab
from fedlib.lab import of_record
from fedlib.papers import notebook

pytest.importorskip("pygments")
ROOT = notebook.NOTEBOOKS.parent


@pytest.fixture(scope="module")
def generate():
    found = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(generate):
    """The data of the page: results of record, each once."""
    return generate.runs_of_record()


SPEC = lab.resolve(lab.RunSpec("FedKEMF", dataset="cifar10"), "record").spec
OTHERS = {
    "algorithm": "FedMD",
    "params": {"temperature": 1.25},
    "overrides": {"momentum": 0.5},
    "dataset": "cifar100",
    "scenario": "homogeneous",
    "partition": "iid",
    "paper": "FedGH",
    "protocol": "paper",
    "public_dataset": "svhn",
    "precision": "fp32",
    "device": "cuda",
}


def other(name, value):
    """Another value of a field: a number's next one, or as OTHERS says."""
    if name in OTHERS:
        return OTHERS[name]
    return not value if isinstance(value, bool) else 3 if value is None else value / 2 if value else 1


@pytest.mark.parametrize(
    "name", [item.name for item in fields(lab.RunSpec) if item.name not in ("seed", "keep", "metrics")]
)
def test_every_field_is_in_the_setting_or_in_the_label(generate, name):
    changed = replace(SPEC, **{name: other(name, getattr(SPEC, name))})
    one, two = ((generate._setting(spec), generate._label(spec)) for spec in (SPEC, changed))
    assert one != two and one[1] == "FedKEMF"


@pytest.mark.parametrize("changes", [{"keep": "server"}, {}])
def test_runs_that_differ_in_nothing_else_are_told_apart_by_what_they_keep_and_by_their_key(
    generate, changes, monkeypatch
):
    record = of_record.read_results()[0]
    again = replace(record, key="again", spec=replace(record.spec, **changes))
    monkeypatch.setattr(generate, "records", lambda: {"one": record, "two": again})
    ((runs,),) = [generate.runs_of_record()["settings"].values()]
    words = {run["method"].removeprefix(generate._label(record.spec)) for run in runs}
    assert words == ({", keep = none", ", keep = server"} if changes else {f", {record.key[-16:-8]}", ", again"})


@pytest.mark.thorough
def test_no_two_runs_of_record_share_a_setting_a_label_and_a_seed(page):
    places = Counter(
        (setting, run["method"], run["seed"]) for setting, runs in page["settings"].items() for run in runs
    )
    assert places and max(places.values()) == 1
    assert sum(places.values()) == len(of_record.by_key())


def cells(page, setting, metric="accuracy"):
    """Method -> its cells of the page's table, with plain spaces."""
    return json.loads(json.dumps(page["tables"][setting][metric]).replace("\\u00a0", " "))


@pytest.mark.thorough
def test_the_gains_are_readmes(page):
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\u00a0", " ")
    block = readme.split("<!-- front -->")[1].split("<!-- /front -->")[0]
    _, _, *lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in block.strip().splitlines()]
    grids = [notebook.load_record(name) for name in ("fedssa/heterogeneous", "pfedes/heterogeneous")]
    keys = {}
    for cell, record in (pair for found in grids for pair in found.where(dataset="cifar100", num_clients=100).pairs):
        keys.setdefault(cell.method, set()).add(record.key)
    place = {run["key"]: (setting, run["method"]) for setting, runs in page["settings"].items() for run in runs}
    for row in lines:
        ((setting, method),) = {place[key] for key in keys[row[0]]}
        assert {run["key"] for run in page["settings"][setting] if run["method"] == method} == keys[row[0]]
        assert method == row[0] and page["first"][setting][0] == "Standalone" and len(page["first"][setting]) == 4
        assert cells(page, setting)[method]["differences"]["Standalone"] == f"{row[1]} (n = {row[-1].split()[0]})"
    assert len(lines) == 5


def test_cells_are_means_over_seeds_and_differences_paired_by_seed(generate, monkeypatch):
    record = next(record for record in of_record.read_results() if record.spec.algorithm == "Standalone")

    def run(name, seed, end, **changed):
        rounds = record.rounds.assign(accuracy=end / 100, loss=end)
        spec = replace(record.spec, algorithm=name, params={}, seed=seed)
        return replace(record, key=f"{name}-{seed}", spec=spec, rounds=rounds, **changed)

    ends = {
        ("Standalone", 0): 50.0,
        ("Standalone", 1): 52.0,
        ("FedProto", 0): 53.0,
        ("FedProto", 1): 53.0,
        ("FD", 3): 60.0,
    }
    made = {(name, seed): run(name, seed, end) for (name, seed), end in ends.items()}
    monkeypatch.setattr(generate, "records", lambda: made)
    (setting,) = (page := generate.runs_of_record())["settings"]
    found = cells(page, setting, "loss")
    assert found["Standalone"] == {
        "last": "51.00 ± 12.71 (n = 2)",
        "differences": {"FedProto": "-2.00 ± 12.71 (n = 2)"},
    }
    assert found["FedProto"]["differences"] == {
        "Standalone": "+2.00 ± 12.71 (n = 2)"
    }  # t of one degree of freedom: 12.706
    assert found["FD"] == {"last": "60.00 (n = 1)", "differences": {}}  # no seed in common
    assert page["first"][setting] == ["Standalone", "FD", "FedProto"]
    made["FedProto", 1] = run("FedProto", 1, 53.0, status="diverged")
    page = generate.runs_of_record()
    for metric in page["metrics"]:
        found = cells(page, setting, metric)
        assert found["FedProto"] == {"last": "– (seed 1 diverged)", "differences": {"Standalone": "–"}}
    assert page["first"][setting] == ["Standalone", "FD", "FedProto"]


def test_every_parameter_of_every_method_has_its_words(generate):
    from fedlib import algorithms

    for method in algorithms.BUILT_IN:
        _, rows = generate.parameters(method)
        assert [row["parameter"] for row in rows] == [item.name for item in fields(method)]
        assert all(row["allowed"] and row["what it is"] for row in rows)
    together, rows = generate.parameters(algorithms.ALGORITHMS["pFedMe"])
    assert together == "Defaults are those of the authors' code, but for inner_lr."
    (mu0, *_) = generate.parameters(algorithms.ALGORITHMS["FedSSA"])[1]
    assert mu0["allowed"] == "in [0, 1]" and "Default 0.5 (Figure 3" in mu0["what it is"]


@pytest.mark.thorough
def test_the_front_page_has_each_setting_of_a_method_and_readmes_table(generate):
    from fedlib.papers import exhibits

    rows = {name: generate._landing_rows(name, exhibits.EXHIBITS[item]) for name, item in generate.MAIN.items()}
    assert any("CIFAR-100" in row["setting"] for row in rows["FedSSA"]) and len(rows["FedSSA"]) >= 2
    assert any(
        "CIFAR-10," in row["setting"] and row["our result"].endswith("(n\u00a0=\u00a03)") for row in rows["FedGH"]
    )
    assert (
        rows["pFedHR"][0]["setting"] == "not run at the paper's; 24 runs in a smaller one"
        and rows["pFedHR"][0]["claims"]
    )
    assert "| FedSSA | +2.95 ± 0.84 |" in generate.front().replace("\u00a0", " ")
