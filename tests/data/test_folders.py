"""Pictures in folders DOMAIN/CLASS/FILE."""

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
    (tmp_path / "amazon" / "mug" / "notes.txt").write_text("no picture")
    return tmp_path


def test_domains_are_groups_and_classes_labels(folder):
    made = data.from_folders("domains", folder, size=32)
    assert made.images.shape == (40, 3, 32, 32) and made.num_train == 40 and not made.augment
    assert made.groups.tolist() == [0] * 20 + [1] * 20 and made.labels.tolist() == ([0] * 10 + [1] * 10) * 2
    assert made.images[0].float().mean() == pytest.approx(160, abs=1) and made.images[:, 0].equal(made.images[:, 2])


def test_domains_are_clients(folder):
    data.register("domains", lambda: data.from_folders("domains", folder, size=32))
    spec = RunSpec("FedProto", dataset="domains", partition="groups", num_clients=2, rounds=1)
    assert lab.run(spec, "smoke").clients.client.nunique() == 2


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda folder: {"folder": folder / "absent"}, "must be a folder that is there"),
        (lambda folder: {"folder": folder / "amazon"}, "must be a folder of pictures DOMAIN/CLASS/FILE"),
        (lambda folder: {"size": 4}, "size = 4: must be between 8 and 1024 pixels"),
        (
            lambda folder: (folder / "amazon/mug/2.jpg").write_bytes(b"x") and {},
            "2.jpg: is no picture that can be read",
        ),
    ],
)
def test_another_layout_is_refused_in_one_line(folder, change, line):
    with pytest.raises(FedlibError, match=line):
        data.from_folders("domains", **{"folder": folder, **change(folder)})
