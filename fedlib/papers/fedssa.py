"""FedSSA: which runs its tables and figures need, at each scale, and which notebook makes each."""

from typing import Any

from .grids import (
    CIFAR10,
    CLASSES,
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

# Rows of the tables, in their order. FedGH stands beside the methods of Table 2; it is ours there.
FEDSSA_TABLE1 = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FedClassAvg", "FD", "FedProto", "FedSSA")
FEDSSA_TABLE2 = ("Standalone", "FML", "FedKD", "LG-FedAvg", "FedClassAvg", "FD", "FedProto", "FedGH", "FedSSA")

ALPHA = Sweep("alpha", "Dirichlet concentration", {0: (0.1, 0.2, 0.3, 0.4, 0.5)}, {0: (0.1, 0.3, 0.5)})


def _case(**params: Any) -> Fields:
    return {"algorithm": "FedSSA", "params": params}


_PAIR = methods("FedProto", "FedSSA")
HOMOGENEOUS = Grid(
    "fedssa/homogeneous", methods(*FEDSSA_TABLE1), common={"scenario": "homogeneous"}, columns_at={SMOKE: (TEN,)}
)
HETEROGENEOUS = Grid("fedssa/heterogeneous", methods(*FEDSSA_TABLE2), ours=("FedGH",))
STABILISATION = Grid(
    "fedssa/table5",
    {
        "case A: by class, all rows replaced": _case(replace="all", mu0=0.0),
        "case B: by class, seen rows replaced": _case(mu0=0.0),
        "case C: FedSSA": _case(),
    },
    columns_at={SMOKE: (TEN,)},
)

EXHIBITS = (
    Exhibit("fedssa/table1", "accuracy, homogeneous models", "fedssa/2_homogeneous.ipynb", (HOMOGENEOUS,), "intervals"),
    Exhibit(
        "fedssa/table2",
        "accuracy, heterogeneous models",
        "fedssa/3_heterogeneous.ipynb",
        (HETEROGENEOUS,),
        "intervals",
    ),
    Exhibit("fedssa/table3", "the five CNNs and their sizes", "fedssa/1_method.ipynb", drawn="sizes"),
    Exhibit(
        "fedssa/table4",
        "ablation of the aggregation by class",
        "fedssa/6_ablations.ipynb",
        (
            Grid(
                "fedssa/table4",
                {
                    "case A: LG-FedAvg, unweighted": _case(aggregation="whole", replace="all", mu0=0.0),
                    "case B: A with stabilisation": _case(aggregation="whole", replace="all"),
                    "case C: FedSSA": _case(),
                },
                columns_at={SMOKE: (TEN,)},
            ),
        ),
        "intervals",
    ),
    Exhibit(
        "fedssa/table5",
        "ablation of the parameter stabilisation",
        "fedssa/6_ablations.ipynb",
        (STABILISATION,),
        "intervals",
    ),
    Exhibit("fedssa/fig3", "decay of mu", "fedssa/1_method.ipynb", drawn="decay"),
    Exhibit(
        "fedssa/fig4",
        "accuracy of individual clients",
        "fedssa/3_heterogeneous.ipynb",
        (HETEROGENEOUS,),
        "boxes",
    ),
    Exhibit(
        "fedssa/fig5",
        "accuracy, communication and computation",
        "fedssa/3_heterogeneous.ipynb",
        (HETEROGENEOUS,),
        "trade_off",
    ),
    Exhibit(
        "fedssa/fig6",
        "t-SNE of representations",
        "fedssa/4_representations.ipynb",
        (Grid("fedssa/representations", _PAIR, (TEN,), data=CIFAR10, keep="clients"),),
        "representations",
    ),
    Exhibit(
        "fedssa/fig7",
        "classes a client holds",
        "fedssa/5_robustness.ipynb",
        (Grid("fedssa/classes", _PAIR, (HUNDRED,), data=SWEPT, sweep=CLASSES, at_scale=HALF),),
        "sweeps",
    ),
    Exhibit(
        "fedssa/fig8",
        "Dirichlet partitions",
        "fedssa/5_robustness.ipynb",
        (
            Grid(
                "fedssa/dirichlet",
                _PAIR,
                (HUNDRED,),
                data=SWEPT,
                sweep=ALPHA,
                common={"partition": "dirichlet"},
                at_scale=HALF,
            ),
        ),
        "sweeps",
    ),
    Exhibit(
        "fedssa/fig9",
        "participation",
        "fedssa/5_robustness.ipynb",
        (Grid("fedssa/participation", _PAIR, (HUNDRED,), data=SWEPT, sweep=PARTICIPATION),),
        "sweeps",
    ),
    Exhibit(
        "fedssa/fig10",
        "accuracy over rounds",
        "fedssa/3_heterogeneous.ipynb",
        (HETEROGENEOUS,),
        "curves",
    ),
    Exhibit(
        "fedssa/fig11",
        "with and without stabilisation, over rounds",
        "fedssa/6_ablations.ipynb",
        (STABILISATION,),
        "curves",
    ),
)

PAPER = Paper(
    "FedSSA",
    "FedSSA: Semantic Similarity-based Aggregation for Efficient Model-Heterogeneous Personalized Federated Learning. IJCAI 2024.",
    EXHIBITS,
)
