"""pFedHR's baselines on its networks, M1 to M4, under its protocol: grey and colour images, own and other public data."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from fedlib import ALGORITHMS, Dataset, FedlibError, RunSpec, data, lab, run, simulate
from fedlib.papers import exhibits

HETEROGENEOUS = {"FedMD": "reassembly", "FCCL": "reassembly", "FedKEMF": "reassembly", "FedGH": "reassembly-500"}
HOMOGENEOUS = [name for name in exhibits.methods("pfedhr/table4") if ALGORITHMS[name].needs == "architecture"]
COMBINATIONS = [  # method, scenario, data set; grey images have one channel
    *((name, scenario, dataset) for name, scenario in HETEROGENEOUS.items() for dataset in ("digits", "grey")),
    *((name, scenario, dataset) for name in HOMOGENEOUS
      for scenario, dataset in (("homogeneous-M1", "grey"), ("homogeneous-M4", "digits"))),
]  # fmt: skip


@pytest.fixture(autouse=True)
def few_digits(monkeypatch):
    """`digits` cut to 60 images, and the same in one channel as `grey`."""
    whole = data.load("digits")
    for name, channels in (("digits", 3), ("grey", 1)):
        images, labels = whole.images[:, :channels].numpy(), whole.labels.numpy()
        few = Dataset.from_arrays(name, images[:1400:28], labels[:1400:28], images[-10:], labels[-10:], 10)
        monkeypatch.setitem(data.REGISTERED, name, lambda few=few: few)
    data.load.cache_clear()
    yield
    data.load.cache_clear()


def spec(name: str, scenario: str, dataset: str = "digits", **changes: Any) -> RunSpec:
    """A client an architecture, or two, with a dozen or two of training images in a batch; two rounds where the second
    meets the consensus of the first.
    """
    clients = 4 if scenario.startswith("reassembly") else 2
    small = RunSpec(
        name, dataset=dataset, scenario=scenario, paper="pFedHR", num_clients=clients, participation=1.0,
        rounds=2 if name in ("FedMD", "FCCL") else 1, local_epochs=1, batch_size=32, precision="fp32",
    )  # fmt: skip
    return dataclasses.replace(small, **changes)


@pytest.mark.thorough("FedKEMF", "FedGH")
@pytest.mark.parametrize(("name", "scenario", "dataset"), COMBINATIONS)
def test_every_baseline_trains_on_pfedhrs_networks(name: str, scenario: str, dataset: str) -> None:
    resolved = lab.resolve(spec(name, scenario, dataset))
    built = lab.federation_of(resolved)
    assert built.channels == (3 if dataset == "digits" else 1) and built.settings.optimiser == "adam"
    start = {architecture: built.build(architecture).state_dict() for architecture in built.architectures}
    outcome = simulate(built, resolved.algorithm, resolved.spec.rounds)
    assert outcome.status == "finished" and np.isfinite(lab.rounds_of(outcome)["loss"].iloc[1:]).all()
    assert lab.rounds_of(outcome)["accuracy"].between(0, 1).all()
    assert lab.rounds_of(outcome)["download_words"].iloc[-1] > 0 and lab.rounds_of(outcome)["upload_words"].iloc[-1] > 0
    for client in built.clients:
        model, before = client.model, start[client.info.architecture]
        assert not any(module.training for module in model.modules())
        state = model.state_dict()
        assert all(torch.isfinite(tensor).all() for tensor in state.values())
        # every layer has learned, and batch normalisation has seen batches
        assert not [key for key, tensor in state.items() if torch.equal(tensor, before[key])]


@pytest.mark.thorough("pFedMe")
@pytest.mark.parametrize(("name", "scenario"), [("FedKEMF", "reassembly"), ("pFedMe", "homogeneous-M1")])
def test_dropout_repeats(name: str, scenario: str) -> None:
    digests = []
    for number in range(2):
        torch.manual_seed(number)
        resolved = lab.resolve(spec(name, scenario))
        digests.append(simulate(lab.federation_of(resolved), resolved.algorithm, 1).digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("name", "labelled", "other"),
    [("FedMD", True, "digits-inverted"), ("FCCL", False, "digits-noisy"), ("FedKEMF", False, "digits-rotated")],
)
def test_public_set_of_the_table(name: str, labelled: bool, other: str) -> None:
    """Another domain, labelled or not, bounded: through the fields of a specification."""
    changes = {"public_dataset": other, "public_fraction": 0.4, "public_images": 12, "public_labels": labelled}
    small = spec(name, "homogeneous-M1", **changes, rounds=1)
    record = run(small, progress=False)
    assert record.status == "finished" and record.spec.public_images == 12
    assert record.rounds["validation_accuracy"].isna().all()
    own = run(dataclasses.replace(small, public_dataset=None), progress=False)
    assert own.key != record.key


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("FedGH", {}, "got {'M1': 50, 'M2': 50, 'M3': 64, 'M4': 256}.*use scenario .*reassembly-500"),
        ("FedAvg", {}, "every client needs the same architecture; got M1, M2, M3, M4.*homogeneous-M1"),
        ("FedMD", {"public_labels": False}, "'FedMD': needs labelled public data, and these have no labels"),
    ],
)
def test_what_cannot_run_says_what_can(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FedlibError, match=message):
        run(spec(name, "reassembly", **changes), progress=False)
