"""Every column of results/ and of a store is described: name, type, unit, meaning. The values themselves are checked by
frictionless, where it is installed and each night.
"""

import gc
import json
import re

import datapackage
import pandas as pd
import pytest
from datapackage import RESULTS

from fedlib import RunSpec, lab
from fedlib.algorithms.pfedhr.reassembly import MERGED
from fedlib.papers import views

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted((RESULTS / "schemas").glob("*.json"))}
NAMES = {name: [field["name"] for field in schema["fields"]] for name, schema in SCHEMAS.items()}
UNITLESS = {"round", "client", "picture", "label", "place", "origin", "layer", "loss", "worst", "x", "y", "similarity"}
PACKAGE = json.loads(datapackage.FILE.read_text())


def test_the_package_lists_the_tables_that_are_there():
    assert datapackage.FILE.read_text() == datapackage.text(), "python tests/datapackage.py"
    paths = {resource["path"] for resource in PACKAGE["resources"]}
    assert paths == {str(path.relative_to(RESULTS)) for path in RESULTS.rglob("*.csv*")} and len(paths) > 200
    assert len({resource["name"] for resource in PACKAGE["resources"]}) == len(paths)


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_column_says_what_it_is(name):
    assert len(set(NAMES[name])) == len(NAMES[name])
    for field in SCHEMAS[name]["fields"]:
        assert len(field["description"]) > 3 and field["type"] in ("integer", "number", "string", "datetime", "object")
        assert ("unit" in field) == (field["type"] in ("integer", "number") and field["name"] not in UNITLESS), field


def test_every_column_of_the_tables_is_described():
    for resource in PACKAGE["resources"]:
        columns = list(pd.read_csv(RESULTS / resource["path"], nrows=0).columns)
        stem = resource["schema"].removeprefix("schemas/").removesuffix(".json")
        described = NAMES[stem]
        required = [f["name"] for f in SCHEMAS[stem]["fields"] if f.get("constraints", {}).get("required")]
        assert set(required) <= set(columns) <= set(described), resource["path"]
        if SCHEMAS[stem]["fieldsMatch"] == "exact":
            assert columns == described


def test_every_column_that_a_built_in_method_records_is_described():
    """Of the golden values, which have each method and switch; a number stands alone or beside what it may be off."""
    recorded: dict[str, set[str]] = {"rounds": set(), "clients": set()}
    for path in (datapackage.RESULTS.parent / "tests/golden").glob("*.json"):
        for name, value in json.loads(path.read_text()).get("values", {}).items():
            found = re.fullmatch(r"round -?\d+ (client \d+ )?(\w+)", name)
            if found and (isinstance(value, int | float) or (isinstance(value, list) and len(value) == 2)):
                recorded["clients" if found[1] else "rounds"].add(found[2])
    assert {"mu", "taught", "inherited", "prototype_accuracy"} <= recorded["rounds"]
    for table, columns in recorded.items():
        assert columns <= set(NAMES[table])


def test_every_column_of_a_stored_run_is_described():
    record = lab.run(
        RunSpec("Standalone", num_clients=4, rounds=1, metrics="balanced_accuracy", newcomers=1, newcomer_visits=1),
        progress=False,
    )
    for table in ("rounds", "clients", "timing", "newcomers"):
        columns = list(getattr(record, table).columns)
        assert len(columns) > 3 and set(columns) <= set(NAMES[table])


def test_the_tables_beside_a_run_are_described_as_they_are_made():
    assert NAMES["matches"] == list(views.MATCHES) and MERGED == -1
    assert NAMES["maps"] == ["client", "architecture", "label", "x", "y", *views.SHARES]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_values_are_what_the_package_says():
    """frictionless leaves the compressed tables open, until they are collected."""
    frictionless = pytest.importorskip("frictionless", reason="not installed: pip install frictionless")
    report = frictionless.Package(str(datapackage.FILE)).validate()
    gc.collect()
    assert report.valid and len(report.tasks) == len(PACKAGE["resources"]), report.flatten(["path", "note"])[:5]
