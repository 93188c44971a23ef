"""The class means that FedProto and FedGH upload."""

import numpy as np
import pytest
import torch

from fedlib import RunSpec, lab
from fedlib.algorithms.fedgh import FedGH
from fedlib.algorithms.fedproto import FedProto


@pytest.mark.parametrize("method", [FedProto(), FedGH()], ids=lambda method: method.name)
def test_uploaded_means_equal_float64_means_of_the_representations(method, small_digits):
    """With a real extractor: to 1e-6 of a float64 mean over the client's training images."""
    resolved = lab.resolve(RunSpec(algorithm=method.name, num_clients=5))
    fed = lab.federation_of(resolved)
    context, client = fed.server_context(), fed.clients[4]
    message = method.download(method.init_server(context), client.info, context)
    upload = method.local_round(client, message, fed.client_context(4))
    with torch.no_grad():
        f = client.model.extractor(fed.pool.batch(client.train)).double().numpy()
    labels = fed.pool.labels[client.train].numpy()
    means = upload["prototypes" if method.name == "FedProto" else "lars"]
    assert np.array_equal(upload["classes"], np.unique(labels))
    for row, label in zip(means.numpy(), np.unique(labels), strict=True):
        np.testing.assert_allclose(row, f[labels == label].mean(axis=0), rtol=0, atol=1e-6)
