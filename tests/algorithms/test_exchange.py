"""What goes between server and clients: bytes are enough for every method, and the round hands back what it is to."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from fedlib import ALGORITHMS, Federation, FedlibError, RunSpec, lab, simulate, simulation
from fedlib.algorithms.base import Algorithm, Client, Message, ServerContext
from fedlib.simulation import Reply, Request

NUM_CLIENTS, PARTICIPATION, ROUNDS = 5, 0.4, 3  # 2 clients a round, so that some come back and some never come


def resolved(name: str, **fields: Any) -> lab.Resolved:
    scenario = "homogeneous" if ALGORITHMS[name].needs == "architecture" else "heterogeneous"
    spec = RunSpec(
        algorithm=name,
        dataset="digits",
        scenario=scenario,
        num_clients=NUM_CLIENTS,
        public_images=16,
        params={"clusters": 2} if name == "pFedHR" else {},  # of two clients' layers, so that there are candidates
    )
    return lab.resolve(dataclasses.replace(spec, **fields))


# ----------------------------------------------------------------------------------------------- clients elsewhere


class Elsewhere:
    """An exchange with clients that are built anew for every request: what is kept of one between two rounds is the
    bytes of its snapshot, and what reaches it and comes back is bytes.
    """

    def __init__(self, run: lab.Resolved):
        self.run, self.snapshots = run, {}

    def __call__(self, federation: Federation, algorithm: Algorithm, requests: list[Request]) -> list[Reply]:
        return [self.ask(request._replace(download=self.message(request.download))) for request in requests]

    @staticmethod
    def message(sent: Message) -> Message:
        return Message(**tiny.posted(vars(sent)))

    def ask(self, request: Request) -> Reply:
        federation = lab.federation_of(self.run)
        client = federation.clients[request.client]
        if client.id in self.snapshots:
            client.restore(tiny.posted(self.snapshots[client.id]))
        reply = simulation.answer(federation, self.run.algorithm, request)
        assert all(other._model is None and not other.visited for other in federation.clients if other is not client)
        if client.visited:
            self.snapshots[client.id] = tiny.posted(client.snapshot())
        plain = tiny.posted(vars(reply) | {"upload": None})
        return Reply(**plain | {"upload": self.message(reply.upload)})


def with_a_posted_server(algorithm: Algorithm) -> Algorithm:
    """The same method, whose server forgets all but the bytes of its state after each round."""
    own = type(algorithm)

    def aggregate(self, server, uploads, context):
        returned = own.aggregate(self, server, uploads, context)
        state = tiny.posted(server)
        server.clear()
        server.update(state)
        return returned

    return type(own.__name__, (own,), {"aggregate": aggregate})(**dataclasses.asdict(algorithm))


SWITCHED = {
    "FML": {"score_shared": True},
    "FedKD": {"score_shared": True},
    "pFedHR": {"public_only": True},
    "FedL2G": {"space": "features", "warm_up": 0.5},
}


@pytest.mark.thorough("FedSSA", "FedGH")
@pytest.mark.parametrize(("name", "switched"), [*((name, {}) for name in ALGORITHMS), *SWITCHED.items()], ids=str)
def test_clients_elsewhere_give_the_same_bits(name, switched, small_digits):
    """Every message, reply and state through bytes, no client shared with another or the server: nothing changes."""
    run = resolved(name)
    run = resolved(name, params=run.spec.params | switched)
    global_states = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    here = simulate(lab.federation_of(run), run.algorithm, ROUNDS, PARTICIPATION)
    there = Elsewhere(run)
    server = lab.federation_of(run)
    other = simulate(server, with_a_posted_server(run.algorithm), ROUNDS, PARTICIPATION, exchange=there)
    assert not any(client.visited or client._model for client in server.clients)  # the server's side touched none
    parameters = [part for client in here.clients if client.visited for part in client.model.parameters()]
    assert all(part.requires_grad and part.grad is None for part in parameters)  # clients keep no gradients
    assert lab.rounds_of(other).to_csv() == lab.rounds_of(here).to_csv()
    assert lab.clients_of(other).to_csv() == lab.clients_of(here).to_csv()
    assert other.detail_rows == here.detail_rows
    for id, snapshot in there.snapshots.items():
        server.clients[id].restore(snapshot)
    assert other.digest() == here.digest()

    assert here.status == "finished" and lab.rounds_of(here)["loss"].iloc[1:].notna().all()
    assert (
        lab.rounds_of(here)["visited"].iloc[-1] < 6 == lab.rounds_of(here)["selected"].iloc[1:].sum()
    )  # so some come back
    assert torch.equal(torch.random.get_rng_state(), global_states[0])  # every draw is from a stream of its own
    assert np.array_equal(np.random.get_state()[1], global_states[1])  # noqa: NPY002


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_client_elsewhere_says_that_it_diverged(name, small_digits):
    """One step too far, after which its loss, taken before, would be finite and its upload or its logits are not."""
    run = resolved(name, lr=1e38, batch_size=1000)
    outcome = simulate(lab.federation_of(run), run.algorithm, 1, PARTICIPATION, exchange=Elsewhere(run))
    assert outcome.status == "diverged"


def test_models_are_not_copied_between_clients_elsewhere(small_digits):
    run = resolved("Standalone", overrides={"inherit": "first_visit"})
    with pytest.raises(FedlibError, match=r"^inherit = 'first_visit': must be 'none', unless clients are in_process$"):
        simulate(lab.federation_of(run), run.algorithm, 1, exchange=Elsewhere(run))


def test_an_exchange_brings_one_reply_for_each_request():
    def lost(federation, algorithm, requests):
        return simulation.in_process(federation, algorithm, requests)[1:]

    with pytest.raises(FedlibError, match="replies of the exchange = 3: must be 4, one per request"):
        simulate(four_clients(), Reporting(), 1, exchange=lost)


# ------------------------------------------------------------------------------------------------ one round


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
