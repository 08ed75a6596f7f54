import math

import pytest
from adaptation.questions import asked, own_tokenizer, town_questions

from infoflow.adaptation._span_answers import SpanAnswer, joined, probabilities, with_null
from infoflow.adaptation._span_rows import SpanRows, WindowSize

CORPUS = town_questions(1, facts=6)
ROWS = SpanRows(CORPUS, own_tokenizer(town_questions(20)), WindowSize(24, 6, 64))


def test_answers_of_windows_are_joined_by_the_best_of_each_text():
    answers = [
        SpanAnswer("a", 1.0),
        SpanAnswer("b", 3.0),
        SpanAnswer("a", 4.0),
        SpanAnswer("", 9.0),
        SpanAnswer("c", 0.0),
    ]
    assert joined(answers, 2) == [("a", 4.0), ("b", 3.0)]


@pytest.mark.parametrize(
    ("null", "threshold", "said"), [(2.0, 0.0, ""), (2.0, 1.5, "a"), (1.0, 0.0, "a"), (0.5, -1.0, "")]
)
def test_no_answer_is_said_above_the_threshold(null, threshold, said):
    ranked = with_null([SpanAnswer("a", 1.0)], null, threshold)
    assert ranked[0].text == said
    assert {answer.text for answer in ranked} == {"", "a"}
    assert with_null([], null, threshold) == [("", null)]


def test_probabilities_are_a_softmax():
    found = probabilities([SpanAnswer("a", 801.0), SpanAnswer("b", 800.0)])
    assert found == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)])


def test_a_passage_of_one_window_is_all_context():
    rows = SpanRows(asked(("Ann lives in Oslo.", "Where?", [], [])), own_tokenizer(CORPUS), WindowSize(64, 128, 64))
    (window,) = rows.windows
    assert window.best.tolist() == (window.offsets[:, 0] >= 0).tolist()
