"""Folders: of what the project ships (notebooks, results and figures of record), and of what its user makes (`home`)."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from ..errors import FedlibError, folder_from, require

_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = _PACKAGE / "_share"  # in an installed wheel; a checkout has none


def shipped() -> Path:
    """The folder of notebooks/, results/, figures/ and workflow/: the checkout's root, or the data inside an installed package."""
    return _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parent


RESULTS = shipped() / "results"  # of record


def copy(folder: str, files: Iterable[str], target: str | Path) -> list[Path]:
    """Copy files of one of these folders into the folder `target`, in the folders that they have here; returns those written.

    Raises FedlibError, and writes nothing, where one of them is there already.
    """
    paths = {file: Path(target).expanduser() / file for file in files}
    for path in paths.values():
        require(not path.exists(), "folder", str(target), f"without {path.name}, or the copy would replace {path}")
    try:
        for file, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(shipped() / folder / file, path)
    except OSError as error:
        raise FedlibError(f"folder = {str(target)!r}: cannot be written: {error}") from error
    return list(paths.values())


def checkout() -> Path:
    """The checkout's root; raises FedlibError where the package is an installed copy."""
    root = _PACKAGE.parent
    if _SHIPPED.is_dir() or not (root / "notebooks").is_dir():
        raise FedlibError(f"fedlib in {_PACKAGE} is an installed copy: this needs a checkout of the project")
    return root


def home() -> Path:
    """The root of what is made (runs/, figures/, executed/): FEDLIB_HOME, else the checkout, else ~/.cache/fedlib."""
    try:
        usual = str(checkout())
    except FedlibError:
        usual = "~/.cache/fedlib"
    return folder_from("FEDLIB_HOME", usual)
