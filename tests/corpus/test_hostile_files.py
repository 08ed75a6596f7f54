"""What is no corpus: pipes, devices, lines and sentences without end, names that no file can have."""

import gzip
import os
import resource
import socket
import sys
import time

import pytest

from infoflow.corpus import Corpus, load_corpus, read_lines
from infoflow.foundation import UserError, file_digest

LONGEST_LINE = 1_048_576  # bytes


def pipe(path):
    os.mkfifo(path)


def bound_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.csv", "a.conllu", "a.tagged", "a.json", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("make", [pipe, bound_socket, os.mkdir])
def test_what_is_no_file_is_told_at_once(tmp_path, monkeypatch, name, make):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    make(name)
    columns = {} if name in ("a.txt", "a.tsv", "a.conllu", "a.tagged") else {"text_column": "text"}
    with pytest.raises(UserError, match=r"but a.* is a (pipe|socket|folder)"):
        load_corpus(name, **columns)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/null", "/dev/tty"])
def test_devices(device):
    with pytest.raises(UserError, match=r"is a device|cannot be read"):
        load_corpus(device)
    with pytest.raises(UserError, match=r"is a device|cannot be read"):
        load_corpus(f"{device},{device}")


@pytest.mark.parametrize("zipped", [False, True])
def test_a_line_without_end_costs_no_memory(tmp_path, zipped):
    path = tmp_path / "endless.txt"
    with gzip.open(path, "wb", compresslevel=1) if zipped else path.open("wb") as file:
        for _ in range(400):
            file.write(b"x" * 1_000_000)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(UserError, match="line 1: a line may have 1,048,576 bytes at most"):
        load_corpus(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000 * (
        1 if sys.platform == "linux" else 1024
    )
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_the_longest_line_is_read(write, end):
    ((_, line),) = read_lines(write("a.txt", "x" * LONGEST_LINE + end))
    assert len(line) == LONGEST_LINE
    with pytest.raises(UserError, match=f"a line may have {LONGEST_LINE:,} bytes"):
        list(read_lines(write("a.txt", "x" * (LONGEST_LINE + 1) + end)))


@pytest.mark.parametrize(
    ("name", "line"), [("a.conllu", "{0}\tx\tx\tX\t_\t_\t0\troot\t_\t_\n"), ("a.tagged", "x\tX\ny\tX\n")]
)
def test_a_sentence_without_end(tmp_path, name, line):
    path = tmp_path / name
    path.write_text("".join(line.format(number) for number in range(1, 100_003)))
    with pytest.raises(UserError, match="line 1: a sentence may have 100,000 lines"):
        load_corpus(path)


@pytest.mark.parametrize(
    "name",
    [
        "x" * 300,
        "x" * 300 + ".csv",
        "x" * 5000,
        "a/" * 3000,
        "x" * 300 + "," + "y" * 300,
        "a\x00b",
        "a\ud800b",
        "~\x1b[31m",
    ],
)
def test_names_that_no_file_has(name):
    with pytest.raises(UserError) as error:
        load_corpus(name)
    assert len(str(error.value)) < 1000
    assert "\x1b" not in str(error.value)
    assert "\x00" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["hf:", "hf: ", "hf::train", "hf::", "hf:.", "hf:../x", "hf:a/b/c", f"hf:{'x' * 5000}"]
)
def test_the_hub_without_a_name(name):
    with pytest.raises(UserError, match="is written hf:NAME"):
        load_corpus(name)


@pytest.mark.parametrize("size", ["9" * 5000, "0", "-1", "1.5", "", "nan", "1e3", "٣", "999999999999"])
def test_sizes_of_the_grammar(size):
    with pytest.raises(UserError, match=r"grammar:SIZE|from 1 to 100,000,000") as error:
        load_corpus(f"grammar:{size}")
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("value", ["9" * 5000, "٣", "-1", "", "1.x"])
@pytest.mark.parametrize("field", [0, 6])
def test_numbers_of_a_treebank(write, value, field):
    cells = ["1", "x", "x", "X", "_", "_", "0", "root", "_", "_"]
    cells[field] = value
    with pytest.raises(UserError, match=r"line 1: (expected word id 1|HEAD must lie)") as error:
        load_corpus(write("a.conllu", "\t".join(cells) + "\n"))
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("identifier", ["9" * 5000 + "-" + "9" * 5000, "1-" + "9" * 5000, "1." + "9" * 5000])
def test_ranges_of_a_treebank(write, identifier):
    rest = "\tx\tx\tX\t_\t_\t0\troot\t_\t_\n"
    with pytest.raises(UserError, match="expected word id 1"):
        load_corpus(write("a.conllu", identifier + rest + "1" + rest))


def test_a_file_whose_name_is_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.txt"
    with open(path, "wb") as file:  # noqa: PTH123 (pathlib takes no bytes)
        file.write(b"one\n")
    corpus = load_corpus(os.fsdecode(path))
    assert corpus.name.encode("utf-8") == b"?.txt"


def test_a_file_that_changes_while_it_is_read(write, monkeypatch, small_batches, cache):
    path = write("a.txt", "".join(f"sentence {i}\n" for i in range(9)))

    def and_then_written(path):
        found = file_digest(path)
        path.write_text("another\n" * 9)
        return found

    monkeypatch.setattr("infoflow.corpus._corpus.file_digest", and_then_written)
    with pytest.raises(UserError, match="changed while it was read"):
        Corpus.from_text(path)
    assert list((cache / "corpora").iterdir()) == []
