"""Communication measured from real messages, in words by hand."""

import numpy as np
import pytest
import torch

from fedlib import Dataset, Federation, lab, models, partition, simulate
from fedlib.algorithms import make
from fedlib.errors import FedlibError
from fedlib.federation import Message
from fedlib.lab import costs

D = models.FEATURES

# 32-bit words a client and round in a steady state, for CIFAR-10 with 2 classes a client and CIFAR-100 with 10: as the
# papers count, and as they really travel. S seen classes of C; d = 500.
WORDS = {
    "Standalone": ((0, 0), (0, 0)),
    "FedAvg": ((2 * 670_058, 2 * 715_148), (2 * 670_058, 2 * 715_148)),  # CNN-5, whole, down and up
    "LG-FedAvg": ((10_020, 100_200), (10_020, 100_200)),  # 2 (d C + C)
    "FedProto": ((2_000, 10_000), (2_004, 10_020)),  # 2 S d; really with class ids both ways
    "FedGH": ((6_002, 55_010), (6_012, 55_110)),  # S d + S labels up, d C down; really with the bias, C
    "FedSSA": ((10_020, 100_200), (2_006, 10_030)),  # 2 C (d + 1), its section 6.2; really seen rows and class ids up
}


def like_cifar(num_classes: int, held: int) -> Federation:
    """CIFAR's shapes, few images, N = 10. All clients have CNN-5: the wire sees the architecture in FedAvg alone."""
    stream = np.random.default_rng(0)
    labels = np.repeat(np.arange(num_classes), 200 // num_classes)
    images = stream.integers(0, 256, (200, 3, 32, 32), dtype=np.uint8)
    data = Dataset.from_arrays("random", images, labels, images[:1], labels[:1], num_classes)
    federation = Federation(data, partition.by_class([labels], 10, num_classes, held, stream)[0], ("CNN-5",))
    assert {len(client.classes) for client in federation.clients} == {held}
    return federation


@pytest.mark.thorough
@pytest.mark.parametrize(("column", "num_classes", "held"), [(0, 10, 2), (1, 100, 10)])
@pytest.mark.parametrize("name", WORDS)
def test_words_of_real_messages(name, column, num_classes, held):
    rounds = lab.rounds_of(simulate(like_cifar(num_classes, held), make(name), 2))
    steady = rounds.iloc[-1]  # FedProto's first round has no prototypes to send down
    published, real = (counting[column] for counting in WORDS[name])
    assert steady["selected"] == 10
    assert steady["published_words"] == 10 * published
    assert steady["download_words"] + steady["upload_words"] == 10 * real
    if name == "FedProto":
        assert rounds.iloc[1]["download_words"] == 0


def test_size_is_measured_from_what_a_message_holds():
    message = Message(
        {"a": torch.zeros(3, 4), "classes": torch.zeros(5, dtype=torch.int64), "header.bias": torch.zeros(2)},
        num_samples=7,
        structure=("conv", 3),
    )
    assert message.words() == 12 + 5 + 2  # a 64-bit id in memory is a 32-bit word on the wire
    assert message.words(make("FedProto").uncounted) == 12 + 2
    assert message.words(make("FedGH").uncounted) == 12 + 5
    assert message.words(make("Standalone").uncounted) == 19
    assert costs.kilobytes(256) == 1.0


@pytest.mark.thorough("Standalone", "FedSSA", "FedGH")
@pytest.mark.parametrize("name", ["Standalone", "FedSSA", "FedGH", "FedMD"])
def test_the_tensors_of_the_messages_are_the_words_of_the_table(name):
    words = costs.table([name], public_samples=100).loc[name]
    for dataset, seen in (("cifar10", 2), ("cifar100", 10)):
        sent = costs.messages(make(name), dataset, public_samples=100)
        assert sent["words"].sum() == words[f"{dataset}_real"]
        assert all(np.prod(row["shape"]) == row["words"] for row in sent.to_dict("records"))
        if name == "FedSSA":
            rows = sent.set_index(["direction", "tensor"])["shape"]
            assert rows["download", "weight"] == rows["upload", "weight"] == (seen, D)


def test_messages_of_shapes_that_are_not_known_are_refused():
    with pytest.raises(FedlibError, match="dataset = 'mnist' is unknown"):
        costs.messages(make("FedSSA"), "mnist")
