"""A reproducible companion to four papers on model-heterogeneous personalised federated learning.

from fedlib import RunSpec, run
record = run(RunSpec(algorithm="FedSSA", dataset="digits"))
record.rounds[["round", "accuracy"]]
"""

import lazy_loader

# The names, and the modules that are loaded on their first use, stand in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.2.0"
