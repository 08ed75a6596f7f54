"""Questions about real text as rows to train on: where the masks go, what is left out, what is cut."""

import numpy as np
import pytest

from infoflow.corpus import train_tokenizer
from infoflow.foundation import UserError
from infoflow.retrieval import Library, Passages
from infoflow.subjects.retrieval.objectives import ReadGold
from infoflow.subjects.retrieval.training import question_rows
from infoflow.training import TrainingData

PASSAGES = ["ada lund lives in oslo .", "ben roth works as a nurse in rome .", "the baker of the town is eva [MASK] ."]
QUESTIONS = [
    "where does ada lund live ?",
    "what is ben roth ?",
    "who is the baker [SEP] ?",
    "where does ben roth work ?",
]
ANSWERS = ["oslo", "a nurse", "eva", "as a nurse in rome"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([*PASSAGES, *QUESTIONS] * 3, 200)


@pytest.fixture(scope="module")
def library(tokenizer):
    return Library(Passages.from_rows(PASSAGES), tokenizer, 64)


def made(tokenizer, library, **options):
    return question_rows(
        QUESTIONS, ANSWERS, np.arange(4), tokenizer, library, np.array([0, 1, 2, 1]), **{"answer_tokens": 3, **options}
    )


def test_the_answer_stands_behind_the_question_and_is_the_only_span(tokenizer, library):
    found = made(tokenizer, library)
    assert found.kept.tolist() == [0, 1, 2]  # the last answer has more than three tokens
    for place, row in enumerate(found.kept.tolist()):
        tokens, labels = found.rows.row(place), found.rows.example(place).labels
        ((start, end),) = labels["spans"]
        assert tokenizer.decode(tokens[start:end]).strip() == ANSWERS[row]
        assert (tokens[0], tokens[end]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        assert len(tokens) == end + 1
        assert labels["gold"] == [0, 1, 2, 1][row]
        assert not len(labels["excluded"])


def test_only_the_answer_is_masked(tokenizer, library):
    found = made(tokenizer, library)
    data = TrainingData(source=found.rows, vocabulary=library.vocabulary, tokenizer=tokenizer)
    batch = data.batch(ReadGold(null_share=0.0), np.arange(3), ("test",), 0)
    for row in range(3):
        ((start, end),) = found.rows.example(row).labels["spans"]
        asked = batch.labels[row] != -100
        assert asked.nonzero()[:, 0].tolist() == list(range(start, end))
        assert (batch.input_ids[row][asked] == tokenizer.mask_token_id).all()


def test_special_tokens_written_in_a_question_are_text(tokenizer, library):
    tokens = made(tokenizer, library).rows.row(2)
    assert (tokens == tokenizer.sep_token_id).sum() == 1  # its own end


def test_a_long_question_loses_tokens_and_no_mask(tokenizer, library):
    whole, cut = made(tokenizer, library), made(tokenizer, library, max_length=6)
    assert (whole.num_cut, cut.num_cut) == (0, 3)
    for row in range(3):
        tokens, ((start, end),) = cut.rows.row(row), cut.rows.example(row).labels["spans"]
        assert len(tokens) <= 6
        before, ((first, last),) = whole.rows.row(row), whole.rows.example(row).labels["spans"]
        assert tokens[start:end].tolist() == before[first:last].tolist()
        assert tokens[:start].tolist() == before[:start].tolist()


def test_no_question_left_is_one_message(tokenizer, library):
    with pytest.raises(UserError, match=r"No question has an answer of at most 1 tokens. Got 1 questions"):
        question_rows(["what ?"], ["a nurse in rome"], np.arange(1), tokenizer, library, np.array([1]), answer_tokens=1)
