"""The server's part of a federation: the simulation's loop over clients that are elsewhere, resumed where it stopped."""

import csv
import io
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from fedlib.algorithms import Algorithm, ServerState
from fedlib.errors import FedlibError, one_line, others_code, require
from fedlib.federation import Federation, Message, ServerContext
from fedlib.lab import checkpoint, clientfiles, costs, files
from fedlib.lab.progress import notice
from fedlib.lab.spec import Resolved
from fedlib.lab.tables import clients_of, rounds_of
from fedlib.simulation import Answers, Outcome, Reply, Request

from . import shares, spoilt, wire

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
    """An exchange over nodes that nobody vouches for. A round's requests go out a message a node, since a message starts a
    process there.

    A run begins when every client has been found at one node, and ends with a line where one of the nodes says, before round
    0, that it cannot take part. Otherwise it goes on without a client whose node does not answer, answers with an error, or
    with what no client of the method could have sent (see `wire.reply_from_bytes`); `messages` has a row for each request,
    with the reason, or seconds until its node answered, words and bytes down and up. A node that has not answered before
    round 0, where it forgets what it has of an earlier run, is asked that again in place of its next round.

    A node that has not answered is asked again now and then, since it may have been killed with the message, and at once
    when it has gone and come back: twice asked it answers alike. After `patience` seconds a round goes on without it; it is
    not waited for in the next ones, until it is there again or answers late. A round without anybody passes; the run ends,
    and can be resumed, when no node answers, or when such rounds in a row have had every client that is there.
    """

    def __init__(self, post: Transport, run: Resolved, patience: float):
        require(patience > 0, "patience", patience, "above 0, seconds that a round waits for a client")
        self.post, self.run, self.patience = post, run, patience
        self.session = time.time_ns()
        self.homes: dict[int, int] = {}  # client -> node, which stays the same in a run
        self.silent: set[int] = set()  # nodes that have not answered when they were last asked
        self.left: set[int] = set()  # those of them that have been seen to be gone since
        self.late: dict[str, int] = {}  # names under which answers of earlier rounds may still come -> node
        self.useless: set[int] = set()  # clients asked in vain in a row of rounds that had nobody
        self.begun: set[int] = set()  # clients whose node has answered the request before round 0
        self.messages: list[dict[str, Any]] = []

    def __call__(
        self, federation: Federation, algorithm: Algorithm, requests: Sequence[Request]
    ) -> Sequence[Reply | None]:
        contents = {request.client: wire.request_to_bytes(self._due(request)) for request in requests}
        context = federation.server_context(requests[0].round, requests[0].rounds)
        begins = requests[0].round < 0
        self._find(contents, len(context.infos))
        answered, reasons = self._ask(contents, begins)
        late = {} if begins else dict.fromkeys(answered.keys() - self.begun, "has answered only now as before round 0")
        self.begun |= answered.keys()
        reasons |= late
        read = [
            self._read(request, contents[request.client], answered, reasons, algorithm, context) for request in requests
        ]
        replies = self._diverged(requests, read)
        self.useless = set() if any(replies) else self.useless | contents.keys()
        if self.useless >= {client for client, node in self.homes.items() if node not in self.silent}:
            rows = self.messages[-len(requests) :]
            lines = one_line("; ".join(f"client {row['client']}: {row['reason']}" for row in rows))
            raise FedlibError(f"round {requests[0].round}: none of the clients can be used ({lines})")
        return replies

    def _due(self, request: Request) -> Request:
        """The request, or that before round 0, while it has not been answered."""
        return request if request.client in self.begun else Request(-1, request.rounds, request.client, Message())

    def aggregated(
        self, algorithm: Algorithm, server: ServerState, answers: Answers, context: ServerContext
    ) -> tuple[Answers, dict[str, Any]]:
        """In place of `simulation.aggregated`: without those whose uploads spoil the round."""
        left, returned, reason = spoilt.sorted_out(algorithm, server, answers, context)
        for info, _ in [answer for answer in answers if not any(answer is own for own in left)]:
            self.refuse(info.id, f"its upload spoils the round: {reason}")
        return left, returned

    def refuse(self, client: int, reason: str) -> None:
        """Note why the last round goes on without a client that has answered."""
        row = next(row for row in reversed(self.messages) if row["client"] == client)
        row["reason"] = reason
        self._say(row)

    def _say(self, row: Mapping[str, Any]) -> None:
        line = f"round {row['round']}: client {row['client']}: {row['reason']}"
        notice(f"{line}; the round goes on without it")

    def _ask(
        self, contents: Mapping[int, bytes], begins: bool
    ) -> tuple[dict[int, tuple[bytes, float]], dict[int, str]]:
        """What the clients answered, with the seconds until then; and why the others are left out."""
        started = time.monotonic()
        by_node: dict[int, dict[str, bytes]] = {}
        for client, content in contents.items():
            by_node.setdefault(self.homes[client], {})[str(client)] = content
        answered: dict[int, tuple[bytes, float]] = {}
        reasons: dict[int, str] = {}
        waiting, gone, asked = set(by_node), set(by_node), {}  # gone: to be asked (again) when it is there
        asked_at = dict.fromkeys(by_node, started)
        while waiting:
            late = time.monotonic() - started > self.patience  # looked at before the post, which may hold an answer
            there = self._there()
            for node in gone & there:
                with suppress(FedlibError):  # the post does not take it: the node has just gone
                    asked[self.post.ask(node, self.run.key, self.session, by_node[node])] = node
                    asked_at[node] = time.monotonic()
                    gone.remove(node)
            for name, answer in self.post.answers([*asked, *self.late]).items():
                if name in self.late:
                    self.silent.discard(self.late.pop(name))
                    continue
                node = asked.pop(name)
                if answer is None:
                    gone.add(node)
                    continue
                own, took = by_node[node], time.monotonic() - started
                if isinstance(answer, str):
                    said = one_line(answer)
                    if begins:
                        raise FedlibError(f"node {node} with clients {', '.join(own)}: {said}")
                    reasons |= {int(client): f"its node says: {said}" for client in own}
                else:
                    answered |= {int(client): (answer[client], took) for client in own if client in answer}
                    reasons |= {int(client): "its node answered without it" for client in own if client not in answer}
                waiting.discard(node)
                gone.discard(node)
                asked = {name: other for name, other in asked.items() if other != node}
            gone |= {node for node in waiting if time.monotonic() - asked_at[node] > self.patience / AGAIN}
            self._there()
            others = set(self.homes.values()) - self.silent
            if late or (waiting <= self.silent and others and not begins):
                break
            if waiting:
                time.sleep(PAUSE)
        self.silent = (self.silent - set(by_node)) | waiting
        self.left &= self.silent
        self.late |= {name: node for name, node in asked.items() if node in waiting}
        waited = time.monotonic() - started
        for client in (int(client) for node in waiting for client in by_node[node]):
            reasons[client] = f"has not answered within {waited:.0f} s"
        return answered, reasons

    def _there(self) -> set[int]:
        """The nodes that are there now. A silent one that has gone and come back is waited for again."""
        there = self.post.nodes()
        self.left |= self.silent - there
        self.silent -= self.left & there
        self.left -= there
        return there

    def _find(self, wanted: Mapping[int, Any], num_clients: int) -> None:
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
                own = [client for client in clients if type(client) is int and 0 <= client < num_clients]
                nothing |= {} if own else {node: time.monotonic()}
                for client in own:
                    if self.homes.setdefault(client, node) != node:
                        raise FedlibError(
                            f"client {client}: nodes {self.homes[client]} and {node} both say they have it"
                        )
            time.sleep(PAUSE)

    def _read(
        self,
        request: Request,
        content: bytes,
        answered: Mapping[int, tuple[bytes, float]],
        reasons: Mapping[int, str],
        algorithm: Algorithm,
        context: ServerContext,
    ) -> Reply | None:
        """The reply, if it can be used; appends the row of its message."""
        client = request.client
        row: dict[str, Any] = {"round": request.round, "client": client, "node": self.homes[client]}
        row |= {"download_words": request.download.words(), "download_bytes": len(content)}
        self.messages.append(row)
        try:
            if client in reasons:
                raise FedlibError(reasons[client])
            found, seconds = answered[client]
            row |= {"upload_bytes": len(found), "seconds": round(seconds, 3)}
            with others_code(f"reply of client {client}"):
                answers = wire.Bound.to(self.run.key, request, content)
                validates = self.run.protocol.parts[1] > 0
                reply = wire.reply_from_bytes(found, request, answers, algorithm, context, validates)
            row["upload_words"] = reply.upload.words()
        except FedlibError as error:
            row["reason"] = one_line(str(error)).removeprefix(f"reply of client {client}: ")
            self._say(row)
            return None
        return reply

    def _diverged(self, requests: Sequence[Request], replies: list[Reply | None]) -> list[Reply | None]:
        """The replies without those that say that they have diverged; with them where all say so, and they are two or more:
        then it is the run that has.
        """
        said = {
            place for place, reply in enumerate(replies) if reply is not None and not math.isfinite(reply.loss or 0.0)
        }
        if len(said) >= 2 and len(said) == sum(reply is not None for reply in replies):
            return replies
        for place in said:
            self.refuse(requests[place].client, "says that it has diverged: its loss is not finite")
        return [None if place in said else reply for place, reply in enumerate(replies)]


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
        with others_code(f"{earlier}: is damaged"), open(files.regular(earlier), newline="") as file:
            nodes.messages = list(csv.DictReader(file))
            nodes.homes = {int(row["client"]): int(row["node"]) for row in nodes.messages}
            nodes.begun = {int(row["client"]) for row in nodes.messages if row["seconds"]}
            _csv(nodes.messages)

    def after_round(row: dict[str, Any], timing: dict[str, Any]) -> None:
        files.write_bytes(earlier, _csv(nodes.messages))
        shown = f"round {row['round'] + 1} of {run.spec.rounds}: accuracy {row['accuracy']:.4f}"
        notice(f"{shown}, {timing['seconds']:.1f} s")

    try:
        outcome = checkpoint.simulate(
            federation, run.simulated, run.spec.rounds, run.spec.participation, patience=run.spec.patience,
            checkpoint=out / "checkpoint.pt", label=run.session, every=0.0,
            progress=after_round, exchange=nodes, enough=costs.used_up(run),
        )  # fmt: skip
    except (RuntimeError, LookupError) as error:
        raise FedlibError(f"the round's uploads do not fit together: {' '.join(str(error).split())}") from error
    finally:
        files.write_bytes(earlier, _csv(nodes.messages))
    tables = {"rounds": rounds_of(outcome), "clients": clients_of(outcome), "timing": pd.DataFrame(outcome.timing_rows)}
    contents: dict[Path, list[bytes | memoryview]] = {
        out / f"{name}.csv": [table.to_csv(index=False, lineterminator="\n").encode()] for name, table in tables.items()
    }
    if outcome.detail_rows:
        contents[out / "details.jsonl"] = ["".join(json.dumps(row) + "\n" for row in outcome.detail_rows).encode()]
    contents[out / "spec.json"] = [json.dumps({"spec": known["spec"], "status": outcome.status}, indent=1).encode()]
    files.write_files(contents)
    clientfiles.remove(out / "checkpoint.pt")
    return outcome


FIELDS = (
    "round",
    "client",
    "node",
    "seconds",
    "download_words",
    "download_bytes",
    "upload_words",
    "upload_bytes",
    "reason",
)


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Of a request that was made again, by a server that has gone back to its last whole round, the last row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({(int(row["round"]), int(row["client"])): row for row in rows}.values())
    return text.getvalue().encode()
