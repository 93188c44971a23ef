"""Hyper-parameters chosen by validation accuracy among stored runs: the values that are given, and others drawn at random.

notebooks/recipes/tuning.ipynb has Optuna choose what is tried next.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .. import algorithms
from ..errors import FedlibError, choose, coerce, require
from ..protocol import Protocol
from .launch import sweep
from .spec import RunSpec, resolve

DECADE = 10.0
SIZES = ("lr", "batch_size", "local_epochs")  # fields of RunSpec that can be searched
Range = tuple[float, float] | Sequence[Any]


@dataclass(frozen=True)
class Tuned:
    """What `tune` chose.

    spec: the specification with the values of the best trial; chosen: these values by name, none where nothing was better than the
    values given; table: a row a trial: its values and `validation` (accuracy of the last round, per cent; NaN where it diverged);
    best: the row of the best trial.
    """

    spec: RunSpec
    chosen: dict[str, Any]
    table: pd.DataFrame
    best: int

    @property
    def trials(self) -> int:
        return len(self.table)

    @property
    def validation(self) -> float:
        """Validation accuracy of the best trial, per cent."""
        return float(self.table["validation"].iloc[self.best])

    @property
    def words(self) -> str:
        """The chosen values: `lr = 0.012, lam = 2.7`."""
        return ", ".join(f"{name} = {value}" for name, value in self.chosen.items()) or "as given"

    def __repr__(self) -> str:
        return f"{self.spec.algorithm}: {self.words}, of {self.trials} trials (validation {self.validation:.2f} %)"


def default_ranges(spec: RunSpec, scale: str | None = None) -> dict[str, Range]:
    """What `tune` searches where nothing is said: the learning rate from a tenth to ten times its value, and so each
    hyper-parameter of the method that is a positive number, declared (`fields.setting`) or not; one with an upper limit wholly.
    """
    resolved = resolve(spec, scale)
    found: dict[str, Range] = {"lr": _around(resolved.spec.lr)}
    for item in dataclasses.fields(resolved.algorithm):
        value, limits = getattr(resolved.algorithm, item.name), item.metadata
        if not isinstance(value, float) or value <= 0:
            continue
        high = limits.get("le", limits.get("lt"))
        least = 0.0 if limits.get("ge") == 0 else 0.05
        found[item.name] = _around(value) if high is None else (least, 0.95 if "lt" in limits else high)
    return found


def _around(value: float) -> tuple[float, float]:
    return float(f"{value / DECADE:.6g}"), float(f"{value * DECADE:.6g}")


def tune(
    spec: RunSpec,
    ranges: Mapping[str, Range] | None = None,
    *,
    trials: int = 20,
    scale: str | None = None,
    jobs: int = 2,
    seed: int = 0,
    progress: bool = True,
) -> Tuned:
    """Choose hyper-parameters by the validation accuracy of the last round; test images are not looked at.

    The first trial is `spec` itself, the others are drawn (Bergstra and Bengio, JMLR 2012), each a stored run: the same call reads
    them, goes on after an interrupt, and trains only what is missing where `trials` is larger.
    ranges: name -> (low, high), drawn by its logarithm where both are above 0 and a decade or more lies between, or a list of values
    to choose from; of `lr`, `batch_size`, `local_epochs`, hyper-parameters of the method and fields of the protocol. By default
    `default_ranges`. seed: of the draws; the runs have that of `spec`. Raises FedlibError where a name is unknown, a range is none,
    the data have no validation part, or no trial ends with a finite accuracy.
    """
    trials, seed = coerce("trials", trials, int), coerce("seed", seed, int)
    require(trials >= 1, "trials", trials, "at least 1")
    require(seed >= 0, "seed", seed, "at least 0")
    base = resolve(spec, scale)
    require(base.protocol.parts[1] > 0, "split", base.protocol.split, "one with validation samples, to choose by")
    ranges = default_ranges(spec, scale) if ranges is None else ranges
    require(isinstance(ranges, Mapping) and bool(ranges), "ranges", ranges, "a name and its range, or several")
    for name, given in ranges.items():
        _check(name, given, spec)
        for value in given:  # what the method or the protocol does not allow is said before the first trial
            resolve(with_values(spec, {name: value}), scale)
    tried: list[dict[str, Any]] = [{}]
    for trial in range(1, trials):
        stream = np.random.default_rng([seed, trial])
        tried.append({name: _drawn(given, stream) for name, given in ranges.items()})
    records = sweep([with_values(spec, values) for values in tried], scale, jobs=jobs, progress=progress)
    last = [100 * float(record.rounds["validation_accuracy"].iloc[-1]) for record in records]
    finished = [
        record.status == "finished" and math.isfinite(value) for record, value in zip(records, last, strict=True)
    ]
    reached = np.where(finished, last, np.nan)
    if not any(finished):
        raise FedlibError(f"{spec.algorithm}: none of {trials} trials ended with a finite validation accuracy")
    best = int(np.nanargmax(reached))
    table = pd.DataFrame(tried, columns=list(ranges)).assign(validation=reached)
    return Tuned(with_values(spec, tried[best]), tried[best], table, best)


def with_values(spec: RunSpec, values: Mapping[str, Any]) -> RunSpec:
    """`spec` with its fields SIZES, hyper-parameters of its method and fields of the protocol set by name."""
    own = {item.name for item in dataclasses.fields(algorithms.ALGORITHMS[spec.algorithm])}
    sizes = {name: value for name, value in values.items() if name in SIZES and name not in own}
    params = {name: value for name, value in values.items() if name in own}
    overrides = {name: value for name, value in values.items() if name not in own and name not in SIZES}
    return dataclasses.replace(
        spec, **sizes, params={**spec.params, **params}, overrides={**spec.overrides, **overrides}
    )


def _check(name: str, given: Range, spec: RunSpec) -> None:
    """FedlibError for a name that cannot be searched or a range that is none."""
    own = [item.name for item in dataclasses.fields(algorithms.ALGORITHMS[spec.algorithm])]
    choose("range", name, [*SIZES, *own, *(item.name for item in dataclasses.fields(Protocol) if item.name != "lr")])
    numbers = isinstance(given, tuple) and len(given) == 2 and all(type(one) in (int, float) for one in given)
    fits = numbers and all(map(math.isfinite, given)) and given[0] < given[1]
    allowed = "(low, high), two numbers of which the first is smaller, or a list of values"
    require(fits or (isinstance(given, list) and bool(given)), f"range of {name}", given, allowed)


def _drawn(given: Range, stream: np.random.Generator) -> Any:
    """A value of a range; a number to three digits, within it: what a reader types again."""
    if isinstance(given, list):
        return given[stream.integers(len(given))]
    low, high = given
    if low > 0 and high / low >= DECADE:
        value = math.exp(stream.uniform(math.log(low), math.log(high)))
    else:
        value = stream.uniform(low, high)
    whole = type(low) is int and type(high) is int
    return round(value) if whole else min(max(float(f"{value:.3g}"), low), high)
