"""Rounds for an experiment tracker while runs train: TensorBoard, Weights & Biases, MLflow, or a function of your own.

>>> from fedlib import lab, study
>>> with lab.track("tensorboard:boards"):  # doctest: +SKIP
...     study.train(["Standalone", "FedSSA"], seeds=range(3), dataset="digits")

A tracker is called with a run's key, its specification and a row of its rounds; one with a method `finish(key)` is told when
there are no more. It watches: what it gets are copies, what it draws or sets is put back, and where it fails a line says so
and the runs go on without it.
"""

import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import FedlibError, choose, one_line, others_code, require
from ..randomness import fork_everything
from .places import home
from .progress import notice
from .records import Record
from .spec import FilledSpec

Tracker = Callable[[str, FilledSpec, dict[str, Any]], Any]


class _Watched:
    """A tracker that can neither change a number nor end a run."""

    def __init__(self, given: "str | Tracker"):
        self.name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        self.tracker: Tracker | None = _named(given) if isinstance(given, str) else given
        require(callable(self.tracker), "tracker", given, f"a function of key, specification and row, or {_ALLOWED}")
        self.told: set[str] = set()  # keys of runs
        self.open: set[str] = set()  # those of them that are not finished

    def tell(self, key: str, spec: FilledSpec, row: Mapping[str, Any]) -> None:
        self.told.add(key)
        self.open.add(key)
        if self.tracker is not None:
            self._call(self.tracker, key, copy.deepcopy(spec), copy.deepcopy(dict(row)))

    def finish(self, key: str) -> None:
        ending = getattr(self.tracker, "finish", None)
        if key in self.open and ending is not None:
            self._call(ending, key)
        self.open.discard(key)

    def _call(self, function: Callable[..., Any], *given: Any) -> None:
        threads, dtype, gradients = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
        try:
            with others_code(self.name), fork_everything(np.random.default_rng(0)):
                function(*given)
        except FedlibError as error:
            self.tracker = None
            notice(f"tracking ended, the runs go on: {one_line(str(error))}")
        finally:
            torch.set_num_threads(threads)
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(gradients)


_watching: ContextVar[tuple[_Watched, ...]] = ContextVar("watching", default=())


@contextmanager
def track(*trackers: "str | Tracker") -> Iterator[None]:
    """Within, each round of every run that is asked for goes to these trackers as it is trained, in workers of a sweep too; of a
    run that is stored its rounds go there at once.

    trackers: functions, or `tensorboard:FOLDER` (a folder by run in it), `wandb:PROJECT` (a run by run, named by its key;
    WANDB_MODE=offline for no network), `mlflow:URI` or `mlflow:FOLDER` (an SQLite file in it; experiment `fedlib`, a run by
    run). Without a folder it is `tensorboard` or `mlflow` in the home. A run that is resumed goes on under its name; its rounds
    before, if no tracker was told of them, are not made up for. Raises FedlibError for one that is unknown or not installed.
    """
    made = tuple(map(_Watched, trackers))
    token = _watching.set((*_watching.get(), *made))
    try:
        yield
    finally:
        _watching.reset(token)
        for one in made:
            for key in sorted(one.open):
                one.finish(key)


def tell(key: str, spec: FilledSpec, row: Mapping[str, Any]) -> None:
    """Hand a round of a run, a row of its rounds, to the trackers."""
    for one in _watching.get():
        one.tell(key, spec, row)


def finish(key: str) -> None:
    """Tell the trackers that there are no more rounds of a run for now."""
    for one in _watching.get():
        one.finish(key)


def stored(record: Record) -> None:
    """Hand all rounds of a stored run to the trackers that have not been told of it."""
    for one in _watching.get():
        if record.key not in one.told:
            for row in record.rounds.query("round >= 0").to_dict("records"):
                one.tell(record.key, record.spec, {str(name): value for name, value in row.items()})
            one.finish(record.key)


# --------------------------------------------------------------------------------------------- the trackers that have a name


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """What of a row a chart can show."""
    numbers = {name: value for name, value in row.items() if name != "round" and isinstance(value, int | float)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


class TensorBoard:
    """A folder of events for each run, with a scalar for each number of a round."""

    def __init__(self, folder: str):
        from torch.utils.tensorboard import SummaryWriter

        self.folder, self._open = Path(folder or home() / "tensorboard").expanduser(), SummaryWriter
        self.writers: dict[str, Any] = {}

    def __call__(self, key: str, spec: FilledSpec, row: Mapping[str, Any]) -> None:
        step = int(row["round"])
        if key not in self.writers:  # what an earlier, broken off attempt wrote of this round and later ones is hidden
            self.writers[key] = self._open(str(self.folder / key), purge_step=step, flush_secs=5)
            self.writers[key].add_text("specification", f"```json\n{json.dumps(asdict(spec), indent=1)}\n```", step)
        for name, value in _numbers(row).items():
            self.writers[key].add_scalar(name, value, step)

    def finish(self, key: str) -> None:
        self.writers.pop(key).close()


class WandB:
    """A run of Weights & Biases for each run, whose id is the key."""

    def __init__(self, project: str):
        import wandb

        self.project, self._wandb = project or "fedlib", wandb
        self.runs: dict[str, Any] = {}

    def __call__(self, key: str, spec: FilledSpec, row: Mapping[str, Any]) -> None:
        if key not in self.runs:
            self.runs[key] = self._wandb.init(
                project=self.project, id=key, name=key, config=asdict(spec), group=spec.algorithm, resume="allow",
                reinit="create_new", settings=self._wandb.Settings(console="off", quiet=True),
            )  # fmt: skip
        self.runs[key].log(_numbers(row), step=int(row["round"]))

    def finish(self, key: str) -> None:
        self.runs.pop(key).finish()


class MLflow:
    """A run of MLflow for each run, found again by the tag `fedlib.key`."""

    def __init__(self, place: str):
        from mlflow import MlflowClient, entities

        if ":" not in place:
            folder = Path(place or home() / "mlflow").expanduser().absolute()
            folder.mkdir(parents=True, exist_ok=True)
            place = f"sqlite:///{folder}/mlflow.db"
        self.client, self._metric = MlflowClient(tracking_uri=place), entities.Metric
        self.runs: dict[str, tuple[str, int]] = {}  # by key: the run's id, and the last round that it has
        known = self.client.get_experiment_by_name("fedlib")
        self.experiment = known.experiment_id if known else self.client.create_experiment("fedlib")

    def __call__(self, key: str, spec: FilledSpec, row: Mapping[str, Any]) -> None:
        if key not in self.runs:
            self.runs[key] = self._begun(key, spec)
        id, last = self.runs[key]
        step, now = int(row["round"]), int(1000 * time.time())
        if step > last:
            self.client.log_batch(id, [self._metric(name, value, now, step) for name, value in _numbers(row).items()])

    def _begun(self, key: str, spec: FilledSpec) -> tuple[str, int]:
        found = self.client.search_runs([self.experiment], f"tags.`fedlib.key` = '{key}'")
        if found:
            steps = [metric.step for metric in self.client.get_metric_history(found[0].info.run_id, "selected")]
            return found[0].info.run_id, max(steps, default=-1)
        id = self.client.create_run(self.experiment, run_name=key, tags={"fedlib.key": key}).info.run_id
        for name, value in asdict(spec).items():
            self.client.log_param(id, name, value)
        return id, -1

    def finish(self, key: str) -> None:
        self.client.set_terminated(self.runs.pop(key)[0])


NAMED: dict[str, Callable[[str], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
_ALLOWED = "tensorboard:FOLDER, wandb:PROJECT or mlflow:URI"


def _named(text: str) -> Tracker:
    """The tracker that `tensorboard:FOLDER` and the like name."""
    kind, _, place = text.partition(":")
    choose("tracker", kind, NAMED)
    try:
        with others_code(f"tracker = {text!r}"):
            return NAMED[kind](place)
    except FedlibError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        line = f"tracker = {text!r}: {kind} is not installed: pip install {kind}"
        raise FedlibError(line) from None
