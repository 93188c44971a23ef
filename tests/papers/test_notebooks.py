"""Committed notebooks: few rules that protect a reader, the settings they take, and what a reader does with them: run again in
the same kernel, changed, interrupted, varied. nbval executes them and compares their checked outputs; not here.
"""

import ast
import copy
import inspect
import json
import re
import subprocess
import symtable
import sys
from functools import cache, partial
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbformat import v4
from results_of_record import of_record, settings
from torch import nn
from traitlets.config import Config

from fedlib import ALGORITHMS, Model, RunSpec, lab, models
from fedlib.algorithms.pfedhr import reassembly
from fedlib.errors import FedlibError
from fedlib.lab import checkpoint
from fedlib.papers import exhibits, notebook, pages, planned, reproduce, views
from fedlib.papers.prose import Sentences, say

ROOT = notebook.NOTEBOOKS.parent
RECIPES = [name for name in reproduce.all_notebooks() if name.startswith("recipes/")]
NOTEBOOKS = [name for name in reproduce.all_notebooks() if name not in RECIPES]
EXHIBITS = {name: [item for item in exhibits.every().values() if item.notebook == name] for name in NOTEBOOKS}


@cache
def read(name):
    return nbformat.read(notebook.NOTEBOOKS / name, as_version=4)


def code(name, tag=""):
    """Its cells of code, or those with a tag."""
    cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
    return [cell for cell in cells if tag in cell.metadata.get("tags", [])] if tag else cells


def test_every_exhibit_is_drawn_in_a_notebook_that_is_there():
    named = {item.notebook for item in exhibits.every().values() if item.notebook}
    assert named and named <= {*NOTEBOOKS}
    assert {item.paper for item in exhibits.EXHIBITS.values()} == {"fedssa", "fedgh", "pfedes", "pfedhr"}


@pytest.mark.parametrize("name", NOTEBOOKS + RECIPES)
def test_what_is_committed_was_executed_in_order_without_error_and_is_checked(name):
    book, cells, checked = read(name), code(name), code(name, "nbval-check-output")
    nbformat.validate(book)
    assert len({cell.id for cell in book.cells}) == len(book.cells)
    assert book.metadata.kernelspec.name == "python3" and "papermill" not in book.metadata
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert len(checked) >= (3 if name in NOTEBOOKS else 1) and all(cell.outputs for cell in checked)
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr", cell.source
            assert not any("widget" in mime for mime in output.get("data", {}))
            said = output.get("text", "") + json.dumps(output.get("data", {}).get("text/plain", ""))
            assert not re.search(r"(/home/|/root/|/work/|/tmp/|/Users/|[A-Z]:\\\\)", said), said
            assert cell not in checked or not re.search(r"0x[0-9a-f]{6,}|it/s|s/it", said), said
    trained = [cell for cell in cells if "notebook.check_training(" in cell.source]
    assert all(
        cell in checked and "ok" in cell.outputs[0].text and "NO" not in cell.outputs[0].text for cell in trained
    )
    assert len(trained) == 1 or not any(item.grids for item in EXHIBITS.get(name, ()))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_parameter_is_typed_commented_and_known(name):
    """And no cell takes its name for something else, so that any cell can be run again, in any order."""
    (cell,) = code(name, "parameters")
    assert all("  # " in line for line in cell.source.splitlines())  # which is the help of papermill
    found = {}
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.AnnAssign)
        found[statement.target.id] = (statement.annotation.id, ast.literal_eval(statement.value))
    assert found == {key: (kind.__name__, default) for key, (kind, default, _) in notebook.PARAMETERS.items()}
    others = [other.source for other in code(name) if other is not cell]
    (call,) = [source for source in others if re.search(r"(notebook|study)\.settings\(", source)]
    assert f".settings({', '.join(notebook.PARAMETERS)})" in call
    for source in others:
        symbols = symtable.symtable(source, name, "exec").get_symbols()
        assigned = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
        assert not assigned & set(notebook.PARAMETERS), source


def test_every_link_and_file_that_a_notebook_names_is_there():
    linked = set()
    for name in NOTEBOOKS + RECIPES:
        folder = (notebook.NOTEBOOKS / name).parent
        for cell in read(name).cells:
            if cell.cell_type == "markdown":
                links = re.findall(r"\]\(([^)#]+\.ipynb)(?:#[\w-]+)?\)", cell.source)
                paths = [ROOT / path for path in re.findall(r"`((?:fedlib|tests|docs)/[\w/.]+)`", cell.source)]
                assert all(path.exists() for path in [*paths, *(folder / link for link in links)]), (name, cell.source)
                linked |= {str((folder / link).resolve().relative_to(notebook.NOTEBOOKS)) for link in links}
    assert linked >= {*NOTEBOOKS}


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name.endswith("1_method.ipynb")])
def test_a_method_is_shown_as_it_is_run(name):
    """Its file's own source: also in the committed output, which a changed method makes out of date."""
    method = {key.lower(): kind for key, kind in ALGORITHMS.items()}[name.split("/")[0]]
    (cell,) = [cell for cell in code(name) if "pages.source(" in cell.source]
    names = re.findall(r'"(\w+)"', cell.source)
    assert {"download", "local_round", "aggregate"} <= set(names)
    assert f"pages.source({method.__name__}, " in cell.source
    shown = repr(pages.source(method, *names))
    assert [output.data["text/plain"] for output in cell.outputs] == [shown]
    file = inspect.getsource(sys.modules[method.__module__])
    assert all(line.strip() in file for line in shown.splitlines())


@pytest.mark.thorough
def test_a_changed_digit_in_a_checked_output_fails_nbval(tmp_path):
    book = copy.deepcopy(read("fedssa/1_method.ipynb"))
    (output,) = next(cell for cell in book.cells if "mu in round 1" in cell.source).outputs
    before, output.data = output.data, {mime: text.replace("0.354", "0.355") for mime, text in output.data.items()}
    assert before != output.data
    nbformat.write(book, tmp_path / "changed.ipynb")
    options = ["--nbval-lax", "--nbval-current-env", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "changed.ipynb"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1
    assert re.search(r"1 failed, \d+ passed", result.stdout), result.stdout


@pytest.mark.thorough
def test_papermill_from_another_directory_writes_figures_at_home_or_fails_in_one_line(tmp_path, home):
    def papermill(*parameter):
        command = [sys.executable, "-m", "papermill", "--no-progress-bar", "-k", "python3", "-p", *parameter]
        command += [str(notebook.NOTEBOOKS / "fedssa/1_method.ipynb"), str(tmp_path / "out.ipynb")]
        return subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)

    (elsewhere := tmp_path / "elsewhere").mkdir()
    result = papermill("sclae", "demo")
    assert result.returncode and "notebook parameter = 'sclae' is unknown: did you mean 'scale'?" in result.stderr
    result = papermill("seeds", "[0]")
    assert result.returncode == 0, result.stderr
    made = {path.name for path in (home / "figures/smoke/fedssa").iterdir()}
    assert {"fig3.png", "fig3.csv", "fig3.json", "table3.png", "table3.csv"} <= made
    assert not list(elsewhere.iterdir())


# ------------------------------------------------------------------------------------------------------------- its settings


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
    for changed, stem in (({}, "2_claims"), ({"rule": "best"}, "2_claims--rule-best")):
        assert reproduce._executed("audit/2_claims.ipynb", settings(**changed)).stem == stem
    long = [
        settings(methods=list(exhibits.GRIDS["audit/fedssa"].methods), seeds=seeds).variation for seeds in ([0], [1])
    ]
    assert len(set(long)) == 2
    longest = max(len(item.item) for item in exhibits.every().values())
    assert all(longest + len(f"--{name}.json") <= 100 and re.fullmatch(r"[\w.-]+", name) for name in long)


# ------------------------------------------------------------------------------------------- run again, changed, interrupted

# The cells run in this process, on networks so small that a run takes a tenth of a second.
as_in_a_kernel = pytest.mark.filterwarnings("default")  # seaborn uses what matplotlib is about to drop
WIDTH = models.FEATURES


def tiny_cnn(num_classes, channels):
    extractor = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * channels, WIDTH), nn.ReLU())
    return Model(extractor, nn.Linear(WIDTH, num_classes))


def tiny_m(kinds, width, num_classes, channels):
    """As many convolutions and linear layers as the original, which pFedHR decomposes, in the same order."""
    layers, size = [], channels
    for place, kind in enumerate(kinds[:-1]):
        if kind == "conv":
            layers += [nn.Conv2d(size, 2, 3, padding="same"), nn.ReLU(), *([] if place else [nn.MaxPool2d(8)])]
            size = 2
        else:
            flatten, inputs = ([nn.Flatten()], 2 * 4 * 4) if kinds[place - 1] == "conv" else ([], size)
            size = width if place == len(kinds) - 2 else 8
            layers += [*flatten, nn.Linear(inputs, size), nn.ReLU()]
    return Model(nn.Sequential(*layers), nn.Linear(size, num_classes))


@pytest.fixture
def tiny_networks(monkeypatch):
    """Tiny networks under the names of the papers', trained in this process; pictures are not drawn."""
    tiny = dict.fromkeys(models.CNN_WIDTHS, tiny_cnn)
    for name in models.M_WIDTHS:
        kinds = [reassembly.kind(block) for block in reassembly.blueprint(name, 10, 3).blocks]
        tiny |= {name: partial(tiny_m, kinds, 8), f"{name}-500": partial(tiny_m, kinds, WIDTH)}
    real, frame = models.BUILDERS, exhibits.frame

    def known(what, *scale):
        with pytest.MonkeyPatch.context() as patch:  # what is of record was made with the real networks
            if isinstance(what, str):
                patch.setattr(models, "BUILDERS", real)
            return frame(what, *scale)

    arms = planned.arms()
    assert all(run.key for arm in arms.values() for run in arm.runs)  # made now, with the real networks
    monkeypatch.setattr(planned, "arms", lambda: arms)
    monkeypatch.setattr(exhibits, "frame", known)
    monkeypatch.setattr(models, "BUILDERS", {**real, **tiny})
    monkeypatch.setattr(lab.Resolved, "portable", False)  # no worker would know them
    monkeypatch.setattr(views, "tsne", lambda features, *settings: np.ascontiguousarray(features[:, :2]))


class Kernel:
    """A kernel in this process; `run` executes a whole notebook in it, from the top."""

    def __init__(self, shell):
        self.shell = shell

    def run(self, name, injected="", **parameters):
        """Run all cells, `parameters` typed into the parameters cell, `injected` after it as by papermill; returns an error."""
        for cell in code(name):
            source, tagged = cell.source, "parameters" in cell.metadata.get("tags", [])
            for parameter, value in parameters.items() if tagged else ():
                source, changed = re.subn(rf"(?m)^({parameter}: \w+ = ).*$", lambda m, v=value: f"{m[1]}{v!r}", source)
                assert changed == 1
            for asked in filter(None, (source, injected if tagged else "")):
                self.shell.get_parent = lambda asked=asked: {"content": {"code": asked}}  # as a kernel has the request
                result = self.shell.run_cell(asked, store_history=True)
                error = result.error_before_exec or result.error_in_exec
                if error is not None:
                    return error
        return None


@pytest.fixture
def kernel(tmp_path):
    config = Config({"HistoryManager": {"hist_file": ":memory:"}, "InteractiveShell": {"colors": "nocolor"}})
    shell = InteractiveShell.instance(config=config, ipython_dir=str(tmp_path / "ipython"))
    yield Kernel(shell)
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def saved(home):
    """Path under figures/ -> content."""
    folder = home / "figures"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def of(files, item, variation):
    return {path for path in files if path.rpartition(".")[0] == f"smoke/{item.name}{variation}"}


# Of three notebooks by `make slow`, of the others by `make nightly`: in all ten minutes.
SLOW = ("fedgh/2_homogeneous.ipynb", "pfedes/1_method.ipynb", "pfedhr/5_ablations.ipynb")


@as_in_a_kernel
@pytest.mark.usefixtures("tiny_networks")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else pytest.mark.nightly) for name in NOTEBOOKS],
)
def test_a_notebook_runs_again_changed_and_after_an_interruption(name, kernel, home, monkeypatch, capsys):
    assert kernel.run(name, dataset="digits", rounds=1) is None
    first = saved(home)
    assert kernel.run(name, dataset="digits", rounds=1) is None
    assert saved(home) == first

    finished, simulate = [], checkpoint.simulate

    def until_interrupted(*arguments, **named):
        if finished:
            raise KeyboardInterrupt
        outcome = simulate(*arguments, **named)
        finished.append(outcome)
        return outcome

    grids = list(dict.fromkeys(grid for item in EXHIBITS[name] for grid in item.grids))
    two = list(exhibits.GRIDS[grids[0]].methods)[:2] if grids else []
    changed = {"seeds": [1], "rounds": 2, "methods": two}
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "simulate", until_interrupted)
        stopped = kernel.run(name, **changed)
    trains = grids or name in ("00_start_here.ipynb", "01_your_own_method.ipynb", "03_your_paper.ipynb")
    assert isinstance(stopped, KeyboardInterrupt) if trains else stopped is None
    capsys.readouterr()
    assert kernel.run(name, **changed) is None

    both = saved(home)
    assert {path: both[path] for path in first} == first  # the second variation has files of its own
    assert all(path.startswith("smoke/") for path in both)  # what is of record stays as it is
    for item in EXHIBITS[name]:
        assert of(first, item, "--dataset-digits--rounds-1")
        assert not of(both, item, "")
    variation = settings(**changed).variation
    made = [item for item in EXHIBITS[name] if of(set(both) - set(first), item, f"--{variation}")]
    said = capsys.readouterr().out
    assert made == EXHIBITS[name] or "not among these" in said  # a figure of an absent method says so


@as_in_a_kernel
@pytest.mark.thorough
def test_only_what_papermill_was_given_must_be_a_parameter(kernel):
    name = "fedgh/1_method.ipynb"
    kernel.shell.run_cell("lr = 0.1; seed = 3; note = 'mine'", store_history=True)
    assert kernel.run(name, injected="# Parameters\nrule = 'best'\n") is None
    error = kernel.run(name, injected="# Parameters\nseed = 3\n")
    assert isinstance(error, FedlibError)
    assert str(error).startswith("notebook parameter = 'seed' is unknown: did you mean 'seeds'?")
    assert "\n" not in str(error)
    assert kernel.run(name, injected="# Parameters\nrule = 'best'\n") is None  # mended, in the same kernel


# ----------------------------------------------------------------------------------------------------- what they are made of


@pytest.mark.parametrize(
    ("before", "after", "said"),  # accuracy of the clients that trained, of ten classes
    [
        (0.1, 0.3, ("ok", "ok")),
        (0.5, 0.5, ("NO", "ok")),  # nothing was learnt, and the start was high by itself
        (0.02, 0.19, ("ok", "NO")),
        (0.1, 0.1, ("NO", "NO")),
    ],
)
def test_a_training_that_does_not_train_changes_a_checked_output(before, after, said, capsys):
    """Which nbval compares. A client that never trained does not count."""
    rounds = pd.DataFrame({"round": [-1, 4], "accuracy_all": [before, 1.0]})
    rows = [(0, -1, before), (0, 4, after - 0.01), (1, -1, before), (1, 3, after + 0.01), (2, -1, 1.0)]
    clients = pd.DataFrame(rows, columns=["client", "round", "accuracy"])
    stored, kept = (of_record("key", RunSpec("FedSSA"), rounds, own) for own in (clients, clients.query("round >= 0")))
    for record in (stored, kept):  # of record there is no client's accuracy before training
        notebook.check_training([record], "FedSSA", "FML")
        facts = "trained clients end above their start: {}; above chance: {}".format(*said)
        expected = [f"all runs: {facts}", f"FedSSA: {facts}", "FML: not among these runs"]
        assert capsys.readouterr().out.splitlines() == expected


def test_scales_as_numbers():
    table = pages.scales()
    assert list(dict.fromkeys(table.index)) == ["smoke", "demo", "record", "paper"]
    row = table.loc["paper"].query("N == 10").iloc[0]
    assert (row["T"], row["E"], row["B"], row["C"], row["seeds"]) == (500, 10, 512, "100%", "0, 1, 2")
    row = table.loc["record"].query("N == 100").iloc[0]
    assert (row["T"], row["E"], row["B"], row["C"], row["rate"]) == (100, 10, 64, "10%", 0.01)


def test_costs_are_the_hours_of_runs_shared_ones_once(monkeypatch):
    """Two notebooks that share runs and one without, whose runs take half an hour each."""
    names = ["fedgh/1_method.ipynb", "fedssa/3_heterogeneous.ipynb", "fedssa/4_representations.ipynb"]
    monkeypatch.setattr(pages.reproduce, "all_notebooks", lambda: names)
    monkeypatch.setattr(pages.lab, "expected_seconds", lambda runs, known, of_record: [1800.0] * len(runs))
    table = pages.costs()
    assert list(table.index) == [*names, "all, shared runs once"]
    runs = {pages.lab.resolve(cell.spec, "smoke").key for cell in exhibits.cells("fedssa/representations", "smoke")}
    assert table.loc[names[2], "smoke: runs"] == str(len(runs))
    assert float(table.loc[names[2], "smoke: core-hours"]) == pytest.approx(len(runs) / 2, rel=0.05)
    assert table.loc[names[0]].unique().tolist() == ["0"]
    assert table.iloc[-1]["smoke: runs"] == table.loc[names[1], "smoke: runs"]  # of which the third's are part


def test_a_function_that_is_not_there_is_named():
    with pytest.raises(FedlibError, match="function of FedSSA = 'local_ruond' is unknown: did you mean 'local_round'"):
        pages.source(ALGORITHMS["FedSSA"], "local_ruond")


def test_a_committed_notebook_holds_no_widget():
    kept, dropped = {"data": {"text/plain": "1"}}, {"data": {"application/vnd.jupyter.widget-view+json": {}}}
    cell = SimpleNamespace(cell_type="code", outputs=[kept, dropped, {"data": {}}])
    reproduce._tidy(cell)
    assert cell.outputs == [kept]


def test_a_committed_notebook_is_the_same_however_its_prints_arrived():
    """A kernel sends what a cell prints in parts of any size; what stands between two of them keeps them apart."""

    def executed(*parts):
        outputs = [v4.new_output("stream", name=name, text=text) for name, text in parts]
        shown = v4.new_output("display_data", {"text/plain": "a table"})
        return v4.new_code_cell(outputs=[*outputs, shown, v4.new_output("stream", name="stdout", text="after")])

    once, twice = (
        executed(("stdout", "one two")),
        executed(("stdout", "one "), ("stderr", "a warning"), ("stdout", "two")),
    )
    for cell in (once, twice):
        reproduce._tidy(cell, stderr=False)
    assert once.outputs == twice.outputs
    assert [output.get("text", "a table") for output in once.outputs] == ["one two", "a table", "after"]


def test_signs_of_markdown_are_shown_as_they_are_and_printed_outside_a_notebook(capsys):
    shown = Sentences(["mu_0 * 2 < 3 [a](b) costs $1"])
    assert shown._repr_markdown_() == r"mu\_0 \* 2 \< 3 \[a\](b) costs \$1"
    assert Sentences(["One.", "", "Two."])._repr_markdown_() == "* One.\n* Two."
    say("One.", "Two.")
    assert capsys.readouterr().out == "One.\nTwo.\n"
