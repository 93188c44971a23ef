"""What FedGH (ACM MM 2023) claims. It counts gains in per cent of FedProto's accuracy."""

from functools import partial

from .. import recompute
from ..checks import Above, AboveOnAverage, ExtractionCost, Faster, Flat, Saves, Trend
from ..verdicts import All
from .claim import Claim

TABLE1, TABLE3 = ("fedgh/homogeneous",), ("fedgh/heterogeneous",)
OTHERS = ("LG-FedAvg", "FedProto")  # of the figures
# The methods whose costs to the target Table 3 prints; the others have a dash.
REACHING = {"cifar10": ("LG-FedAvg", "FD", "FedProto"), "cifar100": ("LG-FedAvg", "FedProto")}

_claim = partial(Claim, paper="FedGH")

CLAIMS = (
    _claim(
        name="mean lead on CIFAR-100, equal models",
        where="abstract",
        again="section 5.2.1",
        words="With equal models FedGH beats FedProto on CIFAR-100; the mean of three settings, relative",
        printed="8.87",
        unit="% relative",
        tables=lambda: recompute.relative_gain_of_means(
            "FedGH", "Table 1", method="FedGH", over="FedProto", dataset="cifar100"
        ),
        check=AboveOnAverage(grids=TABLE1, method="FedGH", over="FedProto", datasets=("cifar100",), sized=True),
    ),
    _claim(
        name="mean lead on CIFAR-10, equal models",
        where="section 5.2.1",
        words="With equal models FedGH beats FedProto on CIFAR-10; the mean of three settings, relative",
        printed="0.54",
        unit="% relative",
        tables=lambda: recompute.relative_gain_of_means(
            "FedGH", "Table 1", method="FedGH", over="FedProto", dataset="cifar10"
        ),
        check=AboveOnAverage(grids=TABLE1, method="FedGH", over="FedProto", datasets=("cifar10",), sized=True),
    ),
    _claim(
        name="lead on CIFAR-100, unequal models",
        where="abstract",
        again="section 5.2.2",
        words="With unequal models FedGH beats FedProto on CIFAR-100, relative",
        printed="1.83",
        unit="% relative",
        tables=lambda: recompute.relative_gain(
            "FedGH", "Table 3", method="FedGH", over="FedProto", dataset="cifar100", num_clients=10
        ),
        check=Above(
            grids=TABLE3, method="FedGH", over=("FedProto",), datasets=("cifar100",), relative=True, sized=True
        ),
    ),
    _claim(
        name="lead on CIFAR-10, unequal models",
        where="section 5.2.2",
        words="With unequal models FedGH beats FedProto on CIFAR-10, relative",
        printed="1.17",
        unit="% relative",
        tables=lambda: recompute.relative_gain(
            "FedGH", "Table 3", method="FedGH", over="FedProto", dataset="cifar10", num_clients=10
        ),
        check=Above(grids=TABLE3, method="FedGH", over=("FedProto",), datasets=("cifar10",), relative=True, sized=True),
    ),
    _claim(
        name="communication saved",
        where="abstract",
        again="section 5.2.2",
        words="FedGH saves most of FedProto's communication to the target on CIFAR-100",
        printed="85.53",
        unit="%",
        tables=lambda: recompute.saved("FedGH", "Table 3", method="FedGH", over="FedProto", dataset="cifar100"),
        check=Saves(
            grids=TABLE3, method="FedGH", over=("FedProto",), datasets=("cifar100",), kinds=("words",), sized=True
        ),
    ),
    _claim(
        name="extraction is half an epoch",
        where="section 3.3",
        words="Extracting the representations costs half of one epoch of training",
        printed="0.5",
        unit="of an epoch",
        check=ExtractionCost(),
    ),
    _claim(
        name="best everywhere, equal models",
        where="section 5.2.1",
        words="FedGH has the highest mean accuracy everywhere, equal models",
        printed="6",
        unit="of 6",
        tables=lambda: recompute.wins("FedGH", "Table 1", method="FedGH"),
        check=Above(grids=TABLE1, method="FedGH"),
    ),
    _claim(
        name="best everywhere, unequal models",
        where="section 5.2.2",
        words="FedGH has the highest mean accuracy on both data sets, unequal models",
        printed="2",
        unit="of 2",
        tables=lambda: recompute.wins("FedGH", "Table 3", method="FedGH"),
        check=Above(grids=TABLE3, method="FedGH"),
    ),
    _claim(
        name="fewest rounds",
        where="section 5.2.2",
        words="FedGH needs the fewest rounds to the target on both data sets, among methods that communicate",
        printed="2",
        unit="of 2",
        tables=lambda: recompute.fewest_rounds("FedGH", "Table 3", method="FedGH"),
        check=All(
            checks=tuple(
                Saves(grids=TABLE3, method="FedGH", over=others, datasets=(dataset,), kinds=("rounds",))
                for dataset, others in REACHING.items()
            )
        ),
    ),
    _claim(
        name="least communication on CIFAR-100",
        where="section 5.2.2",
        words="FedGH communicates the least to the target on CIFAR-100",
        printed="1",
        unit="rank",
        tables=lambda: recompute.rank_by_communication("FedGH", "Table 3", method="FedGH", dataset="cifar100"),
        check=Saves(grids=TABLE3, method="FedGH", over=REACHING["cifar100"], datasets=("cifar100",), kinds=("words",)),
    ),
    _claim(
        name="moderate communication on CIFAR-10",
        where="section 5.2.2",
        words="FedGH's communication to the target is in the middle on CIFAR-10: above FD's and FedProto's, below LG-FedAvg's",
        printed="3",
        unit="rank",
        tables=lambda: recompute.rank_by_communication("FedGH", "Table 3", method="FedGH", dataset="cifar10"),
        check=All(
            checks=(
                Saves(
                    grids=TABLE3,
                    method="FedGH",
                    over=("FD", "FedProto"),
                    datasets=("cifar10",),
                    kinds=("words",),
                    low=-float("inf"),
                    high=0,
                ),
                Saves(grids=TABLE3, method="FedGH", over=("LG-FedAvg",), datasets=("cifar10",), kinds=("words",)),
            )
        ),
    ),
    _claim(
        name="converges fastest",
        where="section 5.2.1, figure 2",
        words="FedGH reaches the highest accuracy, and the fastest",
        check=Faster(grids=TABLE1, method="FedGH", num_clients=(10,)),
    ),
    _claim(
        name="above others by classes",
        where="section 5.3.1",
        words="FedGH is above LG-FedAvg and FedProto however many classes a client holds",
        check=Above(grids=("fedgh/classes",), method="FedGH", over=OTHERS),
    ),
    _claim(
        name="falls with classes",
        where="section 5.3.1",
        words="The more classes a client holds, the lower the accuracy",
        check=Trend(grids=("fedgh/classes",), direction="falls"),
    ),
    _claim(
        name="above others by participation",
        where="section 5.3.2",
        words="FedGH is above LG-FedAvg and FedProto at every participation rate",
        check=Above(grids=("fedgh/participation",), method="FedGH", over=OTHERS),
    ),
    _claim(
        name="falls with participation",
        where="section 5.3.2",
        words="The more clients take part, the lower the accuracy",
        check=Trend(grids=("fedgh/participation",), direction="falls"),
    ),
    _claim(
        name="server rate does not matter",
        where="section 5.3.3",
        words="The learning rate of the server's header does not matter",
        check=Flat(grids=("fedgh/server_lr",)),
    ),
)
