"""FedGH: which runs its tables and figures need, at each scale, and which notebook makes each."""

from .grids import (
    CLASSES,
    HALF,
    HUNDRED,
    PARTICIPATION,
    RECORD,
    SMOKE,
    SWEPT,
    TEN,
    Exhibit,
    Grid,
    Paper,
    Sweep,
    methods,
)

# Rows of the tables, in their order.
FEDGH_TABLE1 = ("Standalone", "FedAvg", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto", "FedGH")
FEDGH_TABLE3 = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto", "FedGH")

SERVER_LR = Sweep(
    "server_lr",
    "the server's learning rate",
    {0: (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)},
    {0: (0.0, 0.001, 0.01, 0.1)},  # at 0 the header is frozen, as in the released code
    {0: (0.001, 0.01, 1.0)},
)
# The paper sweeps at N = 10. At scale record N = 100 stands in, at a tenth of the cost of a round.
_SWEPT_AT = {RECORD: (HUNDRED,)}

_THREE = methods("LG-FedAvg", "FedProto", "FedGH")
HOMOGENEOUS = Grid(
    "fedgh/homogeneous", methods(*FEDGH_TABLE1), common={"scenario": "homogeneous"}, columns_at={SMOKE: (TEN,)}
)
HETEROGENEOUS = Grid("fedgh/heterogeneous", methods(*FEDGH_TABLE3), (TEN,))

EXHIBITS = (
    Exhibit("fedgh/table1", "accuracy, homogeneous models", "fedgh/2_homogeneous.ipynb", (HOMOGENEOUS,), "intervals"),
    Exhibit("fedgh/table2", "the five CNNs and their sizes", "fedgh/1_method.ipynb", drawn="sizes"),
    Exhibit(
        "fedgh/table3",
        "accuracy and communication, heterogeneous models",
        "fedgh/3_heterogeneous.ipynb",
        (HETEROGENEOUS,),
        "intervals",
    ),
    Exhibit("fedgh/fig2", "accuracy over rounds", "fedgh/2_homogeneous.ipynb", (HOMOGENEOUS,), "curves"),
    Exhibit(
        "fedgh/fig3",
        "classes a client holds",
        "fedgh/4_robustness.ipynb",
        (Grid("fedgh/classes", _THREE, (TEN,), _SWEPT_AT, SWEPT, CLASSES, at_scale=HALF),),
        "sweeps",
    ),
    Exhibit(
        "fedgh/fig4",
        "participation",
        "fedgh/4_robustness.ipynb",
        (Grid("fedgh/participation", _THREE, (HUNDRED,), data=SWEPT, sweep=PARTICIPATION),),
        "sweeps",
    ),
    Exhibit(
        "fedgh/fig5",
        "the server's learning rate",
        "fedgh/5_server_lr.ipynb",
        (Grid("fedgh/server_lr", methods("FedGH"), (TEN,), _SWEPT_AT, SWEPT, SERVER_LR, at_scale=HALF),),
        "curves_by_value",
    ),
)

PAPER = Paper(
    "FedGH", "FedGH: Heterogeneous Federated Learning with Generalized Global Header. ACM Multimedia 2023.", EXHIBITS
)
