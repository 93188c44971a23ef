"""A node's part of a federation: it answers the server's requests for its clients and keeps their states.

A request that comes twice, since a message was lost or the node was killed, gets the same bytes twice: a reply is kept
until the client's next one, and what a client was before its last round is kept with what it is after. So the server
may ask again for the round that it was in, also after it was killed and has gone back to its last checkpoint: it then
has another, later session. A request of an earlier round or session that arrives late changes nothing.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import filelock

from fedlib import simulation
from fedlib.errors import FedlibError
from fedlib.federation import Client
from fedlib.lab import files

from . import shares, wire

KEPT = 2  # states of a client: before its last round and after it


def answer(folder: Path, run: str, session: int, requests: Mapping[str, bytes]) -> dict[str, bytes]:
    """The replies to `requests`, by client, of the node whose shares are in `folder`; session: of the server, a later one
    has a larger number.
    """
    share, resolved = shares.read(folder, run)
    own = {client["id"] for client in share["clients"]}
    states = folder / run / "states"
    states.mkdir(exist_ok=True)
    replies = {}
    with filelock.FileLock(states / ".lock"):  # a request that is here twice is computed once
        federation = None
        for name, content in requests.items():
            request = wire.request_from_bytes(content)
            if request.client not in own:
                raise FedlibError(f"client = {request.client}: must be one of this node's, {sorted(own)}")
            kept = _Kept(states, session, wire.Bound.to(run, request, content))
            reply = kept.reply()
            if reply is None:
                federation = federation or shares.federation_from(share, resolved)
                client = federation.clients[request.client]
                kept.restore(client)
                answers = wire.Bound.to(run, request, content)
                reply = wire.reply_to_bytes(simulation.answer(federation, resolved.simulated, request), answers)
                kept.store(client, reply)
            replies[name] = reply
    return replies


class _Kept:
    """The files of one client: its states after its last rounds, `<client>-<round>`, each with the round of its visit
    before that, and its last reply behind a line that says to which request. Raises FedlibError for a request that has
    been overtaken.
    """

    def __init__(self, folder: Path, session: int, answers: wire.Bound):
        self.folder, self.client, self.round = folder, answers.client, answers.round
        self.request = {"session": session, "round": answers.round, "request": " ".join(map(str, answers))}
        client, round = answers.client, answers.round
        last = self._last()[0]
        if last and (last["session"], last["round"]) > (session, round):
            raise FedlibError(f"client = {client}: round {round} has been overtaken by round {last['round']}")
        if round < 0 and last.get("request") != self.request["request"]:  # a run begins
            for path in [*self.states().values(), self.last]:
                path.unlink(missing_ok=True)

    @property
    def last(self) -> Path:
        return self.folder / f"{self.client}.reply"

    def states(self) -> dict[int, Path]:
        """Round -> file, in order."""
        found = {int(path.name.partition("-")[2]): path for path in self.folder.glob(f"{self.client}-*")}
        return dict(sorted(found.items()))

    def _last(self) -> tuple[dict[str, Any], bytes]:
        """The last request and its reply; nothing where there is none, or a damaged one, which is computed again."""
        try:
            about, _, reply = files.unseal(self.last.read_bytes()).partition(b"\n")
        except (FileNotFoundError, ValueError):
            return {}, b""
        return json.loads(about), reply

    def reply(self) -> bytes | None:
        """What this very request got before, if the client is as it was then."""
        last, reply = self._last()
        same = last.get("request") == self.request["request"] and max(self.states(), default=-1) <= self.round
        return reply if same else None

    def restore(self, client: Client) -> None:
        """Make `client` what it was before this round; what came later is forgotten."""
        states = self.states()
        before = [round for round in states if round < self.round]
        later = [round for round in states if round >= self.round]
        if later and not before and self._read(later[0])["previous"] >= 0:
            raise FedlibError(
                f"client = {self.client}: its state before round {self.round} is gone, since it has been asked for "
                f"round {later[-1]}; start the run afresh, with another `out`"
            )
        for round in later:
            states[round].unlink()
        if before:
            wire.client_from_bytes(client, self._read(before[-1])["client"])

    def _read(self, round: int) -> dict[str, Any]:
        path = self.states()[round]
        try:
            content = files.unseal(path.read_bytes())
        except (OSError, ValueError):
            raise FedlibError(f"state of client {self.client} after round {round}: is damaged ({path})") from None
        return {"previous": int(content[:20]), "client": content[20:]}

    def store(self, client: Client, reply: bytes) -> None:
        """The state first: a reply vouches for the state after it."""
        if client.visited:
            previous = max(self.states(), default=-1)
            content = f"{previous:20d}".encode() + wire.client_to_bytes(client)
            files.write_files({self.folder / f"{self.client}-{self.round}": files.seal(content)})
        files.write_files({self.last: files.seal(json.dumps(self.request).encode() + b"\n" + reply)})
        for path in list(self.states().values())[:-KEPT]:
            path.unlink()
