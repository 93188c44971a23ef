"""What the README and the site's pages tell a reader to type works: the commands parse, the example method trains."""

import re
import shlex
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.io import write_png

from fedlib import RunSpec, __main__, models, run
from fedlib.sample import Sample

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs/pages").glob("*.md"), *ROOT.glob("packages/*/README.md")])


def commands(text: str) -> list[str]:
    """What follows `fedlib ` in blocks of code and in inline code, without what is left to the reader."""
    blocks = re.findall(r"^(?: {4}|)(fedlib .*)$", text, re.M) + re.findall(r"`(fedlib [^`]+)`", text)
    typed = [command.partition(" > ")[0] for command in blocks]  # without where the shell sends what is printed
    return [command for command in typed if "..." not in command and "COMMAND" not in command]


def test_commands_are_found():
    assert sum(len(commands(page.read_text())) for page in PAGES) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_is_understood(page):
    for command in commands(page.read_text(encoding="utf-8")):
        words = shlex.split(command, comments=True)[1:]
        if words[0] in __main__.WING and not entry_points(group="fedlib.commands"):
            continue  # its commands come with the package
        if len(words) == 1 or words == ["run", "--spec"]:  # what is only named
            assert words[0] in [*__main__.app, *__main__.WING], command
        else:
            __main__.parse(words)  # raises FedlibError for what no command understands


@pytest.mark.thorough
def test_the_method_of_the_page_own_can_be_run(tmp_path, small_digits):
    page = (ROOT / "docs/pages/own.md").read_text(encoding="utf-8")
    source = re.findall(r"```python\n(.*?)```", page, re.S)[0]
    assert 'run(RunSpec("Mine", dataset="digits"))' in page
    file = tmp_path / "own_example.py"
    file.write_text(source)
    place = spec_from_file_location("own_example", file)
    assert place and place.loader
    module = module_from_spec(place)
    place.loader.exec_module(module)
    record = run(RunSpec("Mine", dataset="digits", num_clients=4, rounds=2), progress=False)
    assert record.status == "finished" and record.rounds["upload_words"].iloc[-1] == 4 * 5010
    faster = RunSpec("Mine", dataset="digits", num_clients=4, rounds=2, params={"rate": 0.5})
    assert run(faster, progress=False).digest != record.digest


@pytest.mark.thorough
def test_the_data_and_networks_of_the_page_own_can_be_run(tmp_path, monkeypatch):
    page, stream = (ROOT / "docs/pages/own.md").read_text(encoding="utf-8"), np.random.default_rng(0)
    known = {f"x_{part}": stream.random((size, 561)) for part, size in (("train", 300), ("test", 60))}
    known |= {f"y_{part}": np.arange(size) % 6 for part, size in (("train", 300), ("test", 60))}
    monkeypatch.chdir(tmp_path)
    for domain in ("amazon", "caltech", "dslr", "webcam"):
        for number in range(20):
            place = tmp_path / "office_caltech_10" / domain / f"class{number % 2}"
            place.mkdir(parents=True, exist_ok=True)
            write_png(torch.full((3, 40, 50), 10 * number, dtype=torch.uint8), str(place / f"{number}.png"))
    for source in re.findall(r"```python\n(.*?)```", page, re.S)[1:]:
        source = source.replace("rounds=20", "rounds=1")
        exec(source.replace("num_clients=10", "num_clients=4, rounds=1"), known)
    sample = Sample("tokens", (5,), "int64", 9)
    words = models.build("Words", 3, sample, np.random.default_rng(0))
    assert words(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 3)


def test_there_is_one_version():
    stated = {
        "pyproject.toml": r'^version = "(.*)"$',
        "packages/flower/pyproject.toml": r'^version = "(.*)"$',
        "fedlib/__init__.py": r'^__version__ = "(.*)"$',
        "CITATION.cff": r"^version: (.*)$",
        ".zenodo.json": r'^  "version": "(.*)",$',
        "CHANGELOG.md": r"^## (\d\S*)$",  # after what is unreleased
    }
    found = {file: re.search(line, (ROOT / file).read_text(), re.M) for file, line in stated.items()}
    assert len({match and match[1] for match in found.values()}) == 1, found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]
    named = re.findall(r"`((?:tests|fedlib|docs)/[\w/.]+)`", page.read_text(encoding="utf-8"))
    assert not [path for path in named if not (ROOT / path).exists()]
