"""TREC's files: what a search found (a run) and what is relevant (qrels), as `trec_eval` and its kin read them.

A run has `query Q0 passage rank score tag` in each line, qrels `query 0 passage relevance`, with white space between.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from infoflow.corpus import read_lines
from infoflow.foundation import UserError, as_written, atomic_write, is_unicode

from ._found import Found
from ._ranking import NOTHING, Relevant

T = TypeVar("T")
Names = Sequence[str] | None
"""What stands in a file for each query or passage; None: its number, from 0."""


def write_run(
    path: Path | str, found: Found, query_names: Names = None, passage_names: Names = None, tag: str = "infoflow"
) -> None:
    """What was found for each query, best first. A query for which nothing was has no line (`trec_eval -c` counts it).

    The tools sort by score, read it in single precision and break ties by name. Scores are therefore written so, and
    one that is not below that before it is lowered to the next number: every tool has our order.

    Args:
        path: The file; an old one is replaced.
        found: Of each query.
        query_names: One of each query.
        passage_names: Of every passage of the index, by id.
        tag: Name of the system.

    Raises:
        UserError: A name is empty, holds white space or is another's too; there are too few; or the scores rise.
    """
    queries = _names(query_names, len(found.ids), "query")
    passages = _names(passage_names, int(found.ids.max(initial=NOTHING)) + 1, "passage")
    system = _names([tag], 1, "tag")[0]
    _write(path, _run_lines(found, queries, passages, system))


def write_qrels(path: Path | str, relevant: Relevant, query_names: Names = None, passage_names: Names = None) -> None:
    """What is relevant to each query, with relevance 1.

    Args:
        path: The file; an old one is replaced.
        relevant: Ids of passages.
        query_names: As `write_run`.
        passage_names: As `write_run`.

    Raises:
        UserError: As `write_run`.
    """
    queries = _names(query_names, len(relevant), "query")
    passages = _names(passage_names, max((int(id) for one in relevant for id in one), default=NOTHING) + 1, "passage")
    rows = zip(queries, relevant, strict=True)
    _write(path, (f"{query} 0 {passages[id]} 1\n" for query, ids in rows for id in sorted(map(int, ids))))


def read_run(path: Path | str) -> dict[str, dict[str, float]]:
    """Query → passage → score, best first; of equal scores the greater name first, as `trec_eval` has them.

    Raises:
        UserError: The file cannot be read, a line is malformed, or a passage stands twice for a query.
    """
    rows = ((number, row[0], row[2], row[4]) for number, row in _rows(path, 6, "query Q0 passage rank score tag"))
    run = _by_query(
        path, ((number, query, passage, _score(path, number, text)) for number, query, passage, text in rows)
    )
    return {query: dict(sorted(sorted(scores.items(), reverse=True), key=_falling)) for query, scores in run.items()}


def read_qrels(path: Path | str) -> dict[str, dict[str, int]]:
    """Query → passage → relevance; below 1 is not relevant.

    Raises:
        UserError: As `read_run`.
    """
    rows = ((number, row[0], row[2], row[3]) for number, row in _rows(path, 4, "query 0 passage relevance"))
    judged = ((number, query, passage, _whole(path, number, text)) for number, query, passage, text in rows)
    return _by_query(path, judged)


# -- writing -----------------------------------------------------------------------------------------------------------


def _run_lines(found: Found, queries: Sequence[str], passages: Sequence[str], tag: str) -> Iterator[str]:
    for query, ids, scores in zip(queries, *found, strict=True):
        there = ids != NOTHING
        pairs = zip(ids[there].tolist(), _strictly_falling(scores[there], query), strict=True)
        for rank, (id, score) in enumerate(pairs, start=1):
            yield f"{query} Q0 {passages[id]} {rank} {score!s} {tag}\n"


def _strictly_falling(scores: np.ndarray, query: str) -> list[np.float32]:
    """The scores in single precision, each below the one before."""
    with np.errstate(over="ignore"):
        values = scores.astype(np.float32)
    if not np.isfinite(values).all() or (np.diff(scores) > 0).any():
        raise UserError(
            f"The passages of query {query} must have finite scores, best first. Got {scores[:5].tolist()}."
        )
    lowered: list[np.float32] = []
    for value in values:
        lowered.append(min(value, np.nextafter(lowered[-1], np.float32(-np.inf))) if lowered else value)
    return lowered


def _names(given: Names, num: int, what: str) -> Sequence[str]:
    if given is None:
        return list(map(str, range(num)))
    if len(given) < num:
        raise UserError(f"Each {what} needs a name: {num:,} of them. Got {len(given):,}.")
    for name in given:
        if name.split() != [name] or not is_unicode(name):
            raise UserError(
                f"A name in a TREC file must be one word, since white space parts its columns. Got the {what} "
                f"{as_written(name)}.\nGive other names, or none: then numbers stand for them."
            )
    if len(set(given)) != len(given):
        seen: set[str] = set()
        twice = next(name for name in given if name in seen or seen.add(name))
        raise UserError(f"Each {what} of a TREC file needs a name of its own. Got {as_written(twice)} twice.")
    return given


def _write(path: Path | str, lines: Iterable[str]) -> None:
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


# -- reading -----------------------------------------------------------------------------------------------------------


def _rows(path: Path | str, columns: int, layout: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(Path(path)):
        row = line.split()
        if row and len(row) != columns:
            raise UserError(f"{path}, line {number}: {columns} columns, {layout}. Got {as_written(line)}.")
        if row:
            yield number, row


def _by_query(path: Path | str, rows: Iterable[tuple[int, str, str, T]]) -> dict[str, dict[str, T]]:
    found: dict[str, dict[str, T]] = {}
    for number, query, passage, value in rows:
        of_query = found.setdefault(query, {})
        if passage in of_query:
            raise UserError(f"{path}, line {number}: query {query} has passage {passage} a second time.")
        of_query[passage] = value
    return found


def _score(path: Path | str, number: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not np.isfinite(score):
        raise UserError(f"{path}, line {number}: the score must be a finite number. Got {as_written(text)}.")
    return score


def _whole(path: Path | str, number: int, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(
            f"{path}, line {number}: the relevance must be a whole number. Got {as_written(text)}."
        ) from None


def _falling(pair: tuple[str, float]) -> float:
    return -pair[1]
