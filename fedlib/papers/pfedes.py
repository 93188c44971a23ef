"""pFedES: which runs its tables and figures need, at each scale, and which notebook makes each."""

from collections.abc import Mapping

from .grids import (
    CIFAR10,
    CLASSES,
    DEMO,
    HALF,
    HUNDRED,
    PARTICIPATION,
    SMOKE,
    SWEPT,
    TEN,
    Exhibit,
    Fields,
    Grid,
    Paper,
    Sweep,
    methods,
)

PFEDES_TABLES = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto", "pFedES")  # rows, in their order

MU = Sweep("mu", "weight mu of enhanced images", {0: (0.1, 0.2, 0.3, 0.4, 0.5)}, {0: (0.1, 0.3, 0.5)})
EXTRACTOR_EPOCHS = Sweep(
    "extractor_epochs", "extractor epochs E_fe", {0: (5, 10, 15, 20)}, {0: (5, 10, 20)}, {0: (1, 2, 3)}
)

_PAIR = methods("FedProto", "pFedES")
_SENSITIVITY: Mapping[str, Fields] = {
    **HALF,
    DEMO: {"rounds": 6},
}  # pFedES alone, and up to twenty epochs of its extractor
HETEROGENEOUS = Grid("pfedes/heterogeneous", methods(*PFEDES_TABLES))

EXHIBITS = (
    Exhibit("pfedes/table1", "the five CNNs and their sizes", "pfedes/1_method.ipynb", drawn="sizes"),
    Exhibit(
        "pfedes/table2",
        "accuracy, homogeneous models",
        "pfedes/2_homogeneous.ipynb",
        (
            Grid(
                "pfedes/homogeneous",
                methods(*PFEDES_TABLES),
                common={"scenario": "homogeneous"},
                columns_at={SMOKE: (TEN,)},
            ),
        ),
        "intervals",
    ),
    Exhibit(
        "pfedes/table3",
        "accuracy, heterogeneous models",
        "pfedes/3_heterogeneous.ipynb",
        (HETEROGENEOUS,),
        "intervals",
    ),
    Exhibit("pfedes/fig3", "accuracy over rounds", "pfedes/3_heterogeneous.ipynb", (HETEROGENEOUS,), "curves"),
    Exhibit("pfedes/fig4", "accuracy of individual clients", "pfedes/3_heterogeneous.ipynb", (HETEROGENEOUS,), "boxes"),
    Exhibit(
        "pfedes/fig5",
        "accuracy, communication and computation",
        "pfedes/3_heterogeneous.ipynb",
        (HETEROGENEOUS,),
        "trade_off",
    ),
    Exhibit(
        "pfedes/fig6",
        "t-SNE of representations",
        "pfedes/4_representations.ipynb",
        (Grid("pfedes/representations", _PAIR, (TEN,), data=CIFAR10, keep="clients"),),
        "representations",
    ),
    Exhibit(
        "pfedes/fig7",
        "enhanced images",
        "pfedes/4_representations.ipynb",
        (Grid("pfedes/images", methods("pFedES"), (HUNDRED,), data=CIFAR10, keep="server"),),
        "images",
    ),
    Exhibit(
        "pfedes/fig8",
        "classes a client holds",
        "pfedes/5_robustness.ipynb",
        (Grid("pfedes/classes", _PAIR, (HUNDRED,), data=SWEPT, sweep=CLASSES, at_scale=HALF),),
        "sweeps",
    ),
    Exhibit(
        "pfedes/fig9",
        "participation",
        "pfedes/5_robustness.ipynb",
        (Grid("pfedes/participation", _PAIR, (HUNDRED,), data=SWEPT, sweep=PARTICIPATION),),
        "sweeps",
    ),
    Exhibit(
        "pfedes/fig10",
        "sensitivity to mu and E_fe",
        "pfedes/6_sensitivity.ipynb",
        (
            Grid("pfedes/mu", methods("pFedES"), (HUNDRED,), data=SWEPT, sweep=MU, at_scale=_SENSITIVITY),
            Grid(
                "pfedes/extractor_epochs",
                methods("pFedES"),
                (HUNDRED,),
                data=SWEPT,
                sweep=EXTRACTOR_EPOCHS,
                at_scale=_SENSITIVITY,
            ),
        ),
        "sensitivity",
    ),
)

PAPER = Paper(
    "pFedES",
    "pFedES: Model Heterogeneous Personalized Federated Learning with Feature Extractor Sharing. arXiv:2311.06879, 2023.",
    EXHIBITS,
)
