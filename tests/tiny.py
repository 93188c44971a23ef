"""Networks and data small enough to train by hand, and their training in float64 NumPy from the textbook formulas.

An image is averaged over its four quarters (x, 4 numbers); the extractor is linear, f = A x + a, and so is the header,
z = W f + b. Nothing here calls fedlib's training.
"""

import numpy as np
import torch
from torch import nn

from fedlib import Dataset, Federation, Model
from fedlib.protocol import Protocol

FEATURES = 3
ARCHITECTURES = {
    # same header, other extractors (`tiny-b` has a linear layer more), so heterogeneous
    "tiny-a": lambda num_classes, channels: Model(
        nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(4 * channels, FEATURES)),
        nn.Linear(FEATURES, num_classes),
    ),
    "tiny-b": lambda num_classes, channels: Model(
        nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(4 * channels, 5), nn.Linear(5, FEATURES)),
        nn.Linear(FEATURES, num_classes),
    ),
}


def dataset(num_classes: int = 3, per_class: int = 8, seed: int = 0) -> Dataset:
    """One-channel images, their class readable in the brightness of the quarters; all but the last fifth is 'train'."""
    stream = np.random.default_rng(seed)
    labels = stream.permutation(np.repeat(np.arange(num_classes), per_class))
    quarters = stream.uniform(0, 255, (num_classes, 1, 2, 2))[labels] + stream.normal(0, 25, (len(labels), 1, 2, 2))
    images = np.clip(np.kron(quarters, np.ones((16, 16))) + stream.normal(0, 5, (len(labels), 1, 32, 32)), 0, 255)
    images, cut = images.astype(np.uint8), len(labels) * 4 // 5
    return Dataset.from_arrays("tiny", images[:cut], labels[:cut], images[cut:], labels[cut:], num_classes)


def holding(data: Dataset, classes: list[list[int]], counts: list[int]) -> list[tuple[np.ndarray, ...]]:
    """One (train, validation, test) triple a client: `counts[k]` images of each of `classes[k]` to train on, one of
    each to validate and to test.
    """
    free = {label: list(np.flatnonzero(data.labels.numpy() == label)) for label in range(data.num_classes)}

    def take(label: int, count: int) -> list[int]:
        return [free[label].pop() for _ in range(count)]

    return [
        tuple(np.array([i for s in seen for i in take(s, n)]) for n in (count, 1, 1))
        for seen, count in zip(classes, counts, strict=True)
    ]


def federation(
    data: Dataset,
    partition: list,
    architectures: tuple[str, ...] = ("tiny-a",),
    *,
    lr: float = 0.1,
    epochs: int = 1,
    batch_size: int = 1000,
    seed: int = 0,
) -> Federation:
    return Federation(
        data,
        partition,
        architectures,
        protocol=Protocol(lr=lr),
        local_epochs=epochs,
        batch_size=batch_size,
        seed=seed,
    )


def inputs(data: Dataset, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x (n, 4): the normalised images' quarters averaged, float64; y (n,): labels."""
    pixels = data.images.numpy()[indices, 0].astype(np.float64) / 255
    normalised = (pixels - data.mean[0]) / data.std[0]
    return normalised.reshape(-1, 2, 16, 2, 16).mean(axis=(2, 4)).reshape(-1, 4), data.labels.numpy()[indices]


Weights = dict[str, np.ndarray]


def weights(model: nn.Module) -> Weights:
    """A tiny-a model's A, a, W, b in float64 (copies)."""
    linear = model.extractor[2]
    named = {"A": linear.weight, "a": linear.bias, "W": model.header.weight, "b": model.header.bias}
    return {name: tensor.detach().numpy().astype(np.float64) for name, tensor in named.items()}


def features(w: Weights, x: np.ndarray) -> np.ndarray:
    return x @ w["A"].T + w["a"]


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def loss(w: Weights, x: np.ndarray, y: np.ndarray) -> float:
    """Mean cross-entropy."""
    return float(-np.log(softmax(features(w, x) @ w["W"].T + w["b"])[np.arange(len(y)), y]).mean())


def gradient(
    w: Weights, x: np.ndarray, y: np.ndarray, prototypes: dict[int, np.ndarray] | None = None, lam: float = 0.0
) -> Weights:
    """Of the mean cross-entropy, plus lam times the mean over batch and features of (f - prototype of its class)^2."""
    n = len(y)
    f = features(w, x)
    dz = (softmax(f @ w["W"].T + w["b"]) - np.eye(len(w["b"]))[y]) / n
    df = dz @ w["W"]
    for i, label in enumerate(y):
        if prototypes and int(label) in prototypes:
            df[i] += lam * 2 * (f[i] - prototypes[int(label)]) / (n * f.shape[1])
    return {"A": df.T @ x, "a": df.sum(0), "W": dz.T @ f, "b": dz.sum(0)}


def descend(w: Weights, x: np.ndarray, y: np.ndarray, lr: float, steps: int = 1, **terms: object) -> Weights:
    """`steps` full-batch gradient steps."""
    for _ in range(steps):
        g = gradient(w, x, y, **terms)  # type: ignore[arg-type]
        w = {name: w[name] - lr * g[name] for name in w}
    return w


def class_means(w: Weights, x: np.ndarray, y: np.ndarray) -> dict[int, np.ndarray]:
    return {int(label): features(w, x)[y == label].mean(0) for label in np.unique(y)}


def assert_weights(model: nn.Module, expected: Weights) -> None:
    for name, value in weights(model).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=2e-6, err_msg=name)


def equal_states(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """The same bits in every tensor."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
