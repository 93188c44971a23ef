"""pFedHR: which runs its tables and figures need, at each scale, and which notebook makes each.

Its own world: N = 12, B = 4 active, M1..M4, Adam, a tenth of the training images public. E is the text's; T and the batch size are
*chosen* (the released script's). M4 costs 46 times what CNN-1 does, so scales demo and record are reduced: 500 public images, one
epoch at the clients and at the server, batches of 64 and bf16; T = 40 lets nearly every client be selected five times. CIFAR-10
stands in for SVHN there. At scale smoke three clients, all active so that all are taught, have M1, M2 and M3; M4 is only among
the nine that stand in for 100. Of the digits' training part four fifths are withheld from the clients; 32 of them are public, and
4 candidates are fine-tuned. Non-IID is four classes per client there: with two, a client is soon right on every test image.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .grids import DEMO, RECORD, SMOKE, Column, Exhibit, Fields, Grid, Paper, Sweep, by_scale, methods

# Rows of the tables, in their order.
PFEDHR_LABELLED = ("Standalone", "FedMD", "FedGH", "pFedHR")  # Standalone is ours
PFEDHR_UNLABELLED = ("Standalone", "FedKEMF", "FCCL", "pFedHR")
PFEDHR_TABLE4 = ("Standalone", "FedAvg", "FedProx", "Per-FedAvg", "pFedMe", "pFedBayes", "pFedHR")

PUBLIC_DATASET = Sweep(
    "public_dataset",
    "public data",
    {"svhn": (None, "mnist", "cifar10"), "cifar10": (None, "mnist", "svhn")},
    {"cifar10": (None, "mnist")},
    {0: (None, "digits-inverted", "digits-noisy")},
    numeric=False,
)
PUBLIC_DATASET_MANY = replace(PUBLIC_DATASET, smoke={0: (None, "digits-inverted")})  # for many clients
PUBLIC_FRACTION = Sweep("public_fraction", "share of public data", {0: (0.02, 0.05, 0.1)}, {0: (0.02, 0.05, 0.1)})
CLUSTERS = Sweep("clusters", "clusters K", {0: (2, 3, 4, 5)}, {0: (2, 3, 4)})  # *chosen*: the text gives no values
STITCH_LAYERS = Sweep("stitch_layers", "layers of a stitch", {0: (1, 2, 3)}, {0: (1, 2, 3)})
SERVER_EPOCHS = Sweep("server_epochs", "server epochs E_s", {0: (1, 3, 5, 10)}, {0: (1, 3, 5)})  # *chosen*, likewise

IID, NON_IID = Column({"partition": "iid"}), Column({"partition": "by-class"})
_PUBLIC: dict[str, Fields] = {"labelled": {"public_labels": True}, "unlabelled": {"public_labels": False}}
_PAPER: Fields = {
    **{"paper": "pFedHR", "scenario": "reassembly", "num_clients": 12, "participation": 1 / 3},
    **{"rounds": 100, "local_epochs": 10, "batch_size": 10},
}
_MANY: Fields = {**_PAPER, "num_clients": 100, "participation": 0.1}
_SMOKE: Fields = {
    **{"num_clients": 3, "participation": 1.0, "classes_per_client": 4},
    **{"rounds": 3, "local_epochs": 1, "batch_size": 16},
    **{"public_fraction": 0.8, "public_images": 32, "server_epochs": 1, "max_candidates": 4},
}
_SMOKE_MANY: Fields = {
    **_SMOKE,
    **{"num_clients": 9, "participation": 1 / 3, "classes_per_client": 2, "local_epochs": 2, "public_images": 16},
}
_REDUCED: Fields = {"rounds": 40, "local_epochs": 1, "batch_size": 64, "public_images": 500, "server_epochs": 1}
_AT = {DEMO: {**_REDUCED, "rounds": 3}, RECORD: _REDUCED}
_ALL = by_scale(("digits",), ("mnist", "svhn", "cifar10"), demo=("cifar10",), record=("mnist", "cifar10"))
_SVHN = by_scale(("digits",), ("svhn",), demo=("cifar10",), record=("cifar10",))
_CIFAR = by_scale(("digits",), ("cifar10",))


def _reassembly(
    name: str, public: str, data: Mapping[str, Sequence[str]], many: bool = False, sweep: Sweep | None = None
) -> Grid:
    """A grid of section 4.2 or 4.4: methods with labelled or unlabelled public data, IID and Non-IID; many: N = 100, B = 10."""
    rows: dict[str, Fields] = methods(*(PFEDHR_LABELLED if public == "labelled" else PFEDHR_UNLABELLED))
    if sweep:  # without public data there is nothing to sweep
        del rows["Standalone"]
    rows["pFedHR"] = {"algorithm": "pFedHR", "params": {"merge_same": True} if many else {}}
    if "FedGH" in rows:  # needs features of one width
        rows["FedGH"] = {"algorithm": "FedGH", "scenario": "reassembly-500"}
    return Grid(
        name,
        rows,
        (IID, NON_IID),
        columns_at={SMOKE: (NON_IID,)} if many else {SMOKE: (IID,)} if sweep else {},
        data=data,
        sweep=sweep,
        common={**(_MANY if many else _PAPER), **_PUBLIC[public]},
        at_scale={
            SMOKE: _SMOKE_MANY if many else _SMOKE,
            **_AT,
            **({DEMO: {**_AT[DEMO], "rounds": 2, "max_candidates": 4}} if sweep else {}),
        },
        shown=("public_labels", "partition"),
        ours=("Standalone",),
    )


def _swept(
    sweep: Sweep, public: Sequence[str] = ("labelled", "unlabelled"), at: Mapping[str, Fields] | None = None
) -> Grid:
    """A sweep of sections 4.4 to 4.6: pFedHR on SVHN, N = 12; at: scale -> fields of every run."""
    scales = {SMOKE: _SMOKE, **_AT}
    return Grid(
        f"pfedhr/{sweep.name}",
        {f"pFedHR, {name}": {"algorithm": "pFedHR", **_PUBLIC[name]} for name in public},
        (IID, NON_IID),
        columns_at={SMOKE: (IID,)},
        data=_SVHN,
        sweep=sweep,
        common=_PAPER,
        at_scale={scale: {**fields, **(at or {}).get(scale, {})} for scale, fields in scales.items()},
        shown=("partition",),
    )


LABELLED = _reassembly("pfedhr/labelled", "labelled", _ALL)
SMALL_MODELS = {
    model: [replace(column, fields={"scenario": f"homogeneous-{model}", **column.fields}) for column in (IID, NON_IID)]
    for model in ("M1", "M4")
}

EXHIBITS = (
    Exhibit(
        "pfedhr/table2",
        "accuracy, heterogeneous models",
        "pfedhr/2_heterogeneous.ipynb",
        (LABELLED, _reassembly("pfedhr/unlabelled", "unlabelled", _ALL)),
        "intervals",
    ),
    Exhibit(
        "pfedhr/table3",
        "many clients",
        "pfedhr/2_heterogeneous.ipynb",
        (
            _reassembly("pfedhr/many-labelled", "labelled", _SVHN, many=True),
            _reassembly("pfedhr/many-unlabelled", "unlabelled", _SVHN, many=True),
        ),
        "intervals",
    ),
    Exhibit(
        "pfedhr/table4",
        "homogeneous models",
        "pfedhr/3_homogeneous.ipynb",
        (
            Grid(
                "pfedhr/homogeneous",
                methods(*PFEDHR_TABLE4),
                (*SMALL_MODELS["M1"], *SMALL_MODELS["M4"]),
                columns_at={SMOKE: SMALL_MODELS["M1"], DEMO: SMALL_MODELS["M1"][-1:], RECORD: SMALL_MODELS["M1"]},
                data=_ALL,
                common=_PAPER,
                at_scale={SMOKE: {**_SMOKE, "inner_steps": 1}, **_AT},
                shown=("scenario", "partition"),
                ours=("Standalone",),
            ),
        ),
        "intervals",
    ),
    Exhibit(
        "pfedhr/fig1",
        "public data of other sets",
        "pfedhr/4_public_data.ipynb",
        (
            _reassembly("pfedhr/public-labelled", "labelled", _SVHN, sweep=PUBLIC_DATASET),
            _reassembly("pfedhr/public-unlabelled", "unlabelled", _SVHN, sweep=PUBLIC_DATASET),
        ),
        "by_group",
    ),
    Exhibit(
        "pfedhr/fig3",
        "share of public data",
        "pfedhr/4_public_data.ipynb",
        # The shares leave the clients all other images, and all of a share are public.
        (
            _swept(
                PUBLIC_FRACTION,
                at={
                    SMOKE: {"public_images": None, "rounds": 3, "batch_size": 32},
                    DEMO: {"public_images": None, "rounds": 2, "max_candidates": 2},
                    RECORD: {"public_images": None},
                },
            ),
        ),
        "sweeps",
    ),
    Exhibit("pfedhr/fig4", "number of clusters", "pfedhr/5_ablations.ipynb", (_swept(CLUSTERS),), "sweeps"),
    Exhibit(
        "pfedhr/fig5",
        "layers of a stitch",
        "pfedhr/5_ablations.ipynb",
        (_swept(STITCH_LAYERS, ("labelled",)),),
        "sweeps",
    ),
    Exhibit(
        "pfedhr/fig6",
        "epochs of fine-tuning at the server",
        "pfedhr/5_ablations.ipynb",
        (_swept(SERVER_EPOCHS, ("labelled",)),),
        "sweeps",
    ),
    Exhibit("pfedhr/fig7", "reassembled candidates", "pfedhr/1_method.ipynb", (LABELLED,), "chains", whole=True),
    Exhibit(
        "pfedhr/appendix-fig1",
        "public data of other sets, many clients",
        "pfedhr/4_public_data.ipynb",
        (
            _reassembly("pfedhr/many-public-labelled", "labelled", _SVHN, many=True, sweep=PUBLIC_DATASET_MANY),
            _reassembly("pfedhr/many-public-unlabelled", "unlabelled", _SVHN, many=True, sweep=PUBLIC_DATASET_MANY),
        ),
        "by_group",
    ),
    Exhibit(
        "pfedhr/appendix-fig2",
        "public data of other sets, labelled, CIFAR-10",
        "pfedhr/4_public_data.ipynb",
        (_reassembly("pfedhr/cifar-public-labelled", "labelled", _CIFAR, sweep=PUBLIC_DATASET),),
        "by_group",
    ),
    Exhibit(
        "pfedhr/appendix-fig3",
        "public data of other sets, unlabelled, CIFAR-10",
        "pfedhr/4_public_data.ipynb",
        (_reassembly("pfedhr/cifar-public-unlabelled", "unlabelled", _CIFAR, sweep=PUBLIC_DATASET),),
        "by_group",
    ),
)

PAPER = Paper(
    "pFedHR",
    "Towards Personalized Federated Learning via Heterogeneous Model Reassembly. NeurIPS 2023.",
    EXHIBITS,
)
