"""How much of the exact ranking an approximate search finds: told wherever one is built."""

from typing import NamedTuple

from infoflow.foundation import UserError

from ._dense_index import DenseIndex
from ._numbers import Numbers
from ._ranking import recall_at

NUM_QUERIES = 200
"""On so many queries recall is told."""


class SearchRecall(NamedTuple):
    """Mean share of the k best passages by exact search that the approximate one finds among its k."""

    k: int
    num_queries: int
    queries: str  # what was asked: questions, passages, or vectors of passages
    recall: float


def search_recall(index: DenseIndex, queries: Numbers, k: int = 10, what: str = "questions") -> SearchRecall:
    """recall@k of an index against exact search of its vectors; of fewer passages than k, of all.

    Args:
        index: That searches approximately; an exact one has 1.
        queries: (query, width).
        k: How many are looked at.
        what: What the queries are, to be told beside the number.

    Raises:
        UserError: There is no query, or as `DenseIndex.search`.
    """
    found = index.search(queries, k).ids
    if not len(found):
        raise UserError("Recall is told on at least one query. Got none.")
    exact = DenseIndex(index.vectors).search(queries, k).ids
    shares = recall_at(found, [row[row >= 0].tolist() for row in exact], k)
    return SearchRecall(k, len(found), what, float(shares.mean()))
