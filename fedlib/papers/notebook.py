"""What a notebook calls: check its parameters, get its runs and the results of record, save its exhibits with a stamp.

Everything here is defined in a room of its own: settings, results, loading, stamps.
"""

from .loading import coverage, load_images, load_maps, load_matches, load_record, train_cells
from .prose import say
from .results import Runs, check_training
from .settings import PARAMETERS, Parameters, settings
from .stamps import NOTEBOOKS, figures, freshness, save, save_figure, save_record

__all__ = [
    "NOTEBOOKS",
    "PARAMETERS",
    "Parameters",
    "Runs",
    "check_training",
    "coverage",
    "figures",
    "freshness",
    "load_images",
    "load_maps",
    "load_matches",
    "load_record",
    "save",
    "save_figure",
    "save_record",
    "say",
    "settings",
    "train_cells",
]
