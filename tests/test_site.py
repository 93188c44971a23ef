"""The site is built from what is committed, without a warning, and looked at in a browser: no error, broken link, overflow or fetch."""

import importlib.util
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("sphinx", "myst_nb", "furo", "latex2mathml")
SIZES = ((1366, 768), (390, 844))

missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site's folder."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"FEDLIB_HOME": str(folder / "home"), "FEDLIB_DATA": str(folder / "data")}
    command = [sys.executable, str(ROOT / "docs/build.py"), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
    assert not (folder / "home/runs").exists()  # nothing was trained
    return folder / "html"


class Page(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = {name: value or "" for name, value in attributes}
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe", "source") and found.get("src"):
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(found["href"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_no_link_is_broken_and_nothing_is_loaded_from_elsewhere(site, pages):
    broken = []
    for path, page in pages.items():
        broken += [f"{path.name} loads {url}" for url in page.loads if url.startswith(("http:", "https:", "//"))]
        for url in [*page.links, *page.loads]:
            if url.startswith(("http:", "https:", "mailto:", "data:")):
                continue
            file, anchor = urldefrag(url)
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {url}")
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                broken.append(f"{path.relative_to(site)}: {url} has no such anchor")
    assert not broken, broken[:20]


def test_every_notebook_exhibit_and_method_has_its_place(site, pages):
    from fedlib import algorithms
    from fedlib.papers import reproduce

    names = {str(path.relative_to(site)) for path in pages}
    assert {f"notebooks/{name.removesuffix('.ipynb')}.html" for name in reproduce.all_notebooks()} <= names
    built_in = {method.name for method in algorithms.BUILT_IN}
    assert {f"methods/{name}.html" for name in built_in} <= names
    linked = pages[site / "methods/FedSSA.html"].links  # each detail to a line of the released code
    assert sum("github.com/LipingYi" in url and "#L" in url for url in linked) >= 6


@pytest.fixture
def watched(browser):
    """Opens a page of a colour scheme, and the list of what went wrong in it."""
    contexts = []

    def open_page(scheme: str):
        context = browser.new_context(color_scheme=scheme)
        contexts.append(context)
        page, wrong = context.new_page(), []
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(("file:", "data:")) else wrong.append(f"fetched {request.url}")
            ),
        )
        return page, wrong

    yield open_page
    for context in contexts:
        context.close()


def test_the_front_page_is_readme_and_the_differences_are_its_own(site):
    """One pair, one interval: what README says of a method stands on the page of differences and on the method's."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\u00a0", " ")
    block = readme.split("<!-- front -->")[1].split("<!-- /front -->")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in block.strip().splitlines()][2:]
    text = {name: (site / f"{name}.html").read_text(encoding="utf-8") for name in ("index", "results/differences")}
    assert "table2-differences-of-record.png" in text["index"] and "make reproduce" in text["index"] and len(rows) == 5
    for method, gain, *_ in rows:
        page = (site / f"methods/{method}.html").read_text(encoding="utf-8")
        assert all(gain in one for one in (text["index"], text["results/differences"], page)), (method, gain)
    assert ">@inproceedings<" in (site / "methods/FedSSA.html").read_text(encoding="utf-8")


READ = (
    "index",
    "results/differences",
    "notebooks/audit/2_claims",
    "notebooks/fedssa/3_heterogeneous",
    "methods/FedSSA",
    "methods/index",
    "install",
    "objections",
)


@pytest.mark.parametrize(("scheme", "names"), [("light", READ), ("dark", READ[:5:4])])
def test_axe_finds_no_serious_fault(site, watched, scheme, names):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python checks for access")
    page, _ = watched(scheme)
    found = []
    for name in names:
        page.goto((site / f"{name}.html").as_uri())
        faults = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        found += [
            f"{name}: {fault['help']}: {fault['nodes'][0]['html'][:80]}"
            for fault in faults
            if fault["impact"] in ("serious", "critical")
        ]
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_both_widths_without_an_error(site, watched, scheme):
    page, wrong = watched(scheme)
    shown = [path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] != "api"]
    if scheme == "dark":  # colours do not change the layout: one of each kind
        shown = [site / f"{name}.html" for name in READ[:5]]
    shown.append(site / "api/fedlib.html")
    for path in shown:
        name = path.relative_to(site)
        page.set_viewport_size({"width": SIZES[0][0], "height": SIZES[0][1]})
        page.goto(path.as_uri())
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            if over > 0:
                wrong.append(f"{name} is {over} pixels too wide at {width}")
    assert len(shown) > 5 and not wrong, wrong
