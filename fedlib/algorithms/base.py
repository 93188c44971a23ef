"""The contract between a method and the simulation: a frozen dataclass of hyper-parameters and a few short methods."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from .. import fields, models
from ..errors import FedlibError, require
from ..federation import (
    Client,
    ClientContext,
    ClientInfo,
    Federation,
    Message,
    PublicData,
    ServerContext,
    SharedContext,
    Upload,
)
from ..look import Look
from ..sample import Sample

ServerState = dict[str, Any]  # plain tensors and numbers, so that it checkpoints


def check_public_labels(name: str, public: PublicData, num_classes: int) -> None:
    """Raise FedlibError unless the public images have labels that are classes of the clients'."""
    if not public.labelled:
        raise FedlibError(f"algorithm = {name!r}: needs labelled public data, and these have no labels")
    largest = int(public.pool.labels[public.indices].max())
    require(largest < num_classes, "public labels", largest, f"below {num_classes}, the number of the clients' classes")


@dataclass(frozen=True)
class Algorithm:
    """A federated method. The simulation calls, each round: `download` for each of the round's clients, then
    `local_round` for each, then `aggregate` once. Its fields are its hyper-parameters, each with a default and perhaps
    limits: `mu: float = fields.setting(0.5, ge=0, le=1)`, see `fedlib.fields`.

    Nothing but messages passes between clients and server. What a client keeps lives on `client.model` and
    `client.state`, what the server keeps in its state: plain tensors and numbers. A context is what one side may use
    besides. Diagnostics are handed back: a client's, numbers, with its upload, and rounds.csv has their mean over the
    round's clients; the server's by `aggregate`, numbers for rounds.csv and anything else for details.jsonl. A toy
    method that shares the mean of the header's biases is complete with::

        @dataclass(frozen=True)
        class SharedBias(Algorithm):
            name = "SharedBias"
            paper = "an example"
            exchanges = "header bias"
            needs = "features"

            def init_server(self, context):
                return {"bias": context.initial_header().bias.detach()}

            def download(self, server, info, context):
                return Message({"bias": server["bias"]})

            def local_round(self, client, message, context):
                client.model.header.bias.data.copy_(message["bias"])
                context.train()
                return Message({"bias": client.model.header.bias.detach()})

            def aggregate(self, server, uploads, context):
                server["bias"] = torch.stack([message["bias"] for _, message in uploads]).mean(0)
    """

    name: ClassVar[str]
    paper: ClassVar[str] = "one's own"  # authors, title or venue, year
    exchanges: ClassVar[str] = "-"  # what travels, in a few words
    public_data: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"  # images that server and clients share
    # equal for all clients: the architecture, or `features`, the header's width; images: samples that are no images are refused
    needs: ClassVar[Literal["", "features", "architecture", "images"]] = ""
    look: ClassVar[Look | None] = None  # in figures; None: one from a spare palette
    uncounted: ClassVar[tuple[str, ...]] = ()  # names of a message's tensors that the paper does not count
    together: ClassVar[str] = ""  # why it cannot run with a server for each client (`Isolated`); empty: it can

    def __new__(cls, *given: Any, **named: Any) -> "Algorithm":
        """Raises FedlibError where a hyper-parameter is of another type than its default, or beyond its limits."""
        parameters = {item.name: item for item in dataclasses.fields(cls)}
        for name, value in (*zip(parameters, given, strict=False), *named.items()):
            if name in parameters:
                fields.check(parameters[name], value)
        return super().__new__(cls)

    def check(self, federation: Federation) -> None:
        """Raise FedlibError in one line when this method cannot run on `federation`."""
        if self.public_data != "none" and (federation.public is None or not len(federation.public.indices)):
            raise FedlibError(
                f"algorithm = {self.name!r}: needs {self.public_data} public data, and this federation has none; "
                "pass public= (indices that no client holds, or into public_dataset)"
            )
        if self.public_data == "labelled" and federation.public is not None:
            check_public_labels(self.name, federation.public, federation.num_classes)
        self.check_samples(federation.architectures, federation.sample)
        different = sorted(set(federation.architectures))
        if self.needs == "architecture" and len(different) > 1:
            raise FedlibError(
                f"algorithm = {self.name!r}: averages networks or their extractors, so every client needs the same architecture; "
                f"got {', '.join(different)} (use scenario homogeneous, homogeneous-M1 or homogeneous-M4)"
            )
        if self.needs == "features":
            self.check_widths(federation)

    def check_widths(self, federation: Federation) -> None:
        """Raise FedlibError in one line unless all clients' headers have the same number of inputs."""
        names = sorted(set(federation.architectures))
        widths = {name: models.feature_width(name, federation.num_classes, federation.sample) for name in names}
        if len(set(widths.values())) > 1:
            own = not all(map(models.is_built_in, names))
            mend = (
                "end each extractor in a linear layer of one width"
                if own
                else "use scenario heterogeneous or reassembly-500"
            )
            raise FedlibError(
                f"algorithm = {self.name!r}: what it shares depends on the header's input width, which must be "
                f"equal for all clients; got {widths} ({mend})"
            )

    def check_samples(self, architectures: Iterable[str], sample: Sample) -> None:
        """Raise FedlibError in one line when this method, or a network of it or of a client, is not for such samples; before any is
        read.
        """
        if self.needs == "images" and sample.kind != "image":
            raise FedlibError(f"algorithm = {self.name!r}: needs images, and these samples are {sample}")
        for architecture in sorted(set(architectures)):
            models.check_takes("architecture", architecture, sample)
        for item in dataclasses.fields(self):  # networks that hyper-parameters name
            value = getattr(self, item.name)
            if isinstance(value, str) and value in models.BUILDERS:
                models.check_takes(f"{self.name} {item.name}", value, sample)

    def init_server(self, context: ServerContext) -> ServerState:
        """The server's state before round 0."""
        return {}

    def init_client(self, client: Client, context: ClientContext) -> None:
        """Called once, before the client's first round; may train."""

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        """What the server sends to the client described by `info`; changes nothing, since all downloads of a round are
        made before anyone trains.
        """
        return Message()

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        """Train the client on its data; returns its upload, with its diagnostics if there are any.

        The loss that is recorded is the diagnostic `loss`, or else that of the last `context.train`.
        """
        raise NotImplementedError

    def aggregate(
        self, server: ServerState, uploads: Sequence[Upload], context: ServerContext
    ) -> dict[str, Any] | None:
        """Update the server's state from the uploads, (info, message) in order of arrival; returns its diagnostics."""
        return None

    def published_words(self, message: Message, context: ServerContext) -> int:
        """32-bit words of a download or an upload as the method's own paper counts them: what the message holds, less
        what `uncounted` names. A method whose paper counts what is not sent here says so in its own.
        """
        return message.words(self.uncounted)

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        """Logits (n, C) of normalised images by each way of predicting that is recorded; the first is the headline
        `accuracy`.
        """
        return {"accuracy": client.model(images)}


__all__ = [
    "Algorithm",
    "Client",
    "ClientContext",
    "ClientInfo",
    "Federation",
    "Look",
    "Message",
    "PublicData",
    "ServerContext",
    "ServerState",
    "SharedContext",
    "Upload",
    "check_public_labels",
]
