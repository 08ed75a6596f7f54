"""Test texts that were seen before, beside a search of every pair."""

from pathlib import Path

import pytest

from infoflow.adaptation import TASK_LEAKAGE, TaskData, leakage, load_task
from infoflow.corpus import Corpus


def words(text):
    return text.lower().translate(str.maketrans("", "", ".,!?")).split()


def one_word_apart(a, b):
    if a == b:
        return True
    if min(len(a), len(b)) < 4 or abs(len(a) - len(b)) > 1:
        return False
    if len(a) == len(b):
        return sum(x != y for x, y in zip(a, b, strict=True)) == 1
    short, long = sorted((a, b), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


def test_leakage_agrees_with_every_pair(corpus_of, texts):
    test = corpus_of(
        text=["A dog sees the cat.", "the dog runs very fast today", *texts(40)],
        second=["the old house", "a  CAT sleeps", *texts(40, seed=1)],
        label=["x", "y"] * 21,
    )
    train = corpus_of(text=["the dog runs very today", *texts(30, seed=2)], second=texts(31, seed=3), label=["x"] * 31)
    general = Corpus.from_sentences(
        ["a dog sees the cat.", "a cat sleeps", "the dog runs very fast", *texts(60, seed=4)]
    )
    data = TaskData(name="t", shape="classification", train=train, dev=train, test=test, labels=("x", "y"))
    found = leakage(data, {"pretraining": general})
    assert list(found.columns) == TASK_LEAKAGE.column_names
    assert found["within"].tolist() == ["pretraining", "train"]
    asked = {" ".join(text.lower().split()) for s in test for text in (s.text, s.second)}
    for row, others in zip(found.itertuples(), (general, train), strict=True):
        there = {" ".join(text.lower().split()) for s in others for text in (s.text, s.second) if text}
        assert row.texts == len(asked)
        assert row.same == len(asked & there)
        assert row.near == sum(any(one_word_apart(words(a), words(b)) for b in there) for a in asked)
        assert row.near > row.same > 0


def test_the_leakage_of_acl_arc_is_as_the_data_says():
    folder = Path(__file__).parents[3] / "shared" / "data" / "classify" / "acl-arc"
    if not folder.is_dir():
        pytest.skip("the real data sets are not here")
    data = load_task("acl-arc", **{part: folder / f"{part}.tsv.gz" for part in ("train", "dev", "test")})
    (row,) = leakage(data, {}).itertuples()
    assert (row.within, row.texts, row.same) == ("train", 135, 48)
    assert row.near >= row.same
