"""Runs in processes of their own, to be killed, and what must not depend on any of it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fedlib import RunSpec, lab, run
from fedlib.lab import files

SECONDS = 120  # after which a wait fails instead of hanging


@contextmanager
def started(*arguments: str, home: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`python <arguments>` with its own store, stdout and stderr as one text stream; killed if it outlives the block."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"FEDLIB_HOME": str(home)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def code(source: str, specs: list[RunSpec]) -> list[str]:
    """Arguments of python that execute `source`, which finds its specifications in `specs`."""
    head = "import json, sys\nfrom fedlib import RunSpec, lab, run, simulation, sweep\nfrom fedlib.lab import checkpoint, launch\n"
    given = "specs = [RunSpec(**values) for values in json.loads(sys.argv[1])]\n"
    return ["-c", head + given + source, json.dumps([asdict(spec) for spec in specs])]


def interrupted(spec: RunSpec, after: int = 0) -> None:
    """Run it up to the end of round `after`, where a SIGTERM arrives."""

    def report(spec: Any, row: dict[str, Any]) -> None:
        if row["round"] == after:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(lab.Interrupted, match=f"stopped after round {after + 1} of {spec.rounds}; the same command"):
        run(spec, progress=False, log=report)


def wait_for(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {seconds} seconds"
        time.sleep(0.01)


def wait_for_text(process: subprocess.Popen[str], text: str) -> str:
    """Read the process's output until `text` has appeared; what was read."""
    assert process.stdout is not None
    read = ""
    while text not in read:
        character = process.stdout.read(1)
        assert character, f"ended without {text!r}: {read}"
        read += character
    return read


def bits(run: Path) -> tuple[dict[str, bytes], str]:
    """What must be identical: the tables, what the method noted, and the digest of the final state."""
    noted = [name for name in ("rounds.csv", "clients.csv", "details.jsonl") if (run / name).exists()]
    return {name: (run / name).read_bytes() for name in noted}, done(run)["state"]


def done(run: Path) -> dict[str, Any]:
    """What DONE says."""
    return json.loads(files.unseal((run / "DONE").read_bytes()))


def rewrite(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Replace a file of a stored run (JSON, or bytes as they are), and the digests to match."""
    said = done(path)
    if name == "DONE":
        said = change(said)
    else:
        content = change(json.loads((path / name).read_bytes()))
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        (path / name).write_bytes(content)
        said["files"][name] = hashlib.sha256(content).hexdigest()
    files.write_files({path / "DONE": files.seal(json.dumps(said).encode())})
