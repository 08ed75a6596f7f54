"""Passages with questions: what was collected for testing retrieval, as files have it."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.corpus import FactWorld, load_world, read_lines
from infoflow.foundation import UserError, as_written, current_display

from ._answers import contains_answer
from ._passages import Passages


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Benchmark:
    """Passages, questions and which passages answer them."""

    name: str
    passages: Passages
    questions: tuple[str, ...]
    relevant: tuple[frozenset[int], ...]  # ids of the passages that answer each question
    answers: tuple[tuple[str, ...], ...] | None = None  # of each question in words, where they are known
    num_skipped: int = 0  # relevant documents without title and text, each time that one is judged so
    question_names: tuple[str, ...] | None = None  # what the files call each; None: they have no names
    passage_names: tuple[str, ...] | None = None


def load_benchmark(folder: Path | str) -> Benchmark:
    """The benchmark in a folder, by the files in it; `facts` or `facts:256`: that of a world of facts.

    | files                                          | layout                                                   |
    |------------------------------------------------|----------------------------------------------------------|
    | `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv` | BEIR: `_id, title, text`; scores above 0 are relevant |
    | `test.candidates.txt`, `test.queries.tsv`      | ReQA: a passage a line; question, its passages' lines from 0 |
    | `docs.jsonl`, `queries.jsonl`, `qrels.tsv`     | `id, title, text`; query, passage, relevance, no header  |

    Each file may be `.gz`. A document with a title alone is a passage of these words; one without title and text is
    none, and its judgements are skipped (`num_skipped`). Questions without a relevant passage are left out.

    Raises:
        UserError: There is none of these layouts, a line is malformed, or judgements name documents that are not there.
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
        f"{folder} holds no benchmark of retrieval: neither corpus.jsonl (BEIR), test.candidates.txt (ReQA) nor "
        "docs.jsonl.\nName a folder with one of these layouts."
    )


def is_benchmark(folder: Path) -> bool:
    """Whether a folder has one of the layouts of `load_benchmark`."""
    return any(_find(folder, name) for name in ("test.candidates.txt", "corpus.jsonl", "docs.jsonl"))


def facts_benchmark(world: FactWorld, edited: bool = False) -> Benchmark:
    """The passages of a world and the test questions of every fact that one of them holds, by their gold passage."""
    facts = [fact for fact in world.facts if world.gold(fact, edited) >= 0]
    asked = [(fact, question) for fact in facts for question in world.questions([fact])]
    return Benchmark(
        name="facts",
        passages=Passages.from_rows(world.passages(edited)),
        questions=tuple(question.masked() for _, question in asked),
        relevant=tuple(frozenset([world.gold(fact, edited)]) for fact, _ in asked),
        answers=tuple((world.answer(fact, edited),) for fact, _ in asked),
    )


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question whose answers are known, and no passage."""

    question: str
    answers: tuple[str, ...]  # any of them is right
    pattern: re.Pattern[str] | None = None  # what a right answer looks like, instead of answers

    def answered_by(self, passage: str) -> bool:
        """Whether an answer stands in the passage."""
        return bool(self.pattern.search(passage)) if self.pattern else contains_answer(passage, self.answers)


def load_questions(path: Path | str) -> list[AnsweredQuestion]:
    """Questions with answers: `.jsonl` of `question, answers`, or `.tsv` of a question and a regular expression.

    Whether a passage answers one is then decided by its text (`answered_by`); say so beside the numbers.

    Raises:
        UserError: The file cannot be read, a line is malformed or has no answer, or an expression is none.
    """
    path = Path(path)
    by = _by_pattern if Path(path.name.removesuffix(".gz")).suffix == ".tsv" else _by_answers
    return [by(path, number, line) for number, line in read_lines(path)]


def _by_answers(path: Path, number: int, line: str) -> AnsweredQuestion:
    row = _json_object(path, number, line, "question", "answers")
    answers = row["answers"]
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise UserError(
            f"{path}, line {number}: answers must be a list of one string or more. Got {as_written(answers)}.\n"
            'Write one answer as ["..."], and leave out questions without one.'
        )
    return AnsweredQuestion(str(row["question"]), tuple(answers))


def _by_pattern(path: Path, number: int, line: str) -> AnsweredQuestion:
    question, tab, expression = line.partition("\t")
    try:
        pattern = re.compile(expression, re.IGNORECASE)
    except re.error as error:
        raise UserError(f"{path}, line {number}: no regular expression ({error}). Got {line}.") from None
    if not tab or not expression:
        raise UserError(f"{path}, line {number}: a question, a tab and a regular expression. Got {line}.")
    return AnsweredQuestion(question, (), pattern)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _require(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise UserError(f"{folder} lacks {name} (plain or .gz).\nGive the benchmark whole.")
    return path


def _read_reqa(folder: Path) -> Benchmark:
    texts = [line for _, line in read_lines(_require(folder, "test.candidates.txt"))]
    kept = [line for line, text in enumerate(texts) if text.strip()]  # as the store keeps them
    ids = {line: id for id, line in enumerate(kept)}
    questions, relevant, num_skipped = [], [], 0
    path = _require(folder, "test.queries.tsv")
    for number, line in read_lines(path):
        question, _, listed = line.partition("\t")
        places = listed.replace(",", " ").split()
        if not places or not all(place.isdecimal() and int(place) < len(texts) for place in places):
            raise UserError(
                f"{path}, line {number}: a question, a tab and lines of candidates from 0 to {len(texts) - 1}. "
                f"Got {line}."
            )
        found = [ids[int(place)] for place in places if int(place) in ids]
        num_skipped += len(places) - len(found)
        if found:
            questions.append(question)
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
    given, places = {id for id, _ in documents}, {id: place for place, (id, _) in enumerate(kept)}
    passages = Passages.from_rows(row for _, row in kept)
    if judged is None:
        raise UserError(f"{folder} has no judgements (qrels).\nGive the benchmark whole.")
    found: dict[str, set[int]] = defaultdict(set)
    num_skipped = 0
    for number, (query, passage, score) in _judgements(judged, header):
        if passage not in given:
            raise UserError(
                f"{judged}, line {number}: a judgement names a document of {docs}. Got {passage}, which is not there.\n"
                "Give the benchmark whole."
            )
        if score > 0 and passage in places:
            found[query].add(places[passage])
        num_skipped += score > 0 and passage not in places
    _tell_skipped(folder, num_skipped)
    asked = [row for row in _json_lines(_require(folder, "queries.jsonl"), key, "text") if found.get(str(row[key]))]
    return Benchmark(
        name=folder.name,
        passages=passages,
        questions=tuple(str(row["text"]) for row in asked),
        relevant=tuple(frozenset(found[str(row[key])]) for row in asked),
        num_skipped=num_skipped,
        question_names=tuple(str(row[key]) for row in asked),
        passage_names=tuple(id for id, _ in kept),
    )


def _tell_skipped(folder: Path, num: int) -> None:
    if num:
        current_display().note(f"{folder.name}: {num:,} judgements of documents without title and text skipped.")


def _passage(row: dict[str, Any]) -> dict[str, Any] | None:
    """A document as the store keeps it: words of a title alone are its text; None: there are no words."""
    title, text = row.get("title"), row["text"]
    if str(text or "").strip():
        return {"title": title, "text": text}
    return {"title": "", "text": str(title)} if str(title or "").strip() else None


def _json_lines(path: Path, *keys: str) -> Iterator[dict[str, Any]]:
    for number, line in read_lines(path):
        yield _json_object(path, number, line, *keys)


def _json_object(path: Path, number: int, line: str, *keys: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        _ = [row[key] for key in keys]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path}, line {number}: an object with {' and '.join(keys)}. Got {line}.") from None
    return row


def _judgements(path: Path, header: bool) -> Iterator[tuple[int, tuple[str, str, float]]]:
    for number, line in read_lines(path):
        if header and number == 1:
            continue
        try:
            query, passage, score = line.split("\t")
            yield number, (query, passage, float(score))
        except ValueError:
            raise UserError(
                f"{path}, line {number}: query, passage and relevance, with tabs between them. Got {line}."
            ) from None
