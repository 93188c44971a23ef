"""Pictures in folders by class, and by domain, as Office-Caltech-10, PACS, Office-Home and DomainNet are handed out, or by part."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import FedlibError, choose, coerce, require
from .dataset import Dataset

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".gif", ".webp")
MODES = {1: "L", 3: "RGB"}  # channels -> Pillow's name of them
PARTS = {"train", "test"}
NO_DOMAINS = {*PARTS, "training", "testing", "val", "valid", "validation", "dev", "eval"}


def from_folders(name: str, folder: str | Path, size: int = 64) -> Dataset:
    """A data set of the pictures in `folder`: DOMAIN/CLASS/FILE, its groups the domains, for `partition="groups"`; CLASS/FILE;
    or train/CLASS/FILE and test/CLASS/FILE, its official parts.

    Pictures become RGB bytes, resized (antialiased) to size x size; hidden files and others are passed over. Classes and
    domains are numbered in the order of their names. Without an official test part each client's samples are split 8:1:1.
    Mean and deviation are those of the training part. Augmentation is off, as of all data of your own. Raises FedlibError
    where the folder is not laid out so, or a picture cannot be read.

    >>> data.register("office-caltech", lambda: data.from_folders("office-caltech", "office_caltech_10"))  # doctest: +SKIP
    """
    size, top = coerce("size", size, int), Path(folder).expanduser()
    require(8 <= size <= 1024, "size", size, "between 8 and 1024 pixels")
    require(top.is_dir(), "folder", str(folder), "a folder that is there")
    there = sorted(path for depth in ("*/*", "*/*/*", "*/*/*/*") for path in top.glob(depth))  # links to folders, too
    found = [path.relative_to(top).parts for path in there if path.suffix.lower() in ENDINGS]
    files = [parts for parts in found if not any(part.startswith(".") for part in parts)]
    by_depth = {len(parts): "/".join(parts) for parts in files}
    layouts = "DOMAIN/CLASS/FILE, or all CLASS/FILE, or all train/CLASS/FILE and test/CLASS/FILE"
    require(by_depth.keys() in ({2}, {3}), f"pictures in {folder}", [*by_depth.values()], f"all {layouts}")
    firsts, (depth,) = {parts[0].lower() for parts in files}, by_depth
    official = depth == 3 and firsts == PARTS
    domains = not firsts & NO_DOMAINS if depth == 3 else not firsts <= NO_DOMAINS
    require(official or domains, f"folders in {folder}", sorted(firsts), f"train and test, or no parts: {layouts}")
    files.sort(key=lambda parts: official and parts[0].lower() == "test")
    cut = sum(parts[0].lower() == "train" for parts in files) if official else len(files)
    known = sorted({parts[-2] for parts in files[:cut]})
    images = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    for place, parts in enumerate(files):
        choose(f"class in {top / parts[0]}", parts[-2], known)
        images[place] = torch.from_numpy(picture(top.joinpath(*parts), 3, size))
    labels = torch.tensor([known.index(parts[-2]) for parts in files])
    groups: Any = ([parts[0] for parts in files], []) if depth == 3 and not official else None
    arrays = images[:cut], labels[:cut], images[cut:], labels[cut:]
    return Dataset.from_arrays(name, *arrays, len(known), groups=groups)


def picture(path: Path, channels: int, size: int | None = None) -> np.ndarray:
    """The picture of a file with 1 or 3 channels, uint8 (channels, height, width), resized (bilinear, antialiased) to size x
    size where that is given. Raises FedlibError for a file that is none.
    """
    from PIL import Image

    try:
        with Image.open(path) as read:
            shown = read.convert(MODES[channels])
    except (OSError, ValueError, SyntaxError):  # Pillow's, of damaged files
        raise FedlibError(f"{path}: is no picture that can be read") from None
    shown = shown if size is None else shown.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(shown).reshape(shown.height, shown.width, channels).transpose(2, 0, 1).copy()
