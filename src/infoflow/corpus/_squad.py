"""Reads questions about passages with span answers: SQuAD's format, and answers as word ranges."""

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, as_written

from ._columns import Row, plain_text
from ._lines import read_lines
from ._tables import parsed_json, read_document

QUESTION_COLUMNS = ("text", "question", "answers", "answer_starts")

_RANGE = re.compile(r"(\d{1,6})-(\d{1,6})")


def read_squad(path: Path) -> Iterator[Row | None]:
    """One row per question of a file in SQuAD's format, 1.1 or 2.0; None for a blank question or passage.

    Raises:
        UserError: It is not JSON, or has another structure.
    """
    whole = parsed_json(read_document(path), str(path))
    count = 0
    for article in _list(whole, "data", str(path)):
        for paragraph in _list(article, "paragraphs", str(path)):
            questions = _list(paragraph, "qas", str(path))
            text = plain_text(paragraph.get("context"), str(path), count + 1, "context")
            for entry in questions:
                count += 1
                yield _question(text, entry, str(path), count)


def read_word_answers(sentences: Path, questions: Path) -> Iterator[Row | None]:
    """One row per question about a sentence of another file, with answers as word ranges in that sentence.

    Raises:
        UserError: A line has too few fields, or refers to a missing sentence or word.
    """
    texts = [_fields(sentences, number, line, 2)[1] for number, line in read_lines(sentences)]
    for number, line in read_lines(questions):
        which, question, ranges = _fields(questions, number, line, 3)
        if not which.isdecimal() or int(which) >= len(texts):
            raise UserError(
                f"{questions}, line {number}: expected the line number of a sentence in {sentences}, from 0 to "
                f"{len(texts) - 1}. Got {as_written(which)}.\nUse two files that belong together."
            )
        words = texts[int(which)].split(" ")
        spans = [_word_range(each, len(words), questions, number) for each in ranges.split()]
        yield _row(" ".join(words), question.strip(), _spans(words, spans))


def _question(text: str, entry: Any, where: str, number: int) -> Row | None:
    """The row of one of `qas`."""
    if not isinstance(entry, Mapping):
        raise UserError(f"{where}, question {number}: expected an object. Got {as_written(entry)}.\nCorrect it.")
    question = plain_text(entry.get("question"), where, number, "question").strip()
    if entry.get("is_impossible"):
        return _row(text, question, [])
    answers = entry.get("answers")
    if not isinstance(answers, list) or not (answers or "is_impossible" in entry):
        raise UserError(
            f"{where}, question {number}: expected answers or is_impossible. Got {as_written(answers)}.\n"
            "Questions without published answers cannot be used; leave them out."
        )
    return _row(text, question, [_answer(each, where, number) for each in answers])


def _answer(answer: Any, where: str, number: int) -> tuple[str, int]:
    """An answer, and its stated start character in the passage."""
    start = answer.get("answer_start") if isinstance(answer, Mapping) else None
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < 1 << 31:
        raise UserError(
            f'{where}, question {number}: an answer is {{"text": ..., "answer_start": ...}} with an offset from 0. '
            f"Got {as_written(answer)}.\nCorrect it."
        )
    return plain_text(answer.get("text"), where, number, "answers"), start


def _row(text: str, question: str, answers: list[tuple[str, int]]) -> Row | None:
    kept = [(answer, start) for answer, start in dict.fromkeys(answers) if answer.strip()]
    if not (text.strip() and question) or (answers and not kept):
        return None
    return {
        "text": text,
        "question": question,
        "answers": [answer for answer, _ in kept],
        "answer_starts": [start for _, start in kept],
    }


def _list(value: Any, key: str, where: str) -> list[Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(found, list):
        raise UserError(
            f"{where}: expected SQuAD's format: data, a list of articles with paragraphs, each with a context and "
            f"qas. Got no list {key}.\nConvert it, or read a table: question, text and answers as columns."
        )
    return found


def _fields(path: Path, number: int, line: str, count: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) < count:
        raise UserError(
            f"{path}, line {number}: {count} tab-separated fields are needed. Got {len(fields)}.\nCorrect the line."
        )
    return fields


def _word_range(text: str, num_words: int, path: Path, number: int) -> tuple[int, int]:
    found = _RANGE.fullmatch(text)
    if not found or not int(found[1]) <= int(found[2]) < num_words:
        raise UserError(
            f"{path}, line {number}: expected word ranges such as 0-3 in a sentence with {num_words} words. "
            f"Got {as_written(text)}.\nCorrect the line."
        )
    return int(found[1]), int(found[2])


def _spans(words: list[str], ranges: list[tuple[int, int]]) -> list[tuple[str, int]]:
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    return [(" ".join(words[first : last + 1]), starts[first]) for first, last in ranges]
