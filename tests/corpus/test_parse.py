"""Parsing with spaCy, which need not be installed: a pipeline of the same interface stands in."""

import sys
from types import SimpleNamespace

import pytest
from datasets import Dataset

from infoflow.corpus import Corpus, parse_corpus
from infoflow.foundation import UserError


class Token:
    def __init__(self, i, text, head, dep):
        self.i, self.text, self.pos_, self.dep_ = i, text, "X" if text.strip() else "SPACE", dep
        self.is_space, self.head = not text.strip(), SimpleNamespace(i=head)


class Document(list):
    def __init__(self, text):
        self.text = text
        words = text.replace("  ", " \u2003 ").split(" ")
        words = [" " if word == "\u2003" else word for word in words]
        # Each word hangs on the next one; the last is the root.
        super().__init__(
            Token(i, word, min(i + 1, len(words) - 1), "ROOT" if i == len(words) - 1 else "dep")
            for i, word in enumerate(words)
        )


class Pipeline:
    meta = {"name": "stand-in", "version": "1"}  # noqa: RUF012
    pipe_names = ("tagger", "parser")

    def pipe(self, pairs, as_tuples, batch_size):
        assert as_tuples
        return ((Document(text), context) for text, context in pairs)


@pytest.fixture
def spacy(monkeypatch):
    module = SimpleNamespace(
        __version__="0",
        Language=Pipeline,  # the `datasets` library looks at it where spaCy is loaded
        load=lambda name, exclude: Pipeline(),
    )
    monkeypatch.setitem(sys.modules, "spacy", module)
    monkeypatch.setattr("infoflow.corpus._parse.find_spec", lambda name: object())
    return module


def test_white_space_is_no_word_and_heads_are_counted_without_it(spacy):
    corpus = Corpus.from_dataset(Dataset.from_dict({"text": ["the dog sleeps", "a  b c"]}))
    parsed = parse_corpus(corpus)
    first, second = parsed
    assert (first.words, first.head, first.deprel) == (["the", "dog", "sleeps"], [1, 2, -1], ["dep", "dep", "root"])
    assert second.words == ["a", "b", "c"]
    assert second.head == [-1, 2, -1]  # `a` hung on the white space
    assert parsed.name == corpus.name


def test_translations_stay(spacy, parallel_corpus):
    parsed = parse_corpus(parallel_corpus)
    assert [s.translation for s in parsed] == [s.translation for s in parallel_corpus]
    assert "translation" in parsed.columns


def test_what_is_missing_is_named(spacy, monkeypatch, parallel_corpus):
    def load(name, exclude):
        raise OSError("[E050]")

    spacy.load = load
    with pytest.raises(UserError, match=r'spaCy finds no pipeline "xx"'):
        parse_corpus(parallel_corpus, "xx")
    spacy.load = lambda name, exclude: SimpleNamespace(pipe_names=("tagger",))
    with pytest.raises(UserError, match="has no parser"):
        parse_corpus(parallel_corpus)
    monkeypatch.setattr("infoflow.corpus._parse.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"Install it: .*pip install .*spacy"):
        parse_corpus(parallel_corpus)
