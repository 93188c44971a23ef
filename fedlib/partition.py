"""Who holds which images: labels in, one index array per client out. Pure functions of a stream of random numbers.

Every partition is a matrix of shares (clients x classes: the part of a class that a client receives), dealt out by
`deal`. The same shares dealt on a train, a validation and a test split give a client the same mix of classes in all
three.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from .errors import FedlibError, check_name, coerce, require

MAX_REDRAWS = 100

# (labels (n,), number of clients, stream) -> for each client, the places in `labels` of the images that it holds
Dealer = Callable[[np.ndarray, int, np.random.Generator], Sequence[np.ndarray]]
REGISTERED: dict[str, Dealer] = {}


def register(name: str, dealer: Dealer) -> None:
    """Make a partition of your own known to `RunSpec` as `name`; registering again replaces it.

    dealer: `dealer(labels, num_clients, stream)` returns one index array into `labels` per client; no index twice.
    """
    check_name("partition", name)
    require(name not in ("by-class", "dirichlet", "iid"), "partition", name, "another name than a built-in one's")
    require(callable(dealer), f"dealer of {name}", dealer, "a function of (labels, number of clients, stream)")
    REGISTERED[name] = dealer


def own(name: str, labels: np.ndarray, num_clients: int, stream: np.random.Generator) -> list[np.ndarray]:
    """What the registered partition `name` deals to each client: sorted int64 arrays. Raises FedlibError where it does
    not fit `labels`.
    """
    dealt = [np.asarray(part) for part in REGISTERED[name](labels, num_clients, stream)]
    require(len(dealt) == num_clients, f"partition {name}: number of clients", len(dealt), f"{num_clients}")
    for client, part in enumerate(dealt):
        whole = part.ndim == 1 and np.issubdtype(part.dtype, np.integer)
        require(whole, f"partition {name}: client {client}", part.dtype.name, "a 1-d array of whole numbers")
    every = np.concatenate(dealt)
    fits = len(np.unique(every)) == len(every) and every.min(initial=0) >= 0 and every.max(initial=0) < len(labels)
    require(fits, f"partition {name}: indices", len(every), f"different ones between 0 and {len(labels) - 1}")
    return [np.sort(part).astype(np.int64) for part in dealt]


def _at_least_one(field: str, value: int) -> int:
    number = coerce(field, value, int)
    require(number >= 1, field, number, "at least 1")
    return number


def class_shares(
    num_clients: int,
    num_classes: int,
    classes_per_client: int,
    stream: np.random.Generator,
    *,
    extra_slot: bool = False,
    distinct: bool = True,
) -> np.ndarray:
    """Shares of the class partition of Shamsian et al. (ICML 2021), as the FedGH, FedSSA and pFedES papers use it.

    Each class has floor(k N / C) slots whose sizes are U(0.4, 0.6) draws normalised to 1. Clients in turn pick k
    times among the classes with most slots left. Where k N is not a multiple of C, randomly chosen classes get the
    slots that are missing.

    extra_slot: one slot more a class, as Shamsian's own code has (a third to a half of the data then goes unused at N
    = 10);
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
    slots = np.full(num_classes, wanted // num_classes + extra_slot)
    if not extra_slot:
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
    labels: np.ndarray,
    num_clients: int,
    classes_per_client: int,
    stream: np.random.Generator,
    *,
    extra_slot: bool = False,
    distinct: bool = True,
) -> list[np.ndarray]:
    """Partition by classes per client: `class_shares` dealt out on `labels` (n,) of classes 0..C-1."""
    num_classes = int(labels.max()) + 1
    shares = class_shares(
        num_clients, num_classes, classes_per_client, stream, extra_slot=extra_slot, distinct=distinct
    )
    return deal(labels, shares, stream)


def dirichlet(
    labels: np.ndarray, num_clients: int, alpha: float, stream: np.random.Generator, *, min_partition_size: int = 10
) -> list[np.ndarray]:
    """Dirichlet partition, redrawn until every client holds `min_partition_size` images, at most 100 times.

    alpha > 0: small is skewed, large approaches IID. Raises FedlibError when no draw is large enough (no endless
    loop).
    """
    return dirichlet_parts([labels], num_clients, alpha, stream, (min_partition_size,))[0]


def dirichlet_parts(
    parts: Sequence[np.ndarray],
    num_clients: int,
    alpha: float,
    stream: np.random.Generator,
    min_sizes: Sequence[int],
    *,
    floors: bool = False,
) -> list[list[np.ndarray]]:
    """`dirichlet` of several parts at once (labels of a train, a validation and a test part), each dealt by the same
    shares and with a smallest size of its own.
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
        f"min_partition_size = {min_sizes[0]} images (best draw: {smallest}); use fewer clients, a larger alpha "
        "or a smaller min_partition_size"
    )


def iid(labels: np.ndarray, num_clients: int, stream: np.random.Generator) -> list[np.ndarray]:
    """A random partition into equal parts (sizes differ by at most one image)."""
    num_clients = _at_least_one("num_clients", num_clients)
    return [np.sort(part) for part in np.array_split(stream.permutation(len(labels)), num_clients)]


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


def counts(labels: np.ndarray, partition: list[np.ndarray], num_classes: int) -> pd.DataFrame:
    """Who holds what: images by client (rows) and class (columns)."""
    table = np.stack([np.bincount(labels[indices], minlength=num_classes) for indices in partition])
    return pd.DataFrame(
        table, index=pd.RangeIndex(len(table), name="client"), columns=pd.RangeIndex(num_classes, name="class")
    )


def owners(table: pd.DataFrame) -> pd.Series:
    """Number of clients that hold each class; a class with one owner cannot pass anything between clients."""
    return (table > 0).sum(axis=0).rename("owners")
