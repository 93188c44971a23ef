"""What trained networks see: from kept weights, bounded, identical on a second call, with hand-worked numbers."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib import data, lab, training
from fedlib.errors import FedlibError
from fedlib.papers import recorded, views

SPEC = lab.RunSpec(algorithm="pFedES", num_clients=5, rounds=1, batch_size=64, keep="clients")


@pytest.fixture(scope="module")
def trained(trained_once):
    return trained_once(lambda: lab.run(SPEC, progress=False))


@pytest.fixture
def record(small_digits, trained):
    return trained


def test_representations_are_of_the_kept_networks_and_of_the_clients_own_test_images(record):
    table, features = views.extract_representations(record, per_client=3)
    built = lab.federation_of(lab.resolve(record.spec))
    snapshots = torch.load(record.path / "final-clients.pt", weights_only=True)["clients"]
    assert list(table) == ["client", "architecture", "label"]
    assert features.shape == (len(table), 500)
    assert (features >= 0).all() and features.any()  # they follow a ReLU
    assert table.groupby("client").size().max() <= 3
    assert table["architecture"].tolist() == [f"CNN-{client % 5 + 1}" for client in table["client"]]
    for client in built.clients:
        own = table["client"] == client.id
        assert set(table.loc[own, "label"]) <= set(client.classes.tolist())
        client.restore(snapshots[client.id])
        every = training.outputs(client.model.extractor, client.pool, client.test).numpy()
        assert all(np.isclose(every, row, atol=1e-5).all(1).any() for row in features[own])


@pytest.mark.thorough(None)
def test_maps_repeat_bit_by_bit_and_follow_the_perplexity(record):
    first, second, other = (views.map_representations(record, 4, perplexity=value, count=1) for value in (4, 4, 5))
    assert first.equals(second) and not first.equals(other)
    assert list(first) == ["client", "architecture", "label", "x", "y", *views.SHARES]
    table, features = views.extract_representations(record, 4)
    assert first[list(views.SHARES)].mean().to_dict() == pytest.approx(
        views.share_of_nearest(table, features, count=1).mean().to_dict()
    )
    with pytest.raises(FedlibError, match=r"perplexity = 30.0: must be above 0 and below \d+, the points"):
        views.map_representations(record, 3)


def test_nearest_by_hand():
    # Client 0 at 0, 1, 3 and client 1 at 4, 9, 10 on a line. The nearest of each: 1, 0, 4 (another client), 3 (another
    # client), 10, 9. Within the client: 1, 0, 1 and 9, 10, 9.
    features = np.array([[0.0], [1.0], [3.0], [4.0], [9.0], [10.0]])
    table = pd.DataFrame({"client": [0, 0, 0, 1, 1, 1], "label": [5, 5, 6, 5, 7, 7]})
    found = views.share_of_nearest(table, features, count=1).mean().to_dict()
    assert found == pytest.approx({"same client": 100 * 4 / 6, "same class, within the client": 100 * 4 / 6})
    with pytest.raises(FedlibError, match=re.escape("count = 3: must be between 1 and 2: a client has 3 images")):
        views.share_of_nearest(table, features, count=3)


def test_enhanced_images_are_the_extractors_output_each_rescaled_on_its_own(record):
    pictures = views.enhance_images(record, count=4)
    assert {name: rows.shape for name, rows in pictures.items()} == dict.fromkeys(
        ("original", "enhanced"), (4, 32, 32, 3)
    )
    state = lab.load_weights(record, "server")["server"]
    data = lab.resolve(record.spec).data
    original = torch.from_numpy(pictures["original"]).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (data.mean, data.std))
    hidden = torch.conv2d((original - mean) / std, state["0.weight"], state["0.bias"], padding=1).relu()
    output = torch.conv2d(hidden, state["2.weight"], state["2.bias"], padding=1).relu().permute(0, 2, 3, 1).numpy()
    for made, expected in zip(pictures["enhanced"], output, strict=True):
        assert (made.min(), made.max()) == (0, 1)
        scaled = (expected - expected.min()) / (expected.max() - expected.min())
        assert np.abs(made - scaled).max() < 1e-4
    again = views.enhance_images(record, count=4)
    assert all((again[name] == rows).all() for name, rows in pictures.items())


def test_pixels_keep_pictures_to_a_byte():
    drawn = np.random.default_rng(0).random((2, 32, 32, 3))
    kept = views.decode_images(views.encode_images({"original": drawn, "enhanced": 1 - drawn}))
    assert list(kept) == ["original", "enhanced"]
    assert np.abs(kept["original"] - drawn).max() <= 0.5 / 255 + 1e-9
    assert np.abs(kept["enhanced"] - (1 - drawn)).max() <= 0.5 / 255 + 1e-9


@pytest.mark.thorough
def test_a_run_without_the_weights_says_how_to_get_them(small_digits):
    plain = lab.run(dataclasses.replace(SPEC, seed=1, keep="server"), progress=False)
    assert views.enhance_images(plain, 2)["enhanced"].shape[0] == 2
    message = f"run {plain.key}: it kept no weights of the clients; run it again with keep='clients'"
    with pytest.raises(FedlibError, match=re.escape(message)):
        views.extract_representations(plain)
    with pytest.raises(FedlibError, match="algorithm = 'FedProto': must be pFedES"):
        views.enhance_images(lab.run(dataclasses.replace(SPEC, algorithm="FedProto"), progress=False))


@pytest.mark.thorough
def test_export_writes_the_maps_and_images_of_runs_that_kept_what_they_need(small_digits, monkeypatch):
    clients = lab.run(SPEC, progress=False)
    server = lab.run(dataclasses.replace(SPEC, keep="server", seed=1), progress=False)
    monkeypatch.setattr(data, "EMBEDDED", {})  # as if the digits were real data
    monkeypatch.setattr(data, "registered", set)
    monkeypatch.setattr(
        views, "map_representations", lambda record: pd.DataFrame({"client": [1, 0], "x": [0.126, 2.0]})
    )
    recorded.export()
    folder = lab.home() / "results" / "runs"
    assert {path.name for path in folder.iterdir()} == {clients.key, server.key}
    maps, images = pd.read_csv(folder / clients.key / "maps.csv"), pd.read_csv(folder / server.key / "images.csv.gz")
    assert maps.to_dict("list") == {"client": [0, 1], "x": [2.0, 0.13]} and len(images) == 10
    kept, made = views.decode_images(images), views.enhance_images(server)
    assert list(kept) == list(made)
    assert all(np.abs(kept[row] - made[row]).max() <= 0.5 / 255 + 1e-6 for row in made)


def test_matches_by_hand():
    # Two clients in the second round; client 7 gets the second candidate (two layers), client 3 nothing.
    chains = [[[3, "M1", 1, "conv"]], [[7, "M2", 1, "conv"], [3, "M1", 4, "fc"]]]
    rounds = [
        {"round": 0, "clients": [3], "matches": [None], "similarity": [[]], "structures": []},
        {"round": 1, "clients": [3, 7], "matches": [None, 1], "similarity": [[0.1, 0.2], [0.3, 0.41239]], "structures": chains},
    ]  # fmt: skip
    table = views.list_matches(SimpleNamespace(details=rounds))
    assert table.to_numpy().tolist() == [[2, 7, 0.4124, 1, 7, "M2", 1, "conv"], [2, 7, 0.4124, 2, 3, "M1", 4, "fc"]]
    assert list(table) == list(views.MATCHES) == list(views.list_matches(SimpleNamespace(details=[])))
