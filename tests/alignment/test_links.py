"""Which words are counterparts."""

import gzip

import numpy as np
import pytest

from infoflow.alignment import IdentityLinks, PharaohLinks, ShuffledLinks
from infoflow.corpus import Corpus
from infoflow.foundation import UserError, make_display, use_display


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("the cat sees\tle chat voit\na dog\tun chien\nit runs\til court vite\n")
    return Corpus.from_parallel(path)


def write(tmp_path, text):
    path = tmp_path / "links.txt"
    path.write_text(text)
    return path


def test_identity():
    assert IdentityLinks().of(7, 3, 3).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert IdentityLinks().of(7, 3, 2).tolist() == [[0, 0], [1, 1]]  # one side was cut
    assert IdentityLinks().of(7, 0, 0).shape == (0, 2)
    assert IdentityLinks().partners(4).tolist() == [0, 1, 2, 3]


def test_a_file_is_read_by_sentence(corpus, tmp_path):
    links = PharaohLinks.read(write(tmp_path, "0-0 1-1 2-2\n\n1-1 0-0\n"), corpus)
    assert links.of(0, 3, 3).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert links.of(1, 2, 2).tolist() == []
    assert links.of(2, 2, 3).tolist() == [[0, 0], [1, 1]]
    assert links.of(0, 3, 2).tolist() == [[0, 0], [1, 1]]  # word 2 was cut off


def test_a_part_of_the_corpus_keeps_its_links(corpus, tmp_path):
    links = PharaohLinks.read(write(tmp_path, "0-0\n1-1\n1-2\n"), corpus)
    part = corpus.select([2])
    assert links.of(int(part.ids[0]), 2, 3).tolist() == [[1, 2]]
    with pytest.raises(UserError, match="sentence 9"):
        links.of(9, 2, 3)


def test_only_one_to_one_links_are_kept(corpus, tmp_path, capsys):
    """0 has two partners, and so has target word 2; doubled links count once."""
    with use_display(make_display("plain")):
        links = PharaohLinks.read(write(tmp_path, "0-0 0-1 1-2 2-2\n0-1 0-1 1-0\n\n"), corpus)
    assert links.of(0, 3, 3).tolist() == []
    assert links.of(1, 2, 2).tolist() == [[0, 1], [1, 0]]
    assert "4 links" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n", "one line for each of the 3 sentences.*Got 1 lines"),
        ("0-0\n0:0\n\n", "line 2.*Got 0:0"),
        ("0-0\n0--1\n\n", "line 2.*Got 0--1"),
        ("3-0\n\n\n", "line 1: the text has 3 words.*Got word 3"),
        ("\n\n1-3\n", "line 3: the translation has 3 words.*Got word 3"),
    ],
)
def test_mistakes_in_a_file_are_named(corpus, tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        PharaohLinks.read(write(tmp_path, text), corpus)


def test_a_file_that_is_no_text(corpus, tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        PharaohLinks.read(tmp_path / "absent", corpus)
    path = tmp_path / "links.gz"
    path.write_bytes(gzip.compress(b"0-0\n"))
    with pytest.raises(UserError, match="UTF-8"):
        PharaohLinks.read(path, corpus)


def test_links_need_translations(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat\n")
    with pytest.raises(UserError, match="translation"):
        PharaohLinks.read(write(tmp_path, "0-0\n"), Corpus.from_text(path))


@pytest.mark.parametrize("num", [2, 3, 50])
def test_shuffled_links_leave_their_sentence(num):
    partners = ShuffledLinks(seed=1).partners(num)
    assert sorted(partners) == list(range(num))
    assert (partners != np.arange(num)).all()


def test_shuffled_links_are_one_to_one_and_fixed():
    links = ShuffledLinks(seed=1)
    pairs = links.of(5, 6, 4)
    assert pairs.shape == (4, 2)
    assert len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == 4
    assert (pairs[:, 0] < 6).all()
    assert links.of(5, 6, 4).tolist() == pairs.tolist()
    orders = {str(links.of(sentence, 6, 6)[:, 1].tolist()) for sentence in range(20)}
    assert len(orders) > 15  # no word order to learn


def test_one_sentence_cannot_be_shuffled():
    with pytest.raises(UserError, match="Got 1"):
        ShuffledLinks().partners(1)


def test_keys_tell_links_apart(corpus, tmp_path):
    first = PharaohLinks.read(write(tmp_path, "0-0\n\n\n"), corpus)
    second = PharaohLinks.read(write(tmp_path, "0-1\n\n\n"), corpus)
    again = PharaohLinks.read(write(tmp_path, "0-0\n\n\n"), corpus)
    keys = [IdentityLinks().key, ShuffledLinks(seed=0).key, ShuffledLinks(seed=1).key, first.key, second.key]
    assert len(set(keys)) == 5
    assert again.key == first.key
