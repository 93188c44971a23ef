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
    from .lab.runs import Record as Record
    from .lab.runs import RunSpec as RunSpec
    from .lab.runs import run as run
    from .lab.runs import sweep as sweep
    from .models import Model as Model
    from .simulation import simulate as simulate

_NAMES = {  # public name -> the module that has it, loaded on first use
    "ALGORITHMS": "algorithms",
    "Dataset": "data",
    "Federation": "federation",
    "FedlibError": "errors",
    "Model": "models",
    "Record": "lab.runs",
    "RunSpec": "lab.runs",
    "run": "lab.runs",
    "simulate": "simulation",
    "sweep": "lab.runs",
}
__all__ = list(_NAMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_NAMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
