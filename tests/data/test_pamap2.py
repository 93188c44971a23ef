"""PAMAP2's archive: small recordings of the same format, a zip with a zip in it."""

import io
import zipfile
from functools import cache

import numpy as np
import pytest

from fedlib import FedlibError, RunSpec, data, lab
from fedlib.data.readers import pamap2


def recording(subject: int, columns: int = 54) -> np.ndarray:
    """A pause, 1030 readings of standing, a pause, 520 of an optional activity, 600 of rope jumping."""
    activity = np.repeat([0, 3, 0, 9, 24], [10, 1030, 5, 520, 600])
    rows = np.zeros((len(activity), columns))
    rows[:, 0], rows[:, 1] = np.arange(len(activity)) / 100, activity
    rows[:, 2:] = np.arange(2, columns) + subject + np.sin(np.arange(len(activity)))[:, None]
    rows[:, 4] = np.arange(len(activity))  # the hand's acceleration along x
    rows[20:24, 5] = np.nan  # lost on the way
    rows[:3, 6] = np.nan
    return rows


@cache
def text(subject: int, columns: int) -> str:
    rows = recording(subject, columns)
    return "\n".join(" ".join("NaN" if np.isnan(x) else f"{x:.9g}" for x in row) for row in rows)


def write(root, columns: int = 54) -> None:
    (root / "pamap2").mkdir(parents=True)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for subject in pamap2.SUBJECTS if columns == 54 else pamap2.SUBJECTS[:1]:
            archive.writestr(f"{pamap2.FOLDER}/subject{subject}.dat", text(subject, columns))
    with zipfile.ZipFile(root / "pamap2" / pamap2.ARCHIVE, "w") as outer:
        outer.writestr(pamap2.INNER, inner.getvalue())


@pytest.mark.thorough(None)
def test_windows_of_one_activity_at_a_quarter_of_the_rate(root):
    write(root)
    made = data.load("pamap2")
    assert str(made.sample) == str(data.info("pamap2").sample) and made.images.shape == (9 * 3, 27, 128)
    assert made.labels.tolist() == [2, 2, 11] * 9 and made.num_train == 24  # two windows of standing, one of jumping
    assert made.groups.tolist() == sorted([0, 1, 2, 3, 4, 6, 7, 8] * 3) + [5] * 3  # subject 106 is tested on
    x = made.images[0, 0]  # four readings a step: 10, 11, 12, 13 and so on
    assert x[:3].tolist() == [11.5, 15.5, 19.5] and made.images[1, 0, 0] == 10 + 512 + 1.5


def test_lost_readings_are_interpolated(root):
    rows = recording(101)
    samples, _ = pamap2.windows(rows)
    between = np.interp(np.arange(18, 26), [18, 19, 24, 25], rows[[18, 19, 24, 25], 5])
    assert samples[0, 1, 2:4] == pytest.approx(between.reshape(2, 4).mean(1), rel=1e-6)  # readings 18 to 25
    assert np.isfinite(samples).all()


def test_subjects_are_clients(root):
    write(root)
    spec = RunSpec("FedProto", dataset="pamap2", scenario="CNN-1D", partition="groups", num_clients=8, rounds=1)
    record = lab.run(spec, "smoke")
    assert record.clients.client.nunique() == 8 and record.status == "finished"


def test_another_format_is_refused(root):
    write(root, columns=53)
    with pytest.raises(
        FedlibError, match=r"corrupted \(PAMAP2_Dataset/Protocol/subject101.dat: columns = 53: must be 54"
    ):
        data.load("pamap2")
