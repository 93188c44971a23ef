"""Experimental settings of each paper and of its authors' released code, as data: one preset per (paper, variant); every
field of the protocol can be overridden by name. `fedlib.papers.fields` says where each value is from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import fields
from ..errors import choose, coerce
from ..protocol import Protocol

ANY = "any"  # scenario

ByScenario = Mapping[str, Mapping[str, Any]]  # scenario, or any -> values by name


@dataclass(frozen=True)
class Preset:
    """One variant of one paper: `paper` is what its text says and nothing else, `released` what its authors' code does,
    `reconstructed` the text's algorithm with the code's training where the text is silent, and none of the code's errors.

    protocol: how it trains and measures; scenario: the architectures of its clients where nothing else is said;
    setting: N and C at every scale, of a paper whose experiments have one main setting; by scenario: in_scenario,
    fields of the protocol that differ; sizes, T, E and B at scale `paper` where they are not that scale's (500, 10 and
    512, *chosen*: the texts give grids); params, hyper-parameters of its own method where nothing else is said.
    """

    protocol: Protocol
    scenario: str = "heterogeneous"
    setting: Mapping[str, Any] = field(default_factory=dict)
    in_scenario: ByScenario = field(default_factory=dict)
    sizes: ByScenario = field(default_factory=dict)
    params: ByScenario = field(default_factory=dict)


def _of(scenario: str, values: ByScenario) -> dict[str, Any]:
    return {**values.get(ANY, {}), **values.get(scenario, {})}


# What the three released scripts share. Four of their habits are not reproduced: accuracy as a mean over batches (equal
# to ours up to 512 test images); a headline over the round's clients only (ours is `accuracy_selected`, beside the mean
# over the visited); in the homogeneous FedGH and pFedES scripts, momentum that outlives a client's visit (ours is
# fresh; pFedES's extractor keeps its own in both scripts); and, in the homogeneous FedSSA script, a first round whose
# fusion compounds from client to client (their initial headers share memory with the server's, so that row norms grow
# by 1 + mu0 once per earlier client).
_RELEASED = Protocol(
    split="official-4:1:1",
    distinct=False,
    floors=True,
    normalise="released",
    augmentation="released",
    momentum=0.9,
    clip_norm=50.0,
)
_COPIES = {"homogeneous": {"inherit": "none"}}  # in the homogeneous scripts clients start from copies
_FEDGH = {"server_update": "frozen", "first_header": "own", "lars": "augmented"}


def _reconstructed(weight_decay: float) -> Preset:
    """The texts' SGD at 0.01 and 8:1:1 of each client's share; momentum, weight decay, clipping, augmentation and
    normalisation of the scripts, on which the texts are silent. Clients begin with copies, and with nobody else's model.
    """
    training = {name: getattr(_RELEASED, name) for name in ("normalise", "augmentation", "momentum", "clip_norm")}
    return Preset(Protocol(weight_decay=weight_decay, **training))


_PFEDHR_SIZES = {ANY: {"rounds": 100, "batch_size": 10}}  # E = 10 is the text's; T and B are not in it

# Hyper-parameters: baselines have no released script and keep their defaults. stable_rounds is *chosen*, as E is.
PRESETS: dict[tuple[str, str], Preset] = {
    # What the texts say: plain SGD at 0.01, 8:1:1 of each client's share, mean over all clients, no augmentation.
    ("FedSSA", "paper"): Preset(Protocol()),  # section 6.1
    ("FedGH", "paper"): Preset(Protocol()),  # section 5.1
    ("pFedES", "paper"): Preset(Protocol()),  # section 5.1
    # 80 % to train and 20 % to test on, no validation, a tenth of the training images public (section 4.1: 4 800 of the
    # 48 000 of CIFAR-10; here of the official ones, as in the code: 5 000), Adam at 1e-3 (appendix 2).
    ("pFedHR", "paper"): Preset(
        Protocol(split="local-8:0:2", reserve=True, optimiser="adam", lr=0.001),
        scenario="reassembly",
        setting={"num_clients": 12, "participation": 1 / 3},  # section 4.2: 4 of 12
        sizes=_PFEDHR_SIZES,
    ),
    # The method's parameters are those that the texts call best: they are the methods' defaults.
    ("FedSSA", "reconstructed"): _reconstructed(5e-5),
    ("FedGH", "reconstructed"): _reconstructed(1e-3),
    ("pFedES", "reconstructed"): _reconstructed(1e-3),
    # The text's split, sizes and Adam; of the code, on which the text is silent: weight decay, normalisation, and a first
    # model that is drawn for each client.
    ("pFedHR", "reconstructed"): Preset(
        Protocol(
            split="local-8:0:2",
            reserve=True,
            normalise="half",
            optimiser="adam",
            lr=0.001,
            weight_decay=1e-4,
            starts="apart",
        ),
        scenario="reassembly",
        setting={"num_clients": 12, "participation": 1 / 3},
        sizes=_PFEDHR_SIZES,
    ),
    # What the heterogeneous scripts do.
    ("FedSSA", "released"): Preset(
        replace(_RELEASED, lr=0.005, weight_decay=5e-5, inherit="first_visit"),
        in_scenario=_COPIES,
        sizes={"heterogeneous": {"local_epochs": 25}},
        params={
            "heterogeneous": {"aggregate_over": "all", "stable_rounds": 2},
            "homogeneous": {"aggregate_over": "all", "stable_rounds": 45},
        },
    ),
    ("FedGH", "released"): Preset(
        replace(_RELEASED, weight_decay=1e-3, inherit="first_round"),
        in_scenario=_COPIES,
        sizes={"heterogeneous": {"local_epochs": 30}, "homogeneous": {"batch_size": 64}},
        params={"heterogeneous": _FEDGH, "homogeneous": _FEDGH},
    ),
    ("pFedES", "released"): Preset(
        replace(_RELEASED, weight_decay=1e-3),
        params={  # E + 10 and E, whatever E is
            "heterogeneous": {"mu": 0.5, "extractor_epochs": 0, "extra_epochs": 10},
            "homogeneous": {"mu": 0.5, "extractor_epochs": 0},
        },
    ),
    # pFedHR's code: the official training images alone, 80:20 a client, of the 80 the first four fifths to train on
    # and the rest unused (here: validation); Non-IID by shards, 288 images per client of CIFAR-10. Not reproduced: two
    # clients that draw one shard, and on IID data test images that others train on.
    ("pFedHR", "released"): Preset(
        Protocol(
            split="train-16:4:5",
            reserve=True,
            distinct=False,
            dealing="shards",
            normalise="half",
            optimiser="adam",
            lr=0.001,
            weight_decay=1e-4,
            starts="apart",
        ),
        scenario="reassembly",
        setting={"num_clients": 12, "participation": 0.5},
        sizes=_PFEDHR_SIZES,
        params={ANY: {"clusters": 2, "weight": 0.1, "kd": "raw", "client_reset": True, "crop": 0.8, "projection": 0}},
    ),
}


def preset(paper: str, variant: str) -> Preset:
    """The preset of `paper`; raises FedlibError for an unknown paper or variant."""
    choose("paper", paper, dict.fromkeys(name for name, _ in PRESETS))
    choose("protocol", variant, [name for owner, name in PRESETS if owner == paper])
    return PRESETS[paper, variant]


def protocol(
    paper: str, variant: str, scenario: str = "heterogeneous", overrides: Mapping[str, Any] | None = None
) -> Protocol:
    """The protocol of `paper` in `scenario`, with single fields replaced by `overrides`."""
    chosen = preset(paper, variant)
    kinds = {name: type(value) for name, value in vars(chosen.protocol).items()}
    overrides = fields.read(Protocol, overrides or {})
    for name in overrides:
        choose("protocol field", name, kinds)
    given = {name: coerce(name, value, kinds[name]) for name, value in overrides.items()}
    if not given.get("optimiser", "sgd").lower().startswith("sgd"):
        given.setdefault("momentum", 0.0)  # a preset's is SGD's
    return replace(chosen.protocol, **_of(scenario, chosen.in_scenario) | given)


def sizes(paper: str, variant: str, scenario: str, scale: str) -> dict[str, Any]:
    """What a preset says of N, C and, at scale `paper`, of T, E and B; the scale says the rest."""
    chosen = preset(paper, variant)
    return dict(chosen.setting) | (_of(scenario, chosen.sizes) if scale == "paper" else {})


def params(paper: str, variant: str, scenario: str, algorithm: str) -> dict[str, Any]:
    """The hyper-parameters that a preset gives to `algorithm`; only its own method gets any."""
    return _of(scenario, preset(paper, variant).params) if algorithm == paper else {}
