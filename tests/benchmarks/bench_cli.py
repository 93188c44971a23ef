"""Processor seconds that a user waits for: commands, and imports of a notebook, beside `import torch`, which is none of ours.

Expected: --version, --help, bare and mistyped below a third of `import torch`; what computes, at most it and a second.
"""

import os
import subprocess
import sys

from machine import describe

RUNS = 5
COMMANDS = {
    "import torch": ["-c", "import torch"],
    "import fedlib": ["-c", "import fedlib"],
    "from fedlib import run": ["-c", "from fedlib import run"],
    "the first notebook cell": ["-c", "from fedlib import lab; from fedlib.papers import notebook; notebook.settings"],
    **{
        f"fedlib {words}": ["-m", "fedlib", *words.split()]
        for words in ("--version", "--help", "", "rnu", "list", "exhibits", "runs list", "record")
    },
}


def processor_seconds(arguments: list[str]) -> float:
    """The least of several runs of this Python with these arguments, user and system time of the process."""
    found = []
    for _ in range(RUNS):
        before = os.times()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = os.times()
        found.append(after.children_user - before.children_user + after.children_system - before.children_system)
    return min(found)


def main() -> None:
    print(describe())
    torch = 0.0
    for name, arguments in COMMANDS.items():
        seconds = processor_seconds(arguments)
        torch = torch or seconds
        print(f"{name:<24}{seconds:6.2f} s {seconds / torch:6.2f} of import torch", flush=True)


if __name__ == "__main__":
    main()
