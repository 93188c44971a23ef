"""Gradient steps on whole networks (see `tiny.Net`), for methods that average them."""

import copy
import dataclasses

import numpy as np
import tiny
from tiny import LABELS

from fedlib import Federation

NAMES = ("extractor.1.weight", "header.weight", "header.bias")


def federation(epochs: int = 1, batch_size: int = 1000, lr: float = tiny.LR) -> Federation:
    built = tiny.federation_of(LABELS, lr=lr)
    built.settings = dataclasses.replace(built.settings, epochs=epochs, batch_size=batch_size)
    return built


def weights(net: tiny.Net) -> list[np.ndarray]:
    return [net.A, net.W, net.b]


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(tiny.softmax(logits)[np.arange(len(y)), y]).mean())


def flat(*parts) -> np.ndarray:
    """All numbers of arrays and tensors in one vector, which `cut` takes apart again, so that a loss has one slope."""
    return np.concatenate([np.ravel(part).astype(np.float64) for part in parts])


def cut(at: np.ndarray, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    places = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(at, places), shapes, strict=True)]


def slopes(net: tiny.Net, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """d(mean CE) / d(A, W, b)."""
    dz = tiny.cross_entropy_slope(net.logits(x), y)
    return [net.W.T @ dz.T @ x, dz.T @ net.features(x), dz.sum(0)]


def moved(net: tiny.Net, lr: float, *directions: list[np.ndarray]) -> tiny.Net:
    """The network after one step of `lr` against the sum of `directions`."""
    result = copy.deepcopy(net)
    for part in zip(weights(result), *directions, strict=True):
        part[0][...] -= lr * sum(part[1:])
    return result


def pull(net: tiny.Net, towards: tiny.Net, strength: float) -> list[np.ndarray]:
    """d(strength / 2 * squared distance) / d(A, W, b)."""
    return [strength * (own - other) for own, other in zip(weights(net), weights(towards), strict=True)]


def mean(nets: list[tiny.Net]) -> tiny.Net:
    """Weighted by the numbers of training images, 3 and 5."""
    result = copy.deepcopy(nets[0])
    for place, parts in zip(weights(result), zip(*map(weights, nets), strict=True), strict=True):
        place[...] = (3 * parts[0] + 5 * parts[1]) / 8
    return result
