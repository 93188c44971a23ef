"""Runs as records: specified, computed once, stored, read again. A name is loaded from its room on first use."""

import lazy_loader

# The names, and the modules that are loaded on their first use, stand in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
