"""Results of a search, metrics of their ranking, and TREC's file formats for them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from infoflow.corpus import read_lines
from infoflow.foundation import UserError, as_written, atomic_write, check_writable, is_unicode

Excluded = Sequence[Collection[int]]  # ids to exclude for each query


class Found(NamedTuple):
    """Passages of each query, best first; id −1 and score −inf mark empty slots."""

    ids: np.ndarray  # int64 (query, k)
    scores: np.ndarray  # float (query, k)

    @classmethod
    def stacked(cls, rows: Sequence[tuple[np.ndarray, np.ndarray]], k: int, dtype: Any) -> "Found":
        """From the ids and scores (k,) of each query, as `best` returns them."""
        ids = np.array([ids for ids, _ in rows], dtype=np.int64).reshape(-1, k)
        return cls(ids, np.array([scores for _, scores in rows], dtype=dtype).reshape(-1, k))


@runtime_checkable
class Searches(Protocol):
    """A search over passages: an index of this package, or an adapter for a vector database."""

    def __len__(self) -> int:
        """Number of passages; ids run from 0."""
        ...

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each query that are not excluded, by higher score, then lower id.

        Args:
            queries: Vectors (query, width), or lists of terms.
            k: Number of results; missing ones have id −1 and score −inf.
            exclude: Ids to exclude for each query.
        """
        ...


def check_search(k: int, num_queries: int, exclude: Excluded | None) -> list[set[int]]:
    """The excluded ids of each query as sets."""
    if k < 1:
        raise UserError(f"k must be at least 1. Got {k}.")
    if exclude is None:
        return [set() for _ in range(num_queries)]
    if len(exclude) != num_queries:
        raise UserError(f"exclude must name ids for each of {num_queries} queries. Got {len(exclude)}.")
    return [{int(id) for id in one if id >= 0} for one in exclude]


def best(ids: np.ndarray, scores: np.ndarray, k: int, excluded: set[int]) -> tuple[np.ndarray, np.ndarray]:
    """The k best candidates of one query, except excluded ones and scores of −inf; the lower id wins ties."""
    kept = scores > -np.inf
    if excluded:
        kept &= ~np.isin(ids, list(excluded))
    ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))[:k]
    found, values = np.full(k, -1, dtype=np.int64), np.full(k, -np.inf, dtype=scores.dtype)
    found[: len(order)], values[: len(order)] = ids[order], scores[order]
    return found, values


def nearest_few(scores: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k highest scores and of all ties with the last of them, unordered."""
    if len(scores) <= k:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= least)


# Ranking metrics: whether the relevant passages are found, and at what rank.

Ranked = Sequence[Sequence[int] | np.ndarray] | np.ndarray
Relevant = Sequence[Collection[int]]
NOTHING = -1  # the id of an empty slot


def hit_at(ranked: Ranked, relevant: Relevant, k: int) -> np.ndarray:
    """Whether a relevant passage is among the first k: float64 (query,). Its mean is "recall@k" of REALM, DPR and FiD.

    Args:
        ranked: Ids of each query's passages, best first; −1 means none.
        relevant: Ids of the relevant passages of each query.
        k: Cutoff.

    Raises:
        UserError: k is below 1, the lengths differ, or a query has no relevant passage.
    """
    return (_found(ranked, relevant, k) > 0).astype(np.float64)


def recall_at(ranked: Ranked, relevant: Relevant, k: int) -> np.ndarray:
    """Share of the relevant passages among the first k: float64 (query,). Arguments and errors as in `hit_at`."""
    return _found(ranked, relevant, k) / np.array([len(set(map(int, one))) for one in relevant], dtype=np.float64)


def reciprocal_rank(ranked: Ranked, relevant: Relevant, k: int | None = None) -> np.ndarray:
    """1 / rank of the first relevant passage, 0 if none is among the first k (None: all): float64 (query,).

    Raises:
        UserError: As in `hit_at`.
    """
    _check(ranked, relevant, 1 if k is None else k)
    wanted = [set(map(int, one)) for one in relevant]
    ranks = [
        next((1 / rank for rank, id in enumerate(row[:k], start=1) if int(id) in right), 0.0)
        for row, right in zip(ranked, wanted, strict=True)
    ]
    return np.array(ranks, dtype=np.float64)


def _found(ranked: Ranked, relevant: Relevant, k: int) -> np.ndarray:
    _check(ranked, relevant, k)
    pairs = zip(ranked, relevant, strict=True)
    return np.array([len({int(id) for id in row[:k]} & set(map(int, right))) for row, right in pairs], dtype=np.float64)


def _check(ranked: Ranked, relevant: Relevant, k: int) -> None:
    if k < 1:
        raise UserError(f"k must be at least 1. Got {k}.")
    if len(ranked) != len(relevant):
        raise UserError(f"Each ranking needs its relevant passages. Got {len(ranked)} rankings and {len(relevant)}.")
    if any(len(one) == 0 or NOTHING in one for one in relevant):
        raise UserError(
            "Every query needs a relevant passage with an id of at least 0. Got a query without one.\n"
            "Leave it out, and report how many were left out."
        )


# TREC's file formats: search results (runs) and relevance judgements (qrels), for `trec_eval` and similar tools.
#
# A line of a run is `query Q0 passage rank score tag`, of qrels `query 0 passage relevance`, separated by white space.

T = TypeVar("T")
Names = Sequence[str] | None  # names of queries or passages in a file; None: their numbers, from 0


def write_run(
    path: Path | str, found: Found, query_names: Names = None, passage_names: Names = None, tag: str = "infoflow"
) -> None:
    """Write the results of each query, best first. A query without results has no line (`trec_eval -c` counts it).

    TREC tools sort by score in single precision and break ties by name. Scores are therefore written in single
    precision, and a score that is not below the previous one is lowered to the next number, so that every tool keeps
    this order.

    Args:
        path: The file; an existing one is replaced if its lines have this tag.
        found: Results of each query.
        query_names: Name of each query.
        passage_names: Name of every passage of the index, by id.
        tag: Name of the system.

    Raises:
        UserError: A name is empty, has white space or is not unique; there are too few names; the scores rise; or the
            file exists with another tag.
    """
    check_run_file(path, tag)
    queries = _names(query_names, len(found.ids), "query")
    passages = _names(passage_names, int(found.ids.max(initial=NOTHING)) + 1, "passage")
    system = _names([tag], 1, "tag")[0]
    _write(path, _run_lines(found, queries, passages, system))


def write_qrels(path: Path | str, relevant: Relevant, query_names: Names = None, passage_names: Names = None) -> None:
    """Write the relevant passages of each query, with relevance 1.

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
    """Before a search starts, refuse to replace a file that is not a run with this tag."""
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
    return UserError(f"{path} was not written by this command, and would be replaced. Move it, or choose another name.")


def read_run(path: Path | str) -> dict[str, dict[str, float]]:
    """Query → passage → score, best first; among equal scores, the greater name comes first, as in `trec_eval`.

    Raises:
        UserError: The file cannot be read, a line is malformed, or a passage occurs twice for a query.
    """
    rows, what = _rows(path, 6, "query Q0 passage rank score tag"), "score must be a finite number"
    run = _by_query(path, ((number, row[0], row[2], _value(path, number, row[4], float, what)) for number, row in rows))
    return {
        query: dict(sorted(sorted(scores.items(), reverse=True), key=lambda pair: -pair[1]))
        for query, scores in run.items()
    }


def read_qrels(path: Path | str) -> dict[str, dict[str, int]]:
    """Query → passage → relevance; a value below 1 means not relevant.

    Raises:
        UserError: As in `read_run`.
    """
    rows, what = _rows(path, 4, "query 0 passage relevance"), "relevance must be a whole number"
    return _by_query(path, ((number, row[0], row[2], _value(path, number, row[3], int, what)) for number, row in rows))


# -- writing -----------------------------------------------------------------------------------------------------------


def _run_lines(found: Found, queries: Sequence[str], passages: Sequence[str], tag: str) -> Iterator[str]:
    for query, ids, scores in zip(queries, *found, strict=True):
        there = ids != NOTHING
        pairs = zip(ids[there].tolist(), _strictly_falling(scores[there], query), strict=True)
        for rank, (id, score) in enumerate(pairs, start=1):
            yield f"{query} Q0 {passages[id]} {rank} {score!s} {tag}\n"


def _strictly_falling(scores: np.ndarray, query: str) -> list[np.float32]:
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
                f"{as_written(name)}.\nUse other names, or none, which gives numbers."
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


def _value(path: Path | str, number: int, text: str, read: Callable[[str], T], what: str) -> T:
    with suppress(ValueError):
        if np.isfinite(value := read(text)):
            return value
    raise UserError(f"{path}, line {number}: the {what}. Got {as_written(text)}.")
