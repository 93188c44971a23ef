"""Whether today's code still computes the results of record: their first rounds, trained again."""

import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from .. import devices, lab, simulation
from ..errors import FedlibError
from ..lab import of_record, places, records

ROUNDS = 2  # besides round -1
FILE = "checked.csv"


def sample(keys: Sequence[str] = ()) -> list[lab.Record]:
    """The results of record to check: those whose keys begin with one of `keys`, or else, of those whose device is here, one for
    each method, protocol, data set and source (the digest of the code, or the versions of the numbers, that its provenance
    names). Those that were never checked come first, then those checked longest ago: an interrupted check goes on where it was.
    """
    known = of_record.read_results()
    when = {row["key"]: row["date"] for row in _so_far().to_dict("records")}

    def in_order(records: Iterable[lab.Record]) -> list[lab.Record]:
        return sorted(records, key=lambda record: when.get(record.key, ""))

    if keys:
        for key in keys:
            if not any(record.key.startswith(key) for record in known):
                raise FedlibError(f"key = {key!r}: names no result of record")
        return in_order(record for record in known if record.key.startswith(tuple(keys)))
    chosen: dict[Any, lab.Record] = {}
    for record in known:
        if not devices.is_there(torch.device(record.spec.device)):
            continue
        source = record.provenance.get("code") or str(record.provenance.get("numerics"))
        spec = record.spec
        chosen.setdefault((spec.algorithm, spec.paper, spec.protocol, spec.dataset, source), record)
    return in_order(chosen.values())


def check(chosen: Sequence[lab.Record]) -> Iterator[dict[str, Any]]:
    """Train the first rounds of each again and compare every number with the six digits on record: a row of
    results/checked.csv each, written as soon as it is known. `worst` is the largest difference, 0 where all agree.
    """
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    for record in chosen:
        row = _row(record)
        before = _so_far()
        kept = before[before["key"] != record.key]
        after = pd.concat([kept, pd.DataFrame([row])], ignore_index=True) if len(kept) else pd.DataFrame([row])
        content = after.sort_values("key", kind="stable").to_csv(index=False, lineterminator="\n")
        lab.write_bytes(file, content.encode())
        yield row


def _file() -> Path:
    """Where a check is written: in the checkout, or in FEDLIB_HOME."""
    return lab.home() / "results" / FILE


def _so_far() -> pd.DataFrame:
    return pd.read_csv(_file()) if _file().exists() else table()


def table() -> pd.DataFrame:
    """results/checked.csv: key, numbers compared, `worst` difference, commit, date, processor, torch."""
    file = places.RESULTS / FILE
    return pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["key", "numbers", "worst", "date"])


def _row(record: lab.Record) -> dict[str, Any]:
    resolved = lab.resolve(record.spec)
    devices.found(record.spec.device)
    if resolved.key != record.key:
        raise FedlibError(f"run {record.key}: today's code would store it as {resolved.key}")
    outcome = simulation.simulate(
        lab.federation_of(resolved),
        resolved.simulated,
        resolved.spec.rounds,
        resolved.spec.participation,
        enough=lambda outcome: len(outcome.round_rows) > ROUNDS,
    )
    rows = outcome.round_rows[: ROUNDS + 1]
    ours, stored = pd.DataFrame(rows).round(6), record.rounds.head(len(rows))
    numbers, worst = 0, 0.0
    for name in stored:
        if name not in ours:
            raise FedlibError(f"run {record.key}: today's code records no {name!r}")
        one, other = ours[name].to_numpy(dtype=float), stored[name].to_numpy(dtype=float)
        numbers += int(np.isfinite(other).sum())
        apart = np.where(np.isnan(one) & np.isnan(other), 0.0, np.abs(one - other))
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max()))
    return {
        "key": record.key,
        "numbers": numbers,
        "worst": 0.0 if worst < 1e-9 else float(f"{worst:.3g}"),
        "commit": records.commit_of_code(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": records.processor()[0],
        "torch": torch.__version__,
    }


def print_check(keys: Sequence[str]) -> bool:
    """Check, print a line each and the worst difference; whether all agree."""
    chosen, worst, elsewhere = sample(keys), 0.0, set()
    here = torch.backends.cpu.get_cpu_capability()
    print(f"{len(chosen)} of {len(of_record.read_results())} results of record, rounds 1 to {ROUNDS} of each")
    for number, (record, row) in enumerate(zip(chosen, check(chosen), strict=True), 1):
        worst = max(worst, row["worst"])
        if row["worst"]:
            elsewhere |= {record.provenance.get("capability", "an unknown one")} - {here}
        said = "agrees" if row["worst"] == 0 else f"differs by {row['worst']:.3g}"
        print(f"{number:3}/{len(chosen)} {row['key']}: {said} ({row['numbers']} numbers)")
        sys.stdout.flush()
    print(f"worst difference: {worst:.3g}; written to {_file()}")
    if elsewhere:
        print(
            textwrap.fill(
                f"What differs was trained with other vector instructions ({', '.join(sorted(elsewhere))}) than this processor "
                f"has ({here}): sums are rounded in another order, and training carries that to single test images. Only "
                "processors with the same instructions are to agree to the last digit.",
                80,
            )
        )
    return worst == 0
