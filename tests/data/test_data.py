import dataclasses
import gzip
import hashlib
import pickle
from urllib.error import URLError

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fedlib import Dataset, FedlibError, RunSpec, data, lab
from fedlib.lab import costs, of_record
from fedlib.papers import exhibits

REAL = ("cifar10", "cifar100", "mnist", "svhn")
NUM_TRAIN = {"cifar10": 4 + 5 + 6 + 7 + 8, "cifar100": 4, "mnist": 7, "svhn": 12}  # of what `write_files` writes


@pytest.fixture
def offline(monkeypatch):
    """Every download fails at once, as without a network."""

    def unreachable(*args, **kwargs):
        raise URLError("Temporary failure in name resolution")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def some_images(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def write(folder, name: str, content: bytes) -> str:
    """Write a file and return its md5."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return md5(content)


def write_cifar(name: str, root, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    """Small files in CIFAR's format, with torchvision's list of md5s made to fit; images (train then test), labels."""
    from torchvision.datasets import CIFAR10, CIFAR100

    reader, key = (CIFAR10, "labels") if name == "cifar10" else (CIFAR100, "fine_labels")
    classes = 10 if name == "cifar10" else 100
    folder, all_images, all_labels, stream = root / reader.base_folder, [], [], np.random.default_rng(0)
    lists = {}
    for attribute in ("train_list", "test_list"):
        lists[attribute] = []
        for file, _ in getattr(reader, attribute):
            images, labels = some_images(4 + len(all_images), 3072), stream.integers(0, classes, 4 + len(all_images))
            content = pickle.dumps({"data": images, key: labels.tolist()})
            lists[attribute].append([file, write(folder, file, content)])
            all_images.append(images.reshape(-1, 3, 32, 32))
            all_labels.append(labels)
        monkeypatch.setattr(reader, attribute, lists[attribute])
    meta = {reader.meta["key"]: [str(i) for i in range(classes)]}
    sum_of_meta = write(folder, reader.meta["filename"], pickle.dumps(meta))
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": sum_of_meta})
    return np.concatenate(all_images), np.concatenate(all_labels)


def write_mnist(root) -> tuple[np.ndarray, np.ndarray]:
    """Small files in MNIST's format (idx: magic number, sizes, bytes)."""
    parts = []
    for part, count in (("train", 7), ("t10k", 3)):
        images, labels = some_images(count, 28, 28), np.arange(count, dtype=np.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
            file = f"{part}-{kind}-ubyte"
            write(root / "MNIST" / "raw", file, header + values.tobytes())
        parts.append((images, labels))
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def write_svhn(root, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    """Small .mat files in SVHN's format: X (32, 32, 3, n), y (n, 1) in 1..10, where 10 is the digit 0."""
    from torchvision.datasets import SVHN

    folder, parts, splits = root / "svhn", [], {}
    for split, count in (("train", 12), ("test", 5)):
        images, labels = some_images(count, 3, 32, 32), np.arange(count) % 10
        folder.mkdir(parents=True, exist_ok=True)
        url, file, _ = SVHN.split_list[split]
        savemat(
            folder / file,
            {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)},
        )
        splits[split] = [url, file, md5((folder / file).read_bytes())]
        parts.append((images, labels))
    monkeypatch.setattr(SVHN, "split_list", splits)
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def write_files(name: str, root, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    """Small files in the format of `name`, and `data.BUILT_IN` made to describe them."""
    if name == "mnist":
        images, labels = write_mnist(root)
    else:
        images, labels = write_svhn(root, monkeypatch) if name == "svhn" else write_cifar(name, root, monkeypatch)
    count = NUM_TRAIN[name]
    pixels = np.pad(images[:, None], [(0, 0), (0, 0), (2, 2), (2, 2)]) if name == "mnist" else images
    known = data.BUILT_IN[name]
    arrays = (pixels[:count], labels[:count], pixels[count:], labels[count:], known.num_classes)
    small = Dataset.from_arrays(name, *arrays, mean=known.mean, std=known.std, augment=known.augment).info
    monkeypatch.setitem(data.BUILT_IN, name, small)
    return images, labels


# ------------------------------------------------------------------------------------------- the embedded ones


def test_digits_are_scikit_learns_enlarged():
    from sklearn.datasets import load_digits

    eights = {image.astype(np.uint8).tobytes() for image in load_digits().images}
    first = data.load("digits").images[::100]
    assert (first == first[:, :1]).all()  # three equal channels
    small = first[:, 0, ::4, ::4].numpy()
    assert np.array_equal(np.kron(small, np.ones((4, 4), np.uint8)), first[:, 0])
    for image in small:  # 0..16 became 0..255
        assert np.round(image / 255 * 16).astype(np.uint8).tobytes() in eights


def test_digits100_is_pairs_from_their_own_part():
    pairs, digits = data.load("digits100"), data.load("digits")
    assert pairs.images.shape == (2500, 3, 32, 32) and pairs.num_classes == 100 and pairs.info.embedded
    assert pairs.num_train == 2000
    assert (np.bincount(pairs.labels[:2000]) == 20).all() and (np.bincount(pairs.labels[2000:]) == 5).all()
    # each half, 8x8, is a digit of its class and from the same side of the digits' split
    halves = {
        (side, label): {
            image[0, ::4, ::4].numpy().tobytes() for image in digits.images[part][digits.labels[part] == label]
        }
        for side, part in (("train", slice(0, 1498)), ("test", slice(1498, None)))
        for label in range(10)
    }
    for i in range(0, 2500, 7):
        side = "train" if i < 2000 else "test"
        image, label = pairs.images[i, 0], int(pairs.labels[i])
        left, right = image[::4, :16:2], image[::4, 16::2]
        assert left.numpy().tobytes() in halves[side, label // 10]
        assert right.numpy().tobytes() in halves[side, label % 10]
    train, test = ({image.tobytes() for image in part} for part in np.split(digits.images.numpy(), [1498]))
    assert len(train & test) <= 2  # scikit-learn's digits hold a few equal images; nothing else is on both sides


@pytest.mark.thorough(None)
def test_changed_digits_are_the_digits_in_another_domain():
    digits, (inverted, noisy, rotated) = data.load("digits"), map(data.load, data.EMBEDDED[2:])
    for other in (inverted, noisy, rotated):
        assert torch.equal(other.labels, digits.labels) and other.num_train == digits.num_train and other.info.embedded
        assert (other.images == other.images[:, :1]).all() and other.images.shape == digits.images.shape
    assert torch.equal(inverted.images, 255 - digits.images)
    assert torch.equal(rotated.images, digits.images.rot90(dims=(2, 3)))
    assert inverted.mean[0] == pytest.approx(1 - digits.mean[0], abs=1e-4)
    noise = noisy.images.double() - digits.images.double()
    grey = (digits.images > 100) & (digits.images < 155)  # where little is clipped
    assert noise[grey].std() == pytest.approx(62, abs=4) and abs(noise[grey].mean()) < 2


def test_fingerprint_sees_pixels_labels_and_the_split():
    images, labels = some_images(8, 1, 32, 32), np.arange(8) % 2
    base = Dataset.from_arrays("own", images[:6], labels[:6], images[6:], labels[6:])
    pixel = images.copy()
    pixel[0, 0, 0, 0] ^= 1
    relabelled = labels.copy()
    relabelled[0] ^= 1
    others = [
        Dataset.from_arrays("own", pixel[:6], labels[:6], images[6:], labels[6:]),
        Dataset.from_arrays("own", images[:6], relabelled[:6], images[6:], labels[6:]),
        Dataset.from_arrays("own", images[:5], labels[:5], images[5:], labels[5:]),
        Dataset.from_arrays("own", images[:6], labels[:6], images[6:], labels[6:], num_classes=3),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert Dataset.from_arrays("named", images[:6], labels[:6], images[6:], labels[6:]).fingerprint == base.fingerprint


# ------------------------------------------------------------------------------------------------- one's own


def test_own_images_are_augmented_only_if_they_say_so():
    """What the papers train on says so; that it may be says nothing of what the images are."""
    flipped = {name for name, info in data.BUILT_IN.items() if info.augment}
    assert flipped == {*(name for name, info in data.BUILT_IN.items() if info.kind == "image")} - {"femnist"}
    images, labels = some_images(6, 1, 32, 32), np.arange(6) % 2
    plain, flipped = (Dataset.from_arrays("own", images, labels, images, labels, augment=say) for say in (False, True))
    assert not Dataset.from_arrays("own", images, labels, images, labels).augment
    assert [own.info.augment for own in (plain, flipped)] == [own.augment for own in (plain, flipped)] == [False, True]
    assert plain.fingerprint == flipped.fingerprint
    with pytest.raises(FedlibError, match="own: augment = 'often': must be true or false"):
        Dataset.from_arrays("own", images, labels, images, labels, augment="often")


def test_statistics_of_own_data_are_those_of_its_training_images():
    images, labels = some_images(9, 2, 32, 32), np.arange(9) % 3
    own = Dataset.from_arrays("own", images[:6], labels[:6], images[6:], labels[6:])
    train = images[:6].astype(np.float64) / 255
    np.testing.assert_allclose(own.mean, train.mean(axis=(0, 2, 3)), atol=5.1e-5)
    np.testing.assert_allclose(own.std, train.std(axis=(0, 2, 3)), atol=1e-4)
    assert own.num_classes == 3 and not own.info.embedded
    assert own.images.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(own.images.numpy(), images) and np.array_equal(own.labels.numpy(), labels)


GOOD = some_images(4, 1, 32, 32)


def test_registered_data_loads_by_name():
    own = Dataset.from_arrays("own", GOOD, [0, 1, 0, 1], GOOD, [0, 1, 0, 1])
    data.register("own", lambda: own)
    assert data.load("own") is own and "own" in data.names() and data.registered() == {"own"}


# ------------------------------------------------------------------------------------- real formats, real readers


@pytest.mark.parametrize("name", REAL)
def test_reads_the_format(name, root, monkeypatch):
    images, labels = write_files(name, root, monkeypatch)
    loaded = data.load(name)
    if name == "mnist":
        assert loaded.images.shape == (10, 1, 32, 32)
        assert np.array_equal(loaded.images[:, 0, 2:-2, 2:-2], images)
        assert loaded.images.sum() == images.sum()  # a border of zeros around 28x28
    else:
        assert np.array_equal(loaded.images, images)
    assert np.array_equal(loaded.labels, labels)
    assert loaded.num_classes == (100 if name == "cifar100" else 10)
    assert loaded.num_train == NUM_TRAIN[name]
    assert not loaded.info.embedded and loaded.info == data.info(name)
    assert data.available(name)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_corrupted_file_is_one_clear_line(name, damage, root, monkeypatch):
    write_files(name, root, monkeypatch)
    file = sorted(path for path in root.rglob("*") if path.is_file() and "meta" not in path.name)[-1]
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[-1] ^= 255
        file.write_bytes(content)
    elif damage == "truncated":
        file.write_bytes(content[:-10])
    else:
        file.unlink()
    with pytest.raises(FedlibError, match=r"incomplete or corrupted .*delete that folder") as caught:
        data.load(name)
    assert str(root) in str(caught.value) and f"python -m fedlib data {name}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", REAL)
def test_missing_data_without_network_says_how_to_get_it(name, root, offline):
    assert not data.available(name)
    for _ in range(2):  # the failed attempt leaves nothing that looks like a data set
        with pytest.raises(FedlibError, match=f"dataset = '{name}': not found in .* not downloaded") as caught:
            data.load(name)
        message = str(caught.value)
        assert f"python -m fedlib data {name}" in message and "FEDLIB_DATA" in message and "\n" not in message
        assert "name resolution" in message
        assert not data.available(name)


def test_downloads_what_is_missing(root, monkeypatch):
    """MNIST as torchvision fetches it: gzipped files, checked and unpacked."""
    from torchvision.datasets import MNIST

    images, _ = write_files("mnist", root / "elsewhere", monkeypatch)
    compressed = {p.name: gzip.compress(p.read_bytes()) for p in (root / "elsewhere").rglob("*-ubyte")}
    monkeypatch.setattr(MNIST, "resources", [(f"{n}.gz", md5(compressed[n])) for n in sorted(compressed)])

    def fetch(url, filename, *args, **kwargs):
        with open(filename, "wb") as file:
            file.write(compressed[url.rsplit("/", 1)[1].removesuffix(".gz")])

    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, **kwargs: url)
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", fetch)
    loaded = data.load("mnist")
    assert np.array_equal(loaded.images[:, 0, 2:-2, 2:-2], images) and data.available("mnist")


# ------------------------------------------------------------------------------------------ known without images


@pytest.fixture
def no_images(monkeypatch):
    """Whatever would read or fetch a real data set fails."""
    import torchvision.datasets as readers

    def read(*args, **kwargs):
        raise AssertionError("a real data set was asked for")

    for reader in (readers.CIFAR10, readers.MNIST, readers.SVHN):
        monkeypatch.setattr(reader, "__init__", read)
    monkeypatch.setattr("urllib.request.urlopen", read)


@pytest.mark.parametrize("name", data.EMBEDDED)
def test_what_is_known_beforehand_of_embedded_data_is_true(name):
    assert data.load(name).info == data.info(name) == data.BUILT_IN[name] and data.info(name).embedded


def test_svhn_is_identified_by_the_published_md5s_of_its_files():
    from torchvision.datasets import SVHN

    sums = " ".join(SVHN.split_list[split][2] for split in ("train", "test"))
    assert data.info("svhn").fingerprint == hashlib.sha256(sums.encode()).hexdigest()[:16]


@pytest.mark.thorough
def test_every_exhibit_is_planned_at_every_scale_without_data(no_images, root):
    planned = {
        lab.resolve(cell.spec, scale).info.name
        for scale in lab.SCALES
        for exhibit in exhibits.every().values()
        for cell in exhibits.cells(exhibit.grids, scale)
    }
    assert planned >= {"digits", *REAL} and not root.exists()


def test_smoke_runs_are_of_embedded_data_alone():
    """So nothing at scale smoke can start a download."""
    cells = [cell for exhibit in exhibits.every().values() for cell in exhibits.cells(exhibit.grids, "smoke")]
    assert {name for cell in cells for name in (cell.spec.dataset, cell.spec.public_dataset)} <= {None, *data.EMBEDDED}


def test_flops_of_results_of_record_need_no_data_and_of_others_say_so(no_images):
    record = of_record.read_results()[0]
    assert costs.of_run(record)[-1] > 0
    with pytest.raises(FedlibError, match=rf"^run = '{record.key}': must be where {record.spec.dataset} is at hand"):
        costs.of_run(dataclasses.replace(record, of_record=False))


def test_the_time_of_a_plan_needs_no_data(no_images):
    spec = RunSpec("Standalone", dataset="svhn", rounds=1, batch_size=2, num_clients=5000, scenario="homogeneous")
    assert lab.expected_seconds([lab.resolve(spec)])[0] > 0


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_whole_files_of_other_images_are_not_taken_for_the_published_ones(name, root, monkeypatch):
    """What readers check by MD5 need not be what they read: a cached copy, a patched list."""
    genuine = data.BUILT_IN[name]
    write_files(name, root, monkeypatch)
    monkeypatch.setitem(data.BUILT_IN, name, dataclasses.replace(data.BUILT_IN[name], fingerprint=genuine.fingerprint))
    with pytest.raises(FedlibError, match=f"corrupted .*{name}: fingerprint is .*, that of the published data is"):
        data.load(name)


def test_own_data_under_a_built_in_name_have_their_own_key():
    spec = RunSpec("Standalone", num_clients=2)
    before = lab.resolve(spec)
    assert before.portable
    arrays = (some_images(20, 3, 32, 32), np.arange(20) % 2, some_images(10, 3, 32, 32), np.arange(10) % 2)
    data.register("digits", lambda: Dataset.from_arrays("mine", *arrays))
    after = lab.resolve(spec)
    assert after.key != before.key and not after.portable
    assert after.info.num_train == after.data.num_train == 20 and data.names().count("digits") == 1
