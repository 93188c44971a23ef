"""Runs in threads of one process: each has the bits of the run alone, and nothing waits for ever."""

import asyncio
import contextlib
import signal
import threading

import processes
import pytest
import tiny
import torch
from torch import nn

from fedlib import Model, RunSpec, lab, models, randomness, run, simulate, training
from fedlib.lab import own


def dropping(num_classes: int, channels: int) -> Model:
    """Its dropout draws from torch's global generator, and it trains long enough that threads take turns in it."""
    extractor = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64 * channels, 8), nn.Dropout(0.5))
    return Model(extractor, nn.Linear(8, num_classes))


SPECS = [
    RunSpec(algorithm=name, scenario="tiny", num_clients=5, participation=0.6, rounds=2, batch_size=8)
    for name in ("FedSSA", "FedProto", "FedKD", "FedAvg")
]


@pytest.fixture(autouse=True)
def tiny_scenario(monkeypatch, small_digits):
    monkeypatch.setitem(models.BUILDERS, "tiny-dropout", dropping)
    monkeypatch.setitem(models.SCENARIOS, "tiny", ("tiny-dropout",))


@contextlib.contextmanager
def changed(change, value, usual):
    change(value)
    try:
        yield
    finally:
        change(usual)


def use_onednn(used):
    torch.backends.mkldnn.enabled = used


def use_tf32(precision):
    torch.backends.fp32_precision = precision


def products():
    """How products of float32 are rounded: of each kind, and of all where there is such a number."""
    with contextlib.suppress(RuntimeError):
        return torch.get_float32_matmul_precision(), *(kind.fp32_precision for kind in training.PRODUCTS)
    return tuple(kind.fp32_precision for kind in training.PRODUCTS)


@contextlib.contextmanager
def coarse_kind():
    """After which torch has no precision of all products to tell."""
    before = torch.backends.cuda.matmul.fp32_precision
    with changed(lambda value: setattr(torch.backends.cuda.matmul, "fp32_precision", value), "tf32", before):
        yield


CALLERS = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast that is switched off": lambda: torch.autocast("cpu", enabled=False),
    "coarse products": lambda: changed(torch.set_float32_matmul_precision, "medium", "highest"),
    "coarse convolutions": lambda: changed(use_tf32, "tf32", "none"),
    "coarse products of a kind": coarse_kind,
    "no oneDNN": lambda: changed(use_onednn, False, True),
    "another device": lambda: torch.device("meta"),
    "doubles": lambda: changed(torch.set_default_dtype, torch.float64, torch.float32),
    "two threads": lambda: changed(torch.set_num_threads, 2, torch.get_num_threads()),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.mark.parametrize("caller", CALLERS)
def test_what_the_caller_has_set_changes_no_bit_and_stays_set(caller):
    data = tiny.dataset()
    runs = [lab.resolve(RunSpec("FedSSA", num_clients=4, rounds=1, precision=name)) for name in ("fp32", "bf16")]

    def digests():
        tiny_one = tiny.federation(data, [range(12), range(12, 24)], ("tiny-dropout",), batch_size=4)
        federations = *((lab.federation_of(run), 1) for run in runs), (tiny_one, 2)
        return [simulate(one, runs[0].simulated, rounds).digest() for one, rounds in federations]

    def settings():
        kept = torch.is_autocast_enabled("cpu"), products(), torch.get_default_device()
        kept += torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
        return *kept, torch.is_inference_mode_enabled(), torch.backends.mkldnn.enabled

    plain = digests()
    with CALLERS[caller]():
        before = settings()
        with training.one_thread():
            assert {kind.fp32_precision for kind in training.PRODUCTS} == {"ieee"}
            assert torch.get_float32_matmul_precision() == "highest"
            assert (torch.get_num_threads(), torch.get_default_dtype()) == (1, torch.float32)
        assert digests() == plain
        assert settings() == before


@pytest.mark.thorough
def test_four_threads_beside_the_main_thread(tmp_path, monkeypatch):
    """As in a notebook: runs by `asyncio.to_thread`, and networks built in the main thread meanwhile."""
    with monkeypatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(tmp_path / "alone"))
        expected = [run(spec, progress=False).digest for spec in SPECS]
    assert len(set(expected)) == len(SPECS) == 4
    own._SOURCES.clear()  # so that the threads read sources, too

    async def all_of_them() -> list[lab.Record]:
        waiting = asyncio.gather(*(asyncio.to_thread(run, spec, progress=False) for spec in SPECS))
        while not waiting.done():
            models.build("tiny-dropout", 10, 3, randomness.generator(0, "init"))
            await asyncio.sleep(0)
        return await waiting

    assert [record.digest for record in asyncio.run(all_of_them())] == expected


@pytest.mark.thorough
def test_an_interrupt_while_another_thread_waits(home):
    """The main thread finishes its round and saves; the waiting thread gets its turn; the process ends."""
    specs = [
        RunSpec(algorithm="Standalone", num_clients=20, participation=0.05, rounds=rounds, seed=rounds)
        for rounds in (4, 1)
    ]
    source = """
import signal, threading
second = threading.Thread(target=lambda: print("second", run(specs[1], progress=False).status))
def after_round(spec, row):
    if threading.current_thread() is threading.main_thread() and not second.is_alive():
        second.start()
        while not second.waits:
            pass
        signal.raise_signal(signal.SIGINT)
second.waits, usable = False, launch.usable
def noted(*given, **named):
    second.waits = second.waits or threading.current_thread() is second
    return usable(*given, **named)
launch.usable = noted
try:
    run(specs[0], progress=False, log=after_round)
except KeyboardInterrupt as stopped:
    print(stopped)
second.join()
import os
sys.stdout.flush()
os._exit(0)  # the C++ runtime under PyTorch may abort while it takes down the threads of a process that was interrupted
"""
    with processes.started(*processes.code("import sys" + source, specs), home=home) as process:
        output, _ = process.communicate(timeout=processes.SECONDS)
    assert process.returncode == 0, output
    assert "stopped after round 1 of 4; the same command resumes from there" in output
    assert "second finished" in output


def test_a_main_thread_that_waits_for_another_stops_at_once():
    """The first Ctrl-C ends its waiting, whatever the other thread does."""
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        with randomness.exclusive:
            taken.set()
            release.wait(processes.SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(processes.SECONDS)
    interrupter = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(SPECS[0], progress=False)
        assert holder.is_alive()
    finally:
        release.set()
        holder.join()


def test_while_one_thread_trains_no_other_does():
    inside, order = threading.Event(), []

    def other() -> None:
        inside.wait(60)
        assert not randomness.exclusive.acquire(blocking=False)
        with training.one_thread():
            order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    with training.one_thread():
        inside.set()
        thread.join(0.5)
        order.append("first")
    thread.join(60)
    assert order == ["first", "other"]
