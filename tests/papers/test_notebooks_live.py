"""Notebooks as a reader uses them: run again in the same kernel, changed, interrupted, varied; and their checks of training.

The cells run in this process, on networks so small that a run takes a tenth of a second.
"""

import re
from functools import partial

import nbformat
import numpy as np
import pytest
import results_of_record
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch import nn
from traitlets.config import Config

from fedlib import Model, lab, models
from fedlib.algorithms.pfedhr import reassembly
from fedlib.errors import FedlibError
from fedlib.lab import checkpoint
from fedlib.papers import exhibits, notebook, planned, reproduce, settings, views

pytestmark = pytest.mark.filterwarnings("default")  # as in a kernel: seaborn uses what matplotlib is about to drop

NOTEBOOKS = [name for name in reproduce.all_notebooks() if not name.startswith("recipes/")]
EXHIBITS = {name: [item for item in exhibits.every().values() if item.notebook == name] for name in NOTEBOOKS}
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
    yield


class Kernel:
    """A kernel in this process; `run` executes a whole notebook in it, from the top."""

    def __init__(self, shell):
        self.shell = shell

    def run(self, name, injected="", **parameters):
        """Run all cells, with `parameters` typed into the parameters cell and `injected` run after it, as papermill does; stops at
        the first error and returns it.
        """
        for cell in nbformat.read(notebook.NOTEBOOKS / name, as_version=4).cells:
            if cell.cell_type != "code":
                continue
            source, tagged = cell.source, "parameters" in cell.metadata.get("tags", [])
            for parameter, value in parameters.items() if tagged else ():
                source, changed = re.subn(rf"(?m)^({parameter}: \w+ = ).*$", lambda m, v=value: f"{m[1]}{v!r}", source)
                assert changed == 1
            for code in filter(None, (source, injected if tagged else "")):
                self.shell.get_parent = lambda code=code: {"content": {"code": code}}  # the request, as a kernel has it
                result = self.shell.run_cell(code, store_history=True)
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
    trains = grids or name in (
        "00_start_here.ipynb",
        "01_your_own_method.ipynb",
        "03_your_paper.ipynb",
    )  # these make no exhibit
    assert isinstance(stopped, KeyboardInterrupt) if trains else stopped is None
    capsys.readouterr()
    assert kernel.run(name, **changed) is None

    both = saved(home)
    assert {path: both[path] for path in first} == first  # the second variation has files of its own
    assert all(path.startswith("smoke/") for path in both)  # what is of record stays as it is
    for item in EXHIBITS[name]:
        assert of(first, item, "--dataset-digits--rounds-1")
        assert not of(both, item, "")
    variation = results_of_record.settings(**changed).variation
    made = [item for item in EXHIBITS[name] if of(set(both) - set(first), item, f"--{variation}")]
    said = capsys.readouterr().out
    assert made == EXHIBITS[name] or "not among these" in said  # a figure of an absent method says so


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
def test_variations_leave_the_exhibit_alone(kernel, home):
    name, (item,) = "fedgh/5_server_lr.ipynb", EXHIBITS["fedgh/5_server_lr.ipynb"]
    assert kernel.run(name) is None
    own = saved(home)
    assert of(own, item, "") == {f"smoke/fedgh/fig5.{kind}" for kind in ("png", "csv", "json")}
    assert notebook.freshness(item, settings.defaults("smoke")) == "fresh"
    for variation in ({"rule": "best"}, {"dataset": "digits"}, {"rounds": 1}, {"seeds": [1]}, {"methods": ["FedGH"]}):
        ((key, value),) = variation.items()
        before = saved(home)
        assert kernel.run(name, injected=f"# Parameters\n{key} = {value!r}\n") is None
        after = saved(home)
        assert {path: after[path] for path in before} == before
        text = "-".join(map(str, value)) if isinstance(value, list) else value
        assert set(after) - set(before) == {f"smoke/fedgh/fig5--{key}-{text}.{kind}" for kind in ("png", "csv", "json")}
    assert notebook.freshness(item, settings.defaults("smoke")) == "fresh"


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


OK = "trained clients end above their start: ok; above chance: ok"


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks")
@pytest.mark.parametrize(
    ("name", "methods"),
    [("fedssa/4_representations.ipynb", ["FedProto", "FedSSA"]), ("fedgh/5_server_lr.ipynb", ["FedGH"])],
)
def test_a_training_that_does_not_train_changes_a_checked_output(name, methods, kernel, home, monkeypatch, capsys):
    book = nbformat.read(notebook.NOTEBOOKS / name, as_version=4)
    (cell,) = [cell for cell in book.cells if "check_training(" in cell.source]

    def checked():
        assert kernel.run(name, rounds=6) is None
        capsys.readouterr()
        kernel.shell.run_cell(cell.source)
        return capsys.readouterr().out.splitlines()

    with monkeypatch.context() as broken:
        broken.setattr(torch.optim.SGD, "step", lambda optimiser, closure=None: None)
        broken.setenv("FEDLIB_HOME", str(home / "broken"))
        without = checked()
    assert checked() == [f"{runs}: {OK}" for runs in ("all runs", *methods)]
    assert f"{methods[0]}: {OK}" not in without


@pytest.mark.parametrize("name", [name for name, made in EXHIBITS.items() if any(item.grids for item in made)])
def test_a_notebook_that_trains_has_a_checked_cell_that_says_so(name):
    """As committed: what nbval holds the next execution against."""
    cells = nbformat.read(notebook.NOTEBOOKS / name, as_version=4).cells
    (cell,) = [cell for cell in cells if cell.cell_type == "code" and "notebook.check_training(" in cell.source]
    assert "nbval-check-output" in cell.metadata.tags
    assert "ok" in cell.outputs[0].text
    assert "NO" not in cell.outputs[0].text
