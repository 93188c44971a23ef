"""A federation over Flower on loopback: SuperLink and three SuperNodes as processes, TLS, keys; killed and started again.

The server's process could not read an image if it tried: what reads the digits cannot be imported there, and its data
folder is empty. Skipped where Flower is not installed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_for
from united import rows, simulated_run, tables

pytest.importorskip("flwr")

from fedlib import FedlibError, RunSpec, lab
from fedlib_flower import loopback, shares

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

NODES = 3
COMMON = {"dataset": "digits", "num_clients": 6, "participation": 0.5, "rounds": 3}
SPECS = {  # FedSSA is below where a node is killed, pFedES where the server is
    "FedGH": RunSpec("FedGH", **COMMON),
    "FedMD": RunSpec("FedMD", public_images=50, **COMMON),
    "pFedHR": RunSpec("pFedHR", scenario="heterogeneous", public_images=50, params={"clusters": 2}, **COMMON),
}
NO_IMAGES = """
import importlib.machinery, sys

class NoImages:  # found, since torch looks for them, but there is nothing to import or to read
    def find_spec(self, name, path=None, target=None):
        if name in ("sklearn", "torchvision"):
            return importlib.machinery.ModuleSpec(name, self, origin="/nowhere/images/__init__.py")

    def create_module(self, spec):
        raise ImportError(f"{spec.name}: this machine has nothing that reads an image")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, NoImages())
"""


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """One SuperLink and its SuperNodes for all tests of this file, with every run's shares."""
    folder = tmp_path_factory.mktemp("federation")
    blind, empty = folder / "blind", folder / "empty"
    blind.mkdir()
    empty.mkdir()
    (blind / "sitecustomize.py").write_text(NO_IMAGES)
    here = [str(Path(lab.__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    everywhere = {"PYTHONPATH": os.pathsep.join(here), "HOME": str(folder / "home")}
    server = {"PYTHONPATH": os.pathsep.join([str(blind), *here]), "FEDLIB_DATA": str(empty)}
    with loopback.Loopback(folder, NODES, everywhere, server) as started:
        yield started


def deal(federation, spec):
    return shares.deal(spec, federation.folder, NODES)


def rounds_done(out):
    return len({row["round"] for row in rows(out / "messages.csv")}) - 1 if (out / "messages.csv").exists() else 0


@pytest.mark.parametrize(
    "name", ["FedGH", *(pytest.param(name, marks=pytest.mark.nightly) for name in SPECS if name != "FedGH")]
)
def test_three_rounds_are_the_simulations_bytes(federation, tmp_path, name):
    run = deal(federation, SPECS[name])
    federation.run(run.key, tmp_path / "out")
    assert tables(tmp_path / "out") == simulated_run(run)
    sent = rows(tmp_path / "out/messages.csv")
    assert len(sent) == 6 + 3 * 3 and len({row["node"] for row in sent}) == NODES
    assert all(float(row["seconds"]) > 0 and int(row["upload_bytes"]) > 4 * int(row["upload_words"]) for row in sent)


def test_the_server_could_not_read_an_image(federation):
    """Neither is there anything in its folder, nor can its process import what reads them."""
    run = deal(federation, SPECS["FedGH"])
    code = "from fedlib import data; data.load('digits')"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, env=federation.server_environment)
    assert ended.returncode and "/nowhere/images/" in ended.stderr
    share, _ = shares.read(federation.folder / "server", run.key)
    assert share["public"] is None and all(
        set(client) == {"id", "classes", "num_samples"} for client in share["clients"]
    )


def test_a_node_without_a_registered_key_is_refused(federation):
    loopback.write_node_key(federation.own, "node-9")
    (federation.folder / "node-9").mkdir()
    with pytest.raises(FedlibError, match=r"^the SuperLink did not take node-9: .*Failed to activate SuperNode"):
        federation.start_node(9)
    assert "node-9" not in federation.processes


def test_a_node_that_is_killed_in_a_round_and_started_again(federation, tmp_path):
    run = deal(federation, RunSpec("FedSSA", **COMMON | {"participation": 1.0}))
    log, out = federation.own / "node-1.log", tmp_path / "out"
    number = federation.start(run.key, out)
    wait_for(lambda: rounds_done(out) >= 1, "first round", 600)
    before = log.read_text().count("Receiving: train")
    wait_for(lambda: log.read_text().count("Receiving: train") > before, "further round", 600)
    federation.kill_node(1)
    assert rounds_done(out) < 3
    federation.start_node(1)
    federation.wait(number, out)
    assert tables(out) == simulated_run(run)


def test_a_server_that_is_killed_and_resumed(federation, tmp_path):
    run = deal(federation, RunSpec("pFedES", **COMMON))
    out = tmp_path / "out"
    federation.start(run.key, out)
    wait_for(lambda: rounds_done(out) >= 1, "first round", 600)
    federation.kill_server()
    assert not (out / "rounds.csv").exists()
    federation.start_server()
    federation.run(run.key, out)
    assert tables(out) == simulated_run(run)


def test_what_is_wrong_is_the_servers_line(federation, tmp_path):
    with pytest.raises(FedlibError, match=r"^run = 'Nobody': .*server has no share of it, or a damaged one$"):
        federation.run("Nobody", tmp_path / "out")


def test_a_node_that_never_answers(federation, tmp_path):
    """Its clients are left out of the round, which says so. The last test of this file: the node stays away."""
    run = deal(federation, RunSpec("FedGH", seed=1, **COMMON | {"participation": 1.0, "rounds": 2}))
    out = tmp_path / "out"
    number = federation.start(run.key, out, patience=60)
    wait_for(lambda: rounds_done(out) >= 1, "first round", 600)
    federation.kill_node(2)
    federation.wait(number, out)
    assert [row["absent"] for row in rows(out / "rounds.csv")] == ["", "", "2.0"]
    assert {row["client"] for row in rows(out / "messages.csv") if not row["seconds"]} == {"2", "5"}
