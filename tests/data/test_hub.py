"""Hugging Face's data sets and flwr-datasets' partitioners as input."""

import numpy as np
import pytest
from PIL import Image

from fedlib import RunSpec, data, partition, run
from fedlib.errors import FedlibError

datasets = pytest.importorskip("datasets", reason="not installed: datasets, flwr-datasets")
partitioners = pytest.importorskip("flwr_datasets.partitioner", reason="not installed: datasets, flwr-datasets")

pytestmark = pytest.mark.usefixtures("home")


def rows(count, channels=3, seed=0, size=16):
    """Pictures whose brightness is their class, as a hub hands them out: encoded files, labels with names, a writer each."""
    draws = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    levels = (labels[:, None, None, None] * 60 + draws.integers(0, 40, (count, size, size, channels))).astype(np.uint8)
    pictures = [Image.fromarray(one.squeeze(-1) if channels == 1 else one) for one in levels]
    columns = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=list("abcd")),
        "writer": datasets.Value("string"),
    }
    made = {"image": pictures, "label": labels.tolist(), "writer": [f"w{number % 3}" for number in range(count)]}
    return datasets.Dataset.from_dict(made, features=datasets.Features(columns)), levels


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_a_hub_are_those_that_went_in(channels):
    (train, levels), (test, _) = rows(40, channels), rows(8, channels, seed=1)
    made = data.from_huggingface("hub", train, test, group="writer")
    assert np.array_equal(made.images[:40].numpy(), levels.transpose(0, 3, 1, 2)) and made.num_train == 40
    assert made.num_classes == 4 and made.labels[:5].tolist() == [0, 1, 2, 3, 0] and len(made.labels) == 48
    assert made.groups[:4].tolist() == [0, 1, 2, 0]
    assert data.from_huggingface("hub", train).num_train == 40  # no test part


def test_numbers_in_lists_are_vectors():
    columns = {"x": np.random.default_rng(0).random((12, 5)).tolist(), "label": [0, 1, 2] * 4}
    made = data.from_huggingface("hub", datasets.Dataset.from_dict(columns), samples="x")
    assert made.kind == "vector" and tuple(made.images.shape) == (12, 5) and made.num_classes == 3


def test_a_column_that_cannot_be_read_is_named():
    table, _ = rows(8)
    with pytest.raises(FedlibError, match="hub: column = 'img' is unknown"):
        data.from_huggingface("hub", table, samples="img")
    with pytest.raises(FedlibError, match=r"hub: rows = 'DatasetDict': must be a datasets\.Dataset"):
        data.from_huggingface("hub", datasets.DatasetDict(train=table))
    with pytest.raises(FedlibError, match="hub: column writer = 'text': must be pictures of one size"):
        data.from_huggingface("hub", table, samples="writer")
    with pytest.raises(FedlibError, match=r"hub: column writer = .*: must be class numbers"):
        data.from_huggingface("hub", table, label="writer")
    mixed = datasets.concatenate_datasets([table, rows(4, size=20)[0]])
    with pytest.raises(FedlibError, match="hub: column image = '2 shapes'"):
        data.from_huggingface("hub", mixed)


def test_a_partitioner_deals_every_sample_once_and_a_run_is_repeated():
    labels = np.arange(200) % 4
    found = data.dealt_by(
        partitioners.DirichletPartitioner(5, "label", 0.5, min_partition_size=2, seed=3), label=labels
    )
    assert len(found) == 5 and sorted(np.concatenate(found)) == list(range(200))
    assert len({tuple(np.bincount(labels[one], minlength=4)) for one in found}) > 1
    owners = data.dealt_by(
        partitioners.NaturalIdPartitioner(partition_by="writer"), writer=[f"w{n % 3}" for n in range(9)]
    )
    assert sorted(map(tuple, owners)) == [(0, 3, 6), (1, 4, 7), (2, 5, 8)]
    with pytest.raises(FedlibError, match="columns = 'a, b': must be one value per sample"):
        data.dealt_by(partitioners.IidPartitioner(2), a=[1], b=[1, 2])


def test_a_run_on_rows_of_a_hub_dealt_by_a_partitioner():
    table, _ = rows(240)

    def skewed(labels, num_clients, stream):
        seed = int(stream.integers(2**31))
        return data.dealt_by(partitioners.DirichletPartitioner(num_clients, "label", 1.0, seed=seed), label=labels)

    data.register("hub-run", lambda: data.from_huggingface("hub-run", table))
    partition.register("hub-skewed", skewed)
    spec = RunSpec(
        "FedSSA", dataset="hub-run", partition="hub-skewed", num_clients=3, participation=1.0, rounds=2, local_epochs=1
    )
    assert run(spec).status == "finished"
