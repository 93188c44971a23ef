"""Data sets of Hugging Face's `datasets`, and the partitioners of `flwr-datasets` (`pip install datasets flwr-datasets`)."""

from typing import Any

import numpy as np

from ..errors import FedlibError, choose, require
from .dataset import Dataset


def from_huggingface(
    name: str,
    train: Any,
    test: Any = None,
    *,
    samples: str = "image",
    label: str = "label",
    group: str | None = None,
    **more: Any,
) -> Dataset:
    """A data set of the rows of one or two `datasets.Dataset`, the official training and test part.

    samples: the column of pictures (decoded to bytes; grey ones have one channel), or of numbers: lists of one length,
    `Array2D` or `Array3D`, in the layout of `Dataset.from_arrays`, which also takes `more` (kind, mean, std, augment,
    vocabulary). label: the column of class numbers. group: that of whose each row is (a writer, a speaker), for
    `partition="groups"`. Raises FedlibError for a column that is missing or of another kind, and for pictures of several
    sizes.

    >>> from datasets import load_dataset  # doctest: +SKIP
    >>> mnist = load_dataset("ylecun/mnist")  # doctest: +SKIP
    >>> data.register("hf-mnist", lambda: data.from_huggingface("hf-mnist", mnist["train"], mnist["test"]))  # doctest: +SKIP
    """
    for part in (train,) if test is None else (train, test):
        one = isinstance(getattr(part, "column_names", None), list)
        require(one, f"{name}: rows", type(part).__name__, "a datasets.Dataset, such as a part of a DatasetDict")
        for column in filter(None, (samples, label, group)):
            choose(f"{name}: column", column, part.column_names)
    images, labels = _samples(name, samples, train), _labels(name, label, train)
    tested = (images[:0], labels[:0]) if test is None else (_samples(name, samples, test), _labels(name, label, test))
    classes = getattr(train.features[label], "num_classes", None)  # of a ClassLabel
    groups = (train[group][:], [] if test is None else test[group][:]) if group else None
    return Dataset.from_arrays(name, images, labels, *tested, classes, groups=groups, **more)


def _samples(name: str, column: str, part: Any) -> np.ndarray:
    """The column as one array; pictures as (n, channels, height, width)."""
    pictures = type(part.features[column]).__name__ == "Image"
    read = [np.asarray(one) for one in part[column]]
    shapes = {one.shape for one in read}
    allowed = "pictures of one size and mode, or numbers in lists of one length (text: token ids)"
    fits = len(shapes) <= 1 and all(one.dtype.kind in "buif" for one in read)
    require(fits, f"{name}: column {column}", "text" if len(shapes) <= 1 else f"{len(shapes)} shapes", allowed)
    require(bool(read), f"{name}: rows", 0, "at least one")
    whole = np.stack(read)
    if not pictures:
        return whole
    return whole[:, None] if whole.ndim == 3 else np.ascontiguousarray(whole.transpose(0, 3, 1, 2))


def _labels(name: str, column: str, part: Any) -> np.ndarray:
    found = np.asarray(part[column][:])
    allowed = "class numbers (names: `class_encode_column` numbers them)"
    require(found.dtype.kind in "iu", f"{name}: column {column}", found.dtype.name, allowed)
    return found.astype(np.int64)


def dealt_by(partitioner: Any, **columns: Any) -> list[np.ndarray]:
    """What a partitioner of flwr-datasets deals to each client: places in `columns`, for a partition of one's own.

    columns: what it partitions by, one value per sample, under the name that it was told (`partition_by="label"`). Its
    number of partitions is the number of clients; draw its seed from the stream that the partition is given.

    >>> def skewed(labels, num_clients, stream):  # doctest: +SKIP
    ...     seed = int(stream.integers(2**31))
    ...     dealer = DirichletPartitioner(num_clients, partition_by="label", alpha=0.3, seed=seed)
    ...     return data.dealt_by(dealer, label=labels)
    >>> partition.register("skewed", skewed)  # doctest: +SKIP
    """
    try:
        from datasets import Dataset as Table
    except ImportError:
        raise FedlibError("partitioners of flwr-datasets need it: pip install datasets flwr-datasets") from None
    lengths = {len(values) for values in columns.values()}
    require(len(lengths) == 1, "columns", ", ".join(columns), "one value per sample in each")
    partitioner.dataset = Table.from_dict({**columns, "place": np.arange(lengths.pop())})
    return [np.asarray(partitioner.load_partition(one)["place"][:]) for one in range(partitioner.num_partitions)]
