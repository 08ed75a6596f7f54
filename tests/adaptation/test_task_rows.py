"""Texts and pairs as token ids, beside what the tokenizer says itself."""

from typing import NamedTuple

import pandas as pd
import pytest
from transformers import PreTrainedTokenizerFast

from infoflow.adaptation import Classification
from infoflow.corpus import Corpus
from infoflow.foundation import UserError


class Read(NamedTuple):
    ids: list[int]
    segments: list[int] | None


def rows_of(tokenizer, first, second, limit, labels=None):
    columns = {"text": first, "label": labels or ["x"] * len(first)} | ({} if second is None else {"second": second})
    corpus = Corpus.from_frame(pd.DataFrame(columns), name="made", **{column: column for column in columns})
    return Classification(task="t", labels=("x", "y")).rows(corpus, tokenizer, limit)


def read_texts(tokenizer, first, second, limit):
    rows = rows_of(tokenizer, first, second, limit)
    kinds = [rows.example(row).labels.get("token_type_ids") for row in range(len(first))]
    return [Read(rows.row(row).tolist(), None if one is None else one.tolist()) for row, one in enumerate(kinds)]


@pytest.fixture(scope="module")
def gpt_like(tokenizer):
    """A tokenizer that puts no marks around a text, nor between two."""
    from tokenizers import Tokenizer, processors

    bare = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    bare.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    return PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="[SEP]", pad_token="[PAD]", model_max_length=64)


@pytest.mark.parametrize("limit", [64, 9, 6])
def test_pairs_are_those_of_the_tokenizer(tokenizer, texts, limit):
    first, second = texts(20), texts(20, seed=1)
    found = read_texts(tokenizer, first, second, limit)
    for one, *sides in zip(found, first, second, strict=True):
        wanted = tokenizer(*sides, truncation="longest_first", max_length=limit, return_token_type_ids=True)
        assert (one.ids, one.segments) == (wanted["input_ids"], wanted["token_type_ids"])


def test_text_that_looks_like_a_mark_is_text(tokenizer, vocabulary):
    (one,) = read_texts(tokenizer, ["a dog [SEP] a cat"], None, 64)
    assert one.ids.count(vocabulary.end) == 1
    assert one.segments is None


def test_a_pair_gets_a_mark_between_where_the_tokenizer_has_none(gpt_like, texts):
    first, second = texts(20), texts(20, seed=1)
    sides = [[gpt_like(text)["input_ids"] for text in each] for each in (first, second)]
    for one, left, right in zip(read_texts(gpt_like, first, second, 64), *sides, strict=True):
        assert one.ids == [*left, gpt_like.eos_token_id, *right]
        assert one.segments is None
    for one, left, right in zip(read_texts(gpt_like, first, second, 8), *sides, strict=True):
        mark = one.ids.index(gpt_like.eos_token_id)
        kept = len(one.ids[:mark]), len(one.ids[mark + 1 :])
        assert (one.ids[:mark], one.ids[mark + 1 :]) == (left[: kept[0]], right[: kept[1]])
        assert sum(kept) == min(len(left) + len(right), 7)
        if sum(kept) < len(left) + len(right):  # no text is cut while the other is longer
            assert all(
                short == whole or short >= sum(kept) // 2
                for short, whole in zip(kept, (len(left), len(right)), strict=True)
            )
    nameless = PreTrainedTokenizerFast(tokenizer_object=gpt_like.backend_tokenizer, pad_token="[PAD]")
    with pytest.raises(UserError, match="neither a separator nor an end-of-text"):
        read_texts(nameless, ["a"], ["b"], 64)


def test_room_for_a_token_of_each_text(tokenizer):
    assert len(read_texts(tokenizer, ["the cat"], ["a dog"], 5)[0].ids) == 5
    with pytest.raises(UserError, match=r"max_length must be at least 5: .*both texts of a pair.* Got 4"):
        read_texts(tokenizer, ["the cat"], ["a dog"], 4)


def test_rows_say_by_their_digest_what_is_asked(tokenizer, texts):
    labels = ["x", "y"] * 3
    rows = rows_of(tokenizer, texts(6), None, 64, labels)
    assert rows.lengths.tolist() == [len(rows.row(row)) for row in range(6)]
    assert rows_of(tokenizer, texts(6), None, 64, labels).digest == rows.digest
    assert rows_of(tokenizer, texts(6), None, 64, labels[::-1]).digest != rows.digest
