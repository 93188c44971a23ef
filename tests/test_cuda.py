"""Runs on a real CUDA device; what can be shown without one is in test_gpu.py. Skipped, with the reason, where there is none."""

from typing import Any

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from test_gpu import pooled

from fedlib import ALGORITHMS, FedlibError, RunSpec, lab, models, simulate, training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and this machine has none")

TODAY = "ResNet-18,MobileNet-V2,ViT-T"


def resolved(name: str = "FedProto", **asked: Any) -> lab.Resolved:
    usual = {"num_clients": 3, "participation": 1.0, "rounds": 2, "batch_size": 16, "device": "cuda"}
    return lab.resolve(RunSpec(name, **usual | {"scenario": TODAY} | asked))


def simulated(run: lab.Resolved) -> Any:
    return simulate(lab.federation_of(run), run.simulated, run.spec.rounds)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_has_the_same_bits_twice_and_resumed(precision, small_digits, tmp_path):
    run = resolved(precision=precision)
    first = simulated(run)
    assert first.status == "finished" and first.clients[0].model.header.weight.is_cuda
    assert simulated(run).digest() == first.digest()
    resumed = tiny.stopped_and_resumed(lambda: lab.federation_of(run), run.simulated, 2, tmp_path / "checkpoint.pt")
    assert len(resumed.round_rows) == 3 and resumed.digest() == first.digest()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_agrees_with_the_cpu(name, small_digits):
    """After one short round: what one device rounds otherwise has not grown yet."""
    method = ALGORITHMS[name]
    scenario = "homogeneous" if method.needs == "architecture" else "heterogeneous"
    small = {"params": {"clusters": 2, "server_epochs": 1, "max_candidates": 2}} if name == "pFedHR" else {}
    losses = []
    for device in ("cpu", "cuda"):
        run = resolved(name, scenario=scenario, device=device, rounds=1, precision="fp32", **small)
        outcome = simulated(run)
        assert outcome.status == "finished"
        losses.append([row["loss"] for row in outcome.client_rows if row["round"] >= 0])
    np.testing.assert_allclose(*losses, rtol=0.05)


def test_products_in_fp32_are_not_rounded_to_tf32():
    """As convolutions are on a GPU unless told otherwise."""
    stream = torch.Generator("cuda").manual_seed(0)
    images, kernel = (
        torch.randn(*shape, generator=stream, device="cuda") for shape in ((8, 64, 16, 16), (64, 64, 3, 3))
    )
    with training.one_thread():
        errors = [
            (ours.double() - exact).norm() / exact.norm()
            for ours, exact in (
                (F.conv2d(images, kernel), F.conv2d(images.double(), kernel.double())),
                (images.flatten(1) @ images.flatten(1).T, images.double().flatten(1) @ images.double().flatten(1).T),
            )
        ]
    assert max(errors) < 1e-5  # TF32: 3e-4


def test_a_layer_without_a_deterministic_kernel_is_named(small_digits):
    models.register("pooled", pooled)
    with pytest.raises(
        FedlibError, match=r"^layer model\.extractor\.1\.1 \(AdaptiveAvgPool2d\): .*deterministic=False"
    ):
        simulated(resolved(scenario="pooled"))
    assert simulated(resolved(scenario="pooled", deterministic=False)).status == "finished"


@pytest.mark.parametrize("text", ["AdamW(amsgrad=True)", "RMSprop", "SGD(nesterov=True)"])
def test_optimisers_of_torch(text, small_digits):
    run = resolved("Standalone", scenario="CNN-5", overrides={"optimiser": text}, schedule="CosineAnnealingLR")
    assert simulated(run).digest() == simulated(run).digest()


def test_the_last_device_of_several(small_digits):
    last = torch.cuda.device_count() - 1
    run = resolved(scenario="CNN-5", device=f"cuda:{last}")
    assert run.key == resolved(scenario="CNN-5").key
    assert simulated(run).clients[0].model.header.weight.device == torch.device("cuda", last)
