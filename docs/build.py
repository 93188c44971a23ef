"""Build the site from the committed notebooks, results and figures: python docs/build.py FOLDER

Nothing is executed, trained or fetched. FOLDER/source gets what Sphinx reads, FOLDER/html the site; a warning is an
error.
"""

import base64
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import generate
from PIL import Image
from sphinx.cmd.build import main as sphinx

from fedlib.papers import differences

WIDTH = 480  # of a thumbnail, in pixels


def thumbnails(folder: Path) -> dict[str, str]:
    """A small picture of each exhibit that has one: of record where there is one, else what its notebook shows."""
    folder.mkdir(parents=True)
    found = {}
    for name, exhibit in generate.exhibits.every().items():
        path, _ = generate.picture(exhibit)
        content = path.read_bytes() if path else _shown(exhibit)
        if content:
            found[name] = f"{name.replace('/', '-')}.png"
            _shrink(content).save(folder / found[name], optimize=True)
    return found


def _shrink(content: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    picture.thumbnail((WIDTH, WIDTH), Image.Resampling.LANCZOS)
    return picture.quantize(128)


def _shown(exhibit: Any) -> bytes | None:
    """The picture that the exhibit's own cell shows in its committed notebook; of a notebook that saves its exhibits in a function,
    that of the cell which names the item.
    """
    cells = json.loads((generate.ROOT / "notebooks" / exhibit.notebook).read_text(encoding="utf-8"))["cells"]
    for wanted in (
        f'save("{exhibit.name}"',
        f'"{exhibit.name}"',
        f'"{exhibit.item.removeprefix("appendix-")}"',
        f'"{exhibit.item}"',
    ):
        for cell in cells:
            pictures = [
                output["data"]["image/png"]
                for output in cell.get("outputs", [])
                if "image/png" in output.get("data", {})
            ]
            if pictures and wanted in "".join(cell["source"]).replace("(\n    ", "("):
                return base64.b64decode("".join(pictures[0]))
    return None


def stage_notebook(name: str, target: Path) -> None:
    """A notebook as the site shows it: what it is and where to get it under its title, no link but inside the site."""
    text = (generate.ROOT / name).read_text(encoding="utf-8").replace("../docs/pages/", "../")
    book = json.loads(text)
    first = book["cells"][0]
    title, *rest = "".join(first["source"]).split("\n")
    note = f"*As committed, not executed for this page.* {{download}}`Download the notebook <{Path(name).name}>`"
    first["source"] = "\n".join([title, "", note, *rest])
    for cell in book["cells"]:
        cell["metadata"] = {"tags": ["hide-input"]} if "parameters" in cell["metadata"].get("tags", []) else {}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(book), encoding="utf-8")


def stage(source: Path) -> None:
    """Write everything that Sphinx reads into `source`."""
    shutil.rmtree(source, ignore_errors=True)
    static = source / "_static"
    thumbs = thumbnails(static / "thumbs")
    for name, text in generate.pages(thumbs).items():
        path = source / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in (generate.DOCS / "pages").glob("*.md"):  # whose links lead somewhere in the repository, too
        text = path.read_text(encoding="utf-8").replace("](../../", "](")
        (source / path.name).write_text(text, encoding="utf-8")
    for path in generate.ROOT.glob("packages/*/README.md"):
        place = source / path.relative_to(generate.ROOT)
        place.parent.mkdir(parents=True)
        shutil.copy(path, place)
    for name in generate.notebooks():
        stage_notebook(name, source / name)
    (static / "figures").mkdir()
    record = generate.ROOT / "figures" / "record" / "fedssa"
    shutil.copy(record / "table2-differences-of-record.png", static / "figures" / "fedssa-gains.png")
    (static / "messages").mkdir()
    for name, picture in generate.messages().items():
        (static / "messages" / f"{name}.png").write_bytes(picture)
    for folder in ("benchmarks", "record", "demo"):  # notebooks show what is committed
        kept = shutil.ignore_patterns("*.csv", "*.json", "*.tex") if folder != "benchmarks" else None
        shutil.copytree(generate.ROOT / "figures" / folder, source / "figures" / folder, ignore=kept)
    (source / "results").mkdir(exist_ok=True)
    for name in ("differences", "planned", "checked"):
        shutil.copy(differences.TABLE.with_name(f"{name}.csv"), source / "results")
    (source / "fedlib" / "papers").mkdir(parents=True, exist_ok=True)
    shutil.copy(generate.ROOT / "fedlib" / "papers" / "fields.toml", source / "fedlib" / "papers")
    runs = json.dumps(generate.runs_of_record(), separators=(",", ":"))
    (static / "runs.json").write_text(runs, encoding="utf-8")
    (static / "runs.js").write_text(f"window.RUNS = {runs};\n", encoding="utf-8")  # a page from a disk cannot fetch


def build(folder: Path) -> int:
    """Build the site into `folder`/html; returns Sphinx's exit status."""
    source = folder / "source"
    stage(source)
    shutil.rmtree(folder / "html", ignore_errors=True)
    static = f"{generate.DOCS / 'static'},{source / '_static'}"
    options = ["-b", "html", "-c", str(generate.DOCS), "-D", f"html_static_path={static}", "-q", "-W", "--keep-going"]
    return int(sphinx([*options, "-d", str(folder / "doctrees"), str(source), str(folder / "html")]))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    status = build(target)
    print(f"site: {target / 'html' / 'index.html'}" if status == 0 else "site: not built")
    sys.exit(status)
