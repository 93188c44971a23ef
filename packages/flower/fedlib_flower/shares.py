"""What each side of a federation has: the server a description of each client, a node its own clients' images.

`deal` cuts a data set into folders as a simulation of the same specification would deal it, one a side and, in that, one
a run. `federation_from` makes of such a share a federation whose missing images are blank: nothing of another side's is there to be read.
"""

import dataclasses
import hashlib
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib import data, models
from fedlib.data import Dataset, DatasetInfo
from fedlib.errors import FedlibError, coerce, require
from fedlib.federation import Client, ClientInfo, Federation, Held
from fedlib.lab import files
from fedlib.lab.build import federation_of, settings_of
from fedlib.lab.spec import Resolved, RunSpec, resolve, spec_from

from . import wire
from .describe import CLIENTS, clients_of

SHARE = "share.safetensors"


def deal(spec: RunSpec, folder: Path, nodes: int, scale: str | None = None) -> Resolved:
    """Write the shares of a run into folder/server and folder/node-0, node-1, ..., with client k on node k modulo `nodes`;
    returns the resolved specification, whose key names the run.

    Raises FedlibError where clients would have to copy each other's models (`inherit`), or for more nodes than clients.
    """
    run, nodes = resolve(spec, scale), coerce("nodes", nodes, int)
    inherits = run.protocol.inherit
    require(
        inherits == "none", "inherit", inherits, "'none', unless clients are in_process: no node has another's model"
    )
    allowed = f"between 1 and {run.spec.num_clients}, the number of clients"
    require(1 <= nodes <= run.spec.num_clients, "nodes", nodes, allowed)
    federation = federation_of(run)
    known = known_of(run) | {"public": _public(federation)}
    infos = [_described(info) for info in federation.infos]
    write(folder / "server", run, known | {"clients": infos})
    for node in range(nodes):
        own = [_images(client) for client in federation.clients[node::nodes]]
        write(folder / f"node-{node}", run, known | {"clients": own})
    return run


def known_of(run: Resolved) -> dict[str, Any]:
    """What every side's share has: the specification, and what is known of its data sets without their images."""
    infos = [run.info] + ([data.info(run.spec.public_dataset)] if run.spec.public_dataset else [])
    known = {"spec": dataclasses.asdict(run.spec), "public": None, "data": [dataclasses.asdict(info) for info in infos]}
    return known | {"sources": _sources(run)}


def _sources(run: Resolved) -> dict[str, str]:
    """SHA-256 of the files of one's own method and networks, which a run's key has of installed packages by name alone."""
    parts: dict[str, Any] = {"method": type(run.algorithm)}
    parts |= {f"architecture {name}": builder for name, builder in models.BUILDERS.items()}
    found = {}
    for name in run.own.keys() & parts.keys():
        file = getattr(sys.modules.get(getattr(parts[name], "__module__", "")), "__file__", None)
        if file:
            found[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return found


def infos_of(share: dict[str, Any]) -> list[DatasetInfo]:
    """What a share says of its data sets, none in one of an earlier version. Raises FedlibError where it is nothing that
    this version knows.
    """
    try:
        return [DatasetInfo(**info) for info in share.get("data", [])]
    except TypeError as error:
        raise FedlibError(f"share: says of its data what this version of fedlib does not know ({error})") from None


def write(side: Path, run: Resolved, share: dict[str, Any]) -> None:
    folder = side / run.key
    ids = [client["id"] for client in share["clients"]]
    description = json.dumps({"clients": ids}).encode()
    files.write_files({folder / SHARE: [wire.to_bytes(share)], folder / CLIENTS: [description]})


def _described(info: ClientInfo) -> dict[str, Any]:
    return {"id": info.id, "classes": info.classes.cpu(), "num_samples": info.num_samples}


def _images(client: Client) -> dict[str, Any]:
    """All that a client has, its parts one after the other."""
    parts = [client.train, client.validation, client.test]
    every = torch.cat(parts)
    images, labels = client.whole.images[every].cpu(), client.whole.labels[every].cpu()
    return {"id": client.id, "images": images, "labels": labels, "sizes": [len(part) for part in parts]}


def _public(federation: Federation) -> dict[str, Tensor] | None:
    if federation.public is None:
        return None
    pool, indices = federation.public.pool, federation.public.indices
    return {"images": pool.images[indices].cpu(), "labels": pool.labels[indices].cpu()}


def read(side: Path, run: str) -> tuple[dict[str, Any], Resolved]:
    """A side's share of a run and its resolved specification. Raises FedlibError when there is none or it is damaged,
    and when this installation would make another run of its specification.
    """
    if not clients_of(side, run):
        raise FedlibError(f"run = {run!r}: {side} has no share of it, or a damaged one")
    folder = side / run
    try:
        content = files.regular(folder / SHARE, wire.LIMIT).read_bytes()
    except (OSError, ValueError) as error:
        raise FedlibError(f"share = {str(folder)!r}: cannot be read ({error})") from error
    share = wire.from_bytes(content, str(folder / SHARE))
    with data.described(*infos_of(share)):
        resolved = resolve(spec_from(share["spec"]))
    allowed = f"{resolved.key}, which this installation makes of the specification in {folder}"
    require(run == resolved.key, "run", run, allowed)
    sources = _sources(resolved)
    for name, digest in share.get("sources", {}).items():
        same, whose = sources.get(name, digest) == digest, f"the version that the other sides have ({digest[:12]})"
        require(same, f"{name} of {resolved.spec.algorithm}, file", sources.get(name, "")[:12], whose)
    return share, resolved


def federation_from(share: dict[str, Any], run: Resolved) -> Federation:
    """A federation of all clients with the images of this share's. Of the others there are as many blank images as make
    what the share says of them true: their seen classes and number of training images.
    """
    blanks = [_Blank.of(client) for client in share["clients"] if "images" not in client]
    if blanks:  # the server's: every client is described
        images = run.info.sample.zeros(0)
        labels, sizes = torch.cat([blank.labels for blank in blanks]), [blank.sizes for blank in blanks]
    else:
        held = {client["id"]: client for client in share["clients"]}
        one = [1, int(run.protocol.parts[1] > 0), 1]  # of a client that is elsewhere, and is never asked here
        sizes = [held[id]["sizes"] if id in held else one for id in range(run.spec.num_clients)]
        own = list(held.values())
        images, labels = (torch.cat([client[name] for client in own]) for name in ("images", "labels"))
        with data.described(*infos_of(share)):
            return _federation(run, share["public"], images, labels, sizes, set(held))
    with data.described(*infos_of(share)):
        return _federation(run, share["public"], images, labels, sizes, set())


@dataclasses.dataclass
class _Blank:
    """Labels and part sizes that are true of a client whose images are elsewhere."""

    labels: Tensor
    sizes: list[int]

    @classmethod
    def of(cls, client: dict[str, Any]) -> "_Blank":
        classes, count = client["classes"], client["num_samples"]
        labels = torch.cat([classes, classes[:1].expand(count + 2 - len(classes))])
        return cls(labels, [count, 1, 1])


def _federation(
    run: Resolved,
    public: dict[str, Tensor] | None,
    images: Tensor,
    labels: Tensor,
    sizes: list[list[int]],
    own: set[int],
) -> Federation:
    """images, labels: of the clients in `own`, one client after the other, or labels of all and no image."""
    info, spec = run.info, run.spec
    total = sum(map(sum, sizes))
    every = info.sample.zeros(total)
    truths = torch.zeros(total, dtype=torch.int64) if own else labels
    parts: list[Held] = []
    start, taken = 0, 0
    for id, (train, validation, test) in enumerate(sizes):
        ends = np.cumsum([start, train, validation, test])
        parts.append(tuple(np.arange(*pair) for pair in pairwise(ends)))  # type: ignore[arg-type]
        if id in own:
            count = int(ends[-1]) - start
            every[start : ends[-1]] = images[taken : taken + count]
            truths[start : ends[-1]] = labels[taken : taken + count]
            taken += count
        start = int(ends[-1])
    known = info.num_classes, info.mean, info.std
    dataset = Dataset(spec.dataset, every, truths, total, *known, info.augment, info.kind, info.vocabulary)
    shared = None
    if public is not None:
        count, whose = len(public["labels"]), info if spec.public_dataset is None else data.info(spec.public_dataset)
        samples = public["images"]
        if info.kind == "image":
            samples = samples.contiguous(memory_format=torch.channels_last)
        of_kind = whose.augment, info.kind, info.vocabulary
        shared = Dataset("public", samples, public["labels"], count, *known, *of_kind)
    taught = None if shared is None else np.arange(len(shared.labels))
    return Federation(dataset, parts, public=taught, public_dataset=shared, **settings_of(run))
