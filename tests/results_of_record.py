"""Made-up results of record, as `recorded.export` writes them."""

import json
from collections.abc import Mapping

import pandas as pd

from fedlib import lab


def write_results(folder, cells, code="", gains: Mapping[str, float] = {}):
    """runs.csv, rounds.csv and clients.csv of `cells`, in `folder`; code: the digest of the code that
    computed them, or today's; gains: method -> what its accuracy is above that of others, of client 1 twice that, of client 2 nothing.
    """
    runs, rounds, clients = [], [], []
    for cell in cells:
        resolved = lab.resolve(cell.spec)
        spec = {
            name: json.dumps(value) if isinstance(value, dict) else value for name, value in vars(resolved.spec).items()
        }
        provenance = {"code": code or lab.code_digest(resolved.spec), "commit": "a", "torch": "2", "processor": "p"}
        provenance |= {"device": "cpu", "seconds": 60.0, "finished": "2026-01-01T00:00:00Z"}
        runs.append({"key": resolved.key, "status": "finished"} | spec | provenance)
        for number in range(-1, resolved.spec.rounds):
            accuracy = 0.1 + 0.6 * (number + 1) / resolved.spec.rounds + cell.spec.seed / 100
            accuracy += gains.get(cell.method, 0)
            means = dict.fromkeys(("accuracy", "accuracy_all", "accuracy_selected", "validation_accuracy"), accuracy)
            sent = dict.fromkeys(("download_words", "upload_words", "published_words"), 1000.0)
            counted = {"selected": 10, "visited": 10, "samples": 1, "loss": 1 - accuracy}
            rounds.append({"key": resolved.key, "round": number} | counted | means | sent)
        named = {"key": resolved.key, "round": number, "architecture": "CNN-1"}
        more = gains.get(cell.method, 0)
        each = [accuracy, accuracy + more, accuracy - more]
        clients += [named | {"client": client, "accuracy": own} for client, own in enumerate(each)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("runs", runs), ("rounds", rounds), ("clients", clients)):
        pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
