"""The methods, in the order of every table's rows: first those of the four papers' tables, then further baselines."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from .. import fields
from ..errors import FedlibError, check_name, choose, coerce, require
from .base import Algorithm, ServerState
from .ditto import Ditto
from .fccl import FCCL
from .fd import FD
from .fedavg import FedAvg
from .fedbabu import FedBABU
from .fedclassavg import FedClassAvg
from .fedgen import FedGen
from .fedgh import FedGH
from .fedkd import FedKD
from .fedkemf import FedKEMF
from .fedl2g import FedL2G
from .fedmd import FedMD
from .fedmrl import FedMRL
from .fedper import FedPer
from .fedproto import FedProto
from .fedprox import FedProx
from .fedrep import FedRep
from .fedssa import FedSSA
from .fedtgp import FedTGP
from .fml import FML
from .lg_fedavg import LGFedAvg
from .per_fedavg import PerFedAvg
from .pfedbayes import PFedBayes
from .pfedes import PFedES
from .pfedhr import PFedHR
from .pfedme import PFedMe
from .standalone import Standalone

OF_THE_PAPERS: tuple[type[Algorithm], ...] = (
    Standalone, FedAvg, FedProx, PerFedAvg, PFedMe, PFedBayes, FML, FedKD,
    LGFedAvg, FedClassAvg, FD, FedProto,
    FedMD, FCCL, FedKEMF,
    FedGH, FedSSA, PFedES, PFedHR,
)  # fmt: skip
ABOUT_FURTHER = (
    "Further baselines, for comparisons of your own; none of the four papers' tables has them. With these here are all methods of "
    "HtFLlib but FedKTL, which needs a pre-trained generator."
)
FURTHER: tuple[type[Algorithm], ...] = (
    FedTGP, FedMRL, FedPer, FedRep, Ditto, FedBABU, FedGen, FedL2G,
)  # fmt: skip

ALGORITHMS: dict[str, type[Algorithm]] = {method.name: method for method in (*OF_THE_PAPERS, *FURTHER)}
BUILT_IN = frozenset(ALGORITHMS.values())


def register(method: type[Algorithm]) -> type[Algorithm]:
    """Make a method of your own known to `RunSpec`, the tables and the command line; use it as a decorator.

    Its name is `method.name`, or the class's. Every hyper-parameter needs a default: a number, true or false, or text.
    Registering again replaces it, so a cell can be run twice; a method of fedlib's stays what it is. Raises FedlibError, naming
    what does not fit.
    """
    subclass = isinstance(method, type) and issubclass(method, Algorithm)
    require(subclass, "method", method, "a subclass of fedlib.algorithms.Algorithm")
    for cls in reversed(method.__mro__):  # also a class that it extends, so that its parameters count
        if issubclass(cls, Algorithm) and "__dataclass_fields__" not in vars(cls):
            dataclasses.dataclass(frozen=True)(cls)
    if "name" not in vars(method):
        method.name = method.__name__
    check_name("method", method.name)
    taken = BUILT_IN & {ALGORITHMS.get(method.name)} - {method}
    require(not taken, "method", method.name, "a name that none of fedlib's has")
    known = [name for name in dir(Algorithm) if not name.startswith("_")]
    for name in sorted({*dir(method)} - {*dir(Algorithm)} - {field.name for field in dataclasses.fields(method)}):
        meant = difflib.get_close_matches(name, known, n=1, cutoff=0.88) if name[0] != "_" else []  # not `predictor`
        require(not meant, f"part of {method.name}", name, f"{''.join(meant)}, or a name less like it")
    for field in dataclasses.fields(method):
        allowed = "a parameter with a default: a number, true or false, or text"
        given = "without a default" if field.default is dataclasses.MISSING else field.default
        require(type(field.default) in (int, float, bool, str), f"{method.name}.{field.name}", given, allowed)
    require(method.needs in ("", "features", "architecture", "images"), f"{method.name}.needs", method.needs, NEEDS)
    choose(f"{method.name}.public_data", method.public_data, ("none", "unlabelled", "labelled"))
    ALGORITHMS[method.name] = method
    return method


NEEDS = (
    "'' (nothing), 'features' (headers of one width), 'architecture' (one for all clients) or 'images' (no other data)"
)


OWN = " (one of your own is known once its class is defined with @register)"


def make(name: str, params: dict[str, Any] | None = None) -> Algorithm:
    """The method called `name` with the hyper-parameters given in `params` (strings are coerced, old names are read as
    today's), the others at their defaults.
    """
    choose("algorithm", name, ALGORITHMS, OWN)
    method = ALGORITHMS[name]
    kinds = {field.name: fields.kind_of(field) for field in dataclasses.fields(method)}
    params = {} if params is None else params
    require(isinstance(params, Mapping), f"{name} parameters", params, "a dictionary of names and values")
    params = fields.read(method, params)
    for parameter in params:
        if not kinds:
            raise FedlibError(f"{name} parameter = {parameter!r}: {name} has no parameters")
        choose(f"{name} parameter", parameter, kinds)
    params = {field.name: field.default for field in dataclasses.fields(method)} | params
    return method(**{parameter: coerce(parameter, value, kinds[parameter]) for parameter, value in params.items()})


__all__ = ["ABOUT_FURTHER", "ALGORITHMS", "BUILT_IN", "FURTHER", "OWN", "Algorithm", "ServerState", "make", "register"]
