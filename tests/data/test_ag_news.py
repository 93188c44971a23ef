"""AG News: small files of the same format, rows of class, title and description in quotes."""

import hashlib
from dataclasses import replace

import pytest

from fedlib import FedlibError, RunSpec, data, lab
from fedlib.data.readers import ag_news

ROWS = {
    "train": [
        ("3", "Wall St. Bears", 'Short-sellers, "Wall Street\'s" dwindling band'),
        ("1", "Peace", "the wall the wall"),
    ]
    * 8,
    "test": [("4", "Unseen", "the wall, unheard of"), ("2", "", "")] * 3,
}


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """The small files, elsewhere, and what is known of them beforehand."""
    for part, rows in ROWS.items():
        quoted = "\n".join(",".join('"{}"'.format(field.replace('"', '""')) for field in row) for row in rows)
        write(tmp_path / "there", part, quoted + "\n")
        monkeypatch.setitem(ag_news.MD5, part, hashlib.md5((quoted + "\n").encode()).hexdigest())
    small = replace(data.BUILT_IN["ag-news"], num_train=16, num_test=6)
    monkeypatch.setitem(data.BUILT_IN, "ag-news", small)


def write(folder, part: str, content: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{part}.csv").write_text(content, encoding="utf-8")


def here(root) -> None:
    root.mkdir()
    (root.parent / "there").rename(root / "ag-news")


def test_words_have_ids_by_how_common_they_are(root):
    here(root)
    made = data.load("ag-news")
    assert made.sample == data.info("ag-news").sample and made.num_train == 16
    assert made.labels.tolist() == [2, 0] * 8 + [3, 1] * 3
    ids = {word: made.images[1, place].item() for place, word in enumerate(["peace", "the", "wall", "the", "wall"])}
    assert (ids["wall"], ids["the"]) == (2, 3)  # 4 of a pair of texts, and 2
    assert (
        ids["peace"] == 7
    )  # of those that occur once: band, bears, dwindling, peace, s (of St. and Street's: st), ...
    first = made.images[0]
    assert (first[:10] > 1).all() and not first[10:].any()  # wall st bears short sellers wall street s dwindling band
    assert made.images[16, :5].tolist() == [1, 3, 2, 1, 1] and not made.images[17].any()


def test_texts_are_cut_and_rare_words_are_one():
    ids = ag_news.word_ids([["a"] * 3, ["b", "c", "b"]])
    assert ids == {"a": 2, "b": 3, "c": 4}
    rows = ag_news.encoded([["c"] * 100, ["d", "a"]], ids)
    assert rows.shape == (2, 64) and (rows[0] == 4).all() and rows[1, :3].tolist() == [1, 2, 0]
    many = ag_news.word_ids([[f"{number:05}" for number in range(30_000)]])
    assert len(many) == 19_998 and many["00000"] == 2 and max(many.values()) == 19_999


def test_another_file_is_refused(root):
    here(root)
    write(root / "ag-news", "test", '"1","a","b"\n')
    with pytest.raises(
        FedlibError, match=r"dataset = 'ag-news': the files in .* \(test.csv is not the published file\)"
    ):
        data.load("ag-news")


def test_it_is_downloaded_with_its_sums(root, monkeypatch):
    asked = []

    def download_url(url, folder, name, md5):
        asked.append((url, md5))
        write(type(root)(folder), name.removesuffix(".csv"), (root.parent / "there" / name).read_text(encoding="utf-8"))

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download_url)
    assert len(data.load("ag-news").labels) == 22
    assert asked == [(f"{ag_news.URL}/{part}.csv", md5) for part, md5 in ag_news.MD5.items()]


def test_a_run_on_words(root):
    here(root)
    spec = RunSpec(
        "FedSSA", dataset="ag-news", scenario="fastText", num_clients=2, partition="iid", rounds=2, local_epochs=1
    )
    assert lab.run(spec, "smoke", progress=False).status == "finished"
