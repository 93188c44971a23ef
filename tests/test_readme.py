"""The README's generated tables are those of the repository, and its commands exist."""

import re

from fedlib import notebook, reproduce

ROOT = notebook.NOTEBOOKS.parent


def test_generated_tables_are_up_to_date():
    assert (ROOT / "README.md").read_text() == reproduce.readme(), "run `make notebooks`"


def test_the_commands_are_makefile_targets_and_ci_calls_the_test_command():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.M)
    named = set(re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text()))
    assert named and named <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_conda_installs_the_same_requirements():
    environment = (ROOT / "environment.yml").read_text()
    assert re.search(r"pip:\s*\n\s*- -r requirements.txt", environment)
    pins = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.+]+\s+#", line) for line in pins)


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert links and all((ROOT / link).exists() for link in links if "://" not in link)
