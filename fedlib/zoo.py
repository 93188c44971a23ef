"""Small extractors for what is no image, each for one kind of samples: a start, to be replaced by your own.

All have a representation of 200 numbers, so that methods which share headers can mix them with others of that width.
"""

from torch import Tensor, nn

from .sample import Sample

WIDTH = 200


def mlp(sample: Sample) -> nn.Module:
    """Vectors (n, features): two hidden layers of 200 units with ReLU, the 2NN of McMahan et al. (AISTATS 2017)."""
    return nn.Sequential(nn.Linear(sample.size, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())


class MeanOverTime(nn.Module):
    """(n, channels, length) -> (n, channels): for series of any length."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(2)


def cnn_1d(sample: Sample) -> nn.Module:
    """Series (n, channels, length): two convolutions over time of 5 steps with 32 and 64 filters, their mean over time, and
    a linear layer to the representation.
    """
    return nn.Sequential(
        nn.Conv1d(sample.channels, 32, 5, padding="same"), nn.ReLU(),
        nn.Conv1d(32, 64, 5, padding="same"), nn.ReLU(),
        MeanOverTime(),
        nn.Linear(64, WIDTH), nn.ReLU(),
    )  # fmt: skip


class MeanOfWords(nn.Module):
    """Token ids (n, length), int64 -> the mean of their learned vectors (n, width); id 0 is padding and counts for nothing."""

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, width, padding_idx=0)

    def forward(self, ids: Tensor) -> Tensor:
        words = (ids > 0).sum(1, keepdim=True).clamp(min=1)
        return self.vectors(ids).sum(1) / words


def fast_text(sample: Sample) -> nn.Module:
    """Token ids (n, length): the mean of the words' vectors, as in fastText (Joulin et al., EACL 2017), with a ReLU layer
    between it and the header.
    """
    return nn.Sequential(MeanOfWords(sample.vocabulary, 64), nn.Linear(64, WIDTH), nn.ReLU())


EXTRACTORS = {"MLP": mlp, "CNN-1D": cnn_1d, "fastText": fast_text}
