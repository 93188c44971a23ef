"""What FedProx, Per-FedAvg, pFedMe and pFedBayes have in common: whole models are averaged."""

import pytest
import tiny
import torch
from steps import LABELS, federation

from fedlib import FedlibError, simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedprox import FedProx
from fedlib.algorithms.per_fedavg import PerFedAvg
from fedlib.algorithms.pfedbayes import PFedBayes
from fedlib.algorithms.pfedme import PFedMe

METHODS = (FedProx(mu=0.3), PerFedAvg(alpha=0.2), PFedMe(lam=2.0, eta=0.1, inner_lr=0.1), PFedBayes(zeta=0.1))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_aggregation_does_not_depend_on_the_order_of_arrival(method: Algorithm) -> None:
    servers = []
    for turn in (1, -1):
        built = federation()
        context = tiny.context(built)
        servers.append(method.init_server(context))
        uploads = tiny.play(method, servers[-1], built, context)
        method.aggregate(servers[-1], uploads[::turn], context)
    for name in servers[0]:
        torch.testing.assert_close(servers[0][name], servers[1][name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_augmented_batches_reach_the_method(method: Algorithm) -> None:
    runs = [tiny.federation_of(LABELS, augmentation=kind) for kind in ("none", "released")]
    for run in runs:
        simulate(run, method, 1)
    assert not tiny.same_models(*runs)


@pytest.mark.parametrize(("classes", "words"), [(10, 5_243_116), (100, 5_333_296)])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_words_a_client_round(method: Algorithm, classes: int, words: int) -> None:
    built = tiny.federation_of([[0, 1, 0]], classes=classes, architectures=["CNN-1"], channels=3)
    context = tiny.context(built)
    download = method.download(method.init_server(context), built.clients[0].info, context)
    upload = tiny.visit(method, built.clients[0], download, built)
    twice = 2 if method.name == "pFedBayes" else 1  # a mean and a spread for every weight
    assert (
        download.words(method.uncounted) + upload.words(method.uncounted)
        == download.words() + upload.words()
        == twice * words
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_needs_one_architecture(method: Algorithm) -> None:
    with pytest.raises(FedlibError, match=f"algorithm = '{method.name}'.*same architecture"):
        simulate(tiny.federation_of(LABELS, architectures=["tiny", "CNN-5"]), method, 1)
