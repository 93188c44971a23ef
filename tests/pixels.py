"""A federation small enough to work out by hand: only an image's first two pixels count, and networks are linear.

Every client trains on one full batch an epoch, so one local epoch is one SGD step whatever the order of the images.
`Net` repeats the network in NumPy and float64: the expected numbers come from the equations, not from the code.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedlib import Dataset, Federation, Model, models
from fedlib.algorithms import Algorithm
from fedlib.federation import Client, Message, ServerContext, Upload
from fedlib.protocol import Protocol

CLASSES = 3
LR = 0.5


class FirstPixels(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0, 0, :2]  # (n, 2)


def tiny_model(num_classes: int, channels: int) -> Model:
    return Model(nn.Sequential(FirstPixels(), nn.Linear(2, 2, bias=False)), nn.Linear(2, num_classes))


models.register("tiny", tiny_model)


def federation(
    labels: Sequence[Sequence[int]],
    *,
    classes: int = CLASSES,
    architectures: Sequence[str] = ("tiny",),
    public: int = 0,
    lr: float = LR,
    channels: int = 1,
    images: np.ndarray | None = None,
    **protocol: Any,
) -> Federation:
    """One client a list of its training labels (and two more images, one to validate and one to test), and `public`
    more images that no client holds. Normalised pixels are 2 * pixel / 255 - 1.
    """
    flat, partition = [], []
    for own in labels:
        start = len(flat)
        flat += [*own, own[0], own[0]]
        partition.append(tuple(np.split(np.arange(start, len(flat)), [len(own), len(own) + 1])))
    held = np.arange(len(flat), len(flat) + public)
    flat += [index % classes for index in range(public)]
    if images is None:
        images = np.random.default_rng(1).integers(0, 256, (len(flat), channels, 32, 32), dtype=np.uint8)
    dataset = Dataset.from_arrays("tiny", images, np.array(flat), images[:1], np.array(flat[:1]), classes)
    return Federation(
        dataset,
        partition,
        architectures,
        protocol=Protocol(normalise="half", lr=lr, **protocol),
        batch_size=1000,
        public=held if public else None,
    )


def context(federation: Federation, round: int = 0) -> ServerContext:
    """The server's, of 5 rounds."""
    return federation.server_context(round, 5)


def begin(method: Algorithm, client: Client, federation: Federation) -> None:
    """What comes before the client's first round."""
    method.init_client(client, federation.client_context(client.id, 0, 5))
    client.visited = True


def visit(method: Algorithm, client: Client, message: Message, federation: Federation, round: int = 0) -> Message:
    """The client's local round: its upload."""
    if not client.visited:
        begin(method, client, federation)
    return method.local_round(client, message, federation.client_context(client.id, round, 5))


def play(method: Algorithm, server: dict[str, Any], federation: Federation, context: ServerContext) -> list[Upload]:
    """Everyone's downloads, then everyone's local round; without aggregation. Clients arrive in order of id."""
    downloads = [method.download(server, client.info, context) for client in federation.clients]
    pairs = zip(federation.clients, downloads, strict=True)
    return [Upload(client.info, visit(method, client, message, federation, context.round)) for client, message in pairs]


def pixels(federation: Federation, indices: Tensor) -> np.ndarray:
    """What the network sees of the images: float64 (n, 2)."""
    return federation.pool.batch(indices)[:, 0, 0, :2].double().numpy()


def data(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """The client's training images as the network sees them, and their labels."""
    return client.pool.batch(client.train)[:, 0, 0, :2].double().numpy(), client.pool.labels[client.train].numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def cross_entropy_slope(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """d(mean CE) / d(logits) = (softmax - one hot) / n."""
    return (softmax(logits) - np.eye(logits.shape[1])[labels]) / len(labels)


class Net:
    """The tiny network in float64: features h = A x, logits z = W h + b."""

    def __init__(self, model: Any) -> None:
        state = model.state_dict() if isinstance(model, nn.Module) else model
        names = ("extractor.1.weight", "header.weight", "header.bias")
        self.A, self.W, self.b = (state[name].detach().double().numpy().copy() for name in names)

    def features(self, x: np.ndarray) -> np.ndarray:
        return x @ self.A.T

    def logits(self, x: np.ndarray) -> np.ndarray:
        return self.features(x) @ self.W.T + self.b

    def step(self, *terms: tuple[np.ndarray, np.ndarray], lr: float = LR, header: Any = (0.0, 0.0)) -> None:
        """One SGD step, given terms (x, dL/dz) that add up, and what else pulls at the header's (weight, bias)."""
        slopes = [np.zeros_like(self.A), header[0] + np.zeros_like(self.W), header[1] + np.zeros_like(self.b)]
        for x, dz in terms:
            for slope, part in zip(slopes, (self.W.T @ dz.T @ x, dz.T @ self.features(x), dz.sum(0)), strict=True):
                slope += part
        self.A, self.W, self.b = (
            value - lr * slope for value, slope in zip((self.A, self.W, self.b), slopes, strict=True)
        )

    def train(self, x: np.ndarray, y: np.ndarray, lr: float = LR) -> None:
        """One step on the mean CE."""
        self.step((x, cross_entropy_slope(self.logits(x), y)), lr=lr)

    def agrees(self, model: Any, tolerance: float = 2e-6) -> None:
        other = Net(model)
        for name in ("A", "W", "b"):
            np.testing.assert_allclose(getattr(other, name), getattr(self, name), rtol=0, atol=tolerance, err_msg=name)


def slope(function: Callable[[np.ndarray], float], at: np.ndarray, width: float = 1e-6) -> np.ndarray:
    """Central differences of a scalar function in float64, for losses whose derivative is long to write down."""
    result = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        up, down = at.copy(), at.copy()
        up[index] += width
        down[index] -= width
        result[index] = (function(up) - function(down)) / (2 * width)
    return result


def same_models(one: Federation, other: Federation) -> bool:
    """Whether the clients' models agree to the bit."""
    return all(
        torch.equal(a, b)
        for mine, yours in zip(one.clients, other.clients, strict=True)
        for a, b in zip(mine.model.state_dict().values(), yours.model.state_dict().values(), strict=True)
    )
