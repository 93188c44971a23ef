"""Work done side by side in copies of this process, with the bits of one after the other."""

import ctypes
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch

Done = TypeVar("Done")
SIZE = 4  # bytes of a number


def each(
    work: Callable[[int], Done],
    numbers: range,
    processes: int,
    *,
    pack: Callable[[int, Done], Any],
    unpack: Callable[[int, Any], Done],
) -> Generator[Done]:
    """`work` of each number, in this order, each of which changes what is its own alone.

    With more than one process, copies of this one (forks, so Linux and no CUDA) take the numbers in turn. pack: makes plain
    numbers, texts and tensors, and containers of them, of what a copy has done; unpack: of these, here, what `work` gives and
    changes. What a copy did not finish is done here, which also raises its error. There are no more copies than fit into the
    memory that is free, if each gets as large as this process has been.
    """
    processes = min(processes, len(numbers), _room())
    if processes < 2 or torch.cuda.is_initialized():
        yield from map(work, numbers)
        return
    (waiting, told), (through, finished) = os.pipe(), os.pipe()
    # As many as a pipe holds; what the others stand for is done here.
    os.write(told, b"".join(number.to_bytes(SIZE, "little") for number in numbers[: 2**16 // SIZE]))
    os.close(told)
    children: list[int] = []
    done: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="fedlib-") as folder, open(through, "rb", buffering=0) as pipe:
        try:
            with suppress(OSError):  # where no further process may be, fewer do it
                while len(children) < processes:
                    children.append(_copy(work, pack, waiting, finished, folder))
            os.close(waiting)
            os.close(finished)
            for number in numbers:
                while number not in done and (read := pipe.read(SIZE)):  # nothing once all copies have ended
                    done.add(int.from_bytes(read, "little"))
                file, packed = Path(folder, str(number)), None
                with suppress(Exception):  # it was not finished, or is not plain after all
                    packed = torch.load(file, weights_only=True) if number in done else None
                file.unlink(missing_ok=True)
                yield work(number) if packed is None else unpack(number, packed)
            if any(os.waitpid(children.pop(), 0)[1] for _ in range(len(children))):
                line = "a process that trains beside this one was killed; what it had begun is done here"
                warnings.warn(line, RuntimeWarning, stacklevel=2)
        finally:
            for child in children:  # of a wait that was interrupted, or whoever asked wants no more
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _room() -> int:
    """How many copies there is memory for; on other systems than Linux 1."""
    if sys.platform != "linux":
        return 1
    return _kibibytes("/proc/meminfo", "MemAvailable") // _kibibytes("/proc/self/status", "VmHWM")


def _kibibytes(file: str, name: str) -> int:
    with open(file) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _copy(
    work: Callable[[int], Done], pack: Callable[[int, Done], Any], waiting: int, finished: int, folder: str
) -> int:
    """Start a copy of this process: its id. It reads numbers from `waiting`, leaves what it has done of each in a file of
    `folder`, and then writes the number to `finished`.
    """
    _flush()  # or what is not yet printed would be printed twice
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, of which the copy uses none
        child = os.fork()
    if child:
        return child
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a copy does not outlive its parent
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent hears them, and ends the round
        while read := os.read(waiting, SIZE):
            number = int.from_bytes(read, "little")
            with suppress(Exception):  # the parent meets it again
                torch.save(pack(number, work(number)), Path(folder, str(number)))
            os.write(finished, read)
    finally:
        _flush()
        os._exit(0)  # nothing of the parent's is closed twice


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
