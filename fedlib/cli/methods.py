"""`fedlib list`, `fedlib data` and `fedlib cite`: the methods, the networks, the data sets, the papers."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .. import __version__, algorithms, data, fields, models
from ..sample import KINDS
from . import completed, fill, spelled

DataSet = completed(data.names())


def list_() -> None:
    """Print the methods and the networks."""
    print(f"{'method':<12} {'models':<7}{'public data':<12}exchanged; models: any, or the same for all")
    for method in algorithms.ALGORITHMS.values():
        if method is algorithms.FURTHER[0]:
            print(f"\n{fill(algorithms.ABOUT_FURTHER)}")
        same = "same" if method.needs == "architecture" else "any"
        images = ("for images alone",) if method.needs == "images" else ()
        print(fill(method.exchanges, f"{method.name:<12} {same:<7}{method.public_data:<12}"))
        parameters = [fields.with_meaning(method, item.name, item.default) for item in dataclasses.fields(method)]
        for text in (*images, method.paper, f"parameters: {', '.join(parameters)}" if parameters else ""):
            if text:
                print(fill(text, " " * 13))
    print("\nnetworks, for --scenario, with commas between; dealt to the clients in turn")
    for kind, words in KINDS.items():
        names = [name for name in models.BUILT_IN if models.ZOO.get(name, "image") == kind]
        print(fill(", ".join(names), f"{words.plural:<12} "))


def data_(name: Annotated[DataSet | None, Parameter(help=", ".join(data.names()))] = None, /) -> None:  # type: ignore[valid-type]
    """Print the data sets, or load and describe one."""
    if name is None:
        print(f"real data under {data.root()} (FEDLIB_DATA)")
        for known in data.names():
            missing = "here" if data.available(known) else f"missing: python -m fedlib data {known}"
            print(f"  {known:<15} {'embedded' if known in data.EMBEDDED else missing}")
        return
    name = spelled("dataset", name, data.names())
    dataset = data.load(name)
    groups = f"{dataset.num_groups} groups, " if dataset.num_groups else ""
    print(
        f"{name}: {dataset.num_train} training and {len(dataset.labels) - dataset.num_train} test samples: "
        f"{dataset.sample}, {dataset.num_classes} classes, {groups}fingerprint {dataset.fingerprint}"
    )


def cite(*methods: completed(algorithms.ALGORITHMS)) -> None:  # type: ignore[valid-type]
    """Print BibTeX of the methods' papers, and of fedlib.

    Parameters
    ----------
    methods
        names, see `fedlib list`; none: fedlib alone
    """
    entries = [reference(spelled("method", name, algorithms.ALGORITHMS)) for name in methods]
    print("\n\n".join([*dict.fromkeys(filter(None, entries)), SOFTWARE]))


SOFTWARE = f"""@software{{fedlib,
  title = {{fedlib: a reproducible companion to four papers on model-heterogeneous personalised federated learning}},
  author = {{{{The fedlib authors}}}},
  version = {{{__version__}}},
}}"""


def reference(name: str) -> str:
    """The BibTeX entry of a method's paper; empty for Standalone and for a method of one's own."""
    entries = Path(__file__).parents[1].joinpath("references.bib").read_text(encoding="utf-8")
    key = re.sub(r"\W", "", name).lower()
    found = re.search(rf"(?ms)^@\w+{{{key},.*?^}}$", entries)
    return found.group() if found else ""
