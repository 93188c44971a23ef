"""Without its own terms a method is a simpler one, to the bit."""

import dataclasses
from typing import Any

import pytest
import tiny
from tiny import LABELS

from fedlib import simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.ditto import Ditto
from fedlib.algorithms.fd import FD
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.fedclassavg import FedClassAvg
from fedlib.algorithms.fedkemf import FedKEMF
from fedlib.algorithms.fedproto import FedProto
from fedlib.algorithms.fedprox import FedProx
from fedlib.algorithms.fedtgp import FedTGP
from fedlib.algorithms.fml import FML
from fedlib.algorithms.lg_fedavg import LGFedAvg
from fedlib.algorithms.pfedbayes import PFedBayes
from fedlib.algorithms.pfedes import PFedES
from fedlib.algorithms.standalone import Standalone

WITHOUT = [  # method, its other hyper-parameters, those without which it is simpler, and what it then is
    (Ditto, {}, {"lam": 0.0}, Standalone),
    *((FD, {"distance": distance, "outputs": outputs}, {"gamma": 0.0}, Standalone)
      for distance in ("cross_entropy", "mse") for outputs in ("softmax", "logits")),
    (FedKEMF, {"knowledge": "tiny"}, {"weight": 0.0}, Standalone),
    (FedKEMF, {"knowledge": "tiny", "distance": "mse"}, {"weight": 0.0}, Standalone),
    (FedProto, {}, {"lam": 0.0}, Standalone),
    (FedTGP, {"server_epochs": 2}, {"lam": 0.0}, Standalone),
    (FML, {"shared": "tiny"}, {"alpha": 1.0}, Standalone),
    (PFedES, {}, {"mu": 0.0}, Standalone),
    (PFedBayes, {}, {"zeta": 0.0, "noise": 0.0}, Standalone),
    (FedClassAvg, {}, {"rho": 0.0}, LGFedAvg),
    (FedProx, {}, {"mu": 0.0}, FedAvg),
]  # fmt: skip


@pytest.mark.parametrize(("method", "others", "nothing", "simpler"), WITHOUT)
def test_without_its_terms_a_method_is_a_simpler_one(
    method: type[Algorithm], others: dict[str, Any], nothing: dict[str, Any], simpler: type[Algorithm]
) -> None:
    """Two epochs of small batches, gradients clipped; of two architectures where that may be."""
    networks = ("tiny-a",) if method.needs == "architecture" else ("tiny-a", "tiny-b")
    runs = [tiny.federation_of(LABELS, architectures=networks, public=6, clip_norm=0.2) for _ in range(3)]
    for built, each in zip(runs, (method(**others | nothing), simpler(), method(**others)), strict=True):
        built.settings = dataclasses.replace(built.settings, epochs=2, batch_size=2)
        simulate(built, each, 3)
    assert tiny.same_models(runs[0], runs[1]) and not tiny.same_models(runs[1], runs[2])
