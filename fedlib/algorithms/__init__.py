"""The methods, in the order of every table's rows."""

import dataclasses
from typing import Any

from ..errors import FedlibError, choose, coerce
from .base import Algorithm, ServerState
from .fccl import FCCL
from .fd import FD
from .fedavg import FedAvg
from .fedclassavg import FedClassAvg
from .fedgh import FedGH
from .fedkd import FedKD
from .fedkemf import FedKEMF
from .fedmd import FedMD
from .fedproto import FedProto
from .fedprox import FedProx
from .fedssa import FedSSA
from .fml import FML
from .lg_fedavg import LGFedAvg
from .per_fedavg import PerFedAvg
from .pfedbayes import PFedBayes
from .pfedes import PFedES
from .pfedhr import PFedHR
from .pfedme import PFedMe
from .standalone import Standalone

ALGORITHMS: dict[str, type[Algorithm]] = {
    method.name: method
    for method in (
        Standalone, FedAvg, FedProx, PerFedAvg, PFedMe, PFedBayes, FML, FedKD,
        LGFedAvg, FedClassAvg, FD, FedProto,
        FedMD, FCCL, FedKEMF,
        FedGH, FedSSA, PFedES, PFedHR,
    )
}  # fmt: skip


def make(name: str, params: dict[str, Any] | None = None) -> Algorithm:
    """The method called `name` with the hyper-parameters given in `params` (strings are coerced), the others at their
    defaults.
    """
    choose("algorithm", name, ALGORITHMS)
    method = ALGORITHMS[name]
    kinds = {field.name: type(field.default) for field in dataclasses.fields(method)}
    for parameter in params or {}:
        if not kinds:
            raise FedlibError(f"{name} parameter = {parameter!r}: {name} has no parameters")
        choose(f"{name} parameter", parameter, kinds)
    return method(
        **{parameter: coerce(parameter, value, kinds[parameter]) for parameter, value in (params or {}).items()}
    )


__all__ = ["ALGORITHMS", "Algorithm", "ServerState", "make"]
