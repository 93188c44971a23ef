"""What trained networks see, from the weights that a run kept: representations, their t-SNE maps, enhanced images; and what
pFedHR's server matched, from what it noted.

Only runs with `keep="clients"` have their clients' networks, and only those with `keep="server"` or `"clients"` the server's
state: a grid's `keep` asks for them.
"""

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from .. import federation, lab, models, randomness, training
from ..errors import require

PERPLEXITY = 30.0  # of the t-SNE maps: the library's default; the papers state none (*chosen*)


def _rebuilt(record: lab.Record) -> federation.Federation:
    return lab.federation_of(lab.resolve(replace(record.spec, device="cpu")))


def extract_representations(record: lab.Record, per_client: int = 60) -> tuple[pd.DataFrame, np.ndarray]:
    """What each client's extractor makes of the client's own test images, at most `per_client` of them, drawn by the run's seed.

    Returns a table with one row per image (client, architecture, label) and the representations, float32 (rows, width). Clients
    that were never visited are absent. Needs a run with keep="clients".
    """
    require(per_client >= 1, "per_client", per_client, "at least 1")
    snapshots, built = lab.load_weights(record, "clients")["clients"], _rebuilt(record)
    rows, values = [], []
    with training.one_thread():
        for id, snapshot in snapshots.items():
            client = built.clients[id]
            client.restore(snapshot)
            drawn = randomness.generator(record.spec.seed, "sampling", client=id).permutation(len(client.test))
            indices = client.test[torch.from_numpy(np.sort(drawn[:per_client]))]
            client.model.eval()
            values.append(training.outputs(client.model.extractor, client.pool, indices).numpy())
            labels = built.pool.labels[indices].tolist()
            rows += [{"client": id, "architecture": client.info.architecture, "label": label} for label in labels]
    return pd.DataFrame(rows), np.concatenate(values)


def tsne(features: np.ndarray, perplexity: float = PERPLEXITY) -> np.ndarray:
    """A t-SNE map (van der Maaten and Hinton, 2008) of `features` (n, width): float32 (n, 2).

    scikit-learn's: initialised by PCA, learning rate `auto`, 1 000 iterations, one seed and thread, so that a re-run is identical on
    one machine. The perplexity must be below n.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    require(0 < perplexity < len(features), "perplexity", perplexity, f"above 0 and below {len(features)}, the points")
    map = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=1)
    with threadpool_limits(limits=1):  # n_jobs leaves the gradient's threads alone, and sums in another order differ
        return map.fit_transform(features)


SHARES = ("same client", "same class, within the client")


def share_of_nearest(table: pd.DataFrame, features: np.ndarray, count: int = 5) -> pd.DataFrame:
    """What a map shows, as numbers of the full space (SHARES), one row per image: of its representation's `count` nearest others
    (Euclidean), per cent that are the same client's; and of its nearest among the same client's, per cent of the same class.

    table, features: as from `extract_representations`; every client needs more than `count` rows.
    """
    from scipy.spatial.distance import cdist

    clients, labels = table["client"].to_numpy(), table["label"].to_numpy()
    fewest = int(table["client"].value_counts().min())
    require(1 <= count < fewest, "count", count, f"between 1 and {fewest - 1}: a client has {fewest} images")
    distances = cdist(features, features)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :count]
    own = np.where(clients[:, None] == clients, distances, np.inf)
    nearest_own = np.argsort(own, axis=1, kind="stable")[:, :count]
    same_client = (clients[nearest] == clients[:, None]).mean(axis=1)
    same_class = (labels[nearest_own] == labels[:, None]).mean(axis=1)
    return pd.DataFrame(dict(zip(SHARES, (100 * same_client, 100 * same_class), strict=True)))


def map_representations(
    record: lab.Record, per_client: int = 60, perplexity: float = PERPLEXITY, count: int = 5
) -> pd.DataFrame:
    """A run's t-SNE map with the shares of nearest others, one row per image: client, architecture, label, x, y, SHARES."""
    table, features = extract_representations(record, per_client)
    x, y = tsne(features, perplexity).T
    return pd.concat([table.assign(x=x, y=y), share_of_nearest(table, features, count)], axis=1)


def enhance_images(record: lab.Record, count: int = 5) -> dict[str, np.ndarray]:
    """`count` images, each of another class, and what pFedES's final global extractor makes of them.

    Returns {"original": ..., "enhanced": ...}, each (count, height, width, 3) in [0, 1]. Originals are the pixels as stored. Enhanced
    images are the extractor's output for the normalised image; it has no scale of pixels, so each is rescaled on its own, from
    its least to its largest value over all channels. Images are drawn by the run's seed from the whole data set; those of one
    channel are shown grey. Needs a run of pFedES that kept the server's state.
    """
    require(record.spec.algorithm == "pFedES", "algorithm", record.spec.algorithm, "pFedES, which has the extractor")
    state, resolved = lab.load_weights(record, "server")["server"], lab.resolve(replace(record.spec, device="cpu"))
    data, pool = resolved.data, lab.federation_of(resolved).pool
    require(1 <= count <= data.num_classes, "count", count, f"between 1 and {data.num_classes}, the classes")
    extractor = models.proxy_extractor(data.images.shape[1], resolved.hashed["params"]["output"])
    extractor.load_state_dict(state)
    stream = randomness.generator(record.spec.seed, "sampling", client=0)
    shuffled = stream.permutation(len(data.labels))
    _, first = np.unique(data.labels.numpy()[shuffled], return_index=True)  # one image per class
    indices = torch.from_numpy(shuffled[np.sort(first)[:count]])
    with training.one_thread():
        outputs = training.outputs(extractor, pool, indices).numpy()
    least, largest = (limit(axis=(1, 2, 3), keepdims=True) for limit in (outputs.min, outputs.max))
    scaled = (outputs - least) / np.maximum(largest - least, 1e-12)
    return {"original": _pictures(data.images[indices].numpy() / data.sample.scale), "enhanced": _pictures(scaled)}


def _pictures(images: np.ndarray) -> np.ndarray:
    """(n, channels, height, width) as (n, height, width, 3)."""
    return np.moveaxis(np.broadcast_to(images, (len(images), 3, *images.shape[2:])), 1, -1).astype(np.float32)


def encode_images(pictures: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Rows of square pictures as a small table, to be kept: row, picture, pixels (red, green and blue bytes by
    row and column, in base64).
    """
    for drawn in pictures.values():
        require(drawn.shape[1] == drawn.shape[2], "height and width of the pictures", drawn.shape[1:3], "equal")
    rows = [
        (row, number, b64encode(np.rint(255 * picture).astype(np.uint8).tobytes()).decode())
        for row, drawn in pictures.items()
        for number, picture in enumerate(drawn)
    ]
    return pd.DataFrame(rows, columns=["row", "picture", "pixels"])


MATCHES = ("round", "client", "similarity", "place", "origin", "model", "layer", "operation")


def list_matches(record: lab.Record) -> pd.DataFrame:
    """The candidates that pFedHR's server gave to clients (Eq. 2 and 5), one row per layer, in the columns of MATCHES: round (from 1),
    client, Eq. 5's similarity, the layer's place in the chain, and the client (`reassembly.MERGED` where models were averaged),
    model, index and operation that it comes from.
    """
    rows = [
        (row["round"] + 1, client, round(row["similarity"][at][match], 4), place, *layer)
        for row in record.details
        for at, (client, match) in enumerate(zip(row["clients"], row["matches"], strict=True))
        if match is not None
        for place, layer in enumerate(row["structures"][match], 1)
    ]
    return pd.DataFrame(rows, columns=list(MATCHES))


def decode_images(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """What `encode_images` kept: row -> (n, side, side, 3) in [0, 1]."""
    drawn: dict[str, list[np.ndarray]] = {}
    for row, text in zip(table["row"], table["pixels"], strict=True):
        pixels = np.frombuffer(b64decode(text), np.uint8)
        side = math.isqrt(len(pixels) // 3)
        drawn.setdefault(row, []).append(pixels.reshape(side, side, 3))
    return {row: np.stack(bytes) / 255 for row, bytes in drawn.items()}
