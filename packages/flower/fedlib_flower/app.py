"""The Flower app: `flwr run` on this package's bundle/ starts it on the SuperLink and on each node.

A node's shares are in the folder of its SuperNode's `--node-config 'shares="..."'`; the server's share is named by the
run's configuration.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedlib.errors import FedlibError

from . import resident
from .describe import clients_of

client = ClientApp()
server = ServerApp()


def _records(contents: Mapping[str, bytes], run: str = "", session: int = 0) -> RecordDict:
    """Contents by client as arrays of bytes, which Flower sends in chunks."""
    arrays = {name: Array("uint8", (len(content),), "safetensors", content) for name, content in contents.items()}
    return RecordDict({"contents": ArrayRecord(arrays), "about": ConfigRecord({"run": run, "session": session})})


def _contents(records: RecordDict) -> dict[str, bytes]:
    return {name: array.data for name, array in records.array_records["contents"].items()}


def _folder(context: Context) -> Path:
    shares = context.node_config.get("shares")
    if not shares:
        raise FedlibError("shares: must be given to this SuperNode, as --node-config 'shares=\"FOLDER\"'")
    return Path(str(shares))


@client.query()
def who(message: Message, context: Context) -> Message:
    """Which clients this node has for a run."""
    run = str(message.content.config_records["about"]["run"])
    try:
        clients = clients_of(_folder(context), run)
    except FedlibError as error:
        print(f"fedlib: {error}", file=sys.stderr)
        clients = []
    return Message(RecordDict({"about": ConfigRecord({"clients": clients})}), reply_to=message)


@client.train()
def take_part(message: Message, context: Context) -> Message:
    about = message.content.config_records["about"]
    run, session = str(about["run"]), int(about["session"])
    try:
        replies = resident.ask(_folder(context), run, session, _contents(message.content))
    except FedlibError as error:
        return Message(RecordDict({"about": ConfigRecord({"error": str(error)})}), reply_to=message)
    return Message(_records(replies), reply_to=message)


class FlowerPost:
    """`server.Transport` over a Flower grid."""

    def __init__(self, grid: Grid):
        self.grid = grid

    def nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def ask(self, node: int, run: str, session: int, requests: Mapping[str, bytes]) -> str:
        return self._send([Message(_records(requests, run, session), node, "train")])[0]

    def _send(self, messages: list[Message]) -> list[str]:
        names = list(self.grid.push_messages(messages))
        if len(names) < len(messages) or not all(names):
            raise FedlibError("the SuperLink did not take a message; its log says why")
        return names

    def clients_of(self, nodes: Sequence[int], run: str, seconds: float) -> dict[int, list[int]]:
        if not nodes:
            return {}
        about = RecordDict({"about": ConfigRecord({"run": run})})
        waiting = set(self._send([Message(about, node, "query") for node in nodes]))
        found, started = {}, time.monotonic()
        while waiting and time.monotonic() - started < seconds:
            for message in self.grid.pull_messages(waiting):
                waiting.discard(message.metadata.reply_to_message_id)
                if not message.has_error():
                    with suppress(Exception):  # of records that no node of ours sends
                        clients = message.content.config_records["about"]["clients"]
                        found[message.metadata.src_node_id] = list(clients)
            time.sleep(0.2)
        return found

    def answers(self, names: Sequence[str]) -> dict[str, Mapping[str, bytes] | str | None]:
        found: dict[str, Mapping[str, bytes] | str | None] = {}
        for message in self.grid.pull_messages(names) if names else ():
            name = message.metadata.reply_to_message_id
            if message.has_error():
                print(f"a message was lost: {message.error.reason}", file=sys.stderr, flush=True)
                found[name] = None
            else:
                try:
                    about = message.content.config_records["about"]
                    found[name] = str(about["error"]) if "error" in about else _contents(message.content)
                except Exception:  # whatever Flower raises of records that no node of ours sends
                    found[name] = "an answer that is none of fedlib's"
        return found


@server.main()
def main(grid: Grid, context: Context) -> None:
    from .server import serve

    given = context.run_config
    try:
        for name in ("share", "out"):
            if not given.get(name):
                raise FedlibError(f"{name}: must be given, as --run-config '{name}=\"FOLDER\"'")
        serve(FlowerPost(grid), Path(str(given["share"])), Path(str(given["out"])), float(given["patience"]))
    except FedlibError as error:
        print(f"fedlib: {error}", file=sys.stderr, flush=True)
        raise RuntimeError(str(error)) from None  # so that Flower lists the run as failed
