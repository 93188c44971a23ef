"""Every mistake gets one clear line and a non-zero exit, and nothing is written or lost."""

import errno
import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError

import numpy as np
import processes
import pytest
import torch
from processes import rewrite

from fedlib import FedlibError, RunSpec, lab, numerics, run, simulation, sweep
from fedlib.__main__ import main
from fedlib.errors import choose, coerce
from fedlib.lab import checkpoint, files
from fedlib.lab.clientfiles import ClientFiles

SMALL = ["--num-clients", "5", "--participation", "0.2", "--rounds", "1"]  # with `small_digits`, a fraction of a second
SPEC = RunSpec(algorithm="FedSSA", num_clients=5, participation=0.2, rounds=1)


def command(text: str, capsys) -> tuple[int, str]:
    """Exit status and standard error of `python -m fedlib <text>`."""
    return main(shlex.split(text)), capsys.readouterr().err


def names(home) -> list[str]:
    """What the store holds, but for lock files."""
    return sorted(p.name for p in home.rglob("*") if p.is_file() and p.suffix != ".lock")


@pytest.fixture
def damaged_cifar10(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "cifar-10-batches-py").mkdir(parents=True)
    (tmp_path / "data" / "cifar-10-batches-py" / "test_batch").write_bytes(b"not the real one")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # unknown names, with the nearest valid one
        ("run FedSA", "algorithm = 'FedSA' is unknown: did you mean 'FedSSA' or 'pFedES' or 'FedAvg'?"),
        ("reproduce table2", "'table2' is unknown: did you mean 'fedssa/table2' or 'fedgh/table2' or 'pfedes/table2' or 'pfedhr/table2'?"),
        ("rnu", "command = 'rnu' is unknown: did you mean 'run'?"),
        ("runs shwo", "command = 'shwo' is unknown: did you mean 'show'?"),
        ("run FedSSA --dataset digit", "dataset = 'digit' is unknown: did you mean 'digits' or"),
        ("run FedSSA --set mu=0.5", "FedSSA parameter = 'mu' is unknown: did you mean 'mu0'?"),
        ("run Standalone --set mu0=0.5", "'mu0': Standalone has no parameters"),
        ("run FedSSA --override momentun=0.9", "protocol field = 'momentun' is unknown: did you mean 'momentum'"),
        ("run FedSSA --scenario heterogenous", "scenario = 'heterogenous' is unknown: did you mean 'heterogeneous' or 'homogeneous'"),
        ("run FedSSA --partition dirichlett", "partition = 'dirichlett' is unknown: did you mean 'dirichlet'?"),
        ("run FedSSA --scale smok", "scale = 'smok' is unknown: did you mean 'smoke'?"),
        ("run FedSSA --paper FedSAA", "paper = 'FedSAA' is unknown: did you mean 'FedSSA'?"),
        ("run FedSSA --protocol papers", "protocol = 'papers' is unknown: did you mean 'paper'?"),
        ("run FedSSA --precision fp16", "precision = 'fp16' is unknown"),
        ("run FedSSA --device gpu", "device = 'gpu': must be cpu, cuda"),
        ("run FedSSA --keep all", "keep = 'all' is unknown"),
        ("reproduce fedssa/tabel2", "exhibit = 'fedssa/tabel2' is unknown: did you mean 'fedssa/table2' or 'fedssa/table5' or"),
        ("reproduce fedsa", "exhibit = 'fedsa' is unknown: did you mean 'fedssa'"),
        ("data cifar", "dataset = 'cifar' is unknown: did you mean 'cifar10' or"),
        ("runs show FedSSA-digits-0", "run = 'FedSSA-digits-0': names no stored run"),
        ("run", "algorithm: must be given, see `fedlib list`, or --spec FILE"),
        # options of another command, and what is one too many: the nearest of this command
        ("run FedSSA --dry-run", "run`: option = '--dry-run' is unknown: did you mean '--rounds'?"),
        ("list --rounds 3", "list`: option = '--rounds' is unknown: known are --help"),
        ("runs --json", "runs`: option = '--json' is unknown: known are --help"),
        ("runs prune --rounds 7", "runs prune`: option = '--rounds' is unknown: known are --older-than, --yes, --help"),
        ("reproduce fedssa/table2 --dry-run --train-only", "Mutually exclusive arguments: {--dry-run, --train-only}"),
        ("data digits cifar10", "unexpected argument 'cifar10'"),
        ("run FedSSA --dataset", 'parameter --dataset requires an argument; see `fedlib run --help`'),
        ("reproduce fedssa/table2 --figures-only", "18 of 18 runs are missing"),
        # wrong types
        ("run FedSSA --rounds two", "rounds = 'two': must be a whole number"),
        ("run FedSSA --participation half", "participation = 'half': must be a number"),
        ("run FedSSA --lr nan", "lr = 'nan': must be a number (finite)"),
        ("run FedSSA --set mu0=much", "mu0 = 'much': must be a number"),
        ("run FedSSA --set mu0", "--set 'mu0': must be NAME=VALUE"),
        ("reproduce fedssa/table2 --jobs some", "jobs = 'some': must be a whole number"),
        # out of range
        ("run FedSSA --participation 0", "participation = 0.0: must be in (0, 1]"),
        ("run FedSSA --classes-per-client 11", "classes_per_client = 11: must be between 1 and 10, the number of class"),
        ("run FedSSA --num-clients 600", "num_clients = 600: must be at most 599: digits has 1797 images and a client"),
        ("run FedSSA --num-clients 500", "num_clients = 500: must be few enough (or dealt evenly enough) that each holds 3 images"),
        ("run FedSSA --partition dirichlet --alpha 0.01 --num-clients 100", "none of 100 Dirichlet draws"),
        ("run FedSSA --rounds 99999999999999999999", "rounds = 99999999999999999999: must be below 2**31"),
        ("run FedSSA --rounds 0", "rounds = 0: must be at least 1"),
        ("run FedSSA --seed -1", "seed = -1: must be between 0 and"),
        ("run FedAvg", "every client needs the same architecture"),
        ("reproduce fedssa/table2 --dry-run --jobs 0", "jobs = 0: must be at least 1"),
        # data that are not there, or not whole
        ("run FedSSA --dataset svhn", "dataset = 'svhn': not found in"),
        ("data cifar100", "run `python -m fedlib data cifar100` where there is a network"),
        ("run FedSSA --dataset cifar10", "are incomplete or corrupted"),
        ("record long", "dataset = 'cifar100': not found in"),  # not a line a run
        # what cannot be together, or an exhibit or the record does not have
        ("run FedSSA --spec a", "--spec cannot be combined with algorithm"),
        ("run --spec a --rounds 3 --set mu0=1", "--spec cannot be combined with --rounds, --set"),
        ("record long --check", "experiment = 'long'"),
        ("record --check FedNothing", "key = 'FedNothing'"),
        ("reproduce fedssa/table2 --scale record --methods FedKEMF --dry-run", "method = 'FedKEMF' is unknown"),
        ("reproduce fedssa/fig6 --scale record --methods FedKEMF --dry-run", "method = 'FedKEMF' is unknown"),
        ("reproduce fedssa/table3 --scale record --methods FedKEMF --dry-run", "methods = 'FedKEMF': must be left out"),
        ("reproduce fedssa/fig6 --dry-run --methods ,", "methods = ',': must be rows of the exhibit"),
        ("reproduce fedssa/fig6 --dry-run --methods ' '", "methods = ' ': must be rows of the exhibit"),
        # numbers that no number holds, and names that name nothing
        ("notebooks copy ''", "folder = '': must be a folder's name"),
        ("workflow copy ''", "folder = '': must be a folder's name"),
        ("notebooks copy '  '", "folder = '  ': must be a folder's name"),
        ("run FedSSA --seed 1e-400", "seed = '1e-400': must be a whole number, 0 or further from it"),
        ("run FedSSA --lr 1e-400", "lr = '1e-400': must be a number, 0 or further from it"),
        (f"run FedSSA --lr 1{400 * '0'}", "must be a number (finite)"),
        (f"run FedSSA --set mu0=1{400 * '0'}", "must be a number (finite)"),
        (f"run FedSSA --seed {5000 * '9'}", "must be a whole number (finite)"),
        (f"reproduce --dry-run --jobs 1{400 * '0'}", "must be at least 1 and at most 1024"),
        ("runs prune --older-than 1e-400", "older-than = '1e-400': must be a number, 0 or further"),
        ("runs prune --older-than soon", "older-than = 'soon': must be a number"),
        ("runs prune --older-than -1", "older-than = -1.0: must be a number of days"),
        ("runs prune --older-than nan", "older-than = 'nan': must be a number"),
        ("compare ''", "run = '': must be a key, or a part of one"),
    ],
    ids=lambda text: text[:80],
)  # fmt: skip
def test_one_clear_line(text, message, damaged_cifar10, monkeypatch, tmp_path, capsys):
    def unreachable(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: [])  # whatever is of record by now
    status, error = command(text, capsys)
    assert status == 2
    assert message in error
    assert error.startswith("fedlib: ") and error.count("\n") == 1 and len(error) < 1000
    assert [*tmp_path.iterdir()] == [tmp_path / "data"]  # nothing written


@pytest.mark.thorough
def test_what_stops_many_runs_is_said_once(home, damaged_cifar10):
    specs = [RunSpec("Standalone", dataset="cifar10", seed=seed) for seed in range(3)]
    with pytest.raises(FedlibError) as raised:
        sweep(specs, jobs=2, progress=False)
    said = str(raised.value)
    assert said.startswith("Standalone on cifar10 and 2 more: dataset = 'cifar10': the files in ")
    assert said.count("incomplete or corrupted") == 1


def test_of_many_names_three_are_listed_and_of_few_all():
    many = [f"name{number}" for number in range(20)]
    with pytest.raises(FedlibError) as raised:
        choose("field", "name1x", many)
    assert str(raised.value).count("'name") == 4 and "known are" not in str(raised.value)  # what was given, and three
    with pytest.raises(FedlibError, match="field = 'zzz' is unknown: the nearest of 20 are name"):
        choose("field", "zzz", many)
    with pytest.raises(FedlibError, match=r"known are name0, name1, name2, name3, name4$"):
        choose("field", "zzz", many[:5])


# ------------------------------------------------------------------------------------------------ the environment


@pytest.mark.parametrize("variable", ["FEDLIB_HOME", "FEDLIB_DATA"])
@pytest.mark.parametrize(
    ("value", "message"),
    [("~nosuchuser/store", "must begin with a user that exists"), ("x" * 300, "(300 characters): must be a path of")],
)
def test_a_folder_that_cannot_be(variable, value, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    stored = ("runs", "run FedSSA", "reproduce fedssa/table3")
    for text in ("data", "data mnist") if variable == "FEDLIB_DATA" else stored:
        status, error = command(text, capsys)
        assert status == 2 and error.startswith(f"fedlib: {variable} = ") and error.count("\n") == 1
        assert message in error and not list(tmp_path.iterdir())


def test_a_relative_home_means_the_same_to_a_process_started_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLIB_HOME", "store")
    assert lab.home() == tmp_path / "store"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    say = "import os; print(os.environ['FEDLIB_HOME'])"
    found = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True)
    assert lab.home() == tmp_path / "store" == Path(found.stdout.strip())


@pytest.mark.slow
def test_a_locale_without_dashes(home, tmp_path):
    """A diverged run prints one, and the store lists it."""
    ascii = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    diverging = ["run", "Standalone", "--num-clients", "5", "--participation", "0.2", "--rounds", "2", "--lr", "1e20"]
    code = f"from fedlib.__main__ import main; print('exits', main({diverging}), main(['runs']))"
    with processes.started("-c", code, home=home, **ascii) as process:
        output, _ = process.communicate(timeout=processes.SECONDS)
    assert "exits 0 0" in output and "accuracy: ? (a round left numbers that are not finite)" in output, output
    assert output.count("Standalone-digits-") == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_where_there_is_none(home, capsys):
    status, error = command("run FedSSA --device cuda", capsys)
    assert status == 2 and "device = 'cuda': must be cpu, cuda, one of several such as cuda:1" in error
    assert not home.exists()


def test_coercion_never_rounds():
    big = 2**53 + 1  # no float64 holds it
    assert coerce("seed", big, int) == coerce("seed", str(big), int) == big
    assert type(coerce("rounds", np.int64(3), int)) is int and type(coerce("rounds", 3.0, int)) is int
    assert coerce("rounds", "1e2", int) == 100 and coerce("lr", "1e-3", float) == 0.001
    assert coerce("flag", "True", bool) is True and coerce("flag", False, bool) is False
    for value, kind in ((2.5, int), ("", int), (None, float), ([1], float), (True, int), ("yes", bool), (1, str)):
        with pytest.raises(FedlibError, match="field = "):
            coerce("field", value, kind)


# -------------------------------------------------------------------- records and checkpoints that cannot be used


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
    status, error = command(" ".join(["run", "FedSSA", *SMALL]), capsys)
    assert status == 2 and error.count("\n") == 1
    assert f"store = {str(home / 'runs')!r}: cannot write there" in error


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("keep", ["none", "clients"])
def test_a_full_disk(call, keep, home, small_digits, monkeypatch, capsys):
    """Whatever file it strikes first: one line, no half-written file, and a later attempt succeeds."""
    text = " ".join(["run", "FedSSA", *SMALL, "--keep", keep])
    for allowed in range(20):
        with monkeypatch.context() as patch:
            left, real = [allowed], getattr(os, call)

            def full(*args, left=left, real=real):
                if not left[0]:
                    raise OSError(errno.ENOSPC, "No space left on device")
                left[0] -= 1
                return real(*args)

            patch.setattr(os, call, full)
            status, error = command(text, capsys)
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "closed"), [("runs", ">&-"), ("runs", ">&- 2>&- <&-"), ("data", ">&-"), ("list", "2>&-")]
)
def test_closed_streams(text, closed, home):
    line = f"exec {sys.executable} -m fedlib {text} {closed}"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and not ended.stderr


@pytest.mark.thorough
def test_a_run_with_closed_streams_is_stored_whole(home):
    words = "run Standalone --num-clients 20 --participation 0.05 --rounds 1 --scenario CNN-5 >&- 2>&- <&-"
    ended = subprocess.run(["sh", "-c", f"exec {sys.executable} -m fedlib {words}"], timeout=300)
    (path,) = lab.stored()
    assert ended.returncode == 0 and lab.state(path)[0] == "finished"


@pytest.mark.parametrize("where", ["elsewhere", "relative"])
def test_a_directory_that_is_gone_is_a_line(where, tmp_path):
    (tmp_path / "gone").mkdir()
    line = f"cd {tmp_path}/gone && rmdir ../gone && exec {sys.executable} -m fedlib runs"
    environment = os.environ | {"FEDLIB_HOME": str(tmp_path / "home") if where == "elsewhere" else "home"}
    environment |= {"PYTHONPATH": str(Path(lab.__file__).parents[2])}
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].startswith("fedlib: the current directory is gone")
    assert "Traceback" not in ended.stderr and not (tmp_path / "home").exists()


def test_a_relative_home_in_a_directory_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("FEDLIB_HOME", "relative")
    with pytest.raises(
        FedlibError, match=r"^FEDLIB_HOME = 'relative': must be absolute, as the current directory is gone$"
    ):
        lab.home()


def test_what_a_float_holds_is_taken():
    assert coerce("lr", "0e-400", float) == 0 and coerce("lr", "5e-324", float) > 0 and coerce("seed", "0.0", int) == 0
    assert str(coerce("lr", -0.0, float)) == str(coerce("lr", "-0.0", float)) == "0.0"  # -0.0 would be another run
    assert coerce("seed", "-0", int) == 0 and coerce("lr", "1e5", float) == 1e5


def test_a_name_twice_in_a_specification_is_a_line(tmp_path, capsys):
    for text in ('{"seed": 1, "seed": 2}', '{"spec": {"params": {"mu0": 1, "mu0": 0.5}}}'):
        (tmp_path / "spec.json").write_text(text)
        assert main(["run", "--spec", str(tmp_path / "spec.json")]) == 2
        said = capsys.readouterr().err
        assert "occurs twice" in said and said.count("\n") == 1
