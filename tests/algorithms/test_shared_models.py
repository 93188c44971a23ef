"""What FML and FedKD have in common: a shared model beside the own one."""

import pytest
import tiny
import torch
from tiny import LABELS

from fedlib import FedlibError
from fedlib.algorithms.base import Algorithm
from fedlib.algorithms.fedkd import FedKD
from fedlib.algorithms.fml import FML

METHODS = {FML: {"shared": "tiny"}, FedKD: {"shared": "tiny"}}


@pytest.fixture(params=METHODS, ids=lambda kind: kind.name)
def method(request: pytest.FixtureRequest) -> Algorithm:
    return request.param(**METHODS[request.param])


def test_aggregation_does_not_depend_on_the_order_of_arrival(method: Algorithm) -> None:
    models = []
    for turn in (1, -1):
        federation = tiny.federation_of(LABELS)
        context = tiny.context(federation)
        server = method.init_server(context)
        uploads = tiny.play(method, server, federation, context)
        method.aggregate(server, uploads[::turn], context)
        models.append(server.get("model", server))
    for name in models[0]:
        torch.testing.assert_close(models[0][name], models[1][name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", [FML, FedKD], ids=lambda method: method.name)
def test_shared_model_has_an_initial_state_of_its_own(method: type[Algorithm]) -> None:
    federation = tiny.federation_of(LABELS, architectures=["CNN-5"], channels=3)
    server = method().init_server(tiny.context(federation))
    own = federation.build("CNN-5").state_dict()
    assert not any(torch.equal(own[name], value) for name, value in server.get("model", server).items())


@pytest.mark.parametrize("method", [FML, FedKD], ids=lambda method: method.name)
def test_unknown_shared_architecture(method: type[Algorithm]) -> None:
    with pytest.raises(FedlibError, match="shared = 'CNN-6' is unknown"):
        method(shared="CNN-6")
