"""Ten thousand clients: memory, checkpoints, set-up and time of a round, against the visited clients and against N.

CIFAR-10 (from FEDLIB_DATA; random images of its size where it is not), six images a client, four of them for training;
CNN-1 to CNN-5 in turn, K = 100 clients a round, E = 1, B = 64, a checkpoint after each round. Each run is a process of
its own. In turn: what a visited client costs in memory beyond its model, without files; a run of the first method with
the largest N that is killed by SIGKILL in its middle and goes on, whose final state must have the SHA-256 of an
undisturbed one; for each method a run for each N, --rounds rounds with the largest, a tenth with the others and in the
run that is killed. It needs room on the disk for all visited clients, 5.7 MiB each.

    python tests/benchmarks/bench_scale.py [--short] [--rounds T] [--clients N ...] [--methods NAME ...] [--folder DIR]
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from machine import describe, options, random_images

from fedlib import Dataset, Federation, data, models
from fedlib import simulate as plain
from fedlib.algorithms import make
from fedlib.errors import FedlibError
from fedlib.lab import checkpoint, clientfiles, simulate

HELD, K = 6, 100  # images a client, clients a round
MIB, GIB = 2**20, 2**30


def images(clients: int) -> Dataset:
    """`HELD` images for each client."""
    try:
        whole = data.load("cifar10")
    except FedlibError:
        whole = random_images(60_000)
    count = clients * HELD
    pixels, labels = whole.images[:count].numpy(), whole.labels[:count].numpy()
    known = {"mean": whole.mean, "std": whole.std}  # not measured here, in float64: 1.5 GiB and more
    return Dataset.from_arrays("cifar10", pixels, labels, pixels[:0], labels[:0], 10, augment=True, **known)


def resident() -> tuple[int, int]:
    """Bytes of this process in memory now, and at most so far."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[1]) * resource.getpagesize()
    return now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tell(**row: Any) -> None:
    print(json.dumps(row), flush=True)


def child(method: str, clients: int, rounds: int, file: str) -> None:
    """One run; writes a line of JSON for its set-up, each round and its end. file: the checkpoint; empty for none."""
    torch.set_num_threads(1)
    shown = images(clients)
    started = time.perf_counter()
    federation = Federation(shown, list(np.arange(clients * HELD).reshape(clients, HELD)))
    tell(setup=time.perf_counter() - started)
    save, clock = checkpoint.save, [0.0, time.process_time()]
    checkpoint.CHECKPOINT_SECONDS = 0.0

    def saved(*given: Any) -> None:
        before, used = time.perf_counter(), time.process_time()
        save(*given)
        written = [path.stat().st_size for path in Path(f"{file}.clients").glob(f"*-{given[3].number - 1}.pt")]
        size = Path(file).stat().st_size
        tell(
            checkpoint=time.perf_counter() - before,
            checkpoint_cpu=time.process_time() - used,
            checkpoint_bytes=size + sum(written),
            index_bytes=size,
        )
        clock[1] = time.process_time()

    def progress(row: dict[str, Any], timing: dict[str, Any]) -> None:
        now, most = resident()
        cpu = time.process_time()
        tell(
            round=row["round"],
            visited=row["visited"],
            seconds=timing["seconds"],
            cpu=cpu - clock[1],
            rss=now,
            peak=most,
        )
        clock[1] = cpu

    checkpoint.save = saved
    share = min(1.0, K / clients)
    if file:
        outcome = simulate(federation, make(method), rounds, share, checkpoint=file, progress=progress)
    else:
        outcome = plain(
            federation, make(method), rounds, share,
            after_round=lambda outcome: progress(outcome.round_rows[-1], outcome.timing_rows[-1]),
        )  # fmt: skip
    before = time.perf_counter()
    digest = outcome.digest() if file else ""
    tell(digest=digest, digest_seconds=time.perf_counter() - before, peak=resident()[1])


def run(
    method: str, clients: int, rounds: int, file: Path | None, kill_after: int | None = None
) -> tuple[pd.DataFrame, dict[str, float], str]:
    """Its rounds, its set-up and end, and the digest of its final state (empty where it was killed after a round)."""
    command = [sys.executable, __file__, "--child", method, str(clients), str(rounds), str(file or "")]
    rows: list[dict[str, float]] = []
    facts: dict[str, float] = {}
    digest = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if "round" in said:
                rows.append({"clients": clients} | said)
                if said["round"] == kill_after:
                    time.sleep(np.random.default_rng().uniform(0, 1) * said["seconds"])  # in the middle of something
                    process.send_signal(signal.SIGKILL)
                    break
            elif "checkpoint" in said:
                rows[-1] |= said
            else:
                digest = said.pop("digest", digest)
                facts |= said
    if kill_after is None and process.returncode:
        raise SystemExit(f"{method} with {clients} clients ended with {process.returncode}")
    return pd.DataFrame(rows), facts, digest


def of_a_client(methods: list[str]) -> None:
    """Memory of a visited client beyond its model, with all of them in memory."""
    print("\na visited client in memory, in MiB (1 000 clients, 100 a round, no checkpoint)")
    model = np.mean([sum(p.nbytes for p in models.build(name, 10, 3, np.random.default_rng(0)).parameters())
                     for name in models.SCENARIOS["heterogeneous"]])  # fmt: skip
    for method in methods:
        rows, _, _ = run(method, 1000, 5, None)
        grown = rows["rss"].iloc[-1] - rows["rss"].iloc[1]
        each = grown / (rows["visited"].iloc[-1] - rows["visited"].iloc[1])
        print(f"  {method:<9} {each / MIB:6.2f} of a model's {model / MIB:.2f}: {each / model:.2f} times", flush=True)


def interrupted(method: str, clients: int, rounds: int, file: Path) -> None:
    """A run that is killed in its middle and goes on, and an undisturbed one."""
    _, _, expected = run(method, clients, rounds, file)
    clientfiles.remove(file)
    killed, _, _ = run(method, clients, rounds, file, kill_after=rounds // 2)
    rows, _, digest = run(method, clients, rounds, file)
    clientfiles.remove(file)
    same = "the same bits" if digest == expected else "OTHER BITS"
    where = f"killed after round {len(killed) - 1} of {rounds}, went on with round {int(rows['round'].iloc[0])}"
    print(f"  {method:<9} N = {clients:<6} {where}: {same}", flush=True)


def report(method: str, clients: int, rows: pd.DataFrame, facts: dict[str, float]) -> None:
    third = max(1, len(rows) // 3)
    first, last = rows.iloc[1 : 1 + third], rows.iloc[-third:]
    saved = rows[rows["checkpoint"].notna()]
    print(
        f"  {method:<9} N = {clients:<6} {len(rows)} rounds, {int(rows['visited'].iloc[-1])} visited: "
        f"set-up {facts['setup']:.1f} s, peak {facts['peak'] / GIB:.2f} GiB, "
        f"round {rows['seconds'].median():.2f} s ({rows['cpu'].median():.2f} on a processor), "
        f"last third / first {last['cpu'].median() / first['cpu'].median():.2f}, "
        f"checkpoint {saved['checkpoint_bytes'].median() / MIB:.0f} MiB in {saved['checkpoint'].median():.2f} s "
        f"({saved['checkpoint_cpu'].median():.2f}), of it index {saved['index_bytes'].max() / MIB:.1f} MiB at most, "
        f"final digest {facts['digest_seconds']:.0f} s",
        flush=True,
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="with the most clients; a tenth with the others")
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10_000], help="N, ascending")
    parser.add_argument("--methods", nargs="+", default=["FedSSA", "FedProto"])
    parser.add_argument("--folder", help="where the checkpoints are written, by default a temporary folder")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        method, clients, rounds, file = arguments.child
        child(method, int(clients), int(rounds), file)
        return
    rounds, counts = (6, [100, 300]) if arguments.short else (arguments.rounds, arguments.clients)
    torch.set_num_threads(1)
    print(describe())
    if not arguments.short:
        of_a_client(arguments.methods)
    print(f"\nruns with checkpoints, {K} clients a round, {HELD} images a client")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        file = Path(folder) / "checkpoint.pt"
        interrupted(arguments.methods[0], counts[-1], max(6, rounds // 10), file)
        for method in arguments.methods:
            for clients in counts:
                rows, facts, _ = run(method, clients, rounds if clients == counts[-1] else max(5, rounds // 10), file)
                clientfiles.remove(file)
                report(method, clients, rows, facts)


if __name__ == "__main__":
    main()
