"""What a round costs: 32-bit words on the wire, measured from the messages, and floating-point operations (FLOPs, 2 per
multiply-add), counted by PyTorch on real steps: matrix products and convolutions, forward and backward; not
element-wise work and singular value decompositions.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from .. import models
from ..algorithms import ALGORITHMS, Algorithm, make
from ..data import Dataset
from ..data import available as data_available
from ..errors import choose, require
from ..federation import Federation, Message, Upload
from ..isolated import Isolated
from ..randomness import generator
from ..sample import Sample
from ..simulation import Outcome
from ..training import images_of_epochs, one_thread
from . import places
from .build import federation_of
from .spec import resolve
from .tables import clients_of, rounds_of

Part = Callable[[str], AbstractContextManager[Any]]  # of a round, by its name
BYTES_PER_WORD = 4  # float32 and 32-bit class ids alike, as the papers count


def kilobytes(number_of_words: float) -> float:
    """Words to KB of 1024 bytes, the unit of FedGH's Table 3."""
    return number_of_words * BYTES_PER_WORD / 1024


def training_flops(architecture: str, num_classes: int, sample: Sample | int) -> int:
    """FLOPs of one plain training step (forward and backward, 2 per multiply-add) per sample, counted by PyTorch on a
    step of two: a real one of a person's own network, one without numbers of ours. sample: what it is like; a number
    stands for 32x32 images of so many channels.
    """
    choose("architecture", architecture, models.BUILDERS)
    return _training_flops(architecture, models.BUILDERS[architecture], num_classes, Sample.of(sample))


@cache  # the builder is part of the question: a person may register another one under the same name
def _training_flops(architecture: str, builder: models.Builder, num_classes: int, sample: Sample) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    device = "meta" if models.is_built_in(architecture) else "cpu"
    model = models.build(architecture, num_classes, sample, generator(0, "init")).to(device)
    images = sample.zeros(2).to(device)
    images = images if sample.kind == "tokens" else images.float()
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.cross_entropy(model(images), torch.zeros(2, dtype=torch.long, device=device)).backward()
    return counter.get_total_flops() // 2


# ------------------------------------------------------------------------------------------ what a method exchanges


def table(methods: Sequence[str] = (), public_samples: int = 5000) -> pd.DataFrame:
    """32-bit words that a client and the server exchange in a steady-state round, down and up together, by method (all, or some).

    For each data set, `published` as the papers count and `real`: CIFAR-10 with 2 seen classes and CIFAR-100 with 10,
    CNN-1 where whole models travel. Measured from the messages of a real round on random images, after one in which
    every client took part and held the same classes, so the server has all that it will ever have for them.
    public_samples: images of a public subset, of the methods that exchange outputs on one. What FedKD's factors hold
    depends on the data.
    """
    rows = []
    for name in methods or ALGORITHMS:
        row: dict[str, Any] = {"method": name}
        for dataset in _SHAPES:
            algorithm = make(name)
            architecture = "CNN-1" if algorithm.needs == "architecture" else "CNN-5"
            federation = _small(algorithm, dataset, architecture, public_samples)
            messages, context = _steady_round(algorithm, federation), federation.server_context(1, 2)
            row[f"{dataset}_published"] = sum(algorithm.published_words(message, context) for message in messages)
            row[f"{dataset}_real"] = sum(message.words() for message in messages)
        rows.append(row)
    return pd.DataFrame(rows).set_index("method")


def messages(
    algorithm: Algorithm, dataset: str = "cifar10", architecture: str = "CNN-5", public_samples: int = 5000
) -> pd.DataFrame:
    """The tensors that a client of `architecture` and the server exchange, measured as for `table`, one row each: direction (`download`
    to the client, `upload` to the server), tensor (its name), shape and words.
    """
    choose("dataset", dataset, _SHAPES)
    choose("architecture", architecture, models.BUILDERS)
    sent = _steady_round(algorithm, _small(algorithm, dataset, architecture, public_samples))
    rows = [
        {"direction": direction, "tensor": name, "shape": tuple(tensor.shape), "words": tensor.numel()}
        for direction, message in zip(("download", "upload"), sent, strict=True)
        for name, tensor in message.tensors.items()
    ]
    return pd.DataFrame(rows, columns=["direction", "tensor", "shape", "words"])


_SHAPES = {"cifar10": (10, 2), "cifar100": (100, 10)}  # data set -> number of classes, seen classes of a client


def _small(algorithm: Algorithm, dataset: str, architecture: str, public_samples: int) -> Federation:
    """The federation of `table`."""
    num_classes, seen = _SHAPES[dataset]
    public = public_samples if hasattr(algorithm, "public_samples") else 64  # pFedHR sends none of them
    return _federation([architecture], num_classes, Sample(), seen, [2 * seen, 2 * seen], 64, public)


def _federation(
    architectures: Sequence[str],
    num_classes: int,
    sample: Sample,
    seen: int,
    samples: Sequence[int],
    batch_size: int,
    public_samples: int,
) -> Federation:
    """Clients with `samples` training images, of the same `seen` classes, and public ones beside them."""
    labels = np.concatenate([np.arange(own + 2) % seen for own in samples] + [np.arange(public_samples) % num_classes])
    images, ids = sample.random(len(labels), generator(0, "public")), sample.vocabulary or None
    arrays = images, labels, images[:0], labels[:0]
    dataset = Dataset.from_arrays("random", *arrays, num_classes, kind=sample.kind, vocabulary=ids)
    *held, public = np.split(np.arange(len(labels)), np.cumsum([own + 2 for own in samples]))
    parts = [(own[:-2], own[-2:-1], own[-1:]) for own in held]
    return Federation(dataset, parts, architectures, batch_size=batch_size, public=public)


def _steady_round(
    algorithm: Algorithm,
    federation: Federation,
    part: Part = lambda _: nullcontext(),
    visits: Sequence[tuple[int, int, int]] = ((0, 1, 64),),
    uploaded: int = 2,
    of_server: tuple[float, int] = (1, 64),
) -> list[Message]:
    """Client 0's download and upload in the second round, after a first with everyone, whose uploads the server gets again and
    again until they are `uploaded`. `part` is entered around what is done in a client's beginning (`beginning 0`), by it in
    each of `visits`, id, epochs and batch size (`visit 0, 1, 64`), each from the same state, and by the server, with `of_server`,
    epochs and batch size (`one upload`, `all uploads`).
    """
    algorithm.check(federation)
    with one_thread():
        before, after = federation.server_context(0, 2), federation.server_context(1, 2)
        before.settings = after.settings = replace(before.settings, epochs=of_server[0], batch_size=of_server[1])
        server, uploads = algorithm.init_server(before), []
        for client in federation.clients:
            context = federation.client_context(client.id, 0, 2)
            with part(f"beginning {client.id}"):
                algorithm.init_client(client, context)
            download = algorithm.download(server, client.info, before)
            uploads.append(Upload(client.info, algorithm.local_round(client, download, context)))
        with part("all uploads"):
            algorithm.aggregate(server, [uploads[place % len(uploads)] for place in range(uploaded)], before)
        messages: list[Message] = []
        states = {client.id: copy.deepcopy(client.snapshot()) for client in federation.clients}
        for id, epochs, size in visits:
            client, context = federation.clients[id], federation.client_context(id, 1, 2)
            client.restore(copy.deepcopy(states[id]))
            context.settings = replace(context.settings, epochs=epochs, batch_size=size)
            with part(f"visit {id}, {epochs}, {size}"):
                messages.append(algorithm.download(server, client.info, after))
                messages.append(algorithm.local_round(client, messages[-1], context))
        with part("one upload"):
            algorithm.aggregate(server, [Upload(federation.clients[0].info, messages[1])], after)
    return messages[:2]


# ---------------------------------------------------------------------------------------------- what a method computes


@dataclass(frozen=True)
class Flops:
    """FLOPs of a method on one architecture, by what they are proportional to.

    epoch: per training image and epoch; round: per training image and round, however many epochs (FedGH's extraction);
    batch: per image of one batch a round (Per-FedAvg's last step); public: per public image and round; fixed: per client and
    round, whatever its data; first, first_public: once per client, before its first visit, per training and per public image
    (FedMD's and FCCL's training before). Of the server, per round: upload: per upload; upload_public: per upload and public
    image (FedKEMF's ensemble); server_public: per public image; server: constant.
    """

    epoch: float
    round: float
    batch: float
    public: float
    fixed: float
    upload: float
    upload_public: float
    server_public: float
    server: float
    first: float = 0.0
    first_public: float = 0.0

    def of_visit(self, images: Any, trained: Any, batch_size: int, public: float) -> Any:
        """Of a visit of a client with so many training images, `trained` of them over its epochs, with its upload."""
        own = trained * self.epoch + images * self.round + np.minimum(images, batch_size) * self.batch
        return own + self.fixed + self.upload + public * (self.public + self.upload_public)


def flops(
    algorithm: Algorithm,
    architecture: str,
    num_classes: int = 10,
    sample: Sample | int = 3,
    classes_per_client: int = 2,
) -> Flops:
    """What a steady-state round of `algorithm` computes on clients of one architecture, counted on a few real visits.

    An upload grows with the seen classes where the server trains on them (FedGH). pFedHR's candidates depend on the
    weights, so its parts are an example, not a rule: `tests/benchmarks/bench_reassembly.py` measures its server.
    """
    return _flops(algorithm, [architecture], num_classes, Sample.of(sample), classes_per_client, 2, (1, 64))[
        architecture
    ]


def _flops(
    algorithm: Algorithm,
    architectures: Iterable[str],
    num_classes: int,
    sample: Sample,
    classes: int,
    uploads: int,
    of_server: tuple[float, int],
) -> dict[str, Flops]:
    """`flops` of each architecture of clients that train together, with so many uploads a round, which the server may train on,
    `of_server`: epochs and batch size."""
    names = tuple(sorted(set(architectures)))
    builders, uploads = tuple(map(models.BUILDERS.get, names)), max(2, min(uploads, MOST_UPLOADS))
    classes = max(1, min(classes, MOST_CLASSES))
    return _counted(algorithm, names, builders, num_classes, sample, classes, uploads, of_server)


# What is counted is small, so that it takes seconds with large networks, too: training images of a client and their batches,
# its classes, and uploads.
IMAGES, BATCH, MOST_CLASSES, MOST_UPLOADS = 10, 2, 20, 100


@cache  # by builder, as above
def _counted(
    algorithm: Algorithm,
    names: tuple[str, ...],
    _builders: tuple[models.Builder | None, ...],
    num_classes: int,
    sample: Sample,
    classes: int,
    uploaded: int,
    of_server: tuple[float, int],
) -> dict[str, Flops]:
    from torch.utils.flop_counter import FlopCounterMode

    size, count = max(IMAGES, classes), len(names)  # clients 0, 1, ... have so many images, the others twice as many

    def measured(public: int, visits: Sequence[tuple[int, int, int]]) -> Callable[[str], int]:
        counters: dict[str, FlopCounterMode] = defaultdict(lambda: FlopCounterMode(display=False))
        sizes = [size] * count + [2 * size] * count
        federation = _federation(names, num_classes, sample, classes, sizes, BATCH, public)
        _steady_round(algorithm, federation, counters.__getitem__, visits, uploaded, of_server)
        return lambda part: counters[part].get_total_flops()

    plain = [(client, 1, BATCH) for client in range(count)]
    others = [(client, *how) for client in range(count) for how in ((2, BATCH), (1, 2 * BATCH))]
    once = measured(IMAGES, plain + others + [(client + count, 1, BATCH) for client in range(count)])
    twice = measured(2 * IMAGES, plain) if algorithm.public_data != "none" else once
    uploads, server = [], []
    for run in (once, twice):
        uploads.append((run("all uploads") - run("one upload")) / (uploaded - 1))
        server.append(run("one upload") - uploads[-1])
    upload_public, server_public = ((more - less) / IMAGES for less, more in (uploads, server))
    server_parts = uploads[0] - upload_public * IMAGES, upload_public, server_public, server[0] - server_public * IMAGES

    def parts(client: int) -> Flops:
        usual = once(f"visit {client}, 1, {BATCH}")
        epoch = (once(f"visit {client}, 2, {BATCH}") - usual) / size
        own = max(
            epoch, (once(f"visit {client + count}, 1, {BATCH}") - usual) / size
        )  # less by FedKD's chosen ranks alone
        batch = (once(f"visit {client}, 1, {2 * BATCH}") - usual) / BATCH
        image = (twice(f"visit {client}, 1, {BATCH}") - usual) / IMAGES
        fixed = usual - own * size - batch * BATCH - image * IMAGES
        first = (once(f"beginning {client + count}") - once(f"beginning {client}")) / size
        first_public = (twice(f"beginning {client}") - once(f"beginning {client}")) / IMAGES
        return Flops(epoch, own - epoch, batch, image, fixed, *server_parts, first, first_public)

    return {name: parts(client) for client, name in enumerate(names)}


def relative_to_standalone(algorithm: Algorithm, architecture: str, epochs: int = 1) -> float:
    """FLOPs of a client's round of `epochs` by those of Standalone, with ten classes: what grows with its training images, for
    one of infinitely many.
    """
    cost = flops(algorithm, architecture)
    return (cost.epoch + cost.round / epochs) / training_flops(architecture, 10, 3)


def of_outcome(outcome: Outcome, algorithm: Algorithm) -> np.ndarray:
    """Cumulative FLOPs by the end of each round of a simulation: of all clients, each with its architecture and its
    training images, and of the server, public images and what is trained before a client's first visit included.
    """
    return _spent(outcome.federation, algorithm, clients_of(outcome))


def _spent(federation: Federation, algorithm: Algorithm, clients: pd.DataFrame) -> np.ndarray:
    """`of_outcome`. clients: a record's table, which says who took part in each round."""
    clients = clients[clients["round"] >= 0]
    settings, infos, ids = federation.settings, federation.infos, clients["client"].to_numpy()
    names, images = [info.architecture for info in infos], np.array([info.num_samples for info in infos])
    classes = round(float(np.mean([len(info.classes) for info in infos])))
    uploads = round(clients.groupby("round").size().mean())
    shape = federation.num_classes, federation.sample, classes, uploads, (settings.epochs, settings.batch_size)
    cost = _flops(algorithm, names, *shape)
    public = 0.0 if federation.public is None else _public(algorithm, len(federation.public.indices))
    trained = [sum(images_of_epochs(settings, count)) for count in images]
    each = list(zip(map(cost.__getitem__, names), images, trained, strict=True))
    visit = np.array([own.of_visit(n, seen, settings.batch_size, public) for own, n, seen in each])
    first = np.array([n * own.first + public * own.first_public for own, n, _ in each])
    of_clients = visit[ids] + np.where(clients["client"].duplicated(), 0, first[ids])
    server = cost[names[0]].server + public * cost[names[0]].server_public
    return np.asarray(np.cumsum(np.bincount(clients["round"], of_clients) + server))


def _public(algorithm: Algorithm, held: float) -> float:
    """How many of the public images a round uses."""
    method = algorithm.method if isinstance(algorithm, Isolated) else algorithm
    return 0.0 if algorithm.public_data == "none" else float(min(held, getattr(method, "public_samples", held)))


def of_run(run: Any) -> np.ndarray:
    """Cumulative FLOPs of a run, a record, by the end of each round: as they were counted when it ended or, where they were not
    (see `LARGE`), as `of_outcome` counts them on clients that are dealt their images again; of an older result of record those
    of results/computed.csv.gz. Raises FedlibError where the data are not at hand.
    """
    if len(run.flops):
        return run.flops["flops"].to_numpy(float)
    if run.of_record and run.key in (known := _computed(places.RESULTS)):
        return known[run.key]
    resolved = resolve(replace(run.spec, device="cpu"))
    there = data_available(run.spec.dataset) and resolved.hashed["data"] == run.hashed["data"]
    require(there, "run", run.key, f"where {run.spec.dataset} is at hand, for its FLOPs are counted on its images")
    return _spent(federation_of(resolved), resolved.simulated, run.clients)


@cache
def _computed(results: Path) -> dict[str, np.ndarray]:
    """What `tests/computed.py` counted of the results of record that were stored without FLOPs, by key."""
    file = results / "computed.csv.gz"
    found = pd.read_csv(file) if file.exists() else pd.DataFrame({"key": [], "flops": []})
    return {str(key): own.to_numpy(float).cumsum() for key, own in found.groupby("key", sort=False)["flops"]}


LARGE = 1e13  # FLOPs of plain training, minutes of a core: smaller runs are counted when somebody asks, for it takes seconds


def at_end(outcome: Outcome, run: Any) -> pd.DataFrame | None:
    """`of_outcome` by round of a run, resolved, that is `LARGE`; None of another, and where what a person defined cannot be
    counted apart from its run.
    """
    infos, shape = outcome.federation.infos, (run.info.num_classes, run.info.sample)
    plain = {name: training_flops(name, *shape) for name in {info.architecture for info in infos}}
    images = sum(row["samples"] for row in outcome.round_rows)
    if images * np.mean([plain[info.architecture] for info in infos]) < LARGE:
        return None
    try:
        spent = of_outcome(outcome, run.simulated)
    except Exception:  # whatever one's own code raises of a few random samples; the run is stored all the same
        return None
    return pd.DataFrame({"round": range(len(spent)), "flops": spent})


def budgets(run: Any) -> dict[str, tuple[float, float]]:
    """What a run, a record, has spent of each budget that its specification has, and the budget: `FLOPs` as `of_run` counts
    them, `words` as they travel, both ways.
    """
    return _budgets(run.spec, run.rounds, lambda: of_run(run))


def _budgets(spec: Any, rounds: pd.DataFrame, flops_of: Callable[[], np.ndarray]) -> dict[str, tuple[float, float]]:
    found = {}
    if spec.budget_flops:
        found["FLOPs"] = (float(flops_of()[-1]), spec.budget_flops)
    if spec.budget_words:
        sent = rounds[["download_words", "upload_words"]].to_numpy(float)
        found["words"] = (float(np.nansum(sent)), spec.budget_words)  # there are none before the first round
    return found


def used_up(run: Any) -> Callable[[Outcome], bool] | None:
    """Of a run, resolved, with a budget: whether a simulation has used up one (`simulate(..., enough=)`); else None."""
    spec = run.spec
    if not (spec.budget_flops or spec.budget_words):
        return None

    def enough(outcome: Outcome) -> bool:
        found = _budgets(spec, rounds_of(outcome), lambda: of_outcome(outcome, run.simulated))
        return any(used >= most for used, most in found.values())

    return enough
