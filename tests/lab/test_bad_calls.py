"""Mistakes in calls from Python: one line that names the field, before anything is trained or written."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from fedlib import Dataset, Federation, FedlibError, RunSpec, models, partition, run, sweep
from fedlib.algorithms import make
from fedlib.lab import launch, simulate
from fedlib.papers import exhibits
from fedlib.partition import Dealing

DATA = tiny.dataset(num_classes=3, per_class=20)
HELD = [np.arange(0, 20), np.arange(20, 40)]


def built(parts=HELD, data=DATA, **named) -> Federation:
    return Federation(data, parts, ("tiny-a",), **named)


def refused(call, message: str) -> None:
    with pytest.raises(FedlibError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"params": None}, "params = None: must be a dictionary"),
        ({"overrides": ["momentum"]}, "overrides = ['momentum']: must be a dictionary"),
        ({"dataset": ["digits"]}, "dataset = ['digits']: must be text"),
        ({"dataset": "../../evil"}, "dataset = '../../evil' is unknown"),
        ({"algorithm": None}, "algorithm = None: must be given"),
        ({"algorithm": ["FedSSA"]}, "algorithm = ['FedSSA']: must be text"),
        ({"seed": None}, "seed = None: must be given"),
        ({"seed": [0]}, "seed = [0]: must be a whole number"),
        ({"batch_size": 2**63}, "batch_size = 9223372036854775808: must be below 2**31"),
    ],
)
def test_fields_of_a_specification(fields, message, home):
    refused(lambda: run(RunSpec(**fields)), message)
    refused(lambda: sweep([RunSpec(**fields)]), message)
    assert not home.exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: run("FedSSA"), "spec = 'FedSSA': must be a RunSpec"),
        (lambda: sweep(RunSpec()), "must be a list of RunSpec"),
        (lambda: sweep("FedSSA"), "specs = 'FedSSA': must be a list of RunSpec"),
        (lambda: sweep(["FedSSA"]), "spec = 'FedSSA': must be a RunSpec"),
        (lambda: sweep([RunSpec()], jobs="two"), "jobs = 'two': must be a whole number"),
        (lambda: sweep([RunSpec()], jobs=0), "jobs = 0: must be at least 1"),
        (lambda: sweep([RunSpec()], each=3), "each = 3: must be a function of how many runs remain, or None"),
        (lambda: simulate(built(), "FedSSA", 1), "algorithm = 'FedSSA': must be a method"),
        (lambda: simulate("digits", make("FedSSA"), 1), "federation = 'digits': must be a Federation"),
        (lambda: simulate(built(), make("FedSSA"), "many"), "rounds = 'many': must be a whole number"),
        (lambda: simulate(built(), make("FedSSA"), 1, None), "participation = None: must be a number"),
        (lambda: simulate(built(), make("FedSSA"), 1, checkpoint=7), "checkpoint = 7: must be the path of a file"),
        (lambda: simulate(built(), make("FedSSA"), 1, checkpoint="."), "checkpoint = '.': must be the path of a file"),
        (lambda: exhibits.cells("fedssa/table1", "smoke", seeds=[0, 1, 0]), "seeds = [0, 1, 0]: must be different"),
        (lambda: partition.iid([np.zeros(9)], 0, None), "num_clients = 0: must be at least 1"),
        (lambda: partition.dirichlet([np.zeros(9, int)], 2, None, None, [3]), "alpha = None: must be a number"),
        (lambda: partition.by_class([np.zeros(9, int)], 0, 1, 1, None), "num_clients = 0: must be at least 1"),
        (lambda: partition.dirichlet([np.zeros(9, int)], 2, 0, None, [3]), "alpha = 0.0: must be above 0"),
        (lambda: partition.by_class([LABELS], 5, 3, 0, None), "classes_per_client = 0: must be between 1 and 3"),
        (lambda: partition.by_class([LABELS], 5, 3, 4, None), "classes_per_client = 4: must be between 1 and 3"),
        (lambda: partition.local_split(LABELS, HELD[0][:2], None), "images of a client = 2: must be at least 3"),
        (lambda: partition.client_images(LABELS, 6, Dealing(3, 2, "iid"), 0), "client 0 would hold 2"),
    ],
)
def test_arguments(call, message, home, monkeypatch):
    monkeypatch.setitem(exhibits.GRIDS, "fedssa/table1", next(iter(exhibits.GRIDS.values())))
    refused(call, message)
    assert not home.exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: built(precision="fp16"), "precision = 'fp16' is unknown"),
        (lambda: built(local_epochs=0), "local_epochs = 0: must be above 0"),
        (lambda: built(local_epochs=-1), "local_epochs = -1: must be above 0"),
        (lambda: built(local_epochs="half"), "local_epochs = 'half': must be a number"),
        (lambda: built(batch_size=2**63), "batch_size = 9223372036854775808: must be between 1"),
        (lambda: built(seed=None), "seed = None: must be a whole number"),
        (lambda: built(seed=-1), "seed = -1: must be between 0"),
        (lambda: built(device="gpu9"), "device = 'gpu9': must be cpu, cuda"),
        (lambda: built(protocol="paper"), "protocol = 'paper': must be a Protocol"),
        (lambda: built(data="digits"), "dataset = 'digits': must be a Dataset"),
        (lambda: Federation(DATA, HELD, "tiny-a"), "architectures = 'tiny-a': must be a list of names"),
        (lambda: Federation(DATA, HELD, []), "architectures = []: must be a list of names"),
        # who holds what
        (lambda: built(None), "partition = None: must be a list"),
        (lambda: built([]), "partition = []: must be a list"),
        (lambda: built([5]), "partition: client 0 = 'int64 ()': must be an array (n,) of whole numbers"),
        (lambda: built([[[0, 1], [2, 3]]]), "partition: client 0 = 'int64 (2, 2)': must be an array (n,)"),
        (lambda: built([np.arange(20.0)]), "partition: client 0 = 'float64 (20,)': must be an array (n,) of whole"),
        (lambda: built([np.ones(60, bool)]), "partition: client 0 = 'bool (60,)': must be an array (n,) of whole"),
        (lambda: built([np.arange(-5, 5)]), "partition: client 0 = -5: must be within 0..59"),
        (lambda: built([HELD[0], np.arange(55, 61)]), "partition: client 1 = 60: must be within 0..59"),
        (lambda: built([(HELD[0], HELD[1])]), "partition: parts of client 0 = 2: must be train, validation and test"),
        (lambda: built([HELD[0], np.arange(19, 40)]), "image 19 is held twice, by client 0 and by client 1"),
        (lambda: built([np.array([0, 1, 2, 3, 1])]), "image 1 is held twice, by client 0 and by client 0"),
        (
            lambda: built([(np.arange(9), np.arange(8, 12), np.arange(20, 22))]),
            "image 8 is held twice, by client 0 and by client 0",
        ),
        (lambda: built([np.arange(5), np.arange(5, 7)]), "that each holds 3 images or more; client 1 would hold 2"),
        (lambda: built([([], [1], [2])]), "an image of each part of split local-8:1:1; client 0 would hold (0, 1, 1)"),
        (lambda: built(public=np.arange(39, 45)), "image 39 is held twice, by client 1 and by the public data"),
        (lambda: built(public=np.arange(55, 65)), "public = 64: must be within 0..59"),
        (lambda: built(public="all"), "public = '<U3 ()': must be an array (n,) of whole numbers"),
        (lambda: built(public=[0], public_dataset="digits"), "public_dataset = 'digits': must be a Dataset"),
    ],
)
def test_federations(call, message):
    refused(call, message)


def test_public_images_of_another_set_may_have_the_clients_indices():
    assert built(public=[0, 1, 2], public_dataset=tiny.dataset()).public.indices.tolist() == [0, 1, 2]
    assert built(public=torch.arange(40, 45)).public.indices.tolist() == [40, 41, 42, 43, 44]


IMAGES = np.zeros((6, 1, 32, 32), np.uint8)
LABELS = np.arange(6) % 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES, LABELS + 0.5, IMAGES, LABELS), "own: train labels = 'torch.float64': must be whole numbers"),
        ((IMAGES, LABELS, IMAGES, np.full(6, np.nan)), "own: test labels = 'torch.float64': must be whole numbers"),
        ((IMAGES, LABELS[:, None], IMAGES, LABELS), "own: train labels' shape = (6, 1): must be (n,)"),
        ((IMAGES, np.eye(6), IMAGES, LABELS), "own: train labels' shape = (6, 6): must be (n,)"),
        ((IMAGES, LABELS, IMAGES, list("abcabc")), "own: test labels: must be an array of numbers"),
        ((None, LABELS, IMAGES, LABELS), "own: train images: must be an array of numbers"),
        ((IMAGES[:0], LABELS[:0], IMAGES, LABELS), "own: number of train images = 0: must be at least 1"),
        ((IMAGES / 255, LABELS, IMAGES, LABELS), "own: test images' dtype = 'torch.uint8': must be torch.float32"),
        (
            (IMAGES, LABELS, IMAGES[:, 0], LABELS),
            "own: test images' shape = (6, 32, 32): must be (n, channels, height,",
        ),
        ((IMAGES, LABELS, IMAGES[:, :, :8], LABELS), "own: shape of a test image = (1, 8, 32): must be (1, 32, 32)"),
        ((IMAGES, LABELS, IMAGES.repeat(3, 1), LABELS), "own: test images' channels = 3: must be 1"),
        ((IMAGES, LABELS, IMAGES, LABELS, 3.5), "own: num_classes = 3.5: must be a whole number"),
        ((IMAGES, LABELS, IMAGES, LABELS, 0), "own: labels = [0, 1, 2]: must be within"),
        ((IMAGES.astype(int), LABELS, IMAGES, LABELS), "own: train images' dtype = 'torch.int64': must be torch.uint8"),
        ((IMAGES[:, 0], LABELS, IMAGES, LABELS), "own: train images' shape = (6, 32, 32): must be (n, channels"),
        (
            (IMAGES.transpose(0, 2, 3, 1), LABELS, IMAGES, LABELS),
            "own: train images' shape = (6, 32, 32, 1): must be (n, channels, height, width): x.transpose(0, 3, 1, 2) of an",
        ),
        (
            (np.ones((6, 128, 9)), LABELS, IMAGES, LABELS),
            "own: train images' shape = (6, 128, 9): must be (n, channels, length): x.transpose(0, 2, 1) of an array",
        ),
        ((IMAGES[:, :, :0], LABELS, IMAGES, LABELS), "own: train images' shape = (6, 1, 0, 32): must be (n, channels"),
        ((IMAGES, np.zeros(7, int), IMAGES, np.zeros(5, int)), "own: number of train labels = 7: must be 6"),
        ((IMAGES, LABELS - 1, IMAGES, LABELS - 1), "own: labels = [-1, 0, 1]: must be within 0..1"),
        ((IMAGES, LABELS + 1, IMAGES, LABELS, 3), "own: labels = [0, 1, 2, 3]: must be within 0..2"),
    ],
)
def test_data_of_ones_own(arguments, message):
    refused(lambda: Dataset.from_arrays("own", *arguments), message)


def test_whole_labels_of_any_type_are_taken():
    for labels in (LABELS.astype(float), LABELS.astype(np.uint8), torch.as_tensor(LABELS), LABELS.tolist()):
        assert Dataset.from_arrays("own", IMAGES, labels, IMAGES[:0], labels[:0]).labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_an_iterator_is_swept_once(small_digits, monkeypatch):
    monkeypatch.setitem(models.SCENARIOS, "tiny", ("tiny-a",))
    specs = [RunSpec(scenario="tiny", num_clients=5, rounds=1, seed=seed) for seed in (0, 1)]
    monkeypatch.setattr(launch, "_in_workers", lambda *arguments: [])  # trained here: a worker knows no tiny networks
    records = sweep((spec for spec in specs), jobs="2", progress=False)
    assert [record.spec.seed for record in records] == [0, 1]


@pytest.mark.thorough
def test_what_a_worker_cannot_train_is_an_error_of_the_sweep_that_names_the_run(home):
    spec = RunSpec("Standalone", dataset="digits", partition="dirichlet", alpha=0.01, num_clients=300, rounds=1)
    with pytest.raises(
        FedlibError, match=r"^Standalone on digits and 1 more: alpha = 0\.01: none of 100 Dirichlet draws"
    ):
        sweep([spec, replace(spec, rounds=2)], jobs=1, progress=False)
