import gzip

import pytest

from infoflow.corpus import Corpus
from infoflow.foundation import UserError


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_text_one_sentence_per_line(write, name):
    corpus = Corpus.from_text(write(name, "Ein Satz.\n\n  Zwei Sätze. \r\nDrei\u2028Sätze"))
    assert [sentence.text for sentence in corpus] == ["Ein Satz.", "Zwei Sätze.", "Drei\u2028Sätze"]
    assert corpus.ids.tolist() == [0, 1, 2]
    assert corpus.columns == {"text"}
    assert corpus.name == "a.txt"


def test_byte_order_mark_is_no_text(write):
    assert Corpus.from_text(write("a.txt", b"\xef\xbb\xbfHallo\n"))[0].text == "Hallo"


def test_digest_is_of_the_content(write):
    plain, zipped = write("a.txt", "x\ny\n"), write("b.txt.gz", "x\n\ny")
    assert Corpus.from_text(plain).digest == Corpus.from_text(zipped).digest
    assert Corpus.from_text(plain).digest != Corpus.from_text(write("c.txt", "y\nx\n")).digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\ncaf\xe9\n", r"a\.txt, line 2: not UTF-8 \(byte 0xe9 at position 3\)"),
        ("wide".encode("utf-16"), r"a\.txt, line 1: holds a zero byte"),
        (b"", "has no sentence"),
        (b"\n \n\n", r"has no sentence \(3 lines without one\)"),
        (gzip.compress(b"text\n" * 999, mtime=0)[:-9], "damaged gzip"),
    ],
)
def test_bad_text_files(write, content, message):
    with pytest.raises(UserError, match=message):
        Corpus.from_text(write("a.txt", content))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(UserError, match="No corpus file"):
        Corpus.from_text(tmp_path / "absent.txt")
    with pytest.raises(UserError, match="is a folder"):
        Corpus.from_text(tmp_path)


def test_two_aligned_files(write):
    corpus = Corpus.from_parallel(write("t.en", "a\nb\n\nd\n"), write("t.de.gz", "A\n\nC\nD\n"))
    assert [(sentence.text, sentence.translation) for sentence in corpus] == [("a", "A"), ("d", "D")]
    assert corpus.name == "t.en-t.de"


@pytest.mark.parametrize(("lines", "others"), [(5, 2), (2, 5)])
def test_uneven_files(write, lines, others):
    files = write("t.en", "x\n" * lines), write("t.de", "y\n" * others)
    with pytest.raises(UserError, match=r"has 5, .* only 2"):
        Corpus.from_parallel(*files)


def test_table_of_two_columns(write):
    path = write("pairs.tsv.gz", "Go.\tVa !\tsource 1\n\nHi.\tSalut.\tsource 2\n")
    assert [s.translation for s in Corpus.from_parallel(path)] == ["Va !", "Salut."]
    assert [s.text for s in Corpus.from_parallel(path, columns=(2, 1))] == ["Va !", "Salut."]


def test_table_with_a_short_line(write):
    with pytest.raises(UserError, match=r"pairs\.tsv, line 2: 2 tab-separated columns are needed. Got 1"):
        Corpus.from_parallel(write("pairs.tsv", "a\tb\nlonely\n"))
