"""A number with an interval that stands in prose is one of the table of differences, or an output of its notebook."""

import json
import re
from pathlib import Path

import pytest

from fedlib.papers import differences

ROOT = Path(__file__).parents[2]
SPREAD = re.compile(r"([+-]?\d+(?:\.\d+)?)\s±\s(\d+(?:\.\d+)?)")
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "pages").glob("*.md"))]
NOTEBOOKS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "notebooks").rglob("*.ipynb"))


def known(digits: int) -> set[tuple[str, str]]:
    table = differences.load().dropna(subset=["half"])
    pairs = zip(table["difference"].abs(), table["half"], strict=True)
    return {(f"{value:.{digits}f}", f"{half:.{digits}f}") for value, half in pairs}


@pytest.mark.parametrize("file", [*PAGES, *NOTEBOOKS])
def test_every_interval_in_prose_is_in_the_table(file):
    text, outputs = (ROOT / file).read_text(), ""
    if file.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        outputs = json.dumps([cell["outputs"] for cell in cells if cell["cell_type"] == "code"], ensure_ascii=False)
    for value, half in SPREAD.findall(text.replace("\N{NO-BREAK SPACE}", " ")):
        digits = len(half.partition(".")[2])
        assert (value.lstrip("+-"), half) in known(digits) or f"{value} ± {half}" in outputs, f"{value} ± {half}"
