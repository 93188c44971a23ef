"""A key stays for ever: today's fields are in it, later ones declare what code without them did, renamed ones keep their name."""

import dataclasses
import hashlib
import itertools
import json
import os
import subprocess
import sys

import pytest

from fedlib import ALGORITHMS, FedlibError, fields, lab
from fedlib.data import DatasetInfo
from fedlib.lab import of_record
from fedlib.protocol import Protocol

# What stood in the keys when the first results were stored. No line is ever changed; a new field does not come here.
FIRST = {
    lab.RunSpec: "algorithm params dataset scenario num_clients participation partition classes_per_client alpha rounds "
    "local_epochs batch_size lr seed paper protocol overrides public_dataset public_fraction public_images public_labels "
    "precision device keep",
    Protocol: "split reserve distinct floors normalise augmentation optimiser lr momentum weight_decay clip_norm starts "
    "inherit",
    DatasetInfo: "name num_classes channels num_train num_test mean std fingerprint",
    "Standalone": "",
    "FedAvg": "",
    "FedProx": "mu",
    "Per-FedAvg": "alpha beta",
    "pFedMe": "lam eta inner_lr inner_steps beta",
    "pFedBayes": "zeta rho0 noise beta",
    "FML": "alpha beta shared",
    "FedKD": "energy_start energy_end shared",
    "LG-FedAvg": "",
    "FedClassAvg": "rho reduction replace contrast temperature",
    "FD": "gamma distance outputs exclude_self",
    "FedProto": "lam weighted",
    "FedMD": "public_samples digest_epochs pretrain_epochs",
    "FCCL": "off_diagonal intra inter public_samples public_epochs public_lr pretrain_epochs",
    "FedKEMF": "knowledge weight distance temperature server_epochs public_samples label_weight",
    "FedGH": "server_lr server_update first_header lars",
    "FedSSA": "mu0 stable_rounds fusion aggregate_over aggregation replace",
    "pFedES": "mu extractor_epochs extra_epochs output",
    "pFedHR": "clusters server_epochs server_lr weight kd teacher client_reset search max_candidates stitch_layers "
    "cka_samples activations merge_same temperature crop projection",
}


def undeclared(kind, first: str) -> list[str]:
    """Fields that are neither among the first ones nor say what stands for them in older keys."""
    names = {item.name: item.metadata.get("formerly", (item.name,))[0] for item in dataclasses.fields(kind)}
    metadata = {item.name: item.metadata for item in dataclasses.fields(kind)}
    free = [name for name in names if "neutral" in metadata[name] or metadata[name].get("in_key", True) is False]
    return [name for name in names if names[name] not in first.split() and name not in free]


@pytest.mark.parametrize("kind", FIRST, ids=str)
def test_a_new_field_says_what_stands_for_it_in_older_keys(kind):
    cls, first = ALGORITHMS[kind] if isinstance(kind, str) else kind, FIRST[kind]
    assert undeclared(cls, first) == [], "declare them with fields.later(default, neutral=what code without them did)"
    kept = {item.metadata.get("formerly", (item.name,))[0]: item.metadata for item in dataclasses.fields(cls)}
    assert set(first.split()) <= set(kept), "a first field may get another name (fields.renamed), and never goes"
    assert not any("neutral" in kept[name] for name in first.split()), "it stands in every key"


def test_a_field_without_a_neutral_value_is_refused():
    @dataclasses.dataclass(frozen=True)
    class More(Protocol):
        warm_up: int = 0

    assert undeclared(More, FIRST[Protocol]) == ["warm_up"]


@dataclasses.dataclass(frozen=True)
class Asked:
    rate: float = 0.1
    power: int = fields.renamed(2, "exponent")
    noise: float = fields.later(0.5, neutral=0.0)
    label: str = fields.later("", neutral="", in_key=False)


def test_what_stands_in_a_key():
    def key(**values):
        return fields.in_key(Asked, dataclasses.asdict(Asked(**values)))

    assert key(noise=0.0) == {"rate": 0.1, "exponent": 2}
    assert key() == {"rate": 0.1, "exponent": 2, "noise": 0.5}  # a default may be another than what was before
    assert key(noise=0.0, label="x", power=3) == {"rate": 0.1, "exponent": 3}
    assert fields.neutral(Asked) == {"noise": 0.0, "label": ""}


def test_old_names_are_read_and_two_names_at_once_are_refused():
    assert fields.read(Asked, {"exponent": 3, "other": 1}) == {"power": 3, "other": 1}
    with pytest.raises(FedlibError, match="power = 4: power is given, too"):
        fields.read(Asked, {"exponent": 3, "power": 4})


def test_every_result_of_record_has_the_key_of_what_was_asked():
    """99 keys and more, by the code of all their versions; and each is what its folder and its hash say."""
    records = of_record.read_results()
    assert len(records) >= 99 and not of_record.unreadable()
    for record in records:
        resolved = lab.resolve(record.spec)
        digest = hashlib.sha256(json.dumps(record.hashed, sort_keys=True).encode()).hexdigest()[:16]
        assert resolved.key == record.key == record.path.name and record.key.endswith(f"-{digest}"), record.key
        assert resolved.hashed == record.hashed and lab.spec_from(dataclasses.asdict(record.spec)) == lab.RunSpec(
            **vars(record.spec)
        )


def test_a_whole_specification_of_an_earlier_version_means_what_it_meant(monkeypatch):
    """One that names all fields of its version is at the neutral value of later ones; a short one takes today's defaults."""
    later = dataclasses.make_dataclass(
        "RunSpec", [("noise", float, fields.later(0.5, neutral=0.0))], bases=(lab.RunSpec,), frozen=True
    )
    monkeypatch.setattr("fedlib.lab.spec.RunSpec", later)
    whole = dataclasses.asdict(lab.RunSpec())
    assert lab.spec_from(whole).noise == 0.0 and lab.spec_from({"algorithm": "FD"}).noise == 0.5
    with pytest.raises(FedlibError, match="field = 'nois' is unknown: did you mean 'noise'"):
        lab.spec_from({"nois": 1})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, []),
        ({"partition": "dirichlet"}, ["dirichlet", "alpha=0.5"]),  # at its default, since the usual run has none
        ({"partition": "iid", "alpha": 0.3, "public_fraction": 0.3}, ["iid"]),  # the others decide nothing
        (
            {"params": {"mu0": 0.3}, "overrides": {"inherit": "none"}, "lr": 0.02},
            ["mu0=0.3", "inherit=none", "lr=0.02"],
        ),
        ({"protocol": "released", "newcomers": 2}, ["released", "newcomers=2"]),
        ({"isolated": True}, ["isolated"]),
        ({"keep": "server", "metrics": "auc", "num_clients": 6, "rounds": 2, "seed": 4}, []),
    ],
)
def test_a_run_differs_from_the_usual_one_in_what_decides_its_numbers(asked, said):
    assert sorted(lab.differences(lab.resolve(lab.RunSpec("FedSSA", dataset="digits", **asked)).spec)) == sorted(said)


@pytest.mark.parametrize(("dealt", "keys"), [("dirichlet", 2), ("quantity-skew", 2), ("iid", 1), ("by-class", 1)])
def test_alpha_is_in_the_key_of_what_deals_by_it(dealt, keys):
    asked = [lab.RunSpec(dataset="digits", partition=dealt, alpha=alpha) for alpha in (0.1, 0.5)]
    assert len({lab.resolve(spec).key for spec in asked}) == keys


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(("none", "server", "clients"), 2)])
def test_two_requests_for_a_run_keep_what_either_asks_for(one, other):
    """More weights to the right."""
    for first, second in ((one, other), (other, one)):
        asked = lab.resolve(lab.RunSpec(dataset="digits", keep=first))
        assert asked.joined(lab.RunSpec(dataset="digits", keep=second)).spec.keep == other


def test_a_set_in_ones_own_code_has_one_digest_in_every_process():
    """Texts in a set come in another order under another PYTHONHASHSEED."""
    code = "from fedlib.lab import own; print(own.digest({'a', 'b', 'c', 'd', 'e'}))"
    made = {
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, timeout=120)
        for seed in ("1", "2", "3")
    }
    assert len(made) == 1
