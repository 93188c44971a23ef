"""How an experiment trains and measures, independent of the method. The papers' presets are in `fedlib.lab.presets`."""

from dataclasses import dataclass, fields

from .errors import require
from .fields import check, later, setting
from .partition import parts_of

SPLITS = ("local-8:1:1", "local-8:0:2", "train-16:4:5", "official-4:1:1")
OPTIMISERS = ("sgd", "adam")


@dataclass(frozen=True)
class Protocol:
    """Everything about training and measuring that is neither the method nor the size of the experiment.

    split: `local-8:1:1` pools the official train and test images, partitions them and splits each client's share into
    train, validation and test; `local-8:0:2` has no validation images; `train-16:4:5` splits the official training
    images alone so; `official-4:1:1` deals the same shares on four fifths of the official training
    images (train), on the other fifth (validation) and on the official test images;
    reserve: keep the public part of the images (`RunSpec.public_fraction`) from the clients of every method, so that
    all methods of a table have the same private images. Otherwise only methods that use public data lose it;
    distinct: of the partition by class, see `partition.class_shares`;
    floors: round each share of a class down by itself, which leaves a few images unused, see `partition.deal`;
    dealing: of the partition by class. `slots`: a client holds k classes, in shares of unequal size; `shards`: k equal
    shards of the images in the order of their labels, as pFedHR's released code deals, see `partition.shards`: neither
    `distinct` nor `floors` then says anything;
    normalise: subtract mean and divide by std of the `dataset`, of `imagenet`, of `half` (0.5 and 0.5), or as
    `released`: ImageNet's on cifar10, the data set's own on others;
    augmentation: of training images, `none`, or `released`: flip, erasing and crop, see `training.augmented`, of data
    that say they may be (`Dataset.augment`);
    optimiser: of every network that a method trains, `sgd` or `adam` (PyTorch's betas), or one of torch's by name, perhaps with
    parameters, `AdamW(amsgrad=True)`; fresh for each client and round;
    lr, momentum, weight_decay: its settings; clip_norm: largest gradient norm of a step, 0 for none;
    starts: the clients' initial models. `equal`: one state per architecture, as in the released code; `apart`: each
    client's drawn from its own stream. What the server starts from is the architecture's under both;
    header_scale: what the initial weights and bias of every network's header are multiplied by;
    inherit: what a client's model is at its first visit. `none`: its initial state. `first_visit`: the
    model, as it then is, of the last client of its architecture that trained; `first_round`: likewise, but in round 0
    only. The only thing besides messages that connects clients, whatever the method.
    """

    split: str = setting("local-8:1:1", choices=SPLITS)
    reserve: bool = False
    distinct: bool = True
    floors: bool = False
    dealing: str = later("slots", neutral="slots", choices=("slots", "shards"))
    normalise: str = setting("dataset", choices=("dataset", "imagenet", "half", "released"))
    augmentation: str = setting("none", choices=("none", "released"))
    optimiser: str = setting("sgd")
    lr: float = setting(0.01, ge=0)
    momentum: float = setting(0.0, ge=0, lt=1)
    weight_decay: float = setting(0.0, ge=0)
    clip_norm: float = setting(0.0, ge=0, note="0: no clipping")
    starts: str = setting("equal", choices=("equal", "apart"))
    header_scale: float = later(1.0, neutral=1.0, gt=0)
    inherit: str = setting("none", choices=("none", "first_round", "first_visit"))

    def __post_init__(self) -> None:
        for item in fields(self):
            check(item, getattr(self, item.name))
        official = self.split.startswith("official")
        require(self.dealing == "slots" or not official, "dealing", self.dealing, f"'slots' with split {self.split}")
        allowed = "0 under Adam, which has moments of its own"
        require(self.optimiser != "adam" or self.momentum == 0, "momentum", self.momentum, allowed)
        if self.optimiser not in OPTIMISERS:
            from .optimisers import check_optimiser, spelled

            check_optimiser(self.optimiser, self.momentum)
            object.__setattr__(self, "optimiser", spelled("optimiser", self.optimiser))

    def check_augmentation(self, name: str, augment: bool) -> None:
        """Raise FedlibError where the training images of the data set called `name` would be augmented though they do
        not say that they may be (`augment`).
        """
        allowed = f"'none', since {name} does not say that its images may be flipped: Dataset.from_arrays(augment=True)"
        require(augment or self.augmentation == "none", "augmentation", self.augmentation, allowed)

    @property
    def parts(self) -> tuple[int, int, int]:
        """How a client's images are split into train, validation and test."""
        return parts_of(self.split)
