"""UCI HAR (Anguita et al., ESANN 2013): 30 subjects, 6 activities, a smartphone at the waist.

`har` are the 561 features that its authors computed, each scaled to [-1, 1]; `har-raw` the windows behind them, 9 signals
(body acceleration, angular velocity and total acceleration, each x, y, z) of 128 steps at 50 Hz. The official split is by
subject: 21 to train on, 9 to test on. Groups are the subjects.

The archive is read as it comes, a zip with a zip in it. What is checked is the windows, labels and subjects, whatever
their order, by their sum; of the features, which nobody publishes a sum of, their number and range.
"""

import hashlib
import io
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import FedlibError, require
from ..dataset import Dataset
from ..info import BUILT_IN, DatasetInfo, provide

URL = "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip"
ARCHIVE, INNER, FOLDER = "har.zip", "UCI HAR Dataset.zip", "UCI HAR Dataset"
SIGNALS = [f"{signal}_{axis}" for signal in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]
STEPS, FEATURES = 128, 561
SUM = "abe596e906edc2b5"


def read(name: str, root: Path, download: bool) -> Dataset:
    folder = root / "har"
    if download:
        from torchvision.datasets.utils import download_url

        download_url(URL, str(folder), ARCHIVE)
    with zipfile.ZipFile(folder / ARCHIVE) as outer, zipfile.ZipFile(io.BytesIO(outer.read(INNER))) as archive:
        windows = [
            np.stack([_numbers(archive, f"Inertial Signals/{one}", part, STEPS) for one in SIGNALS], 1)
            for part in PARTS
        ]
        labels, subjects = (
            [_numbers(archive, one, part, 1)[:, 0].astype(int) for part in PARTS] for one in ("y", "subject")
        )
        found = content_sum(*map(np.concatenate, (windows, labels, subjects)))
        if found != SUM:
            raise FedlibError(f"its windows, labels and subjects have the sum {found}, the published ones {SUM}")
        samples = windows if name == "har-raw" else [_features(archive, part) for part in PARTS]
    known = BUILT_IN[name]
    arrays = samples[0], labels[0] - 1, samples[1], labels[1] - 1
    return Dataset.from_arrays(name, *arrays, 6, mean=known.mean, std=known.std, groups=(subjects[0], subjects[1]))


PARTS = ("train", "test")


def _numbers(archive: zipfile.ZipFile, file: str, part: str, columns: int) -> np.ndarray:
    """The rows of one of its files, numbers with blanks between: float32 (n, columns)."""
    text = archive.read(f"{FOLDER}/{part}/{file}_{part}.txt").decode("ascii")
    numbers = np.array(text.split(), dtype=np.float64)
    require(len(numbers) % columns == 0, f"{file}_{part}.txt", len(numbers), f"rows of {columns} numbers")
    return numbers.reshape(-1, columns).astype(np.float32)


def _features(archive: zipfile.ZipFile, part: str) -> np.ndarray:
    features = _numbers(archive, "X", part, FEATURES)
    largest = float(np.abs(features).max())
    require(largest <= 1, f"X_{part}.txt: largest number", largest, "at most 1, as features are scaled to [-1, 1]")
    return features


def content_sum(windows: np.ndarray, labels: np.ndarray, subjects: np.ndarray) -> str:
    """SHA-256 (16 digits) of the samples in an order that is theirs: float32 (n, 9, 128), labels and subjects from 1."""
    rows = [
        hashlib.sha256(window.astype("<f4").tobytes() + bytes([int(label), int(subject)])).digest()
        for window, label, subject in zip(windows, labels, subjects, strict=True)
    ]
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()[:16]


KNOWN = DatasetInfo(
    "har", 6, FEATURES, 7352, 2947, (0.0,) * FEATURES, (1.0,) * FEATURES, f"features-{SUM}",
    size=(), kind="vector", dtype="float32", groups=30,
)  # fmt: skip
provide(KNOWN, partial(read, "har"), "har", checked_files=True)
# Of the official training part.
MEAN = (-0.0006363, -0.0002923, -0.0002753, 0.0005065, -0.0008238, 0.0001129, 0.8047, 0.02876, 0.0865)
STD = (0.1948, 0.1224, 0.1069, 0.4068, 0.3819, 0.2557, 0.4141, 0.391, 0.3578)
RAW = replace(KNOWN, name="har-raw", channels=9, size=(STEPS,), kind="series", mean=MEAN, std=STD, fingerprint=SUM)
provide(RAW, partial(read, "har-raw"), "har", checked_files=True)
