"""Golden values: what every part of fedlib computes today, in a few numbers a tensor, and the deal, to the index.

`tests/test_golden.py` compares today's numbers with the stored ones in tests/golden/. Whoever changes numbers on purpose
raises the version of the part in fedlib/numerics.py and runs `python tests/golden.py`, which writes again what is of
other versions than it says, or of another case, and refuses numbers that moved under the same versions (`--all` writes
everything). `python tests/golden.py --compare` prints how far off each case is, in shares of what is allowed.

A case is two rounds on a part of the digits. Of each tensor of the visited clients' states and of the server's there is
the norm, the norm of its change since the start (or, where it had none then, the norm again) and the projection of that
change on a random direction, which shows what leaves norms as they are. Beside losses, counts and what a method records
there are the norm and projection of each client's answers to its test images.

Other processors and versions of torch round otherwise, and where rounding puts a number on the other side of zero, a
ReLU or a pooling sends the gradient elsewhere. So a number may be off by a share of the tensor's change, SHARE, or by
MARGIN times what it is off when the initial weights are disturbed a little, which is tried when values are written: a
bias before a batch normalisation is rounding and nothing else. (What the middle one of a state's tensors is off, as a
share of its change, all of them may be.) The last number of an entry is what it may be off.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from fedlib import RunSpec, data, lab, models, numerics, partition, simulate
from fedlib.algorithms import ALGORITHMS
from fedlib.lab.presets import PRESETS
from fedlib.protocol import SPLITS

FOLDER = Path(__file__).parent / "golden"
SIZES = {"digits-240": 200, "digits-144": 120}  # parts of the digits -> how many of them are to train on
SEED = 6  # one under which clients return in the second round, see tests/test_golden.py
# What a tensor may be off, of its change; other numbers, of themselves: a hundredth of it.
SHARE = {"fp32": 0.02, "bf16": 0.1}
ROUNDING = 1e-6  # what a tensor may be off, of its norm
DISTURBANCE = {"fp32": 1e-6, "bf16": 1e-4}  # of the initial weights, of each weight
MARGIN, DISTURBED = 16, 2  # times what it then is off; number of disturbed runs
# Of FedKEMF less, whose server would hide faults otherwise; a machine without AVX moves a seventh of it.
MARGINS = {"FedKEMF": 4}
# What an accuracy may be off, a client's and the mean of three to five: a client has about four test images.
IMAGES = {"fp32": (0.26, 0.09), "bf16": (0.51, 0.17)}

# ------------------------------------------------------------------------------------------------------- the cases


# What shows a method's own term, or its stream, after a few steps, and a small server of pFedHR.
USUAL: dict[str, dict[str, Any]] = {
    "FedProx": {"params": {"mu": 10.0}},
    "Per-FedAvg": {"params": {"alpha": 0.05}},
    "FedClassAvg": {"params": {"rho": 10.0}},
    "FedKD": {"local_epochs": 3, "lr": 0.03, "classes_per_client": 2},
    "FCCL": {"params": {"off_diagonal": 0.5}},
    "FedKEMF": {"batch_size": 8},
    "FedGH": {"params": {"server_lr": 0.1}},
    "pFedES": {"params": {"mu": 0.5}},
    "pFedHR": {"params": {"clusters": 2, "server_epochs": 1, "max_candidates": 2, "weight": 1.0}},
    "FedTGP": {"batch_size": 8, "params": {"lam": 1.0, "server_epochs": 10, "server_lr": 0.1}},
    "FedRep": {"params": {"head_epochs": 2}},
    "FedBABU": {"params": {"tune_epochs": 2}},
    "FedGen": {"params": {"generator_steps": 5, "generator_lr": 0.01}},
    "FedL2G": {"params": {"server_lr": 100.0}},
}


def question(name: str, **changes: Any) -> RunSpec:
    """Two short rounds of a method. Three of five clients a round, CNN-1..5, or all M1 (which has dropout) where whole
    models are averaged; where images are public, each of M1..M4 in both rounds, so that pFedHR's clients have teachers.
    """
    method = ALGORITHMS[name]
    asked: dict[str, Any] = {"dataset": "digits-240", "num_clients": 5, "participation": 0.6}
    asked["scenario"] = "homogeneous-M1" if method.needs == "architecture" else "heterogeneous"
    if method.public_data != "none":
        asked |= {"dataset": "digits-144", "scenario": "reassembly", "num_clients": 4, "participation": 1.0}
    usual = USUAL.get(name, {})
    changes["params"] = usual.get("params", {}) | changes.get("params", {})
    asked |= {
        "rounds": 2,
        "local_epochs": 1,
        "batch_size": 16 if method.public_data != "none" else 24,
        "classes_per_client": 4,
        "seed": SEED,
        "precision": "fp32",
    }
    return RunSpec(name, **asked | usual | changes)


def cases() -> dict[str, RunSpec]:
    """Every method in both precisions, every preset with its own method, and each choice that leads to other code."""
    found = {f"{name} {precision}": question(name, precision=precision) for name in ALGORITHMS for precision in SHARE}
    for paper, variant in PRESETS:
        if variant != RunSpec.protocol:  # under which all methods are above
            found[f"{paper} {variant}"] = question(paper, protocol=variant)
    for word, overrides in {
        "adam": {"optimiser": "adam", "momentum": 0.0, "lr": 0.001, "weight_decay": 0.1},
        "inherit first_visit": {"inherit": "first_visit"},
        "inherit first_round": {"inherit": "first_round", "weight_decay": 0.1},
        "starts apart": {"starts": "apart"},
        "header_scale": {"header_scale": 4.0},
        "normalise imagenet": {"normalise": "imagenet"},
        "clip_norm": {"clip_norm": 0.1},
        "split official": {"split": "official-4:1:1", "floors": True, "distinct": False},
        "reserve": {"reserve": True, "split": "train-16:4:5"},
    }.items():
        scenario = "CNN-5" if word.startswith("inherit") else "heterogeneous"
        found[f"Standalone {word}"] = question("Standalone", overrides=overrides, scenario=scenario)
    for dealer in ("dirichlet", "iid", "quantity-skew", "feature-shift"):
        found[f"Standalone {dealer}"] = question("Standalone", partition=dealer)
    found["Standalone groups"] = question("Standalone", partition="groups", dataset="digits-240-groups")
    found["Standalone epochs"] = question("Standalone", local_epochs=2)
    found["LG-FedAvg reassembly-500"] = question("LG-FedAvg", scenario="reassembly-500", participation=1.0)
    for name, params in OTHER_PARAMETERS:
        words = " ".join(f"{key}={value}" for key, value in params.items())
        found[f"{name} {words}"] = question(name, params=params)
    for network, kind in models.OTHER_KINDS.items():
        found[f"Standalone {network}"] = question("Standalone", scenario=network, dataset=f"digits-240-{kind}")
    found["Standalone zoo"] = question("Standalone", scenario="ResNet-4,ViT-T")
    found["pFedHR unlabelled"] = question("pFedHR", public_labels=False)
    found["FedProto isolated"] = question("FedProto", isolated=True)
    found["FCCL another public set"] = question("FCCL", public_dataset="digits-inverted", public_images=20)
    return found


OTHER_PARAMETERS: list[tuple[str, dict[str, Any]]] = [
    ("Per-FedAvg", {"alpha": 0.1, "beta": 0.02}),
    ("pFedMe", {"inner_lr": 0.02, "beta": 0.5}),
    ("pFedBayes", {"noise": 1.0, "beta": 0.5, "rho0": -5.0}),
    ("FML", {"score_shared": True}),
    ("FedKD", {"energy_start": 0.5, "energy_end": 0.6}),
    ("FedKD", {"reduction": "all", "detach": False, "score_shared": True}),
    ("FedClassAvg", {"replace": False, "reduction": "mean", "contrast": 1.0}),
    ("FD", {"distance": "mse", "outputs": "logits"}),
    ("FD", {"exclude_self": False}),
    ("FedProto", {"weighted": True}),
    ("FedKEMF", {"label_weight": 0.0}),
    ("FedKEMF", {"distance": "mse"}),
    ("FedGH", {"server_update": "minibatch", "lars": "augmented", "first_header": "own"}),
    ("FedSSA", {"fusion": "convex", "stable_rounds": 3}),
    ("FedSSA", {"aggregation": "whole", "replace": "all", "stable_rounds": 3}),
    ("FedSSA", {"aggregate_over": "all", "aggregation": "whole", "replace": "all"}),
    ("pFedES", {"output": "linear", "extractor_epochs": 0, "extra_epochs": 1}),
    ("pFedHR", {"kd": "raw", "teacher": "last_match", "search": "exhaustive", "activations": "pooled"}),
    ("pFedHR", {"public_only": True}),
    ("pFedHR", {"merge_same": True, "stitch_layers": 2, "client_reset": True, "cka_samples": 8}),
    ("FedTGP", {"distance": "mse"}),
    ("FedMRL", {"width": 100, "m_small": 0.5}),
    ("FedBABU", {"tuned": "model"}),
    ("FedL2G", {"space": "features", "warm_up": 0.5}),
]
CASES = cases()


@cache
def part_of_digits(name: str) -> data.Dataset:
    """The first of the digits to train on, and a sixth as many to test."""
    whole, size = data.load("digits"), SIZES[name]
    train, test = slice(size), slice(whole.num_train, None, 6 * (len(whole.labels) - whole.num_train) // size)
    images, labels = whole.images.numpy(), whole.labels.numpy()
    return data.Dataset.from_arrays(name, images[train], labels[train], images[test], labels[test], 10, augment=True)


@cache
def with_groups() -> data.Dataset:
    """The part of the digits, each of which is one of five subjects'."""
    whole = part_of_digits("digits-240")
    parts = [part.numpy().copy() for part in (whole.images, whole.labels)]
    (train, test), (labels, test_labels) = (np.split(part, [whole.num_train]) for part in parts)
    groups = np.arange(len(labels)) * 5 // len(labels), np.arange(len(test_labels)) * 5 // len(test_labels)
    return data.Dataset.from_arrays(
        "digits-240-groups", train, labels, test, test_labels, 10, augment=True, groups=groups
    )


@cache
def of_another_kind(kind: str) -> data.Dataset:
    """The part of the digits with their 8x8 grey values in a row, as 8 series or as ids."""
    pictures = part_of_digits("digits-240")
    grey = pictures.images[:, 0, ::4, ::4].numpy()
    made = {"vector": grey.reshape(-1, 64) / 255, "series": grey / 255, "tokens": grey.reshape(-1, 64) // 15}[kind]
    made = made.astype(np.int64 if kind == "tokens" else np.float32)
    first, labels = pictures.num_train, pictures.labels.numpy()
    arrays = made[:first], labels[:first], made[first:], labels[first:]
    return data.Dataset.from_arrays(f"digits-240-{kind}", *arrays, 10, kind=kind)


def resolved(case: str) -> lab.Resolved:
    for name in SIZES:
        data.register(name, partial(part_of_digits, name))
    data.register("digits-240-groups", with_groups)
    for kind in models.OTHER_KINDS.values():
        data.register(f"digits-240-{kind}", partial(of_another_kind, kind))
    return lab.resolve(CASES[case], "smoke")


def parts(case: str) -> list[str]:
    """The parts of fedlib whose numbers a case shows."""
    return numerics.parts(resolved(case).hashed)


def versions_of(used: list[str]) -> dict[str, int]:
    return {part: numerics.version(part) for part in used}


# ------------------------------------------------------------------------------------------------- numbers of a case


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of what a state holds in dictionaries."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


@cache
def direction(size: int) -> np.ndarray:
    """Numbers with mean 0 and variance 1, so that a projection is about as large as what is projected."""
    return (np.random.default_rng(size).random(size) - 0.5) * 12**0.5


def measured(tensor: torch.Tensor, start: torch.Tensor | None) -> list[float]:
    """[norm, norm of the change since `start`, projection of the change]."""
    now = tensor.detach().double().numpy().ravel()
    change = now if start is None else now - start.detach().double().numpy().ravel()
    return [float(np.linalg.norm(now)), float(np.linalg.norm(change)), float(direction(len(change)) @ change)]


def state(prefix: str, value: Any, starts: dict[str, torch.Tensor], factors: tuple[str, ...]) -> dict[str, Any]:
    """The numbers of a state. starts: initial tensors by name; one of that name, or of that name within the state, and
    that shape is what the change counts from. factors: endings of names of singular vectors, whose signs mean nothing.
    """
    found: dict[str, Any] = {}
    for name, leaf in leaves(value):
        if isinstance(leaf, torch.Tensor):
            known = (starts[key] for key in (name, name.partition(".")[2]) if key in starts)
            numbers = measured(leaf, next((one for one in known if one.shape == leaf.shape), None))
            found[f"{prefix} {name}"] = numbers[:2] if name.endswith(factors) else numbers
        else:
            found[f"{prefix} {name}"] = plain(leaf)
    return found


def plain(value: Any) -> Any:
    """What is no tensor: numbers and text as they are, lists of numbers like tensors, anything else as text."""
    if isinstance(value, bool | int | float | str):
        return value
    try:
        return measured(torch.from_numpy(np.array(value, dtype=np.float64)), None)
    except (TypeError, ValueError):
        return json.dumps(value)


def values(case: str) -> dict[str, Any]:
    """Name -> [norm, norm of the change, projection] of a tensor, or a number or text."""
    whole = resolved(case)
    federation, method, spec = lab.federation_of(whole), whole.simulated, whole.spec
    with torch.random.fork_rng(devices=[]):
        outcome = simulate(federation, method, spec.rounds, spec.participation)
        first = method.init_server(federation.server_context(0, spec.rounds))
    found: dict[str, Any] = {}
    for row in outcome.client_rows:
        if row["round"] >= 0:
            who = f"round {row['round']} client {row['client']}"
            found |= {f"{who} {name}": row[name] for name in row if name not in ("round", "client", "architecture")}
    for row in outcome.round_rows:
        found |= {f"round {row['round']} {name}": row[name] for name in row if name != "round"}
    for row in outcome.detail_rows:
        found |= {f"round {row['round']} {name}": plain(leaf) for name, leaf in leaves(row) if name != "round"}
    server = {name: leaf for name, leaf in leaves(first) if isinstance(leaf, torch.Tensor)}
    server |= {name.removeprefix("model."): leaf for name, leaf in server.items()}
    factors = (".u", ".s", ".v") if method.name == "FedKD" else ()  # as many triplets as hold the energy
    found |= state("server", outcome.server, server, factors)
    for client in outcome.clients:
        if client.visited:
            start = dict(client.build(client.info.architecture).state_dict())
            found |= state(f"client {client.id} model", client.model.state_dict(), start, factors)
            found |= state(f"client {client.id} state", client.state, start | server, factors)
            inputs = client.pool.batch(client.test)
            with torch.no_grad():
                answers = method.predict(client, inputs if inputs.dtype == torch.int64 else inputs.float())
            for name, logits in answers.items():
                found[f"client {client.id} answers {name}"] = measured(logits.nan_to_num(neginf=0), None)
    return found


@contextmanager
def disturbed(size: float, seed: int) -> Iterator[None]:
    """Every network's initial weights off by a factor 1 + size * noise."""
    build, stream = models.build, torch.Generator().manual_seed(seed)

    def off(*given: Any) -> torch.nn.Module:
        network = build(*given)
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(1 + size * torch.randn(weight.shape, generator=stream))
        return network

    models.build = off
    try:
        yield
    finally:
        models.build = build


def distance(one: Any, other: Any) -> float:
    """How far two values of one name are apart, the largest difference of their numbers; infinite if nothing compares."""
    if repr(one) == repr(other):  # NaN too
        return 0.0
    one, other = (value if isinstance(value, list) else [value] for value in (one, other))
    if len(one) != len(other) or any(not isinstance(value, int | float) for value in (*one, *other)):
        return np.inf
    largest = max(abs(a - b) for a, b in zip(one, other, strict=True))
    return largest if np.isfinite(largest) else np.inf


def owner(name: str) -> str:
    """Whose state a tensor belongs to: `server`, `client 3 model`."""
    return name.rpartition(" ")[0]


def evened(noise: dict[str, float], now: dict[str, Any]) -> dict[str, float]:
    """The noise of each value, of a tensor at least the median of its state's, as shares of their changes: two runs leave
    one tensor or another of a restless network as it was.
    """
    shares: dict[str, list[float]] = {}
    tensors = [name for name, value in now.items() if isinstance(value, list) and value[1] > 0]
    for name in tensors:
        shares.setdefault(owner(name), []).append(noise[name] / now[name][1])
    return noise | {name: max(noise[name], median(shares[owner(name)]) * now[name][1]) for name in tensors}


def with_tolerances(case: str) -> dict[str, Any]:
    """`values`, each followed by what it may be off: [..., tolerance]; text and counts that stay are as they are."""
    precision, now = CASES[case].precision, values(case)
    noise = dict.fromkeys(now, 0.0)
    for seed in range(DISTURBED):
        with disturbed(DISTURBANCE[precision], seed):
            other = values(case)
        away = {name: distance(now[name], other[name]) for name in now.keys() & other.keys()}
        noise |= {name: max(noise[name], away[name]) for name in away if np.isfinite(away[name])}
    found, noise = {}, evened(noise, now)
    for name, value in now.items():
        allowed = MARGINS.get(CASES[case].algorithm, MARGIN) * noise[name]
        if isinstance(value, list):
            allowed += SHARE[precision] * value[1] + ROUNDING * value[0] + 1e-9
        elif "accuracy" in name and np.isfinite(value):
            allowed += IMAGES[precision]["client" not in name]
        elif isinstance(value, float) and np.isfinite(value):
            allowed += 0.01 * SHARE[precision] * abs(value) + 1e-9
        numbers = value if isinstance(value, list) else [value]
        found[name] = [*numbers, float(f"{allowed:.2g}")] if allowed else value
    return found


def deviations(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    """How far each value is off, as a share of what is allowed; infinite where nothing is.

    expected: as of `with_tolerances`; found: as of `values`.
    """
    off = {}
    for name in expected.keys() | found.keys():
        one, other = expected.get(name), found.get(name)
        *numbers, allowed = one if isinstance(one, list) else [one, 0.0]
        away = distance(numbers, other if isinstance(other, list) else [other])
        off[name] = away / allowed if away and allowed else away and np.inf
    return off


# --------------------------------------------------------------------------------------------------------- the deal


def labels_like(dataset: str) -> np.ndarray:
    """50 000 labels to train on and 10 000 to test, the classes in turn."""
    classes = int(dataset.removeprefix("cifar"))
    return np.arange(60_000) % classes


GROUPS = np.arange(60_000) // 7 % 20  # whose each image is, and a number of each
LEVELS = np.arange(60_000) * 7919 % 60_013 / 60_013


def deals() -> dict[str, tuple[list[str], Any]]:
    """Name of a deal -> the parts of fedlib that make it, and its arrays of indices as a function without arguments."""
    found: dict[str, tuple[list[str], Any]] = {}
    for dataset in ("cifar10", "cifar100"):
        labels, classes = labels_like(dataset), int(dataset.removeprefix("cifar"))
        for seed in (0, 1):
            reserved = partial(partition.reserved_images, labels, 50_000, 0.1, seed)
            public = partial(partition.public_images, labels, 50_000, 0.1, seed, 1000)
            found[f"{dataset} seed={seed} reserved"] = ["training"], lambda make=reserved: [make()]
            found[f"{dataset} seed={seed} public"] = ["training"], lambda make=public: [make()]
            for clients, dealer, split in itertools.product((10, 100), partition.BUILT_IN, SPLITS):
                kinds: list[dict[str, Any]] = [{}]
                if dealer == "by-class":
                    kinds += [{"distinct": False, "floors": True}]
                    kinds += [] if split.startswith("official") else [{"dealing": "shards"}]
                for kind in kinds:
                    held = partition.Dealing(clients, classes, dealer, classes // 5, split=split, **kind)
                    name = " ".join([f"{dataset} seed={seed} N={clients} {dealer} {split}", *kind])
                    own = () if split.startswith("local") else np.arange(0, 50_000, 10)  # some that nobody gets
                    more = {"groups": {"groups": GROUPS}, "feature-shift": {"levels": LEVELS}}.get(dealer, {})
                    made = partial(partition.client_images, labels, 50_000, held, seed, own, **more)
                    used = ["training", f"partition {dealer}", f"split {split}"]
                    used += ["dealing shards"] if "dealing" in kind else []
                    found[name] = used, lambda make=made: [part for parts in make() for part in parts]
    return found


def digest(arrays: list[np.ndarray]) -> str:
    """SHA-256 of arrays of indices, each with its length."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.array([len(array), *array], dtype="<i8").tobytes())
    return found.hexdigest()


# -------------------------------------------------------------------------------------------------- what is stored


def file(case: str) -> Path:
    return FOLDER / f"{re.sub('[^a-zA-Z0-9.-]+', '_', case)}.json"


def asked(case: str) -> dict[str, Any]:
    """The fields of a case that are not at their defaults."""
    default = RunSpec()
    given = dataclasses.asdict(CASES[case]).items()
    return {name: value for name, value in given if name == "algorithm" or value != getattr(default, name)}


def stored(case: str) -> dict[str, Any]:
    """`asked`, `versions` and `values` as they were written."""
    if not file(case).exists():
        return {"asked": None, "versions": {}, "values": {}}
    return json.loads(file(case).read_text())


def moved(case: str, found: dict[str, Any]) -> dict[str, float]:
    """The values that differ from the stored ones, the worst first, in shares of what is allowed."""
    off = deviations(stored(case)["values"], found)
    return {name: off[name] for name in sorted(off, key=lambda name: -off[name]) if off[name] > 1}


def verdict(case: str, found: dict[str, Any] | None = None) -> str:
    """What is wrong with a case, whose numbers are `found` today, and what to do; empty where all is well."""
    before, versions = stored(case), versions_of(parts(case))
    if before["asked"] != asked(case):
        return f"{case}: has no golden values, or those of another case: run `python tests/golden.py`"
    off = moved(case, values(case) if found is None else found)
    other = [part for part in versions if before["versions"].get(part) != versions[part]]
    worst = ", ".join(f"{name} ({share:.3g} of what is allowed)" for name, share in list(off.items())[:5])
    if other:
        numbers = f"its numbers moved ({worst}) and " if off else ""
        return f"{case}: {numbers}its golden values are of another version of {', '.join(other)}: run `python tests/golden.py`"
    if off:
        return (
            f"numbers of {case} moved ({len(off)}; the worst: {worst}): raise the version of the part in fedlib/numerics.py "
            f"and run `python tests/golden.py`, or find the fault. Its parts: {', '.join(versions)}"
        )
    return ""


def rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [rounded(number) for number in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def lines(entries: dict[str, Any]) -> str:
    """JSON with a line a value."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in entries) + "\n}"


def write(case: str, found: dict[str, Any]) -> None:
    """Store values with their tolerances."""
    entries = {name: rounded(value) for name, value in found.items()}
    head = {"asked": asked(case), "versions": versions_of(parts(case))}
    heads = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    FOLDER.mkdir(exist_ok=True)
    file(case).write_text(f'{{\n{heads}"values": {lines(entries)}\n}}\n')


DEALS = FOLDER / "deals.json"


def stored_deals() -> dict[str, Any]:
    """Name of a deal -> its digest and the versions under which it was written."""
    return json.loads(DEALS.read_text()) if DEALS.exists() else {}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Write golden values.")
    arguments.add_argument("cases", nargs="*", help="default: all of them, and the deals")
    arguments.add_argument("--compare", action="store_true", help="write nothing, say how far off today's numbers are")
    arguments.add_argument("--all", action="store_true", help="write also what moved under the same versions")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    refused, worst = [], dict.fromkeys(SHARE, 0.0)
    for case in given.cases or CASES:
        found, before = values(case), stored(case)
        if given.compare:
            precision, off = CASES[case].precision, deviations(before["values"], found)
            name = max(off, key=lambda name: off[name])
            worst[precision] = max(worst[precision], off[name])
            print(f"{off[name]:9.3g} of what is allowed: {case}: {name}", flush=True)
            refused += [case] if off[name] > 1 else []
            continue
        old = before["asked"] == asked(case) and before["versions"] == versions_of(parts(case))
        if old and moved(case, found) and not given.all:
            refused.append(case)
        elif not old or moved(case, found) or given.all:
            write(case, with_tolerances(case))
            print(f"written: {case}")
    if given.compare:
        print(f"{len(refused)} moved; worst:", ", ".join(f"{name} {share:.3g}" for name, share in worst.items()))
        sys.exit(bool(refused))
    if not given.cases:
        before, after = stored_deals(), {}
        for name, (used, make) in deals().items():
            after[name] = [digest(make()), versions_of(used)]
            same = name in before and before[name][1] == after[name][1]
            if same and before[name] != after[name] and not given.all:
                refused.append(name)
                after[name] = before[name]
        DEALS.write_text(lines(after) + "\n")
    if refused:
        sys.exit(
            "not written, since numbers moved and no version was raised in fedlib/numerics.py: " + ", ".join(refused)
        )


if __name__ == "__main__":
    main()
