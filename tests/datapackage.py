"""results/datapackage.json: which table of results/ has which schema of results/schemas/, as a data package (datapackage.org).

python tests/datapackage.py     writes it again: after runs were added to results/

pip install frictionless && frictionless validate results/datapackage.json
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
FILE = RESULTS / "datapackage.json"


def described() -> dict[str, Any]:
    """The package: a resource for each table there is, its schema by name."""
    paths = [RESULTS / f"{name}.csv" for name in ("planned", "checked", "families", "differences")]
    paths.append(RESULTS / "computed.csv.gz")
    paths += sorted(RESULTS.glob("runs/*/*.csv*")) + sorted(RESULTS.glob("pending/runs/*/*.csv*"))  # or .csv.gz
    tables = [path.relative_to(RESULTS) for path in paths]
    version = json.loads((RESULTS.parent / ".zenodo.json").read_text())
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": "fedlib-results",
        "title": "Results of record of fedlib",
        "description": "Runs of federated learning on real data, a folder each, with what was asked (spec.json), what "
        "computed it (provenance.json), its tables, and the digest of each file (DONE); pending/ holds finished runs of "
        "comparisons that are not whole. The tables of a store, FEDLIB_HOME/runs, have the same columns and timing.csv.",
        "licenses": [{"name": version["license"]}],
        "version": version["version"],
        "resources": [
            {
                "name": "-".join(path.parts).lower().partition(".")[0],
                "path": str(path),
                "format": "csv",
                "schema": f"schemas/{path.name.partition('.')[0]}.json",
            }
            for path in tables
        ],
    }


def text() -> str:
    """As it is committed: a resource a line."""
    package = described()
    resources = ",\n".join(f"  {json.dumps(item)}" for item in package.pop("resources"))
    return json.dumps(package, indent=1)[:-2] + f',\n "resources": [\n{resources}\n ]\n}}\n'


if __name__ == "__main__":
    FILE.write_text(text())
