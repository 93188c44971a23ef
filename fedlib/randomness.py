"""Every random draw comes from a stream derived from (seed, purpose, round, client), none from a global generator."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from .errors import FedlibError, choose

# The order is part of the promise: a new purpose goes at the end, or every stream after it changes.
PURPOSES = (
    "partition",
    "init",
    "sampling",
    "batches",
    "augmentation",
    "dropout",
    "public",
    "server",
    "pretrain",
    "method",
    "own",
    "newcomers",
)

# Torch's global generators and settings are the process's, and its threads share them: whoever seeds, sets or depends
# on them holds this lock, so that a run in one thread has the bits of the run alone.
exclusive = threading.RLock()


def _after_fork() -> None:
    """In a forked process there is no other thread that could still give the lock back."""
    if not exclusive._is_owned():  # type: ignore[attr-defined]
        exclusive._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def generator(seed: int, purpose: str, round: int = 0, client: int | None = None) -> np.random.Generator:
    """The stream of one (seed, purpose, round, client); `round` counts from 0, `client` None is the server's. Raises
    FedlibError for another purpose than those in PURPOSES.
    """
    choose("purpose", purpose, PURPOSES)
    entropy = (seed, PURPOSES.index(purpose), round + 1, 0 if client is None else client + 1)
    return np.random.default_rng(np.random.SeedSequence(entropy))


def torch_seed(stream: np.random.Generator) -> int:
    """One draw of `stream`, to seed a torch generator."""
    return int(stream.integers(2**63 - 1))


@contextmanager
def fork_torch(stream: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generators from `stream` for what takes no generator (constructors, dropout); restore
    after. Another thread that needs them waits; one that seeds them all the same is a FedlibError.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with exclusive, torch.random.fork_rng(devices=devices):
        seed = torch_seed(stream)
        torch.manual_seed(seed)
        yield
        if torch.initial_seed() != seed:
            raise FedlibError(
                "torch.manual_seed was called while a run draws from torch's generator, by a part of the run or by another "
                "thread: a part of a run draws from `context.generator(purpose)`, or from torch's as it finds it"
            )


@contextmanager
def fork_everything(stream: np.random.Generator) -> Iterator[None]:
    """As `fork_torch`, and the same for NumPy's and Python's own global generators: what a person's code draws from
    them without a thought is of the run's stream.
    """
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with fork_torch(stream):
            np.random.seed(int(stream.integers(2**32)))  # noqa: NPY002
            random.seed(int(stream.integers(2**63)))
            yield
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)
