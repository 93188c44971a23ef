"""Processor seconds of `fedlib --version`, `--help`, bare and mistyped, beside those of `import torch`."""

import os
import subprocess
import sys

RUNS = 5
COMMANDS = {"--version": ["--version"], "--help": ["--help"], "(bare)": [], "rnu": ["rnu"]}


def processor_seconds(*arguments: str) -> float:
    """The least of several runs of this Python with these arguments, user and system time of the process."""
    found = []
    for _ in range(RUNS):
        before = os.times()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = os.times()
        found.append(after.children_user - before.children_user + after.children_system - before.children_system)
    return min(found)


def main() -> None:
    torch = processor_seconds("-c", "import torch")
    print(f"{'import torch':<18}{torch:6.2f} s")
    for name, words in COMMANDS.items():
        seconds = processor_seconds("-m", "fedlib", *words)
        print(f"fedlib {name:<11}{seconds:6.2f} s {seconds / torch:6.2f} of import torch")


if __name__ == "__main__":
    main()
