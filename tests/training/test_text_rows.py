"""Windows and pairs hold the tokens of their sentences, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from training.running_text import running_text
from training.tiny import VOCABULARY

from infoflow.foundation import UserError
from infoflow.training import ExampleRows, PairRows, WindowRows

START, END = VOCABULARY.start, VOCABULARY.end


def bare(encoded, row):
    return encoded.row(row)[1:-1].tolist()


@pytest.mark.parametrize(("budget", "longest"), [(24, 9), (8, 9), (100, 3), (4, 5)])
def test_a_window_is_its_sentences(budget, longest):
    encoded, documents = running_text(longest=longest)
    rows = WindowRows(encoded, documents, budget, VOCABULARY)
    assert isinstance(rows, ExampleRows)
    assert [row for first, stop in rows.sentences for row in range(first, stop)] == [*range(len(encoded))]
    for index, (first, stop) in enumerate(rows.sentences.tolist()):
        text = [token for row in range(first, stop) for token in bare(encoded, row)][: budget - 2]
        starts = [1 if place == 0 else 0 for row in range(first, stop) for place in range(len(bare(encoded, row)))]
        example = rows.example(index)
        assert example.text.tolist() == rows.row(index).tolist() == [START, *text, END]
        assert example.labels["sentence_starts"].tolist() == [False, *map(bool, starts[: budget - 2]), False]
        assert rows.lengths[index] == len(text) + 2 <= budget
        assert rows.sentence_ids[index] == encoded.sentence_ids[first]
        assert len(set(documents[first:stop])) == 1
    assert len(set(rows.sentence_ids.tolist())) == len(rows.sentence_ids)


def test_a_window_ends_where_sentences_are_missing():
    encoded, documents = running_text(1)
    ids = encoded.sentence_ids + (np.arange(len(encoded)) >= 2)
    rows = WindowRows(replace(encoded, sentence_ids=ids), documents, 100, VOCABULARY)
    assert rows.sentences.tolist() == [[0, 2], [2, len(encoded)]]


def test_a_sentence_without_tokens_begins_nothing():
    encoded, documents = running_text(1)
    nothing = np.array([START, END], dtype=np.int32)
    emptied = replace(
        encoded,
        offsets=np.concatenate([[0, 2], encoded.offsets[1:] + 2]),
        flat_ids=np.concatenate([nothing, encoded.flat_ids]),
        flat_special=np.concatenate([[True, True], encoded.flat_special]),
        sentence_ids=np.arange(len(encoded) + 1),
    )
    one = WindowRows(encoded, documents, 100, VOCABULARY).example(0)
    other = WindowRows(emptied, np.append(documents, 0), 100, VOCABULARY).example(0)
    assert one.text.tolist() == other.text.tolist()
    assert one.labels["sentence_starts"].tolist() == other.labels["sentence_starts"].tolist()
    alone = WindowRows(emptied, np.arange(len(emptied)), 100, VOCABULARY)
    assert len(alone.lengths) == len(encoded)


@pytest.mark.parametrize(("kind", "label"), [("next", "is_random"), ("order", "is_swapped")])
def test_a_pair_is_its_segments(kind, label):
    encoded, documents = running_text(longest=14)
    rows = PairRows(encoded, documents, 24, VOCABULARY, kind=kind, copies=3)
    assert isinstance(rows, ExampleRows)
    flat = [token for row in range(len(encoded)) for token in bare(encoded, row)]
    of = [documents[row] for row in range(len(encoded)) for _ in bare(encoded, row)]
    pairs = rows.pairs
    for index in range(len(pairs)):
        (a, b), (c, d) = pairs.first[index], pairs.second[index]
        example = rows.example(index)
        assert [text.tolist() for text in example.texts] == [flat[a:b], flat[c:d]]
        assert rows.row(index).tolist() == [START, *flat[a:b], END, *flat[c:d], END]
        assert rows.lengths[index] == len(rows.row(index)) <= 24
        assert example.labels == {label: int(pairs.negative[index])}
        assert (of[a] != of[c]) == (kind == "next" and pairs.negative[index])
    assert len(set(rows.sentence_ids.tolist())) == len(pairs)
    assert rows.sentence_ids.max() < 1 << 32


def test_lengths_of_many_sentences_are_counted_in_pieces(monkeypatch):
    encoded, documents = running_text()
    whole = WindowRows(encoded, documents, 24, VOCABULARY)
    monkeypatch.setattr("infoflow.training._data._SENTENCES", 7)
    pieces = WindowRows(encoded, documents, 24, VOCABULARY)
    assert whole.digest == pieces.digest


@pytest.mark.parametrize("kind", [WindowRows, PairRows])
def test_text_that_cannot_be_cut(kind):
    encoded, documents = running_text()
    with pytest.raises(UserError, match=r"needs documents.*without documents\.\n.*documents=True"):
        kind(encoded, None, 24, VOCABULARY)
    with pytest.raises(UserError, match=r"at least [45] tokens.* Got 3"):
        kind(encoded, documents, 3, VOCABULARY)


def test_next_sentence_pairs_need_another_document():
    encoded, documents = running_text(1)
    with pytest.raises(UserError, match="Got one document"):
        PairRows(encoded, documents, 24, VOCABULARY)
