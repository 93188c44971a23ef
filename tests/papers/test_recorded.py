"""The results of record as a store: every change of a file is found, one run that cannot be read takes no other down."""

import dataclasses
import gzip
import hashlib
import json
import re
import shutil

import pandas as pd
import pytest
import torch
from results_of_record import write_results

from fedlib import FedlibError, RunSpec, lab, models, numerics, randomness, run
from fedlib.__main__ import main
from fedlib.lab import files, of_record, places
from fedlib.papers import checked, exhibits, recorded


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A copy of the first few results of record."""
    for path in sorted((places.RESULTS / "runs").iterdir())[:6]:
        shutil.copytree(path, tmp_path / "results" / "runs" / path.name)
    monkeypatch.setattr("fedlib.lab.places.RESULTS", tmp_path / "results")
    return tmp_path / "results" / "runs"


def harms(path):
    """A record's files changed, one after the other: digits, halves, files that are gone, rounds that are gone."""
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        digits = [found.start() + 2 for found in re.finditer(rb"0\.\d+", whole)] if file.suffix == ".csv" else []
        for at in digits[:: max(1, len(digits) // 10)]:
            file.write_bytes(whole[:at] + (b"2" if whole[at : at + 1] == b"1" else b"1") + whole[at + 1 :])
            yield f"{file.name}, byte {at}"
        file.write_bytes(whole[: len(whole) // 2])
        yield f"half of {file.name}"
        file.unlink()
        yield f"no {file.name}"
        file.write_bytes(whole)
    file, done = path / "rounds.csv", path / "DONE"
    said, shorter = json.loads(files.unseal(done.read_bytes())), b"".join(file.read_bytes().splitlines(True)[:-49])
    file.write_bytes(shorter)
    yield "without its last 49 rounds"
    said["files"]["rounds.csv"] = hashlib.sha256(shorter).hexdigest()
    done.write_bytes(b"".join(files.seal(json.dumps(said).encode())))
    yield "without its last 49 rounds, sealed again"


def test_a_changed_file_is_found_and_the_other_runs_are_read(store, capsys):
    paths = sorted(store.iterdir())
    left, whole, tried = [path.name for path in paths if path != paths[2]], paths[2], []
    for what in harms(whole):
        of_record._read.cache_clear()
        found, said = [record.key for record in of_record.read_results()], capsys.readouterr().err
        assert found == left, what
        if what != "no DONE":  # that is an unfinished run, and not listed
            assert said.startswith("1 of 6 results of record are left out:\nrun ") and whole.name in said, what
        tried.append(what)
    assert len(tried) > 2 * len([*whole.iterdir()]) + 10
    of_record._read.cache_clear()
    shutil.rmtree(whole)
    assert len(of_record.read_results()) == 5


def test_a_run_of_a_later_version_is_skipped_counted_and_named(store, capsys):
    path = sorted(store.iterdir())[0]
    stored = json.loads((path / "spec.json").read_text())
    stored["spec"]["noise"] = 0.5
    contents = {file.name: file.read_bytes() for file in path.iterdir() if file.name != "DONE"}
    contents["spec.json"] = json.dumps(stored).encode()
    lab.records.write_whole(path, contents, {"status": "finished", "state": "", "of_record": True})
    assert len(of_record.read_results()) == 5 and list(of_record.unreadable()) == [path.name]
    assert "fields that this fedlib does not know: noise" in capsys.readouterr().err
    assert main(["record"]) == 0
    assert f"1 results of record cannot be read: {path.name}" in capsys.readouterr().out


def test_a_result_without_its_final_state_has_the_digest_of_its_numbers(store):
    state = {path: json.loads(files.unseal((path / "DONE").read_bytes()))["state"] for path in sorted(store.iterdir())}
    path, digests = next(path for path, own in state.items() if not own), set()
    contents = {file.name: file.read_bytes() for file in path.iterdir() if file.name != "DONE"}
    for table in ("", "rounds", "clients"):  # as it is, and with another digit in one of them
        changed = {}
        for name, own in contents.items():
            text = gzip.decompress(own) if name.endswith(".gz") else own
            text = re.sub(rb"0\.\d", b"0.0", text) if table and name.startswith(table) else text
            changed[name] = gzip.compress(text) if name.endswith(".gz") else text
        lab.records.write_whole(path, changed, {"status": "finished", "state": "", "of_record": True})
        runs = lab.tidy(store).runs.set_index("key")
        assert lab.read(path).digest == runs.loc[path.name, "digest"]
        digests.add(lab.read(path).digest)
    assert len(digests) == 3 and all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


def test_a_large_table_is_compressed_and_the_same_bytes_each_time(tmp_path):
    table = pd.DataFrame({"round": range(20_000), "accuracy": 0.123456})
    name, content = recorded.packed("rounds", table)
    assert name == "rounds.csv.gz" and len(content) < recorded.LARGE * 8
    assert recorded.packed("rounds", table)[1] == content
    assert gzip.decompress(content).decode() == table.to_csv(index=False, lineterminator="\n")
    assert recorded.packed("rounds", table.head(3))[0] == "rounds.csv"


@pytest.fixture
def exported(small_digits, monkeypatch, tmp_path):
    """A run of the store that is of record, as if the digits were real data."""
    monkeypatch.setattr(recorded.data, "EMBEDDED", ())
    monkeypatch.setattr(recorded.data, "registered", set)
    monkeypatch.setattr("fedlib.lab.places.RESULTS", lab.home() / "results")
    record = run(lab.RunSpec("FedProto", num_clients=5, rounds=3, batch_size=64), progress=False)
    assert recorded.export() == 1
    return record


def test_what_is_exported_is_read_as_the_run_with_six_digits(exported):
    (read,) = of_record.read_results()
    assert read.key == exported.key and read.spec == exported.spec and read.of_record and not read.stale
    pd.testing.assert_frame_equal(read.rounds, exported.rounds.round(6), check_dtype=False)
    pd.testing.assert_frame_equal(read.clients, exported.final().round(6), check_dtype=False)
    assert read.digest == exported.digest and read.provenance == exported.provenance
    says = {"python", "numpy", "torch", "torchvision", "threads", "processor", "flags", "numerics", "commit"}
    assert says <= set(read.provenance)


def test_what_is_of_record_stays_and_a_difference_is_said(exported, capsys):
    folder = places.RESULTS / "runs" / exported.key
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    rounds = exported.rounds.assign(accuracy=exported.rounds["accuracy"] + 0.01)
    contents = {file.name: file.read_bytes() for file in exported.path.iterdir() if file.name != "DONE"}
    contents["rounds.csv"] = rounds.to_csv(index=False, lineterminator="\n").encode()
    lab.records.write_whole(exported.path, contents, {"status": "finished", "state": exported.digest})
    assert recorded.export() == 1
    assert "rounds.csv differs from what is of record, which stays" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    (folder / "rounds.csv").write_text("round\n")
    recorded.export()  # damaged: written again
    assert lab.read(folder).rounds["accuracy"].iloc[-1] == pytest.approx(rounds["accuracy"].iloc[-1], abs=1e-6)


# ---------------------------------------------------------------------------------- first rounds, trained again


def test_first_rounds_are_compared_with_the_digits_on_record(exported, monkeypatch, capsys):
    assert main(["record", "--check"]) == 0
    said = capsys.readouterr().out
    assert f"1/1 {exported.key}: agrees (" in said and "worst difference: 0; written to" in said
    row = checked.table().iloc[0]
    assert row["key"] == exported.key and row["worst"] == 0 and row["numbers"] >= 20
    folder = places.RESULTS / "runs" / exported.key
    rounds = exported.rounds.round(6)
    rounds.loc[1, "accuracy"] += 0.003
    contents = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "DONE"}
    contents["rounds.csv"] = rounds.to_csv(index=False, lineterminator="\n").encode()
    lab.records.write_whole(folder, contents, {"status": "finished", "state": "", "of_record": True})
    assert main(["record", "--check", exported.key[:12]]) == 1
    said = capsys.readouterr().out
    assert "differs by 0.003" in said and "vector instructions" not in said
    contents["provenance.json"] = json.dumps(exported.provenance | {"capability": "VSX"}).encode()
    lab.records.write_whole(folder, contents, {"status": "finished", "state": "", "of_record": True})
    assert main(["record", "--check", exported.key[:12]]) == 1
    assert "with other vector instructions (VSX)" in capsys.readouterr().out


@pytest.fixture
def four(tmp_path, monkeypatch):
    """The folder of four results of record, FedSSA and FedProto with two seeds."""
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0, 1))
    write_results(
        tmp_path, [cell for cell in cells if cell.num_clients == 10 and cell.method in ("FedSSA", "FedProto")]
    )
    monkeypatch.setattr("fedlib.lab.places.RESULTS", tmp_path)
    return tmp_path


def test_one_run_of_each_kind_is_checked_and_an_interrupted_check_goes_on_with_the_same(four):
    first, second = (record.key for record in checked.sample())
    assert {key.partition("-")[0] for key in (first, second)} == {"FedProto", "FedSSA"}
    assert len(of_record.read_results()) == 4  # so that others could take their places
    (four / checked.FILE).write_text(f"key,numbers,worst,date\n{first},1,0.0,2026-11-02\n")
    assert [record.key for record in checked.sample()] == [second, first]
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (0, 1))
    write_results(four, [exhibits.Cell("", cell.spec) for cell in cells[:2]], code="0123")
    assert len(checked.sample()) == 1


def test_what_was_checked_longest_ago_is_checked_first(four):
    keys = first, second, third, _ = [record.key for record in of_record.read_results()]
    lines = f"key,numbers,worst,date\n{first},1,0.0,2026-11-02\n{third},1,0.0,2026-11-01\n"
    (four / checked.FILE).write_text(lines)
    assert [record.key for record in checked.sample(keys[:3])] == [second, third, first]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_what_needs_a_device_that_is_not_here_is_left_out_or_said_to(four):
    cells = exhibits.cells("fedssa/heterogeneous", "record", "cifar10", (2,))
    for_a_gpu = dataclasses.replace(cells[0].spec, device="cuda")
    write_results(four, [exhibits.Cell("", for_a_gpu)], code="0123")
    key = lab.resolve(for_a_gpu).key
    assert key in {record.key for record in of_record.read_results()}
    assert key not in {record.key for record in checked.sample()}
    with pytest.raises(FedlibError, match=r"^device = 'cuda': must be cpu, cuda"):
        list(checked.check(checked.sample([key])))


def test_every_row_of_a_check_is_kept_where_the_store_is_elsewhere(four, monkeypatch, home):
    monkeypatch.setattr(checked, "_row", lambda record: {"key": record.key, "numbers": 1, "worst": 0.0})
    keys = [row["key"] for row in checked.check(checked.sample())]
    assert len(keys) == 2 and not (four / checked.FILE).exists()
    assert sorted(pd.read_csv(home / "results" / checked.FILE)["key"]) == sorted(keys)


# -------------------------------------------------------------------------------------------- a person's own parts


@pytest.mark.thorough(None)
def test_own_parts_that_make_something_else_from_the_same_source_are_another_run(small_digits, tmp_path, capsys):
    """A network that reads a file: its source is in the key, and what it made is in the record."""
    weights = tmp_path / "weights.txt"
    weights.write_text("0.5")

    def small(num_classes, channels):
        model = models.build("CNN-5", num_classes, channels, randomness.generator(0, "init"))
        model.header.bias.data.fill_(float(weights.read_text()))
        return model

    models.register("small", small)
    spec = lab.RunSpec("Standalone", scenario="small", num_clients=3, rounds=1, batch_size=64)
    first = run(spec, progress=False)
    assert list(first.provenance["made"]) == ["architecture small"] and run(spec, progress=False).digest == first.digest
    capsys.readouterr()
    weights.write_text("0.75")
    second = run(spec, progress=False)
    assert second.key != first.key and second.digest != first.digest
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"made something else for {first.key}" in said and second.key in said
    assert run(spec, progress=False).key == second.key
    weights.write_text("0.5")
    assert run(spec, progress=False).key == first.key and not first.stale
    assert numerics.parts(first.hashed)[0] == "training"


@pytest.mark.parametrize("name", ["pFedES", "FedGH"])
def test_a_run_that_differs_from_its_row_of_record_in_weight_decay_alone_finds_it(name):
    """The papers' own is 1e-3; the rows of record share FedSSA's training, 5e-5. Any seed is the same row."""
    for seed in (0, 7):
        found = recorded.other_decay(lab.resolve(RunSpec(name, dataset="cifar100", seed=seed), "record"))
        assert found is not None and found.spec.algorithm == name and found.spec.paper == "FedSSA"
        assert found.hashed["protocol"]["weight_decay"] == 5e-5
    for given in (
        {"paper": "FedSSA"},  # the row itself
        {"overrides": {"weight_decay": 1e-4, "momentum": 0.5}},
        {"rounds": 99},
        {"dataset": "digits"},
    ):
        spec = RunSpec(name, **{"dataset": "cifar100"} | given)
        assert recorded.other_decay(lab.resolve(spec, "record")) is None, given


def test_the_command_says_what_the_row_of_record_has(capsys, monkeypatch):
    """Before anything is trained."""

    def trained(spec, scale, **_):
        raise FedlibError("far enough")

    monkeypatch.setattr(lab, "run", trained)
    for given, said in (
        (["pFedES"], "row of record: FedSSA's weight decay, 5e-05, not 0.001 (--paper FedSSA)\n"),
        (["FedGH"], "row of record: FedSSA's weight decay, 5e-05, not 0.001 (--paper FedSSA)\n"),
        (["pFedES", "--paper", "FedSSA"], ""),
        (["FedSSA"], ""),
        (
            ["FedSSA", "--override", "weight_decay=0.01"],
            "row of record: weight decay 5e-05, not 0.01 (--override weight_decay=5e-05)\n",
        ),
    ):
        assert main(["run", *given, "--dataset", "cifar100", "--scale", "record"]) == 2
        out = capsys.readouterr().out
        assert out == said and len(out) <= 81
