"""A person's own method, network, data and partition, defined in cells: run, swept, resumed; one line changed is another
key, and never the old record.
"""

import importlib
import os
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

from fedlib import ALGORITHMS, FedlibError, RunSpec, data, lab, models, run, sweep
from fedlib.lab import costs, launch, own
from fedlib.papers import notebook
from fedlib.papers.exhibits import Cell, frame
from fedlib.show import style

METHOD = """
import torch
from fedlib.algorithms import Algorithm, register
from fedlib.federation import Message

POWER = 1.0

def blend(own, shared, weight):
    return (1 - weight) * own + weight * shared ** POWER

@register
class SharedBias(Algorithm):
    needs = "features"
    weight: float = 0.5

    def init_server(self, context):
        return {"bias": context.initial_header().bias.detach()}

    def download(self, server, info, context):
        return Message({"bias": server["bias"]})

    def local_round(self, client, message, context):
        bias = client.model.header.bias
        bias.data.copy_(blend(bias.data, message["bias"], self.weight))
        context.train()
        return Message({"bias": bias.detach()})

    def aggregate(self, server, uploads, context):
        server["bias"] = torch.stack([message["bias"] for _, message in uploads]).mean(0)
"""
MODEL = """
from torch import nn
from fedlib import Model, models

WIDTH = 8

class Squeeze(nn.Module):
    def forward(self, images):
        return nn.functional.avg_pool2d(images, 8).flatten(1)

def small(num_classes, channels):
    return Model(nn.Sequential(Squeeze(), nn.Linear(16 * channels, WIDTH), nn.ReLU()), nn.Linear(WIDTH, num_classes))

models.register("small", small)
"""
DATA = """
import numpy as np
from fedlib import Dataset, data

def stripes():
    stream = np.random.default_rng(0)
    labels = np.arange(120) % 4
    images = stream.integers(0, 100, (120, 1, 32, 32), dtype=np.uint8)
    for label in range(4):
        images[labels == label, :, 8 * label : 8 * label + 8] += 100
    return Dataset.from_arrays("stripes", images[:100], labels[:100], images[100:], labels[100:])

data.register("stripes", stripes)
"""
PARTITION = """
from fedlib import partition

def in_turn(labels, num_clients, stream):
    return [range(client, len(labels), num_clients) for client in range(num_clients)]

partition.register("in-turn", in_turn)
"""
SIZE = {
    "dataset": "stripes",
    "scenario": "small",
    "num_clients": 3,
    "participation": 1.0,
    "rounds": 2,
    "batch_size": 8,
    "partition": "in-turn",
}
SPEC = RunSpec("SharedBias", **SIZE)


def cell(source: str, file: str = "<cell>", name: str = "__main__") -> dict:
    """What a cell with this source defines; under the file "<string>" what `python -c` does, without a name a plain `exec`."""
    namespace = {"__name__": name} if name else {}
    exec(compile(source, file, "exec"), namespace)
    return namespace


@pytest.fixture
def defined():
    for source in (METHOD, MODEL, DATA, PARTITION):
        cell(source)


# ------------------------------------------------------------------------------------------- what is in a digest and a key

FIELD, NEEDS = "weight: float = 0.5", 'needs = "features"'
CHANGES: list[tuple[str, str, str, str]] = [  # a cell, what stands there, what is put there, and what the run is then
    (METHOD, "    def download", "    # a comment\n\n    def download", "the same"),
    (METHOD, "    needs =", '    """What it is."""\n\n    needs =', "the same"),
    (METHOD, FIELD, "weight: float = 0.6", "another"),
    (METHOD, NEEDS, 'needs = ""', "another"),
    (METHOD, ".mean(0)", ".sum(0)", "another"),
    (METHOD, "        context.train()\n", "", "another"),
    (METHOD, "(1 - weight) * own +", "own +", "another"),  # a function that it calls
    (METHOD, "shared, weight):", "shared, weight=0.5):", "another"),  # a default argument of it
    (METHOD, "POWER = 1.0", "POWER = 2.0", "another"),  # a constant that that function reads
    (METHOD, "    def aggregate", "    def predict(self, client, images):\n        return {}\n\n    def aggregate", "another"),
    (METHOD, FIELD, "weight: float", "SharedBias.weight = 'without a default': must be a parameter"),
    (METHOD, FIELD, "weight: tuple = (1, 2)", r"SharedBias.weight = \(1, 2\): must be a parameter"),
    (METHOD, NEEDS, 'needs = "feature"', r"SharedBias.needs = 'feature': must be"),
    (METHOD, NEEDS, 'public_data = "some"', r"SharedBias.public_data = 'some' is unknown: did you mean"),
    (METHOD, NEEDS, 'name = "../evil"', r"method = '\.\./evil': must be letters"),
    (METHOD, "(Algorithm)", "", r"method = .*: must be a subclass"),
    (MODEL, "class Squeeze", "# of four quarters\nclass Squeeze", "the same"),
    (MODEL, "WIDTH = 8", "WIDTH = 16", "another"),
    (MODEL, "nn.ReLU()", "nn.Tanh()", "another"),
    (MODEL, "avg_pool2d", "max_pool2d", "another"),  # a class that it builds
    (MODEL, "flatten(1)", "flatten(1) * 2", "another"),
    (DATA, "    return", "    # of pixels\n    return", "the same"),
    (DATA, "+= 100", "+= 90", "another"),
    (DATA, "labels[100:])", "labels[100:], mean=(0.5,))", "another"),
    (DATA, "labels[100:])", "labels[100:], std=(0.5,))", "another"),
    (PARTITION, "    return", "    # as cards\n    return", "the same"),
    (PARTITION, "range(client, len(labels), num_clients)", "range(client, len(labels) - 9, num_clients)", "another"),
]  # fmt: skip
WHERE = [("<cell>", "__main__"), ("<string>", "__main__"), ("<string>", "")]


@pytest.mark.parametrize(("source", "old", "new", "then"), CHANGES, ids=[str(place) for place in range(len(CHANGES))])
def test_a_changed_line_is_another_key_the_same_or_one_line(source, old, new, then, defined):
    """In a cell, in `python -c` and in a plain `exec`; and the old line has the old key."""
    assert old in source
    name = {METHOD: "SharedBias", MODEL: "small"}.get(source)
    if then not in ("another", "the same"):
        known = dict(ALGORITHMS)
        with pytest.raises(FedlibError, match=then):
            cell(source.replace(old, new))
        assert known == ALGORITHMS
        return
    for where in WHERE if name else ():
        before, again, after = (
            own.digest(cell(text, *where)[name]) for text in (source, source, source.replace(old, new))
        )
        assert before == again and (after == before) == (then == "the same")
    cell(source)
    before = lab.resolve(SPEC)
    cell(source.replace(old, new))
    assert (lab.resolve(SPEC).key == before.key) == (then == "the same")
    cell(source)
    assert lab.resolve(SPEC).key == before.key and not before.portable


def test_what_dataclass_and_namedtuple_write_is_no_line_of_ones_own():
    """Keys stored before have none of it, and of a dataclass's own methods of that name all."""
    source = "from dataclasses import dataclass\nfrom typing import NamedTuple\n"
    source += "@dataclass(order=True, frozen=True)\nclass D:\n    rate: int = 1\nclass N(NamedTuple):\n    rate: int\n"
    found = cell(source)
    attributes = [getattr(one, "__wrapped__", one) for name in "DN" for one in vars(found[name]).values()]
    written = [one for one in attributes if getattr(getattr(one, "__code__", None), "co_filename", "") == "<string>"]
    assert len(written) == 11 and all(map(own._is_generated, written))
    equal = source.replace("rate: int = 1\n", "rate: int = 1\n    def __eq__(self, other):\n        return {}\n")
    assert len({own.digest(cell(equal.format(value), "<string>")["D"]) for value in (True, False)}) == 2


def closure(held):
    return lambda num_classes, channels: held


class Plain:
    def __init__(self, width):
        self.width = width


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2), (1, 1.0), ("a", "b"), ((1, 2), (2, 1)), ([1], (1,)), ({"a": 1}, {"a": 2}), ({1, 2}, {1, 3}),
        (np.arange(3), np.arange(1, 4)), (torch.zeros(2), torch.zeros(3)), (Plain(1), Plain(2)),
        (np.random.default_rng(0), np.random.default_rng(1)), (Path("a"), Path("b")),
        (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)), (str.upper, str.lower), (lambda: 1, lambda: 2),
        (lambda a=1: a, lambda a=2: a), (lambda *, a=1: a, lambda *, a=2: a),
    ],
)  # fmt: skip
def test_what_a_closure_holds_counts(one, other):
    assert own.digest(closure(one)) != own.digest(closure(other))
    assert own.digest(closure(one)) == own.digest(closure(one))


def test_what_refers_to_itself_has_a_digest():
    namespace = cell("def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n != 0 and even(n - 1)")
    ring: list = []
    ring.append(ring)
    assert len({own.digest(namespace["even"]), own.digest(namespace["odd"]), own.digest(ring)}) == 3


def test_a_module_of_ones_own_is_told_by_its_code_and_not_by_comments_or_a_colour(tmp_path):
    file = tmp_path / "mine.py"

    def bare(text):
        file.write_text(text)
        return own._bare_source(file)

    before = bare("class M:\n    look = Look('#000000')\n    rate = 1\n")
    assert bare("class M:\n    # of the table\n    look = Look('#ffffff', 'x')\n    rate = 1\n") == before
    assert bare("class M:\n    rate = 2\n") != before


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a module of one's own, and imports what the tests ask for afresh, as another process does."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def forget():
        for known in set(sys.modules) - before:
            del sys.modules[known]
        importlib.invalidate_caches()

    def write(name, source):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
        forget()
        return path

    yield write
    forget()


@pytest.mark.parametrize(
    ("used", "call", "modules", "changed"),
    [
        ("import owna", "owna.f(x)", {"owna": "from ownb import g as f\n", "ownb": "def g(x):\n    return x\n"}, "ownb"),
        ("import pack.losses", "pack.losses.w(x)", {"pack/__init__": "", "pack/losses": "def w(x):\n    return x\n"}, "pack/losses"),
    ],
)  # fmt: skip
def test_what_a_module_of_ones_own_imports_is_in_the_digest(written, used, call, modules, changed):
    def digest(source):
        for name, text in (modules | {changed: source}).items():
            written(name, text)
        return own.digest(cell(f"{used}\n\ndef mine(x):\n    return {call}\n")["mine"])

    plain = modules[changed]
    assert digest(plain) == digest(plain.replace("x\n", "x  # the same\n")) != digest(plain.replace("n x", "n 2 * x"))


def test_a_module_that_is_loaded_again_is_read_again(written):
    path = written("ownc", "def g(x):\n    return x\n")
    import ownc

    first = own.digest(ownc)
    path.write_text("def g(x):\n    return 3 * x\n")
    assert own.digest(ownc) == first  # what is in memory is what it was
    os.utime(path, (1, 1))
    importlib.reload(ownc)
    assert own.digest(ownc) != first


# -------------------------------------------------------------------------------------------------- runs and keys


def test_an_error_in_a_worker_leaves_ones_own_runs_trained(defined, monkeypatch):
    monkeypatch.setattr(launch, "_in_workers", lambda *given: ["FedSSA on digits: no"])
    with pytest.raises(FedlibError, match=r"^FedSSA on digits: no$"):
        sweep([RunSpec("FedSSA", num_clients=4, rounds=1), SPEC], progress=False)
    assert lab.missing([SPEC]) == []


def test_a_method_a_model_data_and_a_partition_of_ones_own_run_beside_ours(defined, capsys, monkeypatch):
    specs = [SPEC, RunSpec("FedSSA", **SIZE), RunSpec("Standalone", **SIZE)]
    ours, _, alone = sweep(specs, jobs=2, progress=False)
    assert "3 of 3 runs use classes or data of this session" in capsys.readouterr().err
    assert ours.spec.scenario == "small" and ours.clients["client"].nunique() == 3
    assert ours.rounds["upload_words"].iloc[-1] == 3 * 4 and alone.rounds["upload_words"].iloc[-1] == 0
    held = lab.federation_of(lab.resolve(SPEC)).clients[1]
    assert sorted([*held.train.tolist(), *held.validation.tolist(), *held.test.tolist()]) == list(range(1, 120, 3))

    monkeypatch.setattr(launch, "_compute", None)  # from now on nothing is computed
    assert run(SPEC, progress=False).digest == ours.digest and not ours.stale
    trained = notebook.train_cells([Cell(spec=spec) for spec in specs] + [Cell(method="mine, again", spec=SPEC)])
    shown = frame(trained.cells)
    assert {*shown["method"]} == {"Standalone", "FedSSA", "SharedBias", "mine, again"} and shown["last"].notna().all()
    assert trained.cells[0].setting == "stripes, N = 3, C = 100 %"
    assert style.palette(["FedSSA", "SharedBias"])["SharedBias"]
    assert costs.of_run(trained.records[-1])[-1] > 0


def test_a_network_for_grey_images_alone_runs_and_is_counted_on_such():
    def grey(num_classes, channels):
        assert channels == 1
        return models.Model(torch.nn.Flatten(), torch.nn.Linear(1024, num_classes))

    def noise():
        images, labels = np.random.default_rng(0).integers(0, 256, (80, 1, 32, 32), dtype=np.uint8), np.arange(80) % 4
        return data.Dataset.from_arrays("noise", images[:60], labels[:60], images[60:], labels[60:])

    models.register("Grey", grey)
    data.register("noise", noise)
    spec = RunSpec("Standalone", dataset="noise", scenario="Grey", num_clients=2, participation=1.0, rounds=1)
    assert lab.expected_seconds([lab.resolve(spec)], [])[0] > 0
    assert [record.status for record in sweep([spec], jobs=1, progress=False)] == ["finished"]


@pytest.mark.parametrize(("dataset", "changed"), [("digits", "labels"), ("stripes", "images")])
def test_data_changed_in_place_have_neither_a_record_nor_that_of_the_clean_ones(dataset, changed, defined):
    """Label noise in a notebook, through NumPy and so without torch's knowledge."""
    spec, values = RunSpec("Standalone", **SIZE | {"dataset": dataset}), getattr(data.load(dataset), changed).numpy()
    refused = pytest.raises(
        FedlibError, match=f"^dataset = '{dataset}': must be as it was loaded, not changed in place; "
    )
    values[:9] ^= 1
    with refused:
        lab.federation_of(lab.resolve(spec))
    with refused:
        run(spec, progress=False)
    assert lab.stored() == []
    values[:9] ^= 1
    assert run(spec, progress=False).status == "finished"
    values[:9] ^= 1
    for ask in (run, lambda spec: sweep([spec]), lambda spec: lab.missing([spec])):
        with refused:
            ask(spec)
    data.load.cache_clear()
    assert lab.missing([spec]) == []


def test_arrays_that_a_loader_reads_are_held_to_what_was_trained_on(defined):
    pixels, labels = np.tile(np.arange(60, dtype=np.uint8)[:, None, None, None], (1, 1, 32, 32)), np.arange(60) % 4
    data.register(
        "arrays", lambda: data.Dataset.from_arrays("arrays", pixels[:48], labels[:48], pixels[48:], labels[48:], 4)
    )
    spec = RunSpec("Standalone", **SIZE | {"dataset": "arrays"})
    clean = run(spec, progress=False)
    labels[:9] ^= 1
    with pytest.raises(FedlibError, match=r"^dataset = 'arrays': must be as it was loaded"):
        run(spec, progress=False)
    data.load.cache_clear()
    assert run(spec, progress=False).key != clean.key


def test_a_method_that_writes_into_the_data_in_its_last_round_stores_nothing(defined):
    cell(METHOD.replace("context.train()", "context.train()\n        client.whole.stored[:context.round] = 0"))
    with pytest.raises(FedlibError, match="has changed images or labels that others see, too: change a copy"):
        run(SPEC, progress=False)
    assert not list(lab.store().glob("*/DONE"))
    data.load.cache_clear()


def test_another_network_under_a_built_in_name_never_gets_the_built_in_record(defined):
    specs = [RunSpec("Standalone", scenario="CNN-1"), RunSpec("FML", params={"shared": "CNN-1"})]
    before = [lab.resolve(spec) for spec in specs]
    assert all(item.portable for item in before)
    models.register("CNN-1", models.BUILDERS["small"])
    assert not models.is_built_in("CNN-1")
    after = [lab.resolve(spec) for spec in specs]
    assert not any(item.portable for item in after)
    assert not {item.key for item in before} & {item.key for item in after}
    models.register("CNN-1", models.BUILT_IN["CNN-1"])
    assert [lab.resolve(spec).key for spec in specs] == [item.key for item in before]


def test_parameters_of_a_class_that_a_method_extends_are_its_own(defined):
    source = METHOD.replace("@register\nclass SharedBias(", "class Half(")
    cell(source + "@register\nclass Whole(Half):\n    rounds_alone: int = 0\n")
    spec = lab.resolve(RunSpec("Whole", params={"weight": "0.3"})).spec
    assert spec.params == {"weight": 0.3, "rounds_alone": 0}


def test_architectures_are_named_in_turn(defined):
    one = lab.resolve(RunSpec("Standalone", scenario=("small", "CNN-5")))
    assert one.architectures == ("small", "CNN-5") and one.spec.scenario == "small,CNN-5"
    assert one.key == lab.resolve(RunSpec("Standalone", scenario="small, CNN-5")).key
    assert lab.resolve(RunSpec("Standalone", scenario="CNN-3,CNN-5")).portable
    with pytest.raises(FedlibError, match="architecture = 'smal' is unknown: did you mean 'small'"):
        lab.resolve(RunSpec("Standalone", scenario="small,smal"))


@pytest.mark.parametrize("header", ["", "from __future__ import annotations\n"])
def test_a_parameter_is_a_float_where_its_annotation_says_so(header):
    """`lam: float = 1` takes 0.5, and 1 as 1.0 is the same run."""
    cell(header + METHOD.replace("weight: float = 0.5", "weight: float = 1"))
    usual, one, half = (
        lab.resolve(RunSpec("SharedBias", params=params)) for params in ({}, {"weight": 1}, {"weight": 0.5})
    )
    assert usual.key == one.key != half.key and half.algorithm.weight == 0.5 and type(usual.algorithm.weight) is float


# ---------------------------------------------------------------------------------------------- in a real notebook


def executed(*cells: str) -> list[str]:
    """What the cells of a notebook print, run in a kernel of its own."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    NotebookClient(made, timeout=120, kernel_name="python3").execute()
    return ["".join(output.get("text", "") for output in cell["outputs"]) for cell in made["cells"]]


@pytest.mark.thorough
def test_all_of_it_in_cells_and_the_next_kernel_finds_the_record(home):
    train = f"""
from fedlib import RunSpec, run, sweep
size = {SIZE!r}
mine, fedssa = sweep([RunSpec("SharedBias", **size), RunSpec("FedSSA", **size)], progress=False)
print(mine.key, mine.status, mine.provenance["finished"], mine.provenance["seconds"], mine.stale)
"""
    again = METHOD.replace("    def download", "    # only a comment\n    def download")
    changed = METHOD.replace(".mean(0)", ".sum(0)")
    printed = executed(METHOD, MODEL, DATA, PARTITION, train, again, train, changed, train)
    first, second, third = (printed[place].splitlines()[-1] for place in (4, 6, 8))
    assert "finished" in first and first.startswith("SharedBias-stripes-")
    assert second == first
    assert "finished" in third and third.split()[0] != first.split()[0]
    assert executed(METHOD, MODEL, DATA, PARTITION, train)[4].splitlines()[-1] == first
