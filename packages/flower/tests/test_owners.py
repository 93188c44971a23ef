"""A federation over images that nobody but their owners ever reads: each makes its share from its own folder, in a process of
its own that sees which files it opens; the numbers are those of the simulation of the union.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import united
from PIL import Image
from united import tables

import fedlib
from fedlib import FedlibError, data
from fedlib_flower import here, owners, server, shares

CLIENTS = 4
PLAN = """
[spec]
algorithm = "{algorithm}"
num_clients = 4
participation = 0.5
rounds = 2
local_epochs = 1
batch_size = 16
precision = "fp32"
seed = 3

[data]
name = "scans"
classes = ["crack", "dent", "none"]
num_classes = 3
shape = [3, 32, 32]
mean = [0.4, 0.4, 0.4]
std = [0.3, 0.3, 0.3]
num_images = 150
"""
WATCH = """
import os, sys

def watch(event, arguments, folder=os.environ["WATCHED"], log=os.environ["WATCHED_LOG"], busy=[]):
    if event in ("open", "os.listdir", "os.scandir") and not busy:
        path = os.path.abspath(os.fsdecode(arguments[0])) if isinstance(arguments[0], (str, bytes, os.PathLike)) else ""
        if path.startswith(folder + os.sep):
            busy.append(1)
            with open(log, "a") as file:
                print(os.getpid(), path, file=file)
            busy.pop()

sys.addaudithook(watch)
"""


@pytest.fixture
def hospitals(tmp_path):
    """Each owner's folder, hospital-k/images; and all of their images and labels, by owner."""
    return united.pictures(tmp_path / f"hospital-{client}" for client in range(CLIENTS))


def environment(tmp_path, package, who):
    """Of one side's process: its own HOME and store, its watch over the owners' folders."""
    watch = tmp_path / "watch"
    watch.mkdir(exist_ok=True)
    (watch / "sitecustomize.py").write_text(WATCH)
    root = str(Path(fedlib.__file__).parents[1])
    own = {"HOME": str(tmp_path / who), "FEDLIB_HOME": str(tmp_path / who / "runs"), "OMP_NUM_THREADS": "1"}
    own |= {"WATCHED": str(tmp_path), "WATCHED_LOG": str(tmp_path / "opened.log")}
    return (
        os.environ | own | {"PYTHONPATH": os.pathsep.join([str(watch), root, str(package), os.environ["PYTHONPATH"]])}
    )


def command(tmp_path, package, who, *words):
    ended = subprocess.run(
        [sys.executable, "-m", "fedlib", *map(str, words)],
        capture_output=True, text=True, cwd=tmp_path / who, env=environment(tmp_path, package, who),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def federate(tmp_path, package):
    """Each side makes its share in its own process; returns the run's key."""
    (tmp_path / "centre").mkdir()
    told = []
    for client in range(CLIENTS):
        own = tmp_path / f"hospital-{client}"
        said = command(
            tmp_path, package, own.name, "node", "share", tmp_path / "plan.toml",
            "--client", client, "--images", own / "images", "--out", own / "shares",
        )  # fmt: skip
        told.append(said.strip().rpartition(" ")[2])
    for file in told:  # sent by mail
        (tmp_path / "centre" / Path(file).name).write_bytes(Path(file).read_bytes())
    files = [tmp_path / "centre" / Path(file).name for file in told]
    said = command(
        tmp_path,
        package,
        "centre",
        "server",
        "share",
        tmp_path / "plan.toml",
        *files,
        "--out",
        tmp_path / "centre/shares",
    )
    return Path(said.strip()).name


ASKED = """
import sys
from pathlib import Path
from fedlib_flower import node
side, run, session, asked, reply = sys.argv[1:]
answered = node.answer(Path(side), run, int(session), {Path(file).name: Path(file).read_bytes() for file in asked.split()})
for name, content in answered.items():
    Path(reply, name).write_bytes(content)
"""


class Apart(here.Here):
    """A node answers in a process of its own, with its own HOME, for every message."""

    def __init__(self, tmp_path, package):
        super().__init__(tmp_path, CLIENTS)
        self.package = package

    def side(self, number):
        return self.folder / f"hospital-{number}" / "shares"

    def ask(self, number, run, session, requests):
        self.asked += 1
        box = self.folder / "post" / str(self.asked)
        (box / "replies").mkdir(parents=True)
        for name, content in requests.items():
            (box / name).write_bytes(content)
        files = " ".join(str(box / name) for name in requests)
        arguments = [str(self.side(number)), run, str(session), files, str(box / "replies")]
        ended = subprocess.run(
            [sys.executable, "-c", ASKED, *arguments], capture_output=True, text=True,
            env=environment(self.folder, self.package, f"hospital-{number}"),
        )  # fmt: skip
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        replies = {path.name: path.read_bytes() for path in (box / "replies").iterdir()}
        self.sent[str(self.asked)] = last.partition("FedlibError: ")[2] if ended.returncode else replies
        return str(self.asked)

    def clients_of(self, nodes, run, seconds):
        return {number: here.clients_of(self.side(number), run) for number in nodes}


@pytest.mark.thorough
def test_the_numbers_are_the_unions_and_no_process_opens_two_owners_files(tmp_path, hospitals, package, mine):
    (tmp_path / "plan.toml").write_text(PLAN.format(algorithm="FedSSA"))
    key = federate(tmp_path, package)
    server.serve(Apart(tmp_path, package), tmp_path / "centre/shares" / key, tmp_path / "out", 120.0)
    assert tables(tmp_path / "out") == united.simulated(hospitals, "FedSSA", rounds=2, seed=3)
    opened = {}
    for line in (tmp_path / "opened.log").read_text().splitlines():
        process, _, path = line.partition(" ")
        owner = Path(path).relative_to(tmp_path).parts[0]
        if owner.startswith("hospital-"):
            opened.setdefault(process, set()).add(owner)
    assert len(opened) >= 2 * CLIENTS and all(len(owners) == 1 for owners in opened.values())


@pytest.mark.thorough("FedGH")
@pytest.mark.parametrize("algorithm", ["FedGH", "FedProto", "SharedBias"])
def test_other_methods_and_ones_own_have_the_unions_numbers(tmp_path, hospitals, package, mine, algorithm):
    (tmp_path / "plan.toml").write_text(PLAN.format(algorithm=algorithm))
    plan = owners.read_plan(tmp_path / "plan.toml")
    told = []
    for client in range(CLIENTS):
        read = owners.read_images(tmp_path / f"hospital-{client}/images", plan)
        assert all(np.array_equal(*pair) for pair in zip(read, hospitals[client], strict=True))
        told.append(owners.own_share(plan, client, *read, tmp_path / f"node-{client % 2}"))  # two owners on a node
    share = owners.server_share(plan, told, tmp_path / "server")
    with here.Here(tmp_path, 2) as federation:
        federation.run(share.name, tmp_path / "out")
    assert tables(tmp_path / "out") == united.simulated(hospitals, algorithm, rounds=2, seed=3)


@pytest.mark.thorough
def test_a_node_without_ones_own_method_or_with_another_version_ends_the_run(tmp_path, hospitals, package, mine):
    """Before anything is trained."""
    (tmp_path / "plan.toml").write_text(PLAN.format(algorithm="SharedBias"))
    key = federate(tmp_path, package)
    apart = Apart(tmp_path, tmp_path / "nothing")
    with pytest.raises(FedlibError, match=r"^node 0 with clients 0: algorithm = 'SharedBias' is unknown: "):
        server.serve(apart, tmp_path / "centre/shares" / key, tmp_path / "out", 120.0)
    apart.package = other = tmp_path / "other" / "site-packages"
    shutil.copytree(package, other)
    (other / "mine.py").write_text(united.MINE.replace("self.step *", "2 * self.step *"))
    with pytest.raises(
        FedlibError, match=r"^node 0 with clients 0: method of SharedBias, file = '\w+': must be the version"
    ):
        server.serve(apart, tmp_path / "centre/shares" / key, tmp_path / "out", 120.0)
    assert not (tmp_path / "out/checkpoint.pt").exists()


def test_a_description_has_no_image_and_a_share_no_other_owners(tmp_path, hospitals):
    (tmp_path / "plan.toml").write_text(PLAN.format(algorithm="FedSSA"))
    plan = owners.read_plan(tmp_path / "plan.toml")
    file = owners.own_share(plan, 1, *hospitals[1], tmp_path / "node")
    assert json.loads(file.read_text()) == {"run": plan.run.key, "client": 1, "classes": [0, 2], "images": 26}
    share, resolved = shares.read(tmp_path / "node", plan.run.key)
    assert [client["id"] for client in share["clients"]] == [1] and len(share["clients"][0]["images"]) == 32
    assert resolved.info == plan.run.info and resolved.key == plan.run.key
    with pytest.raises(FedlibError, match="'scans' is unknown"):
        data.info("scans")


BAD = [
    ("[spec]", "[spec", "cannot be read"),
    ("[data]", "[date]", r"table = 'date' is unknown: did you mean 'data'\?"),
    ("num_images = 150", "", r"data.num_images = None: must be given"),
    ('name = "scans"', 'name = "digits"', "name = 'digits': must be another one"),
    ("std = [0.3, 0.3, 0.3]", "std = [0.3]", "std = "),
    ("shape = [3, 32, 32]", "shape = [3, 32]", "shape"),
    ("num_clients = 4", "", "num_clients = None: must be given"),
    ("seed = 3", 'seed = 3\ndataset = "digits"', "spec.dataset = 'digits': must be left out"),
    ("seed = 3", 'seed = 3\noverrides = {split = "official-8:1:1"}', "split = 'official"),
    ('"{algorithm}"', '"FedMD"', "algorithm = 'FedMD': must be one that needs no public images"),
    ("num_classes = 3", "num_classes = 4", "num_classes = 4: must be 3"),
]


@pytest.mark.parametrize(("old", "new", "line"), BAD)
def test_a_plan_that_cannot_be_run_is_one_line(tmp_path, old, new, line):
    assert old in PLAN
    (tmp_path / "plan.toml").write_text(PLAN.replace(old, new).replace("{algorithm}", "FedSSA").replace("{{", "{"))
    with pytest.raises(FedlibError, match=line) as error:
        owners.read_plan(tmp_path / "plan.toml")
    assert "\n" not in str(error.value)


def test_images_that_do_not_fit_the_plan_are_named(tmp_path, hospitals):
    (tmp_path / "plan.toml").write_text(PLAN.format(algorithm="FedSSA"))
    plan, folder = owners.read_plan(tmp_path / "plan.toml"), tmp_path / "hospital-0/images"
    with pytest.raises(FedlibError, match=r"^client = 4: must be between 0 and 3$"):
        owners.own_share(plan, 4, *hospitals[0], tmp_path / "node")
    with pytest.raises(FedlibError, match=r"^images of client 0 = '.*': must be .*, as the plan says$"):
        owners.own_share(plan, 0, hospitals[0][0][:, :, :16], hospitals[0][1], tmp_path / "node")
    Image.new("RGB", (32, 31)).save(folder / "dent/large.png")
    with pytest.raises(
        FedlibError, match=r"large\.png: height and width = \(31, 32\): must be \(32, 32\), as the plan"
    ):
        owners.read_images(folder, plan)
    (folder / "dent/large.png").write_text("no picture")
    with pytest.raises(FedlibError, match=r"large\.png: is no picture that can be read"):
        owners.read_images(folder, plan)
    (folder / ".DS_Store").touch()
    (folder / "scratch").mkdir()
    with pytest.raises(FedlibError, match=r"class = 'scratch' is unknown: "):
        owners.read_images(folder, plan)
    np.save(tmp_path / "own.npy", hospitals[0][0])
    np.savez(tmp_path / "cut.npz", images=hospitals[0][0], labels=hospitals[0][1])
    os.truncate(tmp_path / "cut.npz", 500)
    for name in ("own.npy", "cut.npz"):
        with pytest.raises(FedlibError, match=rf"{name}': must be an \.npz file with images and labels"):
            owners.read_images(tmp_path / name, plan)
    np.savez(tmp_path / "own.npz", images=hospitals[0][0], labels=hospitals[0][1])
    assert all(
        np.array_equal(*pair) for pair in zip(owners.read_images(tmp_path / "own.npz", plan), hospitals[0], strict=True)
    )


def test_a_server_needs_every_clients_description_once(tmp_path, hospitals):
    (tmp_path / "plan.toml").write_text(PLAN.format(algorithm="FedSSA"))
    plan = owners.read_plan(tmp_path / "plan.toml")
    told = [owners.own_share(plan, client, *hospitals[client], tmp_path / "node") for client in range(CLIENTS)]
    with pytest.raises(FedlibError, match=r"^clients without a description = \[3\]: must be none$"):
        owners.server_share(plan, told[:3], tmp_path / "server")
    with pytest.raises(FedlibError, match=r"client = 0: must be between 0 and 3, each once$"):
        owners.server_share(plan, [*told, told[0]], tmp_path / "server")
    plain = told[1].read_text()
    for change, line in (
        ({"run": "Other"}, "run = 'Other'"),
        ({"classes": [7]}, "classes = "),
        ({"images": 0}, "images = 0"),
        ({"images": 10**12}, "images = 1000000000000: must be at least one of each class, and at most 1500, ten times"),
    ):
        told[1].write_text(json.dumps(json.loads(plain) | change))
        with pytest.raises(FedlibError, match=line):
            owners.server_share(plan, told, tmp_path / "server")
