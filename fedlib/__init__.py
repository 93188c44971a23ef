"""A reproducible companion to four papers on model-heterogeneous personalised federated learning.

from fedlib import RunSpec, run
record = run(RunSpec(algorithm="FedSSA", dataset="digits"))
record.rounds[["round", "accuracy"]]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .algorithms import ALGORITHMS as ALGORITHMS
    from .data import Dataset as Dataset
    from .errors import FedlibError as FedlibError
    from .federation import Federation as Federation
    from .lab import Record as Record
    from .lab import RunSpec as RunSpec
    from .lab import run as run
    from .lab import sweep as sweep
    from .models import Model as Model
    from .simulation import simulate as simulate

_NAMES = {  # public name -> the module that has it, loaded on first use
    "ALGORITHMS": "algorithms",
    "Dataset": "data",
    "Federation": "federation",
    "FedlibError": "errors",
    "Model": "models",
    "Record": "lab",
    "RunSpec": "lab",
    "run": "lab",
    "simulate": "simulation",
    "sweep": "lab",
}
__all__ = list(_NAMES)
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_NAMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
