"""The results of record in the order of what they decide: which cells of the grids are trained at scale record, group by group."""

from collections.abc import Callable
from dataclasses import dataclass

from .. import lab
from ..errors import choose
from . import exhibits, recorded
from .grids import RECORD

_FIRST = ("Standalone", "FedSSA", "FedProto", "FedGH", "pFedES")
_REST = ("FML", "FedKD", "LG-FedAvg", "FedClassAvg", "FD")


@dataclass(frozen=True)
class Part:
    """Cells of a grid: of some methods (labels), data sets and N only, or of all."""

    grid: str
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    num_clients: tuple[int, ...] = ()

    def cells(self) -> list[exhibits.Cell]:
        """Seed by seed, so that what is there at any time is paired."""
        kept = [
            cell
            for cell in exhibits.cells(self.grid, RECORD)
            if (not self.methods or cell.method in self.methods)
            and (not self.datasets or cell.dataset in self.datasets)
            and (not self.num_clients or cell.num_clients in self.num_clients)
        ]
        return sorted(kept, key=lambda cell: cell.spec.seed)


def _tables(dataset: str, methods: tuple[str, ...], num_clients: int = 100) -> tuple[Part, ...]:
    """Both papers' main tables."""
    own = tuple(name for name in methods if name != "pFedES")
    parts = (Part("fedssa/heterogeneous", own, (dataset,), (num_clients,)),) if own else ()
    both = (Part("pfedes/heterogeneous", ("pFedES",), (dataset,), (num_clients,)),) if "pFedES" in methods else ()
    return (*parts, *both)


_AUDITED_FEDSSA = (
    "as released",
    "no inherited first visits",
    "mean over the selected owners",
    "no inheritance, selected owners",
    "Standalone",
)
_AUDITED_FEDGH = ("as released", "the header is trained", "header trained, no inheritance", "Standalone")
_CONTROLS = tuple(name for name in exhibits.CONTROLS if name not in exhibits.LONG_HISTORY)

# name -> what it decides, and its parts in their order
GROUPS: dict[str, tuple[str, tuple[Part, ...]]] = {
    "audit": (
        "the released code against the texts",
        (Part("audit/fedssa", _AUDITED_FEDSSA), Part("audit/fedgh", _AUDITED_FEDGH)),
    ),
    "precision": ("bf16 against fp32 on the same specification", (Part("audit/precision"),)),
    "column": (
        "FedSSA's Table 2 and pFedES's Table 3 at N = 100",
        (
            *_tables("cifar100", _FIRST),
            *_tables("cifar10", _FIRST),
            *_tables("cifar100", _REST),
            *_tables("cifar10", _REST),
        ),
    ),
    "why": (
        "what FedSSA's lead rests on, CIFAR-100, N = 100",
        (
            Part("audit/controls", _CONTROLS),
            Part("fedssa/table4", (), ("cifar100",), (100,)),
            Part("fedssa/table5", (), ("cifar100",), (100,)),
        ),
    ),
    "history": (
        "FedSSA's history with Figure 3's T_stable = 20, CIFAR-100, N = 100",
        (Part("audit/controls", (*exhibits.LONG_HISTORY, exhibits.WITHOUT_HISTORY)),),
    ),
    "robustness": (
        "classes a client holds, Dirichlet, participation",
        tuple(
            Part(name)
            for name in (
                *("fedssa/classes", "fedssa/dirichlet", "fedgh/classes", "pfedes/classes"),
                *("fedssa/participation", "fedgh/participation", "pfedes/participation"),
            )
        ),
    ),
    "sensitivity": (
        "pFedES's mu and E_fe, FedGH's server rate",
        (Part("pfedes/mu"), Part("pfedes/extractor_epochs"), Part("fedgh/server_lr")),
    ),
    "reassembly": (
        "pFedHR's Table 2 and Figures 3 to 7, Table 4 with M1",
        tuple(
            Part(f"pfedhr/{name}")
            for name in (
                *("labelled", "unlabelled", "clusters", "stitch_layers", "server_epochs", "public_fraction"),
                "homogeneous",
            )
        ),
    ),
    "ten": (
        "N = 10, CIFAR-10: FedSSA's first column, FedGH's Table 3, the t-SNE figures",
        (
            *_tables("cifar10", _FIRST, 10),
            Part("fedgh/heterogeneous", (), ("cifar10",)),
            Part("fedssa/representations"),
            Part("pfedes/representations"),
        ),
    ),
}


def cells(name: str) -> list[exhibits.Cell]:
    """All cells of a group, in the order in which they are trained; a run that two parts share stands once."""
    choose("group", name, GROUPS)
    found = {lab.resolve(cell.spec, RECORD).key: cell for part in GROUPS[name][1] for cell in part.cells()}
    return list(found.values())


def open_cells(name: str) -> list[exhibits.Cell]:
    """Those of a group that neither the results of record nor the store has."""
    made = recorded.by_key()
    left = [cell for cell in cells(name) if lab.resolve(cell.spec, RECORD).key not in made]
    missing = {run.key for run in lab.missing([cell.spec for cell in left], RECORD)}
    return [cell for cell in left if lab.resolve(cell.spec, RECORD).key in missing]


def train(name: str, jobs: int, each: Callable[[int], None]) -> int:
    """Train what is open of a group, part by part and seed by seed, `jobs` runs side by side; `each` is called after each finished
    run with how many remain. Returns how many were open.
    """
    specs = [cell.spec for cell in open_cells(name)]
    lab.sweep(specs, RECORD, jobs=jobs, in_order=True, each=each)
    return len(specs)
