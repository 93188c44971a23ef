"""Which clients a side has: what a node is asked before anything else, and answers without loading torch."""

import json
from pathlib import Path

CLIENTS = "clients.json"


def clients_of(side: Path, run: str) -> list[int]:
    """The clients whose images this side has for a run, none if it has no share of it."""
    if not side.is_dir() or run not in (path.name for path in side.iterdir()):  # a name, never a path
        return []
    try:
        return list(json.loads((side / run / CLIENTS).read_bytes())["clients"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
