"""Networks and optimisers on a GPU, and on which: shown without one, see `pretend`. Every method: test_contract.py."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pretend
import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedlib import (
    ALGORITHMS,
    Federation,
    FedlibError,
    RunSpec,
    devices,
    lab,
    models,
    simulate,
    training,
)
from fedlib.lab import launch, places


def test_what_is_waited_for_does_not_grow_with_the_classes(small_digits):
    """One wait for the numbers of rows of all of them."""
    for name in ("FedSSA", "FedProto"):
        method = ALGORITHMS[name]()
        with pretend.Cuda(type(method).aggregate) as cuda:
            spec = RunSpec(name, num_clients=4, rounds=1, batch_size=16, scenario="CNN-5", device="cuda")
            simulate(lab.federation_of(lab.resolve(spec)), method, 1, 0.5)
        assert cuda.waits_inside["aggregate"].total() == 1, cuda.waits_inside


def notebooks_method(change: str = "", to: str = "") -> Any:
    """Notebook 01's own method, from its cells, with one word in another's place."""
    cells = json.loads(Path(places.shipped(), "notebooks/01_your_own_method.ipynb").read_text())["cells"]
    sources = ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]
    (imports,) = [source.partition("settings = ")[0] for source in sources if "import torch" in source]
    source = "\n".join([imports, *(source for source in sources if "class Counted" in source)])
    known: dict[str, Any] = {"__name__": "__main__"}
    assert change in source
    exec(compile(source.replace(change, to), "<cell>", "exec"), known)
    return known["Counted"]()


@pytest.mark.thorough(None)
def test_the_notebooks_own_method_runs_on_a_gpu(small_digits):
    assert not pretend.simulated(notebooks_method(), algorithm="Standalone", scenario="CNN-5").waits_inside["train"]
    on_cpu = notebooks_method('server["weight"].new_zeros(', "torch.zeros(")
    with pytest.raises(Exception, match=r"aggregate in round 0: RuntimeError: .* same device: index_add_"):
        pretend.simulated(on_cpu, algorithm="Standalone", scenario="CNN-5")


# Networks of today, beside a ResNet that is small: no step of any waits or copies, and each has deterministic kernels.
ZOO = [name for name, kind in models.ZOO.items() if kind == "image"]
SMALLEST = ("MobileNet-V3-S", "ViT-T")  # of their families; the others take up to minutes


def marked(name):
    marks = [] if name == "ResNet-4" else pytest.mark.slow if name in SMALLEST else pytest.mark.nightly
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [marked(name) for name in ZOO])
def test_a_network_of_today_trains_on_a_gpu_and_does_not_wait_for_it(name, small_digits):
    cuda = pretend.simulated(ALGORITHMS["FedProto"](), algorithm="FedProto", scenario=f"{name},ResNet-4")
    assert not cuda.waits_inside["train"] and not cuda.waits_inside["step"], cuda.waits_inside
    assert not cuda.copies_inside["step"], cuda.copies_inside


@pytest.mark.thorough(None)
def test_optimisers_of_torch_and_schedules_do_not_wait_for_a_gpu(small_digits):
    for text in ("AdamW(amsgrad=True)", "RMSprop", "SGD(nesterov=True)"):
        asked = {"overrides": {"optimiser": text}, "schedule": "CosineAnnealingLR", "local_epochs": 0.5}
        cuda = pretend.simulated(ALGORITHMS["Standalone"](), algorithm="Standalone", scenario="CNN-5", **asked)
        assert not cuda.waits_inside["step"], (text, cuda.waits_inside["step"])
        assert not cuda.copies_inside["step"], (text, cuda.copies_inside["step"])


# --------------------------------------------------------------------------------------------------- which device


def pooled(num_classes: int, channels: int) -> models.Model:
    layers = [nn.Conv2d(channels, 4, 3), nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(2)), nn.Flatten()]
    return models.Model(nn.Sequential(*layers), nn.Linear(16, num_classes))


def test_a_layer_without_a_deterministic_kernel_is_named_and_trains_where_that_is_asked_for(small_digits):
    models.register("pooled", pooled)
    named = r"^layer model\.extractor\.1\.1 \(AdaptiveAvgPool2d\): _adaptive_avg_pool2d_backward does not have .*deterministic=False"
    with pytest.raises(FedlibError, match=named) as error:
        pretend.simulated(ALGORITHMS["Standalone"](), algorithm="Standalone", scenario="pooled")
    assert "\n" not in str(error.value) and not torch.are_deterministic_algorithms_enabled()
    pretend.simulated(ALGORITHMS["Standalone"](), algorithm="Standalone", scenario="pooled", deterministic=False)


def test_the_second_gpu_and_several(small_digits):
    asked = {"algorithm": "Standalone", "scenario": "CNN-5", "num_clients": 3}
    with pretend.Cuda():
        keys = {
            name: lab.resolve(RunSpec(device=name, **asked)).key
            for name in ("cuda", "cuda:1", "cuda:0, cuda:1", "auto")
        }
        assert len(set(keys.values())) == 1 and keys["cuda"] != lab.resolve(RunSpec(**asked)).key
        resolved = lab.resolve(RunSpec(device="cuda:1,cuda:0", **asked))
        assert lab.federation_of(resolved).pool.stored.device == torch.device("cuda:1")
        for given, said in {
            "cuda,cpu": "device = 'cuda,cpu': must be devices of one kind",
            "cuda:1,cuda:1": "device = 'cuda:1,cuda:1': must be different devices",
            "gpu": "device = 'gpu': must be cpu, cuda",
        }.items():
            with pytest.raises(FedlibError, match=f"^{said}"):
                lab.resolve(RunSpec(device=given, **asked))
        with pytest.raises(FedlibError, match=r"^device = 'cuda:2': must be cpu, cuda, one of several"):
            lab.run(RunSpec(device="cuda:2", **asked))
        specs = [RunSpec(device="cuda:0,cuda:7", seed=seed, **asked) for seed in (0, 1)]
        with pytest.raises(FedlibError, match=r"^device = 'cuda:7': must be cpu, cuda, one of several"):
            lab.sweep(specs)
    with pytest.raises(FedlibError, match="deterministic = False: must be true but on CUDA"):
        lab.resolve(RunSpec(deterministic=False, **asked))


@pytest.mark.thorough(None)
def test_apples_gpu_which_has_no_float64(small_digits):
    asked = {"num_clients": 4, "participation": 0.5, "batch_size": 16, "metrics": "auc", "rounds": 1}
    with pretend.Cuda():
        with pytest.raises(TypeError, match="Cannot convert a MPS Tensor to float64"):
            torch.zeros(3, dtype=torch.float64, device="mps")
        for name in ("FedSSA", "FedProto", "FD"):
            run = lab.resolve(RunSpec(name, device="mps", **asked))
            outcome = simulate(lab.federation_of(run), run.simulated, 1, 0.5)
            assert outcome.status == "finished" and outcome.clients[0].train.device.type == "mps"


def test_workers_take_several_gpus_in_turn():
    assert [launch._turn("cuda:0,cuda:1,cuda:2", worker) for worker in range(5)] == [
        f"cuda:{k}" for k in (0, 1, 2, 0, 1)
    ]
    assert launch._turn("cpu", 3) == "cpu"


# ------------------------------------------------------------------------------------------------- planted faults

DRAWS = torch.Generator()
FAULTS = {  # what is wrong with a term of a loss: the term, and what is said of it or counted
    "a table on the CPU": (lambda m, x, y: x.mean() * torch.ones(3).index_select(0, y).mean(), "device: index_select"),
    "weights on the CPU": (lambda m, x, y: F.cross_entropy(m(x), y, torch.ones(3)), "device: nll_loss"),
    "a layer on the CPU": (lambda m, x, y: nn.Linear(3, 3)(m.extractor(x)).mean(), "device: addmm"),
    "a number on the CPU, stacked": (lambda m, x, y: torch.stack([x.mean(), torch.zeros(())]).sum(), "device: stack"),
    "a sum on the CPU": (lambda m, x, y: torch.zeros(()).add_(x.mean()), "device: add_"),
    "a CPU generator's draw": (lambda m, x, y: (x * torch.rand(x.shape, generator=DRAWS)).mean(), "device: mul"),
    "a CPU generator there": (lambda m, x, y: torch.rand(3, generator=DRAWS, device=x.device).sum(), "found 'cpu'"),
    "a CPU generator in place": (lambda m, x, y: x.clone().normal_(generator=DRAWS).mean(), "found 'cpu'"),
    "numpy": (lambda m, x, y: torch.tensor(np.mean(np.asarray(x))), "to numpy"),
    "no kernel: average pooling": (lambda m, x, y: F.adaptive_avg_pool2d(maps(m, x), 2).mean(), "_adaptive_avg_pool2d_back"),
    "no kernel: resizing": (lambda m, x, y: F.interpolate(maps(m, x), (8, 8), mode="bilinear").mean(), "upsample_bilinear2d_b"),
    "no kernel: padding": (lambda m, x, y: F.pad(maps(m, x), (1, 1, 1, 1), "reflect").mean(), "reflection_pad2d_backward"),
    "no kernel: running sums": (lambda m, x, y: m(x).cumsum(1).mean(), "cumsum does not have a deterministic"),
    "no kernel: a median": (lambda m, x, y: m(x).median(1).values.mean(), "median does not have a deterministic"),
    "item": (lambda m, x, y: x.mean().item() * m(x).mean(), "waits"),
    "if": (lambda m, x, y: m(x).mean() if x.mean() > 0 else m(x).sum(), "waits"),
    "float": (lambda m, x, y: m(x).mean() * float(x.mean()), "waits"),
    "tolist": (lambda m, x, y: m(x).mean() * sum(y.tolist()), "waits"),
    "unique": (lambda m, x, y: m(x).mean() * len(y.unique()), "waits"),
    "a mask": (lambda m, x, y: m(x)[y > 0].sum(), "waits"),
    "nonzero": (lambda m, x, y: m(x).mean() * len((y > 0).nonzero()), "waits"),
    "cpu": (lambda m, x, y: m(x).mean() * x.mean().cpu(), "waits"),
    "a tensor a step": (lambda m, x, y: torch.tensor([1.0, 2.0, 3.0], device=x.device)[y].mean(), "copies"),
    "a table moved each step": (lambda m, x, y: torch.ones(3).to(x.device)[y].mean(), "copies"),
    "indices from the CPU": (lambda m, x, y: m(x)[torch.arange(2)].mean(), "copies"),
}  # fmt: skip


def maps(model: Any, images: Tensor) -> Tensor:
    """(n, 3, 4, 4), which gradients flow through."""
    return model.extractor(images)[:, :, None, None].expand(-1, -1, 4, 4)


def trained(term: Any) -> pretend.Cuda:
    """A step on a loss with a further term."""

    def loss(model: Any, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images), labels) + term(model, images, labels)

    with pretend.Cuda(training.step) as cuda, devices.deterministic(torch.device("cuda")):
        federation = Federation(tiny.dataset(), [np.arange(24)], ["tiny-a"], device="cuda")
        assert federation.client_context(0).train(loss).device.type == "cuda"
    return cuda


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    term, said = FAULTS[fault]
    if said not in ("waits", "copies"):
        with pytest.raises(
            (RuntimeError, TypeError, FedlibError), match=rf"{said}.*\((tests/test_gpu|fedlib/training).py:\d+\)"
        ):
            trained(term)
        return
    cuda = trained(term)
    found = {"waits": cuda.waits_inside["step"], "copies": cuda.copies_inside["step"]}[said]
    assert any(place.startswith("tests/test_gpu.py:") for place in found), found  # its gradient may wait too


def test_what_is_no_fault_is_not_found():
    """A number joins what is on the device, whatever Python's or a tensor's; the rest is made where its arguments are."""

    def term(model, images, labels):
        table = torch.zeros_like(model.header.weight)
        table[0], table[1, 1:] = 1.0, labels.new_ones(2)
        scale = torch.ones(()) * 2
        filled = torch.where(images > 0, images, 0.0).masked_fill(images > 1, 1.0)
        filled[images > 2] = 2.0
        return scale * (F.dropout(model.extractor(filled)) * table[labels]).mean() + images.new_tensor(0.0)

    cuda = trained(term)
    assert not cuda.waits_inside["step"] and not cuda.copies_inside["step"], (cuda.waits_inside, cuda.copies_inside)


def test_devices_are_claimed_by_storage():
    with pretend.Cuda() as cuda:
        here, there = torch.ones(3), torch.ones(3, device="cuda:1")
        assert (here.device.type, there.device.index, there.is_cuda, there[1:].data.is_cpu) == ("cpu", 1, True, False)
        assert there.to(here).device == here.device and here.to(there, copy=True).device == there.device
        assert here.cuda().device.index == 0 and there.cpu().device.type == "cpu"
        with pytest.raises(RuntimeError, match="same device"):
            there + here.cuda()
        here.copy_(there)
        assert here.device.type == "cpu"
    assert (cuda.waits.total(), cuda.copies.total()) == (3, 3)
