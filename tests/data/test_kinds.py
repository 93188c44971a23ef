"""Data of every kind: what is read off arrays, kept to the bit, normalised, and refused in one line."""

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib import Dataset, Federation, FedlibError, data
from fedlib.__main__ import main
from fedlib.protocol import Protocol
from fedlib.sample import Sample

STREAM = np.random.default_rng(0)
LABELS = np.arange(12) % 3
FLOATS = STREAM.normal(5, 2, (12, 7))
SERIES = STREAM.normal(0, 1, (12, 2, 5)).astype(np.float32)
IDS = STREAM.integers(0, 50_000, (12, 6))


def own(samples: np.ndarray, **more) -> Dataset:
    return Dataset.from_arrays("own", samples[:9], LABELS[:9], samples[9:], LABELS[9:], 3, **more)


@pytest.mark.parametrize(
    ("samples", "given", "sample"),
    [
        (FLOATS, {}, Sample("vector", (7,), "float32")),
        (FLOATS.astype(np.uint8), {}, Sample("vector", (7,), "uint8")),
        (SERIES, {}, Sample("series", (2, 5), "float32")),
        (SERIES.astype(np.uint8), {"kind": "series"}, Sample("series", (2, 5), "uint8")),
        (IDS, {"vocabulary": 60_000}, Sample("tokens", (6,), "int64", 60_000)),
        (IDS.astype(np.uint8), {"kind": "tokens", "vocabulary": 256}, Sample("tokens", (6,), "int64", 256)),
        (STREAM.random((12, 3, 28, 20)), {}, Sample("image", (3, 28, 20), "float32")),
        (np.zeros((12, 1, 64, 64), np.uint8), {}, Sample("image", (1, 64, 64))),
        (np.zeros((12, 8, 8, 3), np.uint8), {"kind": "image"}, Sample("image", (8, 8, 3))),  # said, and so taken
        (STREAM.random((12, 9, 4)), {"kind": "series"}, Sample("series", (9, 4), "float32")),
    ],
)
def test_the_kind_is_read_off_axes_and_numbers_or_said(samples, given, sample):
    made = own(samples, **given)
    assert made.sample == made.info.sample == sample
    assert made.info.channels == sample.shape[0] and made.info.size == sample.shape[1:]
    np.testing.assert_array_equal(made.images.numpy(), samples.astype(sample.dtype))


def test_pandas_frames_and_series_are_taken_by_place_and_arrays_in_any_order_of_memory():
    frame, labels = pd.DataFrame(FLOATS, index=range(12)[::-1]), pd.Series(LABELS, index=range(12)[::-1])
    made = Dataset.from_arrays("own", frame[:9], labels[:9], frame[9:], labels[9:])
    assert np.array_equal(made.images.numpy(), FLOATS.astype(np.float32)) and np.array_equal(
        made.labels.numpy(), LABELS
    )
    assert np.array_equal(own(SERIES[..., ::-1]).images.numpy(), SERIES[..., ::-1])


def test_the_largest_id_gives_the_vocabulary():
    assert own(IDS).vocabulary == IDS.max() + 1


def test_floats_are_normalised_per_channel_and_a_constant_one_is_left():
    constant = FLOATS.copy()
    constant[:, 2] = 1 / 3
    for samples, axes in ((constant, 0), (SERIES, (0, 2))):
        made = own(samples)
        train = samples[:9].astype(np.float32).astype(np.float64)
        std = train.std(axis=axes)
        np.testing.assert_allclose(made.mean, train.mean(axis=axes), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(made.std, np.where(std < 1e-12, 1, std), rtol=1e-5)
        federation = Federation(made, [np.arange(12)], ("MLP",))
        batch = federation.pool.batch(torch.arange(12)).numpy()
        shape = (1, -1, *[1] * (samples.ndim - 2))
        expected = (samples - np.reshape(made.mean, shape)) / np.reshape(made.std, shape)
        np.testing.assert_allclose(batch, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_token_ids_are_never_cast(precision):
    federation = Federation(own(IDS), [np.arange(6), np.arange(6, 12)], ("fastText",), precision=precision)
    assert torch.equal(federation.pool.batch(torch.arange(12)), torch.from_numpy(IDS))
    held = federation.clients[1]
    assert torch.equal(held.pool.batch(held.train), torch.from_numpy(IDS)[held.train])
    assert held.pool.batch(held.train).dtype == torch.int64


def test_a_client_sees_its_own_samples_of_any_kind_and_zeros_elsewhere():
    for samples, network in ((FLOATS, "MLP"), (SERIES, "CNN-1D"), (IDS, "fastText")):
        federation = Federation(own(samples), [np.arange(6), np.arange(6, 12)], (network,))
        first, second = federation.clients
        seen = first.pool.images
        assert torch.equal(seen[:6], federation.pool.images[:6]) and not seen[6:].any()
        with pytest.raises(IndexError):
            first.pool.batch(second.train)


@pytest.mark.parametrize(
    ("samples", "given", "message"),
    [
        (SERIES.astype(np.uint8), {}, "own: train images' shape = (9, 2, 5): must be (n, channels, height, width) of"),
        (SERIES.astype(np.int64), {}, "own: train images' shape = (9, 2, 5)"),
        (FLOATS, {"kind": "tokens"}, "own: train images' dtype = 'torch.float32': must be torch.int64, of token ids"),
        (IDS, {"kind": "vector"}, "own: train images' dtype = 'torch.int64': must be torch.uint8 or torch.float32"),
        (FLOATS, {"kind": "image"}, "own: train images' shape = (9, 7): must be (n, channels, height, width)"),
        (FLOATS, {"kind": "sound"}, "own: kind = 'sound' is unknown"),
        (FLOATS * np.nan, {}, "own: train images = 'NaN or infinity': must be finite"),
        (FLOATS * 1e300, {}, "own: train images = 'NaN or infinity': must be finite as float32"),
        (FLOATS + 0j, {}, "own: train images' dtype = 'torch.complex128'"),
        (FLOATS > 5, {"kind": "vector"}, "own: train images' dtype = 'torch.bool'"),
        (FLOATS, {"augment": True}, "own: augment = True: must be False of vectors"),
        (FLOATS, {"vocabulary": 5}, "own: vocabulary = 5: must be 0 but of token ids"),
        (IDS, {"vocabulary": 10}, "own: token ids = ["),
        (-IDS - 1, {}, "own: "),
        (FLOATS, {"mean": [0.0]}, "own: mean = [0.0]: must be 7 numbers"),
        (FLOATS, {"groups": LABELS}, "own: groups = 'ndarray': must be a pair of arrays"),
        (FLOATS, {"groups": (LABELS[:9], LABELS[:2])}, "own: test groups' shape = (2,): must be (3,)"),
    ],
)
def test_what_does_not_fit_is_one_line(samples, given, message):
    with pytest.raises(FedlibError) as error:
        own(samples, **given)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_groups_are_numbered_in_the_order_of_their_names_and_change_the_fingerprint():
    names = np.array(["zoe", "ann", "ben"])[LABELS]
    made = own(FLOATS, groups=(names[:9], names[9:]))
    assert np.array_equal(made.groups.numpy(), np.array([2, 0, 1])[LABELS]) and made.info.groups == 3
    assert (
        len({own(FLOATS).fingerprint, made.fingerprint, own(FLOATS, groups=(LABELS[:9], LABELS[9:])).fingerprint}) == 3
    )


def test_public_data_are_like_the_clients():
    federation = (own(FLOATS), [np.arange(6), np.arange(6, 12)], ("MLP",))
    public = {"public": np.arange(4), "public_dataset": own(FLOATS + 1)}
    shared = Federation(*federation, **public).public
    assert torch.equal(shared.pool.images, torch.from_numpy(FLOATS + 1).float())
    with pytest.raises(FedlibError, match=r"public_dataset = 'own, series \(2, 5\)': must be of samples like the cl"):
        Federation(*federation, public=np.arange(4), public_dataset=own(SERIES))
    with pytest.raises(FedlibError, match="vocabulary of public_dataset = 60000: must be 50"):
        texts = own(IDS % 50, vocabulary=50), federation[1], ("fastText",)
        Federation(*texts, public=np.arange(4), public_dataset=own(IDS, vocabulary=60_000))


@pytest.mark.parametrize("normalise", ["half", "imagenet"])
def test_statistics_of_pictures_are_for_pictures(normalise):
    with pytest.raises(FedlibError, match=f"normalise = '{normalise}': must be 'dataset': own has vectors"):
        Federation(own(FLOATS), [np.arange(12)], ("MLP",), protocol=Protocol(normalise=normalise))


def test_a_grey_picture_beside_coloured_ones_of_another_size_and_of_floats():
    coloured, grey = (own(STREAM.random((12, channels, 28, 28))) for channels in (3, 1))
    made = Federation(coloured, [np.arange(12)], ("CNN-5",), public=np.arange(4), public_dataset=grey).public
    assert torch.equal(made.pool.images, grey.images.expand(-1, 3, -1, -1))
    turned = own(STREAM.random((12, 1, 28, 20)))
    with pytest.raises(FedlibError, match="public_dataset = 'own, images"):
        Federation(coloured, [np.arange(12)], ("CNN-5",), public=np.arange(4), public_dataset=turned)


def test_the_command_says_what_a_sample_is(capsys):
    data.register("own", lambda: own(IDS, vocabulary=60_000, groups=(LABELS[:9], LABELS[9:])))
    main(["data", "own"])
    printed = capsys.readouterr().out
    assert "own: 9 training and 3 test samples: token ids (6,), 60000 different, 3 classes, 3 groups" in printed
