"""How a paper trains and measures: presets as data, keyed by (paper, variant), every field overridable by name."""

from dataclasses import dataclass, fields, replace
from typing import Any

from .errors import choose, coerce, require


@dataclass(frozen=True)
class Protocol:
    """Everything about training and measuring that is neither the method nor the size of the experiment.

    split: `local-8:1:1` pools the official train and test images, partitions them and splits each client's share;
    normalise: subtract mean and divide by std of the `dataset`, or of `half` (0.5 and 0.5);
    lr, momentum, weight_decay: of the local SGD; clip_norm: largest gradient norm of a step, 0 for none;
    average: whose accuracy the headline mean is over, `all` clients or the `selected` ones of the round.
    """

    split: str = "local-8:1:1"
    normalise: str = "dataset"
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    average: str = "all"

    def __post_init__(self) -> None:
        choose("split", self.split, ("local-8:1:1",))
        choose("normalise", self.normalise, ("dataset", "half"))
        choose("average", self.average, ("all", "selected"))
        require(self.lr >= 0, "lr", self.lr, "at least 0")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        require(self.clip_norm >= 0, "clip_norm", self.clip_norm, "at least 0 (0: no clipping)")


# What the texts say: plain SGD at 0.01, 8:1:1 of each client's share, mean over all clients, no augmentation.
PROTOCOLS: dict[tuple[str, str], Protocol] = {
    ("FedSSA", "paper"): Protocol(),  # section 6.1
    ("FedGH", "paper"): Protocol(),  # section 5.1
    ("pFedES", "paper"): Protocol(),  # section 5.1
}


def protocol(paper: str, variant: str, overrides: dict[str, Any] | None = None) -> Protocol:
    """The preset of `paper` (`paper`: what its text says), with single fields replaced by `overrides`."""
    choose("paper", paper, dict.fromkeys(name for name, _ in PROTOCOLS))
    choose("protocol", variant, [name for owner, name in PROTOCOLS if owner == paper])
    preset = PROTOCOLS[paper, variant]
    kinds = {field.name: type(getattr(preset, field.name)) for field in fields(preset)}
    for name in overrides or {}:
        choose("protocol field", name, kinds)
    return replace(preset, **{name: coerce(name, value, kinds[name]) for name, value in (overrides or {}).items()})
