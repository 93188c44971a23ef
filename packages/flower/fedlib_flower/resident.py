"""A node's process that stays. Flower starts a process for each message; that one hands the requests on to this one, which
has torch loaded, and starts it where there is none. It ends with the SuperNode that it belongs to.

Between the two is a Unix socket in the node's folder, which only those can use who may write there. Each side sends
names and lengths as JSON, then the contents.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import chdir, suppress
from io import BufferedIOBase
from pathlib import Path

import filelock

from fedlib.errors import FedlibError

SOCKET = ".resident"
START_SECONDS = 300.0  # until torch is loaded, on a busy machine
LOOK_SECONDS = 0.5  # between two looks whether the owner is still there


def ask(folder: Path, run: str, session: int, requests: Mapping[str, bytes]) -> dict[str, bytes]:
    """`node.answer`, by the resident process of `folder`; the first call starts it, owned by this process's parent."""
    with _connected(folder) as connection, connection.makefile("rwb") as stream:
        _send(stream, {"run": run, "session": session}, requests)
        about, replies = _receive(stream)
    if "error" in about:
        raise FedlibError(about["error"])
    return replies


def _connected(folder: Path) -> socket.socket:
    began, process = time.monotonic(), None
    with filelock.FileLock(folder / f"{SOCKET}.lock"):  # two messages at once start one process
        while (connection := _connect(folder)) is None:
            if process is None:
                command = [
                    sys.executable,
                    "-m",
                    "fedlib_flower.resident",
                    str(folder.absolute()),
                    str(os.getppid()),
                ]
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            if process.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"the node's resident process did not start (exit {process.poll()})")
            time.sleep(0.05)
    return connection


def _connect(folder: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        with chdir(folder):  # a socket's path has at most about a hundred characters
            connection.connect(SOCKET)
    except OSError:  # none there, or one that a killed process has left
        connection.close()
        return None
    return connection


def _send(stream: BufferedIOBase, about: Mapping[str, object], contents: Mapping[str, bytes]) -> None:
    names = json.dumps({"about": about, "lengths": {name: len(content) for name, content in contents.items()}}).encode()
    stream.write(struct.pack("<Q", len(names)) + names)
    for content in contents.values():
        stream.write(content)
    stream.flush()


def _receive(stream: BufferedIOBase) -> tuple[dict, dict[str, bytes]]:
    (length,) = struct.unpack("<Q", _exactly(stream, 8))
    names = json.loads(_exactly(stream, length))
    return names["about"], {name: _exactly(stream, count) for name, count in names["lengths"].items()}


def _exactly(stream: BufferedIOBase, count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise ConnectionError("the other side of the node went away in the middle of a message")
    return content


def serve(folder: Path, owner: int) -> None:
    """Answer for the node of `folder`, one message after the other, until the process `owner` has ended."""
    from .node import answer  # loads torch

    threading.Thread(target=_end_with, args=(owner,), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as listener:
        with chdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(SOCKET)
            old = os.umask(0o177)
            listener.bind(SOCKET)
            os.umask(old)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            try:
                with connection, connection.makefile("rwb") as stream:
                    about, requests = _receive(stream)
                    try:
                        _send(stream, {}, answer(folder, about["run"], about["session"], requests))
                    except FedlibError as error:
                        _send(stream, {"error": str(error)}, {})
            except Exception:  # the one who asked sees its connection closed, and is asked again by the server
                traceback.print_exc()


def _end_with(owner: int) -> None:
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(owner)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(LOOK_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
