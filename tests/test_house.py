"""The house has three storeys, and a storey imports only from below: ground < lab < papers, show < papers. What is in
packages/ is a house of its own, which imports this one and is imported by nobody.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fedlib

HOUSE = Path(fedlib.__file__).parent
FILES = {
    ".".join(["fedlib", *file.relative_to(HOUSE).with_suffix("").parts]).removesuffix(".__init__"): file
    for file in sorted(HOUSE.rglob("*.py"))
}
UPPER = ("lab", "papers", "show")
COMMANDS = tuple(name for name in FILES if name.split(".")[1:2] == ["cli"])
DOORS = ("fedlib", "fedlib.__main__", "fedlib.study", *COMMANDS)  # public names, all lazy, and the command line
GROUND = [name for name in FILES if name not in DOORS and name.split(".")[1] not in UPPER]

# Libraries besides torch and NumPy on the ground floor, each inside the one function that needs it.
LIBRARIES = {
    "torchvision": ("fedlib.data.", "fedlib.zoo"),
    "pandas": "fedlib.data.readers.pamap2",
    "PIL": "fedlib.data.folders",
    "h5py": "fedlib.data.readers.femnist",
    "kmedoids": "fedlib.algorithms.pfedhr.reassembly",
}


def imports(name: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, in full, and whether a function does it; what only type checkers read is included."""
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield (whole if whole in FILES else base), inside
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside or isinstance(node, ast.FunctionDef))

    yield from walk(ast.parse(FILES[name].read_text()), False)


def storey(name: str) -> str:
    return name.split(".")[1] if name.split(".")[1:2] and name.split(".")[1] in UPPER else "ground"


def test_what_is_imported_is_understood():
    assert ("fedlib.errors", False) in imports("fedlib.data") and ("torchvision.datasets", True) in imports(
        "fedlib.data.readers.cifar"
    )
    assert ("fedlib.algorithms.pfedhr.reassembly", False) in imports("fedlib.algorithms.pfedhr")
    assert {"fedlib.algorithms.fedssa", "fedlib.simulation", "fedlib.models"} <= set(GROUND)


@pytest.mark.parametrize("name", GROUND)
def test_the_ground_floor_needs_torch_and_numpy_alone(name):
    for imported, inside in imports(name):
        root = imported.partition(".")[0]
        if root == "fedlib":
            assert imported in GROUND, f"{name} imports {imported}"
        elif root in LIBRARIES:
            assert inside and name.startswith(LIBRARIES[root]), f"{name} imports {imported}"
        else:
            assert root in ("torch", "numpy") or root in sys.stdlib_module_names, f"{name} imports {imported}"


@pytest.mark.parametrize("name", [name for name in FILES if name not in DOORS and storey(name) != "ground"])
def test_a_storey_imports_from_below(name):
    below = {
        "lab": ("ground", "lab"),
        "papers": ("ground", "lab", "show", "papers"),
        "show": ("ground", "show"),
    }
    for imported, inside in imports(name):
        if imported.partition(".")[0] == "fedlib":
            assert storey(imported) in below[storey(name)], f"{name} imports {imported}"
        if storey(name) == "show" and storey(imported) == "ground" and imported.startswith("fedlib"):
            lazily = inside and imported == "fedlib.algorithms"
            assert lazily or imported in ("fedlib.errors", "fedlib.look", "fedlib.metrics"), (
                f"{name} imports {imported}"
            )


def test_there_is_no_import_circle():
    order = TopologicalSorter({name: {other for other, _ in imports(name) if other in FILES} for name in FILES})
    assert list(order.static_order())  # raises CycleError, which names the circle


def test_a_package_beside_it_imports_ground_and_lab_and_is_named_in_two_places():
    """A hint what to install, and that its parts are no person's own."""
    wing = (HOUSE.parent / "packages/flower/fedlib_flower").glob("*.py")
    assert not [
        file.name for file in wing if re.search(r"from fedlib(\.| import )(papers|show|cli|study)", file.read_text())
    ]
    named = [name for name, file in FILES.items() if re.search(r"(?<!over)flower|flwr(?!-|_)", file.read_text(), re.I)]
    assert named == ["fedlib.__main__", "fedlib.lab.own"]


def code_lines(file: Path) -> int:
    """Lines of a file that are code: no docstring, comment or empty line."""
    source = file.read_text()
    text = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = [line.strip() for number, line in enumerate(source.splitlines(), 1) if number not in text]
    return sum(bool(line) and not line.startswith("#") for line in lines)


CEILING = 11_750


def test_the_house_is_no_larger_than_it_was():
    lines = sum(map(code_lines, FILES.values()))
    assert CEILING - 150 < lines <= CEILING, "lower the ceiling" if lines <= CEILING else "what could go?"


def test_showing_loads_no_torch():
    source = (
        "import sys, fedlib.show\n"
        "from fedlib.show import intervals, labels, looks, messages, stats, style\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", source], check=True, capture_output=True)


@pytest.mark.thorough
def test_the_papers_networks_need_none_of_the_others():
    source = (
        "import sys\n"
        "from fedlib import RunSpec, lab, simulate\n"
        "run = lab.resolve(RunSpec('FedSSA', num_clients=5, participation=0.2, batch_size=500))\n"
        "simulate(lab.federation_of(run), run.simulated, 1, 0.2)\n"
        "assert not {'fedlib.zoo', 'fedlib.optimisers', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", source], check=True, capture_output=True)
