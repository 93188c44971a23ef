"""What accuracy tables and figures can show, each metric registered once: name, unit, range and how it is measured.

`accuracy` is measured in every run. A metric of a client's logits and labels (`of_client`) is measured in runs that ask
for it, `RunSpec(metrics="balanced_accuracy")`, and stands in their rounds.csv and clients.csv under its name. One of
the clients' accuracies (`of_clients`) is computed from clients.csv whenever it is asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .errors import check_name, choose, require

if TYPE_CHECKING:  # figures and tables read this registry without loading torch
    from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """name: its column; title: in captions and on axes; unit: "%" of a fraction, which is shown times 100, or any other;
    low, high: its range as it is stored; higher_is_better: how tables rank it.

    of_client: called with a client's logits (n, C) and labels (n,) on its test images, returns a scalar; of_clients:
    called with the test accuracies (fractions) of the clients visited so far, returns a number. At most one of the two.
    """

    name: str
    title: str
    unit: str = "%"
    low: float = 0.0
    high: float = 1.0
    higher_is_better: bool = True
    of_client: "Callable[[Tensor, Tensor], Tensor] | None" = None
    of_clients: Callable[[np.ndarray], float] | None = None

    @property
    def label(self) -> str:
        """Of an axis: `mean test accuracy (%)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def scale(self) -> float:
        """What a stored value is multiplied by to be shown."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def limits(self) -> tuple[float, float]:
        """The range as it is shown."""
        return self.low * self.scale, self.high * self.scale


def _balanced_accuracy(logits: "Tensor", labels: "Tensor") -> "Tensor":
    """The mean over the classes in `labels` of the fraction of each that is classified correctly."""
    correct = (logits.argmax(1) == labels).double()
    of_class = (labels.unsqueeze(1) == labels.unique()).double()
    return ((correct.unsqueeze(1) * of_class).sum(0) / of_class.sum(0)).mean()


def _worst_decile(accuracies: np.ndarray) -> float:
    """The mean of the lowest tenth, rounded up to whole clients."""
    return float(np.sort(accuracies)[: -(-len(accuracies) // 10)].mean())


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "mean test accuracy"),
        Metric("balanced_accuracy", "mean balanced test accuracy", of_client=_balanced_accuracy),
        Metric("worst_decile", "mean test accuracy of the worst tenth", of_clients=_worst_decile),
    )
}
BUILT_IN = frozenset(METRICS.values())


def register(metric: Metric) -> None:
    """Make a metric known by its name. Raises FedlibError for a name that is taken, and where nothing measures it."""
    check_name("metric", metric.name)
    require(metric.name not in METRICS, "metric", metric.name, "a name that no other metric has")
    one = (metric.of_client is None) != (metric.of_clients is None)
    require(one, f"metric {metric.name}", "of_client and of_clients", "one of the two")
    METRICS[metric.name] = metric


def find(column: str) -> Metric:
    """The metric in a column of a record's rounds: also `accuracy_all`, `accuracy_selected` and the like. Any other column
    is taken for a fraction, as a method's further ways of predicting are.
    """
    for suffix, whose in (("_all", "over all clients"), ("_selected", "over the selected clients")):
        name = column.removesuffix(suffix)
        if name != column and name in METRICS:
            return replace(METRICS[name], name=column, title=f"{METRICS[name].title} {whose}")
    return METRICS.get(column) or Metric(column, column.replace("_", " "))


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
    functions = {name: METRICS[name].of_client for name in names}
    return {name: function(logits, labels) for name, function in functions.items() if function is not None}
