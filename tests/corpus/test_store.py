import errno
import json

import pytest

from infoflow.corpus import Corpus, cache_folder
from infoflow.foundation import UserError


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("INFOFLOW_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("INFOFLOW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "infoflow"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "infoflow"


def lines(count):
    return "".join(f"sentence {i}\n" for i in range(count))


@pytest.mark.parametrize("count", [3, 4, 5, 8, 13])
def test_cached_and_in_memory_corpora_are_alike(write, cache, small_batches, count):
    path = write("a.txt", lines(count))
    corpus = Corpus.from_text(path)
    assert [s.text for s in corpus] == lines(count).splitlines()
    assert len(corpus) == count
    assert (cache / "corpora").exists() == (count >= 4)
    assert Corpus.from_text(path).digest == corpus.digest


def test_second_use_makes_no_rows_of_the_file(write, small_batches, monkeypatch):
    path = write("a.txt", lines(9))
    first = Corpus.from_text(path)
    monkeypatch.setattr("pyarrow.record_batch", lambda *_, **__: pytest.fail("rows were made again"))
    assert [s.text for s in Corpus.from_text(path)] == [s.text for s in first]


def test_changed_file_is_another_corpus(write, small_batches):
    first = Corpus.from_text(write("a.txt", lines(9)))
    second = Corpus.from_text(write("a.txt", lines(10)))
    assert (len(first), len(second)) == (9, 10)


def test_an_error_in_the_middle_leaves_nothing(write, cache, small_batches):
    with pytest.raises(UserError, match="line 301"):  # behind the rows that are inspected first
        Corpus.from_text(write("a.txt", lines(300).encode() + b"\xff\n"))
    assert list((cache / "corpora").iterdir()) == []


def test_full_disk_is_one_message(write, cache, small_batches, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.ipc.new_stream", full)
    with pytest.raises(UserError, match="disk is full"):
        Corpus.from_text(write("a.txt", lines(9)))
    assert list((cache / "corpora").iterdir()) == []


def test_dropped_lines_are_remembered(write, cache, small_batches):
    Corpus.from_text(write("a.txt", lines(5) + "\n\n"))
    (facts,) = (cache / "corpora").glob("*/corpus.json")
    assert json.loads(facts.read_text())["dropped"] == 2


@pytest.mark.parametrize("rows", [[0], [3, 4, 5], [0, 1, 2, 3], [5, 4, 3], [1, 3, 4], [2, 2, 3], [4, 6], [0, 2, 1, 3]])
def test_rows_that_follow_each_other_are_read_as_those_that_do_not(write, rows):
    corpus = Corpus.from_text(write("lines.txt", "".join(f"sentence {number}\n" for number in range(7))))
    assert list(corpus.select(rows).column("text")) == [f"sentence {row}" for row in rows]
    assert [sentence.id for sentence in corpus.select(rows)] == rows
