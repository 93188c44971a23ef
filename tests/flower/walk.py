"""Types the commands of docs/pages/machines.md, as they stand there, on a server and four owners in network namespaces of
their own; needs root, iproute2, openssl, ssh-keygen and Flower. `python tests/flower/walk.py FOLDER` prints what it does.

Each side has a folder, HOME and address of its own. Of the page only SERVER and SAN are other values, and /srv/federation is
the side's own folder; what systemd would start is started from the units' ExecStart.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/pages/machines.md"
OWNERS, ADDRESS, PREFIX = 4, "10.77.0.1", "fedlib"


def blocks():
    """(language, first line, whole text) of the page's blocks of a federation, in order."""
    section = PAGE.read_text().split("## One run on many machines")[1].split("## What is the same")[0]
    for language, text in re.findall(r"```(toml|bash|ini)\n(.*?)```", section, re.DOTALL):
        yield language, text.splitlines()[0], text


class Walk:
    def __init__(self, folder):
        self.folder, self.processes = Path(folder).absolute(), []
        self.sides = ["server", *(f"owner-{client}" for client in range(OWNERS))]
        for side in self.sides:
            (self.folder / side).mkdir(parents=True, exist_ok=True)

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

    def environment(self, side, **more):
        own = self.folder / side
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        more |= {"SERVER": ADDRESS, "SAN": f"IP:{ADDRESS},DNS:localhost,IP:127.0.0.1", "HOME": str(own)}
        return kept | more | {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}

    def start(self, side, *words, **more):
        command = ["ip", "netns", "exec", f"{PREFIX}-{side}", *words]
        return {"args": command, "cwd": self.folder / side, "env": self.environment(side, **more)}

    def type(self, side, text, **more):
        """What a person would type there; the line that exports another SERVER is the environment's."""
        text = "\n".join(line for line in text.splitlines() if not line.startswith("export SERVER="))
        ended = subprocess.run(**self.start(side, "bash", "-ec", text, **more), capture_output=True, text=True)
        print(f"[{side}] {text}\n{ended.stdout}{ended.stderr}", flush=True)
        if ended.returncode:
            raise SystemExit(f"{side}: exit {ended.returncode}")
        return ended.stdout

    def unit(self, side, text):
        """Start what a unit starts."""
        text = text.replace("/srv/federation", str(self.folder / side)).replace("${SERVER}", ADDRESS)
        words = shlex.split(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1])
        with open(self.folder / side / "log.txt", "ab") as log:
            given = self.start(side, *words)
            self.processes.append(subprocess.Popen(**given, stdout=log, stderr=log, start_new_session=True))
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
            elif "each owner" in first:
                for client, side in enumerate(owners):
                    (federation.folder / side / "ca.pem").write_bytes((server / "ca.pem").read_bytes())
                    federation.type(side, text, CLIENT=str(client))
                    (told,) = (federation.folder / side / "shares").glob("*/client-*.json")
                    (server / told.name).write_bytes(told.read_bytes())
                    (server / f"node-{client}.pub").write_bytes((federation.folder / side / "node.pub").read_bytes())
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
