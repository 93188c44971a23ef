"""Who holds which images, the whole way: labels in, each client's (train, validation, test) indices out. Pure functions
of labels, settings and a seed.

`public_images` and `reserved_images` are held by no client. `client_images` deals the rest: by class (in slots or in
shards), by Dirichlet shares, independently (`iid`), in shares of unequal size (`quantity-skew`), by what samples are like
(`feature-shift`), by whose they are (`groups`) or as a person registered it, and splits each client's images. A matrix of shares
(clients x classes: the part of a class that a client receives) is dealt out by `deal`; the same shares dealt on a train,
a validation and a test part give a client the same mix of classes in all three.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import FedlibError, check_name, coerce, others_code, require
from .randomness import fork_everything, generator

MAX_REDRAWS = 100
SHARDS, SMALLEST_SHARD = 200, 10  # of a data set: 200 (pFedHR's code), or as many of 10 images as there are (*chosen*)
BUILT_IN = ("by-class", "dirichlet", "iid", "quantity-skew", "feature-shift", "groups")

# (labels (n,), number of clients, stream) -> for each client, the places in `labels` of the images that it holds
Dealer = Callable[..., Sequence[np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]]]
REGISTERED: dict[str, Dealer] = {}


def register(name: str, dealer: Dealer) -> None:
    """Make a partition of your own known to `RunSpec` as `name`; registering again replaces it.

    dealer: `dealer(labels, num_clients, stream)` returns one index array into `labels` per client; no index twice.
    labels: of what it may deal (n,), not of all images: some may be public. A dealer with parameters called `indices` or
    `groups` also gets which images of the data set these are, and whose each is (`Dataset.groups`, None where that is
    not known), int64 (n,). It may return a (train, validation, test) tuple of index arrays per client: these are then the
    client's parts, whatever the protocol's split says of their sizes. Under split official-4:1:1, which calls it for
    each official part, it returns arrays.
    """
    check_name("partition", name)
    require(name not in BUILT_IN, "partition", name, "another name than a built-in one's")
    require(callable(dealer), f"dealer of {name}", dealer, "a function of (labels, number of clients, stream)")
    REGISTERED[name] = dealer


Parts = tuple[np.ndarray, np.ndarray, np.ndarray]  # one client's train, validation and test images


@dataclass(frozen=True)
class Dealing:
    """How images are dealt; the fields are explained by `RunSpec` (partition to alpha) and `Protocol` (split to dealing)."""

    num_clients: int
    num_classes: int
    partition: str = "by-class"
    classes_per_client: int = 2
    alpha: float = 0.5
    split: str = "local-8:1:1"
    distinct: bool = True
    floors: bool = False
    dealing: str = "slots"


def parts_of(split: str) -> tuple[int, int, int]:
    """How `Protocol.split` divides a client's images into train, validation and test, such as (8, 1, 1)."""
    train, validation, test = map(int, split.partition("-")[2].split(":"))
    return train, validation, test


def reserved_images(labels: np.ndarray, num_train: int, fraction: float, seed: int) -> np.ndarray:
    """Sorted indices of the training images that no client holds: a `fraction` of the first `num_train` of `labels`."""
    return hold_out(labels[:num_train], fraction, generator(seed, "public"))


def public_images(
    labels: np.ndarray, num_train: int, fraction: float, seed: int, limit: int | None = None
) -> np.ndarray:
    """Sorted indices of the public ones: the reserved images, or `limit` of them."""
    stream = generator(seed, "public")
    indices = hold_out(labels[:num_train], fraction, stream)
    return indices if limit is None else stratified(labels, indices, limit, stream)


def client_images(
    labels: np.ndarray,
    num_train: int,
    how: Dealing,
    seed: int,
    reserved: Sequence[int] | np.ndarray = (),
    groups: np.ndarray | None = None,
    levels: np.ndarray | None = None,
) -> list[Parts]:
    """Each client's (train, validation, test) indices into `labels` (n,), of which the first `num_train` are the official
    training part; nobody gets a `reserved` one.

    groups: whose each image is (n,), for the partition `groups`; levels: a number of each image (n,), for
    `feature-shift`. Raises FedlibError where a client would hold too few.
    """
    stream = generator(seed, "partition")
    private = np.setdiff1d(np.arange(len(labels)), np.asarray(reserved, dtype=np.int64))
    source = how.split.partition("-")[0]
    if source == "official":
        shuffled = stream.permutation(private[private < num_train])
        train, validation = np.split(shuffled, [len(shuffled) * 4 // 5])
        test = private[private >= num_train]
        parts = [train, validation, test]
        return list(zip(*_deal_to_clients(labels, parts, how, stream, groups, levels), strict=True))
    if source == "train":
        private = private[private < num_train]
    if how.partition == "by-class" and how.dealing == "shards":
        return shards(labels, private, how.num_clients, how.classes_per_client, parts_of(how.split), stream)
    if how.partition not in BUILT_IN:
        dealt = deal_registered(how.partition, labels[private], how.num_clients, stream, private, groups)
        if isinstance(dealt[0], tuple):
            return [(private[train], private[validation], private[test]) for train, validation, test in dealt]
        held = [private[own] for own in dealt]
    else:
        held = _deal_to_clients(labels, [private], how, stream, groups, levels)[0]
    return [split_client(labels, own, parts_of(how.split), seed, client, len(held)) for client, own in enumerate(held)]


def _deal_to_clients(
    labels: np.ndarray,
    parts: list[np.ndarray],
    how: Dealing,
    stream: np.random.Generator,
    groups: np.ndarray | None,
    levels: np.ndarray | None,
) -> list[list[np.ndarray]]:
    """Each of `parts` (indices into `labels`) dealt to the clients, by the same shares of the classes."""
    of_parts, clients = [labels[part] for part in parts], how.num_clients
    if how.partition == "by-class":
        held = by_class(
            of_parts,
            clients,
            how.num_classes,
            how.classes_per_client,
            stream,
            distinct=how.distinct,
            floors=how.floors,
        )
    elif how.partition in ("dirichlet", "quantity-skew"):
        least = min(10, len(parts[0]) // (2 * clients))
        least_each = [max(3, least)] if len(parts) == 1 else [max(1, least), 1, 1]
        if how.partition == "dirichlet":
            held = dirichlet(of_parts, clients, how.alpha, stream, least_each, floors=how.floors)
        else:
            held = quantity_skew(of_parts, clients, how.alpha, stream, least_each)
    elif how.partition == "iid":
        held = iid(of_parts, clients, stream)
    elif how.partition == "feature-shift":
        require(levels is not None, "levels", levels, "given, a number of each image")
        held = [feature_shift(own, levels[part], clients) for own, part in zip(of_parts, parts, strict=True)]  # type: ignore[index]
    elif how.partition == "groups":
        require(groups is not None, "partition", "groups", "another one, since nothing says whose these samples are")
        held = by_group([groups[part] for part in parts], clients, stream)  # type: ignore[index]
    else:
        held = []
        for own, part in zip(of_parts, parts, strict=True):
            dealt = deal_registered(how.partition, own, clients, stream, part, groups)
            require(
                not isinstance(dealt[0], tuple),
                f"partition {how.partition}: what a client gets",
                "train, validation and test",
                f"one array under split {how.split}, which calls it for each official part",
            )
            held.append(dealt)
    return [[part[own] for own in owns] for part, owns in zip(parts, held, strict=True)]


def split_client(
    labels: np.ndarray, indices: np.ndarray, parts: tuple[int, int, int], seed: int, client: int, num_clients: int
) -> Parts:
    """One client's images split into train, validation and test by `parts`, see `local_split`."""
    allowed = f"few enough (or dealt evenly enough) that each holds 3 images or more; client {client} would hold {len(indices)}"
    require(len(indices) >= 3, "num_clients", num_clients, allowed)
    train, validation, test = local_split(labels, indices, generator(seed, "partition", client=client), parts)
    return train, validation, test


def _at_least_one(field: str, value: int) -> int:
    number = coerce(field, value, int)
    require(1 <= number < 2**31, field, number, "at least 1, and below 2**31")
    return number


def class_shares(
    num_clients: int,
    num_classes: int,
    classes_per_client: int,
    stream: np.random.Generator,
    *,
    distinct: bool = True,
) -> np.ndarray:
    """Shares of the class partition of Shamsian et al. (ICML 2021), as the FedGH, FedSSA and pFedES papers use it.

    Each class has floor(k N / C) slots whose sizes are U(0.4, 0.6) draws normalised to 1. Clients in turn pick k
    times among the classes with most slots left. Where k N is not a multiple of C, randomly chosen classes get the
    slots that are missing. So in Shamsian's code of 2021 and the papers' released code. Since November 2022 (47c957d of
    AvivSham/pFedHN) Shamsian's has one more slot a class, whose images nobody gets: a third of CIFAR-10's with N = 10, k = 2.

    distinct: a client never picks the same class twice (False: it may, as in the released code, for k such as 4, 6 or
    8 of 10). Returns float64 (num_clients, num_classes); a class that has no slot is left out.
    """
    num_clients, num_classes = _at_least_one("num_clients", num_clients), _at_least_one("num_classes", num_classes)
    classes_per_client = coerce("classes_per_client", classes_per_client, int)
    require(
        1 <= classes_per_client <= num_classes,
        "classes_per_client",
        classes_per_client,
        f"between 1 and {num_classes}, the number of classes",
    )
    wanted = num_clients * classes_per_client
    slots = np.full(num_classes, wanted // num_classes)
    slots[stream.choice(num_classes, wanted % num_classes, replace=False)] += 1
    unused = [
        list(sizes / sizes.sum()) if len(sizes) else []
        for sizes in (stream.uniform(0.4, 0.6, count) for count in slots)
    ]

    shares = np.zeros((num_clients, num_classes))
    for client in range(num_clients):
        for _ in range(classes_per_client):
            left = np.array([len(sizes) for sizes in unused])
            if distinct:
                left[shares[client] > 0] = -1
            chosen = stream.choice(np.flatnonzero(left == left.max()))
            shares[client, chosen] += unused[chosen].pop()
    return shares


def num_shards(num_images: int, taken: int) -> int:
    """Into how many shards images are cut of which clients take so many (see `shards`)."""
    return max(taken, min(SHARDS, num_images // SMALLEST_SHARD))


def shards(
    labels: np.ndarray,
    indices: np.ndarray,
    num_clients: int,
    shards_per_client: int,
    parts: tuple[int, int, int],
    stream: np.random.Generator,
) -> list[Parts]:
    """Each client's (train, validation, test), sorted int64, as pFedHR's released code deals: images in a row by label, cut
    into equal shards, of which each client draws some, at random and possibly of one class; what is left over goes unused.

    Of each shard the last part is to test on; of what is left of all of them, one after the other, the first part is to train
    on: with two shards of 225 images, as CIFAR-10 has, and parts (16, 4, 5), 180 of one and 108 of the other, 72 and 90. In
    the code two clients may draw the same shard; here nobody's is another's. Raises FedlibError where a shard would have
    fewer than 3 images.
    """
    taken = num_clients * shards_per_client
    count = num_shards(len(indices), taken)
    size = len(indices) // count
    allowed = (
        f"few enough that each of {taken} shards has 3 images or more; {len(indices)} images make shards of {size}"
    )
    require(size >= 3, "num_clients", num_clients, allowed)
    rows = indices[np.argsort(labels[indices], kind="stable")][: count * size].reshape(count, size)
    tested = max(1, size * parts[2] // sum(parts))
    held: list[Parts] = []
    for drawn in stream.permutation(count)[:taken].reshape(num_clients, shards_per_client):
        own = rows[drawn]
        left, cut = own[:, : size - tested].ravel(), (size - tested) * shards_per_client * parts[0] // sum(parts[:2])
        held.append((np.sort(left[:cut]), np.sort(left[cut:]), np.sort(own[:, size - tested :].ravel())))
    return held


def dirichlet_shares(num_clients: int, num_classes: int, alpha: float, stream: np.random.Generator) -> np.ndarray:
    """Shares of one draw of the Dirichlet partition: a class is spread over the clients by Dir(alpha, ..., alpha)."""
    return stream.dirichlet(np.full(num_clients, alpha), size=num_classes).T


def deal(
    labels: np.ndarray, shares: np.ndarray, stream: np.random.Generator, *, floors: bool = False
) -> list[np.ndarray]:
    """Shuffle the images of each class and deal them to the clients by `shares` (clients x classes).

    Cuts are the rounded-down cumulative shares, so a class whose shares sum to 1 is dealt out whole and a client's
    count is within one image of its share. floors: each share is rounded down by itself and what is left over goes
    unused, as in the released code. Returns one sorted int64 index array per client; no index appears twice.
    """
    held: list[list[np.ndarray]] = [[] for _ in shares]
    for label in range(shares.shape[1]):
        indices = stream.permutation(np.flatnonzero(labels == label))
        sizes = shares[:, label] * len(indices)
        cuts = (np.cumsum(np.floor(sizes)) if floors else np.floor(np.cumsum(sizes) + 1e-9)).astype(int)
        for client, part in enumerate(np.split(indices, cuts)[:-1]):
            held[client].append(part)
    return [np.sort(np.concatenate(parts)) for parts in held]


def by_class(
    parts: Sequence[np.ndarray],
    num_clients: int,
    num_classes: int,
    classes_per_client: int,
    stream: np.random.Generator,
    *,
    distinct: bool = True,
    floors: bool = False,
) -> list[list[np.ndarray]]:
    """Partition by classes per client: `class_shares` dealt out on each of `parts` (labels); for each of them, one index
    array per client.
    """
    shares = class_shares(num_clients, num_classes, classes_per_client, stream, distinct=distinct)
    return [deal(labels, shares, stream, floors=floors) for labels in parts]


def dirichlet(
    parts: Sequence[np.ndarray],
    num_clients: int,
    alpha: float,
    stream: np.random.Generator,
    min_sizes: Sequence[int],
    *,
    floors: bool = False,
) -> list[list[np.ndarray]]:
    """Dirichlet partition of each of `parts` (labels) by the same shares, redrawn until every client holds `min_sizes`
    images of it, at most 100 times.

    alpha > 0: small is skewed, large approaches IID. Raises FedlibError when no draw is large enough (no endless
    loop).
    """
    num_clients, alpha = _at_least_one("num_clients", num_clients), coerce("alpha", alpha, float)
    require(alpha > 0, "alpha", alpha, "above 0")
    smallest = 0
    for _ in range(MAX_REDRAWS):
        shares = dirichlet_shares(num_clients, int(parts[0].max()) + 1, alpha, stream)
        held = [deal(labels, shares, stream, floors=floors) for labels in parts]
        sizes = [min(map(len, clients)) for clients in held]
        smallest = max(smallest, sizes[0])
        if all(size >= least for size, least in zip(sizes, min_sizes, strict=True)):
            return held
    raise FedlibError(
        f"alpha = {alpha}: none of {MAX_REDRAWS} Dirichlet draws gave each of {num_clients} clients "
        f"{min_sizes[0]} images (best draw: {smallest}); use fewer clients or a larger alpha"
    )


def quantity_skew(
    parts: Sequence[np.ndarray], num_clients: int, alpha: float, stream: np.random.Generator, min_sizes: Sequence[int]
) -> list[list[np.ndarray]]:
    """Clients of unequal size: each of `parts` (labels) is shuffled and dealt in the shares of one draw of Dir(alpha, ...,
    alpha) over the clients (Li et al., ICDE 2022), after each has received `min_sizes` images of it (*chosen*: theirs may
    come out empty). The same shares for all parts; small alpha is more unequal.
    """
    num_clients, alpha = _at_least_one("num_clients", num_clients), coerce("alpha", alpha, float)
    require(alpha > 0, "alpha", alpha, "above 0")
    shares = np.cumsum(stream.dirichlet(np.full(num_clients, alpha)))
    held = []
    for labels, least in zip(parts, min_sizes, strict=True):
        free = len(labels) - num_clients * least
        require(
            free >= 0, "num_clients", num_clients, f"at most {len(labels) // least}, that each may hold {least} images"
        )
        cuts = np.floor(shares * free + 1e-9).astype(int) + least * np.arange(1, num_clients + 1)
        held.append([np.sort(own) for own in np.split(stream.permutation(len(labels)), cuts[:-1])])
    return held


def iid(parts: Sequence[np.ndarray], num_clients: int, stream: np.random.Generator) -> list[list[np.ndarray]]:
    """A random partition of each of `parts` (labels) into equal shares (sizes differ by at most one image)."""
    num_clients = _at_least_one("num_clients", num_clients)
    return [[np.sort(own) for own in np.array_split(stream.permutation(len(labels)), num_clients)] for labels in parts]


def feature_shift(labels: np.ndarray, levels: np.ndarray, num_clients: int) -> list[np.ndarray]:
    """Clients with the same classes in the same numbers (to an image) and unlike samples: those of each class in order of
    their level, such as the brightness of pictures, cut into equal parts, client 0's the lowest (*chosen*).
    """
    held: list[list[np.ndarray]] = [[] for _ in range(_at_least_one("num_clients", num_clients))]
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        for client, part in enumerate(np.array_split(own[np.argsort(levels[own], kind="stable")], num_clients)):
            held[client].append(part)
    return [np.sort(np.concatenate(parts)) for parts in held]


def by_group(parts: Sequence[np.ndarray], num_clients: int, stream: np.random.Generator) -> list[list[np.ndarray]]:
    """Natural clients: one per group (a subject, a writer) of each of `parts` (groups, from 0).

    Of fewer clients than groups client k has group k, and the others' samples go unused. Of more, client k is of group
    k modulo the number of groups, and a group's samples are dealt evenly among its clients: several clients of each
    domain.
    """
    num_clients = _at_least_one("num_clients", num_clients)
    count = max(int(groups.max(initial=-1)) for groups in parts) + 1
    held = []
    for groups in parts:
        own: list[np.ndarray] = [np.empty(0, np.int64)] * num_clients
        for group in range(min(count, num_clients)):
            clients = range(group, num_clients, count)
            dealt = np.array_split(stream.permutation(np.flatnonzero(groups == group)), len(clients))
            for client, part in zip(clients, dealt, strict=True):
                own[client] = np.sort(part)
        held.append(own)
    return held


Dealt = list[Any]  # an array per client, or a triple of them


def deal_registered(
    name: str,
    labels: np.ndarray,
    num_clients: int,
    stream: np.random.Generator,
    indices: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> Dealt:
    """What the registered partition `name` deals to each client: sorted int64 arrays, or (train, validation, test) triples
    of them. Raises FedlibError where it does not fit `labels`, or deals otherwise when it is called again; its draws from
    global generators are of the stream.

    indices: which images of the data set `labels` are of, all by default; groups: whose each image of the data set is.
    """
    indices = np.arange(len(labels)) if indices is None else indices
    known = {"indices": indices, "groups": None if groups is None else groups[indices]}
    calls = [_dealt(name, labels, num_clients, each, known) for each in (copy.deepcopy(stream), stream)]
    triples = [sum(isinstance(own, tuple) for own in call) for call in calls]
    all_or_none, allowed = triples[1] in (0, len(calls[1])), "an array, or a triple of arrays, of each client alike"
    require(all_or_none, f"partition {name}: what a client gets", "arrays and triples", allowed)
    before, dealt = ([part for own in call for part in (own if isinstance(own, tuple) else (own,))] for call in calls)
    if triples[0] != triples[1] or len(dealt) != len(before) or not all(map(np.array_equal, dealt, before)):
        raise FedlibError(
            f"partition {name}: called twice, begun alike, it deals otherwise: it draws without a seed, not from `stream`"
        )
    count, each = len(calls[1]), 3 if triples[1] else 1
    require(count == num_clients, f"partition {name}: number of clients", count, f"{num_clients}")
    for number, part in enumerate(dealt):
        whole = part.ndim == 1 and (np.issubdtype(part.dtype, np.integer) or (triples[1] > 0 and not part.size))
        require(whole, f"partition {name}: client {number // each}", part.dtype.name, "a 1-d array of whole numbers")
    every = np.concatenate(dealt)
    ids, times = np.unique(every, return_counts=True)
    wrong = ids[(times > 1) | (ids < 0) | (ids >= len(labels))].tolist()
    allowed = f"between 0 and {len(labels) - 1}, and dealt once; {len(wrong)} in all are not"
    require(not wrong, f"partition {name}: index", wrong[0] if wrong else 0, allowed)
    found = [np.sort(part).astype(np.int64) for part in dealt]
    return [tuple(found[start : start + 3]) for start in range(0, len(found), 3)] if triples[1] else found


def _dealt(
    name: str, labels: np.ndarray, num_clients: int, stream: np.random.Generator, known: dict[str, np.ndarray | None]
) -> Dealt:
    """An array or a triple per client; the dealer is told of `known` what it has a parameter for."""
    with others_code(f"partition {name}"), fork_everything(copy.deepcopy(stream)):
        dealer = REGISTERED[name]
        try:
            asked = inspect.signature(dealer).parameters
        except (TypeError, ValueError):  # of what has no signature
            asked = {}  # type: ignore[assignment]
        more = {key: None if value is None else value.copy() for key, value in known.items() if key in asked}
        dealt = dealer(labels.copy(), num_clients, stream, **more)
        allowed = "a list with one index array per client"
        require(not isinstance(dealt, str | bytes | dict | set | None), f"partition {name}", dealt, allowed)
        return [
            tuple(map(np.asarray, own))
            if isinstance(own, tuple) and len(own) == 3 and not _numbers(own)
            else np.asarray(own)
            for own in dealt
        ]


def _numbers(own: tuple[Any, ...]) -> bool:
    """Whether a tuple is three indices, and not three arrays."""
    return all(np.ndim(part) == 0 for part in own)


def sizes_by_largest_remainder(total: int, parts: tuple[int, ...]) -> np.ndarray:
    """Split `total` in proportion to `parts` by the largest remainder, with at least one in each part that is not 0
    (`total` is at least their number).
    """
    quota = total * np.array(parts) / sum(parts)
    sizes = np.floor(quota).astype(int)
    sizes[np.argsort(sizes - quota, kind="stable")[: total - sizes.sum()]] += 1
    wanted = np.flatnonzero(parts)
    while sizes[wanted].min() == 0:
        sizes[sizes.argmax()] -= 1
        sizes[wanted[sizes[wanted].argmin()]] += 1
    return sizes


def local_split(
    labels: np.ndarray, indices: np.ndarray, stream: np.random.Generator, parts: tuple[int, ...] = (8, 1, 1)
) -> list[np.ndarray]:
    """Split one client's `indices` into train, validation and test parts with the same mix of classes as far as
    possible; a part of 0 stays empty.

    The shuffled images of each class are spread evenly over a line, and the line is cut at the sizes of largest
    remainder.
    """
    least = int(np.count_nonzero(parts))
    allowed = f"at least {least}, one for each part of its split"
    require(len(indices) >= least, "images of a client", len(indices), allowed)
    shuffled = stream.permutation(indices)
    place = np.empty(len(shuffled))
    for label in np.unique(labels[shuffled]):
        mine = np.flatnonzero(labels[shuffled] == label)
        place[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
    line = shuffled[np.argsort(place, kind="stable")]
    return [np.sort(part) for part in np.split(line, np.cumsum(sizes_by_largest_remainder(len(line), parts))[:-1])]


def hold_out(labels: np.ndarray, fraction: float, stream: np.random.Generator) -> np.ndarray:
    """Sorted indices of a `fraction` of the images (at least one), with the mix of classes of all of them as far as
    possible.
    """
    return stratified(labels, np.arange(len(labels)), max(1, round(fraction * len(labels))), stream)


def stratified(labels: np.ndarray, indices: np.ndarray, count: int, stream: np.random.Generator) -> np.ndarray:
    """Sorted, `count` of the `indices` (all of them if there are fewer), with their mix of classes as far as possible."""
    count = min(count, len(indices))
    return local_split(labels, indices, stream, (count, len(indices) - count))[0]
