"""The grids ask for what the papers say: read against the settings of each exhibit, as their texts give them."""

import signal
from dataclasses import replace

import processes
import psutil
import pytest
from results_of_record import write_results

from fedlib import algorithms, lab
from fedlib.errors import FedlibError
from fedlib.papers import exhibits, printed, reproduce
from fedlib.show import labels

BOTH = {"cifar10", "cifar100"}
THREE = {(10, 1.0), (50, 0.2), (100, 0.1)}
HUNDRED = {(100, 0.1)}
RATES = {(100, c) for c in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)}
SHARED = {"Standalone", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto"}
# grid -> scenario, (N, C), data, methods, and the values of the swept quantity on CIFAR-10 and on CIFAR-100, from the texts:
# FedSSA 6.1 to 6.3 and appendix F, FedGH 5.1 to 5.3, pFedES 6.1 to 6.3 and 10.
PAPER = {
    "fedssa/homogeneous": ("homogeneous", THREE, BOTH, SHARED | {"FedClassAvg", "FedSSA"}),
    "fedssa/heterogeneous": (
        "heterogeneous",
        THREE,
        BOTH,
        SHARED | {"FedClassAvg", "FedSSA", "FedGH"},
    ),  # FedGH is ours
    "fedssa/representations": ("heterogeneous", {(10, 1.0)}, {"cifar10"}, {"FedProto", "FedSSA"}),
    "fedssa/classes": ("heterogeneous", HUNDRED, BOTH, {"FedProto", "FedSSA"}),
    "fedssa/dirichlet": ("heterogeneous", HUNDRED, BOTH, {"FedProto", "FedSSA"}),
    "fedssa/participation": ("heterogeneous", RATES, BOTH, {"FedProto", "FedSSA"}),
    "fedssa/table4": ("heterogeneous", THREE, BOTH, {"FedSSA"}),
    "fedssa/table5": ("heterogeneous", THREE, BOTH, {"FedSSA"}),
    "fedgh/homogeneous": ("homogeneous", THREE, BOTH, SHARED | {"FedAvg", "FedGH"}),
    "fedgh/curves": ("homogeneous", {(10, 1.0)}, BOTH, SHARED | {"FedAvg", "FedGH"}),
    "fedgh/heterogeneous": ("heterogeneous", {(10, 1.0)}, BOTH, SHARED | {"FedGH"}),
    "fedgh/classes": ("heterogeneous", {(10, 1.0)}, BOTH, {"LG-FedAvg", "FedProto", "FedGH"}),
    "fedgh/participation": ("heterogeneous", RATES, BOTH, {"LG-FedAvg", "FedProto", "FedGH"}),
    "fedgh/server_lr": ("heterogeneous", {(10, 1.0)}, BOTH, {"FedGH"}),
    "pfedes/homogeneous": ("homogeneous", THREE, BOTH, SHARED | {"pFedES"}),
    "pfedes/heterogeneous": ("heterogeneous", THREE, BOTH, SHARED | {"pFedES"}),
    "pfedes/representations": ("heterogeneous", {(10, 1.0)}, {"cifar10"}, {"FedProto", "pFedES"}),
    "pfedes/images": ("heterogeneous", HUNDRED, {"cifar10"}, {"pFedES"}),
    "pfedes/classes": ("heterogeneous", HUNDRED, BOTH, {"FedProto", "pFedES"}),
    "pfedes/participation": ("heterogeneous", RATES, BOTH, {"FedProto", "pFedES"}),
    "pfedes/mu": ("heterogeneous", HUNDRED, BOTH, {"pFedES"}),
    "pfedes/extractor_epochs": ("heterogeneous", HUNDRED, BOTH, {"pFedES"}),
}
SWEPT = {
    "fedssa/classes": ((2, 4, 6, 8, 10), (10, 30, 50, 70, 90, 100)),
    "fedgh/classes": ((2, 4, 6, 8, 10), (10, 30, 50, 70, 90, 100)),
    "pfedes/classes": ((2, 4, 6, 8, 10), (10, 30, 50, 70, 90, 100)),
    "fedssa/dirichlet": ((0.1, 0.2, 0.3, 0.4, 0.5),) * 2,
    "fedgh/server_lr": ((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),) * 2,
    "pfedes/mu": ((0.1, 0.2, 0.3, 0.4, 0.5),) * 2,
    "pfedes/extractor_epochs": ((5, 10, 15, 20),) * 2,
}


@pytest.mark.parametrize("grid", PAPER)
def test_paper_settings(grid):
    scenario, settings, data, methods = PAPER[grid]
    cells = exhibits.cells(grid, "paper")
    specs = [cell.spec for cell in cells]
    assert {spec.scenario for spec in specs} == {scenario}
    assert {(spec.num_clients, spec.participation) for spec in specs} == settings
    assert {spec.dataset for spec in specs} == data
    assert {spec.algorithm for spec in specs} == methods
    assert {spec.seed for spec in specs} == {0, 1, 2}
    assert {(spec.rounds, spec.local_epochs, spec.batch_size) for spec in specs} == {(500, 10, 512)}  # *chosen*
    assert {spec.protocol for spec in specs} == {"reconstructed"} and {spec.precision for spec in specs} == {"fp32"}
    assert {spec.partition for spec in specs} == {"dirichlet" if grid == "fedssa/dirichlet" else "by-class"}


# Scale record, one point of the papers' own grids, and where it is cut: N = 10 and sweeps have fewer rounds.
RECORD = {
    "fedssa/heterogeneous": {(10, 1.0, 20), (50, 0.2, 100), (100, 0.1, 100)},
    "audit/fedssa": {(100, 0.1, 100)},
    "fedssa/classes": {(100, 0.1, 50)},
    "fedgh/server_lr": {(100, 0.1, 50)},
    "pfedes/mu": {(100, 0.1, 50)},
    "fedssa/participation": {(100, 0.1, 100), (100, 0.5, 20), (100, 1.0, 10)},  # the same work for a client
    "pfedhr/labelled": {(12, 1 / 3, 40)},
}


@pytest.mark.parametrize("grid", RECORD)
def test_record_settings(grid):
    specs = [cell.spec for cell in exhibits.cells(grid, "record")]
    assert {(spec.num_clients, spec.participation, spec.rounds) for spec in specs} == RECORD[grid]
    epochs = {"audit/fedssa": 5, "pfedhr/labelled": 1}.get(grid, 10)
    assert {(spec.local_epochs, spec.batch_size, spec.precision) for spec in specs} == {(epochs, 64, "bf16")}
    assert {spec.seed for spec in specs} == {0, 1, 2}
    assert min(
        len({cell.value for cell in exhibits.cells(grid, scale, seeds=(0,))}) for scale in ("demo", "record")
    ) in (1, 3, 4)


@pytest.mark.parametrize("grid", exhibits.GRIDS)
def test_scale_demo_is_one_setting_one_data_set_and_one_seed(grid):
    cells = exhibits.cells(grid, "demo")
    assert {cell.spec.seed for cell in cells} == {0} and {cell.dataset for cell in cells} == {"cifar10"}
    assert len({cell.setting for cell in cells if cell.value in (None, cells[0].value)}) == 1


@pytest.mark.parametrize("grid", SWEPT)
def test_swept_values(grid):
    name = exhibits.GRIDS[grid].sweep
    for dataset, values in zip(("cifar10", "cifar100"), SWEPT[grid], strict=True):
        specs = [cell.spec for cell in exhibits.cells(grid, "paper", dataset)]
        found = {spec.params[name] if name in spec.params else getattr(spec, name) for spec in specs}
        assert found == set(values)


def test_what_is_chosen_is_what_a_run_gets():
    spec = exhibits.cells("fedssa/heterogeneous", "paper")[0].spec
    for name in ("rounds", "local_epochs", "batch_size"):
        assert exhibits.CHOSEN[name].split(",")[0] == str(getattr(spec, name))
    assert algorithms.make("FedSSA").mu(19, 500) > 0 == algorithms.make("FedSSA").mu(20, 500)
    assert exhibits.CHOSEN["stable_rounds"].startswith("20 of 500")
    proxy = algorithms.make("pFedES")
    assert exhibits.CHOSEN["mu and extractor_epochs"].startswith(f"{proxy.mu} and {proxy.extractor_epochs},")


def test_ablations_are_the_cases_of_the_paper():
    whole = {"aggregation": "whole", "replace": "all"}
    for name, cases in (
        ("table4", {"case A": whole | {"mu0": 0.0}, "case B": whole, "case C": {}}),
        ("table5", {"case A": {"replace": "all", "mu0": 0.0}, "case B": {"mu0": 0.0}, "case C": {}}),
    ):
        found = exhibits.cells(f"fedssa/{name}", "smoke")
        assert {cell.method[:6]: cell.spec.params for cell in found} == cases


def test_runs_that_exhibits_share_train_once():
    def keys(*grids):
        return {lab.resolve(cell.spec, "smoke").key for cell in exhibits.cells(grids, "smoke")}

    table = keys("fedssa/heterogeneous")
    assert keys("fedssa/representations") < table
    assert keys("fedgh/heterogeneous") < table
    assert keys("pfedes/representations", "pfedes/images") < keys("pfedes/heterogeneous") | table
    assert len(keys("fedssa/table4", "fedssa/table5") - table) == 4


def test_every_smoke_setting_says_what_it_stands_for():
    for cell in exhibits.cells(tuple(exhibits.GRIDS), "smoke"):
        papers_own = 12 if cell.spec.paper == "pFedHR" else 10
        if cell.num_clients == papers_own:
            assert cell.stands_for is None
        else:
            assert cell.stands_for in (papers_own, 100)
            assert labels.setting(num_clients=cell.num_clients) in cell.clients
            assert f"(for {labels.setting(num_clients=cell.stands_for)}" in cell.clients


@pytest.mark.parametrize(
    ("grid", "scale", "value", "label"),
    [
        ("fedssa/heterogeneous", "record", None, "CIFAR-10, N = 10, C = 100 %"),
        ("fedssa/heterogeneous", "smoke", None, "digits, N = 10, C = 100 %"),
        ("fedssa/classes", "smoke", 6, "digits, N = 12, C = 50 % (for N = 100, C = 10 %)"),
        ("fedssa/participation", "smoke", 0.3, "digits, N = 12 (for N = 100)"),
        ("pfedhr/labelled", "smoke", None, "digits, labelled, IID, N = 3 (for N = 12)"),
        ("pfedhr/clusters", "demo", 4, "CIFAR-10, Non-IID"),
        ("pfedhr/homogeneous", "paper", None, "MNIST, M1, IID"),
    ],
)
def test_a_label_is_made_of_typed_values(grid, scale, value, label):
    cell = next(cell for cell in exhibits.cells(grid, scale) if cell.value == value)
    assert cell.setting == label
    assert f"{labels.dataset(cell.dataset)}, {cell.clients}" == label


def test_a_cell_follows_its_specification():
    cell = exhibits.cells("fedssa/heterogeneous", "record")[0]
    other = replace(cell, spec=replace(cell.spec, num_clients=20, dataset="mnist"))
    assert (other.num_clients, other.dataset, other.setting) == (20, "mnist", "MNIST, N = 20, C = 100 %")
    own = exhibits.Cell(spec=lab.RunSpec("FedProto", num_clients=4))
    assert (own.method, own.setting) == ("FedProto", "digits, N = 4, C = 100 %")


def test_every_value_of_a_run_names_its_layer():
    cell = next(cell for cell in exhibits.cells("audit/pfedes", "smoke") if cell.method == "E_fe = 5")
    named = {"row": ("paper", "extractor_epochs"), "scale": ("rounds", "local_epochs", "seed")}
    named["exhibit"] = ("scenario", "num_clients", "participation", "dataset")
    assert all(cell.layers[name] == layer for layer, names in named.items() for name in names)
    (swept,) = {cell.layers["classes_per_client"] for cell in exhibits.cells("fedssa/classes", "paper")}
    assert swept == "exhibit"
    (changed,) = {cell.layers["rounds"] for cell in exhibits.cells("fedssa/classes", "paper", rounds=3)}
    assert changed == "yours"
    assert set().union(*(cell.layers.values() for cell in exhibits.cells(tuple(exhibits.GRIDS), "smoke"))) <= set(
        exhibits.LAYERS
    )


def test_an_exhibit_is_declared_once_and_every_grid_has_one_name():
    read = {grid for item in exhibits.every().values() for grid in item.grids}
    assert read == set(exhibits.GRIDS)


def test_an_unknown_grid_exhibit_or_scale_is_one_line():
    with pytest.raises(FedlibError, match=r"grid = 'fedssa/tabel4'.*fedssa/table4"):
        exhibits.cells("fedssa/tabel4", "smoke")
    with pytest.raises(FedlibError, match=r"exhibit = 'fedssa/tabel2'.*fedssa/table2"):
        exhibits.frame("fedssa/tabel2")
    with pytest.raises(FedlibError, match=r"scale = 'recrod' is unknown: did you mean 'record'"):
        exhibits.frame("fedssa/table2", "recrod")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Makes specifications the results of record."""

    def write(*specs, **provenance):
        write_results(tmp_path, [exhibits.Cell("", spec) for spec in specs], **provenance)

    monkeypatch.setattr("fedlib.lab.places.RESULTS", tmp_path)
    return write


def test_results_of_record_are_matched_by_what_was_run(results):
    cells = exhibits.cells("fedssa/table5", "record", "cifar100", (0, 1))
    ran = [cell for cell in cells if cell.method[:6] != "case B"]
    results(*(cell.spec for cell in ran))
    found = exhibits.frame("fedssa/table5")
    assert found["key"].tolist() == [lab.resolve(cell.spec).key for cell in ran]
    assert found["method"].tolist() == [cell.method for cell in ran]
    assert exhibits.frame("fedssa/table5", "paper").empty  # T, E and B are other ones
    # Case C is FedSSA of Table 2.
    assert set(exhibits.frame("fedssa/heterogeneous")["method"]) == {"FedSSA"}


@pytest.mark.parametrize(
    "change",
    [{"public_labels": False}, {"public_images": 200}, {"public_fraction": 0.02}, {"public_dataset": "mnist"}],
)
def test_results_of_record_of_other_public_data_are_not_taken_for_a_cell(results, change):
    cell = next(cell for cell in exhibits.cells("pfedhr/labelled", "record", "cifar10") if cell.method == "FedMD")
    results(replace(cell.spec, **change))
    assert exhibits.frame("pfedhr/labelled").empty
    results(cell.spec)
    assert exhibits.frame("pfedhr/labelled")["key"].tolist() == [lab.resolve(cell.spec, "record").key]


def test_papers_own_tables_have_our_labels():
    for paper, item, *names in (
        ("FedSSA", "Table 1", "fedssa/homogeneous"),
        ("pFedES", "Table 3", "pfedes/heterogeneous"),
        ("pFedHR", "Table 2", "pfedhr/labelled", "pfedhr/unlabelled"),
        ("pFedHR", "Table 3", "pfedhr/many-labelled", "pfedhr/many-unlabelled"),
        ("pFedHR", "Table 4", "pfedhr/homogeneous"),
    ):
        labels = {(cell.dataset, cell.clients) for cell in exhibits.cells(names, "paper")}
        table = printed.accuracies(paper, item)
        assert set(zip(table["dataset"], table["clients"], strict=True)) == labels
        assert set(table["method"]) <= {method for grid in names for method in exhibits.GRIDS[grid].methods}


@pytest.mark.parametrize("scale", lab.SCALES)
def test_a_scale_fixes_no_swept_quantity_and_no_setting(scale):
    for name, grid in exhibits.GRIDS.items():
        for cell in exhibits.cells(name, scale) if grid.sweep else ():
            assert grid.sweep
            found = {**vars(cell.spec), **cell.spec.params}[grid.sweep]
            assert found == cell.value, (name, cell)
    for cell in exhibits.cells("pfedhr/homogeneous", scale):
        assert labels.word("scenario", cell.spec.scenario) in ("M1", "M4")


def test_plan_at_scale_paper_prints_what_is_chosen(home, monkeypatch, capsys):
    monkeypatch.setattr(lab, "expected_seconds", lambda todo, known: [7200.0] * len(todo))
    run = lab.resolve(lab.RunSpec(), "smoke")
    monkeypatch.setattr(reproduce, "plan", lambda *given: reproduce.Plan({"one": run, "two": run}, {}, [], [run]))
    assert reproduce.reproduce("fedssa/table2", "paper", jobs=2, only="plan")
    shown = capsys.readouterr().out
    assert "2 runs needed, 1 stored, 1 to train" in shown and "about 2.0 hours" in shown
    assert "*chosen*" in shown and "rounds = 500" in shown
    assert not home.exists()


@pytest.mark.thorough
def test_ctrl_c_ends_a_batch_and_its_kernels(tmp_path):
    command = ["-m", "fedlib", "reproduce", "fedssa/table3"]
    with processes.started(*command, home=tmp_path) as process:
        processes.wait_for_text(process, "executing notebooks/fedssa/1_method.ipynb")
        batch = psutil.Process(process.pid)
        processes.wait_for(batch.children, "kernel")
        kernels = batch.children()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=processes.SECONDS)
    assert process.returncode == 130, said
    assert "fedlib: interrupted; the same command goes on from here" in said.strip().splitlines()
    assert not any(kernel.is_running() for kernel in kernels)


def test_whoever_changes_a_cell_changes_no_other():
    """The cells of a grid are made once and handed out as copies; any field may be replaced."""
    first, *_ = exhibits.cells("fedssa/table4", "smoke")
    before = dict(first.spec.params)
    first.spec.params["mu0"] = 0.123
    again, *_ = exhibits.cells("fedssa/table4", "smoke")
    assert again.spec.params == before != first.spec.params
    changed = exhibits.cells("fedssa/table4", "smoke", params={"mu0": 0.25}, lr=0.02)
    assert {(cell.spec.params["mu0"], cell.spec.lr) for cell in changed} == {(0.25, 0.02)}
    assert all(cell.layers["params"] == cell.layers["lr"] == "yours" for cell in changed)


def test_a_name_means_one_exhibit_those_of_a_paper_of_all_papers_or_everything():
    def named(name):
        return [item.name for item in exhibits.choose_exhibits(name)]

    assert named("all") == [*exhibits.EXHIBITS, *exhibits.AUDIT]
    assert named("papers") == [name for paper in exhibits.PAPERS for name in named(paper.lower())]
    assert named("audit") == list(exhibits.AUDIT) and named("fedssa/table2") == ["fedssa/table2"]


def test_methods_of_a_table_have_colours_of_their_own_and_further_baselines_share_none():
    for name, grid in exhibits.GRIDS.items():
        colours = {row: algorithms.ALGORITHMS[row].look.colour for row in grid.methods if row in algorithms.ALGORITHMS}
        assert len(set(colours.values())) == len(colours), (name, colours)
    further = [method.look.colour for method in algorithms.FURTHER]
    others = {method.look.colour for method in algorithms.OF_THE_PAPERS}
    assert len({*further} - others) == len(further)
