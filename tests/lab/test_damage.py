"""What breaks in spite of a right command: records and checkpoints that cannot be used, disks, streams, folders. Nothing is
lost, and what can be is computed again.
"""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import processes
import pytest
from processes import rewrite

from fedlib import FedlibError, RunSpec, lab, numerics, run, simulation
from fedlib.__main__ import main
from fedlib.lab import checkpoint, files
from fedlib.lab.clientfiles import ClientFiles

SMALL = "run FedSSA --num-clients 5 --participation 0.2 --rounds 1"  # with `small_digits`, a fraction of a second
SPEC = RunSpec(algorithm="FedSSA", num_clients=5, participation=0.2, rounds=1)


def names(home: Path) -> list[str]:
    """What the store holds, but for lock files."""
    return sorted(p.name for p in home.rglob("*") if p.is_file() and p.suffix != ".lock")


def without(values: dict, name: str) -> dict:
    return {key: value for key, value in values.items() if key != name}


def replaced(name: str, old: bytes, new: bytes):
    return lambda run: (run / name).write_bytes((run / name).read_bytes().replace(old, new, 1))


def rewritten(name: str, change):
    return lambda run: rewrite(run, name, change)


def with_fields(**changed):
    return rewritten("spec.json", lambda stored: stored | {"spec": stored["spec"] | changed})


DAMAGE = {
    "a digit changed in rounds.csv": replaced("rounds.csv", b"1", b"2"),
    "clients.csv truncated": lambda run: os.truncate(run / "clients.csv", 20),
    "clients.csv missing": lambda run: (run / "clients.csv").unlink(),
    "DONE empty": lambda run: (run / "DONE").write_bytes(b""),
    "DONE of noise": lambda run: (run / "DONE").write_bytes(b"\xff\x00\xfe"),
    "DONE of an earlier version": lambda run: (run / "DONE").write_bytes(files.unseal((run / "DONE").read_bytes())),
    "another status": replaced("DONE", b"finished", b"finisjed"),
    "provenance.json missing": lambda run: (run / "provenance.json").unlink(),
    "DONE a list": rewritten("DONE", lambda done: [done]),
    "DONE with files of another kind": rewritten("DONE", lambda done: done | {"files": ["rounds.csv"]}),
    "spec.json of another specification": rewritten(
        "spec.json", lambda stored: stored | {"hashed": stored["hashed"] | {"seed": 9}}
    ),
}
# Whole, as their digests say, but not what this version writes.
OF_ANOTHER_VERSION = {
    "DONE without a status": rewritten("DONE", lambda done: without(done, "status")),
    "DONE of another status": rewritten("DONE", lambda done: done | {"status": "good"}),
    "DONE without a table": rewritten("DONE", lambda done: done | {"files": without(done["files"], "timing.csv")}),
    "spec.json without what was hashed": rewritten("spec.json", lambda stored: without(stored, "hashed")),
    "spec.json with an unknown field": with_fields(x=1),
    "spec.json without a field": rewritten(
        "spec.json", lambda stored: stored | {"spec": without(stored["spec"], "num_clients")}
    ),
    "spec.json with an empty field": with_fields(num_clients=None),
    "a seed that is a list": with_fields(seed=[0]),
    "spec.json a list": rewritten("spec.json", lambda stored: []),
    "spec.json deeply nested": rewritten("spec.json", lambda stored: b"[" * 100_000),
    "provenance.json without seconds": rewritten("provenance.json", lambda stored: without(stored, "seconds")),
}


@pytest.mark.thorough
@pytest.mark.parametrize("damage", DAMAGE | OF_ANOTHER_VERSION)
def test_a_record_that_cannot_be_read_is_reported_set_aside_and_recomputed(damage, small_digits, home, capsys):
    record = run(SPEC, progress=False)
    expected = processes.bits(record.path)
    (DAMAGE | OF_ANOTHER_VERSION)[damage](record.path)
    whole = damage in OF_ANOTHER_VERSION or damage == "spec.json of another specification"
    assert lab.whole(record.path) == whole  # so that nothing else deletes it
    left = {path.name: path.read_bytes() for path in record.path.iterdir()}
    again = run(SPEC, progress=False)
    assert processes.bits(again.path) == expected
    error = capsys.readouterr().err
    said = "whole, but not of this version" if damage in OF_ANOTHER_VERSION else "its record is"
    assert f"run {record.key}: {said}" in error and "set aside" in error
    aside = home / "runs" / f"{record.key}.{'stale' if damage in OF_ANOTHER_VERSION else 'damaged'}-1"
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == left  # nothing lost


class Trap:
    """Unpickling it would create a folder."""

    def __reduce__(self):
        return os.mkdir, ("trap",)


def checkpointed(path, label: str) -> bytes:
    """A whole checkpoint with this label, as bytes."""
    federation = lab.federation_of(lab.resolve(SPEC))
    checkpoint.save(path, label, simulation.Outcome(federation, {}), ClientFiles(path, federation))
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda path: b"", "corrupted"),
        (lambda path: checkpointed(path, "x")[:-100], "corrupted"),
        (lambda path: pickle.dumps(Trap()), "corrupted"),
        (lambda path: b"".join(files.seal(pickle.dumps(Trap()))), "corrupted"),
        (lambda path: files.unseal(checkpointed(path, "x")), "corrupted"),
        (lambda path: checkpointed(path, "of another run"), "foreign"),
    ],
    ids=["empty", "truncated", "pickle", "sealed pickle", "without its digest", "foreign"],
)
def test_a_checkpoint_that_cannot_be_used_is_reported_set_aside_and_recomputed(
    content, reason, small_digits, home, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    expected = processes.bits((undisturbed := run(SPEC, progress=False)).path)
    undisturbed.path.rename(tmp_path / "undisturbed")
    capsys.readouterr()
    undisturbed.path.mkdir()
    written = content(undisturbed.path / "checkpoint.pt")
    (undisturbed.path / "checkpoint.pt").write_bytes(written)
    record = run(SPEC, progress=False)
    assert processes.bits(record.path) == expected
    assert capsys.readouterr().err == f"checkpoint.pt: {reason}, set aside as checkpoint.pt.{reason}-1\n"
    assert (record.path / f"checkpoint.pt.{reason}-1").read_bytes() == written
    assert not (tmp_path / "trap").exists()


def test_a_record_whose_numbers_have_changed_is_set_aside_and_trained_again(small_digits, home, monkeypatch, capsys):
    record = run(SPEC, progress=False)
    assert record.provenance["numerics"]["method FedSSA"] == 1
    monkeypatch.setitem(numerics.VERSIONS, "method FedSSA", 2)
    assert run(SPEC, progress=False, reuse_stale=True).stale and lab.read(record.path).moved == ["method FedSSA"]
    again = run(SPEC, progress=False)
    assert not again.stale and again.provenance["numerics"]["method FedSSA"] == 2
    assert "the numbers of method FedSSA have changed since" in capsys.readouterr().err
    aside = home / "runs" / f"{record.key}.stale-1"
    assert main(["runs", "prune", "--yes"]) == 0 and lab.read(aside).digest == record.digest  # kept
    monkeypatch.delitem(numerics.VERSIONS, "method FedSSA")
    assert lab.read(again.path).stale  # an older fedlib does not take it for its own either


def test_a_record_from_before_numbers_had_versions_is_of_the_first_ones(small_digits, monkeypatch):
    record = run(SPEC, progress=False)
    rewrite(record.path, "provenance.json", lambda provenance: without(provenance, "numerics") | {"code": "0" * 16})
    assert not lab.read(record.path).stale
    monkeypatch.setitem(numerics.VERSIONS, "network CNN-1", 2)
    assert lab.read(record.path).stale


# ------------------------------------------------------------------------------------ processes, disks, numbers


@pytest.mark.thorough
def test_two_processes_asked_for_one_run(home):
    """One computes; the other waits, reads, and computes nothing."""
    spec = RunSpec(algorithm="FedSSA", num_clients=50, participation=0.02, rounds=1)
    slow = """
import time
whole = checkpoint.simulate
def waiting(*args, **kwargs):
    (lab.home() / "computing").touch()
    while not (lab.home() / "go").exists():
        time.sleep(0.01)
    return whole(*args, **kwargs)
checkpoint.simulate = waiting
print(run(specs[0], progress=False).digest)
"""
    other = """
import time
while not (lab.home() / "computing").exists():
    time.sleep(0.01)
def never(*args, **kwargs):
    raise AssertionError("computed twice")
checkpoint.simulate = never
print(run(specs[0], progress=False).digest)
"""
    with (
        processes.started(*processes.code(slow, [spec]), home=home) as first,
        processes.started(*processes.code(other, [spec]), home=home) as second,
    ):
        processes.wait_for_text(second, "another process computes this run; waiting for it\n")
        (home / "go").touch()
        outputs = [process.communicate(timeout=processes.SECONDS)[0] for process in (first, second)]
    assert first.returncode == second.returncode == 0, outputs
    assert outputs[0] == outputs[1] and len(outputs[0].strip()) == 64


def test_a_store_that_cannot_be_written(home, small_digits, capsys):
    home.mkdir()
    (home / "runs").write_text("a file where the folder should be")
    status, error = main(SMALL.split()), capsys.readouterr().err
    assert status == 2 and error.count("\n") == 1
    assert f"store = {str(home / 'runs')!r}: cannot write there" in error


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("keep", ["none", "clients"])
def test_a_full_disk(call, keep, home, small_digits, monkeypatch, capsys):
    """Whatever file it strikes first: one line, no half-written file, and a later attempt succeeds."""
    text = [*SMALL.split(), "--keep", keep]
    for allowed in range(20):
        with monkeypatch.context() as patch:
            left, real = [allowed], getattr(os, call)

            def full(*args, left=left, real=real):
                if not left[0]:
                    raise OSError(errno.ENOSPC, "No space left on device")
                left[0] -= 1
                return real(*args)

            patch.setattr(os, call, full)
            status, error = main(text), capsys.readouterr().err
        if status == 0:
            break
        assert status == 2 and "No space left on device" in error and "cannot write there" in error
        assert len([line for line in error.splitlines() if line.startswith("fedlib: ")]) == 1
        assert "Traceback" not in error
        assert not [name for name in names(home) if name.endswith(".tmp")]
        assert "DONE" not in names(home)
    # spec twice, sessions, three tables, provenance, DONE, what is kept
    assert allowed == (9 if keep == "clients" else 8)
    assert "DONE" in names(home)


def test_reading_a_finished_run_needs_no_writable_store(small_digits, monkeypatch):
    expected = run(SPEC, progress=False)

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(files, "write_bytes", refuse)
    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    assert run(SPEC, progress=False).digest == expected.digest


@pytest.mark.parametrize("method", ["FedSSA", "FedProto", "FedGH"])
def test_a_run_whose_loss_is_not_finite_ends_as_diverged(method, small_digits, home, capsys):
    text = f"run {method} --num-clients 5 --rounds 6 --lr 1e20"
    assert main(text.split()) == 0
    output = capsys.readouterr()
    assert "diverged after 1 of 6 rounds" in output.out or "diverged after 2 of 6 rounds" in output.out
    assert "accuracy: – (a round left numbers that are not finite)" in output.out and output.err.count("Traceback") == 0
    (path,) = lab.stored()
    record = lab.read(path)
    assert record.status == "diverged" and len(record.rounds) < 7
    assert not record.rounds["loss"].iloc[-1] < float("inf")
    assert "checkpoint.pt" not in names(home)
    assert main(text.split()) == 0  # a finished run like any other: read
    assert lab.read(path).provenance == record.provenance


@pytest.mark.parametrize("where", ["elsewhere", "relative"])
def test_a_directory_that_is_gone_is_a_line(where, tmp_path):
    (tmp_path / "gone").mkdir()
    line = f"cd {tmp_path}/gone && rmdir ../gone && exec {sys.executable} -m fedlib runs"
    environment = os.environ | {"FEDLIB_HOME": str(tmp_path / "home") if where == "elsewhere" else "home"}
    environment |= {"PYTHONPATH": str(Path(lab.__file__).parents[2])}
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].startswith("fedlib: the current directory is gone")
    assert "Traceback" not in ended.stderr and not (tmp_path / "home").exists()


def test_a_relative_home_means_the_same_to_a_process_started_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLIB_HOME", "store")
    assert lab.home() == tmp_path / "store"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    say = "import os; print(os.environ['FEDLIB_HOME'])"
    found = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True)
    assert lab.home() == tmp_path / "store" == Path(found.stdout.strip())


def test_a_relative_home_in_a_directory_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("FEDLIB_HOME", "relative")
    with pytest.raises(
        FedlibError, match=r"^FEDLIB_HOME = 'relative': must be absolute, as the current directory is gone$"
    ):
        lab.home()
