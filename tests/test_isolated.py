"""The servers of a method without its federation, one a client. Each method isolated: test_contract.py."""

import pytest
import tiny
import torch

from fedlib import Federation, FedlibError, RunSpec, lab, simulate
from fedlib.__main__ import main
from fedlib.algorithms.base import Algorithm, Message
from fedlib.isolated import SERVER, Isolated
from fedlib.protocol import Protocol


class Counting(Algorithm):
    """Its server notes whom it knows and whose uploads it gets."""

    name = "Counting"

    def init_server(self, context):
        drawn, header = float(context.generator("server").random()), context.initial_header().bias.detach()
        known = [info.id for info in context.infos]
        return {"known": known, "begin": drawn, "round": context.round, "from": [], "header": header}

    def download(self, server, info, context):
        return Message({"count": torch.tensor(len(server["from"]))})

    def local_round(self, client, message, context):
        client.state["downloads"] = [*client.state.get("downloads", []), int(message["count"])]
        return Message({"id": torch.tensor(client.id)}, diagnostics={"loss": 0.0})

    def aggregate(self, server, uploads, context):
        server["from"] += [int(message["id"]) for _, message in uploads]
        return {"servers": 1}


def test_each_client_has_a_server_of_its_own_that_begins_alike():
    data = tiny.dataset()

    def federation(**more):
        return Federation(data, [range(0, 6), range(6, 12), range(12, 18)], ("tiny-a", "tiny-b"), **more)

    shared = simulate(federation(), Counting(), 1)
    outcome = simulate(federation(), Isolated(Counting()), 3)
    for client in outcome.clients:
        server = client.state[SERVER]
        assert server["known"] == [client.id] and server["from"] == [client.id] * 3
        assert client.state["downloads"] == [0, 1, 2]  # of its own uploads, one a round
        assert server["begin"] == shared.server["begin"] and server["round"] == 0
        assert torch.equal(server["header"], shared.server["header"])  # the first client's architecture, for all
    assert outcome.server == {} and outcome.round_rows[-1]["servers"] == 1
    later = simulate(federation(), Isolated(Counting()), 6, participation=0.3)  # one client a round
    begun = [client.state[SERVER] for client in later.clients if client.visited]
    apart = simulate(federation(protocol=Protocol(starts="apart")), Isolated(Counting()), 1)
    assert all(torch.equal(client.state[SERVER]["header"], shared.server["header"]) for client in apart.clients)
    assert len(begun) > 1 and {(server["round"], server["begin"]) for server in begun} == {(0, shared.server["begin"])}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"algorithm": "FedSSA", "protocol": "released"},
            "isolated = True: must be False under inherit = 'first_visit'",
        ),
        ({"isolated": "perhaps"}, "isolated = 'perhaps': must be true or false"),
    ],
)
def test_what_cannot_be_isolated_is_refused_in_one_line(fields, said):
    with pytest.raises(FedlibError, match=said) as error:
        lab.resolve(RunSpec(**{"isolated": True} | fields))
    assert "\n" not in str(error.value)


def test_from_the_command_line_under_a_key_of_its_own(small_digits, capsys):
    command = ["run", "FedProto", "--num-clients=5", "--participation=0.4", "--rounds=2"]
    assert main([*command, "--isolated"]) == 0 and main(command) == 0
    said = capsys.readouterr().out
    assert said.count("isolated") == 1 and "communication: 0.00 KB" in said
    isolated, shared = sorted((lab.read(path) for path in lab.stored()), key=lambda record: not record.spec.isolated)
    assert isolated.spec.isolated and "isolated" in isolated.provenance["numerics"]
    assert isolated.hashed == shared.hashed | {"isolated": True}
    pairs = [[record.rounds.iloc[row]["accuracy"] for row in (0, 1, 2)] for record in (isolated, shared)]
    assert pairs[0][:2] == pairs[1][:2]
