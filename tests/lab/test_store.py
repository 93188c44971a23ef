"""The store loses nothing and believes nothing that changed: flipped bits, deleted folders, interrupted writing, pruning."""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import processes
import pytest
import torch
from processes import interrupted

from fedlib import FedlibError, RunSpec, lab, run, simulation
from fedlib.__main__ import main
from fedlib.lab import checkpoint, clientfiles, files, launch, records
from fedlib.lab.clientfiles import ClientFiles

SPEC = RunSpec(
    algorithm="FedSSA", scenario="M1,M2", num_clients=5, participation=0.4, rounds=3, batch_size=16, keep="clients"
)
FLIPS = 100  # of a finished run, and as many of an unfinished one


pytestmark = pytest.mark.usefixtures("small_digits")


def flips(folder) -> list[tuple[str, int]]:
    """FLIPS (file, bit), spread over all files of a run and over each of them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    each = -(-FLIPS // len(files))
    return [
        (str(path.relative_to(folder)), int(bit))
        for path in files
        for bit in np.linspace(0, 8 * path.stat().st_size - 1, each, dtype=np.int64)
    ]


def flip(path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_every_flipped_bit_of_a_finished_run_is_noticed(tmp_path, home, capsys):
    record = run(SPEC, progress=False)
    whole, resolved = tmp_path / "whole", lab.resolve(SPEC)
    shutil.copytree(record.path, whole)
    names = {name for name, _ in flips(whole)}
    assert names == {
        *("DONE", "spec.json", "provenance.json", "rounds.csv", "clients.csv", "timing.csv", "final-clients.pt")
    }
    assert len(flips(whole)) >= FLIPS
    for name, bit in flips(whole):
        flip(record.path / name, bit)
        with pytest.raises(FedlibError, match=f"run {record.key}: its record is damaged"):
            lab.load_weights(lab.read(record.path), "clients")
        assert records.usable(resolved, reuse_stale=True) is None, (name, bit)
        shutil.copy(whole / name, record.path / name)
    assert records.usable(resolved, reuse_stale=False) is not None
    flip(record.path / "final-clients.pt", 12345)
    again = run(SPEC, progress=False)
    assert again.digest == record.digest and lab.load_weights(again, "clients")
    assert "final-clients.pt is not what was written" in capsys.readouterr().err
    assert (home / "runs" / f"{record.key}.damaged-1" / "DONE").exists()


@pytest.mark.thorough
def test_no_flipped_bit_of_an_unfinished_run_changes_its_result(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(tmp_path / "undisturbed"))
        expected = processes.bits(run(SPEC, progress=False).path)
    interrupted(SPEC)
    (path,) = (path for path in lab.stored())
    whole = tmp_path / "whole"
    shutil.copytree(path, whole)
    positions = flips(whole)
    clients = {name for name, _ in positions if name.startswith("checkpoint.pt.clients/client-")}
    plain = {"spec.json", records.SESSIONS}
    assert {name for name, _ in positions} == {"checkpoint.pt", *plain, *clients} and len(clients) == 2
    assert len(positions) >= FLIPS
    capsys.readouterr()
    resolved = lab.resolve(SPEC)
    built, label = lab.federation_of(resolved), resolved.session

    def loaded() -> simulation.Outcome | None:
        return checkpoint.load(path / "checkpoint.pt", label, built, ClientFiles(path / "checkpoint.pt", built))

    assert loaded() is not None
    for place, (name, bit) in enumerate(positions):
        shutil.rmtree(path)
        shutil.copytree(whole, path)
        flip(path / name, bit)
        if name not in plain:
            assert loaded() is None, (name, bit)
            assert "checkpoint.pt: corrupted, set aside" in capsys.readouterr().err
            (path / "checkpoint.pt.corrupted-1").rename(path / "checkpoint.pt")
            (path / "checkpoint.pt.corrupted-1.clients").rename(path / "checkpoint.pt.clients")
        if place % 5 == 0:
            assert processes.bits(run(SPEC, progress=False).path) == expected, (name, bit)
            said = "checkpoint.pt: corrupted, set aside" in capsys.readouterr().err
            assert said == (name not in plain)  # those are written anew, and decide no number


def test_seconds_count_every_session(monkeypatch):
    clock, ticks = [0.0], 1000.0

    def tick() -> float:
        clock[0] += ticks
        return clock[0]

    monkeypatch.setattr(simulation.time, "perf_counter", tick)
    interrupted(SPEC, after=1)
    record = run(SPEC, progress=False)
    assert len(record.timing) == 3
    assert record.provenance["seconds"] >= record.timing["seconds"].sum() > record.timing["seconds"].iloc[-1] * 2


@pytest.mark.thorough(None)
def test_servers_weights_are_in_the_clients_file(monkeypatch):
    record = run(SPEC, progress=False)
    compute = launch._compute
    monkeypatch.setattr(launch, "_compute", None)  # nothing is computed
    server = RunSpec(**vars(SPEC) | {"keep": "server"})
    assert run(server, progress=False).digest == record.digest
    assert lab.load_weights(record, "server")["server"].keys() == lab.load_weights(record, "clients")["server"].keys()

    monkeypatch.setattr(launch, "_compute", compute)
    other = RunSpec(**vars(server) | {"seed": 1})
    path = run(other, progress=False).path
    assert (path / "final-server.pt").exists()
    more = run(RunSpec(**vars(other) | {"keep": "clients"}), progress=False)  # in the same folder
    assert more.path == path and not (path / "final-server.pt").exists() and "final-clients.pt" in more.files


@pytest.mark.thorough(None)
def test_a_better_record_replaces_the_old_one_only_when_it_is_whole(monkeypatch):
    """Interrupted, or on a full disk, while it is trained again with its weights: the old one stays."""
    plain = RunSpec(**vars(SPEC) | {"keep": "none"})
    record = run(plain, progress=False)
    interrupted(SPEC)
    assert lab.read(record.path).provenance == record.provenance

    def full(*args) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FedlibError, match="No space left on device"):
            run(SPEC, progress=False)
    assert lab.read(record.path).provenance == record.provenance
    assert lab.load_weights(run(SPEC, progress=False), "clients")


def test_a_start_that_fails_leaves_nothing(monkeypatch, home):
    """Neither before its first round nor, with client files, before its first checkpoint."""

    def fail(spec: Any, row: dict[str, Any]) -> None:
        assert list((home / "runs").glob("*/checkpoint.pt.clients/client-*.pt"))
        raise KeyboardInterrupt

    monkeypatch.setattr(clientfiles, "MEMORY", 0)
    with pytest.raises(KeyboardInterrupt):
        run(SPEC, progress=False, log=fail)
    assert not [path for path in (home / "runs").iterdir() if path.is_dir()]
    monkeypatch.setattr(checkpoint, "simulate", Mock(side_effect=ArithmeticError("a mistake in somebody's method")))
    with pytest.raises(ArithmeticError):
        run(SPEC, progress=False)
    assert not list((home / "runs").iterdir())


# --------------------------------------------------------------------------------------------------------------- prune


def test_prune_keeps_what_is_being_computed(monkeypatch, capsys):
    """It looks at the run's lock, which the computing process (here another thread's run) holds."""
    reached, go, output = threading.Event(), threading.Event(), []

    def wait(spec: Any, row: dict[str, Any]) -> None:
        reached.set()
        go.wait(processes.SECONDS)

    other = threading.Thread(target=lambda: output.append(run(SPEC, progress=False, log=wait)))
    other.start()
    try:
        assert reached.wait(processes.SECONDS)
        (path,) = lab.stored()
        for arguments in (["runs", "prune", "FedSSA"], ["runs", "prune", "FedSSA", "--yes"]):
            assert main(arguments) == 0
            assert capsys.readouterr().out.startswith(f"kept {path.name} (another process computes it)\n")
        with pytest.raises(FedlibError, match="not deleted, another process computes it"):
            lab.delete(path)
    finally:
        go.set()
        other.join()
    assert output[0].status == "finished" and path.exists()
    with pytest.raises(FedlibError, match="not deleted, it is whole"):
        lab.delete(path)


def test_prune(home, monkeypatch, capsys, tmp_path):
    """What is damaged goes, what is unfinished by name or age alone, and nothing that is whole."""
    finished = run(SPEC, progress=False)
    unfinished = RunSpec(**vars(SPEC) | {"seed": 1})
    interrupted(unfinished)
    key = lab.resolve(unfinished).key
    shutil.copytree(finished.path, home / "runs" / f"{finished.key}.stale-1")
    shutil.copytree(finished.path, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "rounds.csv").write_text("round\n")
    linked = home / "runs" / f"{finished.key}.damaged-1"
    linked.symlink_to(tmp_path / "elsewhere")
    capsys.readouterr()

    def refuse(*args, **named):
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        patch.setattr("pathlib.Path.unlink", refuse)
        assert main(["runs", "prune", "FedSSA", "--yes"]) == 2
        said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.err.startswith("fedlib: ")
    assert said.err.count("cannot be deleted (Read-only file system)") == 2

    assert main(["runs", "prune"]) == 0
    assert capsys.readouterr().out == f"would delete {linked.name} (damaged)\nnothing was deleted; add --yes\n"
    assert main(["runs", "prune", "--yes"]) == 0
    assert capsys.readouterr().out == f"deleted {linked.name} (damaged)\n" and not linked.is_symlink()
    assert (tmp_path / "elsewhere" / "DONE").exists()  # only the link goes
    for arguments in (["--older-than", "1"], [key[:-1] + "x"]):
        main(["runs", "prune", "--yes", *arguments])
        assert (home / "runs" / key).exists()
    assert "name = " in capsys.readouterr().err
    assert main(["runs", "prune", key, "--older-than", "1", "--yes"]) == 0
    assert capsys.readouterr().out == f"deleted {key} (unfinished)\n"
    interrupted(unfinished)
    os.utime(home / "runs" / key / "spec.json", (0, 0))  # begun long ago, and gone on with since
    assert main(["runs", "prune", "--older-than", "1", "--yes"]) == 0 and (home / "runs" / key).exists()
    assert main(["runs", "prune", "--older-than", "0", "--yes"]) == 0 and not (home / "runs" / key).exists()
    assert main(["runs", "prune", "FedSSA", "--yes"]) == 0
    assert capsys.readouterr().out.count("a whole run is never pruned") == 2
    assert [path.name for path in lab.stored()] == [finished.key, f"{finished.key}.stale-1"]
    assert not list((home / "runs").glob(f".{key}.lock"))


def test_what_a_killed_process_left_beside_a_finished_run_is_cleared_by_the_next_reader(home):
    record = run(SPEC, progress=False)
    left = record.path / "checkpoint.pt"
    (record.path / "checkpoint.pt.clients").mkdir()
    (record.path / "checkpoint.pt.clients" / "client-0.pt").write_bytes(b"x")
    left.write_bytes(b"x")
    os.utime(left, (0, 0))  # older than DONE
    assert lab.read(record.path).digest == record.digest
    assert not left.exists() and not (record.path / "checkpoint.pt.clients").exists()
    left.write_bytes(b"of a run that is trained again to keep more")
    os.utime(left, (2**32, 2**32))
    assert lab.read(record.path).digest == record.digest and left.exists()


def test_a_run_that_other_code_resumed_names_both_commits(home, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(records, "commit_of_code", lambda: "first")
        interrupted(SPEC)
    monkeypatch.setattr(records, "commit_of_code", lambda: "second")
    record = run(SPEC, progress=False)
    assert record.provenance["commit"] == "second" and record.provenance["commits"] == ["first", "second"]
    assert not (record.path / records.SESSIONS).exists()
    alone = run(RunSpec(**vars(SPEC) | {"seed": 2}), progress=False)
    assert alone.provenance["commit"] == "second" and "commits" not in alone.provenance


def test_a_checkpoint_of_an_earlier_version_is_resumed(home, monkeypatch):
    """It named a digest of fedlib's source, where now the versions of numbers stand that are not the first."""
    session = lab.Resolved.session.fget
    with monkeypatch.context() as patch:
        patch.setattr(lab.Resolved, "session", property(lambda self: f"{self.key} 0123456789abcdef"))
        interrupted(SPEC)
    assert session(lab.resolve(SPEC)) == lab.resolve(SPEC).key
    began = []
    run(SPEC, progress=False, log=lambda spec, row: began.append(row["round"]))
    assert began and began[0] > 0


# ------------------------------------------------------------------------------------------------- strangers' folders


Damage = Callable[[Path], Any]


def forged(file: str, change: Callable[[str], str] = lambda text: text, status: str = "finished") -> Damage:
    """The text of a file is changed, and the digests are made again."""

    def damage(path: Path) -> None:
        done = processes.done(path) | {"status": status}
        (path / file).write_text(text := change((path / file).read_text()))
        done["files"][file] = hashlib.sha256(text.encode()).hexdigest()
        (path / "DONE").write_bytes(b"".join(files.seal(json.dumps(done).encode())))

    return damage


def said(**values: Any) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | values)


def pipe(file: str) -> Damage:
    def damage(path: Path) -> None:
        os.mkfifo(path / ".pipe")
        (path / ".pipe").replace(path / file)

    return damage


def link(file: str, target: str) -> Damage:
    def damage(path: Path) -> None:
        (path / "DONE").unlink()
        (path / file).symlink_to(target)

    return damage


DAMAGES: dict[
    str, tuple[Damage, str]
] = {  # what becomes of a copy of a whole run of that name, and what it is called then
    "untouched": (lambda path: None, "finished"),
    "not-what-was-written": (lambda path: (path / "spec.json").write_text('{"spec": {"seed": [1]}}'), "damaged"),
    "no-table": (lambda path: (path / "rounds.csv").unlink(), "damaged"),
    "no-accuracy": (forged("rounds.csv", lambda text: text.replace("accuracy", "precision")), "unreadable"),
    "accuracy-in-words": (forged("rounds.csv", lambda text: re.sub(r"0\.\d+", "good", text)), "unreadable"),
    "before-training": (forged("rounds.csv", lambda text: "\n".join(text.splitlines()[:2]), "diverged"), "unreadable"),
    "no-rows": (forged("clients.csv", lambda text: ""), "unreadable"),
    "numerics": (forged("provenance.json", said(numerics="x")), "unreadable"),
    "its-end-a-number": (forged("provenance.json", said(finished=3)), "unreadable"),
    "hashed-otherwise": (forged("spec.json", said(hashed={"a": 1})), "unreadable"),
    "large": (lambda path: os.truncate(path / "rounds.csv", files.LARGEST + 1), "unreadable"),
    "pipe-of-done": (pipe("DONE"), "damaged"),
    "pipe-of-rounds": (pipe("rounds.csv"), "damaged"),
    "endless": (link("DONE", "/dev/zero"), "damaged"),
    "nowhere": (link("final-server.pt", "nowhere"), "unfinished"),
    "\x1b[31mred": (lambda path: None, ""),  # no name of a run
}


def test_a_strangers_folder_is_a_line_of_the_list_and_takes_nothing_down(capsys):
    """Nor is what is whole by its own digests ever pruned."""
    whole = run(SPEC, progress=False)
    for name, (damage, _) in DAMAGES.items():
        damage(Path(shutil.copytree(whole.path, whole.path.with_name(name))))
    expected = {name: state for name, (_, state) in DAMAGES.items() if state} | {whole.key: "finished"}
    assert {path.name: lab.state(path)[0] for path in lab.stored()} == expected
    capsys.readouterr()
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["runs", "prune", "nowhere", "--yes"]) == 0
    also = capsys.readouterr().out
    assert "\x1b" not in also + "".join(lines)
    kept = {name for name, state in expected.items() if state in ("finished", "unreadable")}
    for name, state in expected.items():
        assert any(name[:-8] in line and (state == "finished" or state in line) for line in lines)
        assert (name in also) == (name not in kept)
    assert {path.name for path in lab.stored()} == kept
    for name in ("checkpoint.pt", "final-clients.pt"):  # read where a run is asked for again
        pipe(name)(whole.path)
    assert run(SPEC, progress=False).digest == whole.digest


def test_a_strangers_checkpoint_is_set_aside_whatever_its_seal_holds(capsys):
    interrupted(SPEC)
    (path,) = (path / "checkpoint.pt" for path in lab.stored())
    resolved, state = lab.resolve(SPEC), torch.load(io.BytesIO(files.unseal(path.read_bytes())))
    built, rows = lab.federation_of(resolved), state["rows"]
    for changed in (
        {"server": []},
        {"status": "well"},
        {"seconds": "x"},
        {"label": 3},
        {"rows": {}},
        {"rows": rows | {"rounds": rows["rounds"][1:]}},
        {"rows": rows | {"clients": [1]}},
        {"clients": {}},
        {"clients": {"files": {99: (1, "a")}, "number": 1}},
        {"clients": {"files": {"0/../../1": (1, "a")}, "number": 1}},
    ):
        buffer = io.BytesIO()
        torch.save(state | changed, buffer)
        path.write_bytes(b"".join(files.seal(buffer.getvalue())))
        assert checkpoint.load(path, resolved.session, built, ClientFiles(path, built)) is None, changed
        assert "corrupted, set aside" in capsys.readouterr().err


def test_a_record_says_which_commit_and_which_processor(monkeypatch):
    answers = {"ls-files": "__init__.py\n", "rev-parse": "0123456789ab\n", "status": ""}
    asked = []

    def git(command, **options):
        asked.append((command[1], options["cwd"].name))
        return SimpleNamespace(stdout=answers[command[1]])

    monkeypatch.setattr(records.subprocess, "run", git)
    assert records.commit_of_code() == "0123456789ab" and set(asked) == {(word, "fedlib") for word in answers}
    answers["status"] = " M fedlib/training.py\n"
    assert records.commit_of_code() == "0123456789ab-modified"
    monkeypatch.setattr(records.subprocess, "run", Mock(side_effect=subprocess.CalledProcessError(1, "git ls-files")))
    assert records.commit_of_code() == "unknown"  # within a checkout of something else
    monkeypatch.setattr(records.subprocess, "run", Mock(side_effect=FileNotFoundError))
    assert records.commit_of_code() == "unknown"
    model, flags = records.processor()
    assert len(model) > 3 and isinstance(flags, str)
