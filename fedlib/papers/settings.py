"""The parameters of a notebook: checked, typed, and turned into the runs that they ask for."""

import ast
import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .. import data, devices, lab, training
from ..errors import FedlibError, choose, coerce, require, shown
from ..lab import presets
from ..show import stats
from . import exhibits
from .exhibits import DEMO, SMOKE
from .prose import say

LONGEST_NAME = 95  # characters of a variation's files, so that the extension fits into a hundred


def _parameter(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Parameters:
    """A notebook's parameters, checked; the defaults are those of scale smoke. `methods`, `rounds` and `protocol` are empty or 0 where
    the exhibit's own hold.
    """

    scale: str = _parameter(
        "smoke", "smoke (digits, minutes), demo (real data, ten minutes), record (read only) or paper (weeks)"
    )
    dataset: str = _parameter("", "one data set only; empty: those of the scale")
    methods: tuple[str, ...] = _parameter((), 'methods, such as ["Standalone", "FedSSA"]; empty: all of the exhibit')
    seeds: tuple[int, ...] = _parameter((), "seeds, such as [0, 1, 2]; empty: those of the scale")
    rounds: int = _parameter(0, "communication rounds T; 0: the scale's")
    protocol: str = _parameter(
        "", "reconstructed, paper (the text alone) or released (what its code does); empty: the exhibit's own"
    )
    precision: str = _parameter("", "fp32 or bf16 arithmetic; empty: the scale's")
    device: str = _parameter("cpu", "cpu, cuda, or auto (cuda where there is one)")
    jobs: int = _parameter(2, "runs trained side by side; 0, or scale record: none is")
    rule: str = _parameter("last", "round that a table reports: last, last10, validation or best")

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,) if self.dataset else tuple(exhibits.datasets(self.scale))

    @property
    def embedded(self) -> bool:
        return any(data.info(name).embedded for name in self.datasets)

    @property
    def variation(self) -> str:
        """What differs from an exhibit's own settings, as a part of a file's name: `rounds-3--rule-best`; empty where nothing does.

        The order of `methods` does not count; a name that would be too long ends in a digest of the whole.
        """
        own, parts = defaults(self.scale), []
        for name in ("dataset", "methods", "seeds", "rounds", "protocol", "precision", "device", "rule"):
            value = getattr(self, name)
            if value != getattr(own, name):
                words = value if name == "seeds" else sorted(set(value)) if name == "methods" else [value]
                parts.append("-".join([name, *(re.sub(r"[^\w.]+", "-", str(word)).strip("-") for word in words)]))
        whole = "--".join(parts)
        longest = LONGEST_NAME - max(len(item.item) for item in exhibits.every().values()) - 2
        digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
        return whole if len(whole) <= longest else f"{whole[: longest - 9]}-{digest}"

    @property
    def beside(self) -> "Parameters":
        """The settings of an extra run in which a reader changes one thing: these, but those of scale smoke in a batch (papermill)
        at scale record or paper, where the extra run would cost hours and nobody reads it.
        """
        return self if self.scale in (SMOKE, DEMO) or not _injected() else defaults(SMOKE)

    def grids(self, *names: str) -> dict[str, list[exhibits.Cell]]:
        """The runs of each grid under these settings.

        `methods` keeps those whose label or algorithm it names, in the grids that have one; raises FedlibError for a name that
        none of `names` has.
        """
        changes = {name: getattr(self, name) for name in ("rounds", "protocol", "precision") if getattr(self, name)}
        changes |= {"device": self.device} if self.device != "cpu" else {}
        every = {name: exhibits.cells(name, self.scale, self.dataset, self.seeds, **changes) for name in names}
        known = [cell.method for cells in every.values() for cell in cells]
        known += [cell.spec.algorithm for cells in every.values() for cell in cells]
        for method in self.methods:
            choose("method", method, dict.fromkeys(known))
        return {
            name: [cell for cell in cells if not self.methods or {cell.method, cell.spec.algorithm} & set(self.methods)]
            for name, cells in every.items()
        }

    def cells(self, *grids: str) -> list[exhibits.Cell]:
        """The runs of one or more grids under these settings, one grid after the other, see `grids`."""
        return [cell for cells in self.grids(*dict.fromkeys(grids)).values() for cell in cells]

    def spec(self, grid: str, method: str) -> lab.RunSpec:
        """The specification of the first run of `method` (a label or an algorithm) in a grid, to be changed by hand, even where
        the parameter `methods` leaves that method out; in a batch at scale record or paper that of scale smoke, see `beside`.
        """
        if self.beside is not self:
            say(
                f"in a batch at scale {self.scale}, what is changed by hand runs at scale smoke; in JupyterLab, at {self.scale}"
            )
        return replace(self.beside, methods=(method,)).cells(grid)[0].spec


# name -> (type, default, help): the parameters that every notebook has, as its own cell has them.
PARAMETERS: dict[str, tuple[type, Any, str]] = {}
for _item in fields(Parameters):
    _default = list(_item.default) if isinstance(_item.default, tuple) else _item.default
    PARAMETERS[_item.name] = (type(_default), _default, _item.metadata["help"])


def defaults(scale: str, methods: Sequence[str] = (), device: str = "cpu", precision: str = "") -> Parameters:
    """What a notebook has where nothing but the scale, and perhaps some methods, a device or a precision, is given."""
    precision = _other_precision(scale, precision)
    return Parameters(scale, methods=tuple(methods), seeds=exhibits.SEEDS[scale], device=device, precision=precision)


def _other_precision(scale: str, precision: str) -> str:
    """Empty where it is the scale's own, so that nothing counts as changed."""
    return "" if precision == lab.SCALES[scale]["precision"] else precision


def settings(
    scale: Any,
    dataset: Any,
    methods: Any,
    seeds: Any,
    rounds: Any,
    protocol: Any,
    precision: Any,
    device: Any,
    jobs: Any,
    rule: Any,
) -> Parameters:
    """Check a notebook's parameters, print them resolved and hand them back; call it right after the parameters cell.

    Strings that papermill's `-p` passes for numbers and lists are understood. Raises FedlibError, one line, for a wrong type or
    value, and for a parameter that papermill was given and that does not exist (with the nearest that does). Nothing else that
    a notebook defines is looked at.
    """
    given = locals()
    for name in _injected():
        choose("notebook parameter", name, PARAMETERS)
    one_value = {name: kind for name, (kind, _, _) in PARAMETERS.items() if kind is not list}
    values: dict[str, Any] = {name: coerce(name, given[name], kind) for name, kind in one_value.items()}
    values |= {"methods": _methods(methods), "seeds": _seeds(seeds)}
    choose("scale", values["scale"], lab.SCALES)
    choose("rule", values["rule"], stats.RULES)
    if values["dataset"]:
        choose("dataset", values["dataset"], data.names())
    if values["protocol"]:
        choose("protocol", values["protocol"], dict.fromkeys(variant for _, variant in presets.PRESETS))
    if values["precision"]:
        choose("precision", values["precision"], training.PRECISIONS)
    values["precision"] = _other_precision(values["scale"], values["precision"])
    values["device"] = devices.several(values["device"])
    require(values["rounds"] >= 0, "rounds", values["rounds"], "at least 1, or 0 for the scale's")
    require(values["jobs"] >= 0, "jobs", values["jobs"], "at least 1, or 0 to train nothing")
    values["seeds"] = values["seeds"] or exhibits.SEEDS[values["scale"]]
    made = Parameters(**values)
    say(
        f"scale {made.scale}; data {', '.join(made.datasets)}; methods {', '.join(made.methods) or 'all of the exhibit'}; "
        f"seeds {', '.join(map(str, made.seeds))}; rounds {made.rounds or 'as the scale says'}; "
        f"protocol {made.protocol or 'of the exhibit'}; {made.precision and f'precision {made.precision}; '}"
        f"device {made.device}; jobs {made.jobs}; "
        f"selection rule {made.rule}"
    )
    return made


def _injected() -> list[str]:
    """The names that papermill's latest cell in this kernel assigns: it puts the parameters of its caller into a cell of its own,
    which begins with `# Parameters`. Without IPython, or without such a cell, none.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    inputs = shell.user_ns.get("In", []) if shell else []
    source = next((text for text in reversed(inputs) if text.startswith("# Parameters")), "")
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a reader's own cell
        return []
    targets = [target for statement in statements if isinstance(statement, ast.Assign) for target in statement.targets]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _methods(value: Any) -> tuple[str, ...]:
    """A list of names; text is such a list in brackets, or a single name."""
    allowed = 'names in brackets, such as ["Standalone", "FedSSA"]'
    if isinstance(value, str) and value.strip().startswith("["):
        value = _literal("methods", value, allowed)
    if isinstance(value, str) or value is None:
        value = [value] if value else []
    require(isinstance(value, list | tuple) and all(isinstance(name, str) for name in value), "methods", value, allowed)
    return tuple(value)


def _seeds(value: Any) -> tuple[int, ...]:
    """A list of whole numbers, or one of them; or either as text."""
    allowed = "whole numbers in brackets, such as [0, 1, 2]"
    value = _literal("seeds", value, allowed) if isinstance(value, str) else value
    value = [value] if isinstance(value, int) else value
    require(isinstance(value, list | tuple), "seeds", value, allowed)
    seeds = tuple(coerce("seeds", seed, int) for seed in value)
    for seed in seeds:
        require(0 <= seed < 2**63, "seeds", seed, "between 0 and 2**63 - 1")
    return seeds


def _literal(name: str, text: str, allowed: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise FedlibError(f"{name} = {shown(text)}: must be {allowed}") from None
