"""Networks and data small enough to train by hand, and their training in float64 NumPy from the textbook formulas.

Two kinds. `tiny-a` and `tiny-b` average an image over its four quarters (x, 4 numbers); the extractor is linear,
f = A x + a, and so is the header, z = W f + b: `federation`, `weights`, `descend`. `tiny` sees an image's first two
pixels only, f = A x: `federation_of` makes a federation from nothing but training labels, and `Net` repeats the network
and its steps, with whatever else pulls at it. Nothing here calls fedlib's training.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlib import Dataset, Federation, Model
from fedlib.algorithms import Algorithm
from fedlib.federation import Client, Message, ServerContext, Upload
from fedlib.lab import checkpoint
from fedlib.protocol import Protocol
from fedlib.simulation import Outcome

FEATURES = 3
CLASSES = 3
LR = 0.5
LABELS = [[0, 1, 0], [1, 2, 2, 1, 1]]  # two clients, 3 and 5 training images


class FirstPixels(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0, 0, :2]  # (n, 2)


def tiny_model(num_classes: int, channels: int) -> Model:
    return Model(nn.Sequential(FirstPixels(), nn.Linear(2, 2, bias=False)), nn.Linear(2, num_classes))


ARCHITECTURES = {
    "tiny": tiny_model,
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
    return Dataset.from_arrays(
        "tiny", images[:cut], labels[:cut], images[cut:], labels[cut:], num_classes, augment=True
    )


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


# --------------------------------------------------------------------------------------------- the first two pixels


def federation_of(
    labels: Sequence[Sequence[int]],
    *,
    classes: int = CLASSES,
    architectures: Sequence[str] = ("tiny",),
    public: int = 0,
    lr: float = LR,
    channels: int = 1,
    newcomer_visits: int = 0,
    **protocol: Any,
) -> Federation:
    """One client a list of its training labels (and two more images, one to validate and one to test), and `public`
    more images that no client holds. Normalised pixels are 2 * pixel / 255 - 1. With visits, one client is a newcomer.
    """
    flat, partition = [], []
    for own in labels:
        start = len(flat)
        flat += [*own, own[0], own[0]]
        partition.append(tuple(np.split(np.arange(start, len(flat)), [len(own), len(own) + 1])))
    held = np.arange(len(flat), len(flat) + public)
    flat += [index % classes for index in range(public)]
    images = np.random.default_rng(1).integers(0, 256, (len(flat), channels, 32, 32), dtype=np.uint8)
    dataset = Dataset.from_arrays("tiny", images, np.array(flat), images[:1], np.array(flat[:1]), classes, augment=True)
    return Federation(
        dataset,
        partition,
        architectures,
        protocol=Protocol(normalise="half", lr=lr, **protocol),
        batch_size=1000,
        public=held if public else None,
        newcomers=int(newcomer_visits > 0),
        newcomer_visits=newcomer_visits,
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


def first_pixels(federation: Federation, indices: Tensor) -> np.ndarray:
    """What the network sees of the images: float64 (n, 2)."""
    return federation.pool.batch(indices)[:, 0, 0, :2].double().numpy()


def training_data(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """The client's training images as the network sees them, and their labels."""
    return client.pool.batch(client.train)[:, 0, 0, :2].double().numpy(), client.pool.labels[client.train].numpy()


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


def posted(value: Any) -> Any:
    """What arrives of plain tensors and numbers after a trip through bytes."""
    content = io.BytesIO()
    torch.save(value, content)
    return torch.load(io.BytesIO(content.getvalue()), weights_only=True)


def stopped_and_resumed(
    built: Callable[[], Federation], method: Algorithm, rounds: int, path: Path, after: int = 0, part: float = 1.0
) -> Outcome:
    """Of a run that is stopped after round `after`, and gone on with by another process's federation."""

    def stop(row: dict[str, Any], timing: dict[str, Any]) -> None:
        if row["round"] == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.simulate(built(), method, rounds, part, checkpoint=path, every=0, progress=stop)
    assert path.exists()
    return checkpoint.simulate(built(), method, rounds, part, checkpoint=path)


def words(method: Algorithm, classes: int, own: list[list[int]], aggregated: int) -> tuple[int, int]:
    """Published words that client 0 downloads and uploads after `aggregated` rounds, with 500 features."""
    federation = federation_of(own, classes=classes, architectures=["CNN-5"], channels=3)
    now = context(federation)
    server = method.init_server(now)
    for _ in range(aggregated):
        method.aggregate(server, play(method, server, federation, now), now)
    client = federation.clients[0]
    download = method.download(server, client.info, now)
    upload = visit(method, client, download, federation)
    return download.words(method.uncounted), upload.words(method.uncounted)


def arrival_order_matters_at_most(method: Algorithm, tolerance: float = 1e-6) -> None:
    """Whatever the order in which uploads arrive, the downloads of the next round agree to `tolerance`."""
    downloads = []
    for turn in (1, -1):
        federation = federation_of(LABELS, public=6)
        now = context(federation)
        server = method.init_server(now)
        uploads = play(method, server, federation, now)
        method.aggregate(server, uploads[::turn], now)
        downloads += [method.download(server, client.info, now).tensors for client in federation.clients]
    for one, other in zip(downloads[:2], downloads[2:], strict=True):
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance)


def kl(teacher: np.ndarray, logits: np.ndarray) -> float:
    """KL(softmax(teacher) || softmax(logits)), summed over classes and averaged over the batch."""
    p, q = softmax(teacher), softmax(logits)
    return float((p * np.log(p / q)).sum(1).mean())


def pair(seed: int = 0) -> tuple[Model, Model, Tensor, Tensor]:
    """Two tiny networks, four images and their labels."""
    torch.manual_seed(seed)
    return tiny_model(3, 1), tiny_model(3, 1), torch.randn(4, 1, 32, 32), torch.tensor([0, 1, 2, 1])


def same(one: Tensor, other: np.ndarray, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(one.detach(), other, rtol=0, atol=tolerance)
