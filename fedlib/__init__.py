"""A reproducible companion to four papers on model-heterogeneous personalised federated learning.

from fedlib import RunSpec, run
record = run(RunSpec(algorithm="FedSSA", dataset="digits"))
record.rounds[["round", "accuracy"]]
"""

from .algorithms import ALGORITHMS
from .data import Dataset
from .errors import FedlibError
from .federation import Federation
from .models import Model
from .runs import Record, RunSpec, run, sweep
from .simulation import simulate

__all__ = [
    "ALGORITHMS",
    "Dataset",
    "Federation",
    "FedlibError",
    "Model",
    "Record",
    "RunSpec",
    "run",
    "simulate",
    "sweep",
]
__version__ = "0.1.0"
