"""The next step on a GPU: a training step recorded once as a CUDA graph and replayed, in place of `training.step`.

`train` is `training.train` on static copies of the networks, the batch and what the loss is handed: a visit copies the client's
numbers in, replays a step for each batch and copies them out. A graph is
kept for each loss, networks, batch shape and settings. On a CPU the same functions run on the same static places, nothing is recorded:
that shows what is copied, not how fast it is. Not part of fedlib: it has never run on a card.

    python tests/benchmarks/captured.py [--short]     on a card: same digests, and seconds of a round, as it is and captured
"""

import copy
import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from machine import describe, options, random_images
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from fedlib import Federation, simulate, training
from fedlib.algorithms import make

TRAIN, STEP = training.train, training.step
GRAPHS: dict[Any, "Recorded"] = {}


def places(value: Any) -> list[Tensor]:
    """The tensors of what a loss is handed: of modules their parameters and buffers, others as they lie."""
    leaves = [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor | nn.Module)]
    own = [leaf.state_dict(keep_vars=True).values() if isinstance(leaf, nn.Module) else [leaf] for leaf in leaves]
    return [tensor for tensors in own for tensor in tensors]


def described(value: Any) -> Any:
    """What a graph depends on: types, shapes and layouts of tensors, and everything else as it is."""
    leaves, shape = tree_flatten(value)
    said = []
    for leaf in leaves:
        if isinstance(leaf, nn.Module):
            said.append((repr(leaf), *((t.shape, t.stride(), t.dtype, t.requires_grad) for t in places(leaf))))
        else:
            said.append((leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, Tensor) else leaf)
    return str(shape), tuple(said)


def static(value: Any) -> Any:
    """A copy with places of its own; what is one module within it stays one."""
    leaves, shape = tree_flatten(value)
    memo: dict[int, Any] = {}
    return tree_unflatten(
        [copy.deepcopy(leaf, memo) if isinstance(leaf, Tensor | nn.Module) else leaf for leaf in leaves], shape
    )


class Recorded:
    """Steps on one loss, networks and settings, on static places; a graph for each shape of batch."""

    def __init__(
        self, loss: Callable[..., Tensor], modules: Any, named: Any, pool: training.Pool, settings: training.Settings
    ):
        self.loss, self.settings, self.pool = loss, settings, pool
        self.modules, self.named = static((dict(modules), dict(named)))
        self.optimiser = training.fresh_optimiser(self.modules, settings)
        self.graphs: dict[Any, tuple[dict[str, Tensor], Tensor, Callable[[], None]]] = {}

    def begin(self, modules: Any, named: Any) -> None:
        """What a visit begins with: the client's numbers, and an optimiser that has not moved."""
        with torch.no_grad():
            for own, given in zip(
                places((self.modules, self.named)), places((dict(modules), dict(named))), strict=True
            ):
                own.copy_(given)
            for tensor in self._moments():
                tensor.zero_()

    def end(self, modules: Any) -> None:
        with torch.no_grad():
            for own, given in zip(places(self.modules), places(dict(modules)), strict=True):
                given.copy_(own)

    def step(self, *_: Any, **handed: Any) -> Tensor:
        """In place of `training.step`, of which the batch alone is new."""
        batch = {name: handed[name] for name in handed if name not in self.named}
        shapes = tuple((name, *tensor.shape) for name, tensor in batch.items())
        if shapes not in self.graphs:
            self.graphs[shapes] = self._record(batch)
        into, value, replay = self.graphs[shapes]
        for name, tensor in batch.items():
            into[name].copy_(tensor)
        replay()
        return value

    def _step(self, into: Mapping[str, Tensor]) -> Tensor:
        return STEP(self.loss, self.modules, self.optimiser, self.pool, self.settings, **into, **self.named)

    def _record(self, batch: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor, Callable[[], None]]:
        into = {name: torch.empty_like(tensor).copy_(tensor) for name, tensor in batch.items()}
        value = torch.zeros((), device=self.pool.labels.device)

        def once() -> None:
            value.copy_(self._step(into))

        if value.device.type != "cuda":
            return into, value, once
        moved = [*places(self.modules), *self._moments()]
        before = [tensor.detach().clone() for tensor in moved]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # what cuDNN and the optimiser make at a first step
                once()
        torch.cuda.current_stream().wait_stream(aside)
        self.optimiser.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            once()
        with torch.no_grad():  # these steps were none of the visit's
            for tensor in self._moments():
                tensor.zero_()
            for tensor, number in zip(moved, before, strict=True):
                tensor.copy_(number)
        return into, value, graph.replay

    def _moments(self) -> list[Tensor]:
        """What the optimiser remembers: momentum, or Adam's moments and number of steps."""
        return [
            value for state in self.optimiser.state.values() for value in state.values() if isinstance(value, Tensor)
        ]


def train(
    loss: Callable[..., Tensor],
    modules: Mapping[str, nn.Module],
    pool: training.Pool,
    indices: Tensor,
    settings: training.Settings,
    stream: np.random.Generator,
    named: Mapping[str, object] | None = None,
    support: np.random.Generator | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """As `training.train`, whose loop it is, on the static places."""
    named = named or {}
    every_step = tuple(value for name, value in vars(settings).items() if name != "epochs")
    key = loss, described((dict(modules), dict(named))), every_step, pool.precision, str(indices.device)
    if key not in GRAPHS:
        GRAPHS[key] = Recorded(loss, modules, named, pool, settings)
    own = GRAPHS[key]
    own.begin(modules, named)
    training.step = own.step
    try:
        return TRAIN(loss, own.modules, pool, indices, settings, stream, own.named, support, augment)
    finally:
        training.step = STEP
        own.end(modules)


@contextmanager
def captured():
    """Every local training through `train` above."""
    training.train = train
    try:
        yield
    finally:
        training.train = TRAIN
        GRAPHS.clear()


def trained(method: str, device: str, precision: str, batch_size: int, rounds: int) -> tuple[str, float]:
    """The digest of a run's outcome, and the median seconds of its rounds after the first."""
    parts = np.array_split(np.arange(3000), 5)
    federation = Federation(
        random_images(3000), parts, local_epochs=2, batch_size=batch_size, device=device, precision=precision
    )
    ends = [time.perf_counter()]
    outcome = simulate(federation, make(method), rounds, after_round=lambda _: ends.append(time.perf_counter()))
    return outcome.digest(), float(np.median(np.diff(ends)[1:]))


def main() -> None:
    short, device = options(__doc__).parse_args().short, "cuda" if torch.cuda.is_available() else "cpu"
    print(describe(), device)
    methods = ("Standalone", "FedProto", "FedSSA", "FML", "FedKD", "pFedES")
    for method, precision, size in itertools.product(methods[: 3 if short else None], ("fp32", "bf16"), (64, 512)):
        plain, seconds = trained(method, device, precision, size, 3)
        with captured():
            same, replayed = trained(method, device, precision, size, 3)
        row = f"{method:<12}{precision:>6}{size:>5}{seconds:>8.2f}s{replayed:>8.2f}s{seconds / replayed:>7.1f} times"
        print(row, "the same bits" if plain == same else "OTHER BITS", flush=True)


if __name__ == "__main__":
    main()
