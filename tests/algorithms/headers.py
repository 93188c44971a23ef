"""Three clients that learn nothing, and headers to give them: what is seen is what the method itself does."""

from typing import Any

import numpy as np
import tiny
import torch

from fedlib.federation import Federation, Message, Upload

SEEN = ([0, 0, 1], [1, 2], [1, 0])  # training labels of clients 0, 1, 2; class 3 is nobody's
NUM_CLASSES = 4


def headers(count: int) -> np.ndarray:
    """`count` headers: float64 (count, classes, weight of two features and bias)."""
    return np.random.default_rng(7).normal(size=(count, NUM_CLASSES, 3)).astype(np.float32).astype(np.float64)


def write(header: Any, values: np.ndarray) -> None:
    header.weight.data, header.bias.data = torch.tensor(values[:, :2]).float(), torch.tensor(values[:, 2]).float()


def rows(tensors: Any) -> np.ndarray:
    return torch.cat([tensors["weight"], tensors["bias"][:, None]], 1).detach().double().numpy()


def still() -> Federation:
    """Training changes nothing: what is seen is what the method itself does."""
    return tiny.federation_of(SEEN, classes=NUM_CLASSES, lr=0)


def uploads_of(method: Any, values: dict[int, np.ndarray], built: Federation) -> list[Upload]:
    """What clients with these headers upload, in this order of arrival."""
    uploads = []
    for id, header in values.items():
        write(built.clients[id].model.header, header)
        client = built.clients[id]
        uploads.append(Upload(client.info, Message(method._upload(client.model.header, client.classes))))
    return uploads
