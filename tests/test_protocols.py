"""Protocols: the presets, and each released behaviour worked out by hand."""

import dataclasses
import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from fedlib import ALGORITHMS, Dataset, Federation, FedlibError, RunSpec, data, lab, partition, simulate
from fedlib.algorithms.base import Algorithm, Message
from fedlib.lab.presets import PRESETS, protocol
from fedlib.protocol import Protocol
from fedlib.randomness import generator
from fedlib.show import intervals
from fedlib.simulation import participants
from fedlib.training import augmented

DIGITS = RunSpec(dataset="digits")

# ------------------------------------------------------------------------------------------------------ presets


def test_paper_presets_are_plain() -> None:
    for paper in ("FedSSA", "FedGH", "pFedES"):
        preset = protocol(paper, "paper")
        assert (preset.lr, preset.momentum, preset.weight_decay, preset.clip_norm) == (0.01, 0, 0, 0)
        assert (preset.split, preset.augmentation, preset.inherit) == (
            "local-8:1:1", "none", "none",
        )  # fmt: skip
        assert preset == protocol(paper, "paper", "homogeneous")


@pytest.mark.parametrize(
    ("paper", "scenario", "lr", "weight_decay", "inherit", "sizes"),  # the released scripts' defaults; T, E, B
    [
        ("FedSSA", "heterogeneous", 0.005, 5e-5, "first_visit", (500, 25, 512)),
        ("FedSSA", "homogeneous", 0.005, 5e-5, "none", (500, 10, 512)),
        ("FedGH", "heterogeneous", 0.01, 1e-3, "first_round", (500, 30, 512)),
        ("FedGH", "homogeneous", 0.01, 1e-3, "none", (500, 10, 64)),
        ("pFedES", "heterogeneous", 0.01, 1e-3, "none", (500, 10, 512)),
        ("pFedES", "homogeneous", 0.01, 1e-3, "none", (500, 10, 512)),
    ],
)
def test_released_presets(
    paper: str, scenario: str, lr: float, weight_decay: float, inherit: str, sizes: tuple[int, int, int]
) -> None:
    preset = protocol(paper, "released", scenario)
    assert (preset.lr, preset.momentum, preset.weight_decay, preset.clip_norm) == (lr, 0.9, weight_decay, 50)
    assert (preset.split, preset.normalise, preset.augmentation) == ("official-4:1:1", "released", "released")
    assert (preset.distinct, preset.floors) == (False, True)
    assert preset.inherit == inherit
    spec = replace(DIGITS, algorithm=paper, protocol="released", scenario=scenario)
    filled = lab.resolve(spec, "paper").spec
    assert (filled.rounds, filled.local_epochs, filled.batch_size) == sizes
    assert (filled.paper, filled.lr) == (paper, lr)
    assert lab.resolve(replace(spec, local_epochs=3), "paper").spec.local_epochs == 3
    assert lab.resolve(spec, "smoke").spec.local_epochs == 1  # a scale below the paper's keeps its own size


def test_a_protocol_gives_its_method_parameters_and_params_override_them() -> None:
    spec = replace(DIGITS, algorithm="FedSSA", protocol="released")
    method: Any = lab.resolve(spec).algorithm
    assert (method.aggregate_over, method.stable_rounds, method.mu0) == ("all", 2, 0.5)
    assert lab.resolve(replace(spec, scenario="homogeneous")).spec.params["stable_rounds"] == 45
    method = lab.resolve(replace(spec, params={"aggregate_over": "selected"})).algorithm
    assert (method.aggregate_over, method.stable_rounds) == ("selected", 2)
    method = lab.resolve(replace(spec, algorithm="FedGH")).algorithm  # its own protocol, not FedSSA's
    assert (method.server_update, method.first_header, method.lars) == ("frozen", "own", "augmented")
    method = lab.resolve(replace(spec, algorithm="FedGH", paper="FedSSA")).algorithm  # a baseline keeps its defaults
    assert method == ALGORITHMS["FedGH"]()
    baseline = lab.resolve(replace(spec, algorithm="LG-FedAvg"))
    assert (baseline.spec.paper, baseline.protocol) == ("FedSSA", protocol("FedSSA", "released"))
    for (paper, _), preset in PRESETS.items():
        for values in preset.params.values():
            assert set(values) <= {field.name for field in dataclasses.fields(ALGORITHMS[paper])}


def test_every_field_can_be_overridden_by_name() -> None:
    others = {
        "split": "official-4:1:1", "distinct": "false", "floors": True, "dealing": "shards", "normalise": "half",
        "augmentation": "released", "lr": "0.5", "momentum": 0.5, "weight_decay": 0.1, "clip_norm": 1,
        "inherit": "first_visit", "starts": "apart", "reserve": "true", "optimiser": "adam",
        "header_scale": "4",
    }  # fmt: skip
    assert set(others) == {field.name for field in dataclasses.fields(Protocol)}
    text = replace(DIGITS, protocol="paper")
    plain = lab.resolve(text)
    keys = {plain.key}
    for name, value in others.items():
        changed = lab.resolve(replace(text, overrides={name: value}))
        given = {field: (getattr(plain.protocol, field), getattr(changed.protocol, field)) for field in others}
        assert [field for field, (before, after) in given.items() if before != after] == [name]
        keys.add(changed.key)
    assert len(keys) == 1 + len(others)
    released = protocol("FedSSA", "released", overrides={"inherit": "none"})
    assert released == replace(PRESETS["FedSSA", "released"].protocol, inherit="none")


def test_pfedhr_presets() -> None:
    spec = replace(DIGITS, algorithm="FedMD", paper="pFedHR", protocol="paper")
    filled = lab.resolve(spec, "paper")
    preset = filled.protocol
    assert (preset.optimiser, preset.lr, preset.split, preset.normalise) == ("adam", 0.001, "local-8:0:2", "dataset")
    assert (filled.spec.rounds, filled.spec.local_epochs, filled.spec.batch_size) == (100, 10, 10)
    assert (filled.spec.scenario, filled.architectures) == ("reassembly", ("M1", "M2", "M3", "M4"))
    assert lab.resolve(DIGITS).spec.scenario == "heterogeneous"
    assert lab.resolve(replace(spec, scenario="heterogeneous")).spec.scenario == "heterogeneous"
    for scale in lab.SCALES:  # 4 of 12, whatever the scale
        sized = lab.resolve(spec, scale).spec
        assert participants(sized.num_clients, sized.participation) == 4 and sized.num_clients == 12
    assert lab.resolve(replace(spec, num_clients=100, participation=0.1)).spec.num_clients == 100
    rebuilt = lab.resolve(replace(spec, protocol="reconstructed")).protocol
    assert rebuilt == replace(preset, normalise="half", weight_decay=1e-4, starts="apart")
    released = lab.resolve(replace(spec, protocol="released"))
    assert released.protocol == replace(rebuilt, split="train-16:4:5", distinct=False, dealing="shards")
    assert participants(released.spec.num_clients, released.spec.participation) == 6


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"inherits": "none"}, "protocol field = 'inherits' is unknown: did you mean 'inherit'"),
        ({"inherit": "always"}, "inherit = 'always' is unknown"),
        ({"starts": "alike"}, "starts = 'alike' is unknown: .*known are equal, apart"),
        ({"split": "8:1:1"}, "split = '8:1:1' is unknown"),
        ({"header_scale": 0}, "header_scale = 0.* must be above 0"),
        ({"augmentation": "flip"}, "augmentation = 'flip' is unknown: .*known are none, released"),
        ({"normalise": "mean"}, "normalise = 'mean' is unknown"),
        ({"distinct": "maybe"}, "distinct = 'maybe': must be true or false"),
        ({"dealing": "cards"}, "dealing = 'cards' is unknown"),
        (
            {"dealing": "shards", "split": "official-4:1:1"},
            "dealing = 'shards': must be 'slots' with split official-4:1:1",
        ),
    ],
)
def test_a_wrong_override_says_what_is_known(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(FedlibError, match=message):
        lab.resolve(replace(DIGITS, overrides=overrides))


# ---------------------------------------------------------------------------------------------- data of a client


@pytest.mark.parametrize("how", ["by-class", "dirichlet", "iid"])
def test_official_split(how: str) -> None:
    spec = replace(DIGITS, partition=how, num_clients=10, overrides={"split": "official-4:1:1"})
    resolved = lab.resolve(spec)
    labels, parts = resolved.data.labels, lab.federation_of(resolved).clients
    train, validation, test = (torch.cat([getattr(c, part) for c in parts]) for part in ("train", "validation", "test"))
    assert len(resolved.data.labels) == 1797 and resolved.data.num_train == 1498
    assert (len(train), len(validation), len(test)) == (1198, 300, 299)  # 1498 * 4 // 5, the rest, the official test
    assert int(torch.cat([train, validation]).max()) < 1498 <= int(test.min())
    assert len(torch.cat([train, validation, test]).unique()) == 1797
    if how == "by-class":  # the same two classes in the three parts
        for client in parts:
            assert [labels[part].unique().tolist() for part in (client.validation, client.test)] == [
                client.classes.tolist()
            ] * 2
        counts = torch.bincount(labels[parts[0].train], minlength=10) / torch.bincount(labels[train])
        again = torch.bincount(labels[parts[0].test], minlength=10) / torch.bincount(labels[test])
        assert torch.allclose(counts, again, atol=0.05)  # the same shares


@pytest.mark.parametrize("how", ["by-class", "iid"])
def test_pfedhr_clients_train_on_four_fifths_and_a_tenth_is_public(how: str) -> None:
    resolved = lab.resolve(replace(DIGITS, algorithm="FedMD", paper="pFedHR", partition=how))
    built = lab.federation_of(resolved)
    total = sum(len(torch.cat([c.train, c.test])) for c in built.clients)
    assert len(built.public.indices) == 150 and total == 1797 - 150
    for client in built.clients:
        assert len(client.validation) == 0
        assert abs(len(client.train) - 4 * len(client.test)) <= 4
        if how == "by-class":  # tested on the classes it trains on, in the same mix
            labels = resolved.data.labels
            trained, tested = (torch.bincount(labels[part], minlength=10) for part in (client.train, client.test))
            assert len(client.classes) == 2 and (trained - 4 * tested).abs().max() <= 4


def test_pfedhr_keeps_the_public_part_from_the_clients_of_every_method() -> None:
    """FedMD's own public images, FedMD's from another data set and FedGH, which has none: the same private images."""
    spec = replace(DIGITS, paper="pFedHR")
    public = lab.public_of(lab.resolve(replace(spec, algorithm="FedMD")))
    federations = [
        lab.federation_of(lab.resolve(replace(spec, algorithm=name, public_dataset=other)))
        for name, other in (("FedMD", None), ("FedMD", "digits100"), ("FedGH", None))
    ]
    for one in federations:
        held = torch.cat([torch.cat([c.train, c.test]) for c in one.clients])
        assert torch.equal(held, torch.cat([torch.cat([c.train, c.test]) for c in federations[0].clients]))
        assert not set(held.tolist()) & set(public.tolist())
    fractions = [lab.resolve(replace(spec, algorithm="FedGH", public_fraction=part)) for part in (0.02, 0.1)]
    assert fractions[0].key != fractions[1].key  # its clients hold more of the images


def test_released_pfedhr_leaves_a_fifth_of_the_training_part_unused() -> None:
    resolved = lab.resolve(replace(DIGITS, algorithm="FedMD", paper="pFedHR", protocol="released", partition="iid"))
    built = lab.federation_of(resolved)
    parts = [sum(len(getattr(c, part)) for c in built.clients) for part in ("train", "validation", "test")]
    assert sum(parts) == resolved.data.num_train - 150  # the official test images stay unused
    assert [part / sum(parts) for part in parts] == pytest.approx([0.64, 0.16, 0.2], abs=0.01)
    assert int(torch.cat([c.test for c in built.clients]).max()) < resolved.data.num_train


def test_released_pfedhr_deals_shards_to_every_method() -> None:
    """1 497 digits to train on, 150 of them public: 134 shards of 10; of each 2 to test on, of the 16 left 12 to train on."""
    spec = replace(DIGITS, paper="pFedHR", protocol="released", num_clients=12, classes_per_client=2)
    one, other = (lab.resolve(replace(spec, algorithm=name)) for name in ("Standalone", "FedMD"))
    assert {tuple(map(len, parts)) for parts in lab.partition_of(one)} == {(12, 4, 4)}
    both = zip(lab.partition_of(one), lab.partition_of(other), strict=True)
    assert all(np.array_equal(a, b) for mine, yours in both for a, b in zip(mine, yours, strict=True))
    spent = one.spec.local_epochs * one.spec.rounds * 6 * 12  # six clients a round
    assert one.samples == pytest.approx(spent, rel=0.1)
    assert one.hashed["protocol"]["dealing"] == "shards" and "dealing shards" in one.numerics


def test_dealing_in_slots_is_in_no_key() -> None:
    plain, said = (lab.resolve(replace(DIGITS, overrides=given)) for given in ({}, {"dealing": "slots"}))
    assert plain.key == said.key and "dealing" not in plain.hashed["protocol"]


@pytest.mark.thorough
def test_without_validation_images_nothing_is_selected_by_them() -> None:
    resolved = lab.resolve(replace(DIGITS, algorithm="Standalone", paper="pFedHR", num_clients=4))
    outcome = simulate(lab.federation_of(resolved), resolved.algorithm, 1)
    assert (
        lab.rounds_of(outcome)["validation_accuracy"].isna().all() and lab.rounds_of(outcome)["accuracy"].notna().all()
    )
    with pytest.raises(
        FedlibError, match=r"rule = 'validation': must be last, last10 or best: .* no validation images"
    ):
        intervals.selected_accuracy(lab.rounds_of(outcome), "validation")


def test_floors_leave_what_rounding_down_leaves() -> None:
    labels, shares = np.repeat([0, 1], [10, 7]), np.array([[0.45, 1.0], [0.55, 0.0]])
    sizes = {
        floors: [np.bincount(labels[held], minlength=2).tolist()
                 for held in partition.deal(labels, shares, generator(0, "partition"), floors=floors)]
        for floors in (False, True)
    }  # fmt: skip
    assert sizes[True] == [[4, 7], [5, 0]]  # int(4.5), int(5.5)
    assert sizes[False] == [[4, 7], [6, 0]]


def test_partition_flags_reach_the_partition() -> None:
    spec = replace(DIGITS, classes_per_client=8, num_clients=10)
    held = {}
    for name in ("distinct", "floors"):
        for value in (False, True):
            resolved = lab.resolve(replace(spec, overrides={name: value}))
            labels = resolved.data.labels.numpy()
            held[name, value] = [labels[np.concatenate(parts)] for parts in lab.partition_of(resolved)]
    classes = {value: [len(np.unique(labels)) for labels in held["distinct", value]] for value in (False, True)}
    assert set(classes[True]) == {8} and min(classes[False]) < 8
    images = {key: sum(map(len, labels)) for key, labels in held.items()}
    assert images["floors", False] == 1797 and 1797 - 80 <= images["floors", True] < 1797  # less than one image a slot


@pytest.mark.parametrize(
    ("name", "normalise", "mean", "std"),
    [
        ("cifar10", "released", 0.456, 0.224),  # ImageNet's green
        ("cifar10", "dataset", 0.4822, 0.2435),
        ("cifar100", "released", 0.4865, 0.2564),  # its own
        ("cifar100", "imagenet", 0.456, 0.224),
        ("cifar100", "half", 0.5, 0.5),
    ],
)
def test_normalisation(name: str, normalise: str, mean: float, std: float) -> None:
    images = np.full((4, 3, 32, 32), 51, dtype=np.uint8)  # 0.2
    known = {"mean": data.info(name).mean, "std": data.info(name).std}
    dataset = Dataset.from_arrays(name, images, np.array([0, 1, 0, 1]), images[:1], np.array([0]), **known)
    built = Federation(dataset, [np.arange(5)], protocol=Protocol(normalise=normalise))
    green = built.pool.batch(torch.tensor([0]))[0, 1]
    assert torch.allclose(green, torch.tensor((0.2 - mean) / std), atol=1e-5)


def test_imagenet_statistics_need_three_channels() -> None:
    images = np.zeros((4, 1, 32, 32), dtype=np.uint8)
    dataset = Dataset.from_arrays("grey", images, np.array([0, 1, 0, 1]), images[:1], np.array([0]))
    with pytest.raises(FedlibError, match="normalise = 'imagenet': must be another, since grey has 1 channel"):
        Federation(dataset, [np.arange(5)], protocol=Protocol(normalise="imagenet"))


# --------------------------------------------------------------------------------------------------- augmentation


class Draws:
    """Stands for a random stream; hands out the draws written down."""

    def __init__(self, *images: list[float]):
        self.images = np.array(images).T[..., None]

    def random(self, size: tuple[int, int, int]) -> np.ndarray:
        assert self.images.shape == size
        return self.images


def test_augmentation_by_hand() -> None:
    """flip, erase, area, ratio, top, left, down, right: uniform draws; 4/9 of the way is a crop that moves nothing."""
    still = [0.5, 0.5]
    images = torch.arange(1.0, 1025).reshape(1, 1, 32, 32).repeat(4, 2, 1, 1) + torch.arange(4.0)[:, None, None, None]
    none = [0.5, 0.5, 0, 0, 0, 0, *still]
    flip = [0.4, 0.5, 0, 0, 0, 0, *still]
    # area 1024 * (0.04 + 0.16 * 0.5) = 122.88, ratio 0.5 * 4^0.5 = 1: 11 by 11; top 0.5 * 22, left 0.99 * 22 = 21.78
    erase = [0.4, 0.4, 0.5, 0.5, 0.5, 0.99, *still]
    # area 204.8 less a little, ratio 2 less a little: 20 high, 10 wide, at row 0 and column 0; then down 3, left 4
    crop = [0.5, 0.4, 0.9999, 0.9999, 0, 0, 7 / 9 + 0.01, 0]
    result = augmented(images, Draws(none, flip, erase, crop))  # type: ignore[arg-type]
    assert torch.equal(result[0], images[0])
    assert torch.equal(result[1], images[1].flip(2))
    expected = images[2].flip(2)
    expected[:, 11:22, 21:32] = 0
    assert torch.equal(result[2], expected)
    erased = images[3].clone()
    erased[:, :20, :10] = 0
    expected = torch.zeros_like(erased)
    expected[:, :29, 4:] = erased[:, 3:, :28]
    assert torch.equal(result[3], expected)
    assert result.is_contiguous(memory_format=torch.channels_last)


def stripes(augment: bool = False) -> Dataset:
    """Images whose class is the place of a stripe, which a flip changes."""
    labels = np.arange(120) % 4
    images = np.random.default_rng(0).integers(0, 100, (120, 1, 32, 32), dtype=np.uint8)
    for label in range(4):
        images[labels == label, :, :, 8 * label : 8 * label + 8] += 100
    return Dataset.from_arrays("stripes", images[:96], labels[:96], images[96:], labels[96:], augment=augment)


def registered_stripes(augment: bool = False) -> RunSpec:
    data.register("stripes", lambda: stripes(augment))
    return RunSpec("Standalone", dataset="stripes", scenario="tiny-a", num_clients=3, rounds=2)


@pytest.mark.parametrize("protocol", ["reconstructed", "released"])
def test_own_data_are_trained_on_as_they_are_unless_they_say_otherwise(protocol: str) -> None:
    """By default and by name: one key and the same bits. With `augment`, those of the preset."""
    spec = replace(registered_stripes(), protocol=protocol)
    silent, none = (lab.resolve(replace(spec, overrides=given)) for given in ({}, {"augmentation": "none"}))
    assert silent.protocol.augmentation == none.protocol.augmentation == "none" and silent.key == none.key
    assert lab.resolve(silent.spec).key == silent.key
    flipped = lab.resolve(replace(registered_stripes(augment=True), protocol=protocol))
    assert flipped.protocol.augmentation == "released" and flipped.key != silent.key
    digests = [simulate(lab.federation_of(item), item.algorithm, 2).digest() for item in (silent, none, flipped)]
    assert digests[0] == digests[1] != digests[2]


def built_of(whole: Dataset, **given: Any) -> Federation:
    return Federation(whole, [np.arange(20), np.arange(20, 40)], ["tiny-a"], protocol=RELEASED, **given)


RELEASED = Protocol(augmentation="released")
PUBLIC = {"public": np.arange(10), "public_dataset": stripes()}


@pytest.mark.parametrize(
    ("call", "whose"),
    [
        (lambda: lab.resolve(replace(registered_stripes(), overrides={"augmentation": "released"})), "stripes"),
        (lambda: built_of(stripes()), "stripes"),
        # FedMD alone pretrains on public images as on a client's own
        (lambda: simulate(built_of(stripes(True), **PUBLIC), ALGORITHMS["FedMD"](), 1), "the public data set"),
    ],
)
def test_images_that_do_not_say_so_are_never_augmented(call: Any, whose: str) -> None:
    with pytest.raises(FedlibError) as error:
        call()
    assert str(error.value) == (
        f"augmentation = 'released': must be 'none', since {whose} does not say that its images may be flipped: "
        "Dataset.from_arrays(augment=True)"
    )


def test_images_that_say_so_or_are_not_trained_on_are_taken() -> None:
    assert built_of(stripes(True), public=np.arange(40, 50)).public.augment
    assert simulate(built_of(stripes(True), **PUBLIC), ALGORITHMS["FedMD"](pretrain_epochs=0), 1).status == "finished"


def tiny_method(name: str, **params: Any) -> Algorithm:
    """The method, whose network of its own, if it has one, is `tiny`."""
    fields = {field.name for field in dataclasses.fields(ALGORITHMS[name])}
    given = {"shared": "tiny", "knowledge": "tiny", "clusters": 1}
    return ALGORITHMS[name](**{field: value for field, value in given.items() if field in fields}, **params)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_trains_on_augmented_images_and_where_clients_start_apart(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client's training images are augmented at least once an epoch, the public ones and those tested on never."""
    seen = []

    def spy(images: torch.Tensor, stream: np.random.Generator) -> torch.Tensor:
        seen.append(images)
        return augmented(images, stream)

    monkeypatch.setattr("fedlib.training.augmented", spy)
    method = tiny_method(name, **({"pretrain_epochs": 0} if name == "FedMD" else {}))
    digests = []
    for starts in ("apart", "equal"):
        built = tiny.federation_of([[0, 1, 2], [2, 1, 0]], public=7, starts=starts, augmentation="released")
        outcome = simulate(built, method, 2)
        assert outcome.status == "finished"
        digests.append(outcome.digest())
    batch = 2 if name == "FedL2G" else 3  # it holds an image out
    assert len(seen) >= 8 and {len(images) for images in seen} == {batch}  # 2 clients, 2 rounds, twice
    if name in ("FedAvg", "Standalone"):  # the whole model comes down, so nothing of the start is left; or all of it
        assert (digests[0] == digests[1]) == (name == "FedAvg")


# ---------------------------------------------------------------------------------------------------- inheritance


@dataclass(frozen=True)
class Counter(Algorithm):
    """Adds 1 to the header's first bias a visit, so that it counts the visits that a model has been through."""

    name = "Counter"
    paper = "a test"
    exchanges = "nothing"

    def local_round(self, client: Any, message: Any, context: Any) -> Message:
        client.model.header.bias.data[0] += 1
        return Message()


def visits(inherit: str, clients: int, participation: float, rounds: int) -> tuple[list[int], list[float], Any]:
    """Inherited first visits a round, and the visits that each client's model has been through."""
    built = tiny.federation_of([[0, 1]] * clients, architectures=[f"tiny-{i}" for i in range(5)], inherit=inherit)
    start = {id: built.build(built.clients[id].info.architecture).header.bias[0].item() for id in range(clients)}
    outcome = simulate(built, Counter(), rounds, participation)
    counts = [c.model.header.bias[0].item() - start[c.id] if c.visited else 0 for c in outcome.clients]
    per_round = lab.rounds_of(outcome).get("inherited", [0] * (rounds + 1))
    return [int(value) for value in per_round[1:]], [round(count, 3) for count in counts], outcome


@pytest.fixture(autouse=True)
def five_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedlib import models

    for i in range(5):
        monkeypatch.setitem(models.BUILDERS, f"tiny-{i}", models.BUILDERS["tiny"])


def test_clients_of_one_architecture_start_equal_or_apart() -> None:
    """Apart: each from its own stream, whoever else there is; the server's own start is the architecture's."""

    def headers(built: Federation) -> list[torch.Tensor]:
        return [client.model.header.weight.detach() for client in built.clients]

    built = {starts: tiny.federation_of([[0, 1, 0]] * 4, starts=starts) for starts in ("equal", "apart")}
    equal, apart = (headers(each) for each in built.values())
    assert all(torch.equal(header, equal[0]) for header in equal)
    assert not any(torch.equal(one, other) for one, other in itertools.combinations([*apart, equal[0]], 2))
    fewer = headers(tiny.federation_of([[0, 1, 0]] * 2, starts="apart"))
    assert all(torch.equal(one, other) for one, other in zip(fewer, apart, strict=False))
    for each in built.values():
        assert torch.equal(each.server_context().initial_header().weight, equal[0])
        own = [each.client_context(id).build("tiny").header.weight for id in range(4)]  # what a reset goes back to
        assert all(torch.equal(one, other) for one, other in zip(own, headers(each), strict=True))
    apart = {whose for whose, preset in PRESETS.items() if preset.protocol.starts == "apart"}
    assert apart == {("pFedHR", "released"), ("pFedHR", "reconstructed")}  # whose code builds a network for each client


def test_headers_begin_larger_by_their_scale_and_nothing_else_does() -> None:
    usual, scaled = (tiny.federation_of([[0, 1, 0]], header_scale=scale) for scale in (1.0, 4.0))
    for one, other in zip(
        usual.clients[0].model.state_dict().items(), scaled.clients[0].model.state_dict().values(), strict=True
    ):
        name, tensor = one
        assert torch.equal(other, 4 * tensor if name.startswith("header.") else tensor), name
    assert torch.equal(scaled.server_context().initial_header().bias, 4 * usual.server_context().initial_header().bias)


def test_the_untrained_start_is_each_clients_own_when_they_start_apart() -> None:
    built = tiny.federation_of([[0, 1, 2]] * 8, starts="apart")
    outcome = simulate(built, ALGORITHMS["Standalone"](), 1, 0.25)
    before = lab.clients_of(outcome).query("round == -1").set_index("client")
    fresh = tiny.federation_of([[0, 1, 2]] * 8, starts="apart")
    for client in fresh.clients:
        images = fresh.pool.batch(client.test)
        right = (client.model(images).argmax(1) == fresh.pool.labels[client.test]).double().mean()
        assert before.loc[client.id, "accuracy"] == right
    assert before["accuracy"].nunique() == 2  # one test image each: some get it right
    trained = [client for client in built.clients if client.visited]
    assert len(trained) == 2 and not torch.equal(trained[0].model.header.weight, trained[1].model.header.weight)


@pytest.mark.parametrize(
    ("inherit", "inherited", "counts"),
    [("first_round", [5, 0], [2, 3]), ("first_visit", [5, 0], [2, 3]), ("none", [0, 0], [2, 2])],
)
def test_first_visits_inherit_in_round_0(inherit: str, inherited: list[int], counts: list[int]) -> None:
    """N=10, C=1: of the two clients of each architecture, the one visited second carries two visits."""
    per_round, found, outcome = visits(inherit, 10, 1.0, 2)
    assert per_round == inherited and ("inherited" in lab.rounds_of(outcome)) == (inherit != "none")
    assert all(sorted(found[i::5]) == counts for i in range(5))


@pytest.mark.thorough(None)
def test_later_first_visits_inherit_only_under_first_visit() -> None:
    """N=20, C=0.25: all first visits but the first of each architecture inherit, or only round 0's."""
    rows = lab.clients_of(visits("none", 20, 0.25, 3)[2]).query("round >= 0")
    first = rows.drop_duplicates("client")
    later = first[first.duplicated("architecture")]
    expected = [int((later["round"] == round).sum()) for round in range(3)]
    assert len(later) == len(first) - first["architecture"].nunique() > expected[0]
    assert visits("first_visit", 20, 0.25, 3)[0] == expected
    assert visits("first_round", 20, 0.25, 3)[0] == [expected[0], 0, 0]


def test_inheritance_takes_the_donors_weights_as_they_are() -> None:
    """Three clients of one architecture, one a round: each starts from the last trained, whoever that is."""
    assert visits("first_visit", 5, 1.0, 1)[1] == [1] * 5
    built = tiny.federation_of([[0, 1]] * 3, inherit="first_visit")
    start = built.build("tiny").header.bias[0].item()
    outcome = simulate(built, Counter(), 4, 0.3)
    order = lab.clients_of(outcome).query("round >= 0")["client"].tolist()
    expected: dict[int, int] = {}
    for place, client in enumerate(order):
        expected[client] = 1 + expected.get(client, expected[order[place - 1]] if place else 0)
    final = {c.id: round(c.model.header.bias[0].item() - start, 3) for c in built.clients if c.visited}
    assert final == expected and len(expected) > 1


@pytest.mark.parametrize(("num_clients", "share"), [(7, 1.0), (10, 1.0), (50, 0.2), (100, 0.1), ("40", 0.25)])
def test_ten_clients_are_selected_where_nothing_is_said(num_clients, share) -> None:
    spec = lab.resolve(RunSpec("FedSSA", dataset="cifar10", num_clients=num_clients)).spec
    assert spec.participation == share and participants(spec.num_clients, spec.participation) == min(
        10, int(num_clients)
    )
    assert lab.resolve(RunSpec("FedSSA", num_clients=num_clients, participation=0.5)).spec.participation == 0.5
