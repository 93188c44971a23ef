"""The server's part of a federation: the simulation's loop over clients that are elsewhere, resumed where it stopped."""

import csv
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ..algorithms import Algorithm
from ..errors import FedlibError, require
from ..federation import Federation
from ..lab import checkpoint, clientfiles, files
from ..lab.spec import Resolved
from ..lab.tables import clients_of, rounds_of, timing_of
from ..simulation import Outcome, Reply, Request
from . import shares, wire

ERROR = "error.txt"  # the line with which a run ended
PAUSE = 0.2  # seconds between two looks for replies
AGAIN = 5  # how often at most a node is asked in a round

Content = Mapping[str, bytes]


class Transport(Protocol):
    """Carries contents to nodes and answers back; over Flower, `app.FlowerPost`."""

    def nodes(self) -> set[int]:
        """Those that are there now."""

    def ask(self, node: int, run: str, session: int, requests: Content) -> str:
        """Send requests to a node, by client; returns the name under which the answer will come."""

    def clients_of(self, nodes: Sequence[int], run: str, seconds: float) -> dict[int, list[int]]:
        """Which clients each of the nodes has for this run; of nodes that did not answer in time, nothing."""

    def answers(self, names: Sequence[str]) -> dict[str, Content | str | None]:
        """What has come by now, by name: replies by client; the line of an error that the node found; None where the
        node or its message was lost.
        """


class Nodes:
    """An exchange over nodes. A round's requests go out a message a node, since a message starts a process there.

    A node that has not answered is asked again now and then, since it may have been killed with the message, and at once
    when it has gone and come back: twice asked it answers alike. One that answers with an error ends the run with its
    line. After `patience` seconds a round goes on without the clients that have not answered, and says so; a node that has
    let a round go by is not waited for in the next ones, until it is there again. `messages` has a row for each request:
    seconds until its node answered, words and bytes down and up.
    """

    def __init__(self, post: Transport, run: Resolved, patience: float):
        require(patience > 0, "patience", patience, "above 0, seconds that a round waits for a client")
        self.post, self.run, self.patience = post, run, patience
        self.session = time.time_ns()
        self.homes: dict[int, int] = {}  # client -> node
        self.silent: set[int] = set()  # nodes that have not answered when they were last asked
        self.models: dict[str, dict[str, Tensor]] = {}  # architecture -> the initial state, for shapes
        self.messages: list[dict[str, Any]] = []

    def __call__(
        self, federation: Federation, algorithm: Algorithm, requests: Sequence[Request]
    ) -> Sequence[Reply | None]:
        contents = {request.client: wire.request_to_bytes(request) for request in requests}
        self._find(contents)
        started = time.monotonic()
        by_node: dict[int, dict[str, bytes]] = {}
        for client, content in contents.items():
            by_node.setdefault(self.homes[client], {})[str(client)] = content
        answered: dict[int, tuple[bytes, float]] = {}
        waiting, gone, asked = set(by_node), set(by_node), {}  # gone: to be asked (again) when it is there
        asked_at = dict.fromkeys(by_node, started)
        while waiting:
            late = time.monotonic() - started > self.patience  # looked at before the post, which may hold an answer
            for node in gone & self.post.nodes():
                asked[self.post.ask(node, self.run.key, self.session, by_node[node])] = node
                asked_at[node] = time.monotonic()
                gone.remove(node)
            for name, answer in self.post.answers(list(asked)).items():
                node = asked.pop(name)
                if isinstance(answer, str):
                    raise FedlibError(f"node {node} with clients {', '.join(by_node[node])}: {answer}")
                if answer is None:
                    gone.add(node)
                    continue
                took = time.monotonic() - started
                answered |= {int(client): (answer[client], took) for client in by_node[node] if client in answer}
                waiting.remove(node)
                gone.discard(node)
                asked = {name: other for name, other in asked.items() if other != node}
            gone |= {node for node in waiting if time.monotonic() - asked_at[node] > self.patience / AGAIN}
            if late or (answered and waiting <= self.silent - self.post.nodes()):
                break
            if waiting:
                time.sleep(PAUSE)
        self.silent = (self.silent - set(by_node)) | waiting
        waited = time.monotonic() - started
        return [self._read(federation, algorithm, request, contents, answered, waited) for request in requests]

    def _find(self, wanted: Mapping[int, Any]) -> None:
        """Learn which node has which client; waits for those that are not there yet."""
        started = time.monotonic()
        nothing: dict[int, float] = {}  # node -> when it said that it has no client of this run
        while missing := sorted(set(wanted) - set(self.homes)):
            left = self.patience - (time.monotonic() - started)
            if left <= 0:
                shown = ", ".join(map(str, missing))
                raise FedlibError(f"clients {shown}: no node has them for run {self.run.key} after {self.patience:g} s")
            recent = {node for node, then in nothing.items() if time.monotonic() - then < self.patience / AGAIN}
            unknown = sorted(self.post.nodes() - set(self.homes.values()) - recent)
            for node, clients in self.post.clients_of(unknown, self.run.key, left).items():
                nothing |= {} if clients else {node: time.monotonic()}
                for client in clients:
                    if self.homes.setdefault(client, node) != node:
                        raise FedlibError(
                            f"client {client}: nodes {self.homes[client]} and {node} both say they have it"
                        )
            time.sleep(PAUSE)

    def _read(
        self,
        federation: Federation,
        algorithm: Algorithm,
        request: Request,
        contents: Mapping[int, bytes],
        answered: Mapping[int, tuple[bytes, float]],
        waited: float,
    ) -> Reply | None:
        row: dict[str, Any] = {"round": request.round, "client": request.client, "node": self.homes[request.client]}
        row |= {"download_words": request.download.words(), "download_bytes": len(contents[request.client])}
        if request.client not in answered:
            self.messages.append(row)
            line = f"round {request.round}: client {request.client} has not answered within {waited:.0f} s"
            print(f"{line}; the round goes on without it", file=sys.stderr, flush=True)
            return None
        content, seconds = answered[request.client]
        info = federation.infos[request.client]
        if info.architecture not in self.models:
            self.models[info.architecture] = federation.build(info.architecture).state_dict()
        own = self.models[info.architecture]
        reply = wire.reply_from_bytes(content, request, info, own, algorithm.sized_by_data)
        row |= {"upload_words": reply.upload.words(), "upload_bytes": len(content), "seconds": round(seconds, 3)}
        self.messages.append(row)
        return reply


def serve(post: Transport, share: Path, out: Path, patience: float) -> Outcome:
    """Run the server to its end, or on from where it stopped: its checkpoint, of the last whole round, is in `out`.

    share: its folder of a run, as `shares.deal` has written it. Writes rounds.csv and clients.csv into `out` as the store
    has them, with messages.csv and spec.json beside them, or error.txt.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / ERROR).unlink(missing_ok=True)
    try:
        return _serve(post, share, out, patience)
    except FedlibError as error:
        files.write_bytes(out / ERROR, f"{error}\n".encode())
        raise


def _serve(post: Transport, share: Path, out: Path, patience: float) -> Outcome:
    known, run = shares.read(share.parent, share.name)
    federation = shares.federation_from(known, run)
    nodes = Nodes(post, run, patience)
    earlier = out / "messages.csv"
    if (out / "checkpoint.pt").exists() and earlier.exists():
        with open(earlier, newline="") as file:
            nodes.messages = list(csv.DictReader(file))

    def after_round(row: dict[str, Any], timing: dict[str, Any]) -> None:
        files.write_bytes(earlier, _csv(nodes.messages))
        shown = f"round {row['round'] + 1} of {run.spec.rounds}: accuracy {row['accuracy']:.4f}"
        print(f"{shown}, {timing['seconds']:.1f} s", file=sys.stderr, flush=True)

    try:
        outcome = checkpoint.simulate(
            federation, run.simulated, run.spec.rounds, run.spec.participation, patience=run.spec.patience,
            checkpoint=out / "checkpoint.pt", label=run.session, every=0.0,
            progress=after_round, exchange=nodes,
        )  # fmt: skip
    except (RuntimeError, LookupError) as error:
        raise FedlibError(f"the round's uploads do not fit together: {' '.join(str(error).split())}") from error
    tables = {"rounds": rounds_of(outcome), "clients": clients_of(outcome), "timing": timing_of(outcome)}
    contents: dict[Path, list[bytes | memoryview]] = {
        out / f"{name}.csv": [table.to_csv(index=False, lineterminator="\n").encode()] for name, table in tables.items()
    }
    if outcome.detail_rows:
        contents[out / "details.jsonl"] = ["".join(json.dumps(row) + "\n" for row in outcome.detail_rows).encode()]
    contents[out / "messages.csv"] = [_csv(nodes.messages)]
    contents[out / "spec.json"] = [json.dumps({"spec": known["spec"], "status": outcome.status}, indent=1).encode()]
    files.write_files(contents)
    clientfiles.remove(out / "checkpoint.pt")
    return outcome


FIELDS = ("round", "client", "node", "seconds", "download_words", "download_bytes", "upload_words", "upload_bytes")


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
