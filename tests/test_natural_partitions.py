"""Who holds what by whose it is, by size and by what it is like; own dealers that are told of indices and groups, or deal
train, validation and test themselves; newcomers.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib import Dataset, Federation, FedlibError, RunSpec, data, lab, partition, simulate, simulation
from fedlib.algorithms import make
from fedlib.partition import Dealing

fast = settings(max_examples=60, deadline=None, derandomize=True)
SPLITS = ("local-8:1:1", "local-8:0:2", "train-16:4:5", "official-4:1:1")


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# -------------------------------------------------------------------------------------------------- quantity skew


def test_quantity_skew_by_hand():
    shares = stream(5).dirichlet([0.7] * 3)
    held = partition.quantity_skew([np.zeros(1003, int)], 3, 0.7, stream(5), [1])[0]
    assert np.abs(np.array([len(own) for own in held]) - 1 - 1000 * shares).max() < 1


def test_a_small_alpha_is_more_unequal_and_too_many_clients_are_refused():
    labels = np.arange(4000) % 4
    spread = [
        np.ptp([len(own) for own in partition.quantity_skew([labels], 8, alpha, stream(1), [3])[0]])
        for alpha in (0.5, 50)
    ]
    assert spread[0] > 2 * spread[1]
    with pytest.raises(FedlibError, match="num_clients = 401: must be at most 400, that each may hold 10 images"):
        partition.quantity_skew([labels], 401, 0.5, stream(), [10])


# -------------------------------------------------------------------------------------------------- feature shift


def test_feature_shift_by_hand():
    labels, levels = np.array([0, 1, 0, 1, 0, 0, 1, 1]), np.array([5.0, 1, 3, 9, 4, 7, 2, 8])
    held = partition.feature_shift(labels, levels, 2)
    # of class 0: 3, 4 | 5, 7; of class 1: 1, 2 | 8, 9
    assert [own.tolist() for own in held] == [[1, 2, 4, 6], [0, 3, 5, 7]]


@fast
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 2**32))
def test_feature_shift_keeps_the_classes_and_orders_the_samples(clients, classes, seed):
    labels, levels = stream(seed).integers(0, classes, 200), stream(seed).random(200)
    held = partition.feature_shift(labels, levels, clients)
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(200))
    for label in range(classes):
        own = [part[labels[part] == label] for part in held]
        assert np.ptp([len(part) for part in own]) <= 1
        ordered = np.concatenate([np.sort(levels[part]) for part in own])
        assert np.array_equal(ordered, np.sort(ordered))


# -------------------------------------------------------------------------------------------------------- groups


def test_a_client_per_group_and_of_fewer_clients_the_first_groups():
    groups = np.array([2, 0, 1, 0, 2, 2, 1])
    (held,) = partition.by_group([groups], 3, stream())
    assert [own.tolist() for own in held] == [[1, 3], [2, 6], [0, 4, 5]]
    (fewer,) = partition.by_group([groups], 2, stream())
    assert [own.tolist() for own in fewer] == [[1, 3], [2, 6]]


@fast
@given(st.integers(1, 5), st.integers(1, 15), st.integers(0, 2**32))
def test_more_clients_than_groups_share_a_domain(groups, clients, seed):
    whose = stream(seed).integers(0, groups, 300)
    whose[:groups] = np.arange(groups)
    (held,) = partition.by_group([whose], clients, stream(seed))
    every = np.concatenate(held)
    assert len(every) == len(np.unique(every)) == sum(whose < min(clients, groups))
    for client, own in enumerate(held):
        assert (whose[own] == client % groups).all()
    for group in range(min(groups, clients)):
        assert np.ptp([len(held[client]) for client in range(group, clients, groups)]) <= 1


SUBJECTS, PER = 6, 40


def subjects(name: str = "subjects", official: bool = True) -> Dataset:
    """Six subjects, whose samples lie apart; the last tenth of each is the official test part."""
    whose, labels = np.repeat(np.arange(SUBJECTS), PER), np.tile(np.arange(PER) % 4, SUBJECTS)
    samples = stream().normal(0, 1, (len(whose), 6)) + whose[:, None]
    samples[np.arange(len(whose)), labels] += 4
    test = np.arange(len(whose)) % 10 == 9 if official else whose >= SUBJECTS - 2
    parts = (samples[~test], labels[~test], samples[test], labels[test])
    return Dataset.from_arrays(name, *parts, groups=(whose[~test], whose[test]))


@pytest.fixture(autouse=True)
def registered(registries):
    data.register("subjects", subjects)


def asked(name: str = "Standalone", **changes) -> RunSpec:
    usual = {
        "dataset": "subjects",
        "scenario": "MLP",
        "partition": "groups",
        "rounds": 3,
        "batch_size": 8,
        "local_epochs": 2,
    }
    return RunSpec(name, **usual | changes)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("public", [False, True])
def test_each_client_is_a_subject_whatever_the_split_and_the_public_data(split, public):
    run = lab.resolve(asked("FedMD" if public else "FedProto", overrides={"split": split}), "smoke")
    federation, whose = lab.federation_of(run), run.data.groups.numpy()
    assert run.spec.num_clients == len(federation.clients) == SUBJECTS
    official = np.arange(len(whose)) < run.data.num_train
    for client in federation.clients:
        parts = [part.numpy() for part in (client.train, client.validation, client.test)]
        assert all((whose[part] == client.id).all() for part in parts)
        assert (len(parts[1]) == 0) == (split == "local-8:0:2") and len(parts[0]) and len(parts[2])
        if split.startswith("official"):
            assert official[parts[0]].all() and official[parts[1]].all() and not official[parts[2]].any()
        if split.startswith("train"):
            assert official[np.concatenate(parts)].all()
    if public:
        held = np.concatenate([np.concatenate([c.train, c.validation, c.test]) for c in federation.clients])
        assert len(federation.public.indices) and not set(federation.public.indices.tolist()) & set(held.tolist())


def test_an_official_split_by_subject_has_clients_without_a_part_and_says_so():
    data.register("subjects", lambda: subjects(official=False))
    with pytest.raises(
        FedlibError, match=r"holds an image of each part of split official-4:1:1; client \d would hold \(\d+, \d+, 0\)"
    ):
        lab.federation_of(lab.resolve(asked(overrides={"split": "official-4:1:1"}), "smoke"))


def test_data_without_groups_cannot_be_dealt_by_them():
    with pytest.raises(FedlibError, match="partition = 'groups': must be another one, since digits does not say whose"):
        lab.resolve(RunSpec("FedSSA", dataset="digits", partition="groups"))


@pytest.mark.parametrize("dealer", ["quantity-skew", "feature-shift", "groups"])
def test_the_new_partitions_run_and_have_keys_of_their_own(dealer):
    spec = asked(partition=dealer, num_clients=4, overrides={"split": "local-8:0:2"})
    record, other = lab.run(spec, "smoke", progress=False), lab.resolve(asked(partition="iid", num_clients=4), "smoke")
    assert record.status == "finished" and record.key != other.key
    assert ("alpha" in record.hashed) == (dealer == "quantity-skew") and "classes_per_client" not in record.hashed


def test_feature_shift_gives_client_0_the_lowest_samples():
    run = lab.resolve(asked(partition="feature-shift", num_clients=3), "smoke")
    levels = run.data.levels().numpy()
    means = [levels[client.train.numpy()].mean() for client in lab.federation_of(run).clients]
    assert means == sorted(means) and means[2] > means[0] + 1
    np.testing.assert_allclose(levels, run.data.images.double().mean(1))


# ------------------------------------------------------------------------------------------------- own dealers


def test_a_dealer_is_told_which_samples_it_deals_and_whose_they_are():
    seen = []

    def by_subject(labels, num_clients, stream, *, indices, groups):
        seen.append((labels, indices, groups))
        return [np.flatnonzero(groups % num_clients == client) for client in range(num_clients)]

    partition.register("by-subject", by_subject)
    whole, whose = subjects().labels.numpy(), subjects().groups.numpy()
    held = partition.client_images(whole, 200, Dealing(3, 4, "by-subject"), 0, np.arange(0, 200, 10), whose)
    labels, indices, groups = seen[0]
    assert np.array_equal(indices, np.setdiff1d(np.arange(240), np.arange(0, 200, 10)))
    assert np.array_equal(labels, whole[indices]) and np.array_equal(groups, whose[indices])
    assert all((whose[np.concatenate(parts)] % 3 == client).all() for client, parts in enumerate(held))


def test_data_without_groups_are_dealt_without():
    partition.register(
        "none", lambda labels, num_clients, stream, groups: [[0, 1, 2], [3, 4, 5]] if groups is None else []
    )
    assert len(partition.client_images(np.zeros(6, int), 6, Dealing(2, 1, "none"), 0)) == 2


def triples(labels, num_clients, stream, indices):
    """Official training samples to train on, by client; of the others the first half to validate on."""
    held = []
    for own in np.array_split(stream.permutation(len(labels)), num_clients):
        official, rest = own[indices[own] < 216], own[indices[own] >= 216]
        held.append((official, rest[::2], rest[1::2]))
    return held


def test_own_train_validation_and_test_go_into_a_stored_run():
    partition.register("triples", triples)
    record = lab.run(asked("FedProto", partition="triples", num_clients=3), "smoke", progress=False)
    assert record.status == "finished" and record.rounds["validation_accuracy"].notna().all()
    run = lab.resolve(record.spec)
    federation = lab.federation_of(run)
    for client in federation.clients:
        assert (client.train < 216).all() and (client.validation >= 216).all() and (client.test >= 216).all()
    assert sum(len(c.train) + len(c.validation) + len(c.test) for c in federation.clients) == 240
    assert lab.read(record.path).key == record.key == run.key


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ([([0], [1], [2]), [3, 4, 5]], "partition own: what a client gets = 'arrays and"),
        ([([0], [1], [2]), ([3], [4], [2])], "partition own: index = 2: must be between 0 and 239, and dealt once"),
        ([([0], [1], [2]), ([3], [4], [240])], "partition own: index = 240: must be between 0 and 239, and dealt once"),
        ([([0], [1], [2.5]), ([3], [4], [5])], "partition own: client 0 = 'float64'"),
        ([[0, 1, 2], [3, 4, 5.5]], "partition own: client 1 = 'float64': must be a 1-d array of whole numbers"),
        ([([0], [1], [2])], "partition own: number of clients = 1: must be 2"),
        ([([0], [], [2]), ([3], [4], [5])], "num_clients = 2: must be few enough"),
    ],
)
def test_parts_that_do_not_fit_are_one_line(parts, line):
    partition.register("own", lambda labels, n, stream: parts)
    with pytest.raises(FedlibError) as error:
        lab.federation_of(lab.resolve(asked(partition="own", num_clients=2), "smoke"))
    assert str(error.value).startswith(line)


def test_triples_under_a_split_of_official_parts_are_refused():
    partition.register("own", triples)
    line = "^partition own: what a client gets = 'train, validation and test': must be one array under split"
    with pytest.raises(FedlibError, match=line):
        lab.federation_of(
            lab.resolve(asked(partition="own", num_clients=2, overrides={"split": "official-4:1:1"}), "smoke")
        )


def test_a_triple_without_validation_is_one_of_a_split_without():
    partition.register("own", lambda labels, n, stream: [([0, 1], [], [2]), ([3, 7], [], [5])])
    run = lab.resolve(asked(partition="own", num_clients=2, overrides={"split": "local-8:0:2"}), "smoke")
    assert [len(client.validation) for client in lab.federation_of(run).clients] == [0, 0]
    partition.register("own", lambda labels, n, stream: [(0, 1, 2), (3, 4, 5)])  # of numbers, so no triples of arrays
    (first, *_) = partition.deal_registered("own", np.zeros(6, int), 2, stream())
    assert first.tolist() == [0, 1, 2]


# ---------------------------------------------------------------------------------------------------- newcomers


def test_newcomers_take_part_in_the_last_round_alone_which_is_theirs():
    spec = asked("FedProto", newcomers=2, participation=0.5, rounds=4)
    record = lab.run(spec, "smoke", progress=False)
    trained = record.clients[record.clients["round"] >= 0]
    last, before = (set(trained[trained["round"] == 3]["client"]), set(trained[trained["round"] < 3]["client"]))
    federation = lab.federation_of(lab.resolve(spec, "smoke"))
    assert last == set(federation.newcomers.tolist()) and len(last) == 2 and not last & before
    assert before <= set(federation.members.tolist()) and set(range(SUBJECTS)) == last | set(
        federation.members.tolist()
    )
    assert (record.rounds[record.rounds["round"] < 3]["selected"].iloc[1:] == 2).all()  # half of four members
    assert record.hashed["newcomers"] == 2 and "newcomers=2" in lab.differences(record.spec)


def test_who_is_new_is_drawn_by_the_seed_and_nobody_is_without():
    drawn = {
        tuple(lab.federation_of(lab.resolve(asked(newcomers=2, seed=seed), "smoke")).newcomers) for seed in range(6)
    }
    assert len(drawn) > 1
    federation = lab.federation_of(lab.resolve(asked(), "smoke"))
    assert len(federation.newcomers) == 0
    for round in range(3):  # as it always was
        found = simulation.clients_of_round(federation, round, 3, 0.5)
        assert np.array_equal(found, simulation.sampled_clients(0, round, SUBJECTS, 0.5))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"newcomers": 6}, "newcomers = 6: must be between 0 and 5, fewer than there are clients"),
        ({"newcomers": -1}, "newcomers = -1: must be between 0 and 5"),
        ({"newcomers": 1, "rounds": 1}, "rounds = 1: must be at least 2, of which the last is the newcomers'"),
        ({"newcomers": "some"}, "newcomers = 'some': must be a whole number"),
        ({"newcomer_visits": 2}, "newcomer_visits = 2: must be 0 where there are no newcomers"),
    ],
)
def test_newcomers_that_cannot_be_are_one_line(changes, line):
    with pytest.raises(FedlibError) as error:
        lab.resolve(asked(**changes), "smoke")
    assert str(error.value).startswith(line)


def test_a_federation_of_ones_own_has_newcomers_too():
    made = Federation(subjects(), [np.arange(40), np.arange(40, 80)], ("MLP",), newcomers=1)
    assert len(made.newcomers) == len(made.members) == 1
    with pytest.raises(FedlibError, match="newcomers = 2: must be between 0 and 1"):
        Federation(subjects(), [np.arange(40), np.arange(40, 80)], ("MLP",), newcomers=2)
    with pytest.raises(FedlibError, match="rounds = 1: must be at least 2"):
        simulate(made, make("Standalone"), 1)
