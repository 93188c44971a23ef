"""Whether what Flower says is so. Its commands say "registered" and "started" also where they have started a SuperLink of
their own, since none is configured, and a run's end is in nobody's sight but its log's.
"""

import csv
import json
import os
import shutil
import socket
import ssl
import subprocess
import tomllib
from pathlib import Path

from fedlib.errors import FedlibError, choose, one_line, others_code, require
from fedlib.lab import files

from .server import ERROR

SECONDS = 20.0


def config() -> Path:
    """Flower's configuration, which names the SuperLinks that its commands speak to."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "config.toml"


def connection(name: str) -> str:
    """The address of the SuperLink that Flower's commands mean by `name`, which answers there with a certificate that they
    trust. Raises FedlibError in one line where it does not.
    """
    file = config()
    try:
        known = tomllib.loads(files.regular(file).read_text()).get("superlink", {})
    except (OSError, ValueError, RecursionError) as error:
        raise FedlibError(
            f"{file}: cannot be read ({error}); without it Flower starts a SuperLink of its own"
        ) from None
    require(isinstance(known, dict), f"{file}: superlink", known, "a table of them, [superlink.NAME]")
    choose(f"{file}: superlink", name, [each for each, about in known.items() if isinstance(about, dict)])
    for field in ("address", "root-certificates"):
        require(isinstance(known[name].get(field), str), f"{file}: superlink.{name}.{field}", None, "given")
    address, trusted = known[name]["address"], file.parent / known[name]["root-certificates"]
    host, _, port = address.rpartition(":")
    require(bool(host) and port.isdigit(), f"{file}: superlink.{name}.address", address, "HOST:PORT")
    try:
        context = ssl.create_default_context(cafile=str(trusted))
        with (
            socket.create_connection((host, int(port)), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return address
    except OSError as error:  # of which an SSLError is one
        raise FedlibError(
            f"superlink {name} at {address}: does not answer with a trusted certificate ({error})"
        ) from None


def online(name: str) -> list[int]:
    """The SuperNodes that the SuperLink called `name` has registered and that are there now."""
    if shutil.which("flwr") is None:
        raise FedlibError("Flower is not installed: pip install 'flwr<1.43' trustme")
    command = ["flwr", "supernode", "list", name, "--format", "json"]
    plain = os.environ | {"FORCE_COLOR": ""}  # which a notebook's kernel sets
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, env=plain)
    said = ended.stdout[max(0, ended.stdout.find("{")) :]
    try:
        nodes = json.loads(said)["nodes"]
        return [int(node["node-id"]) for node in nodes if node["status"] == "online"]
    except (ValueError, KeyError, TypeError):
        line = " ".join((ended.stdout + ended.stderr).split())[-300:]
        raise FedlibError(f"flwr supernode list {name}: {line or f'exit {ended.returncode}'}") from None


def result(out: str | Path) -> str:
    """How far the run whose tables go to `out` has come, and whose answers it has gone on without. Raises FedlibError with the
    line that it ended with, and where nothing has come of it.
    """
    with others_code(f"out = {str(out)!r}: has a damaged file"):
        return _result(Path(out))


def _result(folder: Path) -> str:
    if (folder / ERROR).exists():
        raise FedlibError(one_line(files.regular(folder / ERROR).read_text()))
    asked = _rows(folder / "messages.csv")
    for rows, shown in (
        (_rows(folder / "rounds.csv"), "finished after round {}"),
        (asked, "is in its rounds: {} is done"),
    ):
        if rows:
            said = shown.format(int(rows[-1]["round"]) + 1)
            absent = [
                f"client {row['client']} in round {row['round']}: {row['reason']}" for row in asked if row["reason"]
            ]
            return said + (f"; {len(absent)} of {len(asked)} requests in vain, lastly {absent[-1]}" if absent else "")
    raise FedlibError(f"out = {str(folder)!r}: nothing has come of a run yet; `flwr log` of the run says more")


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with open(files.regular(file), newline="") as content:
        return list(csv.DictReader(content))
