"""Heterogeneous model reassembly: pFedHR's server, section 3.1 and Algorithm 1, as functions without state.

Client models are decomposed into layers (`decompose`), the layers grouped by what they compute (`distances`, `group`),
chains of layers of different models searched (`search`) and stitched into networks (`assemble`), which are matched to
the clients by what they answer (`similarity`).

A layer here is the paper's layer with its operation type (section 4.2): a convolution or a linear layer with the
normalisation, ReLU, pooling and dropout behind it. So there are two operation types, `conv` and `fc`.
"""

import copy
import random
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import models
from ...devices import widest
from ...errors import FedlibError, choose, require
from ...randomness import fork_torch, torch_seed
from ...sample import Sample
from ...training import weighted_mean

Shape = tuple[int, ...]  # of one image's activations: (channels, height, width) or (width,)
MERGED = -1  # the origin of a layer of an averaged model
PUBLIC = -2  # of a layer of a network that has seen public images alone
FARTHEST = 1e6  # Eq. 3 where neither inputs nor outputs are alike, which is infinitely far


class Layer(NamedTuple):
    """One layer of a client's model: the client's id (or `MERGED`, `PUBLIC`), the architecture, the layer index in it from 1 at
    the input, and the operation type, `conv` or `fc`. As a plain tuple it is a record of a message's structure.
    """

    origin: int
    architecture: str
    depth: int
    kind: str


Structure = tuple[Layer, ...]  # a candidate: its layers from input to output
Source = tuple[int, str]  # a model: origin and architecture


# ------------------------------------------------------------------------------------------- layer-wise decomposition


def decompose(model: nn.Module) -> list[nn.Sequential]:
    """The layers of a `Model` whose extractor is an `nn.Sequential`, in order; together they compute what it does.

    Each begins with its convolution or linear layer (before which it flattens, if the model does) and holds what
    follows. Raises FedlibError for another kind of model.
    """
    extractor = getattr(model, "extractor", None)
    if not isinstance(extractor, nn.Sequential):
        raise FedlibError(f"extractor = {type(extractor).__name__}: to decompose a model it must be an nn.Sequential")
    blocks: list[list[nn.Module]] = []
    before: list[nn.Module] = []  # what belongs to the next layer
    for part in [*extractor, model.header]:
        if any(isinstance(inner, nn.Conv2d | nn.Linear) for inner in part.modules()):
            blocks.append([*before, part])
            before = []
        elif isinstance(part, nn.Flatten) or not blocks:
            before.append(part)
        else:
            blocks[-1].append(part)
    return [nn.Sequential(*block) for block in blocks]


def kind(block: nn.Module) -> str:
    """A layer's operation type."""
    return "conv" if any(isinstance(inner, nn.Conv2d) for inner in block.modules()) else "fc"


class Blueprint(NamedTuple):
    """The layers of an architecture without weights (on the device `meta`), and the shapes of an image before each."""

    blocks: list[nn.Sequential]
    inputs: list[Shape]
    outputs: list[Shape]


def blueprint(architecture: str, num_classes: int, channels: Sample | int) -> Blueprint:
    """What is known of an architecture without weights: its layers and their sizes. channels: of 32x32 images, or what an
    image of another size is like.
    """
    choose("architecture", architecture, models.BUILDERS)
    models.check_takes("architecture", architecture, Sample.of(channels))
    return _blueprint(models.BUILDERS[architecture], num_classes, Sample.of(channels))


@cache  # a dry run takes some 20 ms
def _blueprint(builder: models.Builder, num_classes: int, sample: Sample) -> Blueprint:
    with torch.device("meta"):
        blocks = decompose(models.made(builder, num_classes, sample).eval())
    # The dry run is on the CPU, with weights of any value: on `meta` it would load PyTorch's compiler, which takes seconds.
    images, inputs, outputs = torch.zeros(1, *sample.shape), [], []
    with torch.no_grad():
        for block in blocks:
            shape = tuple(images.shape[1:])
            inputs.append((prod(shape),) if isinstance(block[0], nn.Flatten) else shape)
            images = copy.deepcopy(block).to_empty(device="cpu")(images)
            outputs.append(tuple(images.shape[1:]))
    return Blueprint(blocks, inputs, outputs)


def layers_of(source: Source, blocks: Sequence[nn.Module]) -> list[Layer]:
    """The layers of a decomposed model, by name."""
    return [Layer(*source, depth, kind(block)) for depth, block in enumerate(blocks, 1)]


def averaged(models: Mapping[Source, Mapping[str, Tensor]], sizes: Sequence[int]) -> dict[Source, dict[str, Tensor]]:
    """FedAvg of the models of each architecture (section 4.2, for many clients), weighted by `sizes`."""
    merged = {}
    weighted = list(zip(models, models.values(), map(float, sizes), strict=True))
    for architecture in dict.fromkeys(architecture for _, architecture in models):
        own = [(state, size) for source, state, size in weighted if source[1] == architecture]
        states, weights = [state for state, _ in own], [size for _, size in own]
        mean = {name: weighted_mean([state[name] for state in states], weights) for name in states[0]}
        merged[MERGED, architecture] = mean
    return merged


# ----------------------------------------------------------------------------------------------------- layer distance


@dataclass(frozen=True)
class Activations:
    """Centred activations of n images, as linear CKA needs them: the Gram matrix (n, n) or the features (n, p)."""

    matrix: Tensor
    gram: bool
    norm: float  # of the Gram matrix; 0 for constant activations

    @classmethod
    def of(cls, values: Tensor, form: str = "smaller") -> "Activations":
        """From values (n, ...); form: `gram`, `features`, or whichever is `smaller`."""
        features = values.flatten(1)
        scale = features.norm().item()
        features = features - features.mean(0)
        gram = form == "gram" or (form == "smaller" and len(features) < features.shape[1])
        constant = not features.norm().item() > 1e-5 * scale  # what rounding leaves; also what is not finite
        matrix = features @ features.T if gram else features
        norm = 0.0 if constant else (matrix if gram else features.T @ features).norm().item()
        return cls(matrix, gram, norm)


def cka(one: Activations, other: Activations) -> float:
    """Linear centred kernel alignment, in [0, 1] (Kornblith et al., ICML 2019): ``<K, L> / (|K| |L|)`` with the Gram
    matrices K = X X^T and L = Y Y^T, and ``<K, L> = |Y^T X|^2``. Constant activations are like no other: 0.
    """
    if not one.norm or not other.norm:
        return 0.0
    if one.gram and other.gram:
        product = torch.dot(one.matrix.flatten(), other.matrix.flatten())
    elif one.gram or other.gram:
        (kernel, features) = (one.matrix, other.matrix) if one.gram else (other.matrix, one.matrix)
        product = ((kernel @ features) * features).sum()
    else:
        product = (other.matrix.T @ one.matrix).square().sum()
    value = product.item() / (one.norm * other.norm)
    return value if np.isfinite(value) else 0.0


@torch.no_grad()
def activations(blocks: Sequence[nn.Module], images: Tensor, pooled: bool = False) -> list[Activations]:
    """What goes into the first layer and comes out of each, for images (n, channels, height, width): one more than layers.

    pooled: maps are averaged to one number a channel, which is cheaper.
    """

    def seen(values: Tensor) -> Activations:
        return Activations.of(values.mean((2, 3)) if pooled and values.dim() == 4 else values)

    found = [seen(images)]
    for block in blocks:
        images = block(images)
        found.append(seen(images))
    return found


def distances(models: Sequence[Sequence[Activations]]) -> np.ndarray:
    """Eq. 3 between all layers of all models, in order: 1 / (CKA of the inputs + CKA of the outputs), float64.

    In [1/2, infinity), here `FARTHEST`; 1/2 to itself, so it is no metric. models: `activations` of each.
    """
    places = [activation for model in models for activation in model]
    alike = np.zeros((len(places), len(places)))
    for i, one in enumerate(places):
        for j, other in enumerate(places[: i + 1]):
            alike[i, j] = alike[j, i] = cka(one, other)
    starts = np.cumsum([0, *(len(model) for model in models)])
    before = np.concatenate([np.arange(start, end - 1) for start, end in pairwise(starts)])
    total = alike[np.ix_(before, before)] + alike[np.ix_(before + 1, before + 1)]
    return 1 / np.maximum(total, 1 / FARTHEST)


# ------------------------------------------------------------------------------------------------------ layer grouping


def group(
    layers: Sequence[Layer], distance: np.ndarray, clusters: int, stream: np.random.Generator, starts: int = 1
) -> list[int]:
    """Each layer's group, 0..K-1: K-medoids on the matrix of Eq. 3, the best of FasterPAM from so many random `starts`, drawn
    from `stream`.

    The paper's K-means has no centroid here: layers differ in width and only their distances are known. A medoid's
    distance to itself, 1/2, is a constant of the objective and left out. Groups are numbered from input to output, by
    the mean index of their layers, since Algorithm 1 passes them in order. Raises FedlibError when K is above the
    number of layers.
    """
    import kmedoids  # brings scikit-learn and scipy with it: only this needs them

    allowed = f"between 1 and {len(layers)}, the number of layers to group"
    require(1 <= clusters <= len(layers), "clusters", clusters, allowed)
    matrix = np.array(distance, dtype=np.float64)
    np.fill_diagonal(matrix, 0)
    seeds = [torch_seed(stream) % 2**32 for _ in range(starts)]
    tried = [kmedoids.fasterpam(matrix, clusters, init="random", random_state=seed, n_cpu=1) for seed in seeds]
    found = min(tried, key=lambda one: one.loss).labels
    depths = np.array([layer.depth for layer in layers])
    mean = {label: (depths[found == label].mean(), np.flatnonzero(found == label)[0]) for label in set(found)}
    numbers = {label: number for number, label in enumerate(sorted(mean, key=lambda label: mean[label]))}
    return [numbers[label] for label in found]


# ---------------------------------------------------------------------------------------------------- candidate search


def follows(previous: Layer, layer: Layer) -> bool:
    """Whether `layer` may come next. R1, layer order: its index is larger. R2, operation order: no convolution after a
    fully connected layer.
    """
    return layer.depth > previous.depth and not (previous.kind == "fc" and layer.kind == "conv")


def greedy(layers: Sequence[Layer], groups: Sequence[int]) -> Iterator[Structure]:
    """Algorithm 1, with duplicates: from each layer of each group, pass all groups in order and add what fits.

    Lines 8 to 14 are read so: of each group, its own too, the first pair that fits is added, in the order of the
    models, then of the layers; so a candidate has at most K + 1 layers, as Figure 7's has (5, with K = 4).
    Adding every pair of a group that fits, the other reading, soon reaches the last layers of the deepest model,
    after which R1 leaves nothing of the other groups.
    """
    members = [[layer for layer, own in zip(layers, groups, strict=True) if own == k] for k in range(max(groups) + 1)]
    kinds = {layer.kind for layer in layers}
    for k, starts in enumerate(members):
        for start in starts:
            candidate, met = [start], {k}
            for other, pairs in enumerate(members):
                fitting = next((pair for pair in pairs if follows(candidate[-1], pair)), None)  # R1 and R2
                if fitting:
                    candidate.append(fitting)
                    met.add(other)
            if {layer.kind for layer in candidate} == kinds and len(met) == len(members):  # R3 and R4
                yield tuple(candidate)


class Exhaustive:
    """All chains that satisfy R1 to R4, numbered 0..total-1 and never listed: they are counted by what may still
    follow a layer, given the groups and operation types met so far.
    """

    def __init__(self, layers: Sequence[Layer], groups: Sequence[int]):
        self.layers = layers
        kinds = sorted({layer.kind for layer in layers})
        self.bits = [  # of a layer: its group and its operation type
            1 << number | 1 << max(groups) + 1 + kinds.index(layer.kind)
            for layer, number in zip(layers, groups, strict=True)
        ]
        self.all = 0
        for bit in self.bits:
            self.all |= bit
        self.following = {
            i: [j for j, layer in enumerate(layers) if follows(one, layer)] for i, one in enumerate(layers)
        }
        self.following[-1] = list(range(len(layers)))  # at the start
        self.count = cache(self._count)
        self.total = self.count(-1, 0)

    def _count(self, last: int, met: int) -> int:
        """How many chains there are that begin with what has `met` these groups and types and ends in `last`."""
        return (met == self.all) + sum(self.count(j, met | self.bits[j]) for j in self.following[last])

    def __getitem__(self, number: int) -> Structure:
        if not 0 <= number < self.total:
            raise IndexError(number)
        chain: list[Layer] = []
        last, met = -1, 0
        while True:
            if met == self.all:
                if number == 0:
                    return tuple(chain)
                number -= 1
            for j in self.following[last]:
                count = self.count(j, met | self.bits[j])
                if number < count:
                    chain.append(self.layers[j])
                    last, met = j, met | self.bits[j]
                    break
                number -= count


def search(
    layers: Sequence[Layer], groups: Sequence[int], method: str, limit: int, stream: np.random.Generator
) -> tuple[list[Structure], int]:
    """At most `limit` different candidates that satisfy R1 to R4, and the number of those dropped.

    method: `greedy`, Algorithm 1, or `exhaustive`, all there are. Of more than `limit`, those kept are drawn from
    `stream` and stay in the order of the search.
    """
    found: list[Structure] | Exhaustive
    if method == "greedy":
        found = list(dict.fromkeys(greedy(layers, groups)))
        total = len(found)
    else:
        found = Exhaustive(layers, groups)
        total = found.total
    draw, kept = random.Random(torch_seed(stream)), set(range(min(total, limit)))
    if total > limit:
        kept = set()
        while len(kept) < limit:
            kept.add(draw.randrange(total))
    return [found[number] for number in sorted(kept)], total - len(kept)


@dataclass(frozen=True)
class Found:
    """What g of Eq. 1 makes of a round's models: their layers, Eq. 3 between them (empty if there are fewer layers
    than groups), each one's group, the candidates, and how many more there were.
    """

    layers: list[Layer]
    distance: np.ndarray
    groups: list[int]
    candidates: list[Structure]
    dropped: int
    reason: str = ""  # why there are no candidates

    def details(self) -> dict[str, Any]:
        """For a run's record, in lists, numbers and text."""
        return {
            "decomposed": [list(layer) for layer in self.layers],
            "groups": self.groups,
            "distance": self.distance.round(4).tolist(),
            "structures": [[list(layer) for layer in structure] for structure in self.candidates],
            "reason": self.reason,
        }


def reassemble(
    blocks: Mapping[Source, Sequence[nn.Module]],
    images: Tensor,
    pooled: bool,
    clusters: int,
    method: str,
    limit: int,
    stream: np.random.Generator,
    starts: int = 1,
) -> Found:
    """g of Eq. 1: the candidates of decomposed models.

    images: public ones for Eq. 3; the others as of `activations`, `group` and `search`.
    """
    layers = [layer for source, own in blocks.items() for layer in layers_of(source, own)]
    if len(layers) < clusters:
        return Found(layers, np.empty((0, 0)), [], [], 0, f"{len(layers)} layers are fewer than K = {clusters} groups")
    distance = distances([activations(own, images, pooled) for own in blocks.values()])
    groups = group(layers, distance, clusters, stream, starts)
    candidates, dropped = search(layers, groups, method, limit, stream)
    reason = "" if candidates else f"no chain of layers satisfies R1 to R4 with K = {clusters} groups"
    return Found(layers, distance, groups, candidates, dropped, reason)


# ------------------------------------------------------------------------------------------------------ layer stitching


class Resize(nn.Module):
    """Adaptive average pooling of maps from one size to another, smaller or larger, as two matrix products: PyTorch's
    own has no deterministic gradient on CUDA.
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, before: Shape, after: Shape):
        super().__init__()
        for name, size, wanted in zip(("rows", "columns"), before, after, strict=True):
            matrix = torch.zeros(wanted, size)
            for i in range(wanted):
                start, end = i * size // wanted, -(-(i + 1) * size // wanted)
                matrix[i, start:end] = 1 / (end - start)
            self.register_buffer(name, matrix, persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        return self.rows @ maps @ self.columns.T


def stitch(before: Shape, after: Shape, layers: int = 1) -> nn.Sequential:
    """ReLU(W x + b) between layers whose sizes differ, `layers` times (1 in the text, 2 and 3 in its Figure 5).

    Between maps W is a 1x1 convolution, after pooling to the size wanted; from a map to a fully connected layer, a
    linear map of the channels' means, so that none reads a flattened map. Between equal sizes there is none; a map of
    as many numbers as a fully connected layer wants is flattened.
    """
    parts: list[nn.Module] = []
    if len(after) == 1 and prod(before) == after[0]:
        return nn.Sequential(nn.Flatten()) if len(before) == 3 else nn.Sequential()
    if before == after:
        return nn.Sequential()
    if len(before) == 3:
        if len(after) == 1:
            parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        elif before[1:] != after[1:]:
            parts.append(Resize(before[1:], after[1:]))
    width = before[0]
    for _ in range(layers):
        parts += [nn.Conv2d(width, after[0], 1) if len(after) == 3 else nn.Linear(width, after[0]), nn.ReLU()]
        width = after[0]
    return nn.Sequential(*parts)


def assemble(
    structure: Sequence[tuple[Any, ...]],
    num_classes: int,
    channels: Sample | int,
    stitch_layers: int,
    stream: np.random.Generator,
    blocks: Mapping[Source, Sequence[nn.Module]] | None = None,
) -> nn.Sequential:
    """The network of a structure (or of its plain record): `layer1`, `layer2`, ... with a `stitch1`, ... before each
    whose sizes want one, and an `output`, a linear layer, unless the last layer is its model's last and so gives C
    logits.

    Stitches and output have PyTorch's initial weights, drawn from `stream`; the layers copies of those in `blocks`, the
    decomposed models, or without these none yet: load all from a message with `load_state_dict`. In evaluation mode,
    channels-last, on the CPU.
    """
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    shape: Shape = Sample.of(channels).shape
    with fork_torch(stream):
        for number, layer in enumerate((Layer(*record) for record in structure), 1):
            plan = blueprint(layer.architecture, num_classes, channels)
            block, wanted = plan.blocks[layer.depth - 1], plan.inputs[layer.depth - 1]
            if isinstance(block[0], nn.Flatten) and prod(shape) == wanted[0]:
                shape = wanted  # the layer flattens the map itself
            seam = stitch(shape, wanted, stitch_layers)
            if len(seam):
                parts[f"stitch{number}"] = seam
            own = parts[f"layer{number}"] = copy.deepcopy(block).to_empty(device="cpu")
            if blocks is not None:
                own.load_state_dict(blocks[layer.origin, layer.architecture][layer.depth - 1].state_dict())
            shape = plan.outputs[layer.depth - 1]
        if layer.depth < len(plan.blocks):
            parts["output"] = nn.Linear(prod(shape), num_classes)
    return nn.Sequential(parts).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]


# ------------------------------------------------------------------------------------------------------------ matching


def similarity(own: Tensor, other: Tensor) -> float | None:
    """Eq. 5: the mean cosine of two models' logits (P, C) of the public images; None if it is not finite."""
    wide = widest(own.device)
    value = F.cosine_similarity(own.to(wide), other.to(wide), dim=1).mean().item()
    return value if np.isfinite(value) else None


def match(own: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[list[list[float | None]], list[int | None]]:
    """Eq. 5 of the clients' logits and all candidates', one row per client, and Eq. 2: the place of each client's largest,
    None where there is none.
    """
    alike = [[similarity(mine, other) for other in others] for mine in own]
    known = [{place: value for place, value in enumerate(row) if value is not None} for row in alike]
    return alike, [max(row, key=lambda place: row[place]) if row else None for row in known]
