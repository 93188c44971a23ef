"""The benchmark against peers, on clones made up here with the folders and packages of the real ones: a script takes the
options that the real one takes, counts its rounds by what the real one counts them, and writes down what it was given. It has no
code of theirs, so what this shows is that ours starts them, reads their data and hears of their rounds.
"""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent / "benchmarks/bench_peers.py"

SCRIPT = """
import argparse, json, os
from tqdm import trange
from experiments.FLHetero.Models.CNNs import nets
{imports}
from experiments.FLHetero.node import nodes
from experiments.utils import seen
import torch
parser = argparse.ArgumentParser()
for option in ("--data-path", "--save-path", "--data-name"):
    parser.add_argument(option)
for option in ("--num-nodes", "--num-steps", "--batch-size", "{epochs}", "{classes}", "--gpu"):
    parser.add_argument(option, type=int, default=0)
options = parser.parse_args()
assert options.gpu <= torch.cuda.device_count() and os.path.isdir("Results/temp")
seen("{method}", vars(options))
steps = trange(options.num_steps)
for step in steps:
    sum(i * i for i in range(30_000))
"""
SEEN = """
import json
def seen(who, what):
    with open({log!r}, "a") as file:
        print(json.dumps([who, what]), file=file)
"""
MAIN = """
import argparse, json
import flcore.servers.serverktl_stylegan_xl
from flcore.servers.serverktl_stable_diffusion import FedKTL
from flcore.servers.serverproto import FedProto
from flcore.servers.servergh import FedGH
from flcore.servers.seen import seen
from utils.mem_utils import report
parser = argparse.ArgumentParser()
for short, long, kind in (("data", "dataset", str), ("ncl", "num_classes", int), ("m", "model_family", str),
        ("algo", "algorithm", str), ("dev", "device", str), ("nc", "num_clients", int), ("ls", "local_epochs", int),
        ("lbs", "batch_size", int), ("lr", "lr", float), ("fd", "feature_dim", int), ("sfn", "sfn", str),
        ("gr", "rounds", int), ("lam", "lamda", float), ("slr", "slr", float)):
    parser.add_argument("-" + short, "--" + long, type=kind)
args = parser.parse_args()
server = {"FedProto": FedProto, "FedGH": FedGH}[args.algorithm](args)
seen("HtFLlib", vars(args) | {"shapes": server.shapes})
server.train()
report()
"""
BASE = """
class Server:
    def __init__(self, args):
        self.args = args
    def evaluate(self):
        sum(i * i for i in range(30_000))
        self.train_metrics()
    def train_metrics(self):
        sum(i * i for i in range(10_000))
"""
SERVER = """
import numpy as np, torch
from flcore.servers.serverbase import Server
from flcore.trainmodel.models import BaseHeadSplit
class Own(Server):
    def __init__(self, args):
        super().__init__(args)
        self.shapes = []
        for client in range(args.num_clients):
            with open(f"../dataset/{args.dataset}/train/{client}.npz", "rb") as file:
                images = np.load(file, allow_pickle=True)["data"].tolist()["x"]
            model = BaseHeadSplit(args, client)
            torch.save(model, "model.pt")
            self.shapes.append(list(torch.load("model.pt")(torch.tensor(images[:2])).shape) + [len(images)])
    def train(self):
        for i in range(self.args.rounds + 1):
            print(f"\\n-------------Round number: {i}-------------")
            self.evaluate()
        print("\\nBest accuracy.")
FedProto = FedGH = Own
"""
MODELS = """
from torch import nn
class BaseHeadSplit(nn.Module):
    def __init__(self, args, cid=0):
        super().__init__()
        self.base = eval(args.models[cid % len(args.models)])
        self.base.fc = nn.AdaptiveAvgPool1d(args.feature_dim)
        self.head = nn.Linear(args.feature_dim, args.num_classes)
    def forward(self, x):
        return self.head(self.base(x))
"""


def write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def clones(tmp_path):
    """The authors' two repositories and HtFLlib as they are laid out, as far as the benchmark goes by it."""
    ssa, gh = tmp_path / "authors/FedSSA/FedSSA/experiments", tmp_path / "authors/FedGH/FedGH_Codes/experiments"
    system, seen = tmp_path / "HtFLlib/system", SEEN.format(log=str(tmp_path / "seen"))
    hetero = {"method": "FedSSA", "epochs": "--inner-steps", "classes": "--num-classes", "imports": ""}
    header = "from experiments.FLHetero.Models.FC import header"  # which the package Models of the other clone hides
    both = {"method": "FedGH", "epochs": "--epochs", "classes": "--total-classes", "imports": header}
    ktl = {
        f"flcore/servers/serverktl_{name}.py": "import dnnlib"
        for name in ("stylegan_xl", "stylegan_3", "stable_diffusion")
    }
    write(
        {
            ssa / "dataset.py": "",
            ssa / "utils.py": seen,
            ssa / "FLHetero/node.py": "nodes = True",
            ssa / "FLHetero/Models/__init__.py": "",
            ssa / "FLHetero/Models/CNNs.py": "nets = 5",
            ssa / "FLHetero/FedSSA_hetero.py": SCRIPT.format(**hetero),
            gh / "dataset.py": "",
            gh / "utils.py": seen,
            gh / "FLHetero/node.py": "nodes = True",
            gh / "FLHetero/Models/CNNs.py": "nets = 5",
            gh / "FLHetero/Models/FC.py": "header = True",
            gh / "FLHetero/FedGH_mh.py": SCRIPT.format(**both),
            system / "main.py": MAIN,
            system / "utils/mem_utils.py": "def report(): pass",
            system / "flcore/servers/seen.py": seen,
            system / "flcore/servers/serverbase.py": BASE,
            system / "flcore/servers/serverproto.py": SERVER,
            system / "flcore/servers/servergh.py": SERVER,
            system / "flcore/trainmodel/models.py": MODELS,
            **{system / name: text for name, text in ktl.items()},
        }
    )
    return tmp_path


def benchmark(*arguments: object) -> subprocess.CompletedProcess[str]:
    root = str(BENCHMARK.parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(BENCHMARK), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.nightly
def test_each_peer_is_run_with_its_own_options_and_compared(clones):
    before = sorted(path for path in clones.rglob("*"))
    given = ("--dataset", "digits", "--num-clients", 5, "--batch-size", 16, "--short")
    pairs = (("FedSSA", "--authors"), ("FedGH", "--authors"), ("FedGH", "--htfllib"))
    for method, where in pairs:
        folder = clones / {"--authors": "authors", "--htfllib": "HtFLlib"}[where]
        ended = benchmark(where, folder, *given, "--method", method)
        assert ended.returncode == 0, ended.stderr
        peer = {"--authors": "authors'", "--htfllib": "HtFLlib"}[where]
        theirs, evaluates, ours, ours_evaluates = ended.stdout.splitlines()[2:]
        assert theirs.startswith(f"  {peer} {method}: ") and "test images" in evaluates
        assert ours.startswith(f"  fedlib {method} fp32: ") and ours.endswith(f" x {peer} {method}")
        assert "validation" in ours_evaluates and re.search(r"of a round \d+\.\d\d s$", ours_evaluates)
        assert re.match(r"    \d+\.\d\d s a round; ", evaluates)  # the second of two rounds
        assert ("the loss on all training images" in evaluates) == (where == "--htfllib")

    seen = [json.loads(line) for line in (clones / "seen").read_text().splitlines()]
    assert [who for who, _ in seen] == ["FedSSA", "FedGH", "HtFLlib"]
    rounds = [what.get("num_steps", what.get("rounds")) for _, what in seen]
    assert rounds == [2, 2, 1]  # HtFLlib does one more than it is told
    script, theirs = seen[0][1], seen[-1][1]
    assert (script["num_nodes"], script["batch_size"], script["data_name"]) == (5, 16, "digits")
    assert (script["inner_steps"], script["num_classes"]) == (1, 10)
    assert (theirs["algorithm"], theirs["num_clients"], theirs["lr"]) == ("FedGH", 5, 0.01)
    assert all(shape[:2] == [2, 10] and shape[2] > 200 for shape in theirs["shapes"])  # each on its own images
    ran = (set(clones.rglob("*")) - set(before)) - {clones / "seen"}
    assert not [path for path in ran if "__pycache__" not in path.parts]  # nothing is written into a clone


def test_the_first_round_does_not_count(monkeypatch):
    """It has what is done once; a round of Flower is a share of what many take besides one."""
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    peers = runpy.run_path(str(BENCHMARK))
    told = {"stamps": [5.0, 15.0, 17.0, 20.0], "parts": {"evaluate": 3.0}}
    contestant = peers["Contestant"]("one", 100, lambda rounds: {"kind": "ours"})
    monkeypatch.setattr(peers["Contestant"], "_total", lambda self, rounds: (10.0 * rounds + 7, told))
    assert contestant.seconds(3) == [2.0, 3.0] and contestant.parts == {"evaluate": 1.0}
    contestant.job = lambda rounds: {"kind": "flower"}
    assert contestant.seconds(4) == [10.0]


def run_here(monkeypatch, *given: object) -> str:
    """What the benchmark, run in this process, ends with."""
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    arguments = ["--dataset", "digits", "--num-clients", "5", "--batch-size", "16", *map(str, given)]
    monkeypatch.setattr(sys, "argv", ["bench_peers.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARK), run_name="__main__")
    said = str(ended.value.code)
    assert said.startswith("bench_peers: ") and "\n" not in said
    return said


def test_a_machine_with_other_work_on_it_is_refused(clones, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1.3, 0.0, 0.0))
    said = run_here(monkeypatch, "--authors", clones / "authors", "--method", "FedSSA")
    assert "load of this machine = 1.3: must be at most 1.2" in said


@pytest.mark.thorough
def test_a_script_that_does_not_tell_of_its_rounds_is_named(clones, monkeypatch):
    script = clones / "authors/FedSSA/FedSSA/experiments/FLHetero/FedSSA_hetero.py"
    script.write_text(script.read_text().replace("trange(options.num_steps)", "range(options.num_steps)"))
    said = run_here(monkeypatch, "--authors", clones / "authors", "--method", "FedSSA", "--short")
    assert "authors' FedSSA: told of 0 rounds, not of 2" in said


def test_packages_that_a_clone_wants_are_named_together(clones, monkeypatch):
    """But not those of the servers that are left out."""
    base = clones / "HtFLlib/system/flcore/servers/serverbase.py"
    base.write_text("import h5py_of_theirs.core\n" + base.read_text())
    (clones / "HtFLlib/system/utils/mem_utils.py").write_text("from calmsize_of_theirs import size\ndef report(): pass")
    said = run_here(monkeypatch, "--htfllib", clones / "HtFLlib", "--short")
    assert said.endswith("installed: pip install calmsize_of_theirs h5py_of_theirs")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("missing", "line"),
    [
        ("authors/FedGH/FedGH_Codes/experiments/FLHetero/FedGH_mh.py", "a folder with one FedGH_mh.py below it, not 0"),
        ("HtFLlib/system/flcore/servers/serverbase.py", "must be a folder with system/flcore/servers/serverbase.py"),
        ("HtFLlib/system/flcore/servers/servergh.py", "must be a folder with system/flcore/servers/servergh.py"),
        ("HtFLlib/system/flcore/servers/seen.py", "HtFLlib FedProto: ModuleNotFoundError: No module named"),
        ("", "--authors or --htfllib, a folder with clones, or --flower must be given"),
        ("flower", "--flower = 'flwr': must be installed: pip install"),
    ],
)
def test_what_a_clone_lacks_is_one_line(clones, missing, line, monkeypatch):
    given: list[object] = ["--short"]
    if missing == "flower":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        given += ["--flower"]
    elif missing:
        (clones / missing).unlink()
        folder = missing.split("/")[0]
        given += [f"--{folder.lower()}", clones / folder]
    assert line in run_here(monkeypatch, *given)
