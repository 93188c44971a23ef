"""A wheel, built and installed into an empty environment outside any checkout, does what a checkout does. No network is used."""

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow
OFFLINE = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")  # where nobody answers


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--no-index"]
    ended = subprocess.run([*command, "--wheel-dir", str(folder)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (built,) = folder.glob("mhpfl-*.whl")
    return built


def test_the_wheel_holds_what_git_tracks_of_notebooks_results_figures_and_workflow(wheel):
    command = ["git", "ls-files", "-z", "fedlib", "notebooks", "results", "figures", "workflow"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    there = [name for name in tracked if name and (ROOT / name).exists()]
    wanted = {name if name.startswith("fedlib/") else f"fedlib/_share/{name}" for name in there}
    held = set(zipfile.ZipFile(wheel).namelist())
    assert len(wanted) > 100 and wanted <= held
    others = {name for name in held - wanted if ".dist-info/" not in name}
    ignored = [name for name in others if re.search(r"smoke/|checkpoints|__pycache__|runs/|executed/", name)]
    assert not ignored


def test_its_metadata_is_complete(wheel):
    held = zipfile.ZipFile(wheel)
    (name,) = (name for name in held.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(held.read(name))
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["Author"] and metadata["Keywords"]
    assert metadata["Name"] == "mhpfl" and metadata.get_payload().startswith("# fedlib")
    assert len(metadata.get_all("Classifier")) > 5


@pytest.fixture(scope="module")
def fedlib(wheel, tmp_path_factory):
    """Calls the installed command, from a folder elsewhere, in an environment that has the libraries and no checkout."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    own = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    libraries = {sysconfig.get_path("purelib"), *(path for path in sys.path if Path(path).name == "site-packages")}
    (own / "libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")  # their own .pth files are not read
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    plain = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FEDLIB_HOME", "VIRTUAL_ENV")
    }

    def call(*arguments: str) -> str:
        ended = subprocess.run(
            [folder / "env/bin/fedlib", *arguments],
            cwd=folder,
            env=plain | {"HOME": str(folder / "home"), "FEDLIB_DATA": str(folder / "data")} | OFFLINE,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    call.folder, call.package = folder, own / "fedlib"
    return call


def test_methods_are_listed_and_notebooks_copied(fedlib):
    assert "FedSSA" in fedlib("list")
    assert "copied" in fedlib("notebooks", "copy", "mine")
    copied = {str(path.relative_to(fedlib.folder / "mine")) for path in (fedlib.folder / "mine").rglob("*.ipynb")}
    assert copied == {str(path.relative_to(ROOT / "notebooks")) for path in (ROOT / "notebooks").rglob("*.ipynb")}


def test_the_workflow_is_copied(fedlib):
    assert "copied" in fedlib("workflow", "copy", "cluster")
    copied = {path.name: path.read_bytes() for path in (fedlib.folder / "cluster").iterdir()}
    assert copied == {path.name: path.read_bytes() for path in (ROOT / "workflow").iterdir() if path.is_file()}
    assert all(name in fedlib("workflow") for name in copied)
    assert json.loads(fedlib("reproduce", "fedssa/fig6", "--plan", "json"))["schema"] == 1


def test_a_run_is_stored_in_the_users_cache(fedlib):
    assert "finished after 1 of 1 rounds" in fedlib("run", "Standalone", "--rounds", "1", "--num-clients", "4")
    assert len(list((fedlib.folder / "home/.cache/fedlib/runs").glob("Standalone-*"))) == 1


def test_an_exhibit_is_made_from_the_notebook_inside(fedlib):
    assert re.search(r"fedssa/table3 .* ok", fedlib("reproduce", "fedssa/table3"))
    home = fedlib.folder / "home/.cache/fedlib"
    assert (home / "figures/smoke/fedssa/table3.png").is_file()
    executed = json.loads((home / "executed/smoke/fedssa/1_method.ipynb").read_text())
    assert any(cell.get("outputs") for cell in executed["cells"])
    assert "FedSSA" in fedlib("exhibits", "show", "fedssa/table2", "--scale", "demo")


def test_an_exhibit_is_made_of_the_results_of_record_inside(fedlib):
    """Without data, network or training."""
    said = fedlib("reproduce", "fedssa/table2", "--scale", "record", "--figures-only")
    assert "runs are missing, and are left out" in said and re.search(r"fedssa/table2 .* ok, \d+ of", said), said
    home = fedlib.folder / "home/.cache/fedlib"
    assert (home / "figures/record/fedssa/table2-of-record.png").is_file()
    assert not list((home / "runs").glob("*-cifar*"))


def test_the_lock_holds_every_pin_with_its_hashes_and_no_address():
    pins = [line.split()[0] for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line]
    lock = (ROOT / "requirements.lock").read_text()
    locked = {line.split()[0].lower() for line in lock.splitlines() if "==" in line and not line.startswith(" ")}
    names = {pin.lower() for pin in pins if pin[0] != "#"}
    assert len(names) > 20 and names <= locked, f"run `make lock`: {sorted(names - locked)}"
    assert lock.count("--hash=sha256:") > len(locked) and "://" not in lock
