"""What FedProx, Per-FedAvg, pFedMe and pFedBayes have in common: whole models are averaged."""

import pytest
import tiny
from steps import LABELS

from fedlib import simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedprox import FedProx
from fedlib.algorithms.per_fedavg import PerFedAvg
from fedlib.algorithms.pfedbayes import PFedBayes
from fedlib.algorithms.pfedme import PFedMe

METHODS = (FedProx(mu=0.3), PerFedAvg(alpha=0.2), PFedMe(lam=2.0, eta=0.1, inner_lr=0.1), PFedBayes(zeta=0.1))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_augmented_batches_reach_the_method(method: Algorithm) -> None:
    runs = [tiny.federation_of(LABELS, augmentation=kind) for kind in ("none", "released")]
    for run in runs:
        simulate(run, method, 1)
    assert not tiny.same_models(*runs)
