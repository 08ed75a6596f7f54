"""Windows of running text, against a loop over sentences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.corpus import windows
from infoflow.foundation import UserError


def slow_windows(lengths, documents, budget):
    found, start, total = [], 0, 0
    for row, length in enumerate(lengths):
        if row > start and (documents[row] != documents[start] or total + length > budget):
            found.append([start, row])
            start, total = row, 0
        total += length
    return [*found, [start, len(lengths)]]


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=40), st.integers(2, 20))
def test_windows_are_those_of_a_loop_over_sentences(sentences, budget):
    lengths = np.array([length for length, _ in sentences])
    documents = np.cumsum([begins for _, begins in sentences])
    assert windows(lengths, documents, budget).tolist() == slow_windows(lengths, documents, budget)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(2, 20))
def test_every_sentence_is_in_one_window_and_only_long_ones_exceed_the_budget(lengths, budget):
    found = windows(np.array(lengths), np.zeros(len(lengths), dtype=np.int64), budget)
    assert [row for first, stop in found for row in range(first, stop)] == [*range(len(lengths))]
    for first, stop in found:
        assert sum(lengths[first:stop]) <= budget or stop == first + 1


def test_no_room_for_two_sentences():
    with pytest.raises(UserError, match=r"must fit two sentences: at least 2 tokens\. Got 1"):
        windows(np.array([1]), np.array([0]), 1)


def test_no_sentence_has_no_window():
    assert windows(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 5).shape == (0, 2)
