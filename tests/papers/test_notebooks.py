"""Committed notebooks: shaped as promised, really executed, really checked, and clear about wrong parameters."""

import ast
import json
import re
import subprocess
import symtable
import sys

import nbformat
import papermill
import pytest
from results_of_record import settings

from fedlib import ALGORITHMS
from fedlib.errors import FedlibError
from fedlib.papers import exhibits, notebook, pages, reproduce

RECIPES = [name for name in reproduce.all_notebooks() if name.startswith("recipes/")]
NOTEBOOKS = [name for name in reproduce.all_notebooks() if name not in RECIPES]
ROOT = notebook.NOTEBOOKS.parent
CHECKED = "nbval-check-output"


def read(name):
    return nbformat.read(notebook.NOTEBOOKS / name, as_version=4)


def code(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]


def text_of(cell):
    return "\n".join(
        output.get("text", "") + json.dumps(output.get("data", {}).get("text/plain", "")) for output in cell.outputs
    )


def test_every_exhibit_with_a_notebook_names_one_that_exists():
    named = {item.notebook for item in exhibits.EXHIBITS.values() if item.notebook}
    assert named and named <= set(NOTEBOOKS)
    assert {item.paper for item in exhibits.EXHIBITS.values()} == {"fedssa", "fedgh", "pfedes", "pfedhr"}


@pytest.mark.parametrize("name", NOTEBOOKS + RECIPES)
def test_shape(name):
    book = read(name)
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    ids = [cell.id for cell in book.cells]
    assert len(set(ids)) == len(ids)
    assert "papermill" not in book.metadata
    if name in NOTEBOOKS:
        assert sum("parameters" in cell.metadata.get("tags", []) for cell in code(book)) == 1
        assert book.cells[0].source.splitlines()[-1].endswith("#what-it-costs).")
    assert len(book.cells) <= 30
    assert max(len(cell.source.splitlines()) for cell in code(book)) <= 15
    assert sum(len(cell.source.splitlines()) for cell in code(book)) / len(code(book)) <= 9


PAPERS = ("fedssa", "fedgh", "pfedes", "pfedhr", "audit")
ORDER = [name for name in NOTEBOOKS if "/" not in name] + [
    name for paper in PAPERS for name in NOTEBOOKS if name.startswith(f"{paper}/")
]
LINK = re.compile(r"\]\(([^)#]+\.ipynb)(?:#[\w-]+)?\)")


def links(cell, name):
    """The notebooks that a cell links to."""
    folder = (notebook.NOTEBOOKS / name).parent
    return [str((folder / link).resolve().relative_to(notebook.NOTEBOOKS)) for link in LINK.findall(cell.source)]


def test_one_can_walk_from_each_notebook_to_the_next():
    assert sorted(ORDER) == NOTEBOOKS
    for name, following in zip(ORDER, [*ORDER[1:], ORDER[0]], strict=True):
        last = read(name).cells[-1]
        assert last.cell_type == "markdown", name
        assert links(last, name)[-1] == following


def test_every_file_that_a_notebook_names_is_there():
    named = re.compile(r"`((?:fedlib|tests|docs)/[\w/.]+)`")
    found = {
        (name, path)
        for name in NOTEBOOKS + RECIPES
        for cell in read(name).cells
        if cell.cell_type == "markdown"
        for path in named.findall(cell.source)
    }
    assert found and not [pair for pair in found if not (ROOT / pair[1]).exists()]


def test_every_link_leads_to_a_notebook_and_the_map_to_all():
    for name in NOTEBOOKS + RECIPES:
        cells = [cell for cell in read(name).cells if cell.cell_type == "markdown"]
        assert {link for cell in cells for link in links(cell, name)} <= {*NOTEBOOKS, *RECIPES}, name
    (chart,) = [cell for cell in read(ORDER[0]).cells if cell.source.startswith("## The map")]
    assert [link for link in links(chart, ORDER[0]) if link not in (ORDER[0], *RECIPES)] == ORDER[1:]


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name.endswith("1_method.ipynb")])
def test_a_method_is_shown_as_it_is_run(name):
    """Its file's own source: also in the committed output, which a changed method makes out of date."""
    method = {key.lower(): kind for key, kind in ALGORITHMS.items()}[name.split("/")[0]]
    (cell,) = [cell for cell in code(read(name)) if "pages.source(" in cell.source]
    names = re.findall(r'"(\w+)"', cell.source)
    assert {"download", "local_round", "aggregate"} <= set(names)
    assert f"pages.source({method.__name__}, " in cell.source
    assert [output.data["text/plain"] for output in cell.outputs] == [repr(pages.source(method, *names))]


@pytest.mark.parametrize("name", NOTEBOOKS + RECIPES)
def test_executed_in_order_without_error_and_checked(name):
    cells = code(read(name))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    checked = [cell for cell in cells if CHECKED in cell.metadata.get("tags", [])]
    assert len(checked) >= (3 if name in NOTEBOOKS else 1)
    assert all(cell.outputs for cell in checked)


@pytest.mark.parametrize("name", NOTEBOOKS + RECIPES)
def test_outputs_hold_nothing_that_changes_by_itself(name):
    for cell in code(read(name)):
        for output in cell.outputs:
            assert output.get("name") != "stderr", cell.source
            assert not any("widget" in mime for mime in output.get("data", {}))
        outputs = text_of(cell)
        assert not re.search(r"(/home/|/root/|/work/|/tmp/|/Users/|[A-Z]:\\\\)", outputs), outputs
        if CHECKED in cell.metadata.get("tags", []):
            assert not re.search(r"0x[0-9a-f]{6,}|it/s|s/it", outputs), outputs


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_parameter_is_typed_commented_and_known(name):
    (cell,) = [cell for cell in code(read(name)) if "parameters" in cell.metadata.get("tags", [])]
    lines = cell.source.splitlines()
    assert all("  # " in line for line in lines)
    found = {}
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.AnnAssign)
        found[statement.target.id] = (statement.annotation.id, ast.literal_eval(statement.value))
    assert found == {key: (kind.__name__, default) for key, (kind, default, _) in notebook.PARAMETERS.items()}


def test_help_of_papermill_reads_as_a_manual():
    inspected = papermill.inspect_notebook(str(notebook.NOTEBOOKS / "fedssa/3_heterogeneous.ipynb"))
    assert set(inspected) == set(notebook.PARAMETERS)
    assert all(entry["help"] and entry["inferred_type_name"] != "None" for entry in inspected.values())


@pytest.mark.thorough
def test_a_changed_digit_in_a_checked_output_fails_nbval(tmp_path):
    book = read("fedssa/1_method.ipynb")
    changed = next(cell for cell in code(book) if "mu in round 1" in cell.source)
    before = json.dumps(changed.outputs)
    changed.outputs[0].data = {
        mime: re.sub(r"0\.354", "0.355", value) for mime, value in changed.outputs[0].data.items()
    }
    assert json.dumps(changed.outputs) != before
    file = tmp_path / "changed.ipynb"
    nbformat.write(book, file)
    options = ["--nbval-lax", "--nbval-current-env", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(file)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1
    assert re.search(r"1 failed, \d+ passed", result.stdout), result.stdout


def papermill_command(tmp_path, *arguments):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", "-k", "python3", *arguments]
    command += [str(notebook.NOTEBOOKS / "fedssa/1_method.ipynb"), str(tmp_path / "out.ipynb")]
    return subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)


@pytest.mark.slow
def test_papermill_from_another_directory_writes_figures_at_home(tmp_path, home):
    result = papermill_command(tmp_path, "-p", "seeds", "[0]")
    assert result.returncode == 0, result.stderr
    made = {path.name for path in (home / "figures/smoke/fedssa").iterdir()}
    assert {"fig3.png", "fig3.csv", "fig3.json", "table3.png", "table3.csv"} <= made
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.thorough
def test_papermill_with_a_wrong_parameter_fails_in_one_line(tmp_path):
    result = papermill_command(tmp_path, "-p", "sclae", "demo")
    assert result.returncode != 0
    assert "notebook parameter = 'sclae' is unknown: did you mean 'scale'?" in result.stderr


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"scale": "huge"}, "scale = 'huge' is unknown"),
        ({"scale": 1}, "scale = 1: must be text"),
        ({"dataset": "cifar"}, "did you mean 'cifar10' or 'cifar100'"),
        ({"seeds": "zero"}, "seeds = 'zero': must be whole numbers in brackets"),
        ({"seeds": [0.5]}, "seeds = 0.5: must be a whole number"),
        ({"rounds": -1}, "rounds = -1: must be at least 1, or 0"),
        ({"rounds": "many"}, "rounds = 'many': must be a whole number"),
        ({"jobs": "-1"}, "jobs = -1: must be at least 1, or 0 to train nothing"),
        ({"rule": "first"}, "rule = 'first' is unknown"),
        ({"methods": "['FedSSA'"}, "methods = \"['FedSSA'\": must be names in brackets"),
        ({"methods": [1]}, "methods = [1]: must be names in brackets"),
        ({"protocol": "realeased"}, "protocol = 'realeased' is unknown: did you mean 'released'?"),
        ({"device": "gpu"}, "device = 'gpu': must be cpu, cuda, one of several"),
    ],
)
def test_settings_name_what_is_wrong(wrong, message):
    with pytest.raises(FedlibError, match=re.escape(message)) as caught:
        settings(**wrong)
    assert "\n" not in str(caught.value)


def test_settings_understand_what_papermill_passes_as_text(capsys):
    made = settings(seeds="[0, 3]", rounds="2", jobs="1", methods="['FedSSA', 'FedProto']")
    assert (made.seeds, made.rounds, made.jobs, made.methods) == ((0, 3), 2, 1, ("FedSSA", "FedProto"))
    assert settings(methods="FedSSA").methods == ("FedSSA",)
    printed = capsys.readouterr().out
    assert "methods FedSSA, FedProto; seeds 0, 3; rounds 2; protocol of the exhibit; device cpu; jobs 1" in printed


def test_the_call_and_the_parameters_cell_have_the_same_names():
    for name in NOTEBOOKS:
        (call,) = [cell.source for cell in code(read(name)) if re.search(r"(notebook|study)\.settings\(", cell.source)]
        assert f".settings({', '.join(notebook.PARAMETERS)})" in call, name


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_cell_takes_a_parameters_name_for_something_else(name):
    """So that any cell can be run again, in any order."""
    for cell in code(read(name)):
        if "parameters" not in cell.metadata.get("tags", []):
            table = symtable.symtable(cell.source, name, "exec")
            assigned = {
                symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()
            }
            assert not assigned & set(notebook.PARAMETERS), cell.source


def test_settings_choose_the_runs_of_a_grid():
    grid = "fedssa/heterogeneous"
    whole = settings().cells(grid)
    assert {cell.method for cell in settings(methods=["FedProto", "FedSSA"]).cells(grid)} == {"FedProto", "FedSSA"}
    assert len(settings(methods=["FedSSA"]).cells("fedssa/table4")) == len(
        settings().cells("fedssa/table4")
    )  # its algorithm
    (label,) = {cell.method for cell in settings(methods=["case C: FedSSA"]).cells("fedssa/table4")}
    assert label == "case C: FedSSA"
    changed = settings(protocol="released", rounds=7).cells(grid)
    assert [(cell.method, cell.spec.seed) for cell in changed] == [(cell.method, cell.spec.seed) for cell in whole]
    assert {(cell.spec.protocol, cell.spec.rounds) for cell in changed} == {("released", 7)}
    assert settings(methods=["Standalone"]).spec(grid, "FedSSA") == settings().spec(grid, "FedSSA")


def test_a_method_that_no_grid_has_is_refused_in_one_line():
    with pytest.raises(FedlibError, match="method = 'FedSAA' is unknown: did you mean 'FedSSA'") as caught:
        settings(methods=["FedProto", "FedSAA"]).cells("fedssa/classes")
    assert "\n" not in str(caught.value)
    both = settings(methods=["FedMD", "FedKEMF"]).grids("pfedhr/labelled", "pfedhr/unlabelled")  # one in each
    assert [{cell.method for cell in cells} for cells in both.values()] == [{"FedMD"}, {"FedKEMF"}]


def test_every_variation_has_a_name_of_its_own():
    assert settings().variation == settings(seeds=[0], jobs=1, device="cpu", precision="fp32").variation == ""
    named = {
        "rounds-3": {"rounds": 3},
        "dataset-digits": {"dataset": "digits"},
        "seeds-1": {"seeds": [1]},
        "seeds-1-0": {"seeds": [1, 0]},
        "rule-best": {"rule": "best"},
        "protocol-released": {"protocol": "released"},
        "precision-bf16": {"precision": "bf16"},
        "methods-FedProto-FedSSA": {"methods": ["FedSSA", "FedProto"]},
        "dataset-digits--rounds-3--rule-best": {"dataset": "digits", "rounds": 3, "rule": "best"},
    }
    assert {name: settings(**changed).variation for name, changed in named.items()} == {name: name for name in named}
    long = [
        settings(methods=list(exhibits.GRIDS["audit/fedssa"].methods), seeds=seeds).variation for seeds in ([0], [1])
    ]
    assert len(set(long)) == 2
    longest = max(len(item.item) for item in exhibits.every().values())
    assert all(longest + len(f"--{name}.json") <= 100 and re.fullmatch(r"[\w.-]+", name) for name in long)
