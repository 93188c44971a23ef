"""Checkpoints and files where something is in the way: another run's, a signal in the last round, a file there already."""

import dataclasses
import os
import signal

import pytest
import tiny

from fedlib import Federation, RunSpec, data, lab, numerics
from fedlib.algorithms import make
from fedlib.lab import checkpoint, clientfiles, files

CLIENTS, ROUNDS = 4, 3


def built() -> Federation:
    return Federation(tiny.dataset(), [range(k, 18, CLIENTS) for k in range(CLIENTS)], ("tiny-a", "tiny-b"))


def numbers(outcome):
    return [{name: row[name] for name in ("round", "loss", "accuracy")} for row in outcome.round_rows]


def raising(at: int):
    def signals(row, timing) -> None:
        if row["round"] == at:
            signal.raise_signal(signal.SIGINT)

    return signals


def test_another_runs_checkpoint_is_set_aside_and_a_second_one_beside_it(tmp_path, capsys):
    expected, place = numbers(lab.simulate(built(), make("LG-FedAvg"), ROUNDS)), tmp_path / "new" / "c.pt"
    for number in (1, 2):
        with pytest.raises(lab.Interrupted):
            lab.simulate(built(), make("Standalone"), ROUNDS, checkpoint=place, label="other", progress=raising(0))
        assert place.exists()
        whole = lab.simulate(built(), make("LG-FedAvg"), ROUNDS, checkpoint=str(place), label="this")  # as text, too
        assert numbers(whole) == expected
        assert f"c.pt: foreign, set aside as c.pt.foreign-{number}" in capsys.readouterr().err
        assert place.with_name(f"c.pt.foreign-{number}").exists() and not place.exists()


def test_a_signal_in_the_last_round_stops_nothing(tmp_path):
    whole = lab.simulate(built(), make("LG-FedAvg"), ROUNDS, checkpoint=tmp_path / "c.pt", progress=raising(ROUNDS - 1))
    assert len(whole.round_rows) == 1 + ROUNDS and whole.status == "finished"


def test_whom_an_architecture_was_last_trained_by_is_what_rounds_say_alone(tmp_path):
    place = tmp_path / "c.pt"
    with pytest.raises(lab.Interrupted):  # one client in round 0
        lab.simulate(
            built(), make("LG-FedAvg"), ROUNDS, 1 / CLIENTS, checkpoint=place, label="one", progress=raising(0)
        )
    federation = built()
    outcome = checkpoint.load(place, "one", federation, clientfiles.ClientFiles(place, federation))
    (trained,) = [row for row in outcome.client_rows if row["round"] == 0]
    assert federation.last_trained == {trained["architecture"]: trained["client"]}


def test_of_files_written_together_the_last_is_gone_until_all_are_there(tmp_path, monkeypatch):
    table, done = tmp_path / "rounds.csv", tmp_path / "DONE"
    files.write_files({table: [b"1"], done: [b"1"]})

    def replace(one, other):
        raise OSError("full")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="full"):
        files.write_files({table: [b"2"], done: [b"2"]})
    assert table.read_bytes() == b"1" and not done.exists()


def test_another_public_data_set_of_the_same_name_is_another_run():
    resolved = lab.resolve(RunSpec("FCCL", dataset="digits", public_dataset="digits-inverted", public_images=20))
    assert resolved.hashed["public"] == data.info("digits-inverted").fingerprint
    plain = lab.resolve(dataclasses.replace(resolved.spec, public_dataset=None))
    assert "public" not in plain.hashed and plain.key != resolved.key


def test_a_record_of_before_there_were_versions_is_of_the_first():
    resolved = lab.resolve(RunSpec("FedAvg", dataset="digits", scenario="homogeneous-M4"))
    hashed = resolved.hashed
    assert resolved.session == f"{resolved.key}, network M4 2"  # nor is a checkpoint of the first gone on with
    assert numerics.version("network M4") == 2 and numerics.moved(hashed, None) == ["network M4"]
    assert numerics.moved(hashed, numerics.versions(hashed)) == []


def test_a_record_that_names_versions_but_not_of_a_later_part_has_that_of_the_first():
    hashed = {**lab.resolve(RunSpec("FedAvg", scenario="CNN-5", device="cuda", precision="fp32")).hashed}
    versions = numerics.versions(hashed)
    assert versions.pop("fp32 on cuda") == 2 and numerics.moved(hashed, versions) == ["fp32 on cuda"]
    bf16 = lab.resolve(RunSpec("FedAvg", scenario="CNN-5", device="cuda", precision="bf16")).hashed
    assert not numerics.moved(bf16, {part: 1 for part in numerics.versions(bf16) if part != "bf16 on cuda"})
