"""pFedES: one round by hand, its extractor, and the epochs of both steps."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from tiny import LABELS

from fedlib import training
from fedlib.algorithms.pfedes import PFedES, mixed_loss
from fedlib.federation import Upload
from fedlib.lab.presets import params
from fedlib.models import proxy_extractor


def pixelwise(extractor: dict[str, torch.Tensor], a: float, b: float, c: float, d: float) -> dict[str, torch.Tensor]:
    """An extractor that maps each pixel on its own, G(x) = relu(c * relu(a x + b) + d): centre taps of one filter."""
    state = {name: torch.zeros_like(tensor) for name, tensor in extractor.items()}
    state["0.weight"][0, 0, 1, 1], state["0.bias"][0] = a, b
    state["2.weight"][0, 0, 1, 1], state["2.bias"][0] = c, d
    return state


def test_one_round_by_hand() -> None:
    federation, method = tiny.federation_of(LABELS), PFedES(mu=0.3, extractor_epochs=1)
    context = tiny.context(federation)
    server = method.init_server(context)
    a, b, c, d = 0.7, 0.2, 1.1, -0.3
    server.update(pixelwise(server, a, b, c, d))

    uploads, expected = [], []
    for client in federation.clients:
        x, y = tiny.training_data(client)
        net = tiny.Net(client.model)
        inner = np.maximum(a * x + b, 0)
        enhanced = np.maximum(c * inner + d, 0)
        # Eq. 5 and 6: one step on 0.3 * CE(F(G(x))) + 0.7 * CE(F(x)), G frozen
        slopes = [weight * tiny.cross_entropy_slope(net.logits(z), y) for weight, z in ((0.3, enhanced), (0.7, x))]
        net.step((enhanced, slopes[0]), (x, slopes[1]))
        # Eq. 8 and 9: one step on CE(F(G(x))), F frozen; dL/dG = dL/dz W A, zero where G or its inner ReLU is off
        back = tiny.cross_entropy_slope(net.logits(enhanced), y) @ net.W @ net.A * (enhanced > 0)
        through = back * c * (inner > 0)
        steps = {
            "0.weight": (through * x).sum(),
            "0.bias": through.sum(),
            "2.weight": (back * inner).sum(),
            "2.bias": back.sum(),
        }
        expected.append([old - tiny.LR * step for old, step in zip((a, b, c, d), steps.values(), strict=True)])

        upload = tiny.visit(method, client, method.download(server, client.info, context), federation)
        uploads.append(Upload(client.info, upload))
        net.agrees(client.model)  # F after step 1; step 2 left it alone
        assert upload.num_samples == len(y)

    method.aggregate(server, uploads, context)  # Eq. 10: weights 3/8 and 5/8
    centres = ("0.weight", (0, 0, 1, 1)), ("0.bias", 0), ("2.weight", (0, 0, 1, 1)), ("2.bias", 0)
    for (name, place), one, other in zip(centres, *expected, strict=True):
        assert abs(server[name][place].item() - (3 * one + 5 * other) / 8) < 2e-6, name


@pytest.mark.thorough
def test_raw_and_enhanced_images_side_by_side_are_the_two_passes_apart() -> None:
    """Weights after three steps of Eq. 6, to 1e-6; a model with batch normalisation sees them apart, to the bit."""

    def apart(model: Any, images: torch.Tensor, labels: torch.Tensor, extractor: Any, mu: float) -> torch.Tensor:
        enhanced, raw = (F.cross_entropy(model(seen), labels) for seen in (extractor(images), images))
        return mu * enhanced + (1 - mu) * raw

    federation = tiny.federation_of([[0, 1, 2, 3] * 6], classes=10, channels=3, architectures=["CNN-5", "M4"])
    client, stream = federation.clients[0], np.random.default_rng
    settings, extractor = training.Settings(1, 8, 0.1), proxy_extractor(3)
    for architecture, tolerance in (("CNN-5", 1e-6), ("M4", 0.0)):
        states = []
        for loss in (mixed_loss, apart):
            model, named = federation.build(architecture), {"extractor": extractor, "mu": 0.3}
            training.train(loss, {"model": model}, client.pool, client.train, settings, stream(0), named)
            states.append(model.state_dict())
        for one, other in zip(states[0].values(), states[1].values(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def test_the_extractor_has_443_floats_and_keeps_the_shape() -> None:
    extractor = proxy_extractor(3)
    assert sum(parameter.numel() for parameter in extractor.parameters()) == 443
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    linear = proxy_extractor(3, "linear")
    linear.load_state_dict(extractor.state_dict())
    assert extractor(images).shape == images.shape
    assert extractor(images).min() >= 0 > linear(images).min()
    assert torch.equal(linear(images).relu(), extractor(images))


def trained_in_step_two(method: PFedES, local_epochs: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Epochs over the client's images in step 2: one batch an epoch, so its number of steps."""
    seen: list[str] = []

    def spy(loss: Any, modules: dict[str, Any], *rest: Any, **named: Any) -> torch.Tensor:
        seen.extend(modules)
        return step(loss, modules, *rest, **named)

    step = training.step
    federation = tiny.federation_of(LABELS)
    federation.settings = dataclasses.replace(federation.settings, epochs=local_epochs)
    context, client = tiny.context(federation), federation.clients[0]
    with monkeypatch.context() as patch:
        patch.setattr(training, "step", spy)
        tiny.visit(method, client, method.download(method.init_server(context), client.info, context), federation)
    assert seen.count("model") == local_epochs
    return seen.count("extractor")


def test_defaults_are_the_best_of_figure_10_and_the_released_ones_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """E_fe = 5 whatever E is; the heterogeneous script has E + 10, the homogeneous one E."""
    epochs = {"": (5, 5), "heterogeneous": (11, 13), "homogeneous": (1, 3)}  # at E = 1 and at E = 3
    for scenario, expected in epochs.items():
        given = params("pFedES", "released", scenario, "pFedES") if scenario else {}
        method = PFedES(**given)
        assert method.mu == (0.5 if scenario else 0.1)
        assert tuple(trained_in_step_two(method, local, monkeypatch) for local in (1, 3)) == expected
    assert params("pFedES", "paper", "heterogeneous", "pFedES") == {}
