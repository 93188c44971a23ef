"""Build the site from the committed notebooks, results and figures: python docs/build.py FOLDER

Nothing is executed, trained or fetched. FOLDER/source gets what Sphinx reads, FOLDER/html the site; a warning is an
error.
"""

import json
import shutil
import sys
from pathlib import Path

import generate
from sphinx.cmd.build import main as sphinx

ROOT = generate.ROOT


def stage_notebook(name: str, target: Path) -> None:
    """A notebook as the site shows it: what it is and where to get it under its title, no link but inside the site."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("../docs/pages/", "../")
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
    texts = {f"{name}.md": text for name, text in generate.pages().items()}
    for path in (generate.DOCS / "pages").glob("*.md"):  # whose links lead somewhere in the repository, too
        texts[path.name] = path.read_text(encoding="utf-8").replace("](../../", "](")
    for path in ROOT.glob("packages/*/README.md"):
        texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    for name in generate.notebooks():
        stage_notebook(name, source / name)
    for folder in ("benchmarks", "record", "demo"):  # notebooks show what is committed
        kept = shutil.ignore_patterns("*.csv", "*.json") if folder != "benchmarks" else None
        shutil.copytree(ROOT / "figures" / folder, source / "figures" / folder, ignore=kept)
    for name in ("results/differences.csv", "results/planned.csv", "results/checked.csv", "fedlib/papers/fields.toml"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)


def build(folder: Path) -> int:
    """Build the site into `folder`/html; returns Sphinx's exit status."""
    source = folder / "source"
    stage(source)
    shutil.rmtree(folder / "html", ignore_errors=True)
    options = ["-b", "html", "-c", str(generate.DOCS), "-q", "-W", "--keep-going", "-d", str(folder / "doctrees")]
    return int(sphinx([*options, str(source), str(folder / "html")]))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    status = build(target)
    print(f"site: {target / 'html' / 'index.html'}" if status == 0 else "site: not built")
    sys.exit(status)
