"""Owners of data: a federation over images that are in nobody's hands but their owners'.

A plan, one TOML file that all sides have, says what the run is and what the data are like; each owner makes its own share
of it from its own folder, and the server's is made of what they say of it: seen classes and numbers of images::

    [spec]                       # fields of a RunSpec; the data set and its partition are the plan's
    algorithm = "FedSSA"
    num_clients = 4
    rounds = 20

    [data]
    name = "scans"
    num_classes = 3              # or classes = ["benign", "malignant", "none"], the names of the folders
    shape = [3, 32, 32]          # of an image, in bytes unless dtype = "float32"
    mean = [0.5, 0.5, 0.5]       # and std, per channel: what every owner normalises with
    std = [0.25, 0.25, 0.25]
    num_images = 4000            # of all owners together, roughly: for sizes and costs, no number of the run depends on it

The numbers are those of a simulation of the union with one group for each owner (`partition="groups"`) and the same mean
and std.
"""

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedlib import data, partition
from fedlib.data import Dataset, DatasetInfo, folders
from fedlib.errors import FedlibError, choose, one_line, require
from fedlib.lab import files
from fedlib.lab.spec import Resolved, resolve, spec_from

from . import shares, wire

NEEDED = ("name", "num_classes", "shape", "mean", "std", "num_images")
FURTHER = {"classes": [], "kind": "image", "dtype": "uint8", "augment": False, "vocabulary": 0}
DESCRIPTION = "client-{}.json"  # what an owner tells the server


@dataclass(frozen=True)
class Plan:
    """run: resolved, its `info` what the plan says of the data; classes: the names of an owner's folders, in order."""

    run: Resolved
    classes: tuple[str, ...]


def read_plan(path: str | Path) -> Plan:
    """The plan in a TOML file. Raises FedlibError, naming the field, where it is none, and where a federation of owners cannot
    run it: a method that needs public images of theirs, or a split that is not each client's own.
    """
    try:
        plan = tomllib.loads(files.regular(Path(path)).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise FedlibError(f"plan = {str(path)!r}: cannot be read ({error})") from None
    for name in plan:
        choose(f"{path}: table", name, ("spec", "data"))
    for name in ("spec", "data"):
        require(isinstance(plan.get(name), dict), f"{path}: table", plan.get(name), f"[{name}]")
    spec, about = plan["spec"], plan["data"]
    for name in ("dataset", "partition"):
        require(name not in spec, f"{path}: spec.{name}", spec.get(name), "left out: the data are the plan's, by owner")
    require("num_clients" in spec, f"{path}: spec.num_clients", None, "given, the number of clients of all owners")
    info, classes = _info(str(path), about, spec["num_clients"])
    with data.described(info):
        run = resolve(spec_from(dict(spec) | {"dataset": info.name, "partition": "groups"}))
    inherits, split = run.protocol.inherit, run.protocol.split
    require(inherits == "none", "inherit", inherits, "'none': no node has another's model")
    require(split.startswith("local"), "split", split, "one of each client's own images, such as local-8:1:1")
    needs = run.algorithm.public_data != "none" or run.protocol.reserve
    require(not needs, "algorithm", run.spec.algorithm, "one that needs no public images: owners give none away")
    return Plan(run, classes)


def _info(path: str, about: Mapping[str, Any], num_clients: Any) -> tuple[DatasetInfo, tuple[str, ...]]:
    for name in about:
        choose(f"{path}: data field", name, (*NEEDED, *FURTHER))
    given: dict[str, Any] = FURTHER | dict(about)
    classes = given["classes"]
    listed = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    require(listed, f"{path}: data.classes", classes, "a list of the names of the classes' folders")
    if classes:
        given.setdefault("num_classes", len(classes))
        require(given["num_classes"] == len(classes), f"{path}: num_classes", given["num_classes"], f"{len(classes)}")
    for name in NEEDED:
        require(name in given, f"{path}: data.{name}", None, "given")
    shape, count = given["shape"], given["num_images"]
    whole = isinstance(shape, list) and shape and all(type(length) is int and length >= 1 for length in shape)
    require(bool(whole), f"{path}: data.shape", shape, "lengths of an image's axes, such as [3, 32, 32]")
    require(type(count) is int and count >= 1, f"{path}: data.num_images", count, "a whole number, at least 1")
    require(type(num_clients) is int and num_clients >= 1, f"{path}: num_clients", num_clients, "at least 1")
    known = data.names()
    require(given["name"] not in known, f"{path}: data.name", given["name"], "another one: this is a known data set's")
    dtype = given["dtype"]
    choose(f"{path}: data.dtype", dtype, ("uint8", "float32", "int64"))
    empty = torch.zeros((0, *shape), dtype=getattr(torch, dtype))
    numbers = given["num_classes"], given["mean"], given["std"], given["augment"], given["kind"], given["vocabulary"]
    blank = Dataset(given["name"], empty, torch.zeros(0, dtype=torch.int64), 0, *_tuples(numbers))  # checks the rest
    told = json.dumps(dict(about), sort_keys=True)
    fingerprint = hashlib.sha256(told.encode()).hexdigest()[:16]
    return dataclasses.replace(blank.info, num_train=count, fingerprint=fingerprint, groups=num_clients), tuple(classes)


def _tuples(values: Sequence[Any]) -> list[Any]:
    return [tuple(value) if isinstance(value, list) else value for value in values]


def read_images(path: str | Path, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """An owner's images and labels: an .npz file with arrays `images` and `labels`, or a folder with a folder of pictures for
    each of its classes, under the class's name or number, in order of class and file name.

    Raises FedlibError, naming the file, for a picture of another size than the plan's (nothing is scaled) and for a folder
    that is none of its classes.
    """
    path, info = Path(path), plan.run.info
    if path.is_file():
        try:
            with open(path, "rb") as packed, np.load(packed, allow_pickle=False) as arrays:
                return arrays["images"], arrays["labels"]
        except Exception as error:  # NumPy's and zipfile's, of many kinds
            raise FedlibError(
                f"images = {str(path)!r}: must be an .npz file with images and labels ({one_line(str(error))})"
            ) from None
    require(path.is_dir(), "images", str(path), "a folder with a folder for each class, or an .npz file")
    pictures = info.kind == "image" and info.dtype == "uint8" and info.channels in folders.MODES
    require(pictures, "images", str(path), f"an .npz file, since {info.name} has {info.sample}")
    names = plan.classes or tuple(map(str, range(info.num_classes)))
    images, labels = [], []
    for folder in path.iterdir():
        if not folder.name.startswith("."):  # what a desktop keeps beside them
            choose(f"images = {str(path)!r}: class", folder.name, names)
    for label, name in enumerate(names):
        for file in sorted((path / name).rglob("*")) if (path / name).is_dir() else ():
            if file.suffix.lower() in folders.ENDINGS:
                images.append(folders.picture(file, info.channels))
                size = images[-1].shape[1:]
                require(size == info.size, f"{file}: height and width", size, f"{info.size}, as the plan has them")
                labels.append(label)
    require(
        bool(images),
        "images",
        str(path),
        f"a folder with pictures ({', '.join(folders.ENDINGS)}) in a folder for each class",
    )
    return np.stack(images), np.array(labels)


def own_share(plan: Plan, client: int, images: Any, labels: Any, side: str | Path) -> Path:
    """Write a client's part of a node's share, from its images (n, ...) and labels (n,), into side/<run>; a node with several
    clients calls this for each. Returns the file that the server is to get: the client's seen classes and number of
    training images, no image.
    """
    run, side = plan.run, Path(side)
    clients = run.spec.num_clients
    require(type(client) is int and 0 <= client < clients, "client", client, f"between 0 and {clients - 1}")
    info, images, labels = run.info, np.asarray(images), np.asarray(labels)
    own = Dataset.from_arrays(
        info.name, images, labels, images[:0], labels[:0], info.num_classes,
        mean=info.mean or None, std=info.std or None, augment=info.augment, kind=info.kind,
        vocabulary=info.vocabulary or None,
    )  # fmt: skip
    require(
        own.sample == info.sample, f"images of client {client}", str(own.sample), f"{info.sample}, as the plan says"
    )
    truths = own.labels.numpy()
    every = np.arange(len(truths))
    parts = partition.split_client(
        truths, every, partition.parts_of(run.protocol.split), run.spec.seed, client, clients
    )
    order = torch.from_numpy(np.concatenate(parts))
    held = {"id": client, "images": own.images[order].contiguous(), "labels": own.labels[order]}
    others = _others(side / run.key, client)
    shared = shares.known_of(run) | {
        "clients": sorted([*others, held | {"sizes": [len(part) for part in parts]}], key=lambda one: one["id"])
    }
    shares.write(side, run, shared)
    told = {
        "run": run.key,
        "client": client,
        "classes": sorted(set(truths[parts[0]].tolist())),
        "images": len(parts[0]),
    }
    file = side / run.key / DESCRIPTION.format(client)
    files.write_bytes(file, json.dumps(told).encode())
    return file


def _others(folder: Path, client: int) -> list[dict[str, Any]]:
    """The clients that the node's share has already."""
    if not (folder / shares.SHARE).exists():
        return []
    share = wire.from_bytes((folder / shares.SHARE).read_bytes(), str(folder / shares.SHARE))
    return [one for one in share["clients"] if one["id"] != client]


def server_share(plan: Plan, told: Sequence[str | Path], side: str | Path) -> Path:
    """Write the server's share, from what each owner has told of its clients (`own_share`'s files), into side/<run>; returns
    that folder. Raises FedlibError where a client is missing, told twice, or of another plan.
    """
    run, clients = plan.run, {}
    for file in told:
        try:
            about = json.loads(files.regular(Path(file)).read_bytes())
            key, id, classes, count = (about[name] for name in ("run", "client", "classes", "images"))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise FedlibError(f"{file}: is no description of a client ({error})") from None
        require(key == run.key, f"{file}: run", key, f"{run.key}, this plan's")
        whole = type(id) is int and 0 <= id < run.spec.num_clients and id not in clients
        require(whole, f"{file}: client", id, f"between 0 and {run.spec.num_clients - 1}, each once")
        seen = isinstance(classes, list) and all(type(c) is int and 0 <= c < run.info.num_classes for c in classes)
        require(seen and classes == sorted({*classes}) != [], f"{file}: classes", classes, "sorted, each once")
        most = 10 * run.info.num_train  # the server makes room for so many blank ones
        whole = type(count) is int and len(classes) <= count <= most
        allowed = f"at least one of each class, and at most {most}, ten times the plan's num_images"
        require(whole, f"{file}: images", count, allowed)
        clients[id] = {"id": id, "classes": torch.tensor(classes), "num_samples": count}
    missing = sorted(set(range(run.spec.num_clients)) - set(clients))
    require(not missing, "clients without a description", missing, "none")
    described = [clients[id] for id in sorted(clients)]
    shares.write(Path(side), run, shares.known_of(run) | {"clients": described})
    return Path(side) / run.key
