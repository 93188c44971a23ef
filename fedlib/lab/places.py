"""Folders: of what the project ships (notebooks, results and figures of record), and of what its user makes (`home`)."""

from pathlib import Path

from ..errors import FedlibError, folder_from

_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = _PACKAGE / "_share"  # in an installed wheel; a checkout has none


def shipped() -> Path:
    """The folder of notebooks/, results/ and figures/: the checkout's root, or the data inside an installed package."""
    return _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parent


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
