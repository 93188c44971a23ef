"""Runs that were stored half-done at commit 1872275, to be resumed by every later version to the same bits.

`python made.py half` made runs/ with a SIGTERM in the second round, `python made.py whole` made whole/: what the same code gives
undisturbed (its tables, provenance and DONE alone). `python made.py` resumes what FEDLIB_HOME holds and prints the rounds that it computed.
"""

import signal
import sys
from typing import Any

import torch
from torch import nn

from fedlib import RunSpec, lab, models, run, simulation
from fedlib.algorithms import register
from fedlib.algorithms.base import Algorithm, ClientContext, Message
from fedlib.models import Model


def small(width: int) -> Any:
    """A network of some 900 weights."""

    def build(num_classes: int, channels: int) -> nn.Module:
        shrunk = nn.Sequential(nn.Conv2d(channels, 4, 5, stride=4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
        extractor = nn.Sequential(*shrunk, nn.Linear(36, width), nn.BatchNorm1d(width), nn.ReLU())
        return Model(extractor, nn.Linear(width, num_classes))

    return build


models.register("Small-12", small(12))
models.register("Small-12b", small(12))


@register
class Momentum(Algorithm):
    """A person's own method: clients share the mean of their headers, to which the server gives momentum."""

    needs = "features"
    beta: float = 0.5

    def init_server(self, context: Any) -> dict[str, Any]:
        state = dict(context.initial_header().state_dict())
        return {"header": state, "momentum": {name: torch.zeros_like(tensor) for name, tensor in state.items()}}

    def download(self, server: Any, info: Any, context: Any) -> Message:
        return Message(dict(server["header"]))

    def local_round(self, client: Any, message: Message, context: ClientContext) -> Message:
        client.model.header.load_state_dict(message.tensors)
        client.state["visits"] = client.state.get("visits", torch.zeros(())) + 1
        context.train()
        return Message(client.model.header.state_dict(), client.num_samples)

    def aggregate(self, server: Any, uploads: Any, context: Any) -> None:
        for name, old in server["header"].items():
            mean = sum(message[name] for _, message in uploads) / len(uploads)
            server["momentum"][name] = self.beta * server["momentum"][name] + mean - old
            server["header"][name] = old + server["momentum"][name]


OWN = {"scenario": ("Small-12", "Small-12b"), "num_clients": 4, "participation": 0.5, "rounds": 4, "batch_size": 64}
SPECS = [
    RunSpec("FedSSA", params={"stable_rounds": 3}, keep="clients", metrics="macro_f1", seed=1, **OWN),
    RunSpec("FedProto", isolated=True, newcomers=1, newcomer_visits=1, schedule="CosineAnnealingLR", **OWN),
    RunSpec("FedGH", patience=4, protocol="released", paper="FedGH", **OWN),
    RunSpec("Momentum", partition="dirichlet", budget_words=1e9, **OWN),
]


def stop(spec: Any, row: dict[str, Any]) -> None:
    if row["round"] == 1:
        signal.raise_signal(signal.SIGTERM)


def main(what: str = "") -> None:
    computed, one = [], simulation._round

    def counted(outcome: Any, algorithm: Any, context: Any, *rest: Any) -> Any:
        computed.append(context.round)
        return one(outcome, algorithm, context, *rest)

    simulation._round = counted
    for spec in SPECS:
        computed.clear()
        try:
            run(spec, progress=False, log=stop if what == "half" else None)
        except lab.Interrupted as error:
            print(error)
        print(lab.resolve(spec).key, *computed)


if __name__ == "__main__":
    main(*sys.argv[1:])
