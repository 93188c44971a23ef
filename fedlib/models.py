"""The papers' networks. Every classifier is a feature `extractor` followed by a `header`, the last linear layer.

Where a paper has a ReLU and then max-pooling, the pooling comes first here: the largest of four is the same either way,
and so are the gradients, to the bit, but the ReLU has a quarter of the work.
"""

import copy
import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .errors import FedlibError, check_name, choose, others_code, require
from .randomness import fork_torch, generator
from .sample import KINDS, Sample

FEATURES = 500  # d, the width of the representation that the papers' extractors share


class Model(nn.Module):
    """A classifier: samples (n, ...) -> extractor -> representations (n, d) -> header -> logits (n, C)."""

    def __init__(self, extractor: nn.Module, header: nn.Linear):
        super().__init__()
        self.extractor = extractor
        self.header = header

    def forward(self, images: Tensor) -> Tensor:
        return self.header(self.extractor(images))


# Convolution 2's filters and FC1's width (FedSSA's Table 3, FedGH's Table 2, pFedES's Table 1). CNN-4 has 4.04 MiB, not
# the 3.81 that the tables print.
CNN_WIDTHS = {"CNN-1": (32, 2000), "CNN-2": (16, 2000), "CNN-3": (32, 1000), "CNN-4": (32, 800), "CNN-5": (32, 500)}


def _pixels(sample: Sample | None, shrunk: Callable[[int], int]) -> int:
    """Height * width of the last map of images like `sample` (32x32 of None), each side shrunk so."""
    height, width = (32, 32) if sample is None else sample.shape[1:]
    return shrunk(height) * shrunk(width)


def _twice_halved(side: int) -> int:
    """A side after two valid 5x5 convolutions, each with 2x2 max-pooling: 32 -> 14 -> 5."""
    return ((side - 4) // 2 - 4) // 2


def cnn(architecture: str, num_classes: int, channels: int, sample: Sample | None = None) -> Model:
    """CNN-1..5: two valid 5x5 convolutions with 2x2 max-pooling, FC1, FC2 (500, the representation), FC3 (the
    header). sample: images of another size than 32x32, of 16x16 or more; FC1 follows it.
    """
    filters, width = CNN_WIDTHS[architecture]
    extractor = nn.Sequential(
        nn.Conv2d(channels, 16, 5), nn.MaxPool2d(2), nn.ReLU(),  # (n, 16, 14, 14)
        nn.Conv2d(16, filters, 5), nn.MaxPool2d(2), nn.ReLU(),  # (n, filters, 5, 5)
        nn.Flatten(),
        nn.Linear(_pixels(sample, _twice_halved) * filters, width), nn.ReLU(),
        nn.Linear(width, FEATURES), nn.ReLU(),
    )  # fmt: skip
    return Model(extractor, nn.Linear(FEATURES, num_classes))


def proxy_extractor(channels: int, output: str = "relu") -> nn.Sequential:
    """pFedES's shared extractor: images in, enhanced images of the same shape out, 443 floats at 3 channels.

    Two 3x3 convolutions with padding `same` (its section 4.3), channels -> 8 -> channels; kernel size and the 8 are in
    the released code only. output: `relu` after the second one too, as released, or `linear`.
    """
    last = [nn.ReLU()] if output == "relu" else []
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding="same"), nn.ReLU(), nn.Conv2d(8, channels, 3, padding="same"), *last
    )


def _convolution(
    inputs: int, outputs: int, kernel: int, *, padding: str = "same", normalise: bool = False, pool: bool = False
) -> list[nn.Module]:
    """One of pFedHR's convolutional blocks: convolution, batch normalisation, 2x2 max-pooling, ReLU."""
    block: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel, padding=padding)]
    if normalise:
        block.append(nn.BatchNorm2d(outputs))
    if pool:
        block.append(nn.MaxPool2d(2))
    return [*block, nn.ReLU()]


def _connected(inputs: int, outputs: int, dropout: float = 0.0) -> list[nn.Module]:
    """One of pFedHR's fully connected blocks: linear, ReLU, dropout."""
    block: list[nn.Module] = [nn.Linear(inputs, outputs), nn.ReLU()]
    return [*block, nn.Dropout(dropout)] if dropout else block


def _eighth(side: int) -> int:
    """A side after three times 2x2 max-pooling."""
    return side // 2 // 2 // 2


# pFedHR's name of an architecture -> d_m, the width of its representation (the last linear layer's input).
M_WIDTHS = {"M1": 50, "M2": 50, "M3": 64, "M4": 256}


def pfedhr_cnn(
    architecture: str, num_classes: int, channels: int, features: int = 0, sample: Sample | None = None
) -> Model:
    """M1..M4 of pFedHR's appendix 2.1, flat sequences that decompose into its layers; the last linear one is the
    header.

    The text gives kernels and the order of operations; widths and dropout rates are the released code's (M2's third
    convolution and M4's four linear layers as it first defined them). As printed, M3 and M4 are impossible on 32x32:
    unpadded, the maps have shrunk to 1x1 before M3's fourth and M4's sixth convolution. The repair changes no printed
    operation: their convolutions keep the map's size (padding `same`). M3 then has 2048 and M4 4096 features after
    its convolutions, as in the released code, which drops M3's first two poolings instead, and has 3x3 in all of M4.
    features: width of a further Linear(d_m, features) + ReLU between extractor and header, which methods need that
    share what depends on the header's input; 0 for none. sample: images of another size than 32x32; the first linear
    layer follows it.
    """
    width = M_WIDTHS[architecture]
    if architecture in ("M1", "M2"):
        layers = [  # unpadded 5x5 convolutions: maps of 28, pooled 14, then 10, pooled 5
            *_convolution(channels, 10, 5, padding="valid", pool=True),
            *_convolution(10, 64, 5, padding="valid", pool=True),
        ]
        if architecture == "M2":
            layers += _convolution(64, 128, 5, padding="valid")  # a map of 1
        last, filters = (0, 64) if architecture == "M1" else (4, 128)
        mapped = _pixels(sample, lambda side: _twice_halved(side) - last) * filters
        layers += [nn.Flatten(), *_connected(mapped, width, 0.5)]
    elif architecture == "M3":
        layers = [
            *_convolution(channels, 6, 5, pool=True),  # maps of 32, pooled 16
            *_convolution(6, 16, 5, pool=True),  # 8
            *_convolution(16, 32, 5),
            *_convolution(32, 64, 5, pool=True),  # 4
            *_convolution(64, 128, 5),
            nn.Flatten(),
            *_connected(_pixels(sample, _eighth) * 128, 1024, 0.25), *_connected(1024, 128), *_connected(128, width),
        ]  # fmt: skip
    else:
        layers = [
            *_convolution(channels, 32, 5, normalise=True),
            *_convolution(32, 64, 3, pool=True),  # 16
            *_convolution(64, 128, 3, normalise=True),
            *_convolution(128, 128, 5, pool=True), nn.Dropout2d(0.05),  # 8
            *_convolution(128, 256, 3, normalise=True),
            *_convolution(256, 256, 3, pool=True),  # 4
            nn.Flatten(),
            *_connected(_pixels(sample, _eighth) * 256, 1024, 0.1), *_connected(1024, 512), *_connected(512, width),
        ]  # fmt: skip
    if features:
        layers += _connected(width, features)
    return Model(nn.Sequential(*layers), nn.Linear(features or width, num_classes))


def _of_zoo(architecture: str, num_classes: int, channels: int, sample: Sample | None = None) -> Model:
    """A network of `fedlib.zoo`."""
    from . import zoo

    sample = Sample.of(channels) if sample is None else sample
    width = zoo.FEATURES if sample.kind == "image" else zoo.WIDTH
    return Model(zoo.EXTRACTORS[architecture](sample), nn.Linear(width, num_classes))


# (number of classes, channels), and `sample`, where it has a parameter of that name -> network
Builder = Callable[..., nn.Module]
# Networks of fedlib.zoo, which is imported when one is built -> the kind of data that they are for.
OTHER_KINDS = {"MLP": "vector", "CNN-1D": "series", "fastText": "tokens", "Transformer": "tokens"}
ZOO = OTHER_KINDS | dict.fromkeys([f"ResNet-{depth}" for depth in (4, 6, 8, 10, 18, 34, 50, 101, 152)], "image")
ZOO |= dict.fromkeys(("GoogLeNet", "MobileNet-V2", "MobileNet-V3-S", "MobileNet-V3-L"), "image")
ZOO |= dict.fromkeys(("EfficientNet-B0", "EfficientNet-V2-S", "ViT-T", "ViT-S", "ViT-B-16", "ViT-B-32"), "image")
BUILDERS: dict[str, Builder] = {
    **{name: partial(cnn, name) for name in CNN_WIDTHS},
    **{name: partial(pfedhr_cnn, name) for name in M_WIDTHS},
    **{f"{name}-{FEATURES}": partial(pfedhr_cnn, name, features=FEATURES) for name in M_WIDTHS},
    **{name: partial(_of_zoo, name) for name in ZOO},
}
BUILT_IN = dict(BUILDERS)
SMALLEST = {"CNN": 16, "M1": 16, "M2": 32, "M3": 8, "M4": 8}  # side of an image that leaves a map of 1x1

# Scenario -> the architectures of clients 0, 1, 2, ... in turn. FedSSA, section 6.2: client id modulo 5. pFedHR,
# section 4.2: each of its four on as many clients; section 4.3: its smallest or its largest on all.
SCENARIOS: dict[str, tuple[str, ...]] = {
    "homogeneous": ("CNN-1",),
    "heterogeneous": tuple(CNN_WIDTHS),
    "reassembly": tuple(M_WIDTHS),
    f"reassembly-{FEATURES}": tuple(f"{name}-{FEATURES}" for name in M_WIDTHS),
    "homogeneous-M1": ("M1",),
    "homogeneous-M4": ("M4",),
}


def register(name: str, builder: Builder) -> None:
    """Make an architecture of your own known as `name`: `builder(num_classes, channels)` returns a `Model`.

    channels: the length of a sample's first axis: an image's or a series' channels, a vector's features, a text's
    tokens. A builder that has a parameter called `sample` also gets the `fedlib.sample.Sample`: kind, shape, vocabulary.
    Registering again replaces it, so a cell can be run twice. The builder makes every layer itself, at each call, so
    that the seed decides the weights; `build` refuses one that does not. Raises FedlibError for a name that cannot
    stand in a list.
    """
    check_name("architecture", name)
    require(callable(builder), f"builder of {name}", builder, "a function of (number of classes, channels)")
    require(name not in SCENARIOS, "architecture", name, "another name, since a scenario is called so")
    BUILDERS[name] = builder


def is_built_in(name: str) -> bool:
    """Whether `name` is an architecture of fedlib's, not replaced by another."""
    return name in BUILT_IN and BUILDERS.get(name) is BUILT_IN[name]


def scenario(given: Any) -> str:
    """The one spelling of a scenario: its name, or names of architectures in turn joined by commas.

    given: such a text, or a tuple or list of names. Raises FedlibError for unknown names.
    """
    text = ",".join(map(str, given)) if isinstance(given, tuple | list) else given
    require(isinstance(text, str) and bool(text), "scenario", given, "a name, or names of architectures")
    if text in SCENARIOS:
        return text
    names = [name.strip() for name in text.split(",")]
    if len(names) == 1 and names[0] not in BUILDERS:
        choose("scenario", names[0], [*SCENARIOS, *BUILDERS])
    for name in names:
        choose("architecture", name, BUILDERS)
    return ",".join(names)


def architectures(scenario: str) -> tuple[str, ...]:
    """The architectures of clients 0, 1, 2, ... in turn. Raises FedlibError for unknown ones."""
    if scenario in SCENARIOS:
        return SCENARIOS[scenario]
    names = tuple(scenario.split(","))
    for name in names:
        choose("architecture", name, BUILDERS)
    return names


def fitting(architecture: str, sample: Sample) -> str:
    """The architecture or, where it is a built-in one for another kind of samples, a built-in one for such."""
    if not is_built_in(architecture) or OTHER_KINDS.get(architecture, "image") == sample.kind:
        return architecture
    return next((name for name, kind in OTHER_KINDS.items() if kind == sample.kind), "CNN-1")


def check_takes(field: str, architecture: str, sample: Sample) -> None:
    """Raise FedlibError, naming `field`, where a built-in network is not for samples like these."""
    if not is_built_in(architecture):
        return
    kind = OTHER_KINDS.get(architecture, "image")
    if sample.kind != kind:
        raise FedlibError(
            f"{field} = {architecture!r}: takes {KINDS[kind].plural}, and these samples are {sample}: use "
            f"{fitting(architecture, sample)}, or a network of your own (models.register)"
        )
    if kind == "image":
        least = SMALLEST.get(architecture.partition("-")[0], 1)
        small = f"a network for images of {sample.shape[1]}x{sample.shape[2]} pixels; this one needs {least}x{least} or more"
        require(min(sample.shape[1:]) >= least, field, architecture, small)
    if architecture in ZOO:
        from . import zoo

        zoo.check(architecture, sample)


def made(builder: Builder, num_classes: int, sample: Sample) -> nn.Module:
    """What a builder makes for samples like these."""
    try:
        wanted = "sample" in inspect.signature(builder).parameters
    except (TypeError, ValueError):  # of what has no signature
        wanted = False
    return builder(num_classes, sample.channels, **({"sample": sample} if wanted else {}))


def build(
    architecture: str, num_classes: int, sample: Sample | int, stream: np.random.Generator | None = None
) -> nn.Module:
    """A freshly initialised network (PyTorch's defaults, drawn from `stream`; without one, from seed 0's, for who loads
    weights into it), channels-last in memory and in evaluation mode, which only `training.training_mode` leaves.

    sample: what it is for; a number stands for 32x32 images of so many channels. Raises FedlibError where a built-in
    network is for others.
    """
    choose("architecture", architecture, BUILDERS)
    sample, stream = Sample.of(sample), generator(0, "init") if stream is None else stream
    if is_built_in(architecture):
        check_takes("architecture", architecture, sample)
        with fork_torch(stream):
            model = made(BUILDERS[architecture], num_classes, sample)
    else:
        model = _own(architecture, num_classes, sample, stream)
    return model.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]


def _own(architecture: str, num_classes: int, sample: Sample, stream: np.random.Generator) -> nn.Module:
    """A network of a person's own, if its builder makes the same once more."""
    again = copy.deepcopy(stream)
    with others_code(f"architecture = {architecture!r}: its builder"):
        with fork_torch(stream):
            model = made(BUILDERS[architecture], num_classes, sample)
        with fork_torch(again):
            _check_own(architecture, model, made(BUILDERS[architecture], num_classes, sample))
    return model


def layout(model: nn.Module) -> dict[str, tuple[tuple[int, ...], str, bool]]:
    """Shape, dtype and whether it is trained of each tensor of a network's state, by name."""
    trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    state = model.state_dict()
    return {name: (tuple(one.shape), str(one.dtype), trained.get(name, False)) for name, one in state.items()}


def _check_own(name: str, model: nn.Module, again: nn.Module) -> None:
    """Raise FedlibError unless two calls of a builder under one seed gave two equal networks."""
    kind = type(model).__name__
    require(isinstance(model, nn.Module), f"builder of {name}", kind, "a function that returns a fedlib.Model")
    one, other = model.state_dict(), again.state_dict()
    for key, value in one.items():
        allowed = "a tensor with a shape: what is anything else does not come back from a checkpoint"
        fits = isinstance(value, Tensor) and not nn.parameter.is_lazy(value)
        require(fits, f"architecture {name}: its state's {key}", type(value).__name__, allowed)
    same = one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    shared = {id(tensor) for tensor in model.parameters()} & {id(tensor) for tensor in again.parameters()}
    if shared or not same:
        raise FedlibError(
            f"architecture = {name!r}: its builder must make all its layers itself, at each call, from torch's generator: "
            f"two calls under one seed gave {'networks that share weights' if shared else 'different weights'}"
        )


def feature_width(architecture: str, num_classes: int, sample: Sample | int) -> int:
    """d, the width of an architecture's representations, which is its header's input; sample: as in `build`."""
    choose("architecture", architecture, BUILDERS)
    check_takes("architecture", architecture, Sample.of(sample))
    return _feature_width(BUILDERS[architecture], num_classes, Sample.of(sample))


@cache
def _feature_width(builder: Builder, num_classes: int, sample: Sample) -> int:
    with others_code("network: its builder"), torch.device("meta"):  # without weights
        model = made(builder, num_classes, sample)
    header = getattr(model, "header", None)
    allowed = "a Model: an extractor and a header, which is a linear layer"
    require(header is not None, "network", type(model).__name__, allowed)
    require(isinstance(header, nn.Linear), "network's header", type(header).__name__, "one linear layer")
    return header.in_features  # type: ignore[union-attr]


def num_floats(model: nn.Module) -> int:
    """Trainable numbers of a network, each 4 bytes."""
    return sum(parameter.numel() for parameter in model.parameters())
