"""Recall of an approximate search against the exact one, reported whenever an index is built."""

from typing import NamedTuple

from infoflow.foundation import UserError
from infoflow.objectives import Numbers

from ._dense_index import DenseIndex
from ._ranking import recall_at

NUM_QUERIES = 200
"""Number of queries for the reported recall."""


class SearchRecall(NamedTuple):
    """Mean share of the k best passages by exact search that the approximate search finds among its k."""

    k: int
    num_queries: int
    queries: str  # kind of queries: questions, passages, or vectors of passages
    recall: float


def search_recall(index: DenseIndex, queries: Numbers, k: int = 10, what: str = "questions") -> SearchRecall:
    """recall@k of an index against exact search of its vectors; with fewer than k passages, of all.

    Args:
        index: An approximate index; an exact one has recall 1.
        queries: (query, width).
        k: Cutoff.
        what: Kind of the queries, reported with the number.

    Raises:
        UserError: There is no query; or as in `DenseIndex.search`.
    """
    found = index.search(queries, k).ids
    if not len(found):
        raise UserError("Recall needs at least one query. Got none.")
    exact = DenseIndex(index.vectors).search(queries, k).ids
    shares = recall_at(found, [row[row >= 0].tolist() for row in exact], k)
    return SearchRecall(k, len(found), what, float(shares.mean()))
