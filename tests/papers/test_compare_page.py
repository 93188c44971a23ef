"""What the site compares: a field that differs is in the setting or in the label, and its rows are README's."""

import importlib.util
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest

from fedlib import lab
from fedlib.papers import notebook, recorded
from fedlib.show import intervals

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
    record = recorded.read_results()[0]
    again = replace(record, key="again", spec=replace(record.spec, **changes))
    monkeypatch.setattr(generate, "records", lambda: {"one": record, "two": again})
    ((runs,),) = [generate.runs_of_record()["settings"].values()]
    words = {run["method"].removeprefix(generate._label(record.spec)) for run in runs}
    assert words == ({", keep = none", ", keep = server"} if changes else {f", {record.key[-16:-8]}", ", again"})


def test_no_two_runs_of_record_share_a_setting_a_label_and_a_seed(page):
    places = Counter(
        (setting, run["method"], run["seed"]) for setting, runs in page["settings"].items() for run in runs
    )
    assert places and max(places.values()) == 1
    assert sum(places.values()) == len(recorded.by_key())


def last(run):
    """As compare.js has it."""
    return run["curves"]["accuracy"][-1] if run["status"] == "finished" else None


def said(values, quantiles, sign="", joint=None):
    """As compare.js prints the mean of some seeds with its interval, its own or the table's."""
    if not values or None in values:
        return "–"
    n, mean = len(values), np.mean(values)
    half = "" if n < 2 else f" ± {quantiles[n - 1] * np.std(values, ddof=1) / np.sqrt(n):.2f}"
    half = half if joint is None else f" ± {joint:.2f}"
    return f"{mean:{sign}.2f}{half} (n = {n})"


def test_the_gains_are_readmes(page):
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- front -->")[1].split("<!-- /front -->")[0]
    _, _, *lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in block.strip().splitlines()]
    grids = [notebook.load_record(name) for name in ("fedssa/heterogeneous", "pfedes/heterogeneous")]
    keys = {}
    for cell, record in (pair for found in grids for pair in found.where(dataset="cifar100", num_clients=100).pairs):
        keys.setdefault(cell.method, set()).add(record.key)
    place = {run["key"]: (setting, run["method"]) for setting, runs in page["settings"].items() for run in runs}
    for row in lines:
        ((setting, method),) = {place[key] for key in keys[row[0]]}
        runs = [run for run in page["settings"][setting] if run["method"] == method]
        against = {run["seed"]: run for run in page["settings"][setting] if run["method"] == page["reference"]}
        assert {run["key"] for run in runs} == keys[row[0]] and method == row[0]
        pairs = [(run, against[run["seed"]]) for run in runs if run["seed"] in against]
        joint = page["halves"][setting][page["reference"]].get(method)
        gain = said([last(one) - last(two) for one, two in pairs], page["t"], "+", joint)
        assert gain == f"{row[1]} (n = {len(pairs)})"
    assert len(lines) == 5


def test_quantiles_are_students(page):
    assert page["t"][2] == pytest.approx(intervals.quantile(3), abs=1e-9) and page["shown"] <= 4
