import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from infoflow.corpus import (
    Corpus,
    SubwordAligner,
    generate_grammar,
    token_frequencies,
    tokenizer_digest,
    train_tokenizer,
)
from infoflow.foundation import UserError

TEXTS = ["The old house sees a river.", "Don't sleep, big dog!", "rivers see houses near  the dogs"] * 20


@pytest.fixture
def corpus(write):
    return Corpus.from_text(write("a.txt", "\n".join(TEXTS)))


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 70)


def test_rows_equal_the_tokenizer_called_one_by_one(corpus, tokenizer):
    encoded = corpus.encode(tokenizer)
    for i, text in enumerate(TEXTS):
        expected = tokenizer(text)
        assert encoded.row(i).tolist() == expected["input_ids"]
        assert encoded.words(i).tolist() == [-1 if w is None else w for w in expected.word_ids()]
        assert encoded.special(i).tolist() == [t in ("[CLS]", "[SEP]") for t in expected.tokens()]
        assert encoded.row(i).dtype == encoded.words(i).dtype == encoded.lengths.dtype == np.int32
    assert encoded.lengths.tolist() == [len(tokenizer(text)["input_ids"]) for text in TEXTS]
    assert encoded.num_tokens == encoded.lengths.sum()
    assert encoded.sentence_ids.tolist() == corpus.ids.tolist()


def test_words_are_the_pieces_between_spaces_and_punctuation(corpus, tokenizer):
    encoded = corpus.encode(tokenizer)
    spans, words = encoded.spans(1), encoded.words(1)
    pieces = [TEXTS[1][spans[words == w][:, 0].min() : spans[words == w][:, 1].max()] for w in range(words.max() + 1)]
    assert pieces == ["Don", "'", "t", "sleep", ",", "big", "dog", "!"]
    assert spans[0].tolist() == [-1, -1]


def test_a_mapped_encoding_equals_the_one_in_memory(corpus, tokenizer, cache, monkeypatch):
    in_memory = corpus.encode(tokenizer, max_length=9)
    monkeypatch.setattr("infoflow.corpus._encoded._BATCH", 16)
    for _ in range(2):  # written, then found
        mapped = corpus.encode(tokenizer, max_length=9)
        assert isinstance(mapped.flat_ids, np.memmap)
        assert mapped.num_truncated == in_memory.num_truncated
        for name in ("offsets", "flat_ids", "flat_words", "flat_spans", "flat_special", "sentence_ids"):
            np.testing.assert_array_equal(getattr(mapped, name), getattr(in_memory, name))
    assert len(list((cache / "encoded").iterdir())) == 1


def test_truncation_is_counted_and_keeps_the_special_tokens(corpus, tokenizer):
    full, cut = corpus.encode(tokenizer), corpus.encode(tokenizer, max_length=9)
    assert full.num_truncated == 0
    assert cut.num_truncated == (full.lengths > 9).sum() > 0
    assert cut.lengths.max() == 9
    assert all(cut.row(i)[-1] == tokenizer.sep_token_id for i in range(len(cut)))


@pytest.mark.parametrize("limit", [-1, 0, 2, 1.5, float("nan"), float("inf"), True, "many", [], {}])
def test_a_damaged_limit_of_the_tokenizer_is_told(corpus, limit):
    tokenizer = train_tokenizer(TEXTS, 70)
    tokenizer.model_max_length = limit
    with pytest.raises(
        UserError, match=r"model_max_length .* must be a whole number, at least 3\. Got .*\. Correct it"
    ):
        corpus.encode(tokenizer)
    tokenizer.model_max_length = 6.0
    assert corpus.encode(tokenizer).lengths.max() == 6


def test_the_tokenizers_own_limit_counts(corpus):
    limited = train_tokenizer(TEXTS, 70, max_length=6)
    encoded = corpus.encode(limited)
    assert encoded.max_length == encoded.lengths.max() == 6


def test_control_tokens_in_the_text_stay_text(write, tokenizer):
    encoded = Corpus.from_text(write("b.txt", "dog [SEP] dog")).encode(tokenizer)
    assert (encoded.row(0) == tokenizer.sep_token_id).sum() == 1


def test_translation_side_and_errors(corpus, tokenizer):
    grammar = generate_grammar(5)
    encoded = grammar.encode(tokenizer, side="translation")
    assert encoded.row(0).tolist() == tokenizer(grammar[0].translation)["input_ids"]
    with pytest.raises(UserError, match="no column translation"):
        corpus.encode(tokenizer, side="translation")
    with pytest.raises(UserError, match="at least 1"):
        corpus.encode(tokenizer, max_length=0)
    with pytest.raises(IndexError):
        encoded.row(5)


def test_given_words_keep_their_numbers(tokenizer):
    grammar = generate_grammar(30, seed=2)
    encoded = grammar.encode(tokenizer)
    for i, sentence in enumerate(grammar):
        expected = tokenizer(sentence.words, is_split_into_words=True)
        assert encoded.row(i).tolist() == expected["input_ids"]
        assert sorted(set(encoded.words(i).tolist())) == list(range(-1, len(sentence.words)))


def test_frequencies(corpus, tokenizer):
    encoded = corpus.encode(tokenizer)
    counts = token_frequencies(encoded, len(tokenizer))
    slow = np.zeros(len(tokenizer), dtype=np.int64)
    for text in TEXTS:
        for token in tokenizer(text, add_special_tokens=False)["input_ids"]:
            slow[token] += 1
    np.testing.assert_array_equal(counts, slow)


def test_slow_tokenizer_has_ids_but_no_words(corpus, tokenizer, monkeypatch):
    monkeypatch.setattr(type(tokenizer), "is_fast", property(lambda self: False))
    encoded = corpus.encode(tokenizer, max_length=9)
    assert encoded.row(0).tolist() == tokenizer(TEXTS[0], truncation=True, max_length=9)["input_ids"]
    assert encoded.special(0).tolist() == [True] + [False] * 7 + [True]
    assert encoded.num_truncated == sum(len(tokenizer(text)["input_ids"]) > 9 for text in TEXTS)
    with pytest.raises(UserError, match="Word ids need a fast tokenizer"):
        encoded.words(0)


def test_tokenizer_digest_ignores_how_it_was_last_called(tokenizer):
    before = tokenizer_digest(tokenizer)
    tokenizer("a b", truncation=True, max_length=3, padding="max_length")
    assert tokenizer_digest(tokenizer) == before
    assert tokenizer_digest(train_tokenizer(TEXTS, 70)) == before
    assert tokenizer_digest(train_tokenizer(TEXTS, 60)) != before


def bpe(pre_tokenizer=None, normalizer=None):
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator([*TEXTS, "a b a"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


LLAMA = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
KINDS = {
    "byte-level": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "byte-level with prefix": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "metaspace": lambda: bpe(pre_tokenizers.Metaspace()),
    "llama": lambda: bpe(normalizer=LLAMA),
    "gemma": lambda: bpe(normalizer=normalizers.Replace(" ", "▁")),
}
WORDS = ["the", "old", "dogs", "see", "houses"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer_finds_the_words_of_running_text(kind):
    text = " ".join(WORDS)
    (row,) = SubwordAligner(KINDS[kind](), 99).align([text])
    assert set(row.words) <= set(range(5))
    assert row.words == sorted(row.words)
    for word, (start, end) in zip(row.words, row.spans, strict=True):
        # White space alone belongs to the word before it.
        assert len(text[: start + 1].split()) - 1 == word
        assert not text[start:end].startswith(" ")


@pytest.mark.parametrize("kind", ["byte-level", "byte-level with prefix", "metaspace"])
def test_given_words_give_the_tokens_of_the_running_text(kind):
    tokenizer = KINDS[kind]()
    (row,) = SubwordAligner(tokenizer, 99).align([WORDS])
    assert row.ids == tokenizer(" ".join(WORDS))["input_ids"]
    pieces = [
        "".join(WORDS[w][a:b] for w, (a, b) in zip(row.words, row.spans, strict=True) if w == i) for i in range(5)
    ]
    assert pieces == WORDS
