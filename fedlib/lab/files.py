"""Atomic writes and checksums."""

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tqdm import tqdm


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file whole or not at all: temporary file, fsync, `os.replace`."""
    write_files({path: [content]})


def write_files(files: Mapping[Path, Sequence[bytes | memoryview]]) -> None:
    """Write files (path -> parts of its content) whole: all as temporary files first, so that a full disk leaves the
    old ones, then each is renamed. The last one certifies the others: an old last one is deleted before they change.

    Missing folders are made, also those removed meanwhile.
    """
    suffix = f".{os.getpid()}-{threading.get_ident()}.tmp"
    staged = {path: path.with_name(f".{path.name}{suffix}") for path in files}
    try:
        for path, parts in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(staged[path], "wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
        if len(files) > 1:
            list(files)[-1].unlink(missing_ok=True)
        for path, temporary in staged.items():
            os.replace(temporary, path)
    except BaseException:
        for temporary in staged.values():
            with suppress(OSError):
                temporary.unlink()
        raise


def seal(content: bytes | memoryview) -> list[bytes | memoryview]:
    """`content` behind a line with its SHA-256, the parts of a file that `unseal` reads."""
    return [hashlib.sha256(content).hexdigest().encode() + b"\n", content]


def unseal(content: bytes) -> bytes:
    """What `seal` was given; raises ValueError when a bit of it has changed."""
    digest, line_end, sealed = content[:64], content[64:65], content[65:]
    if line_end != b"\n" or hashlib.sha256(sealed).hexdigest().encode() != digest:
        raise ValueError("its content is not what was written")
    return sealed


def digest(done: Mapping[str, str], content: Mapping[str, bytes]) -> str:
    """What tells a finished run from others, by its DONE and its tables: SHA-256 of its final state or, of a result of record that
    does not have it, of its numbers.
    """
    return done.get("state") or hashlib.sha256(content["rounds.csv"] + content["clients.csv"]).hexdigest()


LARGEST = 2**30  # bytes of what is read whole, but for checkpoints


class TooLarge(ValueError):
    """A file that is larger than it can be."""


def regular(path: Path, largest: float = LARGEST) -> Path:
    """`path`, where a file of at most so many bytes is there: opening a pipe waits for ever, and a device has no end. Raises
    OSError where there is none, ValueError where it is something else, `TooLarge` where it is larger.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is no regular file")
    if found.st_size > largest:
        raise TooLarge(f"{path.name} has {found.st_size} bytes")
    return path


def set_aside(path: Path, reason: str) -> Path:
    """Rename a file or folder that cannot be used, never delete it; says so on standard error and returns its new
    place.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.{reason}-{number}")).exists():
        number += 1
    path.rename(aside)
    tqdm.write(f"{path.name}: {reason}, set aside as {aside.name}", file=sys.stderr)  # beside a bar, if there is one
    return aside
