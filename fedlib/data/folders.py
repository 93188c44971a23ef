"""Pictures in folders by domain and class, as Office-Caltech-10, PACS, Office-Home and DomainNet are handed out."""

from pathlib import Path

import torch
from torch import Tensor

from ..errors import FedlibError, coerce, require
from .dataset import Dataset

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")


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
        images[place] = _picture(path, size)
    labels = torch.tensor([known.index(one) for one in classes])
    none = images[:0], labels[:0]
    return Dataset.from_arrays(name, images, labels, *none, len(known), groups=(domains, []))


def _picture(path: Path, size: int) -> Tensor:
    """The picture of the file, uint8 (3, size, size)."""
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.v2.functional import resize

    try:
        picture = decode_image(str(path), mode=ImageReadMode.RGB)
    except RuntimeError as error:
        raise FedlibError(f"{path}: cannot be read as a picture ({' '.join(str(error).split())[:80]})") from None
    return resize(picture, [size, size], antialias=True)
