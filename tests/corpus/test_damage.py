"""Every file of every cache, every kind of damage: the result is that of the undamaged cache, and one note says so."""

import errno
import io
import json
import os
import shutil
import sys
import time

import numpy as np
import pytest
from datasets import IterableDataset

from infoflow.corpus import Corpus, load_corpus, train_tokenizer
from infoflow.foundation import UserError, disagreement, kept, locked, make_display, seal, use_display

TEXT = "".join(f"the number {i} is a word of sentence {i}\n" for i in range(9))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lengthened(path):
    path.write_bytes(path.read_bytes() + b"x")


def removed(path):
    path.unlink()


def a_folder(path):
    path.unlink()
    path.mkdir()


def a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def a_lost_link(path):
    path.unlink()
    path.symlink_to("nowhere")


def all_gone(path):
    shutil.rmtree(path.parent)


def a_file_for_the_folder(path):
    shutil.rmtree(path.parent)
    path.parent.write_text("?")


DAMAGES = [cut, emptied, zeroed, flipped, lengthened, removed, a_folder, a_pipe, a_lost_link, a_file_for_the_folder]


def every_damage(first, *others):
    """Of the first file every kind; of the others that it was changed or is gone."""
    return [
        *((damage, first) for damage in DAMAGES),
        *((damage, name) for damage in (flipped, removed) for name in others),
    ]


@pytest.fixture
def told():
    """What a plain display told."""
    file = io.StringIO()
    with use_display(make_display("plain")) as display:
        display._file = file  # type: ignore[attr-defined]
        yield lambda: [line for line in file.getvalue().splitlines() if "is recreated" in line]


def sentences(corpus):
    return corpus.digest, [(sentence.text, sentence.translation) for sentence in corpus]


@pytest.mark.parametrize(("damage", "name"), every_damage("data.arrow", "corpus.json", "seal.json"))
def test_a_damaged_corpus_is_read_again(write, cache, small_batches, told, damage, name):
    path = write("a.txt", TEXT)
    expected = sentences(Corpus.from_text(path))
    (folder,) = (cache / "corpora").iterdir()
    damage(folder / name)
    assert sentences(Corpus.from_text(path)) == expected
    assert len(told()) == 1
    assert disagreement(folder) is None
    assert sentences(Corpus.from_text(path)) == expected
    assert len(told()) == 1


@pytest.fixture
def encoded(write, small_batches, monkeypatch):
    monkeypatch.setattr("infoflow.corpus._encoded._BATCH", 4)
    corpus = Corpus.from_text(write("a.txt", TEXT))
    tokenizer = train_tokenizer(corpus.column("text"), 60, min_frequency=1)

    def encoded():
        result = corpus.encode(tokenizer, max_length=6)
        arrays = (result.offsets, result.flat_ids, result.flat_words, result.flat_spans, result.flat_special)
        return [np.array(array) for array in arrays], result.num_truncated

    return encoded


@pytest.mark.parametrize(
    ("damage", "name"),
    every_damage("ids.bin", "encoded.json", *(f"{a}.bin" for a in ("lengths", "special", "spans", "words"))),
)
def test_damaged_token_ids_are_encoded_again(encoded, cache, told, damage, name):
    arrays, truncated = encoded()
    (folder,) = (cache / "encoded").iterdir()
    damage(folder / name)
    again, cut_again = encoded()
    assert cut_again == truncated > 0
    assert all(np.array_equal(one, other) for one, other in zip(arrays, again, strict=True))
    assert len(told()) == 1
    assert disagreement(folder) is None


@pytest.mark.parametrize(("damage", "name"), every_damage("fra.txt", "ATTRIBUTION.txt", "seal.json"))
def test_a_damaged_copy_is_unpacked_again(two_pairs, cache, told, damage, name):
    expected = sentences(load_corpus("tatoeba-en-fr"))
    damage(cache / "tatoeba-en-fr" / name)
    assert sentences(load_corpus("tatoeba-en-fr")) == expected
    assert len(told()) == 1
    assert disagreement(cache / "tatoeba-en-fr") is None


def test_a_folder_that_is_gone_is_no_damage(write, cache, small_batches, told):
    path = write("a.txt", TEXT)
    expected = sentences(Corpus.from_text(path))
    shutil.rmtree(cache)
    assert sentences(Corpus.from_text(path)) == expected
    assert told() == []


def test_a_corpus_without_a_key_replaces_a_damaged_copy(small_batches, cache, told):
    dataset = IterableDataset.from_generator(lambda: ({"text": line} for line in TEXT.splitlines()))
    expected = sentences(Corpus.from_dataset(dataset))
    (folder,) = (cache / "corpora").iterdir()
    flipped(folder / "data.arrow")
    assert sentences(Corpus.from_dataset(dataset)) == expected
    assert len(told()) == 1
    assert [path.name for path in (cache / "corpora").iterdir()] == [folder.name]


def test_a_file_is_read_once_by_a_process_that_asks_twice(tmp_path, monkeypatch):
    folder = kept(tmp_path / "x", lambda folder: (folder / "a").write_text("a"), "x")
    monkeypatch.setattr("infoflow.foundation._folders._agreed", {})  # as in a new process
    read = []
    with monkeypatch.context() as damaged:
        damaged.setattr("infoflow.foundation._folders._checksum", lambda path: read.append(path) or "")
        assert "checksum" in str(disagreement(folder))
    assert len(read) == 1
    assert disagreement(folder) is None
    monkeypatch.setattr("infoflow.foundation._folders._checksum", lambda path: read.append(path) or "")
    assert disagreement(folder) is None
    assert len(read) == 1


def test_a_seal_of_nonsense_is_none(tmp_path):
    folder = kept(tmp_path / "x", lambda folder: (folder / "a").write_text("a"), "x")
    for text in (
        "[" * 100_000,
        "[]",
        '{"files": []}',
        '{"files": {"a": 3}, "checksum": ""}',
        "\udcff",
        "9" * 5000,
        "{",
    ):
        (folder / "seal.json").write_text(text, errors="surrogateescape")
        assert disagreement(folder) == "seal.json is missing or damaged"


def test_partials_of_killed_processes_are_swept(encoded, cache):
    encoded()
    (mine,) = (cache / "encoded").iterdir()
    shutil.rmtree(mine)
    old, young, own = (cache / "encoded" / f".{name}.partial" for name in ("a.1", "b.2", f"{mine.name}.3"))
    for folder in (old, young, own):
        folder.mkdir(parents=True)
        (folder / "ids.bin").write_text("x")
    elsewhere = cache / "corpora" / ".c.4.partial"
    elsewhere.write_text("x")
    yesterday = time.time() - 25 * 3600
    for path in (old / "ids.bin", old, young, elsewhere):
        os.utime(path, (yesterday, yesterday))
    encoded()
    assert {path.name for path in (cache / "encoded").iterdir()} == {".b.2.partial", mine.name}
    assert not elsewhere.exists()


def test_a_kept_folder_s_lock_goes_with_it(tmp_path):
    with locked(tmp_path / "x") as alone:
        assert alone == (sys.platform != "win32")
        assert (tmp_path / ".x.lock").exists()
    assert list(tmp_path.iterdir()) == []


def test_without_locks_work_goes_on(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    folder = kept(tmp_path / "x", lambda folder: (folder / "a").write_text("a"), "x")
    assert (folder / "a").read_text() == "a"


def test_a_cache_that_cannot_be_written_names_the_variable(write, tmp_path, small_batches, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFOFLOW_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="Set INFOFLOW_CACHE to a writable folder"):
        Corpus.from_text(write("a.txt", TEXT))
    monkeypatch.setenv("INFOFLOW_CACHE", "~no-such-user-here/x")
    with pytest.raises(UserError, match="Set INFOFLOW_CACHE to a writable folder"):
        Corpus.from_text(write("a.txt", TEXT))


def test_the_seal_names_every_file(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b").write_text("b")
    seal(tmp_path)
    assert list(json.loads((tmp_path / "seal.json").read_text())["files"]) == ["deep/b"]
    assert disagreement(tmp_path) is None
