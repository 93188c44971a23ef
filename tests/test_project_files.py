"""Files that others' services read: they parse, they name commands, paths and versions that are there. What GitHub, PyPI, Zenodo
and JOSS then make of them, no test here can see.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement

from fedlib.cli.methods import reference

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    path
    for pattern in ("*.cff", "*.json", "*.yml", "*.yaml", ".github/**/*.yml")
    for path in ROOT.glob(pattern)
    if path.is_file()
)
WORKFLOWS = [path for path in FILES if path.parent.name == "workflows"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS, EXTRA_PINS = (
    dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / name).read_text(), re.M))
    for name in ("requirements.txt", "requirements-extras.txt")
)
TARGETS = [*re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(), re.M), ".venv/installed"]


def read(path: Path):
    return json.loads(path.read_text()) if path.suffix == ".json" else yaml.safe_load(path.read_text())


def test_each_file_is_there_and_parses():
    wanted = {".github/dependabot.yml", ".pre-commit-config.yaml", ".zenodo.json", "CITATION.cff", "environment.yml"}
    assert wanted <= {str(path.relative_to(ROOT)) for path in FILES} and len(WORKFLOWS) >= 3
    for path in FILES:
        assert isinstance(read(path), dict), path


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where a command stands, and its words."""
    for path in WORKFLOWS:
        for job in read(path)["jobs"].values():
            for step in job["steps"]:
                if "run" in step:
                    yield path.name, shlex.split(re.sub(r"\$\{\{.*?\}\}", "VALUE", step["run"]))
    for repository in read(ROOT / ".pre-commit-config.yaml")["repos"]:
        for hook in repository["hooks"]:
            yield ".pre-commit-config.yaml", shlex.split(hook["entry"])


@pytest.mark.parametrize(("place", "words"), list(commands()))
def test_what_is_run_is_there(place, words):
    words = words[1:] if words[0] == "sudo" else words
    first = words[0]
    if first == "make":
        assert set(words[1:]) <= set(TARGETS)
    elif first.startswith(".venv/bin/"):
        assert first.removeprefix(".venv/bin/") in [*PINS, "python", "uv"]
    elif "/" in first:
        assert (ROOT / first).is_file() and (ROOT / first).stat().st_mode & 0o100
    else:
        assert first in ("python", "grep")
    if words[1:3] == ["-m", "pytest"]:
        assert "pytest" in PINS and all((ROOT / word).exists() for word in words if word.startswith("tests/"))
        assert any(word.startswith("tests/") for word in words)


def test_the_pythons_are_those_of_the_package():
    stated = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    jobs = read(ROOT / ".github/workflows/test.yml")["jobs"]
    assert [job["strategy"]["matrix"]["python"] for job in jobs.values()] == [stated] * len(jobs)
    oldest, newest = (int(version.split(".")[1]) for version in (stated[0], stated[-1]))
    assert PROJECT["requires-python"] == f">=3.{oldest},<3.{newest + 1}"


def test_every_range_of_the_package_has_the_version_that_was_tried():
    """The lock's, or of an extra that `make` does not install that of requirements-extras.txt."""
    extras = PROJECT["optional-dependencies"]
    stated = [
        Requirement(text) for text in [*PROJECT["dependencies"], *(text for some in extras.values() for text in some)]
    ]
    for requirement in stated:
        pins = PINS if requirement.name in PINS else EXTRA_PINS
        assert requirement.specifier.contains(pins[requirement.name]), requirement
        assert "==" not in str(requirement.specifier), "an exact pin is for requirements"
    assert not set(PINS) & set(EXTRA_PINS)


def test_what_is_said_of_the_project_is_said_alike():
    cited, archived = read(ROOT / "CITATION.cff"), read(ROOT / ".zenodo.json")
    paper = yaml.safe_load((ROOT / "paper.md").read_text().split("---\n")[1])
    assert {cited["title"], archived["title"]} == {paper["title"]}
    assert {PROJECT["license"], cited["license"]} == {archived["license"]}
    people = [entry["name"] for entry in PROJECT["authors"]]
    assert [entry["name"] for entry in cited["authors"]] == [entry["name"] for entry in archived["creators"]] == people
    assert cited["keywords"] == archived["keywords"] == PROJECT["keywords"][: len(cited["keywords"])]
    papers = {entry["url"].rpartition("/")[2] for entry in cited["references"]}
    assert {entry["identifier"].removeprefix("arXiv:") for entry in archived["related_identifiers"]} == papers


def test_the_citation_file_and_fedlib_cite_agree():
    for entry in read(ROOT / "CITATION.cff")["references"]:
        (cited,) = (
            fields
            for name in ("FedSSA", "FedGH", "pFedES", "pFedHR")
            for fields in [dict(re.findall(r"^  (\w+) = \{(.*)\},?$", reference(name), re.M))]
            if fields["url"] == entry["url"]
        )
        authors = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in entry["authors"])
        venue = entry.get("collection-title") or entry["journal"]
        stated = {"title": entry["title"], "author": authors, "year": str(entry["year"]), "url": entry["url"]}
        stated |= {"booktitle" if "collection-title" in entry else "journal": venue}
        stated |= {"doi": entry["doi"]} if "doi" in entry else {}
        assert cited | {"title": re.sub("[{}]", "", cited["title"])} == stated


def test_nothing_names_an_address_or_a_distribution_that_is_not_ours():
    """`fedlib` is another project's on PyPI and on GitHub; the module's name alone is ours."""
    foreign = (
        r"(github|githubusercontent|mybinder|readthedocs)\.[a-z]+/[^ )]*fedlib|fedlib\[[a-z]|"
        r"pip (install|download) [^&`\"]*fedlib"
    )
    command = ["git", "grep", "-nIiE", foreign, "--", ".", ":!tests/test_project_files.py"]
    named = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (named.returncode, named.stdout) == (1, "") and PROJECT["name"] == "mhpfl"


def test_what_a_message_tells_to_install_is_of_an_extra():
    known = {Requirement(text).name for some in PROJECT["optional-dependencies"].values() for text in some}
    files = [path for kind in ("fedlib/**/*.py", "workflow/*.*", "docs/pages/*.md") for path in ROOT.glob(kind)]
    told = [
        name
        for path in files
        for words in re.findall(
            r"pip install(?: mhpfl-\*\.whl)?((?: '?(?!mhpfl)[a-z][\w-]+(?:<[\d.]+')?)+)", path.read_text()
        )
        for name in re.findall(r"[a-z][\w-]+", words)
    ]
    assert {"onnx", "h5py"} <= set(told) <= known, set(told) - known


def test_the_paper_cites_what_its_bibliography_has():
    """The keys of both, and that each entry says who, what and when or where."""
    text = (ROOT / "paper.md").read_text()
    entries = re.findall(r"^@\w+\{(\w+),(.*?)^\}", (ROOT / "fedlib/references.bib").read_text(), re.M | re.S)
    keys = [key for key, _ in entries]
    assert set(re.findall(r"\[@(\w+)\]", text)) <= set(keys) and len(keys) == len(set(keys))
    for key, entry in entries:
        fields = re.findall(r"^  (\w+) = ", entry, re.M)
        assert {"title", "author"} <= set(fields) and {"year", "url"} & set(fields), key


def named_lines(value):
    """(file, text) of every `at` within a table of docs/details.toml."""
    if isinstance(value, dict):
        yield from ([tuple(value["at"])] if "at" in value else [])
        value = list(value.values())
    for inner in value if isinstance(value, list) else []:
        yield from named_lines(inner)


def test_every_line_that_the_pages_of_methods_name_is_there():
    named = list(named_lines(tomllib.loads((ROOT / "docs/details.toml").read_text())))
    assert len(named) > 10
    assert [at for at in named if at[1] not in (ROOT / at[0]).read_text()] == []


def test_a_speed_on_the_page_of_many_cores_is_a_row_of_its_benchmark():
    rows = pd.read_csv(ROOT / "figures/benchmarks/clients.csv").query("processes == 2").set_index(["method", "E"])
    ratio, page = rows["of one process"], (ROOT / "docs/pages/machines.md").read_text()
    assert f"{ratio['Standalone', 10]:.2f} (Standalone) and {ratio['FedSSA', 10]:.2f} (FedSSA) of its time" in page
    assert f"{ratio['Standalone', 1]:.2f} and {ratio['FedSSA', 1]:.2f} at E = 1" in page


def test_conda_installs_the_same_requirements():
    *own, by_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert by_pip == {"pip": ["-r requirements.txt", "--editable ."]} and own == ["python=3.12", "pip", "git", "make"]
    pins = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.+]+\s+#", line) for line in pins)


# ---------------------------------------------------------------------------------------- as on a machine that knows nothing

BARE = """
import errno, os, socket
assert set(os.environ) <= {"PATH", "HOME", "TMPDIR", "FEDLIB_DATA", "LC_CTYPE", "PWD", "SHLVL", "_"}, os.environ
assert not os.listdir(os.environ["HOME"]) and not os.listdir(os.environ["FEDLIB_DATA"])
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
try:
    socket.create_connection(("192.0.2.1", 80), timeout=0.1)
except OSError as error:
    print(error.errno == errno.ENETUNREACH)
"""


def bare(*command):
    environment = os.environ | {"FEDLIB_HOME": "/nowhere"}
    return subprocess.run([ROOT / "tests" / "bare.sh", *command], capture_output=True, text=True, env=environment)


def test_bare_means_no_variable_no_home_no_data_and_a_loopback():
    ended = bare(sys.executable, "-c", BARE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "True\n" or "the network is not cut" in ended.stderr


@pytest.mark.parametrize(("code", "status"), [("exit 3", 3), ("touch $FEDLIB_DATA/cifar10", 1)])
def test_bare_fails_as_its_command_does_and_when_data_are_downloaded(code, status):
    assert bare("bash", "-c", code).returncode == status


def test_ci_calls_what_readme_says():
    called = re.findall(r"^tests/bare.sh make (\w+)$", (ROOT / ".ci" / "run").read_text(), flags=re.M)
    assert called == ["test", "slow"]
