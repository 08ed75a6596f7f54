"""Each file of an index of passages, and of its retriever, damaged: one message, or what was found before."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cases import Case, World, written
from command import answer
from models import FILES, HOW, VALUES, damaged

_ASK = ["--ask=the cat sees the dog", "--log=plain"]
_BENCHMARK = {
    "corpus.jsonl": json.dumps({"_id": "x", "title": "T", "text": "a line"}) + "\n",
    "queries.jsonl": json.dumps({"_id": "q", "text": "line?"}) + "\n",
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\tx\t1\n",
}
_LINES: dict[str, str | bytes] = {
    "empty": "",
    "blank": "\n\n",
    "binary": bytes(range(256)),
    "number": "3\n",
    "null": "null\n",
    "list": '["x"]\n',
    "cut": '{"_id": "x", "te',
    "no fields": "{}\n",
    "numbers": '{"_id": 1, "title": 2, "text": 3}\n',
    "nulls": '{"_id": null, "title": null, "text": null}\n',
    "objects": '{"_id": {}, "title": [], "text": {}}\n',
    "surrogate": '{"_id": "\\ud800", "title": "\\ud800", "text": "\\ud800"}\n',
    "NUL": '{"_id": "\\u0000", "title": "\\u0000", "text": "\\u0000"}\n',
    "deep": f'{{"_id": "x", "text": {"[" * 2000}{"]" * 2000}}}\n',
    "digits": f'{{"_id": "x", "text": {"9" * 5000}}}\n',
    "NaN": '{"_id": "x", "text": NaN}\n',
    "twice": '{"_id": "x", "text": "a"}\n{"_id": "x", "text": "b"}\n',
    "tabs": "a\tb\tc\td\te\n",
    "words": "query-id\tcorpus-id\tscore\nq\tx\tmany\n",
    "strangers": "query-id\tcorpus-id\tscore\nnone\tnone\t1\n",
}


def index_cases(world: World) -> Iterator[Case]:
    for source, options in ((world.index, []), (world.dense, [f"--retriever={world.retriever}"])):
        found = world.path / f"{source.name}.found"
        files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
        for file in files:
            for how in HOW:
                name = f"{source.name} {file} {how}"
                yield _case(name, source, _damage(file, how), options, _as_before(world, source, options, found))
            if file.suffix == ".json":
                for name, content in FILES.items():
                    yield _case(f"{source.name} {file} {name}", source, _content(file, content), options)
                yield from _entries(source, file, options)
        for file in files:
            for other in files:
                if file < other:
                    yield _case(f"{source.name} {file} as {other}", source, _copied(file, other), options)
    yield from _retrievers(world)
    for file in _BENCHMARK:
        for name, content in _LINES.items():
            words = ["data", "index", "bench", "--out=FOLDER/out", "--ask=line"]
            yield Case(f"benchmark {file} {name}", words, "", _benchmark(file, content), (0, 2))
    for name, words in _ODD.items():
        yield Case(f"asked {name}", ["data", "index", str(world.index), *words], "", codes=(0, 2))
    yield Case(
        "out is the source", ["data", "index", "own.txt", "--out=own.txt"], "own.txt", written(own__txt="a cat\n")
    )
    yield Case("out holds files of others", ["data", "index", "grammar:20", "--out=sub"], "sub", _others, (0, 2), _kept)


_ODD = {
    "nothing": ["--ask="],
    "blank": ["--ask=   "],
    "signs": ["--ask=.,;:!?"],
    "NUL": ["--ask=\0 cat"],
    "surrogate": ["--ask=\udcff cat"],
    "escape": ["--ask=\x1b[31m cat"],
    "direction": ["--ask=\u202e cat"],
    "very long": [f"--ask={'cat ' * 20_000}"],
    "one word of many letters": [f"--ask={'x' * 100_000}"],
    "many": [f"--ask=cat {number}" for number in range(1000)],
    "top beyond": ["--ask=cat", "--top=1000000000"],
    "arabic": ["--ask=قطة"],
}


def _entries(source: Path, file: Path, options: list[str]) -> Iterator[Case]:
    content = json.loads((source / file).read_text())
    for key in content if isinstance(content, dict) and len(content) < 30 else ():
        for name, value in VALUES.items():
            yield _case(f"{source.name} {file} {key} {name}", source, _entry(file, key, value), options)
        yield _case(f"{source.name} {file} {key} missing", source, _entry(file, key), options)


def _retrievers(world: World) -> Iterator[Case]:
    for file in sorted(path.relative_to(world.retriever) for path in world.retriever.rglob("*") if path.is_file()):
        for how in HOW:

            def prepare(folder: Path, file: Path = file, how: str = how) -> None:
                shutil.copytree(world.retriever, folder / "retriever")
                damaged(folder / "retriever" / file, how)

            words = ["data", "index", str(world.dense), "--retriever=retriever", *_ASK]
            yield Case(f"retriever {file} {how}", words, "", prepare, (0, 2))
            words = ["data", "index", "grammar:20", "--retriever=retriever", "--out=FOLDER/out", *_ASK]
            yield Case(f"build with {file} {how}", words, "", prepare, (0, 2))


def _case(
    name: str,
    source: Path,
    change: Callable[[Path], object],
    options: list[str],
    check: Callable[[Path, str, str], str | None] | None = None,
) -> Case:
    def prepare(folder: Path) -> None:
        shutil.copytree(source, folder / "index")
        change(folder / "index")

    return Case(name, ["data", "index", "index", *options, *_ASK], "index", prepare, (0, 2), check)


def _damage(file: Path, how: str) -> Callable[[Path], object]:
    return lambda folder: damaged(folder / file, how)


def _content(file: Path, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_bytes(content)


def _copied(file: Path, other: Path) -> Callable[[Path], object]:
    return lambda folder: shutil.copy(folder / file, folder / other)


def _entry(file: Path, key: str, *value: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        del content[key]
        (folder / file).write_text(json.dumps(content | ({key: value[0]} if value else {})))

    return change


def _as_before(world: World, source: Path, options: list[str], found: Path) -> Callable[[Path, str, str], str | None]:
    """What is found must be what the whole index finds."""

    def check(_: Path, out: str, __: str) -> str | None:
        if not found.exists():
            found.write_text(answer(["data", "index", str(source), *options, *_ASK], world.path, 60)[1])
        return None if out == found.read_text() else f"finds something else: {out[:200]}"

    return check


def _benchmark(file: str, content: str | bytes) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        for name, text in _BENCHMARK.items():
            path = folder / "bench" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / "bench" / file).write_bytes(content.encode() if isinstance(content, str) else content)

    return prepare


def _others(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "thesis.txt").write_text("years of work\n")


def _kept(folder: Path, _: str, __: str) -> str | None:
    return None if (folder / "sub" / "thesis.txt").exists() else "removes a file of the user's"
