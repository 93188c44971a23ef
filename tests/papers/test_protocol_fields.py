"""Why the protocols' fields are what they are (fields.toml): complete, and nothing that the presets do not set apart."""

import dataclasses
import tomllib
from importlib.resources import files

import pytest

from fedlib.lab import RunSpec, presets, resolve
from fedlib.protocol import Protocol

PAPERS = ("FedSSA", "FedGH", "pFedES", "pFedHR")
SAID = tomllib.loads(files("fedlib.papers").joinpath("fields.toml").read_text(encoding="utf-8"))


def test_every_field_has_a_reason():
    ours = {"header_scale"}  # a control that no text and no code has
    assert set(SAID["fields"]) == {field.name for field in dataclasses.fields(Protocol)} - ours
    assert all(len(reasons.get(paper, reasons["all"])) > 5 for reasons in SAID["fields"].values() for paper in PAPERS)


def test_no_reason_without_a_parameter_that_differs():
    apart = {
        (paper, name) for paper in PAPERS for own in presets.preset(paper, "released").params.values() for name in own
    }
    assert apart == {(paper, name) for paper, reasons in SAID["parameters"].items() for name in reasons}


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
