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


@pytest.mark.parametrize("name", [item.name for item in fields(lab.RunSpec) if item.name not in ("seed", "keep")])
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


def test_each_row_is_readmes(page):
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- record -->")[1].split("<!-- /record -->")[0]
    head, _, *lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in block.strip().splitlines()]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    grids = [notebook.load_record(name) for name in ("fedssa/heterogeneous", "pfedes/heterogeneous")]
    keys = {}
    for cell, record in (pair for found in grids for pair in found.pairs):
        keys.setdefault((cell.method, cell.setting), set()).add(record.key)
    place = {run["key"]: (setting, run["method"]) for setting, runs in page["settings"].items() for run in runs}
    compared = 0
    for row in rows:
        own = keys[row["method"], row["setting"]]
        ((setting, method),) = {place[key] for key in own}
        runs = [run for run in page["settings"][setting] if run["method"] == method]
        against = {run["seed"]: run for run in page["settings"][setting] if run["method"] == page["reference"]}
        assert {run["key"] for run in runs} == own and method == row["method"]
        assert said([last(run) for run in runs], page["t"]) == row["visited clients"]
        pairs = (
            []
            if method == page["reference"]
            else [(run, against[run["seed"]]) for run in runs if run["seed"] in against]
        )
        (column,) = [name for name in head if "Standalone" in name]
        joint = page["halves"][setting][page["reference"]].get(method)
        assert said([last(one) - last(two) for one, two in pairs], page["t"], "+", joint) == row[column]
        compared += 1
    assert compared == len(rows) > 10


def test_quantiles_are_students(page):
    assert page["t"][2] == pytest.approx(intervals.quantile(3), abs=1e-9) and page["shown"] <= 4
