"""One store, several machines: two of them never compute one run, and each goes on with what is left."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from fedlib import RunSpec, lab, sweep
from fedlib.lab import records

SPECS = [RunSpec("Standalone", dataset="digits", num_clients=3, rounds=1, scenario="M1", seed=seed) for seed in (0, 1)]

# What another machine does that shares the store: it computes a run, as far as anybody can see.
HOLD = """
import sys, time
from fedlib.lab.records import lock_of
lock = lock_of(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


def another_host(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """A process with another host name, if the system allows it (`unshare`); otherwise one of this host."""
    command = [sys.executable, "-c", code, *arguments]
    unshared = ["unshare", "--uts", "sh", "-c", 'hostname another && exec "$@"', "sh", *command]
    try:
        allowed = subprocess.run([*unshared[:5], "sh", "true"], capture_output=True).returncode == 0
    except OSError:
        allowed = False
    return subprocess.Popen(unshared if allowed else command, stdout=subprocess.PIPE, text=True)


def wait_for_a_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def written(path):
    return {file.name: (file.stat().st_mtime_ns, file.stat().st_ino) for file in path.iterdir()}


@pytest.mark.thorough
def test_a_sweep_goes_on_with_other_runs_and_reads_what_another_machine_computed(home):
    """One run is held by another host: the other run is trained meanwhile, and the first when that host is dead."""
    first, second = (lab.resolve(spec) for spec in SPECS)
    lab.store().mkdir(parents=True)
    other = another_host(HOLD, first.key)
    try:
        assert wait_for_a_line(other) == "held" and records.computing(lab.store() / first.key)
        found: list[lab.Record] = []
        sweeping = threading.Thread(target=lambda: found.extend(sweep(SPECS, jobs=1, progress=False)))
        sweeping.start()
        began = time.monotonic()
        while lab.read(lab.store() / second.key) is None:  # trained though it stands second
            assert sweeping.is_alive() and time.monotonic() - began < 120
            time.sleep(0.1)
        assert sweeping.is_alive() and not (lab.store() / first.key).exists()
        other.send_signal(signal.SIGKILL)  # the host is dead: what it left is no lock
        sweeping.join(600)
    finally:
        other.kill()
        other.wait()
        assert other.stdout is not None
        other.stdout.close()
    assert [record.key for record in found] == [first.key, second.key]
    assert all(record.status == "finished" for record in found)


@pytest.mark.thorough
def test_two_machines_with_the_same_sweep_write_every_run_once(home, tmp_path):
    code = (
        "import json, sys; from fedlib import RunSpec, sweep\n"
        "sweep([RunSpec(**spec) for spec in json.loads(sys.argv[1])], jobs=1, progress=False)"
    )
    asked = json.dumps([vars(spec) for spec in SPECS])
    both = [another_host(code, asked), subprocess.Popen([sys.executable, "-c", code, asked], stdout=subprocess.PIPE)]
    seen: dict[str, dict[str, tuple[int, int]]] = {}
    while any(process.poll() is None for process in both):
        for spec in SPECS:
            path = lab.store() / lab.resolve(spec).key
            if (path / "DONE").exists():
                seen.setdefault(path.name, written(path))
        time.sleep(0.05)
    for process in both:
        assert process.returncode == 0
        assert process.stdout is not None
        process.stdout.close()
    assert set(seen) == {lab.resolve(spec).key for spec in SPECS}
    for name, files in seen.items():
        assert written(lab.store() / name) == files  # as it was when it was first whole
