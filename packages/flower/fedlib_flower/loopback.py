"""A whole federation on one machine: a SuperLink and SuperNodes as processes of their own that speak TLS on loopback, each
node with a key that the SuperLink knows. For trying and testing; on real machines the same commands are typed by hand::

    run = shares.deal(spec, folder, nodes=3)
    with Loopback(folder, nodes=3) as federation:
        federation.run(run.key, "out")
"""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fedlib.errors import FedlibError

from .server import ERROR

START_SECONDS = 300.0  # until a process has started, on a busy machine
GONE_SECONDS = 65.0  # after two missed heartbeats, a minute, the SuperLink takes a killed node back
BUNDLE = Path(__file__).parent / "bundle"


def installed() -> bool:
    """Whether Flower is there for `Loopback`."""
    return importlib.util.find_spec("flwr") is not None


def write_certificates(folder: Path) -> None:
    """A certificate authority's certificate ca.pem, and server.pem with server.key for localhost, in a folder that nobody
    else may read.
    """
    import trustme

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    server.cert_chain_pems[0].write_to_path(folder / "server.pem")
    server.private_key_pem.write_to_path(folder / "server.key")


def write_node_key(folder: Path, name: str) -> None:
    """A node's private key, and the public one (.pub) that is registered with the SuperLink."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    form, pem = serialization.PrivateFormat.OpenSSH, serialization.Encoding.PEM
    (folder / name).write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Loopback:
    """SuperLink and SuperNodes of the shares in `folder`; their logs, keys and database are in folder/flower.

    environment: of all processes, besides this one's; server_environment: of the server's, besides that. A node is stopped
    and started with `kill_node` and `start_node`, the server with `kill_server` and `start_server`.
    """

    def __init__(
        self,
        folder: str | Path,
        nodes: int,
        environment: dict[str, str] | None = None,
        server_environment: dict[str, str] | None = None,
    ):
        self.folder, self.nodes = Path(folder).absolute(), nodes
        self.own = self.folder / "flower"
        self.environment = os.environ | {
            "FLWR_HOME": str(self.own / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FORCE_COLOR": "",  # a notebook's kernel asks for colours, and what `flwr` prints is read as JSON
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        } | (environment or {})  # fmt: skip
        self.server_environment = self.environment | (server_environment or {})
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: dict[str, float] = {}  # node -> when

    def __enter__(self) -> "Loopback":
        if not installed() or shutil.which("flower-superlink", path=self.environment["PATH"]) is None:
            raise FedlibError("Flower is not installed: pip install 'flwr<1.43' trustme")
        write_certificates(self.own)
        self.port = _free_port()
        (self.own / "home").mkdir(exist_ok=True)
        (self.own / "home/config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.own / "ca.pem"}"\n'
        )
        try:
            self.start_server()
            for node in range(self.nodes):
                write_node_key(self.own, f"node-{node}")
                self._flwr("supernode", "register", self.own / f"node-{node}.pub", "here")
                self._start_node(node)
            for node in range(self.nodes):
                self._until_active(node)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for name in list(self.processes):
            self._kill(name, signal.SIGTERM)

    def start_server(self) -> None:
        """Its database keeps which nodes are known when it is killed."""
        self._start(
            "server", self.server_environment, "flower-superlink", "--host", "127.0.0.1", "--port", self.port,
            "--ssl-ca-certfile", self.own / "ca.pem", "--ssl-certfile", self.own / "server.pem",
            "--ssl-keyfile", self.own / "server.key", "--enable-supernode-auth",
            "--database", self.own / "superlink.db", "--disable-runtime-dependency-installation",
        )  # fmt: skip
        began = time.monotonic()
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            if self.processes["server"].poll() is not None or time.monotonic() - began > START_SECONDS:
                raise FedlibError(f"the SuperLink did not start: {self._said('server')}")
            time.sleep(0.2)

    def start_node(self, node: int) -> None:
        """Start a node and wait until the SuperLink knows that it is there. It takes a node that was killed back only when
        it has missed its heartbeats, so this waits about a minute after `kill_node`. Raises FedlibError where it is refused.
        """
        time.sleep(max(0.0, self.killed.pop(f"node-{node}", -GONE_SECONDS) + GONE_SECONDS - time.monotonic()))
        self._start_node(node)
        self._until_active(node)

    def _start_node(self, node: int) -> None:
        shares = self.folder / f"node-{node}"
        (self.own / f"node-{node}.log").unlink(missing_ok=True)
        self._start(
            f"node-{node}", self.environment, "flower-supernode", "--superlink", f"127.0.0.1:{self.port}",
            "--root-certificates", self.own / "ca.pem", "--auth-supernode-private-key", self.own / f"node-{node}",
            "--port", _free_port(), "--node-config", f'shares="{shares}"',
        )  # fmt: skip

    def _until_active(self, node: int) -> None:
        name, began = f"node-{node}", time.monotonic()
        while "SuperNode ID" not in (self.own / f"{name}.log").read_text(errors="replace"):
            if self.processes[name].poll() is not None or time.monotonic() - began > START_SECONDS:
                self._kill(name, signal.SIGKILL)
                raise FedlibError(f"the SuperLink did not take {name}: {self._said(name, 'code:')}")
            time.sleep(0.2)

    def kill_server(self) -> None:
        """SIGKILL to the SuperLink and to the server's process of a run."""
        self._kill("server", signal.SIGKILL)

    def kill_node(self, node: int) -> None:
        """SIGKILL to a SuperNode and to what it has started."""
        self._kill(f"node-{node}", signal.SIGKILL)
        self.killed[f"node-{node}"] = time.monotonic()

    def start(self, run: str, out: str | Path, patience: float = 600.0) -> str:
        """Submit a run that was dealt; returns the number that Flower gives it. The same `out` resumes."""
        given = f'share="{self.folder / "server" / run}" out="{Path(out).absolute()}" patience={patience}'
        said = self._flwr("run", BUNDLE, "here", "--run-config", given, "--format", "json")
        started = json.loads(said[said.index("{") :])
        if not started.get("success"):
            raise FedlibError(f"flwr run: {' '.join(str(started).split())}")
        return str(started["run-id"])

    def run(self, run: str, out: str | Path, patience: float = 600.0) -> Path:
        """Submit a run and wait for its end; returns `out`. Raises FedlibError with the server's line where it failed."""
        return self.wait(self.start(run, out, patience), out)

    def wait(self, number: str, out: str | Path) -> Path:
        """Wait for a run that `start` submitted."""
        log = self._flwr("log", number, "here", "--stream")
        if not (Path(out) / "rounds.csv").exists():
            error = Path(out) / ERROR
            said = error.read_text() if error.exists() else " ".join(log.split()[-40:])
            raise FedlibError(said.strip() or "the run ended without a word")
        return Path(out)

    def _start(self, name: str, environment: dict[str, str], *command: object) -> None:
        with open(self.own / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.own,
                start_new_session=True,
            )

    def _kill(self, name: str, number: signal.Signals) -> None:
        """Ends the process and all of its session, which is its own."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with suppress(ProcessLookupError):  # whoever of the session outlived it
            os.killpg(process.pid, signal.SIGKILL)

    def _flwr(self, *arguments: object) -> str:
        command = ["flwr", *map(str, arguments)]
        ended = subprocess.run(
            command, env=self.environment, cwd=self.own, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if ended.returncode:
            said = [line.strip() for line in (ended.stderr + ended.stdout).splitlines() if line.strip()]
            raise FedlibError(f"flwr {arguments[0]}: {' '.join(said[-3:]) or f'exit {ended.returncode}'}")
        return ended.stdout

    def _said(self, name: str, mark: str = "") -> str:
        """The last line in its log that has `mark`, if any; its last line otherwise."""
        lines: Sequence[str] = (self.own / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return ([line for line in lines if mark in line] or lines or ["it said nothing"])[-1]
