"""The contract between a method and the simulation: a frozen dataclass of hyper-parameters and a few short methods."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from .. import models
from ..errors import FedlibError, require
from ..federation import Client, ClientInfo, Context, Federation, Message, PublicData
from ..look import Look as Look

ServerState = dict[str, Any]  # plain tensors and numbers, so that it checkpoints


def check_public_labels(name: str, public: PublicData, num_classes: int) -> None:
    """Raise FedlibError unless the public images have labels that are classes of the clients'."""
    if not public.labelled:
        raise FedlibError(f"algorithm = {name!r}: needs labelled public data, and these have no labels")
    largest = int(public.pool.labels[public.indices].max())
    require(largest < num_classes, "public labels", largest, f"below {num_classes}, the number of the clients' classes")


@dataclass(frozen=True)
class Algorithm:
    """A federated method. The simulation calls, each round: `download`, `local_round` and, once, `aggregate`.

    Nothing but messages passes between clients and server. What a client keeps lives on `client.model` and
    `client.state`, what the server keeps in its state: plain tensors and numbers. A toy method that shares the mean
    of the header's biases is complete with:

        @dataclass(frozen=True)
        class SharedBias(Algorithm):
            name, paper, year, exchanges, needs = "SharedBias", "-", 2026, "header bias", "features"

            def init_server(self, context):
                return {"bias": context.federation.initial_header().bias.detach()}

            def download(self, server, info, context):
                return Message({"bias": server["bias"]})

            def local_round(self, client, message, context):
                client.model.header.bias.data.copy_(message["bias"])
                context.train(client)
                return Message({"bias": client.model.header.bias.detach()})

            def aggregate(self, server, uploads, context):
                server["bias"] = torch.stack([upload["bias"] for upload in uploads.values()]).mean(0)
    """

    name: ClassVar[str]
    paper: ClassVar[str] = "one's own"  # authors, title, venue
    year: ClassVar[int] = 0
    exchanges: ClassVar[str] = "-"  # what travels, in a few words
    public_data: ClassVar[str] = "none"  # "none", "unlabelled" or "labelled": images that server and clients share
    look: ClassVar[Look | None] = None  # in figures; None: one from a spare palette
    needs: ClassVar[str] = ""  # what clients must have in common: "", "features" (the header's width) or "architecture"

    def check(self, federation: Federation) -> None:
        """Raise FedlibError in one line when this method cannot run on `federation`."""
        if self.public_data != "none" and (federation.public is None or not len(federation.public.indices)):
            raise FedlibError(
                f"algorithm = {self.name!r}: needs {self.public_data} public data, and this federation has none; "
                "pass public= (indices that no client holds, or into public_dataset)"
            )
        if self.public_data == "labelled" and federation.public is not None:
            check_public_labels(self.name, federation.public, federation.num_classes)
        different = sorted(set(federation.architectures))
        if self.needs == "architecture" and len(different) > 1:
            raise FedlibError(
                f"algorithm = {self.name!r}: averages whole models, so every client needs the same architecture; "
                f"got {', '.join(different)} (use scenario homogeneous, homogeneous-M1 or homogeneous-M4)"
            )
        if self.needs == "features":
            sizes = federation.num_classes, federation.channels
            widths = {name: models.feature_width(name, *sizes) for name in different}
            if len(set(widths.values())) > 1:
                raise FedlibError(
                    f"algorithm = {self.name!r}: what it shares depends on the header's input width, which must be "
                    f"equal for all clients; got {widths} (use scenario heterogeneous or reassembly-500)"
                )

    def describe(self) -> str:
        """The method and its hyper-parameters in a line; a degenerate setting says what it amounts to."""
        params = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{self.name}({params})"

    def init_server(self, context: Context) -> ServerState:
        """The server's state before round 0."""
        return {}

    def init_client(self, client: Client, context: Context) -> None:
        """Called once, before the client's first round."""

    def download(self, server: ServerState, info: ClientInfo, context: Context) -> Message | None:
        """What the server sends to the client described by `info`."""
        return None

    def local_round(self, client: Client, message: Message | None, context: Context) -> Message | None:
        """Train the client on its data; returns its upload."""
        raise NotImplementedError

    def aggregate(self, server: ServerState, uploads: Mapping[int, Message], context: Context) -> None:
        """Update the server's state from the uploads, {client id: message} in order of arrival."""

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        """Logits (n, C) of normalised images by each way of predicting that is recorded; the first is the headline
        `accuracy`.
        """
        return {"accuracy": client.model(images)}
