"""The one table of differences, results/differences.csv: what `stats.differences` makes of each family of results/families.csv.

A family is one question: its pairs (case, reference) of a grid of the plan, whose intervals hold together, with its margin. A pair of
runs stands in one family only, so that it has one interval; README, notebooks, pages, site and terminal read it here.
`round`: as if the runs had ended there. `value` flops: each case at the round in which it has computed what its reference does in all;
tuned: each method where its mean validation accuracy is best, over E, B, T of the papers' grid and what else was searched; E = 1 - E = 10:
the change of a difference.
"""

import numpy as np
import pandas as pd

from .. import lab
from ..lab import costs, of_record, places
from ..show import stats
from . import planned

TABLE = places.RESULTS / "differences.csv"
VALIDATION = {"validation": "method", "validation_of_reference": "reference"}
COLUMNS = [
    "family", "dataset", "num_clients", "participation", "local_epochs", "batch_size", "rounds", "method", "reference",
    "rule", "difference", "half", "n", "seeds", "margin", "verdict", *VALIDATION, "version", "commit",
]  # fmt: skip
PLACE = ["dataset", "num_clients", "participation", "local_epochs", "batch_size", "rounds"]
ROUNDS = 100, 500  # T in the papers' grids
RULES = ["last", "last10"]
COUNTS = dict.fromkeys(PLACE[3:], "Int64")  # empty of a pair that is not at one E, B and T


def load() -> pd.DataFrame:
    """The committed table: family, setting columns (`PLACE`), method, reference, rule, difference, half, n, seeds (values seed by seed),
    margin, verdict, the mean validation accuracy of both (per cent, of the last ten rounds), by which a best setting is chosen, version (of
    the rule) and commit (the newest of its runs').
    """
    return pd.read_csv(TABLE, dtype={"seeds": "str", **COUNTS})


def families() -> pd.DataFrame:
    """results/families.csv, a row a pair; question, planned and margin stand in a family's first row."""
    return pd.read_csv(places.RESULTS / "families.csv", dtype={"round": "Int64"})


def at_best(table: pd.DataFrame) -> pd.Series:
    """Of each row of a table of one rule whether both methods are read there at their best mean validation accuracy, among the settings of
    the pair (of a data set, N and C) that have three seeds, or as many as there are; where the two differ, of the row of `tuned`.
    """
    pairs = [table[of] for of in [*PLACE[:3], "method", "reference"]]
    seeds = table["n"].clip(upper=3)
    held = table[[*VALIDATION]].where(seeds == seeds.groupby(pairs).transform("max"))
    return (held == held.groupby(pairs).transform("max")).all(axis=1)


def build() -> pd.DataFrame:
    """The table of what is of record today."""
    runs, rounds, _ = lab.tidy(places.RESULTS / "runs")
    runs = runs.set_index("key")
    grids: dict[str, list[planned.Planned]] = {}
    for arm in planned.arms().values():
        for run in arm.runs:
            for name in {arm.name, *run.grids} if run.key in runs.index else ():
                grids.setdefault(name, []).append(run)
    made = []
    for family, rows in families().groupby("family", sort=False):
        first, pairs = rows.iloc[0], [*zip(rows["case"], rows["reference"], strict=True)]
        members = {run.key: run for name in first["grid"].split() for run in grids.get(name, [])}
        at, margin = (None if pd.isna(first[name]) else first[name] for name in ("round", "margin"))
        ends = ROUNDS if first["value"] == "tuned" and at is None else (at,)
        frame = pd.concat([_frame([*members.values()], runs, rounds, end) for end in ends])
        if first["value"] == "tuned":
            frame = _tuned(frame)
        elif at:  # the shortest run that has these rounds stands for them
            frame = frame.drop_duplicates(["setting", "method", "seed"])
        if first["value"] == "E = 1 - E = 10":
            frame = _change(frame)
        elif first["value"] == "flops" and len(frame):
            frame = _at_equal_computation(frame, rounds, dict(pairs))
        for rule, other in (RULES, RULES[::-1]) if len(frame) else ():
            found = stats.differences(frame, pairs, value=rule, also=other, margin=margin)
            of_pairs = [_of_pair(frame, *row) for row in found[["setting", "method", "reference"]].to_numpy()]
            newest = [str(own.sort_values("finished")["commit"].iloc[-1]) for own in of_pairs]
            found = found.assign(family=family, rule=rule, margin=first["margin"], version=stats.VERSION, commit=newest)
            held = frame.groupby(["setting", "method"])["validation"].mean().to_dict()
            for name, of in VALIDATION.items():
                found[name] = [held[row] for row in zip(found["setting"], found[of], strict=True)]
            # A row of `tuned` has what both methods have in common; a pair at one E, B, T and rate is another family's.
            if first["value"] == "tuned":
                both = [[set(own[name]) for name in PLACE] for own in of_pairs]
                found["setting"] = [[min(one) if len(one) == 1 else None for one in row] for row in both]
                alike = [len(own[[*PLACE, "lr"]].drop_duplicates()) == 1 for own in of_pairs]
                found = found.drop(found.index[alike])
            made += [found] if len(found) else []
    table = pd.concat(made, ignore_index=True)
    table[PLACE] = pd.DataFrame(table["setting"].tolist(), index=table.index)
    table = table.astype(COUNTS)
    seeds = table["seeds"].map(lambda own: "; ".join(f"{seed}: {value:.3f}" for seed, value in own.items()))
    return table.assign(seeds=seeds).round(dict.fromkeys(["difference", "half", *VALIDATION], 4))[COLUMNS]


def _frame(members: list[planned.Planned], runs: pd.DataFrame, rounds: pd.DataFrame, at: int | None) -> pd.DataFrame:
    """A row a run: its setting, method (the case), seed, both rules' values and its last ten validation accuracies' mean. With `at` the
    setting has this many rounds, and only runs that have them are there, the shortest first.
    """
    own = runs.loc[[run.key for run in members]].assign(method=[run.case for run in members])
    own = own[own["rounds"] >= (at or 0)].sort_values("rounds", kind="stable")
    ended = own.assign(rounds=at or own["rounds"])
    ended["setting"] = list(map(tuple, ended[PLACE].to_numpy()))
    read = rounds[rounds["key"].isin(ended.index)]
    for rule in RULES:
        ended[rule] = stats.reported(read, rule, at).reindex(ended.index).mask(ended["status"] == "diverged")
    ended["validation"] = stats.reported(read, "last10", at, "validation_accuracy").reindex(ended.index)
    return ended.reset_index()


def _tuned(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each method the runs of what was asked for, a specification but its seed and a T, with the best mean validation accuracy."""
    searched = frame.drop(columns=[*_OF_A_RUN, *RULES, "validation", "method", "setting"]).columns
    frame = frame.assign(asked=frame.groupby([*searched], dropna=False).ngroup(), method=frame["algorithm"])
    scores = frame.groupby([*PLACE[:3], "method", "asked"])["validation"].mean()
    best = scores.groupby(level=[*PLACE[:3], "method"]).idxmax().map(lambda row: row[-1])
    own = frame[frame["asked"].isin(best)].drop_duplicates(["asked", "seed"])
    own["setting"] = [(*place, None, None, None) for place in own[PLACE[:3]].to_numpy()]
    return own


_OF_A_RUN = ["key", "seed", "status", "digest", "processor", "commit", "finished", "seconds"]


def _change(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs at E = 1, their values less those of the run at E = 10, alike in method, seed and the rest: of three seeds or more."""
    place = [column for column in PLACE if column != "local_epochs"]
    frame = frame.set_index([*place, "method", "seed"])
    one, ten = (frame[frame["local_epochs"] == epochs] for epochs in (1, 10))
    both = one.index.intersection(ten.index)
    found = one.loc[both].assign(**(one.loc[both, RULES] - ten.loc[both, RULES]), validation=np.nan).reset_index()
    found["setting"] = [(*row[:3], None, *row[3:]) for row in found[place].to_numpy()]
    return found if found["seed"].nunique() > 2 else found.head(0)


def _at_equal_computation(frame: pd.DataFrame, rounds: pd.DataFrame, references: dict[str, str]) -> pd.DataFrame:
    """The frame with each method's values at the last round by which it has computed no more than its reference in all."""
    records = of_record.by_key()
    spent = {key: costs.of_run(records[key]) for key in frame["key"]}
    rows = frame[["setting", "method", "seed", "key"]].to_numpy().tolist()
    keys = {(*place, method, seed): key for *place, method, seed, key in rows}
    made = []
    for *place, method, seed, key in rows:
        other = keys.get((*place, references.get(method), seed))
        end = int((spent[key] <= spent[other][-1] * (1 + 1e-9)).sum()) if other else None
        own = rounds[rounds["key"] == key]
        found = [stats.reported(own, rule, end)[key] if end != 0 else np.nan for rule in ("last", "last10")]
        made.append(found)
    return frame.assign(**pd.DataFrame(made, columns=RULES, index=frame.index), validation=np.nan)


def _of_pair(frame: pd.DataFrame, setting: tuple[object, ...], *methods: str) -> pd.DataFrame:
    """The runs of two methods in a setting."""
    return frame[(frame["setting"] == setting) & frame["method"].isin(methods)]


if __name__ == "__main__":
    build().to_csv(TABLE, index=False, lineterminator="\n")
