"""Where each value of the three protocols comes from: what the text says, what the released code does, what `reconstructed` takes,
and why. The values are read from the presets; only the reasons are written here.
"""

from typing import Any

import pandas as pd

from ..errors import choose
from ..lab import presets

SILENT = "the text is silent; the code's"
TEXT = "the text's"
SHARED = SILENT + ". Its exhibits share one training with FedSSA's tables, so they and their rows of record have 5e-05"

# Of every field of the protocol: why `reconstructed` has its value. A paper's own reason stands under its name.
WHY: dict[str, dict[str, str]] = {
    "split": {
        "": "the text's 8:1:1 of each client's share; the code deals the official parts",
        "pFedHR": "the text's 80 to 20 without validation; the code wastes a fifth of the training part",
    },
    "reserve": {
        "": "no public data in the paper's own methods",
        "pFedHR": "all methods of a table share one public part: a tenth of the official training images, as in the code (5 000 of "
        "CIFAR-10); the text's is a tenth of 80 % of all (4 800)",
    },
    "distinct": {
        "": "the text: a client holds k classes; the code's dealing can give it fewer",
        "pFedHR": "as in the text: two classes; a client of the code may draw both of its shards of one",
    },
    "floors": {"": "no reason to leave images unused", "pFedHR": "no reason to leave images unused"},
    "dealing": {
        "": "as the text and the code deal",
        "pFedHR": "the text's two classes of all images; the code's two shards of 225 leave a client of CIFAR-10 288 images to train on",
    },
    "normalise": {"": SILENT + ": ImageNet's statistics on CIFAR-10", "pFedHR": SILENT},
    "augmentation": {"": SILENT + ": flip, erasing, crop", "pFedHR": "neither has any for local training"},
    "optimiser": {"": TEXT + " SGD", "pFedHR": TEXT + " Adam (appendix 2)"},
    "lr": {
        "": TEXT,
        "FedSSA": TEXT + "; the code has 0.005",
        "pFedHR": TEXT,
    },
    "momentum": {"": SILENT, "pFedHR": "Adam has moments of its own"},
    "weight_decay": {
        "": SILENT,
        "FedGH": SHARED,
        "pFedES": SHARED,
        "pFedHR": SILENT,
    },
    "clip_norm": {
        "": SILENT,
        "FedSSA": SILENT + " (only the proof mentions clipping)",
        "pFedHR": "neither clips",
    },
    "starts": {
        "": "copies of one state per architecture, as in the homogeneous code; `apart` is a switch",
        "pFedHR": SILENT + ": a new network for each client",
    },
    "inherit": {
        "": "nothing but messages connects clients (Algorithm 1)",
        "FedSSA": "an error of the heterogeneous code: first visits find the model that the last client of the architecture trained",
        "FedGH": "an error of the heterogeneous code: in round 0 clients train one another's models",
    },
}
# Of the methods' parameters that differ between the protocols.
WHY_PARAMS: dict[tuple[str, str], str] = {
    (
        "FedSSA",
        "aggregate_over",
    ): "Eq. 3: the mean over the selected owners; the code includes initial headers of the never visited",
    ("FedSSA", "stable_rounds"): "0: 20 of 500 rounds, in proportion to T (Figure 3); the code stops after 2, or 45",
    (
        "FedGH",
        "server_update",
    ): "Eq. 4: the server trains the header on each client's representations; the code never updates it",
    ("FedGH", "first_header"): "Algorithm 1: the global header from round 0 on",
    ("FedGH", "lars"): "Eq. 3: mean representations of the client's images; the code's are of augmented ones",
    ("pFedES", "mu"): "best of Figure 10",
    ("pFedES", "extractor_epochs"): "best of Figure 10",
    ("pFedES", "extra_epochs"): "the code trains the extractor for E + 10 epochs",
    ("pFedHR", "clusters"): "section 4.2: K = 4",
    ("pFedHR", "weight"): "appendix 2: lambda = 0.2",
    ("pFedHR", "kd"): "Eq. 6: a divergence of softmax outputs; the code compares logits",
    ("pFedHR", "client_reset"): "Algorithm 1: clients keep their models",
    ("pFedHR", "crop"): "SimCLR's, which the text follows",
    ("pFedHR", "projection"): "SimCLR's, which the text follows",
}
# What the code does and no protocol here reproduces.
NOT_REPRODUCED = {
    "all three of Yi et al.": "accuracy as a mean over batches; a headline over the round's clients alone (a column here)",
    "FedSSA, homogeneous": "a first round whose fusion compounds from client to client, since their headers share memory",
    "FedGH and pFedES, homogeneous": "momentum that outlives a client's visit",
    "FedGH": "local averaged representations that are means of batch means, in which each batch counts alike",
    "pFedES": "an extractor that keeps its momentum from visit to visit, with heterogeneous models too; a mean of extractors weighted by "
    "all of a client's images, where ours and the text's counts those to train on",
    "pFedHR": "two clients that draw the same shard, so that one may test on what the other trains on; on IID data, test images that other "
    "clients train on",
}


def field_table(paper: str, scenario: str = "heterogeneous") -> pd.DataFrame:
    """One row per field of the protocol, and per parameter of the paper's method that the protocols set apart: its value under
    `paper`, `released` and `reconstructed`, and why the last one is what it is. Raises FedlibError for an unknown paper.
    """
    choose("paper", paper, dict.fromkeys(name for name, _ in presets.PRESETS))
    variants = ("paper", "released", "reconstructed")
    scenario = presets.preset(paper, "paper").scenario if paper == "pFedHR" else scenario
    protocols = {name: presets.protocol(paper, name, scenario) for name in variants}
    rows = [
        {"field": field}
        | {name: _said(getattr(protocol, field)) for name, protocol in protocols.items()}
        | {"why": reasons.get(paper, reasons[""])}
        for field, reasons in WHY.items()
    ]
    for name in _set_apart(paper):
        values = {variant: _said(getattr(presets.method(paper, variant, scenario), name)) for variant in variants}
        rows.append({"field": f"{name} of {paper}"} | values | {"why": WHY_PARAMS[paper, name]})
    return pd.DataFrame(rows).set_index("field")


def _set_apart(paper: str) -> list[str]:
    """Parameters of the paper's own method that some scenario's released preset sets."""
    return list(dict.fromkeys(name for own in presets.preset(paper, "released").params.values() for name in own))


def _said(value: Any) -> str:
    return {True: "yes", False: "no", None: "-"}[value] if value is None or isinstance(value, bool) else str(value)
