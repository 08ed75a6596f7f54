from concurrent.futures import ThreadPoolExecutor

import pytest

from infoflow.corpus import describe_corpus, list_corpora, load_corpus
from infoflow.foundation import UserError

pytestmark = pytest.mark.slow

NAME = "tatoeba-en-fr"


def test_fetched_once_with_its_attribution(archive, cache):
    assert not list_corpora()[0].ready
    corpus = load_corpus(NAME)
    assert [(s.text, s.translation) for s in corpus] == [("Go.", "Va !"), ("Hi.", "Salut.")]
    assert corpus.name == NAME
    files = {path.name for path in (cache / NAME).iterdir()}
    assert files == {"fra.txt", "_about.txt", "ATTRIBUTION.txt", "seal.json"}
    assert "Attribution: #2 (B)" in (cache / NAME / "fra.txt").read_text()
    assert list_corpora()[0].ready
    archive.unlink()
    assert load_corpus(NAME).digest == corpus.digest


def test_an_archive_put_there_by_hand(archive, cache):
    (cache / "downloads").mkdir(parents=True)
    archive.rename(cache / "downloads" / archive.name)
    assert len(load_corpus(NAME)) == 2


def test_three_first_downloads_at_once(archive, cache):
    with ThreadPoolExecutor(3) as pool:
        corpora = list(pool.map(load_corpus, [NAME] * 3))
    assert [len(corpus) for corpus in corpora] == [2, 2, 2]
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_a_folder_of_an_earlier_version_needs_no_network(archive, cache):
    corpus = load_corpus(NAME)
    (cache / NAME / "seal.json").unlink()
    archive.unlink()
    assert list_corpora()[0].ready
    assert load_corpus(NAME).digest == corpus.digest
    assert (cache / NAME / "seal.json").exists()


def test_the_archive_of_a_killed_run_is_swept(archive, cache):
    load_corpus(NAME)
    left = cache / "downloads" / archive.name
    left.parent.mkdir()
    archive.rename(left)
    load_corpus(NAME)
    assert not left.exists()


def test_offline_and_absent_names_grammar(offline):
    with pytest.raises(UserError, match="built-in corpus `grammar`") as error:
        load_corpus(NAME)
    assert "not in the cache" in str(error.value)


def test_a_damaged_archive_is_not_unpacked(archive, cache):
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="not the expected"):
        load_corpus(NAME)
    assert not (cache / NAME).exists()


@pytest.mark.network
def test_the_real_corpus():
    try:
        corpus = load_corpus(NAME)
    except UserError as error:
        if "not the expected" in str(error):
            raise
        pytest.skip(str(error))
    assert len(corpus) == 178_009
    assert len(set(corpus.column("text"))) == 125_045
    assert describe_corpus(corpus).examples[0] == {"text": "Go.", "translation": "Va !"}
