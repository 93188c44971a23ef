"""From a resolved specification to a federation that is ready to train."""

import hashlib
from typing import Any

import numpy as np

from .. import devices, partition
from ..federation import Federation
from . import pretrained
from .spec import Resolved, read_images


def public_of(resolved: Resolved) -> np.ndarray | None:
    """The public images of a method that needs some: indices into the training images of `public_dataset`, or of the
    clients' data set.
    """
    spec = resolved.spec
    if resolved.algorithm.public_data == "none":
        return None
    dataset = read_images(spec.public_dataset) if spec.public_dataset else resolved.data
    sizes = dataset.num_train, spec.public_fraction, spec.seed, spec.public_images
    return partition.public_images(dataset.labels.numpy(), *sizes)


def reserved_of(resolved: Resolved) -> np.ndarray:
    """Indices of the training images that no client holds: the public part, even where another data set stands in for
    it, so that a client's images do not depend on the choice of public data.
    """
    if not resolved.reserves:
        return np.empty(0, dtype=int)
    dataset, spec = resolved.data, resolved.spec
    return partition.reserved_images(dataset.labels.numpy(), dataset.num_train, spec.public_fraction, spec.seed)


def partition_of(resolved: Resolved) -> list[partition.Parts]:
    """What each client holds: its (train, validation, test) indices into the pooled images, none of them public."""
    dataset, spec, preset = resolved.data, resolved.spec, resolved.protocol
    how: dict[str, Any] = {"partition": spec.partition, "alpha": spec.alpha, "split": preset.split}
    how |= {"distinct": preset.distinct, "floors": preset.floors, "dealing": preset.dealing}
    if spec.classes_per_client is not None:
        how["classes_per_client"] = spec.classes_per_client
    dealing = partition.Dealing(spec.num_clients, dataset.num_classes, **how)
    labels, groups = dataset.labels.numpy(), None if dataset.groups is None else dataset.groups.numpy()
    levels = dataset.levels().numpy() if spec.partition == "feature-shift" else None
    return partition.client_images(labels, dataset.num_train, dealing, spec.seed, reserved_of(resolved), groups, levels)


def federation_of(resolved: Resolved) -> Federation:
    """The federation that a specification describes, ready to train. Raises FedlibError where its data were changed in place."""
    parts, name = partition_of(resolved), resolved.spec.public_dataset
    shared, public = read_images(name) if name else None, public_of(resolved)
    resolved.check_data()
    return Federation(resolved.data, parts, public=public, public_dataset=shared, **settings_of(resolved))


def settings_of(resolved: Resolved) -> dict[str, Any]:
    """What a specification says of a federation beside its data: the arguments of `Federation`, by name."""
    spec = resolved.spec
    same = ["local_epochs", "batch_size", "seed", "precision", "public_labels", "metrics", "newcomers"]
    same += ["newcomer_visits", "schedule", "deterministic"]
    found = {name: getattr(spec, name) for name in same}
    found |= {"architectures": resolved.architectures, "protocol": resolved.protocol}
    return found | {"device": devices.first(spec.device), "weights": pretrained.read(spec.weights)}


def made_by_own_parts(resolved: Resolved, federation: Federation) -> dict[str, str]:
    """SHA-256 (16 digits) of what a person's own parts made for a run, by part: the initial weights of their networks
    and the deal of their partition. Their source is in the key; these notice a changed file or number that the
    source reads.
    """
    made = {}
    for part in resolved.own:
        digest = hashlib.sha256()
        if part.startswith("architecture "):
            state = federation.build(part.removeprefix("architecture ")).state_dict()
            for name, tensor in state.items():
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.cpu().contiguous().numpy().data)
        elif part == "partition":
            for client in federation.clients:
                for indices in (client.train, client.validation, client.test):
                    digest.update(f"{len(indices)}".encode())
                    digest.update(indices.cpu().numpy().data)
        else:
            continue
        made[part] = digest.hexdigest()[:16]
    return made
