"""Public data: who gets a public set, that no client holds it, and what happens without one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from fedlib import ALGORITHMS, Dataset, Federation, FedlibError, RunSpec, data, lab, partition, randomness, simulate
from fedlib.algorithms.base import Algorithm, Message


@dataclass(frozen=True)
class Spy(Algorithm):
    """Trains nothing; wants unlabelled public data."""

    name = "Spy"
    paper = "a test"
    exchanges = "nothing"
    public_data = "unlabelled"

    def local_round(self, client, message, context):
        return Message(diagnostics={"public_images": len(context.public.indices)})


@dataclass(frozen=True)
class LabelledSpy(Spy):
    name = "LabelledSpy"
    public_data = "labelled"


@pytest.fixture(autouse=True)
def spies(registries: None) -> None:
    ALGORITHMS.update({spy.name: spy for spy in (Spy, LabelledSpy)})


SPEC = RunSpec(algorithm="Spy", dataset="digits", num_clients=5, rounds=1)


def toy(name: str, channels: int, classes: int = 2, images: int = 12) -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (images, channels, 32, 32), dtype=np.uint8)
    labels = np.arange(images) % classes
    return Dataset.from_arrays(name, pixels, labels, pixels[:3], labels[:3], classes)


def test_hold_out_takes_a_tenth_of_every_class() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 10])
    held = partition.hold_out(labels, 0.1, randomness.generator(0, "public"))
    assert np.bincount(labels[held]).tolist() == [10, 5, 1]
    assert len(np.unique(held)) == 16


@pytest.mark.parametrize("how", ["by-class", "dirichlet", "iid"])
def test_no_client_holds_a_public_image(how: str) -> None:
    resolved = lab.resolve(replace(SPEC, partition=how))
    federation = lab.federation_of(resolved)
    held = torch.cat([torch.cat([c.train, c.validation, c.test]) for c in federation.clients])
    public = federation.public.indices
    assert len(public) == round(0.1 * resolved.data.num_train) and int(public.max()) < resolved.data.num_train
    assert not set(public.tolist()) & set(held.tolist())
    assert len(held.unique()) == len(held) == len(resolved.data.labels) - len(public)
    # the same public images whatever the partition, other ones for another seed
    assert torch.equal(public, torch.from_numpy(lab.public_of(lab.resolve(SPEC))))
    assert not torch.equal(public, torch.from_numpy(lab.public_of(lab.resolve(replace(SPEC, seed=1)))))


def test_the_method_sees_the_public_set() -> None:
    resolved = lab.resolve(SPEC)
    rounds = lab.rounds_of(simulate(lab.federation_of(resolved), resolved.algorithm, 1))
    assert rounds["public_images"].iloc[-1] == round(0.1 * resolved.data.num_train)


def test_only_methods_with_public_data_have_it_in_their_key() -> None:
    plain = [RunSpec(algorithm="Standalone", dataset="digits", public_fraction=f, public_dataset=d)
             for f, d in ((0.1, None), (0.3, None), (0.1, "digits100"))]  # fmt: skip
    assert len({lab.resolve(spec).key for spec in plain}) == 1
    assert lab.federation_of(lab.resolve(plain[0])).public is None
    changes: list[dict[str, Any]] = [
        {}, {"public_fraction": 0.3}, {"public_dataset": "digits100"}, {"public_images": 50}, {"public_labels": False},
        {"public_dataset": "digits100", "public_fraction": 0.3},
    ]  # fmt: skip
    spied = [replace(SPEC, **change) for change in changes]
    assert len({lab.resolve(spec).key for spec in spied}) == 6


def test_another_data_set_stands_in_for_the_public_part_and_is_adapted() -> None:
    resolved = lab.resolve(replace(SPEC, public_dataset="digits100"))
    federation = lab.federation_of(resolved)
    other = data.load("digits100")
    public = federation.public
    assert len(public.indices) == 0.1 * other.num_train and int(public.indices.max()) < other.num_train
    assert (torch.bincount(other.labels[public.indices]) == 2).all()  # the same part of each class
    assert torch.equal(public.pool.images, other.images) and torch.equal(public.pool.labels, other.labels)
    own = lab.federation_of(lab.resolve(SPEC))
    assert all(torch.equal(a.train, b.train) for a, b in zip(federation.clients, own.clients, strict=True))

    grey, colour = toy("grey", 1), toy("colour", 3)
    clients = [np.arange(15)]
    public = Federation(colour, clients, public=np.arange(12), public_dataset=grey).public
    assert torch.equal(public.pool.images[:, 2], grey.images[:, 0])  # repeated
    batch = public.pool.batch(public.indices)
    expected = (grey.images[:12, 0].double() / 255 - colour.mean[1]) / colour.std[1]  # normalised as the clients' are
    assert torch.allclose(batch[:, 1].double(), expected, atol=1e-5)
    averaged = Federation(grey, clients, public=np.arange(12), public_dataset=colour).public.pool.images
    assert torch.equal(averaged[:, 0], colour.images.double().mean(1).round().to(torch.uint8))


@pytest.mark.parametrize("changed", ["digits-inverted", "digits-noisy", "digits-rotated"])
def test_changed_digits_are_public_as_changes_of_images_that_no_client_holds(changed: str) -> None:
    resolved = lab.resolve(replace(SPEC, public_dataset=changed))
    federation = lab.federation_of(resolved)
    indices = federation.public.indices  # of both sets: image i of one is image i of the other, changed
    assert torch.equal(indices, lab.federation_of(lab.resolve(SPEC)).public.indices)
    held = torch.cat([torch.cat([c.train, c.validation, c.test]) for c in federation.clients])
    assert len(held) == len(resolved.data.labels) - len(indices) and not torch.isin(indices, held).any()
    assert torch.equal(federation.public.pool.images, data.load(changed).images)


def test_a_bound_takes_some_of_the_public_images_and_leaves_the_clients_theirs() -> None:
    whole, bounded, beyond = (
        lab.federation_of(lab.resolve(replace(SPEC, public_images=count))) for count in (None, 50, 10_000)
    )
    indices = bounded.public.indices
    assert len(indices) == 50 and set(indices.tolist()) < set(whole.public.indices.tolist())
    assert (torch.bincount(bounded.pool.labels[indices]) == 5).all()
    assert torch.equal(beyond.public.indices, whole.public.indices)
    assert all(torch.equal(a.train, b.train) for a, b in zip(bounded.clients, whole.clients, strict=True))
    crossed = lab.public_of(lab.resolve(replace(SPEC, public_dataset="digits100", public_images=100)))
    assert np.unique(data.load("digits100").labels[crossed]).tolist() == list(range(100))


def test_unlabelled_public_images_have_no_labels() -> None:
    resolved = lab.resolve(replace(SPEC, public_labels="false"))
    built = lab.federation_of(resolved)
    assert (built.public.pool.labels == -1).all() and (built.pool.labels >= 0).all()
    shown = built.public.pool.images
    assert torch.equal(shown[built.public.indices], built.pool.images[built.public.indices])
    assert not shown[torch.cat([client.train for client in built.clients])].any()  # the clients' are not the public's
    assert simulate(built, resolved.algorithm, 1).status == "finished"
    for method in (LabelledSpy(), ALGORITHMS["FedKEMF"](label_weight=0.5)):
        with pytest.raises(FedlibError, match="needs labelled public data, and these have no labels"):
            simulate(built, method, 1)


def test_errors_name_the_field() -> None:
    resolved = lab.resolve(SPEC)
    without = Federation(resolved.data, lab.partition_of(resolved))
    with pytest.raises(FedlibError, match="'Spy': needs unlabelled public data, and this federation has none"):
        simulate(without, resolved.algorithm, 1)
    for change, message in (
        ({"public_fraction": 1}, "public_fraction = 1.0: must be in"),
        ({"public_labels": "some"}, "public_labels = 'some': must be true or false"),
        ({"public_dataset": "digit"}, "public_dataset = 'digit' is unknown: did you mean 'digits'"),
        ({"public_dataset": "digits"}, "public_dataset = 'digits': must be another data set"),
    ):
        with pytest.raises(FedlibError, match=message):
            lab.resolve(replace(SPEC, **change))
    labelled = lab.resolve(replace(SPEC, algorithm="LabelledSpy", public_dataset="digits100"))
    with pytest.raises(FedlibError, match="public labels = 99: must be below 10"):
        labelled.algorithm.check(lab.federation_of(labelled))
