"""Clients, their data and models, and the messages between them and the server, ready to train."""

import copy
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from . import devices, models, partition, randomness, training
from .data import Dataset
from .errors import FedlibError, choose, coerce, require, whole_or_part
from .metrics import measured
from .protocol import Protocol
from .sample import KINDS, Sample


@dataclass
class Message:
    """What travels between server and client: named tensors, and no size of its own, since its size is measured.

    num_samples: the sender's number of training images (not counted); structure: plain layer records of a model, if
    one is sent; diagnostics: numbers about the sender's round, for its record. They are handed back beside an upload,
    the server does not see them. `Message()` is an empty one.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    num_samples: int = 0
    structure: tuple[Any, ...] | None = None
    diagnostics: dict[str, float | Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def words(self, uncounted: Collection[str] = ()) -> int:
        """32-bit words on the wire, without the tensors named in `uncounted`; a 64-bit class id counts as one."""
        return sum(tensor.numel() for name, tensor in self.tensors.items() if name not in uncounted)


@dataclass(frozen=True)
class PublicData:
    """Images that the server and every client can see: int64 `indices` into `pool`.

    The pool is the federation's own, or another data set's of the same kind, shape and numbers (images are brought to the
    same channels), normalised alike.
    labelled: whether `pool.labels` are their labels; otherwise these are -1. Another data set's labels are taken as
    they are: its class k stands for output k, whatever it shows. augment: whether they may be flipped, erased and
    cropped.
    """

    pool: training.Pool
    indices: Tensor
    labelled: bool = True
    augment: bool = False

    def sample(self, count: int, stream: np.random.Generator) -> Tensor:
        """`count` of the indices, drawn without replacement (all of them, in another order, if there are fewer)."""
        return self.indices[torch.from_numpy(stream.permutation(len(self.indices))[:count]).to(self.indices.device)]


@dataclass(frozen=True)
class ClientInfo:
    """What the server knows of a client, no data: its id, architecture, seen classes (sorted, int64) and number of
    training images.
    """

    id: int
    architecture: str
    classes: Tensor
    num_samples: int


class Upload(NamedTuple):
    """A message that reached the server, and whose it is."""

    info: ClientInfo
    message: Message


@dataclass(slots=True)
class Client:
    """One client: indices of its images, its personal model, and what a method keeps between rounds (`state`).

    train, validation, test: int64 indices into `pool`, which shows the client its own images. whole: the federation's
    images, which no method reads. build: called with an architecture, the network that the client starts from. `model`
    is built on first use; `offload` frees it and `state` until one of them is used again.
    """

    info: ClientInfo
    whole: training.Pool
    train: Tensor
    validation: Tensor
    test: Tensor
    build: "Initial"
    visited: bool = False
    _pool: training.Pool | None = None
    _state: dict[str, Any] = field(default_factory=dict)
    _model: nn.Module | None = None
    _fetch: Callable[[], dict[str, Any]] | None = None  # gives the snapshot of a client that was put away

    @property
    def id(self) -> int:
        return self.info.id

    @property
    def classes(self) -> Tensor:
        """The seen classes: those of the training images, sorted."""
        return self.info.classes

    @property
    def num_samples(self) -> int:
        return self.info.num_samples

    @property
    def pool(self) -> training.Pool:
        """The client's own images, and their labels but for the test images', which are -1. Indices of others' images
        show nothing.
        """
        if self._pool is None:
            self._pool = self.whole.part(torch.cat([self.train, self.validation, self.test]), self.test)
        return self._pool

    @property
    def state(self) -> dict[str, Any]:
        self._reload()
        return self._state

    @property
    def model(self) -> Any:
        self._reload()
        if self._model is None:
            self._model = self.build(self.info.architecture)
        return self._model

    @model.setter
    def model(self, model: nn.Module) -> None:
        self._reload()
        self._model = model

    def leave(self) -> None:
        """What an end of a visit frees: gradients, which are as large as the model, and the images shown."""
        self.model.zero_grad()
        self._pool = None

    def snapshot(self) -> dict[str, Any]:
        """Plain tensors and numbers from which `restore` rebuilds the client."""
        return {"model": self.model.state_dict(), "state": self.state}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._model, self._fetch = None, None
        self.model.load_state_dict(snapshot["model"])
        self._state = snapshot["state"]
        self.visited = True

    def offload(self, fetch: Callable[[], dict[str, Any]]) -> None:
        """Hold neither model nor state in memory; `fetch` is called for the snapshot when one of them is used."""
        self._model, self._pool, self._state, self._fetch, self.visited = None, None, {}, fetch, True

    def reset(self) -> None:
        """As before the first visit."""
        self._model, self._pool, self._state, self._fetch, self.visited = None, None, {}, None, False

    def _reload(self) -> None:
        if self._fetch is not None:
            self.restore(self._fetch())


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std of its images in [0, 1]


def statistics(dataset: Dataset, normalise: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std per channel that `Protocol.normalise` names: `half` and `imagenet` are of images in [0, 1] alone."""
    channels, kind = dataset.sample.channels, dataset.sample.kind
    allowed = f"'dataset': {dataset.name} has {KINDS[kind].plural}, each channel with a mean and deviation of its own"
    require(kind == "image" or normalise in ("dataset", "released"), "normalise", normalise, allowed)
    if normalise == "half":
        return (0.5,) * channels, (0.5,) * channels
    if normalise == "imagenet" or (normalise == "released" and dataset.name == "cifar10"):
        require(
            channels == 3, "normalise", normalise, f"another, since {dataset.name} has {channels} channel(s), not 3"
        )
        return IMAGENET
    return dataset.mean, dataset.std


@dataclass
class Initial:
    """Called with an architecture, a copy of its initial network: one initial state an architecture or, of the `client`
    whose id it has (`Protocol.starts` apart), one drawn from that client's own stream. Knows nothing else of the
    clients, so that a federation is freed as soon as nobody holds it. weights: what is loaded into a network that was drawn;
    header_scale: the protocol's.
    """

    seed: int
    num_classes: int
    sample: Sample
    device: torch.device
    states: dict[str, nn.Module] = field(default_factory=dict)
    layouts: dict[str, dict[str, Any]] = field(default_factory=dict)
    weights: Mapping[str, dict[str, Tensor]] = field(default_factory=dict)
    client: int | None = None
    header_scale: float = 1.0

    def __call__(self, architecture: str) -> nn.Module:
        with training.one_thread():
            if self.client is not None:
                return self._drawn(architecture, self.client)
            if architecture not in self.states:
                self.states[architecture] = self._drawn(architecture, zlib.crc32(architecture.encode()))
            return copy.deepcopy(self.states[architecture])

    def layout(self, architecture: str) -> dict[str, Any]:
        """`models.layout` of an architecture's networks."""
        if architecture not in self.layouts:
            self.layouts[architecture] = models.layout(self.states.get(architecture) or self(architecture))
        return self.layouts[architecture]

    def _drawn(self, architecture: str, whose: int) -> nn.Module:
        stream = randomness.generator(self.seed, "init", client=whose)
        network = models.build(architecture, self.num_classes, self.sample, stream)
        if architecture in self.weights:
            from . import zoo

            zoo.load(architecture, network, self.weights[architecture])
        if self.header_scale != 1:
            has = isinstance(getattr(network, "header", None), nn.Linear)
            require(has, "header_scale", self.header_scale, f"1 for {architecture}, which has no header")
            with torch.no_grad():
                for tensor in network.header.parameters():  # type: ignore[union-attr]
                    tensor *= self.header_scale
        return network.to(self.device)


Held = np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]  # what a client holds: to be split, or split already


def indices_within(field: str, values: Any, size: int) -> np.ndarray:
    """`values` as int64 (n,), each within 0..size-1; raises FedlibError where they are not."""
    try:
        indices = np.asarray(values)
    except (TypeError, ValueError):
        raise FedlibError(f"{field}: must be an array of indices of images") from None
    shown = f"{indices.dtype} {indices.shape}"
    fits = indices.ndim == 1 and (indices.dtype.kind in "iu" or not indices.size)
    require(fits, field, shown, "an array (n,) of whole numbers, the indices of images")
    for index in (indices.min(), indices.max()) if indices.size else ():
        require(0 <= index < size, field, int(index), f"within 0..{size - 1}, the indices of the images")
    return indices.astype(np.int64)


def _parts(partition: Any, size: int) -> list[Held]:
    """Each client's index arrays, as Federation takes them."""
    allowed = "a list with an index array, or a (train, validation, test) tuple of them, per client"
    require(
        isinstance(partition, Sequence | np.ndarray) and not isinstance(partition, str), "partition", partition, allowed
    )
    require(len(partition) > 0, "partition", partition, allowed)
    parts: list[Held] = []
    for id, part in enumerate(partition):
        if isinstance(part, tuple):
            require(len(part) == 3, f"partition: parts of client {id}", len(part), "train, validation and test")
            train, validation, test = (indices_within(f"partition: client {id}", own, size) for own in part)
            parts.append((train, validation, test))
        else:
            parts.append(indices_within(f"partition: client {id}", part, size))
    return parts


def _check_each_image_once(parts: Sequence[Held], public: np.ndarray | None) -> None:
    """Raise FedlibError when two of the index arrays, or one of them twice, hold the same image."""
    held = [
        (f"client {id}", own) for id, part in enumerate(parts) for own in (part if isinstance(part, tuple) else [part])
    ]
    held += [("the public data", public)] if public is not None else []
    owner: dict[int, str] = {}
    for name, indices in held:
        for index in indices.tolist():
            if index in owner:
                raise FedlibError(f"partition: image {index} is held twice, by {owner[index]} and by {name}")
            owner[index] = name


class Federation:
    """A data set, a partition and one architecture per client, ready to train.

    dataset: see `data.Dataset`; partition: one array of indices into the pooled images per client, each split here as
    the protocol says, or one (train, validation, test) triple of such arrays per client; architectures: names given to
    clients 0, 1, 2, ... in turn; public: for methods that need public data, indices into the pooled images that no
    client holds, or into those of `public_dataset`; public_labels: whether they come with their labels;
    metrics: names of what is measured besides accuracy, see `metrics.measured`; newcomers: how many clients, drawn by
    the seed, take no part before the last round, which is theirs alone; newcomer_visits: or, if above 0, none in any round:
    after the last one they get a download, and up to so many visits of E local epochs each; schedule: of the rate over the rounds, see
    `optimisers.rates`, empty for none; deterministic: on CUDA, the same bits each time, and an error where a layer has no such
    kernel; weights: of an architecture, tensors by name that its
    networks start from, see `zoo.load`. Raises
    FedlibError when a client would hold fewer than three images, and when an image is held twice: by two clients, in
    two parts of one, or by a client and the public; and when the protocol would augment images of a data set that does
    not say that they may be.
    """

    def __init__(
        self,
        dataset: Dataset,
        partition: Sequence[Held],
        architectures: Sequence[str] = models.SCENARIOS["heterogeneous"],
        *,
        protocol: Protocol | None = None,
        local_epochs: float = 1,
        batch_size: int = 64,
        seed: int = 0,
        device: str = "cpu",
        precision: str = "fp32",
        public: np.ndarray | None = None,
        public_dataset: Dataset | None = None,
        public_labels: bool = True,
        metrics: str = "",
        newcomers: int = 0,
        newcomer_visits: int = 0,
        schedule: str = "",
        deterministic: bool = True,
        weights: Mapping[str, dict[str, Tensor]] | None = None,
    ):
        require(isinstance(dataset, Dataset), "dataset", dataset, "a Dataset, such as data.load('digits')")
        protocol = Protocol() if protocol is None else protocol
        require(isinstance(protocol, Protocol), "protocol", protocol, "a Protocol")
        protocol.check_augmentation(dataset.name, dataset.augment)
        local_epochs, batch_size = whole_or_part("local_epochs", local_epochs), coerce("batch_size", batch_size, int)
        require(0 < local_epochs < 2**63, "local_epochs", local_epochs, "above 0 and below 2**63")
        require(1 <= batch_size < 2**63, "batch_size", batch_size, "between 1 and 2**63 - 1")
        seed = coerce("seed", seed, int)
        require(0 <= seed < 2**63, "seed", seed, "between 0 and 2**63 - 1")
        choose("precision", precision, training.PRECISIONS)
        listed = isinstance(architectures, Sequence) and not isinstance(architectures, str) and len(architectures) > 0
        require(listed, "architectures", architectures, "a list of names, at least one")
        for architecture in architectures:
            choose("architecture", architecture, models.BUILDERS)
        self.seed, self.device, self.protocol = seed, devices.found(device), protocol
        self.deterministic = coerce("deterministic", deterministic, bool)
        self.num_classes, self.sample = dataset.num_classes, dataset.sample
        self.architectures = tuple(architectures)
        self.settings = training.Settings(
            local_epochs,
            batch_size,
            protocol.lr,
            protocol.momentum,
            protocol.weight_decay,
            protocol.clip_norm,
            protocol.optimiser,
        )
        self.schedule = coerce("schedule", schedule, str)
        self.metrics = measured(coerce("metrics", metrics, str))
        mean, std = statistics(dataset, protocol.normalise)
        subtracted, divided = (self.sample.shaped(values, self.device) for values in (mean, std))
        self.pool = training.Pool(
            dataset.images.to(self.device), dataset.labels.to(self.device), subtracted, divided, precision
        )
        if public is not None:
            shared = public_dataset or dataset
            require(isinstance(shared, Dataset), "public_dataset", public_dataset, "a Dataset")
            public = indices_within("public", public, len(shared.labels))
        public_labels = coerce("public_labels", public_labels, bool)
        least = int(dataset.labels.min()) if len(dataset.labels) else 0
        require(least >= 0, f"labels of {dataset.name}", least, "at least 0; -1 stands for an image without a label")
        parts = _parts(partition, len(dataset.labels))
        _check_each_image_once(parts, public if public_dataset is None else None)
        self.public = None if public is None else self._public(public, public_dataset, public_labels, shared.augment)
        self.last_trained: dict[str, int] = {}  # architecture -> id of the last client that trained
        self.after_visit: Callable[[Client], None] | None = None  # called when a client's part of a round is over
        self.visit_seconds = 0.0  # that the last visit took, 0 before the first
        self.build = Initial(
            seed, self.num_classes, self.sample, self.device, weights=weights or {}, header_scale=protocol.header_scale
        )
        labels = dataset.labels.numpy()
        self.clients = [self._client(id, part, labels, len(parts)) for id, part in enumerate(parts)]
        newcomers = coerce("newcomers", newcomers, int)
        allowed = f"between 0 and {len(parts) - 1}, fewer than the {len(parts)} clients"
        require(0 <= newcomers < len(parts), "newcomers", newcomers, allowed)
        self.newcomer_visits = coerce("newcomer_visits", newcomer_visits, int)
        allowed = "at least 0, and 0 where there are no newcomers"
        require(self.newcomer_visits >= 0, "newcomer_visits", newcomer_visits, allowed)
        require(newcomers > 0 or not self.newcomer_visits, "newcomer_visits", newcomer_visits, allowed)
        order = randomness.generator(seed, "newcomers").permutation(len(parts)) if newcomers else np.arange(len(parts))
        self.newcomers, self.members = np.sort(order[:newcomers]), np.sort(order[newcomers:])

    def _public(self, indices: np.ndarray, dataset: Dataset | None, labelled: bool, augment: bool) -> PublicData:
        pool = self.pool
        if dataset is not None:
            images, labels = dataset.like(self.sample).to(self.device), dataset.labels.to(self.device)
            pool = replace(pool, stored=images, labels=labels)
        else:  # the others are the clients'
            shown = torch.from_numpy(indices).to(self.device)
            pool = pool.part(shown, shown[:0])
        if not labelled:
            pool = replace(pool, labels=torch.full_like(pool.labels, -1))
        return PublicData(pool, torch.from_numpy(indices).to(self.device), labelled, augment)

    def _client(self, id: int, part: Any, labels: np.ndarray, num_clients: int) -> Client:
        if not isinstance(part, tuple):
            part = partition.split_client(labels, part, self.protocol.parts, self.seed, id, num_clients)
        sizes = tuple(map(len, part))
        allowed = (
            f"few enough (or dealt evenly enough) that each holds an image of each part of split {self.protocol.split}; client {id} "
            f"would hold {sizes} to train, validate and test on"
        )
        empty = any(size == 0 < share for size, share in zip(sizes, self.protocol.parts, strict=True))
        require(not empty, "num_clients", num_clients, allowed)
        train, validation, test = (torch.from_numpy(indices).to(self.device) for indices in part)
        info = ClientInfo(
            id, self.architectures[id % len(self.architectures)], self.pool.labels[train].unique(), len(train)
        )
        build = replace(self.build, client=id) if self.protocol.starts == "apart" else self.build
        return Client(info, self.pool, train, validation, test, build)

    @property
    def channels(self) -> int:
        """The length of a sample's first axis."""
        return self.sample.channels

    @property
    def infos(self) -> list[ClientInfo]:
        """What the server knows of each client, in order of id."""
        return [client.info for client in self.clients]

    def server_context(self, round: int = 0, rounds: int = 1) -> "ServerContext":
        """What the server may use in `round` of `rounds`."""
        return ServerContext(**self._known(round, rounds), infos=self.infos)

    def client_context(self, client: int, round: int = 0, rounds: int = 1) -> "ClientContext":
        """What the client with this id may use in `round` of `rounds`."""
        known = self._known(round, rounds) | {"build": self.clients[client].build}
        return ClientContext(**known, client=self.clients[client])

    def _known(self, round: int, rounds: int) -> dict[str, Any]:
        """The fields of `SharedContext`."""
        settings = self.settings
        if self.schedule:
            from .optimisers import rate

            settings = replace(settings, lr=rate(self.schedule, settings.lr, round, rounds))
        return {
            "seed": self.seed,
            "round": round,
            "rounds": rounds,
            "settings": settings,
            "augmentation": self.protocol.augmentation,
            "num_classes": self.num_classes,
            "sample": self.sample,
            "first_architecture": self.architectures[0],
            "device": self.device,
            "public_data": self.public,
            "build": self.build,
            "metrics": self.metrics,
        }

    def inherit(self, client: Client, round: int) -> bool:
        """Under `Protocol.inherit`, start a client's first visit from the model of the last client of its architecture
        that trained; whether it did.
        """
        donor = self.last_trained.get(client.info.architecture)
        inherits = self.protocol.inherit == "first_visit" or (self.protocol.inherit == "first_round" and round == 0)
        if donor is None or not inherits:
            return False
        client.model.load_state_dict(self.clients[donor].model.state_dict())
        return True


@dataclass(kw_only=True)
class SharedContext:
    """What server and clients both know of a round; through it neither reaches the other.

    round: this one, from 0; rounds: how many there are; settings: how a local round trains (with 0 epochs not at all: what
    the client has received is all that it gets); augmentation: the
    protocol's; sample: what the data look like; first_architecture: client 0's, whose initial header a server begins with;
    build: called with an architecture, a copy of its initial network; metrics: what is measured besides accuracy.
    """

    seed: int
    round: int
    rounds: int
    settings: training.Settings
    augmentation: str
    num_classes: int
    sample: Sample
    first_architecture: str
    device: torch.device
    public_data: PublicData | None
    build: Callable[[str], nn.Module]
    metrics: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """The length of a sample's first axis, such as an image's channels."""
        return self.sample.channels

    @property
    def public(self) -> PublicData:
        """The public data; there are some whenever the method declares that it needs them."""
        if self.public_data is None:
            raise FedlibError("public_data = 'none': must be 'labelled' or 'unlabelled', for context.public")
        return self.public_data

    def shared_generator(self, purpose: str) -> np.random.Generator:
        """The random stream of this round for `purpose` (see `randomness.PURPOSES`) that the server and every client
        can draw alike.
        """
        return randomness.generator(self.seed, purpose, self.round)


@dataclass(kw_only=True)
class ServerContext(SharedContext):
    """What a method's server may use in a round besides its own state: no client and no client's images.

    infos: what it knows of each client, in order of id.
    """

    infos: list[ClientInfo]

    def generator(self, purpose: str) -> np.random.Generator:
        """The server's random stream of this round for `purpose` (see `randomness.PURPOSES`)."""
        return self.shared_generator(purpose)

    def initial_header(self) -> nn.Linear:
        """A copy of the initial header of the first architecture (CNN-1 in the papers' scenarios), whatever the clients
        start from.
        """
        return self.build(self.first_architecture).header  # type: ignore[return-value]


@dataclass(kw_only=True)
class ClientContext(SharedContext):
    """What one client may use in a round: its own images and random streams, and the local training loop; no other
    client and nothing of the server but its message.

    client: whose images these are; loss: the mean training loss of the last `train`, None before.
    """

    client: Client
    loss: Tensor | None = None

    def generator(self, purpose: str) -> np.random.Generator:
        """The client's random stream of this round for `purpose` (see `randomness.PURPOSES`)."""
        return randomness.generator(self.seed, purpose, self.round, self.client.id)

    @cached_property
    def augment(self) -> Callable[[Tensor], Tensor] | None:
        """What this round's training does to a batch of the client's images, with one stream for the whole round; None
        where the protocol leaves them.
        """
        if self.augmentation == "none":
            return None
        stream, an_epoch = self.generator("augmentation"), training.DRAWS * self.client.num_samples
        return partial(training.augmented, stream=training.Ahead(stream, an_epoch, self.device))

    def batches(self, purpose: str = "batches") -> Iterator[tuple[Tensor, Tensor]]:
        """(images, labels) of E epochs over the client's images, augmented as the protocol says, for a method whose
        local step is not one optimiser step on a loss; none where E is 0. Where the client's model has batch normalisation, a last batch
        of one joins the one before it.
        """
        client, stream = self.client, self.generator(purpose)
        normalised = bool(training.batch_norms([client.model]))
        return training.batches(client.pool, client.train, self.settings, stream, self.augment, normalised)

    def train(
        self,
        loss: Callable[..., Tensor] = training.cross_entropy,
        modules: Mapping[str, nn.Module] | None = None,
        purpose: str = "batches",
        epochs: float | None = None,
        lr: float | None = None,
        support: str | None = None,
        **named: Any,
    ) -> Tensor:
        """Train on the client's images for E epochs with `loss` (`epochs` and `lr` replace the run's); returns the mean
        loss, a scalar tensor. With `epochs` 0, or where E is 0, nothing is trained: 0 is returned, and `self.loss` stays as it was.

        `modules` are trained and handed to the loss by name, by default {"model": client.model}; `named` tensors and
        modules are handed to it and left as they are. Batches are drawn from the stream of `purpose`; with a second
        purpose, `support`, each step also gets a batch of that stream, as `support_images` and `support_labels`.
        """
        client, settings = self.client, self.settings
        epochs, lr = settings.epochs if epochs is None else epochs, settings.lr if lr is None else lr
        require(epochs >= 0, "epochs", epochs, "at least 0 (0: nothing is trained)")
        epochs = epochs if self.settings.epochs else 0
        settings = replace(settings, epochs=epochs, lr=lr)
        modules = modules or {"model": client.model}
        stream, second = self.generator(purpose), self.generator(support) if support else None
        found = training.train(loss, modules, client.pool, client.train, settings, stream, named, second, self.augment)
        self.loss = found if epochs else self.loss
        return found
