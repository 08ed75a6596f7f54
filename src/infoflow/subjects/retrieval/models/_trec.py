"""TREC's file formats: search results (runs) and relevance judgements (qrels), for `trec_eval` and similar tools.

A line of a run is `query Q0 passage rank score tag`, of qrels `query 0 passage relevance`, separated by white space.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from infoflow.corpus import read_lines
from infoflow.foundation import UserError, as_written, atomic_write, check_writable, is_unicode

from ._found import Found
from ._ranking import NOTHING, Relevant

T = TypeVar("T")
Names = Sequence[str] | None
"""Names of queries or passages in a file; None: their numbers, from 0."""


def write_run(
    path: Path | str, found: Found, query_names: Names = None, passage_names: Names = None, tag: str = "infoflow"
) -> None:
    """Results for each query, best first. A query without results has no line (`trec_eval -c` counts it).

    The tools sort by score in single precision and break ties by name. Scores are therefore written in single
    precision, and a score that is not below the previous one is lowered to the next number: every tool has our order.

    Args:
        path: The file; an existing one is replaced if its lines have this tag.
        found: Results of each query.
        query_names: Name of each query.
        passage_names: Name of every passage of the index, by id.
        tag: Name of the system.

    Raises:
        UserError: A name is empty, has white space or is not unique; there are too few; the scores rise; or the file
            exists with another tag.
    """
    check_run_file(path, tag)
    queries = _names(query_names, len(found.ids), "query")
    passages = _names(passage_names, int(found.ids.max(initial=NOTHING)) + 1, "passage")
    system = _names([tag], 1, "tag")[0]
    _write(path, _run_lines(found, queries, passages, system))


def write_qrels(path: Path | str, relevant: Relevant, query_names: Names = None, passage_names: Names = None) -> None:
    """Relevant passages of each query, with relevance 1.

    Args:
        path: The file; an existing one must have the same content.
        relevant: Ids of passages.
        query_names: As in `write_run`.
        passage_names: As in `write_run`.

    Raises:
        UserError: As in `write_run`.
    """
    path = Path(path)
    queries = _names(query_names, len(relevant), "query")
    passages = _names(passage_names, max((int(id) for one in relevant for id in one), default=NOTHING) + 1, "passage")
    rows = zip(queries, relevant, strict=True)
    lines = [f"{query} 0 {passages[id]} 1\n" for query, ids in rows for id in sorted(map(int, ids))]
    if path.is_file() and path.stat().st_size and path.read_bytes() != "".join(lines).encode():
        raise _another(path)  # a qrels file does not record its author
    _write(path, lines)


def check_run_file(path: Path | str, tag: str = "infoflow") -> None:
    """Refuse to replace a file that is not a run with this tag, before the search starts.

    Raises:
        UserError: The file exists with another tag, or cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder, but a file must be written there. Choose another name.")
    check_writable(path.absolute().parent, "The folder")
    if not path.exists():
        return
    with path.open("rb") as file:
        columns = file.read(10_000).partition(b"\n")[0].split()
    if columns and (len(columns) != 6 or columns[-1] != tag.encode()):
        raise _another(path)


def _another(path: Path) -> UserError:
    return UserError(f"{path} would be replaced, and was not written by this command. Move it, or choose another name.")


def read_run(path: Path | str) -> dict[str, dict[str, float]]:
    """Query → passage → score, best first; ties by greater name, as in `trec_eval`.

    Raises:
        UserError: The file cannot be read, a line is malformed, or a passage occurs twice for a query.
    """
    rows = ((number, row[0], row[2], row[4]) for number, row in _rows(path, 6, "query Q0 passage rank score tag"))
    run = _by_query(
        path, ((number, query, passage, _score(path, number, text)) for number, query, passage, text in rows)
    )
    return {query: dict(sorted(sorted(scores.items(), reverse=True), key=_falling)) for query, scores in run.items()}


def read_qrels(path: Path | str) -> dict[str, dict[str, int]]:
    """Query → passage → relevance; below 1 is not relevant.

    Raises:
        UserError: As in `read_run`.
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
    """The scores in single precision, strictly decreasing."""
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
                f"A name in a TREC file must be one word, since white space separates its columns. Got the {what} "
                f"{as_written(name)}.\nUse other names, or none: numbers replace them."
            )
    if len(set(given)) != len(given):
        seen: set[str] = set()
        twice = next(name for name in given if name in seen or seen.add(name))
        raise UserError(f"Each {what} of a TREC file needs a unique name. Got {as_written(twice)} twice.")
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
            raise UserError(f"{path}, line {number}: query {query} has passage {passage} twice.")
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
