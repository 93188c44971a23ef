"""Methods, models and data sets of installed packages, known to every process of this Python: the command line, a
sweep's workers, jobs on a cluster, the nodes of a federation.

A package declares them as entry points, whose names are what a specification says:

    [project.entry-points."fedlib.algorithms"]
    SharedBias = "mine.methods:SharedBias"     # a subclass of fedlib.algorithms.Algorithm, by its own name

    [project.entry-points."fedlib.models"]
    small = "mine.models:small"                # builder(num_classes, channels[, sample]) -> fedlib.Model

    [project.entry-points."fedlib.datasets"]
    stripes = "mine.data:stripes"              # loader() -> fedlib.Dataset
"""

import contextlib
import functools
import sys
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any

from .. import algorithms, data, models, partition
from ..errors import FedlibError, require

GROUPS = ("fedlib.algorithms", "fedlib.models", "fedlib.datasets")
PROVIDED: dict[tuple[str, str], Any] = {}  # (group, name) -> what a package brought


@functools.cache
def load_plugins() -> None:
    """Register what the installed packages bring, once a process. What cannot be loaded is left out, and a line on
    standard error says so, as one does of another distribution that has a module of our name.
    """
    if any(one.metadata["Author"] != "The fedlib authors" for one in distributions(name="fedlib")):  # ours is mhpfl
        said = "both write into one folder, so pip uninstall fedlib and install mhpfl again"
        print(f"fedlib: another project called fedlib is installed beside mhpfl: {said}", file=sys.stderr)
    for group in GROUPS:
        for point in entry_points(group=group):
            try:
                with contextlib.redirect_stdout(sys.stderr):  # what a command prints is its own
                    PROVIDED[group, point.name] = _registered(group, point)
            except (Exception, SystemExit) as error:  # whatever another's module raises while it is imported
                package = point.dist.name if point.dist else "unknown"
                reason = str(error) if isinstance(error, FedlibError) else f"{type(error).__name__}: {error}"
                reason = " ".join(reason.split())
                print(f"fedlib: {group} of package {package}: {point.name} is left out ({reason})", file=sys.stderr)


def _registered(group: str, point: EntryPoint) -> Any:
    """Load and register what an entry point names; raises FedlibError where it does not fit or its name is taken."""
    registries: dict[str, Any] = {
        "fedlib.algorithms": algorithms.ALGORITHMS,
        "fedlib.models": models.BUILDERS,
        "fedlib.datasets": data.names(),
    }
    require(point.name not in registries[group], "name", point.name, "another one: this is known already")
    part = point.load()
    if group == "fedlib.algorithms":
        name = getattr(part, "name", getattr(part, "__name__", part))
        require(point.name == name, "entry point", point.name, f"the method's own name, {name}")
        algorithms.register(part)
    elif group == "fedlib.models":
        models.register(point.name, part)
    else:
        data.register(point.name, part)
    return part


def provides(group: str, name: str, part: Any) -> bool:
    """Whether `part`, known as `name` in this process, is an installed package's, so that every process has it."""
    return PROVIDED.get((group, name)) is part and part is not None


def registered() -> tuple[Any, ...]:
    """What each registry holds now: what a person registers changes keys, so whoever caches what depends on them asks by it."""
    registries = (algorithms.ALGORITHMS, models.BUILDERS, models.SCENARIOS, partition.REGISTERED, data.REGISTERED)
    return tuple(tuple(registry.items()) for registry in registries)
