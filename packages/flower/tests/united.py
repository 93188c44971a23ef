"""What federations are held against: the tables of a simulation in one place, and, of owners', pictures of four of them and
a method that is nobody's but theirs.
"""

import csv

import numpy as np
from PIL import Image

from fedlib import Dataset, RunSpec, data, lab, simulate

MINE = """
from dataclasses import dataclass

import torch

from fedlib.algorithms import Algorithm
from fedlib.federation import Message


@dataclass(frozen=True)
class SharedBias(Algorithm):
    name = "SharedBias"
    needs = "features"
    step: float = 1.0

    def init_server(self, context):
        return {"bias": context.initial_header().bias.detach()}

    def download(self, server, info, context):
        return Message({"bias": server["bias"]})

    def local_round(self, client, message, context):
        client.model.header.bias.data.copy_(message["bias"])
        context.train()
        return Message({"bias": client.model.header.bias.detach()})

    def aggregate(self, server, uploads, context):
        mean = torch.stack([message["bias"] for _, message in uploads]).mean(0)
        server["bias"] = server["bias"] + self.step * (mean - server["bias"])
"""


def pictures(folders):
    """Write each owner's pictures into folder/images; returns all of their images and labels, by owner."""
    stream, every = np.random.default_rng(5), []
    for client, own in enumerate(folders):
        images, labels = [], []
        for label, name in enumerate(("crack", "dent", "none")):
            if label == client % 3:
                continue  # nobody has every class
            folder = own / "images" / name
            folder.mkdir(parents=True)
            for number in range(15 + client):
                pixels = stream.integers(0, 80, (32, 32, 3)) + np.array([80 * label, 40, 160 - 80 * label])
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:03}.png")
                images.append(pixels.astype(np.uint8).transpose(2, 0, 1))
                labels.append(label)
        every.append((np.stack(images), np.array(labels)))
    return every


def simulated(owned, algorithm, **fields):
    """rounds.csv and clients.csv of the simulation of all owners' images, one group for each."""
    images, labels = (np.concatenate(part) for part in zip(*owned, strict=True))
    whose = np.repeat(np.arange(len(owned)), [len(own) for _, own in owned])
    made = Dataset.from_arrays(
        "united", images, labels, images[:0], labels[:0], 3, mean=[0.4] * 3, std=[0.3] * 3, groups=(whose, [])
    )
    data.register("united", lambda: made)
    spec = RunSpec(algorithm, dataset="united", partition="groups", num_clients=len(owned), participation=0.5,
                   local_epochs=1, batch_size=16, precision="fp32", **fields)  # fmt: skip
    return simulated_run(lab.resolve(spec))


def outcome_of(run):
    return simulate(lab.federation_of(run), run.algorithm, run.spec.rounds, run.spec.participation)


def simulated_run(run):
    """rounds.csv and clients.csv of a simulation in this process."""
    outcome = outcome_of(run)
    return [table(outcome).to_csv(index=False, lineterminator="\n") for table in (lab.rounds_of, lab.clients_of)]


def tables(folder):
    """rounds.csv and clients.csv of what ran apart."""
    return [(folder / f"{name}.csv").read_text() for name in ("rounds", "clients")]


def rows(file):
    with open(file, newline="") as content:
        return list(csv.DictReader(content))
