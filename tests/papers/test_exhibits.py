"""The grids ask for what the papers say: read against the settings of each exhibit, as their texts give them."""

import dataclasses
import signal
import tomllib
from dataclasses import replace
from importlib.resources import files

import processes
import psutil
import pytest
from results_of_record import write_results

from fedlib import algorithms, lab
from fedlib.__main__ import main
from fedlib.errors import FedlibError
from fedlib.lab.presets import protocol
from fedlib.papers import exhibits, explain, printed, reproduce
from fedlib.protocol import Protocol
from fedlib.show import labels

BOTH = {"cifar10", "cifar100"}
THREE = {(10, 1.0), (50, 0.2), (100, 0.1)}
TEN, HUNDRED = {(10, 1.0)}, {(100, 0.1)}
RATES = {(100, c) for c in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)}
SHARED = {"Standalone", "FML", "FedKD", "LG-FedAvg", "FD", "FedProto"}
# grid -> scenario, (N, C), data, methods: from the texts, FedSSA 6.1 to 6.3 and appendix F, FedGH 5.1 to 5.3, pFedES 6.1 to
# 6.3 and 10. FedGH in FedSSA's table is ours.
PAPER = {
    "fedssa/homogeneous": ("homogeneous", THREE, BOTH, SHARED | {"FedClassAvg", "FedSSA"}),
    "fedssa/heterogeneous": ("heterogeneous", THREE, BOTH, SHARED | {"FedClassAvg", "FedSSA", "FedGH"}),
    "fedssa/representations": ("heterogeneous", TEN, {"cifar10"}, {"FedProto", "FedSSA"}),
    "fedssa/classes": ("heterogeneous", HUNDRED, BOTH, {"FedProto", "FedSSA"}),
    "fedssa/dirichlet": ("heterogeneous", HUNDRED, BOTH, {"FedProto", "FedSSA"}),
    "fedssa/participation": ("heterogeneous", RATES, BOTH, {"FedProto", "FedSSA"}),
    "fedssa/table4": ("heterogeneous", THREE, BOTH, {"FedSSA"}),
    "fedssa/table5": ("heterogeneous", THREE, BOTH, {"FedSSA"}),
    "fedgh/homogeneous": ("homogeneous", THREE, BOTH, SHARED | {"FedAvg", "FedGH"}),
    "fedgh/curves": ("homogeneous", TEN, BOTH, SHARED | {"FedAvg", "FedGH"}),
    "fedgh/heterogeneous": ("heterogeneous", TEN, BOTH, SHARED | {"FedGH"}),
    "fedgh/classes": ("heterogeneous", TEN, BOTH, {"LG-FedAvg", "FedProto", "FedGH"}),
    "fedgh/participation": ("heterogeneous", RATES, BOTH, {"LG-FedAvg", "FedProto", "FedGH"}),
    "fedgh/server_lr": ("heterogeneous", TEN, BOTH, {"FedGH"}),
    "pfedes/homogeneous": ("homogeneous", THREE, BOTH, SHARED | {"pFedES"}),
    "pfedes/heterogeneous": ("heterogeneous", THREE, BOTH, SHARED | {"pFedES"}),
    "pfedes/representations": ("heterogeneous", TEN, {"cifar10"}, {"FedProto", "pFedES"}),
    "pfedes/images": ("heterogeneous", HUNDRED, {"cifar10"}, {"pFedES"}),
    "pfedes/classes": ("heterogeneous", HUNDRED, BOTH, {"FedProto", "pFedES"}),
    "pfedes/participation": ("heterogeneous", RATES, BOTH, {"FedProto", "pFedES"}),
    "pfedes/mu": ("heterogeneous", HUNDRED, BOTH, {"pFedES"}),
    "pfedes/extractor_epochs": ("heterogeneous", HUNDRED, BOTH, {"pFedES"}),
}
# The values of the swept quantity on CIFAR-10 and on CIFAR-100.
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
    specs = [cell.spec for cell in exhibits.cells(grid, "paper")]
    assert {spec.scenario for spec in specs} == {scenario}
    assert {(spec.num_clients, spec.participation) for spec in specs} == settings
    assert {spec.dataset for spec in specs} == data
    assert {spec.algorithm for spec in specs} == methods
    assert {spec.seed for spec in specs} == {0, 1, 2}
    assert {(spec.rounds, spec.local_epochs, spec.batch_size) for spec in specs} == {(500, 10, 512)}  # *chosen*
    assert {spec.protocol for spec in specs} == {"reconstructed"} and {spec.precision for spec in specs} == {"fp32"}
    assert {spec.partition for spec in specs} == {"dirichlet" if grid == "fedssa/dirichlet" else "by-class"}
    for dataset, values in zip(("cifar10", "cifar100"), SWEPT.get(grid, ()), strict=False):
        name = exhibits.GRIDS[grid].sweep
        own = [{**vars(spec), **spec.params}[name] for spec in specs if spec.dataset == dataset]
        assert set(own) == set(values)


# grid -> (N, C, T, E) at scale record
RECORD = {
    "fedssa/heterogeneous": {(10, 1.0, 100, 1), (50, 0.2, 100, 10), (100, 0.1, 100, 10)},
    "fedssa/classes": {(100, 0.1, 500, 1)},
    "fedssa/participation": {(100, 0.1, 100, 1), (100, 0.5, 100, 1), (100, 1.0, 100, 1)},
    "fedgh/server_lr": {(10, 1.0, 100, 1)},
    "pfedes/mu": {(100, 0.1, 100, 10)},
    "pfedhr/labelled": {(12, 1 / 3, 40, 1)},
    "audit/fedssa": {(100, 0.1, 100, 5)},
    "audit/fedgh": {(100, 0.1, 100, 5)},
    "audit/pfedes": {(100, 0.1, 100, 5)},
}


@pytest.mark.parametrize("grid", RECORD)
def test_record_settings(grid):
    specs = [cell.spec for cell in exhibits.cells(grid, "record")]
    assert {(spec.num_clients, spec.participation, spec.rounds, spec.local_epochs) for spec in specs} == RECORD[grid]
    assert {(spec.batch_size, spec.precision) for spec in specs} == {(64, "bf16")}
    assert {spec.seed for spec in specs} == {0, 1, 2}


@pytest.mark.parametrize("grid", [name for name in exhibits.GRIDS if name.startswith(("fedssa", "fedgh", "pfedes"))])
def test_scale_record_is_inside_the_papers_grids(grid):
    specs = [cell.spec for cell in exhibits.cells(grid, "record")]
    trained = {(spec.rounds, spec.local_epochs, spec.batch_size) for spec in specs}
    if grid.endswith("/representations"):  # made before; at T = 100 and E = 1 they are planned
        assert trained == {(20, 10, 64)}
    else:
        assert trained <= {(100, 1, 64), (100, 10, 64), (500, 1, 64)}


SGD = {"momentum": 0.0, "weight_decay": 0.0, "clip_norm": 0.0}
ALIKE = {"8:1:1 of each client": {"split": "local-8:1:1"}, "no augmentation": {"augmentation": "none"}}
RELEASED, TEXT = "as released", "the paper's text"
# grid, row -> rows that are compared with it -> what their names say that they change.
CASES = {
    ("audit/fedssa", RELEASED): {
        **ALIKE,
        "plain SGD at 0.01": SGD | {"lr": 0.01},
        "no inherited first visits": {"inherit": "none"},
        "mean over the selected owners": {"aggregate_over": "selected"},
        "no inheritance, selected owners": {"inherit": "none", "aggregate_over": "selected"},  # Algorithm 1
        "T_stable = 20": {"stable_rounds": 20},
    },
    ("audit/fedssa", "Standalone"): {"Standalone, inherited first visits": {"inherit": "first_visit"}},
    ("audit/fedgh", RELEASED): {
        **ALIKE,
        "plain SGD at 0.01": SGD,
        "the header is trained": {"server_update": "per_lar"},
        "no inheritance in round 0": {"inherit": "none"},
        "header trained, no inheritance": {"inherit": "none", "server_update": "per_lar"},
    },
    ("audit/fedgh", TEXT): {"the text, but header frozen": {"server_update": "frozen"}},
    ("audit/pfedes", RELEASED): {
        **ALIKE,
        "plain SGD at 0.01": SGD,
        "mu = 0.1": {"mu": 0.1},
        "E_fe = 5": {"extractor_epochs": 5},
    },
    ("audit/controls", "Standalone"): {"Standalone, three times the rate": {"lr": 0.03}},
    ("audit/controls", "FedSSA"): {
        "FedSSA, mu0 = 0": {"mu0": 0.0},
        "FedSSA, convex fusion": {"fusion": "convex"},
        "FedSSA, T_stable = 20": {"stable_rounds": 20},
        "FedSSA, T_stable = 20, convex": {"stable_rounds": 20, "fusion": "convex"},
    },
    ("fedssa/table4", "case C: FedSSA"): {
        "case A: LG-FedAvg, unweighted": {"aggregation": "whole", "replace": "all", "mu0": 0.0},
        "case B: A with stabilisation": {"aggregation": "whole", "replace": "all"},
    },
    ("fedssa/table5", "case C: FedSSA"): {
        "case A: by class, all rows replaced": {"replace": "all", "mu0": 0.0},
        "case B: by class, seen rows replaced": {"mu0": 0.0},
    },
}


def resolved(grid, scale="record"):
    """The first run of each row."""
    cells = reversed(exhibits.cells(grid, scale, seeds=(0,)))
    return {cell.method: lab.resolve(cell.spec, scale) for cell in cells}


@pytest.mark.parametrize(("grid", "reference"), CASES)
def test_a_row_differs_from_its_reference_in_what_its_name_says(grid, reference):
    runs = resolved(grid)
    for row, changed in CASES[grid, reference].items():
        own, base = ({**runs[name].hashed["protocol"], **runs[name].hashed["params"]} for name in (row, reference))
        assert own.keys() == base.keys()
        assert {name: own[name] for name in own if own[name] != base[name]} == changed, row
        one, other = (replace(runs[name].spec, params={}, overrides={}, lr=None) for name in (row, reference))
        assert one == other, row


def test_the_other_rows_of_the_audit():
    for grid, paper in (("fedssa", "FedSSA"), ("fedgh", "FedGH"), ("pfedes", "pFedES")):
        runs = resolved(f"audit/{grid}")
        assert runs[RELEASED].protocol == protocol(paper, "released")
        assert runs[TEXT].protocol == protocol(paper, "paper")
    shipped, text = {"mu": 0.5, "extractor_epochs": 0, "extra_epochs": 10}, {"mu": 0.1, "extractor_epochs": 5}
    assert runs[RELEASED].spec.params.items() >= shipped.items()  # 0: E + 10
    assert runs[TEXT].spec.params.items() >= text.items()  # what its sweep finds best
    controls = resolved("audit/controls")
    rounds = [round for round in range(100) if controls["FedSSA"].algorithm.mu(round, 100)]
    longer = [round for round in range(100) if controls["FedSSA, T_stable = 20"].algorithm.mu(round, 100)]
    assert (rounds, longer) == (list(range(4)), list(range(20)))
    for name in ("Standalone", "FedSSA"):  # a precision is compared on the same specification
        one, other = (resolved("audit/precision")[f"{name}, {precision}"].spec for precision in ("fp32", "bf16"))
        assert (one.precision, other.precision) == ("fp32", "bf16") and replace(one, precision="bf16") == other


@pytest.mark.parametrize(
    ("grid", "whole", "scale", "new"),  # grids, those whose runs they are, and how many they have besides
    [
        (("fedssa/representations",), ("fedssa/heterogeneous",), "smoke", 0),
        (("fedgh/heterogeneous",), ("fedssa/heterogeneous",), "smoke", 0),
        (("pfedes/representations", "pfedes/images"), ("pfedes/heterogeneous", "fedssa/heterogeneous"), "smoke", 0),
        (("fedssa/table4", "fedssa/table5"), ("fedssa/heterogeneous",), "smoke", 4),
        (("audit/controls",), ("fedssa/heterogeneous",), "record", 5 * 3),
    ],
)
def test_runs_that_exhibits_share_train_once(grid, whole, scale, new):
    own, known = (
        {lab.resolve(cell.spec, scale).key for cell in exhibits.cells(names, scale)} for names in (grid, whole)
    )
    assert own & known and len(own - known) == new


@pytest.mark.parametrize("scale", lab.SCALES)
def test_a_scale_fixes_no_swept_quantity_and_no_setting(scale):
    for name, grid in exhibits.GRIDS.items():
        for cell in exhibits.cells(name, scale) if grid.sweep else ():
            assert {**vars(cell.spec), **cell.spec.params}[grid.sweep] == cell.value, (name, cell)
    for cell in exhibits.cells("pfedhr/homogeneous", scale):
        assert labels.word("scenario", cell.spec.scenario) in ("M1", "M4")


@pytest.mark.parametrize("grid", exhibits.GRIDS)
def test_scale_demo_is_one_setting_one_data_set_and_one_seed(grid):
    cells = exhibits.cells(grid, "demo")
    assert {cell.spec.seed for cell in cells} == {0} and {cell.dataset for cell in cells} == {"cifar10"}
    assert len({cell.setting for cell in cells if cell.value in (None, cells[0].value)}) == 1


def test_what_is_chosen_is_what_a_run_gets():
    spec = exhibits.cells("fedssa/heterogeneous", "paper")[0].spec
    for name in ("rounds", "local_epochs", "batch_size"):
        assert exhibits.CHOSEN[name].split(",")[0] == str(getattr(spec, name))
    assert algorithms.make("FedSSA").mu(19, 500) > 0 == algorithms.make("FedSSA").mu(20, 500)
    assert exhibits.CHOSEN["stable_rounds"].startswith("20 of 500")
    proxy = algorithms.make("pFedES")
    assert exhibits.CHOSEN["mu and extractor_epochs"].startswith(f"{proxy.mu} and {proxy.extractor_epochs},")


# -------------------------------------------------------------------------------------- why the protocols are what they are

PAPERS = ("FedSSA", "FedGH", "pFedES", "pFedHR")
OF_THE_TEXT = {"split", "distinct", "floors", "optimiser", "lr", "starts", "inherit", "reserve"}


@pytest.mark.parametrize("paper", PAPERS[:3])
def test_reconstructed_is_the_text_with_the_codes_training(paper):
    given = {name: protocol(paper, name) for name in ("paper", "released", "reconstructed")}
    for field in dataclasses.fields(Protocol):
        source = given["paper" if field.name in OF_THE_TEXT else "released"]
        assert getattr(given["reconstructed"], field.name) == getattr(source, field.name), field.name
    assert (given["reconstructed"].momentum, given["reconstructed"].lr) == (0.9, 0.01)
    run = lab.resolve(lab.RunSpec(paper))
    assert (run.spec.protocol, run.spec.paper) == ("reconstructed", paper)
    text = {"FedSSA": ("stable_rounds", 0), "pFedES": ("mu", 0.1), "FedGH": ("server_update", "per_lar")}
    assert getattr(run.algorithm, text[paper][0]) == text[paper][1]


def test_every_field_that_a_protocol_sets_has_a_reason_and_no_other_has():
    said = tomllib.loads(files("fedlib.papers").joinpath("fields.toml").read_text(encoding="utf-8"))
    fields = {field.name for field in dataclasses.fields(Protocol)} - {"header_scale"}  # which no text and no code has
    assert set(said["fields"]) == fields
    assert all(reasons.get(paper, reasons["all"]) for reasons in said["fields"].values() for paper in PAPERS)
    apart = {
        (paper, name)
        for paper in PAPERS
        for own in lab.presets.preset(paper, "released").params.values()
        for name in own
    }
    assert apart == {(paper, name) for paper, reasons in said["parameters"].items() for name in reasons}


# ------------------------------------------------------------------------------------------------------------------- labels


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
    assert cell.setting == f"{labels.dataset(cell.dataset)}, {cell.clients}" == label
    other = replace(cell, spec=replace(cell.spec, num_clients=20, dataset="mnist"))  # a cell follows its specification
    assert (other.num_clients, other.dataset) == (20, "mnist") and other.setting.startswith("MNIST, ")


def test_every_smoke_setting_says_what_it_stands_for():
    for cell in exhibits.cells(tuple(exhibits.GRIDS), "smoke"):
        papers_own = 12 if cell.spec.paper == "pFedHR" else 10
        if cell.num_clients == papers_own:
            assert cell.stands_for is None
        else:
            assert cell.stands_for in (papers_own, 100)
            assert labels.setting(num_clients=cell.num_clients) in cell.clients
            assert f"(for {labels.setting(num_clients=cell.stands_for)}" in cell.clients


def test_papers_own_tables_have_our_labels():
    for paper, item, *names in (
        ("FedSSA", "Table 1", "fedssa/homogeneous"),
        ("pFedES", "Table 3", "pfedes/heterogeneous"),
        ("pFedHR", "Table 2", "pfedhr/labelled", "pfedhr/unlabelled"),
        ("pFedHR", "Table 3", "pfedhr/many-labelled", "pfedhr/many-unlabelled"),
        ("pFedHR", "Table 4", "pfedhr/homogeneous"),
    ):
        table, cells = printed.accuracies(paper, item), exhibits.cells(names, "paper")
        found = set(zip(table["dataset"], table["clients"], strict=True))
        assert found == {(cell.dataset, cell.clients) for cell in cells}
        assert set(table["method"]) <= {method for grid in names for method in exhibits.GRIDS[grid].methods}


def test_methods_of_a_table_have_colours_of_their_own_and_further_baselines_share_none():
    for name, grid in exhibits.GRIDS.items():
        colours = {row: algorithms.ALGORITHMS[row].look.colour for row in grid.methods if row in algorithms.ALGORITHMS}
        assert len(set(colours.values())) == len(colours), (name, colours)
    further = [method.look.colour for method in algorithms.FURTHER]
    others = {method.look.colour for method in algorithms.OF_THE_PAPERS}
    assert len({*further} - others) == len(further)


# ---------------------------------------------------------------------------------------------------- names, cells, records


def test_a_name_means_one_exhibit_those_of_a_paper_of_all_papers_or_everything():
    def named(name):
        return [item.name for item in exhibits.choose_exhibits(name)]

    assert named("all") == [*exhibits.EXHIBITS, *exhibits.AUDIT] == [*exhibits.every()]
    assert named("papers") == [name for paper in exhibits.PAPERS for name in named(paper.lower())]
    assert named("audit") == list(exhibits.AUDIT) and named("fedssa/table2") == ["fedssa/table2"]
    read = {grid for item in exhibits.every().values() for grid in item.grids}
    assert read == set(exhibits.GRIDS)  # a grid that no exhibit reads is a mistake


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exhibits.cells("fedssa/tabel4", "smoke"), r"grid = 'fedssa/tabel4'.*fedssa/table4"),
        (lambda: exhibits.frame("fedssa/tabel2"), r"exhibit = 'fedssa/tabel2'.*fedssa/table2"),
        (lambda: exhibits.frame("fedssa/table2", "recrod"), "scale = 'recrod' is unknown: did you mean 'record'"),
    ],
)
def test_an_unknown_grid_exhibit_or_scale_is_one_line(call, message):
    with pytest.raises(FedlibError, match=message):
        call()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("fig77", "exhibit = 'fedssa/fig77' is unknown: did you mean 'fedssa/fig7'"),
        ("fig7 --scale huge", "scale = 'huge' is unknown"),
    ],
)
def test_a_wrong_name_is_one_line(given, message, capsys):
    assert main(f"exhibits show fedssa/{given}".split()) == 2 and message in capsys.readouterr().err


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


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Makes specifications the results of record."""
    monkeypatch.setattr("fedlib.lab.places.RESULTS", tmp_path)
    return lambda *specs: write_results(tmp_path, [exhibits.Cell("", spec) for spec in specs])


def test_results_of_record_are_matched_by_what_was_run(results):
    cells = exhibits.cells("fedssa/table5", "record", "cifar100", (0, 1))
    ran = [cell for cell in cells if cell.method[:6] != "case B"]
    results(*(cell.spec for cell in ran))
    found = exhibits.frame("fedssa/table5")
    assert found["key"].tolist() == [lab.resolve(cell.spec).key for cell in ran]
    assert found["method"].tolist() == [cell.method for cell in ran]
    assert exhibits.frame("fedssa/table5", "paper").empty  # T, E and B are other ones
    assert set(exhibits.frame("fedssa/heterogeneous")["method"]) == {"FedSSA"}  # case C is FedSSA of Table 2


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


# ------------------------------------------------------------------------------------------------------------- the commands


def said(text, capsys):
    assert main(text.split()) == 0
    return capsys.readouterr().out.splitlines()


def test_an_exhibit_is_shown_with_its_settings_and_the_layer_of_each_value(capsys):
    (line,) = [line for line in said("exhibits", capsys) if line.startswith("fedssa/fig6")]
    assert line.split()[1:5] == ["2", "2", "6", "6"]  # runs at each scale
    lines = said("exhibits show fedssa/fig9 --scale demo", capsys)
    assert lines[0] == "fedssa/fig9: participation; fedssa/5_robustness.ipynb; 6 runs at scale demo"
    assert [line.split() for line in lines[2:7]] == [
        ["methods:", "FedProto;", "FedSSA"],
        *(["C", "T"], ["0.1", "10"], ["0.5", "2"], ["1", "1"]),
    ]
    text = " ".join(map(str.strip, lines[7:]))
    assert "exhibit: data = cifar10; scenario = heterogeneous; N = 100; C = 0.1, 0.5, 1; T = 10, 2, 1" in text
    assert [word for word in text.split() if word[:-1] in exhibits.LAYERS] == ["default:", "scale:", "exhibit:"]
    assert "lr = 0.01" in text.partition("scale:")[0] and "B = 64; seed = 0;" in text
    assert said("exhibits show fedssa/fig3", capsys) == [
        "fedssa/fig3: decay of mu; fedssa/1_method.ipynb; 0 runs at scale smoke"
    ]
    cells = [cell for cell in exhibits.cells("audit/fedssa", "smoke") if cell.method == RELEASED]
    given = {layer: text.split("; ") for layer, text in explain.in_words(cells, "smoke").items()}
    assert "protocol = released" in given["row"]  # told apart from what the protocol gives
    assert {"lr", "stable_rounds", "classes_per_client"} <= {text.split(" = ")[0] for text in given["default"]}


def test_settings_that_differ_in_one_value_share_a_line():
    table = explain.settings_of(exhibits.cells("fedssa/table4", "record"), "record")
    assert list(table.columns) == ["data", "N", "C", "E", "mu0", "aggregation", "replace", "methods"]
    assert len(table) == 9 and set(table["data"]) == {"cifar10, cifar100"}
    assert table.loc[0, ["N", "E", "mu0", "methods"]].tolist() == ["10", "1", "0", "case A: LG-FedAvg, unweighted"]
    assert table.loc[8, ["N", "E", "mu0", "methods"]].tolist() == ["100", "", "", "case C: FedSSA"]


@pytest.mark.thorough("smoke")
@pytest.mark.parametrize("scale", lab.SCALES)
def test_every_exhibit_is_shown_on_one_screen_without_data(scale, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "none"))
    for name in exhibits.every():
        lines = said(f"exhibits show {name} --scale {scale}", capsys)
        text = " ".join(map(str.strip, lines))
        assert len(lines) <= 24 and max(map(len, lines)) <= 80, name
        assert all(method in text for method in exhibits.methods(name)) and "nan" not in text, name


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
    with processes.started("-m", "fedlib", "reproduce", "fedssa/table3", home=tmp_path) as process:
        processes.wait_for_text(process, "executing notebooks/fedssa/1_method.ipynb")
        batch = psutil.Process(process.pid)
        processes.wait_for(batch.children, "kernel")
        kernels = batch.children()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=processes.SECONDS)
    assert process.returncode == 130, said
    assert "fedlib: interrupted; the same command goes on from here" in said.strip().splitlines()
    assert not any(kernel.is_running() for kernel in kernels)


def test_a_readers_precision_leaves_rows_that_are_about_it():
    for asked in ("fp32", "bf16"):
        found = exhibits.cells("audit/precision", "smoke", precision=asked)
        assert {cell.spec.precision for cell in found} == {"fp32", "bf16"}
        assert {cell.spec.precision for cell in exhibits.cells("fedssa/table4", "smoke", precision=asked)} == {asked}
