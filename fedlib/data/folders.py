"""Pictures in folders by domain and class, as Office-Caltech-10, PACS, Office-Home and DomainNet are handed out."""

from pathlib import Path

import numpy as np
import torch

from ..errors import FedlibError, coerce, require
from .dataset import Dataset

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".gif", ".webp")
MODES = {1: "L", 3: "RGB"}  # channels -> Pillow's name of them


def from_folders(name: str, folder: str | Path, size: int = 64) -> Dataset:
    """A data set of the pictures `folder/DOMAIN/CLASS/FILE`, its groups the domains: for `partition="groups"`.

    Pictures become RGB bytes, resized (antialiased) to size x size. Classes and domains are numbered in the order of
    their names; there is no official test part, so each client's samples are split 8:1:1. Mean and deviation are those
    of all pictures. Augmentation is off, as of all data of your own. Raises FedlibError where the folder is not laid out
    so, or a picture cannot be read.

    >>> data.register("office-caltech", lambda: data.from_folders("office-caltech", "office_caltech_10"))  # doctest: +SKIP
    """
    size, top = coerce("size", size, int), Path(folder).expanduser()
    require(8 <= size <= 1024, "size", size, "between 8 and 1024 pixels")
    require(top.is_dir(), "folder", str(folder), "a folder that is there")
    files = [path for path in sorted(top.glob("*/*/*")) if path.suffix.lower() in ENDINGS]
    require(bool(files), "folder", str(folder), "a folder of pictures DOMAIN/CLASS/FILE")
    domains, classes = ([path.parts[place] for path in files] for place in (-3, -2))
    known = sorted(set(classes))
    images = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    for place, path in enumerate(files):
        images[place] = torch.from_numpy(picture(path, 3, size))
    labels = torch.tensor([known.index(one) for one in classes])
    none = images[:0], labels[:0]
    return Dataset.from_arrays(name, images, labels, *none, len(known), groups=(domains, []))


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
