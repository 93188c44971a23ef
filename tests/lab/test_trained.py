"""A run's trained networks: as models, as safetensors, as ONNX."""

import numpy as np
import pytest
import torch
from safetensors import safe_open

from fedlib import FedlibError, Model, RunSpec, lab, models, run, training

SPEC = RunSpec("FedProto", dataset="digits", num_clients=4, participation=0.5, rounds=1, keep="clients")


@pytest.fixture
def record(small_digits):
    return run(SPEC, progress=False)


def outputs(record, id, model):
    federation = lab.federation_of(lab.resolve(SPEC))
    client = federation.clients[id]
    return training.outputs(model, client.pool, client.test), federation.pool.labels[client.test]


def test_a_client_is_its_trained_network(record):
    for id, row in record.final().query("round == 0").set_index("client").iterrows():
        model = record.client(id)
        logits, labels = outputs(record, id, model)
        assert isinstance(model, Model) and not model.training
        assert float((logits.argmax(1) == labels).double().mean()) == row["accuracy"]


def test_saved_weights_are_read_into_a_network_of_the_same_architecture(record, tmp_path):
    id = int(record.clients.query("round == 0")["client"].iloc[0])
    with safe_open(record.save(id, tmp_path / "model.safetensors"), "pt") as file:
        said, read = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a mapping
    assert said["run"] == record.key and said["client"] == str(id)
    sample = lab.resolve(SPEC).info.sample
    model = models.build(said["architecture"], 10, sample, np.random.default_rng(0))
    model.load_state_dict(read)
    assert torch.equal(outputs(record, id, model.eval())[0], outputs(record, id, record.client(id))[0])


def test_an_exported_network_answers_alike(record, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="of the extra onnx, which make does not install")
    id = int(record.clients.query("round == 0")["client"].iloc[0])
    session = onnxruntime.InferenceSession(record.export(id, tmp_path / "model.onnx"))
    for count in (1, 5):
        samples = torch.randn(count, *lab.resolve(SPEC).info.sample.shape)
        (logits,) = session.run(None, {"samples": samples.numpy()})
        assert torch.allclose(torch.from_numpy(logits), record.client(id)(samples), atol=1e-5)


def test_what_is_not_there_is_said_in_one_line(record, tmp_path, monkeypatch):
    never = next(id for id in range(4) if id not in set(record.clients.query("round == 0")["client"]))
    with pytest.raises(FedlibError, match=rf"client = {never}: must be one that was visited: \d, \d"):
        record.client(never)

    def absent(*args, **kwargs):
        raise ModuleNotFoundError("No module named 'onnxscript'")

    monkeypatch.setattr(torch.onnx, "export", absent)
    with pytest.raises(FedlibError, match=r"pip install onnx onnxscript"):
        record.export(int(record.clients.query("round == 0")["client"].iloc[0]), tmp_path / "x.onnx")
    other = run(RunSpec("FedProto", dataset="digits", num_clients=4, rounds=1), progress=False)
    with pytest.raises(FedlibError, match="it kept no weights of the clients; run it again with keep='clients'"):
        other.client(0)
