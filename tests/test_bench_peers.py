"""The benchmark against peers, on a clone made up here: a script takes the options that the real one takes and writes
down what it was given. It has no code of theirs, so what this shows is that ours starts them and reads their data.
"""

import importlib.util
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent / "benchmarks/bench_peers.py"

SCRIPT = """
import argparse, json, os
from experiments.dataset import name
from experiments.utils import seen
from experiments.FLHetero.node import nodes
import torch
parser = argparse.ArgumentParser()
for option in ("--data-path", "--save-path", "--data-name"):
    parser.add_argument(option)
for option in ("--num-nodes", "--num-steps", "--batch-size", "{epochs}", "{classes}", "--gpu"):
    parser.add_argument(option, type=int, default=0)
options = parser.parse_args()
assert options.gpu <= torch.cuda.device_count() and os.path.isdir("Results/temp")
seen("{method}", vars(options))
sum(i * i for i in range(options.num_steps * 50_000))
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
parser = argparse.ArgumentParser()
for short, long, kind in (("data", "dataset", str), ("ncl", "num_classes", int), ("m", "model_family", str),
        ("algo", "algorithm", str), ("dev", "device", str), ("nc", "num_clients", int), ("ls", "local_epochs", int),
        ("lbs", "batch_size", int), ("lr", "lr", float), ("fd", "feature_dim", int), ("sfn", "sfn", str),
        ("gr", "rounds", int), ("lam", "lamda", float), ("slr", "slr", float)):
    parser.add_argument("-" + short, "--" + long, type=kind)
args = parser.parse_args()
seen("HtFLlib", vars(args) | {"FedProto": FedProto, "FedGH": FedGH}[args.algorithm](args))
"""
SERVER = """
import numpy as np, torch
from flcore.trainmodel.models import BaseHeadSplit
def server(args):
    shapes = []
    for client in range(args.num_clients):
        with open(f"../dataset/{args.dataset}/train/{client}.npz", "rb") as file:
            images = np.load(file, allow_pickle=True)["data"].tolist()["x"]
        model = BaseHeadSplit(args, client)
        torch.save(model, "model.pt")
        shapes.append(list(torch.load("model.pt")(torch.tensor(images[:2])).shape) + [len(images)])
    return {"shapes": shapes}
FedProto = FedGH = server
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
    write(
        {
            ssa / "dataset.py": "name = 'FedSSA'",
            ssa / "FLHetero/FedSSA_hetero.py": SCRIPT.format(
                method="FedSSA", epochs="--inner-steps", classes="--num-classes"
            ),
            gh / "dataset.py": "name = 'FedGH'",
            gh / "utils.py": seen,
            gh / "FLHetero/node.py": "nodes = True",
            gh / "FLHetero/FedGH_mh.py": SCRIPT.format(method="FedGH", epochs="--epochs", classes="--total-classes"),
            system / "main.py": MAIN,
            system / "flcore/servers/seen.py": seen,
            system / "flcore/servers/serverproto.py": SERVER,
            system / "flcore/servers/servergh.py": SERVER,
            system / "flcore/trainmodel/models.py": MODELS,
        }
    )
    return tmp_path


def benchmark(*arguments: object) -> subprocess.CompletedProcess[str]:
    root = str(BENCHMARK.parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(BENCHMARK), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_each_peer_is_run_with_its_own_options_and_compared(clones):
    before = sorted(path for path in clones.rglob("*"))
    given = ("--dataset", "digits", "--num-clients", 5, "--batch-size", 16, "--short")
    for method, where in (("FedSSA", ("--authors", "authors")), ("FedGH", ("--htfllib", "HtFLlib"))):
        ended = benchmark(where[0], clones / where[1], *given, "--method", method)
        assert ended.returncode == 0, ended.stderr
        peer = "authors'" if method == "FedSSA" else "HtFLlib"
        theirs, ours = ended.stdout.splitlines()[2:]
        assert theirs.startswith(f"  {peer} {method}: ")
        assert ours.startswith(f"  fedlib {method} fp32: ") and ours.endswith(f" x {peer} {method}")

    seen = [json.loads(line) for line in (clones / "seen").read_text().splitlines()]
    assert [who for who, _ in seen] == ["FedSSA", "FedSSA", "HtFLlib", "HtFLlib"]
    rounds = [what.get("num_steps", what.get("rounds")) for _, what in seen]
    assert rounds == [3, 2, 2, 1]  # HtFLlib does one more than it is told
    script, theirs = seen[0][1], seen[-1][1]
    assert (script["num_nodes"], script["batch_size"], script["data_name"]) == (5, 16, "digits")
    assert (script["inner_steps"], script["num_classes"]) == (1, 10)
    assert (theirs["algorithm"], theirs["num_clients"], theirs["lr"]) == ("FedGH", 5, 0.01)
    assert all(shape[:2] == [2, 10] and shape[2] > 200 for shape in theirs["shapes"])  # each on its own images
    ran = (set(clones.rglob("*")) - set(before)) - {clones / "seen"}
    assert not [path for path in ran if "__pycache__" not in path.parts]  # nothing is written into a clone


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        ("authors/FedGH/FedGH_Codes/experiments/FLHetero/FedGH_mh.py", "a folder with one FedGH_mh.py below it, not 0"),
        ("authors/FedGH/FedGH_Codes/experiments/utils.py", "with experiments/utils.py of the authors' code below it"),
        ("HtFLlib/system/flcore/servers/servergh.py", "must be a folder with system/flcore/servers/servergh.py"),
        ("HtFLlib/system/flcore/servers/seen.py", "HtFLlib FedProto: ModuleNotFoundError: No module named"),
        ("", "--authors or --htfllib, a folder with clones, or --flower must be given"),
        ("flower", "--flower = 'flwr': must be installed: pip install"),
    ],
)
def test_what_a_clone_lacks_is_one_line(clones, missing, line, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    given = ["--dataset", "digits", "--num-clients", "5", "--batch-size", "16", "--short"]
    if missing == "flower":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        given += ["--flower"]
    elif missing:
        (clones / missing).unlink()
        folder = missing.split("/")[0]
        given += [f"--{folder.lower()}", str(clones / folder)]
    monkeypatch.setattr(sys, "argv", ["bench_peers.py", *given])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARK), run_name="__main__")
    said = str(ended.value.code)
    assert said.startswith("bench_peers: ") and "\n" not in said and line in said
