"""Numbers that move without a new version of their part in fedlib/numerics.py are found here; see tests/golden.py."""

import json

import faults
import golden
import pytest

from fedlib import models, numerics, partition, protocol
from fedlib.algorithms import ALGORITHMS
from fedlib.lab.presets import PRESETS

STATED = {  # the protocol's choices, each a part of fedlib
    "split": protocol.SPLITS,
    "dealing": ("shards",),  # slots are neutral
    "normalise": ("dataset", "imagenet", "half", "released"),
    "augmentation": ("none", "released"),
    "optimiser": protocol.OPTIMISERS,
    "starts": ("equal", "apart"),
    "inherit": ("none", "first_round", "first_visit"),
}


# A minute each where the processor has no instructions for bf16; none of these methods has a result of record.
LONGEST = ("FedMD bf16", "FCCL bf16", "FedKEMF bf16")


@pytest.mark.thorough(*(case for case in golden.CASES if case.endswith("fp32")))
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.nightly] * (case in LONGEST)) for case in golden.CASES]
)
def test_numbers_stay_as_they_are_or_have_a_new_version(case):
    wrong = golden.verdict(case)
    assert not wrong, wrong


@pytest.mark.thorough
def test_the_deal_stays_as_it_is_or_has_a_new_version():
    stored, today = golden.stored_deals(), golden.deals()
    assert stored.keys() == today.keys(), "run `python tests/golden.py`"
    wrong = []
    for name, (used, make) in today.items():
        digest, versions = stored[name]
        if versions != golden.versions_of(used):
            wrong.append(f"{name}: written under another version: run `python tests/golden.py`")
        elif digest != golden.digest(make()):
            wrong.append(f"{name}: images are dealt otherwise: raise the version of {used[-1]} in fedlib/numerics.py")
    assert not wrong, f"{len(wrong)} deals: " + "; ".join(wrong[:5])


def test_every_part_has_a_case():
    shown = {part for case in golden.CASES for part in golden.parts(case)}
    known = {"training", "isolated", *(f"precision {name}" for name in golden.SHARE)}
    of_torchvision = {name for name, kind in models.ZOO.items() if kind == "image"} - {"ResNet-4", "ViT-T"}
    known |= {f"method {name}" for name in ALGORITHMS}
    known |= {f"network {name}" for name in models.BUILT_IN if name not in of_torchvision}
    known |= {f"partition {name}" for name in partition.BUILT_IN}
    known |= {f"{name} {value}" for name, allowed in STATED.items() for value in allowed}
    assert shown == known
    asked = {(spec.paper, spec.protocol) for spec in (golden.resolved(case).spec for case in golden.CASES)}
    assert asked == set(PRESETS)


def test_the_cases_show_what_they_are_meant_to():
    """Clients that return, clients that are new in the second round, all of CNN-1..5; teachers in pFedHR's."""
    for case in golden.CASES:
        found, spec = golden.stored(case)["values"], golden.CASES[case]
        clients = [{name.split()[3] for name in found if name.startswith(f"round {t} client ")} for t in (0, 1)]
        assert clients[0] & clients[1] and len(clients[0] | clients[1]) == spec.num_clients, case
        assert spec.participation == 1 or clients[1] - clients[0], case
        assert spec.algorithm != "pFedHR" or (found["round 1 taught"] == 1 and found["round 0 candidates"] > 0), case


def test_planted_faults_stand_in_their_files_and_each_method_has_some():
    assert not faults.check()
    words = {word.removeprefix("golden:") for _, tests, _ in faults.FAULTS for word in tests.split()}
    assert words >= set(ALGORITHMS)


# ----------------------------------------------------------------------------------------------- what the test says

CASE = "FedSSA fp32"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """What is found today of a case whose golden values are in a folder of this test."""
    text = golden.file(CASE).read_text()
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    golden.file(CASE).write_text(text)
    stored = json.loads(text)["values"]
    return {name: value[:-1] if isinstance(value, list) else value for name, value in stored.items()}


def moved(found: dict) -> dict:
    norm, change, projection = found["server weight"]
    return found | {"server weight": [norm, change, projection + 0.1 * change]}


def test_what_has_not_moved_is_well(kept):
    assert golden.verdict(CASE, kept) == ""


def test_what_moved_wants_a_version_or_has_a_fault(kept):
    wrong = golden.verdict(CASE, moved(kept))
    assert "numbers of FedSSA fp32 moved (1; the worst: server weight" in wrong and "raise the version" in wrong
    assert "method FedSSA" in wrong and "network CNN-1" in wrong


def test_a_raised_version_wants_new_golden_values(kept, monkeypatch):
    monkeypatch.setitem(numerics.VERSIONS, "method FedSSA", 2)
    assert "of another version of method FedSSA: run" in golden.verdict(CASE, kept)
    assert "its numbers moved (server weight" in golden.verdict(CASE, moved(kept))
    golden.write(CASE, {name: [*value, 1e-6] if isinstance(value, list) else value for name, value in kept.items()})
    assert golden.verdict(CASE, kept) == ""


def test_another_case_wants_golden_values(kept):
    golden.file(CASE).unlink()
    assert "has no golden values" in golden.verdict(CASE, kept)


@pytest.mark.parametrize("lost", ["server weight", "round 0 loss", "round 1 upload_words"])
def test_what_is_no_longer_there_or_new_has_moved(kept, lost):
    assert lost in golden.moved(CASE, {name: value for name, value in kept.items() if name != lost})
    assert "new" in golden.moved(CASE, kept | {"new": 1.0})


def test_what_is_not_finite_has_moved(kept):
    assert "round 1 loss" in golden.moved(CASE, kept | {"round 1 loss": float("nan")})
    assert "server bias" in golden.moved(CASE, kept | {"server bias": [float("nan")] * 3})
