"""What FML and FedKD have in common: a shared model beside the own one."""

import numpy as np
import pytest
import tiny
import torch
from tiny import LABELS

from fedlib import simulate
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedkd import FedKD
from fedlib.algorithms.fml import FML

METHODS = pytest.mark.parametrize("method", [FML, FedKD], ids=lambda method: method.name)


@METHODS
def test_shared_model_has_an_initial_state_of_its_own(method: type[Algorithm]) -> None:
    federation = tiny.federation_of(LABELS, architectures=["CNN-5"], channels=3)
    server = method().init_server(tiny.context(federation))
    own = federation.build("CNN-5").state_dict()
    assert not any(torch.equal(own[name], value) for name, value in server.get("model", server).items())


@METHODS
def test_the_shared_network_is_scored_as_it_was_trained_and_as_it_came(method: type[Algorithm]) -> None:
    scored = tiny.federation_of(LABELS)
    scoring, context = method(shared="tiny", score_shared=True), tiny.context(scored)
    server = scoring.init_server(context)
    received = server.get("model", server)
    for client, (_, upload) in zip(scored.clients, tiny.play(scoring, server, scored, context), strict=True):
        sent = upload.tensors  # of FedKD the change, too small to factorise
        trained = sent if method is FML else {name: tensor + sent[name] for name, tensor in received.items()}
        images, x = client.pool.batch(client.test), tiny.first_pixels(scored, client.test)
        answers = scoring.predict(client, images)
        assert list(answers) == ["accuracy", "shared_accuracy", "received_accuracy"]
        for name, net in (("shared_accuracy", trained), ("received_accuracy", received)):
            np.testing.assert_allclose(answers[name].detach(), tiny.Net(net).logits(x), rtol=0, atol=1e-5)


@METHODS
def test_a_run_is_the_same_whether_the_shared_network_is_scored(method: type[Algorithm]) -> None:
    scored, plain = tiny.federation_of(LABELS), tiny.federation_of(LABELS)
    one, other = (
        simulate(built, method(shared="tiny", score_shared=on), 3) for built, on in ((scored, True), (plain, False))
    )
    assert tiny.same_models(scored, plain)
    assert tiny.equal_states(one.server.get("model", one.server), other.server.get("model", other.server))
    assert not any("scored" in client.state for client in plain.clients)
    extra = {"shared_accuracy", "received_accuracy"}
    for mine, theirs in zip(one.round_rows, other.round_rows, strict=True):
        assert {name: mine[name] for name in mine if name not in extra} == pytest.approx(theirs, nan_ok=True, abs=0)
        assert extra <= set(mine) or mine["round"] < 0
