"""What pFedHR (NeurIPS 2023) claims."""

from functools import partial

from .. import recompute
from ..checks import Above, Higher, KeepsUp, LosesAbroad, LosesLeast, Trend
from .claim import Claim

TABLE2 = ("pfedhr/labelled", "pfedhr/unlabelled")
TABLE3 = ("pfedhr/many-labelled", "pfedhr/many-unlabelled")
TABLE4 = ("pfedhr/homogeneous",)
FOREIGN = ("pfedhr/public-labelled", "pfedhr/public-unlabelled")
FOREIGN_MANY = ("pfedhr/many-public-labelled", "pfedhr/many-public-unlabelled")
FOREIGN_CIFAR = ("pfedhr/cifar-public-labelled", "pfedhr/cifar-public-unlabelled")
HARD = ("svhn", "cifar10")

_claim = partial(Claim, paper="pFedHR")

CLAIMS = (
    _claim(
        name="best in Table 2",
        where="section 4.2",
        words="pFedHR is best in every column of Table 2, among methods with the same kind of public data",
        printed="12",
        unit="of 12",
        tables=lambda: recompute.wins("pFedHR", "Table 2", method="pFedHR"),
        check=Above(grids=TABLE2, method="pFedHR"),
    ),
    _claim(
        name="labels help",
        where="section 4.2",
        words="Labelled public data make pFedHR better than unlabelled ones",
        printed="6",
        unit="of 6",
        tables=lambda: recompute.higher(
            "pFedHR", "Table 2", field="public_labels", at="labelled", than="unlabelled", methods=("pFedHR",)
        ),
        check=Higher(
            grids=TABLE2, what="labelled - unlabelled", field="public_labels", at=True, than=False, over=("pFedHR",)
        ),
    ),
    _claim(
        name="best in Table 3",
        where="section 4.2",
        words="pFedHR is best in every column of Table 3, with 100 clients",
        printed="4",
        unit="of 4",
        tables=lambda: recompute.wins("pFedHR", "Table 3", method="pFedHR"),
        check=Above(grids=TABLE3, method="pFedHR"),
    ),
    _claim(
        name="worse with 100 clients",
        where="section 4.2",
        words="On SVHN every method is worse with 100 clients than with 12",
        printed="12",
        unit="of 12",
        tables=lambda: recompute.lower_than_in("pFedHR", "Table 3", other="Table 2", dataset="svhn"),
        check=Higher(
            grids=(*TABLE2, *TABLE3), datasets=("svhn",), what="12 - 100 clients", field="num_clients", at=12, than=100
        ),
    ),
    _claim(
        name="best in Table 4",
        where="section 4.3",
        words="With equal models pFedHR is best on SVHN and CIFAR-10, with the small model too",
        printed="8",
        unit="of 8",
        tables=lambda: recompute.wins("pFedHR", "Table 4", method="pFedHR", datasets=HARD),
        check=Above(grids=TABLE4, method="pFedHR", datasets=HARD),
    ),
    _claim(
        name="the larger model helps",
        where="section 4.3",
        words="On SVHN and CIFAR-10 the larger model M4 helps every method",
        printed="24",
        unit="of 24",
        tables=lambda: recompute.higher(
            "pFedHR", "Table 4", field="models", at="homogeneous-M4", than="homogeneous-M1", datasets=HARD
        ),
        check=Higher(
            grids=TABLE4, datasets=HARD, what="M4 - M1", field="models", at="homogeneous-M4", than="homogeneous-M1"
        ),
    ),
    _claim(
        name="foreign data hurt",
        where="section 4.4, figure 1",
        words="Public data of another kind lower the accuracy of every method",
        check=LosesAbroad(grids=FOREIGN),
    ),
    _claim(
        name="loses the least",
        where="section 4.4, figure 1",
        words="When the public data are of another kind, pFedHR loses the least",
        check=LosesLeast(grids=FOREIGN, method="pFedHR"),
    ),
    _claim(
        name="keeps up abroad",
        where="section 4.4, figure 1",
        words="With public data of another kind pFedHR keeps up with baselines that have the clients' kind",
        check=KeepsUp(grids=FOREIGN, method="pFedHR"),
    ),
    _claim(
        name="rises with public data",
        where="section 4.4, figure 3",
        words="The more public data, the better pFedHR",
        check=Trend(grids=("pfedhr/public_fraction",), direction="rises"),
    ),
    _claim(
        name="rises with K",
        where="section 4.5, figure 4",
        words="The more clusters, the better pFedHR",
        check=Trend(grids=("pfedhr/clusters",), direction="rises"),
    ),
    _claim(
        name="fewer candidates with K",
        where="section 4.5",
        words="The more clusters, the fewer candidates, until there may be none",
        check=Trend(grids=("pfedhr/clusters",), direction="falls", quantity="candidates"),
    ),
    _claim(
        name="falls with stitch layers",
        where="section 4.6, figure 5",
        words="The more layers a stitch has, the worse pFedHR",
        check=Trend(grids=("pfedhr/stitch_layers",), direction="falls"),
    ),
    _claim(
        name="falls with server epochs",
        where="section 4.6, figure 6",
        words="The longer the server fine-tunes, the worse pFedHR",
        check=Trend(grids=("pfedhr/server_epochs",), direction="falls"),
    ),
    _claim(
        name="foreign data hurt, 100 clients",
        where="appendix 2.3.1",
        words="With 100 clients, too, public data of another kind lower the accuracy of every method",
        check=LosesAbroad(grids=FOREIGN_MANY),
    ),
    _claim(
        name="loses the least, 100 clients",
        where="appendix 2.3.1",
        words="With 100 clients pFedHR loses the least when the public data are of another kind",
        check=LosesLeast(grids=FOREIGN_MANY, method="pFedHR"),
    ),
    _claim(
        name="keeps up abroad, 100 clients",
        where="appendix 2.3.1",
        words="With 100 clients pFedHR with public data of another kind keeps up with baselines that have the clients' kind",
        check=KeepsUp(grids=FOREIGN_MANY, method="pFedHR"),
    ),
    _claim(
        name="foreign data hurt, CIFAR-10",
        where="appendix 2.3.2",
        words="On CIFAR-10, too, public data of another kind lower the accuracy",
        check=LosesAbroad(grids=FOREIGN_CIFAR),
    ),
    _claim(
        name="loses the least, CIFAR-10",
        where="appendix 2.3.2",
        words="On CIFAR-10 pFedHR loses the least when the public data are of another kind",
        check=LosesLeast(grids=FOREIGN_CIFAR, method="pFedHR"),
    ),
)
