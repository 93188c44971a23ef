"""PAMAP2 (Reiss and Stricker, ISWC 2012): 9 subjects, 12 activities, inertial sensors at hand, chest and ankle.

A sample is a window of 5.12 s, its authors' length, of 27 signals (of each sensor acceleration to 16 g, angular velocity
and magnetic field, each x, y, z). Recorded at 100 Hz, four readings are averaged: 128 steps at 25 Hz. Windows do not
overlap, and each lies within one stretch of one activity; missing readings are interpolated within a recording. The
12 activities are those of the protocol that all subjects were to do; the optional ones and the pauses between (activity
0) are left out. Subject 106 is the test part, as in Hammerla et al. (IJCAI 2016). Groups are the subjects.

Nobody publishes a sum of the archive, whose parts its own check sums hold: the fingerprint of the samples is in a run's
key, and a run needs the data before its key is known.
"""

import io
import zipfile
from pathlib import Path

import numpy as np

from ...errors import require
from ..dataset import Dataset
from ..info import READERS, Reader

URL = "https://archive.ics.uci.edu/static/public/231/pamap2+physical+activity+monitoring.zip"
ARCHIVE, INNER, FOLDER = "pamap2.zip", "PAMAP2_Dataset.zip", "PAMAP2_Dataset/Protocol"
SUBJECTS, TESTED = range(101, 110), 106
# lying, sitting, standing, walking, running, cycling, Nordic walking, up and down stairs, vacuum, ironing, rope jumping
ACTIVITIES = (1, 2, 3, 4, 5, 6, 7, 12, 13, 16, 17, 24)
COLUMNS = 54  # time, activity, heart rate, then 17 of each sensor: temperature, 3 x acceleration to 16 g, 3 to 6 g, ...
SIGNALS = [first + one for first in (3, 20, 37) for one in (1, 2, 3, 7, 8, 9, 10, 11, 12)]
READINGS, AVERAGED = 512, 4


def read(root: Path, download: bool) -> Dataset:
    import pandas as pd

    folder = root / "pamap2"
    if download:
        from torchvision.datasets.utils import download_url

        download_url(URL, str(folder), ARCHIVE)
    found = {}
    with zipfile.ZipFile(folder / ARCHIVE) as outer, zipfile.ZipFile(io.BytesIO(outer.read(INNER))) as archive:
        for subject in SUBJECTS:
            name = f"{FOLDER}/subject{subject}.dat"
            with archive.open(name) as file:
                table = pd.read_csv(file, sep=r"\s+", header=None, dtype=np.float64)
            require(table.shape[1] == COLUMNS, f"{name}: columns", table.shape[1], str(COLUMNS))
            found[subject] = windows(table.to_numpy())
    train, test = [one for one in SUBJECTS if one != TESTED], [TESTED]
    samples, labels = ([np.concatenate([found[one][part] for one in who]) for who in (train, test)] for part in (0, 1))
    whose = [np.repeat(who, [len(found[one][1]) for one in who]) for who in (train, test)]
    arrays = samples[0], labels[0], samples[1], labels[1]
    return Dataset.from_arrays("pamap2", *arrays, len(ACTIVITIES), groups=(whose[0], whose[1]))


def windows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A recording's rows (n, 54) -> its windows, float32 (w, 27, 128), and their activities 0..11, int64 (w,)."""
    signals = rows[:, SIGNALS]
    for signal in signals.T:  # a view: lost readings are filled in place
        lost = np.isnan(signal)
        signal[lost] = np.interp(np.flatnonzero(lost), np.flatnonzero(~lost), signal[~lost])
    activity = rows[:, 1].astype(int)
    ends = np.flatnonzero(np.diff(activity)) + 1
    parts, labels = [np.zeros((0, len(SIGNALS), READINGS // AVERAGED))], []
    for first, last in zip([0, *ends], [*ends, len(rows)], strict=True):
        count = (last - first) // READINGS
        if count and activity[first] in ACTIVITIES:
            stretch = signals[first : first + count * READINGS]
            steps = stretch.reshape(count, READINGS // AVERAGED, AVERAGED, len(SIGNALS)).mean(2)
            parts.append(steps.transpose(0, 2, 1))
            labels += [ACTIVITIES.index(activity[first])] * count
    return np.concatenate(parts).astype(np.float32), np.array(labels, dtype=np.int64)


READERS["pamap2"] = Reader(read, "pamap2")
