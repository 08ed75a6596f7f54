"""Passages with questions: retrieval benchmarks in their file formats."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.corpus import FactWorld, load_world, read_cells, read_lines
from infoflow.foundation import UserError, current_display

from ._passages import Passages


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Benchmark:
    """Passages, questions, and the passages that answer them."""

    name: str
    passages: Passages
    questions: tuple[str, ...]
    relevant: tuple[frozenset[int], ...]  # ids of the passages that answer each question
    answers: tuple[tuple[str, ...], ...] | None = None  # answers to each question as text, if known
    num_skipped: int = 0  # relevance judgements of documents without title and text
    question_names: tuple[str, ...] | None = None  # name of each question in the files; None: no names
    passage_names: tuple[str, ...] | None = None


def load_benchmark(folder: Path | str) -> Benchmark:
    """The benchmark in a folder, recognised by its files; `facts` or `facts:256` is that of a world of facts.

    | files                                          | layout                                                   |
    |------------------------------------------------|----------------------------------------------------------|
    | `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv` | BEIR: `_id, title, text`; scores above 0 are relevant |
    | `test.candidates.txt`, `test.queries.tsv`      | ReQA: a passage per line; question, its passages' lines from 0 |
    | `docs.jsonl`, `queries.jsonl`, `qrels.tsv`     | `id, title, text`; query, passage, relevance, no header  |

    Each file may be `.gz`. If a document has only a title, the title becomes the passage. A document without title and
    text is dropped, and its judgements are skipped (`num_skipped`). Questions without a relevant passage are left out.

    Raises:
        UserError: The folder has none of these layouts, a line is malformed, or judgements name unknown documents.
    """
    if world := load_world(str(folder)):
        return facts_benchmark(world)
    folder = Path(folder)
    if _find(folder, "test.candidates.txt"):
        return _read_reqa(folder)
    if _find(folder, "corpus.jsonl"):
        return _read_judged(folder, "corpus.jsonl", _find(folder, "qrels/test.tsv"), "_id", header=True)
    if _find(folder, "docs.jsonl"):
        return _read_judged(folder, "docs.jsonl", _find(folder, "qrels.tsv"), "id", header=False)
    raise UserError(
        f"{folder} has no retrieval benchmark: neither corpus.jsonl (BEIR), test.candidates.txt (ReQA) nor "
        "docs.jsonl.\nName a folder with one of these layouts."
    )


def is_benchmark(folder: Path) -> bool:
    """Whether a folder has one of the layouts of `load_benchmark`."""
    return any(_find(folder, name) for name in ("test.candidates.txt", "corpus.jsonl", "docs.jsonl"))


def facts_benchmark(world: FactWorld, edited: bool = False) -> Benchmark:
    """The passages of a world, and the test questions about every fact in a passage, whose gold passage is relevant."""
    facts = [fact for fact in world.facts if world.gold(fact, edited) >= 0]
    pairs = [(fact, question) for fact in facts for question in world.questions([fact])]
    return Benchmark(
        name="facts",
        passages=Passages.from_rows(world.passages(edited)),
        questions=tuple(question.masked() for _, question in pairs),
        relevant=tuple(frozenset([world.gold(fact, edited)]) for fact, _ in pairs),
        answers=tuple((world.answer(fact, edited),) for fact, _ in pairs),
    )


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _require(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise UserError(f"{folder} lacks {name} (plain or .gz).\nUse the complete benchmark.")
    return path


def _read_reqa(folder: Path) -> Benchmark:
    texts = [line for _, line in read_lines(_require(folder, "test.candidates.txt"))]
    kept = [line for line, text in enumerate(texts) if text.strip()]  # the store also leaves out empty passages
    ids = {line: id for id, line in enumerate(kept)}
    questions, relevant, num_skipped = [], [], 0
    path = _require(folder, "test.queries.tsv")
    for number, cells in read_cells(path):
        places = " ".join(cells[1:]).replace(",", " ").split()
        if not places or not all(place.isdecimal() and int(place) < len(texts) for place in places):
            raise UserError(
                f"{path}, line {number}: expected a question, a tab and candidate line numbers from 0 to "
                f"{len(texts) - 1}. Got {' '.join(cells)}."
            )
        found = [ids[int(place)] for place in places if int(place) in ids]
        num_skipped += len(places) - len(found)
        if found:
            questions.append(cells[0])
            relevant.append(frozenset(found))
    _tell_skipped(folder, num_skipped)
    return Benchmark(
        name=folder.name,
        passages=Passages.from_rows(texts),
        questions=tuple(questions),
        relevant=tuple(relevant),
        num_skipped=num_skipped,
    )


def _read_judged(folder: Path, docs: str, judged: Path | None, key: str, header: bool) -> Benchmark:
    documents = [(str(row[key]), _passage(row)) for row in _json_lines(_require(folder, docs), key, "text")]
    kept = [(id, row) for id, row in documents if row is not None]
    given, places = {id for id, _ in documents}, {id: index for index, (id, _) in enumerate(kept)}
    passages = Passages.from_rows(row for _, row in kept)
    if judged is None:
        raise UserError(f"{folder} has no judgements (qrels).\nUse the complete benchmark.")
    found: dict[str, set[int]] = defaultdict(set)
    num_skipped = 0
    for number, (query, passage, score) in _judgements(judged, header):
        if passage not in given:
            raise UserError(
                f"{judged}, line {number}: a judgement must name a document of {docs}. Got {passage}, which "
                "is missing.\n"
                "Use the complete benchmark."
            )
        if score > 0 and passage in places:
            found[query].add(places[passage])
        num_skipped += score > 0 and passage not in places
    _tell_skipped(folder, num_skipped)
    used = [row for row in _json_lines(_require(folder, "queries.jsonl"), key, "text") if found.get(str(row[key]))]
    return Benchmark(
        name=folder.name,
        passages=passages,
        questions=tuple(str(row["text"]) for row in used),
        relevant=tuple(frozenset(found[str(row[key])]) for row in used),
        num_skipped=num_skipped,
        question_names=tuple(str(row[key]) for row in used),
        passage_names=tuple(id for id, _ in kept),
    )


def _tell_skipped(folder: Path, num: int) -> None:
    if num:
        current_display().note(f"{folder.name}: {num:,} judgements of documents without title and text were skipped.")


def _passage(row: dict[str, Any]) -> dict[str, Any] | None:
    """A document in the store's form, where a title alone becomes the text; None if it has no words."""
    title, text = row.get("title"), row["text"]
    if str(text or "").strip():
        return {"title": title, "text": text}
    return {"title": "", "text": str(title)} if str(title or "").strip() else None


def _json_lines(path: Path, *keys: str) -> Iterator[dict[str, Any]]:
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
            _ = [row[key] for key in keys]
        except (ValueError, KeyError, TypeError, RecursionError):
            wanted = " and ".join(keys)
            raise UserError(f"{path}, line {number}: expected an object with {wanted}. Got {line}.") from None
        yield row


def _judgements(path: Path, header: bool) -> Iterator[tuple[int, tuple[str, str, float]]]:
    for number, cells in read_cells(path):
        if header and number == 1:
            continue
        try:
            query, passage, score = cells
            yield number, (query, passage, float(score))
        except ValueError:
            raise UserError(
                f"{path}, line {number}: expected query, passage and relevance, separated by tabs. Got "
                f"{' '.join(cells)}."
            ) from None
