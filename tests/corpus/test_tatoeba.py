from concurrent.futures import ThreadPoolExecutor

import pytest

from infoflow.corpus import describe_corpus, load_corpus

pytestmark = pytest.mark.slow

NAME = "tatoeba-en-fr"


def test_unpacked_with_its_attribution(two_pairs, cache):
    corpus = load_corpus(NAME)
    assert [(s.text, s.translation) for s in corpus] == [("Go.", "Va !"), ("Hi.", "Salut.")]
    assert corpus.name == NAME
    assert {path.name for path in (cache / NAME).iterdir()} == {"fra.txt", "ATTRIBUTION.txt", "seal.json"}
    assert "Attribution: #2 (B)" in (cache / NAME / "fra.txt").read_text()
    assert load_corpus(NAME).digest == corpus.digest


def test_three_at_once(two_pairs, cache):
    with ThreadPoolExecutor(3) as pool:
        corpora = list(pool.map(load_corpus, [NAME] * 3))
    assert [len(corpus) for corpus in corpora] == [2, 2, 2]
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_the_real_corpus():
    corpus = load_corpus(NAME)
    assert len(corpus) == 178_009
    assert corpus.digest == "5c2ca48f99ea61e3"  # of earlier versions, which fetched it: their studies go on
    assert len(set(corpus.column("text"))) == 125_045
    assert describe_corpus(corpus).examples[0] == {"text": "Go.", "translation": "Va !"}
