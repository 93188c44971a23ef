"""A run's trained networks: as models, as safetensors, as ONNX."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from fedlib import FedlibError, RunSpec, algorithms, lab, models, run, training
from fedlib.algorithms import FedAvg, Standalone
from fedlib.lab.records import Predictor

SPEC = RunSpec("FedProto", dataset="digits", num_clients=4, participation=0.5, rounds=1, keep="clients")


class Shifted(Standalone):
    """Predicts with its state: the logits plus what the client has kept, and one more way of predicting."""

    name = "Shifted"

    def local_round(self, client, message, context):
        client.state["shift"] = torch.arange(10.0) * (1 + client.id)
        return super().local_round(client, message, context)

    def predict(self, client, images):
        logits = client.model(images)
        return {"accuracy": logits + client.state["shift"], "plain_accuracy": logits}


class Beside(FedAvg):
    """Predicts with two networks that it builds."""

    name = "Beside"

    def local_round(self, client, message, context):
        upload = super().local_round(client, message, context)
        client.state["one"] = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
        return upload

    def predict(self, client, images):
        network = client.build("CNN-4")
        network.load_state_dict(client.state["one"])
        return {"accuracy": network(images) - client.build("CNN-5")(images)}


class Measuring(Shifted):
    """Reads a number of its state on the way, which no program can."""

    name = "Measuring"

    def predict(self, client, images):
        shift = client.state["shift"]
        return {"accuracy": client.model(images) + (shift if shift.sum() > 0 else 0)}


OWN = (Shifted, Beside, Measuring)


@pytest.fixture
def record(small_digits):
    return run(SPEC, progress=False)


def kept(name):
    for one in OWN:
        algorithms.register(one)
    architecture = "CNN-4" if name == "Beside" else "CNN-5"
    spec = replace(SPEC, algorithm=name, scenario=architecture, num_clients=3, participation=1.0, rounds=2)
    return run(spec, progress=False)


def outputs(record, id, model):
    federation = lab.federation_of(lab.resolve(record.spec))
    client = federation.clients[id]
    return training.outputs(model, client.pool, client.test), federation.pool.labels[client.test]


def assert_predicts_what_was_measured(record, id):
    """Of every method of fedlib's: tests/algorithms/test_contract.py."""
    model = record.client(id)
    logits, labels = outputs(record, id, model)
    assert not model.training and isinstance(model, Predictor)
    assert float((logits.argmax(1) == labels).double().mean()) == record.final().set_index("client")["accuracy"][id]
    return logits


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch's own, of each program that it reads
@pytest.mark.parametrize("name", ["FedMRL", "Shifted", "Beside"])
def test_a_program_predicts_so_without_fedlib(name, small_digits, tmp_path):
    record, said = kept(name), {"fedlib.json": ""}
    program = torch.export.load(record.save(1, tmp_path / "model.pt2"), extra_files=said).module()
    said = json.loads(said["fedlib.json"])
    assert (said["run"], said["client"]) == (record.key, "1") and len(json.loads(said["mean"])) == 3
    logits, labels = outputs(record, 1, program)
    assert torch.allclose(logits, assert_predicts_what_was_measured(record, 1), atol=1e-4)
    assert float((logits.argmax(1) == labels).double().mean()) == record.final()["accuracy"][1]
    assert program(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    with pytest.raises(
        FedlibError, match=rf"ending of the file = '\.safetensors': must be '\.pt2', since {name} predicts"
    ):
        record.save(1, tmp_path / "model.safetensors")


def test_what_is_no_program_is_handed_out_and_refused_in_one_line(small_digits, tmp_path):
    record = kept("Measuring")
    assert_predicts_what_was_measured(record, 0)
    for write in (record.save, record.export):
        with pytest.raises(
            FedlibError, match=r"^run Measuring-\S+: what Measuring predicts with cannot be written[^\n]*$"
        ):
            write(0, tmp_path / "model.pt2")
    with pytest.raises(FedlibError, match=r"ending of the file = '\.pt' is unknown"):
        record.save(0, tmp_path / "model.pt")


def test_saved_weights_are_read_into_a_network_of_the_same_architecture(record, tmp_path):
    id = int(record.clients.query("round == 0")["client"].iloc[0])
    with safe_open(record.save(id, tmp_path / "model.safetensors"), "pt") as file:
        said, read = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a mapping
    assert said["run"] == record.key and said["client"] == str(id)
    sample = lab.resolve(SPEC).info.sample
    model = models.build(said["architecture"], 10, sample)
    model.load_state_dict(read)
    assert torch.equal(outputs(record, id, model.eval())[0], outputs(record, id, record.client(id))[0])


@pytest.mark.parametrize("name", ["FedProto", "FedMRL", "Beside"])
def test_an_exported_network_answers_alike(name, small_digits, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="of the extra onnx, which make does not install")
    record = kept(name)
    session = onnxruntime.InferenceSession(record.export(1, tmp_path / "model.onnx"))
    for count in (1, 5):
        samples = torch.randn(count, *lab.resolve(SPEC).info.sample.shape)
        (logits,) = session.run(None, {"samples": samples.numpy()})
        assert torch.allclose(torch.from_numpy(logits), record.client(1)(samples), atol=1e-4)


def test_what_is_not_there_is_said_in_one_line(record, tmp_path, monkeypatch):
    never = next(id for id in range(4) if id not in set(record.clients.query("round == 0")["client"]))
    with pytest.raises(FedlibError, match=rf"client = {never}: must be one that was visited: \d, \d"):
        record.client(never)

    def absent(*args, **kwargs):
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    monkeypatch.setattr(torch.onnx, "export", absent)
    with pytest.raises(FedlibError, match="onnxscript is not installed; `pip install onnx onnxscript`"):
        record.export(int(record.clients.query("round == 0")["client"].iloc[0]), tmp_path / "x.onnx")
    other = run(RunSpec("FedProto", dataset="digits", num_clients=4, rounds=1), progress=False)
    with pytest.raises(FedlibError, match="it kept no weights of the clients; run it again with keep='clients'"):
        other.client(0)
