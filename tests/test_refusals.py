"""Every mistake gets one line that names the field, its value and what is allowed, and nothing is written or trained.

A row is what is called, a command line (standard input after `<<<`) or a function, and what its line says: ` ... ` stands
for what may be between two parts of it.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import itertools
import json
import pathlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from fedlib import (
    ALGORITHMS,
    Dataset,
    Federation,
    FedlibError,
    RunSpec,
    algorithms,
    check,
    data,
    fields,
    lab,
    metrics,
    models,
    partition,
    run,
    simulation,
    sweep,
)
from fedlib.__main__ import main
from fedlib.algorithms import Algorithm, make
from fedlib.errors import choose, coerce
from fedlib.lab import launch, simulate
from fedlib.metrics import Metric
from fedlib.papers import exhibits, notebook, reproduce
from fedlib.partition import Dealing
from fedlib.protocol import Protocol
from fedlib.show import intervals

Row = tuple[str | Callable[[], Any], str]

# ------------------------------------------------------------------------------------------------------ command lines

UNKNOWN = [
    ("run FedSA", "algorithm = 'FedSA' is unknown: did you mean 'FedSSA' or 'pFedES' or 'FedAvg'?"),
    ("reproduce table2", "'table2' is unknown: did you mean 'fedssa/table2' or 'fedgh/table2' or 'pfedes/table2' or"),
    ("rnu", "command = 'rnu' is unknown: did you mean 'run'?"),
    ("runs shwo", "command = 'shwo' is unknown: did you mean 'show'?"),
    ("run FedSSA --dataset digit", "dataset = 'digit' is unknown: did you mean 'digits' or"),
    ("run FedSSA --set mu=0.5", "FedSSA parameter = 'mu' is unknown: did you mean 'mu0'?"),
    ("run Standalone --set mu0=0.5", "Standalone parameter = 'mu0': Standalone has no parameters"),
    ("run FedSSA --override momentun=0.9", "protocol field = 'momentun' is unknown: did you mean 'momentum'"),
    ("run FedSSA --scenario heterogenous", "scenario = 'heterogenous' is unknown: did you mean 'heterogeneous' or"),
    ("run FedSSA --partition dirichlett", "partition = 'dirichlett' is unknown: did you mean 'dirichlet'?"),
    ("run FedSSA --scale smok", "scale = 'smok' is unknown: did you mean 'smoke'?"),
    ("run FedSSA --paper FedSAA", "paper = 'FedSAA' is unknown: did you mean 'FedSSA'?"),
    ("run FedSSA --protocol papers", "protocol = 'papers' is unknown: did you mean 'paper'?"),
    ("run FedSSA --precision fp16", "precision = 'fp16' is unknown"),
    ("run FedSSA --device gpu", "device = 'gpu': must be cpu, cuda"),
    ("run FedSSA --keep all", "keep = 'all' is unknown"),
    ("runs list FedSAA", "'FedSAA' is unknown: did you mean 'FedSSA'"),
    ("reproduce fedssa/tabel2", "exhibit = 'fedssa/tabel2' is unknown: did you mean 'fedssa/table2' or"),
    ("reproduce fedsa", "exhibit = 'fedsa' is unknown: did you mean 'fedssa'"),
    ("reproduce fedss --plan json", "exhibit = 'fedss' is unknown: did you mean 'fedssa'"),
    ("data cifar", "dataset = 'cifar' is unknown: did you mean 'cifar10' or"),
    ("runs show FedSSA-digits-0", "run = 'FedSSA-digits-0': names no stored run"),
    ("run", "algorithm: must be given, see `fedlib list`, or --spec FILE"),
    # options of another command, and what is one too many
    ("run FedSSA --dry-run", "run`: option = '--dry-run' is unknown: did you mean '--rounds'?"),
    ("list --rounds 3", "list`: option = '--rounds' is unknown: known are --help"),
    ("runs --json", "runs`: option = '--json' is unknown: known are --help"),
    ("runs prune --rounds 7", "runs prune`: option = '--rounds' is unknown: known are --older-than, --yes, --help"),
    ("reproduce fedssa/table2 --dry-run --train-only", "Mutually exclusive arguments: {--dry-run, --train-only}"),
    ("reproduce --plan json --train-only", "Mutually exclusive arguments: {--train-only, --plan}"),
    ("reproduce --plan yaml", "plan = 'yaml' is unknown: known are json"),
    ("data digits cifar10", "unexpected argument 'cifar10'"),
    ("run FedSSA --dataset", "parameter --dataset requires an argument; see `fedlib run --help`"),
]  # fmt: skip
WRONG = [
    ("run FedSSA --rounds two", "rounds = 'two': must be a whole number"),
    ("run FedSSA --participation half", "participation = 'half': must be a number"),
    ("run FedSSA --lr nan", "lr = 'nan': must be a number (finite)"),
    ("run FedSSA --set mu0=much", "mu0 = 'much': must be a number"),
    ("run FedSSA --set mu0", "--set 'mu0': must be NAME=VALUE"),
    ("reproduce fedssa/table2 --jobs some", "jobs = 'some': must be a whole number"),
    ("run FedSSA --participation 0", "participation = 0.0: must be in (0, 1]"),
    ("run FedSSA --classes-per-client 11", "classes_per_client = 11: must be between 1 and 10, the number of class"),
    ("run FedSSA --num-clients 600", "num_clients = 600: must be at most 599: digits has 1797 images and a client"),
    ("run FedSSA --num-clients 500", "num_clients = 500: must be few enough (or dealt evenly enough) that each holds 3"),
    ("run FedSSA --partition dirichlet --alpha 0.01 --num-clients 100", "alpha = 0.01: none of 100 Dirichlet"),
    ("run FedSSA --rounds 99999999999999999999", "rounds = 99999999999999999999: must be below 2**31"),
    ("run FedSSA --rounds 0", "rounds = 0: must be at least 1"),
    ("run FedSSA --seed -1", "seed = -1: must be between 0 and"),
    ("run FedAvg", "algorithm = 'FedAvg': ... so every client needs the same architecture"),
    ("reproduce fedssa/table2 --dry-run --jobs 0", "jobs = 0: must be at least 1"),
    # numbers that no number holds, and names that name nothing
    ("run FedSSA --seed 1e-400", "seed = '1e-400': must be a whole number, 0 or further from it"),
    ("run FedSSA --lr 1e-400", "lr = '1e-400': must be a number, 0 or further from it"),
    (f"run FedSSA --lr 1{400 * '0'}", "lr = ... : must be a number (finite)"),
    (f"run FedSSA --set mu0=1{400 * '0'}", "mu0 = ... : must be a number (finite)"),
    (f"run FedSSA --seed {5000 * '9'}", "seed = ... : must be a whole number (finite)"),
    (f"reproduce --dry-run --jobs 1{400 * '0'}", "jobs = ... : must be at least 1 and at most 1024"),
    ("runs prune --older-than 1e-400", "older-than = '1e-400': must be a number, 0 or further"),
    ("runs prune --older-than soon", "older-than = 'soon': must be a number"),
    ("runs prune --older-than -1", "older-than = -1.0: must be a number of days"),
    ("runs prune --older-than nan", "older-than = 'nan': must be a number"),
    ("compare ''", "run = '': must be a key, or a part of one"),
    ("notebooks copy ''", "folder = '': must be a folder's name"),
    ("notebooks copy '  '", "folder = '  ': must be a folder's name"),
    ("workflow copy ''", "folder = '': must be a folder's name"),
    # what is not there, or not whole
    ("run FedSSA --dataset svhn", "dataset = 'svhn': not found in"),
    ("data cifar100", "dataset = 'cifar100': not found in ... run `python -m fedlib data cifar100` where there is a network"),
    ("run FedSSA --dataset cifar10", "dataset = 'cifar10': the files in ... are incomplete or corrupted"),
    ("record long", "dataset = 'cifar100': not found in"),  # not a line a run
    ("reproduce fedssa/table2 --figures-only", "18 of 18 runs are missing"),
    *([] if torch.cuda.is_available() else
      [("run FedSSA --device cuda", "device = 'cuda': must be cpu, cuda, one of several such as cuda:1")]),
    # what cannot be together, or an exhibit or the record does not have
    ("run FedSSA --spec a", "--spec cannot be combined with algorithm"),
    ("run --spec a --rounds 3 --set mu0=1", "--spec cannot be combined with --rounds, --set"),
    ("record long --check", "experiment = 'long'"),
    ("record --check FedNothing", "key = 'FedNothing': names no result of record"),
    ("reproduce fedssa/table2 --scale record --methods FedKEMF --dry-run", "method = 'FedKEMF' is unknown"),
    ("reproduce fedssa/fig6 --scale record --methods FedKEMF --dry-run", "method = 'FedKEMF' is unknown"),
    ("reproduce fedssa/table3 --scale record --methods FedKEMF --dry-run", "methods = 'FedKEMF': must be left out"),
    ("reproduce fedssa/fig6 --dry-run --methods ,", "methods = ',': must be rows of the exhibit"),
    ("reproduce fedssa/fig6 --dry-run --methods ' '", "methods = ' ': must be rows of the exhibit"),
]  # fmt: skip
FROM_FILES = [
    ("run --spec nowhere.json", "--spec = 'nowhere.json': cannot be read (No such file or directory)"),
    ("run --spec - <<< {", "must be a JSON object"),
    (f"run --spec - <<< {100_000 * '['}", "must be a JSON object"),
    ("run --spec - <<< [1]", "must be a JSON object with fields of RunSpec"),
    ('run --spec - <<< {"spec": 3}', "must be a JSON object with fields of RunSpec"),
    ('run --spec - <<< {"algoritm": "FedSSA"}', "field = 'algoritm' is unknown: did you mean 'algorithm'?"),
    ('run --spec - <<< {"algorithm": "FedSSA", "rounds": "ten"}', "rounds = 'ten': must be a whole number"),
    ('run --spec - <<< {"algorithm": ["FedSSA"]}', "algorithm = ['FedSSA']: must be text"),
    ('run --spec - <<< {"seed": 1, "seed": 2}', "'seed' occurs twice"),
    ('run --spec - <<< {"spec": {"params": {"mu0": 1, "mu0": 0.5}}}', "'mu0' occurs twice"),
]  # fmt: skip
NO_FOLDERS = [
    (f"{variable}={value} {words}", f"{variable} = ... {said}")
    for value, said in (
        ("~nosuchuser/store", "must begin with a user that exists"),
        ("x" * 300, "(300 characters): must be a path of"),
    )
    for variable, words in (
        *(("FEDLIB_HOME", words) for words in ("runs", "run FedSSA", "reproduce fedssa/table3")),
        *(("FEDLIB_DATA", words) for words in ("data", "data mnist")),
    )
]

# --------------------------------------------------------------------------------------------------------------- calls

DATA = tiny.dataset(num_classes=3, per_class=20)
HELD = [np.arange(20), np.arange(20, 40)]
IMAGES = np.random.default_rng(0).integers(0, 255, (6, 1, 32, 32), dtype=np.uint8)
LABELS = np.arange(6) % 3
NINE, MANY = np.zeros(9, int), [f"name{number}" for number in range(20)]


def built(parts: Any = HELD, data: Any = DATA, **named: Any) -> Callable[[], Federation]:
    return partial(Federation, data, parts, named.pop("architectures", ("tiny-a",)), **named)


def simulated(algorithm: Any = "FedSSA", rounds: Any = 1, *given: Any, **named: Any) -> Callable[[], Any]:
    federation = named.pop("federation", None)
    return lambda: simulate(federation or built()(), algorithm, rounds, *given, **named)


def spec(**changed: Any) -> Any:
    return lab.resolve(RunSpec(**changed))


SPECIFICATIONS = [
    ({"params": None}, "params = None: must be a dictionary"),
    ({"overrides": ["momentum"]}, "overrides = ['momentum']: must be a dictionary"),
    ({"dataset": ["digits"]}, "dataset = ['digits']: must be text"),
    ({"dataset": "../../evil"}, "dataset = '../../evil' is unknown"),
    ({"algorithm": None}, "algorithm = None: must be given"),
    ({"algorithm": ["FedSSA"]}, "algorithm = ['FedSSA']: must be text"),
    ({"seed": None}, "seed = None: must be given"),
    ({"seed": [0]}, "seed = [0]: must be a whole number"),
    ({"batch_size": 2**63}, "batch_size = 9223372036854775808: must be below 2**31"),
    ({"local_epochs": 0}, "local_epochs = 0.0: must be above 0"),
    ({"local_epochs": -1}, "local_epochs = -1.0: must be above 0"),
    ({"local_epochs": "half"}, "local_epochs = 'half': must be a number"),
    ({"schedule": "Cosine"}, "schedule = 'Cosine' is unknown"),
    ({"schedule": "StepLR"}, "schedule = 'StepLR': ... missing 1 required positional argument: 'step_size'"),
    ({"schedule": "StepLR(size=3)"}, "parameter of StepLR = 'size' is unknown: did you mean 'step_size'"),
    ({"schedule": "ReduceLROnPlateau"}, "schedule = 'ReduceLROnPlateau': ... missing 1 required positional"),
    ({"schedule": "LambdaLR(lr_lambda=2)"}, "schedule = 'LambdaLR(lr_lambda=2)': 'int' object is not callable"),
    ({"schedule": "ExponentialLR(gamma=-1)"}, "schedule = 'ExponentialLR(gamma=-1)': gives a rate of -0.01"),
    ({"metrics": "worst_decile"}, "metric = 'worst_decile' is unknown: ... known are balanced_accuracy"),
    ({"metrics": "nothing"}, "metric = 'nothing' is unknown: ... known are balanced_accuracy"),
    ({"patience": 3, "newcomers": 2}, "patience = 3: must be 0 where clients have no validation images"),
    ({"patience": 3, "overrides": {"split": "local-8:0:2"}}, "patience = 3: must be 0 where clients have no validation"),
]  # fmt: skip
CALLS = [
    (lambda: run("FedSSA"), "spec = 'FedSSA': must be a RunSpec"),
    (lambda: sweep(RunSpec()), "must be a list of RunSpec"),
    (lambda: sweep("FedSSA"), "specs = 'FedSSA': must be a list of RunSpec"),
    (lambda: sweep(["FedSSA"]), "spec = 'FedSSA': must be a RunSpec"),
    (lambda: sweep([RunSpec()], jobs="two"), "jobs = 'two': must be a whole number"),
    (lambda: sweep([RunSpec()], jobs=0), "jobs = 0: must be at least 1"),
    (lambda: sweep([RunSpec()], each=3), "each = 3: must be a function of how many runs remain, or None"),
    (simulated("FedSSA"), "algorithm = 'FedSSA': must be a method"),
    (simulated(make("FedSSA"), federation="digits"), "federation = 'digits': must be a Federation"),
    (simulated(make("FedSSA"), "many"), "rounds = 'many': must be a whole number"),
    (simulated(make("FedSSA"), 0), "rounds = 0: must be at least 1"),
    (simulated(make("FedSSA"), 1, None), "participation = None: must be a number"),
    (simulated(make("FedSSA"), 1, checkpoint=7), "checkpoint = 7: must be the path of a file"),
    (simulated(make("FedSSA"), 1, checkpoint="."), "checkpoint = '.': must be the path of a file"),
    (lambda: simulation.simulate(built(protocol=Protocol(split="local-8:0:2"))(), make("Standalone"), 5, patience=3),
     "patience = 3: must be 0 where clients have no validation images"),
    (lambda: exhibits.cells("fedssa/table4", "smoke", seeds=[0, 1, 0]), "seeds = [0, 1, 0]: must be different"),
    (lambda: partition.iid([NINE], 0, None), "num_clients = 0: must be at least 1"),
    (lambda: partition.by_class([NINE], 0, 1, 1, None), "num_clients = 0: must be at least 1"),
    (lambda: partition.by_class([LABELS], 5, 3, 0, None), "classes_per_client = 0: must be between 1 and 3"),
    (lambda: partition.by_class([LABELS], 5, 3, 4, None), "classes_per_client = 4: must be between 1 and 3"),
    (lambda: partition.dirichlet([NINE], 2, None, None, [3]), "alpha = None: must be a number"),
    (lambda: partition.dirichlet([NINE], 2, 0, None, [3]), "alpha = 0.0: must be above 0"),
    (lambda: partition.local_split(LABELS, HELD[0][:2], None), "images of a client = 2: must be at least 3"),
    (lambda: partition.client_images(LABELS, 6, Dealing(3, 2, "iid"), 0), "client 0 would hold 2"),
    (lambda: built()().client_context(0).train(epochs=-1), "epochs = -1: must be at least 0"),
    # of many names three are listed, of few all
    (lambda: choose("field", "name1x", MANY), "field = 'name1x' is unknown: did you mean 'name1' or 'name19' or 'name18'?"),
    (lambda: choose("field", "zzz", MANY), "field = 'zzz' is unknown: the nearest of 20 are name"),
    (lambda: make("Mine"), "algorithm = 'Mine' is unknown: the nearest of 27 are Standalone, FML, FedMD (one of your own"),
    (lambda: choose("field", "zzz", MANY[:5]), "field = 'zzz' is unknown: known are name0, name1, name2, name3, name4"),
    # nothing is rounded
    *((partial(coerce, "field", *given), f"field = {given[0]!r}: must be {said}") for said, *given in (
        ("a whole number", 2.5, int), ("a whole number", "", int), ("a whole number", True, int), ("a number", None, float),
        ("a number", [1], float), ("true or false", "yes", bool), ("text", 1, str))),
    # optimisers
    *((partial(Protocol, **given), said) for given, said in (
        ({"optimiser": "adamw"}, "optimiser = 'adamw' is unknown: did you mean 'AdamW'"),
        ({"optimiser": "AdamW(0.9)"}, "optimiser = 'AdamW(0.9)': must be a name of torch's, perhaps with parameters"),
        ({"optimiser": "AdamW(betas=x)"}, "must be a name of torch's, perhaps with parameters"),
        ({"optimiser": "AdamW(ams=True)"}, "parameter of AdamW = 'ams' is unknown: did you mean 'amsgrad'"),
        ({"optimiser": "AdamW(lr=0.1)"}, "must be without lr, which is a field of its own"),
        ({"optimiser": "AdamW(betas=(2, 2))"}, "optimiser = 'AdamW(betas=(2, 2))': Invalid beta parameter"),
        ({"optimiser": "AdamW", "momentum": 0.9}, "momentum = 0.9: must be 0 under AdamW, which has none"),
        ({"optimiser": "SGD(nesterov=True)"}, "optimiser = 'SGD(nesterov=True)': Nesterov momentum requires a momentum"),
        ({"optimiser": "LBFGS"}, "optimiser = 'LBFGS': cannot take a plain step"),
        ({"optimiser": "SparseAdam"}, "optimiser = 'SparseAdam': cannot take a plain step"),
    )),
]  # fmt: skip
FEDERATIONS = [
    (built(precision="fp16"), "precision = 'fp16' is unknown"),
    (built(local_epochs=0), "local_epochs = 0: must be above 0"),
    (built(local_epochs=-1), "local_epochs = -1: must be above 0"),
    (built(local_epochs="half"), "local_epochs = 'half': must be a number"),
    (built(batch_size=2**63), "batch_size = 9223372036854775808: must be between 1"),
    (built(seed=None), "seed = None: must be a whole number"),
    (built(seed=-1), "seed = -1: must be between 0"),
    (built(device="gpu9"), "device = 'gpu9': must be cpu, cuda"),
    (built(protocol="paper"), "protocol = 'paper': must be a Protocol"),
    (built(data="digits"), "dataset = 'digits': must be a Dataset"),
    (built(architectures="tiny-a"), "architectures = 'tiny-a': must be a list of names"),
    (built(architectures=[]), "architectures = []: must be a list of names"),
    # who holds what
    (built(None), "partition = None: must be a list"),
    (built([]), "partition = []: must be a list"),
    (built([5]), "partition: client 0 = 'int64 ()': must be an array (n,) of whole numbers"),
    (built([[[0, 1], [2, 3]]]), "partition: client 0 = 'int64 (2, 2)': must be an array (n,)"),
    (built([np.arange(20.0)]), "partition: client 0 = 'float64 (20,)': must be an array (n,) of whole"),
    (built([np.ones(60, bool)]), "partition: client 0 = 'bool (60,)': must be an array (n,) of whole"),
    (built([np.arange(-5, 5)]), "partition: client 0 = -5: must be within 0..59"),
    (built([HELD[0], np.arange(55, 61)]), "partition: client 1 = 60: must be within 0..59"),
    (built([(HELD[0], HELD[1])]), "partition: parts of client 0 = 2: must be train, validation and test"),
    (built([HELD[0], np.arange(19, 40)]), "image 19 is held twice, by client 0 and by client 1"),
    (built([np.array([0, 1, 2, 3, 1])]), "image 1 is held twice, by client 0 and by client 0"),
    (built([(np.arange(9), np.arange(8, 12), np.arange(20, 22))]), "image 8 is held twice, by client 0 and by client 0"),
    (built([np.arange(5), np.arange(5, 7)]), "that each holds 3 images or more; client 1 would hold 2"),
    (built([([], [1], [2])]), "an image of each part of split local-8:1:1; client 0 would hold (0, 1, 1)"),
    (built(public=np.arange(39, 45)), "image 39 is held twice, by client 1 and by the public data"),
    (built(public=np.arange(55, 65)), "public = 64: must be within 0..59"),
    (built(public="all"), "public = '<U3 ()': must be an array (n,) of whole numbers"),
    (built(public=[0], public_dataset="digits"), "public_dataset = 'digits': must be a Dataset"),
    (built([np.arange(9)], public=[50], public_labels="some"), "public_labels = 'some': must be"),
    (lambda: built([[0, 1, 2], [3, 4, 5]], Dataset(**WHOLE | {"labels": torch.full((6,), -1)}))(), "labels of x = -1: must be"),
]  # fmt: skip

# ------------------------------------------------------------------------------------------------------ data of one's own

FAR = np.array([0, 1, 2, 0, 1, 10**9])
ARRAYS = [
    ((IMAGES, LABELS + 0.5, IMAGES, LABELS), "train labels = 'torch.float64': must be whole numbers"),
    ((IMAGES, LABELS, IMAGES, np.full(6, np.nan)), "test labels = 'torch.float64': must be whole numbers"),
    ((IMAGES, LABELS[:, None], IMAGES, LABELS), "train labels' shape = (6, 1): must be (n,)"),
    ((IMAGES, np.eye(6), IMAGES, LABELS), "train labels' shape = (6, 6): must be (n,)"),
    ((IMAGES, LABELS, IMAGES, list("abcabc")), "test labels: must be an array of numbers"),
    ((None, LABELS, IMAGES, LABELS), "train images: must be an array of numbers"),
    ((IMAGES[:0], LABELS[:0], IMAGES, LABELS), "number of train images = 0: must be at least 1"),
    ((IMAGES / 255, LABELS, IMAGES, LABELS), "test images' dtype = 'torch.uint8': must be torch.float32"),
    ((IMAGES, LABELS, IMAGES[:, 0], LABELS), "test images' shape = (6, 32, 32): must be (n, channels, height,"),
    ((IMAGES, LABELS, IMAGES[:, :, :8], LABELS), "shape of a test image = (1, 8, 32): must be (1, 32, 32)"),
    ((IMAGES, LABELS, IMAGES.repeat(3, 1), LABELS), "test images' channels = 3: must be 1"),
    ((IMAGES, LABELS, IMAGES, LABELS, 3.5), "num_classes = 3.5: must be a whole number"),
    ((IMAGES, LABELS, IMAGES, LABELS, 0), "labels = [0, 1, 2]: must be within"),
    ((IMAGES.astype(int), LABELS, IMAGES, LABELS), "train images' dtype = 'torch.int64': must be torch.uint8"),
    ((IMAGES[:, 0], LABELS, IMAGES, LABELS), "train images' shape = (6, 32, 32): must be (n, channels"),
    ((IMAGES.transpose(0, 2, 3, 1), LABELS, IMAGES, LABELS),
     "train images' shape = (6, 32, 32, 1): must be (n, channels, height, width): x.transpose(0, 3, 1, 2) of an"),
    ((np.ones((6, 128, 9)), LABELS, IMAGES, LABELS),
     "train images' shape = (6, 128, 9): must be (n, channels, length): x.transpose(0, 2, 1) of an array"),
    ((IMAGES[:, :, :0], LABELS, IMAGES, LABELS), "train images' shape = (6, 1, 0, 32): must be (n, channels"),
    ((IMAGES, np.zeros(7, int), IMAGES, np.zeros(5, int)), "number of train labels = 7: must be 6"),
    ((IMAGES, LABELS - 1, IMAGES, LABELS - 1), "labels = [-1, 0, 1]: must be within 0..1"),
    ((IMAGES, LABELS + 1, IMAGES, LABELS, 3), "labels = [0, 1, 2, 3]: must be within 0..2"),
    ((IMAGES, FAR, IMAGES[:1], LABELS[:1]), "largest label = 1000000000: must be"),
    ((IMAGES, FAR, IMAGES[:1], LABELS[:1], 10**9 + 1), "num_classes = 1000000001: must be"),
    # without a number of classes, labels begin at 0 and leave none out
    ((IMAGES, LABELS + 1, IMAGES, LABELS + 1), "labels = ... must be 0..C-1"),
    ((IMAGES, 2 * LABELS, IMAGES, 2 * LABELS), "labels = ... must be 0..C-1"),
    ((IMAGES, 70 * LABELS, IMAGES, 70 * LABELS), "largest label = 140: must be"),
]  # fmt: skip
WHOLE = {
    "name": "x", "images": torch.from_numpy(IMAGES), "labels": torch.from_numpy(LABELS), "num_train": 4, "num_classes": 3,
    "mean": (0.5,), "std": (0.5,), "augment": False,
}  # fmt: skip
BY_HAND = [
    ("name", "must be letters, digits", (5, None, "", "a b", "../x", "x" * 99, ["x"])),
    ("images", "must be a tensor; arrays: from_arrays", (None, IMAGES, "x")),
    ("images' dtype", "must be torch.uint8 or torch.float32", (torch.zeros(6, 1, 32, 32).long(),)),
    ("images' shape", "must be (n, channels, height, width)", (torch.zeros(6, 32, 32).byte(), torch.zeros(6, 0, 8, 8))),
    ("kind", "is unknown: known are image, vector, series, tokens", ("picture", None)),
    ("groups", "must be an int64 tensor; others: from_arrays", (LABELS,)),
    ("groups' shape", "must be (6,)", (torch.zeros(5).long(),)),
    ("groups", "must be within 0..5", (torch.full((6,), -1),)),
    ("vocabulary", "must be 0 but of token ids", (5, None)),
    ("labels", "must be a tensor; arrays: from_arrays", (None, LABELS, 7)),
    ("labels' shape", "must be (6,), one an image", (torch.zeros(5).long(),)),
    ("labels' dtype", "must be torch.int64", (torch.zeros(6),)),
    ("labels", "must be within 0..2", (torch.full((6,), 3), torch.full((6,), -2))),
    ("num_train", "must be a whole number between 0 and 6, the images", (-1, 7, 3.5, None, "3", True)),
    ("num_classes", "must be a whole number between 1 and 1048576", (0, -1, 2.5, None, 2**40, "3")),
    ("mean", "must be 1 numbers, one per channel", (0.5, None, (), (0.1, 0.2), (np.nan,), (np.inf,), "a", ("a",), (None,),
                                                   torch.zeros(3), (10**400,))),
    ("std", "must be 1 numbers, one per channel, above 0", (0.5, None, (), (0.0,), (-1.0,), (np.nan,), ("a",), {})),
    ("augment", "must be True or False", (None, 1, "yes", [True])),
]  # fmt: skip


def by_hand(field: str, value: Any) -> Callable[[], Dataset]:
    return lambda: Dataset(**WHOLE | {field.partition("'")[0]: value})


counted = itertools.count()


def unseeded() -> np.random.Generator:
    return np.random.default_rng()


def own(images: np.ndarray, labels: np.ndarray) -> Dataset:
    return Dataset.from_arrays("x", images, labels, IMAGES[:1], LABELS[:1])


LOADERS = [
    (lambda: None, "loader of mine = 'NoneType': must be a function returning Dataset"),
    (lambda: 1 / 0, "loader of mine: ZeroDivisionError: division by zero (test_refusals.py, line"),
    (lambda: exit(2), "loader of mine: SystemExit: 2"),
    (lambda name: DATA, "loader of mine: TypeError"),
    (lambda: (IMAGES, LABELS), "loader of mine = 'tuple': must be a function returning Dataset"),
    (lambda: Dataset, "loader of mine = 'type': must be a function returning Dataset"),
    (lambda: own(unseeded().permutation(IMAGES), LABELS), "loader of mine: called twice, it returns different data"),
    (lambda: own(IMAGES, (LABELS + next(counted)) % 3), "loader of mine: called twice, it returns different data"),
]  # fmt: skip
DEALERS = [
    (lambda labels, n, stream: None, "partition mine = None: must be a list with one index array per client"),
    (lambda labels, n, stream: 1 / 0, "partition mine: ZeroDivisionError"),
    (lambda *given: {0: [1, 2]}, "partition mine = {0: [1, 2]}: must be a list with one index array per client"),
    (lambda *given: [np.arange(9)], "partition mine: number of clients = 1: must be 3"),
    (lambda *given: np.split(np.arange(60), 6), "partition mine: number of clients = 6: must be 3"),
    (lambda *given: iter(()), "partition mine: number of clients = 0: must be 3"),
    (lambda *given: [np.arange(3.0)] * 3, "partition mine: client 0 = 'float64': must be a 1-d array of whole numbers"),
    (lambda *given: [np.ones(60, bool)] * 3, "partition mine: client 0 = 'bool': must be a 1-d array of whole numbers"),
    (lambda *given: [np.eye(3, dtype=int)] * 3, "partition mine: client 0 = 'int64': must be a 1-d array of whole"),
    (lambda *given: [[], [], []], "partition mine: client 0 = 'float64': must be a 1-d array of whole numbers"),
    (lambda *given: [["a"], ["b"], ["c"]], "partition mine: client 0 = 'str32': must be a 1-d array of whole numbers"),
    (lambda *given: [[10**30], [1], [2]], "partition mine: client 0 = 'object': must be a 1-d array of whole numbers"),
    (lambda *given: [[[1, 2], [3]], [4, 5, 6], [7, 8, 9]], "partition mine: ValueError: setting an array element"),
    (lambda *given: [np.arange(9)] * 3, "index = 0: must be between 0 and 59, and dealt once; 9 in all are not"),
    (lambda *given: [NINE, np.arange(9, 18), np.arange(18, 27)], "index = 0: must be ... dealt once; 1 in all are not"),
    (lambda *given: [np.arange(-9, 0), np.arange(9), np.arange(9, 18)], "index = -9: must be between 0 and 59, and"),
    (lambda *given: [np.arange(55, 65), np.arange(9), np.arange(9, 18)], "index = 60: must be between 0 and 59, and"),
    (lambda *given: [object()] * 3, "partition mine: called twice, begun alike, it deals otherwise"),
    (lambda labels, n, stream: np.array_split(unseeded().permutation(60), n), "partition mine: called twice, begun alike,"),
    (lambda labels, n, stream: np.array_split((torch.manual_seed(3), np.arange(60))[1], n), "torch.manual_seed was called"),
]  # fmt: skip


def dealt_as(value: Any) -> Any:
    return dealt(lambda *given: value)


def dealt(dealer: Any, seed: int = 0) -> Any:
    partition.register("mine", dealer)
    return partition.client_images(np.arange(60) % 3, 48, Dealing(3, 3, "mine"), seed)


def loaded(loader: Any, ask: Callable[[str], Any] = data.load) -> Any:
    data.register("mine", loader)
    return ask("mine")


# --------------------------------------------------------------------------------------------------- metrics of one's own

METRICS = [
    (lambda *given: 1 / 0, "metric mine: ZeroDivisionError: division by zero (test_refusals.py, line"),
    (lambda logits, labels: logits, "metric mine = ... : must be a single number"),
    (lambda logits, labels: "much", "metric mine = 'much': must be a single number"),
    (lambda logits, labels: None, "metric mine = None: must be a single number"),
    (lambda logits, labels: 1j, "metric mine = 1j: must be a single number"),
    (lambda logits, labels: torch.tensor(1j), "metric mine = tensor( ... : must be a single number"),
    (lambda logits, labels: 57, "metric mine of client 0 before round 0 = 57.0: must be between 0 and 1, as it declares"),
    (lambda logits, labels: np.nan, "metric mine of client 0 before round 0 = nan: must be between 0 and 1"),
    (lambda logits, labels: np.nan if labels.sum() % 2 else 0, " before round 0 = nan: must be between 0 and 1"),
    (lambda logits, labels: torch.tensor(unseeded().random()), "mine of client ... differs: it draws without a seed"),
    (lambda logits, labels: next(counted) / 1e9, "mine of client ... differs: it draws without a seed"),
]  # fmt: skip


def measured(measure: Any) -> None:
    metrics.register(Metric("mine", of_client=measure))
    check.rehearse(built(architectures=("CNN-1",), batch_size=8, metrics="mine")(), make("FedAvg"), 2)


def sum_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return logits.sum()


REGISTERED = [
    (lambda: metrics.register(Metric("nothing")), "of_client"),
    (lambda: metrics.register(Metric("nothing", high=None, of_client=sum_of)),
     "metric nothing: low and high = (0.0, None): must be two numbers"),
    *((partial(metrics.register, Metric(name, of_client=sum_of)),
       f"metric = '{name}': must be a name that none of fedlib's has, and no other column of a run")
      for name in ("accuracy", "loss", "round", "client", "samples", "validation_accuracy", "accuracy_all")),
    *((partial(data.register, name, lambda: None), f"dataset = {name!r}: must be letters")
      for name in ("../../evil", "a/b", "", ".hidden", "a b", 3, "x" * 61)),
]  # fmt: skip

# ---------------------------------------------------------------------------------------------------- limits of fields


@dataclasses.dataclass(frozen=True)
class Own(Algorithm):
    """A person's method, whose `__post_init__` is its own."""

    closed: float = fields.setting(0.5, ge=0, le=1)
    half_open: float = fields.setting(0.5, gt=0, lt=1)
    count: int = fields.setting(1, ge=1, note="1: once")
    above: float = fields.setting(1.0, gt=0)
    most: int = fields.setting(0, le=3)
    below: int = fields.later(0, neutral=0, lt=3)
    mode: str = fields.renamed("a", "kind", choices=("a", "b"))
    flag: bool = False
    free: float = 0.0

    def __post_init__(self) -> None:
        pass


# field, what is taken, what is refused, and as what
LIMITS: list[tuple[str, tuple[Any, ...], tuple[Any, ...], str]] = [
    ("closed", (0, 1, 0.5), (-0.001, 1.001), "must be in [0, 1]"),
    ("half_open", (0.001, 0.999), (0.0, 1.0), "must be in (0, 1)"),
    ("count", (1, 2.0, 10**30), (0, -1), "must be at least 1 (1: once)"),
    ("above", (5e-324,), (0.0, -1.0), "must be above 0"),
    ("most", (3, -5), (4,), "must be at most 3"),
    ("below", (2,), (3,), "must be below 3"),
    ("mode", ("a", "b"), ("c",), "known are a, b"),
    ("flag", (True,), (1,), "must be true or false"),
    ("flag", (), ("true",), "must be a number, or true or false"),
    ("free", (-1e9, 1e9), ("1", float("nan"), None), "must be a number"),
    ("closed", (), (10**400,), "must be a number (finite)"),
    ("count", (), (1.5, True), "must be a whole number"),
    ("count", (), ("1",), "must be a number"),
]


def kinds() -> dict[str, tuple[Callable[..., Any], type]]:
    """Whatever has declared fields, and the function that makes one of it."""
    made = {name: (lambda name=name, **given: make(name, given), kind) for name, kind in ALGORITHMS.items()}
    return made | {"Protocol": (Protocol, Protocol), "RunSpec": (spec, RunSpec)}


def beyond(item: Any, bound: str) -> Any:
    """A value just beyond a limit."""
    step, limit = 1 if fields.kind_of(item) is int else 0.001, item.metadata[bound]
    return {"ge": limit - step, "gt": limit, "le": limit + step, "lt": limit}[bound]


DECLARED = [
    (partial(made, **{item.name: beyond(item, bound)}), f"{item.name} = ")
    for made, kind in kinds().values()
    for item in dataclasses.fields(kind)
    for bound in ("ge", "gt", "le", "lt")
    if bound in item.metadata
]

# ---------------------------------------------------------------------------------------------------------- the runner

ROWS: list[Row] = [
    *UNKNOWN, *WRONG, *FROM_FILES, *NO_FOLDERS, *CALLS, *FEDERATIONS, *REGISTERED, *DECLARED,
    *((partial(run, RunSpec(**changed)), said) for changed, said in SPECIFICATIONS),
    *((partial(sweep, [RunSpec(**changed)]), said) for changed, said in SPECIFICATIONS),
    *((partial(Dataset.from_arrays, "own", *given), f"own: {said}") for given, said in ARRAYS),
    *((by_hand(field, value), f"{field} = ... {said}") for field, said, values in BY_HAND for value in values),
    *((partial(loaded, loader, ask), said) for loader, said in LOADERS for ask in (data.load, data.info)),
    *((partial(dealt, dealer), said) for dealer, said in DEALERS),
    *((partial(measured, measure), f"{said} ... (rehearsing mine on a few images)") for measure, said in METRICS),
    *((partial(Own, **{name: value}), f"{name} = ... {said}") for name, _, values, said in LIMITS for value in values),
    (partial(Own, 0.5, 2), "half_open = 2.0: must be in (0, 1)"),  # by its place
    (partial(replace, Own(), closed=2), "closed = 2.0: must be in [0, 1]"),
]  # fmt: skip


def line_of(what: str | Callable[[], Any], capsys: Any, monkeypatch: Any) -> str:
    """The one line with which it is refused."""
    if callable(what):
        with pytest.raises(FedlibError) as refused:
            what()
        return str(refused.value)
    words, _, given = what.partition(" <<< ")
    typed = shlex.split(words)
    while "=" in typed[0]:
        monkeypatch.setenv(*typed.pop(0).split("="))
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    assert main(typed) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("fedlib: ") and printed.err.endswith("\n") and "Traceback" not in printed.out
    return printed.err.removeprefix("fedlib: ")[:-1]


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """No network, nothing of record, and no data but a damaged CIFAR-10, in a folder where nothing is to be written."""

    def unreachable(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "cifar-10-batches-py").mkdir(parents=True)
    (tmp_path / "data" / "cifar-10-batches-py" / "test_batch").write_bytes(b"not the real one")
    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    monkeypatch.setattr("fedlib.lab.of_record.read_results", lambda: [])
    yield
    assert [*tmp_path.iterdir()] == [tmp_path / "data"], "something is written"


@pytest.mark.parametrize(("what", "said"), ROWS, ids=lambda part: part[:80] if isinstance(part, str) else "call")
def test_one_line(what, said, nothing, capsys, monkeypatch):
    line = line_of(what, capsys, monkeypatch)
    assert re.search(".*".join(map(re.escape, said.split(" ... "))), line), line
    assert "\n" not in line and len(line) < 1000
    # a field and its value: then what is allowed, too, unless the row itself tells what is wrong with it
    allowed = re.search(r": must |is unknown: (did you mean|known are|the nearest of)", line)
    assert " = " not in line or allowed or re.search(r" = .*: \S", said), line


def test_the_rows_are_there():
    assert len(ROWS) > 470 and len(DECLARED) > 60


@pytest.mark.thorough
def test_what_stops_many_runs_is_said_once_and_names_them(nothing):
    for specs, said in (
        ([RunSpec("Standalone", dataset="cifar10", seed=seed) for seed in range(3)],
         r"Standalone on cifar10 and 2 more: dataset = 'cifar10': the files in ((?!incomplete).)*incomplete or corrupted"),
        ([RunSpec("Standalone", dataset="digits", partition="dirichlet", alpha=0.01, num_clients=300, rounds=rounds)
          for rounds in (1, 2)],
         r"Standalone on digits and 1 more: alpha = 0\.01: none of 100 Dirichlet draws"),
    ):  # fmt: skip
        with pytest.raises(FedlibError, match=f"^{said}((?!incomplete).)*$"):
            sweep(specs, jobs=1, progress=False)


# --------------------------------------------------------------------------------------------------------- what is taken


def test_what_is_within_the_limits_is_taken():
    for name, values, _, _ in LIMITS:
        assert [getattr(Own(**{name: value}), name) for value in values] == list(values)
    for name in ALGORITHMS:
        make(name, dataclasses.asdict(make(name)))  # defaults, too
    assert built(public=[0, 1, 2], public_dataset=tiny.dataset())().public.indices.tolist() == [
        0,
        1,
        2,
    ]  # of another set
    assert built(public=torch.arange(40, 45))().public.indices.tolist() == [40, 41, 42, 43, 44]
    for labels in (LABELS.astype(float), LABELS.astype(np.uint8), torch.as_tensor(LABELS), LABELS.tolist()):
        assert Dataset.from_arrays("own", IMAGES, labels, IMAGES[:0], labels[:0]).labels.tolist() == LABELS.tolist()
    assert Dataset.from_arrays("own", IMAGES, LABELS + 1, IMAGES, LABELS + 1, 4).num_classes == 4
    assert Dataset(**WHOLE).num_classes == 3


def test_numbers_are_taken_as_they_are():
    big = 2**53 + 1  # no float64 holds it
    assert coerce("seed", big, int) == coerce("seed", str(big), int) == big
    assert type(coerce("rounds", np.int64(3), int)) is int and type(coerce("rounds", 3.0, int)) is int
    assert coerce("rounds", "1e2", int) == 100 and coerce("lr", "1e-3", float) == 0.001
    assert coerce("flag", "True", bool) is True and coerce("flag", False, bool) is False
    assert coerce("lr", "0e-400", float) == 0 and coerce("lr", "5e-324", float) > 0 and coerce("seed", "0.0", int) == 0
    assert str(coerce("lr", -0.0, float)) == str(coerce("lr", "-0.0", float)) == "0.0"  # -0.0 would be another run
    assert coerce("seed", "-0", int) == 0 and coerce("lr", "1e5", float) == 1e5


def test_an_iterator_is_swept_once(small_digits, monkeypatch):
    monkeypatch.setitem(models.SCENARIOS, "tiny", ("tiny-a",))
    specs = [RunSpec(scenario="tiny", num_clients=5, rounds=1, seed=seed) for seed in (0, 1)]
    monkeypatch.setattr(launch, "_in_workers", lambda *arguments: [])  # trained here: a worker knows no tiny networks
    records = sweep((spec for spec in specs), jobs="2", progress=False)
    assert [record.spec.seed for record in records] == [0, 1]


def test_data_that_test_on_what_is_trained_on_or_are_of_one_class_are_taken_and_told(capsys):
    Dataset.from_arrays("x", IMAGES[:3], LABELS[:3], IMAGES[3:], LABELS[3:])
    Dataset.from_arrays("x", IMAGES, LABELS * 0, IMAGES[:0], LABELS[:0], 3)  # an owner's own
    data.load("digits")  # of whose 299 one is
    assert not capsys.readouterr().err
    Dataset.from_arrays("x", IMAGES[:4], LABELS[:4], IMAGES[3:].copy(), LABELS[3:])
    Dataset.from_arrays("x", IMAGES[:3], LABELS[:3] * 0, IMAGES[3:], LABELS[3:])
    assert capsys.readouterr().err.splitlines() == [
        "x: 1 of its 3 test images are training images: what is trained on is tested on",
        "x: all its training images are of class 0: whoever always says so is right",
    ]


# ------------------------------------------------------------------------------------- every field, values of any type


class Odd:
    """Nothing can be asked of it."""

    def _no(self, *arguments: Any) -> Any:
        raise ZeroDivisionError("asked")

    __repr__ = __str__ = __eq__ = __len__ = __bool__ = __iter__ = __float__ = __int__ = _no  # type: ignore[assignment]
    __hash__ = object.__hash__


VALUES: dict[str, Any] = {
    "None": None, "true": True, "false": False, "zero": 0, "minus one": -1, "half": 0.5, "NaN": float("nan"),
    "infinity": float("inf"), "10**400": 10**400, "-10**400": -(10**400), "10**5000": 10**5000, "2**63": 2**63,
    "empty": "", "blank": " ", "a word": "wrong", "many digits": "9" * 5000, "1e-400": "1e-400", "nan as text": "nan",
    "two lines": "a\nb", "zero byte": "a\0b", "half a pair": "\ud800", "up": "../../x", "number": "7", "minus": "-1",
    "bytes": b"digits", "list": [], "list of one": [1], "list of lists": [[1, 2], [3]], "tuple": (), "pair": (1, 2),
    "dictionary": {}, "of a": {"a": 1}, "of 1": {1: 2}, "of None": {None: None}, "set": {1}, "object": object(),
    "odd": Odd(), "function": len, "lambda": lambda *given: None, "class": int, "NumPy integer": np.int64(3),
    "NumPy float": np.float32(0.5), "NumPy text": np.str_("digits"), "array": np.array([1, 2]), "no array": np.array([]),
    "texts": np.array(["a", "b"]), "matrix": np.eye(2), "objects": np.array([None, object()]), "NA": pd.NA, "NaT": pd.NaT,
    "frame": pd.DataFrame({"a": [1]}), "series": pd.Series([1, 2]), "tensor": torch.tensor(3), "vector": torch.zeros(2),
    "decimal": decimal.Decimal("0.5"), "fraction": fractions.Fraction(1, 3), "complex": 1j, "path": pathlib.Path("digits"),
    "tiny fraction": fractions.Fraction(1, 10**400), "range": range(3), "dots": ..., "not implemented": NotImplemented,
    "enum": enum.Enum("Colour", "red").red, "date": datetime.date(2026, 1, 1), "module": sys, "error": ValueError("x"),
}  # fmt: skip
FRAME = pd.DataFrame({"round": [0, 1], "accuracy": [0.5, 0.6], "validation_accuracy": [0.4, 0.5]})
STREAM = np.random.default_rng(0)
# A function and its usual arguments: each is replaced in turn.
USUAL: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Federation": (Federation, {
        "dataset": DATA, "partition": HELD, "architectures": ("tiny-a",), "protocol": None, "local_epochs": 1,
        "batch_size": 8, "seed": 0, "device": "cpu", "precision": "fp32", "public": None, "public_dataset": None,
        "public_labels": True}),
    "from_arrays": (Dataset.from_arrays, {
        "name": "x", "train_images": IMAGES, "train_labels": LABELS, "test_images": IMAGES[:3] + 1,
        "test_labels": LABELS[:3], "num_classes": 3, "mean": (0.5,), "std": (0.5,), "augment": False}),
    "settings": (notebook.settings, {
        "scale": "smoke", "dataset": "", "methods": "", "seeds": "", "rounds": 0, "protocol": "", "precision": "",
        "device": "cpu", "jobs": 1, "rule": "last"}),
    "check": (lambda federation=None, algorithm=None, **given: simulation.check(
        federation=built()() if federation is None else federation,
        algorithm=make("FedSSA") if algorithm is None else algorithm, exchange=simulation.in_process, **given),
        {"rounds": 1, "participation": 1.0, "federation": None, "algorithm": None}),
    "class_shares": (partial(partition.class_shares, stream=STREAM),
                     {"num_clients": 3, "num_classes": 3, "classes_per_client": 2}),
    "dirichlet": (partial(partition.dirichlet, [NINE], stream=STREAM, min_sizes=[1]), {"num_clients": 2, "alpha": 0.5}),
    "iid": (partial(partition.iid, [LABELS], stream=STREAM), {"num_clients": 2}),
    "make": (make, {"name": "FedSSA", "params": {}}),
    "sweep": (sweep, {"specs": [], "jobs": 1, "each": None}),
    "cells": (partial(exhibits.cells, "fedssa/table4"), {"scale": "smoke", "seeds": ()}),
    "reproduce": (partial(reproduce.reproduce, only="plan"), {"name": "fedssa/table2", "scale": "smoke", "jobs": 1}),
    "resolve": (lab.resolve, {"spec": RunSpec(), "scale": None}),
    "data": (data.register, {"name": "mine", "loader": lambda: DATA}),
    "partition": (partition.register, {"name": "mine", "dealer": lambda *given: []}),
    "models": (models.register, {"name": "mine", "builder": tiny.tiny_model}),
}  # fmt: skip
ALONE: dict[str, Callable[[Any], Any]] = {
    "run": run, "load": data.load, "info": data.info, "method": algorithms.register, "scenario": models.scenario,
    "exhibit": exhibits.choose_exhibits, "find": lab.find,
    "build": lambda value: models.build(value, 3, 1, STREAM),
    "feature_width": lambda value: models.feature_width(value, 3, 1),
    "rule": lambda value: intervals.selected_accuracy(FRAME, value),
    "override": lambda value: spec(overrides={value: 1} if value.__hash__ else {}),
    "dealer returns": dealt_as,
    "loader returns": lambda value: loaded(lambda: value),
    "builder returns": lambda value: (models.register("mine", lambda *given: value), models.build("mine", 3, 1, STREAM)),
}  # fmt: skip


def every_field() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    yield from ALONE.items()
    declared = {name: (made, dict.fromkeys(item.name for item in dataclasses.fields(kind)))
                for name, (made, kind) in kinds().items()}  # fmt: skip
    for name, (function, usual) in declared.items():
        for one in usual:
            yield f"{name} {one}", lambda value, function=function, one=one: function(**{one: value})
    for name, kind in ALGORITHMS.items():
        for one in declared[name][1]:
            yield f"{name}({one})", lambda value, kind=kind, one=one: kind(**{one: value})
    for item in dataclasses.fields(Protocol):
        yield f"override {item.name}", lambda value, one=item.name: spec(overrides={one: value})
    for name, (function, usual) in USUAL.items():
        for one in usual:
            yield (
                f"{name} {one}",
                lambda value, function=function, given=usual, one=one: function(**given | {one: value}),
            )


EVERY_FIELD = dict(every_field())


class Trained(Exception):
    """It would have been trained."""


def trained(*given: Any, **named: Any) -> Any:
    raise Trained


@pytest.mark.parametrize("name", EVERY_FIELD)
def test_a_field_of_any_type_is_taken_or_refused_in_one_line(name, home, monkeypatch):
    monkeypatch.setattr(launch, "_compute", trained)
    monkeypatch.setattr(launch, "_in_workers", trained)
    raw = {}
    for kind, value in VALUES.items():
        try:
            EVERY_FIELD[name](value)
        except Trained:
            pass
        except FedlibError as error:
            if "\n" in str(error) or len(str(error)) > 1500:
                raw[kind] = f"a line of {len(str(error))}: {str(error)[:100]}"
        except Exception as error:
            raw[kind] = f"{type(error).__name__}: {error}"
    assert not raw, json.dumps(raw, indent=1)
    assert not home.exists() or not list(home.rglob("spec.json"))


def test_there_are_enough_fields():
    assert len(EVERY_FIELD) * len(VALUES) > 1500
