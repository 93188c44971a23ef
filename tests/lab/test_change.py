"""Nothing that is stored is lost when fedlib changes: each change is made in a copy of the package, which then reads a store of
the package as it is, and the results of record.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedlib
from fedlib import ALGORITHMS, RunSpec, run
from fedlib.lab import of_record, places

SMALL = {"num_clients": 3, "rounds": 1, "batch_size": 64, "scenario": "homogeneous"}

# What a process says of the store and of the results of record; `asked` are specifications that runs were stored for.
ASK = """
import contextlib, io, json, sys
from fedlib import ALGORITHMS, RunSpec, lab
from fedlib.__main__ import main
from fedlib.lab import of_record

states = {path.name: lab.state(path)[0] for path in lab.stored()}
said = io.StringIO()
with contextlib.redirect_stdout(said):
    main(["runs", "prune", "--yes"])
    main(["runs"])
asked = [lab.spec_from(spec) for spec in json.loads(sys.argv[1]) if spec["algorithm"] in ALGORITHMS]
found = of_record.read_results()
known = [record for record in found if record.spec.algorithm in ALGORITHMS]
print(json.dumps({
    "states": states,
    "said": said.getvalue(),
    "keys": [lab.resolve(spec).key for spec in asked],
    "missing": [run.key for run in lab.missing(asked)],
    "of record": sorted(record.key for record in found),
    "stale": [record.key for record in found if record.stale],
    "other keys": [record.key for record in known if lab.resolve(record.spec).key != record.key],
}))
"""
OWN = """
from fedlib.algorithms import FedProx, register

@register
class Mine(FedProx):
    extra: float = 0.25
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store with runs of a built-in method, of one whose parameter will be renamed, and of a method of one's own that
    extends FedProx: its folder, the specifications and the keys.
    """
    home, before = tmp_path_factory.mktemp("stored"), dict(ALGORITHMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(home))
        exec(compile(OWN, "mine.py", "exec"), {"__name__": "__main__"})
        wanted = [("FedProx", {}), ("pFedES", {"extractor_epochs": 1}), ("Mine", {})]
        found = [run(RunSpec(name, params=params, **SMALL), progress=False) for name, params in wanted]
    ALGORITHMS.clear()
    ALGORITHMS.update(before)
    return home, [dataclasses.asdict(record.spec) for record in found], [record.key for record in found]


class Copy:
    """A copy of the package that can be changed, with the results of record beside it."""

    def __init__(self, folder: Path, home: Path):
        self.folder, self.home = folder, folder / "home"
        source = Path(fedlib.__file__).parent
        shutil.copytree(source, folder / "fedlib", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "notebooks").symlink_to(source.parent / "notebooks")
        (folder / "results").symlink_to(places.RESULTS)
        shutil.copytree(home, self.home)

    def change(self, file: str, old: str, new: str) -> None:
        path = self.folder / "fedlib" / file
        assert old in path.read_text(), f"{file} has no {old!r}"
        path.write_text(path.read_text().replace(old, new))

    def ask(self, specs: list[dict[str, Any]], own: bool) -> dict[str, Any]:
        process = subprocess.run(
            [sys.executable, "-c", (OWN if own else "") + ASK, json.dumps(specs)],
            env=os.environ | {"PYTHONPATH": str(self.folder), "FEDLIB_HOME": str(self.home)},
            cwd=self.folder, capture_output=True, text=True,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout.splitlines()[-1])


# What changes: file, what stands there and what is put there. The method of one's own is known where it is listed, but in the last two.
CHANGES: dict[str, list[tuple[str, str, str]]] = {
    "a new field of RunSpec": [
        ("lab/spec.py", "    device: str =", '    noise: float = fields.later(0.0, neutral=0.0, help="x")\n    device: str ='),
    ],
    "a method's parameter renamed": [
        ("algorithms/pfedes.py", "extractor_epochs", "encoder_epochs"),
        ("algorithms/pfedes.py", "encoder_epochs: int = setting(5,", 'encoder_epochs: int = renamed(5, "extractor_epochs",'),
        ("algorithms/pfedes.py", "from ..fields import", "from ..fields import renamed,"),
    ],
    "a new parameter of a method that one of one's own extends": [
        ("algorithms/fedprox.py", "    mu: float =", "    warm: int = later(0, neutral=0)\n    mu: float ="),
        ("algorithms/fedprox.py", "from ..fields import", "from ..fields import later,"),
    ],
    "a new field of the protocol and of a data set's info": [
        ("protocol.py", "    inherit: str =", "    warm_up: int = later(0, neutral=0)\n    inherit: str ="),
        ("data/info.py", "    fingerprint: str\n", "    fingerprint: str\n    grouped: bool = later(False, neutral=False)\n"),
        ("data/info.py", "from typing", "from ..fields import later\nfrom typing"),
    ],
    "a generalisation of equal numbers": [
        ("training.py", "order[:count].split(sizes)", "torch.split(order[:count], list(sizes))"),
        ("federation.py", "self.architectures = tuple(architectures)", "self.architectures = (*architectures,)"),
        ("partition.py", "return [[part[own] for own in owns]", "return [[part[list(own)] for own in owns]"),
    ],
    "one more metric in clients.csv": [
        ("simulation.py", "    return measured\n", '    return measured | {"twice": 2 * measured["validation_accuracy"]}\n'),
    ],
    "a method of one's own, run from a script and listed elsewhere": [],
    "methods that this installation lacks": [
        ("algorithms/__init__.py", "FedAvg, FedProx, PerFedAvg", "FedAvg, PerFedAvg"),
        ("algorithms/__init__.py", "FML, FedKD,", "FML,"),
    ],
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_stored_outlives_a_change(change, stored, tmp_path):
    """No run is stale, damaged or prunable, no key is another, and every result of record is read."""
    home, specs, keys = stored
    copy, lacks = (
        Copy(tmp_path, home),
        {"FedProx", "Mine"} if "lacks" in change else {"Mine"} if not CHANGES[change] else set(),
    )
    for file, old, new in CHANGES[change]:
        copy.change(file, old, new)
    said = copy.ask(specs, own="Mine" not in lacks)
    assert said["states"] == dict.fromkeys(keys, "finished")
    assert said["said"].startswith("nothing to delete") and said["said"].count("\n") == 6  # 3 runs, head, foot
    assert {path.name for path in (copy.home / "runs").iterdir() if path.is_dir()} == set(keys)
    assert said["keys"] == [key for key in keys if key.split("-")[0] not in lacks] and said["missing"] == []
    assert said["of record"] == sorted(record.key for record in of_record.read_results())
    assert len(said["of record"]) >= 99 and said["stale"] == said["other keys"] == []
