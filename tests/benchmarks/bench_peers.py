"""fedlib against the authors' released scripts and HtFLlib, from clones that you have, and against Flower, on one core.

    git clone https://github.com/LipingYi/FedSSA authors/FedSSA
    git clone https://github.com/LipingYi/FedGH authors/FedGH
    git clone https://github.com/TsingZ0/HtFLlib && pip install h5py higher calmsize
    pip install 'flwr[simulation]==1.41.0'
    python tests/benchmarks/bench_peers.py --authors authors --htfllib HtFLlib --flower

Each contestant is a process of its own on one core with one thread, end to end: training with the augmentation that the
peer has, evaluation, aggregation. Rounds are timed inside it, in processor seconds, and the first does not count: imports,
reading the data and what is done once lie before or in it. All take turns, and the order changes with each repeat. Prints the
seconds of each round, training samples a second of processor time, what each evaluates and, of each pair, ours over theirs.
A machine with other work on it is refused (its load is above 1.2), but by --short.

Against the authors' FedSSA and FedGH: the same data, CNN-1..5 in turn, N, E and B; ours under protocol `released`, which
also measures the validation images, as theirs does not. A ratio against the authors' FedGH is no ratio of training: their
class means are a Python loop over images. Against HtFLlib's FedProto and FedGH: their networks are replaced by CNN-1..5,
their images are ours, client by client, without augmentation, for they have none; they drop a client's last short batch,
which is not counted. Their round tests all clients, FedProto's by a Python loop over images and prototypes, and at some
commits computes the loss on all training images as well: how long that takes is printed. Nothing is written into a clone.
Against Flower's simulation engine: FedAvg of CNN-1 with plain SGD, as an app of Flower's users is written (peer_flower.py),
its engine's processes included. Its rounds are in several processes, so there a round is the difference between a run of
many and a run of one, divided by their number.
"""

import argparse
import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe, spread

from fedlib import FedlibError, RunSpec, data, lab
from fedlib.errors import choose, require

HERE = Path(__file__).parent
FEW, MANY = 2, 4  # rounds; the first does not count, and HtFLlib's own summary needs two
LOAD = 1.2  # of a machine that does nothing else, the benchmark's own included
EVALUATES = {
    "ours": "evaluates test and validation images of the round's clients",
    "script": "evaluates the test images of each client that it has trained",
    "htfllib": "evaluates the test images of all clients",
    "flower": "evaluates the test images of all clients",
}
SCRIPTS = {  # method -> the authors' heterogeneous script, and what it calls E
    "FedSSA": ("FedSSA_hetero.py", "--inner-steps"),
    "FedGH": ("FedGH_mh.py", "--epochs"),
}
HTFLLIB = {"FedProto": ["-lam", "1.0"], "FedGH": ["-slr", "0.01"]}
NEEDED = (
    "main.py", "flcore/trainmodel/models.py", "flcore/servers/serverbase.py", "flcore/servers/serverproto.py",
    "flcore/servers/servergh.py",
)  # fmt: skip


@dataclass
class Contestant:
    """name: as printed; samples: training images of a round; job: what `peer_child.main` runs for so many rounds; parts: seconds
    of a round that parts of it took, where the child told.
    """

    name: str
    samples: int
    job: Callable[[int], dict[str, Any]]
    parts: dict[str, float] = field(default_factory=dict)

    def seconds(self, rounds: int) -> list[float]:
        """Processor seconds of each round but the first, system time included."""
        if self.job(rounds)["kind"] == "flower":
            return [(self._total(rounds)[0] - self._total(1)[0]) / (rounds - 1)]
        told = self._total(rounds)[1]
        stamps = np.array(told["stamps"])
        if len(stamps) != rounds + 1:
            raise FedlibError(f"{self.name}: told of {max(0, len(stamps) - 1)} rounds, not of {rounds}")
        self.parts = {name: seconds / rounds for name, seconds in told["parts"].items()}
        return np.diff(stamps)[1:].tolist()

    def _total(self, rounds: int) -> tuple[float, dict[str, Any]]:
        """Processor time of a process that does so many rounds, and what it told."""
        environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment |= {"CUDA_VISIBLE_DEVICES": "", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}  # HtFLlib saves modules
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-W", "ignore", "-c", "import peer_child; peer_child.main()"]
        with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "errors", "w+") as errors:
            job = self.job(rounds) | {"told": str(Path(folder) / "told")}
            work = Path(job.pop("folder", folder))
            process = subprocess.Popen(
                [*command, json.dumps(job)], cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=errors
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                errors.seek(0)
                lines = errors.read().split("\n")
                last = next((line for line in reversed(lines) if line.strip()), f"exit {process.returncode}")
                raise FedlibError(f"{self.name}: {last.strip()}")
            return used.ru_utime + used.ru_stime, json.loads(Path(job["told"]).read_text())


def ours(options: argparse.Namespace, method: str, precision: str, **fields: Any) -> tuple[Contestant, lab.Resolved]:
    spec = {
        "algorithm": method,
        "dataset": options.dataset,
        "num_clients": options.num_clients,
        "local_epochs": options.epochs,
        "batch_size": options.batch_size,
        "precision": precision,
        "scenario": "heterogeneous",
    } | fields
    run = lab.resolve(RunSpec(**spec))
    samples = sum(len(parts[0]) for parts in lab.partition_of(run)) * options.epochs
    name = f"fedlib {method} {precision}"
    return Contestant(name, samples, lambda rounds: {"kind": "ours", "spec": spec, "rounds": rounds}), run


def found(field: str, folder: Path, name: str) -> Path:
    """The only file called `name` below the folder."""
    paths = sorted(folder.rglob(name)) if folder.is_dir() else []
    require(len(paths) == 1, field, str(folder), f"a folder with one {name} below it, not {len(paths)}")
    return paths[0]


def authors(options: argparse.Namespace, method: str) -> Contestant:
    """A released script. Its package `experiments` lies in two repositories, each with modules that hide the other's: only its own
    is on the path. A clone that lacks some of them gets the other behind it.
    """
    folder = Path(options.authors).absolute()
    scripts = {name: found("--authors", folder, script) for name, (script, _) in SCRIPTS.items()}
    roots = [str(scripts[name].parents[2]) for name in sorted(SCRIPTS, key=lambda name: name != method)]
    modules = ("experiments/dataset.py", "experiments/utils.py", "experiments/FLHetero/node.py")
    if all((Path(roots[0]) / module).is_file() for module in modules):
        roots = roots[:1]
    for module in modules:
        there = any((Path(root) / module).is_file() for root in roots)
        require(there, "--authors", str(folder), f"a folder with {module} of the authors' code below it")
    own = Path(roots[0])
    module = ".".join(scripts[method].relative_to(own).with_suffix("").parts)
    arguments = [
        "--data-path",
        str(data.root()),
        "--num-nodes",
        options.num_clients,
        "--batch-size",
        options.batch_size,
    ]
    arguments += [SCRIPTS[method][1], options.epochs, "--save-path", "Results/temp"]
    if options.dataset != "cifar10":  # their default, which one script does not list among its choices
        classes = "--num-classes" if method == "FedSSA" else "--total-classes"
        arguments += ["--data-name", options.dataset, classes, data.info(options.dataset).num_classes]

    def job(rounds: int) -> dict[str, Any]:
        given = [str(argument) for argument in [*arguments, "--num-steps", rounds]]
        return {"kind": "script", "roots": roots, "module": module, "arguments": given}

    return Contestant(f"authors' {method}{commit(own)}", 0, job)


@contextmanager
def htfllib_folder(run: lab.Resolved) -> Iterator[Path]:
    """The working folder for HtFLlib, with every client's normalised images where it looks for them."""
    federation, parts = lab.federation_of(run), lab.partition_of(run)
    with tempfile.TemporaryDirectory() as folder:
        for place, part in (("train", 0), ("test", 2)):
            (Path(folder) / "dataset/fedlib" / place).mkdir(parents=True)
            for client, indices in enumerate(parts):
                own = torch.from_numpy(np.asarray(indices[part]))
                images, labels = federation.pool.batch(own).contiguous(), federation.pool.labels[own]
                content = {"x": images.numpy(), "y": labels.numpy()}
                np.savez(Path(folder) / "dataset/fedlib" / place / f"{client}.npz", data=content)  # type: ignore[arg-type]
        (Path(folder) / "system").mkdir()
        yield Path(folder) / "system"


def missing_packages(system: Path) -> list[str]:
    """What HtFLlib's main.py and the modules that it loads import, and neither this Python nor the clone has."""
    files = [system / "main.py", *sorted(system.glob("flcore/**/*.py")), *sorted(system.glob("utils/*.py"))]
    wanted = set()
    for file in files:
        if "ktl" in file.name:  # the servers that want StyleGAN or Stable Diffusion are left out
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                wanted |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                wanted.add(node.module.partition(".")[0])
    own = {path.stem for path in system.iterdir()}
    return sorted(name for name in wanted - own if importlib.util.find_spec(name) is None)


def htfllib(options: argparse.Namespace, method: str, run: lab.Resolved, work: Path) -> Contestant:
    system = Path(options.htfllib).absolute() / "system"
    for name in NEEDED:
        require((system / name).is_file(), "--htfllib", options.htfllib, f"a folder with system/{name}")
    lacking = missing_packages(system)
    require(not lacking, "--htfllib", ", ".join(lacking), f"installed: pip install {' '.join(lacking)}")
    arguments = ["-data", "fedlib", "-ncl", run.info.num_classes, "-m", "HtFE-img-5", "-algo", method, "-dev", "cpu"]
    arguments += ["-nc", options.num_clients, "-ls", options.epochs, "-lbs", options.batch_size, "-lr", run.spec.lr]
    arguments += ["-fd", 500, "-sfn", "temp", *HTFLLIB[method]]
    sizes = [len(parts[0]) // options.batch_size * options.batch_size for parts in lab.partition_of(run)]
    require(min(sizes) > 0, "--batch-size", options.batch_size, "at most the training images of every client: HtFLlib "
            "drops what is no whole batch")  # fmt: skip

    def job(rounds: int) -> dict[str, Any]:
        given = [str(argument) for argument in [*arguments, "-gr", rounds - 1]]  # it does one more
        common = {"kind": "htfllib", "system": str(system), "channels": run.info.channels, "folder": str(work)}
        return common | {"architectures": run.architectures, "arguments": given}

    return Contestant(f"HtFLlib {method}{commit(system)}", sum(sizes) * options.epochs, job)


def flower(spec: dict[str, Any], samples: int) -> Contestant:
    for module in ("flwr", "ray"):
        known = importlib.util.find_spec(module) is not None
        require(known, "--flower", module, "installed: pip install 'flwr[simulation]==1.41.0'")
    return Contestant(
        "Flower FedAvg, CNN-1 alone", samples, lambda rounds: {"kind": "flower", "spec": spec, "rounds": rounds}
    )


def commit(folder: Path) -> str:
    """Of a clone, in a few digits; empty where git does not know."""
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    ended = subprocess.run(command, capture_output=True, text=True)
    return f" at {ended.stdout.strip()}" if ended.returncode == 0 else ""


def compare(theirs: Contestant, own: list[Contestant], options: argparse.Namespace) -> None:
    """Time all in turns and print each round, speeds, ratios, and what a round evaluates."""
    contestants, repeats = [theirs, *own], 1 if options.short else options.repeats
    rounds: list[list[list[float]]] = [[] for _ in contestants]  # of each contestant, repeat, round
    for repeat in range(repeats):
        for place in np.roll(np.arange(len(contestants)), repeat):
            load = os.getloadavg()[0]
            if not options.short:
                require(load <= LOAD, "load of this machine", round(load, 2), f"at most {LOAD}: wait, or --short")
            rounds[place].append(contestants[place].seconds(FEW if options.short else MANY))
    speeds = [
        np.array([c.samples / np.median(turn) for turn in own]) for c, own in zip(contestants, rounds, strict=True)
    ]
    for place, contestant in enumerate(contestants):
        each = " | ".join(" ".join(f"{seconds:.2f}" for seconds in turn) for turn in rounds[place])
        ratio = f", {spread(speeds[place] / speeds[0])} x {theirs.name}" if place else ""
        print(f"  {contestant.name}: {np.median(speeds[place]):.0f} samples/s{ratio}")
        parts = contestant.parts
        also = f"; of a round {parts['evaluate']:.2f} s" if "evaluate" in parts else ""
        also += (
            f", {parts['train_metrics']:.2f} s of it the loss on all training images"
            if "train_metrics" in parts
            else ""
        )
        print(f"    {each} s a round; {EVALUATES[contestant.job(1)['kind']]}{also}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", metavar="DIR", help="folder with clones of LipingYi/FedSSA and LipingYi/FedGH")
    parser.add_argument("--htfllib", metavar="DIR", help="clone of TsingZ0/HtFLlib")
    parser.add_argument(
        "--flower", action="store_true", help="FedAvg on Flower's simulation engine, which is installed"
    )
    parser.add_argument("--dataset", default="cifar10", help="cifar10 (default) or cifar100, from FEDLIB_DATA")
    parser.add_argument("--num-clients", type=int, default=10, help="N, all of whom take part (default 10)")
    parser.add_argument("--epochs", type=int, default=1, help="E (default 1)")
    parser.add_argument("--batch-size", type=int, default=512, help="B (default 512, the authors')")
    parser.add_argument("--repeats", type=int, default=3, help="of every contestant (default 3)")
    parser.add_argument("--method", metavar="NAME", help="FedSSA, FedGH, FedProto or FedAvg alone; default all")
    parser.add_argument("--short", action="store_true", help="one repeat, fp32: shows that it runs, not how fast")
    options = parser.parse_args()
    try:
        if not (options.authors or options.htfllib or options.flower):
            raise FedlibError("--authors or --htfllib, a folder with clones, or --flower must be given")
        if options.method is not None:
            choose("--method", options.method, list(dict.fromkeys([*SCRIPTS, *HTFLLIB, "FedAvg"])))
        print(describe())
        print(f"{options.dataset}, CNN-1..5 in turn, N = {options.num_clients}, E = {options.epochs}, "
              f"B = {options.batch_size}; median ratio (middle half)")  # fmt: skip
        precisions = ("fp32",) if options.short else ("fp32", "bf16")
        scripts, servers = ([name for name in every if options.method in (None, name)] for every in (SCRIPTS, HTFLLIB))
        for method in scripts if options.authors else ():
            theirs = authors(options, method)
            own = [ours(options, method, precision, protocol="released")[0] for precision in precisions]
            theirs.samples = own[0].samples  # both deal four fifths of the training images
            compare(theirs, own, options)
        for method in servers if options.htfllib else ():
            both = [ours(options, method, precision, paper="FedGH") for precision in precisions]
            with htfllib_folder(both[0][1]) as work:
                compare(htfllib(options, method, both[0][1], work), [contestant for contestant, _ in both], options)
        if options.flower and options.method in (None, "FedAvg"):
            plain = {"scenario": "homogeneous", "protocol": "paper", "participation": 1.0}
            own = [ours(options, "FedAvg", precision, **plain)[0] for precision in precisions]
            compare(flower(own[0].job(1)["spec"], own[0].samples), own, options)
    except FedlibError as error:
        sys.exit(f"bench_peers: {error}")


if __name__ == "__main__":
    main()
