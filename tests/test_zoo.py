"""Networks of fedlib.zoo: what they are for, that all of them is trained, and every method on a mix of them."""

import dataclasses
import re
import shutil

import numpy as np
import pytest
import torch

from fedlib import FedlibError, RunSpec, data, lab, models
from fedlib.randomness import generator
from fedlib.sample import Sample

IMAGES = [name for name, kind in models.ZOO.items() if kind == "image"]
LARGE = ("ResNet-34", "ResNet-50", "ResNet-101", "ResNet-152", "EfficientNet-V2-S", "ViT-S", "ViT-B-16", "ViT-B-32")


def build(name: str, sample: Sample | int = 3) -> models.Model:
    return models.build(name, 10, sample, generator(0, "init"))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in IMAGES])
def test_every_weight_of_a_network_for_images_is_trained(name):
    for shape in ((3, 32, 32), (1, 64, 64)):
        model = build(name, Sample(shape=shape)).train()
        images = torch.randn(4, *shape)
        features = model.extractor(images)
        assert features.shape == (4, 500) and (features >= 0).all()
        torch.nn.functional.cross_entropy(model.header(features), torch.arange(4)).backward()
        assert [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()] == []
    assert models.feature_width(name, 10, 3) == 500


@pytest.mark.parametrize(
    ("name", "sample", "message"),
    [
        (
            "ResNet-18",
            Sample("vector", (561,), "float32"),
            "takes images, and these samples are vectors (561,): use MLP",
        ),
        ("Transformer", Sample(), "takes token ids, and these samples are images (3, 32, 32): use CNN-1"),
        (
            "ViT-S",
            Sample(shape=(3, 32, 36)),
            "images of 32x36 pixels; this one needs square ones, of a side that 4 divides",
        ),
        (
            "ViT-B-16",
            Sample(shape=(1, 28, 28)),
            "images of 28x28 pixels; this one needs square ones, of a side that 16 divides",
        ),
        ("ResNet-11", Sample(), "did you mean 'ResNet-101' or 'ResNet-18' or 'ResNet-10'?"),
    ],
)
def test_a_network_says_what_it_is_not_for(name, sample, message):
    with pytest.raises(FedlibError, match=re.escape(message)):
        build(name, sample)


def test_sizes_are_the_published_ones():
    """torchvision's counts for 1000 classes, with this representation and header for 10 classes in the classifier's place."""
    published = {"ResNet-18": (11_689_512, 512), "GoogLeNet": (6_624_904, 1024), "MobileNet-V2": (3_504_872, 1280)}
    published |= {"EfficientNet-B0": (5_288_548, 1280), "MobileNet-V3-S": (2_542_856, 1024)}
    for name, (floats, width) in published.items():
        assert models.num_floats(build(name)) == floats - 1000 * (width + 1) + 500 * (width + 1) + 501 * 10, name
    blocks = [
        sum(isinstance(layer, torch.nn.Conv2d) for layer in build(f"ResNet-{d}").modules()) for d in (4, 6, 8, 10)
    ]
    assert blocks == [3, 6, 9, 12]  # the stem, two in each block, and a shortcut where a stage has more filters


def test_padding_says_nothing_to_the_transformer():
    tokens = Sample("tokens", (6,), "int64", 20)
    model = build("Transformer", tokens)
    ids = torch.tensor([[3, 4, 5, 0, 0, 0], [3, 4, 5, 7, 0, 0], [0, 0, 0, 0, 0, 0]])
    answers = model(ids)
    assert answers.shape == (3, 10) and answers.isfinite().all() and not torch.allclose(answers[0], answers[1])
    with torch.no_grad():
        words = model.extractor[0]
        words.places[3:] += torch.randn(3, 64)  # where the first has padding
    assert torch.allclose(model(ids)[0], answers[0], atol=1e-6) and not torch.allclose(model(ids)[1], answers[1])


def test_a_methods_own_network_is_for_the_clients_data():
    values, labels = np.random.default_rng(0).normal(size=(48, 9, 32)).astype("float32"), np.arange(48) % 4
    data.register("shaped", lambda: data.Dataset.from_arrays("shaped", values, labels, values[:8], labels[:8]))
    for name, field in {"FML": "shared", "FedKD": "shared", "FedKEMF": "knowledge"}.items():
        asked = RunSpec(name, dataset="shaped", scenario="CNN-1D", num_clients=2)
        assert lab.resolve(asked, "smoke").spec.params[field] == "CNN-1D"
        assert lab.resolve(RunSpec(name, dataset="digits")).spec.params[field] == "CNN-5"


# ------------------------------------------------------------------------------------------------ weights from a file


@pytest.mark.thorough(None)
def test_weights_of_torchvisions_own_network_are_taken_but_for_its_classifier(tmp_path, small_digits):
    from torchvision.models import resnet18

    network = resnet18()
    torch.save(network.state_dict(), tmp_path / "resnet18.pt")
    asked = RunSpec(
        "Standalone", scenario="ResNet-18,CNN-5", num_clients=2, weights=f"ResNet-18={tmp_path}/resnet18.pt"
    )
    federation = lab.federation_of(lab.resolve(asked))
    without = lab.federation_of(lab.resolve(dataclasses.replace(asked, weights="")))
    started, drawn = federation.clients[0].model.state_dict(), without.clients[0].model.state_dict()
    for name, tensor in network.state_dict().items():
        own = drawn if name.startswith("fc.") else {f"extractor.0.{name}": tensor}
        assert torch.equal(started[f"extractor.0.{name}"], own[f"extractor.0.{name}"]), name
    assert torch.equal(started["header.weight"], drawn["header.weight"])
    assert torch.equal(federation.clients[1].model.header.weight, without.clients[1].model.header.weight)


def test_a_file_and_not_its_name_is_in_the_key(tmp_path, small_digits):
    def key(name: str) -> str:
        return lab.resolve(RunSpec("Standalone", scenario="CNN-5", weights=f"CNN-5={tmp_path / name}")).key

    torch.save(build("CNN-5").state_dict(), tmp_path / "a.pt")
    shutil.copy(tmp_path / "a.pt", tmp_path / "b.pt")
    first = key("a.pt")
    assert key("b.pt") == first != lab.resolve(RunSpec("Standalone", scenario="CNN-5")).key
    torch.save(models.build("CNN-5", 10, 3, generator(1, "init")).state_dict(), tmp_path / "a.pt")
    assert key("a.pt") != first


def test_weights_that_do_not_fit_are_refused_in_one_line(tmp_path, small_digits):
    torch.save(build("CNN-4").state_dict(), tmp_path / "other.pt")
    torch.save({"epoch": 3}, tmp_path / "more.pt")
    (tmp_path / "broken.safetensors").write_bytes(b"x")
    for given, message in {
        "CNN-5": "weights = 'CNN-5': must be ARCHITECTURE=FILE",
        "CNN-1=a.pt": "weights: architecture = 'CNN-1' is unknown: did you mean 'CNN-5'",
        "CNN-5=gone.pt": "weights of CNN-5 = 'gone.pt': cannot be read",
        f"CNN-5={tmp_path}/other.pt": "weights of CNN-5: its file has no 7.weight (500, 800) and 1 more",
        f"CNN-5={tmp_path}/more.pt": "must be a network's state_dict (it holds other things than tensors by name)",
        f"CNN-5={tmp_path}/broken.safetensors": "must be a network's state_dict (",
    }.items():
        with pytest.raises(FedlibError, match=re.escape(message)) as error:
            federation = lab.federation_of(lab.resolve(RunSpec("Standalone", scenario="CNN-5", weights=given)))
            assert federation.clients[0].model
        assert "\n" not in str(error.value)
