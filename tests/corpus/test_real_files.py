"""Real treebanks and parallel corpora, where this checkout has them beside it."""

from pathlib import Path

import numpy as np
import pytest

from infoflow.corpus import Corpus, leakage, load_corpus, sentences_of, windows

DATA = Path(__file__).parents[3] / "shared" / "data"


def real(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not part of the repository")
    return path


@pytest.mark.parametrize(
    ("name", "sentences"), [("en_ewt-ud-dev", 2001), ("en_ewt-ud-test", 2077), ("de_gsd-ud-test", 977)]
)
def test_treebanks(name, sentences):
    corpus = Corpus.from_conllu(real(f"ud/{name}.conllu.gz"))
    assert len(corpus) == sentences
    for sentence in corpus:
        assert len(sentence.words) == len(sentence.head) == len(sentence.deprel) == len(sentence.upos)
        assert sentence.head.count(-1) == 1


def test_multi30k():
    corpus = Corpus.from_parallel(real("multi30k/val.en.gz"), real("multi30k/val.de.gz"))
    assert len(corpus) == 1014
    assert corpus[0].translation.startswith("Eine Gruppe von Männern")


@pytest.mark.parametrize(
    ("name", "documents", "words"), [("books/dev", 65, 220_450), ("acl-abstracts/dev", 500, 74_759)]
)
def test_running_text(name, documents, words):
    corpus = load_corpus(real(f"{name}.txt.gz"), documents=True, lines="paragraphs")
    assert len(np.unique(corpus.documents)) == documents
    assert corpus.word_counts.sum() == words
    assert 18 < corpus.word_counts.mean() < 23
    split = corpus.split(validation=0.1, test=0.1)
    assert split.rule == "near-duplicates"
    assert leakage(split.test, split.train).near_sources < 0.05
    pieces = windows(corpus.word_counts, corpus.stretches, 100)
    assert words / 100 < len(pieces) < 2 * words / 100


def test_documents_of_a_treebank():
    corpus = load_corpus(real("gum/dev.conllu.gz"), documents=True)
    assert len(np.unique(corpus.documents)) == 30


@pytest.mark.parametrize(("name", "least"), [("gum/dev", 0.93), ("ud/en_ewt-ud-test", 0.8)])
def test_sentence_ends_of_treebanks_are_found(name, least):
    """Those that a mark ends; headings end without one, and on the web the next sentence may begin in lower case."""
    corpus = load_corpus(real(f"{name}.conllu.gz"), documents=True)
    texts, right, found_ends, marked_ends = [*corpus.column("text")], 0, 0, 0
    for number in np.unique(corpus.documents):
        said = [texts[row] for row in np.flatnonzero(corpus.documents == number)]
        gold, found = (
            np.cumsum([len("".join(each.split())) for each in parts])[:-1]
            for parts in (said, sentences_of(" ".join(said)))
        )
        marked = gold[[each.rstrip("\"'”’)")[-1:] in set(".!?…") for each in said[:-1]]]
        right += len(np.intersect1d(gold, found))
        found_ends, marked_ends = found_ends + len(found), marked_ends + len(marked)
    assert right / found_ends > 0.97
    assert right / marked_ends > least
