"""Every field of what is called from Python, given values of every type: it is taken, or refused in one line. Nothing is
trained.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from fedlib import (
    ALGORITHMS,
    Dataset,
    Federation,
    FedlibError,
    RunSpec,
    algorithms,
    data,
    lab,
    models,
    partition,
    run,
    simulation,
    sweep,
)  # fmt: skip
from fedlib.algorithms import make
from fedlib.lab import launch
from fedlib.papers import exhibits, notebook, reproduce
from fedlib.protocol import Protocol
from fedlib.show import intervals


class Odd:
    """Nothing can be asked of it."""

    def _no(self, *arguments: Any) -> Any:
        raise ZeroDivisionError("asked")

    __repr__ = __str__ = __eq__ = __len__ = __bool__ = __iter__ = __float__ = __int__ = _no  # type: ignore[assignment]
    __hash__ = object.__hash__


Colour = enum.Enum("Colour", "red")
VALUES: dict[str, Any] = {
    "None": None, "true": True, "false": False, "zero": 0, "minus one": -1, "half": 0.5, "NaN": float("nan"),
    "infinity": float("inf"), "10**400": 10**400, "-10**400": -(10**400), "10**5000": 10**5000, "2**63": 2**63,
    "empty": "", "blank": " ", "a word": "wrong", "many digits": "9" * 5000, "1e-400": "1e-400", "nan as text": "nan",
    "two lines": "a\nb", "zero byte": "a\0b", "half a pair": "\ud800", "up": "../../x", "number": "7", "minus": "-1",
    "bytes": b"digits", "list": [], "list of one": [1], "list of lists": [[1, 2], [3]], "tuple": (), "pair": (1, 2),
    "dictionary": {}, "of a": {"a": 1}, "of 1": {1: 2}, "of None": {None: None}, "set": {1}, "object": object(), "odd": Odd(),
    "function": len, "lambda": lambda *given: None, "class": int, "NumPy integer": np.int64(3), "NumPy float": np.float32(0.5),
    "NumPy text": np.str_("digits"), "array": np.array([1, 2]), "array of none": np.array([]), "texts": np.array(["a", "b"]),
    "matrix": np.eye(2), "objects": np.array([None, object()]), "NA": pd.NA, "NaT": pd.NaT, "frame": pd.DataFrame({"a": [1]}),
    "series": pd.Series([1, 2]), "tensor": torch.tensor(3), "vector": torch.zeros(2), "decimal": decimal.Decimal("0.5"),
    "fraction": fractions.Fraction(1, 3), "tiny fraction": fractions.Fraction(1, 10**400), "complex": 1j,
    "path": pathlib.Path("digits"), "range": range(3), "dots": ..., "not implemented": NotImplemented, "enum": Colour.red,
    "date": datetime.date(2026, 1, 1), "module": sys, "error": ValueError("x"),
}  # fmt: skip
DATA = tiny.dataset(num_classes=3, per_class=20)
HELD = [np.arange(20), np.arange(20, 40)]
ARRAYS = {
    "name": "x", "train_images": np.zeros((6, 1, 32, 32), np.uint8), "train_labels": np.arange(6) % 3,
    "test_images": np.ones((3, 1, 32, 32), np.uint8), "test_labels": np.arange(3), "num_classes": 3, "mean": (0.5,),
    "std": (0.5,), "augment": False,
}  # fmt: skip
SETTINGS = {
    "scale": "smoke", "dataset": "", "methods": "", "seeds": "", "rounds": 0, "protocol": "", "precision": "", "device": "cpu", "jobs": 1,
    "rule": "last",
}  # fmt: skip
FEDERATION = {
    "dataset": DATA, "partition": HELD, "architectures": ("tiny-a",), "protocol": None, "local_epochs": 1, "batch_size": 8,
    "seed": 0, "device": "cpu", "precision": "fp32", "public": None, "public_dataset": None, "public_labels": True,
}  # fmt: skip
DEALING = {"num_clients": 3, "num_classes": 3, "classes_per_client": 2, "alpha": 0.5}
SIMULATED = {"rounds": 1, "participation": 1.0, "federation": None, "algorithm": None}


def spec(**changed: Any) -> Any:
    return lab.resolve(RunSpec(**changed))


def checked(**given: Any) -> Any:
    built = {"federation": Federation(**FEDERATION), "algorithm": make("FedSSA")}
    return simulation.check(**built | {name: value for name, value in given.items() if value is not SAME},
                            exchange=simulation.in_process)  # fmt: skip


SAME = object()
STREAM = np.random.default_rng(0)
FRAME = pd.DataFrame({"round": [0, 1], "accuracy": [0.5, 0.6], "validation_accuracy": [0.4, 0.5]})


def called(function: Callable[..., Any], usual: dict[str, Any]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for name in usual:
        yield f"{function.__name__} {name}", lambda value, name=name: function(**usual | {name: value})


def fields() -> dict[str, Callable[[Any], Any]]:
    """What is asked, by a name."""
    found: dict[str, Callable[[Any], Any]] = {}
    for item in dataclasses.fields(RunSpec):
        found[f"RunSpec {item.name}"] = lambda value, name=item.name: spec(**{name: value})
    found["RunSpec scale"] = lambda value: lab.resolve(RunSpec(), value)
    found["resolve spec"] = lab.resolve
    for item in dataclasses.fields(Protocol):
        found[f"override {item.name}"] = lambda value, name=item.name: spec(overrides={name: value})
        found[f"Protocol {item.name}"] = lambda value, name=item.name: Protocol(**{name: value})
    found["override of any name"] = lambda value: spec(overrides={value: 1} if value.__hash__ else {})
    for method in ALGORITHMS:
        for item in dataclasses.fields(ALGORITHMS[method]):
            found[f"{method}({item.name})"] = lambda value, one=(method, item.name): ALGORITHMS[one[0]](
                **{one[1]: value}
            )
            found[f"{method} {item.name}"] = lambda value, one=(method, item.name): make(one[0], {one[1]: value})
    found |= dict(called(Federation, FEDERATION)) | dict(called(Dataset.from_arrays, ARRAYS))
    found |= dict(called(notebook.settings, SETTINGS))
    found |= {f"check {name}": lambda value, name=name: checked(**SIMULATED | dict.fromkeys(("federation", "algorithm"), SAME)
                                                                | {name: value}) for name in SIMULATED}  # fmt: skip
    for name in DEALING:
        shares = {key: value for key, value in DEALING.items() if key != "alpha"}
        if name in shares:
            found[f"class_shares {name}"] = lambda value, name=name, usual=shares: partition.class_shares(
                **usual | {name: value}, stream=STREAM
            )
    found |= {
        "run spec": run,
        "sweep specs": sweep,
        "sweep jobs": lambda value: sweep([], jobs=value),
        "sweep each": lambda value: sweep([], each=value),
        "make name": make,
        "make params": lambda value: make("FedSSA", value),
        "load name": data.load,
        "info name": data.info,
        "register data name": lambda value: data.register(value, lambda: DATA),
        "register data loader": lambda value: data.register("mine", value),
        "register partition name": lambda value: partition.register(value, lambda *given: []),
        "register partition dealer": lambda value: partition.register("mine", value),
        "register model name": lambda value: models.register(value, models.BUILDERS["tiny-a"]),
        "register model builder": lambda value: models.register("mine", value),
        "register method": algorithms.register,
        "build architecture": lambda value: models.build(value, 3, 1, np.random.default_rng(0)),
        "scenario": models.scenario,
        "feature_width": lambda value: models.feature_width(value, 3, 1),
        "iid clients": lambda value: partition.iid([DATA.labels.numpy()], value, STREAM),
        "dirichlet clients": lambda value: partition.dirichlet([np.zeros(9, int)], value, 0.5, STREAM, [1]),
        "dirichlet alpha": lambda value: partition.dirichlet([np.zeros(9, int)], 2, value, STREAM, [1]),
        "dealer returns": lambda value: dealt_as(value),
        "loader returns": lambda value: loaded_as(value),
        "builder returns": lambda value: built_as(value),
        "rule": lambda value: intervals.selected_accuracy(FRAME, value),
        "exhibit": exhibits.choose_exhibits,
        "cells scale": lambda value: exhibits.cells("fedssa/table1", value),
        "cells seeds": lambda value: exhibits.cells("fedssa/table1", "smoke", seeds=value),
        "cells dataset": lambda value: exhibits.cells("fedssa/table1", "smoke", value),
        "find key": lab.find,
        "reproduce exhibit": lambda value: reproduce.reproduce(value, "smoke", jobs=1, only="plan"),
        "reproduce scale": lambda value: reproduce.reproduce("fedssa/table1", value, jobs=1, only="plan"),
        "reproduce jobs": lambda value: reproduce.reproduce("fedssa/table1", "smoke", jobs=value, only="plan"),
    }  # fmt: skip
    return found


def dealt_as(value: Any) -> Any:
    partition.register("mine", lambda *given: value)
    return partition.deal_registered("mine", np.arange(9), 2, np.random.default_rng(0))


def loaded_as(value: Any) -> Any:
    data.register("mine", lambda: value)
    return data.load("mine")


def built_as(value: Any) -> Any:
    models.register("mine", lambda *given: value)
    return models.build("mine", 3, 1, np.random.default_rng(0))


FIELDS = fields()


def test_there_are_enough():
    assert len(FIELDS) * len(VALUES) > 1500


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_any_type_is_taken_or_refused_in_one_line(name, home, monkeypatch, capsys):
    monkeypatch.setattr(launch, "_compute", trained)
    monkeypatch.setattr(launch, "_in_workers", trained)
    raw = {}
    for kind, value in VALUES.items():
        try:
            FIELDS[name](value)
        except Trained:
            pass
        except FedlibError as error:
            line = str(error)
            if "\n" in line or len(line) > 1500:
                raw[kind] = f"a line of {len(line)}: {line[:100]}"
        except Exception as error:
            raw[kind] = f"{type(error).__name__}: {error}"
    assert not raw, "\n".join(f"{kind}: {said}" for kind, said in raw.items())
    assert not home.exists() or not list(home.rglob("spec.json"))


class Trained(Exception):
    """It would have been trained."""


def trained(*given: Any, **named: Any) -> Any:
    raise Trained
