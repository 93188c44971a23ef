import copy

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from fedlib import FedlibError, Model, RunSpec, models, run, training
from fedlib.randomness import generator
from fedlib.sample import Sample

# Floats of CNN-1..5 from the layers' sizes: conv1 3*25*16+16, conv2 16*25*c+c, fc1 25*c*w+w, fc2 500*w+500,
# fc3 500*C+C.
FLOATS = {
    10: (2_621_558, 1_815_142, 1_320_558, 1_060_358, 670_058),
    100: (2_666_648, 1_860_232, 1_365_648, 1_105_448, 715_148),
}


OF_IMAGES = sorted(models.BUILT_IN.keys() - models.ZOO.keys())


def build(name: str, num_classes: int = 10, channels: int = 3, seed: int = 0):
    return models.build(name, num_classes, channels, generator(seed, "init"))


@pytest.mark.parametrize("num_classes", FLOATS)
def test_sizes_are_the_papers_to_the_float(num_classes):
    assert tuple(models.num_floats(build(name, num_classes)) for name in models.CNN_WIDTHS) == FLOATS[num_classes]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OF_IMAGES)
def test_extractor_and_header_make_the_model(name, channels):
    model = build(name, channels=channels)
    images = torch.randn(3, channels, 32, 32)
    representations = model.extractor(images)
    width = models.M_WIDTHS.get(name, models.FEATURES)
    assert representations.shape == (3, width) and (representations >= 0).all()
    assert (model.header.in_features, model.header.out_features) == (width, 10)
    assert torch.equal(model.header(representations), model(images))
    assert models.num_floats(model.extractor) + models.num_floats(model.header) == models.num_floats(model)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_channels_last_computes_what_nchw_does(name):
    model = build(name)
    assert model.extractor[0].weight.is_contiguous(memory_format=torch.channels_last)
    plain = models.BUILDERS[name](10, 3).eval()
    plain.load_state_dict(model.state_dict())
    images = torch.randn(8, 3, 32, 32)
    expected = plain(images)
    result = model(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)


# Floats of M1..M4 with 3 channels and 10 classes, from the layers' sizes: convolutions k*k*in*out + out (and 2*out of
# batch normalisation), linear layers in*out + out. M1's and M3's are the released code's.
M_FLOATS = {
    "M1": 760 + 16_064 + 80_050 + 510,
    "M2": 760 + 16_064 + 204_928 + 6_450 + 510,
    "M3": 456 + 2_416 + 12_832 + 51_264 + 204_928 + 2_098_176 + 131_200 + 8_256 + 650,
    "M4": 2_496 + 18_496 + 74_112 + 409_728 + 295_680 + 590_080 + 4_195_328 + 524_800 + 131_328 + 2_570,
}


@pytest.mark.parametrize("name", M_FLOATS)
def test_sizes_of_pfedhrs_models(name):
    assert models.num_floats(build(name)) == M_FLOATS[name]
    width = models.M_WIDTHS[name]
    equal = build(f"{name}-500")
    assert models.num_floats(equal) == M_FLOATS[name] - 10 * width - 10 + (width + 1) * 500 + 501 * 10
    assert equal.header.in_features == models.FEATURES


def kinds(name: str) -> str:
    """The operations of appendix 2.1, one letter each: Convolution, Batch normalisation, Relu, Pooling, Dropout,
    Linear; pooling stands before the ReLU, which gives the same bits (see below).
    """
    letters = {"Conv2d": "C", "BatchNorm2d": "B", "ReLU": "R", "MaxPool2d": "P", "Flatten": "", "Linear": "L"}
    model = build(name)
    return "".join(letters.get(type(layer).__name__, "D") for layer in [*model.extractor, model.header])


def test_operations_of_pfedhrs_models_are_the_appendixs():
    assert kinds("M1") == "CPRCPRLRDL"
    assert kinds("M2") == "CPRCPRCRLRDL"
    assert kinds("M3") == "CPRCPRCRCPRCRLRDLRLRL"
    assert kinds("M4") == "CBRCPRCBRCPRDCBRCPRLRDLRLRL"
    assert kinds("M1-500") == "CPRCPRLRDLRL"
    kernels = [layer.kernel_size[0] for layer in build("M4").extractor if isinstance(layer, torch.nn.Conv2d)]
    assert kernels == [5, 3, 3, 5, 3, 3]


def as_printed(model: models.Model) -> models.Model:
    """The same network with each ReLU before the pooling, as the papers print it."""
    layers = [*copy.deepcopy(model.extractor)]
    for place, layer in enumerate(layers[:-1]):
        if isinstance(layer, torch.nn.MaxPool2d):
            layers[place : place + 2] = layers[place + 1], layer
    return models.Model(torch.nn.Sequential(*layers), copy.deepcopy(model.header)).eval()


@pytest.mark.thorough(None)
@pytest.mark.parametrize("name", ["CNN-1", "CNN-2", "CNN-5", "M1", "M3", "M4"])
def test_pooling_before_relu_has_the_bits_of_the_printed_order(name):
    """Logits, and weights after three steps with momentum, dropout and batch normalisation."""
    model = build(name)
    printed = as_printed(model)
    stream = np.random.default_rng(0)
    images = torch.from_numpy(stream.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8))
    images = images.contiguous(memory_format=torch.channels_last)
    half = torch.full((3, 1, 1), 127.5)
    pool = training.Pool(images, torch.arange(12) % 10, half, half)
    settings, indices = training.Settings(1, 4, 0.1, momentum=0.9), torch.arange(12)
    assert torch.equal(model(pool.batch(indices)), printed(pool.batch(indices)))
    for network in (model, printed):
        with training.one_thread():
            modules = {"model": network}
            training.train(training.cross_entropy, modules, pool, indices, settings, np.random.default_rng(1))
    assert any(not torch.equal(*pair) for pair in zip(model.parameters(), build(name).parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), printed.parameters(), strict=True))
    assert torch.equal(model(pool.batch(indices)), printed(pool.batch(indices)))


def test_initial_states_are_pytorchs_defaults_of_the_stream_alone():
    before = torch.random.get_rng_state()
    one, again, other = build("CNN-5"), build("CNN-5"), build("CNN-5", seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    for first, second, third in zip(one.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second) and not torch.equal(first, third)
    bound = 1 / np.sqrt(500)  # nn.Linear: uniform within 1 / sqrt(fan in)
    assert 0.95 * bound < one.header.weight.abs().max() <= bound


def test_one_initial_state_an_architecture_and_a_seed():
    data = tiny.dataset(num_classes=3, per_class=20)
    parts = [np.arange(i, 60, 5) for i in range(5)]
    one, other = (tiny.federation(data, parts, ("tiny-a", "tiny-b"), seed=seed) for seed in (0, 1))
    states = [client.model.state_dict() for client in one.clients]  # architectures a, b, a, b, a
    assert tiny.equal_states(states[0], states[2]) and tiny.equal_states(states[1], states[3])
    assert not torch.equal(states[0]["header.weight"], states[1]["header.weight"])
    assert not torch.equal(states[0]["header.weight"], other.clients[0].model.header.weight)
    assert torch.equal(one.server_context().initial_header().weight, states[0]["header.weight"])
    states[0]["header.weight"].zero_()  # each client has its own copy
    assert not torch.equal(states[0]["header.weight"], states[2]["header.weight"])


# ----------------------------------------------------------------------------------------- images of another size, and no images


@pytest.mark.parametrize(
    ("name", "shape", "inputs"),
    [
        ("CNN-1", (1, 28, 28), 32 * 4 * 4),  # 28 -> 24 -> 12 -> 8 -> 4
        ("CNN-2", (3, 64, 64), 16 * 13 * 13),  # 64 -> 60 -> 30 -> 26 -> 13
        ("CNN-5", (2, 16, 20), 32 * 1 * 2),  # 16 -> 12 -> 6 -> 2 -> 1; 20 -> 16 -> 8 -> 4 -> 2
        ("M1", (1, 28, 28), 64 * 4 * 4),
        ("M2", (3, 36, 32), 128 * 2 * 1),  # 36 -> 32 -> 16 -> 12 -> 6 -> 2
        ("M3", (1, 28, 28), 128 * 3 * 3),  # 28 -> 14 -> 7 -> 3
        ("M4-500", (3, 64, 64), 256 * 8 * 8),
    ],
)
def test_the_first_linear_layer_follows_the_size_of_the_images(name, shape, inputs):
    model = models.build(name, 10, Sample(shape=shape), generator(0, "init"))
    first = next(layer for layer in model.extractor.modules() if isinstance(layer, nn.Linear))
    assert first.in_features == inputs
    assert model(torch.zeros(2, *shape)).shape == (2, 10)
    assert models.feature_width(name, 10, Sample(shape=shape)) == model.header.in_features


@pytest.mark.parametrize("name", OF_IMAGES)
def test_smaller_images_than_a_network_can_take_are_refused(name):
    least = models.SMALLEST[name.partition("-")[0]]
    models.build(name, 10, Sample(shape=(3, least, least)), generator(0, "init"))(torch.zeros(2, 3, least, least))
    with pytest.raises(
        FedlibError, match=f"architecture = '{name}': must be a network for images of {least}x{least - 1}"
    ):
        models.build(name, 10, Sample(shape=(3, least, least - 1)), generator(0, "init"))


@pytest.mark.parametrize(
    ("name", "sample", "floats"),
    [
        ("MLP", Sample("vector", (561,), "float32"), 561 * 200 + 200 + 200 * 200 + 200),
        ("CNN-1D", Sample("series", (9, 128), "float32"), 9 * 5 * 32 + 32 + 32 * 5 * 64 + 64 + 64 * 200 + 200),
        ("fastText", Sample("tokens", (16,), "int64", 1000), 1000 * 64 + 64 * 200 + 200),
    ],
)
def test_networks_for_what_is_no_image(name, sample, floats):
    model = models.build(name, 6, sample, generator(0, "init"))
    assert models.num_floats(model) == floats + 200 * 6 + 6 and models.feature_width(name, 6, sample) == 200
    inputs = torch.from_numpy(sample.random(5, generator(0, "init")))
    assert model(inputs).shape == (5, 6)


def test_padding_counts_for_nothing():
    model = models.build("fastText", 3, Sample("tokens", (4,), "int64", 9), generator(0, "init"))
    texts = torch.tensor([[5, 7, 0, 0], [0, 7, 0, 5], [0, 0, 0, 0]])
    vectors = model.extractor[0].vectors.weight
    means = model.extractor[0](texts)
    torch.testing.assert_close(means[0], (vectors[5] + vectors[7]) / 2)
    assert torch.equal(means[0], means[1]) and not means[2].any()


def test_a_builder_is_told_what_it_asks_for():
    given = []
    for builder in (
        lambda classes, channels: given.append((classes, channels)),
        lambda classes, channels, sample: given.append(sample),
    ):
        models.made(builder, 3, Sample("series", (9, 128), "float32"))
    assert given == [(3, 9), Sample("series", (9, 128), "float32")]


def test_what_shares_headers_says_what_a_network_of_ones_own_lacks():
    """A header of several layers is named, and unequal widths say what to add."""

    def network(width, *more):
        return lambda classes, channels: Model(
            nn.Sequential(nn.Flatten(), nn.Linear(1024 * channels, width)),
            nn.Sequential(*more, nn.Linear(width, classes)) if more else nn.Linear(width, classes),
        )

    for name, build in {"eight": network(8), "nine": network(9), "deep": network(8, nn.ReLU())}.items():
        models.register(name, build)
    for scenario, line in (
        (("eight", "nine"), r"got {'eight': 8, 'nine': 9} \(end each extractor in a linear layer of one width\)"),
        (("deep",), "network's header = 'Sequential': must be one linear layer"),
        (("CNN-1", "M1"), "use scenario heterogeneous or reassembly-500"),
    ):
        with pytest.raises(FedlibError, match=line):
            run(RunSpec("FedProto", dataset="digits", scenario=scenario, num_clients=4, rounds=1), progress=False)


def test_the_proxy_extractor_ends_in_a_relu_or_in_a_convolution():
    released, linear = (models.proxy_extractor(3, output)(torch.randn(2, 3, 8, 8)) for output in ("relu", "linear"))
    assert released.min() >= 0 > linear.min() and released.shape == linear.shape == (2, 3, 8, 8)
