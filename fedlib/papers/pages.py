"""What several notebooks show besides their exhibits: a method's source and messages, the scales, what runs cost."""

import inspect
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
from IPython.display import Code

from .. import algorithms, data, lab, models, randomness
from ..errors import choose
from ..lab import costs as measured
from ..lab import estimates, of_record
from ..sample import Sample
from ..show import labels, style
from ..show.messages import draw
from . import exhibits, reproduce

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
) -> style.Shown:
    """Draw a round of `method` on images of CIFAR's shape, two classes a client (CIFAR-100: ten): clients with `networks` (CNN-1, 3 and 5,
    or CNN-1 where all must be alike), the tensors that the last of them receives and sends, and `server`, what the server does.
    """
    networks = networks or (("CNN-1",) * 3 if method.needs == "architecture" else ("CNN-1", "CNN-3", "CNN-5"))
    widths, sizes = {}, {}
    for id, name in enumerate(networks):
        model = models.build(name, data.info(dataset).num_classes, Sample(), randomness.generator(0, "init"))
        widths[f"client {id}"] = [len(weights) for weights in model.parameters() if weights.ndim > 1]
        sizes[f"client {id}"] = f"{name}, {measured.kilobytes(models.num_floats(model)) / 1024:.2f} MiB"
    with mpl.rc_context(style.STYLE):
        figure = draw(measured.messages(method, dataset, networks[-1]), widths, sizes, server)
        said = f"Messages: of one client with {networks[-1]} in a real round; float32, {labels.dataset(dataset)}."
        style.foot(figure, f"Networks: a bar is a layer, its height the logarithm of its width. {said}")
        return style.Shown(style.png(figure, 200), 200)


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
    own = {name: _grids(name) for name in reproduce.all_notebooks() if not name.startswith("recipes/")}
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
