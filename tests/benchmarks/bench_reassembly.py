"""What a server update of pFedHR costs, by stage, and how it grows with the active clients.

One update at the paper's setting: M1 to M4, one client each, 8 candidates, 5000 public images of CIFAR-10's size, 3
epochs. On a CPU that is long: fewer --images shorten the fine-tuning in proportion and leave the layer distances (512
images) as they are, so their share, which must stay below a tenth, is largest there. Then the steps before the
fine-tuning, for 1, 2, 4, ... active clients, whose layers are compared pair by pair, of all activations and of pooled
ones; --figure writes the curves and, beside them, their numbers (committed: figures/benchmarks/reassembly.png).

    python tests/benchmarks/bench_reassembly.py [--short] [--images N] [--precision bf16] [--unlabelled] [--figure PNG]
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import kmedoids  # noqa: F401 - imported on first use, which is no part of the grouping
import numpy as np
import pandas as pd
import torch
from machine import describe, options, random_images

from fedlib import Federation, models, training
from fedlib.algorithms.pfedhr import PFedHR, contrastive, reassembly
from fedlib.federation import Message, Upload
from fedlib.lab.presets import PRESETS

STAGES = {  # function -> the stage that it is
    (reassembly, "activations"): "layer distances (CKA)",
    (reassembly, "distances"): "layer distances (CKA)",
    (reassembly, "group"): "grouping",
    (reassembly, "search"): "search",
    (reassembly, "assemble"): "stitching",
    (training, "train"): "fine-tuning",
    (contrastive, "train"): "fine-tuning",
    (training, "outputs"): "matching",
    (reassembly, "match"): "matching",
}


@contextmanager
def stages() -> Iterator[dict[str, float]]:
    """Seconds of this process's time on a processor spent in each stage."""
    seconds: dict[str, float] = defaultdict(float)
    inside = []  # a stage within a stage counts once

    def timed(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            started = time.process_time()
            inside.append(stage)
            try:
                return function(*args, **named)
            finally:
                inside.pop()
                if not inside:
                    seconds[stage] += time.process_time() - started

        return call

    patches = [mock.patch.object(*place, timed(getattr(*place), stage)) for place, stage in STAGES.items()]
    for patch in patches:
        patch.start()
    try:
        yield seconds
    finally:
        for patch in patches:
            patch.stop()


def update(
    active: int, images: int, method: PFedHR, precision: str = "fp32", labelled: bool = True, batch_size: int = 64
) -> tuple[dict[str, float], float, dict[str, Any]]:
    """Stages, seconds and diagnostics of one `aggregate`: clients upload differently initialised models, M1 to M4 in turn."""
    data = random_images(images + 10 * active)
    parts = [np.split(np.arange(images + 10 * k, images + 10 * k + 10), [8, 9]) for k in range(active)]
    federation = Federation(
        data,
        [(train, validation, test) for train, validation, test in parts],
        models.SCENARIOS["reassembly"],
        protocol=PRESETS["pFedHR", "paper"].protocol,
        batch_size=batch_size,
        precision=precision,
        public=np.arange(images),
        public_labels=labelled,
    )
    context, uploads = federation.server_context(), []
    for client in federation.clients:
        stream = np.random.default_rng(client.id)
        model = models.build(client.info.architecture, 10, 3, stream)
        uploads.append(Upload(client.info, Message(model.state_dict(), 8)))
    with stages() as seconds:
        started = time.process_time()
        returned = method.aggregate(method.init_server(context), uploads, context)
        return seconds, time.process_time() - started, returned


def profile(images: int, epochs: int, precision: str, labelled: bool) -> None:
    method = PFedHR(server_epochs=epochs, search="exhaustive")  # which surely finds 8
    seconds, total, returned = update(4, images, method, precision, labelled)
    kind = "labelled" if labelled else "unlabelled"
    print(f"\none server update: {images} {kind} images, {epochs} epochs, batches of 64, {precision}, 4 active clients")
    print(f"{returned['layers']} layers, {returned['candidates']} candidates; seconds on a processor")
    for stage in dict.fromkeys(STAGES.values()):
        print(f"  {stage:<22} {seconds[stage]:9.2f}  {100 * seconds[stage] / total:5.1f} %")
    print(f"  {'all':<22} {total:9.2f}")
    share = 100 * seconds["layer distances (CKA)"] / total
    print(f"  CKA's share: {share:.2f} % (at most 10 expected)")


def growth(counts: list[int], samples: int) -> pd.DataFrame:
    """Seconds of the steps before fine-tuning, by active clients (M1 to M4 in turn) and kind of activations."""
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(samples, 3, 32, 32)).astype(np.float32))
    rows = []
    for kind in ("full", "pooled"):
        for active in counts:
            turns = [(id, models.SCENARIOS["reassembly"][id % 4]) for id in range(active)]
            blocks = {
                source: reassembly.decompose(models.build(source[1], 10, 3, np.random.default_rng(source[0])))
                for source in turns
            }
            with stages() as seconds, torch.no_grad():
                stream = np.random.default_rng(0)
                found = reassembly.reassemble(blocks, images, kind == "pooled", 4, "exhaustive", 8, stream)
            row = {"activations": kind, "active": active, "layers": len(found.layers)}
            row |= {"candidates": len(found.candidates) + found.dropped}
            rows.append(row | {name: seconds[name] for name in ("layer distances (CKA)", "grouping", "search")})
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for kind, rows in table.groupby("activations"):
        axes.plot(rows["layers"], rows["layer distances (CKA)"], marker="o", label=f"distances, {kind} activations")
    rows = table[table["activations"] == "full"]
    axes.plot(rows["layers"], rows["grouping"] + rows["search"], marker="s", label="grouping and search")
    axes.set(xlabel="layers, and the active clients that they are of", ylabel="seconds on a processor")
    axes.set(xscale="log", yscale="log")
    ticks = [f"{layers}\n({active})" for layers, active in zip(rows["layers"], rows["active"], strict=True)]
    axes.set_xticks(rows["layers"], ticks)
    axes.minorticks_off()
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=5000, help="public images")
    parser.add_argument("--epochs", type=int, default=3, help="E_s")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of the fine-tuning")
    parser.add_argument("--unlabelled", action="store_true", help="fine-tune by SimCLR")
    parser.add_argument("--figure", help="write the growth as a picture")
    arguments = parser.parse_args()
    images, epochs = (32, 1) if arguments.short else (arguments.images, arguments.epochs)
    torch.set_num_threads(1)
    print(describe())
    profile(images, epochs, arguments.precision, not arguments.unlabelled)
    table = growth([1, 4] if arguments.short else [1, 2, 4, 8, 16, 24], 32 if arguments.short else 512)
    print("\nbefore the fine-tuning, by active clients (candidates: all chains that satisfy R1 to R4); seconds")
    print(table.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    if arguments.figure:
        draw(table, arguments.figure)
        table.round(4).to_csv(Path(arguments.figure).with_suffix(".csv"), index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
