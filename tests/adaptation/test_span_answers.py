import math

import numpy as np
import pytest
from adaptation.questions import asked, own_tokenizer, town_questions
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.subjects.adaptation.measures._span_answers import SpanAnswer, best_spans, joined, probabilities, with_null
from infoflow.subjects.adaptation.measures._span_rows import SpanRows, WindowSize

CORPUS = town_questions(1, facts=6)
ROWS = SpanRows(CORPUS, own_tokenizer(town_questions(20)), WindowSize(24, 6, 64))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 12), longest=st.integers(1, 9), which=st.integers(0, 9))
def test_best_spans_are_those_of_all_pairs(seed, count, longest, which):
    window = ROWS.windows[which % len(ROWS.windows)]
    start, end = np.random.default_rng(seed).normal(size=(2, len(window.input_ids)))
    text = CORPUS[0].text
    every = [
        (start[i] + end[j], text[window.offsets[i, 0] : window.offsets[j, 1]].strip())
        for i in range(len(start))
        for j in range(i, min(i + longest, len(start)))
        if window.best[i] and window.offsets[j, 0] >= 0
    ]
    expected = sorted(every, reverse=True)[:count]
    found = best_spans(window, text, start, end, count, longest)
    assert [answer.text for answer in found] == [said for _, said in expected]
    np.testing.assert_allclose([answer.score for answer in found], [score for score, _ in expected])


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
