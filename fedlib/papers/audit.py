"""The audit, which is ours: the released code against the texts, one difference at a time, the papers' claims, and where the
papers contradict each other.
"""

from typing import Any

from . import fedgh, fedssa, pfedes
from .grids import CIFAR10, HUNDRED, Exhibit, Fields, Grid, Paper

# The rows change one thing at a time, starting from the released code. Names of the references:
AS_RELEASED, THE_TEXT = "as released", "the paper's text"


def _released(method: str, algorithm: str = "", **changed: Any) -> Fields:
    return {"algorithm": algorithm or method, "paper": method, "protocol": "released", **changed}


def _text(method: str, **params: Any) -> Fields:
    return {"algorithm": method, "paper": method, "protocol": "paper", "params": params}


def _training(method: str) -> dict[str, Fields]:
    """What the texts do not say of data and optimiser, taken back one by one."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "clip_norm": 0.0, "lr": 0.01}
    return {
        "8:1:1 of each client": _released(method, overrides={"split": "local-8:1:1"}),
        "no augmentation": _released(method, overrides={"augmentation": "none"}),
        "plain SGD at 0.01": _released(method, overrides=plain),
    }


AUDIT_FEDSSA: dict[str, Fields] = {
    AS_RELEASED: _released("FedSSA"),
    "no inherited first visits": _released("FedSSA", overrides={"inherit": "none"}),
    "mean over the selected owners": _released("FedSSA", params={"aggregate_over": "selected"}),
    "T_stable = 20": _released("FedSSA", params={"stable_rounds": 20}),
    **_training("FedSSA"),
    "Standalone": _released("FedSSA", "Standalone", overrides={"inherit": "none"}),
    "Standalone, inherited first visits": _released("FedSSA", "Standalone"),
    THE_TEXT: _text("FedSSA"),
}
AUDIT_FEDGH: dict[str, Fields] = {
    AS_RELEASED: _released("FedGH"),
    "the header is trained": _released("FedGH", params={"server_update": "per_lar"}),
    "no inheritance in round 0": _released("FedGH", overrides={"inherit": "none"}),
    **_training("FedGH"),
    THE_TEXT: _text("FedGH"),
    "the text, but header frozen": _text("FedGH", server_update="frozen"),
}
AUDIT_INSTEAD = {"the text, but header frozen": THE_TEXT}  # case -> its reference, where that is not the released code
AUDIT_PFEDES: dict[str, Fields] = {
    AS_RELEASED: _released("pFedES"),
    "mu = 0.1": _released("pFedES", params={"mu": 0.1}),
    "E_fe = 5": _released("pFedES", params={"extractor_epochs": 5}),
    **_training("pFedES"),
    THE_TEXT: _text("pFedES", mu=0.1, extractor_epochs=5),
}

# At scale smoke the learning rates are the protocols' own: they are of what is compared.
_SMOKE: Fields = {"rounds": 3, "lr": None}
_NOTEBOOK = "audit/1_paper_or_code.ipynb"

EXHIBITS = (
    Exhibit(
        "audit/fedssa",
        "FedSSA, one difference at a time",
        _NOTEBOOK,
        (Grid("audit/fedssa", AUDIT_FEDSSA, (HUNDRED,), at_scale={"smoke": _SMOKE, "demo": {"rounds": 60}}),),
        "effects",
    ),
    Exhibit(
        "audit/fedgh",
        "FedGH, one difference at a time",
        _NOTEBOOK,
        (Grid("audit/fedgh", AUDIT_FEDGH, (HUNDRED,), data=CIFAR10, at_scale={"smoke": _SMOKE}),),
        "effects",
    ),
    Exhibit(
        "audit/pfedes",
        "pFedES, one difference at a time",
        _NOTEBOOK,
        (
            # Twenty epochs of the extractor, as shipped, are too many for scale smoke: 2 stand for 20, and 1 for 5.
            Grid(
                "audit/pfedes",
                AUDIT_PFEDES,
                (HUNDRED,),
                data=CIFAR10,
                at_scale={"smoke": {**_SMOKE, "extractor_epochs": 2}},
                smoke_methods={
                    "E_fe = 5": {"params": {"extractor_epochs": 1}},
                    THE_TEXT: {"params": {"mu": 0.1, "extractor_epochs": 1}},
                },
            ),
        ),
        "effects",
    ),
    Exhibit(
        "audit/claims",
        "the papers' claims, recomputed and judged",
        "audit/2_claims.ipynb",
        (fedssa.HETEROGENEOUS, fedgh.HETEROGENEOUS, pfedes.HETEROGENEOUS),
        "tallies",
    ),
    Exhibit(
        "audit/contradictions",
        "where the papers contradict each other",
        "audit/3_contradictions.ipynb",
        drawn="agreement",
    ),
)

PAPER = Paper("audit", "", EXHIBITS)
