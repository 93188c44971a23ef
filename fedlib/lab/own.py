"""Digests of a person's own methods, networks and partitions, for the key of a run.

Each may be defined in a notebook cell, a script or a module, as a class, a function or a lambda. Its digest needs no
source: it covers the compiled code and everything of the person's own that the code refers to. Libraries are
represented by their names.
"""

import ast
import dis
import functools
import hashlib
import importlib.util
import sys
import threading
import types
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch

_parsing = threading.Lock()  # CPython 3.11's parser loses count of its depth where threads parse side by side


_INSTALLED = {"site-packages", "dist-packages"}
_SOURCES: dict[str, tuple[Any, str, list[str]]] = {}  # a module's name -> its spec, source and imports


def _source_of(module: types.ModuleType) -> tuple[str, list[str]]:
    """The bare source of a person's module, and the names that it imports, as it was when it was first asked for: what is
    edited later is not what is loaded. `importlib.reload` gives a module another spec, and then it is read again.
    """
    known = _SOURCES.get(module.__name__)
    if known is None or known[0] is not module.__spec__:
        source = _bare_source(Path(module.__file__ or ""))
        known = _SOURCES[module.__name__] = module.__spec__, source, _imported(source, module.__package__ or "")
    return known[1:]


def _imported(source: str, package: str) -> list[str]:
    """The modules, and what may be modules, that a source within a package imports."""
    with _parsing:
        tree = ast.parse(source)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    return sorted(names)


def _has_own_source(value: Any) -> TypeGuard[types.ModuleType]:
    """Whether something is a module of the person's with a file of Python."""
    if not isinstance(value, types.ModuleType) or not is_own_module(value.__name__):
        return False
    file = Path(getattr(value, "__file__", None) or "")
    return file.suffix == ".py" and _INSTALLED.isdisjoint(file.parts)


def _bare_source(file: Path) -> str:
    """The source of a file without comments and docstrings, evenly laid out."""
    with _parsing:
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
                and ast.get_docstring(node, clean=False) is not None
            ):
                node.body = node.body[1:] or [ast.Pass()]
            if isinstance(node, ast.ClassDef):  # a method's colour is no part of what ran
                node.body = [line for line in node.body if "look" not in _targets(line)] or [ast.Pass()]
        return ast.unparse(tree)


def _targets(statement: ast.stmt) -> list[str]:
    """Names that an assignment gives a value."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def digest(*parts: Any) -> str:
    """SHA-256 (16 digits) of what a person's own `parts` (classes, functions, plain values) are made of.

    Covered: compiled code without line numbers and docstrings, defaults, what a closure holds, and what the code names:
    a person's other functions and classes, and the values of global constants. Another version of Python compiles
    otherwise and gives another digest.
    """
    walk = _Walk()
    walk.value(parts)
    return walk.sha.hexdigest()[:16]


def is_own_module(module: str | None) -> bool:
    """Whether a module is a person's: neither Python's, nor installed, nor fedlib's, its wing's included."""
    root = (module or "builtins").partition(".")[0]
    if root == "__main__":
        return True
    if root in ("fedlib", "fedlib_flower") or root in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return _INSTALLED.isdisjoint(Path(file).parts)


# Attributes of a class that its author did not write; some appear only after first use.
_BOOKKEEPING = {
    *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__"),
    *("__annotate_func__", "__annotations_cache__", "__abstractmethods__", "_abc_impl", "__firstlineno__"),
    *("__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__match_args__"),
}


class _Walk:
    """One digest: whatever is met is written into `sha`; functions, classes and objects once."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.met: list[Any] = []  # so that no id is given twice
        self.modules: set[str] = set()

    def text(self, *parts: Any) -> None:
        self.sha.update(repr(parts).encode())

    def value(self, value: Any) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | types.EllipsisType):
            self.text(type(value).__name__, value)
        elif isinstance(value, set | frozenset):
            self.text(type(value).__name__, sorted(digest(item) for item in value))
        elif isinstance(value, tuple):
            self.text("tuple", len(value))
            for item in value:
                self.value(item)
        elif isinstance(value, np.ndarray):
            content = value.tolist() if value.dtype.hasobject else value.tobytes()
            self.value(("array", str(value.dtype), value.shape, content))
        elif isinstance(value, torch.Tensor):
            content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            self.text("tensor", str(value.dtype), tuple(value.shape), content)
        elif isinstance(value, types.ModuleType):
            self.module(value)
        elif id(value) in self.seen:
            self.text("again", self.seen[id(value)])
        else:
            self.seen[id(value)] = len(self.met)
            self.met.append(value)
            self.object(value)

    def object(self, value: Any) -> None:
        if isinstance(value, list):
            self.value(("list", *value))
        elif isinstance(value, dict):
            self.value(("dict", *value.items()))
        elif isinstance(value, type):
            self.type(value)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, types.MethodType):
            self.value(("method", value.__func__, value.__self__))
        elif isinstance(value, staticmethod | classmethod):
            self.value((type(value).__name__, value.__func__))
        elif isinstance(value, property):
            self.value(("property", value.fget, value.fset))
        elif isinstance(value, functools.cached_property):
            self.value(("property", value.func))
        elif isinstance(value, functools.partial):
            self.value(("partial", value.func, value.args, value.keywords))
        elif hasattr(value, "__wrapped__"):
            self.value(("wrapped", value.__wrapped__))
        elif isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType):
            self.text("built in", getattr(value, "__module__", None), value.__qualname__)
        else:
            self.instance(value)

    def module(self, module: types.ModuleType) -> None:
        if not _has_own_source(module):
            self.text("module", module.__name__)
            return
        source, imported = _source_of(module)
        self.text("module", source)
        if module.__name__ not in self.modules:
            self.modules.add(module.__name__)
            for other in map(sys.modules.get, imported):
                if _has_own_source(other):
                    self.module(other)

    def library(self, value: Any) -> None:
        self.text("library", value.__module__, value.__qualname__)

    def type(self, cls: type) -> None:
        if not (is_own_module(cls.__module__) or vars(cls).get("__module__") == "builtins"):  # the latter: `exec`'s
            self.library(cls)
            return
        self.value(("class", *cls.__bases__))
        for name in sorted(set(vars(cls)) - _BOOKKEEPING):
            attribute = vars(cls)[name]
            inner = getattr(attribute, "__wrapped__", attribute)
            if not (isinstance(inner, types.FunctionType) and _is_generated(inner)):
                self.value((name, attribute))
        if is_dataclass(cls):
            factories = ((item.name, item.default_factory) for item in fields(cls))
            self.value(tuple(pair for pair in factories if pair[1] is not MISSING))

    def function(self, function: types.FunctionType) -> None:
        if not (is_own_module(function.__module__) or function.__module__ is None):  # None: `exec`'s
            self.library(function)
            return
        code = function.__code__
        self.code(code, function.__doc__)
        self.value((function.__defaults__, function.__kwdefaults__))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.value((name, cell.cell_contents))
            except ValueError:  # not yet given a value
                self.text(name, "empty")
        for name in sorted(_globals(code)):
            if name in function.__globals__:
                named = function.__globals__[name]
                self.value((name, named))
                # Of `import a.b`, the code has `a` and, as an attribute, `b`.
                if isinstance(named, types.ModuleType) and is_own_module(named.__name__):
                    for part in sorted(_attributes(code)):
                        inner = getattr(named, part, None)
                        if _has_own_source(inner):
                            self.module(inner)

    def code(self, code: types.CodeType, doc: str | None = None) -> None:
        constants = code.co_consts
        if doc is not None and constants and constants[0] == doc:
            constants = (None, *constants[1:])
        self.text("code", code.co_code, code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars)
        self.text(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        for constant in constants:
            if isinstance(constant, types.CodeType):
                self.code(constant)
            else:
                self.value(constant)

    def instance(self, value: Any) -> None:
        """An object by its class and by what it would be rebuilt from, where that is known."""
        self.value(("instance", type(value)))
        try:
            parts = value.__reduce_ex__(2)
        except Exception:  # a lock, a file, a figure of some library: its class stands for it
            return
        if isinstance(parts, tuple):
            self.value(
                tuple(list(part) if index >= 3 and part is not None else part for index, part in enumerate(parts))
            )
        else:
            self.text(parts)


def _is_generated(function: types.FunctionType) -> bool:
    """Whether `dataclass` or `NamedTuple` wrote a method, in a file `<string>` as a person's `python -c` has too."""
    return function.__code__.co_qualname.startswith("__create_fn__.") or (function.__module__ or "").startswith(
        "namedtuple_"
    )


def _attributes(code: types.CodeType) -> set[str]:
    """Names of globals and attributes in `code` and the code within it."""
    return {*code.co_names}.union(*(_attributes(one) for one in code.co_consts if isinstance(one, types.CodeType)))


def _globals(code: types.CodeType) -> set[str]:
    """Names of globals that `code` and the code within it read."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))
