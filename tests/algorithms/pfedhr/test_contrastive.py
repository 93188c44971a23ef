"""SimCLR's augmentations on tensors and its loss, against NumPy and by hand."""

import numpy as np
import pytest
import torch

from fedlib import models, training
from fedlib.algorithms.pfedhr import contrastive
from fedlib.randomness import generator


def stream(seed: int = 0) -> np.random.Generator:
    return generator(seed, "server")


def scale(channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((channels, 1, 1), 120.0), torch.full((channels, 1, 1), 60.0)


def normalised(n: int = 64, channels: int = 3) -> torch.Tensor:
    mean, std = scale(channels)
    pixels = torch.from_numpy(stream(1).integers(0, 256, (n, channels, 32, 32)).astype(np.float32))
    return (pixels - mean) / std


@pytest.mark.parametrize("channels", [1, 3])
def test_views_are_images_and_the_streams(channels):
    images, (mean, std) = normalised(channels=channels), scale(channels)
    found = contrastive.views(images, mean, std, stream())
    assert found.shape == (128, channels, 32, 32) and found.is_contiguous(memory_format=torch.channels_last)
    pixels = found * std + mean
    assert pixels.min() >= -1e-3 and pixels.max() <= 255.001
    assert torch.equal(found, contrastive.views(images, mean, std, stream()))
    assert not torch.equal(found[:64], found[64:])
    assert (found != torch.cat([images, images])).any(dim=(1, 2, 3)).all()


def test_grey_with_probability_a_fifth():
    images, (mean, std) = normalised(2000), scale(3)
    found = contrastive.view(images, mean, std, stream())
    grey = (found - found.mean(1, keepdim=True)).abs().amax((1, 2, 3)) < 1e-3
    assert 0.17 < grey.float().mean() < 0.23


def test_cropping():
    images = torch.arange(2 * 16.0).view(2, 1, 4, 4)
    ones, half = torch.ones(2, 1, 1, 1), torch.full((2, 1, 1, 1), 0.5)
    whole = contrastive.cropped(images, ones, ones, half, half, half < 0)
    torch.testing.assert_close(whole, images)
    mirrored = contrastive.cropped(images, ones, ones, half, half, half > 0)
    torch.testing.assert_close(mirrored, images.flip(3))
    # A quarter of the area in the last corner: pixel centres 1.75, 2.25, 2.75 and, at the border, 3 of either side.
    corner = contrastive.cropped(images, ones / 4, ones, ones, ones, half < 0)
    places = torch.tensor([1.75, 2.25, 2.75, 3])
    torch.testing.assert_close(corner[0, 0], 4 * places[:, None] + places)
    # As high as it can be, three quarters as wide: rows are left as they are.
    tall = contrastive.cropped(images, ones, ones * 0.75**2, ones * 0, half, half < 0)
    torch.testing.assert_close(tall.diff(dim=2), images.diff(dim=2))


def test_hue():
    pixels = torch.from_numpy(stream().random((3, 3, 5, 5), dtype=np.float32))
    torch.testing.assert_close(contrastive.turned(pixels, torch.zeros(3)), pixels)
    quarter = contrastive.turned(pixels, torch.full((3,), 0.25))
    grey = torch.tensor(contrastive.GREY).view(3, 1, 1)
    torch.testing.assert_close((quarter * grey).sum(1), (pixels * grey).sum(1))  # brightness stays
    back = contrastive.turned(quarter, torch.full((3,), -0.25))
    torch.testing.assert_close(back, pixels)
    assert (quarter - pixels).abs().max() > 0.1


def test_nt_xent_against_numpy():
    outputs = stream().normal(size=(8, 3))
    unit = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
    losses = []
    for i in range(8):
        alike = np.exp(unit @ unit[i] / 0.5)
        losses.append(-np.log(alike[(i + 4) % 8] / (alike.sum() - alike[i])))
    assert contrastive.nt_xent(torch.from_numpy(outputs), 0.5).item() == pytest.approx(np.mean(losses))


def test_a_batch_of_one_image_has_nothing_to_tell_apart():
    outputs = torch.randn(2, 3, requires_grad=True)
    loss = contrastive.nt_xent(outputs, 0.5)
    loss.backward()
    assert loss.item() == 0 and (outputs.grad == 0).all()


def test_the_projection_head_is_simclrs(monkeypatch):
    """Two linear layers with a ReLU between, 128 wide, on the 10 logits, trained beside the model."""
    seen = {}
    monkeypatch.setattr(training, "train", lambda loss, modules, *rest, **named: seen.update(modules))
    pool = training.Pool(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.full((2,), -1), *scale(3))
    settings, model = training.Settings(1, 2, 0.001), torch.nn.Identity()
    contrastive.train(model, 10, pool, torch.arange(2), settings, stream())
    shapes = [tuple(parameter.shape) for parameter in seen["head"].parameters()]
    assert shapes == [(128, 10), (128,), (128, 128), (128,)] and isinstance(seen["head"][1], torch.nn.ReLU)
    assert seen["model"] is model
    seen.clear()
    contrastive.train(model, 10, pool, torch.arange(2), settings, stream(), projection=0)
    assert list(seen) == ["model"]


@pytest.mark.parametrize("projection", [0, 8])
def test_training_without_labels(projection):
    pool = training.Pool(
        torch.from_numpy(stream().integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)),
        torch.full((20,), -1),
        *scale(3),
    )
    settings = training.Settings(2, 8, 0.001, optimiser="adam")

    def trained() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        model = models.build("M1", 10, 3, generator(0, "init"))
        loss = contrastive.train(model, 10, pool, torch.arange(20), settings, stream(), projection=projection)
        return model.state_dict(), loss

    state, loss = trained()
    again, _ = trained()
    initial = models.build("M1", 10, 3, generator(0, "init")).state_dict()
    assert 0 < loss < np.log(15) + 2
    assert all(torch.equal(state[name], again[name]) for name in state)
    assert not any(torch.equal(state[name], initial[name]) for name in state)
