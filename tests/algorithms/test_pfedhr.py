"""pFedHR: its loss against NumPy, what its record says, its switches, and everything that can go wrong in a round."""

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from fedlib import (
    Federation,
    FedlibError,
    RunSpec,
    data,
    lab,
    models,
    run,
    side_by_side,
    simulate,
    simulation,
    training,
)
from fedlib.algorithms.pfedhr import PFedHR, distillation_loss, reassembly
from fedlib.federation import Message, Upload
from fedlib.papers import views
from fedlib.randomness import torch_seed

CLIENTS, ACTIVE = 40, 4  # 29 training images or so each


def seed() -> int:
    """The first under which round 1 has a client of round 0."""
    for number in itertools.count():
        one, two = (simulation.sampled_clients(number, t, CLIENTS, ACTIVE / CLIENTS) for t in (0, 1))
        if set(one) & set(two):
            return number
    raise AssertionError


SMALL = RunSpec(
    algorithm="pFedHR",
    dataset="digits",
    num_clients=CLIENTS,
    participation=ACTIVE / CLIENTS,
    seed=seed(),
    protocol="paper",
    rounds=2,
    local_epochs=1,
    batch_size=16,
    public_images=12,
    params={"server_epochs": 1, "cka_samples": 8},
)


@pytest.fixture(autouse=True)
def two_small_models(monkeypatch):
    monkeypatch.setitem(models.SCENARIOS, "small", ("M1", "M2"))


def spec(scenario: str = "small", params: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    return dataclasses.replace(SMALL, scenario=scenario, params=SMALL.params | (params or {}), **changes)  # type: ignore[arg-type]


def federated(given: RunSpec) -> tuple[Federation, Any]:
    resolved = lab.resolve(given)
    return lab.federation_of(resolved), resolved.algorithm


# --------------------------------------------------------------------------------------------------------------- Eq. 6


class Fixed(torch.nn.Module):
    """The same logits whatever the images."""

    def __init__(self, logits: np.ndarray):
        super().__init__()
        self.logits = torch.from_numpy(logits)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits


def test_eq_6_against_numpy():
    draw = np.random.default_rng(0)
    own, other, labels = draw.normal(size=(5, 3)), draw.normal(size=(5, 3)), np.array([0, 2, 1, 1, 0])
    p, q = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (own, other))
    ce = -np.log(p[np.arange(5), labels]).mean()
    expected = {"kl": (q * np.log(q / p)).sum(1).mean(), "raw": -(other * np.log(p)).sum(1).mean()}
    for kd, distance in expected.items():
        loss = distillation_loss(Fixed(own), torch.empty(0), torch.from_numpy(labels), Fixed(other), 0.2, kd)
        assert loss.item() == pytest.approx(ce + 0.2 * distance)


# ------------------------------------------------------------------------------------------------------------ the record


def sampled(round: int) -> list[int]:
    return simulation.sampled_clients(SMALL.seed, round, CLIENTS, ACTIVE / CLIENTS).tolist()


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(tmp_path_factory.mktemp("record")))
        return run(spec("reassembly"), progress=False)


def test_the_protocol_is_the_papers():
    """80/20, Adam at 1e-3, M1..M4 in turn, 4 of 12, when nothing else is said."""
    plain = lab.resolve(RunSpec(algorithm="pFedHR", dataset="digits"))
    assert (plain.spec.scenario, plain.spec.num_clients, plain.spec.participation) == ("reassembly", 12, 1 / 3)
    assert (plain.protocol.optimiser, plain.protocol.lr, plain.protocol.parts) == ("adam", 0.001, (8, 0, 2))
    assert plain.algorithm == PFedHR()
    released = lab.resolve(RunSpec(algorithm="pFedHR", dataset="digits", protocol="released")).algorithm
    assert released == PFedHR(clusters=2, weight=0.1, kd="raw", client_reset=True, crop=0.8, projection=0)


@pytest.mark.thorough
def test_what_the_record_says_of_a_round(record):
    assert record.clients.query("round == -1")["architecture"].tolist() == ["M1", "M2", "M3", "M4"] * 10
    rounds = record.rounds.set_index("round")
    assert [detail["round"] for detail in record.details] == [0, 1]
    taught = words = 0
    for detail in record.details:
        row, arrived = rounds.loc[detail["round"]], record.clients.query(f"round == {detail['round']}")
        layers = [reassembly.Layer(*layer) for layer in detail["decomposed"]]
        structures = [tuple(reassembly.Layer(*layer) for layer in each) for each in detail["structures"]]
        groups = dict(zip(layers, detail["groups"], strict=True))
        assert detail["clients"] == sorted(arrived["client"]) == list(dict.fromkeys(layer.origin for layer in layers))
        assert row["layers"] == len(layers) and row["candidates"] == len(structures) <= 8
        assert np.array(detail["distance"]).shape == (len(layers),) * 2
        for structure, parameters in zip(structures, detail["parameters"], strict=True):
            assert {groups[layer] for layer in structure} == set(range(4))  # R4
            network = reassembly.assemble(structure, 10, 3, 1, np.random.default_rng(0))
            parts = dict(network.named_children())
            assert parameters == sum(models.num_floats(part) for part in parts.values())
        for similarities, matched in zip(detail["similarity"], detail["matches"], strict=True):
            assert matched == int(np.argmax(similarities)) and -1 <= similarities[matched] <= 1
        assert row["matched"] == 4
        assert row["taught"] == taught
        assert row["download_words"] == words
        # A teacher goes down as the match of the last round: its whole state, to who is back.
        back = set(arrived["client"]) & set(sampled(detail["round"] + 1))
        taught = len(back) / ACTIVE
        for client, matched in zip(detail["clients"], detail["matches"], strict=True):
            if client in back:
                network = reassembly.assemble(structures[matched], 10, 3, 1, np.random.default_rng(0))
                words += sum(tensor.numel() for tensor in network.state_dict().values())
    assert rounds.loc[1, "download_words"] > 0


# -------------------------------------------------------------------------------------------------------------- one round


def visit(method: PFedHR, federation: Federation, id: int, message: Message | None = None, round: int = 0) -> Message:
    """What a client uploads after a local round, by default without a teacher."""
    return method.local_round(federation.clients[id], message or Message(), federation.client_context(id, round, 2))


def uploads_of(method: PFedHR, federation: Federation, clients: int = ACTIVE, round: int = 0) -> list[Upload]:
    """The uploads of the first clients, none of them taught."""
    return [Upload(federation.clients[id].info, visit(method, federation, id, round=round)) for id in range(clients)]


def played(given: RunSpec) -> tuple[Federation, Any, dict[str, Any], Any]:
    """A federation after a round of its first clients: with its method, what the server returned and its state."""
    federation, method = federated(given)
    method.check(federation)
    context = federation.server_context(0, 2)
    server = method.init_server(context)
    returned = method.aggregate(server, uploads_of(method, federation), context)
    return federation, method, returned, server


def test_the_teachers_answers_are_learned_and_it_is_left_as_it_was():
    federation, method, _, server = played(spec())
    client = federation.clients[0]
    before = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    message = method.download(server, client.info, federation.server_context(1, 2))
    assert isinstance(message.structure, tuple) and all(type(layer) is tuple for layer in message.structure)
    sent = {name: tensor.clone() for name, tensor in message.tensors.items()}

    def trained(weight: float, message: Message = message) -> dict[str, torch.Tensor]:
        client.model.load_state_dict(before)
        upload = visit(dataclasses.replace(method, weight=weight), federation, 0, message, 1)
        assert upload.diagnostics == {"taught": bool(message.tensors)}
        return {name: tensor.clone() for name, tensor in client.model.state_dict().items()}

    alone, unweighted, taught = trained(0.2, Message()), trained(0.0), trained(0.2)
    assert tiny.equal_states(alone, unweighted)  # weight 0 is training alone
    assert not torch.equal(alone["header.weight"], taught["header.weight"])
    assert tiny.equal_states(sent, message.tensors)


def test_the_groups_of_a_round_are_of_as_many_starts_as_the_method_says(monkeypatch):
    given, group = [], reassembly.group
    monkeypatch.setattr(reassembly, "group", lambda *parts: given.append(parts[-1]) or group(*parts))
    for params in ({}, {"medoid_starts": 10}):
        played(spec(params=params))
    assert given == [1, 10]


def test_the_order_of_arrival_does_not_matter():
    federation, method = federated(spec())
    context, uploads = federation.server_context(), uploads_of(method, federation)
    servers = [method.init_server(context) for _ in range(2)]
    for server, order in zip(servers, (1, -1), strict=True):
        method.aggregate(server, uploads[::order], context)
    for id in range(ACTIVE):
        one, two = (server["teachers"][id] for server in servers)
        assert one["structure"] == two["structure"] and tiny.equal_states(one["tensors"], two["tensors"])


@pytest.mark.parametrize(("teacher", "kept"), [("next_round", {0, 1}), ("last_match", {0, 1, 2, 3})])
def test_how_long_a_teacher_stays(teacher, kept):
    federation, method, _, server = played(spec(params={"teacher": teacher}))
    first = dict(server["teachers"])
    method.aggregate(server, uploads_of(method, federation, 2, round=1), federation.server_context(1, 2))
    assert set(server["teachers"]) == kept and set(first) == {0, 1, 2, 3}
    assert all(server["teachers"][id] is first[id] for id in kept - {0, 1})
    assert server["teachers"][0] is not first[0]


def test_reset_clients_start_from_their_initial_model():
    federation, method = federated(spec())
    client = federation.clients[0]
    visit(method, federation, 0)
    once = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    visit(dataclasses.replace(method, client_reset=True), federation, 0)  # the same round, so the same draws
    assert tiny.equal_states(once, client.model.state_dict())
    visit(method, federation, 0)
    assert not torch.equal(once["header.weight"], client.model.header.weight)


def test_models_of_one_structure_are_averaged_first():
    _, _, returned, server = played(spec(params={"merge_same": True}))
    assert [layer[:2] for layer in returned["decomposed"] if layer[2] == 1] == [[-1, "M1"], [-1, "M2"]]
    assert len(returned["matches"]) == 4 and set(server["teachers"]) == set(range(4))


def test_the_mean_of_two_models():
    federation, method = federated(spec("homogeneous-M1", params={"merge_same": True}))
    context, upload = federation.server_context(), visit(method, federation, 0)
    halves = {name: tensor / 2 if tensor.is_floating_point() else tensor for name, tensor in upload.tensors.items()}
    server = method.init_server(context)
    # Candidates of a single model with a layer a group are the model, and the server's training is of rate 0.
    still = dataclasses.replace(method, server_lr=0.0)
    one, other = federation.infos[:2]
    still.aggregate(server, [Upload(one, Message(upload.tensors)), Upload(other, Message(halves))], context)
    sizes = one.num_samples, other.num_samples
    expected = (sizes[0] + sizes[1] / 2) / sum(sizes) * upload.tensors["header.weight"]
    torch.testing.assert_close(server["teachers"][0]["tensors"]["layer4.0.weight"], expected)


@pytest.mark.thorough
def test_unlabelled_public_images():
    """SimCLR needs no labels: they are -1 here, which cross-entropy would refuse. Its head counts."""
    assert PFedHR().projection == 128
    given = (spec(), *(spec(public_labels=False, params={"projection": width}) for width in (128, 16, 0)))
    details = [played(each)[2] for each in given]
    for one, two in itertools.combinations(details, 2):
        assert one["structures"] == two["structures"] and one["similarity"] != two["similarity"]
    assert played(spec(params={"projection": 0}))[2] == details[0]  # with labels there is no head


# ------------------------------------------------------------------------------- the control: public images alone


CONTROL = {"public_only": True}


def test_a_teacher_of_the_control_has_learnt_from_the_public_images_alone():
    """Of the client's own architecture, from a start of the round's streams: worked out again beside it, to the bit."""
    federation, _, returned, server = played(spec(params=CONTROL))
    drawn = federation.server_context(0, 2).generator("server").spawn(2)
    settings = training.Settings(1, SMALL.batch_size or 0, 0.001, optimiser="adam")
    for architecture, stream, ids in zip(("M1", "M2"), drawn, ((0, 2), (1, 3)), strict=True):
        network = models.build(architecture, 10, 3, stream)
        torch_seed(stream)  # for stitches, of which there are none
        public = federation.public
        training.train(training.cross_entropy, {"model": network}, public.pool, public.indices, settings, stream)
        for id in ids:
            teacher = server["teachers"][id]
            assert [layer[:3] for layer in teacher["structure"]] == [
                (reassembly.PUBLIC, architecture, depth) for depth in range(1, 1 + len(teacher["structure"]))
            ]
            assert all(map(torch.equal, network.state_dict().values(), teacher["tensors"].values()))
    assert (returned["candidates"], returned["matched"], returned["matches"]) == (2, 4, [0, 1, 0, 1])


def test_neither_a_clients_model_nor_who_else_was_there_enters_a_teacher_of_the_control():
    federation, method = federated(spec(params=CONTROL))
    context, uploads = federation.server_context(0, 2), uploads_of(method, federation)
    other = [
        Upload(info, Message({name: 2 * tensor for name, tensor in message.tensors.items()}))
        for info, message in uploads
    ]
    servers = [method.init_server(context) for _ in range(4)]
    for server, arrived in zip(servers, (uploads, other, uploads[::-1], uploads[1:2]), strict=True):
        method.aggregate(server, arrived, context)
    for id in range(ACTIVE):
        one, *others = (server["teachers"][id]["tensors"] for server in (servers if id == 1 else servers[:3]))
        assert all(tiny.equal_states(one, two) for two in others)
    start = federation.build("M1").state_dict().values()  # nor do the clients' starts
    trained = servers[0]["teachers"][0]["tensors"].values()
    assert not any(torch.allclose(a, b, atol=0.01) for a, b in zip(start, trained, strict=True) if a.ndim > 1)


@pytest.mark.thorough
def test_a_whole_run_of_the_control_is_taught_when_a_client_returns():
    control = run(spec("reassembly", params=CONTROL), progress=False)
    plain = run(spec("reassembly"), progress=False)
    assert control.key != plain.key and control.status == "finished"
    assert control.rounds["taught"].equals(plain.rounds["taught"]) and control.rounds["taught"].max() > 0
    first, second = (one.clients.query("round == 0") for one in (control, plain))
    assert first.equals(second)  # nobody has a teacher yet
    assert len(views.list_matches(control)) == sum(
        {"M1": 4, "M2": 5, "M3": 9, "M4": 10}[f"M{1 + id % 4}"]
        for detail in control.details
        for id in detail["clients"]
    )


def test_a_diverging_teacher_of_the_control_teaches_nobody(monkeypatch):
    def broken(self: PFedHR, network: torch.nn.Module, *_: Any, **__: Any) -> None:
        next(network.parameters()).data.fill_(float("nan"))

    monkeypatch.setattr(PFedHR, "_finetune", broken)
    _, _, returned, server = played(spec(params=CONTROL))
    assert (returned["diverged"], returned["matched"], server["teachers"]) == (2, 0, {})


# ------------------------------------------------------------------------------------------------------- what can go wrong


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"scenario": "reassembly", "params": {"clusters": 11}},
            "clusters = 11: must be at most 10, as a candidate has a layer of each group; "
            "layers by model: {'M1': 4, 'M2': 5, 'M3': 9, 'M4': 10}",
        ),
        (
            {"params": CONTROL, "public_labels": False},
            "public_only = True: must be False: the public images have no labels",
        ),
    ],
)
def test_what_cannot_be_is_one_line(given, line):
    with pytest.raises(FedlibError) as error:
        run(spec(**given), progress=False)
    assert str(error.value) == line


def test_no_public_image_is_refused():
    federation, method = federated(spec())
    federation.public = dataclasses.replace(federation.public, indices=torch.empty(0, dtype=torch.int64))
    with pytest.raises(FedlibError, match=r"^algorithm = 'pFedHR': needs unlabelled public data, .* none.*$"):
        simulate(federation, method, 1)


def test_a_round_with_fewer_layers_than_groups_has_no_candidates():
    """One client a round: M1 has 4 layers, M2 has 5."""
    federation, method = federated(spec(params={"clusters": 5}))
    method.check(federation)
    context = federation.server_context()
    server = method.init_server(context)
    for upload, reason in zip(
        uploads_of(method, federation, 2), ("4 layers are fewer than K = 5 groups", ""), strict=True
    ):
        returned = method.aggregate(server, [upload], context)
        assert returned["reason"] == reason
        assert returned["matches"] == ([None] if reason else [0])
        assert len(returned["structures"]) == returned["candidates"] == (0 if reason else 1)


@pytest.mark.thorough
def test_without_candidates_clients_train_on_their_own(monkeypatch):
    monkeypatch.setattr(reassembly, "search", lambda *given: ([], 0))
    none = run(spec(), progress=False)
    alone = run(dataclasses.replace(spec(), algorithm="Standalone", params={}, paper="pFedHR"), progress=False)
    assert none.details[1]["reason"] == "no chain of layers satisfies R1 to R4 with K = 4 groups"
    assert (none.rounds["taught"].iloc[1:] == 0).all() and (none.rounds["download_words"].iloc[1:] == 0).all()
    assert none.rounds["loss"].equals(alone.rounds["loss"]) and none.clients.equals(alone.clients)


@pytest.mark.parametrize("active", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_few_clients_of_one_architecture(active):
    """One client's only candidate is its own model, which is its own best match; of two there are spliced ones."""
    given = spec("homogeneous-M1", participation=active / CLIENTS, params={"clusters": 2} if active == 2 else {})
    for detail in run(given, progress=False).details:
        if active == 1:
            assert [len(structure) for structure in detail["structures"]] == [4] and detail["matches"] == [0]
            assert detail["parameters"] == [97_384]
        else:
            assert any(len({layer[0] for layer in structure}) == 2 for structure in detail["structures"])


def test_a_diverging_candidate_is_nobodys_match(monkeypatch):
    plain, seen = PFedHR._finetune, []

    def broken(self: PFedHR, network: torch.nn.Module, stream: np.random.Generator, context: Any) -> None:
        plain(self, network, stream, context)
        seen.append(network)
        if len(seen) in bad:
            next(network.parameters()).data.fill_(float("nan"))

    monkeypatch.setattr(PFedHR, "_finetune", broken)
    bad = {1}
    _, _, returned, server = played(spec())
    assert returned["diverged"] == 1 and returned["matched"] == 4
    assert 0 not in returned["matches"]
    assert all(row[0] is None and None not in row[1:] for row in returned["similarity"])
    assert all(tensor.isfinite().all() for match in server["teachers"].values() for tensor in match["tensors"].values())
    json.dumps(returned, allow_nan=False)
    seen.clear()
    bad = set(range(1, 100))
    _, _, returned, server = played(spec())
    assert returned["matched"] == 0 and server["teachers"] == {}


@pytest.mark.thorough(None)
@pytest.mark.parametrize("labelled", [True, False])
def test_every_network_is_fine_tuned_from_a_stream_of_its_own(labelled, monkeypatch):
    """One that draws more than it needs changes no other, so they may be fine-tuned in any order or side by side."""
    expected = played(spec(public_labels=labelled))[2]
    plain = PFedHR._finetune

    def wasteful(self: PFedHR, network: torch.nn.Module, stream: np.random.Generator, context: Any) -> None:
        plain(self, network, stream, context)
        stream.random(17)
        stream.spawn(3)

    monkeypatch.setattr(PFedHR, "_finetune", wasteful)
    assert played(spec(public_labels=labelled))[2] == expected


def test_a_run_alone_has_all_cores(monkeypatch):
    seen, plain = [], side_by_side.each

    def watched(work: Any, numbers: range, processes: int, **how: Any) -> Any:
        if "PFedHR" in work.__qualname__:
            seen.append(processes)
        return plain(work, numbers, processes, **how)

    monkeypatch.setattr(side_by_side, "each", watched)
    monkeypatch.setattr(lab.launch, "cores", lambda: 3)
    record = run(spec("homogeneous-M1", participation=2 / CLIENTS, params={"clusters": 2}, rounds=1), progress=False)
    assert seen == [3] and training.processes.get() == 1
    monkeypatch.setattr(lab.launch, "cores", lambda: 1)
    spare = dataclasses.replace(record.spec, keep="server")
    assert run(spare, progress=False).digest == record.digest and seen == [3, 1]


def test_one_public_image_is_enough():
    assert run(spec(public_images=1, public_labels=False, rounds=1), progress=False).status == "finished"


def grey() -> data.Dataset:
    """The digits with one channel."""
    whole = data.load("digits")
    images, cut = whole.images[:, :1].numpy(), whole.num_train
    labels = whole.labels.numpy()
    return data.Dataset.from_arrays("grey", images[:cut], labels[:cut], images[cut:], labels[cut:], 10)


@pytest.mark.parametrize("sets", [("digits", "grey"), ("grey", "digits"), ("grey", None)])
def test_other_channels(sets):
    """Clients and public images of 3 and 1 channels, in every combination."""
    data.register("grey", grey)
    assert played(spec(dataset=sets[0], public_dataset=sets[1]))[2]["structures"]
