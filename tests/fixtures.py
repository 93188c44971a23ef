"""What every test shares, here and in packages/: a store of its own, a seed, the tiny architectures, one intra-op thread."""

import math
import shutil
import signal

import pytest
import torch
from tiny import ARCHITECTURES

from fedlib import algorithms, data, metrics, models, partition, simulation

torch.set_num_threads(1)
# A shell's job in the background ignores Ctrl-C and one under `nohup` a hang-up, and so would what tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Of what is tried with every method, `make test` tries these, and `make slow` the others.
QUICK = ("Standalone", "FedProto", "FedSSA", "FedGH")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A test marked `thorough` is slow, unless it is nightly, but for those of its parameters that the mark names: without any the
    methods of QUICK, with None none. others: "nightly" in place of "slow".
    """
    for item in items:
        mark = item.get_closest_marker("thorough")
        parameters = item.callspec.params.values() if mark and hasattr(item, "callspec") else []
        quick = any(value in (mark.args or QUICK) for value in parameters if isinstance(value, str)) if mark else True
        if not quick and not item.get_closest_marker("nightly"):
            item.add_marker(mark.kwargs.get("others", "slow"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """FEDLIB_HOME of this test, empty: the repository's runs/ and figures/ are never touched."""
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def seeded():
    """What a test draws without a stream of its own is the same each time."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def visits_made_here(monkeypatch):
    """What a test counts or changes happens in its own process, however slow the machine is."""
    monkeypatch.setattr(simulation, "WORTH_COPIES", math.inf)


@pytest.fixture(autouse=True)
def registries():
    """What a test registers is forgotten after it."""
    every = (
        *(algorithms.ALGORITHMS, data.REGISTERED, metrics.METRICS),
        *(models.BUILDERS, models.SCENARIOS, partition.REGISTERED),
    )
    before = [(registry, dict(registry)) for registry in every]
    known = dict(data.REGISTERED)
    yield
    if known != data.REGISTERED:  # the next test has another data set of that name, or none
        data.load.cache_clear()
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


@pytest.fixture(autouse=True)
def tiny_architectures(registries, monkeypatch):
    """Makes `tiny`, `tiny-a` and `tiny-b` known for the length of a test."""
    for name, builder in ARCHITECTURES.items():
        monkeypatch.setitem(models.BUILDERS, name, builder)


@pytest.fixture(scope="module")
def browser():
    """Chromium, driven by playwright, or a reason to skip."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def small_digits(monkeypatch):
    """`digits` cut to 150 images, so that real networks train on it in a moment."""
    yield cut_digits(monkeypatch)
    data.load.cache_clear()


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """Calls a function once, on the cut digits and in a store of its own: a module's tests share what it trains."""

    def trained(train):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDLIB_HOME", str(tmp_path_factory.mktemp("trained")))
            cut_digits(patch)
            found = train()
        data.load.cache_clear()
        return found

    return trained


def cut_digits(monkeypatch):
    whole = data.load("digits")
    images, labels = whole.images.numpy(), whole.labels.numpy()
    small = data.Dataset.from_arrays("digits", images[:125], labels[:125], images[-25:], labels[-25:], 10, augment=True)
    data.load.cache_clear()
    monkeypatch.setitem(data.REGISTERED, "digits", lambda: small)
    return small
