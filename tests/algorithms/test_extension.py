"""A method of one's own is one class and one line in the registry."""

import inspect
import textwrap
from dataclasses import dataclass

import pytest
import torch

from fedlib import ALGORITHMS, FedlibError, RunSpec, run, sweep
from fedlib.__main__ import main
from fedlib.algorithms import register
from fedlib.algorithms.base import Algorithm
from fedlib.federation import Message
from fedlib.lab import launch


@dataclass(frozen=True)
class SharedBias(Algorithm):
    name = "SharedBias"
    paper = "an example"
    exchanges = "header bias"
    needs = "features"

    def init_server(self, context):
        return {"bias": context.initial_header().bias.detach()}

    def download(self, server, info, context):
        return Message({"bias": server["bias"]})

    def local_round(self, client, message, context):
        client.model.header.bias.data.copy_(message["bias"])
        context.train()
        return Message({"bias": client.model.header.bias.detach()})

    def aggregate(self, server, uploads, context):
        server["bias"] = torch.stack([message["bias"] for _, message in uploads]).mean(0)


SPEC = RunSpec(algorithm="SharedBias", num_clients=6, participation=0.5, rounds=3, batch_size=16, keep="clients")


@pytest.fixture(autouse=True)
def registered(monkeypatch, small_digits):
    monkeypatch.setitem(ALGORITHMS, "SharedBias", SharedBias)  # in a package: a line in fedlib/algorithms/__init__.py


def test_it_is_the_example_of_the_base_class():
    example = textwrap.dedent("        @dataclass" + (Algorithm.__doc__ or "").partition("@dataclass")[2]).strip()
    assert inspect.getsource(SharedBias).strip() == example


def test_it_runs_and_its_record_is_kept(monkeypatch):
    record = run(SPEC, progress=False)
    assert record.status == "finished" and record.key.startswith("SharedBias-digits-")
    assert record.rounds["download_words"].iloc[1:].eq(3 * 10).all()  # 3 clients, a bias of 10 numbers
    assert record.rounds["upload_words"].iloc[1:].eq(3 * 10).all()
    kept = torch.load(record.path / "final-clients.pt", weights_only=True)
    last = record.clients.query("round == 2")["client"]
    biases = torch.stack([kept["clients"][id]["model"]["header.bias"] for id in last])
    torch.testing.assert_close(kept["server"]["bias"], biases.mean(0))

    monkeypatch.setattr(launch, "_compute", None)  # from now on nothing is computed
    for again in (run(SPEC, progress=False), *sweep([SPEC], progress=False)):
        assert again.rounds.equals(record.rounds) and not again.stale


def test_it_is_listed_and_runs_from_the_command_line(capsys):
    assert main(["list"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("SharedBias"))
    assert "header bias" in line and " any " in line
    assert main(["run", "SharedBias", "--num-clients", "6", "--rounds", "1"]) == 0
    assert "finished after 1 of 1 rounds" in capsys.readouterr().out


def test_a_method_of_fedlibs_is_not_replaced():
    with pytest.raises(FedlibError, match=r"^method = 'FedSSA': must be a name that none of fedlib's has$"):
        register(type("FedSSA", (Algorithm,), {}))
    assert register(ALGORITHMS["FedSSA"]) is ALGORITHMS["FedSSA"]


def test_a_misspelt_step_is_refused_and_a_helper_is_not():
    with pytest.raises(FedlibError, match=r"^part of Mine = 'agregate': must be aggregate, or a name less like it$"):
        register(type("Mine", (Algorithm,), {"agregate": lambda self, server, uploads, context: {}}))
    with pytest.raises(FedlibError, match=r"'need': must be needs, or"):
        register(type("Mine", (Algorithm,), {"need": "features"}))
    register(type("Mine", (Algorithm,), {"blend": lambda self, weight: weight, "_predict": None, "predictor": None}))
