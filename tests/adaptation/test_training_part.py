"""Subsets of labelled examples, and labels that changed places."""

import re
from collections import Counter
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pandas as pd
import pytest
from adaptation.small_task import small_data

from infoflow.adaptation import TaskData, training_part
from infoflow.corpus import Corpus
from infoflow.foundation import SilentDisplay, UserError, use_display


def _texts(corpus: Corpus) -> set[str]:
    return set(corpus.column("text"))


@pytest.fixture(scope="module")
def data() -> TaskData:
    return small_data(400)


def test_subsets_are_nested_stratified_and_of_the_content_alone(data):
    sizes = (5, 20, 50, 120)
    subsets = [training_part(data, size, "") for size in sizes]
    assert [len(one) for one in subsets] == list(sizes)
    assert all(_texts(one) < _texts(other) for one, other in pairwise(subsets))
    share = Counter(data.train.column("label"))["first"] / len(data.train)
    for one in subsets:
        assert abs(Counter(one.column("label"))["first"] - share * len(one)) <= 1
    order = np.random.default_rng(0).permutation(len(data.train))
    turned = replace(data, train=data.train.select(order))
    assert _texts(training_part(turned, 20, "")) == _texts(subsets[1])


def test_shuffled_labels_keep_their_number_and_nothing_else(data):
    control = training_part(data, 0, "shuffled-labels")
    before, after = list(data.train.column("label")), list(control.column("label"))
    assert list(control.column("text")) == list(data.train.column("text"))
    assert Counter(after) == Counter(before)
    assert 0.3 < np.mean(np.array(before) == np.array(after)) < 0.7
    order = np.random.default_rng(0).permutation(len(data.train))
    turned = training_part(replace(data, train=data.train.select(order)), 0, "shuffled-labels")
    labels = dict(zip(control.column("text"), after, strict=True))
    assert [labels[text] for text in turned.column("text")] == list(turned.column("label"))


def _tagged() -> TaskData:
    words = [[f"w{i}" for i in range(start, start + size)] for start, size in ((0, 9), (20, 5), (40, 7))]
    tags = [["N" if place % 2 else "V" for place in range(len(one))] for one in words]
    frame = {"words": words, "tag": tags}
    from datasets import Dataset

    corpus = Corpus.from_dataset(Dataset.from_dict(frame), text=None, words="words", tags=("tag",))
    return TaskData(name="tags", shape="tagging", train=corpus, dev=corpus, test=corpus, labels=("V", "N"))


def test_tags_change_places_over_all_words():
    data = _tagged()
    control = training_part(data, 0, "shuffled-labels")
    before, after = list(data.train.column("tag")), list(control.column("tag"))
    assert list(map(len, after)) == list(map(len, before))
    assert Counter(chain(*after)) == Counter(chain(*before))
    assert after != before
    assert list(control.column("words")) == list(data.train.column("words"))


def test_too_many_examples_are_refused(data):
    with pytest.raises(UserError, match="at most the 200 training examples"):
        training_part(data, 201, "")


def _rare(*counts: int, joined: str = "") -> TaskData:
    """Classes a, b, ... of so many texts."""
    labels = [name + joined for name, count in zip("abcdef", counts, strict=False) for _ in range(count)]
    frame = pd.DataFrame({"text": [f"text {row}" for row in range(len(labels))], "label": labels})
    corpus = Corpus.from_frame(frame, label="label")
    classes = tuple(dict.fromkeys("".join(labels).replace("|", "")))
    return TaskData(name="rare", shape="classification", train=corpus, dev=corpus, test=corpus, labels=classes)


class Notes(SilentDisplay):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_classes_without_an_example_are_told_and_one_class_alone_is_refused():
    told = r"first 8 of rare are all \"a\"\. Raise it to (\d+) at least"
    with pytest.raises(UserError, match=told) as refused:
        training_part(_rare(95, 5), 8, "")
    least = int(re.search(told, str(refused.value))[1])
    with use_display(display := Notes()):
        assert set(training_part(_rare(95, 5), least, "").column("label")) == {"a", "b"}
        assert not display.said
        assert set(training_part(_rare(60, 35, 3, 2), 8, "").column("label")) == {"a", "b"}
        assert display.said == ['rare: 8 training examples do not cover all 4 classes: there is none of "c", "d".']
        training_part(_rare(60, 35, 3, 2), 0, "shuffled-labels")
    assert len(display.said) == 1
    with pytest.raises(UserError, match=f"first {least - 1} of rare are all"):
        training_part(_rare(95, 5), least - 1, "")


def test_of_several_labels_each_is_looked_for():
    data = _rare(60, 35, 5, joined="|e")
    with use_display(display := Notes()):
        training_part(data, 8, "")
    assert data.labels == ("a", "e", "b", "c")
    assert display.said == ['rare: 8 training examples do not cover all 4 classes: there is none of "c".']


def test_a_column_is_replaced_by_one_as_long(data):
    numbers = [str(row) for row in range(len(data.dev))]
    assert list(data.dev.with_column("label", numbers).column("label")) == numbers
    with pytest.raises(UserError, match="must have 100 values"):
        data.dev.with_column("label", ["one"])
    with pytest.raises(UserError, match="no column second"):
        data.dev.with_column("second", numbers)


def test_regression_has_no_classes_to_share():
    frame = pd.DataFrame({"text": [f"text {i}" for i in range(30)], "label": [str(i / 7) for i in range(30)]})
    corpus = Corpus.from_frame(frame, label="label")
    data = TaskData(name="numbers", shape="regression", train=corpus, dev=corpus, test=corpus)
    assert len(_texts(training_part(data, 10, "")) & _texts(training_part(data, 20, ""))) == 10


def test_answers_without_places_change_places_too():
    rows = [f"Town {row} lies by the river of number {row} and the sea" for row in range(40)]
    frame = pd.DataFrame({"text": rows, "question": ["Where?"] * 40, "answers": [["the river"]] * 40})
    corpus = Corpus.from_frame(frame, question="question", answers="answers")
    data = TaskData(name="towns", shape="span", train=corpus, dev=corpus, test=corpus)
    found = list(training_part(data, 0, "shuffled-labels").column("answers"))
    assert len({answer for (answer,) in found}) > 10
    assert all(answer in text and len(answer.split()) == 2 for (answer,), text in zip(found, rows, strict=True))
