"""All runs of a store as frames: what the records say, compressed tables too, and nothing that is not as it was written."""

import shutil
import subprocess
import sys

import pandas as pd
import pytest

from fedlib import RunSpec, fields, lab, run
from fedlib.errors import FedlibError
from fedlib.lab import frames, of_record, places


def test_the_frames_of_record_are_what_its_records_say():
    runs, rounds, clients = lab.tidy("record")
    records = {record.key: record for record in of_record.read_results()}
    assert set(runs["key"]) == records.keys() and (rounds.groupby("key").size().index == sorted(records)).all()
    long = runs[runs["rounds"] == 500]["key"]
    assert len(long) >= 10 and (places.RESULTS / "runs" / long.iloc[0] / "rounds.csv.gz").exists()
    for key in (long.iloc[0], runs["key"].iloc[0]):
        own = rounds[rounds["key"] == key].dropna(axis=1, how="all").drop(columns="key").reset_index(drop=True)
        pd.testing.assert_frame_equal(own, records[key].rounds.dropna(axis=1, how="all"), check_dtype=False)
        assert len(clients[clients["key"] == key]) == len(records[key].clients)
    row = runs.set_index("key").loc[long.iloc[0]]
    spec = records[long.iloc[0]].spec
    assert (row["algorithm"], row["num_clients"], row["seed"]) == (spec.algorithm, spec.num_clients, spec.seed)
    assert runs["isolated"].dtype == bool and fields.neutral(RunSpec) == frames.NEUTRAL


def test_ones_own_store_and_a_run_that_was_changed(home, capsys):
    record = run(RunSpec("FedSSA", num_clients=3, rounds=1, scenario="homogeneous"), progress=False)
    runs, rounds, clients = lab.tidy("store")
    assert list(runs["key"]) == [record.key] and runs["params.mu0"].iloc[0] == 0.5
    assert len(rounds) == 2 and len(clients) == len(record.clients)
    shutil.copytree(record.path, copy := home / "elsewhere" / record.key)
    (copy / "rounds.csv").write_text("round\n")
    assert len(lab.tidy(home / "elsewhere").runs) == 0
    assert capsys.readouterr().err == f"run {record.key}: left out (rounds.csv is not what was written)\n"
    with pytest.raises(
        FedlibError, match=r"folder = .*nowhere.*: must be 'all', 'record', 'store' or a folder of runs"
    ):
        lab.tidy(home / "nowhere")


def test_results_are_read_without_torch():
    code = "import sys; from fedlib import lab; assert len(lab.tidy().runs) > 100; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
