"""One file per source, each of which says with `provide` which data sets it reads. A further file here is found."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
