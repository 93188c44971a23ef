"""FedAvg of CNN-1 on Flower's own simulation engine, for bench_peers.py: an app as its users write one, with PyTorch's
DataLoader and a plain training loop, on the clients, images and networks that fedlib deals. Needs `flwr[simulation]`.
"""

import ctypes
import json
import os
from functools import cache
from typing import Any

import psutil
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader, TensorDataset

from fedlib import RunSpec, lab, models
from fedlib.federation import Federation
from fedlib.randomness import generator

client = ClientApp()


@cache  # once in each of the engine's processes
def federation(spec: str) -> Federation:
    torch.set_num_threads(1)
    return lab.federation_of(lab.resolve(RunSpec(**json.loads(spec))))


@cache
def loader(spec: str, number: int, part: str) -> DataLoader[Any]:
    """Of a client's training or test images, normalised."""
    own = federation(spec).clients[number]
    indices = getattr(own, part)
    data = TensorDataset(own.pool.batch(indices).contiguous(), own.pool.labels[indices])
    return DataLoader(data, batch_size=federation(spec).settings.batch_size, shuffle=part == "train")


def received(message: Message, context: Context) -> tuple[str, int, torch.nn.Module]:
    """The specification, which client this is, and its model with the weights of the message."""
    spec, number = str(message.content["config"]["spec"]), int(context.node_config["partition-id"])
    model = federation(spec).build(federation(spec).architectures[0])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return spec, number, model


@client.train()
def train(message: Message, context: Context) -> Message:
    spec, number, model = received(message, context)
    settings, data = federation(spec).settings, loader(spec, number, "train")
    optimiser = torch.optim.SGD(model.parameters(), lr=settings.lr)
    model.train()
    for _ in range(settings.epochs):
        for images, labels in data:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(data.dataset)})  # type: ignore[arg-type]
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    spec, number, model = received(message, context)
    data = loader(spec, number, "test")
    model.eval()
    with torch.no_grad():
        right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in data)
    count = len(data.dataset)  # type: ignore[arg-type]
    return Message(
        RecordDict({"metrics": MetricRecord({"accuracy": right / count, "num-examples": count})}), reply_to=message
    )


def run(spec: dict[str, Any], rounds: int) -> None:
    """All clients in every round, on one core. Waits for the engine's processes, so that their time counts as this
    process's children's.
    """
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: the engine's orphans become children of this process
    text, server = json.dumps(spec), ServerApp()
    info = lab.resolve(RunSpec(**spec)).info
    initial = models.build("CNN-1", info.num_classes, info.channels, generator(0, "init")).state_dict()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        config = ConfigRecord({"spec": text})
        FedAvg().start(grid, ArrayRecord(initial), rounds, train_config=config, evaluate_config=config)

    size = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 1, "include_dashboard": False},
    }
    run_simulation(server, client, spec["num_clients"], backend_config=size)  # type: ignore[arg-type]
    for process in psutil.Process().children(recursive=True):
        process.terminate()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return
