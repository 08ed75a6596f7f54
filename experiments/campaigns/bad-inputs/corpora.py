"""Files that are no corpus, or broken ones of every format."""

import gzip
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from cases import Case, World, written

_WORD = "{id}\tcat\tcat\tNOUN\t_\t_\t{head}\tdep\t_\t_\n"
_BINARY = bytes(range(256)) * 8
_ROWS = "text,label\nthe cat,1\na dog,0\n"
_TEXT = ["--text-column=text"]


def _word(id: str = "1", head: str = "0") -> str:
    return _WORD.format(id=id, head=head)


def _parquet(**columns: list) -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


_GOOD_PARQUET = _parquet(text=["the cat", "a dog"])
_ZIPPED = gzip.compress(b"the cat sees the dog\n" * 1000)
_REFUSED: dict[str, tuple[str, str | bytes, list[str]]] = {
    "empty": ("a.txt", "", []),
    "blank lines": ("a.txt", "\n \n\t\n", []),
    "binary": ("a.txt", _BINARY, []),
    "NUL": ("a.txt", "the \0 cat\n", []),
    "UTF-16": ("a.txt", "the cat\n".encode("utf-16"), []),
    "Latin-1": ("a.txt", "caf\xe9\n".encode("latin-1"), []),
    "one long line": ("a.txt", "x" * 2_000_000, []),
    "zip cut": ("a.txt.gz", _ZIPPED[:40], []),
    "zip empty": ("a.txt.gz", b"", []),
    "zip of nothing": ("a.txt.gz", gzip.compress(b""), []),
    "zip flipped": ("a.txt.gz", _ZIPPED[:-5] + b"\xff" + _ZIPPED[-4:], []),
    "zip bomb": ("a.txt.gz", gzip.compress(b"x" * 50_000_000, 1), []),
    "column in vain": ("a.txt", "the cat\n", _TEXT),
    "csv no column": ("a.csv", _ROWS, []),
    "csv other column": ("a.csv", _ROWS, ["--text-column=sentence"]),
    "csv control column": ("a.csv", _ROWS, ["--text-column=\x1b[31m"]),
    "csv control header": ("a.csv", "\x1b[31m,b\nx,y\n", ["--text-column=c"]),
    "csv same column": ("a.csv", _ROWS, [*_TEXT, "--translation-column=text"]),
    "csv translation none": ("a.csv", _ROWS, [*_TEXT, "--translation-column=de"]),
    "csv empty": ("a.csv", "", _TEXT),
    "csv header only": ("a.csv", "text,label\n", _TEXT),
    "csv ragged": ("a.csv", "text,label\na\n", _TEXT),
    "csv wide": ("a.csv", "text,label\na,b,c\n", _TEXT),
    "csv open quote": ("a.csv", 'text,label\n"a,b\n', _TEXT),
    "csv inner quote": ("a.csv", 'text,label\n"a"b,c\n', _TEXT),
    "csv semicolons": ("a.csv", "text;label\na;b\n", _TEXT),
    "csv twice": ("a.csv", "text,text\na,b\n", _TEXT),
    "csv NUL": ("a.csv", "text,label\na\0,b\n", _TEXT),
    "csv binary": ("a.csv", _BINARY, _TEXT),
    "csv long cell": ("a.csv", f"text,label\n{'x' * 200_000},b\n", _TEXT),
    "tsv one column": ("a.tsv", "the cat\nthe dog\n", []),
    "tsv control": ("a.tsv", "a\tb\n\x1b[31m\n", []),
    "tsv empty": ("a.tsv", "", []),
    "tsv header": ("a.tsv", "text\tlabel\na\tb\n", []),
    "jsonl none": ("a.jsonl", '{"text": null}\n', _TEXT),
    "jsonl number": ("a.jsonl", '{"text": 3}\n', _TEXT),
    "jsonl list": ("a.jsonl", '{"text": ["a"]}\n', _TEXT),
    "jsonl object": ("a.jsonl", '{"text": {"a": null, "b": true}}\n', _TEXT),
    "jsonl true": ("a.jsonl", '{"text": true}\n', _TEXT),
    "jsonl array line": ("a.jsonl", '["a"]\n', _TEXT),
    "jsonl number line": ("a.jsonl", "3\n", _TEXT),
    "jsonl null line": ("a.jsonl", "null\n", _TEXT),
    "jsonl cut": ("a.jsonl", '{"text": "a"}\n{"text": "b', _TEXT),
    "jsonl surrogate": ("a.jsonl", '{"text": "\\ud800"}\n', _TEXT),
    "jsonl NUL": ("a.jsonl", '{"text": "\\u0000"}\n', _TEXT),
    "jsonl deep": ("a.jsonl", f'{{"text": {"[" * 5000}{"]" * 5000}}}\n', _TEXT),
    "jsonl digits": ("a.jsonl", f'{{"text": {"9" * 5000}}}\n', _TEXT),
    "jsonl NaN": ("a.jsonl", '{"text": NaN}\n', _TEXT),
    "jsonl empty object": ("a.jsonl", "{}\n", _TEXT),
    "jsonl control key": ("a.jsonl", '{"\\u001b[31m": "a"}\n', _TEXT),
    "jsonl escape value": ("a.jsonl", '{"text": ["\\u001b[31m", null]}\n', _TEXT),
    "json number": ("a.json", "3", _TEXT),
    "json text": ("a.json", '"the cat"', _TEXT),
    "json null": ("a.json", "null", _TEXT),
    "json numbers": ("a.json", "[1, 2]", _TEXT),
    "json empty": ("a.json", "", _TEXT),
    "json empty list": ("a.json", "[]", _TEXT),
    "json cut": ("a.json", '[{"text": "a"}, {"te', _TEXT),
    "json deep": ("a.json", "[" * 100_000, _TEXT),
    "json digits": ("a.json", f'[{{"text": {"9" * 5000}}}]', _TEXT),
    "json mixed": ("a.json", '[{"text": "a"}, 3]', _TEXT),
    "json lists": ("a.json", '{"text": 3}', _TEXT),
    "json no column": ("a.json", '[{"text": "a"}]', []),
    "parquet cut": ("a.parquet", _GOOD_PARQUET[:200], _TEXT),
    "parquet empty": ("a.parquet", b"", _TEXT),
    "parquet zeroed": ("a.parquet", bytes(len(_GOOD_PARQUET)), _TEXT),
    "parquet text": ("a.parquet", "the cat\n", _TEXT),
    "parquet flipped": ("a.parquet", _GOOD_PARQUET[:-12] + b"\xff\xff" + _GOOD_PARQUET[-10:], _TEXT),
    "parquet numbers": ("a.parquet", _parquet(text=[1.5, None]), _TEXT),
    "parquet bytes": ("a.parquet", _parquet(text=[b"a\xff"]), _TEXT),
    "parquet no rows": ("a.parquet", _parquet(text=[]), _TEXT),
    "parquet no column": ("a.parquet", _GOOD_PARQUET, []),
    "conllu spaces": ("a.conllu", _word().replace("\t", " "), []),
    "conllu fields": ("a.conllu", "1\tcat\n", []),
    "conllu head text": ("a.conllu", _word(head="x'\x1b[31m"), []),
    "conllu head empty": ("a.conllu", _word(head=""), []),
    "conllu head negative": ("a.conllu", _word(head="-1"), []),
    "conllu head beyond": ("a.conllu", _word(head="2"), []),
    "conllu head digits": ("a.conllu", _word(head="9" * 5000), []),
    "conllu circle": ("a.conllu", _word("1", "2") + _word("2", "1"), []),
    "conllu itself": ("a.conllu", _word("1", "1"), []),
    "conllu no id": ("a.conllu", _word(""), []),
    "conllu id twice": ("a.conllu", _word("1") + _word("1", "1"), []),
    "conllu id digits": ("a.conllu", _word("9" * 5000), []),
    "conllu id control": ("a.conllu", _word("\x1b[31m"), []),
    "conllu range": ("a.conllu", _word("9-2"), []),
    "conllu comments": ("a.conllu", "# text = the cat\n\n", []),
    "conllu no form": ("a.conllu", _word().replace("cat", "", 1), []),
    "conllu binary": ("a.conllu", _BINARY, []),
    "tagged one column": ("a.tagged", "cat\n", []),
    "tagged empty": ("a.tagged", "", []),
    "tagged control": ("a.tagged", "\x1b[31m\n", []),
    "tagged no tag": ("a.tagged", "cat\t\n", []),
    "archive": ("a.zip", b"PK\x03\x04" + bytes(100), []),
    "pdf": ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", []),
    "control name": ("\x1b[31m.txt", _BINARY, []),
    "newline name": ("a\nb.csv", _ROWS, []),
    "control name csv": ("\x1b[31m.csv", "text,label\na\n", _TEXT),
    "control name conllu": ("\x1b[31m.conllu", "1\tcat\n", []),
    "control name parquet": ("\x1b[31m.parquet", b"", _TEXT),
    "control name gz": ("\x1b[31m.txt.gz", _ZIPPED[:40], []),
    "control name jsonl": ("\x1b[31m.jsonl", "[", _TEXT),
    "control name tagged": ("\x1b[31m.tagged", "x\n", []),
}
_FINE: dict[str, tuple[str, str | bytes, list[str]]] = {
    "zip plain": ("a.txt.gz", "the cat\n", []),
    "plain zip": ("a.txt", _ZIPPED, []),
    "tsv of more columns": ("a.tsv", "a\tb\nc\td\te\tf\n", []),
    "mark": ("a.txt", b"\xef\xbb\xbfthe cat\n", []),
    "returns": ("a.txt", "the cat\r\nthe dog\r\n", []),
    "no end": ("a.txt", "the cat", []),
    "escape": ("a.txt", "the \x1b[31m cat\n", []),
    "direction": ("a.txt", "the \u202e cat\n", []),
    "csv": ("a.csv", _ROWS, _TEXT),
    "csv capital": ("a.CSV", _ROWS, _TEXT),
    "csv mark": ("a.csv", b"\xef\xbb\xbf" + _ROWS.encode(), _TEXT),
    "csv zipped": ("a.csv.gz", gzip.compress(_ROWS.encode()), _TEXT),
    "csv escape": ("a.csv", "text,label\n\x1b[31m,b\n", _TEXT),
    "csv blank cells": ("a.csv", "text,label\n,b\na,b\n", _TEXT),
    "json": ("a.json", '[{"text": "the cat"}]', _TEXT),
    "parquet": ("a.parquet", _GOOD_PARQUET, _TEXT),
    "conllu": ("a.conllu", _word("1") + _word("2", "1"), []),
}
_NAMES = {
    "hf alone": "hf:",
    "hf colon": "hf::",
    "hf split": "hf::train",
    "hf blank": "hf: ",
    "hf nobody": "hf:nobody/none",
    "hf path": "hf:../x",
    "hf slashes": "hf:a/b/c/d",
    "hf control": "hf:\x1b[31m",
    "hf long": f"hf:{'x' * 5000}",
    "hf url": "hf:https://example.org/x",
    "hf bad split": "hf:nobody/none:[1:2",
    "hf percent": "hf:%s/%n",
    "hf folder": "hf:.",
    "hf NUL": "hf:a\0b",
    "hf dash": "hf:-a/-b",
    "grammar empty": "grammar:",
    "grammar zero": "grammar:0",
    "grammar minus": "grammar:-1",
    "grammar 1.5": "grammar:1.5",
    "grammar word": "grammar:many",
    "grammar digits": f"grammar:{'9' * 5000}",
    "grammar huge": "grammar:999999999999",
    "grammar arabic": "grammar:١٢",
    "grammar comma": "grammar:,",
    "grammar nan": "grammar:nan",
    "grammar two": "grammar:1:2",
    "missing": "none.txt",
    "pair missing": "none.en,none.de",
    "pair half": "a.en,none.de",
    "three": "a.en,a.en,a.en",
    "pair folder": "sub,a.en",
    "pair empty": "a.en,",
    "pair unequal": "a.en,b.de",
    "pair table": "a.en,a.csv",
    "pair pipe": "a.en,pipe",
    "pair device": "a.en,/dev/zero",
    "pair loop": "a.en,loop",
    "pair binary": "a.en,binary",
    "commas": ",,,",
    "comma": ",",
    "folder": "sub",
    "here": ".",
    "loop": "loop",
    "to nowhere": "nowhere",
    "pipe": "pipe",
    "zero": "/dev/zero",
    "null": "/dev/null",
    "full": "/dev/full",
    "memory": "/proc/self/mem",
    "url": "https://example.org/a.txt",
    "pipe csv": "pipe.csv",
    "pipe gz": "pipe.gz",
    "folder csv": "sub.csv",
    "folder parquet": "sub.parquet",
    "tilde": "~nobody/x",
    "capital": "GRAMMAR:5",
    "capital name": "Tatoeba-en-fr",
    "pair empty files": "empty.en,empty.de",
}


def corpus_cases(world: World) -> Iterator[Case]:
    for name, (file, content, options) in _REFUSED.items():
        plain = file.isprintable() and "same" not in name and "control" not in name
        named = file.removesuffix(".gz") if plain else ""
        yield Case(name, ["data", "describe", file, *options], named, _writer(file, content))
    for name, (file, content, options) in _FINE.items():
        yield Case(name, ["data", "describe", file, *options], "", _writer(file, content), (0,), _shown_safely)
    for name, given in _NAMES.items():
        for command in ("describe", "get"):
            yield Case(f"{name} {command}", ["data", command, given], "", _files)
        words = ["analyze", str(world.model), f"--corpus={given}", "--only=head_confidence"]
        yield Case(f"{name} analyze", words, "", _files, writes=name.startswith("grammar"))
    one = {
        "one sentence": "cat\n",
        "one twice": "cat\ncat\n",
        "a sign": ".\n",
        "unknown": "ⵣⵣⵣ\n",
        "long": "cat " * 5000,
    }
    for name, text in one.items():
        words = ["analyze", str(world.model), "--corpus=a.txt", "--only=head_confidence", "--no-control"]
        yield Case(name, words, "", written(a__txt=text), (0, 2), writes=True)


def _writer(file: str, content: str | bytes) -> Callable[[Path], None]:
    return written(**{file: content})


def _shown_safely(_: Path, out: str, __: str) -> str | None:
    return "shows a control character" if "\x1b" in out or "\u202e" in out else None


def _files(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub.csv").mkdir()
    (folder / "sub.parquet").mkdir()
    (folder / "a.en").write_text("the cat\nthe dog\n")
    (folder / "b.de").write_text("die Katze\n")
    (folder / "a.csv").write_text(_ROWS)
    (folder / "binary").write_bytes(_BINARY)
    for name in ("empty.en", "empty.de"):
        (folder / name).touch()
    for name in ("pipe", "pipe.csv", "pipe.gz"):
        os.mkfifo(folder / name)
    (folder / "loop").symlink_to("loop")
    (folder / "nowhere").symlink_to("nothing")
