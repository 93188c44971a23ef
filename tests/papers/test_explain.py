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


def test_an_exhibit_is_shown_run_by_run_with_the_layer_of_each_value(capsys):
    lines = said("exhibits show fedssa/fig7 --scale record", capsys)
    title = "fedssa/fig7: classes a client holds; fedssa/5_robustness.ipynb; 18 runs at scale record"
    assert " ".join(map(str.strip, lines[:2])) == title
    assert " ".join(lines[2].split()) == "method value seed differs in"
    rows = lines[3 : lines.index("")]
    assert len(rows) == 18 and max(map(len, lines)) <= 80
    assert " ".join(rows[3].split()) == "FedProto 6 0 6 classes, bf16"
    layers, named = {}, []
    for line in lines[lines.index("") + 1 :]:
        if line.startswith(" "):
            layers[line.split()[0]] = [named[-1], *line.split()[1:]]
        else:
            named.append(line.partition(":")[0])
    assert named == ["default", "scale", "exhibit"]
    assert layers["num_clients"] == ["exhibit", "18", "100"] and layers["rounds"] == ["exhibit", "18", "50"]
    assert layers["lr"] == ["default", "18", "0.01"] and layers["classes_per_client"][:2] == ["exhibit", "18"]
    assert "exhibit: the exhibit at this scale, in fedlib/papers/exhibits.toml" in lines


def test_a_small_exhibit_is_shown_within_a_screen(capsys):
    lines = said("exhibits show fedssa/fig9 --scale demo", capsys)
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


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


@pytest.mark.parametrize("scale", lab.SCALES)
def test_every_exhibit_can_be_shown_without_data(scale, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "none"))
    for item in exhibits.every().values():
        cells = exhibits.cells(item.grids, scale, seeds=(0,))
        if cells:
            rows, layers = explain.resolved_rows(cells, scale), explain.layers_of(cells, scale)
            assert len(rows) == len(cells) and not rows[["N", "C", "T", "E", "B", "lr"]].isna().any(axis=None)
            assert set(layers["layer"]) <= set(explain.used_layers(layers))
            assert layers.groupby("field")["runs"].sum().max() <= len(cells)


def test_what_a_row_and_a_protocol_give_is_told_apart():
    cells = [cell for cell in exhibits.cells("audit/fedssa", "smoke") if cell.method == "as released"]
    layers = explain.layers_of(cells, "smoke").set_index("field")["layer"]
    assert layers["protocol"] == "row" and layers["lr"] == layers["stable_rounds"] == "default"
    assert layers["classes_per_client"] == "default" and "mu0" not in layers
