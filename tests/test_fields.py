"""What a field declares (`fields.setting`) is what is refused, and what the error says is what it declares."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from fedlib import ALGORITHMS, FedlibError, fields, lab
from fedlib.algorithms import Algorithm, make
from fedlib.protocol import Protocol


@dataclass(frozen=True)
class Own(Algorithm):
    """A person's method, whose `__post_init__` is its own."""

    closed: float = fields.setting(0.5, ge=0, le=1)
    half_open: float = fields.setting(0.5, gt=0, lt=1)
    count: int = fields.setting(1, ge=1, note="1: once")
    above: float = fields.setting(1.0, gt=0)
    most: int = fields.setting(0, le=3)
    below: int = fields.later(0, neutral=0, lt=3)
    mode: str = fields.renamed("a", "kind", choices=("a", "b"))
    flag: bool = False
    free: float = 0.0

    def __post_init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "taken", "refused", "said"),
    [
        ("closed", (0, 1, 0.5), (-0.001, 1.001, 10**400), "in [0, 1]"),
        ("half_open", (0.001, 0.999), (0, 1), "in (0, 1)"),
        ("count", (1, 2.0, 10**30), (0, -1), "at least 1 (1: once)"),
        ("above", (5e-324,), (0, -1), "above 0"),
        ("most", (3, -5), (4,), "at most 3"),
        ("below", (2,), (3,), "below 3"),
        ("mode", ("a", "b"), ("c",), "known are a, b"),
        ("flag", (True,), ("true", 1), "true or false"),
        ("free", (-1e9, 1e9), ("1", float("nan"), None), "a number"),
        ("count", (1,), (1.5, True, "1"), "number"),
    ],
)
def test_a_limit_is_held_and_said(name, taken, refused, said):
    for value in taken:
        assert getattr(Own(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(FedlibError) as raised:
            Own(**{name: value})
        line = str(raised.value)
        assert line.startswith(f"{name} = ") and "\n" not in line
        assert said in line or "must be a number" in line, line


def test_a_value_by_its_place_is_checked_too():
    with pytest.raises(FedlibError, match=r"half_open = 2.0: must be in \(0, 1\)"):
        Own(0.5, 2)
    with pytest.raises(FedlibError, match=r"closed = 2.0: must be in \[0, 1\]"):
        dataclasses.replace(Own(), closed=2)


def made(kind: str | type) -> Any:
    """A function that makes what has these fields."""
    if kind is lab.RunSpec:
        return lambda **values: lab.resolve(lab.RunSpec(**values))
    return kind if isinstance(kind, type) else lambda **values: make(kind, values)


LIMITS = [
    (kind, item, bound)
    for kind in (*ALGORITHMS, Protocol, lab.RunSpec)
    for item in dataclasses.fields(ALGORITHMS[kind] if isinstance(kind, str) else kind)
    for bound in ("ge", "gt", "le", "lt")
    if bound in item.metadata
]


@pytest.mark.parametrize(("kind", "item", "bound"), LIMITS, ids=lambda part: getattr(part, "name", str(part)))
def test_every_declared_limit_is_refused_just_beyond_it(kind, item, bound):
    limit = item.metadata[bound]
    step = 1 if fields.kind_of(item) is int else 0.001
    beyond = {"ge": limit - step, "gt": limit, "le": limit + step, "lt": limit}[bound]
    with pytest.raises(FedlibError, match=f"^{item.name} = "):
        made(kind)(**{item.name: beyond})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_are_within_their_limits(name):
    make(name, dataclasses.asdict(make(name)))


def test_there_are_enough():
    assert len(LIMITS) > 60
