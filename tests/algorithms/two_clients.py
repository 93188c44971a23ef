"""Two clients of three classes, on the networks of `tiny.federation`: the setting of most rounds by hand."""

import tiny
import torch

from fedlib import simulation

DATA = tiny.dataset(num_classes=3, per_class=12)
LR = 0.1
CLASSES, COUNTS = [[0, 1], [1, 2]], [3, 5]  # two clients, 6 and 10 training images


def federation(**options):
    partition = tiny.holding(DATA, CLASSES, COUNTS)
    return tiny.federation(DATA, partition, lr=LR, **options), [tiny.inputs(DATA, part[0]) for part in partition]


def arrivals(rounds: int, num_clients: int, participation: float = 1.0, seed: int = 0) -> list[list[int]]:
    return [simulation.sampled_clients(seed, t, num_clients, participation).tolist() for t in range(rounds)]


def models_of(outcome) -> list[dict[str, torch.Tensor]]:
    return [client.model.state_dict() for client in outcome.clients]
