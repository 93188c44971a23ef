"""Hyper-parameters chosen by validation accuracy: Optuna proposes, every trial is a stored run (`fedlib tune`)."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pandas as pd

from .. import algorithms
from ..errors import FedlibError, choose, coerce, require
from ..protocol import Protocol
from . import files
from .launch import run
from .places import home
from .spec import RunSpec, resolve

DECADE = 10.0
SIZES = ("lr", "batch_size", "local_epochs")  # fields of RunSpec that can be searched
Range = tuple[float, float] | Sequence[Any]


class _Pruned(Exception):
    """Raised in a run that the pruner ends; the run is kept as an interrupted one."""


@dataclass(frozen=True)
class Tuned:
    """What `tune` chose.

    spec: the specification with the values of the best trial; chosen: these values by name; table: a row a trial: its values,
    `validation` (accuracy of the last round that it reached, per cent), `rounds` (how many it reached) and `state` (finished,
    pruned or diverged); best: the row of the best trial.
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
        return ", ".join(f"{name} = {_plain(value)}" for name, value in self.chosen.items())

    def __repr__(self) -> str:
        pruned = (self.table["state"] == "pruned").sum()
        over = f"{self.trials} trials" + (f", {pruned} of them pruned" if pruned else "")
        return f"{self.spec.algorithm}: {self.words}, of {over} (validation {self.validation:.2f} %)"


def default_ranges(spec: RunSpec, scale: str | None = None) -> dict[str, Range]:
    """What `tune` searches where nothing is said: the learning rate from a tenth to ten times its value, and so each
    hyper-parameter of the method that is a positive number without an upper limit; those between 0 and 1 wholly.
    """
    resolved = resolve(spec, scale)
    found: dict[str, Range] = {"lr": _around(resolved.spec.lr)}
    for item in dataclasses.fields(resolved.algorithm):
        value, limits = getattr(resolved.algorithm, item.name), item.metadata
        if not isinstance(value, float) or value <= 0 or not {"ge", "gt"} & set(limits):
            continue
        high = limits.get("le", limits.get("lt"))
        least = 0.0 if limits.get("ge") == 0 else 0.05
        below = 0.95 if "lt" in limits else high
        found[item.name] = _around(value) if high is None else (least, below)
    return found


def _around(value: float) -> tuple[float, float]:
    return float(f"{value / DECADE:.6g}"), float(f"{value * DECADE:.6g}")


def tune(
    spec: RunSpec,
    ranges: Mapping[str, Range] | None = None,
    *,
    trials: int = 20,
    scale: str | None = None,
    prune: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> Tuned:
    """Choose hyper-parameters by the validation accuracy of the last round; test images are not looked at.

    ranges: name -> (low, high), searched by its logarithm where both are above 0 and a decade or more lies between, or a
    list of values to choose from; of `lr`, `batch_size`, `local_epochs`, hyper-parameters of the method and fields of the
    protocol. By default `default_ranges`. trials: how many runs of `spec`, each stored under its own key like any run; a
    pruned one stops after a round in which it is below the median of the others (Optuna's MedianPruner after four trials)
    and is stored as an interrupted run. seed: of the sampler (TPE; Bergstra et al., NeurIPS 2011); the runs have that of `spec`.

    The trials are noted in `tuning/` of the home: the same call reads them, goes on after an interrupt with the trial that was
    interrupted, and does only what is missing where `trials` is larger. Raises FedlibError where Optuna is not installed, a
    name is unknown, a range is none, or the data have no validation part.
    """
    optuna = _optuna()
    trials, seed = coerce("trials", trials, int), coerce("seed", seed, int)
    require(trials >= 1, "trials", trials, "at least 1")
    require(0 <= seed < 2**32 - trials, "seed", seed, "between 0 and 2**32")
    base = resolve(spec, scale)
    require(base.protocol.parts[1] > 0, "split", base.protocol.split, "one with validation samples, to choose by")
    given = default_ranges(spec, scale) if ranges is None else ranges
    require(isinstance(given, Mapping) and bool(given), "ranges", given, "a name and its range, or several")
    searched = {name: _distribution(optuna, name, one, spec) for name, one in given.items()}
    for name, one in searched.items():  # what the method or the protocol does not allow is said before the first trial
        for value in getattr(one, "choices", None) or (one.low, one.high):
            resolve(with_values(spec, {name: value}), scale)
    asked = {
        "of": base.session,  # the run, and the versions of the numbers that it would have
        "ranges": {name: repr(one) for name, one in searched.items()},
        "seed": seed,
        "prune": prune,
    }
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    folder = home() / "tuning"
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder / f"{spec.algorithm}-{base.spec.dataset}-{digest}.json"
    lock = filelock.FileLock(f"{notes}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise FedlibError(f"{spec.algorithm}: another process tunes it in this very way") from None
    try:
        noted = _noted(notes)
        ended: list[dict[str, Any]] = noted.get("ended", [])

        def note(under_way: Mapping[str, Any] | None = None) -> None:
            now = {"asked": asked, "ended": ended} | ({"under way": under_way} if under_way else {})
            files.write_bytes(notes, json.dumps(now, indent=1).encode())

        pruner = optuna.pruners.MedianPruner(4, base.spec.rounds // 4) if prune else optuna.pruners.NopPruner()
        while len(ended) < trials:
            study = optuna.create_study(
                direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed + len(ended)), pruner=pruner
            )
            study.add_trials([_as_trial(optuna, one, searched) for one in ended])
            trial = study.ask(searched)
            values = {name: _rounded(trial.params[name], one) for name, one in searched.items()}
            ended.append(_try(trial, values, spec, scale, noted.get("under way", {}), note))
            note()
            if progress:
                print(f"{spec.algorithm} trial {len(ended)}/{trials}: {_line(ended[-1])}", flush=True)
    finally:
        lock.release()
    table = pd.DataFrame(
        [
            one["values"]
            | {"validation": 100 * (one["validation"] or [math.nan])[-1], "rounds": len(one["validation"])}
            for one in ended[:trials]
        ]
    ).assign(state=[one["state"] for one in ended[:trials]])
    finished = table.loc[table["state"] == "finished", "validation"]
    if finished.empty:
        raise FedlibError(f"{spec.algorithm}: none of {trials} trials ended with a finite validation accuracy")
    best = [*finished.index][finished.to_numpy().argmax()]
    chosen: dict[str, Any] = ended[best]["values"]
    return Tuned(with_values(spec, chosen), chosen, table, best)


def with_values(spec: RunSpec, values: Mapping[str, Any]) -> RunSpec:
    """`spec` with its fields SIZES, hyper-parameters of its method and fields of the protocol set by name."""
    own = {item.name for item in dataclasses.fields(algorithms.ALGORITHMS[spec.algorithm])}
    sizes = {name: value for name, value in values.items() if name in SIZES and name not in own}
    params = {name: value for name, value in values.items() if name in own}
    overrides = {name: value for name, value in values.items() if name not in own and name not in SIZES}
    return dataclasses.replace(
        spec, **sizes, params={**spec.params, **params}, overrides={**spec.overrides, **overrides}
    )


def _rounded(value: Any, of: Any) -> Any:
    """A proposed number to three digits, within its range: what a reader types again."""
    return (
        min(max(float(f"{value:.3g}"), of.low), of.high) if isinstance(value, float) and hasattr(of, "low") else value
    )


def _try(
    trial: Any,
    values: dict[str, Any],
    spec: RunSpec,
    scale: str | None,
    under_way: Mapping[str, Any],
    note: Callable[[Mapping[str, Any]], None],
) -> dict[str, Any]:
    """One trial: its values, the validation accuracy after each round, and how it ended.

    What it has reached is noted after every round, so that a trial that was interrupted (`under_way`) is judged as one that
    was not.
    """
    reached = under_way["validation"] if under_way.get("values") == values else []
    for step, value in enumerate(reached):
        trial.report(value, step)

    def after_round(row: Mapping[str, Any]) -> None:
        step = int(row["round"])
        if step == len(reached):  # else it is trained once more, since it was not saved before an interrupt
            reached.append(float(row["validation_accuracy"]))
            trial.report(reached[-1], step)
        note({"values": values, "validation": reached})
        if trial.should_prune():
            raise _Pruned

    try:
        record = run(with_values(spec, values), scale, progress=False, log=after_round)
    except _Pruned:
        return {"values": values, "validation": reached, "state": "pruned"}
    of_rounds = record.rounds.loc[record.rounds["round"] >= 0, "validation_accuracy"].tolist()
    finished = record.status == "finished" and math.isfinite(of_rounds[-1])
    return {"values": values, "validation": of_rounds, "state": "finished" if finished else "diverged"}


def _noted(notes: Path) -> dict[str, Any]:
    """What earlier calls noted, {} where there is nothing or it cannot be read."""
    try:
        found = json.loads(notes.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _as_trial(optuna: Any, ended: Mapping[str, Any], searched: Mapping[str, Any]) -> Any:
    states = {"finished": "COMPLETE", "pruned": "PRUNED", "diverged": "FAIL"}
    state = optuna.trial.TrialState[states[ended["state"]]]
    reached = {step: value for step, value in enumerate(ended["validation"]) if math.isfinite(value)}
    return optuna.trial.create_trial(
        params=ended["values"], distributions=dict(searched), intermediate_values=reached, state=state,
        value=ended["validation"][-1] if ended["state"] == "finished" else None,
    )  # fmt: skip


def _distribution(optuna: Any, name: str, given: Range, spec: RunSpec) -> Any:
    """Optuna's distribution of a range; FedlibError for a name that cannot be searched or a range that is none."""
    own = [item.name for item in dataclasses.fields(algorithms.ALGORITHMS[spec.algorithm])]
    of_protocol = [item.name for item in dataclasses.fields(Protocol) if item.name != "lr"]
    choose("range", name, [*SIZES, *own, *of_protocol])
    if isinstance(given, list) and given:
        return optuna.distributions.CategoricalDistribution(given)
    numbers = isinstance(given, tuple) and len(given) == 2 and all(type(one) in (int, float) for one in given)
    allowed = "(low, high), two numbers of which the first is smaller, or a list of values"
    require(numbers and all(map(math.isfinite, given)) and given[0] < given[1], f"range of {name}", given, allowed)
    low, high = given
    log = low > 0 and high / low >= DECADE
    whole = type(low) is int and type(high) is int
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    return kind(low, high, log=log)


def _line(ended: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name} = {_plain(value)}" for name, value in ended["values"].items())
    rounds = len(ended["validation"])
    reached = f"validation {100 * ended['validation'][-1]:.2f} % after {rounds} rounds" if rounds else "no round"
    return f"{said}: {reached}" + ("" if ended["state"] == "finished" else f", {ended['state']}")


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise FedlibError("optuna is not installed: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
