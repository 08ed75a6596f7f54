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
        assert isinstance(mapped.flat_ids.base, np.memmap)
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


TREEBANK = """\
# text = She said: "Don't go."
1\tShe\t_\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tsaid\t_\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
3\t:\t_\tPUNCT\t_\t_\t2\tpunct\t_\t_
4\t"\t_\tPUNCT\t_\t_\t2\tpunct\t_\tSpaceAfter=No
5-6\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
5\tDo\t_\tAUX\t_\t_\t7\taux\t_\t_
6\tn't\t_\tPART\t_\t_\t7\tadvmod\t_\t_
7\tgo\t_\tVERB\t_\t_\t2\tccomp\t_\tSpaceAfter=No
7.1\tnow\t_\tADV\t_\t_\t_\t_\t7:advmod\t_
8\t.\t_\tPUNCT\t_\t_\t2\tpunct\t_\tSpaceAfter=No
9\t"\t_\tPUNCT\t_\t_\t2\tpunct\t_\t_

# text = im Haus
1-2\tim\t_\t_\t_\t_\t_\t_\t_\t_
1\tin\t_\tADP\t_\t_\t3\tcase\t_\t_
2\tdem\t_\tDET\t_\t_\t3\tdet\t_\t_
3\tHaus\t_\tNOUN\t_\t_\t0\troot\t_\t_

# text = another text
1\t我\t_\tPRON\t_\t_\t2\tnsubj\t_\tSpaceAfter=No
2\t去\t_\tVERB\t_\t_\t0\troot\t_\tSpacesAfter=\\s

1\t我\t_\tPRON\t_\t_\t2\tnsubj\t_\t_
2\t去\t_\tVERB\t_\t_\t0\troot\t_\t_

"""
RUNNING = ['She said: "Don\'t go."', "im Haus", "我去", "我去"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_treebank_has_the_tokens_of_its_running_text(kind, write):
    tokenizer = KINDS[kind]()
    corpus = Corpus.from_conllu(write("a.conllu", TREEBANK))
    encoded = corpus.encode(tokenizer)
    assert [sentence.text for sentence in corpus] == RUNNING
    for row, (text, sentence) in enumerate(zip(RUNNING, corpus, strict=True)):
        assert encoded.row(row).tolist() == tokenizer(text)["input_ids"]
        assert sentence.word_starts is not None
        for word, (start, _) in zip(encoded.words(row), encoded.spans(row), strict=True):
            # A token belongs to the word in which its first visible character stands.
            assert sentence.word_starts[word] <= start < [*sentence.word_starts, len(text)][word + 1]
    assert corpus[1].word_starts == [0, 1, 3]  # im: i of in, m of dem


def test_a_token_that_spans_two_words_belongs_to_the_first(write):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "我去": 1, "Don": 2, "'": 3, "t": 4}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    assert SubwordAligner(fast, 99).align(["我去"], [[0, 1]])[0].words == [0]
    assert SubwordAligner(fast, 99).align(["Don't"], [[0, 2]])[0].words == [0, 1, 1]


def test_tagged_words_are_joined_as_their_script_writes_them(write):
    corpus = Corpus.from_tagged(
        write("a.tagged", "two\tX\ncats\tX\n\n我\tX\n用\tX\nPython\tX\n。\tX\n\nฉัน\tX\nไป\tX\n")
    )
    assert list(corpus.column("text")) == ["two cats", "我用Python。", "ฉันไป"]
    assert corpus[1].word_starts == [0, 1, 2, 8]


def test_words_keep_their_places_when_a_corpus_is_labelled_joined_or_changed(write):
    corpus = Corpus.from_conllu(write("a.conllu", TREEBANK))
    places = [sentence.word_starts for sentence in corpus]
    labelled = corpus.with_labels(["a", "b", "a", "b"])
    assert [sentence.word_starts for sentence in labelled] == places
    assert [sentence.word_starts for sentence in corpus.with_test(corpus)] == places * 2
    moved = corpus.with_column("words", [["x", "y"]] * 4)[0]
    assert (moved.text, moved.word_starts) == ("x y", [0, 2])


@pytest.mark.parametrize("kind", ["byte-level", "byte-level with prefix", "metaspace"])
def test_given_words_give_the_tokens_of_the_running_text(kind):
    tokenizer = KINDS[kind]()
    (row,) = SubwordAligner(tokenizer, 99).align([WORDS])
    assert row.ids == tokenizer(" ".join(WORDS))["input_ids"]
    text = " ".join(WORDS)
    pieces = ["".join(text[a:b] for w, (a, b) in zip(row.words, row.spans, strict=True) if w == i) for i in range(5)]
    assert pieces == WORDS


def test_words_of_other_scripts_are_neither_glued_nor_broken():
    texts = ["我今天去 Google 工作。", "मैं आज दिल्ली जाता हूँ।", "ฉันชอบแมว"] * 3
    for pre_tokenizer in (pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Metaspace()):
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizer
        trainer = trainers.BpeTrainer(
            vocab_size=256 if isinstance(pre_tokenizer, pre_tokenizers.ByteLevel) else 60,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            limit_alphabet=400,
        )
        backend.train_from_iterator(texts, trainer)
        rows = SubwordAligner(PreTrainedTokenizerFast(tokenizer_object=backend), 200).align(texts[:3])
        for row, text, least, most in zip(rows, texts, (7, 5, 8), (8, 6, 8), strict=False):
            starts = {
                word: min(span[0] for at, span in zip(row.words, row.spans, strict=True) if at == word)
                for word in row.words
            }
            assert least <= len(starts) <= most, text
            assert list(starts.values()) == sorted(starts.values())
