"""Networks trained side by side in processes, with the bits of one after the other."""

import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

Train = Callable[[nn.Module, np.random.Generator], object]


def train_each(
    train: Train, networks: Sequence[nn.Module], streams: Sequence[np.random.Generator], processes: int = 1
) -> None:
    """`train(network, stream)` of each, which changes its network alone and draws from its stream alone.

    With more than one process, copies of this one (forks, so Linux and no CUDA) take the networks in turn and leave the
    trained weights in files. What a copy did not finish is trained here, which also raises its error.
    """
    processes = min(processes, len(networks))
    if processes < 2 or sys.platform != "linux" or torch.cuda.is_initialized():
        for network, stream in zip(networks, streams, strict=True):
            train(network, stream)
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.pt") for number in range(len(networks))]
        waiting, numbers = os.pipe()
        os.write(numbers, bytes(range(min(len(networks), 256))))  # numbers of networks, each read by one process
        os.close(numbers)
        children = [_forked(train, networks, streams, files, waiting) for _ in range(processes)]
        os.close(waiting)
        try:
            while children:
                os.waitpid(children[0], 0)
                del children[0]
        finally:
            for child in children:  # those of an interrupted wait
                os.kill(child, signal.SIGKILL)
        for network, stream, file in zip(networks, streams, files, strict=True):
            if file.exists():
                network.load_state_dict(torch.load(file, weights_only=True))
            else:
                train(network, stream)


def _forked(
    train: Train,
    networks: Sequence[nn.Module],
    streams: Sequence[np.random.Generator],
    files: Sequence[Path],
    waiting: int,
) -> int:
    """Start a copy of this process that trains what it reads a number of from `waiting`; its id."""
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, of which the copy uses none
        child = os.fork()
    if child:
        return child
    try:
        while os.getppid() == parent and (number := os.read(waiting, 1)):
            train(networks[number[0]], streams[number[0]])
            unfinished = files[number[0]].with_suffix(".tmp")
            torch.save(networks[number[0]].state_dict(), unfinished)
            unfinished.rename(files[number[0]])
    finally:
        os._exit(0)  # nothing of the parent's is flushed or closed twice
    return 0
