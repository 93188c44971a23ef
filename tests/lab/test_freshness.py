"""Which records a change of the code makes stale: those that it could have changed, and no others.

Each change is made in a copy of the package, which a process of its own then asks for every method's digest.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedlib
from fedlib.lab import sources

DIGESTS = """
import json, sys
from fedlib import ALGORITHMS, RunSpec, lab
def digest(name, **more):
    return lab.code_digest(lab.resolve(RunSpec(name, **more), "smoke").spec)
found = {name: digest(name) for name in json.loads(sys.argv[1])}
found["FedAvg homogeneous"] = digest("FedAvg", scenario="homogeneous")
found["FedMD of pFedHR"] = digest("FedMD", paper="pFedHR")
print(json.dumps(found))
"""
NEW_DATA = """
from ..dataset import Dataset
from ..info import DatasetInfo, provide

provide(DatasetInfo("fashion", 12, 1, 60000, 10000, (0.2,), (0.3,), "0" * 16), lambda root, download: None, "fashion")
"""
NEW_METHOD = """
from dataclasses import dataclass

from .fedavg import FedAvg
from .base import Look


@dataclass(frozen=True)
class FedPer(FedAvg):
    name = "FedPer"
    look = Look("#123456", "o")
"""
NEW_MODEL = """
def lenet(num_classes: int, channels: int) -> Model:
    extractor = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64 * channels, 84), nn.ReLU())
    return Model(extractor, nn.Linear(84, num_classes))


Builder = Callable"""


class Copy:
    """A copy of the package that can be changed."""

    def __init__(self, folder: Path):
        self.folder = folder
        shutil.copytree(Path(fedlib.__file__).parent, folder / "fedlib", ignore=shutil.ignore_patterns("__pycache__"))

    def change(self, file: str, old: str, new: str) -> None:
        path = self.folder / "fedlib" / file
        text = path.read_text()
        assert old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new))

    def add(self, file: str, text: str) -> None:
        (self.folder / "fedlib" / file).write_text(text)

    def digests(self) -> dict[str, str]:
        process = subprocess.run(
            [sys.executable, "-c", DIGESTS, json.dumps(list(fedlib.ALGORITHMS))],
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> dict[str, str]:
    """The digests of the code as it is."""
    return Copy(tmp_path_factory.mktemp("unchanged")).digests()


@pytest.fixture
def copy(tmp_path) -> Copy:
    return Copy(tmp_path / "copy")


def stale(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_another_way_of_dealing_by_class_makes_runs_stale(before, copy):
    copy.change("partition.py", "stream.uniform(0.4, 0.6, count)", "stream.uniform(0.1, 0.9, count)")
    assert stale(before, copy.digests()) == set(before)


def test_half_of_what_a_client_is_dealt_makes_runs_stale(before, copy):
    copy.change("partition.py", "return [[part[own] for own in owns]", "return [[part[own[::2]] for own in owns]")
    assert stale(before, copy.digests()) == set(before)


def test_a_methods_file_makes_its_own_runs_stale_alone(before, copy):
    copy.change("algorithms/fedprox.py", "weight=self.mu", "weight=2 * self.mu")
    copy.change("algorithms/pfedhr/contrastive.py", "import math", "import math\n\nMORE = 1")
    extended = {name for name, method in fedlib.ALGORITHMS.items() if issubclass(method, fedlib.ALGORITHMS["FedProx"])}
    assert stale(before, copy.digests()) == extended | {"pFedHR"}


def test_a_networks_builder_makes_the_runs_of_its_clients_stale(before, copy):
    copy.change("models.py", "16, 5), nn.MaxPool2d(2)", "16, 5), nn.AvgPool2d(2)")
    assert stale(before, copy.digests()) == set(before) - {"pFedHR", "FedMD of pFedHR"}


def test_what_is_added_leaves_every_record_as_it_is(before, copy):
    """A data set, a model, a method, a preset and an exhibit, and another colour; all of them there."""
    copy.add("data/readers/fashion.py", NEW_DATA)
    copy.change("models.py", "\nBuilder = Callable", NEW_MODEL)
    copy.change(
        "models.py", "BUILDERS: dict[str, Builder] = {", 'BUILDERS: dict[str, Builder] = {\n    "LeNet": lenet,'
    )
    copy.add("algorithms/fedper.py", NEW_METHOD)
    copy.change(
        "algorithms/__init__.py",
        "from .fedprox import FedProx",
        "from .fedper import FedPer\nfrom .fedprox import FedProx",
    )
    copy.change("algorithms/__init__.py", "FedAvg, FedProx,", "FedAvg, FedPer, FedProx,")
    copy.change("lab/presets.py", "PRESETS: dict", "FURTHER = Preset(Protocol(momentum=0.5))\nPRESETS: dict")
    copy.change("papers/grids.py", "HALF: dict", "FURTHER = 'an exhibit'\nHALF: dict")
    for file in ("fedprox", "fedssa", "pfedhr/__init__"):
        copy.change(f"algorithms/{file}.py", 'Look("#', 'Look("#0')
    copy.change("look.py", 'marker: str = "o"', 'marker: str = "s"')
    assert stale(before, copy.digests()) == set()
    found = subprocess.run(
        [sys.executable, "-c", "from fedlib import *; from fedlib import data, lab, models\n"
         "print(data.info('fashion').num_classes, 'FedPer' in ALGORITHMS, models.scenario('LeNet'), "
         "lab.resolve(RunSpec('FedPer', dataset='fashion', scenario='LeNet')).info.num_classes)"],
        env=os.environ | {"PYTHONPATH": str(copy.folder)}, cwd=copy.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.split() == ["12", "True", "LeNet", "12"]


def test_comments_and_docstrings_are_no_code(before, copy):
    copy.change("training.py", "def train(", "# a comment\ndef train(")
    copy.change("training.py", '"""The one local training loop', '"""One local training loop')
    assert stale(before, copy.digests()) == set()


def test_source_is_laid_out_the_same_by_every_version_of_python(tmp_path):
    """3.12 would write f'{', '.join(a)}', and every record of 3.11 would be of other code."""
    file = tmp_path / "own.py"
    file.write_text("text = f'{\", \".join(a)}'\nnested = f\"{f'{b:>{w}}'!r}: {{}}\"\n")
    assert sources.bare_source(file) == "text = f\"{', '.join(a)}\"\nnested = f\"{f'{b:>{w}}'!r}: {{}}\""
