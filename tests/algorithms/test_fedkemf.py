"""FedKEMF: rounds by hand on public images, and what must not turn into NaN."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from tiny import LABELS

from fedlib import FedlibError, models, simulate, training
from fedlib.algorithms.fedkemf import FedKEMF, distil_loss

PUBLIC = 6


@pytest.mark.parametrize("distance", ["kl", "mse"])
def test_fedkemf_one_round_by_hand(distance: str) -> None:
    """The paper's divergences, whose partner is a constant, and the released code's mean square, where neither side is."""
    federation, lr, temperature = tiny.federation_of(LABELS, public=PUBLIC, lr=0.1), 0.1, 4.0
    method = FedKEMF(knowledge="tiny", weight=0.6, distance=distance, temperature=temperature, label_weight=0.25)
    context = tiny.context(federation)
    server = method.init_server(context)
    before, uploaded = tiny.Net(server), []
    uploads = tiny.play(method, server, federation, context)
    for client in federation.clients:
        own, knowledge = tiny.Net(federation.build("tiny")), tiny.Net(server)
        x, y = tiny.training_data(client)
        a, b = own.logits(x), knowledge.logits(x)
        if distance == "kl":
            gap = (tiny.softmax(a) - tiny.softmax(b)) / len(y)  # d KL(q || p) / d logits of p = (p - q) / n
        else:
            gap = 2 * (a - b) / a.size  # d MSE / d a
        own.step((x, tiny.cross_entropy_slope(a, y) + 0.6 * gap), lr=lr)
        knowledge.step((x, tiny.cross_entropy_slope(b, y) - 0.6 * gap), lr=lr)
        own.agrees(client.model)
        knowledge.agrees(uploads[client.id].message.tensors)
        uploaded.append(knowledge)

    method.aggregate(server, uploads, context)
    shared, labels = tiny.first_pixels(federation, federation.public.indices), np.arange(PUBLIC) % tiny.CLASSES
    teacher = np.mean([tiny.softmax(net.logits(shared)) for net in uploaded], 0)
    z = before.logits(shared)  # the student starts from last round's network, not from an average
    distil = (tiny.softmax(z) - teacher) / PUBLIC
    if distance == "mse":
        distil = tiny.slope(lambda z: temperature**2 * np.mean((tiny.softmax(z / temperature) - teacher) ** 2), z)
    before.step((shared, 0.75 * distil + 0.25 * tiny.cross_entropy_slope(z, labels)), lr=lr)
    before.agrees(server)


@pytest.mark.parametrize(("server_epochs", "trained"), [(0, 3), (2, 2)])
def test_fedkemf_the_server_trains_its_own_epochs_or_those_of_the_clients(server_epochs, trained, monkeypatch) -> None:
    federation, told = tiny.federation_of(LABELS, public=PUBLIC), []
    federation.settings = replace(federation.settings, epochs=3)
    context = tiny.context(federation)
    method = FedKEMF(knowledge="tiny", server_epochs=server_epochs)
    server = method.init_server(context)
    uploads = tiny.play(method, server, federation, context)
    monkeypatch.setattr(training, "train", lambda *args: told.append(args[4].epochs))
    method.aggregate(server, uploads, context)
    assert told == [trained]


def test_fedkemf_the_knowledge_network_has_an_initial_state_of_its_own() -> None:
    """Or else a client of the same architecture and its knowledge network would start, and stay, equal."""
    federation = tiny.federation_of(LABELS, public=PUBLIC)
    server = FedKEMF(knowledge="tiny").init_server(tiny.context(federation))
    assert not torch.equal(server["header.weight"], federation.clients[0].model.header.weight)


def test_fedkemf_a_certain_teacher_gives_no_nan() -> None:
    teacher = torch.tensor([[1.0, 0.0, 0.0]])  # 0 log 0
    student = models.BUILDERS["tiny"](3, 1)
    images, place = torch.zeros(1, 1, 32, 32), torch.tensor([0])
    for temperature in (0.0, 20.0):
        loss = distil_loss(student, images, place, teacher, place, 0.0, temperature)
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(parameter.grad).all() for parameter in student.parameters())


def test_fedkemf_needs_known_classes_only_with_labels() -> None:
    federation = tiny.federation_of(LABELS, public=PUBLIC)
    federation.public.pool.labels[federation.public.indices] = 7  # another data set's classes
    assert simulate(federation, FedKEMF(knowledge="tiny"), 1).status == "finished"
    with pytest.raises(FedlibError, match="public labels"):
        simulate(federation, FedKEMF(knowledge="tiny", label_weight=0.5), 1)
