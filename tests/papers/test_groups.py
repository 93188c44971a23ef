"""The groups of the results of record: what they name exists, seeds come in turn, what is on record is not trained again."""

import pytest
from results_of_record import of_record

from fedlib import lab
from fedlib.__main__ import main
from fedlib.errors import FedlibError
from fedlib.papers import exhibits, groups, recorded


@pytest.mark.parametrize("name", groups.GROUPS)
def test_every_part_of_a_group_names_cells_that_its_grid_has(name):
    for part in groups.GROUPS[name][1]:
        every = exhibits.cells(part.grid, "record")
        assert set(part.methods) <= {cell.method for cell in every}
        assert set(part.datasets) <= {cell.dataset for cell in every}
        assert set(part.num_clients) <= {cell.num_clients for cell in every}
        assert [cell.spec.seed for cell in part.cells()] == sorted(cell.spec.seed for cell in part.cells())
        assert part.cells()


def test_the_audit_asks_for_algorithm_1_in_the_released_pipeline_with_three_seeds():
    cells = groups.cells("audit")
    assert [cell.method for cell in cells[:5]] == list(groups._AUDITED_FEDSSA) and len(cells) == 3 * 5 + 3 * 4
    assert {cell.spec.seed for cell in cells[:5]} == {0}


def test_a_run_of_two_parts_stands_once_and_what_is_on_record_or_stored_is_not_open(monkeypatch):
    cells = groups.cells("why")
    keys = [lab.resolve(cell.spec, "record").key for cell in cells]
    assert len(set(keys)) == len(keys)
    held = [of_record(keys[0])]
    monkeypatch.setattr(recorded, "read_results", lambda: held)
    assert len(groups.open_cells("why")) == len(cells) - 1
    monkeypatch.setattr(lab, "missing", lambda specs, scale: [lab.resolve(spec, scale) for spec in specs][1:])
    assert len(groups.open_cells("why")) == len(cells) - 2


def test_a_group_trains_part_by_part_and_seed_by_seed_and_says_how_many_remain(monkeypatch):
    left = []

    def sweep(specs, scale, jobs, in_order, each):
        assert (scale, jobs, in_order) == ("record", 2, True)
        assert [spec.seed for spec in specs] == [0] * 5 + [1] * 5 + [2] * 5 + [0] * 4 + [1] * 4 + [2] * 4
        for run in range(len(specs)):
            each(len(specs) - 1 - run)

    monkeypatch.setattr(recorded, "read_results", lambda: [])
    monkeypatch.setattr(lab, "sweep", sweep)
    assert groups.train("audit", 2, left.append) == 27
    assert left == list(range(26, -1, -1))


def test_an_unknown_group_is_refused():
    with pytest.raises(FedlibError, match="group = 'audits' is unknown: did you mean 'audit'"):
        groups.cells("audits")


def test_the_command_lists_the_groups(capsys, monkeypatch):
    monkeypatch.setattr(lab, "expected_seconds", lambda runs: [3600.0] * len(runs))
    assert main(["record"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == list(groups.GROUPS)


def test_the_command_writes_the_results_after_each_run(capsys, monkeypatch):
    monkeypatch.setattr(recorded, "read_results", lambda: [])
    monkeypatch.setattr(lab, "sweep", lambda specs, scale, jobs, in_order, each: [each(1), each(0)])
    monkeypatch.setattr(recorded, "export", lambda: 62)
    assert main(["record", "audit"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"62 runs written to {recorded.RESULTS}; {left} of the group remain" for left in (1, 0)
    ]


def test_a_whole_group_says_so(capsys, monkeypatch):
    held = [of_record(lab.resolve(cell.spec, "record").key) for cell in groups.cells("why")]
    monkeypatch.setattr(recorded, "read_results", lambda: held)
    monkeypatch.setattr(recorded, "export", lambda: pytest.fail("nothing was trained"))
    assert main(["record", "why"]) == 0
    assert capsys.readouterr().out == "nothing to train: all 24 runs of why are of record or stored\n"
