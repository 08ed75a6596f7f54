import pandas as pd
import pytest
from adaptation.questions import asked

from infoflow.adaptation import Generation, TaskData, as_text, make_task
from infoflow.corpus import Corpus
from infoflow.foundation import UserError


def _data(shape, corpus: Corpus, labels=()) -> TaskData:
    return TaskData(name="task", shape=shape, train=corpus, dev=corpus, test=corpus, labels=labels)


def _frame(**columns) -> Corpus:
    named = {name: name for name in columns if name != "text"}
    return Corpus.from_frame(pd.DataFrame(columns), **named)


def _pairs(data: TaskData) -> list[tuple[str, str | None]]:
    return [(one.text, one.translation) for one in data.train]


def test_labels_become_texts():
    data = _data("classification", _frame(text=["It shines.", "It rains."], label=["good", "bad"]), ("good", "bad"))
    written = as_text(data)
    assert (written.shape, written.labels, written.name) == ("generation", (), "task")
    assert _pairs(written) == [("It shines.", "good"), ("It rains.", "bad")]
    assert make_task(written).main == "exact_match"
    task = make_task(written, main="rouge1", prefix="weather: ")
    assert task.main == "rouge1"
    assert isinstance(task, Generation)
    assert task.prefix == "weather: "


def test_pairs_and_numbers_become_texts():
    corpus = _frame(text=["One.", "Two."], second=["Uno.", "Due."], label=["3.27", "5"])
    assert _pairs(as_text(_data("regression", corpus))) == [
        ("first: One. second: Uno.", "3.2"),
        ("first: Two. second: Due.", "5.0"),
    ]


def test_choices_become_texts():
    corpus = _frame(text=["Ann eats."], question=["What?"], choices=[["soup", "a pie"]], label=["1"])
    assert _pairs(as_text(_data("choice", corpus))) == [
        ("question: What? choices: (1) soup (2) a pie context: Ann eats.", "a pie")
    ]


def test_answers_become_texts():
    corpus = asked(("Oslo, Norway.", "Where?", ["Norway", "Oslo", "Norway"], [6, 0, 6]), ("Oslo.", "When?", [], []))
    written = as_text(_data("span", corpus))
    assert _pairs(written) == [
        ("question: Where? context: Oslo, Norway.", "Norway"),
        ("question: When? context: Oslo.", "no answer"),
    ]
    assert [one.references for one in written.train] == [["Oslo"], []]


def test_tags_are_refused_and_texts_stay():
    corpus = Corpus.from_sentences([("a", "b")])
    data = _data("generation", corpus)
    assert as_text(data) is data
    with pytest.raises(UserError, match="shape tagging cannot be turned into text generation"):
        as_text(_data("tagging", corpus))


def test_spans_that_may_be_none_make_a_task_that_says_so():
    whole = asked(("Oslo, Norway.", "Where?", ["Norway"], [7]))
    half = asked(("Oslo, Norway.", "Where?", ["Norway"], [7]), ("Oslo.", "When?", [], []))
    assert [make_task(_data("span", corpus)).nullable for corpus in (whole, half)] == [False, True]
