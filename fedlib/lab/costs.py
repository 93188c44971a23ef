"""What a round costs: 32-bit words on the wire, measured from the messages, and floating-point operations (FLOPs, 2 per
multiply-add), counted by PyTorch on real steps: matrix products and convolutions, forward and backward; not
element-wise work and singular value decompositions.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from .. import models
from ..algorithms import ALGORITHMS, Algorithm, make
from ..data import Dataset
from ..data import info as data_info
from ..errors import choose
from ..federation import Federation, Message, Upload
from ..randomness import generator
from ..sample import Sample
from ..simulation import Outcome
from ..training import one_thread
from .tables import rounds_of

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
    return _federation(architecture, num_classes, Sample(), seen, 2 * seen, 64, 1, public)


def _federation(
    architecture: str,
    num_classes: int,
    sample: Sample,
    seen: int,
    samples: int,
    batch_size: int,
    epochs: int,
    public_samples: int,
) -> Federation:
    """Two clients with `samples` training images each, of the same `seen` classes, and public ones beside them."""
    own = samples + 2
    labels = np.concatenate([np.arange(2 * own) % own % seen, np.arange(public_samples) % num_classes])
    images, ids = sample.random(len(labels), generator(0, "public")), sample.vocabulary or None
    arrays = images, labels, images[:0], labels[:0]
    dataset = Dataset.from_arrays("random", *arrays, num_classes, kind=sample.kind, vocabulary=ids)
    parts = [np.split(np.arange(start, start + own), [samples, samples + 1]) for start in (0, own)]
    return Federation(
        dataset,
        [(train, validation, test) for train, validation, test in parts],
        [architecture],
        batch_size=batch_size,
        local_epochs=epochs,
        public=np.arange(2 * own, len(labels)),
    )


def _steady_round(algorithm: Algorithm, federation: Federation, part: Part = lambda _: nullcontext()) -> list[Message]:
    """Client 0's download and upload in the second round, after a first with everyone. `part` is entered around what is
    done in a visit's beginning (`visit`), by the client (`local`) and by the server (`one upload`, `all uploads`).
    """
    algorithm.check(federation)
    with one_thread():
        of_server = federation.server_context(0, 2)
        server, uploads = algorithm.init_server(of_server), []
        for client in federation.clients:
            context = federation.client_context(client.id, 0, 2)
            with part("visit"):
                algorithm.init_client(client, context)
            download = algorithm.download(server, client.info, of_server)
            uploads.append(Upload(client.info, algorithm.local_round(client, download, context)))
        with part("all uploads"):
            algorithm.aggregate(server, uploads, of_server)
        of_server, client = federation.server_context(1, 2), federation.clients[0]
        with part("local"):
            down = algorithm.download(server, client.info, of_server)
            up = algorithm.local_round(client, down, federation.client_context(0, 1, 2))
        with part("one upload"):
            algorithm.aggregate(server, [Upload(client.info, up)], of_server)
    return [down, up]


# ---------------------------------------------------------------------------------------------- what a method computes


@dataclass(frozen=True)
class Flops:
    """FLOPs of a method on one architecture, by what they are proportional to.

    epoch: per training image and epoch; round: per training image and round, however many epochs (FedGH's extraction);
    public: per public image and round; fixed: per client and round, whatever its data; first, first_public: once per client,
    before its first visit, per training and per public image (FedMD's and FCCL's training before). Of the server, per round:
    upload: per upload; upload_public: per upload and public image (FedKEMF's ensemble); server_public: per public image;
    server: constant.
    """

    epoch: float
    round: float
    public: float
    fixed: float
    upload: float
    upload_public: float
    server_public: float
    server: float
    first: float = 0.0
    first_public: float = 0.0


def flops(
    algorithm: Algorithm,
    architecture: str,
    num_classes: int = 10,
    sample: Sample | int = 3,
    batch_size: int = 8,
    classes_per_client: int = 2,
) -> Flops:
    """What a steady-state round of `algorithm` computes, measured once on a few real rounds of one and of two batches,
    epochs and public batches.

    An upload grows with the seen classes where the server trains on them (FedGH). pFedHR's candidates depend on the
    weights, so its parts are an example, not a rule: `tests/benchmarks/bench_reassembly.py` measures its server.
    """
    sizes = num_classes, Sample.of(sample), batch_size, classes_per_client
    return _flops(algorithm, architecture, models.BUILDERS.get(architecture), *sizes)


@cache  # by builder, as above
def _flops(
    algorithm: Algorithm,
    architecture: str,
    _builder: models.Builder | None,
    num_classes: int,
    sample: Sample,
    batch_size: int,
    classes_per_client: int,
) -> Flops:
    from torch.utils.flop_counter import FlopCounterMode

    def measured(batches: int, epochs: int, public_batches: int) -> dict[str, int]:
        sizes = (classes_per_client, batches * batch_size, batch_size, epochs, public_batches * batch_size)
        counters: dict[str, FlopCounterMode] = defaultdict(lambda: FlopCounterMode(display=False))
        _steady_round(algorithm, _federation(architecture, num_classes, sample, *sizes), counters.__getitem__)
        return {part: counter.get_total_flops() for part, counter in counters.items()}

    once, samples, epochs = measured(1, 1, 1), measured(2, 1, 1), measured(1, 2, 1)
    public = measured(1, 1, 2) if algorithm.public_data != "none" else once
    epoch = (epochs["local"] - once["local"]) / batch_size
    own = (samples["local"] - once["local"]) / batch_size
    image = (public["local"] - once["local"]) / batch_size
    fixed = once["local"] - (own + image) * batch_size
    uploads = [run["all uploads"] - run["one upload"] for run in (once, public)]  # two clients' less one's
    server = [run["one upload"] - upload for run, upload in zip((once, public), uploads, strict=True)]
    upload_image, server_image = ((more - less) / batch_size for less, more in (uploads, server))
    upload, rest = uploads[0] - upload_image * batch_size, server[0] - server_image * batch_size
    first, first_public = ((run["visit"] - once["visit"]) / (2 * batch_size) for run in (samples, public))
    return Flops(epoch, own - epoch, image, fixed, upload, upload_image, server_image, rest, first, first_public)


def relative_to_standalone(algorithm: Algorithm, architecture: str, epochs: int = 1) -> float:
    """FLOPs of a client's round of `epochs` by those of Standalone, with ten classes: what grows with its training images, for
    one of infinitely many.
    """
    cost = flops(algorithm, architecture)
    return (cost.epoch + cost.round / epochs) / training_flops(architecture, 10, 3)


def of_run(run: Any) -> np.ndarray:
    """Cumulative FLOPs of a run, a record, by the end of each round; see `spent`."""
    return spent(run.spec, run.rounds)


def spent(spec: Any, rounds: pd.DataFrame) -> np.ndarray:
    """Cumulative FLOPs by the end of each round: of all clients and the server, public images and what is trained before a
    client's first visit included.

    spec: of a run, filled; rounds: a record's, which say how many images were trained on. What a method computes beyond plain
    training is measured on CNN-3, where it is within 1 % of the mean of CNN-1..5; of what is no image, on the first architecture.
    """
    trained = rounds[rounds["round"] >= 0]
    info = data_info(str(spec.dataset))
    algorithm, shape = make(spec.algorithm, spec.params), (info.num_classes, info.sample)
    architectures = models.architectures(str(spec.scenario))
    plain, measured = [training_flops(name, *shape) for name in architectures], "CNN-3"
    if info.kind != "image":
        measured = architectures[0]
    scale = sum(plain) / len(plain) / training_flops(measured, *shape)
    cost = flops(algorithm, measured, *shape, classes_per_client=min(spec.classes_per_client or 2, 10))
    public = 0.0
    if algorithm.public_data != "none":
        source = data_info(spec.public_dataset) if spec.public_dataset else info
        held = min(spec.public_fraction * source.num_train, spec.public_images or np.inf)
        public = min(held, getattr(algorithm, "public_samples", held))
    images, visits = trained["samples"] / spec.local_epochs, trained["selected"]
    new = np.diff(trained["visited"], prepend=0)
    clients = trained["samples"] * cost.epoch + images * cost.round + visits * (public * cost.public + cost.fixed)
    before = new * (images / visits * cost.first + public * cost.first_public)
    server = visits * (cost.upload + public * cost.upload_public) + public * cost.server_public + cost.server
    return np.asarray(np.cumsum(scale * (clients + before) + server))


def budgets(spec: Any, rounds: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """What a run has spent of each budget that its specification has, in these rounds, and the budget: `FLOPs` as `spent`
    counts them, `words` as they travel, both ways.
    """
    found = {}
    if spec.budget_flops:
        found["FLOPs"] = (float(spent(spec, rounds)[-1]), spec.budget_flops)
    if spec.budget_words:
        sent = rounds[["download_words", "upload_words"]].to_numpy(float)
        found["words"] = (float(np.nansum(sent)), spec.budget_words)  # there are none before the first round
    return found


def used_up(spec: Any) -> Callable[[Outcome], bool] | None:
    """Of a specification with a budget, whether a simulation has used up one (`simulate(..., enough=)`); else None."""
    if not (spec.budget_flops or spec.budget_words):
        return None
    return lambda outcome: any(used >= most for used, most in budgets(spec, rounds_of(outcome)).values())


# ------------------------------------------------------------------------------------------------ costs to a target


@dataclass(frozen=True)
class Spent:
    """Communication of all clients of a run in its first rounds.

    reached: whether those rounds end at the target; words: 32-bit, up and down, as they travel and as the papers count.
    """

    reached: bool
    rounds: int
    words: float
    published_words: float


def until(rounds: pd.DataFrame, target: float) -> Spent:
    """What it took until the accuracy (a fraction) first reached `target`, or what all rounds took if it never did.

    rounds: a record's table; its untrained start (round -1) counts for nothing.
    """
    trained = rounds[rounds["round"] >= 0]
    there = (trained["accuracy"] >= target).to_numpy()
    part = trained.iloc[: int(there.argmax()) + 1] if there.any() else trained
    words = float(part["download_words"].sum() + part["upload_words"].sum())
    return Spent(bool(there.any()), len(part), words, float(part["published_words"].sum()))
