"""Data sets as tensors in memory, downloaded only when they are loaded.

`digits` and its relatives are embedded; the real sets are read by torchvision from `FEDLIB_DATA` (default
`~/.cache/fedlib/data`) and downloaded on first use where there is a network. What a plan, a label or a key needs of
them is in `info`, which reads no image.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import FedlibError, check_name, choose, folder_from, others_code, require
from . import dataset, readers
from .dataset import Dataset
from .folders import from_folders
from .info import BUILT_IN, DESCRIBED, READERS, REGISTERED, DatasetInfo, provide

EMBEDDED = tuple(name for name, reader in READERS.items() if not reader.folder)  # stand-ins


def root() -> Path:
    """Where the real data sets live (torchvision's layout): FEDLIB_DATA, else ~/.cache/fedlib/data."""
    return folder_from("FEDLIB_DATA", "~/.cache/fedlib/data")


def names() -> list[str]:
    """Every data set that `load` knows, the embedded ones first, and those that are only `described`."""
    return list(dict.fromkeys([*EMBEDDED, *REGISTERED, *READERS, *DESCRIBED]))


@contextmanager
def described(*infos: DatasetInfo) -> Iterator[None]:
    """Within, `info` says this of these data sets, whose images are elsewhere: none is read, and `load` knows none of them."""
    before = dict(DESCRIBED)
    DESCRIBED.update({info.name: info for info in infos})
    try:
        yield
    finally:
        DESCRIBED.clear()
        DESCRIBED.update(before)


def register(name: str, loader: Callable[[], Dataset]) -> None:
    """Make a data set of your own known to `load` (and so to `RunSpec`) under `name`; registering again replaces it.

    loader: called without arguments, returns the same `Dataset` each time. Raises FedlibError for a name that no file
    can have.
    """
    check_name("dataset", name)
    require(callable(loader), f"loader of {name}", loader, "a function without arguments that returns a Dataset")
    REGISTERED[name] = loader
    _LOADED.clear()


def registered() -> set[str]:
    """Names of the data sets registered in this process, also under the name of a built-in one."""
    return set(REGISTERED)


def info(name: str) -> DatasetInfo:
    """Classes, channels, sizes and fingerprint of the data set called `name`: known beforehand of a built-in one, so
    that nothing is read or downloaded; one registered in this process is loaded, and so is a published one of which
    nobody knows a check sum (PAMAP2). Raises FedlibError for unknown names.
    """
    choose("dataset", name, names())
    if name in DESCRIBED:
        return DESCRIBED[name]
    return BUILT_IN[name] if name in BUILT_IN and name not in REGISTERED else replace(load(name).info, name=name)


def available(name: str) -> bool:
    """Whether `name` can be loaded without a download."""
    folder = "" if name in REGISTERED else READERS[name].folder
    return not folder or any(path.is_file() for path in (root() / folder).rglob("*"))


def load(name: str) -> Dataset:
    """The data set called `name`, downloaded by torchvision if it is not there.

    Raises FedlibError when the name is unknown, a file is corrupted or not the published one, or the download fails:
    the line says what to do.
    """
    choose("dataset", name, [known for known in names() if known in REGISTERED or known in READERS])
    found = _LOADED[name] = _LOADED.get(name) or _afresh(name)
    for oldest in [*_LOADED][:-4]:
        _LOADED.pop(oldest, None)
    return found


_LOADED: dict[str, Dataset] = {}  # four: public data crossed among three sets are read once, and stay within 600 MB
load.cache_clear = _LOADED.clear  # type: ignore[attr-defined]


def check(name: str) -> None:
    """Raise FedlibError where the data set called `name` is loaded here and was changed in place since (0.1 s for CIFAR), or where a
    loader of one's own that takes less than a second, as of arrays in memory, returns other data than before.
    """
    found = _LOADED.get(name)
    if found is not None:
        allowed = (
            "as it was loaded, not changed in place; give changed data another name, or call data.load.cache_clear()"
        )
        again = _called(name) if name in REGISTERED and _SECONDS[name] < 1 else found
        same = replace(found).fingerprint == found.fingerprint and again.info == found.info
        require(same, "dataset", name, allowed)


_SECONDS: dict[str, float] = {}  # that a loader of one's own took


def _called(name: str) -> Dataset:
    """What the loader of one's own data set returns now."""
    with others_code(f"loader of {name}"):
        made = REGISTERED[name]()
    require(isinstance(made, Dataset), f"loader of {name}", type(made).__name__, "a function returning Dataset")
    return made


def _afresh(name: str) -> Dataset:
    if name in REGISTERED:
        loaded, began = _called(name), time.perf_counter()
        again, _SECONDS[name] = _called(name), time.perf_counter() - began
        if again.info != loaded.info:
            raise FedlibError(f"loader of {name}: called twice, it returns different data: it draws without a seed")
        return loaded
    folder, present = root() / READERS[name].folder, available(name)
    if name in EMBEDDED:
        return _read(name, root())
    try:
        return _read(name, root()) if present else _download(name)
    except Exception as error:  # torchvision raises RuntimeError, OSError, pickle and zip errors alike
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        if present:
            raise FedlibError(
                f"dataset = {name!r}: the files in {folder} are incomplete or corrupted ({reason}); "
                f"delete that folder and run `python -m fedlib data {name}`"
            ) from error
        raise FedlibError(
            f"dataset = {name!r}: not found in {root()} and not downloaded ({reason}); run "
            f"`python -m fedlib data {name}` where there is a network, or copy its folder {folder.name} "
            f"there (FEDLIB_DATA names another place)"
        ) from error


def _read(name: str, folder: Path, download: bool = False) -> Dataset:
    """The data set, if it is what `BUILT_IN` says, where that knows it."""
    reader, expected = READERS[name], BUILT_IN.get(name)
    dataset = reader.read(folder, download)
    if expected is None:
        return dataset
    found = replace(dataset.info, fingerprint=expected.fingerprint) if reader.checked_files else dataset.info
    for field in fields(DatasetInfo):
        value, known = getattr(found, field.name), getattr(expected, field.name)
        if value != known:
            raise FedlibError(f"{name}: {field.name} is {value}, that of the published data is {known}")
    return dataset


def _download(name: str) -> Dataset:
    """The data set, downloaded beside its place and moved there when it is whole and genuine."""
    root().mkdir(parents=True, exist_ok=True)
    timeout, folder = socket.getdefaulttimeout(), READERS[name].folder
    with TemporaryDirectory(dir=root(), prefix=f".{name}-") as temporary:
        try:
            socket.setdefaulttimeout(30)  # a host that never answers must not hang a run
            dataset = _read(name, Path(temporary), True)
        finally:
            socket.setdefaulttimeout(timeout)
        if not available(name):  # another process may have been faster
            os.replace(Path(temporary) / folder, root() / folder)
    return dataset


__all__ = [
    "BUILT_IN",
    "EMBEDDED",
    "Dataset",
    "DatasetInfo",
    "available",
    "dataset",
    "described",
    "from_folders",
    "info",
    "load",
    "names",
    "provide",
    "readers",
    "register",
    "registered",
    "root",
]
