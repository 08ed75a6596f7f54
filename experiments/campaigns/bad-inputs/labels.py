"""Files with labels, questions and facts that are broken, given to `tune`, `probe` and `fill-in`."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

from cases import Case, World, written

_BINARY = bytes(range(256)) * 8
_ROWS = [f"{label}\tthe cat sees dog {number}" for number in range(20) for label in ("yes", "no")]
_GOOD = "\n".join(_ROWS) + "\n"
_QUESTION: dict[str, Any] = {"id": "q", "question": "Where?", "answers": [{"text": "Oslo", "answer_start": 0}]}
_PARAGRAPH: dict[str, Any] = {"context": "Oslo lies in Norway.", "qas": [_QUESTION]}

_LABELLED: dict[str, tuple[str, str | bytes]] = {
    "empty": ("a.tsv", ""),
    "blank": ("a.tsv", "\n \n\t\n"),
    "binary": ("a.tsv", _BINARY),
    "NUL": ("a.tsv", _GOOD.replace("cat", "c\0t")),
    "UTF-16": ("a.tsv", _GOOD.encode("utf-16")),
    "Latin-1": ("a.tsv", _GOOD.replace("cat", "caf\xe9").encode("latin-1")),
    "one column": ("a.tsv", "the cat\nthe dog\n"),
    "one label": ("a.tsv", _GOOD.replace("no\t", "yes\t")),
    "one example": ("a.tsv", "yes\tthe cat\n"),
    "two examples": ("a.tsv", "yes\tthe cat\nno\tthe dog\n"),
    "one text": ("a.tsv", "yes\tthe cat\nno\tthe cat\n" * 20),
    "a label each": ("a.tsv", "".join(f"label{number}\tthe cat {number}\n" for number in range(40))),
    "blank labels": ("a.tsv", _GOOD.replace("no\t", " \t")),
    "blank texts": ("a.tsv", "yes\t \nno\t \n" * 20),
    "numbers broken": ("a.tsv", "".join(f"{number}.5\tcat {number}\n" for number in range(30)) + "1.5.5\tcat\n"),
    "numbers infinite": (
        "a.tsv",
        "".join(f"{'1e999' if number % 2 else '0.5'}\tcat {number}\n" for number in range(40)),
    ),
    "numbers nan": ("a.tsv", "".join(f"{'nan' if number % 2 else '0.5'}\tcat {number}\n" for number in range(40))),
    "numbers huge": ("a.tsv", "".join(f"{'9' * 400}.{number}\tcat {number}\n" for number in range(40))),
    "constant number": ("a.tsv", "".join(f"0.5\tcat {number}\n" for number in range(40))),
    "ragged": ("a.tsv", _GOOD + "yes\n"),
    "wide": ("a.tsv", "a\tb\tc\td\te\tf\n" * 30),
    "long label": ("a.tsv", _GOOD.replace("no\t", f"{'n' * 5000}\t")),
    "control label": ("a.tsv", _GOOD.replace("no\t", "\x1b[31mno\t")),
    "direction label": ("a.tsv", _GOOD.replace("no\t", "\u202eno\t")),
    "path label": ("a.tsv", _GOOD.replace("no\t", "../../no\t")),
    "long text": ("a.tsv", _GOOD + f"yes\t{'the cat ' * 50_000}\n"),
    "one long line": ("a.tsv", "x" * 2_000_000),
    "zip cut": ("a.tsv.gz", gzip.compress(_GOOD.encode())[:40]),
    "zip of nothing": ("a.tsv.gz", gzip.compress(b"")),
    "zip bomb": ("a.tsv.gz", gzip.compress(b"x" * 50_000_000, 1)),
    "csv no label": ("a.csv", "text\nthe cat\nthe dog\n"),
    "csv no text": ("a.csv", "label\nyes\nno\n"),
    "csv empty": ("a.csv", ""),
    "csv header": ("a.csv", "text,label\n"),
    "csv twice": ("a.csv", "label,label,text\nyes,no,a cat\n"),
    "csv binary": ("a.csv", _BINARY),
    "csv open quote": ("a.csv", 'text,label\n"the cat,yes\nthe dog,no\n'),
    "csv labels missing": ("a.csv", "text,label\nthe cat,\nthe dog,\n"),
    "jsonl cut": ("a.jsonl", '{"text": "a", "label": "yes"}\n{"text": "b", "la'),
    "jsonl list label": ("a.jsonl", "".join(f'{{"text": "a {n}", "label": ["x"]}}\n' for n in range(40))),
    "jsonl object label": ("a.jsonl", "".join(f'{{"text": "a {n}", "label": {{"x": 1}}}}\n' for n in range(40))),
    "jsonl null label": ("a.jsonl", "".join(f'{{"text": "a {n}", "label": null}}\n' for n in range(40))),
    "jsonl NaN label": ("a.jsonl", "".join(f'{{"text": "a {n}", "label": NaN}}\n' for n in range(40))),
    "jsonl true label": ("a.jsonl", "".join(f'{{"text": "a {n}", "label": true}}\n' for n in range(40))),
    "jsonl mixed labels": (
        "a.jsonl",
        "".join(f'{{"text": "a {n}", "label": {n if n % 2 else "true"}}}\n' for n in range(40)),
    ),
    "jsonl digits label": ("a.jsonl", f'{{"text": "a", "label": {"9" * 5000}}}\n'),
    "jsonl surrogate label": (
        "a.jsonl",
        "".join(f'{{"text": "a {n}", "label": "\\ud800{n % 2}"}}\n' for n in range(40)),
    ),
    "jsonl deep label": ("a.jsonl", f'{{"text": "a", "label": {"[" * 2000}{"]" * 2000}}}\n'),
    "choices none": ("a.jsonl", '{"text": "a", "question": "b", "choices": [], "label": 0}\n' * 30),
    "choices one": ("a.jsonl", '{"text": "a", "question": "b", "choices": ["x"], "label": 0}\n' * 30),
    "choices beyond": ("a.jsonl", '{"text": "a", "question": "b", "choices": ["x", "y"], "label": 7}\n' * 30),
    "choices minus": ("a.jsonl", '{"text": "a", "question": "b", "choices": ["x", "y"], "label": -1}\n' * 30),
    "choices text": ("a.jsonl", '{"text": "a", "question": "b", "choices": "xy", "label": 0}\n' * 30),
    "choices null": ("a.jsonl", '{"text": "a", "question": "b", "choices": null, "label": 0}\n' * 30),
    "choices numbers": ("a.jsonl", '{"text": "a", "question": "b", "choices": [1, 2], "label": 0}\n' * 30),
    "choices of lengths": (
        "a.jsonl",
        "".join(
            f'{{"text": "a {n}", "question": "b", "choices": {["x", "y", "z"][: 2 + n % 2]}, "label": 0}}\n'.replace(
                "'", '"'
            )
            for n in range(30)
        ),
    ),
    "tagged one tag": ("a.tagged", "the\tA\ncat\tA\n\n" * 20),
    "tagged no tag": ("a.tagged", "the\ncat\n\n" * 20),
    "tagged wide": ("a.tagged", "the\tA\tB\tC\n\n" * 20),
    "tagged long": ("a.tagged", "the\tA\ncat\tB\n" * 3000),
    "tagged control": ("a.tagged", "the\t\x1b[31m\ncat\tB\n\n" * 20),
    "tagged odd BIO": ("a.tagged", "the\tI-x\ncat\tB-\nsees\tO\nof\tE-y\n\n" * 20),
    "conllu circle": (
        "a.conllu",
        "1\tcat\tcat\tNOUN\t_\t_\t2\tdep\t_\t_\n2\tcat\tcat\tNOUN\t_\t_\t1\tdep\t_\t_\n\n" * 20,
    ),
    "parquet text": ("a.parquet", _GOOD),
    "parquet empty": ("a.parquet", b""),
    "control name": ("\x1b[31m.tsv", _GOOD),
}


def _squad(*paragraphs: Any, **more: Any) -> str:
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": list(paragraphs)}], **more})


def _asked(**changed: Any) -> str:
    return _squad({**_PARAGRAPH, "qas": [{**_QUESTION, **changed}]})


def _answered(**changed: Any) -> str:
    return _asked(answers=[{"text": "Oslo", "answer_start": 0, **changed}])


_SQUAD: dict[str, str | bytes] = {
    "empty": "",
    "binary": _BINARY,
    "null": "null",
    "number": "3",
    "list": "[]",
    "cut": _squad(_PARAGRAPH)[:80],
    "no data": '{"version": "1.1"}',
    "data null": '{"data": null}',
    "data object": '{"data": {}}',
    "data number": '{"data": 3}',
    "data numbers": '{"data": [1, 2]}',
    "data empty": '{"data": []}',
    "no paragraphs": '{"data": [{"title": "t"}]}',
    "paragraphs null": '{"data": [{"paragraphs": null}]}',
    "paragraphs text": '{"data": [{"paragraphs": "x"}]}',
    "paragraphs empty": _squad(),
    "paragraph number": _squad(3),
    "paragraph empty": _squad({}),
    "context null": _squad({**_PARAGRAPH, "context": None}),
    "context number": _squad({**_PARAGRAPH, "context": 3}),
    "context empty": _squad({**_PARAGRAPH, "context": ""}),
    "context control": _squad({**_PARAGRAPH, "context": "Oslo \x1b[31m\0 Norway"}),
    "context surrogate": _squad({**_PARAGRAPH, "context": "Oslo \ud800"}),
    "context huge": _squad({**_PARAGRAPH, "context": "Oslo " * 40_000}),
    "qas null": _squad({**_PARAGRAPH, "qas": None}),
    "qas object": _squad({**_PARAGRAPH, "qas": {}}),
    "qas numbers": _squad({**_PARAGRAPH, "qas": [1]}),
    "qas empty": _squad({**_PARAGRAPH, "qas": []}),
    "question null": _asked(question=None),
    "question number": _asked(question=3),
    "question empty": _asked(question=" "),
    "question long": _asked(question="Where? " * 2000),
    "id null": _asked(id=None),
    "id list": _asked(id=[1]),
    "ids twice": _squad({**_PARAGRAPH, "qas": [_QUESTION, _QUESTION]}),
    "answers null": _asked(answers=None),
    "answers text": _asked(answers="Oslo"),
    "answers object": _asked(answers={"text": "Oslo"}),
    "answers numbers": _asked(answers=[1]),
    "answers empty": _asked(answers=[]),
    "impossible text": _asked(is_impossible="maybe", answers=[]),
    "text null": _answered(text=None),
    "text number": _answered(text=3),
    "text empty": _answered(text=""),
    "text elsewhere": _answered(text="Sweden"),
    "start null": _answered(answer_start=None),
    "start text": _answered(answer_start="0"),
    "start minus": _answered(answer_start=-1),
    "start beyond": _answered(answer_start=10**9),
    "start 10**30": _answered(answer_start=10**30),
    "start 1.5": _answered(answer_start=1.5),
    "start true": _answered(answer_start=True),
    "start NaN": _answered(answer_start=float("nan")),
    "one question": _squad(_PARAGRAPH),
    "deep": "[" * 100_000,
    "digits": f'{{"data": {"9" * 5000}}}',
}
_FACTS: dict[str, tuple[str, str | bytes]] = {
    "empty": ("a.tsv", ""),
    "binary": ("a.tsv", _BINARY),
    "one column": ("a.tsv", "is\n"),
    "blank cells": ("a.tsv", "is\t\t\n \t \t \n"),
    "no template": ("a.tsv", "is\tthe\tcat\n"),
    "template no blank": ("a.tsv", "is\tthe\tcat\tno blank here\n"),
    "template blanks": ("a.tsv", "is\tthe\tcat\t[Y] [Y] [X] [X]\n"),
    "template long": ("a.tsv", f"is\tthe\tcat\t{'the ' * 5000} [X] [Y] .\n"),
    "object unknown": ("a.tsv", "is\tthe\tⵣⵣⵣ\t[X] or [Y] .\n"),
    "object control": ("a.tsv", "is\tthe\t\x1b[31m\t[X] or [Y] .\n"),
    "subject blank within": ("a.tsv", "is\t[Y]\tcat\t[X] or [Y] .\n"),
    "relation long": ("a.tsv", f"{'r' * 5000}\tthe\tcat\t[X] or [Y] .\n"),
    "relation path": ("a.tsv", "../../r\tthe\tcat\t[X] or [Y] .\n"),
    "jsonl empty": ("a.jsonl", ""),
    "jsonl cut": ("a.jsonl", '{"relation": "is"'),
    "jsonl numbers": ("a.jsonl", '{"relation": 1, "subject": 2, "object": 3, "template": 4}\n'),
    "jsonl nulls": ("a.jsonl", '{"relation": null, "subject": null, "object": null, "template": null}\n'),
    "jsonl lists": ("a.jsonl", '{"relation": [], "subject": {}, "object": [], "template": []}\n'),
    "jsonl line list": ("a.jsonl", "[1]\n"),
    "jsonl deep": ("a.jsonl", f'{{"relation": {"[" * 2000}{"]" * 2000}}}\n'),
    "jsonl digits": ("a.jsonl", f'{{"relation": {"9" * 5000}}}\n'),
    "jsonl surrogate": ("a.jsonl", '{"relation": "\\ud800", "subject": "a", "object": "cat", "template": "[X] [Y]"}\n'),
    "zip cut": ("a.tsv.gz", gzip.compress(b"is\tthe\tcat\t[X] or [Y] .\n" * 9)[:30]),
}
_SENTENCE_LABELS: dict[str, str | bytes] = {
    "empty": "",
    "binary": _BINARY,
    "too few": "yes\nno\n",
    "too many": "yes\n" * 5000,
    "one": "yes\n" * 40,
    "a label each": "".join(f"label{number}\n" for number in range(40)),
    "blank": "yes\n\n" * 20,
    "control": "\x1b[31m\nno\n" * 20,
    "long": f"{'x' * 5000}\nno\n" * 20,
    "Latin-1": "caf\xe9\nno\n".encode("latin-1") * 20,
}


def label_cases(world: World) -> Iterator[Case]:
    short = ["--rates=1e-3", "--seeds=0", "--epochs=1", "--out=out", "--log=plain"]
    tune = ["tune", str(world.model), *short]
    for name, (file, content) in _LABELLED.items():
        yield _case(f"tune {name}", [*tune, f"--train={file}", "--task=t"], file, content)
        if name in _FOR_ALL:
            for shape in ("classification", "regression", "tagging", "span", "choice", "generation"):
                yield _case(f"tune {shape} {name}", [*tune, f"--train={file}", f"--shape={shape}"], file, content)
            other = written(**{"b.tsv": _GOOD, file: content})
            for part in ("dev", "test"):
                words = [*tune, "--train=b.tsv", f"--{part}={file}", "--task=t"]
                yield Case(f"tune {part} {name}", words, "", other, (0, 2), writes=True, limit=40)
    for name, content in _SQUAD.items():
        yield _case(f"squad {name}", [*tune, "--train=a.json", "--task=t"], "a.json", content)
        yield _case(f"squad span {name}", [*tune, "--train=a.json", "--shape=span"], "a.json", content)
    for name, (file, content) in _FACTS.items():
        yield _case(f"facts {name}", ["fill-in", str(world.model), f"--facts={file}", "--out=out"], file, content)
        words = ["fill-in", str(world.model), f"--facts={world.facts}", f"--templates={file}", "--out=out"]
        yield _case(f"templates {name}", words, file, content)
    for name, content in _SENTENCE_LABELS.items():
        words = ["probe", str(world.model), f"--corpus={world.sentences}", "--task=sentence-label", "--no-control"]
        yield _case(f"sentence labels {name}", [*words, "--labels=a.txt", "--out=out"], "a.txt", content)


_FOR_ALL = ("empty", "binary", "one label", "jsonl null label", "jsonl NaN label", "tagged one tag", "choices text")


def _case(name: str, words: list[str], file: str, content: str | bytes) -> Case:
    quotes = "true label" in name  # a label "True", which Python's reader of JSON made of true
    return Case(name, words, "", written(**{file: content}), (0, 2), writes=True, limit=40, quotes=quotes)
