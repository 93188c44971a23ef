"""A method run in isolation, each client with a server of its own, so that a lead splits into a local and an exchange part."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from . import border
from .algorithms.base import Algorithm, Client, ClientContext, Federation, Message, ServerContext, ServerState, Upload
from .errors import FedlibError
from .federation import Initial, SharedContext

SERVER = "isolated server"  # in a client's state


@dataclass(frozen=True)
class Isolated(Algorithm):
    """`method` with a server for each client, which knows that client alone and gets its uploads and nobody else's.

    Each server begins like the one that clients would share, from the same random stream; public images are shared. It
    is part of the client's state, and nothing travels: messages are empty. In the first round a client that is isolated
    trains to the same bits as one that is not, since no client has received anything from another yet.
    """

    method: Algorithm

    def __post_init__(self) -> None:
        for name in ("name", "paper", "exchanges", "public_data", "needs", "look"):
            object.__setattr__(self, name, getattr(self.method, name))

    def check(self, federation: Federation) -> None:
        self.method.check(federation)
        check_isolated(self.method, federation.protocol.inherit)

    def init_client(self, client: Client, context: ClientContext) -> None:
        first = _server_context(context, client)
        client.state[SERVER] = self.method.init_server(replace(first, round=0))
        self.method.init_client(client, context)

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        server, known = client.state[SERVER], _server_context(context, client)
        download = border.message(f"{self.name}.download", self.method.download(server, client.info, known))
        upload = border.message(f"{self.name}.local_round", self.method.local_round(client, download, context))
        travelling = replace(upload, diagnostics={})
        returned = self.method.aggregate(server, [Upload(client.info, travelling)], known) or {}
        numbers: dict[str, float | Tensor] = {
            n: value for n, value in returned.items() if isinstance(value, int | float)
        }
        return Message(diagnostics=upload.diagnostics | numbers)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        """Nothing: each client's own server has its upload."""

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        return self.method.predict(client, images)


def check_isolated(method: Algorithm, inherit: str) -> None:
    """Raise FedlibError where a method cannot be isolated."""
    if method.together:
        raise FedlibError(f"isolated = True: must be False for {method.name}, which {method.together}")
    if inherit != "none":
        raise FedlibError(
            f"isolated = True: must be False under inherit = {inherit!r}, where clients begin with others' models"
        )


def _server_context(context: ClientContext, client: Client) -> ServerContext:
    """What a server that knows `client` alone may use in this round."""
    shared: dict[str, Any] = {item.name: getattr(context, item.name) for item in fields(SharedContext)}
    build = context.build
    if isinstance(build, Initial) and build.client is not None:  # the server's networks are the architecture's
        build = replace(build, client=None)
    return ServerContext(**shared | {"build": build}, infos=[client.info])
