"""Files whose weights the clients' networks start from: `ResNet-18=resnet18.pt,ViT-S=vit.safetensors`."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ..errors import FedlibError, choose, distinct, require


def files(given: str) -> dict[str, Path]:
    """Architecture -> file. Raises FedlibError for another text."""
    pairs = [pair.partition("=") for pair in given.split(",")] if given else []
    fits = all(name.strip() and file.strip() for name, _, file in pairs)
    require(fits, "weights", given, "ARCHITECTURE=FILE, with commas between several")
    distinct("weights: architectures", [name.strip() for name, _, _ in pairs])
    return {name.strip(): Path(file.strip()).expanduser() for name, _, file in pairs}


def digests(given: str, architectures: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each file, by architecture. Raises FedlibError where a file cannot be read, or no client has the architecture."""
    found = {}
    for name, file in files(given).items():
        choose("weights: architecture", name, dict.fromkeys(architectures))
        try:
            with open(file, "rb") as content:
                found[name] = hashlib.file_digest(content, "sha256").hexdigest()
        except (OSError, ValueError) as error:
            raise FedlibError(f"weights of {name} = {str(file)!r}: cannot be read ({error})") from None
    return found


def read(given: str) -> dict[str, dict[str, Tensor]]:
    """Architecture -> what its file holds, tensors by name, as `torch.save(network.state_dict(), file)` writes them, or of a
    file called `.safetensors`. Nothing but tensors is unpickled. Raises FedlibError for another file.
    """
    return {name: _tensors(name, file) for name, file in files(given).items()}


def _tensors(name: str, file: Path) -> dict[str, Tensor]:
    try:
        is_plain = file.suffix == ".safetensors"
        content: Any = safetensors.torch.load_file(file) if is_plain else torch.load(file, "cpu", weights_only=True)
        fits = isinstance(content, dict) and all(isinstance(value, Tensor) for value in content.values())
        said = "it holds other things than tensors by name"
    except Exception as error:  # torch and safetensors raise many kinds
        fits, said = False, str(error).partition("\n")[0]
    if not fits:
        raise FedlibError(f"weights of {name} = {str(file)!r}: must be a network's state_dict ({said})")
    return content
