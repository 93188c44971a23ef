"""results/computed.csv.gz: FLOPs of each round of those results of record that were stored without them.

    python tests/computed.py     adds what is missing: after runs were added to results/

A run that says it counts on the images of its clients; of these runs a specification and the table of rounds are used, as if the
clients of all architectures had equally many images, so that no data are needed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib import data, models
from fedlib.algorithms import make
from fedlib.isolated import Isolated
from fedlib.lab import costs, of_record
from fedlib.papers import recorded

RESULTS = Path(__file__).resolve().parents[1] / "results"


def counted(spec: Any, rounds: pd.DataFrame) -> np.ndarray:
    """FLOPs of each round of a run, of all clients and the server, to whole numbers."""
    trained = rounds[rounds["round"] >= 0]
    info, method = data.info(str(spec.dataset)), make(spec.algorithm, spec.params)
    algorithm = Isolated(method) if spec.isolated else method
    names, visits = models.architectures(str(spec.scenario)), trained["selected"].to_numpy()
    seen, of_server = spec.classes_per_client or 2, (spec.local_epochs, spec.batch_size)
    cost = costs._flops(algorithm, names, info.num_classes, info.sample, seen, round(visits.mean()), of_server)
    turns = [cost[names[client % len(names)]] for client in range(spec.num_clients)]
    source = data.info(spec.public_dataset) if spec.public_dataset else info
    public = costs._public(algorithm, min(spec.public_fraction * source.num_train, spec.public_images or np.inf))
    trained_on, new = trained["samples"].to_numpy() / visits, np.diff(trained["visited"], prepend=0)
    images = trained_on / spec.local_epochs
    before = [images * own.first + public * own.first_public for own in turns]
    of_visit = [own.of_visit(images, trained_on, spec.batch_size, public) for own in turns]
    server = turns[0].server + public * turns[0].server_public
    return np.round(visits * np.mean(of_visit, axis=0) + new * np.mean(before, axis=0) + server)


def missing() -> list[Any]:
    """The results of record that neither have a table of FLOPs nor are in the file."""
    known = costs._computed(RESULTS)
    return [record for record in of_record.read_results() if not len(record.flops) and record.key not in known]


if __name__ == "__main__":
    file = RESULTS / "computed.csv.gz"
    tables = [pd.read_csv(file)] if file.exists() else []
    for record in missing():
        tables.append(pd.DataFrame({"key": record.key, "flops": counted(record.spec, record.rounds).astype("int64")}))
    name, content = recorded.packed("computed", pd.concat(tables, ignore_index=True))
    (RESULTS / name).write_bytes(content)
