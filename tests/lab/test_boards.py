"""Rounds for TensorBoard: each is written while the run trains, a stored run's from its record."""

import sys

import pytest

from fedlib import lab
from fedlib.__main__ import main

COMMAND = ["run", "Standalone", "--num-clients", "4", "--rounds", "2", "--log", "tensorboard"]


def test_without_tensorboard_one_line_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(COMMAND) == 2
    assert capsys.readouterr().err == (
        "fedlib: log = 'tensorboard': tensorboard is not installed; `pip install 'fedlib[tensorboard]'` installs it\n"
    )
    assert not lab.store().exists()


def test_the_rounds_are_written_and_can_be_read(small_digits, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for written in range(2):  # the second time from the stored record
        assert main(COMMAND) == 0
        assert f"tensorboard --logdir {lab.home() / 'tensorboard'}" in capsys.readouterr().out
        (run,) = lab.stored()
        record, folder = lab.read(run), lab.home() / "tensorboard" / run.name
        found = EventAccumulator(str(folder))
        found.Reload()
        assert {"accuracy", "loss", "upload_words"} <= set(found.Tags()["scalars"])
        for name in ("accuracy", "loss"):
            assert [(event.step, event.value) for event in found.Scalars(name)] == [
                (number, pytest.approx(value, rel=1e-6))
                for number, value in enumerate(record.rounds.query("round >= 0")[name])
            ], written
