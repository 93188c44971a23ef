"""Every method on data of every kind, shape and dtype, from a RunSpec: it runs, or it refuses in one line that says why."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedlib import Dataset, FedlibError, RunSpec, data, lab, simulate
from fedlib.algorithms import ALGORITHMS
from fedlib.sample import KINDS
from fedlib.simulation import Outcome

SHAPES = {  # of a sample -> its kind and the built-in network for it
    (1, 28, 28): ("image", "CNN-5"),
    (3, 32, 32): ("image", "CNN-5"),
    (3, 64, 64): ("image", "CNN-5"),
    (2, 20, 44): ("image", "CNN-5"),
    (561,): ("vector", "MLP"),
    (1,): ("vector", "MLP"),
    (9, 128): ("series", "CNN-1D"),
    (16,): ("tokens", "fastText"),
}
DTYPES = ("uint8", "float32", "int64")
# Methods with a network of their own, and its name.
SHARED = {"FML": "shared", "FedKD": "shared", "FedMRL": "shared", "FedKEMF": "knowledge"}
CASES = list(itertools.product(ALGORITHMS, SHAPES, DTYPES))
# A method of each kind of exchange, on each kind of data.
SAMPLE = [
    ("FedSSA", (561,), "float32"),
    ("FedAvg", (9, 128), "float32"),
    ("FedGH", (16,), "int64"),
    ("FML", (9, 128), "float32"),
    ("FedMD", (561,), "uint8"),
    ("FedProto", (1, 28, 28), "uint8"),
    ("pFedES", (1, 28, 28), "float32"),
    ("pFedES", (561,), "float32"),
    ("pFedHR", (16,), "int64"),
    ("Standalone", (3, 32, 32), "int64"),
]


def samples(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    stream = np.random.default_rng(0)
    if dtype == "float32":
        return stream.normal(3, 5, (48, *shape)).astype(dtype)
    return stream.integers(0, 200, (48, *shape)).astype(dtype)


def specification(name: str, network: str, **changes) -> RunSpec:
    params = {SHARED[name]: network} if name in SHARED and network not in ("CNN-5", "M3") else {}
    usual = {"rounds": 2, "local_epochs": 1, "batch_size": 8, "classes_per_client": 2, "public_fraction": 0.3}
    if name == "pFedHR":
        usual["params"] = {"clusters": 2, "server_epochs": 1, "max_candidates": 2}
    usual |= {"params": params} if params else {}
    return RunSpec(name, dataset="shaped", scenario=network, num_clients=2, participation=1.0, **usual | changes)


def simulated(run: lab.Resolved) -> Outcome:
    return simulate(lab.federation_of(run), run.simulated, run.spec.rounds, run.spec.participation)


def said(name: str, shape: tuple[int, ...], dtype: str, precision: str) -> str:
    """What a method says where it refuses; empty where it has run and learned finite numbers."""
    kind, network = SHAPES[shape]
    network = "M3" if name == "pFedHR" and kind == "image" else network
    labels, values = np.arange(48) % 4, samples(shape, dtype)
    try:
        made = Dataset.from_arrays("shaped", values[:40], labels[:40], values[40:], labels[40:], 4, kind=kind)
        data.register("shaped", lambda: made)
        resolved = lab.resolve(specification(name, network, precision=precision), "smoke")
        outcome = simulated(resolved)
    except FedlibError as error:
        return str(error)
    assert outcome.status == "finished" and np.isfinite(outcome.round_rows[-1]["accuracy"])
    return ""


def marked(*case: Any) -> Any:
    """What is no sample is slow, and for `make nightly` in bf16, which takes long without instructions for it, and where it trains
    on images, as every method does in other tests too.
    """
    _, shape, dtype, precision = case
    nightly = precision == "bf16" or (SHAPES[shape][0] == "image" and dtype != "int64")
    marks = [] if case[:3] in SAMPLE else pytest.mark.nightly if nightly else pytest.mark.slow
    return pytest.param(*case, marks=marks)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "precision"),
    [marked(*case, precision) for case in CASES for precision in ("fp32", "bf16")],
)
def test_every_method_runs_or_refuses_in_one_line(name, shape, dtype, precision):
    line = said(name, shape, dtype, precision)
    kind = SHAPES[shape][0]
    refused = (dtype == "int64") != (kind == "tokens") and not (kind == "tokens" and dtype == "uint8")
    refused |= kind != "image" and ALGORITHMS[name].needs == "images"
    assert bool(line) == refused, line or "it ran"
    assert "\n" not in line and (not line or any(word in line for word in ("needs images", "images' dtype")))
    if refused and ALGORITHMS[name].needs != "images":
        assert KINDS[kind].dtypes[0] in line


@pytest.mark.parametrize(
    ("name", "scenario", "line"),
    [
        ("FML", "MLP", "FML shared = 'CNN-5': takes images, and these samples are vectors (561,): use MLP"),
        ("FedKD", "MLP", "FedKD shared = 'CNN-5': takes images, and these samples are vectors (561,): use MLP"),
        ("FedKEMF", "MLP", "FedKEMF knowledge = 'CNN-5': takes images, and these samples are vectors (561,): use MLP"),
        ("FedSSA", "heterogeneous", "architecture = 'CNN-1': takes images, and these samples are vectors (561,)"),
        ("FedAvg", "fastText", "architecture = 'fastText': takes token ids, and these samples are vectors (561,)"),
        ("pFedES", "MLP", "algorithm = 'pFedES': needs images, and these samples are vectors (561,)"),
    ],
)
def test_what_is_for_pictures_says_so_before_any_data_are_there(name, scenario, line):
    params = {SHARED[name]: "CNN-5"} if name in SHARED else {}
    with pytest.raises(FedlibError) as error:
        lab.resolve(replace(specification(name, scenario, params=params), dataset="har"), "smoke")
    assert str(error.value).startswith(line)


def test_a_preset_for_pictures_leaves_other_data_as_they_are():
    values, labels = samples((561,), "float32"), np.arange(48) % 4
    data.register("shaped", lambda: Dataset.from_arrays("shaped", values, labels, values[:8], labels[:8]))
    protocol = lab.resolve(specification("Standalone", "MLP", paper="pFedHR"), "smoke").protocol
    assert (protocol.normalise, protocol.augmentation) == ("dataset", "none")
