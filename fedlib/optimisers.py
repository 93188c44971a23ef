"""Torch's optimisers and schedules by name with their parameters, written as a call: `AdamW(amsgrad=True)`, `StepLR(step_size=30)`.

A schedule changes the rate of local training from round to round.
"""

import ast
import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from .errors import FedlibError, choose, one_line, shown

OURS = ("lr", "momentum", "weight_decay")  # fields of their own
FUSED = ("SGD", "Adam", "AdamW")  # one kernel a step, on every device


def _kinds(module: Any, base: type) -> dict[str, Any]:
    """The classes of a module that are a kind of `base`, by name."""
    every = {
        name: value for name, value in vars(module).items() if isinstance(value, type) and not name.startswith("_")
    }
    return {name: value for name, value in every.items() if issubclass(value, base) and value is not base}


OPTIMISERS = _kinds(torch.optim, torch.optim.Optimizer)
SCHEDULES = _kinds(lr_scheduler, lr_scheduler.LRScheduler)


@cache
def parsed(field: str, text: str) -> tuple[str, dict[str, Any]]:
    """A name and its parameters. Raises FedlibError for anything but a name, or a call with named plain values."""
    try:
        found = ast.parse(text.strip(), mode="eval").body
        call = found if isinstance(found, ast.Call) else ast.Call(found, [], [])
        if isinstance(call.func, ast.Name) and not call.args and all(each.arg for each in call.keywords):
            return call.func.id, {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    raise FedlibError(
        f"{field} = {shown(text)}: must be a name of torch's, perhaps with parameters: AdamW(amsgrad=True)"
    )


def spelled(field: str, text: str) -> str:
    """The one spelling of a text, for keys: parameters in alphabetical order."""
    name, given = parsed(field, text)
    return f"{name}({', '.join(f'{key}={given[key]!r}' for key in sorted(given))})" if given else name


def optimiser(
    text: str, parameters: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float
) -> torch.optim.Optimizer:
    """The optimiser that a text names. Raises FedlibError for an unknown one, and for parameters that it does not take."""
    name, given = parsed("optimiser", text)
    choose("optimiser", name, ["sgd", "adam", *OPTIMISERS])
    takes = inspect.signature(OPTIMISERS[name]).parameters
    usual = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "fused": True if name in FUSED else None}
    for key in given:
        if key in OURS:
            raise FedlibError(f"optimiser = {shown(text)}: must be without {key}, which is a field of its own")
        choose(f"parameter of {name}", key, [key for key in takes if key not in (*OURS, "params")])
    if momentum and "momentum" not in takes:
        raise FedlibError(f"momentum = {momentum}: must be 0 under {name}, which has none")
    try:
        return OPTIMISERS[name](parameters, **{key: usual[key] for key in usual if key in takes} | given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise FedlibError(f"optimiser = {shown(text)}: {one_line(str(error))}") from None


def check_optimiser(text: str, momentum: float) -> None:
    """Raise FedlibError unless a text names an optimiser that can step on a matrix and a bias of any network."""
    layer = nn.Linear(1, 1, device="cpu", dtype=torch.float32)
    with torch.inference_mode(False), torch.enable_grad():
        made = optimiser(text, layer.parameters(), 0.1, momentum, 0.0)
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        try:
            made.step()
        except (
            TypeError,
            RuntimeError,
            ValueError,
        ) as error:  # LBFGS asks for the loss again, SparseAdam for sparse gradients
            raise FedlibError(f"optimiser = {shown(text)}: cannot take a plain step: {one_line(str(error))}") from None


def rate(text: str, lr: float, round: int, rounds: int) -> float:
    """The rate of local training in a round, where `lr` is the first; see `rates`."""
    return rates(text, lr, rounds, max(CHECKED, 2 ** round.bit_length()))[round]


CHECKED = 10_000  # rounds whose rates are made, and so checked, before a run: half a second; later ones when they come


@cache
def rates(text: str, lr: float, rounds: int, first: int = CHECKED) -> list[float]:
    """The rate in each of the rounds, the `first` ones, a step of the schedule each; its `T_max` and `total_steps` are the
    rounds unless given. Raises FedlibError for an unknown schedule, and for one that these parameters do not make.
    """
    name, given = parsed("schedule", text)
    choose("schedule", name, SCHEDULES)
    takes = inspect.signature(SCHEDULES[name]).parameters
    for key in given:
        choose(f"parameter of {name}", key, [key for key in takes if key != "optimizer"])
    whole = {key: rounds for key in ("T_max", "total_steps") if key in takes and not {"epochs", key} & set(given)}
    with torch.inference_mode(False):
        of_rate = torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr, momentum=0.9)
        found = []
        try:
            schedule = SCHEDULES[name](of_rate, **whole | given)
            for _ in range(min(rounds, first)):
                found.append(_number(of_rate.param_groups[0]["lr"]))
                of_rate.step()
                schedule.step()
        except Exception as error:  # parameters of the wrong kind, in as many ways as there are schedules
            if len(found) < min(rounds, first):
                raise FedlibError(f"schedule = {shown(text)}: {one_line(str(error))}") from None
    return found


def _number(value: float | Tensor) -> float:
    if not 0 <= float(value) < float("inf"):
        raise ValueError(f"gives a rate of {float(value)}")
    return float(value)
