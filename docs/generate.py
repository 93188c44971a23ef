"""The pages that Sphinx cannot make by itself: the landing page from README, a page a method, the differences of record, the API's
list of modules. `pages()` hands back the text of each page by its name; `build.py` writes them beside the notebooks and `pages/`.
"""

import dataclasses
import functools
import importlib
import inspect
import json
import pkgutil
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import fedlib
from fedlib import algorithms, fields
from fedlib.cli import methods as cited
from fedlib.lab import of_record
from fedlib.papers import differences, exhibits
from fedlib.papers.exhibits import RECORD

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SETTING = ["dataset", "num_clients", "participation", "rounds", "local_epochs", "batch_size"]
LAST = "last"  # the rule by which the pages report


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


# ------------------------------------------------------------------------------------------------------------- exhibits


def state(exhibit: exhibits.Exhibit) -> str:
    """`record`, `demo`, `smoke only`, or `needs no run`: the best evidence that an exhibit's committed pictures show."""
    if not exhibit.grids:
        return "needs no run"
    for scale in (RECORD, exhibits.DEMO):
        names = [f"{exhibit.item}-of-record.png", *([f"{exhibit.item}.png"] if scale == exhibits.DEMO else [])]
        if any((ROOT / "figures" / scale / exhibit.paper / name).exists() for name in names):
            return scale
    return "smoke only"


def held(exhibit: exhibits.Exhibit) -> tuple[int, int, list[int]]:
    """How many runs of record an exhibit has of those that its scale asks for (of the first seed, where its picture is of one run
    each), how many that is, and the numbers of seeds that the cells of its tables have.
    """
    one_each = exhibit.whole or any(exhibits.GRIDS[one].keep != "none" for one in exhibit.grids)
    asked = exhibits.cells(exhibit.grids, RECORD, seeds=exhibits.SEEDS[RECORD][: 1 if one_each else None])
    keys = {fedlib.lab.resolve(cell.spec, RECORD).key for cell in asked}
    if not keys:
        return 0, 0, []
    rows = exhibits.frame(exhibit.name)
    rows = rows[rows["key"].isin(of_record.by_key())]  # not those of the store
    seeds = rows.groupby(["method", "setting", "value"], dropna=False)["seed"].nunique()
    return len(keys & set(rows["key"])), len(keys), sorted(set(seeds))


def exhibits_table() -> str:
    """The state of each exhibit of the four papers, in Markdown, and how many have each."""
    rows, found = [], list(exhibits.EXHIBITS.values())
    for exhibit in found:
        link = f"[{exhibit.name}](../../notebooks/{exhibit.notebook})"
        runs, asked, seeds = held(exhibit)
        n = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))) if seeds else "–"
        rows.append((link, exhibit.title, state(exhibit), f"{runs} of {asked}" if asked else "–", n))
    counted = pd.Series([state(exhibit) for exhibit in found]).value_counts()
    said = f"{len(found)} exhibits: {', '.join(f'{count} {name}' for name, count in counted.items())}."
    return f"{said}\n\n{table(('exhibit', 'shows', 'state', 'runs of record', 'n'), rows)}"


# -------------------------------------------------------------------------------------------------------------- landing


def notebooks() -> list[str]:
    places = [ROOT / "notebooks", *ROOT.glob("packages/*/notebooks")]
    files = [path for place in places for path in place.rglob("*.ipynb") if "checkpoints" not in str(path)]
    return sorted(str(path.relative_to(ROOT)) for path in files)


def title_of(notebook: str) -> str:
    content = json.loads((ROOT / notebook).read_text(encoding="utf-8"))
    return "".join(content["cells"][0]["source"]).splitlines()[0].removeprefix("# ")


def tree(caption: str, pages: Iterable[str]) -> str:
    """A list of pages in the sidebar."""
    named = f":caption: {caption}\n" if caption else ""
    return f"```{{toctree}}\n:hidden:\n{named}\n" + "\n".join(pages) + "\n```\n"


def _notebook_trees() -> str:
    """The notebooks in the sidebar, by folder: those of no paper first."""
    names = {"": "Notebooks"} | {paper.lower(): paper for paper in exhibits.PAPERS}
    own: dict[str, list[str]] = {folder: [] for folder in ["", *map(str.lower, exhibits.PAPERS), "audit"]}
    for name in notebooks():
        folder = "/".join(name.split("/")[1:-1])
        caption = names.setdefault(folder, folder.split("/")[-1].capitalize())
        title = title_of(name).split(" (")[0].removeprefix(caption).removeprefix("Recipe: ").strip()
        own.setdefault(folder, []).append(f"{title[:1].upper()}{title[1:]} <{name.removesuffix('.ipynb')}>")
    return "\n".join(tree(names[folder], own[folder]) for folder in own if not folder.startswith("flower"))


def landing() -> str:
    """README, whose links lead to the site's own pages; a file that the site does not have is named only."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    def link(found: re.Match[str]) -> str:
        words, address = found[1], found[2].removeprefix("docs/pages/")
        there = address.startswith(("#", "notebooks/", "packages/", "figures/", "results/differences.csv"))
        return f"[{words}]({address})" if there or (DOCS / "pages" / address.split("#")[0]).is_file() else words

    text = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)]+)\)", link, text)
    results = ["results/differences", "Claims <notebooks/audit/2_claims>", "objections", "exhibits"]
    how = ["methods/index", *(f"{name}" for name in ("install", "commands", "numbers", "own", "paper", "networks"))]
    how += ["machines", *(f"packages/{path.parent.name}/README" for path in ROOT.glob("packages/*/README.md"))]
    flower = [
        f"{title_of(name)} <{name.removesuffix('.ipynb')}>" for name in notebooks() if name.startswith("packages")
    ]
    return "\n".join(
        [text, tree("Results", results), tree("How it works", [*how, *flower, "api/index"]), _notebook_trees()]
    )


# ----------------------------------------------------------------------------------------------------------- differences


@functools.cache
def found_differences() -> pd.DataFrame:
    """The rows of the one table of differences that the pages show, with the setting and the difference in words."""
    found = differences.load().query("rule == @LAST").reset_index(drop=True)
    percent = (100 * found["participation"]).map("{:g} %".format)
    found["setting"] = found["dataset"] + ", N = " + found["num_clients"].astype(str) + ", C = " + percent
    # The one that both methods have; none where each is at its best.
    for letter, column in {"T": "rounds", "E": "local_epochs", "B": "batch_size"}.items():
        found["setting"] += (f", {letter} = " + found[column].astype("string")).fillna("")
    interval = [f" ± {row.half:.2f}" if row.half == row.half else "" for row in found.itertuples()]
    found["points"] = found["difference"].map("{:+.2f}".format) + interval
    found["words"] = found["verdict"].where(found["n"] > 1, "one seed: not judged")
    return found


def differences_page() -> str:
    """The comparisons of record, a table a question."""
    questions = differences.families().dropna(subset="question").set_index("family")["question"]
    parts = []
    for family, own in found_differences().groupby("family", sort=False):
        rows = own[["setting", "method", "reference", "points", "n", "words"]].to_numpy()
        columns = ("setting", "method", "minus", "points", "seeds", "verdict")
        parts.append(f"## {questions.get(family, family)}\n\n`{family}`\n\n{table(columns, rows)}\n")
    return f"""# Differences of record

Every comparison of two methods that is on record, once: points of the mean test accuracy over the clients visited so far, after
the last round, paired by seed. ± is a 95 % interval that holds for all rows of a table together. How a verdict is made, and what
an interval does not cover, stands under [numbers](../numbers.md). The same rows, the last ten rounds and every seed:
{{download}}`differences.csv`.

{chr(10).join(parts)}"""


# --------------------------------------------------------------------------------------------------------------- methods


def method_page(name: str) -> str:
    """A method: its facts, what its file says, parameters, fidelity to paper and code, differences of record, and how to cite it."""
    method = algorithms.ALGORITHMS[name]
    shared = {"": "nothing", "features": "headers of one width", "architecture": "one architecture for all"}
    shared["images"] = "nothing, but have images"
    own = [item for item in notebooks() if item.startswith(f"notebooks/{name.lower()}/")]
    links = " · ".join(f"[{title_of(item).split(' (')[0]}](../{item})" for item in own)
    module = inspect.getmodule(method)
    said = inspect.cleandoc(module.__doc__ or "") if module else ""
    parts = [
        f"# {name}\n\n{method.paper}. Exchanged: {method.exchanges}. Clients must share: {shared[method.needs]}. "
        f"Public data: {method.public_data}.\n",
        f"Notebooks: {links}\n" if own else "",
        f"## What the file says\n\n````{{eval-rst}}\n{said}\n````\n",
    ]
    if dataclasses.fields(method):
        text = " ".join((method.__doc__ or "").split())
        rows = [(f"`{item.name}`", item.default, fields.allowed(item)) for item in dataclasses.fields(method)]
        parts.append(f"## Parameters\n\n{text}\n\n{table(('parameter', 'default', 'allowed'), rows)}\n")
    source = "\n\n".join(inspect.getsource(getattr(method, one)) for one in ("local_round", "aggregate"))
    parts.append(f"## A round, as it is run\n\n```python\n{inspect.cleandoc(source)}\n```\n")
    details = tomllib.loads((DOCS / "details.toml").read_text(encoding="utf-8"))
    if name in details:
        rows = [
            (
                item["what"],
                item["paper"],
                f"{item['does']} ([{item['code']}, line {item['line']}]({details[name]['released']}{item['code']}#L{item['line']}))",
                f"{item['ours']} (`{item['at'][0]}`)",
            )
            for item in details[name]["details"]
        ]
        parts.append(f"## Paper, code and here\n\n{table(('what', 'the paper', 'the released code', 'here'), rows)}\n")
    found = found_differences()
    found = found[(found["method"] == name) | (found["reference"] == name)].drop_duplicates(
        ["setting", "method", "reference", "points"]
    )
    columns = ["setting", "method", "reference", "points", "n", "words"]
    shown = table(("setting", "method", "minus", "points", "seeds", "verdict"), found[columns].to_numpy())
    none = "No comparison with this method is on record yet."
    parts.append(f"## Differences of record\n\n{shown if len(found) else none}\n")
    parts.append(f"## Cite\n\n```bibtex\n{cited.reference(name)}\n```\n")
    return "\n".join(parts)


def methods_index() -> str:
    rows = [
        (
            f"[{name}]({name}.md)",
            method.paper,
            method.exchanges,
            "one for all" if method.needs == "architecture" else "any",
            method.public_data,
        )
        for name, method in algorithms.ALGORITHMS.items()
    ]
    head = f"# The methods\n\n{len(rows)} methods, in the order of every table. {algorithms.ABOUT_FURTHER}\n"
    columns = ("method", "paper", "exchanged", "models", "public data")
    return f"{head}\n{table(columns, rows)}\n\n{tree('', algorithms.ALGORITHMS)}"


# ------------------------------------------------------------------------------------------------------------------- API

ROOMS = {
    "fedlib": "a run, and what it stands on",
    "fedlib.algorithms": "the methods",
    "fedlib.data": "data sets",
    "fedlib.lab": "runs as records",
    "fedlib.papers": "the four papers",
    "fedlib.show": "differences, their intervals, how figures look",
}
FIRST = """````{eval-rst}
.. autofunction:: fedlib.lab.run
   :no-index:

.. autoclass:: fedlib.lab.RunSpec
   :no-index:
````
"""


def api_page(name: str) -> str:
    """The modules of a package, each by its docstrings."""
    found = [info.name for info in pkgutil.walk_packages(fedlib.__path__, "fedlib.")]
    own = [one for one in ["fedlib", *sorted(found)] if not one.endswith("__main__") and ".cli" not in one]
    rooms = sorted(ROOMS, key=len, reverse=True)
    parts = [f"# {name}: {ROOMS[name]}\n"]
    for module in (one for one in own if next(room for room in rooms if f"{one}.".startswith(f"{room}.")) == name):
        options = ["members", "ignore-module-all", "member-order: bysource"]
        above, _, last = module.rpartition(".")
        importlib.import_module(module)
        if above and not inspect.ismodule(getattr(importlib.import_module(above), last)):
            options.append("no-index")  # its name is that of a function above it, which is the one to link to
        lines = "\n".join(f"   :{option}" + ("" if ":" in option else ":") for option in options)
        parts.append(f"## {module}\n\n````{{eval-rst}}\n.. automodule:: {module}\n{lines}\n````\n")
        parts.append(FIRST if module == "fedlib" else "")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Name of a page, without its ending -> its Markdown."""
    listed = "\n".join(ROOMS)
    made = {
        "index": landing(),
        "results/differences": differences_page(),
        "methods/index": methods_index(),
        "api/index": f"# API\n\nFrom the docstrings.\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n",
    }
    made |= {f"methods/{name}": method_page(name) for name in algorithms.ALGORITHMS}
    return made | {f"api/{name}": api_page(name) for name in ROOMS}
