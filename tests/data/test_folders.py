"""Pictures in folders: DOMAIN/CLASS/FILE, CLASS/FILE, and train and test."""

import pytest
import torch
from torchvision.io import write_jpeg, write_png

from fedlib import FedlibError, RunSpec, data, lab


@pytest.fixture
def folder(tmp_path):
    for shade, domain in enumerate(("webcam", "amazon")):
        for place, name in enumerate(("mug", "bike")):
            (tmp_path / domain / name).mkdir(parents=True)
            for copy in range(10):
                picture = torch.full((3, 30 + copy, 50), 40 + 100 * shade + 20 * place + copy, dtype=torch.uint8)
                if copy % 2:
                    write_png(picture[:1], str(tmp_path / domain / name / f"{copy}.PNG"))  # a grey one
                else:
                    write_jpeg(picture, str(tmp_path / domain / name / f"{copy}.jpg"), quality=100)
    for name in ("amazon/mug/notes.txt", "amazon/.DS_Store", "amazon/mug/Thumbs.db", "amazon/mug/._0.jpg", ".DS_Store"):
        (tmp_path / name).write_text("no picture")
    return tmp_path


ONE = torch.zeros(1, 8, 8, dtype=torch.uint8)


def parts(folder, first: str, second: str, *of: str):
    """The folder, two of its folders renamed."""
    for before, after in zip(of or ("amazon", "webcam"), (first, second), strict=True):
        (folder / before).rename(folder / after)
    return folder


def test_domains_are_groups_and_classes_labels(folder):
    made = data.from_folders("domains", folder, size=32)
    assert made.images.shape == (40, 3, 32, 32) and made.num_train == 40 and not made.augment
    assert made.groups.tolist() == [0] * 20 + [1] * 20 and made.labels.tolist() == ([0] * 10 + [1] * 10) * 2
    assert made.images[0].float().mean() == pytest.approx(160, abs=1) and made.images[:, 0].equal(made.images[:, 2])


def test_domains_are_clients(folder):
    data.register("domains", lambda: data.from_folders("domains", folder, size=32))
    spec = RunSpec("FedProto", dataset="domains", partition="groups", num_clients=2, rounds=1)
    assert lab.run(spec, "smoke").clients.client.nunique() == 2


def test_folders_of_classes_and_of_official_parts(folder):
    """`amazon/mug/0.jpg` is CLASS/FILE of amazon; renamed, the two domains are the official parts, the training part first."""
    classes = data.from_folders("classes", folder / "amazon", size=8)
    assert classes.labels.tolist() == [0] * 10 + [1] * 10 and classes.groups is None and classes.num_train == 20
    (folder / "webcam").rename(folder / "Train")
    (folder / "amazon").rename(folder / "test")
    parts = data.from_folders("parts", folder, size=8)
    assert parts.groups is None and parts.num_train == 20 and torch.equal(parts.images[20:], classes.images)
    assert parts.labels.tolist() == ([0] * 10 + [1] * 10) * 2 and parts.images[0].float().mean() == pytest.approx(
        60, abs=1
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda folder: {"folder": folder / "absent"}, "must be a folder that is there"),
        (
            lambda folder: {"folder": folder / "amazon" / "mug"},
            r"pictures in .*mug = \[\]: must be all DOMAIN/CLASS/FILE, or",
        ),
        (
            lambda folder: write_png(ONE, f"{folder}/amazon/a.png"),
            r"= \['amazon/a.png', 'webcam/mug/9.PNG'\]: must be all",
        ),
        (
            lambda folder: (folder / "amazon").rename(folder / "val") and {},
            r"= \['val', 'webcam'\]: must be train and test",
        ),
        (
            lambda folder: {"folder": parts(folder, "train", "valid")},
            r"= \['train', 'valid'\]: must be train and test, or",
        ),
        (
            lambda folder: {"folder": parts(folder / "amazon", "test", "train", "mug", "bike")},
            r"= \['test', 'train'\]: must",
        ),
        (
            lambda folder: (parts(folder, "test", "train") / "test/mug").rename(folder / "test/cup") and {},
            "'cup' is unknown",
        ),
        (lambda folder: {"size": 4}, "size = 4: must be between 8 and 1024 pixels"),
        (
            lambda folder: (folder / "amazon/mug/2.jpg").write_bytes(b"x") and {},
            "2.jpg: is no picture that can be read",
        ),
    ],
)
def test_another_layout_is_refused_in_one_line(folder, change, line):
    with pytest.raises(FedlibError, match=line):
        data.from_folders("domains", **{"folder": folder, **(change(folder) or {})})
