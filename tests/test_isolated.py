"""A method without its federation: equal to itself in the first round, and Standalone where all it does is to average."""

import dataclasses

import pytest
import tiny
import torch
from processes import interrupted

from fedlib import ALGORITHMS, Federation, FedlibError, RunSpec, lab, run, simulate
from fedlib.__main__ import main
from fedlib.algorithms.base import Algorithm, Message
from fedlib.isolated import SERVER, Isolated
from fedlib.protocol import Protocol

SPEC = RunSpec(num_clients=5, participation=0.4, rounds=3, batch_size=32, public_images=16)
CAN = [name for name, method in ALGORITHMS.items() if not method.together]


def resolved(name, **fields):
    scenario = "homogeneous" if ALGORITHMS[name].needs == "architecture" else "heterogeneous"
    return lab.resolve(dataclasses.replace(SPEC, algorithm=name, scenario=scenario, **fields))


def trained(run_):
    return simulate(lab.federation_of(run_), run_.simulated, run_.spec.rounds, run_.spec.participation)


def alike(one, other) -> None:
    """The same numbers and networks of every client, to the bit; what a client remembers besides its server too."""
    numbers = [[{name: row[name] for name in row if name != "mu"} for row in out.client_rows] for out in (one, other)]
    assert repr(numbers[0]) == repr(numbers[1])
    for own, theirs in zip(one.clients, other.clients, strict=True):
        assert own.visited == theirs.visited
        for name, tensor in own.model.state_dict().items():
            assert torch.equal(tensor, theirs.model.state_dict()[name]), (own.id, name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CAN)
def test_in_the_first_round_a_method_and_its_isolated_self_are_equal(name, small_digits):
    together, alone = (trained(resolved(name, rounds=1, isolated=isolated)) for isolated in (False, True))
    alike(together, alone)
    row = alone.round_rows[-1]
    assert row["download_words"] == row["upload_words"] == row["published_words"] == 0
    for client in alone.clients:
        if client.visited:  # it is stored and travels with the client
            assert tiny.posted(client.snapshot()).keys() == {"model", "state"}


@pytest.mark.thorough(None)
@pytest.mark.parametrize("name", ["FedAvg", "LG-FedAvg", "FD"])
def test_who_only_averages_is_standalone_when_isolated(name, small_digits):
    """From equal starts: the mean of one model is that model, and of others' outputs, without one's own, there are none."""
    spec = dataclasses.replace(SPEC, scenario="homogeneous")
    params = {"exclude_self": True} if name == "FD" else {}
    alone = lab.resolve(dataclasses.replace(spec, algorithm=name, params=params, isolated=True))
    alike(trained(alone), trained(lab.resolve(dataclasses.replace(spec, algorithm="Standalone"))))


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
        ({"algorithm": "pFedHR"}, "isolated = True: must be False for pFedHR, which makes a client's teacher of other"),
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


@pytest.mark.thorough
def test_it_resumes_to_the_same_bits(small_digits, monkeypatch, tmp_path):
    spec = dataclasses.replace(SPEC, algorithm="FedSSA", isolated=True, scenario="heterogeneous")
    whole = run(spec, progress=False)
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "again"))
    interrupted(spec, after=1)
    seen = []
    again = run(spec, progress=False, log=lambda spec, row: seen.append(row["round"]))
    assert again.digest == whole.digest and 0 not in seen
