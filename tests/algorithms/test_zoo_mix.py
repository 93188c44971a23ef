"""Every method on a mix of today's networks: it is trained, resumed to the bit and carried over bytes, or refuses in one line."""

from typing import Any

import numpy as np
import pytest
import tiny
from test_exchange import Elsewhere, with_a_posted_server

from fedlib import ALGORITHMS, FedlibError, RunSpec, lab, simulate
from fedlib.lab import clientfiles

SMALL, LARGE = "ResNet-4,MobileNet-V3-S,ViT-T", "ResNet-18,MobileNet-V2,ViT-T"
SAME = [name for name, method in ALGORITHMS.items() if method.needs == "architecture"]
PARAMS: dict[str, dict[str, Any]] = {name: {"shared": "ResNet-4"} for name in ("FML", "FedKD")}
PARAMS |= {"FedKEMF": {"knowledge": "ResNet-4", "server_epochs": 1}}
QUICK = ("FedAvg", "ResNet-4")
CASES = [(name, scenario) for name in ALGORITHMS if name not in (*SAME, "pFedHR") for scenario in (SMALL, LARGE)]
CASES.remove(("FedL2G", SMALL))  # refused, see below
CASES += [("FedProto", "ResNet-4,MobileNet-V3-S")] + [
    (name, scenario) for name in SAME for scenario in (SMALL.split(",") if name == "FedAvg" else ["ResNet-18"])
]


def resolved(name: str, scenario: str, **changes: Any) -> lab.Resolved:
    size = {"num_clients": 3, "participation": 1.0, "rounds": 2, "batch_size": 16, "classes_per_client": 4}
    asked = {"dataset": "digits", "public_images": 16, "params": PARAMS.get(name, {})}
    return lab.resolve(RunSpec(name, scenario=scenario, **size | asked | changes))


def marked(name: str, scenario: str) -> Any:
    """Half a minute a method, and minutes with ResNet-18 and MobileNet-V2: all but FedProto are for `make nightly`."""
    slow = pytest.mark.slow if name == "FedProto" and "ResNet-18" not in scenario else pytest.mark.nightly
    return pytest.param(name, scenario, marks=[] if (name, scenario) == QUICK else slow)


@pytest.mark.parametrize(("name", "scenario"), [marked(*case) for case in CASES])
def test_a_method_trains_resumes_and_travels(name, scenario, small_digits, tmp_path):
    run = resolved(name, scenario)
    whole = simulate(lab.federation_of(run), run.simulated, 2)
    assert whole.status == "finished" and np.isfinite([row["loss"] for row in whole.round_rows[1:]]).all()

    path = tmp_path / "checkpoint.pt"
    resumed = tiny.stopped_and_resumed(lambda: lab.federation_of(run), run.simulated, 2, path)
    assert len(list(clientfiles.folder_of(path).iterdir())) == len(resumed.round_rows) == 3
    assert resumed.digest() == whole.digest()

    server = lab.federation_of(run)
    there = Elsewhere(run)
    other = simulate(server, with_a_posted_server(run.algorithm), 2, exchange=there)
    assert lab.clients_of(other).to_csv() == lab.clients_of(whole).to_csv() and len(there.snapshots) == 3


def test_pfedhr_refuses_what_has_no_layers_to_group(small_digits):
    run = resolved("pFedHR", SMALL)
    with pytest.raises(FedlibError, match=r"clusters = 4: must be at most 2, .* layers by model: {'MobileNet-V3-S': 2"):
        simulate(lab.federation_of(run), run.simulated, 2)


def test_fedl2g_refuses_a_layer_without_a_second_derivative(small_digits):
    run = resolved("FedL2G", "MobileNet-V3-S")
    line = r"algorithm = 'FedL2G': needs second derivatives, and a layer of the network has none"
    with pytest.raises(FedlibError, match=line):
        simulate(lab.federation_of(run), run.simulated, 2)


@pytest.mark.slow
def test_a_shared_network_with_batch_normalisation_outlives_its_rounds(small_digits):
    for name in ("FML", "FedKD"):
        run = resolved(name, "CNN-5", params={"shared": "M4"})
        assert simulate(lab.federation_of(run), run.simulated, 2).status == "finished"
