import copy
import dataclasses
import sys
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import tiny
import torch

from fedlib import models, training

DATA = tiny.dataset(num_classes=3, per_class=8)


def setup(count: int = 7):
    federation = tiny.federation(DATA, [np.arange(24)])
    return federation.build("tiny-a"), federation.pool, torch.arange(count)


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "clip_norm"), [(0, 0, 0), (0.9, 0, 0), (0, 0.1, 0), (0, 0, 0.05), (0.5, 0.01, 0.2)]
)
def test_minibatch_sgd_by_hand(momentum, weight_decay, clip_norm):
    """Two epochs of 7 images in batches of 3, 3 and 1: v <- momentum v + (clipped gradient + decay w), w <- w - lr v."""
    model, pool, indices = setup()
    w = tiny.weights(model)
    settings = training.Settings(2, 3, 0.1, momentum, weight_decay, clip_norm)
    mean = training.train(training.cross_entropy, {"model": model}, pool, indices, settings, np.random.default_rng(5))

    stream, velocity, losses = np.random.default_rng(5), None, []
    for _ in range(2):
        order = stream.permutation(7)
        for batch in (order[:3], order[3:6], order[6:]):
            x, y = tiny.inputs(DATA, batch)
            losses.append(tiny.loss(w, x, y) * len(batch))
            g = tiny.gradient(w, x, y)
            norm = np.sqrt(sum((value**2).sum() for value in g.values()))
            if clip_norm and norm > clip_norm:
                g = {name: value * clip_norm / norm for name, value in g.items()}
            g = {name: g[name] + weight_decay * w[name] for name in g}
            velocity = g if velocity is None else {name: momentum * velocity[name] + g[name] for name in g}
            w = {name: w[name] - 0.1 * velocity[name] for name in w}
    tiny.assert_weights(model, w)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert mean.item() == pytest.approx(sum(losses) / 14, rel=1e-5)  # a mean over samples, not over batches


def test_networks_trained_side_by_side_are_clipped_each_on_its_own():
    """The sum of two losses, one ten times as steep: each network ends where it would alone."""

    def of_one(one, images, labels):
        return training.cross_entropy(one, images, labels)

    def of_two(two, images, labels):
        return 10 * training.cross_entropy(two, images, labels)

    def of_both(one, two, **batch):
        return of_one(one, **batch) + of_two(two, **batch)

    settings = training.Settings(1, 3, 0.1, clip_norm=0.05)
    begun, pool, indices = setup()
    joint, alone = ({"one": copy.deepcopy(begun), "two": copy.deepcopy(begun)} for _ in range(2))
    training.train(of_both, joint, pool, indices, settings, np.random.default_rng(5))
    for name, loss in (("one", of_one), ("two", of_two)):
        training.train(loss, {name: alone[name]}, pool, indices, settings, np.random.default_rng(5))
        torch.testing.assert_close(joint[name].state_dict(), alone[name].state_dict(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("epochs", "count", "seen"),
    [(1, 7, [7]), (2, 7, [7, 7]), (0.5, 99, [50]), (2.5, 99, [99, 99, 50]), (0.1, 3, [1]), (0, 7, [])],
)
def test_a_part_of_an_epoch_sees_so_many_images(epochs, count, seen):
    assert training.images_of_epochs(training.Settings(epochs, 3, 0.1), count) == seen


@pytest.mark.parametrize(("weight_decay", "clip_norm"), [(0, 0), (0.1, 0), (0.1, 0.05)])
def test_minibatch_adam_by_hand(weight_decay, clip_norm):
    """m <- 0.9 m + 0.1 g, v <- 0.999 v + 0.001 g^2, w <- w - lr m' / (sqrt v' + 1e-8), m' and v' without their bias; g is
    the (clipped) gradient + decay w. Two visits: the moments start from zero in each.
    """
    model, pool, indices = setup()
    w = tiny.weights(model)
    settings = training.Settings(2, 4, 0.05, 0.0, weight_decay, clip_norm, "adam")
    for seed in (5, 6):
        training.train(training.cross_entropy, {"model": model}, pool, indices, settings, np.random.default_rng(seed))
        stream = np.random.default_rng(seed)
        m, v = ({name: np.zeros_like(value) for name, value in w.items()} for _ in range(2))
        orders = [stream.permutation(7) for _ in range(2)]
        for step, batch in enumerate([part for order in orders for part in (order[:4], order[4:])], start=1):
            g = tiny.gradient(w, *tiny.inputs(DATA, batch))
            norm = np.sqrt(sum((value**2).sum() for value in g.values()))
            for name in w:
                slope = g[name] * (min(1, clip_norm / norm) if clip_norm else 1) + weight_decay * w[name]
                m[name] = 0.9 * m[name] + 0.1 * slope
                v[name] = 0.999 * v[name] + 0.001 * slope**2
                root = np.sqrt(v[name] / (1 - 0.999**step))
                w[name] = w[name] - 0.05 * m[name] / (1 - 0.9**step) / (root + 1e-8)
    tiny.assert_weights(model, w)
    assert all(parameter.grad is None for parameter in model.parameters())


class Noisy(torch.nn.Module):
    """A linear classifier of an image's four quarters with batch normalisation and dropout; notes what mode it is in."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.AvgPool2d(16), torch.nn.BatchNorm2d(1), torch.nn.Dropout(0.5), torch.nn.Flatten(),
            torch.nn.Linear(4, 3),
        )  # fmt: skip
        self.modes = []

    def forward(self, images):
        self.modes.append(self.training)
        return self.layers(images)


def test_dropout_and_batch_norm_are_on_in_training_alone(monkeypatch):
    monkeypatch.setitem(models.BUILDERS, "noisy", lambda num_classes, channels: Noisy())
    federation = tiny.federation(DATA, [np.arange(24)])
    settings, indices = training.Settings(2, 5, 0.1), torch.arange(20)
    trained = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(trained))  # the masks come from the stream, not from the global generator
        model, stream = federation.build("noisy"), np.random.default_rng(seed)
        assert not model.training
        training.train(training.cross_entropy, {"model": model}, federation.pool, indices, settings, stream)
        assert model.modes == [True] * 8 and not model.training
        assert model.layers[1].num_batches_tracked == 8
        one, other = (training.outputs(model, federation.pool, indices) for _ in range(2))
        assert torch.equal(one, other) and model.layers[1].num_batches_tracked == 8
        plain = np.random.default_rng(seed)
        for _ in range(2):
            plain.permutation(20)
        assert stream.bit_generator.state == plain.bit_generator.state  # and they leave the order of batches as it is
        trained.append(model)
    weights = [model.layers[4].weight for model in trained]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("count", "size", "plain", "joined"),
    [
        (9, 4, [4, 4, 1], [4, 5]),
        (5, 4, [4, 1], [5]),
        (8, 4, [4, 4], [4, 4]),
        (10, 4, [4, 4, 2], [4, 4, 2]),
        (1, 4, [1], [1]),
        (3, 1, [1, 1, 1], [1, 1, 1]),
    ],
)
def test_a_last_batch_of_one_joins_the_one_before_it_for_batch_norm(count, size, plain, joined):
    _, pool, indices = setup(count)
    for normalised, sizes in ((False, plain), (True, joined)):
        given = training.batches(
            pool, indices, training.Settings(2, size, 0.1), np.random.default_rng(0), None, normalised
        )
        found = list(given)
        assert [len(labels) for _, labels in found] == [len(images) for images, _ in found] == 2 * sizes
        stream = np.random.default_rng(0)  # the same images in the same order
        expected = torch.cat([pool.labels[indices[torch.from_numpy(stream.permutation(count))]] for _ in range(2)])
        assert torch.equal(torch.cat([labels for _, labels in found]), expected)


class Normed(torch.nn.Module):
    """A linear classifier of an image's four quarters after batch normalisation, which one image has no statistics for."""

    def __init__(self):
        super().__init__()
        self.norm, self.header = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)

    def forward(self, images):
        return self.header(self.norm(torch.nn.functional.avg_pool2d(images, 16).flatten(1)))


@pytest.mark.parametrize(("count", "size", "tracked"), [(7, 3, 4), (1, 3, 0), (4, 1, 0)])
def test_a_single_image_trains_but_leaves_the_statistics_of_batch_norm(count, size, tracked):
    _, pool, indices = setup(count)
    torch.manual_seed(0)
    model = Normed().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    settings = training.Settings(2, size, 0.1)
    loss = training.train(training.cross_entropy, {"model": model}, pool, indices, settings, np.random.default_rng(0))
    assert loss.isfinite() and not any(part.training for part in model.modules())
    assert model.norm.num_batches_tracked == tracked
    assert torch.equal(model.norm.running_mean, before["norm.running_mean"]) == (tracked == 0)
    assert not torch.equal(model.norm.bias, before["norm.bias"])


def guided(model, guide, images, labels):
    return ((model(images) - guide(images)) ** 2).mean()


def failing(**batch):
    raise ZeroDivisionError


@pytest.mark.parametrize("loss", [guided, failing])
def test_frozen_modules_pass_gradients_and_are_as_before_whatever_happens(loss):
    (model, pool, indices), (guide, _, _) = setup(), setup()
    before = {name: tensor.clone() for name, tensor in guide.state_dict().items()}
    with torch.no_grad():
        model.header.bias.add_(1)
    settings, stream = training.Settings(1, 4, 0.1), np.random.default_rng(0)
    with pytest.raises(ZeroDivisionError) if loss is failing else nullcontext():
        training.train(loss, {"model": model}, pool, indices, settings, stream, {"guide": guide})
    assert tiny.equal_states(guide.state_dict(), before)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in guide.parameters())


def plain_batch(pool: training.Pool, indices: torch.Tensor) -> torch.Tensor:
    return pool.images[indices].to(torch.float32).sub_(pool.mean).div_(pool.std)


@pytest.mark.parametrize("channels", [1, 3])
def test_batches_have_the_bits_of_plain_indexing(channels):
    """Also of a pool that is not channels-last; in bf16 they are rounded once, at the end."""
    stream = np.random.default_rng(0)
    images = torch.from_numpy(stream.integers(0, 256, (50, channels, 32, 32), dtype=np.uint8))
    mean, std = (torch.from_numpy(stream.uniform(50, 150, (channels, 1, 1)).astype(np.float32)) for _ in range(2))
    indices = torch.from_numpy(stream.integers(0, 50, 20))
    for order in (torch.contiguous_format, torch.channels_last):
        pool = training.Pool(images.contiguous(memory_format=order), torch.zeros(50).long(), mean, std)
        batch = pool.batch(indices)
        assert batch.dtype == torch.float32 and batch.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch, plain_batch(pool, indices))
        rounded = dataclasses.replace(pool, precision="bf16").batch(indices)
        assert rounded.dtype == torch.bfloat16 and torch.equal(rounded, batch.bfloat16())


@pytest.mark.parametrize("augment", [None, training.augmented])
def test_bf16_images_give_the_bits_that_float32_images_give_under_bf16(augment, monkeypatch):
    stream = np.random.default_rng(0)
    images = torch.from_numpy(stream.integers(0, 256, (20, 3, 32, 32), dtype=np.uint8))
    half, settings, indices = torch.full((3, 1, 1), 127.5), training.Settings(1, 8, 0.1), torch.arange(20)
    pool = training.Pool(images, torch.arange(20) % 10, half, half, "bf16")
    trained = []
    for method in (training.Pool.batch, plain_batch):
        monkeypatch.setattr(training.Pool, "batch", method)
        model = models.build("CNN-5", 10, 3, np.random.default_rng(1))
        change = augment and partial(augment, stream=np.random.default_rng(3))
        modules, draws = {"model": model}, np.random.default_rng(2)
        training.train(training.cross_entropy, modules, pool, indices, settings, draws, augment=change)
        trained.append(model.state_dict())
    assert tiny.equal_states(*trained)


def test_outputs_in_bf16_are_float32():
    images, half = torch.zeros((4, 1, 32, 32), dtype=torch.uint8), torch.full((1, 1, 1), 127.5)
    pool = training.Pool(images, torch.zeros(4).long(), half, half, "bf16")
    model = models.build("CNN-5", 10, 1, np.random.default_rng(0))
    assert training.outputs(model, pool, torch.arange(4)).dtype == torch.float32


def plainly_augmented(images: torch.Tensor, stream: np.random.Generator) -> torch.Tensor:
    """Image by image and step by step: mirrored, a rectangle erased, padded and cut out."""
    n, _, height, width = images.shape
    flip, erase, area, ratio, top, left, down, right = torch.from_numpy(stream.random((8, n)))
    area, ratio = height * width * (0.04 + 0.16 * area), 0.5 * 4**ratio
    box_height, box_width = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    top, left = (top * (height - box_height + 1)).long(), (left * (width - box_width + 1)).long()
    results = []
    for i, image in enumerate(images.clone()):
        if flip[i] < 0.5:
            image = image.flip(2)
        if erase[i] < 0.5:
            image[:, top[i] : top[i] + box_height[i], left[i] : left[i] + box_width[i]] = 0
        padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
        y, x = int(9 * down[i]), int(9 * right[i])
        results.append(padded[:, y : y + height, x : x + width])
    return torch.stack(results)


@pytest.mark.parametrize(("channels", "dtype"), [(3, torch.float32), (3, torch.bfloat16), (1, torch.float32)])
def test_augmentation_has_the_bits_of_the_plain_one(channels, dtype):
    images = torch.randn(200, channels, 32, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    for order in (torch.contiguous_format, torch.channels_last):
        given = images.contiguous(memory_format=order)
        one, other = np.random.default_rng(1), np.random.default_rng(1)
        assert torch.equal(training.augmented(given, one), plainly_augmented(images, other))
        assert torch.equal(given, images) and one.bit_generator.state == other.bit_generator.state


@pytest.mark.parametrize("count", [1, 50, 10**4])
def test_numbers_drawn_ahead_are_the_stream_s_own(count):
    """Whatever is drawn at a time, more than a batch's or less."""
    ahead = training.Ahead(np.random.default_rng(1), count, torch.device("cpu"))
    stream = np.random.default_rng(1)
    for n in (3, 5, 1, 20):
        assert torch.equal(ahead.random((8, n, 1)), torch.from_numpy(stream.random((8, n, 1))))


def test_evaluation_counts_the_largest_logits_whatever_the_batch(monkeypatch):
    model, pool, _ = setup()
    indices = torch.arange(24)
    x, y = tiny.inputs(DATA, np.arange(24))
    w = tiny.weights(model)
    expected = (tiny.features(w, x) @ w["W"].T + w["b"]).argmax(1) == y
    for size in (500, 5):
        monkeypatch.setattr(training, "EVALUATION_BATCH", size)
        hits = training.correct(lambda images: {"accuracy": model(images)}, pool, indices)
        assert np.array_equal(hits["accuracy"], expected)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_class_means_are_float64_means():
    """Of 4 000 representations with a large offset, where a float32 sum would be off."""
    stream = np.random.default_rng(0)
    values = (stream.normal(size=(4000, 20)) + 1000).astype(np.float32)
    labels = np.concatenate([np.arange(3), stream.integers(0, 3, 3997)])
    pool = training.Pool(
        torch.zeros(4000, 1, 1, 1, dtype=torch.uint8), torch.tensor(labels), torch.tensor(0.0), torch.tensor(1.0)
    )
    position = iter(torch.from_numpy(values).split(training.EVALUATION_BATCH))
    means = training.class_means(lambda images: next(position), pool, torch.arange(4000), torch.tensor([2, 0]))
    expected = [values[labels == label].astype(np.float64).mean(axis=0) for label in (2, 0)]
    np.testing.assert_allclose(means.numpy(), expected, rtol=1e-7)


def test_weighted_mean():
    tensors = [torch.tensor([1.0, 2.0]), torch.tensor([5.0, -2.0])]
    assert training.weighted_mean(tensors, [1, 3]).tolist() == [4.0, -1.0]
    one = torch.rand(50)
    assert torch.equal(training.weighted_mean([one], [7]), one)  # to the bit, whatever its weight


def test_means_of_whole_numbers_are_whole():
    counts = [torch.tensor(3), torch.tensor(8), torch.tensor(4)]
    for found in (training.mean(counts), training.weighted_mean(counts, [5, 1, 1])):
        assert found == 8 and found.dtype == torch.int64
    assert training.mean([torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])]).tolist() == [1.5, 3.0]


def test_the_proximal_term_is_half_the_weighted_squared_distance():
    """w = (1, 2), b = 0 and a reference of zeros: 0.3 / 2 * (1 + 4)."""
    model, reference = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    model.load_state_dict({"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.zeros(1)})
    reference.load_state_dict({"weight": torch.zeros(1, 2), "bias": torch.zeros(1)})
    images, labels = torch.ones(3, 2), torch.zeros(3, dtype=torch.long)  # one class: no cross-entropy
    loss = training.proximal_cross_entropy(model, images, labels, reference, 0.3)
    assert loss.item() == pytest.approx(0.75)


def test_no_gradient_reaches_the_teacher():
    teacher, logits = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    training.kl_divergence(teacher, logits).backward()
    assert teacher.grad is None and logits.grad is not None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_not_finite_is_found(bad):
    device = torch.device("cpu")
    assert training.all_finite({"a": torch.ones(3), "b": [torch.tensor(1.0), torch.ones(0), torch.tensor(7)]}, device)
    assert not training.all_finite({"a": torch.ones(3), "b": [torch.tensor(bad)]}, device)
    assert not training.all_finite((torch.ones(3), torch.tensor([1.0, bad])), device)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_training_keeps_its_memory():
    """A tensor of 64 MiB, made and freed in turns, is fetched from the system a few times, 16 384 pages each, not all ten times."""
    import resource

    with training.one_thread():
        pass
    torch.ones(2**24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(2**24)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 6 * 2**14
