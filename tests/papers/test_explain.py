"""`fedlib exhibits`: the runs of an exhibit, resolved, and which layer gives each value."""

import pytest

from fedlib import lab
from fedlib.__main__ import main
from fedlib.papers import exhibits, explain


def said(text, capsys):
    assert main(text.split()) == 0
    return capsys.readouterr().out.splitlines()


def test_all_exhibits_are_listed_with_their_runs(capsys):
    lines = said("exhibits", capsys)
    assert max(map(len, lines)) <= 80
    named = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    assert named == list(exhibits.every())
    (line,) = [line for line in lines if line.startswith("fedssa/fig6")]
    assert line.split()[1:5] == ["2", "2", "6", "6"] and line.endswith("t-SNE of representations")


def test_an_exhibit_is_shown_with_its_settings_and_the_layer_of_each_value(capsys):
    lines = said("exhibits show fedssa/fig9 --scale demo", capsys)
    assert lines[0] == "fedssa/fig9: participation; fedssa/5_robustness.ipynb; 6 runs at scale demo"
    assert lines[1] == 'declared: grids."fedssa/participation" in fedlib/papers/exhibits.toml'
    assert [line.split() for line in lines[2:7]] == [
        ["methods:", "FedProto;", "FedSSA"],
        *(["C", "T"], ["0.1", "10"], ["0.5", "2"], ["1", "1"]),
    ]
    text = " ".join(map(str.strip, lines[7:]))
    assert "exhibit: data = cifar10; scenario = heterogeneous; N = 100; C = 0.1, 0.5, 1; T = 10, 2, 1" in text
    assert [word for word in text.split() if word[:-1] in exhibits.LAYERS] == ["default:", "scale:", "exhibit:"]
    assert "lr = 0.01" in text.partition("scale:")[0] and "B = 64; seed = 0;" in text


def test_settings_that_differ_in_one_value_share_a_line():
    cells = exhibits.cells("fedssa/table4", "record")
    table = explain.settings_of(cells, "record")
    assert list(table.columns) == ["data", "N", "C", "T", "mu0", "aggregation", "replace", "methods"]
    assert len(table) == 9 and set(table["data"]) == {"cifar10, cifar100"}
    assert table.loc[0, ["N", "T", "mu0", "methods"]].tolist() == ["10", "20", "0", "case A: LG-FedAvg, unweighted"]
    assert table.loc[8, ["N", "T", "mu0", "methods"]].tolist() == ["100", "100", "", "case C: FedSSA"]


@pytest.mark.thorough("smoke")
@pytest.mark.parametrize("scale", lab.SCALES)
def test_every_exhibit_is_shown_on_one_screen_without_data(scale, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "none"))
    for name, item in exhibits.every().items():
        lines = said(f"exhibits show {name} --scale {scale}", capsys)
        assert len(lines) <= 24 and max(map(len, lines)) <= 80, name
        text = " ".join(map(str.strip, lines))
        assert all(method in text for method in exhibits.methods(name)) and "nan" not in text, name
        assert not item.grids or "B = " in text


def test_an_exhibit_without_runs_and_a_wrong_name(capsys):
    assert said("exhibits show fedssa/fig3", capsys) == [
        "fedssa/fig3: decay of mu; fedssa/1_method.ipynb; 0 runs at scale smoke"
    ]
    for text, message in (
        ("exhibits show fedssa/fig77", "exhibit = 'fedssa/fig77' is unknown: did you mean 'fedssa/fig7'"),
        ("exhibits show fedssa/fig7 --scale huge", "scale = 'huge' is unknown"),
    ):
        assert main(text.split()) == 2
        assert message in capsys.readouterr().err


def test_what_a_row_and_a_protocol_give_is_told_apart():
    cells = [cell for cell in exhibits.cells("audit/fedssa", "smoke") if cell.method == "as released"]
    given = {layer: text.split("; ") for layer, text in explain.in_words(cells, "smoke").items()}
    assert "protocol = released" in given["row"] and not any("mu0" in text for own in given.values() for text in own)
    named = {text.split(" = ")[0] for text in given["default"]}
    assert {"lr", "stable_rounds", "classes_per_client"} <= named
