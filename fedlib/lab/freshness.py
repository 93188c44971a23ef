"""Whether a record is of today's code: a digest of the source that determined its numbers, and of nothing else."""

import hashlib
import inspect
import sys
from pathlib import Path

from .. import algorithms, federation, models, partition, protocol, randomness, simulation, training
from ..data import dataset
from . import build, sources
from .spec import FilledSpec

# What every run uses, whatever its method and its data set. What a preset or a data set says is in the key.
OF_EVERY_RUN = (randomness, dataset, partition, protocol, training, federation, simulation, algorithms.base, build)

# Tables of all networks, which a run looks one thing up in.
REGISTRIES = ("BUILDERS", "BUILT_IN", "SCENARIOS")


def code_digest(spec: FilledSpec) -> str:
    """SHA-256 (16 digits) of fedlib's source that determines a run's numbers, without comments, docstrings and looks: how
    images are dealt, training and simulation, its networks, the files of its method and of the methods that it extends,
    and the modules that these use. What a person defined is in the key instead.
    """
    method = algorithms.ALGORITHMS.get(spec.algorithm)
    classes = [cls for cls in method.__mro__ if issubclass(cls, algorithms.Algorithm)] if method else []
    own = [cls for cls in classes if sources.is_own(cls.__module__)]
    networks = [*models.architectures(spec.scenario, known_only=False), *map(str, spec.params.values())]
    builders = {name: models.BUILDERS[name] for name in networks if name in models.BUILDERS}
    shipped = [builder for name, builder in builders.items() if models.is_built_in(name)]
    own_use = sources.used_of_fedlib(*own, *(builders[name] for name in builders if not models.is_built_in(name)))

    homes = [sys.modules[cls.__module__] for cls in classes if cls not in own]
    used = [value for home in homes for value in vars(home).values() if inspect.ismodule(value)]
    names_used = {getattr(value, "__module__", None) or "" for home in homes for value in vars(home).values()}
    used += [sys.modules[name] for name in sorted(names_used) if name.startswith("fedlib.algorithms.")]
    used += [sys.modules[name] for name in own_use]
    files = [
        Path(str(module.__file__))
        for module in dict.fromkeys([*OF_EVERY_RUN, *homes, *used])
        if module.__name__.startswith("fedlib.") and module is not models
    ]
    # Of the networks only its own, and what the files above use of their module: a further one is no other code.
    names = {"build", *(getattr(builder, "func", builder).__name__ for builder in shipped)}
    names = names.union(own_use.get(models.__name__, ()), *(sources.mentioned(file, "models") for file in files))
    texts = [sources.bare_source(file) for file in files]
    texts.append(sources.part_of_source(Path(str(models.__file__)), tuple(sorted(names)), REGISTRIES))
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]
