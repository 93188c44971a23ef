"""The table of the protocols' fields: complete, and as the presets are."""

import dataclasses

import pytest

from fedlib.errors import FedlibError
from fedlib.lab import RunSpec, presets, resolve
from fedlib.papers import fields
from fedlib.protocol import Protocol

PAPERS = ("FedSSA", "FedGH", "pFedES", "pFedHR")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_field_has_a_row_and_a_reason(paper):
    table = fields.field_table(paper)
    ours = ("header_scale",)  # a control that no text and no code has
    names = [field.name for field in dataclasses.fields(Protocol) if field.name not in ours]
    assert list(table.index[: len(names)]) == names
    assert (table["why"].str.len() > 5).all()
    reconstructed = presets.protocol(paper, "reconstructed")
    assert table.loc["momentum", "reconstructed"] == str(reconstructed.momentum)


def test_no_reason_without_a_parameter_that_differs():
    used = {(paper, name) for paper in PAPERS for name in fields._set_apart(paper)}
    assert used == {(paper, name) for paper, reasons in fields.WHY_PARAMS.items() for name in reasons}


def test_an_unknown_paper_is_refused():
    with pytest.raises(FedlibError, match="paper = 'FedAvg' is unknown"):
        fields.field_table("FedAvg")


@pytest.mark.parametrize("paper", PAPERS[:3])
def test_reconstructed_is_the_text_with_the_codes_training(paper):
    protocols = {name: presets.protocol(paper, name) for name in ("paper", "released", "reconstructed")}
    of_the_text = {"split", "distinct", "floors", "optimiser", "lr", "starts", "inherit", "reserve"}
    for field in dataclasses.fields(Protocol):
        source = "paper" if field.name in of_the_text else "released"
        assert getattr(protocols["reconstructed"], field.name) == getattr(protocols[source], field.name), field.name
    assert protocols["reconstructed"].momentum == 0.9 and protocols["reconstructed"].lr == 0.01


def test_reconstructed_is_what_a_run_has_unless_it_says_otherwise():
    for name in (*PAPERS, "Standalone"):
        run = resolve(RunSpec(algorithm=name))
        assert run.spec.protocol == "reconstructed"
        assert run.spec.paper == (name if name in PAPERS else "FedSSA")
    for paper, name, text in (
        ("FedSSA", "stable_rounds", 0),
        ("pFedES", "mu", 0.1),
        ("FedGH", "server_update", "per_lar"),
    ):
        assert getattr(resolve(RunSpec(algorithm=paper)).algorithm, name) == text
