from concurrent.futures import ThreadPoolExecutor

import pytest

from infoflow.corpus import _builtin as tatoeba
from infoflow.corpus import _package_index as index
from infoflow.corpus import describe_corpus, list_corpora, load_corpus
from infoflow.corpus._package_index import PipSettings
from infoflow.foundation import UserError

pytestmark = pytest.mark.slow


def test_fetched_once_with_its_attribution(archive, cache):
    assert not list_corpora()[0].ready
    corpus = tatoeba.load_tatoeba(archive)
    assert [(s.text, s.translation) for s in corpus] == [("Go.", "Va !"), ("Hi.", "Salut.")]
    assert corpus.name == "tatoeba-en-fr"
    files = {path.name for path in (cache / "tatoeba-en-fr").iterdir()}
    assert files == {"fra.txt", "_about.txt", "ATTRIBUTION.txt", "seal.json"}
    assert "Attribution: #2 (B)" in (cache / "tatoeba-en-fr" / "fra.txt").read_text()
    assert list_corpora()[0].ready
    offline = PipSettings(indexes=())
    assert tatoeba.load_tatoeba(offline).digest == load_corpus("tatoeba-en-fr").digest == corpus.digest


def test_an_archive_put_there_by_hand(archive, cache, tmp_path):
    (cache / "downloads").mkdir(parents=True)
    (tmp_path / "links" / "nmt-0.0.6.tar.gz").rename(cache / "downloads" / "nmt-0.0.6.tar.gz")
    assert len(tatoeba.load_tatoeba(PipSettings(indexes=()))) == 2


def test_three_first_downloads_at_once(archive, cache):
    with ThreadPoolExecutor(3) as pool:
        corpora = list(pool.map(tatoeba.load_tatoeba, [archive] * 3))
    assert [len(corpus) for corpus in corpora] == [2, 2, 2]
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_a_folder_of_an_earlier_version_needs_no_network(archive, cache):
    corpus = tatoeba.load_tatoeba(archive)
    (cache / "tatoeba-en-fr" / "seal.json").unlink()
    assert list_corpora()[0].ready
    assert tatoeba.load_tatoeba(PipSettings(indexes=())).digest == corpus.digest
    assert (cache / "tatoeba-en-fr" / "seal.json").exists()


def test_the_archive_of_a_killed_run_is_swept(archive, cache, tmp_path):
    tatoeba.load_tatoeba(archive)
    left = cache / "downloads" / "nmt-0.0.6.tar.gz"
    left.parent.mkdir()
    left.write_bytes((tmp_path / "links" / "nmt-0.0.6.tar.gz").read_bytes())
    tatoeba.load_tatoeba(PipSettings(indexes=()))
    assert not left.exists()


def test_offline_and_absent_names_grammar():
    with pytest.raises(UserError, match="built-in corpus `grammar`") as error:
        tatoeba.load_tatoeba(PipSettings(indexes=("http://127.0.0.1:9/simple",), timeout=2))
    assert "not in the cache" in str(error.value)


def test_a_damaged_archive_is_not_unpacked(archive, cache, tmp_path):
    path = tmp_path / "links" / "nmt-0.0.6.tar.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="not the expected"):
        tatoeba.load_tatoeba(archive)
    assert not (cache / "tatoeba-en-fr").exists()


@pytest.mark.network
def test_the_real_corpus():
    settings = pip_settings = index.pip_settings()
    opener = index._Opener(settings)
    reachable = False
    for page in index._pages("nmt", pip_settings):
        try:
            reachable |= any("nmt-0.0.6.tar.gz" in link for link in index._links(opener, page))
        except OSError:
            continue
    if not reachable:
        pytest.skip("the package index cannot be reached")
    corpus = tatoeba.load_tatoeba()
    assert len(corpus) == 178_009
    assert len(set(corpus.column("text"))) == 125_045
    assert describe_corpus(corpus).examples[0] == {"text": "Go.", "translation": "Va !"}
