"""Questions to a dense index: long ones are cut, special tokens written in them are text."""

from functools import cache

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import tiny_retriever, tiny_world

from infoflow.retrieval import PassageIndex, Passages, build_passage_index

pytestmark = pytest.mark.slow


@cache
def built(folder) -> PassageIndex:
    world, tokenizer, _ = tiny_world()
    tiny_retriever().save_pretrained(folder / "retriever")
    tokenizer.save_pretrained(folder / "retriever")
    return build_passage_index(Passages.from_rows(world.passages()), folder / "index", folder / "retriever")


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> PassageIndex:
    return built(tmp_path_factory.mktemp("dense"))


def vector(index, ids):
    with torch.no_grad():
        return index.retriever.eval().queries(torch.tensor([ids]))


def test_a_question_beyond_the_retrievers_positions_is_cut_at_its_end(index):
    word = tiny_world()[0].passages()[0]["text"].split()[0]
    positions = index.retriever.config.max_position_embeddings
    index.tokenizer.model_max_length = 10**30  # as of a tokenizer that was saved without a limit
    long, cut = (index.search([" ".join([word] * length)], 3) for length in (positions + 40, positions - 2))
    np.testing.assert_array_equal(long.ids, cut.ids)
    np.testing.assert_array_equal(long.scores, cut.scores)


def test_special_tokens_written_in_a_question_are_text(index):
    tokenizer = index.tokenizer
    word = tiny_world()[0].passages()[0]["text"].split()[0]
    id = tokenizer.convert_tokens_to_ids(word)
    as_text = [tokenizer.cls_token_id, id, tokenizer.unk_token_id, id, tokenizer.sep_token_id]
    wanted = index.index.search(vector(index, as_text), 3, None)
    found = index.search([f"{word} [SEP] {word}"], 3)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-5)


def test_questions_of_different_lengths_are_searched_as_each_by_itself(index):
    questions = [one.masked().replace("[MASK]", "x") for one in tiny_world()[0].questions(tiny_world()[0].facts)[:4]]
    questions[0] += " " + questions[0]
    together = index.search(questions, 3)
    for row, question in enumerate(questions):
        np.testing.assert_allclose(together.scores[row], index.search([question], 3).scores[0], rtol=1e-4)
