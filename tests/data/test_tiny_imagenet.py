"""Tiny ImageNet: a small archive of the same format."""

import hashlib
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from torchvision.io import encode_jpeg

from fedlib import FedlibError, data, lab, models
from fedlib.data.readers import tiny_imagenet
from fedlib.lab import RunSpec

CLASSES = ["n03", "n01", "n02"]


def picture(shade: int, channels: int = 3) -> bytes:
    return encode_jpeg(torch.full((channels, 64, 64), shade, dtype=torch.uint8), quality=100).numpy().tobytes()


@pytest.fixture(autouse=True)
def file(root, monkeypatch):
    place = root / "tiny-imagenet" / tiny_imagenet.FILE
    place.parent.mkdir(parents=True)
    with zipfile.ZipFile(place, "w") as archive:
        top, rows = tiny_imagenet.TOP, []
        archive.writestr(f"{top}/wnids.txt", "\n".join(CLASSES) + "\n")
        for number, name in enumerate(CLASSES):
            archive.writestr(f"{top}/train/{name}/{name}_boxes.txt", "no picture")
            for copy in range(4):
                archive.writestr(
                    f"{top}/train/{name}/images/{name}_{copy}.JPEG", picture(40 + 60 * number, 3 if copy else 1)
                )
            archive.writestr(f"{top}/val/images/val_{number}.JPEG", picture(45 + 60 * number))
            rows.append(f"val_{number}.JPEG\t{name}\t0\t0\t63\t63")
        archive.writestr(f"{top}/val/val_annotations.txt", "\n".join(rows) + "\n")
    monkeypatch.setattr(tiny_imagenet, "MD5", hashlib.md5(place.read_bytes()).hexdigest())
    monkeypatch.setitem(
        data.BUILT_IN, "tiny-imagenet", replace(data.BUILT_IN["tiny-imagenet"], num_train=12, num_test=3)
    )
    return place


def test_pictures_and_their_classes():
    made = data.load("tiny-imagenet")
    assert made.images.shape == (15, 3, 64, 64) and made.images.is_contiguous(memory_format=torch.channels_last)
    assert made.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [2, 0, 1]  # in the order of the classes' names
    shades = made.images.double().mean((1, 2, 3)).round().int().tolist()
    assert np.abs(np.subtract(shades, [100] * 4 + [160] * 4 + [40] * 4 + [45, 105, 165])).max() <= 1
    assert made.augment and made.sample == data.info("tiny-imagenet").sample


def test_another_file_is_refused(file):
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(FedlibError, match=r"tiny-imagenet-200\.zip is not the published file"):
        data.load("tiny-imagenet")


def test_the_papers_networks_take_its_pictures():
    run = lab.resolve(RunSpec("FedSSA", dataset="tiny-imagenet", num_clients=5))
    assert run.info.sample.shape == (3, 64, 64) and run.protocol.augmentation == "released"
    assert models.feature_width("CNN-1", 200, run.info.sample) == models.FEATURES
