"""The plan of an exhibit, launched by others' engines: Snakemake here and on a Slurm of one node, and submitit.

Skipped where Snakemake and submitit or Slurm (tests/slurm.sh install) are not installed.
"""

import csv
import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("snakemake_executor_plugin_slurm", reason="not installed: the extra workflow")
pytest.importorskip("submitit", reason="not installed: the extra workflow")

import psutil
import torch
from processes import bits

from fedlib import RunSpec, __version__, lab
from fedlib.lab import files
from fedlib.papers import reproduce

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
needs_slurm = pytest.mark.skipif(
    not all(shutil.which(name, path=PATH) for name in ("munged", "slurmctld", "slurmd", "sbatch")),
    reason="Slurm is not installed: tests/slurm.sh install",
)
CONF = Path("/etc/slurm/slurm.conf")
ROOT = Path(__file__).parents[1]
EXHIBIT = "fedssa/fig6"  # two runs, one notebook
LONG = RunSpec("FedSSA", dataset="digits", num_clients=10, participation=0.1, rounds=100)  # seconds, and many rounds
SECONDS = 900  # on a busy machine
ON_SLURM = (
    "--executor", "slurm", "--jobs", "4", "--slurm-no-account", "--slurm-status-command", "squeue",
    "--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "20",
)  # fmt: skip


def environment(home):
    """This checkout's fedlib, with its own store, in every process."""
    here = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"FEDLIB_HOME": str(home), "PYTHONPATH": here}


def start(*arguments, home, folder):
    """Started in `folder`, its words in folder/log."""
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            list(map(str, arguments)), env=environment(home), cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )


def ends(process, folder):
    try:
        assert process.wait(SECONDS) == 0, (folder / "log").read_text()
    finally:
        process.kill()


def snakemake(*arguments, home, folder):
    return start(
        sys.executable, "-m", "snakemake", "-s", ROOT / "workflow/Snakefile", *arguments, home=home, folder=folder
    )


def fedlib(*arguments, home):
    command = [sys.executable, "-m", "fedlib", *arguments]
    return subprocess.run(command, env=environment(home), check=True, capture_output=True, text=True).stdout


def said(folder):
    """Without the line breaks that a terminal's width makes."""
    return " ".join((folder / "log").read_text().split())


def until(condition, what):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < SECONDS, f"waited in vain: {what}"
        time.sleep(0.1)


def write_plan(folder, home, *specs):
    """plan.json in `folder`: of the exhibit, or of these specifications. Returns the folders of its runs in `home`."""
    folder.mkdir()
    resolved = [lab.resolve(spec) for spec in specs]
    runs = [{"key": run.key, "spec": dataclasses.asdict(run.spec), "stored": False, "images": 1} for run in resolved]
    plan = {"schema": reproduce.SCHEMA, "version": __version__, "scale": "smoke", "home": str(home)}
    plan |= {"runs": runs, "exhibits": [], "of_record": []}
    text = json.dumps(plan) if specs else fedlib("reproduce", EXHIBIT, "--scale", "smoke", "--plan", "json", home=home)
    (folder / "plan.json").write_text(text)
    return [home / "runs" / run["key"] for run in json.loads(text)["runs"]]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """What `reproduce` leaves of the exhibit: its bits by key."""
    home = tmp_path_factory.mktemp("reproduced")
    fedlib("reproduce", EXHIBIT, "--scale", "smoke", "--train-only", home=home)
    return {done.parent.name: bits(done.parent) for done in home.glob("runs/*/DONE")}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm of one node for all tests of this file."""
    if os.geteuid() or (CONF.exists() and not CONF.is_symlink()):
        pytest.skip(f"tests/slurm.sh links {CONF}: as root, on a machine without a Slurm of its own")
    folder = tmp_path_factory.mktemp("slurm")
    script = [str(ROOT / "tests/slurm.sh")]
    subprocess.run([*script, "start", str(folder)], check=True, timeout=120, stdin=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        try:
            yield folder
        finally:
            subprocess.run([*script, "stop", str(folder)], timeout=120)


def is_as_reproduced(runs, reproduced):
    assert {run.name: bits(run) for run in runs} == reproduced


def test_a_plans_text_reaches_no_shell_as_a_command(home, tmp_path):
    home = tmp_path / "it's; touch executed; '"
    (run,) = write_plan(tmp_path / "here", home, RunSpec("Standalone", num_clients=3, rounds=1, scenario="M1"))
    ends(snakemake("runs", "--cores", "1", home=home, folder=tmp_path / "here"), tmp_path / "here")
    assert (run / "DONE").exists()
    plan = tmp_path / "here/plan.json"
    plan.write_text(plan.read_text().replace('"smoke"', '"smoke; touch executed"'))
    assert snakemake("-n", home=home, folder=tmp_path / "here").wait(SECONDS) != 0
    assert "On instance['scale']" in (tmp_path / "here/log").read_text()
    assert not list(tmp_path.rglob("executed"))


def test_snakemake_trains_and_draws_here(home, tmp_path, reproduced):
    runs = write_plan(tmp_path / "here", home)
    ends(snakemake("--cores", "2", home=home, folder=tmp_path / "here"), tmp_path / "here")
    is_as_reproduced(runs, reproduced)
    assert (home / f"figures/smoke/{EXHIBIT}.csv").exists()
    checked = fedlib("reproduce", EXHIBIT, "--scale", "smoke", "--check", home=home)
    assert checked.startswith("1 of 1 exhibits are fresh")


@pytest.mark.parametrize("other", [{"version": "0.1.0"}, {"schema": 2}, {"schema": None, "version": None}])
def test_a_plan_of_another_version_is_refused(other, home, tmp_path):
    """By both engines in one line, before anything is started; a plan of before there was a version, too."""
    folder = tmp_path / "old"
    write_plan(folder, home, LONG)
    plan = json.loads((folder / "plan.json").read_text()) | other
    (folder / "plan.json").write_text(json.dumps({name: value for name, value in plan.items() if value is not None}))
    is_of = {"schema": reproduce.SCHEMA, "version": __version__} | other
    line = f"plan.json is of schema {is_of['schema']}, fedlib {is_of['version']}, this is schema {reproduce.SCHEMA}"
    submit = start(sys.executable, ROOT / "workflow/submit.py", "plan.json", "logs", home=home, folder=folder)
    assert submit.wait(SECONDS) == 1 and f"{line}, fedlib {__version__}: make the plan again" in said(folder)
    (folder / "log").unlink()
    assert snakemake("runs", "--cores", "1", home=home, folder=folder).wait(SECONDS) == 1
    assert f"{line}, fedlib {__version__}: make the plan again" in said(folder)
    assert not (home / "runs").exists()


@needs_slurm
def test_the_lines_of_the_page_run_as_printed(slurm, home, tmp_path, reproduced):
    """From a folder that `fedlib workflow copy` has filled, but for the exhibit, which is a small one."""
    page = (ROOT / "docs/pages/machines.md").read_text()
    _, copied, planned, here, on_slurm, _ = re.findall(
        r"^((?:pip|fedlib|snakemake|python) .*?)(?:  +#.*)?$", page.partition("## A cluster")[2], re.M
    )[:6]
    assert copied == "fedlib workflow copy workflow" and here.endswith("--cores 2") and "--executor slurm" in on_slurm
    folder = tmp_path / "as printed"
    folder.mkdir()
    planned = planned.replace("fedssa --scale demo", f"{EXHIBIT} --scale smoke")
    assert EXHIBIT in planned
    command = f'fedlib() {{ {shlex.quote(sys.executable)} -m fedlib "$@"; }}; {copied} && {planned} && {on_slurm}'
    bins = os.pathsep.join([str(Path(sys.executable).parent), PATH])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", bins)
        ends(start("bash", "-c", command, home=home, folder=folder), folder)
    is_as_reproduced([home / "runs" / key for key in reproduced], reproduced)
    assert (home / f"figures/smoke/{EXHIBIT}.csv").exists()


# ------------------------------------------------------------------------------------------- killed, and put back


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    home = tmp_path_factory.mktemp("uninterrupted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(home))
        return bits(home / "runs" / lab.run(LONG, progress=False).key)


def processes_of(home):
    """Those that train in `home`, each a `fedlib run`, the oldest first."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:5] == ["-m", "fedlib", "run", "--spec"]:
            try:
                if process.environ().get("FEDLIB_HOME") == str(home):
                    yield process
            except psutil.Error:
                continue


def process_of(home):
    """The one process that trains in `home`, or None."""
    return next(processes_of(home), None)


def rounds_told(folder):
    """How many lines of progress the job's logs in `folder` have."""
    logs = [log for log in folder.rglob("*") if log.suffix in (".log", ".out", ".err")]
    return sum(log.read_bytes().count(b" %, round ") for log in logs)


def saved_rows(home, key):
    """Seconds of each round that the checkpoint of a stopped run has."""
    path = home / "runs" / key / "checkpoint.pt"
    until(path.exists, "a checkpoint")
    state = torch.load(io.BytesIO(files.unseal(path.read_bytes())), weights_only=True)
    return [row["seconds"] for row in state["rows"]["timing"]]


def went_on(home, key, saved):
    """The rounds of the checkpoint were not computed again: they took what they took then."""
    with open(home / "runs" / key / "timing.csv", newline="") as file:
        seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    return 0 < len(saved) < len(seconds) and seconds[: len(saved)] == saved


def slurm_says(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def the_job():
    (job,) = slurm_says("squeue", "-h", "-o", "%i").split()
    return job


@needs_slurm
def test_a_job_that_is_requeued_and_then_killed_goes_on(slurm, home, tmp_path, uninterrupted):
    folder = tmp_path / "killed"
    (run,) = write_plan(folder, home, LONG)
    launched = snakemake("runs", *ON_SLURM, "--retries", "2", home=home, folder=folder)
    try:
        until(lambda: rounds_told(folder), "the first rounds")
        first = process_of(home)
        slurm_says("scontrol", "requeue", the_job())
        saved = saved_rows(home, run.name)
        told = rounds_told(folder)
        until(lambda: process_of(home) not in (None, first) and rounds_told(folder) > told, "more rounds")
        process_of(home).send_signal(signal.SIGKILL)
        ends(launched, folder)
    finally:
        launched.kill()
    assert bits(run) == uninterrupted and went_on(home, run.name, saved)


@needs_slurm
def test_a_job_of_submitit_whose_time_is_up_goes_on(slurm, home, tmp_path, uninterrupted):
    folder = tmp_path / "late"
    (run,) = write_plan(folder, home, LONG)
    launched = start(sys.executable, ROOT / "workflow/submit.py", "plan.json", "logs", home=home, folder=folder)
    try:
        until(lambda: rounds_told(folder), "the first rounds")
        slurm_says("scancel", "--signal=USR2", the_job())  # what Slurm does before it ends a job
        saved = saved_rows(home, run.name)
        ends(launched, folder)
    finally:
        launched.kill()
    assert bits(run) == uninterrupted and went_on(home, run.name, saved)


def just_begun(home, but=None):
    """A process that trains in `home`, other than `but`, so young that it has stored nothing."""
    while True:
        for process in processes_of(home):
            if process.pid != but and time.time() - process.create_time() < 1:
                return process
        time.sleep(0.1)


@needs_slurm
def test_an_array_of_200_runs_survives_two_kills_and_a_restart_of_slurmd(slurm, home, tmp_path):
    """One job is cancelled, one is killed outright, and slurmd starts again beneath the others: every run is stored."""
    folder = tmp_path / "many"
    tiny = RunSpec("Standalone", dataset="digits", num_clients=2, participation=1.0, rounds=1)
    runs = write_plan(folder, home, *(dataclasses.replace(tiny, seed=seed) for seed in range(200)))

    def stored():
        return sum((run / "DONE").exists() for run in runs)

    launched = start(sys.executable, ROOT / "workflow/submit.py", "plan.json", "logs", home=home, folder=folder)
    try:
        until(lambda: stored() >= 10, "ten runs")
        killed = just_begun(home)
        killed.send_signal(signal.SIGKILL)
        cancelled = just_begun(home, killed.pid).environ()
        slurm_says("scancel", f"{cancelled['SLURM_ARRAY_JOB_ID']}_{cancelled['SLURM_ARRAY_TASK_ID']}")
        slurmd = int((slurm / "slurmd.pid").read_text())
        os.kill(slurmd, signal.SIGTERM)
        until(lambda: not psutil.pid_exists(slurmd), "the end of slurmd")
        subprocess.run(["slurmd"], check=True, env=os.environ | {"PATH": PATH})
        assert launched.wait(4 * SECONDS) == 0, said(folder)
    finally:
        launched.kill()
    lines = re.findall(r"array \d+: (\d+) of 200 runs", said(folder))
    assert lines == ["200", "2"]  # the second array has what was killed
    assert stored() == 200 and said(folder).endswith("200 of 200 runs are stored")
