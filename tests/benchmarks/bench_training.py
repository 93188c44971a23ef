"""fedlib's local training against the loop that one would write in plain PyTorch: the same step, NCHW, in memory.

Both train one architecture on the same CIFAR-10-sized images, batch by batch in turns, in one process and one
thread. Prints the ratio of images a second, fedlib's over the plain loop's (>= 1.05 expected: channels-last). fedlib's
time includes what the plain loop has done beforehand: uint8 to normalised float32.

    python tests/benchmarks/bench_training.py [--short]
"""

import numpy as np
import torch
import torch.nn.functional as F
from machine import describe, in_turns, random_images, shortened, spread

from fedlib import models, training
from fedlib.randomness import generator

BATCH = 64


def main() -> None:
    short = shortened(__doc__)
    repeats, batches = (2, 2) if short else (15, 8)
    torch.set_num_threads(1)
    print(describe())
    data = random_images(BATCH * batches)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (data.mean, data.std))
    pool = training.Pool(data.images, data.labels, mean * 255, std * 255)
    images = ((data.images.float() / 255 - mean) / std).contiguous()  # the plain loop's: normalised, NCHW
    indices, settings = torch.arange(len(data.labels)), training.Settings(1, BATCH, 0.01)
    print(f"{repeats} pairs of {batches} batches of {BATCH}; images a second, fedlib / plain; median (middle half)")
    medians = []
    for name in models.CNN_WIDTHS:
        ours = models.build(name, 10, 3, generator(0, "init"))
        plain = models.BUILDERS[name](10, 3)
        plain.load_state_dict(ours.state_dict())

        def train_ours(ours=ours):
            training.train(training.cross_entropy, {"model": ours}, pool, indices, settings, np.random.default_rng(0))

        def train_plain(plain=plain):
            optimiser = torch.optim.SGD(plain.parameters(), 0.01)
            for batch in torch.randperm(len(images)).split(BATCH):
                optimiser.zero_grad()
                F.cross_entropy(plain(images[batch]), data.labels[batch]).backward()
                optimiser.step()

        fedlib_seconds, plain_seconds = in_turns(train_ours, train_plain, repeats)
        ratio = plain_seconds / fedlib_seconds
        medians.append(np.median(ratio))
        speed = len(images) / np.median(fedlib_seconds)
        print(f"  {name}: {spread(ratio)}   fedlib {speed:.0f} images/s")
    print(f"  CNN-1..5: smallest median {min(medians):.3f}, mean of medians {np.mean(medians):.3f}")


if __name__ == "__main__":
    main()
