"""Visited clients of a run: the most recently used in memory, all of them in files beside the checkpoint."""

import hashlib
import io
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import training
from ..errors import FedlibError, coerce, require
from ..federation import Client, Federation
from . import files

# Bytes of models and states that are held in memory: about 180 clients of CNN-1 to CNN-5, 23 of ResNet-18.
MEMORY = 2**30


def memory() -> float:
    """Bytes of visited clients that a run holds in memory: FEDLIB_CLIENT_MEMORY, in GiB, else MEMORY. No number depends on it.
    Raises FedlibError where that is no number.
    """
    given = os.environ.get("FEDLIB_CLIENT_MEMORY")
    if not given:
        return MEMORY
    size = coerce("FEDLIB_CLIENT_MEMORY", given, float)
    require(size >= 0, "FEDLIB_CLIENT_MEMORY", given, "at least 0, in GiB")
    return size * 2**30


def folder_of(checkpoint: Path) -> Path:
    """The folder with the client files of a checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.clients")


def remove(checkpoint: Path) -> None:
    """Delete a checkpoint with its client files; what is not there is no error."""
    checkpoint.unlink(missing_ok=True)
    shutil.rmtree(folder_of(checkpoint), ignore_errors=True)


def set_aside(checkpoint: Path, reason: str) -> None:
    """Rename a checkpoint that cannot be used, and its client files with it (`files.set_aside`)."""
    aside = files.set_aside(checkpoint, reason)
    if folder_of(checkpoint).exists():
        folder_of(checkpoint).rename(folder_of(aside))


class ClientFiles:
    """Where the clients of `federation` are between their rounds, for a run with the given checkpoint.

    A client that a round has changed stays in memory as long as `memory` allows; then it goes to a file, from which it
    comes back when it is used. `write` brings the files up to date for a checkpoint, and so costs what changed since
    the last one. A file's name has the number of the first checkpoint that names it, and no file that a checkpoint
    names is written again: a process that is killed at any moment leaves the last checkpoint's files as they were.
    `forget` deletes those that it no longer names. Each file's SHA-256 stands in the checkpoint.
    """

    def __init__(self, checkpoint: Path, federation: Federation):
        self.folder, self.federation = folder_of(checkpoint), federation
        self.number, self.memory = 1, memory()  # of the next checkpoint; bytes
        self.newest: dict[int, tuple[int, str]] = {}  # client id -> number and SHA-256 of its newest file
        self.held: dict[int, int] = {}  # ids of the clients in memory, the one used last at the end -> bytes
        self.changed: set[int] = set()  # those of them that have no file as they are now

    def attach(self) -> None:
        """Follow the federation from now on; of earlier runs' files only those of the checkpoint stay."""
        for client in self.federation.clients:
            if client.visited and client.id not in self.newest:  # trained before this run
                self.keep(client)
        self.forget()
        self.federation.after_visit = self.keep

    def keep(self, client: Client) -> None:
        """Note that a client has changed."""
        self.changed.add(client.id)
        self._hold(client.id, client.snapshot())

    def write(self) -> dict[str, Any]:
        """Write what has changed, and files that somebody has deleted; returns what the checkpoint says of the clients.

        Raises FedlibError when the deleted file is of a client that is not in memory.
        """
        present = self._present()
        for id in sorted(self.changed | {id for id in self.newest if self._name(id) not in present}):
            self._write(id)
        said = {"number": self.number, "files": dict(self.newest)}
        self.number += 1
        return said

    def forget(self) -> None:
        """Delete the files that the last checkpoint does not name; also temporary ones."""
        for name in self._present() - {self._name(id) for id in self.newest}:
            if name.lstrip(".").startswith("client-"):
                (self.folder / name).unlink(missing_ok=True)

    def resume(self, said: dict[str, Any]) -> None:
        """Restore the clients that a checkpoint names and reset the others to never visited. Raises
        ValueError or OSError, and changes nothing, when a file is not what was written.
        """
        if not {*said["files"]} <= {client.id for client in self.federation.clients}:
            raise ValueError("it names clients that are not of this federation")
        for id, (number, digest) in said["files"].items():
            with open(files.regular(self.folder / _file_name(id, int(number))), "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise ValueError(f"{file.name} is not what was written")
        self.newest, self.number = dict(said["files"]), int(said["number"]) + 1
        for client in self.federation.clients:
            if client.id in self.newest:
                client.offload(partial(self.fetch, client.id))
            else:
                client.reset()

    def fetch(self, id: int) -> dict[str, Any]:
        """A client's snapshot, from its file. Raises FedlibError when it is damaged or gone."""
        path = self.folder / self._name(id)
        try:
            content = files.regular(path).read_bytes()
            if hashlib.sha256(content).hexdigest() != self.newest[id][1]:
                raise ValueError("it is not what was written")
            snapshot = torch.load(io.BytesIO(content), map_location=self.federation.device, weights_only=True)
            if snapshot.keys() != {"model", "state"}:
                raise ValueError("it is no client's")
        except Exception as error:  # torch raises many kinds
            raise FedlibError(
                f"{path}: cannot be read ({error}); the same command goes on from what is whole"
            ) from error
        self._hold(id, snapshot)
        return snapshot

    def _hold(self, id: int, snapshot: dict[str, Any]) -> None:
        """Mark a client as in memory and most recently used, and offload the least recently used beyond the memory."""
        self.held.pop(id, None)
        self.held[id] = sum(tensor.nbytes for tensor in training.tensors(snapshot))
        if self.federation.after_visit != self.keep:  # another run has taken over
            return
        excess = sum(self.held.values()) - self.memory
        for oldest in list(self.held)[:-1]:
            if excess <= 0:
                break
            if oldest in self.changed:
                self._write(oldest)
            excess -= self.held.pop(oldest)
            self.federation.clients[oldest].offload(partial(self.fetch, oldest))

    def _write(self, id: int) -> None:
        buffer = io.BytesIO()
        torch.save(self.federation.clients[id].snapshot(), buffer)
        content = buffer.getbuffer()
        files.write_bytes(self.folder / _file_name(id, self.number), content)
        self.newest[id] = self.number, hashlib.sha256(content).hexdigest()
        self.changed.discard(id)

    def _name(self, id: int) -> str:
        return _file_name(id, self.newest[id][0])

    def _present(self) -> set[str]:
        return set(os.listdir(self.folder)) if self.folder.exists() else set()


def _file_name(id: int, number: int) -> str:
    return f"client-{id}-{number}.pt"
