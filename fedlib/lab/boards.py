"""A run's rounds as TensorBoard shows them, while it trains: `fedlib run ... --log tensorboard`."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import FedlibError
from .places import home
from .spec import Resolved


class Board:
    """Writes the rounds of a run into tensorboard/<key>/ of `home`, one scalar for each number of a round, as a context manager.

    A run that is resumed goes on in the same folder. Raises FedlibError where tensorboard is not installed.
    """

    def __init__(self, run: Resolved):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            line = "log = 'tensorboard': tensorboard is not installed; `pip install 'fedlib[tensorboard]'` installs it"
            raise FedlibError(line) from None
        self.path: Path = home() / "tensorboard" / run.key
        self.rounds: set[int] = set()  # that were written
        self._open, self._spec = SummaryWriter, run.spec
        self._writer: Any = None

    def __enter__(self) -> "Board":
        return self

    def write(self, row: Mapping[Any, Any]) -> None:
        """Write a round, a row of a record's `rounds`: its numbers at its step."""
        step = int(row["round"])
        if self._writer is None:  # what an earlier, broken off attempt wrote of this round and later ones is hidden
            self._writer = self._open(str(self.path), purge_step=step, flush_secs=5)
            self._writer.add_text("specification", f"```json\n{json.dumps(asdict(self._spec), indent=1)}\n```", step)
        self.rounds.add(step)
        for name, value in row.items():
            if name != "round" and isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, value, step)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
