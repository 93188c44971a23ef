"""AG News (Zhang et al., NeurIPS 2015): 120 000 headlines with their first sentences to train on and 7 600 to test on, in
four classes: world, sports, business, science and technology.

Prepared here: title and description in lower case, split into words; the 19 998 commonest words of the training part
(of equally common ones the first in the alphabet) have the ids from 2 on, any other is 1, and 0 pads a text to 64
words, beyond which it is cut (*chosen*).
"""

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np

from ..dataset import Dataset
from ..info import BUILT_IN, DatasetInfo, provide

URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv"
MD5 = {
    "train": "b1a00f826fdfbd249f79597b59e1dc12",
    "test": "d52ea96a97a2d943681189a97654912d",
}  # published by torchtext
VOCABULARY, LENGTH, UNKNOWN = 20_000, 64, 1


def read(root: Path, download: bool) -> Dataset:
    from torchvision.datasets.utils import check_integrity, download_url

    folder, parts = root / "ag-news", []
    for part, md5 in MD5.items():
        if download:
            download_url(f"{URL}/{part}.csv", str(folder), f"{part}.csv", md5)
        if not check_integrity(str(folder / f"{part}.csv"), md5):
            raise RuntimeError(f"{part}.csv is not the published file")
        parts.append(_texts(folder / f"{part}.csv"))
    (texts, labels), (test_texts, test_labels) = parts
    ids, known = word_ids(texts), BUILT_IN["ag-news"]
    arrays = encoded(texts, ids), labels, encoded(test_texts, ids), test_labels
    return Dataset.from_arrays("ag-news", *arrays, known.num_classes, vocabulary=VOCABULARY)


def _texts(file: Path) -> tuple[list[list[str]], np.ndarray]:
    """The words of each text, and its class from 0; a row is class from 1, title and description."""
    with open(file, newline="", encoding="utf-8") as rows:
        found = list(csv.reader(rows))
    words = [re.findall(r"\w+", f"{title} {text}".lower()) for _, title, text in found]
    return words, np.array([int(label) - 1 for label, _, _ in found])


def word_ids(texts: list[list[str]]) -> dict[str, int]:
    """The id of each of the commonest words, from 2 on."""
    counts = Counter(word for words in texts for word in words)
    commonest = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 2]
    return {word: id for id, word in enumerate(commonest, 2)}


def encoded(texts: list[list[str]], ids: dict[str, int]) -> np.ndarray:
    """Texts as ids, int64 (n, LENGTH)."""
    rows = np.zeros((len(texts), LENGTH), dtype=np.int64)
    for row, words in zip(rows, texts, strict=True):
        row[: len(words)] = [ids.get(word, UNKNOWN) for word in words[:LENGTH]]
    return rows


provide(
    DatasetInfo(
        "ag-news", 4, LENGTH, 120_000, 7_600, (), (), MD5["train"][:16],
        size=(), kind="tokens", dtype="int64", vocabulary=VOCABULARY,
    ),
    read,
    "ag-news",
    checked_files=True,
)  # fmt: skip
