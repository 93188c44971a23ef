"""Hyper-parameters: wrong ones are refused, without its own terms a method is a simpler one, defaults are the papers'."""

import dataclasses
from typing import Any

import pytest
import tiny
from tiny import LABELS

from fedlib import ALGORITHMS, FedlibError, simulate
from fedlib.algorithms import make

WRONG: dict[str, dict[str, list[Any]]] = {
    "FCCL": {"off_diagonal": [-1.0], "intra": [-1.0], "inter": [-1.0], "public_lr": [-1.0], "pretrain_epochs": [0]},
    "FD": {"gamma": [-1.0], "distance": ["kl"], "outputs": ["raw"]},
    "FML": {"shared": ["CNN-6"]},
    "FedClassAvg": {"rho": [-0.1], "reduction": ["max"], "contrast": [-1.0], "temperature": [0.0]},
    "FedGH": {"server_update": ["x"], "first_header": ["x"], "lars": ["x"]},
    "FedKD": {"shared": ["CNN-6"], "reduction": ["mean"]},
    "FedKEMF": {
        "knowledge": ["CNN-9"], "weight": [-1.0], "distance": ["l1"], "temperature": [0.0], "label_weight": [1.0],
        "server_epochs": [-1],
    },
    "FedMD": {"public_samples": [0], "digest_epochs": [0], "pretrain_epochs": [-1]},
    "FedProx": {"mu": [-0.1]},
    "FedSSA": {"fusion": ["x"], "aggregate_over": ["x"], "aggregation": ["x"], "replace": ["x"]},
    "pFedBayes": {"beta": [1.5]},
    "pFedES": {"mu": [-0.1, 1.5], "extractor_epochs": [-1], "extra_epochs": [-1], "output": ["tanh"]},
    "pFedHR": {
        "clusters": [0], "weight": [-1.0], "kd": ["mse"], "teacher": ["never"], "search": ["random"], "max_candidates": [0],
        "crop": [0.0], "stitch_layers": [4], "cka_samples": [-1], "temperature": [0.0], "activations": ["some"],
    },
    "pFedMe": {"inner_steps": [0]},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hyper_parameter_is_one_line_with_its_name_and_value(name):
    for field, values in WRONG[name].items():
        for value in values:
            with pytest.raises(FedlibError, match=rf"^{field} = {value!r}( is unknown|: must be)") as error:
                ALGORITHMS[name](**{field: value})
            assert "\n" not in str(error.value)


WITHOUT: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    # method, its other hyper-parameters, those without which it is simpler, and what it then is
    ("Ditto", {}, {"lam": 0.0}, "Standalone"),
    ("FD", {"distance": "cross_entropy", "outputs": "softmax"}, {"gamma": 0.0}, "Standalone"),
    ("FD", {"distance": "cross_entropy", "outputs": "logits"}, {"gamma": 0.0}, "Standalone"),
    ("FD", {"distance": "mse", "outputs": "softmax"}, {"gamma": 0.0}, "Standalone"),
    ("FD", {"distance": "mse", "outputs": "logits"}, {"gamma": 0.0}, "Standalone"),
    ("FedKEMF", {"knowledge": "tiny"}, {"weight": 0.0}, "Standalone"),
    ("FedKEMF", {"knowledge": "tiny", "distance": "mse"}, {"weight": 0.0}, "Standalone"),
    ("FedProto", {}, {"lam": 0.0}, "Standalone"),
    ("FedTGP", {"server_epochs": 2}, {"lam": 0.0}, "Standalone"),
    ("FML", {"shared": "tiny"}, {"alpha": 1.0}, "Standalone"),
    ("pFedES", {}, {"mu": 0.0}, "Standalone"),
    ("pFedBayes", {}, {"zeta": 0.0, "noise": 0.0}, "Standalone"),
    ("FedClassAvg", {}, {"rho": 0.0}, "LG-FedAvg"),
    ("FedProx", {}, {"mu": 0.0}, "FedAvg"),
]


@pytest.mark.parametrize(("name", "others", "nothing", "simpler"), WITHOUT)
def test_without_its_terms_a_method_is_a_simpler_one(name, others, nothing, simpler):
    """Two epochs of small batches, gradients clipped; of two architectures where that may be."""
    networks = ("tiny-a",) if ALGORITHMS[name].needs == "architecture" else ("tiny-a", "tiny-b")
    runs = [tiny.federation_of(LABELS, architectures=networks, public=6, clip_norm=0.2) for _ in range(3)]
    for built, each in zip(runs, (make(name, others | nothing), make(simpler), make(name, others)), strict=True):
        built.settings = dataclasses.replace(built.settings, epochs=2, batch_size=2)
        simulate(built, each, 3)
    assert tiny.same_models(runs[0], runs[1]) and not tiny.same_models(runs[1], runs[2])


def test_their_defaults_are_their_papers():
    """Values that the texts, or the authors' scripts where these are silent, name."""
    named = {
        "FedTGP": {"lam": 0.1, "tau": 100.0, "server_epochs": 100},
        "FedMRL": {"m_small": 1.0, "m_large": 1.0, "shared": "CNN-5"},
        "FedRep": {"head_epochs": 10},
        "Ditto": {"lam": 1.0},
        "FedBABU": {"tune_epochs": 5},
        "FedGen": {"weight": 1.0, "noise": 32, "hidden": 256},
        "FedL2G": {"warm_up": 50 / 1000},
    }
    for name, values in named.items():
        assert dataclasses.asdict(make(name)).items() >= values.items(), name
