"""A reproducible companion to four papers on model-heterogeneous personalised federated learning.

A run is a specification, which `run` trains, or reads where it is stored::

    from fedlib import RunSpec, run

    record = run(RunSpec("FedSSA", dataset="digits", rounds=3))
    record.rounds[["round", "loss", "accuracy"]]
"""

import lazy_loader

# The names, and the modules that are loaded on their first use, stand in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.2.0"
