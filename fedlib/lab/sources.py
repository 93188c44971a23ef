"""What code a number comes from: the source of fedlib's own parts, and a digest of those that a person brings.

A person's method, network or partition may be defined in a notebook cell, a script or a module, as a class, a function
or a lambda. Its digest needs no source: it is made of the compiled code and of everything that it refers to and that
is a person's own. Names of libraries stand for libraries.
"""

import ast
import dis
import functools
import hashlib
import inspect
import sys
import threading
import types
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

# ------------------------------------------------------------------------------------------ fedlib's own source

_parsing = threading.Lock()  # CPython 3.11's parser loses count of its depth where threads parse side by side


@functools.cache
def _bare(file: Path) -> ast.Module:
    """The syntax tree of a file, without comments and docstrings."""
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
    return tree


def _unparse(node: ast.AST) -> str:
    """`node` as source, the same in every version of Python: as 3.11 writes it. Later ones may use an f-string's own quote
    within it, and a record would be another code's under each of them.
    """
    if sys.version_info < (3, 12):
        return ast.unparse(node)
    unparser: Any = vars(ast)["_Unparser"]

    class AsBefore(unparser):
        def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
            parts, quotes = [], ("'", '"', '"""', "'''")
            for value in node.values:
                with self.buffered() as buffer:
                    self._write_fstring_inner(value)
                own = {"quote_types": quotes, "escape_special_whitespace": isinstance(value, ast.Constant)}
                text, quotes = self._str_literal_helper("".join(buffer), **own)
                parts.append(text)
            self.write("".join(["f", quotes[0], *parts, quotes[0]]))

    return str(AsBefore().visit(node))


@functools.cache
def bare_source(file: Path) -> str:
    """The source of a file without comments and docstrings, evenly laid out."""
    tree = _bare(file)
    with _parsing:
        return _unparse(tree)


@functools.cache
def part_of_source(file: Path, names: tuple[str, ...], without: tuple[str, ...] = ()) -> str:
    """The bare source of the functions, classes and constants `names` of a file and of all that they use of the same
    file; annotations aside, and without what is named in `without` (registries, which know everybody).
    """
    defined: dict[str, ast.stmt] = {}
    for statement in _bare(file).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement
        for target in _targets(statement):
            defined[target] = statement
    waiting, wanted = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in wanted or name in without or name not in defined:
            continue
        wanted.add(name)
        waiting += _used(defined[name])
    with _parsing:
        return "\n".join(_unparse(defined[name]) for name in sorted(wanted))


@functools.cache
def mentioned(file: Path, module: str) -> frozenset[str]:
    """What a file uses of a sibling `module`, as in `module.name` or `from .module import name`."""
    found = set()
    for node in ast.walk(_bare(file)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            found.add(node.attr)
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == module:
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def _targets(statement: ast.stmt) -> list[str]:
    """Names that an assignment gives a value."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _used(node: ast.AST) -> list[str]:
    """Names that a statement reads, but for its annotations and for what is a function's own."""
    found = [node.id] if isinstance(node, ast.Name) else []
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in ("annotation", "returns"):
                found += _used(child)
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        own = _own_names(node)
        found = [name for name in found if name not in own]
    return found


def _own_names(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    """A function's parameters and the names that its statements assign, which hide the file's; those of comprehensions, which
    hide them only there, count as the file's.
    """
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    own = {argument.arg for argument in every if argument}
    waiting: list[ast.AST] = list(function.body) if isinstance(function, ast.FunctionDef) else []
    outer: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Global):
            outer |= set(node.names)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        if not isinstance(node, ast.comprehension | ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return own - outer


# ------------------------------------------------------------------------------------------ a person's own parts


def digest(*parts: Any) -> str:
    """SHA-256 (16 digits) of what a person's own `parts` (classes, functions, plain values) are made of.

    Covered: compiled code without line numbers and docstrings, defaults, what a closure holds, and what the code names:
    a person's other functions and classes, and the values of global constants. Another version of Python compiles
    otherwise and gives another digest.
    """
    walk = _Walk()
    walk.value(parts)
    return walk.sha.hexdigest()[:16]


def used_of_fedlib(*parts: Any) -> dict[str, set[str]]:
    """Names of fedlib's modules that a person's own `parts` refer to, each with what they may use of it."""
    walk = _Walk()
    walk.value(parts)
    return {module: names | walk.names for module, names in walk.modules.items()}


def is_own(module: str | None) -> bool:
    """Whether a module is a person's: neither Python's, nor installed, nor fedlib's."""
    root = (module or "builtins").partition(".")[0]
    if root == "__main__":
        return True
    if root == "fedlib" or root in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return not {"site-packages", "dist-packages"} & set(Path(file).parts)


# What a class has besides what its author wrote, some of it only once it has been used.
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
        self.modules: dict[str, set[str]] = {}  # of fedlib -> what is referred to by itself
        self.names: set[str] = set()  # globals and attributes, of whatever

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
        if module.__name__.startswith("fedlib."):
            self.modules.setdefault(module.__name__, set())
        file = inspect.getsourcefile(module) if is_own(module.__name__) and hasattr(module, "__file__") else None
        self.text("module", bare_source(Path(file)) if file else module.__name__)

    def library(self, value: Any) -> None:
        if str(value.__module__).startswith("fedlib."):
            self.modules.setdefault(value.__module__, set()).add(value.__qualname__.partition(".")[0])
        self.text("library", value.__module__, value.__qualname__)

    def type(self, cls: type) -> None:
        if not is_own(cls.__module__):
            self.library(cls)
            return
        self.value(("class", *cls.__bases__))
        for name in sorted(set(vars(cls)) - _BOOKKEEPING):
            attribute = vars(cls)[name]
            inner = getattr(attribute, "__wrapped__", attribute)
            if not (
                isinstance(inner, types.FunctionType) and inner.__code__.co_filename == "<string>"
            ):  # a dataclass's
                self.value((name, attribute))
        if is_dataclass(cls):
            factories = ((item.name, item.default_factory) for item in fields(cls))
            self.value(tuple(pair for pair in factories if pair[1] is not MISSING))

    def function(self, function: types.FunctionType) -> None:
        if not is_own(function.__module__):
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
                self.value((name, function.__globals__[name]))

    def code(self, code: types.CodeType, doc: str | None = None) -> None:
        self.names |= set(code.co_names)
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


def _globals(code: types.CodeType) -> set[str]:
    """Names of globals that `code` and the code within it read."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))
