"""Any runs beside each other: paired by seed, client by client, with what differs in their labels."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results_of_record import write_results

from fedlib import RunSpec, lab, run, study
from fedlib.__main__ import main
from fedlib.errors import FedlibError
from fedlib.papers import exhibits
from fedlib.show import intervals


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Made-up results of record on CIFAR-10, N = 100: Standalone and, 2 points above it, FedSSA with three seeds, FedProto with one."""
    cells = [cell for cell in exhibits.cells("fedssa/heterogeneous", "record", "cifar10") if cell.num_clients == 100]
    seeds = {"Standalone": (0, 1, 2), "FedSSA": (0, 1, 2), "FedProto": (3,)}
    kept = [replace(cell, spec=replace(cell.spec, seed=3)) for cell in cells if cell.method == "FedProto"][:1]
    kept += [cell for cell in cells if cell.method != "FedProto" and cell.spec.seed in seeds.get(cell.method, ())]
    write_results(tmp_path / "results", kept, gains={"FedSSA": 0.02})
    monkeypatch.setattr("fedlib.lab.places.RESULTS", tmp_path / "results")
    return [lab.resolve(cell.spec).key for cell in kept]


def test_runs_are_paired_by_seed_and_compared_client_by_client(results):
    records = [lab.find(key) for key in results]
    compared = study.compare(*[record for record in records if record.spec.algorithm != "FedProto"])
    rows = compared.table
    assert list(rows.index) == ["Standalone", "FedSSA"] and rows["n"].tolist() == [3, 3]
    assert (
        rows.loc["FedSSA", "difference"] == pytest.approx(2)
        and rows.loc["FedSSA", "seeds"] == "0: +2.00; 1: +2.00; 2: +2.00"
    )
    assert np.isnan(rows.loc["FedSSA", "half of difference"])  # of record: results/differences.csv has it
    assert rows.loc["FedSSA", "accuracy"] == pytest.approx(73) and rows.loc["FedSSA", "half"] == pytest.approx(
        2.48, abs=0.01
    )
    assert compared.clients["difference"].tolist() == pytest.approx([2, 4, 0] * 3)
    assert compared.by_client.loc["FedSSA"].to_dict() == {
        "higher": 6,
        "lower": 0,
        "equal": 3,
        "clients": 9,
        "difference": 2,
    }


def test_what_is_not_paired_is_said(results):
    alone, other = (next(key for key in results if key.startswith(name)) for name in ("Standalone", "FedProto"))
    compared = study.compare(alone, other)
    assert compared.table["difference"].isna().all() and compared.clients.empty and len(compared.by_client) == 0
    assert compared.notes == ("FedProto and Standalone have no seed in common: nothing is paired",)


@pytest.mark.thorough(None)
def test_a_label_says_what_differs_and_other_clients_are_not_paired(small_digits):
    spec = RunSpec("FedSSA", num_clients=4, rounds=1, params={"mu0": 0.3})
    specs = [spec, replace(spec, params={"mu0": 0.5}), replace(spec, num_clients=5)]
    compared = study.compare(*(run(one, progress=False) for one in specs))
    first, second, third = compared.table.index
    assert "mu0 = 0.3" in first and "mu0 = 0.5" in second and "N = 5" in third and "seed" not in first
    assert set(compared.clients["label"]) == {second}
    assert any(note.startswith(f"the clients of {third} hold other images") for note in compared.notes)


@pytest.mark.thorough(None)
def test_clients_that_lack_public_images_or_are_split_otherwise_are_not_paired(small_digits):
    """FCCL's clients lack the public tenth, unless it is kept from all; the released split tests on the official images."""
    spec = RunSpec("Standalone", num_clients=2, rounds=1, batch_size=64, partition="iid")
    fccl, kept = replace(spec, algorithm="FCCL"), replace(spec, overrides={"reserve": True})
    released = replace(spec, overrides={"split": "official-4:1:1"})
    alone, lacking, alike, apart = (run(one, progress=False) for one in (spec, fccl, kept, released))
    for first, second, paired in ((alone, lacking, False), (alike, lacking, True), (alone, apart, False)):
        compared = study.compare(first, second)
        assert (len(compared.clients) == 2) is paired
        assert any("hold other images" in note for note in compared.notes) is not paired
    assert [line for line in study.differing(alone, alike) if "reserve" in line] == [
        "spec.overrides.reserve: None | True"
    ]


class Fake:
    """A finished run of three rounds and two clients, made up."""

    of_record = False

    def __init__(self, key, spec, accuracy=0.5, status="finished", trained=3):
        self.key, self.spec, self.status = key, spec, status
        self.hashed = vars(spec) | {"data": spec.dataset, "protocol": spec.overrides}
        self.rounds = pd.DataFrame({"round": range(-1, trained), "accuracy": accuracy})
        self.clients = pd.DataFrame({"client": [0, 1], "round": trained - 1, "accuracy": accuracy})

    def final(self):
        return self.clients


BASE = RunSpec("Mine", dataset="digits", num_clients=4, rounds=3, local_epochs=1, lr=0.1, paper="FedSSA")


def other(value):
    """Another value of a field of a specification than `value`, of its kind; compare reads specifications that nobody resolves."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, dict):
        return {"mu0": 0.3}
    return value + "-other" if isinstance(value, str) else "other" if value is None else value + 1


FIELDS = {item.name: getattr(BASE, item.name) for item in fields(RunSpec) if item.name != "rounds"}
SPECS = st.fixed_dictionaries({}, optional={name: st.just(other(value)) for name, value in FIELDS.items()})
ENDS = st.sampled_from([{}, {}, {}, {"status": "diverged"}, {"trained": 2}, {"status": "diverged", "trained": 0}])


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(SPECS, ENDS, st.sampled_from("ab")), min_size=2, max_size=8))
def test_every_run_has_one_place_and_a_broken_one_no_number(drawn):
    """Whatever runs are compared: they may differ in any field, in several, or in nothing but their key."""
    runs = [
        Fake(f"Mine-digits-{place}{letter * 12}", replace(BASE, **changed), 0.1 + place / 100, **ended)
        for place, (changed, ended, letter) in enumerate(drawn)
    ]
    compared = study.compare(*runs)
    placed = [(label, seed, record) for label, own in compared.rows.items() for seed, record in own.items()]
    assert sorted(record.key for _, _, record in placed) == sorted(record.key for record in runs)
    assert all(seed == record.spec.seed for _, seed, record in placed)
    assert list(compared.table.index) == list(compared.rows) and compared.table["n"].sum() == len(runs)
    for own in compared.rows.values():  # what is averaged differs in its seed alone, and what is kept and measured
        assert len({str(replace(record.spec, seed=0, keep="none", metrics="")) for record in own.values()}) == 1
    whole = {label: all(map(intervals.whole, own.values())) for label, own in compared.rows.items()}
    first = next(iter(whole))
    for label, row in compared.table.iterrows():
        assert np.isnan(row["accuracy"]) != whole[label]
        common = compared.rows[label].keys() & compared.rows[first].keys()
        has = not np.isnan(row["difference"])
        assert not has or (common and all(intervals.whole(compared.rows[label][seed]) for seed in common))
    shown = {(label, seed) for label, seed in zip(compared.clients["label"], compared.clients["seed"], strict=True)}
    for label, seed in shown:
        assert intervals.whole(compared.rows[label][seed]) and intervals.whole(compared.rows[first][seed])
    assert "nan" not in repr(compared).lower()


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "seed"])
def test_a_field_that_differs_is_named(name):
    changed = replace(BASE, **{name: other(FIELDS[name])})
    one, two = study.compare(Fake("Mine-a-1", BASE), Fake("Mine-a-2", changed)).rows
    assert one != two and "Mine-a" not in one + two


def test_two_versions_of_ones_own_method_have_rows_of_their_own():
    runs = [Fake(key, BASE) for key in ("Mine-digits-0123456789ab", "Mine-digits-abcdef012345")]
    compared = study.compare(*runs)
    assert list(compared.table.index) == ["Mine, 01234567", "Mine, abcdef01"] and set(compared.table["n"]) == {1}
    weights = study.compare(runs[0], Fake("b", replace(BASE, seed=1, keep="clients")))
    assert list(weights.table["n"]) == [2]  # what is kept decides no number


def test_a_run_that_lacks_rounds_is_named():
    compared = study.compare(Fake("a", BASE), Fake("b", replace(BASE, lr=0.3), trained=2))
    assert compared.table["accuracy"].tolist() == pytest.approx([50, np.nan], nan_ok=True)
    assert compared.notes == ("without all of their rounds, and so without a number: b",)


def test_runs_that_cannot_be_compared_are_refused(results):
    (key, *_) = results
    with pytest.raises(FedlibError, match=r"run = 'nothing': names no stored run and none of record"):
        study.compare("nothing", key)
    with pytest.raises(FedlibError, match=r"run = 'FedSSA': names 3 runs"):
        study.compare("FedSSA", key)
    with pytest.raises(FedlibError, match="at least two different ones"):
        study.compare(key, key)


def test_the_command_prints_it(results, capsys):
    first, second = (next(key for key in results if key.startswith(name)) for name in ("Standalone", "FedSSA"))
    assert main(["compare", first, second]) == 0
    said = capsys.readouterr().out
    assert "+2.00 (n = 1)" in said and "of 3 clients 2 higher" in said and "spec.algorithm: Standalone | FedSSA" in said
    assert main(["runs", "show", second]) == 0  # of record, too


def test_a_client_that_was_never_visited_is_not_compared(small_digits):
    spec = RunSpec("FedSSA", num_clients=6, rounds=2, batch_size=64)
    whole, fewer = (run(one, progress=False) for one in (spec, replace(spec, newcomers=2, newcomer_visits=1)))
    visited = set(fewer.clients.query("round >= 0")["client"])
    assert len(visited) == 4 and set(study.compare(whole, fewer).clients["client"]) == visited
