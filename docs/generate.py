"""The pages that are made from the package's own data: every number, state, source and table on them is looked up, not typed.

`pages()` hands back the text of each page by its name; `build.py` writes them beside the notebooks and the pages of `pages/`.
"""

import dataclasses
import functools
import html
import importlib
import inspect
import json
import pkgutil
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import fedlib
from fedlib import algorithms, fields, lab
from fedlib.cli import methods as cited
from fedlib.lab import of_record, presets
from fedlib.papers import (
    checked,
    exhibits,
    loading,
    printed,
    results,
)
from fedlib.papers import (
    differences as differences_of_record,
)
from fedlib.papers.exhibits import RECORD
from fedlib.papers.fields import NOT_REPRODUCED, field_table
from fedlib.papers.pages import messages as draw_messages
from fedlib.papers.pages import source
from fedlib.papers.results import Runs
from fedlib.protocol import Protocol
from fedlib.show import intervals, labels, looks, paired, tables
from fedlib.study import told_apart

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
REAL = [scale for scale in reversed(list(lab.SCALES)) if scale != "smoke"]  # the best evidence first
REFERENCE = "Standalone"
GAIN = "gain over training alone"  # the difference to REFERENCE

# The one exhibit of each paper that its row on the first page shows, and its own method.
MAIN = {"FedSSA": "fedssa/table2", "FedGH": "fedgh/table3", "pFedES": "pfedes/table3", "pFedHR": "pfedhr/table2"}

# ------------------------------------------------------------------------------------------------------------ building blocks


def raw(text: str) -> str:
    """HTML that Sphinx hands through."""
    return f"````{{raw}} html\n{text}\n````\n"


def escape(value: Any) -> str:
    return html.escape(str(value))


def table(rows: Iterable[Mapping[str, Any]], select: Sequence[str] = (), markup: Sequence[str] = ()) -> str:
    """An HTML table of rows with the same keys, which a narrow screen shows as cards.

    select: columns that a reader may choose a value of; with any, there is a box to search the rows too. markup: columns that
    hold HTML already.
    """
    rows = list(rows)
    if not rows:
        return raw("<p>Nothing yet.</p>")
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td data-label="{escape(name)}">{value if name in markup else escape(value)}</td>'
            for name, value in row.items()
        )
        + "</tr>"
        for row in rows
    )
    attributes = f' data-select="{escape("|".join(select))}"' if select else ""
    return raw(
        f'<div class="wide"><table class="data"{attributes}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )


def shown_picture(address: str, words: str) -> str:
    """A picture with letters in it, which a narrow screen scrolls and does not shrink."""
    return raw(f'<div class="wide"><img class="picture" src="{address}" alt="{escape(words)}"></div>')


def spread(mean: float, half: float, n: int, sign: bool = False) -> str:
    """`74.84 ± 3.87 (n = 3)`, with a sign where it is a difference."""
    text = tables.format_difference(mean, half, n)
    return (text if sign else text.removeprefix("+")).replace(" ", "\u00a0")


# ----------------------------------------------------------------------------------------------------------- what was found


@functools.cache
def records() -> dict[str, lab.Record]:
    """The results of record by their key under today's code."""
    return of_record.by_key()


load = functools.cache(loading.load_record)  # (grid, scale) -> its results of record


def picture(exhibit: exhibits.Exhibit) -> tuple[Path | None, str]:
    """An exhibit's committed picture of real data and its scale; at scale demo also the one that its notebook saves."""
    for scale in REAL:
        for name in (f"{exhibit.item}-of-record.png", *([f"{exhibit.item}.png"] if scale == exhibits.DEMO else [])):
            path = ROOT / "figures" / scale / exhibit.paper / name
            if path.exists():
                return path, scale
    return None, ""


def state(exhibit: exhibits.Exhibit) -> str:
    """`record`, `demo`, `smoke only`, or `needs no run`: the best evidence that an exhibit shows."""
    if not exhibit.grids:
        return "needs no run"
    scale = picture(exhibit)[1]
    return "record" if scale in ("record", "paper") else scale or "smoke only"


def held(exhibit: exhibits.Exhibit) -> tuple[int, int, list[int]]:
    """How many runs of record an exhibit has of those that its scale asks for (of the first seed, where its picture is of one run
    each), how many that is, and the numbers of seeds that the cells of its tables have, those of the plan's further seeds among
    them; no cell, no number.
    """
    seeds_asked = exhibits.SEEDS[RECORD][
        : 1 if exhibit.whole or any(exhibits.GRIDS[one].keep != "none" for one in exhibit.grids) else None
    ]
    asked = {lab.resolve(cell.spec, RECORD).key for cell in exhibits.cells(exhibit.grids, RECORD, seeds=seeds_asked)}
    there, seeds = set[str](), dict[tuple[Any, ...], set[int]]()
    for grid in exhibit.grids:
        for cell, record in load(grid, RECORD).pairs:
            there.add(record.key)
            seeds.setdefault((grid, cell.method, cell.setting, cell.value), set()).add(cell.spec.seed)
    return len(asked & there), len(asked), sorted({len(own) for own in seeds.values()})


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
    lines = [("exhibit", "shows", "state", "runs of record", "n"), ("---",) * 5, *rows]
    return "\n".join([said, "", *(f"| {' | '.join(line)} |" for line in lines)])


@functools.cache
def ledger() -> pd.DataFrame:
    """Every claim by its number with its verdict, as audit/2_claims judges it: the one list of verdicts."""
    file = ROOT / "figures" / "record" / "audit" / "claims-of-record.csv"
    return pd.read_csv(file, index_col="number", dtype=str, keep_default_na=False)


VERDICTS = ("supported", "contradicted", "no difference", "undecided", "not run")


def counts(paper: str) -> dict[str, int]:
    """How many of a paper's claims have each verdict; *counted* says which ones no run decided."""
    own = ledger()[ledger()["paper"] == paper]
    found = (own["verdict"] + own["by"].map({"counted": " by counting"}).fillna("")).value_counts()
    return {name: int(found[name]) for one in VERDICTS for name in (one, f"{one} by counting") if name in found}


def differences(found: Runs, method: str, setting: str) -> tuple[float, float, int]:
    """A method's mean difference to the reference in a setting, paired by seed, its half-width and n."""
    own = Runs.of_pairs(pair for pair in found.pairs if pair[0].setting == setting)
    for row in own.effects(REFERENCE, "last").query("case == @method").to_dict("records"):
        return row["difference"], row["ci95"], row["n"]
    return np.nan, np.nan, 0


# ------------------------------------------------------------------------------------------------------------------ pages


def gallery_card(exhibit: exhibits.Exhibit, thumb: str) -> str:
    page = f"notebooks/{exhibit.notebook.removesuffix('.ipynb')}.html"
    image = f'<img src="_static/thumbs/{thumb}" alt="{escape(exhibit.title)}" loading="lazy">' if thumb else ""
    now = state(exhibit)
    return (
        f'<a class="card" href="{page}" data-paper="{exhibit.paper}" data-state="{now}"><span class="thumb">{image}</span>'
        f'<span class="name">{escape(exhibit.name)}</span> <span class="state {now.split()[0]}">{now}</span>'
        f'<span class="what">{escape(exhibit.title)}</span></a>'
    )


def gallery(thumbs: Mapping[str, str]) -> str:
    every = exhibits.every().values()
    by_state = pd.Series([state(item) for item in every]).value_counts()
    said = ", ".join(f"{count} {name}" for name, count in by_state.items())
    cards = "\n".join(gallery_card(item, thumbs.get(item.name, "")) for item in every)
    return f"""# All exhibits

{len(every)} tables and figures, each linked to the notebook that makes it: {said}. *record* and *demo* are of real
data, at the scale of that name; *smoke only* shows the mechanics on embedded digits and is
never set against a paper's number; some need no run at all.

{raw(f'<div class="cards" data-filter="paper|state">{cards}</div>')}"""


DOORS = f"""* **Learn** a method in ten minutes, with a drawn round, numbers by hand and the source:
  [FedSSA](notebooks/fedssa/1_method.ipynb), [FedGH](notebooks/fedgh/1_method.ipynb),
  [pFedES](notebooks/pfedes/1_method.ipynb), [pFedHR](notebooks/pfedhr/1_method.ipynb).
* **Judge** a claim: [the ledger](results/ledger.md), [all runs of record, to compare](results/compare.md), [all exhibits](gallery.md).
* **Build** on it: [your own method, network and data](notebooks/01_your_own_method.ipynb),
  [the {len(algorithms.BUILT_IN)} methods](methods/index.md), [the API](api/index.md)."""


def front() -> str:
    """README's answer, picture and table, so that both say the same."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = text[text.index("**Do the published") : text.index("## Try it")].strip()
    return re.sub(r"!\[(.*?)\]\(\S+\)", lambda found: shown_picture("_static/figures/fedssa-gains.png", found[1]), text)


def landing(thumbs: Mapping[str, str]) -> str:
    rows, pictures = [], []
    for paper in exhibits.PAPERS:
        exhibit = exhibits.EXHIBITS[MAIN[paper]]
        rows += _landing_rows(paper, exhibit)
        pictures.append(gallery_card(exhibit, thumbs[exhibit.name]))
    return f"""# fedlib

{front()}

{DOORS}

## Try it

In a clone of this repository:

    make CPU=1 lab            # installs once (2 GB), opens the first notebook
    .venv/bin/fedlib run FedSSA --dataset digits --rounds 3

[Other ways to install](install.md); the same notebooks as pages: [start here](notebooks/00_start_here.ipynb).

## Each paper's own method

{table(rows, markup=("paper", "claims"))}
{raw(f'<div class="cards four">{"".join(pictures)}</div>')}

Accuracy is the mean over the clients visited so far, in per cent; differences are in points, paired
by seed, with a 95 % interval where n > 1. We never judge on one seed.

```{{toctree}}
:hidden:
:caption: Results

gallery
results/ledger
results/contradictions
results/compare
objections
exhibits
```

```{{toctree}}
:hidden:
:caption: How it works

methods/index
install
commands
numbers
protocols
own
paper
networks
machines
packages/flower/README
Over Flower, a notebook <packages/flower/notebooks/1_flower>
api/index
```

{_notebook_trees()}
"""


@functools.cache
def gains() -> dict[tuple[str, str], tuple[float, float, int]]:
    """(method, setting of 100 clients) -> its gain over the reference, half-width and n, of the one table of differences."""
    rows = differences_of_record.load().query("family == 'main-table/alone' and rule == 'last'")
    settings = [f"{labels.dataset(name)}, N = 100, C = 10 %" for name in rows["dataset"]]
    said = zip(rows["difference"], rows["half"], rows["n"], strict=True)
    return dict(zip(zip(rows["method"], settings, strict=True), said, strict=True))


def _landing_rows(paper: str, exhibit: exhibits.Exhibit) -> list[dict[str, str]]:
    """A paper's own method in each setting of its main exhibit that is on record, in its own grids or among FedSSA's baselines."""
    tags = [f'<span class="state {name.split()[0]}">{count} {name}</span>' for name, count in counts(paper).items()]
    rows = []
    for grid in dict.fromkeys([*exhibit.grids, "fedssa/heterogeneous"]):
        found = load(grid, RECORD)
        for row in found.summary("last").to_dict("records"):
            if row["method"] == paper:
                spec = next(cell.spec for cell in found.cells if cell.setting == row["setting"])
                own = gains().get((paper, row["setting"])) or differences(found, paper, row["setting"])
                gain = spread(*own, sign=True)
                setting = f"{row['setting']}, T = {spec.rounds}, E = {spec.local_epochs}"
                shown = {"setting": setting.replace(" = ", "\u00a0=\u00a0").replace(" %", "\u00a0%")}
                shown |= {"our result": spread(row["ours"], row["ci95"], row["n"]), GAIN: gain}
                rows.append(shown | {"the paper's own gain": _printed_gap(paper, exhibit, row)})
    smaller = sum(record.spec.algorithm == paper for record in records().values())
    unrun = f"not run at the paper's; {smaller} runs in a smaller one" if smaller else "not run yet"
    rows = rows or [{"setting": unrun, "our result": "–", GAIN: "–", "the paper's own gain": "–"}]
    link = f'<a href="methods/{paper}.html">{paper}</a>'
    return [{"paper": link, **row, "claims": " ".join(tags) if place == 0 else ""} for place, row in enumerate(rows)]


def _printed_gap(paper: str, exhibit: exhibits.Exhibit, row: Mapping[Any, Any]) -> str:
    """What the paper's table prints of the same setting, as a difference to the reference; a dash where it prints none."""
    item = "Table " + exhibit.item.removeprefix("table")
    own = printed.accuracies(paper, item)
    same = own[(own["dataset"] == row["dataset"]) & (own["clients"] == row["clients"])].set_index("method")["value"]
    return tables.format_difference(same.get(paper, np.nan) - same.get(REFERENCE, np.nan), np.nan)


def notebooks() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for place in (ROOT / "notebooks", *ROOT.glob("packages/*/notebooks"))
        for path in place.rglob("*.ipynb")
        if "checkpoints" not in str(path)
    )


def title_of(notebook: str) -> str:
    content = json.loads((ROOT / notebook).read_text(encoding="utf-8"))
    first = "".join(content["cells"][0]["source"]).splitlines()[0]
    return first.removeprefix("# ")


def _notebook_trees() -> str:
    """The notebooks in the sidebar: those of no paper, then each paper's."""
    order = ["", *dict.fromkeys(item.notebook.split("/")[0] for item in exhibits.every().values())]
    names = {"": "Notebooks", "audit": "Audit"} | {paper.lower(): paper for paper in exhibits.PAPERS}
    trees = []
    for folder in order:
        own = [name for name in notebooks() if "/".join(name.split("/")[1:-1]) == folder]
        lines = []
        for name in own:
            title = title_of(name).split(" (")[0].removeprefix(names.get(folder, "")).strip()
            lines.append(f"{title[:1].upper()}{title[1:]} <{name.removesuffix('.ipynb')}>")
        trees.append(
            f"```{{toctree}}\n:hidden:\n:caption: {names.get(folder, folder)}\n\n" + "\n".join(lines) + "\n```\n"
        )
    return "\n".join(trees)


def ledger_page() -> str:
    rows = []
    for number, row in ledger().iterrows():
        verdict = f'<span class="state {row["verdict"].split()[0]}">{row["verdict"]}</span>'
        rows.append(
            {
                "no.": number,
                "paper": row["paper"],
                "where": "; ".join(filter(None, (row["where"], row["again"]))),
                "claim": row["words"],
                "printed": f"{row['printed']} {row['unit']}".strip() if row["printed"] else "",
                "own table": row["own table"],
                "verdict": verdict,
                "by": row["by"],
                "why, and evidence": "; ".join(filter(None, (row["why"], row["evidence"]))),
            }
        )
    said = "; ".join(
        f"{paper}: " + ", ".join(f"{count} {name}" for name, count in counts(paper).items())
        for paper in exhibits.PAPERS
    )
    return f"""# The papers' claims

What the four papers claim in prose, each in our words. *own table*: whether the printed claim agrees with the paper's own
tables. *verdict*: what our runs of record say. {said}.

A claim that a method is above others names differences. It is *contradicted* where one of them is clear against it, *supported*
where all of them are there and clear for it, at both values of E that the papers choose from. Everything else is *undecided*, with
the reason, or *not run*; what counting decides without a run is tallied apart. Each verdict names the settings that it stands on.
The notebook that judges is [audit 2](../notebooks/audit/2_claims.ipynb);
how the numbers are meant is on [a page of its own](../numbers.md).
{checked.last_agreed()}

{table(rows, select=("paper", "own table", "verdict", "by"), markup=("verdict",))}"""


def contradictions_page() -> str:
    found = pd.read_csv(ROOT / "fedlib" / "papers" / "contradictions.csv", index_col="number")
    rows = [
        {
            "no.": place,
            "papers": ", ".join(name for name in exhibits.PAPERS if name in f"{row['sources']} {row['item']}") or "all",
            "what does not fit": row["item"],
            "who says what": row["sources"],
            "the numbers": row["numbers"],
            "what is done here": row["here"],
        }
        for place, row in found.iterrows()
    ]
    return f"""# Contradictions

Where the papers contradict each other, themselves or their released code; the numbers come from the printed tables, from our
networks and from the presets, and a test computes them. The notebook is [audit 3](../notebooks/audit/3_contradictions.ipynb).

{table(rows, select=("papers",))}"""


# -------------------------------------------------------------------------------------------------------------- methods


def sources() -> list[str]:
    """The files of the package that pages link into by line."""
    own = {inspect.getsourcefile(method) for method in algorithms.ALGORITHMS.values()}
    files = {str(Path(str(file)).resolve().relative_to(ROOT)) for file in own}
    files |= {detail["at"][0] for paper in details().values() for detail in paper["details"]}
    return sorted(files | {"fedlib/lab/presets.py", "fedlib/protocol.py"})


def source_page(file: str) -> str:
    lines = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True)  # that can be linked to, as #L12
    text = highlight((ROOT / file).read_text(encoding="utf-8"), PythonLexer(), lines)
    text = text.replace('name="L-', 'id="L').replace("#L-", "#L")
    return f"---\norphan: true\n---\n\n# {file}\n\n{raw(text)}"


@functools.cache
def details() -> dict[str, Any]:
    return tomllib.loads((DOCS / "details.toml").read_text(encoding="utf-8"))


def line_of(file: str, text: str) -> int:
    """The line on which `text` begins; raises ValueError where the file does not have it."""
    content = (ROOT / file).read_text(encoding="utf-8")
    if text not in content:
        raise ValueError(f"docs/details.toml: {file} has no {text!r} any more")
    return content[: content.index(text)].count("\n") + 1


def source_link(file: str, line: int, deep: int) -> str:
    return f"{'../' * deep}source/{file.removesuffix('.py')}.html#L{line}"


def equations(paper: str) -> str:
    """The section `The method in ... lines` of a paper's first notebook."""
    path = ROOT / "notebooks" / paper.lower() / "1_method.ipynb"
    if not path.exists():
        return ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and "## The method in" in text:
            section = "## The method in" + text.split("## The method in")[1].split("\n## ")[0]
            return section.replace("](../", "](../notebooks/") + "\n"
    return ""


def method_page(name: str) -> str:
    method = algorithms.ALGORITHMS[name]
    module = inspect.getmodule(method)
    file = str(Path(str(inspect.getsourcefile(method))).resolve().relative_to(ROOT))
    shared = {"": "nothing", "features": "headers of one width", "architecture": "one architecture for all"}
    shared["images"] = "nothing, but have images"
    facts = f"{method.paper}. Exchanged: {method.exchanges}. Clients must share: {shared[method.needs]}. Public data: {method.public_data}."
    folder = name.lower()
    own = [notebook for notebook in notebooks() if notebook.startswith(f"notebooks/{folder}/")]
    more = " · ".join(f"[{title_of(item).split(' (')[0]}](../{item})" for item in own)
    drawn = shown_picture(
        f"../_static/messages/{name}.png", f"A round of {name}: what the server and a client exchange"
    )
    parts = [
        f"# {name}\n\n{facts}\n",
        drawn,
        f"Notebooks: {more}\n" if own else "",
        equations(name) if own else "",
    ]
    parts.append("## What the file says\n\n" + rest(module))
    if dataclasses.fields(method):
        together, rows = parameters(method)
        parts.append(f"## Parameters\n\n{together}\n\n{table(rows, markup=tuple(rows[0]))}")
    parts.append(f"## A round, as it is run\n\n```python\n{source(method, 'local_round', 'aggregate').text}\n```")
    parts.append(f"[The whole file, with numbered lines](../source/{file.removesuffix('.py')}.md)\n")
    if name in details():
        parts.append(_details(name))
    parts.append("## Results of record\n\n" + _results(name))
    parts.append("## Cite\n\n" + _citation(name))
    return "\n".join(parts)


def messages() -> dict[str, bytes]:
    """Method -> the picture of its round, whose messages are measured on random images."""
    of_its_own = {"pFedHR": ("M1", "M2", "M3")}  # networks
    return {
        name: draw_messages(method(), method.exchanges, networks=of_its_own.get(name, ())).png()
        for name, method in algorithms.ALGORITHMS.items()
    }


def parameters(method: type) -> tuple[str, list[dict[str, Any]]]:
    """What a method's docstring says of its hyper-parameters together, and of each: name, default, what is allowed, and what it is,
    with the default's source.
    """
    known = [item.name for item in dataclasses.fields(method)]
    name = "|".join(map(re.escape, known))
    text = " ".join((method.__doc__ or "").split())
    found = re.split(rf"(?:^|(?<=[.;] ))((?:(?:{name}), )*(?:{name})): ", text)
    described = zip(found[1::2], found[2::2], strict=True)
    said = {one: words.strip(" ;") for names, words in described for one in names.split(", ")}
    if set(said) != set(known):
        raise ValueError(
            f"{method.__name__}: its docstring describes {sorted(said)}, its parameters are {sorted(known)}"
        )
    rows = [
        {
            "parameter": escape(item.name),
            "default": escape(item.default),
            "allowed": escape(fields.allowed(item)),
            "what it is": _marked(said[item.name]),
        }
        for item in dataclasses.fields(method)
    ]
    return found[0].strip(), rows


def _marked(text: str) -> str:
    """A docstring's `code` and *emphasis* as HTML."""
    return re.sub(r"\*(\w+)\*", r"<em>\1</em>", re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)))


def _citation(name: str, of: str = "", words: str = "", runs: Sequence[str] = ()) -> str:
    """BibTeX of a method's page, or of its page `of` a setting in `words`, with its runs; and of the method's paper."""
    page = [
        f"@misc{{fedlib-{of or name.lower()},",
        "  author = {{The fedlib authors}},",
        f"  title = {{{{fedlib {fedlib.__version__}}}: {name}, its results of record{' on ' * bool(words)}{words}}},".replace(
            " %", " \\%"
        ),
        *([f"  note = {{Runs {', '.join(runs)}}},"] if runs else []),
        "  howpublished = {Software}\n}",
    ]
    return "```bibtex\n" + "\n\n".join(filter(None, (cited.reference(name), "\n".join(page)))) + "\n```\n"


def rest(documented: ModuleType | type | None) -> str:
    """A docstring, as Sphinx reads it."""
    text = inspect.cleandoc(documented.__doc__ or "") if documented else ""
    return f"````{{eval-rst}}\n{text}\n````\n"


def _details(name: str) -> str:
    paper, rows = details()[name], []
    for place, item in enumerate(paper["details"], 1):
        at = source_link(item["at"][0], line_of(*item["at"]), 1)
        there = f"{paper['released']}{item['code']}#L{item['line']}"
        rows.append(
            {
                "no.": place,
                "what": escape(item["what"]),
                "the paper": escape(item["paper"]),
                "the released code": f'{escape(item["does"])} (<a href="{there}">{item["code"]}, line {item["line"]}</a>)',
                "here": f'{escape(item["ours"])} (<a href="{at}">line</a>)',
            }
        )
    markup = ("what", "the paper", "the released code", "here")
    return "## Implementation details\n\n" + table(rows, markup=markup)


def _results(name: str) -> str:
    """Every setting in which runs of record of a method exist, with a link to its page, which names the runs."""
    own = {page: setting for page, (method, setting) in setting_pages().items() if method == name}
    rows = [
        {"setting": f'<a href="settings/{page}.html">{escape(setting)}</a>'}
        | {key: row[key] for key in row if key != "runs"}
        for page, setting in own.items()
        for row in rows_of(name, setting)
    ]
    return table(rows, markup=("setting",)) if rows else "None yet.\n"


@functools.cache
def setting_pages() -> dict[str, tuple[str, str]]:
    """Page -> the method and the setting of record that it is about."""
    found = found_runs()["settings"].items()
    both = {(_method(run["method"]), setting): None for setting, runs in found for run in runs}
    return {_slug(f"{method} {setting}"): (method, setting) for method, setting in both}


def _slug(text: str) -> str:
    return re.sub("[^a-z0-9.]+", "-", text.lower().replace(" = ", "").replace("protocol ", "")).strip("-")


def rows_of(method: str, setting: str) -> list[dict[str, str]]:
    """What is of record of a method in a setting, as the method has it and varied: accuracy, gain and runs."""
    found, rows = found_runs(), []
    for name, cell in found["tables"][setting]["accuracy"].items():
        if _method(name) == method:
            keys = [run["key"] for run in found["settings"][setting] if run["method"] == name]
            gain = cell["differences"].get(REFERENCE, "–")
            rows.append({"as": name, "accuracy, %": cell["last"], GAIN: gain, "runs": ", ".join(keys)})
    return rows


def setting_page(page: str) -> str:
    """What is of record of a method in one setting, as the method has it and varied: numbers, runs, and how to cite them."""
    method, setting = setting_pages()[page]
    keys = [run["key"] for run in found_runs()["settings"][setting] if _method(run["method"]) == method]
    return f"""---
orphan: true
---

# {method}: {setting.split(", B = ")[0]}

[{method}](../{method}.md) in one setting: {setting}. Accuracy is the mean over the clients visited so far after the last round, over
seeds; the gain is in points, paired by seed, with a 95 % interval, that of a varied method for this pair alone.
[Its curves beside those of other methods](../../results/compare.md).

{table(rows_of(method, setting))}

## Cite

{_citation(method, page, setting, keys)}"""


def methods_index() -> str:
    rows = [
        {
            "method": f'<a href="{name}.html">{name}</a>',
            "paper": escape(method.paper),
            "exchanged": escape(method.exchanges),
            "models": "one for all" if method.needs == "architecture" else "any",
            "public data": method.public_data,
            "in": "no paper's table" if method in algorithms.FURTHER else "the papers' tables",
        }
        for name, method in algorithms.ALGORITHMS.items()
    ]
    tree = "\n".join(algorithms.ALGORITHMS)
    return f"""# The methods

{len(rows)} methods, in the order of every table. Each page has the equations, the source of a round, and its results of record.
{algorithms.ABOUT_FURTHER}

{table(rows, select=("models", "public data", "in"), markup=("method", "paper", "exchanged"))}

```{{toctree}}
:hidden:

{tree}
```
"""


# ------------------------------------------------------------------------------------------------------------- protocols


def protocols_page() -> str:
    papers = list(dict.fromkeys(paper for paper, _ in presets.PRESETS))
    variants_said = next(item.metadata["help"] for item in dataclasses.fields(lab.RunSpec) if item.name == "protocol")
    parts = [
        "# Protocols\n\nA protocol says how an experiment trains and measures, whatever the method. Any field can be overridden by name: "
        "`fedlib run FedSSA --override momentum=0.9`.\n",
        f"{variants_said}.\n",
    ]
    for paper in papers:
        rows = []
        for field, row in field_table(paper).iterrows():
            values = [str(value) for name, value in row.items() if name != "why"]
            rows.append({"field": field} | dict(row) | {"": "differs" if len(set(values)) > 1 else "the same"})
        line = line_of("fedlib/lab/presets.py", f'("{paper}", "')
        link = source_link("fedlib/lab/presets.py", line, 0)
        shown = raw(f'<p><a href="{link}">The preset, in its file</a></p>')
        parts.append(f"## {paper}\n\n{table(rows, select=('',))}\n{shown}")
    left_out = [{"code": code_, "what no protocol here reproduces": text} for code_, text in NOT_REPRODUCED.items()]
    parts.append("## Not reproduced\n\n" + table(left_out))
    parts.append("## The fields\n\n" + rest(Protocol))
    return "\n".join(parts)


# -------------------------------------------------------------------------------------------------------------- compare

METRICS = {
    "accuracy": "accuracy, mean over the clients visited so far, %",
    "accuracy_all": "accuracy, mean over all clients, %",
    "accuracy_selected": "accuracy, mean over the round's clients, %",
    "loss": "training loss",
    "words": "words sent and received in all, millions",
}
SHOWN = 4  # methods ticked when the page opens: the reference, and those of highest accuracy, as their papers have them


def runs_of_record() -> dict[str, Any]:
    """Every run of record for the comparison page: settings with their runs, each with its curves by metric; the cells of the table of
    each setting and metric; the methods that are shown first, the reference before them.
    """
    by_setting: dict[str, list[tuple[lab.FilledSpec, lab.Record]]] = {}
    for run in records().values():
        spec = lab.resolve(run.spec).spec
        by_setting.setdefault(_setting(spec), []).append((spec, run))
    settings: dict[str, list[dict[str, Any]]] = {}
    cells, first = {}, {}
    names = list(algorithms.ALGORITHMS)
    for setting, own in by_setting.items():
        methods = told_apart([_label(spec) for spec, _ in own], [run for _, run in own])
        runs = [
            {"method": method, "seed": spec.seed, "key": run.key, "status": _status(run), "curves": _curves(run)}
            for method, (spec, run) in zip(methods, own, strict=True)
        ]
        runs.sort(key=lambda run: (names.index(_method(run["method"])), run["method"], run["seed"]))
        rows: dict[str, dict[int, lab.Record]] = {run["method"]: {} for run in runs}
        for method, (spec, run) in zip(methods, own, strict=True):
            rows[method][spec.seed] = run
        settings[setting], cells[setting] = runs, {metric: _cells(rows, runs, metric) for metric in METRICS}
        ends = {
            method: np.nan_to_num(np.mean(list(_ends(runs, "accuracy")[method].values())), nan=-1) for method in rows
        }
        best = sorted(rows, key=lambda name: (name != REFERENCE, name != _method(name), -ends[name]))  # variations last
        first[setting] = best[:SHOWN]
    order = sorted(settings, key=lambda name: (-len(cells[name]["accuracy"]), name))
    return {
        "metrics": METRICS,
        "first": first,
        "tables": cells,
        "looks": _looks(sorted({run["method"] for runs in settings.values() for run in runs})),
        "settings": {name: settings[name] for name in order},
    }


found_runs = functools.cache(runs_of_record)  # for the pages of settings


def _status(run: lab.Record) -> str:
    return "finished" if intervals.whole(run) else "diverged" if run.status == "diverged" else "lacks rounds"


def _ends(runs: Sequence[Mapping[str, Any]], metric: str) -> dict[str, dict[int, float]]:
    """Method -> seed -> a metric after the last round; NaN where a run has no number."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        last = run["curves"][metric][-1:] if run["status"] == "finished" else []
        found.setdefault(run["method"], {})[run["seed"]] = np.nan if last in ([], [None]) else last[0]
    return found


def _cells(
    rows: Mapping[str, Mapping[int, lab.Record]], runs: Sequence[Mapping[str, Any]], metric: str
) -> dict[str, dict[str, Any]]:
    """Method -> its cells in the table of a metric: the mean after the last round, and reference -> the difference, paired by seed."""
    values, made = _ends(runs, metric), {}
    halves = {reference: _halves(rows, reference) if metric == "accuracy" else {} for reference in rows}
    for method, own in values.items():
        broken = [run for run in runs if run["method"] == method and run["status"] != "finished"]
        last = spread(*intervals.interval(list(own.values())), len(own))
        last += "".join(f" (seed {run['seed']} {run['status']})" for run in broken)
        differences = {}
        for reference, others in values.items():
            apart = [own[seed] - others[seed] for seed in own if seed in others and method != reference]
            if apart:
                mean, half = intervals.interval(apart)
                differences[reference] = spread(mean, halves[reference].get(method, half), len(apart), sign=True)
        made[method] = {"last": last, "differences": differences}
    return made


def _halves(rows: Mapping[str, Mapping[int, lab.Record]], reference: str) -> dict[str, float]:
    """Method -> half-width of the interval of its difference in accuracy to the reference, as README's tables have it: those of
    the planned grid share an error and hold together; another row has its own.
    """
    error, outside = results.common_error(rows, lambda run: intervals.reported(run, "last"))
    values = {
        name: {seed: intervals.reported(run, "last") for seed, run in own.items()}
        for name, own in rows.items()
        if all(map(intervals.whole, own.values()))
    }
    if reference not in values:
        return {}
    pairs = [(name, reference) for name in values if name != reference]
    within = [pair for pair in pairs if outside.isdisjoint(pair)]
    made = paired.differences(values, within, error)
    for pair in pairs:
        if pair not in within:
            made += paired.differences(values, [pair], error, outside)
    return {one.own: round(one.half, 6) for one in made if not np.isnan(one.half)}


def _curves(run: lab.Record) -> dict[str, list[float | None]]:
    """A run's rounds by metric, in the digits that results of record have: what is computed of them is what README computes."""
    trained = run.rounds[run.rounds["round"] >= 0]
    words = (trained["download_words"] + trained["upload_words"]).cumsum() / 1e6
    curves = {name: 100 * trained[name] for name in METRICS if name.startswith("accuracy")}
    curves |= {"loss": trained["loss"], "words": words}
    return {
        name: [None if np.isnan(one) else round(float(one), 6) for one in values] for name, values in curves.items()
    }


def _looks(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and dash of each method; those that differ in parameters share its colour and alternate in their dashes."""
    drawn: dict[str, dict[str, Any]] = {}
    for name in methods:
        plain = _method(name)
        place = sum(_method(other) == plain for other in drawn)
        colour = looks.looks([plain])[plain].colour
        drawn[name] = {
            "colour": "currentColor" if colour == "#000000" else colour,
            "dash": ("", "7 3", "2 3", "9 3 2 3")[place % 4],
        }
    return drawn


def _method(label: str) -> str:
    """The method of one of `_label`'s labels."""
    return label.split(" (")[0].split(", ")[0]


def _held(spec: lab.FilledSpec) -> dict[str, str]:
    """The fields that make a setting, those that runs must have in common to be compared, and their words; without words: another's
    say it.
    """
    words = {
        "dataset": labels.dataset(spec.dataset),
        "scenario": str(spec.scenario),
        "partition": labels.word("partition", spec.partition),
        "num_clients": f"N = {spec.num_clients}",
        "participation": f"C = {100 * spec.participation:g} %",
        "rounds": f"T = {spec.rounds}",
        "local_epochs": f"E = {spec.local_epochs}",
        "batch_size": f"B = {spec.batch_size}",
        "protocol": f"protocol {spec.protocol} of {spec.paper}",
        "paper": "",
        "precision": spec.precision,
    }
    if spec.partition == "by-class":
        words |= {"partition": f"{spec.classes_per_client} classes per client", "classes_per_client": ""}
    if spec.partition in ("dirichlet", "quantity-skew"):
        words |= {"partition": f"{labels.word('partition', spec.partition)} {spec.alpha}", "alpha": ""}
    if algorithms.ALGORITHMS[spec.algorithm].public_data != "none":
        words["public_labels"] = "labelled public data" if spec.public_labels else "unlabelled public data"
    return words


def _setting(spec: lab.FilledSpec) -> str:
    usual = lab.SCALES[RECORD]["precision"]
    return ", ".join(text for name, text in _held(spec).items() if text and (name, text) != ("precision", usual))


def _label(spec: lab.FilledSpec) -> str:
    """The method, and every other field of its specification than the setting's that is not what the method has of itself."""
    held = {name: getattr(spec, name) for name in _held(spec)}
    usual = vars(lab.resolve(lab.RunSpec(spec.algorithm, **held), RECORD).spec)
    rest = {
        name: value for name, value in vars(spec).items() if name not in (*held, "algorithm", "seed", "keep", "metrics")
    }
    # Parameters and overrides by their own names.
    changed = {
        name: value for name, value in spec.params.items() if value != usual["params"].get(name)
    } | spec.overrides
    changed |= {name: value for name, value in rest.items() if not isinstance(value, dict) and value != usual[name]}
    words = ", ".join(f"{name} = {value}" for name, value in changed.items())
    return spec.algorithm + (f" ({words})" if words else "")


def compare_page() -> str:
    found = runs_of_record()
    total = sum(len(runs) for runs in found["settings"].values())
    if not total:
        return "# Compare runs of record\n\nNo run is on record yet.\n"
    return f"""# Compare runs of record

{total} runs on real data. Choose data and setting, methods and a metric: curves are means over seeds, the band is
the range over seeds, and differences are paired by seed. Settings are never mixed: numbers of different N, T, E or protocol cannot be
compared; in brackets behind a method stands whatever else it changes. A dash: a run diverged or lacks rounds, or nothing is paired.
The same numbers as a file:
{{download}}`runs.json <../_static/runs.json>`.

{
        raw(
            '<div id="compare"><noscript>This page needs JavaScript.</noscript></div>'
            '<script src="../_static/runs.js"></script><script src="../_static/compare.js"></script>'
        )
    }"""


# ------------------------------------------------------------------------------------------------------------------ API

ROOMS = {
    "fedlib": "a run, and what it stands on",
    "fedlib.algorithms": "the methods",
    "fedlib.data": "data sets",
    "fedlib.lab": "runs as records",
    "fedlib.papers": "the four papers",
    "fedlib.show": "intervals, tables, figures",
}


FIRST = """````{eval-rst}
.. autofunction:: fedlib.lab.run
   :no-index:

.. autoclass:: fedlib.lab.RunSpec
   :no-index:
````

Many runs at once: `sweep`, with [fedlib.lab](fedlib.lab.md). Tuned methods in one table: `fedlib.study`, below.
"""


def modules() -> list[str]:
    found = [info.name for info in pkgutil.walk_packages(fedlib.__path__, "fedlib.")]
    return sorted(name for name in ["fedlib", *found] if not name.endswith("__main__") and ".cli" not in name)


def room(module: str) -> str:
    """The page on which a module is described."""
    return next(name for name in sorted(ROOMS, key=len, reverse=True) if f"{module}.".startswith(f"{name}."))


def api_page(name: str) -> str:
    parts = [f"# {name}: {ROOMS[name]}\n"]
    for module in (one for one in modules() if room(one) == name):
        options = ["members", "ignore-module-all", "member-order: bysource"]
        above, _, last = module.rpartition(".")
        importlib.import_module(module)
        if above and not inspect.ismodule(getattr(importlib.import_module(above), last)):
            options.append("no-index")  # its name is that of a function above it, which is the one to link to
        lines = "\n".join(f"   :{option}" + ("" if ":" in option else ":") for option in options)
        parts.append(f"## {module}\n\n````{{eval-rst}}\n.. automodule:: {module}\n{lines}\n````\n")
        parts.append(FIRST if module == "fedlib" else "")
    return "\n".join(parts)


def api_index() -> str:
    tree = "\n".join(ROOMS)
    return (
        "# API\n\nFrom the docstrings. Layers, each of which imports only from those before it: fedlib itself, lab, show, papers.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{tree}\n```\n"
    )


def pages(thumbs: Mapping[str, str]) -> dict[str, str]:
    """Name of a page, without its ending -> its Markdown. thumbs: exhibit -> file name of its small picture."""
    made = {
        "index": landing(thumbs),
        "gallery": gallery(thumbs),
        "protocols": protocols_page(),
        "results/ledger": ledger_page(),
        "results/contradictions": contradictions_page(),
        "results/compare": compare_page(),
        "methods/index": methods_index(),
        "api/index": api_index(),
    }
    made |= {f"methods/{name}": method_page(name) for name in algorithms.ALGORITHMS}
    made |= {f"methods/settings/{name}": setting_page(name) for name in setting_pages()}
    made |= {f"api/{name}": api_page(name) for name in ROOMS}
    made |= {f"source/{file.removesuffix('.py')}": source_page(file) for file in sources()}
    return made
