"""UCI HAR's archive: small files of the same format, a zip with a zip in it."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlib import FedlibError, RunSpec, data, lab
from fedlib.data.readers import har

SIZES = {"train": 24, "test": 12}
SUBJECTS = {"train": np.arange(24) % 4 + 1, "test": np.arange(12) % 2 + 5}  # the official split is by subject
STREAM = np.random.default_rng(0)
LABELS = {part: np.arange(size) // 4 % 6 + 1 for part, size in SIZES.items()}
WINDOWS = {part: STREAM.normal(0, 1, (size, 9, 128)) for part, size in SIZES.items()}
FEATURES = {part: STREAM.uniform(-1, 1, (size, 561)) for part, size in SIZES.items()}


def text(rows: np.ndarray) -> str:
    """Numbers as in the archive: ` 2.8858451e-001 -2.0294171e-002`."""
    return (
        "\n".join(
            " ".join(f"{value: .7e}".replace("e-0", "e-00").replace("e+0", "e+00") for value in row) for row in rows
        )
        + "\n"
    )


def write(folder, features=FEATURES, windows=WINDOWS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for part in SIZES:
            place = f"{har.FOLDER}/{part}"
            archive.writestr(f"{place}/X_{part}.txt", text(features[part]))
            archive.writestr(f"{place}/y_{part}.txt", "\n".join(map(str, LABELS[part])) + "\n")
            archive.writestr(f"{place}/subject_{part}.txt", "\n".join(map(str, SUBJECTS[part])) + "\n")
            for number, signal in enumerate(har.SIGNALS):
                archive.writestr(f"{place}/Inertial Signals/{signal}_{part}.txt", text(windows[part][:, number]))
    with zipfile.ZipFile(folder / har.ARCHIVE, "w") as outer:
        outer.writestr(har.INNER, inner.getvalue())


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What is known beforehand of the files that `write` writes."""
    as_read = [
        np.array([f"{value:.7e}" for value in part.ravel()], float).reshape(part.shape) for part in WINDOWS.values()
    ]
    whole = [np.concatenate(list(parts)) for parts in (as_read, LABELS.values(), SUBJECTS.values())]
    monkeypatch.setattr(har, "SUM", har.content_sum(whole[0].astype(np.float32), *whole[1:]))
    for name in ("har", "har-raw"):
        small = replace(data.BUILT_IN[name], num_train=24, num_test=12, groups=6)
        monkeypatch.setitem(data.BUILT_IN, name, small)


def test_features_and_windows_with_their_subjects(root):
    write(root / "har")
    features, windows = data.load("har"), data.load("har-raw")
    assert features.images.shape == (36, 561) and windows.images.shape == (36, 9, 128)
    np.testing.assert_allclose(features.images, np.concatenate(list(FEATURES.values())), atol=1e-6)
    np.testing.assert_allclose(windows.images, np.concatenate(list(WINDOWS.values())), atol=1e-5)
    for made in (features, windows):
        assert np.array_equal(made.labels, np.concatenate(list(LABELS.values())) - 1) and made.num_classes == 6
        assert np.array_equal(made.groups, np.concatenate(list(SUBJECTS.values())) - 1) and made.num_train == 24
        assert not made.info.embedded and not made.augment
    assert (features.kind, windows.kind) == ("vector", "series")


def test_the_sum_is_of_the_samples_in_any_order():
    windows, labels, subjects = WINDOWS["train"], LABELS["train"], SUBJECTS["train"]
    found, order = har.content_sum(windows, labels, subjects), np.random.default_rng(1).permutation(24)
    assert found == har.content_sum(windows[order], labels[order], subjects[order]) and len(found) == 16
    others = [(windows + 1e-3, labels, subjects), (windows, labels[::-1], subjects), (windows, labels, subjects[::-1])]
    assert len({found, *(har.content_sum(*other) for other in others)}) == 4


@pytest.mark.parametrize("name", ["har", "har-raw"])
def test_another_content_is_refused(root, name):
    write(root / "har", windows={part: values + 1 for part, values in WINDOWS.items()})
    with pytest.raises(FedlibError, match=f"dataset = '{name}': the files in .*have the sum .*, the published ones"):
        data.load(name)


def test_features_out_of_range_and_a_broken_archive_are_refused(root):
    for times in (2, -2):
        write(root / "har", features={part: np.abs(values) * times for part, values in FEATURES.items()})
        with pytest.raises(FedlibError, match=r"X_train.txt: largest number = .*at most 1"):
            data.load("har")
    (root / "har" / har.ARCHIVE).write_bytes(b"PK")
    with pytest.raises(FedlibError, match=r"dataset = 'har': the files in .* are incomplete or corrupted"):
        data.load("har")


def test_it_is_downloaded_when_it_is_asked_for(root, monkeypatch):
    fetched = []

    def download_url(url, folder, name):
        fetched.append(url)
        write(Path(folder))
        assert name == har.ARCHIVE

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download_url)
    assert data.info("har").groups == 6 and not data.available("har") and not fetched  # nothing is read to plan
    assert len(data.load("har").labels) == 36 and fetched == [har.URL] and (root / "har" / har.ARCHIVE).is_file()
    assert data.available("har-raw") and len(data.load("har-raw").labels) == 36 and len(fetched) == 1


def test_a_run_by_subject(root):
    write(root / "har")
    spec = RunSpec(
        "FedProto", dataset="har", scenario="MLP", partition="groups", rounds=2, local_epochs=1, batch_size=4
    )
    record = lab.run(spec, "smoke", progress=False)
    assert record.status == "finished" and record.spec.num_clients == 6
    (subject,) = {
        int(data.load("har").groups[index]) for index in lab.federation_of(lab.resolve(spec, "smoke")).clients[5].train
    }
    assert subject == 5


def test_what_is_known_of_the_real_ones():
    for name, size in (("har", ()), ("har-raw", (128,))):
        info = data.BUILT_IN[name]
        assert (info.num_classes, info.size, info.kind) == (6, size, "vector" if name == "har" else "series")
        assert len(info.mean) == len(info.std) == info.channels and info.sample.dtype == "float32"
