"""Types the commands of packages/flower/README.md, as they stand there, on a server and four owners in network namespaces of
their own; needs root, iproute2, openssl, ssh-keygen and Flower. `python packages/flower/tests/walk.py FOLDER` prints what it does,
with each owner's pictures in FOLDER/owner-K/images.

A side sees its own folder as /srv/federation, and none of the others'; fed.example.org is the server's address. Of the page
only CLIENT is another value at each owner, and the installation, which is this environment, is not typed. What systemd
would start is started with what its unit gives it.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parents[1] / "README.md"
OWNERS, ADDRESS, PREFIX = 4, "10.77.0.1", "fedlib"
ENTER = """
folder=$1 side=$2; shift 2
mount -t tmpfs none /srv && mkdir /srv/federation
mount --bind "$folder/$side" /srv/federation
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs none "$folder"
cd /srv/federation && exec "$@"
"""


def blocks():
    """(language, first line, whole text) of the page's blocks of a federation, in order."""
    section = PAGE.read_text().split("## What all sides have")[1]
    for language, text in re.findall(r"```(toml|bash|ini)\n(.*?)```", section, re.DOTALL):
        yield language, text.splitlines()[0], text


class Walk:
    def __init__(self, folder):
        self.folder, self.processes = Path(folder).absolute(), []
        self.sides = ["server", *(f"owner-{client}" for client in range(OWNERS))]
        for side in self.sides:
            (self.folder / side).mkdir(parents=True, exist_ok=True)
            (self.folder / side / "venv").symlink_to(sys.prefix)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} fed.example.org\n")

    def __enter__(self):
        """A bridge with an address for each side."""
        self.clear()
        run = lambda *words: subprocess.run(words, check=True)  # noqa: E731
        run("ip", "link", "add", f"{PREFIX}-br", "type", "bridge")
        run("ip", "link", "set", f"{PREFIX}-br", "up")
        for number, side in enumerate(self.sides, 1):
            space, end = f"{PREFIX}-{side}", f"{PREFIX[:3]}{number}"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", end, "master", f"{PREFIX}-br", "up")
            for words in (("addr", "add", f"10.77.0.{number}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
                run("ip", "-n", space, *words)
            run("ip", "-n", space, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error):
        for process in self.processes:
            os.killpg(process.pid, 15)
        for process in self.processes:
            process.wait(60)
        self.clear()

    def clear(self):
        for side in self.sides:
            subprocess.run(["ip", "netns", "del", f"{PREFIX}-{side}"], capture_output=True)
        subprocess.run(["ip", "link", "del", f"{PREFIX}-br"], capture_output=True)

    def start(self, side, *words):
        command = ["ip", "netns", "exec", f"{PREFIX}-{side}", "unshare", "--mount", "bash", "-ec", ENTER, "enter"]
        known = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        known |= {"HOME": "/srv/federation", "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
        return {"args": [*command, self.folder, side, *words], "env": known}

    def type(self, side, text):
        """What a person would type there."""
        ended = subprocess.run(**self.start(side, "bash", "-ec", text), capture_output=True, text=True)
        print(f"[{side}] {text}\n{ended.stdout}{ended.stderr}", flush=True)
        if ended.returncode:
            raise SystemExit(f"{side}: exit {ended.returncode}")
        return ended.stdout

    def unit(self, side, text):
        """Start what a unit starts, with its PATH."""
        (command,) = re.findall(r"^ExecStart=(.*)$", text.replace("\\\n", " "), re.MULTILINE)
        (path,) = re.findall(r"^Environment=PATH=(.*)$", text, re.MULTILINE)
        words = ["env", f"PATH={path}", *shlex.split(command)]  # `ip` itself may be elsewhere
        with open(self.folder / side / "log.txt", "ab") as log:
            given = self.start(side, *words) | {"stdout": log, "stderr": log}
            self.processes.append(subprocess.Popen(**given, start_new_session=True))
        print(f"[{side}] started {' '.join(words)}", flush=True)


def until(condition, what, seconds=900):
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"waited in vain: {what}")
        time.sleep(1)


def walk(folder, plan=None):
    """Go through the page; each owner's pictures are in folder/owner-K/images. Returns the server's folder of results."""
    with Walk(folder) as federation:
        server, owners = federation.folder / "server", federation.sides[1:]
        for side in federation.sides:
            assert federation.type(side, f"ls -A {federation.folder}") == "", "a side sees another's files"
        for language, first, text in blocks():
            if language == "toml":
                for side in federation.sides:
                    (federation.folder / side / "plan.toml").write_text(text if plan is None else plan)
            elif language == "ini" and "server" in first:
                federation.unit("server", text)
                until(lambda: "SuperLink" in (server / "log.txt").read_text(), "the SuperLink")
                time.sleep(10)
            elif language == "ini":
                for side in owners:
                    federation.unit(side, text)
                until(
                    lambda: all("SuperNode ID" in (federation.folder / s / "log.txt").read_text() for s in owners),
                    "nodes",
                )
            elif "every machine" in first:
                continue
            elif "each owner" in first:
                for client, side in enumerate(owners):
                    own = federation.folder / side
                    (own / "ca.pem").write_bytes((server / "ca.pem").read_bytes())
                    federation.type(side, text.replace("CLIENT=0 ", f"CLIENT={client} "))
                    for sent in (*own.glob("shares/*/client-*.json"), *own.glob("node-*.pub")):
                        (server / sent.name).write_bytes(sent.read_bytes())
            elif "now and then" in first:
                until(
                    lambda: any((server / "out" / name).exists() for name in ("rounds.csv", "error.txt")),
                    "the run's end",
                )
                federation.type("server", text)
            else:
                federation.type("server", text)
    return server / "out"


if __name__ == "__main__":
    print(walk(sys.argv[1]))
