"""Shards of an index in one process: the best of each shard are merged."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from infoflow.foundation import UserError

from ._found import Excluded, Found, Searches, best, check_search


@final
class ShardedIndex:
    """Indexes of all shards of a store, with exactly the results and scores of an index of the whole store.

    This holds for exact indexes: dense ones, and lexical ones with the statistics of all passages.
    """

    def __init__(self, shards: Sequence[Searches]) -> None:
        """
        Args:
            shards: By number: shard i of n has the passages i, i + n, i + 2n, ...

        Raises:
            UserError: There is none.
        """
        if not shards:
            raise UserError("A sharded index needs at least one shard. Got none.")
        self.shards = list(shards)

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each query.

        Args:
            queries: Input of each shard: vectors, or terms.
            k: Number of results; missing ones have id −1 and score −inf.
            exclude: Ids to exclude for each query.

        Raises:
            UserError: As in the shards' own search.
        """
        excluded, of = check_search(k, len(queries), exclude), len(self.shards)
        return merged(
            [search_shard(one, number, of, queries, k, excluded) for number, one in enumerate(self.shards)], k
        )


def search_shard(shard: Searches, number: int, of: int, queries: Any, k: int, excluded: Sequence[set[int]]) -> Found:
    """Results of one shard, with ids of the whole store."""
    own = [{id // of for id in out if id % of == number} for out in excluded]
    ids, scores = shard.search(queries, k, own)
    return Found(np.where(ids < 0, ids, ids * of + number), scores)


def merged(found: Sequence[Found], k: int) -> Found:
    """The k best results of all shards for each query."""
    ids, scores = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
    rows = [best(*row, k, set()) for row in zip(ids, scores, strict=True)]
    kept = np.array([row for row, _ in rows], dtype=np.int64).reshape(-1, k)
    return Found(kept, np.array([values for _, values in rows], dtype=scores.dtype).reshape(-1, k))
