import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedlib import FedlibError, lab, partition
from fedlib.randomness import generator

fast = settings(max_examples=60, deadline=None, derandomize=True)


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def labelled(per_class: int, num_classes: int, seed: int = 0) -> np.ndarray:
    return stream(seed).permutation(np.repeat(np.arange(num_classes), per_class))


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def assert_disjoint(held: list[np.ndarray], total: int) -> None:
    indices = np.concatenate(held)
    assert indices.dtype == np.int64
    assert len(np.unique(indices)) == len(indices)
    assert len(indices) == 0 or (indices.min() >= 0 and indices.max() < total)


@st.composite
def class_settings(draw):
    num_classes = draw(st.integers(2, 20))
    return {
        "num_clients": draw(st.integers(1, 30)),
        "num_classes": num_classes,
        "classes_per_client": draw(st.integers(1, num_classes)),
        "seed": draw(st.integers(0, 2**32)),
    }


@fast
@given(class_settings(), st.booleans())
def test_class_shares(setting, distinct):
    seed = setting.pop("seed")
    n, c, k = setting["num_clients"], setting["num_classes"], setting["classes_per_client"]
    shares = partition.class_shares(**setting, stream=stream(seed), distinct=distinct)
    assert shares.shape == (n, c)
    held = (shares > 0).sum(axis=1)
    assert (held == k).all() if distinct else ((held >= 1) & (held <= k)).all()
    slots = n * k // c  # of a class, one more for those that get a missing slot
    dealt = shares.sum(axis=0)  # every slot is taken: classes with slots are dealt out whole
    assert np.allclose(dealt[dealt > 0], 1)
    assert (dealt > 0).sum() == min(c, n * k)
    if distinct:
        owners = (shares > 0).sum(axis=0)
        assert set(owners) <= {slots, slots + 1} and (owners == slots + 1).sum() == n * k % c
        for number in range(1, int(owners.max()) + 1):  # a share is U(0.4, 0.6) over the sum of its class's draws
            mine = shares[:, owners == number]
            mine = mine[mine > 0]
            low, high = 0.4 / (0.4 + 0.6 * (number - 1)), 0.6 / (0.6 + 0.4 * (number - 1))
            assert ((mine >= low - 1e-9) & (mine <= high + 1e-9)).all()


@fast
@given(st.integers(2, 12), st.integers(1, 15), st.integers(0, 200), st.integers(0, 2**32))
def test_deal_is_within_an_image_of_the_shares(num_classes, num_clients, per_class, seed):
    labels = labelled(per_class, num_classes)
    shares = stream(seed).dirichlet(np.ones(num_clients), size=num_classes).T
    held = partition.deal(labels, shares, stream(seed))
    assert_disjoint(held, len(labels))
    table = lab.counts(labels, held, num_classes).to_numpy()
    assert (np.abs(table - shares * per_class) < 1 + 1e-6).all()
    assert table.sum() == len(labels)


DEALERS = {  # of so many classes: labels, clients, classes a client and alpha -> who holds what; and at least how many each
    "iid": (lambda labels, n, k, alpha, c, draws: partition.iid([labels], n, draws), 0),
    "by-class": (lambda labels, n, k, alpha, c, draws: partition.by_class([labels], n, c, k, draws), 0),
    "dirichlet": (lambda labels, n, k, alpha, c, draws: partition.dirichlet([labels], n, alpha, draws, [3]), 3),
    "quantity-skew": (lambda labels, n, k, alpha, c, draws: partition.quantity_skew([labels], n, alpha, draws, [3]), 3),
    "feature-shift": (lambda labels, n, k, alpha, c, draws: [partition.feature_shift(labels, draws.random(len(labels)), n)], 0),
}  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(DEALERS)), class_settings(), st.integers(1, 40), st.floats(0.01, 100))
def test_what_is_dealt_is_dealt_once_whole_and_again_alike(dealer, setting, per_class, alpha):
    n, c, k = setting["num_clients"], setting["num_classes"], setting["classes_per_client"]
    deal, least = DEALERS[dealer]
    labels = labelled(per_class, c)
    try:
        held, again = (deal(labels, n, k, alpha, c, stream(setting["seed"]))[0] for _ in range(2))
    except FedlibError:
        assume(least == 0)  # 3 images for each client may be more than there are
        raise
    assert_disjoint(held, len(labels))
    assert len(held) == n and same(held, again) and min(map(len, held)) >= least
    if dealer != "by-class" or n * k >= c:  # or else some classes have no slot
        assert sum(map(len, held)) == len(labels)
    if dealer == "by-class":  # fewer only where a share is less than an image
        assert ((lab.counts(labels, held, c) > 0).sum(axis=1) <= k).all()
    if dealer == "iid":
        assert np.ptp([len(part) for part in held]) <= 1


def test_dirichlet_small_alpha_is_skewed_and_large_is_not():
    labels = labelled(500, 10)
    spread = {
        alpha: lab.counts(labels, partition.dirichlet([labels], 10, alpha, stream(), [10])[0], 10).to_numpy().std()
        for alpha in (0.1, 1.0, 1000.0)
    }
    assert spread[0.1] > spread[1.0] > spread[1000.0] and spread[1000.0] < 5


def test_dirichlet_gives_up_after_100_draws(monkeypatch):
    draws = []
    draw = partition.dirichlet_shares
    monkeypatch.setattr(partition, "dirichlet_shares", lambda *a: draws.append(1) or draw(*a))
    with pytest.raises(FedlibError, match=r"alpha = 0.01: none of 100 .* 20 clients 10 images"):
        partition.dirichlet([labelled(20, 10)], 20, 0.01, stream(), [10])
    assert len(draws) == 100


def test_dirichlet_redraws_until_every_part_has_enough():
    """Fifty training images are enough in most draws; five of forty test images to each of five clients in few."""
    train, test = labelled(100, 4), labelled(10, 4)
    for seed in range(10):
        held = partition.dirichlet([train, test], 5, 0.5, stream(seed), [10, 5])
        assert min(map(len, held[0])) >= 10
        assert min(map(len, held[1])) >= 5


def test_a_dealer_may_change_what_it_is_given(monkeypatch):
    """In vain: labels and stream of the caller stay."""

    def spoils(labels, num_clients, stream):
        labels[:] = 0
        return np.array_split(np.arange(len(labels)), num_clients)

    monkeypatch.setitem(partition.REGISTERED, "spoils", spoils)
    labels = labelled(5, 4)
    before = labels.copy()
    assert len(partition.deal_registered("spoils", labels, 2, stream())) == 2
    assert np.array_equal(labels, before)


def test_a_dealer_that_deals_one_client_otherwise_is_found_out(monkeypatch):
    calls = []

    def otherwise(labels, num_clients, stream):
        calls.append(1)
        return [np.array([0, 1]), np.array([2, 3 if len(calls) % 2 else 4])]

    monkeypatch.setitem(partition.REGISTERED, "otherwise", otherwise)
    with pytest.raises(FedlibError, match="partition otherwise: called twice, begun alike, it deals otherwise"):
        partition.deal_registered("otherwise", labelled(5, 4), 2, stream())


@fast
@given(st.integers(3, 400), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_largest_remainder(total, parts):
    sizes = partition.sizes_by_largest_remainder(total, tuple(parts))
    quota = total * np.array(parts) / sum(parts)
    assert sizes.sum() == total and sizes.min() >= 1
    if np.floor(quota).min() >= 1:
        assert (np.abs(sizes - quota) < 1).all()
        up = sizes > np.floor(quota)  # those rounded up have the largest remainders
        if up.any() and not up.all():
            remainder = quota - np.floor(quota)
            assert remainder[up].min() >= remainder[~up].max() - 1e-9


@pytest.mark.parametrize(
    ("total", "sizes"),
    # 14: quotas 11.2, 1.4, 1.4 round down to 11, 1, 1, and the one left goes to the first of the equal remainders
    # 16: quotas 12.8, 1.6, 1.6 round down to 12, 1, 1, and the two left go to 0.8 and the first 0.6
    [(3, (1, 1, 1)), (4, (2, 1, 1)), (10, (8, 1, 1)), (14, (11, 2, 1)), (16, (13, 2, 1)), (1000, (800, 100, 100))],
)
def test_largest_remainder_by_hand(total, sizes):
    assert tuple(partition.sizes_by_largest_remainder(total, (8, 1, 1))) == sizes


@pytest.mark.parametrize(
    ("total", "sizes"), [(2, (1, 0, 1)), (3, (2, 0, 1)), (4, (3, 0, 1)), (10, (8, 0, 2)), (7, (6, 0, 1))]
)
def test_a_part_of_0_stays_empty(total, sizes):
    assert tuple(partition.sizes_by_largest_remainder(total, (8, 0, 2))) == sizes
    parts = partition.local_split(np.arange(total) % 2, np.arange(total), stream(), (8, 0, 2))
    assert tuple(map(len, parts)) == sizes


@pytest.mark.parametrize(("count", "classes"), [(6, [3, 2, 1]), (1, [1, 0, 0]), (60, [30, 20, 10]), (99, [30, 20, 10])])
def test_stratified(count, classes):
    labels, indices = np.repeat([0, 1, 2], [60, 40, 20]), np.arange(0, 120, 2)
    chosen = partition.stratified(labels, indices, count, stream())
    assert np.bincount(labels[chosen], minlength=3).tolist() == classes
    assert np.isin(chosen, indices).all() and (np.diff(chosen) > 0).all()


@fast
@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(0, 2**32))
def test_local_split(held, seed):
    labels = np.repeat(np.arange(len(held)), held)
    assume(len(labels) >= 3)
    indices = np.arange(len(labels))
    parts = partition.local_split(labels, indices, stream(seed))
    assert_disjoint(parts, len(labels))
    assert np.array_equal(np.sort(np.concatenate(parts)), indices)
    assert np.array_equal([len(p) for p in parts], partition.sizes_by_largest_remainder(len(labels), (8, 1, 1)))
    assert min(len(p) for p in parts) >= 1
    for label, count in enumerate(held):  # stratified: a class's part is within two images of its 8:1:1
        found = np.array([np.sum(labels[p] == label) for p in parts])
        assert (np.abs(found - count * np.array([0.8, 0.1, 0.1])) <= 2).all()
    assert same(parts, partition.local_split(labels, indices, stream(seed)))


def test_seeds_differ():
    labels = labelled(50, 10)
    assert not same(*(partition.by_class([labels], 10, 10, 2, stream(seed))[0] for seed in (0, 1)))


def test_ten_clients_on_cifar100_share_no_class():
    labels = labelled(600, 100)
    table = lab.counts(labels, partition.by_class([labels], 10, 100, 10, stream())[0], 100)
    assert (lab.owners(table) == 1).all()
    assert (table.sum(axis=1) == 6000).all()


@pytest.mark.parametrize(
    ("num_classes", "k", "num_clients", "smallest", "mean", "largest"),
    # training images a client, measured on the released loader (five seeds), which partitions 40 000 of them
    [
        (10, 2, 10, 3642, 3999, 4341),
        (10, 2, 50, 670, 799, 928),
        (10, 2, 100, 328, 399, 472),
        (100, 10, 10, 4000, 4000, 4000),
        (100, 10, 50, 738, 795, 859),
        (100, 10, 100, 363, 395, 431),
    ],
)
def test_sizes_of_the_papers_partitions(num_classes, k, num_clients, smallest, mean, largest):
    labels = labelled(40_000 // num_classes, num_classes)
    sizes = np.array(
        [[len(p) for p in partition.by_class([labels], num_clients, num_classes, k, stream(s))[0]] for s in range(5)]
    )
    measured = [sizes.min(axis=1).mean(), sizes.mean(), sizes.max(axis=1).mean()]
    np.testing.assert_allclose(measured, [smallest, mean, largest], rtol=0.03)
    assert (sizes.sum(axis=1) == 40_000).all()  # cuts at cumulative shares lose nothing to rounding


@fast
@given(
    class_settings(),
    st.sampled_from(partition.BUILT_IN),
    st.sampled_from(["local-8:1:1", "local-8:0:2", "train-16:4:5", "official-4:1:1"]),
    st.sampled_from([0.0, 0.1, 0.5]),
)
def test_the_whole_way_from_labels_to_each_clients_parts(setting, how, split, fraction):
    seed, c, num_train = setting.pop("seed"), setting["num_classes"], 30 * setting["num_classes"]
    labels = np.concatenate([labelled(30, c, 1), labelled(6, c, 2)])
    reserved = partition.reserved_images(labels, num_train, fraction, seed) if fraction else ()
    dealing = partition.Dealing(**setting, partition=how, split=split, alpha=5.0)
    groups, levels = stream(seed).integers(0, 4, len(labels)), stream(seed).random(len(labels))

    def deal():
        return partition.client_images(labels, num_train, dealing, seed, reserved, groups, levels)

    try:
        held = deal()
    except FedlibError as error:  # some clients would hold too little: said, not done
        said = ("few enough (or dealt evenly enough) that each holds 3 images", "Dirichlet draws", "that each may hold")
        assert any(line in str(error) for line in said)
        return
    assert len(held) == setting["num_clients"] and all(
        same(one, again) for one, again in zip(held, deal(), strict=True)
    )
    every = np.concatenate([part for parts in held for part in parts])
    assert len(np.unique(every)) == len(every) and not np.isin(every, reserved).any()
    shares = partition.parts_of(split)
    if split == "official-4:1:1":
        train, validation, test = (np.concatenate(parts) for parts in zip(*held, strict=True))
        assert (test >= num_train).all() and (train < num_train).all() and (validation < num_train).all()
    else:
        assert all(len(part) > 0 for parts in held for part, share in zip(parts, shares, strict=True) if share)
        assert all(len(part) == 0 for parts in held for part, share in zip(parts, shares, strict=True) if not share)
    if split.startswith("train"):
        assert (every < num_train).all()
    public = partition.public_images(labels, num_train, 0.5, seed, 7)
    assert len(public) == 7 and np.isin(public, partition.reserved_images(labels, num_train, 0.5, seed)).all()


def shards_of(
    num_clients: int, labels: np.ndarray, num_train: int, split: str = "train-16:4:5", seed: int = 0, k: int = 2
):
    dealing = partition.Dealing(num_clients, 10, classes_per_client=k, split=split, dealing="shards")
    reserved = partition.reserved_images(labels, num_train, 0.1, seed) if num_train == 50_000 else ()
    return partition.client_images(labels, num_train, dealing, seed, reserved)


def test_shards_by_hand():
    """100 images, two classes, two clients: 10 shards of 10 in the order of labels, two each. Of each the last fifth is to
    test on; four fifths of the 16 left, 12, are to train on: the first shard's 8, and 4 of the second.
    """
    labels = np.repeat([1, 0], 50)  # so the first of the sorted are images 50, 51, ...
    order = [*range(50, 100), *range(50)]
    drawn = generator(0, "partition").permutation(10)
    for client, (train, validation, test) in enumerate(shards_of(2, labels, 100)):
        one, other = (order[10 * shard : 10 * shard + 10] for shard in drawn[2 * client : 2 * client + 2])
        assert train.tolist() == sorted(one[:8] + other[:4])
        assert validation.tolist() == sorted(other[4:8]) and test.tolist() == sorted(one[8:] + other[8:])


@pytest.mark.parametrize("num_clients", [12, 100])
def test_shards_of_the_released_pfedhr(num_clients):
    """CIFAR-10 less its public tenth: 200 shards of 225, 20 a class, of 45 000; 288, 72 and 90 images a client, 180 and 108 of
    the two shards, which may be of one class.
    """
    labels = np.concatenate([labelled(5000, 10), labelled(1000, 10)])
    held = shards_of(num_clients, labels, 50_000)
    assert {tuple(map(len, parts)) for parts in held} == {(288, 72, 90)}
    every = np.concatenate([part for parts in held for part in parts])
    assert len(np.unique(every)) == len(every) == 450 * num_clients and every.max() < 50_000
    kinds = {tuple(sorted(np.unique(labels[train], return_counts=True)[1].tolist())) for train, _, _ in held}
    assert kinds <= {(108, 180), (288,)} and (108, 180) in kinds
    assert num_clients < 100 or (288,) in kinds  # about one client in ten
    others = shards_of(num_clients, labels, 50_000, seed=1)
    assert not all(same(one, other) for one, other in zip(held, others, strict=True))


@fast
@given(
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(30, 400),
    st.sampled_from(["train-16:4:5", "local-8:1:1", "local-8:0:2"]),
)
def test_shards_are_nobodys_twice(num_clients, k, per_class, split):
    labels = labelled(per_class, 10)
    try:
        held = shards_of(num_clients, labels, len(labels), split, k=k)
    except FedlibError as error:
        assert "num_clients" in str(error) and len(labels) // (num_clients * k) < 3
        return
    every = np.concatenate([part for parts in held for part in parts])
    assert len(np.unique(every)) == len(every) and len(held) == num_clients
    shares = partition.parts_of(split)
    assert all((len(part) > 0) == (share > 0) for parts in held for part, share in zip(parts, shares, strict=True))
    assert all(len(np.unique(labels[np.concatenate(parts)])) <= 2 * k for parts in held)
    assert len({len(np.concatenate(parts)) for parts in held}) == 1


def test_how_many_shards_there_are():
    """200 where there are images for them, fewer of 10 images at least, and as many as are taken in any case."""
    found = {(45_000, 24): 200, (45_000, 300): 300, (1_500, 24): 150, (108, 16): 16, (5, 2): 2}
    assert {given: partition.num_shards(*given) for given in found} == found


def test_the_images_of_a_class_are_shuffled_before_they_are_dealt():
    labels = np.repeat([0, 1], 100)
    held = partition.deal(labels, np.full((2, 2), 0.5), stream())
    for label in (0, 1):
        mine = held[0][labels[held[0]] == label]
        assert len(mine) == 50 and not np.array_equal(mine, np.arange(50) + 100 * label)
        assert 20 < mine.mean() - 100 * label < 80  # from all over the class
    assert not same(held, partition.deal(labels, np.full((2, 2), 0.5), stream(1)))
