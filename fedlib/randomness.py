"""Every random draw comes from a stream derived from (seed, purpose, round, client), none from a global generator."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

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
)

# Torch's global generators and settings are the process's, and its threads share them: whoever seeds, sets or depends
# on them holds this lock, so that a run in one thread has the bits of the run alone.
exclusive = threading.RLock()


def generator(seed: int, purpose: str, round: int = 0, client: int | None = None) -> np.random.Generator:
    """The stream of one (seed, purpose, round, client); `round` counts from 0, `client` None is the server's."""
    entropy = (seed, PURPOSES.index(purpose), round + 1, 0 if client is None else client + 1)
    return np.random.default_rng(np.random.SeedSequence(entropy))


def torch_seed(stream: np.random.Generator) -> int:
    """One draw of `stream`, to seed a torch generator."""
    return int(stream.integers(2**63 - 1))


@contextmanager
def fork_torch(stream: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generators from `stream` for what takes no generator (constructors, dropout); restore
    after. Another thread that needs them waits.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with exclusive, torch.random.fork_rng(devices=devices):
        torch.manual_seed(torch_seed(stream))
        yield
