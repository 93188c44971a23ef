"""One round: what is asked of whom in which order, what comes back, and what of it ends the run."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from fedlib import Federation, FedlibError, lab, simulate, simulation
from fedlib.algorithms import FedAvg, Standalone
from fedlib.algorithms.base import Algorithm, Client, Message, ServerContext
from fedlib.protocol import Protocol

DATA = tiny.dataset(num_classes=3, per_class=20)


def four_clients() -> Federation:
    return tiny.federation(DATA, [np.arange(k, 60, 4) for k in range(4)])


SEEN: list[str] = []


@dataclasses.dataclass(frozen=True)
class Reporting(Algorithm):
    """Sends and trains nothing, hands diagnostics back, and writes down in SEEN what is done in which order."""

    name = "Reporting"
    paper = "a test"
    exchanges = "nothing"

    client: dict[str, Any] = dataclasses.field(default_factory=dict)  # of client k: value * k if it is a list
    server: dict[str, Any] = dataclasses.field(default_factory=dict)

    def download(self, server, info, context):
        SEEN.append(f"download {info.id}")
        return Message({"a": torch.ones(2)}, diagnostics={"secret": 1.0})

    def local_round(self, client, message, context):
        assert message.diagnostics == {}
        SEEN.append(f"train {client.id}")
        values = {name: value[client.id] if isinstance(value, list) else value for name, value in self.client.items()}
        return Message({"b": torch.ones(3)}, diagnostics=values)

    def aggregate(self, server, uploads, context):
        assert all(message.diagnostics == {} for _, message in uploads)
        SEEN.append("aggregate " + " ".join(str(info.id) for info, _ in uploads))
        return self.server


def test_an_exchange_brings_one_reply_for_each_request():
    def lost(federation, algorithm, requests):
        return simulation.in_process(federation, algorithm, requests)[1:]

    with pytest.raises(FedlibError, match="replies of the exchange = 3: must be 4, one per request"):
        simulate(four_clients(), Reporting(), 1, exchange=lost)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"protocol": Protocol(inherit="first_visit")}, "inherit = 'first_visit': must be 'none'"),
        ({"newcomers": 1, "newcomer_visits": 2}, "newcomer_visits = 2: must be 0"),
    ],
)
def test_what_copies_between_clients_needs_them_in_this_process(fields, line):
    built = Federation(DATA, [np.arange(k, 60, 4) for k in range(4)], ["tiny-a"], **fields)
    with pytest.raises(FedlibError, match=rf"^{line}, unless clients are in_process$"):
        simulate(built, FedAvg(), 1, exchange=lambda *given: [])


def test_all_downloads_of_a_round_are_made_before_anyone_trains():
    SEEN.clear()
    outcome = simulate(four_clients(), Reporting(), 2, 0.5)
    order = lab.clients_of(outcome).query("round >= 0").groupby("round")["client"].apply(list)
    expected = []
    for one, two in order:
        expected += [f"download {one}", f"download {two}", f"train {one}", f"train {two}", f"aggregate {one} {two}"]
    assert expected == SEEN
    assert lab.rounds_of(outcome)[["download_words", "upload_words", "published_words"]].iloc[-1].tolist() == [4, 6, 10]


def test_clients_diagnostics_are_averaged_and_equal_ones_are_exact():
    values = {"share": [0.0, 1.0, torch.tensor(1.0), True], "loss": [1.0, 2.0, 3.0, torch.tensor(6.0)]}
    outcome = simulate(four_clients(), Reporting(client=values), 1)
    row = lab.rounds_of(outcome).iloc[-1]
    assert row["share"] == 0.75 and row["loss"] == 3.0
    table = lab.clients_of(outcome).query("round == 0").set_index("client")
    assert table["loss"].loc[[0, 1, 2, 3]].tolist() == [1.0, 2.0, 3.0, 6.0] and "share" not in table
    three = simulate(four_clients(), Reporting({"mu": 0.1}), 1, 0.75)
    assert lab.rounds_of(three)["mu"].iloc[-1] == 0.1 != np.mean([0.1] * 3)


def test_the_servers_numbers_are_rounds_and_the_rest_details():
    returned = {"count": 3, "norm": torch.tensor(0.5), "size": np.int64(7), "why": "", "none": None, "ids": [1, 2]}
    outcome = simulate(four_clients(), Reporting({"loss": 1.0}, returned | {"matrix": torch.eye(2)}), 2)
    assert lab.rounds_of(outcome)[["count", "norm", "size"]].iloc[1:].to_numpy().tolist() == [[3, 0.5, 7]] * 2
    rest = {"why": "", "none": None, "ids": [1, 2], "matrix": [[1.0, 0.0], [0.0, 1.0]]}
    assert outcome.detail_rows == [{"round": 0} | rest, {"round": 1} | rest]
    assert tiny.posted(outcome.round_rows[1:]) == outcome.round_rows[1:]  # plain numbers, which a checkpoint can hold


def test_contexts_reach_no_further_than_their_side():
    """Not even through what they hold: a client and its data are on its own side only, a federation on neither."""
    federation = four_clients()

    def reached(value: Any, found: list[Any]) -> list[Any]:
        if id(value) not in map(id, found) and not isinstance(value, torch.Tensor | np.ndarray | torch.nn.Module):
            found.append(value)
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            for part in [*parts, *getattr(value, "__dict__", {}).values()]:
                reached(part, found)
        return found

    for context, own in ((federation.server_context(), []), (federation.client_context(2), [federation.clients[2]])):
        found = reached(context, [])
        assert [one for one in found if isinstance(one, Client)] == own
        assert not any(isinstance(one, Federation) for one in found)
        assert any(isinstance(one, ServerContext) for one in found) == (not own)


@pytest.mark.parametrize("place", ["model", "state", "upload", "logits", "server"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("loss", [True, False])
def test_whatever_a_round_leaves_is_finite_or_the_run_diverged(place, value, loss):
    """One number of one tensor, in a method that trains or that knows no loss; a logit of -inf rules a class out."""

    def spoiling(value, wanted):
        def local_round(self, client, message, context):
            if loss:
                context.train()
            bad = {"deep": [torch.full((2, 2), value if place == wanted else 0.0), torch.arange(3), "text"]}
            if place == "model":
                client.model.header.bias.data[2] += bad["deep"][0][0, 0] if wanted == place else 0
            client.state.update(bad if place == "state" else {})
            return Message({"a": bad["deep"][0]} if place == "upload" else {}, client.num_samples)

        def aggregate(self, server, uploads, context):
            server["nested"] = {"a": torch.full((2,), value if place == wanted == "server" else 0.0)}

        def predict(self, client, images):
            logits = client.model(images)
            ruled_out = torch.zeros_like(logits).index_fill(1, torch.tensor([0]), -torch.inf)
            spoilt = torch.full_like(logits, value if place == wanted == "logits" else 0.0)
            return {"accuracy": logits, "another": logits + ruled_out + spoilt}

        steps = {"local_round": local_round, "aggregate": aggregate, "predict": predict}
        return simulate(four_clients(), type("Spoiling", (Standalone,), steps)(), 1)

    fine, spoilt = spoiling(value, "nothing"), spoiling(value, place)
    assert fine.status == "finished" and np.isfinite(fine.round_rows[-1]["loss"]) == loss
    assert spoilt.status == "diverged"
    assert np.isnan(spoilt.round_rows[-1]["loss"]) == (place != "server" or not loss)
