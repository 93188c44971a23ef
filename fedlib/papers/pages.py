"""What a notebook shows besides its exhibits, one call each: a method's source, who holds what, the results of record, what
runs cost and where they come from.
"""

import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import Code, display

from .. import algorithms, data, lab, models, randomness
from ..algorithms.pfedhr import reassembly
from ..errors import FedlibError, choose
from ..lab import costs as measured
from ..lab import estimates, of_record
from ..sample import Sample
from ..show import intervals, labels, plots, tables
from . import exhibits, notebook, printed, reproduce, results
from .prose import say

# ------------------------------------------------------------------------------------------------ a method's source


@dataclass(frozen=True)
class Source:
    """Python source, which a notebook highlights; as text it is the source itself."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        html = str(Code(self.text, language="python")._repr_html_())
        return html.replace("<pre>", '<pre style="white-space: pre; word-break: normal; overflow-x: auto">')


def source(method: type, *names: str) -> Source:
    """The source of `names`, functions of the class `method` or of its module, as they stand in the method's own file.

    Raises FedlibError for a name that neither has.
    """
    module = sys.modules[method.__module__]
    parts = []
    for name in names:
        functions = {key: value for owner in (module, method) for key, value in inspect.getmembers(owner, callable)}
        choose(f"function of {method.__name__}", name, functions)
        parts.append(textwrap.dedent(inspect.getsource(functions[name])).strip())
    return Source("\n\n".join(parts))


def messages(
    method: algorithms.Algorithm, server: str = "", dataset: str = "cifar10", networks: Sequence[str] = ()
) -> plots.Picture:
    """Draw a round of `method` on images of CIFAR's shape, two classes a client (CIFAR-100: ten): clients with `networks` (CNN-1, 3 and 5,
    or CNN-1 where all must be alike), the tensors that the last of them receives and sends, and `server`, what the server does.
    """
    networks = networks or (("CNN-1",) * 3 if method.needs == "architecture" else ("CNN-1", "CNN-3", "CNN-5"))
    widths, sizes = {}, {}
    for id, name in enumerate(networks):
        model = models.build(name, data.info(dataset).num_classes, Sample(), randomness.generator(0, "init"))
        widths[f"client {id}"] = [len(weights) for weights in model.parameters() if weights.ndim > 1]
        sizes[f"client {id}"] = f"{name}, {measured.kilobytes(models.num_floats(model)) / 1024:.2f} MiB"
    drawn = plots.messages(measured.messages(method, dataset, networks[-1]), widths, sizes, server)
    drawn.note("Networks: a bar is a layer, its height the logarithm of its width.")
    return drawn.note(
        f"Messages: of one client with {networks[-1]} in a real round; float32, {labels.dataset(dataset)}."
    )


# ------------------------------------------------------------------------------------------------ runs of a notebook


def provenance(records: Iterable[lab.Record]) -> pd.DataFrame:
    """Where runs come from, one row per run by its key: when it finished, seconds of training, device, version of torch, commit and
    digest of the code, where known. Prints the number of runs and their seconds.
    """
    own = {record.key: record.provenance for record in records}
    shown = ["finished", "seconds", "device", "processor", "torch", "commit", "code"]
    table = pd.DataFrame(list(own.values()), index=pd.Index(own, name="run")).reindex(columns=shown)
    say(f"{len(table)} runs, {table['seconds'].sum():.0f} s of training in all")
    return table.dropna(axis=1, how="all").fillna("–")  # no commit is known outside a checkout


def class_distribution(cells: Sequence[exhibits.Cell]) -> pd.DataFrame:
    """Draw who holds what in the first setting of `cells`, and count it in each setting, for its first seed.

    One row per setting (and swept value, where it says who holds what): the mean number of classes per client, the mean share of
    a client's commonest class (per cent), the fewest, mean and most owners of a class, and the fewest and mean images per client.
    Prints a message if the data set is not available locally.
    """
    found: dict[Any, tuple[dict[str, Any], pd.DataFrame]] = {}
    for cell in cells:
        key = (cell.setting, cell.spec.partition, cell.spec.classes_per_client, cell.spec.alpha)
        if key not in found:
            try:
                data.load(cell.dataset)
            except FedlibError as error:
                say(str(error))
                return pd.DataFrame()
            found[key] = _held(cell)
    if not found:
        return pd.DataFrame()
    rows, counts = zip(*found.values(), strict=True)
    display(plots.class_distribution(counts[0], f"{cells[0].setting}: images of each class per client"))
    table = pd.DataFrame(rows).set_index("setting")
    return table.drop(columns=[] if table.index.has_duplicates else ["value"]).round(1)


def _held(cell: exhibits.Cell) -> tuple[dict[str, Any], pd.DataFrame]:
    """A setting's row of `class_distribution`, and its images by client and class."""
    run = lab.resolve(cell.spec)
    counts = lab.counts(run.data.labels.numpy(), lab.partition_of(run), run.info.num_classes)
    owners, images = lab.owners(counts), counts.sum(axis=1)
    row = {
        "setting": cell.setting,
        "value": cell.value,
        "classes per client": (counts > 0).sum(axis=1).mean(),
        "commonest (%)": 100 * (counts.max(axis=1) / images).mean(),
        "fewest owners": owners.min(),
        "mean owners": owners.mean(),
        "most owners": owners.max(),
        "fewest images": images.min(),
        "mean images": images.mean(),
    }
    return row, counts


# ------------------------------------------------------------------------------------------------ results of record

_OURS = ["method", "setting", "value", "ours", "ci95", "all", "selected", "taught", "n"]
_BESIDE = [*_OURS[:3], "paper", *_OURS[3:], "difference", "verdict"]


def record_block(grids: str | Sequence[str], paper: pd.DataFrame | None = None) -> tuple[notebook.Runs, pd.DataFrame]:
    """Say how much of `grids` is on record, show its means beside the paper's, and hand back the runs and the rows of the table.

    paper: `printed.accuracies`'s rows; None where the paper prints no numbers. `ours` is the mean over the clients visited so far,
    `all` over all, `selected` over the last round's.
    """
    names = [grids] if isinstance(grids, str) else list(grids)
    found = [notebook.load_record(name) for name in names]
    lines = [notebook.coverage(name) for name in names]
    record = notebook.Runs.joined(found)
    if record.cells:
        theirs = [cell.spec for name in names for cell in exhibits.cells(name, "paper", seeds=(0,))]
        own = [cell.spec for cell in record.cells]
        said = [
            f"{results.epochs(results.of_column(spec, own)):g} here, up to {results.epochs(results.of_column(spec, theirs)):g} "
            f"in the paper (N = {spec.num_clients})"
            for spec in {(spec.num_clients, spec.participation): spec for spec in own}.values()
        ]
        lines.append(f"Epochs that a client trains, on average: {'; '.join(said)}.")
    say(*lines)
    ours = record.summary("last")
    if paper is None:
        table, shown = ours.assign(paper=np.nan), _OURS
    else:
        table, shown = printed.beside_paper(ours, paper, ["method", "dataset", "clients"]), _BESIDE
    if len(table):
        display(tables.Readable(table[[name for name in shown if name in table]]))
    return record, table


def not_of_record(name: str, why: str) -> None:
    """Say why exhibit `name` has no picture of record, and show its committed picture of scale demo where there is one."""
    choose("exhibit", name, exhibits.every())
    say(f"{name}: {why}")
    exhibit = exhibits.every()[name]
    picture = lab.shipped() / "figures" / exhibits.DEMO / exhibit.paper / f"{exhibit.item}.png"
    if picture.exists():
        say("Scale demo instead: real data, one seed, minutes. It leans one way or the other and decides nothing.")
        display(plots.Saved(picture))


def figure_of_record(
    name: str, settings: notebook.Parameters, table: pd.DataFrame, methods: Sequence[str], absent: str = "not run"
) -> None:
    """Save and show an accuracy table of record: the intervals beside the paper's numbers, and methods by settings.

    table: `record_block`'s rows; methods: those of the exhibit, in row order.
    """
    present = [method for method in methods if method in set(table["method"])]
    if len(present) < 2:
        not_of_record(name, "no two methods of record to draw beside each other")
        return
    ranked, figure = tables.wide(table, present, absent=absent), plots.intervals(table, present, absent=absent)
    display(notebook.save_record(name, settings, figure, table.round(4), ranked), ranked)


def leads_of_record(
    name: str, settings: notebook.Parameters, runs_: notebook.Runs, reference: str, banded: Sequence[str]
) -> None:
    """Save and show how far each method of a setting stands above the method `reference` as the rounds go by, paired by seed; each
    point is the mean of the ten rounds until then, and the methods of `banded`, from three seeds on, have their 95 % interval around
    it. The runs are results of record.
    """
    table = intervals.leads(runs_.rounds(), reference)
    if not len(table):
        say(f"{name}: no method is on record with {reference} yet, so there is nothing to draw")
        return
    drawn = plots.leads(table, reference, banded).note("Each point is the mean of the ten rounds until then.")
    display(notebook.save_record(name, settings, drawn, table.round(4), used=runs_, view="leads"))


def sweep_of_record(
    name: str,
    settings: notebook.Parameters,
    table: pd.DataFrame,
    methods: Sequence[str],
    label: str,
    selected: bool = False,
) -> None:
    """Save and show a sweep of record: one point per value and method.

    table: `record_block`'s rows, see `with_values`; label: of the swept quantity; selected: draw the mean over the last round's
    clients too.
    """
    if table.get("value", pd.Series(dtype=float)).nunique() < 2:
        not_of_record(name, "fewer than two values have results of record, so there is nothing to draw")
        return
    figure = plots.sweeps(table, methods, label, selected=selected)
    display(notebook.save_record(name, settings, figure, table.round(4), tables.wide(table, methods)))


def with_values(summary: pd.DataFrame, form: str = "{:g}") -> pd.DataFrame:
    """A sweep's summary with the swept value in its setting, `cifar10, 4 classes`, since a table has one column per setting; form:
    how the value is written, such as `{:g} classes`.
    """
    pairs = zip(summary["dataset"], summary.get("value", []), strict=True)
    return summary.assign(setting=[f"{data}, {form.format(value)}" for data, value in pairs])


# ------------------------------------------------------------------------------------------------ pFedHR's candidates


def blocks(structure: Sequence[tuple[Any, ...]]) -> list[tuple[str, str, bool]]:
    """A candidate as `plots.chains` draws it: of each layer the model that it comes from, its name, and whether a stitch with
    parameters precedes it; at the end a new last layer, where the chain has one.
    """
    network = reassembly.assemble(structure, 10, 3, 1, randomness.generator(0, "server"))
    parts = dict(network.named_children())
    drawn = []
    for number, (_, name, depth, kind) in enumerate(structure, 1):
        stitch = parts.get(f"stitch{number}")
        drawn.append((name, f"{kind}{depth}", stitch is not None and models.num_floats(stitch) > 0))
    return drawn + ([("", "output", False)] if "output" in parts else [])


def first_and_last(matches: pd.DataFrame) -> tuple[pd.DataFrame, plots.Picture]:
    """The candidates that the client with most matches got first and last, as rows of `matches` and as a picture.

    matches: `views.list_matches`'s rows, of at least one match.
    """
    client = matches.groupby("client")["round"].nunique().idxmax()
    table = matches[matches["client"] == client]
    table = table[table["round"].isin([table["round"].min(), table["round"].max()])]
    layers = ["origin", "model", "layer", "operation"]
    rows = {
        f"client {client},\nround {number}": blocks(list(own[layers].itertuples(index=False, name=None)))
        for number, own in table.groupby("round")
    }
    return table, plots.chains(rows)


# ------------------------------------------------------------------------------------------------ scales and costs


def scales() -> pd.DataFrame:
    """What each scale is, as numbers, from the grids of the papers' main tables: one row per scale and setting, with N, C, T, E, B,
    the learning rate and the seeds.
    """
    mains = {"FedSSA, FedGH, pFedES": "fedssa/heterogeneous", "pFedHR": "pfedhr/labelled"}
    rows = []
    for scale in lab.SCALES:
        for papers, grid in mains.items():
            specs = [lab.resolve(cell.spec, scale) for cell in exhibits.cells(grid, scale)]
            data = ", ".join(dict.fromkeys(str(run.spec.dataset) for run in specs))
            for run in {(run.spec.num_clients, run.spec.participation): run for run in specs}.values():
                spec = run.spec
                lr = spec.lr if spec.lr is not None else run.protocol.lr
                numbers: dict[str, Any] = {"N": spec.num_clients, "C": f"{spec.participation:.0%}", "T": spec.rounds}
                numbers |= {"E": spec.local_epochs, "B": spec.batch_size, "rate": lr}
                seeds = ", ".join(map(str, exhibits.SEEDS[scale]))
                rows.append({"scale": scale, "papers": papers, "data": data} | numbers | {"seeds": seeds})
    return pd.DataFrame(rows).set_index("scale")


def costs() -> pd.DataFrame:
    """What each notebook's runs cost at each scale: their number, and hours on one core to two digits; two cores take half
    as long. A run that several notebooks share is counted in each, and once in the last row.

    The hours are `lab.expected_seconds` by the results of record, on processors like theirs, which have instructions for bf16.
    """
    own = {name: _grids(name) for name in reproduce.all_notebooks()}
    own["all, shared runs once"] = [grid for grids in own.values() for grid in grids]
    known, rows = estimates.Timed.of(of_record.read_results()), dict[str, dict[str, str]]()
    for scale in lab.SCALES:
        keys, runs = dict[str, list[str]](), dict[str, lab.Resolved]()
        for grid in dict.fromkeys(own["all, shared runs once"]):
            resolved = [lab.resolve(cell.spec, scale) for cell in exhibits.cells(grid, scale)]
            keys[grid] = [run.key for run in resolved]
            runs |= {run.key: run for run in resolved}
        seconds = lab.expected_seconds([*runs.values()], known, of_record=True)
        took = dict(zip(runs, seconds, strict=True))
        for name, grids in own.items():
            needed = {key for grid in grids for key in keys[grid]}
            hours = sum(took[key] for key in needed) / 3600
            row = {f"{scale}: runs": str(len(needed)), f"{scale}: core-hours": f"{float(f'{hours:.2g}'):g}"}
            rows[name] = rows.get(name, {}) | row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("notebook")


def _grids(name: str) -> list[str]:
    return [grid for item in exhibits.every().values() if item.notebook == name for grid in item.grids]


def interact(function: Callable[..., Any], **choices: Any) -> None:
    """Sliders and lists under which a notebook calls `function` and shows what it returns. Needs ipywidgets and a notebook that
    somebody has open (a kernel of papermill or nbval has nobody to move a slider); else, or without anything to choose, prints so.

    choices: of each argument a list of values, or (low, high) or (low, high, step) of numbers. Raises FedlibError for an
    argument that `function` does not have.
    """
    for name in choices:
        choose(f"argument of {function.__name__}", name, inspect.signature(function).parameters)
    try:
        import ipywidgets
    except ImportError:
        ipywidgets = None
    if ipywidgets is None or not {"JPY_SESSION_NAME", "VSCODE_PID"} & set(
        os.environ
    ):  # as JupyterLab and VS Code set them
        say(f"sliders need JupyterLab and ipywidgets: call {function.__name__}({', '.join(choices)}) with other values")
        return
    if any(len(values) == 0 for values in choices.values()):
        say("nothing to choose from yet")
        return
    shown = ipywidgets.interactive(function, {"auto_display": True}, **choices)
    for child in shown.children[:-1]:  # the last is what the function shows
        child.style.description_width = "initial"  # else a long name is cut
    display(shown)
