"""What a notebook calls: check its parameters, get its runs and the results of record, save its exhibits with a stamp.

Everything here is defined in a room of its own: settings, results, stamps.
"""

from .results import check_training, train_cells
from .settings import PARAMETERS, Parameters, settings
from .stamps import NOTEBOOKS, figures, freshness, save_figure

__all__ = [
    "NOTEBOOKS",
    "PARAMETERS",
    "Parameters",
    "check_training",
    "figures",
    "freshness",
    "save_figure",
    "settings",
    "train_cells",
]
