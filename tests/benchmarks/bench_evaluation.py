"""Evaluation against its bare forward passes, and recording against a whole round.

First: `training.correct` on uint8 images over forward passes on tensors normalised beforehand, channels-last, batch by
batch in turns (1.00 would be free; it includes normalising and comparing with the labels). Second: rounds of Standalone
and FedSSA at N = 10, C = 1 and N = 100, C = 0.1, from the timing that each run records: what is left of a round
after training, aggregation and evaluation (< 2 % expected).

    python tests/benchmarks/bench_evaluation.py [--short]
"""

import numpy as np
import pandas as pd
import torch
from machine import describe, in_turns, random_images, shortened, spread

from fedlib import Federation, models, partition, simulate, training
from fedlib.algorithms import make
from fedlib.randomness import generator


def main() -> None:
    short = shortened(__doc__)
    torch.set_num_threads(1)
    print(describe())

    count, repeats = (200, 2) if short else (1000, 15)
    data = random_images(count)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (data.mean, data.std))
    pool = training.Pool(data.images, data.labels, mean * 255, std * 255)
    batches = [pool.batch(batch) for batch in torch.arange(count).split(training.EVALUATION_BATCH)]
    print(f"{repeats} pairs of {count} images; seconds of evaluation / of bare forward passes; median (middle half)")
    for name in models.CNN_WIDTHS:
        model = models.build(name, 10, 3, generator(0, "init"))

        def evaluate(model=model):
            training.correct(lambda images: {"accuracy": model(images)}, pool, torch.arange(count))

        def forward(model=model):
            with torch.no_grad():
                for batch in batches:
                    model(batch)

        ours, bare = in_turns(evaluate, forward, repeats)
        print(f"  {name}: {spread(ours / bare)}")

    images, rounds = (1500, 2) if short else (12_000, 6)
    data = random_images(images)
    print(f"recording, % of a round's seconds, {images} images, B = 64, {rounds} rounds; median (middle half), largest")
    for num_clients, participation in ((10, 1.0), (100, 0.1)):
        for name in ("Standalone", "FedSSA"):
            parts = partition.by_class([data.labels.numpy()], num_clients, 10, 2, generator(0, "partition"))[0]
            timing = pd.DataFrame(simulate(Federation(data, parts), make(name), rounds, participation).timing_rows)
            share = (100 * timing["recording_seconds"] / timing["seconds"]).to_numpy()
            print(f"  {name}, N = {num_clients}, C = {participation}: {spread(share)}, {np.max(share):.3f}")


if __name__ == "__main__":
    main()
