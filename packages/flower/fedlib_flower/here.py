"""A federation whose nodes are folders and whose post is a dictionary: what Flower would carry, as bytes, in one process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedlib.errors import FedlibError

from .describe import clients_of
from .node import answer
from .server import Content, serve


class Here:
    """The nodes of the shares in `folder`, asked one after the other; used as `loopback.Loopback` is."""

    def __init__(self, folder: str | Path, nodes: int):
        self.folder, self.numbers = Path(folder), range(nodes)
        self.sent: dict[str, Content | str | None] = {}
        self.asked = 0

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *error: Any) -> None:
        self.sent.clear()

    def run(self, run: str, out: str | Path, patience: float = 600.0) -> Path:
        serve(self, self.folder / "server" / run, Path(out), patience)
        return Path(out)

    def nodes(self) -> set[int]:
        return set(self.numbers)

    def ask(self, node: int, run: str, session: int, requests: Content) -> str:
        self.asked += 1
        try:
            self.sent[str(self.asked)] = answer(self.folder / f"node-{node}", run, session, requests)
        except FedlibError as error:
            self.sent[str(self.asked)] = str(error)
        return str(self.asked)

    def clients_of(self, nodes: Sequence[int], run: str, seconds: float) -> dict[int, list[int]]:
        return {node: clients_of(self.folder / f"node-{node}", run) for node in nodes}

    def answers(self, names: Sequence[str]) -> dict[str, Content | str | None]:
        return {name: self.sent.pop(name) for name in names if name in self.sent}
