"""Tables of what a simulation counted and of who holds what."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..simulation import Outcome


def rounds_of(outcome: Outcome) -> pd.DataFrame:
    """One row per round, -1 being the untrained start."""
    return pd.DataFrame(outcome.round_rows)


def clients_of(outcome: Outcome) -> pd.DataFrame:
    """One row per round and participant."""
    return pd.DataFrame(outcome.client_rows)


def counts(labels: np.ndarray, held: Sequence[np.ndarray | tuple[np.ndarray, ...]], num_classes: int) -> pd.DataFrame:
    """Who holds what: images by client (rows) and class (columns).

    held: each client's indices into `labels`, in one array or in its train, validation and test parts.
    """
    clients = [np.concatenate(own) if isinstance(own, tuple) else own for own in held]
    table = np.stack([np.bincount(labels[indices], minlength=num_classes) for indices in clients])
    return pd.DataFrame(
        table, index=pd.RangeIndex(len(table), name="client"), columns=pd.RangeIndex(num_classes, name="class")
    )


def owners(table: pd.DataFrame) -> pd.Series:
    """Number of clients that hold each class; a class with one owner cannot pass anything between clients."""
    return (table > 0).sum(axis=0).rename("owners")
