"""What the methods exchange and compute, against the papers' tables and against counts by hand."""

import pandas as pd
import pytest

from fedlib import ALGORITHMS
from fedlib.lab import costs

# Slow for every method: the table of all of them takes ten seconds. Thorough, so that the mutants run them.
pytestmark = [pytest.mark.slow, pytest.mark.thorough]

# Multiply-adds of a forward pass of CNN-1..5 with 10 classes, and of conv1, whose input needs no gradient.
FORWARD = {"CNN-1": 4_825_800, "CNN-2": 3_385_800, "CNN-3": 3_525_800, "CNN-4": 3_265_800, "CNN-5": 2_875_800}
CONV1 = 28 * 28 * 16 * 75
HEADER = 500 * 10
MEANS = 2 * 500  # class means of the representation over two seen classes, an image


@pytest.fixture(scope="module")
def words() -> pd.DataFrame:
    return costs.table(public_samples=20)


def test_every_method_is_in_the_table(words: pd.DataFrame) -> None:
    assert list(words.index) == list(ALGORITHMS)


@pytest.mark.parametrize(
    ("method", "published", "real"),  # CIFAR-10 with 2 of 10 classes, CIFAR-100 with 10 of 100; d = 500
    [
        ("Standalone", (0, 0), (0, 0)),
        ("FedAvg", (5_243_116, 5_333_296), (5_243_116, 5_333_296)),  # twice CNN-1
        ("FedProx", (5_243_116, 5_333_296), (5_243_116, 5_333_296)),
        ("Per-FedAvg", (5_243_116, 5_333_296), (5_243_116, 5_333_296)),
        ("pFedMe", (5_243_116, 5_333_296), (5_243_116, 5_333_296)),
        ("pFedBayes", (10_486_232, 10_666_592), (10_486_232, 10_666_592)),  # a mean and a spread of every weight
        ("FML", (1_340_116, 1_430_296), (1_340_116, 1_430_296)),  # twice CNN-5
        ("LG-FedAvg", (10_020, 100_200), (10_020, 100_200)),  # 2 (dC + C)
        ("FedClassAvg", (10_020, 100_200), (10_020, 100_200)),
        ("FD", (40, 2_000), (44, 2_020)),  # 2 |S| C, and the class ids
        ("FedProto", (2_000, 10_000), (2_004, 10_020)),  # 2 |S| d, and the class ids
        ("FedMD", (2 * 20 * 10, 2 * 20 * 100), (420, 4_020)),  # 2 P C, and the indices
        ("FCCL", (2 * 20 * 10, 2 * 20 * 100), (420, 4_020)),
        ("FedKEMF", (1_340_116, 1_430_296), (1_340_116, 1_430_296)),
        ("FedGH", (6_002, 55_010), (6_012, 55_110)),  # |S| d + |S| + d C, and the bias
        ("FedSSA", (10_020, 100_200), (2_006, 10_030)),  # 2 C (d + 1), section 6.2; 2 |S| (d + 1), and the class ids up
        ("pFedES", (886, 886), (886, 886)),  # 2 (3*8*9 + 8 + 8*3*9 + 3)
    ],
)
def test_words_in_a_steady_state_round(
    words: pd.DataFrame, method: str, published: tuple[int, int], real: tuple[int, int]
) -> None:
    row = words.loc[method]
    assert (row["cifar10_published"], row["cifar100_published"]) == published
    assert (row["cifar10_real"], row["cifar100_real"]) == real


def test_fedkd_sends_less_than_the_shared_model(words: pd.DataFrame) -> None:
    """How much less depends on the data: at least a factor of rank 1 a matrix, and the biases, each way."""
    matrices, biases = [(16, 75), (32, 400), (500, 800), (500, 500), (10, 500)], 16 + 32 + 500 + 500 + 10
    least = biases + sum(rows + columns + 1 for rows, columns in matrices)
    assert 2 * least <= words.loc["FedKD", "cifar10_real"] < 1_340_116


# ---------------------------------------------------------------------------------------------------------- FLOPs


@pytest.mark.parametrize("architecture", FORWARD)
def test_three_forwards_beside_the_real_step(architecture: str) -> None:
    assert costs.training_flops(architecture, 10, 3) == 3 * 2 * FORWARD[architecture] - 2 * CONV1


RATIOS = {  # FLOPs by Standalone's: CNN-1 to CNN-5
    "pFedES": (2.827, 2.903, 2.892, 2.912, 2.950),  # E_fe = E; above 3.2 frozen networks would take gradients
    "FML": (1.568, 1.834, 1.798, 1.868, 2.000),
    "FedGH": (1.357, 1.367, 1.366, 1.369, 1.374),  # E = 1
    "FedSSA": (1.0, 1.0, 1.0, 1.0, 1.0),
    "LG-FedAvg": (1.0, 1.0, 1.0, 1.0, 1.0),
    "FedProto": (1.357, 1.367, 1.366, 1.369, 1.374),  # as FedGH: every image once more for the class means
}


@pytest.mark.parametrize("place", [0, 3])  # the others take as long again and say the same
@pytest.mark.parametrize("method", RATIOS)
def test_flops_relative_to_standalone(method: str, place: int) -> None:
    given = {"extractor_epochs": 0} if method == "pFedES" else {}
    ratio = costs.relative_to_standalone(ALGORITHMS[method](**given), list(FORWARD)[place])
    assert ratio == pytest.approx(RATIOS[method][place], rel=0.005)


def test_extractor_epochs_do_not_grow_with_the_local_ones() -> None:
    """pFedES on CNN-5: step 1 trains on raw and on enhanced images, 2 (3 f - c1) + g multiply-adds an image; step 2
    takes the gradient through a frozen network, 2 f + 2.5 g. E_fe = 5 of step 2 fall on E of step 1.
    """
    forward, extractor = FORWARD["CNN-5"], 442_368
    first, second = 2 * (3 * forward - CONV1) + extractor, 2 * forward + 2.5 * extractor
    for epochs in (1, 10):
        expected = (first + 5 / epochs * second) / (3 * forward - CONV1)
        ratio = costs.relative_to_standalone(ALGORITHMS["pFedES"](), "CNN-5", epochs)
        assert ratio == pytest.approx(expected, rel=0.005)


def test_parts_of_a_round_by_hand() -> None:
    step, extraction = 2 * (3 * FORWARD["CNN-5"] - CONV1), 2 * (FORWARD["CNN-5"] - HEADER + MEANS)
    cost = costs.flops(ALGORITHMS["FedGH"](), "CNN-5")
    assert (cost.epoch, cost.round, cost.public, cost.fixed) == (step, extraction, 0, 0)
    # the server's step on a LAR: forward, and the gradient of the weight; two LARs an upload
    assert cost.upload == 2 * 2 * (2 * HEADER) and cost.server == 0
    frozen = costs.flops(ALGORITHMS["FedGH"](server_update="frozen"), "CNN-5")
    assert (frozen.upload, frozen.epoch, frozen.round) == (0, step, extraction)
    # FedMD digests the public subset (a training step an image) and answers on it (a forward pass)
    digest = costs.flops(ALGORITHMS["FedMD"](), "CNN-5")
    assert (digest.epoch, digest.public) == (step, step + 2 * FORWARD["CNN-5"])
    # FedKEMF's server runs each upload on the public subset and trains one network on it
    distil = costs.flops(ALGORITHMS["FedKEMF"](), "CNN-5")
    assert (distil.upload, distil.upload_public) == (0, 2 * FORWARD["CNN-5"])
    assert (distil.server_public, distil.server) == (step, 0)
