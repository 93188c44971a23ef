"""The audit: one difference at a time from the released code, paired by seed."""

from dataclasses import replace

import pytest

from fedlib import lab
from fedlib.lab.presets import protocol
from fedlib.papers import exhibits


@pytest.mark.parametrize(("grid", "paper"), [("fedssa", "FedSSA"), ("fedgh", "FedGH"), ("pfedes", "pFedES")])
def test_each_case_differs_from_the_reference_in_what_its_name_says(grid, paper):
    declared = exhibits.GRIDS[f"audit/{grid}"]
    specs = {
        cell.method: lab.resolve(cell.spec, "smoke") for cell in exhibits.cells(f"audit/{grid}", "smoke", "digits")
    }
    reference = specs["as released"]
    assert reference.protocol == protocol(paper, "released")

    def changed(case):
        own, base = specs[case].hashed, specs[declared.instead.get(case, "as released")].hashed
        fields = {name for name in own["protocol"] if own["protocol"][name] != base["protocol"][name]}
        return fields | {name for name in own["params"] if own["params"][name] != base["params"].get(name)}

    assert changed("8:1:1 of each client") == {"split"}
    assert changed("no augmentation") == {"augmentation"}
    assert changed("plain SGD at 0.01") - {"lr"} == {"momentum", "weight_decay", "clip_norm"}
    named = {
        "no inherited first visits": {"inherit"},
        "mean over the selected owners": {"aggregate_over"},
        "T_stable = 20": {"stable_rounds"},
        "the header is trained": {"server_update"},
        "no inheritance in round 0": {"inherit"},
        "the text, but header frozen": {"server_update"},
        "mu = 0.1": {"mu"},
        "E_fe = 5": {"extractor_epochs"},
    }
    for case in set(named) & set(specs):
        assert changed(case) == named[case], case
    assert specs["the paper's text"].protocol == protocol(paper, "paper")


def test_what_pfedes_ships_and_what_its_sweep_finds_best():
    for scale, shipped, best in (("record", 0, 5), ("paper", 0, 5), ("smoke", 2, 1)):  # 0: E + 10
        cells = exhibits.cells("audit/pfedes", scale, "digits", (0,))
        params = {cell.method: lab.resolve(cell.spec, scale).spec.params for cell in cells}
        assert (params["as released"]["mu"], params["mu = 0.1"]["mu"]) == (0.5, 0.1)
        assert params["as released"]["extractor_epochs"] == shipped
        assert params["as released"]["extra_epochs"] == 10
        assert params["E_fe = 5"]["extractor_epochs"] == params["the paper's text"]["extractor_epochs"] == best


def test_scale_record_has_one_t_and_the_case_of_algorithm_1():
    for name, dataset in (("fedssa", "cifar100"), ("fedgh", "cifar10"), ("pfedes", "cifar10")):
        specs = [cell.spec for cell in exhibits.cells(f"audit/{name}", "record")]
        assert {(spec.num_clients, spec.participation, spec.batch_size) for spec in specs} == {(100, 0.1, 64)}
        assert {(spec.rounds, spec.local_epochs, spec.dataset) for spec in specs} == {(100, 5, dataset)}
        assert {spec.seed for spec in specs} == {0, 1, 2}
    case = lab.resolve(specs_of("fedssa")["no inheritance, selected owners"])
    assert case.protocol.inherit == "none" and case.algorithm.aggregate_over == "selected"
    assert case.protocol.momentum == 0.9 and case.spec.protocol == "released"
    assert specs_of("fedgh")["Standalone"].algorithm == "Standalone"


def specs_of(name):
    return {cell.method: cell.spec for cell in exhibits.cells(f"audit/{name}", "record", seeds=(0,))}


def test_controls_stand_beside_fedssa():
    controls = {name: lab.resolve(spec) for name, spec in specs_of("controls").items()}
    assert controls["FedSSA, convex fusion"].algorithm.fusion == "convex"
    assert controls["FedSSA, mu0 = 0"].algorithm.mu0 == 0
    long, convex, own = (
        controls[name].algorithm for name in ("FedSSA, T_stable = 20", "FedSSA, T_stable = 20, convex", "FedSSA")
    )
    assert [round for round in range(100) if long.mu(round, 100)] == list(range(20))
    assert [long.mu(round, 100) for round in range(100)] == [convex.mu(round, 100) for round in range(100)]
    assert (long.fusion, convex.fusion) == ("literal", "convex")
    assert [round for round in range(100) if own.mu(round, 100)] == list(range(4))
    assert controls["Standalone, three times the rate"].protocol.lr == 3 * controls["Standalone"].protocol.lr
    table = {lab.resolve(cell.spec).key for cell in exhibits.cells("fedssa/heterogeneous", "record", seeds=(0,))}
    assert {controls["FedSSA"].key, controls["Standalone"].key} < table  # they train once


def test_a_precision_is_compared_on_the_same_specification():
    specs = specs_of("precision")
    for name in ("Standalone", "FedSSA"):
        one, other = specs[f"{name}, fp32"], specs[f"{name}, bf16"]
        assert (one.precision, other.precision) == ("fp32", "bf16") and replace(one, precision="bf16") == other
