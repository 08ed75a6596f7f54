"""Real treebanks and parallel corpora, where this checkout has them beside it."""

from pathlib import Path

import pytest

from infoflow.corpus import Corpus

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
