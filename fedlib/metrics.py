"""What tables and figures of accuracies can show, each metric registered once: name, unit, range and how it is measured.

`accuracy` is measured in every run. A metric of a client's logits and labels (`of_client`) is measured in runs that ask
for it, `RunSpec(metrics="balanced_accuracy")`, and stands in their rounds.csv and clients.csv under its name. One of
the clients' accuracies (`of_clients`) is computed from clients.csv whenever it is asked for.
"""

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .errors import check_name, choose, others_code, require

if TYPE_CHECKING:  # figures and tables read this registry without loading torch
    from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """name: its column; unit: "%" of a fraction, which is shown times 100, or any other; low, high: its range as it is stored, which a
    run is held to; undefined: whether it may be NaN on a client, which means over clients then leave out.

    of_client: called with a client's logits (n, C) and labels (n,) on its test images, returns a scalar, and draws from global
    generators as the run has seeded them; of_clients: called with the test accuracies (fractions) of the clients visited so far,
    returns a number. At most one of the two.
    """

    name: str
    unit: str = "%"
    low: float = 0.0
    high: float = 1.0
    undefined: bool = False
    of_client: "Callable[[Tensor, Tensor], Tensor] | None" = None
    of_clients: Callable[[np.ndarray], float] | None = None

    @property
    def scale(self) -> float:
        """What a stored value is multiplied by to be shown."""
        return 100.0 if self.unit == "%" else 1.0

    def check(self, value: float, whose: str) -> None:
        """Raise FedlibError for a stored value of a person's own beyond its range, but for rounding, or NaN that is not declared."""
        slack = 1e-6 * max(1.0, abs(value)) if np.isfinite(value) else 0.0
        fits = (
            self.low - slack <= value <= self.high + slack or (self.undefined and np.isnan(value)) or self in BUILT_IN
        )
        allowed = f"between {self.low:g} and {self.high:g}, as it declares (low, high, undefined)"
        require(fits, f"metric {self.name} {whose}", value, allowed)


def _balanced_accuracy(logits: "Tensor", labels: "Tensor") -> "Tensor":
    """The mean over the classes in `labels` of the fraction of each that is classified correctly."""
    correct = (logits.argmax(1) == labels).double()
    of_class = (labels.unsqueeze(1) == labels.unique()).double()
    return ((correct.unsqueeze(1) * of_class).sum(0) / of_class.sum(0)).mean()


def _macro_f1(logits: "Tensor", labels: "Tensor") -> "Tensor":
    """The mean of F1 = 2 TP / (2 TP + FP + FN) over the classes in `labels`."""
    classes = labels.unique()
    said, true = logits.argmax(1).unsqueeze(1) == classes, labels.unsqueeze(1) == classes  # (n, C')
    both, either = (said & true).sum(0).double(), said.sum(0) + true.sum(0)
    return (2 * both / either).mean()


def _auc(logits: "Tensor", labels: "Tensor") -> "Tensor":
    """The mean over the classes in `labels` of the area under the ROC curve of the class against all others, scored by its
    probability: how often a sample of the class has a higher one than another sample, ties counting half. NaN where all
    samples are of one class.
    """
    probabilities, areas = logits.double().softmax(1), []
    for label in labels.unique():
        scores, own = probabilities[:, label], labels == label
        above = scores[own].unsqueeze(1) - scores[~own]  # every pair
        areas.append(((above > 0).double() + (above == 0).double() / 2).mean())
    return sum(areas[1:], areas[0]) / len(areas)


def _calibration_error(logits: "Tensor", labels: "Tensor") -> "Tensor":
    """Expected calibration error (Guo et al., ICML 2017, Eq. 3): the distance between accuracy and confidence in 15 bins of
    equal width of the confidence, weighted by their samples.
    """
    confidence, said = logits.double().softmax(1).max(1)
    apart = (said == labels).double() - confidence
    bins = (confidence * 15).ceil().clamp(1, 15)
    inside = (bins.unsqueeze(1) == bins.unique()).double()  # (n, bins with samples)
    return (apart.unsqueeze(1) * inside).sum(0).abs().sum() / len(labels)


def _worst_decile(accuracies: np.ndarray) -> float:
    """The mean of the lowest tenth, rounded up to whole clients."""
    return float(np.sort(accuracies)[: -(-len(accuracies) // 10)].mean())


def _spread(accuracies: np.ndarray) -> float:
    return float(accuracies.std())


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy"),
        Metric("balanced_accuracy", of_client=_balanced_accuracy),
        Metric("macro_f1", of_client=_macro_f1),
        Metric("auc", undefined=True, of_client=_auc),
        Metric("calibration_error", of_client=_calibration_error),
        Metric("worst_decile", of_clients=_worst_decile),
        Metric("spread", of_clients=_spread),
    )
}
BUILT_IN = frozenset(METRICS.values())
# Columns of rounds.csv and clients.csv, which nothing that a metric or a method hands back may replace.
TAKEN = (
    *("round", "client", "architecture", "validation_accuracy", "selected", "visited", "samples", "accuracy_all"),
    *("accuracy_selected", "download_words", "upload_words", "published_words", "inherited", "absent"),
)


def register(metric: Metric) -> None:
    """Make a metric of your own known by its name; registering again replaces it, so a cell can be run twice. Raises
    FedlibError for the name of one of fedlib's, and where nothing measures it.
    """
    check_name("metric", metric.name)
    columns = [*TAKEN, "loss", "visits", *(f"{name}_{whose}" for name in METRICS for whose in ("all", "selected"))]
    free = METRICS.get(metric.name) not in BUILT_IN and metric.name not in columns
    require(free, "metric", metric.name, "a name that none of fedlib's has, and no other column of a run")
    fits = all(isinstance(end, numbers.Real) for end in (metric.low, metric.high)) and metric.low < metric.high
    allowed = "two numbers, the lower first; float('inf') where there is no end"
    require(fits, f"metric {metric.name}: low and high", (metric.low, metric.high), allowed)
    one = (metric.of_client is None) != (metric.of_clients is None)
    require(one, f"metric {metric.name}", "of_client and of_clients", "one of the two")
    METRICS[metric.name] = metric


def find(column: str) -> Metric:
    """The metric in a column of a record's rounds: also `accuracy_all`, `accuracy_selected` and the like. Any other column
    is taken for a fraction, as a method's further ways of predicting are.
    """
    name = column.removesuffix("_all").removesuffix("_selected")
    return METRICS.get(column) or replace(METRICS.get(name, Metric(column)), name=column)


def measured(names: str) -> tuple[str, ...]:
    """The metrics in a text such as `balanced_accuracy,another`, which a run is to measure on each client, in order of
    name. Raises FedlibError for one that is unknown, or not measured on a client.
    """
    known = [name for name, metric in METRICS.items() if metric.of_client is not None]
    asked = sorted({name.strip() for name in names.split(",")} - {""})
    for name in asked:
        choose("metric", name, known)
    return tuple(asked)


def of_client(names: Sequence[str], logits: "Tensor", labels: "Tensor") -> "dict[str, Tensor]":
    """The values of these metrics on a client's logits (n, C) and labels (n,)."""
    if logits.device.type == "mps":  # which has no float64
        logits, labels = logits.cpu(), labels.cpu()
    return {name: _value(METRICS[name], logits, labels) for name in names}


def _value(metric: Metric, logits: "Tensor", labels: "Tensor") -> "Tensor":
    """A metric of one client. Raises FedlibError where a person's own fails, or is no number."""
    assert metric.of_client is not None
    if metric in BUILT_IN:
        return metric.of_client(logits, labels)
    with others_code(f"metric {metric.name}"):
        found = metric.of_client(logits.clone(), labels.clone())  # whatever it does to them
        real = not found.is_complex() if hasattr(found, "is_complex") else np.asarray(found).dtype.kind in "biuf"
        require(np.ndim(found) == 0 and real, f"metric {metric.name}", found, "a single number")
    return found
