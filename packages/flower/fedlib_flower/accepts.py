"""What a server, which trusts no client, accepts of each method's clients.

A method of one's own says it as attributes of its class, all optional::

    scores = ("shared_accuracy",)  # names that `predict` adds to `accuracy`
    reports = ("mu",)              # names of its clients' diagnostics besides `loss`
    weighs_samples = True          # `aggregate` needs each client's number of images
    sends_structure = True         # its uploads have a structure

    def uploads(self, names, info, download, context):  # what an upload with tensors of these names must be, by name
        return Sized.by_class(info, prototypes=(500,))

Without `uploads`, a client may send back what it was sent or, where nothing was, tensors of its model by their names.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedlib import algorithms as methods
from fedlib.algorithms.base import Algorithm, ClientInfo, Message, ServerContext
from fedlib.algorithms.fml import SCORES
from fedlib.isolated import Isolated


class Upto(NamedTuple):
    """A length that only the client knows, from 1 to `most`; the same in every tensor of an upload that names it."""

    name: str
    most: int


@dataclass(frozen=True)
class Sized:
    """What a tensor of an upload must be: its shape, its dtype, and the range of its numbers where they have one."""

    shape: tuple[int | Upto, ...]
    dtype: torch.dtype = torch.float32
    least: float = -torch.inf
    most: float = torch.inf

    @classmethod
    def like(cls, tensors: Mapping[str, Tensor]) -> "dict[str, Sized]":
        """What tensors of these names, shapes and dtypes must be."""
        return {name: cls(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}

    @classmethod
    def by_class(cls, info: ClientInfo, **widths: tuple[int, ...]) -> "dict[str, Sized]":
        """An upload by class: `classes`, of the client's own, and tensors of these widths with a row for each of them."""
        rows = Upto("classes", len(info.classes))
        return {"classes": cls((rows,), torch.int64)} | {name: cls((rows, *width)) for name, width in widths.items()}


class Asked(NamedTuple):
    """What an upload answers: names of its tensors, who sent it, what that client was sent, what the server knows."""

    names: Collection[str]
    info: ClientInfo
    download: Message
    context: ServerContext

    @property
    def width(self) -> int:
        """Of a representation."""
        return int(self.context.initial_header().in_features)

    def model(self) -> Mapping[str, Tensor]:
        return self.context.build(self.info.architecture).state_dict()


def sent_back(method: Algorithm, asked: Asked) -> dict[str, Sized]:
    if asked.names and not asked.download.tensors:
        own = asked.model()
        return Sized.like({name: own[name] for name in asked.names if name in own})
    return Sized.like(asked.download.tensors)


def _of_public_images(method: Any, asked: Asked) -> dict[str, Sized]:
    count = min(method.public_samples, len(asked.context.public.indices))
    return {"logits": Sized((count, asked.context.num_classes))}


def _factors(method: Any, asked: Asked) -> dict[str, Sized]:
    sized: dict[str, Sized] = {}
    for name, tensor in asked.context.build(method.shared).state_dict().items():
        if f"{name}.u" in asked.names and tensor.ndim > 1:
            rows, columns = tensor.flatten(1).shape
            rank = Upto(name, min(rows, columns))
            sized |= {f"{name}.u": Sized((rows, rank)), f"{name}.s": Sized((rank,))}
            sized[f"{name}.v"] = Sized((rank, columns))
        else:
            sized[name] = Sized(tuple(tensor.shape), tensor.dtype)
    return sized


def _prototypes(method: Any, asked: Asked) -> dict[str, Sized]:
    sized = Sized.by_class(asked.info, prototypes=(asked.width,))
    if getattr(method, "weighted", False):
        sized["counts"] = Sized(sized["classes"].shape, torch.int64, least=1, most=asked.info.num_samples)
    return sized


def _header_rows(method: Any, asked: Asked) -> dict[str, Sized]:
    classes, width = asked.context.num_classes, asked.download["weight"].shape[1]
    if method.aggregation == "whole":
        return {"weight": Sized((classes, width)), "bias": Sized((classes,))}
    return Sized.by_class(asked.info, weight=(width,), bias=())


def _header_and_counts(method: Any, asked: Asked) -> dict[str, Sized]:
    counts = Sized((asked.context.num_classes,), torch.int64, least=0, most=asked.info.num_samples)
    return Sized.like(asked.context.initial_header().state_dict()) | {"counts": counts}


def _extractor(method: Any, asked: Asked) -> dict[str, Sized]:
    sent = asked.download.tensors.items()
    return Sized.like({name.removeprefix("extractor."): part for name, part in sent if name.startswith("extractor.")})


def _gradients(method: Any, asked: Asked) -> dict[str, Sized]:
    shape = tuple(asked.download["guides"].shape)  # a row for each seen class
    return {"gradients": Sized(shape), "present": Sized(shape[:1], least=0, most=1)}


Uploads = Callable[[Any, Asked], dict[str, Sized]]
UPLOADS: dict[type[Algorithm], Uploads] = {
    methods.FD: lambda method, asked: Sized.by_class(asked.info, outputs=(asked.context.num_classes,)),
    methods.FedProto: _prototypes,
    methods.FedMD: _of_public_images,
    methods.FCCL: _of_public_images,
    methods.FedKD: _factors,
    methods.FedGH: lambda method, asked: Sized.by_class(asked.info, lars=(asked.width,)),
    methods.FedSSA: _header_rows,
    methods.PFedHR: lambda method, asked: Sized.like(asked.model()),
    methods.FedTGP: _prototypes,
    methods.FedGen: _header_and_counts,
    methods.FedL2G: _gradients,
    methods.FedBABU: _extractor,
}
STATED: dict[str, dict[type[Algorithm], Any]] = {
    "scores": {
        methods.FedProto: ("prototype_accuracy",),
        methods.FedTGP: ("prototype_accuracy",),
        methods.FML: SCORES,
        methods.FedKD: SCORES,
    },
    "reports": {methods.FedSSA: ("mu",), methods.PFedHR: ("taught",), methods.FedL2G: ("quiz_loss",)},
    "weighs_samples": dict.fromkeys(
        (methods.FedAvg, methods.FedPer, methods.LGFedAvg, methods.PFedES, methods.FedMRL), True
    ),
    "sends_structure": {},
}
NOTHING: dict[str, Any] = {"scores": (), "reports": (), "weighs_samples": False, "sends_structure": False}


def stated(algorithm: Algorithm, name: str) -> Any:
    """What a method's class says under this name (see above), or what stands here of the class that it is or comes from."""
    if isinstance(algorithm, Isolated) and name in ("scores", "reports"):
        return stated(algorithm.method, name)
    for kind in type(algorithm).__mro__:
        if name in vars(kind):
            return getattr(algorithm, name)
        if kind in STATED[name]:
            return STATED[name][kind]
    return NOTHING[name]


def uploads(algorithm: Algorithm, asked: Asked) -> dict[str, Sized]:
    """What the client's upload must be, by name of its tensors."""
    for kind in type(algorithm).__mro__:
        if "uploads" in vars(kind):
            return dict(algorithm.uploads(*asked))  # type: ignore[attr-defined]  # of one's own class
        if kind in UPLOADS:
            return UPLOADS[kind](algorithm, asked)
    return sent_back(algorithm, asked)
