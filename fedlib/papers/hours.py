"""What exhibits cost, by arithmetic: nothing is timed, so the same everywhere."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import lab, models
from ..lab import costs, plugins
from . import exhibits

ORDINARY = 2800.0  # training images a second of an ordinary core: the mean of CNN-1 to CNN-5 in fp32


def text(grids: Sequence[str], scale: str, images_per_second: float = ORDINARY) -> str:
    """Hours on one core of all runs of `grids` at a scale, to two significant digits; two cores take half as long.

    Training images x FLOPs per image / images_per_second, FLOPs in units of plain training of the mean of CNN-1 to CNN-5 at 10
    classes, times the method's own work (`lab.relative_work`). Where a scale trains in bf16, up to twice too much.
    """
    return f"{float(f'{sum(images(grids, scale).values()) / images_per_second / 3600:.2g}'):g}"


def images(grids: Sequence[str], scale: str) -> Mapping[str, float]:
    """Key of a run -> its training images, each weighed by the work on it in units of plain training of the CNNs' mean."""
    return {key: count for grid in grids for key, count in _of_grid(grid, scale, plugins.registered()).items()}


@functools.cache
def _of_grid(grid: str, scale: str, _registered: tuple[Any, ...]) -> dict[str, float]:
    cells = [lab.resolve(cell.spec, scale) for cell in exhibits.cells(grid, scale)]
    return {run.key: run.samples * _weight(run) * lab.relative_work(run) for run in cells}


def _weight(run: lab.Resolved) -> float:
    shape = run.info.num_classes, run.info.sample
    plain = np.mean([costs.training_flops(name, *shape) for name in run.architectures])
    return float(plain / np.mean([costs.training_flops(name, 10, 3) for name in models.CNN_WIDTHS]))
