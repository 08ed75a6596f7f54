"""A tokenizer that does not know the text of a corpus is refused, or noted where it knows a part."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, make_display, use_display

TEXTS = ["the cat sleeps", "a dog barks", "the dog"]


def words(*known: str, unk: str | None = "[UNK]", named: bool = True) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["[UNK]", *known])}, unk_token=unk))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=16, unk_token=unk if named else None)


def test_a_tokenizer_that_knows_no_word_is_refused() -> None:
    for tokenizer in (words("die", "Katze"), words("die", "Katze", named=False)):
        with pytest.raises(UserError, match="produces the same token for every word"):
            Corpus.from_sentences(TEXTS, "c").encode(tokenizer)


def test_a_tokenizer_that_gives_no_token_is_refused() -> None:
    nothing = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), model_max_length=16)
    with pytest.raises(UserError, match="produces no tokens"):
        Corpus.from_sentences(TEXTS, "c").encode(nothing)


def test_a_part_is_noted_once(capsys) -> None:
    corpus, tokenizer = Corpus.from_sentences(TEXTS, "c"), words("the", "cat", "a", "dog")
    with use_display(make_display("plain")):
        for _ in range(2):
            corpus.encode(tokenizer)
    assert capsys.readouterr().err.count("does not know 25% of the words") == 1


def test_one_word_again_and_again_is_known(capsys) -> None:
    with use_display(make_display("plain")):
        assert len(Corpus.from_sentences(["the the", "the"], "c").encode(words("the"))) == 2
    assert "does not know" not in capsys.readouterr().err
